/* The CLIP network: names, configs, places, hidden layers, pooled outputs, vectors among tokens. */
#include "clip_files.h"

#include "model/clip/presets.h"

#define LEN SMALL_POSITIONS
#define WIDTH 32
#define START 530
#define END 531

/* A chunk of ids (END and what follows are added). */
static struct token *chunk_of(struct arena *mem, const int32_t *ids, size_t n)
{
    struct token *t = arena_array(mem, LEN, sizeof *t);
    assert_true(t && n + 2 <= LEN);
    for (size_t i = 0; i < LEN; i++)
        t[i] = (struct token) { .id = i == 0 ? START : i <= n ? ids[i - 1] : END, .weight = 1 };
    return t;
}

static struct chunks chunks_of(struct arena *mem, struct token **chunk, size_t n)
{
    struct chunks c = { .chunk = chunk,
                        .len = arena_array(mem, n, sizeof(size_t)),
                        .n = n,
                        .rules = { .start = START, .end = END, .pad = END } };
    for (size_t i = 0; i < n; i++)
        c.len[i] = LEN;
    return c;
}

static const int32_t words[] = { 320, 513, 12, 400, 7, 99 };

static void encode(const struct text_encoder *e, const struct chunks *in, struct encoder_want a,
                   float *z, float *pooled)
{
    berth_err err = { 0 };
    assert_ok(text_encoder_run(e, in, &a, z, pooled, NULL, &err), err);
}

static void every_name_gives_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *root;
        enum style style;
    } at[] = { { "", HF },
               { "", HF_BARE },
               { "cond_stage_model.transformer.", HF },
               { "cond_stage_model.transformer.", OLD },
               { "", OLD } };
    static const struct {
        const char *root;
        enum style style;
    } open[] = { { "conditioner.embedders.1.model.", OPENCLIP },
                 { "conditioner.embedders.1.model.", OPENCLIP_LINEAR },
                 { "conditioner.embedders.1.model.transformer.", HF },
                 { "", OPENCLIP } };
    float z[2][2][LEN * WIDTH], pooled[2][2][WIDTH];
    for (int g = 0; g < 2; g++)
        for (size_t i = 0; i < (g ? ARRAY_LEN(open) : ARRAY_LEN(at)); i++) {
            struct small c = { .root = g ? open[i].root : at[i].root,
                               .style = g ? open[i].style : at[i].style,
                               .layers = 3 };
            struct clip_rig r;
            struct arena mem = { 0 };
            struct token *one = chunk_of(&mem, words, ARRAY_LEN(words));
            struct chunks in = chunks_of(&mem, &one, 1);
            clip_rig_open(&r, clip_file("clip", &c, 1, NULL, 0), NULL, 2);
            assert_int_equal(r.n, 1);
            assert_string_equal(r.found[0].root, c.root);
            assert_ptr_equal(r.found[0].is, g ? &encoder_clip_g : &encoder_clip_l);
            assert_int_equal(clip_of(&r.enc[0])->quick_gelu, !g);
            assert_true(clip_of(&r.enc[0])->projection);
            encode(&r.enc[0], &in, (struct encoder_want) { .project = true }, z[g][i > 0],
                   pooled[g][i > 0]);
            assert_memory_equal(z[g][0], z[g][i > 0], sizeof z[g][0]);
            assert_memory_equal(pooled[g][0], pooled[g][i > 0], sizeof pooled[g][0]);
            clip_rig_close(&r);
            arena_release(&mem);
        }
    assert_true(memcmp(z[0][0], z[1][0], sizeof z[0][0]) != 0); /* another activation */
}

