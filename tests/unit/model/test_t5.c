/* T5 against a plain computation in double, under every name and type its files have; the set of
 * Flux. */
#include "clip_files.h"
#include "support/oom.h"

#include "model/t5/t5.h"
#include "text/unigram.h"

#include <math.h>

/* A network in which nothing has the size of something else by accident. */
#define WIDTH 16
#define HEADS 3
#define INNER 24 /* 3 heads of 8 */
#define MLP 40
#define VOCAB 60
#define BLOCKS 3
#define LEN 110 /* so that the farthest bucket is reached */

/* ---- files ---- */

enum names { HUGGING, EMBED_TOKENS, LLAMA };
struct small_t5 {
    const char *root;
    enum names names;
    bool own_bias;
    enum dtype tokens, table; /* types of these; DT_NONE: F32 */
    enum dtype rest;          /* matrices; DT_NONE: F32 */
    bool gguf;                /* the file is */
    const char *without;      /* HF name of a tensor that is left out */
    const char *also;         /* one more tensor of this name, [2, 2] */
};
struct tensor {
    char name[160], from[96];
    struct shape shape;
    enum dtype dtype;
};
struct tensors {
    struct tensor at[80];
    size_t n;
};
static uint8_t spoilt; /* byte that begins row 5 of an fp8 table of tokens; 0: none */

static void rename_llama(const char *hf, char *out, size_t cap)
{
    static const char *const word[][2] = {
        { "shared.weight", "token_embd.weight" },
        { "encoder.final_layer_norm.weight", "enc.output_norm.weight" },
        { "layer.0.SelfAttention.q.weight", "attn_q.weight" },
        { "layer.0.SelfAttention.k.weight", "attn_k.weight" },
        { "layer.0.SelfAttention.v.weight", "attn_v.weight" },
        { "layer.0.SelfAttention.o.weight", "attn_o.weight" },
        { "layer.0.SelfAttention.relative_attention_bias.weight", "attn_rel_b.weight" },
        { "layer.0.layer_norm.weight", "attn_norm.weight" },
        { "layer.1.DenseReluDense.wi_0.weight", "ffn_gate.weight" },
        { "layer.1.DenseReluDense.wi_1.weight", "ffn_up.weight" },
        { "layer.1.DenseReluDense.wo.weight", "ffn_down.weight" },
        { "layer.1.layer_norm.weight", "ffn_norm.weight" },
    };
    int block, at = 0;
    for (size_t i = 0; i < ARRAY_LEN(word); i++)
        if (sscanf(hf, "encoder.block.%d.%n", &block, &at) == 1 && strcmp(hf + at, word[i][0]) == 0)
            snprintf(out, cap, "enc.blk.%d.%s", block, word[i][1]);
        else if (strcmp(hf, word[i][0]) == 0)
            snprintf(out, cap, "%s", word[i][1]);
}

static void add(struct tensors *t, const struct small_t5 *c, const char *hf, uint64_t rows,
                uint64_t columns, enum dtype type)
{
    struct tensor *to = &t->at[t->n];
    char name[96];
    if (c->without && strcmp(c->without, hf) == 0)
        return;
    assert_true(t->n < ARRAY_LEN(t->at));
    snprintf(name, sizeof name, "%s", hf);
    if (c->names == LLAMA)
        rename_llama(hf, name, sizeof name);
    else if (c->names == EMBED_TOKENS && strcmp(hf, "shared.weight") == 0)
        snprintf(name, sizeof name, "encoder.embed_tokens.weight");
    *to = (struct tensor) { .shape = { columns ? 2 : 1, { rows, columns } },
                            .dtype = type == DT_NONE ? DT_F32 : type };
    snprintf(to->name, sizeof to->name, "%s%s", c->root, name);
    snprintf(to->from, sizeof to->from, "%s", hf);
    t->n++;
}

