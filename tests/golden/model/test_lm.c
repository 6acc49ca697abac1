/* Language models of the golden files: every entry of the manifest that has an `encoder`, its
 * weights made from the keys file. Token ids go in, hidden states come out; a case is one of
 *     p<n>/cond                 what the entry's `want` asks for: layer, taps, norm, cut
 *     p<n>/all, p<n>/last_normed   the last layer, normed
 *     p<n>/attention_mask       which tokens are text
 *     p<n>/rows<k>              what is seen of p<n>/image<k>, which stands in the prompt as the
 *                               k-th placeholder
 *     g<n>/ids                  tokens written behind g<n>/tokens, as the entry's `generate` says
 * Made by tools/golden/lm.py, or as the README of the folder says.
 *
 * Error: largest absolute difference over the largest absolute value of the reference, at most
 * 1e-4; 1e-3 on a card. */
#include "support/clips.h"
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/where.h"

#include "base/json.h"
#include "model/lm/cuts.h"
#include "model/lm/lm.h"

#define TAPS_MAX 64

struct model {
    const char *name;
    const json_t *entry;
    struct where at;
    struct weights *want;
    struct clip_rig g;
    struct lm_kind kind; /* with a window that prompts of a test are longer than */
    uint32_t tap[TAPS_MAX];
    size_t cases, wrong;
};

static int64_t number(const json_t *o, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(o, key);
    return v ? json_integer_value(v) : otherwise;
}

/* What was read from shapes is what the reference was built with. */
static void compare_config(const struct lm_net *c, const json_t *config)
{
    assert_int_equal(c->width, number(config, "hidden_size", -1));
    assert_int_equal(c->mlp, number(config, "intermediate_size", -1));
    assert_int_equal(c->heads, number(config, "num_attention_heads", -1));
    assert_int_equal(c->kv_heads, number(config, "num_key_value_heads", -1));
    assert_int_equal(c->layers, number(config, "num_hidden_layers", -1));
    assert_int_equal(c->vocab, number(config, "vocab_size", -1));
    assert_int_equal(c->head_dim, number(config, "head_dim", 128));
    const json_t *theta = json_object_get(config, "rope_theta");
    if (json_is_number(theta))
        assert_true(c->kind->theta == json_number_value(theta));
}

/* The pictures of a prompt, in the arena. */
static struct text_picture *pictures_of(const struct model *m, const char *prompt, size_t *n,
                                        struct arena *mem)
{
    struct text_picture *p = arena_array(mem, 8, sizeof *p);
    assert_non_null(p);
    for (*n = 0;; ++*n) {
        char name[64];
        berth_err err = { 0 };
        int len = snprintf(name, sizeof name, "%s/image%zu", prompt, *n);
        const struct weights_entry *e = weights_find(m->want, name, (size_t)len);
        if (!e)
            return p;
        float *rgb = arena_alloc(mem, (size_t)e->size);
        assert_true(rgb && *n < 8 && e->shape.ndim == 3);
        assert_ok(weights_read(m->want, e, 0, rgb, e->size, &err), err);
        p[*n] = (struct text_picture) { .rgb = rgb,
                                        .height = (size_t)e->shape.dim[0],
                                        .width = (size_t)e->shape.dim[1] };
    }
}

/* What is seen of the k-th picture, and deeper. */
static void run_rows(struct model *m, const struct weights_entry *e, const char *what, size_t k,
                     const struct text_picture *p, size_t pictures)
{
    struct arena mem = { 0 };
    struct picture_rows rows;
    const float *got;
    berth_err err = { 0 };
    size_t n;
    assert_true(k < pictures);
    float *want = golden_floats(m->want, e, &n);
    const struct text_encoder *enc = &m->g.enc[0];
    assert_ok(text_encoder_look(enc, &p[k], &mem, &rows, &got, &err), err);
    assert_int_equal(rows.n * (1 + rows.deep) * enc->is->size(enc->config).width, n);
    assert_int_equal(rows.n, rows.high * rows.wide);
    m->wrong += !is_near(what, got, want, n, where_limit_f32(&m->at, WHERE_MODULE));
    free(want);
    arena_release(&mem);
}

