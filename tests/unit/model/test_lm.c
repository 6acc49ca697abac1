/* Language models: where they are in files and under which names, which one a file holds, what of
 * them is refused, and what stays the same however prompts are put. Numbers: golden.model.lm. */
#include "support/clips.h"
#include "support/oom.h"
#include "support/sparse_open.h"

#include "model/lm/cuts.h"
#include "model/lm/lm.h"
#include "model/lm/presets.h"
#include "model/lora_names.h"

enum { WIDTH = 32, VOCAB = 64, LAYERS = 3, LEN = 7 };
static const struct lm_config tiny = { .vocab = VOCAB,
                                       .width = WIDTH,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .head_dim = 16,
                                       .mlp = 48,
                                       .layers = LAYERS,
                                       .qk_norm = true };

static const struct lm_eyes small_eyes = {
    .blocks = 4, .width = 64, .mlp = 8, .patch = 16, .table = 4, .depths = 3
};

/* Qwen3.5: three layers with a memory, and one that attends. */
static const struct lm_config remembering = {
    .vocab = VOCAB,
    .width = WIDTH,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 16,
    .mlp = 48,
    .layers = 4,
    .qk_norm = true,
    .memory = 4,
    .memory_keys = 2,
    .memory_dim = 8,
    .eyes = { .blocks = 2, .width = 64, .mlp = 8, .patch = 16, .table = 4 }
};
/* One that looks back by keys, and one that has a memory; both see. */
static struct lm_config kinds(size_t i)
{
    struct lm_config c = i ? remembering : tiny;
    if (!i)
        c.eyes = small_eyes;
    return c;
}

/* ---- files ---- */

/* The name behind a root, as llama.cpp or a published Qwen3-VL has it. */
struct names {
    const char *root;
    enum lm_style style;
};

static bool rename_key(const void *user, const struct key *k, char *name, size_t n, struct shape *s)
{
    const struct names *to = user;
    struct net_source from;
    (void)s;
    bool other = to->style != LM_HF && lm_rename(to->style, k->name, &from);
    snprintf(name, n, "%s%s", to->root, other ? from.name : k->name);
    return true;
}

static void open_as(struct clip_rig *r, const struct lm_config *c, const struct names *as)
{
    struct keys k = { 0 };
    keys_lm(&k, c);
    clip_rig_open(r, keys_file_changed(&k, "lm", rename_key, as), NULL, 0);
    keys_release(&k);
}

static void chunk_of(const int32_t *id, size_t n, struct token *t, struct token **chunk,
                     struct chunks *out)
{
    static size_t len[1];
    for (size_t i = 0; i < n; i++)
        t[i] = (struct token) { .id = id[i], .weight = 1 };
    *chunk = t;
    *len = n;
    *out = (struct chunks) {
        .chunk = chunk, .len = len, .n = 1, .rules = { .start = -1, .end = -1, .pad = 0 }
    };
}

static void encode(const struct clip_rig *r, const int32_t *id, size_t n, struct encoder_want want,
                   float *z, uint8_t *shown)
{
    struct token t[64], *chunk;
    struct chunks in;
    berth_err err = { 0 };
    assert_true(n <= ARRAY_LEN(t));
    chunk_of(id, n, t, &chunk, &in);
    struct encoder_job job = { .in = &in, .want = want, .z = z, .shown = shown };
    assert_ok(text_encoder_do(&r->enc[0], &job, &err), err);
}

static const int32_t some[LEN] = { 3, 9, 27, 5, 40, 63, 1 };

