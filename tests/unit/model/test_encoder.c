/* Sets of encoders: which layer each gives, weights against the empty prompt, what is put
 * together. */
#include "clip_files.h"
#include "support/oom.h"

#include "base/log.h"

#define LEN SMALL_POSITIONS
#define WL 32 /* width of the L of these files, and of G */
#define WG 16

struct bench {
    struct clip_rig r;
    struct bpe *bpe;
    struct arena mem;
    struct text_args args;
};

static void bench_open(struct bench *b, const struct text_set *set, const struct small *c, size_t n)
{
    *b = (struct bench) { .bpe = tiny_bpe() };
    clip_rig_open(&b->r, clip_file("set", c, n, NULL, 0), NULL, 2);
    clip_rig_tokenizer(&b->r, b->bpe);
    b->args = (struct text_args) { .set = set, .enc = b->r.enc, .encoders = b->r.n };
}

static void bench_close(struct bench *b)
{
    clip_rig_close(&b->r);
    bpe_close(b->bpe);
    arena_release(&b->mem);
}

static struct text_cond run(struct bench *b, const char *text, const char *text_l, int skip)
{
    struct text_cond out;
    berth_err err = { 0 };
    b->args.skip = skip;
    assert_ok(encode_texts(&b->args, text, text_l, &b->mem, &out, &err), err);
    return out;
}

static void same(const struct text_cond *a, const struct text_cond *b, bool want)
{
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->width, b->width);
    assert_int_equal(memcmp(a->cond, b->cond, a->tokens * a->width * sizeof(float)) == 0, want);
}

static const struct small sd1[] = { { "cond_stage_model.transformer.", HF, 3, 0, WL } };
static const struct small sd2[] = { { "cond_stage_model.model.", OPENCLIP, 3, 0, WL } };
static const struct small refiner[] = { { "conditioner.embedders.0.model.", OPENCLIP, 3, 0, WG } };
static const struct small sdxl[] = { { "conditioner.embedders.0.transformer.", HF, 3, 0, WL },
                                     { "conditioner.embedders.1.model.", OPENCLIP, 4, 0, WG } };

/* What the network itself gives for a prompt of one chunk. */
static void direct(struct bench *b, size_t enc, const char *text, struct encoder_want a, float *z,
                   float *pooled)
{
    const struct text_encoder *e = &b->r.enc[enc];
    struct chunk_rules rules = { .start = tokenizer_clip.ids(b->bpe).start,
                                 .end = tokenizer_clip.ids(b->bpe).end,
                                 .pad =
                                     e->is == &encoder_clip_l ? tokenizer_clip.ids(b->bpe).end : 0,
                                 .max_length = LEN,
                                 .pad_to_max = true };
    struct chunks in;
    berth_err err = { 0 };
    assert_ok(text_chunks(text, strlen(text), tokenizer_clip.encode, b->bpe, &rules, "", NULL,
                          &b->mem, &in, &err),
              err);
    assert_ok(text_encoder_run(e, &in, &a, z, pooled, NULL, &err), err);
}

static void sd1_set(void **state)
{
    (void)state;
    struct bench b;
    static float z[LEN * WL], p[WL];
    bench_open(&b, &text_set_sd1, sd1, 1);
    struct text_cond plain = run(&b, "a photo of the cat", NULL, 0);
    assert_true(plain.tokens == LEN && plain.width == WL && plain.pooled_n == WL);
    direct(&b, 0, "a photo of the cat", (struct encoder_want) { 0 }, z, p);
    assert_memory_equal(plain.cond, z, sizeof z);
    assert_memory_equal(plain.pooled, p, sizeof p); /* not projected */
    struct text_cond s1 = run(&b, "a photo of the cat", NULL, -1),
                     s2 = run(&b, "a photo of the cat", NULL, -2),
                     s9 = run(&b, "a photo of the cat", NULL, -9);
    same(&plain, &s1, true);
    same(&plain, &s2, false);
    same(&plain, &s9, true);
    direct(&b, 0, "a photo of the cat", (struct encoder_want) { .layer = -2, .norm_hidden = true },
           z, p);
    assert_memory_equal(s2.cond, z, sizeof z);
    bench_close(&b);
}