/* Ids of an I64 tensor as one chunk. */
static struct chunks tokens_of(const struct model *m, const char *prompt, struct arena *mem)
{
    char name[64];
    berth_err err = { 0 };
    int len = snprintf(name, sizeof name, "%s/tokens", prompt);
    const struct weights_entry *e = weights_find(m->want, name, (size_t)len);
    assert_non_null(e);
    assert_int_equal(e->dtype, DT_I64);
    size_t n = (size_t)(e->size / sizeof(int64_t));
    int64_t *id = arena_array(mem, n, sizeof *id);
    struct token *t = arena_array(mem, n, sizeof *t), **chunk = arena_array(mem, 1, sizeof *chunk);
    size_t *length = arena_array(mem, 1, sizeof *length);
    assert_true(id && t && chunk && length);
    assert_ok(weights_read(m->want, e, 0, id, e->size, &err), err);
    for (size_t i = 0; i < n; i++)
        t[i] = (struct token) { .id = (int32_t)id[i], .weight = 1 };
    *chunk = t;
    *length = n;
    const struct chunk_rules rules = { .start = -1,
                                       .end = -1,
                                       .pad = (int32_t)number(m->entry, "pad", 151643) };
    return (struct chunks) { .chunk = chunk, .len = length, .n = 1, .rules = rules };
}

static struct encoder_want wanted(struct model *m, const json_t *want)
{
    struct encoder_want w = { .layer = (int)number(want, "layer", 0),
                              .norm_hidden = json_is_true(json_object_get(want, "norm_hidden")) };
    const json_t *taps = json_object_get(want, "taps");
    if (json_is_string(taps))
        w.taps = TEXT_TAPS_ALL;
    size_t i;
    json_t *tap;
    json_array_foreach(taps, i, tap)
    {
        assert_true(i < TAPS_MAX);
        m->tap[i] = (uint32_t)json_integer_value(tap);
        w.taps = (uint32_t)i + 1;
    }
    w.tap = m->tap;
    return w;
}

/* The rows from `first` on, of each row its taps side by side. */
static float *arrange(const float *z, size_t taps, size_t rows, size_t width, size_t first)
{
    float *out = calloc(rows * taps * width, sizeof *out);
    assert_non_null(out);
    for (size_t r = first; r < rows; r++)
        for (size_t t = 0; t < taps; t++)
            memcpy(out + ((r - first) * taps + t) * width, z + (t * rows + r) * width,
                   width * sizeof *out);
    return out;
}

static void compare_mask(struct model *m, const char *what, const struct weights_entry *e,
                         const uint8_t *shown)
{
    int64_t want[4096];
    berth_err err = { 0 };
    assert_true(e->size <= sizeof want);
    assert_ok(weights_read(m->want, e, 0, want, e->size, &err), err);
    for (size_t i = 0; i < e->size / sizeof *want; i++)
        if (shown[i] != want[i]) {
            print_message("%s: token %zu is %d: WRONG\n", what, i, shown[i]);
            m->wrong++;
            return;
        }
}

static double real(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);
    return v ? json_number_value(v) : otherwise;
}

/* Ids that are written behind a prompt. */
static void run_speech(struct model *m, const struct weights_entry *e, const char *prompt)
{
    struct arena mem = { 0 };
    struct vec said = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    const json_t *g = json_object_get(json_object_get(m->entry, "generate"), prompt);
    int32_t stop[2] = { -1, -1 };
    int64_t want[256];
    assert_non_null(g);
    if (json_object_get(g, "stop"))
        stop[0] = (int32_t)json_integer_value(json_array_get(json_object_get(g, "stop"), 0));
    m->kind.stop = stop;
    const struct speech_how how = { .most = (uint32_t)number(g, "max_length", 0),
                                    .sample = json_is_true(json_object_get(g, "do_sample")),
                                    .temperature = real(g, "temperature", 1),
                                    .top_k = (uint32_t)number(g, "top_k", 50),
                                    .top_p = real(g, "top_p", 1),
                                    .min_p = real(g, "min_p", 0),
                                    .repetition = real(g, "repetition_penalty", 1),
                                    .presence = real(g, "presence_penalty", 0),
                                    .seed = (uint64_t)number(g, "seed", 0) };
    struct chunks in = tokens_of(m, prompt, &mem);
    struct encoder_job job = { .in = &in };
    struct text_encoder *enc = &m->g.enc[0];
    size_t pictures;
    const struct text_picture *picture = pictures_of(m, prompt, &pictures, &mem);
    assert_ok(text_encoder_see(enc, picture, pictures, &in, &job, &mem, &err), err);
    assert_true(enc->is->speech && enc->is->speech->there(enc->config));
    assert_ok(enc->is->speech->speak(enc, &job, &how, &said, &err), err);
    assert_true(e->size <= sizeof want);
    assert_ok(weights_read(m->want, e, 0, want, e->size, &err), err);
    size_t n = (size_t)(e->size / sizeof *want), same = 0;
    while (same < n && same < said.n && *(int32_t *)vec_at(&said, same) == want[same])
        same++;
    if (same < n || said.n != n) {
        print_message("%s %s: %zu of %zu tokens, then another: WRONG\n", m->name, e->name, same, n);
        m->wrong++;
    }
    m->cases++;
    vec_release(&said);
    arena_release(&mem);
}

