/* Schedules against sigmas.safetensors. A name is model/scheduler/steps ("flux_shift1.15/beta/20"),
 * or model/all_sigmas for the model's own table. */
#include "support/golden_tensors.h"

#include "sample/sigmas.h"

#include <math.h>

#define TOLERANCE 1e-5 /* relative */

static void model_of(const char *name, struct msampling *ms)
{
    struct ms_config c = { .type = MS_CONST, .shifted = true };
    berth_err err;
    if (!strncmp(name, "sd15/", 5))
        c = (struct ms_config) { .type = MS_EPS };
    else if (sscanf(name, "flux_shift%lf/", &c.shift) == 1)
        c.table = MS_FLUX;
    else if (sscanf(name, "flow_shift%lf/", &c.shift) == 1)
        c.table = MS_FLOW;
    else
        fail_msg("'%s': which model is that?", name);
    assert_ok(ms_init(ms, &c, &err), err);
}

static void levels_of(const struct msampling *ms, const char *name, struct vec *out)
{
    char what[64];
    size_t steps;
    berth_err err;
    const char *rest = strchr(name, '/') + 1;
    if (!strcmp(rest, "all_sigmas")) {
        for (size_t i = 0; i < ms->n; i++)
            *(float *)vec_add(out) = ms->sigma[i];
        return;
    }
    assert_int_equal(sscanf(rest, "%63[^/]/%zu", what, &steps), 2);
    const struct scheduler *s = scheduler_find(what);
    if (!s)
        fail_msg("'%s': no scheduler '%s'", name, what);
    assert_ok(sample_sigmas(ms, s, steps, 1, false, out, &err), err);
}

static void every_case(void **state)
{
    (void)state;
    struct weights *w = golden_open("sigmas.safetensors");
    size_t values = 0, equal = 0;
    double worst = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        struct msampling ms;
        struct vec got = { .elem = sizeof(float) };
        size_t n;
        float *want = golden_floats(w, e, &n);
        model_of(e->name, &ms);
        levels_of(&ms, e->name, &got);
        if (got.n != n)
            fail_msg("'%s': %zu levels, golden %zu", e->name, got.n, n);
        for (size_t k = 0; k < n; k++) {
            double a = *(float *)vec_at(&got, k), b = want[k];
            double off = fabs(a - b) / (fabs(b) > 0 ? fabs(b) : 1);
            if (!(off <= TOLERANCE))
                fail_msg("'%s' level %zu: %.9g, golden %.9g", e->name, k, a, b);
            worst = off > worst ? off : worst;
            equal += a == b;
        }
        values += n;
        free(want);
        vec_release(&got);
        ms_release(&ms);
    }
    print_message("%zu lists, %zu levels, %zu of them equal, the rest within %.2g\n",
                  weights_count(w), values, equal, worst);
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
