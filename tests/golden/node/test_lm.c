/* Prompts through CLIPLoader and CLIPTextEncode with a language model, for each type of the golden
 * list of token ids: what comes out is what the network makes of those very ids. So the loader's
 * choice of a set, the template, the tokenizer, padding, taps and the cut are all as ComfyUI's. And
 * what TextGenerate writes is what the network writes behind the ids of its question. */
#include "support/clips.h"
#include "support/golden.h"
#include "support/json_file.h"
#include "support/loader_rig.h"
#include "support/tmp.h"
#include "support/tokenizer.h"

#include "base/json.h"
#include "model/lm/cuts.h"
#include "model/lm/presets.h"
#include "node/compute.h"
#include "text/stand_in.h"

#include <unistd.h>

enum { WIDTH = 32, PAD = 151643 };

static const struct lm_config tiny = { .vocab = 151936,
                                       .width = WIDTH,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 16,
                                       .mlp = 48,
                                       .layers = 28,
                                       .qk_norm = true };

static const struct lm_eyes small_eyes = {
    .blocks = 4, .width = 64, .mlp = 32, .patch = 16, .table = 16, .depths = 3
};

struct scene {
    struct rig r;
    const char *folder[1];
    char path[512];
    struct clip_rig direct;
};

static void scene_open(struct scene *s, const struct lm_config *c, const char *folder)
{
    struct keys k = { 0 };
    *s = (struct scene) { 0 };
    rig_open(&s->r, "cpu=512m");
    keys_lm(&k, c);
    snprintf(s->path, sizeof s->path, "%s", keys_file(&k, "lm", DT_F16, "safetensors", NULL));
    keys_release(&k);
    assert_int_equal(rename(s->path, rig_path(&s->r, "text_encoders/lm.safetensors")), 0);
    clip_rig_open(&s->direct, rig_path(&s->r, "text_encoders/lm.safetensors"), NULL, 0);
    s->folder[0] = folder;
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
    bool cut, bias, eyes;
    struct encoder_want want;
};
static const uint32_t klein_taps[] = { 9, 18, 27 };
static const uint32_t krea2_taps[] = { 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35 };
static const struct kind kinds[] = {
    { "lumina2", "z_image", 0, false, false, false, { .layer = -2 } },
    { "stable_diffusion", "z_image", 0, false, false, false, { .layer = -2 } },
    { "flux2", "klein", 512, false, false, false, { .tap = klein_taps, .taps = 3 } },
    { "qwen_image", "qwen_image", 0, true, true, false, { .layer = 0 } },
    { "krea2", "qwen_image", 0, true, false, true, { .tap = krea2_taps, .taps = 12 } },
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

static void load(struct scene *s, struct call *clip, const char *type)
{
    berth_err err = { 0 };
    char in[128];
    snprintf(in, sizeof in, "{\"clip_name\": \"lm.safetensors\", \"type\": \"%s\"}", type);
    assert_ok(rig_run(&s->r, clip, "CLIPLoader", in, &err), err);
}

static void every_type(void **state)
{
    (void)state;
    tokenizer_or_skip("qwen25");
    berth_err err = { 0 };
    json_t *list, *entry;
    size_t n;
    if (access(golden_path("qwen_tokens.json"), R_OK)) {
        print_message("no qwen_tokens.json in this folder\n");
        skip();
    }
    assert_ok(js_parse_file(golden_path("qwen_tokens.json"), NULL, &list, &err), err);
    assert_true(json_array_size(list) > 3);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct scene s;
        struct call clip;
        struct lm_config c = tiny;
        if (kinds[i].bias) {
            c.bias = true, c.qk_norm = false, c.head_dim = 128, c.layers = 2;
        }
        if (kinds[i].eyes)
            c.layers = 36, c.eyes = small_eyes;
        scene_open(&s, &c, tokenizer_dir("qwen25"));
        load(&s, &clip, kinds[i].type);
        json_array_foreach(list, n, entry) compare(&s, &kinds[i], clip.out[0].at[0], entry);
        call_release(&clip);
        scene_close(&s);
    }
    json_decref(list);
}

/* ---- TextGenerate ---- */

struct heard { /* what clients were sent */
    char text[4096];
    unsigned texts, steps;
    unsigned first; /* texts up to the first step: of loading, and the first token */
    double most;
};

static void hear_text(void *user, const char *s, size_t n)
{
    struct heard *h = user;
    h->texts++;
    snprintf(h->text, sizeof h->text, "%.*s", (int)n, s);
}

static berth_status hear_step(void *user, const struct node_step *s, berth_err *err)
{
    struct heard *h = user;
    (void)err;
    if (!h->steps++)
        h->first = h->texts;
    h->most = s->max;
    assert_true(s->value == h->steps);
    return BERTH_OK;
}

