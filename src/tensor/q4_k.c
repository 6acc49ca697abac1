/* q4_k: 256 elements in 144 bytes.
 *   0 d     2 dmin     4 scales: 8 pairs of 6 bits (k_pair)     16 q: 128 bytes of two nibbles
 *   sub-block j of 32 elements: element l is nibble j % 2 of byte 32 (j / 2) + l
 *   y = d * scale * q - dmin * minimum */
#include "tensor/quant_impl.h"

#include <math.h>

enum { ELEMS = 256, BYTES = 144, SUBS = 8, SUB = 32 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b), dmin = ld_half(b + 2);
    for (size_t j = 0; j < SUBS; j += 2) {
        uint8_t sc, mn;
        k_pair(b + 4, j, &sc, &mn);
        float scale0 = d * sc, min0 = dmin * mn;
        k_pair(b + 4, j + 1, &sc, &mn);
        float scale1 = d * sc, min1 = dmin * mn;
        const uint8_t *q = b + 16 + j / 2 * SUB;
        for (size_t i = 0; i < SUB; i++) {
            st_f32(y, SUB * j + i, scale0 * (float)(q[i] & 15) - min0);
            st_f32(y, SUB * j + SUB + i, scale1 * (float)(q[i] >> 4) - min1);
        }
    }
}

/* ---- quantising ----
 *
 * There is no closed form for the best d, dmin, scales, minima and steps together, so:
 *   1 fit_sub()     per sub-block, as if scale and minimum had no 6-bit form: try several widths of
 *                   a step, solve scale and minimum by least squares for the steps each gives
 *   2 d, dmin       so that the largest scale and minimum become 63
 *   3 choose_pair() per sub-block, the best of the pairs of 6-bit numbers around the fit
 * Errors are plain sums of squares: every element counts the same. On normal data the error is 10 %
 * below that of taking minimum and maximum of each sub-block. Twenty narrower tries gain 0.5 %, a
 * second round that refits d and dmin 0.2 %: not worth their time.
 *
 * Sums have a fixed order that leaves room for vectors, so all levels give the same bits. Values
 * are scaled by a power of two first: squares must not overflow. */

#define TINY 1e-37f /* on the scale of struct block; its inverse is finite */

struct fit {
    float scale, min; /* y = scale * q - min, both >= 0 */
};

struct block {
    float x[ELEMS]; /* scaled to magnitudes below 1 */
    float d, dmin;  /* what F16 makes of them, on the scale of x */
    uint8_t scale[SUBS], min[SUBS];
    uint8_t q[ELEMS];
};

