/* sigmas_tables.c: schedules by published tables, log-linear between their levels. */
#include "node/node_impl.h"

#include <math.h>
#include <string.h>

#define TABLE_MAX 41

/* The reference's way of cutting: of all levels the last round(steps * denoise) + 1, and 0 in place
 * of the last one. table [n]: used as it is for n - 1 steps. */
static berth_status give_table(struct node_call *c, const double *table, size_t n, uint64_t steps,
                               double denoise, berth_err *err)
{
    struct htensor *t;
    uint64_t left = denoise < 1 ? (uint64_t)nearbyint((double)steps * denoise) : steps;
    size_t count = denoise <= 0 ? 0 : (size_t)left + 1;
    if (htensor_new(&(struct shape) { .ndim = 1, .dim = { count } }, &t, err))
        return err->code;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = steps - left + i;
        double x = (double)at / (double)steps * (double)(n - 1);
        size_t k = (size_t)x < n - 1 ? (size_t)x : n - 2;
        double a = log(table[k]), b = log(table[k + 1]);
        t->data[i] = steps + 1 == n ? (float)table[at] : (float)exp(a + (b - a) * (x - (double)k));
    }
    if (count)
        t->data[count - 1] = 0;
    return out_tensor(c, 0, t, err);
}

static berth_status in_span(const struct node_call *c, uint64_t least, uint64_t *steps,
                            double *denoise, berth_err *err)
{
    if (in_steps(c, steps, err) || in_f64(c, "denoise", denoise, err))
        return err->code;
    if (*steps < least || !(*denoise <= 1))
        return err_set(err, BERTH_EINVAL, "%llu steps at a denoise of %g",
                       (unsigned long long)*steps, *denoise);
    return BERTH_OK;
}

/* ---- OptimalSteps ---- */

static berth_status optimal_run(struct node_call *c, berth_err *err)
{
    static const struct {
        const char *model;
        size_t n;
        double at[TABLE_MAX];
    } table[] = {
        { "FLUX",
          11,
          { 0.9968, 0.9886, 0.9819, 0.975, 0.966, 0.9471, 0.9158, 0.8287, 0.5512, 0.2808, 0.001 } },
        { "Wan", 21, { 1.0,   0.997, 0.995, 0.993, 0.991, 0.989, 0.987, 0.985, 0.98,  0.975, 0.973,
                       0.968, 0.96,  0.946, 0.927, 0.902, 0.864, 0.776, 0.539, 0.208, 0.001 } },
        { "Chroma", 41, { 0.992, 0.99,  0.988, 0.985, 0.982, 0.978, 0.973, 0.968, 0.961,
                          0.953, 0.943, 0.931, 0.917, 0.9,   0.881, 0.858, 0.832, 0.802,
                          0.769, 0.731, 0.69,  0.646, 0.599, 0.55,  0.501, 0.451, 0.402,
                          0.355, 0.311, 0.27,  0.232, 0.199, 0.169, 0.143, 0.12,  0.101,
                          0.084, 0.07,  0.058, 0.048, 0.001 } },
    };
    const char *model;
    uint64_t steps;
    double denoise;
    if (in_text(c, "model_type", &model, err) || in_span(c, 1, &steps, &denoise, err))
        return err->code;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(model, table[i].model) == 0)
            return give_table(c, table[i].at, table[i].n, steps, denoise, err);
    return err_set(err, BERTH_EINVAL, "'%.60s' has no table", model);
}

NODE_CLASS(OptimalStepsScheduler, .category = "model/sampling/schedulers", V3("optimalsteps"),
           INS(COMBO_IN("model_type", CHOICES("FLUX", "Wan", "Chroma")),
               INT_IN("steps", 20, 3, 1000, 0), FLOAT_IN("denoise", 1.0, 0.0, 1.0, 0.01)),
           OUT_OF("SIGMAS"), .run = optimal_run);

/* ---- GITS ---- */

#define GITS_STEPS 20

static const double gits_level[] = {
#define GITS_LEVEL(sigma) sigma,
#define GITS_ROW(...)
#include "node/sigmas_gits.def"
#undef GITS_LEVEL
#undef GITS_ROW
};

static const struct {
    int coefficient, steps;
    uint8_t at[GITS_STEPS + 1];
} gits_row[] = {
#define GITS_LEVEL(sigma)
#define GITS_ROW(c, n, ...) { c, n, { __VA_ARGS__ } },
#include "node/sigmas_gits.def"
#undef GITS_LEVEL
#undef GITS_ROW
};

static berth_status gits_run(struct node_call *c, berth_err *err)
{
    double coefficient, denoise, table[GITS_STEPS + 1];
    uint64_t steps;
    if (in_f64(c, "coeff", &coefficient, err) || in_span(c, 2, &steps, &denoise, err))
        return err->code;
    for (size_t i = 0; i < ARRAY_LEN(gits_row); i++) {
        size_t n = (size_t)gits_row[i].steps;
        if (fabs(coefficient * 100 - gits_row[i].coefficient) > 0.5 ||
            n != (steps < GITS_STEPS ? steps : GITS_STEPS))
            continue;
        for (size_t k = 0; k <= n; k++)
            table[k] = gits_level[gits_row[i].at[k]];
        return give_table(c, table, n + 1, steps, denoise, err);
    }
    return err_set(err, BERTH_EINVAL, "no table for a coeff of %g", coefficient);
}

NODE_CLASS(GITSScheduler, .category = "model/sampling/schedulers", V3("gits"),
           INS(FLOAT_IN("coeff", 1.2, 0.8, 1.5, 0.05, .more = ADVANCED),
               INT_IN("steps", 10, 2, 1000, 0), FLOAT_IN("denoise", 1.0, 0.0, 1.0, 0.01)),
           OUT_OF("SIGMAS"), .run = gits_run);
