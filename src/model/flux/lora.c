/* The diffusers names of a Flux transformer (flux.md 6).
 *
 * Diffusers keeps q, k, v and the mlp apart; here they are rows of one tensor, D to each of the
 * first three. Its last modulation holds (scale, shift) where ours holds (shift, scale). */
#include "model/flux/flux.h"
#include "model/lora_names_impl.h"

#include <string.h>

/* BFL's tensor of a layer: "<block><layer>.weight", the stacked one's, or a norm's scale. */
static void tensor_of(const struct flux_name *n, const char *block, char out[LORA_NAME_MAX])
{
    const char *layer = n->in ? n->in : n->layer;
    snprintf(out, LORA_NAME_MAX, "%s%s.%s", block, layer,
             str_ends(layer, strlen(layer), "_norm") ? "scale" : "weight");
}

static void add(struct lora_table *t, const char *q, const struct lora_name *m)
{
    lora_add(t, "transformer.", q, false, m);
    lora_add(t, "lycoris_", q, true, m);
    lora_add(t, "lora_transformer_", q, true, m);
    lora_add(t, "", q, false, m);
}

void flux_lora_norms(struct lora_table *t, const struct weights *w, const char *prefix)
{
    static const char end[] = "_norm.scale";
    const size_t tail = strlen(".scale"), lead = strlen(prefix);
    char q[LORA_NAME_MAX];
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (!str_starts(e->name, e->name_len, prefix) || !str_ends(e->name, e->name_len, end) ||
            e->name_len < lead + tail || e->name_len - lead - tail >= sizeof q)
            continue;
        snprintf(q, sizeof q, "%.*s", (int)(e->name_len - lead - tail), e->name + lead);
        lora_add(t, "lora_unet_", q, true, &(struct lora_name) { .key = e->name });
        lora_add(t, "diffusion_model.", q, false, &(struct lora_name) { .key = e->name });
    }
}

/* Layers of a list in BFL's files; ours, theirs: what stands in front of their names. */
static void add_list(struct lora_table *t, const struct weights *w, const char *prefix,
                     const char *ours, const char *theirs, const struct flux_name *n, uint64_t D)
{
    char q[LORA_NAME_MAX];
    for (; n->layer; n++) {
        tensor_of(n, ours, q);
        const struct weights_entry *e = lora_find(w, prefix, "%s", q);
        if (!e)
            continue;
        snprintf(q, sizeof q, "%s%s", theirs, n->theirs);
        add(t, q,
            &(struct lora_name) {
                .key = e->name, .row = n->row * D, .rows = n->rows * D, .swap = n->swap });
    }
}

/* ---- files in diffusers' own names: what adapters keep stacked is several tensors there ---- */

/* BFL's and kohya's names of one tensor of such a file, and BFL's of the bias beside it. */
static void add_ours(struct lora_table *t, const struct weights *w, const char *prefix,
                     const char *theirs, const char *ours, const struct lora_name *m)
{
    char q[LORA_NAME_MAX];
    const struct weights_entry *bias = lora_find(w, prefix, "%s.bias", theirs);
    size_t n = strlen(ours), tail = strlen(".weight");
    bool weight = str_ends(ours, n, ".weight");
    snprintf(q, sizeof q, "%.*s", (int)(weight ? n - tail : n), ours);
    if (weight)
        lora_add(t, "lora_unet_", q, true, m);
    lora_add(t, "diffusion_model.", q, false, m);
    if (!weight || !bias)
        return;
    struct lora_name b = *m;
    b.key = bias->name;
    snprintf(q, sizeof q, "%.*s.bias", (int)(n - tail), ours);
    lora_add(t, "diffusion_model.", q, false, &b);
}