static void names_and_places(void **state)
{
    (void)state;
    static const struct names kind[] = {
        { "", LM_HF },
        { "", LM_GGUF },
        { "", LM_NESTED },
        { "text_encoders.qwen3_4b.transformer.", LM_HF },
        { "text_encoders.qwen3_06b.transformer.", LM_HF },
    };
    static const struct encoder_class *const is[] = { &encoder_qwen3_4b, &encoder_qwen3_4b,
                                                      &encoder_qwen3_4b, &encoder_qwen3_4b,
                                                      &encoder_qwen3_06b };
    static float first[LEN * WIDTH], got[LEN * WIDTH];
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        struct clip_rig r;
        berth_err err = { 0 };
        open_as(&r, &tiny, &kind[i]);
        assert_true(r.n == 1 && r.found[0].is == is[i]);
        assert_string_equal(r.found[0].root, kind[i].root);
        assert_ok(text_encoder_check(&r.enc[0], &err), err);
        assert_int_equal(net_unused(r.enc[0].net, &(const char *) { NULL }), 0);
        encode(&r, some, LEN, (struct encoder_want) { 0 }, i ? got : first, NULL);
        if (i)
            assert_memory_equal(got, first, sizeof got);
        clip_rig_close(&r);
    }
}

/* ---- which one ---- */

