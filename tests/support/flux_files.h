/* flux_files: files of Flux in diffusers' names, cut out of the synthetic values of BFL's. */
#ifndef SUPPORT_FLUX_FILES_H
#define SUPPORT_FLUX_FILES_H

#include "support/nets.h"

struct flux_cut { /* rows of one of our tensors, in multiples of D, as diffusers keeps them */
    const char *ours, *theirs;
    uint64_t row, rows; /* rows 0: all */
};
static const struct flux_cut flux_cuts[] = {
    { "img_in.", "x_embedder.", 0, 0 },
    { "txt_in.", "context_embedder.", 0, 0 },
    { "time_in.in_layer.", "time_text_embed.timestep_embedder.linear_1.", 0, 0 },
    { "time_in.out_layer.", "time_text_embed.timestep_embedder.linear_2.", 0, 0 },
    { "vector_in.in_layer.", "time_text_embed.text_embedder.linear_1.", 0, 0 },
    { "vector_in.out_layer.", "time_text_embed.text_embedder.linear_2.", 0, 0 },
    { "guidance_in.in_layer.", "time_text_embed.guidance_embedder.linear_1.", 0, 0 },
    { "guidance_in.out_layer.", "time_text_embed.guidance_embedder.linear_2.", 0, 0 },
    { "final_layer.linear.", "proj_out.", 0, 0 },
    { "final_layer.adaLN_modulation.1.", "norm_out.linear.", 0, 0 }, /* halves exchanged */
    { "double_blocks.*.img_mod.lin.", "transformer_blocks.*.norm1.linear.", 0, 0 },
    { "double_blocks.*.txt_mod.lin.", "transformer_blocks.*.norm1_context.linear.", 0, 0 },
    { "double_blocks.*.img_attn.qkv.", "transformer_blocks.*.attn.to_q.", 0, 1 },
    { "double_blocks.*.img_attn.qkv.", "transformer_blocks.*.attn.to_k.", 1, 1 },
    { "double_blocks.*.img_attn.qkv.", "transformer_blocks.*.attn.to_v.", 2, 1 },
    { "double_blocks.*.txt_attn.qkv.", "transformer_blocks.*.attn.add_q_proj.", 0, 1 },
    { "double_blocks.*.txt_attn.qkv.", "transformer_blocks.*.attn.add_k_proj.", 1, 1 },
    { "double_blocks.*.txt_attn.qkv.", "transformer_blocks.*.attn.add_v_proj.", 2, 1 },
    { "double_blocks.*.img_attn.norm.query_norm.", "transformer_blocks.*.attn.norm_q.", 0, 0 },
    { "double_blocks.*.img_attn.norm.key_norm.", "transformer_blocks.*.attn.norm_k.", 0, 0 },
    { "double_blocks.*.txt_attn.norm.query_norm.", "transformer_blocks.*.attn.norm_added_q.", 0,
      0 },
    { "double_blocks.*.txt_attn.norm.key_norm.", "transformer_blocks.*.attn.norm_added_k.", 0, 0 },
    { "double_blocks.*.img_attn.proj.", "transformer_blocks.*.attn.to_out.0.", 0, 0 },
    { "double_blocks.*.txt_attn.proj.", "transformer_blocks.*.attn.to_add_out.", 0, 0 },
    { "double_blocks.*.img_mlp.0.", "transformer_blocks.*.ff.net.0.proj.", 0, 0 },
    { "double_blocks.*.img_mlp.2.", "transformer_blocks.*.ff.net.2.", 0, 0 },
    { "double_blocks.*.txt_mlp.0.", "transformer_blocks.*.ff_context.net.0.proj.", 0, 0 },
    { "double_blocks.*.txt_mlp.2.", "transformer_blocks.*.ff_context.net.2.", 0, 0 },
    { "single_blocks.*.linear1.", "single_transformer_blocks.*.attn.to_q.", 0, 1 },
    { "single_blocks.*.linear1.", "single_transformer_blocks.*.attn.to_k.", 1, 1 },
    { "single_blocks.*.linear1.", "single_transformer_blocks.*.attn.to_v.", 2, 1 },
    { "single_blocks.*.linear1.", "single_transformer_blocks.*.proj_mlp.", 3, 4 },
    { "single_blocks.*.linear2.", "single_transformer_blocks.*.proj_out.", 0, 0 },
    { "single_blocks.*.norm.query_norm.", "single_transformer_blocks.*.attn.norm_q.", 0, 0 },
    { "single_blocks.*.norm.key_norm.", "single_transformer_blocks.*.attn.norm_k.", 0, 0 },
    { "single_blocks.*.modulation.lin.", "single_transformer_blocks.*.norm.linear.", 0, 0 },
};

