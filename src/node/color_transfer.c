/* color_transfer.c: ColorTransfer: the colours of one picture for another.
 *
 * Lab methods map every pixel v to T (v - mean of source) + mean of reference, in CIE Lab (D65).
 * reinhard_lab has a T of three numbers, mkl_lab a matrix out of both covariances. histogram has a
 * table for each channel. Statistics are per frame, of all frames, or of a chosen one. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- CIE Lab ---- */

static double to_linear(double v)
{
    return v > 0.04045 ? pow((v + 0.055) / 1.055, 2.4) : v / 12.92;
}

static double from_linear(double v)
{
    return v > 0.0031308 ? 1.055 * pow(v, 1 / 2.4) - 0.055 : 12.92 * v;
}

static const double white[3] = { 0.95047, 1.0, 1.08883 };

static void to_lab(const float *rgb, double lab[3])
{
    static const double m[3][3] = { { 0.412453, 0.357580, 0.180423 },
                                    { 0.212671, 0.715160, 0.072169 },
                                    { 0.019334, 0.119193, 0.950227 } };
    double lin[3], f[3];
    for (int k = 0; k < 3; k++)
        lin[k] = to_linear((double)rgb[k]);
    for (int k = 0; k < 3; k++) {
        double v = (m[k][0] * lin[0] + m[k][1] * lin[1] + m[k][2] * lin[2]) / white[k];
        f[k] = v > 0.008856 ? cbrt(v) : 7.787 * v + 4.0 / 29.0;
    }
    lab[0] = 116 * f[1] - 16;
    lab[1] = 500 * (f[0] - f[1]);
    lab[2] = 200 * (f[1] - f[2]);
}

static void from_lab(const double lab[3], float *rgb)
{
    static const double m[3][3] = {
        { 3.2404813432005266, -1.5371515162713185, -0.4985363261688878 },
        { -0.9692549499965682, 1.8759900014898907, 0.0415559265582928 },
        { 0.0556466391351772, -0.2040413383665112, 1.0573110696453443 }
    };
    double fy = (lab[0] + 16) / 116, f[3] = { lab[1] / 500 + fy, fy, fy - lab[2] / 200 }, xyz[3];
    f[2] = f[2] > 0 ? f[2] : 0;
    for (int k = 0; k < 3; k++)
        xyz[k] = (f[k] > 0.2068966 ? f[k] * f[k] * f[k] : (f[k] - 4.0 / 29.0) / 7.787) * white[k];
    for (int k = 0; k < 3; k++)
        rgb[k] =
            clamp01((float)from_linear(m[k][0] * xyz[0] + m[k][1] * xyz[1] + m[k][2] * xyz[2]));
}

/* ---- statistics ---- */

struct stats {
    double mean[3], cov[3][3];
};

/* Of pictures [from, from + n) of t: means of each, then what is left around their mean. */
static void stats_of(const struct htensor *t, size_t from, size_t n, struct stats *s)
{
    size_t px = dim(t, 1) * dim(t, 2) * n;
    const float *first = t->data + from * dim(t, 1) * dim(t, 2) * 3;
    double lab[3];
    *s = (struct stats) { 0 };
    for (size_t i = 0; i < px; i++) {
        to_lab(first + 3 * i, lab);
        for (int k = 0; k < 3; k++)
            s->mean[k] += lab[k] / (double)px;
    }
    for (size_t i = 0; i < px; i++) {
        to_lab(first + 3 * i, lab);
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++)
                s->cov[a][b] += (lab[a] - s->mean[a]) * (lab[b] - s->mean[b]) / (double)px;
    }
}

/* ---- 3 x 3 matrices ---- */

typedef double mat3[3][3];

static void mat_mul(mat3 a, mat3 b, mat3 out)
{
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            out[i][k] = a[i][0] * b[0][k] + a[i][1] * b[1][k] + a[i][2] * b[2][k];
}

static void mat_transpose(mat3 a, mat3 out)
{
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            out[i][k] = a[k][i];
}

/* One Jacobi rotation that makes a[p][q] 0. */
static void rotate(mat3 a, mat3 v, int p, int q)
{
    if (a[p][q] == 0)
        return;
    double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
    double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int k = 0; k < 3; k++) {
        double x = a[k][p], y = a[k][q];
        a[k][p] = c * x - s * y;
        a[k][q] = s * x + c * y;
    }
    for (int k = 0; k < 3; k++) {
        double x = a[p][k], y = a[q][k];
        a[p][k] = c * x - s * y;
        a[q][k] = s * x + c * y;
    }
    for (int k = 0; k < 3; k++) {
        double x = v[k][p], y = v[k][q];
        v[k][p] = c * x - s * y;
        v[k][q] = s * x + c * y;
    }
}

