/* zimage_files: files of Z-Image in diffusers' names, cut out of the synthetic values of ours. */
#ifndef SUPPORT_ZIMAGE_FILES_H
#define SUPPORT_ZIMAGE_FILES_H

#include "support/nets.h"

struct zimage_cut { /* what a name of ours ends in, and what diffusers has there */
    const char *ours, *theirs;
    uint64_t part, parts; /* of its rows; 0: all */
};
static const struct zimage_cut zimage_cuts[] = {
    { "x_embedder.weight", "all_x_embedder.2-1.weight", 0, 0 },
    { "x_embedder.bias", "all_x_embedder.2-1.bias", 0, 0 },
    { "final_layer.linear.weight", "all_final_layer.2-1.linear.weight", 0, 0 },
    { "final_layer.linear.bias", "all_final_layer.2-1.linear.bias", 0, 0 },
    { "final_layer.adaLN_modulation.1.weight", "all_final_layer.2-1.adaLN_modulation.1.weight", 0,
      0 },
    { "final_layer.adaLN_modulation.1.bias", "all_final_layer.2-1.adaLN_modulation.1.bias", 0, 0 },
    { ".attention.qkv.weight", ".attention.to_q.weight", 0, 3 },
    { ".attention.qkv.weight", ".attention.to_k.weight", 1, 3 },
    { ".attention.qkv.weight", ".attention.to_v.weight", 2, 3 },
    { ".attention.out.weight", ".attention.to_out.0.weight", 0, 0 },
    { ".attention.q_norm.weight", ".attention.norm_q.weight", 0, 0 },
    { ".attention.k_norm.weight", ".attention.norm_k.weight", 0, 0 },
};

/* Name of one of our tensors that is all zeros; NULL: none. */
static const char *zimage_blank;

struct zimage_piece { /* a tensor of the file in diffusers' names */
    const struct key *from;
    uint64_t first; /* element of it */
    char name[128];
};
struct zimage_pieces {
    struct zimage_piece at[512];
    struct weights_spec spec[512];
    size_t n;
};

static inline berth_status zimage_fill_piece(void *user, size_t i, uint64_t off, void *dst,
                                             size_t n, berth_err *err)
{
    const struct zimage_pieces *p = user;
    const struct zimage_piece *x = &p->at[i];
    (void)err;
    synth_fill(x->from->name, x->from->name_len, &x->from->shape, x->first + off / sizeof(float),
               n / sizeof(float), dst);
    if (zimage_blank && !strcmp(x->from->name, zimage_blank))
        memset(dst, 0, n);
    return BERTH_OK;
}

static inline void zimage_add_piece(struct zimage_pieces *p, const struct key *k,
                                    const struct zimage_cut *c)
{
    assert_true(p->n < ARRAY_LEN(p->at));
    struct zimage_piece *x = &p->at[p->n];
    struct shape s = k->shape;
    *x = (struct zimage_piece) { .from = k };
    int stem = (int)(k->name_len - (c ? strlen(c->ours) : 0));
    snprintf(x->name, sizeof x->name, "%.*s%s", stem, k->name, c ? c->theirs : "");
    if (c && c->parts) {
        x->first = c->part * k->count / c->parts;
        s.dim[0] /= c->parts;
    }
    p->spec[p->n++] = (struct weights_spec) { .name = x->name, .dtype = DT_F32, .shape = s };
}

static inline const char *zimage_file(const struct keys *k, const char *name, bool theirs)
{
    struct zimage_pieces *p = calloc(1, sizeof *p);
    char file[96];
    berth_err err = { 0 };
    assert_non_null(p);
    for (size_t i = 0; i < k->n; i++) {
        size_t before = p->n;
        for (size_t c = 0; theirs && c < ARRAY_LEN(zimage_cuts); c++)
            if (str_ends(k->at[i].name, k->at[i].name_len, zimage_cuts[c].ours))
                zimage_add_piece(p, &k->at[i], &zimage_cuts[c]);
        if (p->n == before)
            zimage_add_piece(p, &k->at[i], NULL);
    }
    snprintf(file, sizeof file, "%s_%s.safetensors", name, theirs ? "diffusers" : "own");
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path(file),
                                       .spec = p->spec,
                                       .count = p->n,
                                       .fill = zimage_fill_piece,
                                       .user = p };
    assert_ok(weights_write(&args, &err), err);
    free(p);
    return args.path;
}

/* <name>_diffusers.safetensors, F32: the values of a Z-Image key list as diffusers keeps them. */
static inline const char *zimage_diffusers_file(const struct keys *k, const char *name)
{
    return zimage_file(k, name, true);
}

/* <name>_own.safetensors: the same under its own names. */
static inline const char *zimage_own_file(const struct keys *k, const char *name)
{
    return zimage_file(k, name, false);
}

#endif
