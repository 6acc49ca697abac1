/* GGUF version 3, laying out a file. Format: gguf.c. */
#include "format/gguf_impl.h"

#include "base/sz.h"

#include <inttypes.h>

static void put_uint(struct str *h, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(h, (char)(v >> (8 * i)));
}

static void put_text(struct str *h, const char *s)
{
    size_t n = strlen(s);
    put_uint(h, n, 8);
    str_add(h, s, n);
}

/* The shape a tensor gets in the file. *flat: it is not its own, and orig_shape must tell. */
static berth_status file_shape(const struct weights_spec *s, struct shape *out, bool *flat,
                               berth_err *err)
{
    const struct dtype_desc *d = dtype_desc(s->dtype);
    const struct excerpt name = excerpt(s->name, strlen(s->name));
    uint64_t last = s->shape.ndim ? s->shape.dim[s->shape.ndim - 1] : 1, n;
    char text[SHAPE_TEXT_MAX];
    if (strlen(s->name) > GGUF_NAME_MAX)
        return err_set(err, BERTH_ELIMIT, "tensor name '%s' is %zu bytes long, gguf takes %d",
                       name.s, strlen(s->name), GGUF_NAME_MAX);
    *out = s->shape;
    *flat = s->shape.ndim > GGUF_DIMS_MAX || last % d->elems != 0;
    if (!*flat)
        return BERTH_OK;
    if (!shape_count(&s->shape, &n) || n % d->elems != 0)
        return err_set(err, BERTH_EINVAL,
                       "tensor '%s': %s does not make whole blocks of %s (%d elements each)",
                       name.s, shape_text(&s->shape, text), d->name, d->elems);
    for (int i = 0; i < s->shape.ndim; i++)
        if (s->shape.dim[i] > INT32_MAX)
            return err_set(err, BERTH_EINVAL,
                           "tensor '%s': %s must be flattened, but has a dimension over 2^31-1",
                           name.s, shape_text(&s->shape, text));
    /* Too many dimensions alone: the rows stay. Otherwise rows of 256, as ComfyUI-GGUF writes them,
     * or shorter ones where the count asks for it. */
    bool keep = last && last % d->elems == 0;
    uint64_t row = keep ? last : n % 256 == 0 ? 256 : 32;
    *out = (struct shape) { .ndim = 2, .dim = { n / row, row } };
    return BERTH_OK;
}

static berth_status put_metadata(const struct weights_write_args *a, struct str *h, berth_err *err)
{
    for (size_t i = 0; i < a->meta_count; i++) {
        const char *key = a->meta[i].key;
        if (strcmp(key, "general.alignment") == 0 || str_starts(key, strlen(key), GGUF_ORIG_SHAPE))
            return err_set(err, BERTH_EINVAL, "metadata '%s' is the writer's own",
                           excerpt(key, strlen(key)).s);
        put_text(h, key);
        put_uint(h, GGUF_STRING, 4);
        put_text(h, a->meta[i].value);
    }
    return BERTH_OK;
}

static void put_orig_shape(struct str *h, const struct weights_spec *s)
{
    put_uint(h, strlen(GGUF_ORIG_SHAPE) + strlen(s->name), 8);
    str_adds(h, GGUF_ORIG_SHAPE);
    str_adds(h, s->name);
    put_uint(h, GGUF_ARRAY, 4);
    put_uint(h, GGUF_I32, 4);
    put_uint(h, (uint64_t)s->shape.ndim, 8);
    for (int i = 0; i < s->shape.ndim; i++)
        put_uint(h, s->shape.dim[i], 4);
}

/* Key/value count and the orig_shape pairs depend on the tensors, so they are looked at first. */
static berth_status put_pairs(const struct weights_write_args *a, struct str *h, berth_err *err)
{
    struct str orig = { 0 };
    size_t flats = 0;
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < a->count && s == BERTH_OK; i++) {
        struct shape shape;
        bool flat;
        s = file_shape(&a->spec[i], &shape, &flat, err);
        if (s == BERTH_OK && flat) {
            flats++;
            put_orig_shape(&orig, &a->spec[i]);
        }
    }
    put_uint(h, a->meta_count + flats, 8);
    if (s == BERTH_OK)
        s = put_metadata(a, h, err);
    str_add(h, orig.p, orig.n);
    h->bad |= orig.bad;
    str_release(&orig);
    if (s == BERTH_OK && a->meta_count + flats > weights_limits_default.max_kv)
        s = err_set(err, BERTH_ELIMIT, "%zu metadata entries, the limit is %" PRIu64,
                    a->meta_count + flats, weights_limits_default.max_kv);
    return s;
}

berth_status gguf_plan(const struct weights_write_args *a, struct write_plan *p, berth_err *err)
{
    struct str *h = &p->header;
    uint64_t at = 0;
    str_adds(h, "GGUF");
    put_uint(h, 3, 4);
    put_uint(h, a->count, 8);
    if (put_pairs(a, h, err))
        return err->code;
    for (size_t i = 0; i < a->count; i++) {
        const struct weights_spec *s = &a->spec[i];
        struct shape shape;
        bool flat;
        if (file_shape(s, &shape, &flat, err))
            return err->code;
        put_text(h, s->name);
        put_uint(h, (uint64_t)shape.ndim, 4);
        for (int k = shape.ndim; k-- > 0;)
            put_uint(h, shape.dim[k], 8);
        put_uint(h, (uint64_t)dtype_desc(s->dtype)->ggml_id, 4);
        put_uint(h, at, 8);
        p->off[i] = at;
        /* write.c has seen that the sum fits, padding included */
        at = (at + p->size[i] + GGUF_ALIGN_DEFAULT - 1) & ~(uint64_t)(GGUF_ALIGN_DEFAULT - 1);
    }
    str_pad(h, '\0', (h->n + GGUF_ALIGN_DEFAULT - 1) & ~(size_t)(GGUF_ALIGN_DEFAULT - 1));
    if (h->bad)
        return err_set(err, BERTH_ENOMEM, "out of memory for a header of %zu tensors", a->count);
    if (h->n > weights_limits_default.max_header)
        return err_set(err, BERTH_ELIMIT, "a header of %zu bytes is over the limit of %" PRIu64,
                       h->n, weights_limits_default.max_header);
    for (size_t i = 0; i < a->count; i++)
        p->off[i] += h->n;
    p->total = h->n + at;
    return BERTH_OK;
}
