/* Schedules that need no model against ComfyUI's: between the ends of each model in
 * sigmas.safetensors they must give what its karras and exponential schedulers gave. */
#include "support/golden.h"
#include "support/node_rig.h"

#include "format/weights.h"

#define TOLERANCE 2e-6f /* relative: torch's vector pow and exp round their own way */

static size_t levels(const struct weights *w, const char *name, float *out, size_t cap)
{
    berth_err err;
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    if (!e)
        return 0;
    size_t n = (size_t)e->shape.dim[0];
    assert_true(n && n <= cap);
    assert_ok(weights_read(w, e, 0, out, n * sizeof *out, &err), err);
    return n;
}

static size_t compare(struct node_rig *r, const struct weights *w, const char *model,
                      const char *schedule, const char *node, int steps)
{
    float want[64];
    char name[80];
    snprintf(name, sizeof name, "%s/%s/%d", model, schedule, steps);
    size_t n = levels(w, name, want, 64);
    if (n < 3) /* both ends must be in it */
        return 0;
    assert_int_equal(n, steps + 1);
    rig_node(r, node);
    rig_int(r, "steps", steps);
    rig_float(r, "sigma_max", (double)want[0]);
    rig_float(r, "sigma_min", (double)want[n - 2]);
    assert_ok(rig_run(r), r->err);
    const struct htensor *t = rig_out(r, 0)->tensor;
    assert_int_equal(t->shape.dim[0], n);
    for (size_t i = 0; i < n; i++) {
        float off = t->data[i] - want[i];
        if (!((off < 0 ? -off : off) <= TOLERANCE * want[i]))
            fail_msg("%s: level %zu is %.9g, not %.9g", name, i, (double)t->data[i],
                     (double)want[i]);
    }
    return n;
}

static void as_the_reference(void **state)
{
    static const char *const models[] = { "sd15", "flux_shift1.15", "flux_shift0.5",
                                          "flow_shift3" };
    struct node_rig r;
    struct weights *w;
    berth_err err;
    size_t compared = 0;
    (void)state;
    rig_open(&r);
    assert_ok(weights_open(golden_path("sigmas.safetensors"), NULL, &w, &err), err);
    for (size_t m = 0; m < 4; m++)
        for (int steps = 2; steps < 40; steps++) {
            compared += compare(&r, w, models[m], "karras", "KarrasScheduler", steps);
            compared += compare(&r, w, models[m], "exponential", "ExponentialScheduler", steps);
        }
    assert_true(compared > 200);
    weights_close(w);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(as_the_reference) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