static void by_their_size(void **state)
{
    (void)state;
    static const struct {
        const struct encoder_class *is;
        uint64_t width;
        int layers;
        bool qk_norm, bias, sandwich, sees;
    } row[] = {
        { &encoder_qwen3_4b, 2560, 1, true, false, false, false },
        { &encoder_qwen3_8b, 4096, 1, true, false, false, false },
        { &encoder_qwen3_06b, 1024, 1, true, false, false, false },
        { &encoder_qwen3_2b, 2048, 1, true, false, false, false },
        { &encoder_qwen25_7b, 3584, 1, false, true, false, false },
        { &encoder_qwen25_3b, 2048, 1, false, true, false, false },
        { &encoder_qwen3vl_4b, 2560, 1, true, false, false, true },
        { &encoder_qwen3vl_8b, 4096, 1, true, false, false, true },
        { &encoder_qwen35_08b, 1024, 4, true, false, false, false },
        { &encoder_qwen35_2b, 2048, 4, true, false, false, false },
        { &encoder_qwen35_4b, 2560, 4, true, false, false, false },
        { &encoder_qwen35_9b, 4096, 4, true, false, false, false },
        { &encoder_qwen35_27b, 5120, 4, true, false, false, false },
        { &encoder_gemma2_2b, 2304, 1, false, false, true, false },
        { &encoder_gemma3_4b, 2560, 34, true, false, true, false },
        { &encoder_gemma3_12b, 3840, 48, true, false, true, false },
        { &encoder_mistral3_24b, 5120, 1, false, false, false, false },
        { &encoder_ministral3_3b, 3072, 1, false, false, false, false },
        { &encoder_llama, 4096, 1, false, false, false, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct keys k = { 0 };
        struct text_found found[TEXT_ENCODERS_MAX];
        struct lm_config c = { .vocab = 256,
                               .width = row[i].width,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 128,
                               .mlp = 64,
                               .layers = row[i].layers,
                               .qk_norm = row[i].qk_norm,
                               .bias = row[i].bias,
                               .sandwich = row[i].sandwich };
        if (row[i].sees)
            c.eyes = small_eyes;
        if (strcmp(row[i].is->family, "Qwen3.5") == 0)
            c.memory = 4, c.memory_keys = 2, c.memory_dim = 16;
        keys_lm(&k, &c);
        struct weights *w = sparse_open(&k);
        assert_int_equal(text_find(w, NULL, found), 1);
        assert_string_equal(found[0].is->key, row[i].is->key);
        weights_close(w);
    }
}

static struct weights *with(const struct lm_config *c, const char *more, uint64_t d0, uint64_t d1)
{
    struct keys k = { 0 };
    keys_lm(&k, c);
    if (more)
        keys_tensor(&k, more, d0, d1, 0, 0);
    return sparse_open(&k);
}

/* Networks whose names are nearly these, and that are computed otherwise. */
static void others(void **state)
{
    (void)state;
    struct text_found found[TEXT_ENCODERS_MAX];
    struct weights *w = with(&tiny, "model.layers.0.layer_scalar", 1, 0); /* Gemma 4 */
    assert_int_equal(text_find(w, NULL, found), 0);
    weights_close(w);
    struct lm_config minimax = tiny; /* a part of Qwen3-VL 32B */
    minimax.width = 5120;
    minimax.eyes = small_eyes;
    w = with(&minimax, NULL, 0, 0);
    assert_int_equal(text_find(w, NULL, found), 0);
    weights_close(w);
}

static void refused(void **state)
{
    (void)state;
    berth_err err = { 0 };
    struct lm_net c;
    struct lm_config odd = tiny;
    odd.heads = 3; /* not a multiple of the heads of k */
    struct weights *w = with(&odd, NULL, 0, 0);
    assert_fails(encoder_qwen3_4b.configure(w, "", &c, &err), err, BERTH_EFORMAT,
                 "queries of 48 and keys of 32 are not heads of 16");
    weights_close(w);
    odd = tiny;
    odd.head_dim = 15;
    w = with(&odd, NULL, 0, 0);
    assert_fails(encoder_qwen3_4b.configure(w, "", &c, &err), err, BERTH_EFORMAT, "heads of 15");
    weights_close(w);
    odd = tiny;
    odd.eyes = (struct lm_eyes) { .blocks = 2, .width = 72, .mlp = 8, .patch = 14 };
    w = with(&odd, NULL, 0, 0);
    assert_fails(encoder_qwen25_7b.configure(w, "", &c, &err), err, BERTH_EFORMAT,
                 "a vision tower of width 72, 2 blocks, 0 depths and patches of 14");
    weights_close(w);
    odd = remembering;
    odd.layers = 3; /* none of which attends */
    w = with(&odd, NULL, 0, 0);
    assert_fails(encoder_qwen35_2b.configure(w, "", &c, &err), err, BERTH_EFORMAT,
                 "64 rows of which 32 are values, in heads of 8, a convolution over 4 tokens, "
                 "attention in layer 3 of 3");
    weights_close(w);
    odd = remembering;
    odd.memory_keys = 3; /* do not fit the heads of values */
    w = with(&odd, NULL, 0, 0);
    assert_fails(encoder_qwen35_2b.configure(w, "", &c, &err), err, BERTH_EFORMAT,
                 "80 rows of which 32 are values");
    weights_close(w);
    odd = remembering;
    odd.head_dim = 4; /* of which a quarter is turned, in pairs */
    w = with(&odd, NULL, 0, 0);
    assert_fails(encoder_qwen35_2b.configure(w, "", &c, &err), err, BERTH_EFORMAT, "heads of 4");
    weights_close(w);
    w = with(&tiny, NULL, 0, 0);
    assert_fails(encoder_qwen3_4b.configure(w, "elsewhere.", &c, &err), err, BERTH_ENOTFOUND,
                 "no language model at 'elsewhere.'");
    weights_close(w);
}

/* ---- what stays the same ---- */

/* A token sees nothing behind it: results of a prompt are those of a longer one that begins with
 * it, also where that is padded. */
/* One layer of a file is smaller than the first, which sizes are read from. */
static bool make_smaller(const void *user, const struct key *k, char *name, size_t n,
                         struct shape *s)
{
    snprintf(name, n, "%s", k->name);
    if (str_ends(k->name, strlen(k->name), user))
        s->dim[0] /= 2;
    return true;
}

static void memories_of_other_sizes(void **state)
{
    static const char *const name[] = { "dt_bias",          "A_log",
                                        "norm.weight",      "conv1d.weight",
                                        "in_proj_a.weight", "in_proj_b.weight",
                                        "in_proj_z.weight", "in_proj_qkv.weight" };
    static float z[LEN * WIDTH];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        char full[96];
        struct clip_rig r = { .n = 0 };
        struct keys k = { 0 };
        struct token t[LEN], *chunk;
        struct chunks in;
        berth_err err = { 0 };
        snprintf(full, sizeof full, "layers.1.linear_attn.%s", name[i]);
        keys_lm(&k, &remembering);
        net_rig_open(&r.g, "cpu=512m", keys_file_changed(&k, "lm", make_smaller, full), NULL, NULL);
        keys_release(&k);
        const struct weights *w = res_weights(r.g.m);
        assert_int_equal(text_find(w, NULL, r.found), 1);
        assert_ok(text_encoder_init(&r.enc[0], w, &r.found[0], &r.mem, &err), err);
        r.n = 1;
        chunk_of(some, LEN, t, &chunk, &in);
        struct encoder_job job = { .in = &in, .z = z };
        berth_status s = text_encoder_open(&r.enc[0], r.found[0].root, net_rig_args(&r.g), &err);
        if (!s)
            s = text_encoder_do(&r.enc[0], &job, &err);
        assert_fails(s, err, BERTH_EFORMAT, i < 4 ? "not as many numbers" : "makes");
        clip_rig_close(&r);
    }
}

