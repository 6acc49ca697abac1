/* The runs of every qwen_image_<model> of the manifest, through UNETLoader and KSampler:
 *
 *     sample/<sampler>/<scheduler>/<steps>      prompts are `context` and `negative`
 *     sample_ref/<sampler>/<scheduler>/<steps>  both look at `ref`, by ReferenceLatent
 *     sample_kv/<sampler>/<scheduler>/<steps>   the same behind FluxKVCache
 *
 * Seed and cfg are the manifest's. A run of one frame is also done with the latent of a picture,
 * [n, 16, h, w], as EmptySD3LatentImage gives it: the same. */
#include "support/tiny_runs.h"

static struct value *empty(const struct shape *like, bool picture)
{
    struct shape s = *like;
    struct htensor *z;
    berth_err err = { 0 };
    if (picture)
        s = (struct shape) { 4, { s.dim[0], s.dim[1], s.dim[3], s.dim[4] } };
    assert_ok(htensor_zeros(&s, &z, &err), err);
    return tiny_latent(z, NULL);
}

static double run_one(struct tiny *t, struct value *model, const char *name, bool refs,
                      const char *inputs)
{
    struct value *cond[2] = { tiny_given(t, "context"), tiny_given(t, "negative") };
    struct htensor *want = tiny_tensor(t, name);
    struct call x, y;
    for (size_t i = 0; refs && i < 2; i++)
        cond[i] = tiny_looking(t, cond[i], "ref");
    tiny_ksample(t, model, cond, inputs, empty(&want->shape, false), &x);
    tiny_ksample(t, model, cond, inputs, empty(&want->shape, want->shape.dim[2] == 1), &y);
    const struct htensor *a = call_latent(&x, 0), *b = call_latent(&y, 0);
    assert_true(shape_eq(&a->shape, &b->shape));
    assert_memory_equal(a->data, b->data, htensor_count(a) * sizeof *a->data);
    double off = tiny_off(a, want);
    call_release(&x);
    call_release(&y);
    htensor_unref(want);
    value_unref(cond[0]);
    value_unref(cond[1]);
    return off;
}

/* All runs of a model; how many. */
static size_t runs_of(const char *model)
{
    struct tiny t;
    struct call unet;
    char kind[64], inputs[256];
    size_t runs = 0, looked = 0, wrong = 0;
    tiny_open(&t, model);
    tiny_unet(&t, model, &unet);
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        if (!tiny_run_of(&t, name, kind, inputs))
            continue;
        bool kept = !strcmp(kind, "sample_kv"), refs = kept || !strcmp(kind, "sample_ref");
        assert_true(refs || !strcmp(kind, "sample"));
        struct value *with = value_ref(unet.out[0].at[0]);
        if (kept)
            with = tiny_through(&t, with, "FluxKVCache", "model", "{}");
        double off = run_one(&t, with, name, refs, inputs);
        value_unref(with);
        print_message("%s %s: %.3g off\n", model, name, off);
        wrong += !(off <= tiny_limit(&t, name));
        looked += refs;
        runs++;
    }
    assert_true(runs > looked && looked > 0);
    assert_int_equal(wrong, 0);
    call_release(&unet);
    tiny_close(&t);
    return runs;
}

static void every_run(void **state)
{
    json_t *manifest, *about;
    const char *name;
    size_t runs = 0;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about) runs +=
        strncmp(name, "qwen_image_", 11) == 0 ? runs_of(name) : 0;
    assert_true(runs > 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