static void configs(void **state)
{
    (void)state;
    struct small c = { .root = "", .style = HF, .layers = 3, .width = 128 };
    struct weights *w;
    struct clip_net got;
    struct text_found found[TEXT_ENCODERS_MAX];
    berth_err err = { 0 };
    assert_ok(weights_open(clip_file("c", &c, 1, NULL, 0), NULL, &w, &err), err);
    assert_ok(clip_configure(w, "", &got, &err), err);
    assert_true(got.width == 128 && got.vocab == 532 && got.positions == LEN &&
                got.mlp == SMALL_MLP && got.layers == 3 && got.heads == 2);
    assert_fails(clip_configure(w, "elsewhere.", &got, &err), err, BERTH_ENOTFOUND, "elsewhere.");
    assert_int_equal(text_find(w, "elsewhere.", found), 0);
    weights_close(w);
    struct weights_meta_spec meta[] = { { "berth.heads", "8" }, { "berth.clip", "g" } };
    assert_ok(weights_open(clip_file("c", &c, 1, meta, 2), NULL, &w, &err), err);
    assert_true(text_find(w, NULL, found) == 1 && found[0].is == &encoder_clip_g);
    assert_ok(found[0].is->configure(w, "", &got, &err), err);
    assert_true(got.heads == 8 && !got.quick_gelu);
    weights_close(w);
    meta[0].value = "7"; /* 128 is no multiple */
    assert_ok(weights_open(clip_file("c", &c, 1, meta, 1), NULL, &w, &err), err);
    assert_fails(clip_configure(w, "", &got, &err), err, BERTH_EFORMAT, "7 heads");
    weights_close(w);
    c.width = 16; /* below 64: one head */
    assert_ok(weights_open(clip_file("c", &c, 1, NULL, 0), NULL, &w, &err), err);
    assert_ok(clip_configure(w, "", &got, &err), err);
    assert_int_equal(got.heads, 1);
    weights_close(w);
}

static void places(void **state)
{
    (void)state;
    static const struct {
        struct small c[2];
        size_t n;
        const char *part;
        const struct encoder_class *kind[2];
    } t[] = {
        { { { "cond_stage_model.transformer.", HF, 1, 0, 0 } },
          1,
          "cond_stage_model.",
          { &encoder_clip_l } },
        { { { "cond_stage_model.model.", OPENCLIP, 1, 0, 0 } }, 1, NULL, { &encoder_clip_h } },
        { { { "conditioner.embedders.0.model.", OPENCLIP, 1, 0, 0 } },
          1,
          NULL,
          { &encoder_clip_g } },
        { { { "conditioner.embedders.0.model.", OPENCLIP, 24, 0, 8 } },
          1,
          NULL,
          { &encoder_clip_h } },
        { { { "conditioner.embedders.1.model.", OPENCLIP, 1, 0, 0 },
            { "conditioner.embedders.0.transformer.", HF, 1, 0, 0 } },
          2,
          "conditioner.",
          { &encoder_clip_l, &encoder_clip_g } },
        { { { "text_encoders.clip_g.transformer.", HF, 1, 0, 0 },
            { "text_encoders.clip_l.transformer.", HF, 1, 0, 0 } },
          2,
          "",
          { &encoder_clip_l, &encoder_clip_g } },
        { { { "text_encoders.clip_l.transformer.", HF, 1, 0, 0 } },
          1,
          "text_encoders.clip_l.",
          { &encoder_clip_l } },
        { { { "", HF, 12, 0, 8 } }, 1, NULL, { &encoder_clip_l } },
        { { { "", OPENCLIP, 32, 0, 8 } }, 1, NULL, { &encoder_clip_g } },
        { { { "", OPENCLIP, 24, 0, 8 } }, 1, NULL, { &encoder_clip_h } },
        { { { "transformer.", HF, 1, 0, 0 } }, 1, NULL, { &encoder_clip_l } },
        { { { "my.own.", HF, 1, 0, 0 } }, 1, "my.own.", { &encoder_clip_l } },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct text_found got[TEXT_ENCODERS_MAX];
        struct weights *w;
        berth_err err = { 0 };
        assert_ok(weights_open(clip_file("p", t[i].c, t[i].n, NULL, 0), NULL, &w, &err), err);
        assert_int_equal(text_find(w, t[i].part, got), t[i].n);
        for (size_t k = 0; k < t[i].n; k++) {
            struct clip_net c;
            if (got[k].is != t[i].kind[k])
                fail_msg("%zu: %s is %s", i, got[k].root, got[k].is->name);
            assert_ok(clip_configure(w, got[k].root, &c, &err), err);
        }
        weights_close(w);
    }
}

