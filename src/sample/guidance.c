/* guidance.c: what nodes do to the predictions of a step. c, u: D of the positive and the negative;
 * s: cfg; out: the prediction so far. Sums are double, values float32. */
#include "sample/guide.h"

#include "base/arena.h"
#include "sample/latent_operation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* sqrt() of the squares of values `stride` apart. */
static float length_over(const float *a, size_t n, size_t stride)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i * stride] * (double)a[i * stride];
    return (float)sqrt(sum);
}

static float length(const float *a, size_t n)
{
    return length_over(a, n, 1);
}

/* Of a sample, as torch.std(). */
static double deviation(const float *x, size_t n)
{
    double mean = 0, sum = 0;
    for (size_t i = 0; i < n; i++)
        mean += x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sqrt(sum / (double)(n - 1));
}

/* u + s (c - u) of all. */
static void mixed(const struct guide_moment *m, float *out)
{
    for (size_t i = 0; i < m->n; i++)
        out[i] = m->uncond[i] + (float)m->cfg * (m->cond[i] - m->uncond[i]);
}

/* ---- RescaleCFG: what cfg added to the contrast goes again, by a share ---- */

/* One item of n values. It works on what a v-predicting network would have said, hence the ways
 * there and back. scratch [2n]. */
static void rescaled(const struct guide_moment *m, size_t at, float share, float *scratch)
{
    const float *x = m->x + at, *cond = m->cond + at, *uncond = m->uncond + at;
    float sigma = m->sigma, var = sigma * sigma + 1, root = sqrtf(var), s = (float)m->cfg;
    float *cv = scratch, *cfg = scratch + m->item, *out = m->out + at;
    for (size_t i = 0; i < m->item; i++) {
        float x0 = x[i] / var, c = x[i] - (x[i] - cond[i]), u = x[i] - (x[i] - uncond[i]);
        float uv = (x0 - u) * root / sigma;
        cv[i] = (x0 - c) * root / sigma;
        cfg[i] = uv + s * (cv[i] - uv);
    }
    float ratio = (float)deviation(cv, m->item) / (float)deviation(cfg, m->item);
    if (!isfinite(ratio))
        ratio = 1; /* a flat latent has no contrast to lose */
    for (size_t i = 0; i < m->item; i++) {
        float v = share * (cfg[i] * ratio) + (1 - share) * cfg[i];
        out[i] = x[i] - (x[i] - (x[i] / var - v * sigma / root));
    }
}

static berth_status rescale_cfg(struct guide_moment *m, const struct guide_patch *p, berth_err *err)
{
    float share = (float)p->p[0], *scratch = guide_floats(m, 2 * m->item, err);
    if (!scratch)
        return err->code;
    mixed(m, m->out);
    if (share == 0 || !m->both)
        return BERTH_OK;
    for (size_t at = 0; at < m->n; at += m->item) {
        if (!ms_is_flow(m->ms)) {
            rescaled(m, at, share, scratch);
            continue;
        }
        float *out = m->out + at;
        float had = (float)deviation(m->cond + at, m->item);
        float has = fmaxf((float)deviation(out, m->item), 1e-8f);
        for (size_t i = 0; i < m->item; i++)
            out[i] = share * (out[i] * (had / has)) + (1 - share) * out[i];
    }
    return BERTH_OK;
}

/* ---- CFGZeroStar, CFGNorm, RenormCFG ---- */

static berth_status cfg_zero_star(struct guide_moment *m, const struct guide_patch *p,
                                  berth_err *err)
{
    float s = (float)m->cfg;
    (void)p;
    (void)err;
    for (size_t at = 0; at < m->n; at += m->item) {
        double ab = 0, bb = 0;
        for (size_t i = at; i < at + m->item; i++) {
            float a = m->x[i] - m->cond[i], b = m->x[i] - m->uncond[i];
            ab += (double)(a * b);
            bb += (double)(b * b);
        }
        float alpha = (float)ab / ((float)bb + 1e-8f);
        for (size_t i = at; i < at + m->item; i++)
            m->out[i] += m->uncond[i] * (alpha - 1) + s * m->uncond[i] * (1 - alpha);
    }
    return BERTH_OK;
}

