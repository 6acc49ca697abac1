#include "plan/quant.h"

#include "base/json.h"
#include "base/str.h"
#include "plan/convert.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <inttypes.h>

#define MARKER_MAX 512 /* bytes: a few short fields */

/* Layouts in which a value is the stored number times one scale (formats.md 1). */
static bool is_known(const char *format)
{
    return strcmp(format, "float8_e4m3fn") == 0 || strcmp(format, "float8_e5m2") == 0;
}

static berth_status check_layout(const json_t *v, const char *layer, berth_err *err)
{
    const char *format = json_string_value(json_object_get(v, "format"));
    if (format && is_known(format))
        return BERTH_OK;
    return err_set(err, BERTH_EUNSUPPORTED,
                   "'%.100s' is stored in the layout '%.40s', which cannot be computed yet", layer,
                   format ? format : "?");
}

/* Metadata may name layers with or without what stands in front of them in the file. */
static bool is_behind(const struct weights *w, const char *root, const char *layer)
{
    char name[1024];
    if (strncmp(layer, root, strlen(root)) == 0)
        return true;
    int n = snprintf(name, sizeof name, "%s%s.weight", root, layer);
    return n > 0 && (size_t)n < sizeof name && weights_find(w, name, (size_t)n);
}

berth_status quant_check_metadata(const struct weights *w, const char *root, berth_err *err)
{
    const struct weights_meta *x = weights_meta_find(w, "_quantization_metadata");
    json_t *o = NULL, *v;
    const char *layer;
    if (!x || x->kind != META_STRING)
        return BERTH_OK;
    if (js_parse(x->str, x->str_len, NULL, &o, err))
        return err_add(err, "_quantization_metadata");
    berth_status s = BERTH_OK;
    json_object_foreach(json_object_get(o, "layers"), layer, v)
    {
        if (!s && is_behind(w, root ? root : "", layer))
            s = check_layout(v, layer, err);
    }
    json_decref(o);
    return s;
}

berth_status quant_check_marker(const struct weights *w, const struct weights_entry *marker,
                                berth_err *err)
{
    char text[MARKER_MAX];
    json_t *o = NULL;
    if (marker->size > sizeof text)
        return err_set(err, BERTH_EUNSUPPORTED, "'%.120s' has %" PRIu64 " bytes", marker->name,
                       marker->size);
    if (weights_read(w, marker, 0, text, (size_t)marker->size, err) ||
        js_parse(text, (size_t)marker->size, NULL, &o, err))
        return err_add(err, "'%.120s'", marker->name);
    berth_status s = check_layout(o, marker->name, err);
    json_decref(o);
    return s;
}

static const struct weights_entry *find_beside(const struct weights *w,
                                               const struct weights_entry *e, const char *ending)
{
    char name[1024];
    int n = snprintf(name, sizeof name, "%s%s", e->name, ending);
    return n > 0 && (size_t)n < sizeof name ? weights_find(w, name, (size_t)n) : NULL;
}

static berth_status check_type(const struct weights *w, const struct weights_entry *e,
                               berth_err *err)
{
    if (e->shape.ndim < 2 || dtype_desc(e->dtype)->is_float || dtype_is_quant(e->dtype))
        return BERTH_OK;
    return err_set(err, BERTH_EUNSUPPORTED,
                   "'%.100s' is stored as %s%s, which cannot be computed"
                   " yet",
                   e->name, dtype_name(e->dtype),
                   find_beside(w, e, ".absmax") ? " by bitsandbytes" : "");
}

/* Tables of tokens and places, by the names that text encoders give them. */
static bool is_table(const char *name, size_t len)
{
    static const char *const table[] = { "embed_tokens.", "shared.", "token_embedding.",
                                         "position_embedding." };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        for (size_t k = 0; k < ARRAY_LEN(scale_names); k++) {
            char end[64];
            snprintf(end, sizeof end, "%s%s", table[i], scale_names[k]);
            if (str_ends(name, len, end))
                return true;
        }
    return false;
}

static berth_status check_scale(const struct weights *w, const struct weights_entry *e,
                                berth_err *err)
{
    unsigned char raw[sizeof(double)];
    char text[SHAPE_TEXT_MAX];
    uint64_t count;
    float scale;
    if (!shape_count(&e->shape, &count) || count != 1)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%.120s' is %s: layouts with more than one scale for a weight cannot be "
                       "computed yet",
                       e->name, shape_text(&e->shape, text));
    if (!is_table(e->name, e->name_len))
        return BERTH_OK;
    if (e->size > sizeof raw || !convert_possible(e->dtype, DT_F32))
        return err_set(err, BERTH_EUNSUPPORTED, "'%.120s' is %s", e->name, dtype_name(e->dtype));
    if (weights_read(w, e, 0, raw, (size_t)e->size, err) ||
        convert(e->dtype, raw, DT_F32, &scale, 1, err))
        return err->code;
    return scale == 1
               ? BERTH_OK
               : err_set(err, BERTH_EUNSUPPORTED,
                         "'%.120s': embeddings with a scale cannot be computed yet", e->name);
}

berth_status quant_check(const struct weights *w, const char *root, berth_err *err)
{
    berth_status s = quant_check_metadata(w, root, err);
    for (size_t i = 0; !s && i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (root && !str_starts(e->name, e->name_len, root))
            continue;
        if (str_ends(e->name, e->name_len, ".comfy_quant"))
            s = quant_check_marker(w, e, err);
        else if (is_scale(e->name, e->name_len))
            s = check_scale(w, e, err);
    }
    for (size_t i = 0; !s && i < weights_count(w); i++) { /* a marker says more than a type */
        const struct weights_entry *e = weights_at(w, i);
        if ((!root || str_starts(e->name, e->name_len, root)) &&
            str_ends(e->name, e->name_len, ".weight"))
            s = check_type(w, e, err);
    }
    return s;
}