/* Weights of other types, as stored: near those of F32, and not the same. */
static void weights_of_any_type(void **state)
{
    (void)state;
    static const struct {
        enum dtype dtype;
        const char *format;
        double limit;
    } t[] = { { DT_F32, "safetensors", 0 },
              { DT_F16, "safetensors", 2e-3 },
              { DT_BF16, "gguf", 2e-2 },
              { DT_F8_E4M3, "safetensors", 2e-1 },
              { DT_Q8_0, "gguf", 3e-2 } };
    static float z[2][LEN * 64];
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct keys k = { 0 };
        struct clip_rig r;
        struct arena mem = { 0 };
        struct token *one = chunk_of(&mem, words, ARRAY_LEN(words));
        struct chunks in = chunks_of(&mem, &one, 1);
        keys_clip(&k, &(struct clip_config) {
                          .vocab = 532, .positions = LEN, .width = 64, .mlp = 128, .layers = 2 });
        assert_false(k.bad);
        clip_rig_open(&r, keys_file(&k, dtype_name(t[i].dtype), t[i].dtype, t[i].format, NULL),
                      NULL, 0);
        assert_false(clip_of(&r.enc[0])->projection);
        encode(&r.enc[0], &in, (struct encoder_want) { 0 }, z[i > 0], NULL);
        if (i) {
            assert_near(dtype_name(t[i].dtype), z[1], z[0], LEN * 64, t[i].limit);
            assert_true(memcmp(z[0], z[1], sizeof z[0]) != 0);
        }
        clip_rig_close(&r);
        keys_release(&k);
        arena_release(&mem);
    }
}

/* One open encoder for what follows. */
struct bench {
    struct clip_rig r;
    struct arena mem;
};

static int bench_open(void **state)
{
    static struct bench b;
    struct small c = { .root = "", .style = HF, .layers = 3 };
    b = (struct bench) { 0 };
    clip_rig_open(&b.r, clip_file("bench", &c, 1, NULL, 0), NULL, 2);
    *state = &b;
    return 0;
}

static int bench_close(void **state)
{
    struct bench *b = *state;
    clip_rig_close(&b->r);
    arena_release(&b->mem);
    return 0;
}

static void hidden_layers(void **state)
{
    struct bench *b = *state;
    struct token *one = chunk_of(&b->mem, words, ARRAY_LEN(words));
    struct chunks in = chunks_of(&b->mem, &one, 1);
    static float z[6][LEN * WIDTH];
    static const struct encoder_want a[] = {
        { .layer = 0 },  { .layer = -1, .norm_hidden = true },  { .layer = -1 }, { .layer = -2 },
        { .layer = -3 }, { .layer = -4, .norm_hidden = false },
    };
    for (size_t i = 0; i < ARRAY_LEN(a); i++)
        encode(&b->r.enc[0], &in, a[i], z[i], NULL);
    assert_memory_equal(z[0], z[1], sizeof z[0]); /* -1 with the norm is the last */
    assert_memory_equal(z[0], z[5], sizeof z[0]); /* before the first layer: the last, normed */
    for (int i = 2; i < 5; i++)
        for (int k = 0; k < i; k++)
            assert_true(memcmp(z[i], z[k], sizeof z[0]) != 0);
}

/* A token sees those before it alone. */
static void causal(void **state)
{
    struct bench *b = *state;
    static float z[2][LEN * WIDTH];
    for (int i = 0; i < 2; i++) {
        int32_t ids[] = { 320, 12, 40 + i, 7 };
        struct token *one = chunk_of(&b->mem, ids, 4);
        struct chunks in = chunks_of(&b->mem, &one, 1);
        encode(&b->r.enc[0], &in, (struct encoder_want) { 0 }, z[i], NULL);
    }
    for (size_t i = 0; i < LEN; i++)
        assert_int_equal(memcmp(z[0] + i * WIDTH, z[1] + i * WIDTH, WIDTH * sizeof(float)) == 0,
                         i < 3);
}

