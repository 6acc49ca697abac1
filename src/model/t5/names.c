/* names.c: T5's tensors by their HF names, whatever the file calls them, and what its shapes say
 * (text-encoders.md 7). */
#include "base/str.h"
#include "model/t5/t5.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WIDTH_MAX 65536
#define VOCAB_MAX (1u << 24)

#define BLOCK "encoder.block."
#define BLOCK_GGUF "enc.blk."
#define TOKENS "shared.weight"

/* Behind the number of a block. */
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
};

static bool rename_gguf(const char *canonical, struct net_source *out)
{
    static const char *const whole[][2] = {
        { TOKENS, "token_embd.weight" },
        { "encoder.final_layer_norm.weight", "enc.output_norm.weight" },
    };
    *out = (struct net_source) { .row = 0 };
    for (size_t i = 0; i < ARRAY_LEN(whole); i++)
        if (strcmp(canonical, whole[i][0]) == 0) {
            snprintf(out->name, sizeof out->name, "%s", whole[i][1]);
            return true;
        }
    if (!str_starts(canonical, strlen(canonical), BLOCK))
        return false;
    const char *number = canonical + strlen(BLOCK), *dot = strchr(number, '.');
    if (!dot || dot - number > 9)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(in_block); i++)
        if (str_starts(dot + 1, strlen(dot + 1), in_block[i][0])) {
            snprintf(out->name, sizeof out->name, BLOCK_GGUF "%.*s.%s%s", (int)(dot - number),
                     number, in_block[i][1], dot + 1 + strlen(in_block[i][0]));
            return true;
        }
    return false;
}

bool t5_hf_path(const char *path, char *out, size_t n)
{
    if (strcmp(path, "token_embd") == 0)
        return snprintf(out, n, "shared") > 0;
    if (strcmp(path, "enc.output_norm") == 0)
        return snprintf(out, n, "encoder.final_layer_norm") > 0;
    if (!str_starts(path, strlen(path), BLOCK_GGUF))
        return false;
    const char *number = path + strlen(BLOCK_GGUF), *dot = strchr(number, '.');
    if (!dot || dot - number > 9)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(in_block); i++) { /* whose names end with a dot */
        size_t theirs = strlen(in_block[i][1]) - 1, ours = strlen(in_block[i][0]) - 1;
        if (strlen(dot + 1) == theirs && memcmp(dot + 1, in_block[i][1], theirs) == 0)
            return snprintf(out, n, BLOCK "%.*s%.*s", (int)(dot + 1 - number), number, (int)ours,
                            in_block[i][0]) > 0;
    }
    return false;
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
    return t->gguf ? rename_gguf(canonical, out) : t->embed_tokens && rename_tokens(canonical, out);
}

/* ---- config ---- */

static const struct weights_entry *entry(const struct weights *w, const char *root,
                                         const struct t5_net *t, const char *canonical)
{
    struct net_source from;
    return arch_find(w, root, t5_names(t, canonical, &from) ? from.name : canonical);
}

/* Is there a T5 behind root; if so, with llama.cpp's names? */
static bool is_there(const struct weights *w, const char *root, bool *gguf)
{
    *gguf = !arch_find(w, root, BLOCK "0.layer.0.SelfAttention.q.weight");
    return !*gguf || arch_find(w, root, BLOCK_GGUF "0.attn_q.weight");
}

bool t5_detect(const struct weights *w, const char *root)
{
    bool gguf;
    return is_there(w, root, &gguf);
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
    const struct weights_entry *tokens = entry(w, root, &t, TOKENS),
                               *q = entry(w, root, &t, BLOCK "0.layer.0.SelfAttention.q.weight"),
                               *up =
                                   entry(w, root, &t, BLOCK "0.layer.1.DenseReluDense.wi_0.weight"),
                               *bias = entry(w, root, &t, T5_BIAS(0) ".weight");
    if (!up && arch_find(w, root, BLOCK "0.layer.1.DenseReluDense.wi.weight"))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "T5 at '%.60s': its feed-forward is not gated (T5 of version 1.0)", root);
    t.width = arch_dim(tokens, 1);
    t.vocab = arch_dim(tokens, 0);
    t.inner = arch_dim(q, 0);
    t.mlp = arch_dim(up, 0);
    t.layers = arch_layers(w, root, t.gguf ? "enc.blk" : "encoder.block");
    t.own_bias = entry(w, root, &t, T5_BIAS(1) ".weight");
    t.fp8 = tokens && (tokens->dtype == DT_F8_E4M3 || tokens->dtype == DT_F8_E5M2);
    if (check(&t, root, arch_dim(bias, 0), arch_dim(bias, 1), err))
        return err->code;
    t.heads = (uint32_t)arch_dim(bias, 1);
    *(struct t5_net *)config = t;
    return BERTH_OK;
}
