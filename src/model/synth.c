#include "model/synth.h"

#include "model/synth_impl.h"

#include "base/hash.h"
#include "base/sz.h"

#include <math.h>

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define SMALL_TENSOR 1024 /* elements; at most this many stay F32 in GGUF files */
#define FLAT_ROW 256      /* ComfyUI-GGUF flattens to rows of this length where rows do not fit */

static struct synth_rule rule_of(const char *name, size_t len, const struct shape *shape)
{
    struct synth_rule r = { .hash = hash_fnv1a64(name, len) };
    double s = 0.1;
    if (shape->ndim >= 2) {
        uint64_t fan = 1; /* may wrap only where there are no elements */
        for (int i = 1; i < shape->ndim; i++)
            fan *= shape->dim[i];
        s = sqrt(3.0 / (double)fan);
    } else if (shape->ndim == 1) {
        size_t dot = len;
        while (dot && name[dot - 1] != '.')
            dot--;
        if (str_eq(name + dot, len - dot, "weight") || str_eq(name + dot, len - dot, "scale") ||
            str_eq(name + dot, len - dot, "running_var")) /* which is above 0 */
            r.offset = 1;
    }
    r.scale = s * 0x1p-23;
    return r;
}

/* The rule's last step, z ^ z>>31, changes bits below 33 only and u takes those from 40 up: left
 * out. Plain enough for the compiler to vectorise; widened below for the machines that can. */
static inline __attribute__((always_inline)) void fill_body(struct synth_rule r, uint64_t first,
                                                            size_t count, float *restrict out)
{
    const uint64_t z0 = r.hash + (first + 1) * GOLDEN;
    for (size_t i = 0; i < count; i++) {
        uint64_t z = z0 + i * GOLDEN;
        z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
        int32_t k = (int32_t)(z >> 40) - (1 << 23);
        out[i] = (float)(r.offset + (double)k * r.scale);
    }
}

static bool here_always(void)
{
    return true;
}

static void fill_plain(struct synth_rule r, uint64_t first, size_t count, float *out)
{
    fill_body(r, first, count, out);
}

#if defined(__x86_64__)
static bool here_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

__attribute__((target("avx2"))) static void fill_avx2(struct synth_rule r, uint64_t first,
                                                      size_t count, float *out)
{
    fill_body(r, first, count, out);
}

static bool here_avx512(void)
{
    return __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

/* avx512dq has the 64-bit multiplication that avx2 must piece together. */
__attribute__((target("avx512f,avx512dq,avx512vl"))) static void
fill_avx512(struct synth_rule r, uint64_t first, size_t count, float *out)
{
    fill_body(r, first, count, out);
}
#endif

const struct synth_kernel synth_kernels[] = {
#if defined(__x86_64__)
    { "avx512", here_avx512, fill_avx512 },
    { "avx2", here_avx2, fill_avx2 },
#endif
    { "plain", here_always, fill_plain },
};
const size_t synth_kernel_count = ARRAY_LEN(synth_kernels);

static void fill(struct synth_rule r, uint64_t first, size_t count, float *out)
{
    const struct synth_kernel *k = synth_kernels;
    while (!k->here())
        k++;
    k->fill(r, first, count, out);
}

void synth_fill(const char *name, size_t name_len, const struct shape *shape, uint64_t first,
                size_t count, float *out)
{
    fill(rule_of(name, name_len, shape), first, count, out);
}

berth_status synth_weights_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                berth_err *err)
{
    const struct synth *s = user;
    bool plain;
    const struct key *key = &s->keys->at[synth_key_of(s, i, &plain)];
    if (!plain)
        return synth_layout_fill(s, i, off, dst, n, err);
    const struct dtype_desc *d = dtype_desc(s->spec[i].dtype);
    const struct synth_rule r = rule_of(key->name, key->name_len, &key->shape);
    float buf[4096]; /* whole blocks of every type */
    uint64_t first = off / d->bytes * d->elems;
    size_t left = n / d->bytes * d->elems;
    uint8_t *to = dst;
    while (left) {
        if (s->cancel && atomic_load_explicit(s->cancel, memory_order_relaxed))
            return err_set(err, BERTH_ECANCELED, "stopped");
        size_t count = left < ARRAY_LEN(buf) ? left : ARRAY_LEN(buf);
        fill(r, first, count, buf);
        d->from_f32(buf, to, count);
        to += count / d->elems * d->bytes;
        first += count;
        left -= count;
    }
    return BERTH_OK;
}