static void pooled_is_at_the_first_end(void **state)
{
    struct bench *b = *state;
    static float z[LEN * WIDTH];
    float pooled[WIDTH], alone[WIDTH];
    int32_t ids[] = { 320, END, 12 }; /* an end token written in the prompt */
    struct token *one = chunk_of(&b->mem, ids, 3);
    struct chunks in = chunks_of(&b->mem, &one, 1);
    encode(&b->r.enc[0], &in, (struct encoder_want) { 0 }, z, pooled);
    assert_memory_equal(pooled, z + 2 * WIDTH, sizeof pooled);
    /* the same whatever layer z is, and without z */
    encode(&b->r.enc[0], &in, (struct encoder_want) { .layer = -3 }, z, alone);
    assert_memory_equal(pooled, alone, sizeof pooled);
    encode(&b->r.enc[0], &in, (struct encoder_want) { 0 }, NULL, alone);
    assert_memory_equal(pooled, alone, sizeof pooled);
    /* a vector behind it counts, as in the reference */
    static const float v[WIDTH] = { 1 };
    one[3] = (struct token) { .id = -1, .weight = 1, .vector = v, .width = WIDTH };
    encode(&b->r.enc[0], &in, (struct encoder_want) { 0 }, z, pooled);
    assert_memory_equal(pooled, z + 3 * WIDTH, sizeof pooled);
}

/* The row of a token's embedding as a vector is that token. */
static void vectors_take_slots(void **state)
{
    struct bench *b = *state;
    static float want[LEN * WIDTH], got[LEN * WIDTH];
    float row[WIDTH], p[2][WIDTH];
    struct shape s = { 2, { 532, WIDTH } };
    struct token *one = chunk_of(&b->mem, words, ARRAY_LEN(words));
    struct chunks in = chunks_of(&b->mem, &one, 1);
    static const char table[] = "text_model.embeddings.token_embedding.weight";
    encode(&b->r.enc[0], &in, (struct encoder_want) { 0 }, want, p[0]);
    synth_fill(table, strlen(table), &s, 513u * WIDTH, WIDTH, row);
    one[2] = (struct token) { .id = -1, .weight = 1, .vector = row, .width = WIDTH };
    encode(&b->r.enc[0], &in, (struct encoder_want) { 0 }, got, p[1]);
    assert_memory_equal(want, got, sizeof want);
    assert_memory_equal(p[0], p[1], sizeof p[0]);
}

/* One that does not fit leaves its slot; a pad comes in at the end. */
static void vectors_of_another_width(void **state)
{
    struct bench *b = *state;
    static float want[LEN * WIDTH], got[LEN * WIDTH];
    float p[2][WIDTH], v[WIDTH + 1] = { 0 };
    struct token *without = chunk_of(&b->mem, words, 3), *with = chunk_of(&b->mem, words, 4);
    struct chunks a = chunks_of(&b->mem, &without, 1), c = chunks_of(&b->mem, &with, 1);
    size_t dropped = 0;
    berth_err err = { 0 };
    with[4] = (struct token) { .id = -1, .weight = 1, .vector = v, .width = WIDTH + 1 };
    encode(&b->r.enc[0], &a, (struct encoder_want) { 0 }, want, p[0]);
    assert_ok(
        text_encoder_run(&b->r.enc[0], &c, &(struct encoder_want) { 0 }, got, p[1], &dropped, &err),
        err);
    assert_int_equal(dropped, 1);
    assert_memory_equal(want, got, sizeof want);
    assert_memory_equal(p[0], p[1], sizeof p[0]);
}

/* More chunks than one pass takes: each as if it were alone. */
static void many_chunks(void **state)
{
    struct bench *b = *state;
    enum { N = 19 };
    static float all[N][LEN * WIDTH], one[LEN * WIDTH];
    struct token *chunk[N];
    for (int i = 0; i < N; i++) {
        int32_t ids[] = { 17 * i, 300 + i };
        chunk[i] = chunk_of(&b->mem, ids, 2);
    }
    struct chunks in = chunks_of(&b->mem, chunk, N);
    encode(&b->r.enc[0], &in, (struct encoder_want) { .layer = -2 }, all[0], NULL);
    for (int i = 0; i < N; i++) {
        struct chunks c = chunks_of(&b->mem, &chunk[i], 1);
        encode(&b->r.enc[0], &c, (struct encoder_want) { .layer = -2 }, one, NULL);
        assert_memory_equal(all[i], one, sizeof one);
    }
}

