/* Nodes that patch, guide, schedule, sample and condition, over the tiny SD1.5 model, against what
 * ComfyUI made of the same nodes (tools/golden/patches.py): every case of data/patches.json. Each
 * is a few nodes in the order they run, whose links name an earlier one or an input of the file. */
#include "support/tiny_rig.h"

#define DATA BERTH_SOURCE_DIR "/tests/golden/node/data/patches"
#define NODES_MAX 16

struct scene {
    struct tiny t;
    struct weights *w; /* inputs and results */
    json_t *cases;
    struct value *given[24];
    const char *given_name[24];
    size_t givens;
    struct call call[NODES_MAX];
    const char *id[NODES_MAX];
    size_t calls;
};

static struct htensor *tensor(const struct weights *w, const char *name)
{
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    struct htensor *out;
    berth_err err = { 0 };
    if (!e)
        fail_msg("the file has no '%s'", name);
    assert_ok(htensor_new(&e->shape, &out, &err), err);
    assert_ok(weights_read(w, e, 0, out->data, (size_t)e->size, &err), err);
    return out;
}

static void give(struct scene *s, const char *name, struct value *v)
{
    assert_true(s->givens < ARRAY_LEN(s->given) && v);
    s->given_name[s->givens] = name;
    s->given[s->givens++] = v;
}

/* "in/positive" is a prompt, other inputs are latents. */
static void give_inputs(struct scene *s)
{
    static const char *const prompts[] = { "positive", "negative", "empty", "flux_positive",
                                           "flux_negative" };
    char beside[96];
    berth_err err = { 0 };
    for (size_t i = 0; i < weights_count(s->w); i++) {
        const char *name = weights_at(s->w, i)->name;
        bool prompt = false;
        if (strncmp(name, "in/", 3) != 0)
            continue;
        struct htensor *t = tensor(s->w, name);
        for (size_t k = 0; k < ARRAY_LEN(prompts); k++)
            prompt = prompt || strcmp(name + 3, prompts[k]) == 0;
        struct conditioning *x;
        snprintf(beside, sizeof beside, "pooled/%s", name + 3);
        bool pooled = weights_find(s->w, beside, strlen(beside)) != NULL;
        if (prompt)
            assert_ok(conditioning_new(t, pooled ? tensor(s->w, beside) : NULL, &x, &err), err);
        give(s, name + 3, prompt ? value_object(&type_conditioning, x) : tiny_latent(t, NULL));
    }
}

static struct value *linked(const struct scene *s, const json_t *link)
{
    const char *from = json_string_value(json_array_get(link, 0));
    size_t out = (size_t)json_integer_value(json_array_get(link, 1));
    assert_non_null(from);
    for (size_t i = s->calls; i-- > 0;)
        if (strcmp(s->id[i], from) == 0)
            return s->call[i].out[out].at[0];
    for (size_t i = 0; i < s->givens; i++)
        if (strcmp(s->given_name[i], from) == 0)
            return s->given[i];
    fail_msg("no '%s' to link to", from);
    return NULL;
}

/* Weights of names with "other." before them. */
static berth_status fill_other(void *user, size_t i, uint64_t off, void *dst, size_t n,
                               berth_err *err)
{
    const struct weights_spec *spec = (const struct weights_spec *)user + i;
    char name[256];
    (void)err;
    int len = snprintf(name, sizeof name, "other.%s", spec->name);
    synth_fill(name, (size_t)len, &spec->shape, off / sizeof(float), n / sizeof(float), dst);
    return BERTH_OK;
}

static berth_status fill_lora(void *user, size_t i, uint64_t off, void *dst, size_t n,
                              berth_err *err)
{
    const struct weights *w = user;
    size_t k = 0;
    for (size_t at = 0; at < weights_count(w); at++)
        if (strncmp(weights_at(w, at)->name, "lora/", 5) == 0 && k++ == i)
            return weights_read(w, weights_at(w, at), off, dst, n, err);
    return err_set(err, BERTH_EINVAL, "no tensor %zu", i);
}

