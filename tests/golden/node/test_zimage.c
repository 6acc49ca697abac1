/* The runs of the Z-Image and Lumina2 files, through UNETLoader and KSampler:
 * <kind>/<sampler>/<scheduler>/<steps>, with the manifest's seed and its cfg of that kind. The
 * prompts are the file's sample/positive and sample/negative, of different length; the latent is
 * empty. Of a kind "sample<look>" the positive one has the pictures ref<k><look>, the texts
 * said<k><look> and what was seen of them, seen<k><look>. */
#include "support/tiny_rig.h"

/* Adds <name><k><look>, as many as there are. */
static size_t add_looks(const struct tiny *t, const char *name, const char *look,
                        struct cond_ref **list)
{
    char full[64];
    berth_err err = { 0 };
    size_t k = 0;
    for (;; k++) {
        int n = snprintf(full, sizeof full, "%s%zu%s", name, k, look);
        if (!weights_find(t->golden, full, (size_t)n))
            return k;
        struct htensor *x = tiny_tensor(t, full);
        assert_ok(cond_ref_add(list, x, &err), err);
        htensor_unref(x);
    }
}

static struct value *prompt(const struct tiny *t, const char *name, const char *look)
{
    struct conditioning *x;
    berth_err err = { 0 };
    char pooled[64];
    snprintf(pooled, sizeof pooled, "%s_pooled", name);
    bool has = weights_find(t->golden, pooled, strlen(pooled)); /* NewBie's */
    assert_ok(conditioning_new(tiny_tensor(t, name), has ? tiny_tensor(t, pooled) : NULL, &x, &err),
              err);
    if (look) {
        assert_true(add_looks(t, "ref", look, &x->at[0].ref) > 0);
        add_looks(t, "said", look, &x->at[0].ref_text);
        add_looks(t, "seen", look, &x->at[0].ref_seen);
    }
    return value_object(&type_conditioning, x);
}

struct runs {
    struct tiny t;
    struct value *model, *negative;
};

static double run_one(struct runs *s, const char *inputs, const char *look,
                      const struct htensor *want)
{
    struct call x;
    berth_err err = { 0 };
    const uint64_t *d = want->shape.dim;
    struct value *latent = tiny_empty(d[0], d[1], d[2], d[3]);
    struct value *positive = prompt(&s->t, "sample/positive", look);
    rig_call(&s->t.r, &x, "KSampler", inputs);
    call_give(&x, "model", s->model);
    call_give(&x, "positive", positive);
    call_give(&x, "negative", s->negative);
    call_give(&x, "latent_image", latent);
    value_unref(latent);
    value_unref(positive);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    double off = tiny_off(call_latent(&x, 0), want);
    call_release(&x);
    return off;
}

/* Is it the result of a run? Then its inputs; *look: what its prompt is to look at, or NULL. */
static bool inputs_of(const struct tiny *t, const char *name, char *inputs, size_t cap,
                      const char **look)
{
    static char kind[64];
    char sampler[64], scheduler[64];
    int steps;
    if (sscanf(name, "%63[^/]/%63[^/]/%63[^/]/%d", kind, sampler, scheduler, &steps) != 4)
        return false;
    snprintf(inputs, cap,
             "{\"seed\": %.0f, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"%s\", "
             "\"scheduler\": \"%s\"}",
             tiny_number(t->settings, "seed"), steps,
             tiny_number(json_object_get(t->settings, "cfg"), kind), sampler, scheduler);
    *look = strchr(kind, '_');
    if (*look && !strcmp(*look, "_cfg"))
        *look = NULL;
    return true;
}

static void runs_of(const char *golden)
{
    struct runs s;
    struct call unet;
    char list[96], inputs[256];
    const char *const lists[] = { list }, *look;
    size_t runs = 0, wrong = 0;
    berth_err err = { 0 };
    tiny_open(&s.t, golden);
    snprintf(list, sizeof list, "%s_keys.json", golden);
    tiny_write(rig_path(&s.t.r, "diffusion_models/tiny.safetensors"), lists, 1, 0);
    assert_ok(rig_run(&s.t.r, &unet, "UNETLoader", "{\"unet_name\": \"tiny.safetensors\"}", &err),
              err);
    s.model = unet.out[0].at[0];
    s.negative = prompt(&s.t, "sample/negative", NULL);
    for (size_t i = 0; i < weights_count(s.t.golden); i++) {
        const char *name = weights_at(s.t.golden, i)->name;
        if (!inputs_of(&s.t, name, inputs, sizeof inputs, &look))
            continue;
        struct htensor *want = tiny_tensor(&s.t, name);
        double off = run_one(&s, inputs, look, want);
        print_message("%s %s: %.3g off\n", golden, name, off);
        wrong += !(off <= tiny_limit(&s.t, name));
        htensor_unref(want);
        runs++;
    }
    assert_true(runs > 0);
    assert_int_equal(wrong, 0);
    value_unref(s.negative);
    call_release(&unet);
    tiny_close(&s.t);
}

static void every_run(void **state)
{
    json_t *manifest, *about;
    const char *name;
    size_t models = 0;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        if (strncmp(name, "zimage_", 7) != 0 && strncmp(name, "lumina2_", 8) != 0 &&
            strncmp(name, "newbie_", 7) != 0)
            continue;
        runs_of(name);
        models++;
    }
    assert_true(models > 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
