/* Config of a Flux transformer, from the names and shapes of its tensors (flux.md 1). */
#include "model/flux/flux.h"

#include "model/arch.h"
#include "model/canonical.h"

struct look {
    struct canonical in;
    struct flux_net *f;
    berth_err *err;
};

static bool has(const struct weights *w, const char *root, const char *name)
{
    return arch_find(w, root, name) != NULL;
}

static bool bfl_at(const struct weights *w, const char *root)
{
    return has(w, root, "double_blocks.0.img_attn.norm.key_norm.scale") &&
           has(w, root, "img_in.weight");
}

static bool diffusers_at(const struct weights *w, const char *root)
{
    return has(w, root, "transformer_blocks.0.attn.norm_added_k.weight") &&
           has(w, root, "single_transformer_blocks.0.proj_mlp.weight") &&
           has(w, root, "x_embedder.weight");
}

bool flux_instantx_at(const struct weights *w, const char *root)
{
    return has(w, root, "controlnet_blocks.0.weight") &&
           has(w, root, "controlnet_x_embedder.weight") && has(w, root, "x_embedder.weight") &&
           has(w, root, "transformer_blocks.0.attn.norm_added_k.weight");
}

bool flux_xlabs_at(const struct weights *w, const char *root)
{
    return has(w, root, "controlnet_blocks.0.weight") && bfl_at(w, root);
}

static bool is_control(const struct weights *w, const char *root)
{
    return flux_instantx_at(w, root) || flux_xlabs_at(w, root);
}

bool flux_at(const struct weights *w, const char *root)
{
    return (bfl_at(w, root) || diffusers_at(w, root)) && !is_control(w, root);
}

/* Others with such blocks, told by what they have beside them. */
static const char *relative(const struct weights *w, const char *root)
{
    static const struct {
        const char *tensor, *with, *name; /* with: NULL, or another that must be there, too */
    } list[] = {
        { "double_stream_modulation_img.lin.weight", NULL, "Flux2" },
        { "double_stream_modulation_img.linear.weight", NULL, "Flux2" },
        { "distilled_guidance_layer.norms.0.scale", NULL, "Chroma" },
        { "distilled_guidance_layer.0.norms.0.scale", NULL, "Chroma" },
        { "double_blocks.0.img_mlp.gate_proj.weight", "txt_norm.scale", "Ovis" },
        { "txt_in.individual_token_refiner.blocks.0.norm1.weight", NULL, "Hunyuan Video" },
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (has(w, root, list[i].tensor) && (!list[i].with || has(w, root, list[i].with)))
            return list[i].name;
    return NULL;
}

/* A dimension of a matrix that must be there, 1..FLUX_WIDTH_MAX. */
static berth_status dim(const struct look *k, const char *name, int ndim, int axis, uint64_t *out)
{
    const struct weights_entry *e = canonical_find(&k->in, "%s", name);
    char text[SHAPE_TEXT_MAX];
    if (!e)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a Flux transformer without '%s'", name);
    if (e->shape.ndim != ndim || !e->shape.dim[axis] || e->shape.dim[axis] > FLUX_WIDTH_MAX)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'%.120s' is %s, not of %d dimensions of at most %d", e->name,
                       shape_text(&e->shape, text), ndim, FLUX_WIDTH_MAX);
    *out = e->shape.dim[axis];
    return BERTH_OK;
}

/* Channels of a latent, from the width of a patch. */
static berth_status channels(const struct look *k, const char *what, uint64_t wide, uint64_t *out)
{
    const uint64_t pixels = FLUX_PATCH * FLUX_PATCH;
    if (wide % pixels)
        return err_set(k->err, BERTH_EUNSUPPORTED, "%s: patches of %llu values, not %llu a channel",
                       what, (unsigned long long)wide, (unsigned long long)pixels);
    *out = wide / pixels;
    return BERTH_OK;
}

/* Heads follow from the norm of one; what each axis of positions has of a head from its width: an
 * eighth, and 7 / 16 twice (16, 56, 56 of 128). */
static berth_status heads(const struct look *k, uint64_t head)
{
    struct flux_net *f = k->f;
    if (head % 32 || f->hidden % head)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a Flux transformer of width %llu with heads of %llu: they have no whole "
                       "pairs for each axis, or are not all of it",
                       (unsigned long long)f->hidden, (unsigned long long)head);
    f->head_dim = (uint32_t)head;
    f->heads = (uint32_t)(f->hidden / head);
    f->axis[0] = f->head_dim / 8;
    f->axis[1] = f->axis[2] = f->head_dim / 16 * 7;
    return BERTH_OK;
}

static berth_status depth(const struct look *k, const char *ours, const char *theirs, uint32_t *out)
{
    *out = arch_layers(k->in.w, k->in.root, k->f->diffusers ? theirs : ours);
    return *out > FLUX_DEPTH_MAX ? err_set(k->err, BERTH_ELIMIT, "%u %s, at most %d are taken",
                                           *out, ours, FLUX_DEPTH_MAX)
                                 : BERTH_OK;
}

static berth_status detect(const struct weights *w, const char *root, bool control,
                           struct flux_net *f, berth_err *err)
{
    *f = (struct flux_net) { .diffusers = !bfl_at(w, root) };
    struct look k = { .in = { .w = w, .root = root, .names = flux_names(f), .user = f },
                      .f = f,
                      .err = err };
    uint64_t in = 0, out = 0, head = 0;
    const char *other = relative(w, root);
    if (other)
        return err_set(err, BERTH_EUNSUPPORTED, "%s, a relative of Flux.1: not supported", other);
    if (dim(&k, "img_in.weight", 2, 0, &f->hidden) || dim(&k, "img_in.weight", 2, 1, &in) ||
        channels(&k, "img_in", in, &f->in_channels) ||
        (!control && dim(&k, "final_layer.linear.weight", 2, 0, &out)) ||
        channels(&k, "final_layer.linear", control ? in : out, &f->out_channels) ||
        dim(&k, "txt_in.weight", 2, 1, &f->context_dim) ||
        dim(&k, "vector_in.in_layer.weight", 2, 1, &f->vec_dim) ||
        dim(&k, "double_blocks.0.img_mlp.0.weight", 2, 0, &f->mlp) ||
        dim(&k, "double_blocks.0.img_attn.norm.key_norm.weight", 1, 0, &head) || heads(&k, head) ||
        depth(&k, "double_blocks", "transformer_blocks", &f->depth) ||
        depth(&k, "single_blocks", "single_transformer_blocks", &f->depth_single))
        return err->code;
    f->guidance = canonical_find(&k.in, "guidance_in.in_layer.weight") ||
                  canonical_find(&k.in, "guidance_in.in_layer.bias") ||
                  canonical_find(&k.in, "guidance_in.out_layer.weight") ||
                  canonical_find(&k.in, "guidance_in.out_layer.bias");
    return BERTH_OK;
}

berth_status flux_detect(const struct weights *w, const char *root, struct flux_net *f,
                         berth_err *err)
{
    *f = (struct flux_net) { .diffusers = !bfl_at(w, root) };
    if (!flux_at(w, root))
        return err_set(err, BERTH_EUNSUPPORTED, "no Flux transformer behind '%s'", root);
    return detect(w, root, false, f, err);
}

berth_status flux_detect_control(const struct weights *w, const char *root, struct flux_net *f,
                                 berth_err *err)
{
    return detect(w, root, true, f, err);
}
