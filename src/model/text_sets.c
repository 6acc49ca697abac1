/* text_sets.c: which set a file's encoders make. */
#include "model/encoder.h"

#include "base/str.h"

#include <string.h>

const struct text_set *const text_set_list[] = {
#define TEXT_SET(x) &text_set_##x,
#include "model/text_sets.def"
#undef TEXT_SET
    NULL
};

/* Encoders as bits, in the order of encoders.def. */
typedef uint64_t encoder_mask;

static encoder_mask bit_of(const struct encoder_class *e)
{
    size_t i = 0;
    while (encoder_list[i] && encoder_list[i] != e)
        i++;
    if (!encoder_list[i] || i >= 64)
        BUG("encoder '%s' is not in encoders.def, or the 65th there", e->name);
    return (encoder_mask)1 << i;
}

static encoder_mask mask_of(const struct text_set *set)
{
    encoder_mask m = 0;
    for (const struct text_use *u = set->use; u->encoder; u++)
        m |= bit_of(u->encoder);
    return m;
}

static void list_names(encoder_mask m, struct str *out)
{
    const char *between = "";
    for (size_t i = 0; encoder_list[i]; i++)
        if (m >> i & 1) {
            str_addf(out, "%s%s", between, encoder_list[i]->name);
            between = " and ";
        }
}

void text_set_encoders(const struct text_set *set, struct str *out)
{
    list_names(mask_of(set), out);
}

/* ComfyUI's default, which lets the files decide. */
static bool is_plain(const char *type)
{
    return !type || strcmp(type, "stable_diffusion") == 0;
}

static bool has_type(const struct text_set *set, const char *type)
{
    for (size_t i = 0; set->types[i]; i++)
        if (strcmp(set->types[i], type) == 0)
            return true;
    return false;
}

/* The first set of this type; NULL: none. */
static const struct text_set *first_of_type(const char *type)
{
    size_t i = 0;
    while (text_set_list[i] && !has_type(text_set_list[i], type))
        i++;
    return text_set_list[i];
}

berth_status text_type_check(const char *type, berth_err *err)
{
    return is_plain(type) || first_of_type(type)
               ? BERTH_OK
               : err_set(err, BERTH_EUNSUPPORTED,
                         "text encoders of type '%.40s' cannot be computed yet", type);
}

/* The encoders are not what the type wants. twice: one is there more than once. */
static berth_status misfit(const char *type, encoder_mask have, bool twice, berth_err *err)
{
    encoder_mask want = mask_of(first_of_type(type));
    struct str wanted = { 0 }, got = { 0 }, missing = { 0 };
    list_names(want, &wanted);
    list_names(have, &got);
    list_names(want & ~have, &missing);
    err_set(err, BERTH_EINVAL, "type '%.40s' wants %s: %s is missing, %s %s", type, str_c(&wanted),
            missing.n ? str_c(&missing) : "nothing", twice ? "two files are" : "what is here is",
            str_c(&got));
    str_release(&wanted);
    str_release(&got);
    str_release(&missing);
    return err->code;
}

/* No set has exactly these encoders; names one that has them among others. */
static berth_status no_set(encoder_mask have, size_t n, bool twice, berth_err *err)
{
    const struct text_set *larger = NULL;
    struct str got = { 0 }, missing = { 0 };
    for (size_t i = 0; !twice && !larger && text_set_list[i]; i++)
        if ((have & ~mask_of(text_set_list[i])) == 0)
            larger = text_set_list[i];
    list_names(have, &got);
    if (larger && larger->types[0]) {
        list_names(mask_of(larger) & ~have, &missing);
        err_set(err, BERTH_EUNSUPPORTED,
                "%s alone makes no conditioning that can be computed yet; %s wants %s beside it: "
                "DualCLIPLoader, type %s",
                str_c(&got), larger->name, str_c(&missing), larger->types[0]);
    } else {
        err_set(err, BERTH_EUNSUPPORTED,
                "%zu text encoders (%s) that make no set for a model we know", n, str_c(&got));
    }
    str_release(&got);
    str_release(&missing);
    return err->code;
}

/* What is there; false: one of them twice. */
static bool mask_found(const struct text_found *found, size_t n, encoder_mask *have)
{
    bool twice = false;
    *have = 0;
    for (size_t i = 0; i < n; i++) {
        twice |= (*have & bit_of(found[i].is)) != 0;
        *have |= bit_of(found[i].is);
    }
    return !twice;
}

bool text_set_is(const struct text_set *set, const struct text_found *found, size_t n)
{
    encoder_mask have;
    return mask_found(found, n, &have) && mask_of(set) == have;
}

berth_status text_set_find(const struct text_found *found, size_t n, const char *type,
                           const struct text_set **out, berth_err *err)
{
    encoder_mask have;
    bool twice = !mask_found(found, n, &have), plain = is_plain(type);
    if (text_type_check(type, err))
        return err->code;
    for (size_t i = 0; !twice && text_set_list[i]; i++)
        if ((plain || has_type(text_set_list[i], type)) && mask_of(text_set_list[i]) == have) {
            *out = text_set_list[i];
            return BERTH_OK;
        }
    for (size_t i = 0; !twice && text_set_list[i]; i++)
        if (text_set_list[i]->any_type && mask_of(text_set_list[i]) == have) {
            *out = text_set_list[i];
            return BERTH_OK;
        }
    return plain ? no_set(have, n, twice, err) : misfit(type, have, twice, err);
}
