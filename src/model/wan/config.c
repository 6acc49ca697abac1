/* Config of a Wan transformer, from names and shapes of its tensors (wan.md 1, wan-variants.md
 * 1). */
#include "model/wan/wan.h"

#include "model/arch.h"
#include "model/canonical.h"
#include "model/config_look.h"

#define PIXELS (WAN_PATCH * WAN_PATCH)

/* Under its authors' names or diffusers'. */
static bool is_there(const struct weights *w, const char *root, bool *diffusers)
{
    *diffusers = arch_find(w, root, "condition_embedder.time_proj.weight") != NULL;
    return arch_find(w, root, "patch_embedding.weight") &&
           (*diffusers ? arch_find(w, root, "scale_shift_table") &&
                             arch_find(w, root, "blocks.0.attn1.to_q.weight")
                       : arch_find(w, root, "head.modulation") &&
                             arch_find(w, root, "blocks.0.self_attn.q.weight"));
}

bool wan_at(const struct weights *w, const char *root)
{
    bool diffusers;
    return is_there(w, root, &diffusers);
}

struct look {
    struct canonical in;
    berth_err *err;
};

static berth_status dim(const struct look *k, const char *name, int ndim, int axis, uint64_t *out)
{
    const struct weights_entry *e = canonical_find(&k->in, "%s", name);
    char text[SHAPE_TEXT_MAX];
    if (!e)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a Wan transformer without '%s'", name);
    if (e->shape.ndim != ndim || !e->shape.dim[axis] || e->shape.dim[axis] > WAN_WIDTH_MAX)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a Wan transformer whose '%.120s' is %s; %d dimensions of at most %d are "
                       "taken",
                       e->name, shape_text(&e->shape, text), ndim, WAN_WIDTH_MAX);
    *out = e->shape.dim[axis];
    return BERTH_OK;
}

/* Relatives with networks of their own beside this one. */
static berth_status others(const struct look *k)
{
    static const struct {
        const char *has, *what;
    } list[] = {
        { "casual_audio_encoder.encoder.final_linear.weight", "S2V" },
        { "audio_proj.audio_proj_glob_1.layer.bias", "HuMo" },
        { "face_adapter.fuser_blocks.0.k_norm.weight", "Animate" },
        { "patch_embedding_mask.weight", "SCAIL 2" },
        { "patch_embedding_pose.weight", "SCAIL" },
        { "patch_embedding_global.weight", "WanDancer" },
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (arch_find(k->in.w, k->in.root, list[i].has))
            return err_set(k->err, BERTH_EUNSUPPORTED,
                           "the model is Wan's %s, which cannot be computed yet", list[i].what);
    return BERTH_OK;
}

/* A patch is WAN_PATCH pixels a side of one frame. */
static berth_status check_patch(const struct look *k, const char *name, int ndim)
{
    const struct weights_entry *e = canonical_find(&k->in, "%s", name);
    char text[SHAPE_TEXT_MAX];
    for (int i = 2; i < ndim; i++)
        if (e->shape.dim[i] != (i < ndim - 2 ? 1 : WAN_PATCH))
            return err_set(k->err, BERTH_EUNSUPPORTED,
                           "a Wan transformer whose '%.120s' is %s: patches of %d x %d pixels of "
                           "one frame are taken",
                           e->name, shape_text(&e->shape, text), WAN_PATCH, WAN_PATCH);
    return BERTH_OK;
}

static berth_status heads(const struct look *k, struct wan_net *f)
{
    if (f->hidden % WAN_HEAD)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a Wan transformer of width %llu, which is no whole heads of %d",
                       (unsigned long long)f->hidden, WAN_HEAD);
    f->heads = (uint32_t)(f->hidden / WAN_HEAD);
    f->axis[1] = f->axis[2] = 2 * (WAN_HEAD / 6);
    f->axis[0] = WAN_HEAD - 2 * f->axis[1];
    return BERTH_OK;
}

