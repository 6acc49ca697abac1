/* Config of a Z-Image or Lumina2 transformer, from the names and shapes of its tensors (z-image.md
 * 1). */
#include "model/zimage/zimage.h"

#include "model/arch.h"
#include "model/canonical.h"

struct look {
    struct canonical in;
    struct zimage_net *f;
    berth_err *err;
};

static bool has(const struct weights *w, const char *root, const char *name)
{
    return arch_find(w, root, name) != NULL;
}

static bool ours_at(const struct weights *w, const char *root)
{
    return has(w, root, "cap_embedder.1.weight") &&
           has(w, root, "noise_refiner.0.attention.k_norm.weight");
}

static bool diffusers_at(const struct weights *w, const char *root)
{
    return has(w, root, "cap_embedder.1.weight") &&
           has(w, root, "noise_refiner.0.attention.norm_k.weight");
}

bool zimage_at(const struct weights *w, const char *root)
{
    return ours_at(w, root) || diffusers_at(w, root);
}

/* Others with such blocks, told by what they have beside them. */
static const char *relative(const struct weights *w, const char *root)
{
    return has(w, root, "dec_net.cond_embed.weight") ? "Z-Image in pixel space" : NULL;
}

/* A dimension of a tensor that must be there, 1..ZIMAGE_WIDTH_MAX. */
static berth_status dim(const struct look *k, const char *name, int ndim, int axis, uint64_t *out)
{
    const struct weights_entry *e = canonical_find(&k->in, "%s", name);
    char text[SHAPE_TEXT_MAX];
    if (!e)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a Z-Image transformer without '%s'", name);
    if (e->shape.ndim != ndim || !e->shape.dim[axis] || e->shape.dim[axis] > ZIMAGE_WIDTH_MAX)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'%.120s' is %s, not of %d dimensions of at most %d", e->name,
                       shape_text(&e->shape, text), ndim, ZIMAGE_WIDTH_MAX);
    *out = e->shape.dim[axis];
    return BERTH_OK;
}

/* Channels of a latent, from the width of a patch. */
static berth_status channels(const struct look *k, const char *what, uint64_t wide, uint64_t *out)
{
    const uint64_t pixels = ZIMAGE_PATCH * ZIMAGE_PATCH;
    if (wide % pixels)
        return err_set(k->err, BERTH_EUNSUPPORTED, "%s: patches of %llu values, not %llu a channel",
                       what, (unsigned long long)wide, (unsigned long long)pixels);
    *out = wide / pixels;
    return BERTH_OK;
}

/* Rows of keys: the rest of a stacked layer is halved between them and the values. */
static berth_status key_rows(const struct look *k, uint64_t *out)
{
    uint64_t rows = 0;
    if (k->f->diffusers)
        return dim(k, "layers.0.attention.k.weight", 2, 0, out);
    if (dim(k, "layers.0.attention.qkv.weight", 2, 0, &rows))
        return k->err->code;
    *out = rows > k->f->hidden ? (rows - k->f->hidden) / 2 : 0;
    return BERTH_OK;
}

/* What each axis of positions has of a head: a third, or of Z-Image a quarter and 3 / 8 twice. */
static void axes(struct zimage_net *f)
{
    f->axis[0] = f->lumina ? f->head_dim / 3 : f->head_dim / 4;
    f->axis[1] = f->axis[2] = (f->head_dim - f->axis[0]) / 2;
    f->theta = f->lumina ? 10000.0 : 256.0;
}

/* Heads follow from the norm of one. */
static berth_status heads(const struct look *k, uint64_t head)
{
    struct zimage_net *f = k->f;
    uint64_t keys = 0;
    if (key_rows(k, &keys))
        return k->err->code;
    if (head % (f->lumina ? 6 : 16) || f->hidden % head || !keys || keys % head || f->hidden % keys)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a Z-Image transformer of width %llu with heads of %llu and %llu rows of "
                       "keys: they have no whole pairs for each axis, or are not all of it",
                       (unsigned long long)f->hidden, (unsigned long long)head,
                       (unsigned long long)keys);
    f->head_dim = (uint32_t)head;
    f->heads = (uint32_t)(f->hidden / head);
    f->kv_heads = (uint32_t)(keys / head);
    axes(f);
    return BERTH_OK;
}

static berth_status depth(const struct look *k, const char *list, uint32_t *out)
{
    *out = arch_layers(k->in.w, k->in.root, list);
    return *out > ZIMAGE_DEPTH_MAX ? err_set(k->err, BERTH_ELIMIT, "%u %s, at most %d are taken",
                                             *out, list, ZIMAGE_DEPTH_MAX)
                                   : BERTH_OK;
}

berth_status zimage_detect(const struct weights *w, const char *root, struct zimage_net *f,
                           berth_err *err)
{
    *f = (struct zimage_net) { .diffusers = !ours_at(w, root) };
    struct look k = { .in = { .w = w, .root = root, .names = zimage_names, .user = f },
                      .f = f,
                      .err = err };
    uint64_t in = 0, out = 0, head = 0;
    if (!zimage_at(w, root))
        return err_set(err, BERTH_EUNSUPPORTED, "no Z-Image transformer behind '%s'", root);
    const char *other = relative(w, root);
    if (other)
        return err_set(err, BERTH_EUNSUPPORTED, "%s, a relative of Z-Image: not supported", other);
    f->lumina = has(w, root, "layers.0.adaLN_modulation.1.weight");
    f->time_scale = f->lumina ? 1.0f : 1000.0f;
    f->pad_to = has(w, root, "cap_pad_token") ? ZIMAGE_PAD_TO : 1;
    if (dim(&k, "cap_embedder.1.weight", 2, 0, &f->hidden) ||
        dim(&k, "cap_embedder.1.weight", 2, 1, &f->context_dim) ||
        (has(w, root, "siglip_embedder.0.weight") &&
         dim(&k, "siglip_embedder.0.weight", 1, 0, &f->siglip_dim)) ||
        (has(w, root, "clip_text_pooled_proj.0.weight") &&
         dim(&k, "clip_text_pooled_proj.0.weight", 1, 0, &f->pooled_dim)) ||
        dim(&k, "x_embedder.weight", 2, 1, &in) ||
        channels(&k, "x_embedder", in, &f->in_channels) ||
        dim(&k, "final_layer.linear.weight", 2, 0, &out) ||
        channels(&k, "final_layer.linear", out, &f->out_channels) ||
        dim(&k, "final_layer.adaLN_modulation.1.weight", 2, 1, &f->mod) ||
        dim(&k, "layers.0.feed_forward.w1.weight", 2, 0, &f->ffn) ||
        dim(&k, "layers.0.attention.k_norm.weight", 1, 0, &head) || heads(&k, head) ||
        depth(&k, "layers", &f->layers) || depth(&k, "noise_refiner", &f->noise_refiners) ||
        depth(&k, "context_refiner", &f->context_refiners) ||
        depth(&k, "siglip_refiner", &f->siglip_refiners))
        return err->code;
    return BERTH_OK;
}