/* The length over the channels at pixel k of item i. */
static float over_channels(const struct guide_moment *m, const float *v, size_t at, size_t k)
{
    return length_over(v + at + k, m->c, m->item / m->c);
}

static berth_status cfg_norm(struct guide_moment *m, const struct guide_patch *p, berth_err *err)
{
    size_t each = m->item / m->c;
    float strength = (float)p->p[0];
    (void)err;
    for (size_t at = 0; at < m->n; at += m->item)
        for (size_t k = 0; k < each; k++) {
            float by = over_channels(m, m->cond, at, k) / (over_channels(m, m->out, at, k) + 1e-8f);
            by = by > 1 ? 1 : by;
            for (size_t c = 0; c < m->c; c++)
                m->out[at + c * each + k] = m->out[at + c * each + k] * by * strength;
        }
    return BERTH_OK;
}

/* On the noise, x - D, and without a limit. */
static berth_status cfg_norm_pre(struct guide_moment *m, const struct guide_patch *p,
                                 berth_err *err)
{
    size_t each = m->item / m->c;
    float strength = (float)p->p[0], s = (float)m->cfg;
    float *c = guide_floats(m, m->n, err), *both = c ? guide_floats(m, m->n, err) : NULL;
    if (!both)
        return err->code;
    for (size_t i = 0; i < m->n; i++) {
        float u = m->x[i] - m->uncond[i];
        c[i] = m->x[i] - m->cond[i];
        both[i] = u + s * (c[i] - u);
    }
    for (size_t at = 0; at < m->n; at += m->item)
        for (size_t k = 0; k < each; k++) {
            float had = over_channels(m, c, at, k), has = over_channels(m, both, at, k);
            float by = has > 0 ? had / fmaxf(has, 1e-12f) : 1;
            for (size_t ch = 0; ch < m->c; ch++) {
                size_t i = at + ch * each + k;
                float v = both[i] * by;
                v = strength != 1 ? strength * v + (1 - strength) * both[i] : v;
                m->out[i] = m->x[i] - v;
            }
        }
    return BERTH_OK;
}

static berth_status renorm_cfg(struct guide_moment *m, const struct guide_patch *p, berth_err *err)
{
    float most = (float)p->p[1];
    (void)err;
    if (!(m->sigma < (float)p->p[0])) {
        memcpy(m->out, m->cond, m->n * sizeof *m->out);
        return BERTH_OK;
    }
    mixed(m, m->out);
    for (size_t at = 0; at < m->n && most > 0; at += m->item) {
        float limit = length(m->cond + at, m->item) * most, has = length(m->out + at, m->item);
        for (size_t i = at; has >= limit && i < at + m->item; i++)
            m->out[i] *= limit / has;
    }
    return BERTH_OK;
}

/* ---- APG: of the guidance, what points along c counts less ---- */

/* What is left of d [n] beside c, and eta of what lies along it. */
static void projected(float *d, const float *c, size_t n, float eta)
{
    float norm = fmaxf(length(c, n), 1e-12f);
    float along = (float)(dot(d, c, n) / (double)norm);
    for (size_t i = 0; i < n; i++) {
        float parallel = along * (c[i] / norm);
        d[i] = (d[i] - parallel) + eta * parallel;
    }
}

/* The guidance of the steps so far; it begins anew when the noise rises. */
static berth_status averaged(struct guide_moment *m, float momentum, float *d, berth_err *err)
{
    struct guide_memory *k = m->memory;
    if (!k->kept && !(k->kept = calloc(m->n, sizeof *k->kept)))
        return err_set(err, BERTH_ENOMEM, "%zu values", m->n);
    for (size_t i = 0; i < m->n; i++)
        d[i] = k->kept[i] = k->any ? momentum * k->kept[i] + d[i] : d[i];
    k->any = true;
    return BERTH_OK;
}