static void longer_prompts(void **state)
{
    (void)state;
    static float short_z[4 * WIDTH], long_z[LEN * WIDTH], padded_z[LEN * WIDTH];
    static const int32_t padded[LEN] = { 3, 9, 27, 5, 0, 0, 0 };
    uint8_t shown[LEN];
    struct clip_rig r;
    open_as(&r, &tiny, &(struct names) { "", LM_HF });
    encode(&r, some, 4, (struct encoder_want) { 0 }, short_z, NULL);
    encode(&r, some, LEN, (struct encoder_want) { 0 }, long_z, NULL);
    encode(&r, padded, LEN, (struct encoder_want) { 0 }, padded_z, shown);
    assert_memory_equal(short_z, long_z, sizeof short_z);
    assert_memory_equal(short_z, padded_z, sizeof short_z);
    for (size_t i = 0; i < LEN; i++)
        assert_int_equal(shown[i], i < 4);
    clip_rig_close(&r);
}

/* Tap i is what leaves layer i - 1; the last one is the normed result. */
static void taps(void **state)
{
    (void)state;
    static float all[(LAYERS + 1) * LEN * WIDTH], one[LEN * WIDTH], two[2 * LEN * WIDTH];
    static const uint32_t list[] = { 1, LAYERS };
    const size_t n = LEN * WIDTH;
    struct clip_rig r;
    open_as(&r, &tiny, &(struct names) { "", LM_HF });
    encode(&r, some, LEN, (struct encoder_want) { .taps = TEXT_TAPS_ALL }, all, NULL);
    for (int layer = -LAYERS; layer < 0; layer++) {
        encode(&r, some, LEN, (struct encoder_want) { .layer = layer }, one, NULL);
        if (layer < -1)
            assert_memory_equal(one, all + (size_t)(LAYERS + 1 + layer) * n, sizeof one);
    }
    encode(&r, some, LEN, (struct encoder_want) { .layer = -1, .norm_hidden = true }, one, NULL);
    assert_memory_equal(one, all + LAYERS * n, sizeof one);
    encode(&r, some, LEN, (struct encoder_want) { .tap = list, .taps = 2 }, two, NULL);
    assert_memory_equal(two, all + n, n * sizeof *two);
    assert_memory_equal(two + n, all + LAYERS * n, n * sizeof *two);
    clip_rig_close(&r);
}

static void taps_beyond(void **state)
{
    (void)state;
    static const uint32_t list[] = { 1, LAYERS + 1 };
    static float z[2 * LEN * WIDTH];
    struct token t[LEN], *chunk;
    struct chunks in;
    berth_err err = { 0 };
    struct clip_rig r;
    open_as(&r, &tiny, &(struct names) { "", LM_HF });
    chunk_of(some, LEN, t, &chunk, &in);
    struct encoder_job job = { .in = &in, .want = { .tap = list, .taps = 2 }, .z = z };
    assert_fails(text_encoder_do(&r.enc[0], &job, &err), err, BERTH_EINVAL,
                 "layer 4 is wanted of one with 3 layers");
    clip_rig_close(&r);
}