/* models/loras/tiny_lora.safetensors: what stands under lora/ in lora_sd15_tiny. */
static void write_lora(struct scene *s)
{
    struct weights *from;
    struct weights_spec spec[256];
    size_t n = 0;
    berth_err err = { 0 };
    assert_ok(weights_open(golden_path("lora_sd15_tiny.safetensors"), NULL, &from, &err), err);
    for (size_t i = 0; i < weights_count(from); i++) {
        const struct weights_entry *e = weights_at(from, i);
        assert_true(n < ARRAY_LEN(spec));
        if (strncmp(e->name, "lora/", 5) == 0)
            spec[n++] =
                (struct weights_spec) { .name = e->name + 5, .dtype = e->dtype, .shape = e->shape };
    }
    struct weights_write_args args = { .format = "safetensors",
                                       .path = rig_path(&s->t.r, "loras/tiny_lora.safetensors"),
                                       .spec = spec,
                                       .count = n,
                                       .fill = fill_lora,
                                       .user = from };
    assert_ok(weights_write(&args, &err), err);
    weights_close(from);
}

/* models/loras/tiny_text_lora.safetensors: as text_lora() of the maker has it. */
static void write_text_lora(struct scene *s)
{
    static const char *const what[] = { "q_proj", "v_proj" };
    static char name[8][128];
    struct weights_spec spec[8];
    size_t n = 0;
    berth_err err = { 0 };
    for (int layer = 0; layer < 2; layer++)
        for (size_t k = 0; k < 4; k++) {
            bool up = k % 2 == 0;
            snprintf(name[n], sizeof name[n],
                     "lora_te_text_model_encoder_layers_%d_self_attn_%s.lora_%s.weight", layer,
                     what[k / 2], up ? "up" : "down");
            spec[n] = (struct weights_spec) { .name = name[n], .dtype = DT_F32 };
            spec[n++].shape = (struct shape) { 2, { up ? 64 : 4, up ? 4 : 64 } };
        }
    struct weights_write_args args = { .format = "safetensors",
                                       .path =
                                           rig_path(&s->t.r, "loras/tiny_text_lora.safetensors"),
                                       .spec = spec,
                                       .count = n,
                                       .fill = tiny_fill,
                                       .user = spec };
    assert_ok(weights_write(&args, &err), err);
}

/* A file of the data folder, where loaders look. */
static void copy_file(struct scene *s, const char *from, const char *to)
{
    char bytes[4096];
    FILE *in = fopen(from, "rb"), *out = fopen(rig_path(&s->t.r, to), "wb");
    assert_true(in && out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in));)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    fclose(out);
}

static void give_models(struct scene *s)
{
    static const char *const whole[] = { "sd15_tiny_clip_keys.json", "sd15_tiny_unet_keys.json" };
    const json_t *clip = json_object_get(json_object_get(s->t.manifest, "clip_l_tiny"), "config");
    static const char *const flux[] = { "flux_tiny_keys.json" };
    static const char *const sd15[] = { "sd15_tiny_unet_keys.json" };
    static struct call call[2];
    berth_err err = { 0 };
    tiny_write(rig_path(&s->t.r, "diffusion_models/tiny_flux.safetensors"), flux, 1, 0);
    tiny_write_by(rig_path(&s->t.r, "diffusion_models/tiny_other.safetensors"), sd15, 1, 0,
                  fill_other);
    tiny_write_by(rig_path(&s->t.r, "checkpoints/tiny_other.safetensors"), whole, 2,
                  (int)tiny_number(clip, "num_attention_heads"), fill_other);
    assert_ok(rig_run(&s->t.r, &call[0], "UNETLoader", "{\"unet_name\": \"tiny_flux.safetensors\"}",
                      &err),
              err);
    assert_ok(rig_run(&s->t.r, &call[1], "UNETLoader",
                      "{\"unet_name\": \"tiny_other.safetensors\"}", &err),
              err);
    give(s, "flux", value_ref(call[0].out[0].at[0]));
    give(s, "other", value_ref(call[1].out[0].at[0]));
    call_release(&call[0]);
    call_release(&call[1]);
}