/* The same in diffusers' files. */
static void add_stacked(struct lora_table *t, const struct weights *w, const char *prefix,
                        const char *ours, const char *theirs, const struct flux_name *n, uint64_t D)
{
    char q[LORA_NAME_MAX], of[LORA_NAME_MAX];
    for (; n->layer; n++) {
        snprintf(of, sizeof of, "%s%s", theirs, n->theirs);
        const struct weights_entry *e = lora_find(w, prefix, "%s.weight", of);
        if (!e)
            continue;
        struct lora_name m = {
            .key = e->name, .from = n->row * D, .of = n->of * D, .swap = n->swap
        };
        tensor_of(n, ours, q);
        add_ours(t, w, prefix, of, q, &m);
        if (n->of == 7 && n->row < 3) { /* some keep the first three of linear1 apart */
            m.of = 3 * D;
            snprintf(q, sizeof q, "%slinear1_qkv", ours);
            lora_add(t, "diffusion_model.", q, false, &m);
        }
    }
}

typedef void list_fn(struct lora_table *t, const struct weights *w, const char *prefix,
                     const char *ours, const char *theirs, const struct flux_name *n, uint64_t D);

/* fn for every list, and for each block of those that have some. */
static void each_list(struct lora_table *t, const struct weights *w, const char *prefix, uint64_t D,
                      bool diffusers, list_fn *fn)
{
    static const struct {
        const char *ours, *theirs;
        const struct flux_name *names, *more; /* more: of adapters alone */
    } list[] = {
        { "double_blocks", "transformer_blocks", flux_double, flux_later_double },
        { "single_blocks", "single_transformer_blocks", flux_single, flux_later_single },
    };
    char ours[64], theirs[64];
    for (size_t k = 0; k < ARRAY_LEN(list); k++) {
        uint32_t n = arch_layers(w, prefix, diffusers ? list[k].theirs : list[k].ours);
        for (uint32_t i = 0; i < n; i++) {
            snprintf(ours, sizeof ours, "%s.%u.", list[k].ours, i);
            snprintf(theirs, sizeof theirs, "%s.%u.", list[k].theirs, i);
            fn(t, w, prefix, ours, theirs, list[k].names, D);
            if (!diffusers)
                fn(t, w, prefix, ours, theirs, list[k].more, D);
        }
    }
    fn(t, w, prefix, "", "", flux_once, D);
}

static void add_diffusers(struct lora_table *t, const struct weights *w, const char *prefix,
                          uint64_t D)
{
    char path[LORA_NAME_MAX];
    for (size_t i = 0; i < weights_count(w); i++)
        if (lora_path(weights_at(w, i), prefix, path))
            add(t, path, &(struct lora_name) { .key = weights_at(w, i)->name });
    each_list(t, w, prefix, D, true, add_stacked);
}

void flux_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    const char *prefix = net->alias.root;
    lora_diffusion(t, w, net);
    flux_lora_norms(t, w, prefix);
    const struct weights_entry *in = lora_find(w, prefix, "x_embedder.weight"), *e;
    if (in && in->shape.ndim == 2 && in->shape.dim[0] && in->shape.dim[0] <= UINT32_MAX &&
        lora_find(w, prefix, "transformer_blocks.0.attn.add_q_proj.weight")) {
        add_diffusers(t, w, prefix, in->shape.dim[0]);
        return;
    }
    in = lora_find(w, prefix, "img_in.weight");
    if (!in || in->shape.ndim != 2 || !lora_find(w, prefix, "double_blocks.0.img_attn.qkv.weight"))
        return;
    const uint64_t D = in->shape.dim[0];
    if (!D || D > UINT32_MAX) /* so that 7 * D is a number */
        return;
    each_list(t, w, prefix, D, false, add_list);
    for (unsigned i = 0; (e = lora_find(w, prefix, "single_blocks.%u.linear1.weight", i)); i++) {
        char q[LORA_NAME_MAX];
        snprintf(q, sizeof q, "single_blocks.%u.linear1_qkv", i);
        lora_add(t, "diffusion_model.", q, false,
                 &(struct lora_name) { .key = e->name, .rows = 3 * D });
    }
}