static void add_block(struct tensors *t, const struct small_t5 *c, int i)
{
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } part[] = {
        { "layer.0.SelfAttention.q", INNER, WIDTH },
        { "layer.0.SelfAttention.k", INNER, WIDTH },
        { "layer.0.SelfAttention.v", INNER, WIDTH },
        { "layer.0.SelfAttention.o", WIDTH, INNER },
        { "layer.0.SelfAttention.relative_attention_bias", 32, HEADS },
        { "layer.0.layer_norm", WIDTH, 0 },
        { "layer.1.DenseReluDense.wi_0", MLP, WIDTH },
        { "layer.1.DenseReluDense.wi_1", MLP, WIDTH },
        { "layer.1.DenseReluDense.wo", WIDTH, MLP },
        { "layer.1.layer_norm", WIDTH, 0 },
    };
    for (size_t k = 0; k < ARRAY_LEN(part); k++) {
        char name[96];
        bool table = k == 4;
        if (table && i && !c->own_bias)
            continue;
        snprintf(name, sizeof name, "encoder.block.%d.%s.weight", i, part[k].name);
        add(t, c, name, part[k].rows, part[k].columns,
            table             ? c->table
            : part[k].columns ? c->rest
                              : DT_F32);
    }
}

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    const struct tensor *t = &((const struct tensors *)user)->at[i];
    const struct dtype_desc *d = dtype_desc(t->dtype);
    float v[VOCAB * WIDTH];
    size_t count = n / d->bytes * d->elems;
    (void)err;
    assert_true(count <= ARRAY_LEN(v));
    synth_fill(t->from, strlen(t->from), &t->shape, off / d->bytes * d->elems, count, v);
    d->from_f32(v, dst, count);
    if (spoilt && d->bytes == 1 && strcmp(t->from, "shared.weight") == 0)
        ((uint8_t *)dst)[5 * WIDTH] = spoilt == 1 ? 0 : spoilt;
    return BERTH_OK;
}

static const char *t5_file(const char *name, const struct small_t5 *c)
{
    static struct tensors t;
    struct weights_spec spec[ARRAY_LEN(t.at)];
    char file[96];
    berth_err err = { 0 };
    t.n = 0;
    add(&t, c, "shared.weight", VOCAB, WIDTH, c->tokens);
    for (int i = 0; i < BLOCKS; i++)
        add_block(&t, c, i);
    add(&t, c, "encoder.final_layer_norm.weight", WIDTH, 0, DT_F32);
    if (c->also)
        add(&t, &(struct small_t5) { .root = c->root }, c->also, 2, 2, DT_F32);
    for (size_t i = 0; i < t.n; i++)
        spec[i] = (struct weights_spec) { t.at[i].name, t.at[i].dtype, t.at[i].shape };
    const char *format = c->gguf ? "gguf" : "safetensors";
    snprintf(file, sizeof file, "%s.%s", name, format);
    const char *path = tmp_path(file);
    struct weights_write_args a = {
        .format = format, .path = path, .spec = spec, .count = t.n, .fill = fill, .user = &t
    };
    assert_ok(weights_write(&a, &err), err);
    return path;
}

/* ---- a plain computation ---- */

static enum dtype stored = DT_F32; /* type of matrices in the file that is computed */

/* block -1: the name is whole. */
static double *values(const char *tail, int block, uint64_t rows, uint64_t columns)
{
    char name[96];
    struct shape s = { columns ? 2 : 1, { rows, columns } };
    uint64_t n = rows * (columns ? columns : 1);
    float *f = malloc(n * sizeof *f);
    double *d = malloc(n * sizeof *d);
    assert_true(f && d);
    if (block < 0)
        snprintf(name, sizeof name, "%s", tail);
    else
        snprintf(name, sizeof name, "encoder.block.%d.layer.%s", block, tail);
    synth_fill(name, strlen(name), &s, 0, n, f);
    if (columns && stored != DT_F32) {
        void *bytes = malloc(n * sizeof *f);
        assert_non_null(bytes);
        dtype_desc(stored)->from_f32(f, bytes, n);
        dtype_desc(stored)->to_f32(bytes, f, n);
        free(bytes);
    }
    for (uint64_t i = 0; i < n; i++)
        d[i] = (double)f[i];
    free(f);
    return d;
}

/* y[T, N] (+)= x[T, K] . w[N, K]^T */
static void product(double *y, const double *x, const char *name, int block, size_t K, size_t N,
                    bool add_to)
{
    double *w = values(name, block, N, K);
    for (size_t t = 0; t < LEN; t++)
        for (size_t n = 0; n < N; n++) {
            double sum = 0;
            for (size_t k = 0; k < K; k++)
                sum += x[t * K + k] * w[n * K + k];
            y[t * N + n] = (add_to ? y[t * N + n] : 0) + sum;
        }
    free(w);
}