/* Pads in front, a pad inside of text: it ends there. */
static void masks(void **state)
{
    (void)state;
    static const int32_t id[LEN] = { 0, 0, 9, 5, 0, 7, 0 };
    static const uint8_t want[LEN] = { 0, 0, 1, 1, 0, 0, 0 };
    static float z[LEN * WIDTH];
    uint8_t shown[LEN];
    struct clip_rig r;
    open_as(&r, &tiny, &(struct names) { "", LM_HF });
    encode(&r, id, LEN, (struct encoder_want) { 0 }, z, shown);
    assert_memory_equal(shown, want, sizeof want);
    clip_rig_close(&r);
}

static void cuts(void **state)
{
    (void)state;
    enum { START = 151644, USER = 872, LINE = 198 };
    static const struct {
        int32_t id[8];
        size_t n, first;
    } row[] = {
        { { START, 8948, LINE, START, USER, LINE, 64, 5 }, 8, 6 },
        { { START, USER, LINE, 64 }, 4, 3 },        /* the only turn */
        { { START, 8948, LINE, START, 64 }, 5, 3 }, /* no user */
        { { START, 1, START, 2, START, USER, LINE, 64 }, 8, 2 },
        { { 1, 2, 3 }, 3, 2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct token t[8];
        for (size_t k = 0; k < row[i].n; k++)
            t[k] = (struct token) { .id = row[i].id[k] };
        assert_int_equal(lm_cut_qwen(t, row[i].n), row[i].first);
    }
}

/* ---- want of memory ---- */

/* Looks at a picture, encodes a prompt with it, and writes three tokens. */
static berth_status everything(const struct clip_rig *r, float z[64 * WIDTH], struct vec *said,
                               berth_err *err)
{
    static float rgb[40 * 70 * 3];
    const struct text_picture p = { .rgb = rgb, .width = 70, .height = 40 };
    const struct text_encoder *e = &r->enc[0];
    const struct speech_how how = { .most = 3, .room = 1 }; /* room is taken, then more */
    struct arena mem = { 0 };
    struct token t[3] = { { .id = 3, .weight = 1 },
                          { .id = e->is->sight->token, .weight = 1 },
                          { .id = 5, .weight = 1 } };
    struct token *chunk = t;
    size_t len = 3;
    struct chunks in = { .chunk = &chunk, .len = &len, .n = 1 };
    struct encoder_job job = { .in = &in, .z = z };
    berth_status s = text_encoder_see(e, &p, 1, &in, &job, &mem, err);
    assert_true(len <= 64);
    if (!s)
        s = text_encoder_do(e, &job, err);
    if (!s)
        s = e->is->speech->speak(e, &job, &how, said, err);
    arena_release(&mem);
    return s;
}

static void failing_allocations_of(const struct lm_config *config)
{
    static float z[64 * WIDTH];
    struct clip_rig r;
    berth_err err = { 0 };
    berth_status s = BERTH_ENOMEM;
    open_as(&r, config, &(struct names) { "", LM_HF });
    for (long k = 0; s != BERTH_OK; k++) {
        assert_true(k < 5000);
        struct vec said = { .elem = sizeof(int32_t) };
        oom_once(k);
        s = everything(&r, z, &said, &err);
        oom_off();
        vec_release(&said);
        assert_true(s == BERTH_OK || s == BERTH_ENOMEM || s == BERTH_ENODEVMEM);
        if (!s && oom_seen() > k)
            s = BERTH_ENOMEM; /* whoever had none of it went on without */
    }
    clip_rig_close(&r);
}

static void failing_allocations(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct lm_config c = kinds(i);
        failing_allocations_of(&c);
    }
}

