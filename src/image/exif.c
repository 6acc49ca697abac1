/* EXIF: which way is up (read), and prompt and workflow in WebP files (written).
 *
 * EXIF data is a small TIFF file: "II" or "MM", 42, the offset of a directory; a directory is a
 * count and that many entries of twelve bytes: tag, type, count, and the value or its offset. */
#include "image/image_impl.h"

#define TAG_MODEL 0x0110
#define TAG_MAKE 0x010f
#define TAG_ORIENTATION 0x0112
#define TYPE_ASCII 2
#define TYPE_SHORT 3
#define ENTRY 12
#define HEADER 8

static uint32_t get(const uint8_t *p, size_t n, bool big)
{
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint32_t)p[i] << 8 * (big ? n - 1 - i : i);
    return v;
}

static unsigned valid(uint32_t orientation)
{
    return orientation >= 1 && orientation <= 8 ? orientation : 0;
}

unsigned exif_orientation(const uint8_t *p, size_t n)
{
    if (n >= 6 && memcmp(p, "Exif\0\0", 6) == 0) {
        p += 6;
        n -= 6;
    }
    if (n < HEADER || (memcmp(p, "II*\0", 4) != 0 && memcmp(p, "MM\0*", 4) != 0))
        return 0;
    bool big = p[0] == 'M';
    size_t at = get(p + 4, 4, big);
    if (at > n || n - at < 2)
        return 0;
    size_t entries = get(p + at, 2, big);
    at += 2;
    for (size_t i = 0; i < entries && n - at >= ENTRY; i++, at += ENTRY)
        if (get(p + at, 2, big) == TAG_ORIENTATION)
            return get(p + at + 2, 2, big) == TYPE_SHORT ? valid(get(p + at + 8, 2, big)) : 0;
    return 0;
}

/* Written as an attribute or as an element; everything else about XMP is left alone. */
unsigned xmp_orientation(const uint8_t *p, size_t n)
{
    static const char name[] = "tiff:Orientation";
    const size_t len = sizeof name - 1;
    while (n > len) {
        const uint8_t *at = memmem(p, n, name, len);
        if (!at)
            return 0;
        n -= (size_t)(at - p) + len;
        p = at + len;
        size_t skip = n >= 2 && p[0] == '=' && p[1] == '"' ? 2 : n >= 1 && p[0] == '>' ? 1 : 0;
        if (skip && n > skip && p[skip] >= '0' && p[skip] <= '9')
            return valid(p[skip] - (uint32_t)'0');
    }
    return 0;
}

/* ---- writing ---- */

static void put(struct str *out, uint32_t v, size_t n) /* big-endian, as Pillow writes it */
{
    for (size_t i = n; i-- > 0;)
        str_addc(out, (char)(v >> 8 * i));
}

struct exif {          /* being written */
    struct str *out;   /* the directory */
    struct str values; /* what follows it */
    size_t values_at;  /* where they begin */
};

static berth_status add_entry(struct exif *x, unsigned tag, const struct image_text *t,
                              berth_err *err)
{
    size_t len = strlen(t->key) + 1 + strlen(t->value) + 1, at = x->values_at + x->values.n;
    if (len > UINT32_MAX - at - 1)
        return err_set(err, BERTH_ELIMIT, "'%.40s' is too long for EXIF", t->key);
    put(x->out, tag, 2);
    put(x->out, TYPE_ASCII, 2);
    put(x->out, (uint32_t)len, 4);
    if (len <= 4) { /* lies in the entry itself */
        str_addf(x->out, "%s:%s", t->key, t->value);
        str_pad(x->out, 0, x->out->n + 4 - (len - 1));
        return BERTH_OK;
    }
    put(x->out, (uint32_t)at, 4);
    str_addf(&x->values, "%s:%s", t->key, t->value);
    str_pad(&x->values, 0, (x->values.n + 2) & ~(size_t)1); /* a NUL, and up to an even place */
    return BERTH_OK;
}

/* ComfyUI's numbering: the prompt is the camera's model, everything else counts down from its make.
 * Directories are sorted by tag, so the last of the others comes first and the prompt last. */
berth_status exif_write(const struct image_text *text, size_t n, struct str *out, berth_err *err)
{
    if (n > TAG_MAKE) /* one tag each, above zero */
        return err_set(err, BERTH_ELIMIT, "%zu texts: EXIF holds %u", n, TAG_MAKE);
    struct exif x = { .out = out, .values_at = HEADER + 2 + n * ENTRY + 4 };
    const struct image_text *prompt = NULL;
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < n && !prompt; i++)
        prompt = strcmp(text[i].key, "prompt") == 0 ? &text[i] : NULL;
    str_add(out, "MM\0*\0\0\0\x08", HEADER);
    put(out, (uint32_t)n, 2);
    unsigned tag = TAG_MAKE + 1 - (unsigned)(prompt ? n - 1 : n);
    for (size_t i = n; i-- > 0 && !s;)
        if (&text[i] != prompt)
            s = add_entry(&x, tag++, &text[i], err);
    if (!s && prompt)
        s = add_entry(&x, TAG_MODEL, prompt, err);
    put(out, 0, 4); /* no further directory */
    str_add(out, str_c(&x.values), x.values.n);
    if (!s && (out->bad || x.values.bad))
        s = err_set(err, BERTH_ENOMEM, "EXIF data");
    str_release(&x.values);
    return s;
}
