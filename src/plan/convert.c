#include "plan/convert.h"

#include "format/layout.h"

#include <strings.h>

enum dtype res_convert_type(const char *word)
{
    static const struct {
        const char *word;
        enum dtype type;
    } known[] = {
        { "F16", DT_F16 },          { "F8_E4M3", DT_F8_E4M3 },
        { "F8_E5M2", DT_F8_E5M2 },  { "fp8_e4m3fn", DT_F8_E4M3 },
        { "fp8_e5m2", DT_F8_E5M2 }, { "fp8_e4m3fn_fast", DT_F8_E4M3 },
        { "fp8", DT_F8_E4M3 },
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcasecmp(word, known[i].word) == 0)
            return known[i].type;
    return DT_NONE;
}

/* Is there a tensor of that name in the same layer? */
static bool has_beside(const struct weights *w, const struct weights_entry *e, const char *called)
{
    char name[1024 + 32]; /* of a longer one nobody has written a scale */
    size_t stem = e->name_len;
    while (stem && e->name[stem - 1] != '.')
        stem--;
    int n = snprintf(name, sizeof name, "%.*s%s", (int)stem, e->name, called);
    return n > 0 && (size_t)n < sizeof name && weights_find(w, name, (size_t)n);
}

static bool is_scaled(const struct weights *w, const struct weights_entry *e)
{
    if (e->layout || layout_owner(w, e))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(scale_names); i++)
        if (has_beside(w, e, scale_names[i]))
            return true;
    return has_beside(w, e, "comfy_quant");
}

bool res_has_scales(const struct weights *w, const char *part)
{
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if ((!part || str_starts(e->name, e->name_len, part)) && is_scaled(w, e))
            return true;
    }
    return false;
}

static bool is_weight(const struct weights *w, const struct weights_entry *e)
{
    uint64_t n;
    return dtype_desc(e->stored)->is_float && e->stored != DT_F8_E8M0 &&
           shape_count(&e->shape, &n) && n > 1 && !str_ends(e->name, e->name_len, "scaled_fp8") &&
           !is_scaled(w, e);
}

berth_status res_convert(struct weights *w, const char *part, const char *dtype, berth_err *err)
{
    enum dtype to = res_convert_type(dtype);
    if (to == DT_NONE)
        return err_set(err, BERTH_EINVAL,
                       "weights are converted to fp8_e4m3fn, fp8_e5m2 or F16, not to '%.40s'",
                       dtype);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (part && !str_starts(e->name, e->name_len, part))
            continue;
        if ((dtype_is_quant(e->dtype) && !e->layout) || strcmp(weights_format(w), "gguf") == 0)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "weights of a GGUF file are not converted to %s: leave the type "
                           "(weight_dtype, --dtype) at its default",
                           dtype_name(to));
        if (is_weight(w, e) && (to != DT_F16 || e->stored == DT_F32))
            weights_convert(w, i, to);
    }
#ifdef BERTH_CHECKS
    weights_verify(w);
#endif
    return BERTH_OK;
}