/* What is seen, encoded and written has the same bits wherever blocks lie, streamed ones too. */
static void every_placement_of(const struct lm_config *c)
{
    static const struct {
        const char *devices, *alloc;
    } place[] = {
        { "cpu=64m", "cpu,*" },
        { "cuda:0@cpu=32m,cuda:1@cpu=32m,cpu=64m", "cuda:0,20%;cuda:1,40%;cpu,40%#cuda:0" },
        { "cpu=64m,null:0=32m", "null:0,60%;cpu,40%#cpu" },
    };
    static float first[64 * WIDTH], z[64 * WIDTH];
    int32_t wrote[3] = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(place); i++) {
        struct clip_rig r;
        struct keys k = { 0 };
        struct vec said = { .elem = sizeof(int32_t) };
        berth_err err = { 0 };
        keys_lm(&k, c);
        clip_rig_open_on(&r, place[i].devices, keys_file(&k, "lm", DT_F16, "safetensors", NULL),
                         place[i].alloc, 0);
        keys_release(&k);
        assert_ok(everything(&r, i ? z : first, &said, &err), err);
        assert_int_equal(said.n, 3);
        if (i) {
            assert_memory_equal(z, first, sizeof z);
            assert_memory_equal(said.p, wrote, sizeof wrote);
        }
        memcpy(wrote, said.p, sizeof wrote);
        vec_release(&said);
        clip_rig_close(&r);
    }
}

static void every_placement(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct lm_config c = kinds(i);
        every_placement_of(&c);
    }
}

/* ---- room for what is written ---- */

struct talker {
    uint32_t said, most;
};

static berth_status enough(void *user, int32_t id, berth_err *err)
{
    struct talker *t = user;
    (void)id;
    return ++t->said < t->most ? BERTH_OK : err_set(err, BERTH_ECANCELED, "enough");
}

static berth_status say(const struct clip_rig *r, const struct speech_how *how, struct vec *said,
                        berth_err *err)
{
    static const int32_t id[] = { 3, 1, 4, 1, 5 };
    struct token t[ARRAY_LEN(id)], *chunk;
    struct chunks in;
    chunk_of(id, ARRAY_LEN(id), t, &chunk, &in);
    const struct encoder_job job = { .in = &in };
    return r->enc[0].is->speech->speak(&r->enc[0], &job, how, said, err);
}

/* The same text, however often memory was taken anew; wherever blocks lie. */
static void room_grows_of(const struct lm_config *c)
{
    static const char *const devices[] = { "cpu=64m", "cuda:0@cpu=32m,cpu=64m" };
    static const uint32_t room[] = { 0, 1, 3, 8, 40 };
    for (size_t d = 0; d < ARRAY_LEN(devices); d++) {
        struct vec first = { .elem = sizeof(int32_t) };
        struct clip_rig r;
        struct keys k = { 0 };
        keys_lm(&k, c);
        clip_rig_open_on(&r, devices[d], keys_file(&k, "lm", DT_F16, "safetensors", NULL),
                         d ? "cuda:0,*" : "cpu,*", 0);
        keys_release(&k);
        for (size_t i = 0; i < ARRAY_LEN(room); i++) {
            struct vec said = { .elem = sizeof(int32_t) };
            const struct speech_how how = { .most = 40,
                                            .room = room[i],
                                            .sample = true,
                                            .temperature = 1.5,
                                            .top_p = 1,
                                            .repetition = 1,
                                            .seed = 5 };
            berth_err err = { 0 };
            assert_ok(say(&r, &how, i ? &said : &first, &err), err);
            assert_true(first.n > 16);
            if (i) {
                assert_int_equal(said.n, first.n);
                assert_memory_equal(said.p, first.p, first.n * sizeof(int32_t));
            }
            vec_release(&said);
        }
        vec_release(&first);
        clip_rig_close(&r);
    }
}

static void room_grows(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct lm_config c = kinds(i);
        room_grows_of(&c);
    }
}