static berth_status apg(struct guide_moment *m, const struct guide_patch *p, berth_err *err)
{
    float eta = (float)p->p[0], most = (float)p->p[1], momentum = (float)p->p[2];
    float *d = guide_floats(m, m->n, err);
    if (!d)
        return err->code;
    if (m->memory->any && m->sigma > m->memory->sigma)
        m->memory->any = false;
    m->memory->sigma = m->sigma;
    for (size_t i = 0; i < m->n; i++)
        d[i] = m->cond[i] - m->uncond[i];
    if (momentum != 0 && averaged(m, momentum, d, err))
        return err->code;
    for (size_t at = 0; at < m->n; at += m->last3) {
        float norm = length(d + at, m->last3), by = norm > 0 ? fminf(1, most / norm) : 1;
        for (size_t i = at; most > 0 && i < at + m->last3; i++)
            d[i] *= by;
        projected(d + at, m->cond + at, m->last3, eta);
    }
    for (size_t i = 0; i < m->n; i++)
        m->cond[i] = (m->uncond[i] + d[i]) + (m->cond[i] - m->uncond[i]) / (float)m->cfg;
    return BERTH_OK;
}

/* ---- TCFG: of the negative's noise what both have in common ---- */

static berth_status tcfg(struct guide_moment *m, const struct guide_patch *p, berth_err *err)
{
    float *v = guide_floats(m, m->item, err);
    (void)p;
    if (!v)
        return err->code;
    for (size_t at = 0; m->both && at < m->n; at += m->item) {
        const float *x = m->x + at, *c = m->cond + at;
        float *u = m->uncond + at;
        double aa = 0, ab = 0, bb = 0;
        for (size_t i = 0; i < m->item; i++) {
            double a = (double)(x[i] - u[i]), b = (double)(x[i] - c[i]);
            aa += a * a;
            ab += a * b;
            bb += b * b;
        }
        /* The first singular vector of the two rows: their mixture by the larger eigenvector of
         * the 2 x 2 matrix of products. */
        double top = (aa + bb) / 2 + sqrt((aa - bb) * (aa - bb) / 4 + ab * ab);
        double wa = ab, wb = top - aa;
        if (fabs(wa) + fabs(wb) == 0)
            wa = 1;
        double norm2 = wa * wa * aa + 2 * wa * wb * ab + wb * wb * bb;
        double along = norm2 > 0 ? (wa * aa + wb * ab) / norm2 : 0;
        for (size_t i = 0; i < m->item; i++)
            v[i] = (float)(along * (wa * (double)(x[i] - u[i]) + wb * (double)(x[i] - c[i])));
        for (size_t i = 0; i < m->item; i++)
            u[i] = x[i] - v[i];
    }
    return BERTH_OK;
}

/* ---- Mahiro ---- */

static float signed_root(float v)
{
    return v < 0 ? -sqrtf(-v) : sqrtf(v);
}

static berth_status mahiro(struct guide_moment *m, const struct guide_patch *p, berth_err *err)
{
    size_t each = m->item / m->c;
    float s = (float)m->cfg;
    double sum = 0;
    (void)p;
    (void)err;
    for (size_t at = 0; at < m->n; at += m->item)
        for (size_t k = 0; k < each; k++) {
            double ab = 0, aa = 0, bb = 0;
            for (size_t i = at + k; i < at + m->item; i += each) {
                double a = (double)signed_root(m->uncond[i] * s);
                double b = (double)signed_root((m->cond[i] * s + m->out[i]) / 2);
                ab += a * b;
                aa += a * a;
                bb += b * b;
            }
            sum += ab / (fmax(sqrt(aa), 1e-8) * fmax(sqrt(bb), 1e-8));
        }
    float like = 2 * ((float)(sum / (double)(m->b * each)) + 1);
    for (size_t i = 0; i < m->n; i++)
        m->out[i] = (like * m->out[i] + (4 - like) * (m->cond[i] * s)) / 4;
    return BERTH_OK;
}

/* ---- FreSca: slow and fast changes over the picture count differently ---- */

