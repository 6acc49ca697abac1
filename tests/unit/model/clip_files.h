/* clip_files: one small CLIP written under the names of HF, of OpenCLIP, or of old files; the same
 * numbers in each. */
#ifndef UNIT_TEXT_CLIP_FILES_H
#define UNIT_TEXT_CLIP_FILES_H

#include "support/clips.h"
#include "support/tokenizer.h"
#include "text/bpe.h"

enum style {
    HF,
    HF_BARE,
    OLD,
    OPENCLIP,
    OPENCLIP_LINEAR
}; /* bare: text_projection as a parameter */

struct small { /* a CLIP */
    const char *root;
    enum style style;
    int layers;
    uint64_t vocab, width; /* 0: 532 (the tiny tokenizer's), 32 */
};
#define SMALL_POSITIONS 20
#define SMALL_MLP 48

/* A tensor of the file, and whose values it has: one HF tensor, or three below each other. */
struct slot {
    char name[160];
    struct shape shape;
    char from[3][96];
    int n;
    bool transpose;
};
struct clip_tensors {
    struct slot at[600];
    size_t n;
};

static inline struct slot *slot_add(struct clip_tensors *s, const char *root, const char *name,
                                    const char *from, uint64_t rows, uint64_t columns)
{
    struct slot *t = &s->at[s->n++];
    assert_true(s->n <= ARRAY_LEN(s->at));
    *t = (struct slot) { .n = 1, .shape = { columns ? 2 : 1, { rows, columns } } };
    snprintf(t->name, sizeof t->name, "%s%s", root, name);
    snprintf(t->from[0], sizeof t->from[0], "%s", from);
    return t;
}

static inline void slot_pair(struct clip_tensors *s, const char *root, const char *name,
                             const char *from, uint64_t rows, uint64_t columns)
{
    static const char *const end[] = { "weight", "bias" };
    for (int i = 0; i < 2; i++) {
        char a[128], b[96];
        snprintf(a, sizeof a, "%.100s.%s", name, end[i]);
        snprintf(b, sizeof b, "%.80s.%s", from, end[i]);
        slot_add(s, root, a, b, rows, i ? 0 : columns);
    }
}

static inline void slots_layer(struct clip_tensors *s, const struct small *c, int i)
{
    static const char *const hf[] = {
        "layer_norm1",        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
        "self_attn.out_proj", "layer_norm2",      "mlp.fc1",          "mlp.fc2"
    };
    static const char *const open[] = { "ln_1",          NULL,   NULL,       NULL,
                                        "attn.out_proj", "ln_2", "mlp.c_fc", "mlp.c_proj" };
    bool openclip = c->style >= OPENCLIP;
    uint64_t D = c->width;
    for (size_t k = 0; k < ARRAY_LEN(hf); k++) {
        char name[128], from[96];
        uint64_t rows = k == 6 ? SMALL_MLP : D, columns = k == 7 ? SMALL_MLP : D;
        snprintf(from, sizeof from, "text_model.encoder.layers.%d.%s", i, hf[k]);
        snprintf(name, sizeof name, "%s.%d.%s",
                 openclip          ? "transformer.resblocks"
                 : c->style == OLD ? "encoder.layers"
                                   : "text_model.encoder.layers",
                 i, openclip ? open[k] ? open[k] : "" : hf[k]);
        if (!openclip || open[k])
            slot_pair(s, c->root, name, from, rows, strstr(hf[k], "norm") ? 0 : columns);
    }
    for (int bias = 0; openclip && bias < 2; bias++) {
        char name[128];
        snprintf(name, sizeof name, "transformer.resblocks.%d.attn.in_proj_%s", i,
                 bias ? "bias" : "weight");
        struct slot *t = slot_add(s, c->root, name, "", 3 * D, bias ? 0 : D);
        t->n = 3;
        for (int k = 0; k < 3; k++)
            snprintf(t->from[k], sizeof t->from[k], "text_model.encoder.layers.%d.%s.%s", i,
                     hf[1 + k], bias ? "bias" : "weight");
    }
}

static inline void slots_clip(struct clip_tensors *s, struct small c)
{
    bool openclip = c.style >= OPENCLIP;
    const char *lead = c.style == OLD ? "" : "text_model.";
    char name[128];
    c.vocab = c.vocab ? c.vocab : 532;
    c.width = c.width ? c.width : 32;
    snprintf(name, sizeof name, "%sembeddings.token_embedding.weight", lead);
    slot_add(s, c.root, openclip ? "token_embedding.weight" : name,
             "text_model.embeddings.token_embedding.weight", c.vocab, c.width);
    snprintf(name, sizeof name, "%sembeddings.position_embedding.weight", lead);
    slot_add(s, c.root, openclip ? "positional_embedding" : name,
             "text_model.embeddings.position_embedding.weight", SMALL_POSITIONS, c.width);
    for (int i = 0; i < c.layers; i++)
        slots_layer(s, &c, i);
    snprintf(name, sizeof name, "%sfinal_layer_norm", lead);
    slot_pair(s, c.root, openclip ? "ln_final" : name, "text_model.final_layer_norm", c.width, 0);
    bool bare = c.style == HF_BARE || c.style == OPENCLIP;
    slot_add(s, c.root, bare ? "text_projection" : "text_projection.weight",
             "text_projection.weight", c.width, c.width)
        ->transpose = bare;
}

static inline berth_status slots_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                      berth_err *err)
{
    const struct clip_tensors *s = user;
    const struct slot *t = &s->at[i];
    struct shape from = t->shape;
    uint64_t all;
    float *out = dst;
    (void)err;
    from.dim[0] /= (uint64_t)t->n;
    assert_true(shape_count(&from, &all));
    for (size_t k = 0; k < n / sizeof *out; k++) {
        uint64_t at = off / sizeof *out + k, which = at / all, e = at % all, D = from.dim[1];
        if (t->transpose)
            e = e % D * D + e / D;
        synth_fill(t->from[which], strlen(t->from[which]), &from, e, 1, &out[k]);
    }
    return BERTH_OK;
}

/* <name>.safetensors with these CLIPs. meta may be NULL. */
static inline const char *clip_file(const char *name, const struct small *c, size_t n,
                                    const struct weights_meta_spec *meta, size_t metas)
{
    struct clip_tensors *s = calloc(1, sizeof *s);
    struct weights_spec *spec = calloc(ARRAY_LEN(s->at), sizeof *spec);
    berth_err err = { 0 };
    char file[96];
    assert_true(s && spec);
    for (size_t i = 0; i < n; i++)
        slots_clip(s, c[i]);
    for (size_t i = 0; i < s->n; i++)
        spec[i] = (struct weights_spec) { s->at[i].name, DT_F32, s->at[i].shape };
    snprintf(file, sizeof file, "%s.safetensors", name);
    const char *path = tmp_path(file);
    struct weights_write_args a = { .format = "safetensors",
                                    .path = path,
                                    .spec = spec,
                                    .count = s->n,
                                    .meta = meta,
                                    .meta_count = metas,
                                    .fill = slots_fill,
                                    .user = s };
    assert_ok(weights_write(&a, &err), err);
    free(s);
    free(spec);
    return path;
}

static inline struct bpe *tiny_bpe(void)
{
    struct bpe *t;
    berth_err err = { 0 };
    assert_int_equal(tiny_tokenizer_write(tmp_path("tiny"), false), 532);
    assert_ok(bpe_open(tmp_path("tiny"), &t, &err), err);
    return t;
}

#endif
