/* names.c: T5's tensors by their HF names, whatever the file calls them, and what its shapes say
 * (text-encoders.md 7). */
#include "model/t5/t5.h"

#include "model/canonical.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WIDTH_MAX 65536
#define VOCAB_MAX (1u << 24)

#define BLOCK "encoder.block"
#define BLOCK_GGUF "enc.blk"
#define NUMBER_MAX 1000000000 /* of blocks */
#define TOKENS "shared.weight"

/* HF's names and llama.cpp's; behind the number of a block, and of all else. */
static const char *const in_block[][2] = {
    { "layer.0.SelfAttention.q.", "attn_q." },
    { "layer.0.SelfAttention.k.", "attn_k." },
    { "layer.0.SelfAttention.v.", "attn_v." },
    { "layer.0.SelfAttention.o.", "attn_o." },
    { "layer.0.SelfAttention.relative_attention_bias.", "attn_rel_b." },
    { "layer.0.layer_norm.", "attn_norm." },
    { "layer.1.DenseReluDense.wi_0.", "ffn_gate." },
    { "layer.1.DenseReluDense.wi_1.", "ffn_up." },
    { "layer.1.DenseReluDense.wo.", "ffn_down." },
    { "layer.1.layer_norm.", "ffn_norm." },
    { NULL },
};
static const char *const whole[][2] = {
    { "shared.", "token_embd." },
    { "encoder.final_layer_norm.", "enc.output_norm." },
    { NULL },
};

/* A name of one side as the other has it (0 HF's, 1 llama.cpp's). False: called so in both. */
static bool rename_to(int to, const char *name, char *out, size_t cap)
{
    static const char *const list[] = { BLOCK, BLOCK_GGUF };
    const char *const *pair = name_pair(whole, !to, &name);
    unsigned n;
    if (pair)
        return name_print(out, cap, "%s%s", pair[to], name);
    return name_numbered(&name, list[!to], NUMBER_MAX, &n) &&
           (pair = name_pair(in_block, !to, &name)) &&
           name_print(out, cap, "%s.%u.%s%s", list[to], n, pair[to], name);
}

bool t5_hf_path(const char *path, char *out, size_t n)
{
    char name[256];
    if (!name_print(name, sizeof name, "%s.", path) || !rename_to(0, name, out, n))
        return false;
    out[strlen(out) - 1] = '\0'; /* the dot */
    return true;
}

static bool rename_tokens(const char *canonical, struct net_source *out)
{
    if (strcmp(canonical, TOKENS) != 0)
        return false;
    *out = (struct net_source) { .name = "encoder.embed_tokens.weight" };
    return true;
}

bool t5_names(const void *user, const char *canonical, struct net_source *out)
{
    const struct t5_net *t = user;
    *out = (struct net_source) { .row = 0 };
    return t->gguf ? rename_to(1, canonical, out->name, sizeof out->name)
                   : t->embed_tokens && rename_tokens(canonical, out);
}

/* ---- config ---- */

/* Is there a T5 behind root; if so, with llama.cpp's names? */
static bool is_there(const struct weights *w, const char *root, bool *gguf)
{
    *gguf = !arch_find(w, root, BLOCK ".0.layer.0.SelfAttention.q.weight");
    return !*gguf || arch_find(w, root, BLOCK_GGUF ".0.attn_q.weight");
}

/* Has the second block a table of its own? */
static bool has_own_bias(const struct weights *w, const char *root, bool gguf)
{
    const struct t5_net t = { .gguf = gguf };
    const struct canonical in = { .w = w, .root = root, .names = t5_names, .user = &t };
    return canonical_find(&in, T5_BIAS(1) ".weight") != NULL;
}

bool t5_detect(const struct weights *w, const char *root)
{
    bool gguf;
    return is_there(w, root, &gguf) && !has_own_bias(w, root, gguf);
}

bool umt5_detect(const struct weights *w, const char *root)
{
    bool gguf;
    return is_there(w, root, &gguf) && has_own_bias(w, root, gguf);
}

static berth_status check(const struct t5_net *t, const char *root, uint64_t buckets,
                          uint64_t heads, berth_err *err)
{
    if (t->width == 0 || t->width > WIDTH_MAX || t->vocab == 0 || t->vocab > VOCAB_MAX ||
        t->inner == 0 || t->inner > WIDTH_MAX || t->mlp == 0)
        return err_set(err, BERTH_EFORMAT,
                       "T5 at '%.60s': width %" PRIu64 ", %" PRIu64 " tokens, attention of %" PRIu64
                       ", mlp %" PRIu64,
                       root, t->width, t->vocab, t->inner, t->mlp);
    if (buckets != T5_BUCKETS || heads == 0 || heads > t->inner || t->inner % heads)
        return err_set(err, BERTH_EFORMAT,
                       "T5 at '%.60s': a table of positions of %" PRIu64
                       " rows (%d wanted) and %" PRIu64 " heads for an attention of %" PRIu64,
                       root, buckets, T5_BUCKETS, heads, t->inner);
    return BERTH_OK;
}

berth_status t5_configure(const struct weights *w, const char *root, void *config, berth_err *err)
{
    struct t5_net t = { 0 };
    if (!is_there(w, root, &t.gguf))
        return err_set(err, BERTH_ENOTFOUND, "no T5 encoder at '%.100s'", root);
    t.embed_tokens = !t.gguf && !arch_find(w, root, TOKENS);
    const struct canonical in = { .w = w, .root = root, .names = t5_names, .user = &t };
    const struct weights_entry *tokens = canonical_find(&in, TOKENS),
                               *q = canonical_find(&in, BLOCK ".0.layer.0.SelfAttention.q.weight"),
                               *up = canonical_find(&in,
                                                    BLOCK ".0.layer.1.DenseReluDense.wi_0.weight"),
                               *bias = canonical_find(&in, T5_BIAS(0) ".weight");
    if (!up && arch_find(w, root, BLOCK ".0.layer.1.DenseReluDense.wi.weight"))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "T5 at '%.60s': its feed-forward is not gated (T5 of version 1.0)", root);
    t.width = arch_dim(tokens, 1);
    t.vocab = arch_dim(tokens, 0);
    t.inner = arch_dim(q, 0);
    t.mlp = arch_dim(up, 0);
    t.layers = arch_layers(w, root, t.gguf ? BLOCK_GGUF : BLOCK);
    t.own_bias = has_own_bias(w, root, t.gguf);
    t.fp8 = tokens && (tokens->dtype == DT_F8_E4M3 || tokens->dtype == DT_F8_E5M2);
    if (check(&t, root, arch_dim(bias, 0), arch_dim(bias, 1), err))
        return err->code;
    t.heads = (uint32_t)arch_dim(bias, 1);
    *(struct t5_net *)config = t;
    return BERTH_OK;
}