static void run_case(struct model *m, const struct weights_entry *e)
{
    struct arena mem = { 0 };
    berth_err err = { 0 };
    char prompt[32], what[128];
    const char *kind = strchr(e->name, '/');
    assert_non_null(kind++);
    snprintf(prompt, sizeof prompt, "%.*s", (int)(kind - 1 - e->name), e->name);
    snprintf(what, sizeof what, "%s %s", m->name, e->name);
    if (strcmp(kind, "tokens") == 0 || strncmp(kind, "image", 5) == 0)
        return;
    if (strcmp(kind, "ids") == 0) {
        run_speech(m, e, prompt);
        return;
    }
    size_t pictures;
    struct text_picture *picture = pictures_of(m, prompt, &pictures, &mem);
    if (strncmp(kind, "rows", 4) == 0) {
        run_rows(m, e, what, strtoul(kind + 4, NULL, 10), picture, pictures);
        m->cases++;
        arena_release(&mem);
        return;
    }
    const json_t *want = json_object_get(json_object_get(m->entry, "wants"), prompt);
    want = want ? want : json_object_get(m->entry, "want");
    bool cond = strcmp(kind, "cond") == 0, mask = strcmp(kind, "attention_mask") == 0;
    assert_true(cond || mask || strcmp(kind, "all") == 0 || strcmp(kind, "last_normed") == 0);
    struct text_encoder *enc = &m->g.enc[0];
    struct encoder_size size = enc->is->size(enc->config);
    struct chunks in = tokens_of(m, prompt, &mem);
    struct encoder_job job = { .in = &in, .want = wanted(m, cond ? want : NULL) };
    assert_ok(text_encoder_see(enc, picture, pictures, &in, &job, &mem, &err), err);
    size_t taps = encoder_taps(&job.want, &size), rows = in.len[0], width = (size_t)size.width, n;
    job.z = arena_array(&mem, taps * rows * width, sizeof *job.z);
    job.shown = arena_alloc(&mem, rows);
    assert_true(job.z && job.shown);
    assert_ok(text_encoder_do(enc, &job, &err), err);
    m->cases++;
    if (mask) {
        compare_mask(m, what, e, job.shown);
    } else {
        float *expect = golden_floats(m->want, e, &n);
        const char *how = json_string_value(json_object_get(want, "cut"));
        size_t first = !cond || !how ? 0 : lm_cut_qwen(in.chunk[0], rows);
        float *got = arrange(job.z, taps, rows, width, first);
        assert_int_equal((rows - first) * taps * width, n);
        /* Nobody reads what becomes of pads in front of a prompt, and the reference lets them see
         * what comes behind. */
        size_t left = (size_t)number(want, "left", 0) * taps * width;
        m->wrong += !is_near(what, got + left, expect + left, n - left,
                             where_limit_f32(&m->at, WHERE_MODULE));
        free(got);
        free(expect);
    }
    arena_release(&mem);
}

static size_t run_model(const char *name, const json_t *entry)
{
    struct model m = { .name = name, .entry = entry, .at = where_from_env() };
    struct keys k = { 0 };
    char file[96], keys[96];
    berth_err err = { 0 };
    const char *shared = json_string_value(json_object_get(entry, "keys"));
    snprintf(file, sizeof file, "%s.safetensors", name);
    snprintf(keys, sizeof keys, "%s_keys.json", name);
    m.want = golden_open(file);
    assert_ok(keys_read(golden_path(shared ? shared : keys), &k, &err), err);
    clip_rig_open_on(&m.g, m.at.devices, keys_file(&k, name, DT_F32, "safetensors", NULL), NULL, 0);
    keys_release(&k);
    assert_int_equal(m.g.n, 1);
    assert_string_equal(m.g.enc[0].is->key, json_string_value(json_object_get(entry, "encoder")));
    struct lm_net *net = m.g.enc[0].config;
    const json_t *config = json_object_get(entry, "config");
    compare_config(net, config);
    m.kind = *net->kind;
    m.kind.window = (uint32_t)number(config, "window", net->kind->window);
    net->kind = &m.kind;
    for (size_t i = 0; i < weights_count(m.want); i++)
        run_case(&m, weights_at(m.want, i));
    assert_true(m.cases > 0);
    clip_rig_close(&m.g);
    weights_close(m.want);
    return m.wrong;
}

static void every_model(void **state)
{
    (void)state;
    where_or_skip();
    berth_err err = { 0 };
    json_t *manifest, *entry;
    const char *name;
    size_t models = 0, wrong = 0;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, entry)
    {
        if (!json_object_get(entry, "encoder"))
            continue;
        wrong += run_model(name, entry);
        models++;
    }
    assert_true(models > 0);
    assert_int_equal(wrong, 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_model) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
