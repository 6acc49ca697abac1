/* Mochi: the runs of every mochi_<model> of the manifest, whose prompts are tensors, through
 * UNETLoader and KSampler. */
#include "support/dit_runs.h"

/* A prompt with what of it is padding. */
static struct value *prompt(struct tiny *t, const char *name)
{
    struct value *v = tiny_given(t, name);
    struct cond_entry *e = ((struct conditioning *)v->object.obj)->at;
    const struct weights_entry *w = weights_find(t->golden, "attention_mask", 14);
    const struct shape s = { 2, { 1, dim(e->cond, 1) } };
    int64_t *mask = calloc((size_t)s.dim[1], sizeof *mask);
    berth_err err = { 0 };
    assert_true(mask && w);
    assert_ok(weights_read(t->golden, w, 0, mask, (size_t)w->size, &err), err);
    assert_ok(htensor_new(&s, &e->shown, &err), err);
    for (size_t i = 0; i < s.dim[1]; i++)
        e->shown->data[i] = (float)mask[i];
    e->cond->shape.dim[0] = 1; /* the first of them */
    free(mask);
    return v;
}

static size_t runs_of(const char *model)
{
    struct tiny t;
    struct call unet, x;
    char inputs[256], kind[64];
    size_t runs = 0;
    tiny_open(&t, model);
    tiny_unet(&t, model, &unet);
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        if (!tiny_run_of(&t, name, kind, inputs))
            continue;
        struct value *cond[2] = { prompt(&t, "context"), prompt(&t, "negative") };
        struct htensor *want = tiny_tensor(&t, name);
        tiny_ksample(&t, unet.out[0].at[0], cond, inputs, dit_empty(&want->shape, false), &x);
        double off = tiny_off(call_latent(&x, 0), want);
        print_message("%s %s: %.3g off\n", model, name, off);
        assert_true(off <= tiny_limit(&t, name));
        call_release(&x);
        htensor_unref(want);
        value_unref(cond[0]);
        value_unref(cond[1]);
        runs++;
    }
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
        strncmp(name, "mochi_", 6) == 0 ? runs_of(name) : 0;
    assert_true(runs > 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