/* The sum of SUB values. */
INLINE_BODY float sum(const float t[SUB])
{
    float a[8];
    for (int l = 0; l < 8; l++)
        a[l] = (t[l] + t[8 + l]) + (t[16 + l] + t[24 + l]);
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/* The nearest step to (x + min) * inv, as a float. */
INLINE_BODY float step_of(float x, float min, float inv)
{
    return (float)(int)(quant_clamp((x + min) * inv, 15) + 0.5f);
}

/* 1 / scale; 0 for a scale too small to have an inverse. */
INLINE_BODY float inverse(float scale)
{
    return scale > TINY ? 1 / scale : 0;
}

/* The error of sub-block x, each element on its nearest step. */
INLINE_BODY float sub_err(const float *x, float scale, float min)
{
    float inv = inverse(scale), t[SUB];
    for (int i = 0; i < SUB; i++) {
        float e = scale * step_of(x[i], min, inv) - min - x[i];
        t[i] = e * e;
    }
    return sum(t);
}

/* Scale and minimum that fit x best when its steps are those of (min, inv). */
INLINE_BODY struct fit solve(const float *x, float min, float inv)
{
    float q[SUB], qq[SUB], qx[SUB];
    for (int i = 0; i < SUB; i++) {
        q[i] = step_of(x[i], min, inv);
        qq[i] = q[i] * q[i];
        qx[i] = q[i] * x[i];
    }
    float sq = sum(q), sqq = sum(qq), sx = sum(x), sqx = sum(qx);
    float det = SUB * sqq - sq * sq; /* exact: small integers */
    if (det <= 0)                    /* all steps equal */
        return (struct fit) { 0, sx < 0 ? -sx / SUB : 0 };
    struct fit f = { (SUB * sqx - sq * sx) / det, (sq * sqx - sqq * sx) / det };
    if (f.min < 0)
        f = (struct fit) { sqx / sqq, 0 };
    return f.scale > 0 ? f : (struct fit) { 0, f.min };
}

/* The best scale and minimum found for sub-block x. */
INLINE_BODY struct fit fit_sub(const float *x)
{
    float low[8] = { 0 }, high[8];
    memcpy(high, x, sizeof high);
    for (int i = 0; i < SUB; i += 8)
        for (int l = 0; l < 8; l++) {
            low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
            high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
        }
    float lo = low[0], hi = high[0];
    for (int l = 1; l < 8; l++) {
        lo = low[l] < lo ? low[l] : lo;
        hi = high[l] > hi ? high[l] : hi;
    }
    if (hi - lo < TINY)
        return (struct fit) { 0, -lo };
    struct fit best = { (hi - lo) / 15, -lo };
    float best_err = sub_err(x, best.scale, best.min);
    /* Steps across the range: a few less than 15 trade the outermost values for the many inside. */
    static const float steps[] = { 13.0f, 13.6f, 14.2f, 14.8f, 15.4f };
    for (size_t t = 0; t < ARRAY_LEN(steps); t++) {
        struct fit f = solve(x, -lo, steps[t] / (hi - lo));
        float err = sub_err(x, f.scale, f.min);
        if (err < best_err) {
            best_err = err;
            best = f;
        }
    }
    return best;
}

/* The nearest of 0 to 63. */
static inline int six_bits(float v)
{
    return v >= 63 ? 63 : v > 0 ? (int)(v + 0.5f) : 0;
}

/* The best pair of 6-bit numbers near the fit. */
INLINE_BODY void choose_pair(const float *x, float d, float dmin, struct fit f, uint8_t *scale,
                             uint8_t *min)
{
    int sc = d > 0 ? six_bits(f.scale / d) : 0, mn = dmin > 0 ? six_bits(f.min / dmin) : 0;
    *scale = (uint8_t)sc;
    *min = (uint8_t)mn;
    float best = sub_err(x, d * (float)sc, dmin * (float)mn);
    for (int s = sc - 1; s <= sc + 1; s++)
        for (int m = mn - 1; m <= mn + 1; m++) {
            if (s < 0 || s > 63 || m < 0 || m > 63)
                continue;
            float err = sub_err(x, d * (float)s, dmin * (float)m);
            if (err < best) {
                best = err;
                *scale = (uint8_t)s;
                *min = (uint8_t)m;
            }
        }
}

/* Fills scales, minima and steps for d and dmin. */
INLINE_BODY void choose(struct block *b, const struct fit fit[SUBS])
{
    for (size_t j = 0; j < SUBS; j++) {
        const float *x = b->x + SUB * j;
        choose_pair(x, b->d, b->dmin, fit[j], &b->scale[j], &b->min[j]);
        float scale = b->d * (float)b->scale[j], min = b->dmin * (float)b->min[j];
        float inv = inverse(scale);
        for (size_t i = 0; i < SUB; i++)
            b->q[SUB * j + i] = (uint8_t)step_of(x[i], min, inv);
    }
}

/* The F16 of which 63 make `most`, on the scale of x, which is 2^e too small. Among subnormals F16
 * may round down so far that 63 fall short: then the next one. */
static inline float f16_unit(float most, int e)
{
    float real = ldexpf(most / 63, e);
    uint16_t h = f16_narrow(real < F16_MOST ? real : F16_MOST);
    if (ldexpf(f16_widen(h), -e) * 63.5f < most && f16_widen(h) < F16_MOST)
        h++;
    return ldexpf(f16_widen(h), -e);
}

static void store(const struct block *b, int e, uint8_t *out)
{
    st_u16(out, 0, f16_narrow(ldexpf(b->d, e)));
    st_u16(out, 1, f16_narrow(ldexpf(b->dmin, e)));
    uint8_t *s = out + 4;
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(b->scale[j] | b->scale[j + 4] >> 4 << 6);
        s[j + 4] = (uint8_t)(b->min[j] | b->min[j + 4] >> 4 << 6);
        s[j + 8] = (uint8_t)((b->scale[j + 4] & 15) | (b->min[j + 4] & 15) << 4);
    }
    for (size_t i = 0; i < ELEMS / 2; i++) {
        const uint8_t *q = b->q + i / SUB * 2 * SUB + i % SUB;
        out[16 + i] = (uint8_t)(q[0] | q[SUB] << 4);
    }
}

INLINE_BODY void quant(const uint8_t *src, uint8_t *dst)
{
    struct block b;
    struct fit fit[SUBS];
    uint32_t most = quant_load(src, b.x, ELEMS);
    int e = (int)(most >> 23) - 126; /* |x| < 2^e */
    double k = ldexp(1, -e);
    for (int i = 0; i < ELEMS; i++)
        b.x[i] = (float)((double)b.x[i] * k);
    b.d = b.dmin = 0;
    for (size_t j = 0; j < SUBS; j++) {
        fit[j] = fit_sub(b.x + SUB * j);
        b.d = fmaxf(b.d, fit[j].scale);
        b.dmin = fmaxf(b.dmin, fit[j].min);
    }
    b.d = f16_unit(b.d, e);
    b.dmin = f16_unit(b.dmin, e);
    choose(&b, fit);
    store(&b, e, dst);
}

QUANT_BOTH_WAYS(q4_k, "Q4_K", 12)