/* Runs the node; its inputs are of JSON, but for clip and image. */
static berth_status ask(struct scene *s, struct call *x, const char *inputs, struct value *clip,
                        struct value *image, struct heard *h, berth_err *err)
{
    struct arena mem = { 0 };
    json_t *o = NULL;
    *h = (struct heard) { 0 };
    *x = (struct call) { .c.id = "1" };
    x->c.env = &s->r.env;
    x->c.cls = node_find("TextGenerate");
    x->c.in = x->in;
    x->c.out = x->out;
    x->host = (struct node_host) { .user = h, .text = hear_text, .progress = hear_step };
    x->c.host = &x->host;
    assert_ok(js_parse(inputs, strlen(inputs), NULL, &o, err), *err);
    json_object_set_new(o, "clip", json_true());
    if (image)
        json_object_set_new(o, "image", json_true());
    assert_ok(node_live_inputs(x->c.cls, o, &mem, &x->c.live, err), *err);
    for (size_t i = 0; i < x->c.live.n; i++) {
        const char *name = x->c.live.in[i].name;
        const json_t *v = json_object_get(o, name);
        struct value *given = strcmp(name, "clip") == 0    ? value_ref(clip)
                              : strcmp(name, "image") == 0 ? (image ? value_ref(image) : NULL)
                              : v                          ? value_from_json(v)
                                                           : NULL;
        if (given)
            assert_ok(values_add(&x->in[i], given, err), *err);
    }
    berth_status st = x->c.cls->run(&x->c, err);
    json_decref(o);
    arena_release(&mem);
    return st;
}

/* What is written behind these ids, as text; the tokenizer is the scene's. */
static void written(struct scene *s, struct chunks *in, struct encoder_job *job,
                    const struct speech_how *how, struct str *out)
{
    const struct text_encoder *e = &s->direct.enc[0];
    struct vec ids = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    void *tok;
    job->in = in;
    assert_ok(e->is->tokenizer->open(s->folder[0], &tok, &err), err);
    assert_ok(e->is->speech->speak(e, job, how, &ids, &err), err);
    struct text_decoder d = { .is = e->is->tokenizer, .tok = tok };
    for (size_t i = 0; i < ids.n; i++)
        text_decode(&d, *(int32_t *)vec_at(&ids, i), out);
    text_decode_end(&d, out);
    assert_false(out->bad);
    e->is->tokenizer->close(tok);
    vec_release(&ids);
}

static const char off[] = "{\"prompt\": \"a cat\", \"max_length\": 12, \"sampling_mode\": \"off\"}";
static const char on[] = "{\"prompt\": \"a cat\", \"max_length\": 9, \"sampling_mode\": \"on\", "
                         "\"sampling_mode.temperature\": 1.5, \"sampling_mode.top_k\": 40, "
                         "\"sampling_mode.top_p\": 0.9, \"sampling_mode.min_p\": 0.01, "
                         "\"sampling_mode.repetition_penalty\": 1.1, \"sampling_mode.seed\": 77}";

/* T3 with "a cat", as llm-encoders.md 4 has it. */
static const int32_t a_cat[] = { 151644, 872, 198, 64, 8251, 151645, 198, 151644, 77091, 198 };

static void answers(void **state)
{
    (void)state;
    tokenizer_or_skip("qwen25");
    const struct speech_how plain = { .most = 12 }, dice = { .most = 9,
                                                             .sample = true,
                                                             .temperature = 1.5,
                                                             .top_k = 40,
                                                             .top_p = 0.9,
                                                             .min_p = 0.01,
                                                             .repetition = 1.1,
                                                             .seed = 77 };
    struct scene s;
    struct call clip, x;
    struct heard h;
    berth_err err = { 0 };
    struct lm_config c = tiny;
    c.layers = 3;
    scene_open(&s, &c, tokenizer_dir("qwen25"));
    load(&s, &clip, "lumina2");
    for (int sampled = 0; sampled < 2; sampled++) {
        struct token t[ARRAY_LEN(a_cat)], *chunk = t;
        size_t len = ARRAY_LEN(a_cat);
        struct chunks in = { .chunk = &chunk, .len = &len, .n = 1, .rules = { .pad = PAD } };
        struct encoder_job job = { 0 };
        struct str want = { 0 };
        for (size_t i = 0; i < len; i++)
            t[i] = (struct token) { .id = a_cat[i], .weight = 1 };
        written(&s, &in, &job, sampled ? &dice : &plain, &want);
        struct value *v = clip.out[0].at[0];
        assert_ok(ask(&s, &x, sampled ? on : off, v, NULL, &h, &err), err);
        assert_string_equal(x.out[0].at[0]->s.p, str_c(&want));
        assert_true(h.steps > 2 && h.most == (sampled ? 9 : 12));
        assert_int_equal(h.texts, h.first + 1); /* time stands still: then the whole text only */
        assert_string_equal(h.text, str_c(&want));
        call_release(&x);
        str_release(&want);
    }
    call_release(&clip);
    scene_close(&s);
}

