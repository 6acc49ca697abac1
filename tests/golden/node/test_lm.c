/* Prompts through CLIPLoader and CLIPTextEncode with a language model, for each type of the golden
 * list of token ids: what comes out is what the network makes of those very ids. So the loader's
 * choice of a set, the template, the tokenizer, padding, taps and the cut are all as ComfyUI's. */
#include "support/clips.h"
#include "support/golden.h"
#include "support/json_file.h"
#include "support/loader_rig.h"
#include "support/tokenizer.h"

#include "base/json.h"
#include "model/lm/cuts.h"
#include "model/lm/presets.h"
#include "node/compute.h"

enum { WIDTH = 32, PAD = 151643 };

static const struct lm_config tiny = { .vocab = 151936,
                                       .width = WIDTH,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 16,
                                       .mlp = 48,
                                       .layers = 28,
                                       .qk_norm = true };

struct scene {
    struct rig r;
    const char *folder[1];
    char path[512];
    struct clip_rig direct;
};

static void scene_open(struct scene *s, const struct lm_config *c)
{
    struct keys k = { 0 };
    *s = (struct scene) { 0 };
    rig_open(&s->r, "cpu=512m");
    keys_lm(&k, c);
    snprintf(s->path, sizeof s->path, "%s", keys_file(&k, "lm", DT_F16, "safetensors", NULL));
    keys_release(&k);
    assert_int_equal(rename(s->path, rig_path(&s->r, "text_encoders/lm.safetensors")), 0);
    clip_rig_open(&s->direct, rig_path(&s->r, "text_encoders/lm.safetensors"), NULL, 0);
    s->folder[0] = tokenizer_dir("qwen25");
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1;
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
}

static void scene_close(struct scene *s)
{
    clip_rig_close(&s->direct);
    node_assets_free(s->r.env.assets);
    rig_close(&s->r);
}

struct kind {
    const char *type; /* of CLIPLoader */
    const char *ids;  /* in the list */
    uint64_t pad_to;
    bool cut, bias;
    struct encoder_want want;
};
static const uint32_t klein_taps[] = { 9, 18, 27 };
static const struct kind kinds[] = {
    { "lumina2", "z_image", 0, false, false, { .layer = -2 } },
    { "stable_diffusion", "z_image", 0, false, false, { .layer = -2 } },
    { "flux2", "klein", 512, false, false, { .tap = klein_taps, .taps = 3 } },
    { "qwen_image", "qwen_image", 0, true, true, { .layer = 0 } },
};

/* What the network makes of these ids: [rows, taps * width]. */
static float *direct(struct scene *s, const struct kind *k, const json_t *ids, size_t *rows,
                     struct arena *mem)
{
    size_t n = json_array_size(ids), len = k->pad_to > n ? (size_t)k->pad_to : n;
    struct token *t = arena_array(mem, len, sizeof *t), *chunk = t;
    struct chunks in = { .chunk = &chunk, .len = &len, .n = 1, .rules = { .pad = PAD } };
    berth_err err = { 0 };
    for (size_t i = 0; i < len; i++)
        t[i] = (struct token) { .id = i < n ? (int32_t)json_integer_value(json_array_get(ids, i))
                                            : PAD };
    size_t taps = k->want.taps ? k->want.taps : 1, first = k->cut ? lm_cut_qwen(t, n) : 0;
    float *z = arena_array(mem, taps * len * WIDTH, sizeof *z),
          *out = arena_array(mem, taps * len * WIDTH, sizeof *out);
    struct encoder_job job = { .in = &in, .want = k->want, .z = z };
    assert_true(t && z && out);
    assert_ok(text_encoder_do(&s->direct.enc[0], &job, &err), err);
    *rows = len - first;
    for (size_t r = 0; r < *rows; r++)
        for (size_t p = 0; p < taps; p++)
            memcpy(out + (r * taps + p) * WIDTH, z + (p * len + first + r) * WIDTH,
                   WIDTH * sizeof *z);
    return out;
}

static void compare(struct scene *s, const struct kind *k, struct value *clip, const json_t *entry)
{
    struct call x;
    struct arena mem = { 0 };
    berth_err err = { 0 };
    size_t rows, taps = k->want.taps ? k->want.taps : 1;
    json_t *in = json_pack("{s:O}", "text", json_object_get(entry, "text"));
    char *text = json_dumps(in, 0);
    rig_call(&s->r, &x, "CLIPTextEncode", text);
    call_give(&x, "clip", clip);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    const struct conditioning *c = x.out[0].at[0]->object.obj;
    const struct htensor *cond = c->at[0].cond;
    float *want = direct(s, k, json_object_get(entry, k->ids), &rows, &mem);
    assert_int_equal(cond->shape.dim[1], rows);
    assert_int_equal(cond->shape.dim[2], taps * WIDTH);
    assert_memory_equal(cond->data, want, rows * taps * WIDTH * sizeof *want);
    call_release(&x);
    arena_release(&mem);
    free(text);
    json_decref(in);
}

static void every_type(void **state)
{
    (void)state;
    tokenizer_or_skip("qwen25");
    berth_err err = { 0 };
    json_t *list, *entry;
    size_t n;
    assert_ok(js_parse_file(golden_path("qwen_tokens.json"), NULL, &list, &err), err);
    assert_true(json_array_size(list) > 3);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct scene s;
        struct call clip;
        char load[128];
        struct lm_config c = tiny;
        if (kinds[i].bias) {
            c.bias = true, c.qk_norm = false, c.head_dim = 128, c.layers = 2;
        }
        scene_open(&s, &c);
        snprintf(load, sizeof load, "{\"clip_name\": \"lm.safetensors\", \"type\": \"%s\"}",
                 kinds[i].type);
        assert_ok(rig_run(&s.r, &clip, "CLIPLoader", load, &err), err);
        json_array_foreach(list, n, entry) compare(&s, &kinds[i], clip.out[0].at[0], entry);
        call_release(&clip);
        scene_close(&s);
    }
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_type) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