static void sd2_and_refiner(void **state)
{
    (void)state;
    static float z[LEN * WL], p[WL];
    struct bench b;
    bench_open(&b, &text_set_sd2, sd2, 1);
    struct text_cond got = run(&b, "dog", NULL, 0);
    direct(&b, 0, "dog",
           (struct encoder_want) { .layer = -2, .norm_hidden = true, .project = true }, z, p);
    assert_memory_equal(got.cond, z, sizeof z);
    assert_memory_equal(got.pooled, p, sizeof p);
    bench_close(&b);
    bench_open(&b, &text_set_refiner, refiner, 1);
    got = run(&b, "dog", NULL, 0);
    assert_true(got.width == WG && got.pooled_n == WG);
    direct(&b, 0, "dog", (struct encoder_want) { .layer = -2, .project = true }, z, p);
    assert_memory_equal(got.cond, z, LEN * WG * sizeof *z);
    assert_memory_equal(got.pooled, p, WG * sizeof *p);
    bench_close(&b);
}

static void sdxl_set(void **state)
{
    (void)state;
    struct bench b;
    static float l[LEN * WL], g[LEN * WG], p[WG];
    bench_open(&b, &text_set_sdxl, sdxl, 2);
    struct text_cond got = run(&b, "the red dog", NULL, 0);
    assert_true(got.tokens == LEN && got.width == WL + WG && got.pooled_n == WG);
    direct(&b, 0, "the red dog", (struct encoder_want) { .layer = -2 }, l, NULL);
    direct(&b, 1, "the red dog", (struct encoder_want) { .layer = -2, .project = true }, g, p);
    for (size_t i = 0; i < LEN; i++) {
        assert_memory_equal(got.cond + i * (WL + WG), l + i * WL, WL * sizeof(float));
        assert_memory_equal(got.cond + i * (WL + WG) + WL, g + i * WG, WG * sizeof(float));
    }
    assert_memory_equal(got.pooled, p, sizeof p);
    struct text_cond s2 = run(&b, "the red dog", NULL, -2), s1 = run(&b, "the red dog", NULL, -1);
    same(&got, &s2, true);
    same(&got, &s1, false);
    assert_memory_equal(got.pooled, s1.pooled, sizeof p); /* skip does not touch it */
    struct text_cond twice = run(&b, "the red dog", "the red dog", 0);
    same(&got, &twice, true);
    bench_close(&b);
}

#define LONG "cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat"

/* The shorter of two texts goes on with the empty prompt. */
static void sdxl_two_texts(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, &text_set_sdxl, sdxl, 2);
    struct text_cond longer = run(&b, LONG, NULL, 0), got = run(&b, LONG, "dog", 0),
                     dog = run(&b, "dog", NULL, 0), empty = run(&b, "", NULL, 0),
                     other = run(&b, "dog", LONG, 0);
    size_t w = WL + WG;
    assert_int_equal(longer.tokens, 2 * LEN);
    assert_int_equal(got.tokens, 2 * LEN);
    assert_int_equal(other.tokens, 2 * LEN);
    for (size_t i = 0; i < 2 * LEN; i++) {
        const float *l = (i < LEN ? dog.cond : empty.cond) + i % LEN * w;
        assert_memory_equal(got.cond + i * w, l, WL * sizeof(float));
        assert_memory_equal(got.cond + i * w + WL, longer.cond + i * w + WL, WG * sizeof(float));
        assert_memory_equal(other.cond + i * w, longer.cond + i * w, WL * sizeof(float));
        assert_memory_equal(other.cond + i * w + WL, l + WL, WG * sizeof(float));
    }
    bench_close(&b);
}

static void weights_against_nothing(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, &text_set_sd1, sd1, 1);
    struct text_cond plain = run(&b, "the cat of dog", NULL, 0), empty = run(&b, "", NULL, 0),
                     one = run(&b, "the (cat:1.0) of dog", NULL, 0),
                     got = run(&b, "the (cat:1.5) of (dog:-0.25)", NULL, 0);
    same(&plain, &one, true);
    static const float weight[] = { 1, 1, 1.5f, 1, -0.25f }; /* start, the, cat, of, dog */
    for (size_t i = 0; i < LEN; i++)
        for (size_t k = 0; k < WL; k++) {
            float z = plain.cond[i * WL + k], e = empty.cond[i * WL + k],
                  w = i < ARRAY_LEN(weight) ? weight[i] : 1;
            assert_true(got.cond[i * WL + k] == (w == 1 ? z : (z - e) * w + e));
        }
    assert_memory_equal(got.pooled, plain.pooled, WL * sizeof(float)); /* never weighted */
    bench_close(&b);
}

