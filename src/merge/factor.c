/* factor.c: see factor.h. B is the matrix with its smaller side first: [side, length]. */
#include "merge/factor.h"

#include "base/sz.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE 320 /* sides up to this are not looked at through a subspace */
#define SPACE 256 /* vectors of a subspace, at least */
#define BLOCK 16  /* of them that are made at once */

struct work {
    const struct factor_args *x;
    size_t side, length, space;
    double *q; /* [space, side]: orthonormal */
    double *w; /* [space, length]: q . B */
    double *c; /* [space, space]: w . w^T, then its vectors as rows */
    double *value;
    double *tmp;
    size_t from, to; /* vectors that are computed now */
};

static bool turned(const struct factor_args *x) /* B is the matrix the other way round */
{
    return x->rows > x->cols;
}

/* ---- products with the matrix ---- */

static double dot(const double *a, const double *b, size_t n)
{
    double part[4] = { 0 };
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (size_t k = 0; k < 4; k++)
            part[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        part[0] += a[i] * b[i];
    return (part[0] + part[2]) + (part[1] + part[3]);
}

/* y [rows] = a . v [cols] */
static void times(const struct factor_args *x, const double *v, double *y)
{
    for (size_t i = 0; i < x->rows; i++) {
        const float *row = x->a + i * x->cols;
        double part[4] = { 0 };
        size_t k = 0;
        for (; k + 4 <= x->cols; k += 4)
            for (size_t j = 0; j < 4; j++)
                part[j] += (double)row[k + j] * v[k + j];
        for (; k < x->cols; k++)
            part[0] += (double)row[k] * v[k];
        y[i] = (part[0] + part[2]) + (part[1] + part[3]);
    }
}

/* y [cols] = v [rows] . a */
static void times_turned(const struct factor_args *x, const double *v, double *y)
{
    memset(y, 0, x->cols * sizeof *y);
    for (size_t i = 0; i < x->rows; i++)
        for (size_t k = 0; k < x->cols; k++)
            y[k] += v[i] * (double)x->a[i * x->cols + k];
}

/* w = q . B of vectors [from, to) */
static void to_length(void *user, size_t i, size_t worker)
{
    struct work *k = user;
    (void)worker;
    const double *q = k->q + (k->from + i) * k->side;
    double *w = k->w + (k->from + i) * k->length;
    if (turned(k->x))
        times(k->x, q, w);
    else
        times_turned(k->x, q, w);
}

/* The next vectors' beginnings: B . w of these. */
static void to_side(void *user, size_t i, size_t worker)
{
    struct work *k = user;
    (void)worker;
    const double *w = k->w + (k->from + i) * k->length;
    double *q = k->q + (k->to + i) * k->side;
    if (turned(k->x))
        times_turned(k->x, w, q);
    else
        times(k->x, w, q);
}

/* A row of w . w^T up to its diagonal. */
static void to_gram(void *user, size_t i, size_t worker)
{
    struct work *k = user;
    (void)worker;
    for (size_t j = 0; j <= i; j++)
        k->c[i * k->space + j] = dot(k->w + i * k->length, k->w + j * k->length, k->length);
}

static berth_status spread(struct work *k, size_t n, tpool_fn *fn, berth_err *err)
{
    if (k->x->cancel && atomic_load(k->x->cancel))
        return err_set(err, BERTH_ECANCELED, "canceled");
    tpool_for(k->x->pool, n, fn, k);
    return BERTH_OK;
}

/* ---- the subspace ---- */

/* Vector i at right angles to those before it, of length 1; what is nothing then is 0. Twice is
 * enough. */
static void make_orthogonal(struct work *k, size_t i)
{
    double *q = k->q + i * k->side, was = sqrt(dot(q, q, k->side));
    for (int pass = 0; pass < 2; pass++)
        for (size_t j = 0; j < i; j++) {
            const double *p = k->q + j * k->side;
            double by = dot(q, p, k->side);
            for (size_t n = 0; n < k->side; n++)
                q[n] -= by * p[n];
        }
    double is = sqrt(dot(q, q, k->side));
    for (size_t n = 0; n < k->side; n++)
        q[n] = is > 1e-12 * was && is > 0 ? q[n] / is : 0;
}

/* The same numbers for the same size: an adapter is extracted twice the same. */
static double random_number(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) / (double)(UINT64_C(1) << 53) - 0.5;
}