/* Runs one node; its constants as JSON, its links from the values there are. */
static void run_node(struct scene *s, const char *name, const json_t *node)
{
    struct call *x = &s->call[s->calls];
    const char *input;
    json_t *value, *inputs = json_object_get(node, "inputs"), *constants = json_object();
    berth_err err = { 0 };
    assert_true(s->calls < NODES_MAX);
    json_object_foreach(inputs, input, value) if (!json_is_array(value))
        json_object_set(constants, input, value);
    char *text = json_dumps(constants, 0);
    rig_call(&s->t.r, x, json_string_value(json_object_get(node, "class")), text);
    json_object_foreach(inputs, input, value) if (json_is_array(value))
        call_give(x, input, linked(s, value));
    free(text);
    json_decref(constants);
    s->id[s->calls++] = json_string_value(json_object_get(node, "id"));
    if (x->c.cls->run(&x->c, &err))
        fail_msg("%s: %s", name, err.msg);
}

static struct htensor *result(const struct call *x)
{
    const struct value *v = x->out[0].at[0];
    struct htensor *t;
    berth_err err = { 0 };
    switch (v->kind) {
    case V_LATENT:
        return htensor_ref(v->latent.samples);
    case V_TENSOR:
        return htensor_ref(v->tensor);
    case V_FLOAT:
        assert_ok(htensor_new(&(struct shape) { 1, { 1 } }, &t, &err), err);
        t->data[0] = (float)v->f;
        return t;
    default:
        assert_true(v->kind == V_OBJECT && v->object.type == &type_conditioning);
        return htensor_ref(((const struct conditioning *)v->object.obj)->at[0].cond);
    }
}

static double run_case(struct scene *s, const char *name, const json_t *nodes)
{
    s->calls = 0;
    for (size_t i = 0; i < json_array_size(nodes); i++)
        run_node(s, name, json_array_get(nodes, i));
    struct htensor *want = tensor(s->w, name), *got = result(&s->call[s->calls - 1]);
    double off = tiny_off(got, want);
    htensor_unref(want);
    htensor_unref(got);
    while (s->calls)
        call_release(&s->call[--s->calls]);
    return off;
}

/* Does it make tokens of a prompt? */
static bool has_text(const json_t *nodes)
{
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *cls = json_object_get(json_array_get(nodes, i), "class");
        if (strcmp(json_string_value(cls), "CLIPTextEncode") == 0)
            return true;
    }
    return false;
}

/* BERTH_CASE: only those that have this in their names. */
static void every_case(void **state)
{
    static struct scene s;
    const char *name, *only = getenv("BERTH_CASE");
    json_t *nodes;
    size_t wrong = 0;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tiny_open(&s.t, "sample_sd15_tiny");
    tiny_sd15_file(&s.t);
    assert_ok(weights_open(DATA ".safetensors", NULL, &s.w, &err), err);
    assert_ok(js_parse_file(DATA ".json", NULL, &s.cases, &err), err);
    assert_ok(rig_run(&s.t.r, &s.t.ckpt, "CheckpointLoaderSimple",
                      "{\"ckpt_name\": \"" TINY_SD15 "\"}", &err),
              err);
    give(&s, "model", value_ref(s.t.ckpt.out[0].at[0]));
    give(&s, "clip", value_ref(s.t.ckpt.out[1].at[0]));
    write_lora(&s);
    write_text_lora(&s);
    copy_file(&s, BERTH_SOURCE_DIR "/tests/golden/node/data/hyper.pt", "hypernetworks/hyper.pt");
    copy_file(&s, BERTH_SOURCE_DIR "/tests/golden/node/data/hyper_norm.pt",
              "hypernetworks/hyper_norm.pt");
    give_models(&s);
    give_inputs(&s);
    json_object_foreach(s.cases, name, nodes)
    {
        if (only && !strstr(name, only))
            continue;
        if (!s.t.tokenizers[0] && has_text(nodes)) {
            print_message("%s: needs CLIP's vocabulary, which is not here\n", name);
            continue;
        }
        double off = run_case(&s, name, nodes);
        bool ok = off <= tiny_limit(&s.t, name);
        print_message("%s: %.3g off%s\n", name, off, ok ? "" : ": WRONG");
        wrong += !ok;
    }
    assert_true(json_object_size(s.cases) > 20);
    assert_int_equal(wrong, 0);
    for (size_t i = 0; i < s.givens; i++)
        value_unref(s.given[i]);
    json_decref(s.cases);
    weights_close(s.w);
    tiny_close(&s.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_case) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
