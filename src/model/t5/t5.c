/* t5.c: the T5 encoder (text-encoders.md 7). */
#include "model/t5/t5.h"
#include "model/t5/presets.h"

#include "base/sz.h"
#include "model/lora_names.h"

#include <math.h>
#include <stdlib.h>

#define EPS 1e-6f
#define TOKENS_MAX 8192 /* of a prompt; a table of heads * tokens^2 floats is made */
#define MLP_ROWS 1024   /* of a feed-forward at a time: 2 * 10240 floats each in T5-XXL */

/* Up to seven tokens away: a bucket each. Then wider ones: thresholds of 8 + 8 ln(n/8) / ln(16),
 * rounded down in float32 as the reference does. The other half is for keys behind the query. */
int32_t t5_bucket(int64_t distance)
{
    static const int64_t from[] = { 8, 12, 16, 23, 32, 46, 64, 91 };
    int32_t bucket = distance > 0 ? T5_BUCKETS / 2 : 0;
    int64_t n = distance < 0 ? -distance : distance;
    if (n < 8)
        return bucket + (int32_t)n;
    bucket += 7;
    for (size_t i = 0; i < ARRAY_LEN(from) && n >= from[i]; i++)
        bucket++;
    return bucket;
}

/* [len], added to scores of keys: pads are hidden where the set says so. */
static void *prepare(const struct encoder_pass *p)
{
    float *hide = calloc(p->in.len, sizeof *hide);
    for (size_t i = 0; hide && p->shown && i < p->in.len; i++)
        hide[i] = p->shown[i] ? 0 : -INFINITY;
    return hide;
}

/* [1, heads, len, len], added to the scores: a row of the table for every pair of tokens. */
static struct act position_bias(struct net_run *r, const struct encoder_pass *p, const char *table)
{
    static const int heads_first[] = { 0, 3, 1, 2 };
    const struct t5_net *t = p->config;
    uint64_t len = p->in.len;
    struct shape s = { .ndim = 4, .dim = { 1, len, len, t->heads } };
    struct act rows = net_embedding(r, p->lookup, p->in.len * p->in.len, table);
    struct act mask = net_permute(r, net_reshape(r, rows, &s), heads_first);
    net_drop(r, &rows);
    if (p->shown && !p->is->drops_pads) { /* of one chunk */
        struct shape keys = { .ndim = 4, .dim = { 1, 1, 1, len } };
        struct act hide = net_input(r, &keys, p->own);
        net_add(r, &mask, hide);
        net_drop(r, &hide);
    }
    return mask;
}

/* Scores are not divided by the square root of the head's size: the weights know. */
static struct act attention(struct net_run *r, const struct t5_net *t, struct act h,
                            struct act mask)
{
    struct act q = net_linear_no_bias(r, h, "layer.0.SelfAttention.q");
    struct act k = net_linear_no_bias(r, h, "layer.0.SelfAttention.k");
    struct act v = net_linear_no_bias(r, h, "layer.0.SelfAttention.v");
    struct net_attn how = { .heads = t->heads, .scale = 1.0f, .mask = mask };
    struct act y = net_attention(r, q, k, v, how);
    net_drop(r, &q);
    net_drop(r, &k);
    net_drop(r, &v);
    return y;
}

/* n rows of a [.., row] from `at` on, in the same place. */
static struct act rows_of(const struct act *a, uint64_t at, uint64_t n)
{
    uint64_t row = a->shape.ndim ? a->shape.dim[a->shape.ndim - 1] : 0;
    struct act part = *a;
    part.shape = (struct shape) { .ndim = 2, .dim = { n, row } };
    part.addr += at * row * (a->dtype == DT_NONE ? 0 : dtype_desc(a->dtype)->bytes);
    return part;
}

/* x += wo(gelu_tanh(wi_0(h)) * wi_1(h)), some rows at a time: what lies between is wide. */
static void feed_forward(struct net_run *r, const struct encoder_pass *p, struct act h,
                         struct act x)
{
    uint64_t rows = (uint64_t)p->in.n * p->in.len;
    for (uint64_t at = 0; at < rows && !net_bad(r); at += MLP_ROWS) {
        uint64_t n = rows - at < MLP_ROWS ? rows - at : MLP_ROWS;
        struct act in = rows_of(&h, at, n), to = rows_of(&x, at, n);
        struct act gate = net_linear_no_bias(r, in, "layer.1.DenseReluDense.wi_0");
        net_unary(r, &gate, OP_GELU_TANH);
        struct act up = net_linear_no_bias(r, in, "layer.1.DenseReluDense.wi_1");
        net_mul(r, &gate, up);
        net_drop(r, &up);
        struct act y = net_linear_no_bias(r, gate, "layer.1.DenseReluDense.wo");
        net_drop(r, &gate);
        net_add(r, &to, y);
        net_drop(r, &y);
    }
}