static void refused(void **state)
{
    struct bench *b = *state;
    const struct text_encoder *e = &b->r.enc[0];
    static float z[2 * LEN * WIDTH];
    struct encoder_want a = { 0 };
    struct token *chunk[] = { chunk_of(&b->mem, words, 2), chunk_of(&b->mem, words, 2) };
    struct chunks in = chunks_of(&b->mem, chunk, 2);
    berth_err err = { 0 };
    in.len[1] = LEN - 1;
    assert_fails(text_encoder_run(e, &in, &a, z, NULL, NULL, &err), err, BERTH_EINVAL,
                 "chunks of 20 and of 19");
    in = chunks_of(&b->mem, chunk, 2);
    in.len[0] = in.len[1] = LEN + 1;
    assert_fails(text_encoder_run(e, &in, &a, z, NULL, NULL, &err), err, BERTH_ELIMIT,
                 "21 tokens, more than 20");
    in = chunks_of(&b->mem, chunk, 2);
    in.n = 0;
    assert_fails(text_encoder_run(e, &in, &a, z, NULL, NULL, &err), err, BERTH_EINVAL, "0 chunks");
    in.n = 1;
    chunk[0][3].id = 532;
    assert_fails(text_encoder_run(e, &in, &a, z, NULL, NULL, &err), err, BERTH_EINVAL, "token 532");
}

/* ---- files that lack something ---- */

static bool left_out(const void *user, const struct key *key, char *name, size_t cap,
                     struct shape *shape)
{
    (void)name, (void)cap, (void)shape;
    return strcmp(key->name, user) != 0;
}

/* Only the projection is optional; a layer counts if anything is left of it. */
static void no_tensor_may_be_missing(void **state)
{
    static const struct clip_config c = {
        .vocab = 40, .positions = 12, .width = 64, .mlp = 48, .layers = 2, .projection = true
    };
    (void)state;
    for (int open = 0; open < 2; open++) {
        struct keys k = { 0 };
        if (open)
            keys_openclip(&k, &c);
        else
            keys_clip(&k, &c);
        assert_false(k.bad);
        for (size_t i = 0; i < k.n; i++) {
            const char *gone = k.at[i].name;
            struct net_rig g;
            struct text_encoder e = { 0 };
            struct arena mem = { 0 };
            struct text_found found[TEXT_ENCODERS_MAX];
            berth_err err = { 0 };
            net_rig_open(&g, "cpu=64m", keys_file_changed(&k, "less", left_out, gone), NULL, NULL);
            const struct weights *w = res_weights(g.m);
            berth_status s = text_find(w, NULL, found) ? BERTH_OK : BERTH_ENOTFOUND;
            if (!s)
                s = text_encoder_init(&e, w, &found[0], &mem, &err);
            if (!s)
                s = text_encoder_open(&e, found[0].root, net_rig_args(&g), &err);
            if (!s != !!strstr(gone, "text_projection") && !strstr(gone, "logit_scale") &&
                !strstr(gone, "position_ids"))
                fail_msg("without '%s': %s", gone, s ? err.msg : "it runs");
            net_close(e.net);
            net_rig_close(&g);
            arena_release(&mem);
        }
        keys_release(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_gives_the_same),
        cmocka_unit_test(configs),
        cmocka_unit_test(places),
        cmocka_unit_test(weights_of_any_type),
        cmocka_unit_test_setup_teardown(hidden_layers, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(causal, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(pooled_is_at_the_first_end, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(vectors_take_slots, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(vectors_of_another_width, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(many_chunks, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(refused, bench_open, bench_close),
        cmocka_unit_test(no_tensor_may_be_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