static void norm(double *y, const double *x, const char *name, int block)
{
    double *w = values(name, block, WIDTH, 0);
    for (size_t t = 0; t < LEN; t++) {
        double sum = 0;
        for (size_t k = 0; k < WIDTH; k++)
            sum += x[t * WIDTH + k] * x[t * WIDTH + k];
        for (size_t k = 0; k < WIDTH; k++)
            y[t * WIDTH + k] = w[k] * x[t * WIDTH + k] / sqrt(sum / WIDTH + 1e-6);
    }
    free(w);
}

/* The formula of the reference, in float32 where it is. */
static int bucket(int distance)
{
    int b = distance > 0 ? 16 : 0, n = abs(distance);
    if (n < 8)
        return b + n;
    int far = 8 + (int)(logf((float)n / 8) / (float)log(16) * 8);
    return b + (far < 15 ? far : 15);
}

static void attend(double *y, const double *q, const double *k, const double *v,
                   const double *table)
{
    const size_t D = INNER / HEADS;
    for (size_t h = 0; h < HEADS; h++)
        for (size_t i = 0; i < LEN; i++) {
            double s[LEN], most = -INFINITY, sum = 0;
            for (size_t j = 0; j < LEN; j++) {
                s[j] = table[bucket((int)j - (int)i) * HEADS + (int)h];
                for (size_t d = 0; d < D; d++)
                    s[j] += q[i * INNER + h * D + d] * k[j * INNER + h * D + d];
                most = s[j] > most ? s[j] : most;
            }
            for (size_t j = 0; j < LEN; j++)
                sum += s[j] = exp(s[j] - most);
            for (size_t d = 0; d < D; d++) {
                y[i * INNER + h * D + d] = 0;
                for (size_t j = 0; j < LEN; j++)
                    y[i * INNER + h * D + d] += s[j] / sum * v[j * INNER + h * D + d];
            }
        }
}

static void plain_block(double *x, int i, const double *table)
{
    static double h[LEN * WIDTH], q[LEN * INNER], k[LEN * INNER], v[LEN * INNER], y[LEN * INNER],
        a[LEN * MLP], b[LEN * MLP];
    norm(h, x, "0.layer_norm.weight", i);
    product(q, h, "0.SelfAttention.q.weight", i, WIDTH, INNER, false);
    product(k, h, "0.SelfAttention.k.weight", i, WIDTH, INNER, false);
    product(v, h, "0.SelfAttention.v.weight", i, WIDTH, INNER, false);
    attend(y, q, k, v, table);
    product(x, y, "0.SelfAttention.o.weight", i, INNER, WIDTH, true);
    norm(h, x, "1.layer_norm.weight", i);
    product(a, h, "1.DenseReluDense.wi_0.weight", i, WIDTH, MLP, false);
    product(b, h, "1.DenseReluDense.wi_1.weight", i, WIDTH, MLP, false);
    for (size_t e = 0; e < LEN * MLP; e++) {
        double g = a[e];
        a[e] = 0.5 * g * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) * b[e];
    }
    product(x, a, "1.DenseReluDense.wo.weight", i, MLP, WIDTH, true);
}

static void plain(const int32_t *id, int blocks, bool own_bias, float *out)
{
    static double x[LEN * WIDTH], z[LEN * WIDTH];
    double *tokens = values("shared.weight", -1, VOCAB, WIDTH);
    for (size_t t = 0; t < LEN; t++)
        memcpy(x + t * WIDTH, tokens + id[t] * WIDTH, WIDTH * sizeof *x);
    for (int i = 0; i < blocks; i++) {
        double *table =
            values("0.SelfAttention.relative_attention_bias.weight", own_bias ? i : 0, 32, HEADS);
        plain_block(x, i, table);
        free(table);
    }
    norm(z, x, "encoder.final_layer_norm.weight", -1);
    for (size_t i = 0; i < LEN * WIDTH; i++)
        out[i] = (float)z[i];
    free(tokens);
}

/* ---- the same through text_encoder_run() ---- */

struct chunk {
    struct token slot[2][LEN];
    struct token *at[2];
    size_t len[2];
    struct chunks in;
};

static void chunk_init(struct chunk *c, size_t n)
{
    *c = (struct chunk) { .len = { LEN, LEN } };
    for (size_t i = 0; i < 2; i++) {
        c->at[i] = c->slot[i];
        for (size_t k = 0; k < LEN; k++)
            c->slot[i][k] =
                (struct token) { .id = (int32_t)(1 + (7 * k + 11 * i) % (VOCAB - 1)), .weight = 1 };
    }
    c->in = (struct chunks) {
        .chunk = c->at, .len = c->len, .n = n, .rules = { .start = -1, .end = 1, .pad = 0 }
    };
}

