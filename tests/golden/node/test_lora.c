/* lora_sd15_tiny through LoraLoaderModelOnly and KSampler; and that a branch without the adapter
 * beside it samples as if there were none. */
#include "support/tiny_rig.h"

static berth_status fill_lora(void *user, size_t i, uint64_t off, void *dst, size_t n,
                              berth_err *err)
{
    const struct weights *w = user;
    size_t k = 0;
    for (size_t at = 0; at < weights_count(w); at++)
        if (!strncmp(weights_at(w, at)->name, "lora/", 5) && k++ == i)
            return weights_read(w, weights_at(w, at), off, dst, n, err);
    return err_set(err, BERTH_EINVAL, "no tensor %zu", i);
}

/* What stands under lora/ in the golden file, as a file of its own. */
static void write_lora(struct tiny *t, const char *path)
{
    struct weights_spec *spec = calloc(weights_count(t->golden), sizeof *spec);
    size_t count = 0;
    berth_err err = { 0 };
    assert_non_null(spec);
    for (size_t i = 0; i < weights_count(t->golden); i++) {
        const struct weights_entry *e = weights_at(t->golden, i);
        if (!strncmp(e->name, "lora/", 5))
            spec[count++] =
                (struct weights_spec) { .name = e->name + 5, .dtype = e->dtype, .shape = e->shape };
    }
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = count,
                                       .fill = fill_lora,
                                       .user = t->golden };
    assert_ok(weights_write(&args, &err), err);
    free(spec);
}

/* Seed and cfg stand in the note: "sample: seed 21, cfg 7, prompts as in sample_sd15_tiny". */
static void read_note(struct tiny *t, int *seed, int *cfg)
{
    const char *note = strstr(tiny_text(t->settings, "note"), "sample:");
    assert_non_null(note);
    assert_int_equal(
        sscanf(note, "sample: seed %d, cfg %d, prompts as in sample_sd15_tiny", seed, cfg), 2);
}

static struct htensor *sample_with(struct tiny *t, struct value *model, const char *inputs,
                                   const struct shape *s)
{
    struct call x;
    berth_err err = { 0 };
    assert_ok(tiny_try(t, &x, "KSampler", model, inputs,
                       tiny_empty(s->dim[0], s->dim[1], s->dim[2], s->dim[3]), &err),
              err);
    struct htensor *out = x.out[0].at[0]->latent.samples;
    htensor_ref(out);
    call_release(&x);
    return out;
}

static void merged(void **state)
{
    struct tiny t;
    struct call lora;
    char inputs[256], sampler[64], scheduler[64];
    int seed, cfg, steps;
    size_t runs = 0;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tokenizer_or_skip("clip");
    tiny_open(&t, "lora_sd15_tiny");
    tiny_load(&t, "CheckpointLoaderSimple", "{\"ckpt_name\": \"" TINY_SD15 "\"}",
              json_object_get(t.manifest, "sample_sd15_tiny"));
    write_lora(&t, rig_path(&t.r, "loras/tiny.safetensors"));
    read_note(&t, &seed, &cfg);
    snprintf(inputs, sizeof inputs, "{\"lora_name\": \"tiny.safetensors\", \"strength_model\": %g}",
             tiny_number(t.settings, "strength"));
    rig_call(&t.r, &lora, "LoraLoaderModelOnly", inputs);
    call_give(&lora, "model", t.ckpt.out[0].at[0]);
    assert_ok(lora.c.cls->run(&lora.c, &err), err);
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        if (sscanf(name, "sample/%63[^/]/%63[^/]/%d", sampler, scheduler, &steps) != 3)
            continue;
        struct htensor *want = tiny_tensor(&t, name);
        snprintf(inputs, sizeof inputs,
                 "{\"seed\": %d, \"steps\": %d, \"cfg\": %d, \"sampler_name\": \"%s\", "
                 "\"scheduler\": \"%s\"}",
                 seed, steps, cfg, sampler, scheduler);
        struct htensor *before = sample_with(&t, t.ckpt.out[0].at[0], inputs, &want->shape);
        struct htensor *with = sample_with(&t, lora.out[0].at[0], inputs, &want->shape);
        struct htensor *after = sample_with(&t, t.ckpt.out[0].at[0], inputs, &want->shape);
        double off = tiny_off(with, want);
        print_message("%s: %.3g off, %.3g without the adapter\n", name, off,
                      tiny_off(before, want));
        assert_true(off <= tiny_limit(&t, name));
        assert_true(tiny_off(before, want) > tiny_limit(&t, name));
        assert_memory_equal(before->data, after->data, htensor_count(before) * sizeof(float));
        htensor_unref(want);
        htensor_unref(before);
        htensor_unref(with);
        htensor_unref(after);
        runs++;
    }
    assert_true(runs > 0);
    call_release(&lora);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