/* What was said is remembered: a prompt read at once goes on as one that was read in two. */
static void memory_goes_on(void **state)
{
    static float whole[LEN * WIDTH], part[LEN * WIDTH];
    const struct names as = { "", LM_HF };
    struct lm_config blind = remembering;
    struct clip_rig r;
    (void)state;
    blind.eyes = (struct lm_eyes) { .blocks = 0 };
    open_as(&r, &blind, &as);
    const struct lm_net *net = r.enc[0].config;
    assert_int_equal(lm_kept_pieces(net), 2); /* keys and values of the layer that attends */
    encode(&r, some, LEN, (struct encoder_want) { 0 }, whole, NULL);
    encode(&r, some, 4, (struct encoder_want) { 0 }, part, NULL);
    assert_memory_equal(whole, part, 4 * WIDTH * sizeof *part); /* nothing behind a token is seen */
    encode(&r, some + 1, LEN - 1, (struct encoder_want) { 0 }, part, NULL);
    assert_true(memcmp(whole + WIDTH, part, WIDTH * sizeof *part) != 0); /* what is before it is */
    const struct speech_how how = { .most = 12 };
    struct vec all = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    assert_ok(say(&r, &how, &all, &err), err);
    assert_true(all.n > 2);
    /* the same words, each from the prompt and all that was said so far, read anew */
    static const int32_t prompt[] = { 3, 1, 4, 1, 5 };
    int32_t id[32];
    size_t n = ARRAY_LEN(prompt);
    memcpy(id, prompt, sizeof prompt);
    for (size_t i = 0; i < all.n; i++) {
        struct vec one = { .elem = sizeof(int32_t) };
        const struct speech_how single = { .most = 1 };
        struct token t[32], *chunk;
        struct chunks in;
        chunk_of(id, n, t, &chunk, &in);
        const struct encoder_job job = { .in = &in };
        assert_ok(r.enc[0].is->speech->speak(&r.enc[0], &job, &single, &one, &err), err);
        id[n] = *(int32_t *)vec_at(&one, 0);
        assert_int_equal(id[n], *(int32_t *)vec_at(&all, i));
        n++;
        vec_release(&one);
    }
    vec_release(&all);
    clip_rig_close(&r);
}

/* A short text does not take the memory of the longest one, which there is not. */
static void room_for_some(void **state)
{
    (void)state;
    struct talker t = { .most = 3 };
    const struct speech_how how = { .most = 30000, .said = enough, .user = &t };
    struct vec said = { .elem = sizeof(int32_t) };
    struct clip_rig r;
    struct keys k = { 0 };
    berth_err err = { 0 };
    keys_lm(&k, &tiny);
    clip_rig_open_on(&r, "cpu=6m", keys_file(&k, "lm", DT_F16, "safetensors", NULL), NULL, 0);
    keys_release(&k);
    assert_true(lm_kept_pieces(r.enc[0].config) *
                    lm_kept_bytes(r.enc[0].config, how.most, sizeof(float)) >
                6 << 20);
    assert_fails(say(&r, &how, &said, &err), err, BERTH_ECANCELED, "enough");
    assert_int_equal(t.said, 3);
    vec_release(&said);
    clip_rig_close(&r);
}

/* ---- adapters ---- */

static bool has_name(const struct lora_names *n, const char *base, const char *key)
{
    for (size_t i = 0; i < n->n; i++)
        if (strcmp(n->at[i].base, base) == 0)
            return strcmp(n->at[i].key, key) == 0;
    return false;
}

static void adapters(void **state)
{
    (void)state;
    struct lora_table t = { 0 };
    berth_err err = { 0 };
    struct weights *w = with(&tiny, NULL, 0, 0);
    assert_ok(lora_names_file(&t, w, NULL, &err), err);
    struct lora_names n = lora_table_names(&t);
#define PATH "layers.1.self_attn.q_proj"
    static const char key[] = "qwen3_4b.transformer.model." PATH ".weight";
    assert_true(has_name(&n, "text_encoders.qwen3_4b.transformer.model." PATH, key));
    assert_true(has_name(&n, "text_encoders.transformer.model." PATH, key));
    assert_true(has_name(&n, "lora_te_layers_1_self_attn_q_proj", key));
    lora_table_release(&t);
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_places),
        cmocka_unit_test(by_their_size),
        cmocka_unit_test(others),
        cmocka_unit_test(refused),
        cmocka_unit_test(memories_of_other_sizes),
        cmocka_unit_test(longer_prompts),
        cmocka_unit_test(taps),
        cmocka_unit_test(taps_beyond),
        cmocka_unit_test(masks),
        cmocka_unit_test(cuts),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(every_placement),
        cmocka_unit_test(room_grows),
        cmocka_unit_test(memory_goes_on),
        cmocka_unit_test(room_for_some),
        cmocka_unit_test(adapters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