static void ids_of(const struct chunk *c, size_t i, int32_t *id)
{
    for (size_t k = 0; k < LEN; k++)
        id[k] = c->slot[i][k].id;
}

static void encode(const struct clip_rig *r, const struct chunks *in, int layer, float *z)
{
    berth_err err = { 0 };
    assert_ok(text_encoder_run(&r->enc[0], in, &(struct encoder_want) { .layer = layer }, z, NULL,
                               NULL, &err),
              err);
}

static void buckets(void **state)
{
    (void)state;
    for (int d = -1000; d <= 1000; d++)
        assert_int_equal(t5_bucket(d), bucket(d));
    assert_int_equal(t5_bucket(INT32_MAX), 31);
    assert_int_equal(t5_bucket(-(int64_t)INT32_MAX), 15);
}

static void against_plain(void **state)
{
    (void)state;
    static float want[LEN * WIDTH], got[2 * LEN * WIDTH];
    struct chunk c;
    int32_t id[LEN];
    chunk_init(&c, 2);
    for (int own = 0; own < 2; own++) {
        struct clip_rig r;
        berth_err err = { 0 };
        clip_rig_open(&r, t5_file("plain", &(struct small_t5) { .root = "", .own_bias = own }),
                      NULL, 0);
        const struct t5_net *t = t5_of(&r.enc[0]);
        assert_true(t->width == WIDTH && t->inner == INNER && t->heads == HEADS && t->mlp == MLP);
        assert_ptr_equal(r.enc[0].is, own ? &encoder_umt5 : &encoder_t5);
        assert_true(t->vocab == VOCAB && t->layers == BLOCKS && t->own_bias == own && !t->gguf);
        assert_ok(text_encoder_check(&r.enc[0], &err), err);
        assert_int_equal(net_unused(r.enc[0].net, &(const char *) { NULL }), 0);
        for (int skip = 0; skip >= -BLOCKS - 1; skip--) {
            int blocks = skip && -skip <= BLOCKS ? BLOCKS + 1 + skip : BLOCKS;
            encode(&r, &c.in, skip, got);
            for (size_t i = 0; i < 2; i++) {
                ids_of(&c, i, id);
                plain(id, blocks, own, want);
                assert_near(own ? "own tables" : "one table", got + i * LEN * WIDTH, want,
                            LEN * WIDTH, 1e-5);
            }
        }
        clip_rig_close(&r);
    }
}

static void names_and_places(void **state)
{
    (void)state;
    static const struct small_t5 kind[] = {
        { .root = "" },
        { .root = "", .names = EMBED_TOKENS },
        { .root = "", .names = LLAMA },
        { .root = "text_encoders.t5xxl.transformer." },
        { .root = "transformer." },
        { .root = "", .also = "spiece_model" },
        { .root = "", .own_bias = true },
        { .root = "", .own_bias = true, .names = LLAMA },
        { .root = "text_encoders.umt5xxl.transformer.", .own_bias = true },
    };
    static float first[LEN * WIDTH], got[LEN * WIDTH];
    struct chunk c;
    chunk_init(&c, 1);
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        struct clip_rig r;
        berth_err err = { 0 };
        clip_rig_open(&r, t5_file("names", &kind[i]), NULL, 0);
        assert_int_equal(r.n, 1);
        assert_ptr_equal(r.found[0].is, kind[i].own_bias ? &encoder_umt5 : &encoder_t5);
        assert_string_equal(r.found[0].root, kind[i].root);
        assert_ok(text_encoder_check(&r.enc[0], &err), err);
        assert_int_equal(net_unused(r.enc[0].net, &(const char *) { NULL }), 0);
        bool begins = !i || kind[i].own_bias != kind[i - 1].own_bias;
        encode(&r, &c.in, 0, begins ? first : got);
        if (!begins)
            assert_memory_equal(got, first, sizeof got);
        clip_rig_close(&r);
    }
}

