/* Noise masks over latents against ComfyUI's prepare_mask(): masks.safetensors. */
#include "support/golden_tensors.h"
#include "support/loader_rig.h"

#include "node/compute.h"

#include <math.h>

static struct weights *file;

/* "<case>.mask" as a tensor of nodes. */
static struct htensor *mask_of(const char *latent)
{
    char name[96];
    berth_err err = { 0 };
    struct htensor *t;
    size_t n;
    snprintf(name, sizeof name, "%.*s.mask", (int)(strchr(latent, '.') - latent), latent);
    const struct weights_entry *e = weights_find(file, name, strlen(name));
    assert_non_null(e);
    assert_ok(htensor_new(&e->shape, &t, &err), err);
    float *x = golden_floats(file, e, &n);
    memcpy(t->data, x, n * sizeof *x);
    free(x);
    return t;
}

static void masks_are_comfyuis(void **state)
{
    struct rig r;
    struct call x;
    size_t cases = 0;
    (void)state;
    rig_open(&r, "cpu=64m");
    rig_call(&r, &x, "EmptyLatentImage", "{}");
    file = golden_open("masks.safetensors");
    for (size_t i = 0; i < weights_count(file); i++) {
        const struct weights_entry *e = weights_at(file, i);
        berth_err err = { 0 };
        size_t n;
        if (!strstr(e->name, ".latent"))
            continue;
        struct htensor *mask = mask_of(e->name);
        float *want = golden_floats(file, e, &n), *got = malloc(n * sizeof *got);
        assert_non_null(got);
        assert_ok(latent_mask(&x.c, mask, &e->shape, got, &err), err);
        for (size_t k = 0; k < n; k++)
            if (!(fabsf(got[k] - want[k]) <= 1e-6f))
                fail_msg("%s: value %zu is %.9g, reference %.9g", e->name, k, (double)got[k],
                         (double)want[k]);
        htensor_unref(mask);
        free(want), free(got);
        cases++;
    }
    assert_true(cases >= 14);
    weights_close(file);
    call_release(&x);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(masks_are_comfyuis) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
