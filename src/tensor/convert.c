#include "tensor/convert.h"

#include "tensor/convert_impl.h"

#if CPU_X86
#include <emmintrin.h>
#endif

#define HUB 1024 /* elements per step: 4 KiB of F32, stays in the first-level cache */

/* Above this many bytes written, stores go around the cache: the line is not fetched first, which
 * is worth a third out of cache and costs as much in it. Larger than the last-level cache of
 * most. */
#define STREAM_MIN ((size_t)64 << 20)

#if CPU_X86
/* Whole HUBs through a buffer and streaming stores, the rest normally. dst is 16-byte aligned, as
 * everything from malloc is. */
static void to_f32_stream(to_f32_fn *f, size_t elems, size_t bytes, const uint8_t *src,
                          uint8_t *dst, size_t n)
{
    _Alignas(16) float hub[HUB];
    for (; n >= HUB; n -= HUB) {
        f(src, hub, HUB);
        for (size_t i = 0; i < HUB; i += 4)
            _mm_stream_ps((float *)(void *)(dst + i * sizeof *hub), _mm_load_ps(hub + i));
        src += HUB / elems * bytes;
        dst += sizeof hub;
    }
    _mm_sfence(); /* streaming stores are weakly ordered: whoever learns of the end sees them */
    f(src, (float *)(void *)dst, n);
}
#endif

void to_f32_run(to_f32_fn *const levels[CPU_LEVELS], size_t elems, size_t bytes, const void *src,
                float *dst, size_t n)
{
    to_f32_fn *f = levels[cpu_level()];
#if CPU_X86
    if (n >= STREAM_MIN / sizeof *dst && (uintptr_t)dst % 16 == 0) {
        to_f32_stream(f, elems, bytes, src, (uint8_t *)dst, n);
        return;
    }
#else
    (void)elems;
    (void)bytes;
#endif
    f(src, dst, n);
}

bool convert_possible(enum dtype from, enum dtype to)
{
    return from == to || dtype_desc(to)->from_f32;
}

static void through_f32(const struct dtype_desc *from, const uint8_t *src,
                        const struct dtype_desc *to, uint8_t *dst, size_t n)
{
    float hub[HUB];
    while (n) {
        size_t now = n < HUB ? n : HUB;
        from->to_f32(src, hub, now);
        to->from_f32(hub, dst, now);
        src += now / from->elems * from->bytes;
        dst += now / to->elems * to->bytes;
        n -= now;
    }
}

berth_status convert(enum dtype from, const void *src, enum dtype to, void *dst, size_t n,
                     berth_err *err)
{
    const struct dtype_desc *f = dtype_desc(from), *t = dtype_desc(to);
    if (!convert_possible(from, to))
        return err_set(err, BERTH_EUNSUPPORTED, "%s to %s: no quantiser for %s", f->name, t->name,
                       t->name);
    if (n % f->elems || n % t->elems)
        return err_set(err, BERTH_EINVAL, "%s to %s: %zu elements, blocks of %u and %u", f->name,
                       t->name, n, f->elems, t->elems);
    if (n == 0)
        return BERTH_OK;
    if (from == to)
        memcpy(dst, src, n / f->elems * f->bytes);
    else if (to == DT_F32)
        f->to_f32(src, dst, n);
    else if (from == DT_F32)
        t->from_f32(src, dst, n);
    else if (f->is_wide && t->elems == 1)
        wide_convert(from, src, to, dst, n);
    else
        through_f32(f, src, t, dst, n);
    return BERTH_OK;
}