/* The part of a wave over `size` points, at distance d, that the frequencies [-cut, cut) have, or
 * all of them: re[d], im[d]. */
static void band(size_t size, size_t cut, double *re, double *im)
{
    long half = (long)(size / 2), c = (long)cut < half ? (long)cut : half;
    for (size_t d = 0; d < size; d++) {
        re[d] = im[d] = 0;
        for (long f = -c; f < c; f++) {
            double angle = 2 * PI * (double)f * (double)d / (double)size;
            re[d] += cos(angle) / (double)size;
            im[d] += sin(angle) / (double)size;
        }
    }
}

/* plane [h, w]: low * what is in the band + high * the rest. tmp [2 h w]. */
static void filter(float *plane, size_t h, size_t w, const double *y, const double *x, double low,
                   double high, double *tmp)
{
    for (size_t r = 0; r < h; r++) /* along rows: complex from here on */
        for (size_t c = 0; c < w; c++) {
            double re = 0, im = 0;
            for (size_t k = 0; k < w; k++) {
                size_t d = (c + w - k) % w;
                re += (double)plane[r * w + k] * x[d];
                im += (double)plane[r * w + k] * x[w + d];
            }
            tmp[r * w + c] = re;
            tmp[(h + r) * w + c] = im;
        }
    for (size_t r = 0; r < h; r++)
        for (size_t c = 0; c < w; c++) {
            double in = 0;
            for (size_t k = 0; k < h; k++) {
                size_t d = (r + h - k) % h;
                in += tmp[k * w + c] * y[d] - tmp[(h + k) * w + c] * y[h + d];
            }
            plane[r * w + c] = (float)(high * (double)plane[r * w + c] + (low - high) * in);
        }
}

static berth_status fresca(struct guide_moment *m, const struct guide_patch *p, berth_err *err)
{
    size_t h = m->h, w = m->w;
    double *work = arena_array(m->mem, 2 * (h + w + h * w), sizeof *work);
    float *d = work ? guide_floats(m, m->n, err) : NULL;
    if (!d)
        return err_set(err, BERTH_ENOMEM, "frequencies of %zu x %zu", w, h);
    if (!m->both)
        return BERTH_OK;
    double *y = work, *x = y + 2 * h, *tmp = x + 2 * w;
    band(h, (size_t)p->p[2], y, y + h);
    band(w, (size_t)p->p[2], x, x + w);
    for (size_t i = 0; i < m->n; i++)
        d[i] = m->cond[i] - m->uncond[i];
    for (size_t at = 0; at < m->n; at += h * w)
        filter(d + at, h, w, y, x, p->p[0], p->p[1], tmp);
    for (size_t i = 0; i < m->n; i++)
        m->cond[i] = d[i] + m->uncond[i];
    return BERTH_OK;
}

/* ---- Perp-Neg: of the negative only what is not in the positive ---- */

static berth_status perp_neg(struct guide_moment *m, const struct guide_patch *p, berth_err *err)
{
    float scale = (float)p->p[0], s = (float)m->cfg;
    double np = 0, pp = 0;
    if (!m->empty)
        return err_set(err, BERTH_EINVAL, "no empty conditioning to compare with");
    for (size_t i = 0; i < m->n; i++) {
        double pos = (double)(m->cond[i] - m->empty[i]), neg = (double)(m->uncond[i] - m->empty[i]);
        np += neg * pos;
        pp += pos * pos;
    }
    float along = pp > 0 ? (float)(np / pp) : 0;
    for (size_t i = 0; i < m->n; i++) {
        float pos = m->cond[i] - m->empty[i], neg = m->uncond[i] - m->empty[i];
        m->out[i] = m->empty[i] + s * (pos - (neg - along * pos) * scale);
    }
    return BERTH_OK;
}

/* ---- levels of noise ---- */

static bool in_levels(const struct guide_patch *p, float sigma)
{
    return p->p[2] <= (double)sigma && (double)sigma <= p->p[1];
}

