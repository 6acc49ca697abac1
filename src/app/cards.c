#include "app/cards.h"

#include "device/driver.h"

/* Length of the number at the start, 0..DEV_INDEX_MAX; 0: there is none. */
static size_t number_at(const char *s)
{
    unsigned v = 0;
    size_t n = 0;
    while (s[n] >= '0' && s[n] <= '9' && v <= DEV_INDEX_MAX)
        v = v * 10 + (unsigned)(s[n++] - '0');
    return v <= DEV_INDEX_MAX ? n : 0;
}

static bool is_list(const char *s)
{
    for (size_t n = number_at(s); n; n = number_at(s)) {
        if (!s[n])
            return true;
        if (s[n] != ',')
            return false;
        s += n + 1;
    }
    return false;
}

int app_cards(struct app *a, const struct card_options *o, char buf[CARDS_TEXT_MAX],
              const char **out)
{
    *out = NULL;
    if (o->only && (!is_list(o->only) || strlen(o->only) >= CARDS_TEXT_MAX))
        return app_usage(a, "--cuda-device: '%.40s' is no number of a card (0 is the first)",
                         o->only);
    if (o->first && (!is_list(o->first) || strchr(o->first, ',')))
        return app_usage(a, "--default-device: '%.40s' is no number of a card (0 is the first)",
                         o->first);
    if (!o->only && !o->first)
        return APP_OK;
    if (o->only)
        snprintf(buf, CARDS_TEXT_MAX, "%s", o->only);
    else
        snprintf(buf, CARDS_TEXT_MAX, "%s,*", o->first);
    *out = buf;
    return APP_OK;
}
