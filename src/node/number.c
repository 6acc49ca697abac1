/* number.c: numbers from other values, sizes, colours and boxes. */
#include "node/texts.h"

#include <math.h>
#include <string.h>

#define UTILITY(c, shown, file, ...)                                                               \
    NODE_CLASS(c, .display = shown, .category = "utilities", V3(file), __VA_ARGS__)

/* ---- ComfyNumberConvert ---- */

static berth_status give_numbers(struct node_call *c, double f, node_int i, berth_err *err)
{
    if (out_value(c, 0, value_float(f), err))
        return err->code;
    return give_int(c, 1, i, err);
}

static berth_status not_finite(double f, berth_err *err)
{
    return err_set(err, BERTH_EINVAL, "Cannot convert non-finite value to number: %s",
                   isnan(f) ? "nan"
                   : f < 0  ? "-inf"
                            : "inf");
}

/* int(f) of what values can hold. */
static berth_status from_float(struct node_call *c, double f, berth_err *err)
{
    if (!isfinite(f))
        return not_finite(f, err);
    node_int i = f >= -0x1p64 && f <= 0x1p65 ? (node_int)f : f < 0 ? -U64_MAX : 2 * U64_MAX;
    return give_numbers(c, f, i, err);
}

static berth_status from_text(struct node_call *c, struct text t, berth_err *err)
{
    const char *p = t.p;
    size_t n = t.n;
    double f = NAN;
    node_int i;
    bool minus;
    py_strip(&p, &n, true, true);
    if (!n)
        return err_set(err, BERTH_EINVAL, "Cannot convert empty string to number.");
    switch (py_parse_float(p, n, &f)) {
    case PY_FLOAT:
        break;
    case PY_INF:
        return not_finite(f, err);
    case PY_NAN:
        return not_finite(NAN, err);
    case PY_NO_MEMORY:
        return err_set(err, BERTH_ENOMEM, "a number");
    case PY_NO_FLOAT: {
        struct str shown = { 0 };
        py_repr_text(t.p, t.n, 200, &shown);
        err_set(err, BERTH_EINVAL, "Cannot convert string to number: %s", str_c(&shown));
        str_release(&shown);
        return err->code;
    }
    }
    switch (py_parse_int(p, n, &i, NULL, &minus)) {
    case PY_INT:
        return give_numbers(c, f, i, err);
    case PY_INT_NO_MEMORY:
        return err_set(err, BERTH_ENOMEM, "a number");
    default:
        return from_float(c, f, err);
    }
}

static berth_status convert_run(struct node_call *c, berth_err *err)
{
    const struct value *v = in_value(c, "value");
    if (!v)
        return err_set(err, BERTH_EINVAL, "input 'value' is not given");
    switch (v->kind) {
    case V_BOOL:
        return give_numbers(c, v->b, v->b, err);
    case V_INT:
        return give_numbers(c, (double)v->i, v->i, err);
    case V_UINT:
        return give_numbers(c, (double)v->u, (node_int)v->u, err);
    case V_FLOAT:
        return from_float(c, v->f, err);
    case V_STRING:
        return from_text(c, (struct text) { v->s.p, v->s.n }, err);
    default:
        return raise_as(c, "TypeError", err, "Unsupported input type: %s", value_type_name(v));
    }
}

UTILITY(ComfyNumberConvert, "Convert Number", "number_convert",
        INS(SOCKET("value", "INT,FLOAT,STRING,BOOLEAN", .more = "\"display_name\":\"value\"")),
        OUTS({ .type = "FLOAT" }, { .type = "INT" }), .run = convert_run);

/* ---- SeedNode ---- */

static berth_status seed_run(struct node_call *c, berth_err *err)
{
    uint64_t seed;
    return in_u64(c, "seed", &seed, err) ? err->code : give_int(c, 0, seed, err);
}

UTILITY(SeedNode, "Seed", "seed",
        INS(INT_IN("seed", 0, 0, INT64_MAX, 0, .no_default = true,
                   .more = "\"control_after_generate\":\"fixed\"")),
        OUTS({ .type = "INT", .name = "seed" }), .run = seed_run);

/* ---- ResolutionSelector ---- */

static const char *const ratios[] = { "1:1 (Square)",
                                      "2:3 (Portrait Photo)",
                                      "3:2 (Photo)",
                                      "3:4 (Portrait Standard)",
                                      "4:3 (Standard)",
                                      "9:16 (Portrait Widescreen)",
                                      "16:9 (Widescreen)",
                                      "21:9 (Ultrawide)",
                                      NULL };

