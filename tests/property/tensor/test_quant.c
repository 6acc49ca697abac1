/* Quantisers on random data: the error of every block stays under a bound that follows from the
 * format, and Q4_K's search beats taking minimum and maximum. */
#include "support/rng.h"
#include "support/test.h"

#include "tensor/dtype.h"

#include <float.h>
#include <math.h>

enum { BLOCKS = 2000, N = 256 * BLOCKS };

static float x[N], y[N];
static uint8_t q[N * 2];

static double uniform(struct rng *r) /* (0, 1] */
{
    return (double)((rng_u64(r) >> 11) + 1) * 0x1p-53;
}

static double normal(struct rng *r)
{
    return sqrt(-2 * log(uniform(r))) * cos(6.283185307179586 * uniform(r));
}

static const char *const kinds[] = {
    "normal", "uniform", "positive", "negative", "heavy", "sparse"
};

/* One value of distribution `kind`, around 1. */
static double draw(struct rng *r, size_t kind)
{
    switch (kind) {
    case 0:
        return normal(r);
    case 1:
        return 2 * uniform(r) - 1;
    case 2:
        return 3 + uniform(r);
    case 3:
        return -3 - uniform(r);
    case 4:
        return normal(r) * exp(normal(r));
    default:
        return rng_below(r, 20) ? 0 : normal(r);
    }
}