/* ---- embeddings ---- */

struct found {
    float vector[2][WL];
    uint32_t width;
    int warnings;
};

static berth_status find(void *user, const char *name, size_t n, const char *key, struct arena *mem,
                         const float **v, uint32_t *count, uint32_t *width, berth_err *err)
{
    struct found *f = user;
    (void)mem, (void)err;
    assert_true(n == 1 && *name == 'x');
    assert_string_equal(key, "clip_l");
    *v = f->vector[0];
    *count = 2;
    *width = f->width;
    return BERTH_OK;
}

static void warned(void *user, enum log_level level, uint64_t ns, const char *event,
                   const char *text)
{
    struct found *f = user;
    (void)level, (void)ns, (void)event;
    assert_non_null(strstr(text, "name=\"x\" ignored=2 has=16 width=32 "));
    f->warnings++;
}

static void embeddings(void **state)
{
    (void)state;
    struct bench b;
    struct found f = { .width = WL };
    struct log log = { .write = warned, .user = &f };
    struct text_embeddings emb = { .find = find, .user = &f, .log = &log };
    static const char table[] = "text_model.embeddings.token_embedding.weight";
    struct shape s = { 2, { 532, WL } };
    bench_open(&b, &text_set_sd1, sd1, 1);
    struct text_cond want = run(&b, "the cat of dog", NULL, 0),
                     strong = run(&b, "the (cat of:2) dog", NULL, 0);
    b.args.emb = &emb;
    synth_fill(table, strlen(table), &s, 513u * WL, WL, f.vector[0]); /* cat */
    synth_fill(table, strlen(table), &s, 516u * WL, WL, f.vector[1]); /* of */
    struct text_cond got = run(&b, "the embedding:x dog", NULL, 0),
                     heavy = run(&b, "the (embedding:x:2) dog", NULL, 0);
    same(&want, &got, true);
    same(&strong, &heavy, true);
    assert_int_equal(f.warnings, 0);
    f.width = WL / 2;
    got = run(&b, "the embedding:x dog", NULL, 0);
    want = run(&b, "the dog", NULL, 0);
    same(&want, &got, true);
    assert_int_equal(f.warnings, 1);
    bench_close(&b);
}

static void refused(void **state)
{
    (void)state;
    struct bench b;
    struct text_cond out;
    berth_err err = { 0 };
    bench_open(&b, &text_set_sd1, sd1, 1);
    b.args.set = &text_set_sdxl;
    assert_fails(encode_texts(&b.args, "a", NULL, &b.mem, &out, &err), err, BERTH_EINVAL,
                 "SDXL needs CLIP-G");
    bench_close(&b);
    const struct small few[] = { { "cond_stage_model.transformer.", HF, 1, 500, WL } };
    bench_open(&b, &text_set_sd1, few, 1); /* fewer tokens than the tokenizer has */
    assert_fails(encode_texts(&b.args, "a", NULL, &b.mem, &out, &err), err, BERTH_EINVAL,
                 "CLIP-L: token 530");
    bench_close(&b);
}

static void survives_oom(void **state)
{
    (void)state;
    struct bench b;
    berth_status s = BERTH_ENOMEM;
    bench_open(&b, &text_set_sdxl, sdxl, 2);
    struct text_cond want = run(&b, LONG " (red:2) dog", "(blue)", 0), got = { 0 };
    for (long k = 0; s != BERTH_OK; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = encode_texts(&b.args, LONG " (red:2) dog", "(blue)", &b.mem, &got, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
    }
    same(&want, &got, true);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sd1_set),
        cmocka_unit_test(sd2_and_refiner),
        cmocka_unit_test(sdxl_set),
        cmocka_unit_test(sdxl_two_texts),
        cmocka_unit_test(weights_against_nothing),
        cmocka_unit_test(embeddings),
        cmocka_unit_test(refused),
        cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