static berth_status pictures(const struct look *k, struct wan_net *f)
{
    uint64_t wide = WAN_SEEN_WIDTH;
    f->sees = canonical_find(&k->in, "img_emb.proj.1.weight") != NULL;
    if (f->sees && dim(k, "img_emb.proj.1.weight", 2, 1, &wide))
        return k->err->code;
    if (f->sees && wide != WAN_SEEN_WIDTH)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a Wan transformer that looks at pictures %llu wide, not %d",
                       (unsigned long long)wide, WAN_SEEN_WIDTH);
    const struct weights_entry *pos = canonical_find(&k->in, "img_emb.emb_pos.weight");
    if (pos && (pos->shape.ndim != 3 || !pos->shape.dim[1] || pos->shape.dim[1] > WAN_SEEN_MAX))
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a Wan transformer whose '%.120s' is not of 1 to %d positions", pos->name,
                       WAN_SEEN_MAX);
    if (pos)
        f->seen_most = pos->shape.dim[1];
    return canonical_find(&k->in, "ref_conv.weight") &&
                   (dim(k, "ref_conv.weight", 4, 1, &f->ref_channels) ||
                    check_patch(k, "ref_conv.weight", 4))
               ? k->err->code
               : BERTH_OK;
}

/* Behind each depth / blocks-th block one of them has its turn. */
static berth_status vace(const struct look *k, struct wan_net *f)
{
    if (!arch_find(k->in.w, k->in.root, "vace_patch_embedding.weight"))
        return BERTH_OK;
    f->vace_blocks = arch_layers(k->in.w, k->in.root, "vace_blocks");
    if (dim(k, "vace_patch_embedding.weight", 5, 1, &f->vace_channels) ||
        check_patch(k, "vace_patch_embedding.weight", 5))
        return k->err->code;
    const uint32_t n = f->vace_blocks, step = n ? f->depth / n : 0;
    if (!step || (f->depth + step - 1) / step != n ||
        f->vace_channels != 2 * f->out_channels + WAN_VACE_MASKS)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a Wan transformer of %u blocks with %u of VACE's that follow %llu channels",
                       f->depth, n, (unsigned long long)f->vace_channels);
    return BERTH_OK;
}

/* WAN_CAMERA_SIDE pixels a side make a token: 8 x 8 of them are channels, of which a filter takes
 * 2 x 2. */
static berth_status camera(const struct look *k, struct wan_net *f)
{
    const uint64_t pixels = WAN_CAMERA_SIDE / WAN_PATCH * (WAN_CAMERA_SIDE / WAN_PATCH);
    uint64_t channels;
    if (!arch_find(k->in.w, k->in.root, "control_adapter.conv.weight"))
        return BERTH_OK;
    if (dim(k, "control_adapter.conv.weight", 4, 1, &channels) ||
        check_patch(k, "control_adapter.conv.weight", 4))
        return k->err->code;
    f->camera = channels / pixels;
    return channels % pixels ? err_set(k->err, BERTH_EUNSUPPORTED,
                                       "a Wan transformer whose camera has %llu channels",
                                       (unsigned long long)channels)
                             : BERTH_OK;
}

berth_status wan_detect(const struct weights *w, const char *root, struct wan_net *f,
                        berth_err *err)
{
    uint64_t out;
    *f = (struct wan_net) { .hidden = 0 };
    const struct look k = { .in = { .w = w, .root = root, .names = wan_names, .user = f },
                            .err = err };
    if (!is_there(w, root, &f->diffusers))
        return err_set(err, BERTH_EUNSUPPORTED, "no Wan transformer behind '%s'", root);
    f->depth = arch_layers(w, root, "blocks");
    if (f->depth > WAN_DEPTH_MAX)
        return err_set(err, BERTH_ELIMIT, "%u blocks, at most %d are taken", f->depth,
                       WAN_DEPTH_MAX);
    if (others(&k) || dim(&k, "patch_embedding.weight", 5, 0, &f->hidden) ||
        dim(&k, "patch_embedding.weight", 5, 1, &f->in_channels) ||
        check_patch(&k, "patch_embedding.weight", 5) || dim(&k, "head.head.weight", 2, 0, &out) ||
        dim(&k, "text_embedding.0.weight", 2, 1, &f->context_dim) ||
        dim(&k, "blocks.0.ffn.0.weight", 2, 0, &f->mlp) || heads(&k, f) || pictures(&k, f))
        return err->code;
    f->out_channels = out / PIXELS;
    if (vace(&k, f) || camera(&k, f))
        return err->code;
    if (out % PIXELS || f->in_channels < f->out_channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Wan transformer that makes %llu values of a patch of %llu channels",
                       (unsigned long long)out, (unsigned long long)f->in_channels);
    return BERTH_OK;
}