/* F8_E8M0 is a float that holds scales: it has no sign, and weights need one. */
static bool holds_weights(const struct dtype_desc *d)
{
    if (d->elems > 1)
        return d->from_f32;
    const float x = -1;
    float y = 0;
    uint8_t b[8];
    if (d->is_float && d->from_f32 && d->to_f32) {
        d->from_f32(&x, b, 1);
        d->to_f32(b, &y, 1);
    }
    return y < 0;
}

static const struct weights_writer *any_that_stores(enum dtype dtype)
{
    const struct weights_writer *f;
    for (size_t i = 0; (f = weights_writer_at(i)); i++)
        if (f->stores(dtype))
            return f;
    return NULL;
}

bool synth_can(enum dtype dtype, const struct weights_writer *format)
{
    bool stored = format ? format->stores(dtype) : any_that_stores(dtype) != NULL;
    return stored && holds_weights(dtype_desc(dtype));
}

static berth_status refuse(enum dtype dtype, const struct weights_writer *format, berth_err *err)
{
    if (synth_can(dtype, NULL))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "%s cannot be stored in a %s file; write %s instead", dtype_name(dtype),
                       format->name, any_that_stores(dtype)->name);
    char can[240] = "";
    size_t n = 0;
    for (int t = 0; t < DT_COUNT && n < sizeof can; t++)
        if (synth_can((enum dtype)t, format))
            n += (size_t)snprintf(can + n, sizeof can - n, " %s", dtype_name((enum dtype)t));
    return err_set(err, BERTH_EUNSUPPORTED, "cannot make %s; %s files can have:%s",
                   dtype_name(dtype), format->name, can);
}

static bool is_hiprec(const struct key *k, const char *const *hiprec)
{
    for (; hiprec && *hiprec; hiprec++)
        if (str_starts(k->name, k->name_len, *hiprec) ||
            (**hiprec == '.' && str_ends(k->name, k->name_len, *hiprec)))
            return true;
    return false;
}

static enum dtype choose(const struct key *k, enum dtype dtype, const struct weights_writer *format,
                         const char *const *hiprec)
{
    if (!format->mixed)
        return dtype;
    if (k->shape.ndim < 2 || k->count <= SMALL_TENSOR)
        return DT_F32;
    if (!dtype_is_quant(dtype))
        return dtype;
    bool rows_fit = k->shape.dim[k->shape.ndim - 1] % dtype_desc(dtype)->elems == 0;
    if (is_hiprec(k, hiprec) || (!rows_fit && k->count % FLAT_ROW))
        return DT_F16;
    return dtype;
}

berth_status synth_init(struct synth *s, const struct keys *keys, enum dtype dtype,
                        const struct weights_writer *format, const char *const *hiprec,
                        const atomic_bool *cancel, berth_err *err)
{
    *s = (struct synth) { .keys = keys, .cancel = cancel };
    if (!synth_can(dtype, format))
        return refuse(dtype, format, err);
    size_t bytes;
    if (!sz_mul(keys->n, sizeof *s->spec, &bytes) || !(s->spec = malloc(bytes ? bytes : 1)))
        return err_set(err, BERTH_ENOMEM, "list of %zu tensors", keys->n);
    for (size_t i = 0; i < keys->n; i++) {
        const struct key *k = &keys->at[i];
        enum dtype t = choose(k, dtype, format, hiprec);
        uint64_t size;
        if (!dtype_bytes(t, k->count, &size) || __builtin_add_overflow(s->bytes, size, &s->bytes)) {
            synth_release(s);
            return err_set(err, BERTH_ELIMIT, "'%.80s': too large as %s", k->name, dtype_name(t));
        }
        s->spec[i] = (struct weights_spec) { .name = k->name, .dtype = t, .shape = k->shape };
    }
    s->n = keys->n;
    return BERTH_OK;
}

void synth_release(struct synth *s)
{
    free(s->spec);
    arena_release(&s->mem);
    *s = (struct synth) { 0 };
}
