#include "app/device_options.h"

#define RAM_BUDGET_MIN ((uint64_t)1 << 20) /* a plain number below is one that lacks its unit */

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

static int read_cards(struct app *a, const struct device_options *o, char out[APP_CARDS_MAX])
{
    const char *only = o->only_cards, *first = o->first_card;
    if (only && !strcmp(only, "all"))
        return APP_OK;
    if (only && (!is_list(only) || strlen(only) >= APP_CARDS_MAX))
        return app_usage(a, "--cuda-device: '%.40s' is no number of a card (0 is the first)", only);
    if (first && (!is_list(first) || strchr(first, ',')))
        return app_usage(a, "--default-device: '%.40s' is no number of a card (0 is the first)",
                         first);
    if (only || first)
        snprintf(out, APP_CARDS_MAX, "%s%s", only ? only : first, only ? "" : ",*");
    return APP_OK;
}

static int read_ram(struct app *a, const char *text, uint64_t *out)
{
    char bytes[STR_BYTES_MAX];
    if (!str_parse_bytes(text, strlen(text), out) || !*out)
        return app_usage(a, "--ram-budget: '%.80s' is no size; write 16g, 512m or bytes", text);
    if (*out < RAM_BUDGET_MIN && strspn(text, "0123456789.") == strlen(text))
        return app_usage(a, "--ram-budget: '%.20s' is %s; did you mean %.20sg?", text,
                         str_bytes(*out, bytes), text);
    return APP_OK;
}

int app_devices(struct app *a, const struct device_options *o, struct app_ctx_args *out)
{
    int code = read_cards(a, o, out->cards);
    out->devices = o->devices;
    if (!code && o->ram && o->devices)
        code = app_usage(a, "--ram-budget beside --devices: say cpu=%.40s there", o->ram);
    if (!code && o->ram)
        code = read_ram(a, o->ram, &out->ram_budget);
    if (!code && o->pin && !str_parse_bytes(o->pin, strlen(o->pin), &out->pin_budget))
        code = app_usage(a, "--pin-budget: '%.80s' is no size; write 16g, 512m or 0", o->pin);
    if (!code && o->pin && !out->pin_budget)
        out->pin_budget = BERTH_NO_PINS;
    return code;
}
