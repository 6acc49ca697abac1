/* OpenEXR, written: one part, scan lines, floats, no compression. The same pixels and text give the
 * same bytes. */
#include "image/image_impl.h"

#define NAME_MAX_SHORT 31 /* the version says that names of attributes are longer */
#define LONG_NAMES 0x400

static void add_u32(struct str *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        str_addc(out, (char)(uint8_t)(v >> (8 * i)));
}

static void add_u64(struct str *out, uint64_t v)
{
    add_u32(out, (uint32_t)v);
    add_u32(out, (uint32_t)(v >> 32));
}

static void add_float(struct str *out, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    add_u32(out, bits);
}

/* Everything of an attribute but its value of n bytes, which follows. */
static void add_attribute(struct str *out, const char *name, const char *type, size_t n)
{
    str_add(out, name, strlen(name) + 1);
    str_add(out, type, strlen(type) + 1);
    add_u32(out, (uint32_t)n);
}

static void add_window(struct str *out, const char *name, const struct image_exr_args *a)
{
    add_attribute(out, name, "box2i", 16);
    add_u32(out, 0);
    add_u32(out, 0);
    add_u32(out, a->w - 1);
    add_u32(out, a->h - 1);
}

/* Channels stand in the order of their names. */
static const char *channel_names(unsigned channels)
{
    return channels == 1 ? "Y" : channels == 3 ? "BGR" : "ABGR";
}

static void add_channels(struct str *out, unsigned channels)
{
    add_attribute(out, "channels", "chlist", channels * 18 + 1);
    for (const char *c = channel_names(channels); *c; c++) {
        str_addc(out, *c);
        str_addc(out, 0);
        add_u32(out, 2); /* float */
        add_u32(out, 0); /* not for brightness alone */
        add_u32(out, 1); /* each pixel, each line */
        add_u32(out, 1);
    }
    str_addc(out, 0);
}

static void add_header(struct str *out, const struct image_exr_args *a)
{
    uint32_t version = 2;
    for (size_t i = 0; i < a->texts; i++)
        version |= strlen(a->text[i].key) > NAME_MAX_SHORT ? LONG_NAMES : 0;
    add_u32(out, 0x01312f76);
    add_u32(out, version);
    add_channels(out, a->channels);
    add_attribute(out, "compression", "compression", 1);
    str_addc(out, 0);
    add_window(out, "dataWindow", a);
    add_window(out, "displayWindow", a);
    add_attribute(out, "lineOrder", "lineOrder", 1);
    str_addc(out, 0);
    add_attribute(out, "screenWindowCenter", "v2f", 8);
    add_u64(out, 0);
    add_attribute(out, "screenWindowWidth", "float", 4);
    add_float(out, 1.0f);
    add_attribute(out, "pixelAspectRatio", "float", 4);
    add_float(out, 1.0f);
    for (size_t i = 0; i < a->texts; i++) {
        size_t n = strlen(a->text[i].value);
        add_attribute(out, a->text[i].key, "string", n);
        str_add(out, a->text[i].value, n);
    }
    if (a->primaries) {
        add_attribute(out, "chromaticities", "chromaticities", 32);
        for (int i = 0; i < 8; i++)
            add_float(out, a->primaries[i]);
    }
    str_addc(out, 0);
}

static void add_line(struct str *out, const struct image_exr_args *a, uint32_t y)
{
    add_u32(out, y);
    add_u32(out, (uint32_t)((size_t)a->w * a->channels * sizeof(float)));
    for (unsigned c = a->channels; c-- > 0;) /* A, B, G, R */
        for (uint32_t x = 0; x < a->w; x++)
            add_float(out, a->px[((size_t)y * a->w + x) * a->channels + c]);
}

static berth_status check(const struct image_exr_args *a, berth_err *err)
{
    if (!a->px || !a->w || !a->h || (a->channels != 1 && a->channels != 3 && a->channels != 4) ||
        a->w > INT32_MAX / 16 || a->h > INT32_MAX)
        return err_set(err, BERTH_EINVAL, "an EXR of %u x %u with %u channels", a->w, a->h,
                       a->channels);
    for (size_t i = 0; i < a->texts; i++)
        if (!*a->text[i].key || strlen(a->text[i].key) > 255 ||
            strlen(a->text[i].value) > INT32_MAX)
            return err_set(err, BERTH_EINVAL, "'%.40s' cannot be an attribute of an EXR",
                           a->text[i].key);
    return BERTH_OK;
}

berth_status image_exr(const struct image_exr_args *a, struct str *out, berth_err *err)
{
    size_t had = out->n, line = (size_t)a->w * a->channels * sizeof(float) + 8;
    berth_status s = check(a, err);
    if (s)
        return s;
    add_header(out, a);
    uint64_t first = out->n - had + (uint64_t)a->h * 8;
    for (uint32_t y = 0; y < a->h; y++)
        add_u64(out, first + (uint64_t)y * line);
    for (uint32_t y = 0; y < a->h && !out->bad && !(s = image_check(a->cancel, err)); y++)
        add_line(out, a, y);
    return image_finish(s, out, had, err);
}