static double fill(struct rng *r, size_t kind)
{
    double scale = ldexp(1, (int)rng_below(r, 16) - 10), sum = 0;
    for (int i = 0; i < N; i++) {
        double block = ldexp(1, i / 256 % 3); /* blocks differ */
        x[i] = (float)(draw(r, kind) * scale * block);
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

static void there_and_back(enum dtype t)
{
    dtype_desc(t)->from_f32(x, q, N);
    dtype_desc(t)->to_f32(q, y, N);
}

/* Largest error allowed in a block of 32 with this largest magnitude: half a step, and what F16
 * does to the scale: relative 2^-11, or half its smallest value, times the largest step. */
static double simple_bound(double most, double steps, double half)
{
    double d = most / steps;
    return d * half + steps * fmax(d * 0x1p-11, 0x1p-25) + most * 1e-6;
}

static void simple_types_stay_within_half_a_step(void **state)
{
    (void)state;
    static const struct {
        enum dtype t;
        double steps, half;
    } type[] = { /* the far end of Q5_0 and Q4_0 is one step short: a whole step there */
                 { DT_Q8_0, 127, 0.5 },
                 { DT_Q5_0, 16, 1 },
                 { DT_Q4_0, 8, 1 }
    };
    uint64_t seed = rng_seed();
    struct rng r = { seed };
    for (size_t kind = 0; kind < ARRAY_LEN(kinds); kind++) {
        fill(&r, kind);
        for (size_t k = 0; k < ARRAY_LEN(type); k++) {
            there_and_back(type[k].t);
            for (int b = 0; b < N; b += 32) {
                double most = 0;
                for (int i = b; i < b + 32; i++)
                    most = fmax(most, fabs((double)x[i]));
                double bound = simple_bound(most, type[k].steps, type[k].half);
                for (int i = b; i < b + 32; i++)
                    if (!(fabs((double)x[i] - (double)y[i]) <= bound))
                        fail_msg("%s, %s: %g became %g, bound %g (BERTH_SEED=%llu)",
                                 dtype_name(type[k].t), kinds[kind], (double)x[i], (double)y[i],
                                 bound, (unsigned long long)seed);
            }
        }
    }
}

struct range {
    double lo, hi; /* of a sub-block, 0 included below */
};

static struct range range_of(const float *v)
{
    struct range g = { 0, -DBL_MAX };
    for (int i = 0; i < 32; i++) {
        g.lo = fmin(g.lo, (double)v[i]);
        g.hi = fmax(g.hi, (double)v[i]);
    }
    return g;
}

/* The error of a sub-block is at most that of minimum and maximum (half of a fifteenth of the range
 * everywhere) plus what rounding scale and minimum to 6 bits of the block's largest may add: half a
 * step of scale times 15, half a step of minimum. The search may stretch either by a little. */
static void q4_k_blocks_stay_within_their_bound(void **state)
{
    (void)state;
    uint64_t seed = rng_seed();
    struct rng r = { seed };
    for (size_t kind = 0; kind < ARRAY_LEN(kinds); kind++) {
        fill(&r, kind);
        there_and_back(DT_Q4_K);
        for (int b = 0; b < N; b += 256) {
            double wide = 0, deep = 0; /* largest range and minimum in the block */
            for (int s = b; s < b + 256; s += 32) {
                struct range g = range_of(x + s);
                wide = fmax(wide, g.hi - g.lo);
                deep = fmax(deep, -g.lo);
            }
            for (int s = b; s < b + 256; s += 32) {
                struct range g = range_of(x + s);
                double bound = (g.hi - g.lo) / 30 + 1.3 * (wide + deep) / 126 + 1e-4 * 0x1p-10;
                double sum = 0;
                for (int i = s; i < s + 32; i++)
                    sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
                double rms = sqrt(sum / 32);
                if (!(rms <= bound))
                    fail_msg("%s: rms %g, bound %g in sub-block %d (BERTH_SEED=%llu)", kinds[kind],
                             rms, bound, s / 32, (unsigned long long)seed);
            }
        }
    }
}

/* Minimum and maximum of each sub-block, scales rounded to 6 bits: what the search has to beat. */
static double naive_error(void)
{
    double sum = 0;
    for (int b = 0; b < N; b += 256) {
        double d = 0, dmin = 0;
        for (int s = b; s < b + 256; s += 32) {
            struct range g = range_of(x + s);
            d = fmax(d, (g.hi - g.lo) / 15 / 63);
            dmin = fmax(dmin, -g.lo / 63);
        }
        for (int s = b; s < b + 256; s += 32) {
            struct range g = range_of(x + s);
            double scale = d > 0 ? d * rint((g.hi - g.lo) / 15 / d) : 0;
            double min = dmin > 0 ? dmin * rint(-g.lo / dmin) : 0;
            for (int i = s; i < s + 32; i++) {
                double v = scale > 0 ? rint(((double)x[i] + min) / scale) : 0;
                double e = scale * fmin(fmax(v, 0), 15) - min - (double)x[i];
                sum += e * e;
            }
        }
    }
    return sum;
}

/* Largest relative root-mean-square error, with some air over what was measured, and the largest
 * part of the naive error that may be left. */
static void q4_k_search_pays(void **state)
{
    (void)state;
    static const struct {
        size_t kind;
        double rel, part;
    } want[] = {
        { 0, 0.0713, 0.93 }, /* normal: measured 0.0703 and 0.90 */
        { 1, 0.0549, 0.93 }, /* uniform: 0.0541 and 0.89 */
        { 4, 0.1100, 0.95 }, /* heavy tails */
    };
    uint64_t seed = rng_seed();
    struct rng r = { seed };
    for (size_t k = 0; k < ARRAY_LEN(want); k++) {
        double power = fill(&r, want[k].kind), sum = 0;
        there_and_back(DT_Q4_K);
        for (int i = 0; i < N; i++)
            sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        double rel = sqrt(sum / power), part = sqrt(sum / naive_error());
        if (!(rel <= want[k].rel && part <= want[k].part))
            fail_msg("%s: relative error %.4f, %.3f of naive (BERTH_SEED=%llu)",
                     kinds[want[k].kind], rel, part, (unsigned long long)seed);
        print_message("%s: relative error %.4f, %.3f of minimum and maximum\n", kinds[want[k].kind],
                      rel, part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simple_types_stay_within_half_a_step),
        cmocka_unit_test(q4_k_blocks_stay_within_their_bound),
        cmocka_unit_test(q4_k_search_pays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