/* Eigenvalues of a symmetric matrix, its vectors as columns of v. */
static void eigen(mat3 m, double value[3], mat3 v)
{
    mat3 a;
    memcpy(a, m, sizeof a);
    memset(v, 0, sizeof(mat3));
    v[0][0] = v[1][1] = v[2][2] = 1;
    for (int sweep = 0; sweep < 16; sweep++) {
        rotate(a, v, 0, 1);
        rotate(a, v, 0, 2);
        rotate(a, v, 1, 2);
    }
    for (int k = 0; k < 3; k++)
        value[k] = a[k][k];
}

#define LEAST 1e-6

static void mkl_matrix(mat3 source, mat3 reference, mat3 out)
{
    double value[3];
    mat3 v, vt, up, down, downt, mid, half, tmp;
    eigen(source, value, v);
    for (int k = 0; k < 3; k++) {
        double root = value[k] > 0 ? sqrt(value[k]) : 0;
        root = root > LEAST ? root : LEAST;
        for (int i = 0; i < 3; i++) {
            up[i][k] = v[i][k] * root;
            down[i][k] = v[i][k] / root;
        }
    }
    mat_transpose(up, vt);
    mat_mul(vt, reference, tmp);
    mat_mul(tmp, up, mid);
    eigen(mid, value, v);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 3; i++)
            tmp[i][k] = v[i][k] * (value[k] > 0 ? sqrt(value[k]) : 0);
    mat_transpose(v, vt);
    mat_mul(tmp, vt, half);
    mat_mul(down, half, tmp);
    mat_transpose(down, downt);
    mat_mul(tmp, downt, out);
}

/* ---- the map of a frame ---- */

struct transfer {
    bool reinhard;
    float strength;
    struct stats source, reference;
    mat3 by;
};

static void transfer_make(struct transfer *t)
{
    memset(t->by, 0, sizeof t->by);
    if (!t->reinhard) {
        mkl_matrix(t->source.cov, t->reference.cov, t->by);
        return;
    }
    for (int k = 0; k < 3; k++) {
        double s = sqrt(t->source.cov[k][k]), r = sqrt(t->reference.cov[k][k]);
        t->by[k][k] = (r > LEAST ? r : LEAST) / (s > LEAST ? s : LEAST);
    }
}

static void transfer_pixels(const struct transfer *t, const float *in, size_t px, float *out)
{
    for (size_t i = 0; i < px; i++, in += 3, out += 3) {
        double lab[3], to[3];
        to_lab(in, lab);
        for (int k = 0; k < 3; k++) {
            double v = t->reference.mean[k];
            for (int j = 0; j < 3; j++)
                v += t->by[k][j] * (lab[j] - t->source.mean[j]);
            to[k] = lab[k] + (double)t->strength * (v - lab[k]);
        }
        from_lab(to, out);
    }
}

struct job {
    struct htensor *target, *ref, *out;
    char stats;   /* 'p'er_frame, 'u'niform, 't'arget_frame */
    size_t frame; /* of target_frame */
    float strength;
};

/* Of which frames frame i is the source, and of which reference it takes the colours. */
static void job_ranges(const struct job *j, size_t i, size_t source[2], size_t ref[2])
{
    size_t n = dim(j->target, 0), refs = dim(j->ref, 0);
    source[0] = j->stats == 'p' ? i : j->stats == 't' ? j->frame : 0;
    source[1] = j->stats == 'u' ? n : 1;
    ref[0] = j->stats != 'p' ? 0 : i < refs ? i : refs - 1;
    ref[1] = j->stats != 'p' ? refs : 1;
}

static berth_status by_lab(struct node_call *c, const struct job *j, bool reinhard, berth_err *err)
{
    struct transfer t = { .reinhard = reinhard, .strength = j->strength };
    size_t px = dim(j->target, 1) * dim(j->target, 2), n = dim(j->target, 0);
    for (size_t i = 0; i < n; i++) {
        size_t source[2], ref[2];
        job_ranges(j, i, source, ref);
        if (!i || j->stats == 'p') {
            stats_of(j->target, source[0], source[1], &t.source);
            stats_of(j->ref, ref[0], ref[1], &t.reference);
            transfer_make(&t);
        }
        transfer_pixels(&t, j->target->data + i * px * 3, px, j->out->data + i * px * 3);
        if (call_progress(c, (double)(i + 1), (double)n, err))
            return err->code;
    }
    return BERTH_OK;
}