/* What umT5 makes of a prompt does not depend on how far it is padded. */
static void umt5_leaves_pads_out(void **state)
{
    (void)state;
    enum { TEXT = 9 };
    static float want[LEN * WIDTH], got[LEN * WIDTH], zero[LEN * WIDTH];
    struct clip_rig r;
    struct chunk c;
    chunk_init(&c, 1);
    clip_rig_open(&r, t5_file("pads", &(struct small_t5) { .root = "", .own_bias = true }), NULL,
                  0);
    for (size_t k = TEXT; k < LEN; k++)
        c.slot[0][k].id = 0;
    c.len[0] = TEXT;
    encode(&r, &c.in, 0, want);
    c.len[0] = LEN;
    memset(got, 0xff, sizeof got);
    encode(&r, &c.in, 0, got);
    assert_memory_equal(got, want, TEXT * WIDTH * sizeof *got);
    assert_memory_equal(got + TEXT * WIDTH, zero, (LEN - TEXT) * WIDTH * sizeof *got);
    for (size_t k = 0; k < TEXT; k++) /* nothing but pads: one of them is computed, none is seen */
        c.slot[0][k].id = 0;
    encode(&r, &c.in, 0, got);
    assert_memory_equal(got + WIDTH, zero, (LEN - 1) * WIDTH * sizeof *got);
    clip_rig_close(&r);
}

static void stored_types(void **state)
{
    (void)state;
    static const enum dtype type[] = { DT_F16, DT_BF16, DT_F8_E4M3, DT_F8_E5M2, DT_Q8_0 };
    static float want[LEN * WIDTH], got[LEN * WIDTH];
    struct chunk c;
    int32_t id[LEN];
    chunk_init(&c, 1);
    ids_of(&c, 0, id);
    for (size_t i = 0; i < ARRAY_LEN(type); i++) {
        struct clip_rig r;
        struct small_t5 k = { .root = "", .tokens = type[i], .table = type[i], .rest = type[i] };
        if (i >= 4) { /* as llama.cpp writes them; rows are no whole blocks here */
            k.names = LLAMA;
            k.gguf = true;
        }
        stored = type[i];
        plain(id, BLOCKS, false, want);
        stored = DT_F32;
        clip_rig_open(&r, t5_file("types", &k), NULL, 0);
        assert_int_equal(t5_of(&r.enc[0])->fp8, i == 2 || i == 3);
        encode(&r, &c.in, 0, got);
        assert_near(dtype_name(type[i]), got, want, LEN * WIDTH, 1e-5);
        clip_rig_close(&r);
    }
}

/* NaN in a table of fp8 counts as 0, in one of another type it is an error. */
static void nan_in_the_table(void **state)
{
    (void)state;
    static float zero[LEN * WIDTH], nan[LEN * WIDTH];
    struct chunk c;
    struct clip_rig r;
    chunk_init(&c, 1);
    c.slot[0][3].id = 5;
    for (int i = 0; i < 2; i++) {
        spoilt = i ? 0x7f : 1; /* NaN; 0 */
        struct small_t5 k = { .root = "", .tokens = DT_F8_E4M3 };
        clip_rig_open(&r, t5_file("nan", &k), NULL, 0);
        encode(&r, &c.in, 0, i ? nan : zero);
        clip_rig_close(&r);
    }
    spoilt = 0;
    assert_memory_equal(zero, nan, sizeof nan);
}

static void vectors(void **state)
{
    (void)state;
    static float table[VOCAB * WIDTH], want[LEN * WIDTH], got[LEN * WIDTH];
    struct chunk c;
    struct clip_rig r;
    berth_err err = { 0 };
    size_t dropped = 0;
    struct shape s = { 2, { VOCAB, WIDTH } };
    synth_fill("shared.weight", strlen("shared.weight"), &s, 0, VOCAB * WIDTH, table);
    chunk_init(&c, 1);
    clip_rig_open(&r, t5_file("vectors", &(struct small_t5) { .root = "" }), NULL, 0);
    encode(&r, &c.in, 0, want);
    for (size_t k = 0; k < 60; k++) { /* as many as files have, side by side */
        struct token *t = &c.slot[0][k + 2];
        *t = (struct token) {
            .id = -1, .weight = 1, .vector = table + (size_t)t->id * WIDTH, .width = WIDTH
        };
    }
    encode(&r, &c.in, 0, got);
    assert_memory_equal(got, want, sizeof got);
    chunk_init(&c, 1);
    memmove(&c.slot[0][4], &c.slot[0][5], (LEN - 5) * sizeof(struct token));
    c.slot[0][LEN - 1].id = 0; /* a pad instead of the one that is gone */
    encode(&r, &c.in, 0, want);
    chunk_init(&c, 1);
    c.slot[0][4] = (struct token) { .id = -1, .weight = 1, .vector = table, .width = WIDTH + 1 };
    assert_ok(text_encoder_run(&r.enc[0], &c.in, &(struct encoder_want) { .layer = 0 }, got, NULL,
                               &dropped, &err),
              err);
    assert_int_equal(dropped, 1);
    assert_memory_equal(got, want, sizeof got);
    clip_rig_close(&r);
}