static void block(struct net_run *r, const struct encoder_pass *p, uint32_t i, struct act x,
                  struct act *mask)
{
    const struct t5_net *t = p->config;
    size_t mark = net_enter(r, "encoder.block.%u.", i);
    if (i == 0 || t->own_bias) {
        net_drop(r, mask);
        *mask = position_bias(r, p, "layer.0.SelfAttention.relative_attention_bias");
    }
    struct act h = net_rms_norm(r, x, "layer.0.layer_norm", EPS);
    struct act y = attention(r, t, h, *mask);
    net_drop(r, &h);
    h = net_linear_no_bias(r, y, "layer.0.SelfAttention.o");
    net_drop(r, &y);
    net_add(r, &x, h);
    net_drop(r, &h);
    h = net_rms_norm(r, x, "layer.1.layer_norm", EPS);
    feed_forward(r, p, h, x);
    net_drop(r, &h);
    net_leave(r, mark);
}

static void forward(struct net_run *r, const struct encoder_pass *p)
{
    const struct t5_net *t = p->config;
    struct act x = slots_embed(r, &p->in, "shared"), mask = { .addr = 0 };
    for (uint32_t i = 0; i < t->layers && !net_bad(r); i++) {
        if (p->hidden >= 0 && i > p->hidden)
            break; /* nobody asks for what follows */
        block(r, p, i, x, &mask);
    }
    net_drop(r, &mask);
    struct act z = net_rms_norm(r, x, "encoder.final_layer_norm", EPS);
    net_drop(r, &x);
    net_finite(r, z, "T5");
    net_output(r, z, p->z);
    net_drop(r, &z);
}

/* [len, len] of query and key */
static int32_t *buckets(size_t len)
{
    size_t n;
    int32_t *bucket = sz_mul(len, len, &n) ? calloc(n, sizeof *bucket) : NULL;
    for (size_t i = 0; bucket && i < n; i++)
        bucket[i] = t5_bucket((int64_t)(i % len) - (int64_t)(i / len));
    return bucket;
}

static struct encoder_size size(const void *config)
{
    const struct t5_net *t = config;
    return (struct encoder_size) { .width = t->width,
                                   .vocab = t->vocab,
                                   .tokens = TOKENS_MAX,
                                   .layers = t->layers,
                                   /* the prompt and the empty one; without pads one at a time */
                                   .chunks = t->own_bias ? 1 : 2,
                                   .zero_nans = t->fp8 };
}

const struct encoder_class encoder_t5 = {
    .arch = { ENCODER_ARCH("t5", "T5 encoder"), .detect = t5_detect, .lora = t5_lora,
              .presets = t5_presets },
    .name = "T5",
    .key = "t5xxl",
    .family = "T5",
    .what = "a T5 text encoder",
    .te = LORA_TE2 | LORA_TE3, /* beside CLIP-L it is Flux's second, or the third */
    .te_beside = LORA_TE2 | LORA_TE3,
    .tokenizer = &tokenizer_t5,
    .config_bytes = sizeof(struct t5_net),
    .configure = t5_configure,
    .size = size,
    .names = t5_names,
    .lookup = buckets,
    .prepare = prepare,
    .takes_padding = true,
    .forward = forward,
};

const struct encoder_class encoder_umt5 = {
    .arch = { ENCODER_ARCH("umt5", "umT5 encoder"), .detect = umt5_detect, .lora = t5_lora,
              .presets = umt5_presets },
    .name = "umT5",
    .key = "umt5xxl",
    .family = "T5",
    .what = "a umT5 text encoder",
    .tokenizer = &tokenizer_umt5,
    .config_bytes = sizeof(struct t5_net),
    .configure = t5_configure,
    .size = size,
    .names = t5_names,
    .lookup = buckets,
    .takes_padding = true,
    .hides_pads = true,
    .drops_pads = true,
    .forward = forward,
};