/* ---- histogram ---- */

static size_t bin_of(float v)
{
    v *= 255.0f;
    return v > 0.0f ? (v < 255.0f ? (size_t)v : 255) : 0;
}

/* The part of all values of channel k that are no larger than each. */
static void cdf_of(const struct htensor *t, size_t from, size_t n, size_t k, float cdf[256])
{
    size_t ch = dim(t, 3), px = dim(t, 1) * dim(t, 2);
    uint64_t count[256] = { 0 }, sum = 0;
    for (size_t i = from * px; i < (from + n) * px; i++)
        count[bin_of(t->data[i * ch + k])]++;
    for (int i = 0; i < 256; i++) {
        sum += count[i];
        cdf[i] = (float)sum / (float)(n * px);
    }
}

static void table_of(const struct job *j, size_t frame, size_t k, float table[256])
{
    float source[256], ref[256];
    size_t s[2], r[2], at = 0;
    job_ranges(j, frame, s, r);
    cdf_of(j->target, s[0], s[1], k, source);
    cdf_of(j->ref, r[0], r[1], k, ref);
    for (int i = 0; i < 256; i++) { /* both rise */
        while (at < 255 && ref[at] < source[i])
            at++;
        table[i] = (float)at / 255.0f;
    }
}

static berth_status by_histogram(struct node_call *c, const struct job *j, berth_err *err)
{
    size_t ch = dim(j->target, 3), px = dim(j->target, 1) * dim(j->target, 2);
    for (size_t i = 0; i < dim(j->target, 0); i++)
        for (size_t k = 0; k < ch; k++) {
            float table[256];
            if (call_check(c, err))
                return err->code;
            table_of(j, i, k, table);
            for (size_t p = i * px; p < (i + 1) * px; p++) {
                float v = j->target->data[p * ch + k], to = table[bin_of(v)];
                j->out->data[p * ch + k] = clamp01(v + j->strength * (to - v));
            }
        }
    return BERTH_OK;
}

/* ---- the node ---- */

static berth_status transfer_run(struct node_call *c, berth_err *err)
{
    struct job j;
    const char *method, *stats;
    double strength;
    uint64_t frame = 0;
    if (in_image(c, "image_target", &j.target, err) || in_image(c, "image_ref", &j.ref, err) ||
        in_text(c, "method", &method, err) || in_text(c, "source_stats", &stats, err) ||
        in_f64(c, "strength", &strength, err) ||
        (*stats == 't' && in_u64(c, "source_stats.target_index", &frame, err)))
        return err->code;
    if (strength == 0)
        return out_tensor(c, 0, htensor_ref(j.target), err);
    j.stats = *stats;
    j.frame = frame < dim(j.target, 0) ? (size_t)frame : dim(j.target, 0) - 1;
    j.strength = (float)strength;
    bool lab = *method != 'h';
    if (dim(j.target, 3) != dim(j.ref, 3) || (lab && dim(j.target, 3) != 3))
        return err_set(err, BERTH_EINVAL, "%s: image_target has %zu channels, image_ref %zu",
                       method, dim(j.target, 3), dim(j.ref, 3));
    if (htensor_new(&j.target->shape, &j.out, err))
        return err->code;
    berth_status s = lab ? by_lab(c, &j, *method == 'r', err) : by_histogram(c, &j, err);
    return give_tensor(c, s, j.out, err);
}

NODE_CLASS(ColorTransfer, .display = "Transfer Color", .category = "image/filters",
           V3("post_processing"), .description = "Gives pictures the colours of others.",
           INS(SOCKET("image_target", "IMAGE"), SOCKET("image_ref", "IMAGE"),
               COMBO_IN("method", CHOICES("reinhard_lab", "mkl_lab", "histogram")),
               DYNCOMBO_IN("source_stats",
                           WITH(CHOICE0("per_frame"), CHOICE0("uniform"),
                                CHOICE("target_frame", INT_IN("target_index", 0, 0, 10000, 0)))),
               FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01)),
           OUTS({ .type = "IMAGE", .name = "image" }), .run = transfer_run);