static void refused(void **state)
{
    (void)state;
    static float z[LEN * WIDTH];
    struct chunk c;
    struct clip_rig r;
    berth_err err = { 0 };
    chunk_init(&c, 1);
    clip_rig_open(&r, t5_file("refused", &(struct small_t5) { .root = "" }), NULL, 0);
    struct text_encoder *e = &r.enc[0];
    c.slot[0][3].id = VOCAB;
    assert_fails(
        text_encoder_run(e, &c.in, &(struct encoder_want) { .layer = 0 }, z, NULL, NULL, &err), err,
        BERTH_EINVAL, "token 60");
    c.len[0] = 10000;
    assert_fails(
        text_encoder_run(e, &c.in, &(struct encoder_want) { .layer = 0 }, z, NULL, NULL, &err), err,
        BERTH_ELIMIT, "10000 tokens, more than 8192");
    clip_rig_close(&r);
}

/* Every tensor but the duplicate of the table is needed: without it the file is refused, by
 * detection or by the dry run. */
static void no_tensor_may_be_missing(void **state)
{
    (void)state;
    static const char *const one[] = {
        "shared.weight",
        "encoder.final_layer_norm.weight",
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "encoder.block.0.layer.1.DenseReluDense.wi_0.weight",
        "encoder.block.1.layer.0.SelfAttention.q.weight",
        "encoder.block.1.layer.0.layer_norm.weight",
        "encoder.block.2.layer.1.DenseReluDense.wo.weight",
        "encoder.block.2.layer.1.layer_norm.weight",
    };
    for (size_t i = 0; i < ARRAY_LEN(one); i++) {
        struct net_rig g;
        struct t5_net t;
        struct text_encoder e = { .is = &encoder_t5, .config = &t };
        berth_err err = { 0 };
        struct small_t5 c = { .root = "", .without = one[i] };
        net_rig_open(&g, "cpu=64m", t5_file("less", &c), NULL, NULL);
        berth_status s = t5_configure(res_weights(g.m), "", &t, &err);
        if (!s)
            s = text_encoder_open(&e, "", net_rig_args(&g), &err);
        if (!s)
            fail_msg("without '%s' it runs", one[i]);
        net_close(e.net);
        net_rig_close(&g);
    }
}

static void other_files(void **state)
{
    (void)state;
    struct small_t5 c = { .root = "",
                          .without = "encoder.block.0.layer.1.DenseReluDense.wi_0.weight",
                          .also = "encoder.block.0.layer.1.DenseReluDense.wi.weight" };
    struct weights *w;
    struct t5_net t;
    struct text_found found[TEXT_ENCODERS_MAX];
    berth_err err = { 0 };
    assert_ok(weights_open(t5_file("other", &c), NULL, &w, &err), err);
    assert_fails(t5_configure(w, "", &t, &err), err, BERTH_EUNSUPPORTED, "not gated");
    assert_fails(t5_configure(w, "x.", &t, &err), err, BERTH_ENOTFOUND, "'x.'");
    assert_int_equal(text_find(w, "x.", found), 0);
    weights_close(w);
}

/* ---- the set of Flux ---- */

struct bench {
    struct clip_rig t5, clip;
    struct text_encoder enc[2];
    struct bpe *bpe;
    struct unigram *unigram;
    struct arena mem;
    struct text_args args;
};
/* ids: 0 <pad>  1 </s>  2 <unk>  3 _  4 a  5 c  6 t  7 _cat  8 _dog */
static const char tokenizer[] =
    "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"},\"model\":{\"type\":"
    "\"Unigram\",\"unk_id\":2,\"vocab\":[[\"<pad>\",0],[\"</s>\",0],[\"<unk>\",0],[\"\\u2581\",-2],"
    "[\"a\",-2],[\"c\",-3],[\"t\",-3],[\"\\u2581cat\",-4],[\"\\u2581dog\",-4]]}}";