/* Qwen3.5's words around a question, with a tokenizer of bytes; ids as ComfyUI's has them for its
 * own vocabulary, and bytes by the order of GPT-2's. */
static const int32_t a_cat35[] = { 248045, 84,  82,     68, 81, 198,                 /* user */
                                   64,     220, 66,     64, 83, 248046, 198, 248045, /* a cat */
                                   64,     82,  82,     72, 82, 83,     64,  77,
                                   83,     198,                /* assistant */
                                   248068, 198, 248069, 198 }; /* no thought */

static void answers35(void **state)
{
    (void)state;
    static const char thinking[] = "{\"prompt\": \"a cat\", \"max_length\": 12, "
                                   "\"sampling_mode\": \"off\", \"thinking\": true, "
                                   "\"use_default_template\": false}";
    const struct speech_how how = { .most = 12 };
    const struct lm_config c = { .vocab = 248320,
                                 .width = WIDTH,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .head_dim = 16,
                                 .mlp = 48,
                                 .layers = 4,
                                 .qk_norm = true,
                                 .memory = 4,
                                 .memory_keys = 2,
                                 .memory_dim = 8 };
    struct scene s;
    struct call clip, x;
    struct heard h;
    berth_err err = { 0 };
    assert_ok(stand_ins_write(tmp_dir(), &err), err);
    scene_open(&s, &c, tmp_path("qwen35"));
    load(&s, &clip, "stable_diffusion");
    for (size_t thinks = 0; thinks < 2; thinks++) {
        struct token t[ARRAY_LEN(a_cat35)], *chunk = t;
        size_t len = ARRAY_LEN(a_cat35) - (thinks ? 4 : 0);
        struct chunks in = { .chunk = &chunk, .len = &len, .n = 1, .rules = { .pad = PAD } };
        struct encoder_job job = { 0 };
        struct str want = { 0 };
        for (size_t i = 0; i < len; i++)
            t[i] = (struct token) { .id = a_cat35[i], .weight = 1 };
        written(&s, &in, &job, &how, &want);
        assert_ok(ask(&s, &x, thinks ? thinking : off, clip.out[0].at[0], NULL, &h, &err), err);
        assert_string_equal(x.out[0].at[0]->s.p, str_c(&want));
        assert_true(h.steps > 2);
        call_release(&x);
        str_release(&want);
    }
    call_release(&clip);
    scene_close(&s);
}

/* A picture is seen: another one gives another text. A model without eyes does not look. */
static void answers_pictures(void **state)
{
    (void)state;
    tokenizer_or_skip("qwen25");
    struct scene s;
    struct call clip, first, second;
    struct heard h;
    berth_err err = { 0 };
    struct lm_config c = tiny;
    c.layers = 4;
    c.eyes = small_eyes;
    struct htensor *t;
    const struct shape size = { .ndim = 4, .dim = { 2, 70, 100, 3 } };
    assert_ok(htensor_zeros(&size, &t, &err), err);
    scene_open(&s, &c, tokenizer_dir("qwen25"));
    load(&s, &clip, "stable_diffusion");
    struct value *v = clip.out[0].at[0], *black = value_tensor(t);
    assert_non_null(black);
    assert_ok(ask(&s, &first, off, v, black, &h, &err), err);
    assert_ok(htensor_zeros(&size, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)(i % 7) / 6;
    struct value *other = value_tensor(t);
    assert_ok(ask(&s, &second, off, v, other, &h, &err), err);
    assert_string_not_equal(first.out[0].at[0]->s.p, second.out[0].at[0]->s.p);
    call_release(&first);
    call_release(&second);
    call_release(&clip);
    value_unref(black);
    value_unref(other);
    scene_close(&s);
}

/* Qwen2.5-VL has nothing that ends its text; ComfyUI fails, too. */
static void says_nothing(void **state)
{
    (void)state;
    tokenizer_or_skip("qwen25");
    struct scene s;
    struct call clip, x;
    struct heard h;
    berth_err err = { 0 };
    struct lm_config c = tiny;
    c.bias = true, c.qk_norm = false, c.head_dim = 128, c.layers = 1;
    scene_open(&s, &c, tokenizer_dir("qwen25"));
    load(&s, &clip, "qwen_image");
    assert_fails(ask(&s, &x, off, clip.out[0].at[0], NULL, &h, &err), err, BERTH_EUNSUPPORTED,
                 "Qwen2.5-VL 7B writes no text");
    call_release(&x);
    call_release(&clip);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_type), cmocka_unit_test(answers),
                                        cmocka_unit_test(answers35),
                                        cmocka_unit_test(answers_pictures),
                                        cmocka_unit_test(says_nothing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