static berth_status find_space(struct work *k, berth_err *err)
{
    uint64_t state = 42;
    for (size_t i = 0; i < BLOCK * k->side; i++)
        k->q[i] = random_number(&state);
    for (k->from = 0; k->from < k->space; k->from = k->to) {
        size_t n = k->space - k->from < BLOCK ? k->space - k->from : BLOCK;
        k->to = k->from + n;
        for (size_t i = k->from; i < k->to; i++)
            make_orthogonal(k, i);
        if (spread(k, n, to_length, err))
            return err->code;
        size_t next = k->space - k->to < n ? k->space - k->to : n;
        if (next && spread(k, next, to_side, err))
            return err->code;
    }
    return BERTH_OK;
}

/* Every direction there is. */
static berth_status take_all(struct work *k, berth_err *err)
{
    memset(k->q, 0, k->space * k->side * sizeof *k->q);
    for (size_t i = 0; i < k->side; i++)
        k->q[i * k->side + i] = 1;
    k->from = 0;
    return spread(k, k->space, to_length, err);
}

/* ---- values and vectors of a symmetric matrix: Householder, then QL ---- */

/* a [n, n] to three diagonals d, e; a becomes what turns it so. */
static void to_tridiagonal(double *a, size_t n, double *d, double *e)
{
    for (size_t i = n - 1; i > 0; i--) {
        double h = 0, scale = 0, *row = a + i * n;
        if (i > 1)
            for (size_t k = 0; k < i; k++)
                scale += fabs(row[k]);
        if (scale == 0) {
            e[i] = row[i - 1];
            d[i] = 0;
            continue;
        }
        for (size_t k = 0; k < i; k++) {
            row[k] /= scale;
            h += row[k] * row[k];
        }
        double f = row[i - 1], g = f >= 0 ? -sqrt(h) : sqrt(h);
        e[i] = scale * g;
        h -= f * g;
        row[i - 1] = f - g;
        f = 0;
        for (size_t j = 0; j < i; j++) {
            a[j * n + i] = row[j] / h;
            g = 0;
            for (size_t k = 0; k <= j; k++)
                g += a[j * n + k] * row[k];
            for (size_t k = j + 1; k < i; k++)
                g += a[k * n + j] * row[k];
            e[j] = g / h;
            f += e[j] * row[j];
        }
        double hh = f / (h + h);
        for (size_t j = 0; j < i; j++) {
            f = row[j];
            e[j] = g = e[j] - hh * f;
            for (size_t k = 0; k <= j; k++)
                a[j * n + k] -= f * e[k] + g * row[k];
        }
        d[i] = h;
    }
    d[0] = e[0] = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; d[i] != 0 && j < i; j++) {
            double g = 0;
            for (size_t k = 0; k < i; k++)
                g += a[i * n + k] * a[k * n + j];
            for (size_t k = 0; k < i; k++)
                a[k * n + j] -= g * a[k * n + i];
        }
        d[i] = a[i * n + i];
        a[i * n + i] = 1;
        for (size_t j = 0; j < i; j++)
            a[j * n + i] = a[i * n + j] = 0;
    }
}

/* d, e to values in d; z [n, n], whose rows are turned along, to vectors: row i is value i's. */
static bool to_values(double *d, double *e, double *z, size_t n)
{
    for (size_t i = 1; i < n; i++)
        e[i - 1] = e[i];
    e[n - 1] = 0;
    for (size_t l = 0; l < n; l++) {
        for (int turn = 0;; turn++) {
            size_t m = l;
            for (; m + 1 < n; m++) {
                double sum = fabs(d[m]) + fabs(d[m + 1]);
                if (fabs(e[m]) <= 2.2e-16 * sum || e[m] == 0)
                    break;
            }
            if (m == l)
                break;
            if (turn == 200)
                return false;
            double g = (d[l + 1] - d[l]) / (2 * e[l]), r = hypot(g, 1), s = 1, c = 1, p = 0;
            g = d[m] - d[l] + e[l] / (g + copysign(r, g));
            size_t i = m;
            while (i-- > l) {
                double f = s * e[i], b = c * e[i];
                e[i + 1] = r = hypot(f, g);
                if (r == 0) {
                    d[i + 1] -= p;
                    e[m] = 0;
                    break;
                }
                s = f / r;
                c = g / r;
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
                double *z0 = z + i * n, *z1 = z0 + n;
                for (size_t k = 0; k < n; k++) {
                    f = z1[k];
                    z1[k] = s * z0[k] + c * f;
                    z0[k] = c * z0[k] - s * f;
                }
            }
            if (r == 0 && i + 1 > l)
                continue;
            d[l] -= p;
            e[l] = g;
            e[m] = 0;
        }
    }
    return true;
}