static void bench_open(struct bench *b)
{
    static const struct small l[] = { { "", HF, 2, 0, 32 } };
    berth_err err = { 0 };
    *b = (struct bench) { .bpe = tiny_bpe() };
    clip_rig_open(&b->t5, t5_file("t5", &(struct small_t5) { .root = "" }), NULL, 0);
    clip_rig_open(&b->clip, clip_file("clip_l", l, 1, NULL, 0), NULL, 2);
    tmp_write("tokenizer.json", tokenizer, sizeof tokenizer - 1);
    assert_ok(unigram_open(tmp_path("tokenizer.json"), &b->unigram, &err), err);
    clip_rig_tokenizer(&b->clip, b->bpe);
    b->enc[0] = b->clip.enc[0];
    b->enc[1] = b->t5.enc[0];
    b->enc[1].tok = b->unigram;
    b->args = (struct text_args) { .set = &text_set_flux, .enc = b->enc, .encoders = 2 };
}

static void bench_close(struct bench *b)
{
    clip_rig_close(&b->t5);
    clip_rig_close(&b->clip);
    bpe_close(b->bpe);
    unigram_close(b->unigram);
    arena_release(&b->mem);
}

static struct text_cond run(struct bench *b, const char *text, const char *text_l)
{
    struct text_cond out;
    berth_err err = { 0 };
    assert_ok(encode_texts(&b->args, text, text_l, &b->mem, &out, &err), err);
    return out;
}

#define FLUX_LEN 256

/* What T5 itself gives for ids, with end and pads behind them. */
static float *direct(struct bench *b, const int32_t *id, size_t n, size_t len, int layer)
{
    struct token *t = arena_array(&b->mem, len, sizeof *t);
    float *z = arena_array(&b->mem, len * WIDTH, sizeof *z);
    berth_err err = { 0 };
    assert_true(t && z);
    for (size_t i = 0; i < len; i++)
        t[i] = (struct token) { .id = i < n ? id[i] : i == n, .weight = 1 };
    struct chunks in = { .chunk = &t, .len = &len, .n = 1 };
    assert_ok(text_encoder_run(&b->enc[1], &in, &(struct encoder_want) { .layer = layer }, z, NULL,
                               NULL, &err),
              err);
    return z;
}

static void flux_set(void **state)
{
    (void)state;
    struct bench b;
    static const int32_t cat[] = { 7 }, two[] = { 7, 8 };
    bench_open(&b);
    struct text_cond got = run(&b, "cat", NULL), other = run(&b, "cat", "dog");
    assert_true(got.tokens == FLUX_LEN && got.width == WIDTH && got.pooled_n == 32);
    assert_memory_equal(got.cond, direct(&b, cat, 1, FLUX_LEN, 0),
                        FLUX_LEN * WIDTH * sizeof(float));
    assert_memory_equal(got.cond, other.cond, FLUX_LEN * WIDTH * sizeof(float));
    assert_memory_not_equal(got.pooled, other.pooled, 32 * sizeof(float));
    struct text_args sd1 = b.args;
    struct text_cond alone;
    berth_err err = { 0 };
    sd1.set = &text_set_sd1;
    assert_ok(encode_texts(&sd1, "dog", NULL, &b.mem, &alone, &err), err);
    assert_memory_equal(alone.pooled, other.pooled, 32 * sizeof(float));
    b.args.skip = -2;
    got = run(&b, "cat dog", NULL);
    assert_memory_equal(got.cond, direct(&b, two, 2, FLUX_LEN, -2),
                        FLUX_LEN * WIDTH * sizeof(float));
    bench_close(&b);
}

/* The weight of a token pulls its row away from what the empty prompt has there. */
static void flux_weights(void **state)
{
    (void)state;
    struct bench b;
    static const int32_t id[] = { 7, 3, 8 }; /* the first part ends with a blank */
    bench_open(&b);
    struct text_cond got = run(&b, "cat (dog:1.5)", NULL);
    const float *z = direct(&b, id, 3, FLUX_LEN, 0), *e = direct(&b, NULL, 0, FLUX_LEN, 0);
    for (size_t i = 0; i < FLUX_LEN; i++)
        for (size_t k = i * WIDTH; k < (i + 1) * WIDTH; k++)
            assert_true(got.cond[k] == (i == 2 ? (z[k] - e[k]) * 1.5f + e[k] : z[k]));
    bench_close(&b);
}