static berth_status resolution_run(struct node_call *c, berth_err *err)
{
    const char *ratio;
    double megapixels;
    int64_t multiple, side[2];
    double part[2];
    if (in_text(c, "aspect_ratio", &ratio, err) || in_f64(c, "megapixels", &megapixels, err) ||
        in_i64(c, "multiple", &multiple, err))
        return err->code;
    const char *colon = strchr(ratio, ':');
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    if (!colon || !str_parse_f64(ratio, (size_t)(colon - ratio), &part[0]) ||
        !str_parse_f64(colon + 1, digits, &part[1]) || !(part[0] * part[1] > 0))
        return raise_as(c, "KeyError", err, "'%s'", ratio);
    if (multiple == 0)
        return raise_as(c, "ZeroDivisionError", err, "float division by zero");
    if (!(megapixels >= 0 && megapixels < 1e9))
        return err_set(err, BERTH_EINVAL, "%g megapixels", megapixels);
    double scale = sqrt(megapixels * 1024 * 1024 / (part[0] * part[1]));
    for (int i = 0; i < 2; i++)
        side[i] = (int64_t)rint(part[i] * scale / (double)multiple) * multiple;
    if (out_value(c, 0, value_int(side[0]), err))
        return err->code;
    return out_value(c, 1, value_int(side[1]), err);
}

UTILITY(ResolutionSelector, "Resolution Selector", "resolution",
        INS(COMBO_IN("aspect_ratio", ratios, .sdef = "1:1 (Square)"),
            FLOAT_IN("megapixels", 1, 0.1, 16, 0.1), INT_IN("multiple", 8, 8, 128, 4)),
        OUTS({ .type = "INT", .name = "width" }, { .type = "INT", .name = "height" }),
        .run = resolution_run);

/* ---- ColorToRGBInt ---- */

static berth_status color_run(struct node_call *c, berth_err *err)
{
    const struct value *v = in_value(c, "color");
    struct text t = { "#ffffff", 7 };
    if (v && v->kind != V_STRING)
        return raise_as(c, "TypeError", err, "object of type '%s' has no len()",
                        value_type_name(v));
    if (v)
        t = (struct text) { v->s.p, v->s.n };
    bool ok = (t.n == 7 || t.n == 9) && t.p[0] == '#';
    uint32_t rgb = 0;
    for (size_t i = 1; i < t.n && ok; i++) {
        ok = str_hex(t.p[i]) >= 0;
        rgb = i < 7 ? rgb * 16 + (uint32_t)str_hex(t.p[i]) : rgb;
    }
    if (!ok)
        return err_set(err, BERTH_EINVAL, "Color must be in format #RRGGBB or #RRGGBBAA");
    double alpha = t.n == 9 ? (str_hex(t.p[7]) * 16 + str_hex(t.p[8])) / 255.0 : 1;
    if (out_value(c, 0, value_int(rgb), err) || out_value(c, 1, value_string(t.p, 7), err))
        return err->code;
    return out_value(c, 2, value_float(alpha), err);
}

UTILITY(ColorToRGBInt, "Color Picker", "color",
        INS(SOCKET("color", "COLOR", .more = "\"default\":\"#ffffff\",\"socketless\":true")),
        OUTS({ .type = "INT", .name = "rgb_int" }, { .type = "COLOR", .name = "hex" },
             { .type = "FLOAT", .name = "alpha" }),
        .run = color_run);

/* ---- PrimitiveBoundingBox ---- */

static berth_status box_run(struct node_call *c, berth_err *err)
{
    int64_t x, y, w, h;
    if (in_i64(c, "x", &x, err) || in_i64(c, "y", &y, err) || in_i64(c, "width", &w, err) ||
        in_i64(c, "height", &h, err))
        return err->code;
    json_t *box = json_pack("{s:I,s:I,s:I,s:I}", "x", (json_int_t)x, "y", (json_int_t)y, "width",
                            (json_int_t)w, "height", (json_int_t)h);
    if (!box)
        return err_set(err, BERTH_ENOMEM, "a box");
    return out_value(c, 0, value_json(box), err);
}

NODE_CLASS(PrimitiveBoundingBox, .display = "Bounding Box", .category = "utilities/primitive",
           V3("images"),
           INS(INT_IN("x", 0, 0, MAX_SIDE, 0), INT_IN("y", 0, 0, MAX_SIDE, 0),
               INT_IN("width", 512, 1, MAX_SIDE, 0), INT_IN("height", 512, 1, MAX_SIDE, 0)),
           OUT_OF("BOUNDING_BOX"), .run = box_run);