static berth_status epsilon_scaling(struct guide_moment *m, const struct guide_patch *p,
                                    berth_err *err)
{
    float by = p->p[0] == 0 ? 1e-9f : (float)p->p[0];
    (void)err;
    for (size_t i = 0; i < m->n; i++)
        m->out[i] = m->x[i] - (m->x[i] - m->out[i]) / by;
    return BERTH_OK;
}

static berth_status tsr(struct guide_moment *m, const struct guide_patch *p, berth_err *err)
{
    float k = (float)p->p[0], var = (float)(p->p[1] * p->p[1]), s = m->sigma;
    (void)err;
    if (p->p[0] == 1 || s == 0)
        return BERTH_OK;
    float half = ms_is_flow(m->ms) ? logf((1 - s) / s) : -logf(s), snr = expf(2 * half);
    if (snr == 0)
        return BERTH_OK;
    float r = isinf(snr) ? k : (snr * var + 1) / (snr * var / k + 1), alpha = s * expf(half);
    for (size_t i = 0; i < m->n; i++) {
        float from = m->x[i] / alpha;
        m->out[i] =
            r < 0.5f ? from + r * (m->out[i] - from) : m->out[i] - (m->out[i] - from) * (1 - r);
    }
    return BERTH_OK;
}

static bool cfg_override(const struct guide_patch *p, float sigma, double *cfg)
{
    if (!in_levels(p, sigma))
        return false;
    *cfg = p->p[0];
    return true;
}

/* ---- frames of a video that is a batch of pictures ---- */

static berth_status by_frame(struct guide_moment *m, double min, bool triangle)
{
    for (size_t f = 0; f < m->b; f++) {
        float v = sigmas_linspace(triangle ? 0 : min, triangle ? 1 : m->cfg, m->b, f);
        if (triangle)
            v = 2 * fabsf(v - floorf(v + 0.5f)) * (float)(m->cfg - min) + (float)min;
        for (size_t i = f * m->item; i < (f + 1) * m->item; i++) {
            float c = m->x[i] - m->cond[i], u = m->x[i] - m->uncond[i];
            m->out[i] = m->x[i] - (u + v * (c - u));
        }
    }
    return BERTH_OK;
}

static berth_status video_linear(struct guide_moment *m, const struct guide_patch *p,
                                 berth_err *err)
{
    (void)err;
    return by_frame(m, p->p[0], false);
}

static berth_status video_triangle(struct guide_moment *m, const struct guide_patch *p,
                                   berth_err *err)
{
    (void)err;
    return by_frame(m, p->p[0], true);
}

/* ---- away from what a network says that was made worse ---- */

static berth_status changed_pass(struct guide_moment *m, const struct guide_patch *p,
                                 berth_err *err)
{
    float scale = (float)p->p[0], share = (float)p->p[3];
    if (!(scale > 0 && in_levels(p, m->sigma)))
        return BERTH_OK;
    float *worse = guide_floats(m, m->n, err);
    if (!worse || guide_again(m, false, m->x, p->how, worse, err))
        return err->code;
    for (size_t i = 0; i < m->n; i++)
        m->out[i] += (m->cond[i] - worse[i]) * scale;
    if (share == 0)
        return BERTH_OK;
    /* Over everything, as the reference has it. */
    float by = share * (float)(deviation(m->cond, m->n) / deviation(m->out, m->n)) + (1 - share);
    for (size_t i = 0; i < m->n; i++)
        m->out[i] *= by;
    return BERTH_OK;
}

/* ---- LatentApplyOperationCFG: an operation on what cfg multiplies, c - u ---- */

static berth_status latent_operation(struct guide_moment *m, const struct guide_patch *p,
                                     berth_err *err)
{
    struct latent_operation op = latent_operation_get(p->p);
    struct shape s = { .ndim = 4, .dim = { m->b, m->c, m->h, m->w } };
    if (m->planes > 1)
        s = (struct shape) { .ndim = 5, .dim = { m->b, m->c, m->planes, m->h, m->w } };
    for (size_t i = 0; i < m->n; i++)
        m->cond[i] -= m->uncond[i];
    if (latent_operation_run(&op, &s, m->cond, m->cond, err))
        return err->code;
    for (size_t i = 0; i < m->n; i++)
        m->cond[i] += m->uncond[i];
    return BERTH_OK;
}