/* Is `name` called like the pattern, "*" being a number? *number: its text; returns what is
 * behind. */
static inline const char *flux_matches(const char *name, const char *pattern, char number[16])
{
    for (number[0] = '\0'; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*name++ != *pattern)
                return NULL;
            continue;
        }
        size_t n = strspn(name, "0123456789");
        snprintf(number, 16, "%.*s", (int)n, name);
        name += n;
    }
    return name;
}

struct flux_piece { /* a tensor of the file in diffusers' names */
    const struct key *from;
    uint64_t first; /* element of it */
    bool swap;      /* the other half first */
    char name[128];
};
struct flux_pieces {
    struct flux_piece at[512];
    struct weights_spec spec[512];
    size_t n;
};

static inline berth_status flux_fill_piece(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                           berth_err *err)
{
    const struct flux_pieces *p = user;
    const struct flux_piece *x = &p->at[i];
    float *v = dst;
    (void)err;
    for (size_t k = 0; k < n / sizeof *v; k++) {
        uint64_t e = x->first + off / sizeof *v + k;
        if (x->swap)
            e = (e + x->from->count / 2) % x->from->count;
        synth_fill(x->from->name, x->from->name_len, &x->from->shape, e, 1, &v[k]);
    }
    return BERTH_OK;
}

static inline void flux_add_piece(struct flux_pieces *p, const struct key *k,
                                  const struct flux_cut *c, uint64_t D)
{
    char number[16];
    const char *what = flux_matches(k->name, c->ours, number), *star = strchr(c->theirs, '*');
    if (!what || strchr(what, '.'))
        return;
    assert_true(p->n < ARRAY_LEN(p->at));
    struct flux_piece *x = &p->at[p->n];
    *x = (struct flux_piece) { .from = k, .swap = !strcmp(c->theirs, "norm_out.linear.") };
    if (!strcmp(what, "scale"))
        what = "weight";
    if (star)
        snprintf(x->name, sizeof x->name, "%.*s%s%s%s", (int)(star - c->theirs), c->theirs, number,
                 star + 1, what);
    else
        snprintf(x->name, sizeof x->name, "%s%s", c->theirs, what);
    struct shape s = k->shape;
    if (c->rows) {
        x->first = c->row * D * (k->count / s.dim[0]);
        s.dim[0] = c->rows * D;
    }
    p->spec[p->n++] = (struct weights_spec) { .name = x->name, .dtype = DT_F32, .shape = s };
}

/* <name>_diffusers.safetensors, F32: the values of a Flux key list as diffusers keeps them. */
static inline const char *flux_diffusers_file(const struct keys *k, const char *name)
{
    struct flux_pieces *p = calloc(1, sizeof *p);
    char file[96];
    uint64_t D = 0;
    berth_err err = { 0 };
    assert_non_null(p);
    for (size_t i = 0; i < k->n; i++)
        if (!strcmp(k->at[i].name, "img_in.weight"))
            D = k->at[i].shape.dim[0];
    for (size_t i = 0; i < k->n; i++) {
        size_t before = p->n;
        for (size_t c = 0; c < ARRAY_LEN(flux_cuts); c++)
            flux_add_piece(p, &k->at[i], &flux_cuts[c], D);
        if (p->n == before)
            fail_msg("'%s' has no name there", k->at[i].name);
    }
    snprintf(file, sizeof file, "%s_diffusers.safetensors", name);
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path(file),
                                       .spec = p->spec,
                                       .count = p->n,
                                       .fill = flux_fill_piece,
                                       .user = p };
    assert_ok(weights_write(&args, &err), err);
    free(p);
    return args.path;
}

#endif