/* T5's prompts are not cut; nor is its list of chunks filled up to the length of CLIP's. */
static void flux_long(void **state)
{
    (void)state;
    struct bench b;
    struct str text = { 0 };
    int32_t id[300];
    bench_open(&b);
    for (size_t i = 0; i < ARRAY_LEN(id); i++) {
        str_adds(&text, i % 3 ? " cat" : " dog");
        id[i] = i % 3 ? 7 : 8;
    }
    struct text_cond got = run(&b, text.p, NULL), l = run(&b, "cat", text.p);
    assert_int_equal(got.tokens, 301);
    assert_memory_equal(got.cond, direct(&b, id, 300, 301, 0), 301 * WIDTH * sizeof(float));
    assert_int_equal(l.tokens, FLUX_LEN);
    str_release(&text);
    bench_close(&b);
}

static berth_status find_vectors(void *user, const char *name, size_t n, const char *key,
                                 struct arena *mem, const float **v, uint32_t *count,
                                 uint32_t *width, berth_err *err)
{
    (void)name, (void)n, (void)mem;
    if (strcmp(key, "t5xxl") != 0)
        return err_set(err, BERTH_ENOTFOUND, "not for %s", key);
    *v = user;
    *count = 1;
    *width = WIDTH;
    return BERTH_OK;
}

static void flux_embeddings(void **state)
{
    (void)state;
    struct bench b;
    float row[WIDTH];
    struct shape s = { 2, { VOCAB, WIDTH } };
    struct log log = { 0 };
    struct text_embeddings emb = { .find = find_vectors, .user = row, .log = &log };
    static const int32_t same[] = { 7, 3, 40, 8 }; /* the blank in front of it stays */
    synth_fill("shared.weight", strlen("shared.weight"), &s, 40 * WIDTH, WIDTH, row);
    bench_open(&b);
    b.args.emb = &emb;
    struct text_cond got = run(&b, "cat embedding:x dog", NULL);
    assert_memory_equal(got.cond, direct(&b, same, 4, FLUX_LEN, 0),
                        FLUX_LEN * WIDTH * sizeof(float));
    bench_close(&b);
}

static void flux_refused(void **state)
{
    (void)state;
    struct bench b;
    struct text_cond out;
    berth_err err = { 0 };
    bench_open(&b);
    b.args.encoders = 1; /* CLIP-L */
    assert_fails(encode_texts(&b.args, "a", NULL, &b.mem, &out, &err), err, BERTH_EINVAL,
                 "Flux needs T5");
    b.args.enc = &b.enc[1];
    assert_fails(encode_texts(&b.args, "a", NULL, &b.mem, &out, &err), err, BERTH_EINVAL,
                 "Flux needs CLIP-L");
    b.args.enc = b.enc;
    b.args.encoders = 2;
    b.enc[1].tok = NULL;
    assert_fails(encode_texts(&b.args, "a", NULL, &b.mem, &out, &err), err, BERTH_EINVAL,
                 "no tokenizer for T5");
    b.enc[1].tok = b.unigram;
    b.enc[0].tok = NULL;
    assert_fails(encode_texts(&b.args, "a", NULL, &b.mem, &out, &err), err, BERTH_EINVAL,
                 "no tokenizer for CLIP-L");
    b.enc[0].tok = b.bpe;
    bench_close(&b);
}

static void flux_survives_oom(void **state)
{
    (void)state;
    struct bench b;
    berth_status s = BERTH_ENOMEM;
    bench_open(&b);
    struct text_cond want = run(&b, "cat (dog:2)", NULL), got = { 0 };
    for (long k = 0; s != BERTH_OK; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = encode_texts(&b.args, "cat (dog:2)", NULL, &b.mem, &got, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
    }
    assert_memory_equal(got.cond, want.cond, FLUX_LEN * WIDTH * sizeof(float));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets),           cmocka_unit_test(against_plain),
        cmocka_unit_test(names_and_places),
        cmocka_unit_test(umt5_leaves_pads_out),  cmocka_unit_test(stored_types),
        cmocka_unit_test(nan_in_the_table),  cmocka_unit_test(vectors),
        cmocka_unit_test(refused),           cmocka_unit_test(no_tensor_may_be_missing),
        cmocka_unit_test(other_files),       cmocka_unit_test(flux_set),
        cmocka_unit_test(flux_weights),      cmocka_unit_test(flux_long),
        cmocka_unit_test(flux_embeddings),   cmocka_unit_test(flux_refused),
        cmocka_unit_test(flux_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
