/* march.c: the arithmetic steps are written with. */
#include "sample/march.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define CHUNK ((size_t)1 << 14) /* elements a thread takes at once: 64 kB an array */

/* ---- arrays ---- */
struct work {
    const struct term *term; /* NULL: a slope of x and D */
    size_t terms, n;
    const float *x, *D;
    float *out, sigma;
};

/* One element at a time, since out may be any of the arrays. */
static void mix_range(const struct work *w, size_t at, size_t end)
{
    for (size_t i = at; i < end; i++) {
        float sum = w->term[0].c * w->term[0].v[i];
        for (size_t k = 1; k < w->terms; k++)
            sum += w->term[k].c * w->term[k].v[i];
        w->out[i] = sum;
    }
}

static void slope_range(const struct work *w, size_t at, size_t end)
{
    for (size_t i = at; i < end; i++)
        w->out[i] = (w->D ? w->x[i] - w->D[i] : w->x[i]) / w->sigma;
}

static void chunk(void *user, size_t i, size_t worker)
{
    const struct work *w = user;
    size_t at = i * CHUNK, end = w->n - at < CHUNK ? w->n : at + CHUNK;
    (void)worker;
    if (w->term)
        mix_range(w, at, end);
    else
        slope_range(w, at, end);
}

static void spread(const struct march *m, struct work *w)
{
    size_t chunks = w->n / CHUNK + (w->n % CHUNK != 0);
    if (m->j->pool && chunks > 1)
        tpool_for(m->j->pool, chunks, chunk, w);
    else
        for (size_t i = 0; i < chunks; i++)
            chunk(w, i, 0);
}

void march_mix(const struct march *m, float *out, const struct term *term, size_t terms)
{
    spread(m, &(struct work) { .term = term, .terms = terms, .n = m->n, .out = out });
}

void march_slope(const struct march *m, float *out, const float *x, float sigma, const float *D)
{
    spread(m, &(struct work) { .n = m->n, .x = x, .D = D, .out = out, .sigma = sigma });
}

void march_set(const struct march *m, float *out, const float *v)
{
    if (out != v)
        memcpy(out, v, m->n * sizeof *out);
}

void march_keep(struct march *m, float **newest)
{
    size_t last = m->olds - 1;
    float *oldest = m->old[last];
    memmove(m->old + 1, m->old, last * sizeof *m->old);
    m->old[0] = *newest;
    *newest = oldest;
    m->have += m->have <= last;
}

/* ---- scalars ---- */
void march_ancestral(float s, float t, double eta, float *down, float *up)
{
    *down = t;
    *up = 0;
    if (eta == 0)
        return;
    float ss = s * s, tt = t * t;
    float wish = (float)eta * sqrtf(tt * (ss - tt) / ss);
    *up = wish < t ? wish : t; /* a NaN, from rising levels, gives t */
    *down = sqrtf(tt - *up * *up);
}

void march_ancestral_flow(float s, float t, double eta, float *down, float *keep, float *up)
{
    *down = t * (1 + (t / s - 1) * (float)eta);
    float at = 1 - t, ad = 1 - *down;
    *keep = at / ad;
    *up = sqrtf(t * t - *down * *down * (at * at) / (ad * ad));
}

float march_snr(const struct march *m, float sigma)
{
    return m->flow ? -logf(sigma / (1 - sigma)) : -logf(sigma);
}

float march_snr_sigma(const struct march *m, float snr)
{
    return m->flow ? 1 / (1 + expf(snr)) : expf(-snr);
}

float march_lerp(float a, float b, float w)
{
    return w < 0.5f ? a + w * (b - a) : b - (b - a) * (1 - w);
}

float march_no_nan(float v)
{
    return isnan(v) ? 0 : isinf(v) ? copysignf(FLT_MAX, v) : v;
}

void march_solve(float *a, float *b, size_t n)
{
    for (size_t k = 0; k < n; k++) { /* LU with partial pivoting, in float as the reference's */
        size_t p = k;
        for (size_t i = k + 1; i < n; i++)
            if (fabsf(a[i * n + k]) > fabsf(a[p * n + k]))
                p = i;
        for (size_t c = 0; c < n && p != k; c++) {
            float swap = a[k * n + c];
            a[k * n + c] = a[p * n + c];
            a[p * n + c] = swap;
        }
        float swap = b[k];
        b[k] = b[p];
        b[p] = swap;
        for (size_t i = k + 1; i < n; i++) {
            float f = a[i * n + k] / a[k * n + k];
            for (size_t c = k + 1; c < n; c++)
                a[i * n + c] -= f * a[k * n + c];
            b[i] -= f * b[k];
        }
    }
    for (size_t k = n; k-- > 0;) {
        for (size_t c = k + 1; c < n; c++)
            b[k] -= a[k * n + c] * b[c];
        b[k] /= a[k * n + k];
    }
}