static berth_status find_values(struct work *k, berth_err *err)
{
    size_t n = k->space;
    if (spread(k, n, to_gram, err))
        return err->code;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            k->c[j * n + i] = k->c[i * n + j];
    to_tridiagonal(k->c, n, k->value, k->tmp);
    for (size_t i = 0; i < n; i++) /* its columns to rows */
        for (size_t j = 0; j < i; j++) {
            double was = k->c[i * n + j];
            k->c[i * n + j] = k->c[j * n + i];
            k->c[j * n + i] = was;
        }
    return to_values(k->value, k->tmp, k->c, n)
               ? BERTH_OK
               : err_set(err, BERTH_EINVAL, "a matrix whose values cannot be told apart");
}

/* ---- all together ---- */

/* Of values not yet taken (>= 0) the largest. */
static size_t next_value(const struct work *k, const bool *taken)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < k->space; i++)
        if (!taken[i] && (best == SIZE_MAX || k->value[i] > k->value[best]))
            best = i;
    return best;
}

static void combine(const double *of, const double *rows, size_t n, size_t width, double *out)
{
    memset(out, 0, width * sizeof *out);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < width; j++)
            out[j] += of[i] * rows[i * width + j];
}

/* Vector pair r of value i to its places. short_, long_: room for one of each side. */
static void put(const struct work *k, size_t r, size_t i, double *short_, double *long_, float *up,
                float *down)
{
    const struct factor_args *x = k->x;
    double value = k->value[i] > 0 ? sqrt(k->value[i]) : 0, largest = 0;
    combine(k->c + i * k->space, k->q, k->space, k->side, short_);
    combine(k->c + i * k->space, k->w, k->space, k->length, long_);
    for (size_t j = 0; j < k->length; j++)
        long_[j] = value > 0 ? long_[j] / value : 0;
    const double *left = turned(x) ? long_ : short_, *right = turned(x) ? short_ : long_;
    for (size_t j = 0; j < x->rows; j++)
        largest = fabs(left[j]) > fabs(largest) ? left[j] : largest;
    double sign = largest < 0 ? -1 : 1;
    for (size_t j = 0; j < x->rows; j++)
        up[j * x->rank + r] = (float)(sign * left[j] * value);
    for (size_t j = 0; j < x->cols; j++)
        down[r * x->cols + j] = (float)(sign * right[j]);
}

static bool take_room(struct work *k, double **mem)
{
    size_t s = k->space, n, sum = 0;
    const size_t part[] = { s * k->side, s * k->length, s * s, s, s, k->side, k->length };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        sum += part[i];
    if (!sz_mul(sum, sizeof(double), &n) || !(*mem = malloc(n)))
        return false;
    k->q = *mem;
    k->w = k->q + part[0];
    k->c = k->w + part[1];
    k->value = k->c + part[2];
    k->tmp = k->value + part[3];
    return true;
}

berth_status factor(const struct factor_args *x, float *up, float *down, berth_err *err)
{
    struct work k = { .x = x,
                      .side = turned(x) ? x->cols : x->rows,
                      .length = turned(x) ? x->rows : x->cols };
    double *mem = NULL;
    k.space = 3 * x->rank > SPACE ? 3 * x->rank : SPACE;
    bool all = k.side <= WHOLE || k.space > k.side / 2;
    k.space = all ? k.side : k.space;
    for (size_t i = 0; i < x->rows * x->cols; i++)
        if (!isfinite(x->a[i]))
            return err_set(err, BERTH_EINVAL, "a difference that is not finite");
    bool *taken = calloc(k.space + 1, sizeof *taken);
    berth_status s = taken && take_room(&k, &mem)
                         ? BERTH_OK
                         : err_set(err, BERTH_ENOMEM, "factors of %zu x %zu", x->rows, x->cols);
    if (!s)
        s = all ? take_all(&k, err) : find_space(&k, err);
    if (!s)
        s = find_values(&k, err);
    double *short_ = s ? NULL : k.tmp + k.space;
    for (size_t r = 0; !s && r < x->rank; r++) {
        size_t i = next_value(&k, taken);
        taken[i] = true;
        put(&k, r, i, short_, short_ + k.side, up, down);
    }
    free(taken);
    free(mem);
    return s;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

float factor_quantile(float *v, size_t n, double q)
{
    double at = q * (double)(n - 1);
    size_t low = (size_t)at, high = low + 1 < n ? low + 1 : low;
    qsort(v, n, sizeof *v, by_size);
    float by = (float)(at - (double)low);
    return v[low] + by * (v[high] - v[low]);
}