/* ---- self-attention guidance: away from a picture blurred where the network looks ---- */

#define BLUR 9 /* taps */

static size_t mirrored(ptrdiff_t i, size_t n)
{
    i = i < 0 ? -i : i;
    return (size_t)(i < (ptrdiff_t)n ? i : 2 * (ptrdiff_t)n - 2 - i);
}

static void blur(const float *x, size_t h, size_t w, double deviation_, float *out)
{
    float tap[BLUR], sum = 0;
    for (int i = 0; i < BLUR; i++) {
        float at = ((float)i - BLUR / 2) / (float)deviation_;
        sum += tap[i] = expf(-0.5f * at * at);
    }
    for (int i = 0; i < BLUR; i++)
        tap[i] /= sum;
    for (size_t r = 0; r < h; r++)
        for (size_t c = 0; c < w; c++) {
            double all = 0;
            for (int i = 0; i < BLUR; i++)
                for (int k = 0; k < BLUR; k++)
                    all += (double)(tap[i] * tap[k]) *
                           (double)x[mirrored((ptrdiff_t)r + i - BLUR / 2, h) * w +
                                     mirrored((ptrdiff_t)c + k - BLUR / 2, w)];
            out[r * w + c] = (float)all;
        }
}

/* Rows of a picture of so many tokens whose sides are about as h to w. */
static size_t token_rows(size_t tokens, size_t h, size_t w)
{
    size_t near = (size_t)nearbyint(sqrt((double)h / (double)w * (double)tokens));
    for (size_t i = 0; i < (size_t)(sqrt((double)tokens) / 2); i++) {
        if (tokens % (near + i) == 0)
            return near + i;
        size_t less = near > i + 1 ? near - i : 1;
        if (tokens % less == 0)
            return less;
    }
    return 0;
}

static berth_status sag(struct guide_moment *m, const struct guide_patch *p, berth_err *err)
{
    const struct guide_seen *seen = p->seen;
    size_t least = m->h < m->w ? m->h : m->w, hw = m->h * m->w;
    if (least <= BLUR / 2 || m->planes > 1) /* too small to blur */
        return BERTH_OK;
    if (!seen || !seen->of || seen->items != m->b)
        return err_set(err, BERTH_EUNSUPPORTED, "the network did not say where it looks");
    size_t rows = token_rows(seen->tokens, m->h, m->w), cols = rows ? seen->tokens / rows : 0;
    if (!rows)
        return err_set(err, BERTH_EUNSUPPORTED, "%zu tokens are no picture", seen->tokens);
    float *worse = guide_floats(m, m->n, err), *x = worse ? guide_floats(m, m->n, err) : NULL;
    float *again = x ? guide_floats(m, m->n, err) : NULL;
    if (!again)
        return err->code;
    for (size_t k = 0; k < m->b * m->c; k++) {
        const float *u = m->uncond + k * hw, *looked = seen->of + k / m->c * seen->tokens;
        float *to = worse + k * hw;
        blur(u, m->h, m->w, p->p[1], to);
        for (size_t i = 0; i < hw; i++) {
            size_t row = i / m->w * rows / m->h, col = i % m->w * cols / m->w;
            to[i] = looked[row * cols + col] > 1 ? to[i] : u[i];
        }
    }
    for (size_t i = 0; i < m->n; i++)
        x[i] = worse[i] + m->x[i] - m->uncond[i];
    if (guide_again(m, true, x, NULL, again, err))
        return err->code;
    for (size_t i = 0; i < m->n; i++)
        m->out[i] += (worse[i] - again[i]) * (float)p->p[0];
    return BERTH_OK;
}

#define GUIDE_PATCH(n, ...) const struct guide_patch_kind guide_##n = { .name = #n, __VA_ARGS__ };
#include "sample/guidance.def"
#undef GUIDE_PATCH
