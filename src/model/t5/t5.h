/* t5: the T5 encoder, and umT5's, which is one network with it (text-encoders.md 7).
 *
 * umT5       Every block has a table of positions; another vocabulary; what pads a prompt is hidden
 *            from it, left out of passes, and comes out as zeros.
 * Config     from shapes; heads are the columns of the table of positions, and heads * head_dim
 *            need not be the width.
 * Files      t5.c network and descriptor; names.c llama.cpp's names, config; lora.c what adapters
 *            call its tensors; presets.c */
#pragma once

#include "model/encoder.h"

struct t5_net {
    uint64_t width, vocab, inner, mlp; /* inner: heads * head_dim */
    uint32_t layers, heads;
    bool own_bias;     /* every block has its own table of positions (umT5) */
    bool gguf;         /* llama.cpp's names (enc.blk.0.attn_q) */
    bool embed_tokens; /* the table of tokens is called encoder.embed_tokens, there is no shared */
    bool fp8;          /* that table is: NaNs in it count as 0 */
};
/* As the slots of struct encoder_class. root: in front of "encoder.block.0." or "enc.blk.0.". */
bool t5_detect(const struct weights *w, const char *root);
bool umt5_detect(const struct weights *w, const char *root);
berth_status t5_configure(const struct weights *w, const char *root, void *config, berth_err *err);
net_names_fn t5_names;
void t5_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);

#define T5_BUCKETS 32 /* of distances between tokens */
#define T5_BIAS(block) "encoder.block." #block ".layer.0.SelfAttention.relative_attention_bias"
/* llama.cpp's name of a layer to HF's, which adapters go by. False: called so in both. */
bool t5_hf_path(const char *path, char *out, size_t n);
/* Which row of the table of positions a key `distance` tokens behind its query has. */
int32_t t5_bucket(int64_t distance);
