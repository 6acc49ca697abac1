/* Every sampler against ComfyUI's, with a formula for a network: data/, made by
 * tools/golden/samplers.py. */
#include "support/test.h"

#include "sample/sample.h"

#include <inttypes.h>
#include <math.h>

#define DATA BERTH_SOURCE_DIR "/tests/golden/sample/data/"
#define LEVELS 32

struct network {
    size_t n, calls;
    size_t steps, told; /* callbacks; the last step that was told */
};

/* D(x, s) = x / (1 + s^2) + 0.1 tanh(x), U(x, s) = 0.8 x / (1 + s^2) + 0.05 tanh(x) */
static berth_status denoise(void *user, const float *x, float sigma, float *D, float *U,
                            berth_err *err)
{
    struct network *net = user;
    (void)err;
    net->calls++;
    for (size_t i = 0; i < net->n; i++) {
        float clean = x[i] / (1 + sigma * sigma), squashed = (float)tanh((double)x[i]);
        if (U)
            U[i] = 0.8f * clean + 0.05f * squashed;
        D[i] = clean + 0.1f * squashed;
    }
    return BERTH_OK;
}

static berth_status step(void *user, const struct sample_step *s, berth_err *err)
{
    struct network *net = user;
    (void)err;
    assert_true(s->i < s->total && s->x && s->denoised);
    net->steps++;
    net->told = s->i;
    return BERTH_OK;
}

static void option(struct sample_options *o, const char *name, double value)
{
    struct {
        const char *name;
        double *to;
    } all[] = { { "eta", &o->eta },         { "s_noise", &o->s_noise }, { "r", &o->r },
                { "s_churn", &o->s_churn }, { "s_tmin", &o->s_tmin },   { "s_tmax", &o->s_tmax },
                { "gamma", &o->gamma } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) {
            *all[i].to = value;
            return;
        }
    if (!strcmp(name, "order"))
        o->order = (int)value;
    else if (!strcmp(name, "heun"))
        o->heun = value != 0;
    else
        fail_msg("no option '%s'", name);
}

static void options(struct sample_options *o, const char *text)
{
    *o = sample_defaults;
    for (char name[32]; *text && strcmp(text, "-") != 0;) {
        double value;
        int used;
        assert_int_equal(sscanf(text, "%31[^=]=%lf%n", name, &value, &used), 2);
        option(o, name, value);
        text += used + (text[used] == ',');
    }
}

/* The generator stands where so many draws leave it. */
static void drew(const char *line, struct sample_job *j, int draws)
{
    struct torch_rng fresh;
    float *noise = malloc(j->n * sizeof *noise), a[16], b[16];
    assert_non_null(noise);
    torch_seed(&fresh, j->seed + 1);
    for (int i = 0; i < draws; i++)
        torch_randn(&fresh, noise, j->n);
    torch_randn(&fresh, a, 16);
    torch_randn(&j->rng, b, 16);
    if (draws >= 0 && memcmp(a, b, sizeof a) != 0)
        fail_msg("%s: not %d draws of noise", line, draws);
    free(noise);
}

/* torch's exp, log and sqrt round their own way. */
static void compare(const char *line, const float *got, const float *want, size_t n,
                    double tolerance)
{
    double top = 0, off = 0;
    for (size_t i = 0; i < n; i++) {
        top = fmax(top, fabs((double)want[i]));
        off = fmax(off, fabs((double)got[i] - (double)want[i]));
    }
    if (!(off <= tolerance * top))
        fail_msg("%s: off by %.3g of %.3g", line, off, top);
}

static void one_case(char *line, FILE *bin, const struct msampling *eps,
                     const struct msampling *flow, struct tpool *pool, unsigned *seen)
{
    char name[40], model[8], opts[80];
    size_t dim[4], calls;
    int draws, used;
    double tolerance;
    float sigma[LEVELS];
    struct sample_job j = { .sigma = sigma, .denoise = denoise, .step = step, .pool = pool };
    assert_int_equal(sscanf(line, "%39s %7s %zu %zu %zu %zu %" SCNu64 " %zu %d %lf %79s%n", name,
                            model, &dim[0], &dim[1], &dim[2], &dim[3], &j.seed, &calls, &draws,
                            &tolerance, opts, &used),
                     11);
    const struct sampler *s = sampler_find(name);
    if (!s)
        fail_msg("no sampler '%s'", name);
    for (size_t i = 0; i < sampler_count(); i++)
        seen[i] += sampler_at(i) == s;
    for (const char *p = line + used; *p; p += used) {
        assert_true(j.sigmas < LEVELS);
        assert_int_equal(sscanf(p, " %f%n", &sigma[j.sigmas++], &used), 1);
    }
    options(&j.opt, opts);
    j.ms = !strcmp(model, "flow") ? flow : eps;
    j.n = dim[0] * dim[1] * dim[2] * dim[3];
    float *x = malloc(j.n * sizeof *x), *want = malloc(j.n * sizeof *want);
    assert_true(x && want);
    assert_int_equal(fread(want, sizeof *want, j.n, bin), j.n); /* little-endian, as we are */
    struct torch_rng g;
    torch_seed(&g, j.seed);
    torch_randn(&g, x, j.n);
    for (size_t i = 0; i < j.n; i++)
        x[i] *= sigma[0];
    struct network net = { .n = j.n };
    berth_err err;
    j.x = x;
    j.user = &net;
    assert_ok(sample_run(s, &j, &err), err);
    compare(line, x, want, j.n, tolerance);
    if (net.calls != calls)
        fail_msg("%s: %zu network calls", line, net.calls);
    assert_true((net.steps > 0) == (calls > 0)); /* dpm_adaptive has nothing to do from s to s */
    drew(line, &j, draws);
    free(x), free(want);
}

static void equals_the_reference(void **state)
{
    (void)state;
    FILE *index = fopen(DATA "samplers.txt", "r"), *bin = fopen(DATA "samplers.bin", "rb");
    assert_true(index && bin);
    struct msampling eps, flow;
    struct tpool *pool;
    berth_err err;
    assert_ok(ms_init(&eps, &(struct ms_config) { 0 }, &err), err);
    assert_ok(ms_init(&flow, &(struct ms_config) { .type = MS_CONST, .table = MS_FLOW, .shift = 3 },
                      &err),
              err);
    assert_ok(tpool_new(2, &pool, &err), err);
    unsigned seen[64] = { 0 };
    assert_true(sampler_count() <= 64);
    for (char line[1024]; fgets(line, sizeof line, index);) {
        line[strcspn(line, "\n")] = 0;
        one_case(line, bin, &eps, &flow, pool, seen);
    }
    assert_int_equal(fgetc(bin), EOF);
    for (size_t i = 0; i < sampler_count(); i++)
        if (seen[i] < 8)
            fail_msg("%s: %u cases", sampler_at(i)->name, seen[i]);
    tpool_free(pool);
    ms_release(&eps), ms_release(&flow);
    fclose(index), fclose(bin);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(equals_the_reference) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
