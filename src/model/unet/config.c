/* What a file's UNet looks like, from the names and shapes of its tensors (unet.md 1). */
#include "model/unet/unet.h"

#include "model/arch.h"
#include "model/canonical.h"

#include <string.h>

#define SDXL_CONTEXT 2048    /* CLIP-L's width and CLIP-G's */
#define REFINER_CONTEXT 1280 /* CLIP-G's */

struct walk {
    struct canonical in;
    struct unet_net *u;
    berth_err *err;
};

/* A dimension of a tensor that must be there, 1..UNET_CHANNELS_MAX. */
static berth_status dim(const struct walk *k, const struct weights_entry *e, int axis,
                        uint64_t *out, const char *what)
{
    char text[SHAPE_TEXT_MAX];
    if (!e)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a UNet without '%s'", what);
    if (e->shape.ndim <= axis || !e->shape.dim[axis] || e->shape.dim[axis] > UNET_CHANNELS_MAX)
        return err_set(k->err, BERTH_EUNSUPPORTED, "'%.120s' is %s, at most %d a side is taken",
                       e->name, shape_text(&e->shape, text), UNET_CHANNELS_MAX);
    *out = e->shape.dim[axis];
    return BERTH_OK;
}

/* Transformer blocks of the transformer at `path`. */
static uint32_t depth_of(const struct walk *k, const char *path)
{
    char name[128], *list = name;
    struct net_source at = { .rows = 0 };
    net_names_fn *names = k->in.names;
    snprintf(name, sizeof name, "%s.transformer_blocks.0.norm1.weight", path);
    if (names && !names(k->u, name, &at))
        return 0;
    if (names)
        list = at.name;
    char *end = strstr(list, ".0.norm1.weight");
    if (!end)
        return 0;
    *end = '\0';
    return arch_layers(k->in.w, k->in.root, list);
}

/* Is there anything of a transformer at `path`, beside its blocks? */
static bool transformer_at(const struct walk *k, const char *path)
{
    static const char *const part[] = { "norm", "proj_in", "proj_out" };
    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        if (canonical_find(&k->in, "%s.%s.weight", path, part[i]) ||
            canonical_find(&k->in, "%s.%s.bias", path, part[i]))
            return true;
    return false;
}

/* What any transformer of the network says about all of them; blocks have it at "<side>.<i>.1.". */
static berth_status read_transformer(struct walk *k, const char *path, uint64_t ch)
{
    struct unet_net *u = k->u;
    const struct weights_entry *proj = canonical_find(&k->in, "%s.proj_in.weight", path);
    uint64_t context = 0;
    char text[SHAPE_TEXT_MAX];
    if (dim(k, canonical_find(&k->in, "%s.transformer_blocks.0.attn2.to_k.weight", path), 1,
            &context, "attn2.to_k.weight"))
        return k->err->code;
    if (!proj || (proj->shape.ndim != 2 && proj->shape.ndim != 4))
        return err_set(k->err, BERTH_EUNSUPPORTED, "'%s.proj_in.weight' is %s", path,
                       proj ? shape_text(&proj->shape, text) : "missing");
    if (!u->context_dim) {
        u->context_dim = context;
        u->linear_proj = proj->shape.ndim == 2;
        bool sd1 = !u->adm_channels && !u->linear_proj;
        u->heads = sd1 ? 8 : 0;
        u->head_dim = sd1 ? 0 : 64;
    }
    if (context != u->context_dim || (proj->shape.ndim == 2) != u->linear_proj)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'%s' is not like the network's other transformers", path);
    if (ch % (u->heads ? u->heads : u->head_dim))
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'%s': %llu channels do not divide into heads (%s)", path,
                       (unsigned long long)ch, u->heads ? "8 of them" : "64 wide");
    return BERTH_OK;
}

/* The transformer of a block, if it has one. */
static berth_status read_depth(struct walk *k, const char *path, uint64_t ch, uint32_t *depth)
{
    *depth = depth_of(k, path);
    if (!*depth && !transformer_at(k, path))
        return BERTH_OK;
    if (!*depth)
        return err_set(k->err, BERTH_EUNSUPPORTED, "'%s' is a transformer without blocks", path);
    if (*depth > UNET_DEPTH_MAX)
        return err_set(k->err, BERTH_ELIMIT, "'%s' has more than %d transformer blocks", path,
                       UNET_DEPTH_MAX);
    return read_transformer(k, path, ch);
}

/* A res block "<side>.<i>.0", and the transformer behind it, if there is one. */
static berth_status read_block(struct walk *k, const char *side, uint32_t i, uint64_t *ch,
                               uint32_t *depth)
{
    char name[64], path[64];
    snprintf(name, sizeof name, "%s.%u.0.out_layers.3.weight", side, i);
    snprintf(path, sizeof path, "%s.%u.1", side, i);
    return dim(k, canonical_find(&k->in, "%s", name), 0, ch, name) ||
                   read_depth(k, path, *ch, depth)
               ? k->err->code
               : BERTH_OK;
}

/* Blocks of a side. diffusers' files have levels of as many; see look_for_diffusers(). */
static berth_status count_blocks(struct walk *k, const char *side, const char *theirs,
                                 uint32_t *out)
{
    const struct unet_net *u = k->u;
    uint32_t n = arch_layers(k->in.w, k->in.root, u->diffusers ? theirs : side);
    if (n <= UNET_BLOCKS_MAX)
        *out = u->diffusers ? n * (u->res[0] + 1) : n;
    if (n > UNET_BLOCKS_MAX || *out > UNET_BLOCKS_MAX)
        return err_set(k->err, BERTH_ELIMIT, "a UNet of more than %d %s", UNET_BLOCKS_MAX, side);
    return BERTH_OK;
}

static berth_status close_level(struct walk *k, uint32_t res, uint64_t ch)
{
    struct unet_net *u = k->u;
    if (u->levels == UNET_LEVELS_MAX)
        return err_set(k->err, BERTH_ELIMIT, "a UNet of more than %d levels", UNET_LEVELS_MAX);
    if (!res || ch % u->model_channels)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "level %u of the UNet: %u res blocks, %llu channels with a base of %llu",
                       u->levels, res, (unsigned long long)ch,
                       (unsigned long long)u->model_channels);
    u->res[u->levels] = res;
    u->mult[u->levels++] = (uint32_t)(ch / u->model_channels);
    return BERTH_OK;
}

static berth_status walk_down(struct walk *k)
{
    struct unet_net *u = k->u;
    uint64_t ch = u->model_channels;
    uint32_t res = 0;
    if (count_blocks(k, "input_blocks", "down_blocks", &u->input_blocks))
        return k->err->code;
    u->levels = 0;
    for (uint32_t i = 1; i < u->input_blocks; i++) {
        if (canonical_find(&k->in, "input_blocks.%u.0.op.weight", i) ||
            canonical_find(&k->in, "input_blocks.%u.0.op.bias", i)) {
            if (close_level(k, res, ch))
                return k->err->code;
            res = 0;
            continue;
        }
        res++;
        if (read_block(k, "input_blocks", i, &ch, &u->depth_in[i]))
            return k->err->code;
    }
    return close_level(k, res, ch);
}

/* Of three: res block, transformer, res block. Any tensor of a part makes it one. */
static uint32_t middle_parts(const struct walk *k)
{
    if (!k->u->diffusers)
        return arch_layers(k->in.w, k->in.root, "middle_block");
    return arch_layers(k->in.w, k->in.root, "mid_block.attentions")
               ? 3
               : arch_layers(k->in.w, k->in.root, "mid_block.resnets");
}

static berth_status walk_middle(struct walk *k)
{
    struct unet_net *u = k->u;
    uint64_t ch = 0;
    uint32_t parts = middle_parts(k);
    u->middle = parts > 0; /* small relatives have the first part alone, or none at all */
    u->middle_attention = parts > 1;
    if (!u->middle_attention)
        return BERTH_OK;
    if (dim(k, canonical_find(&k->in, "middle_block.0.out_layers.3.weight"), 0, &ch,
            "middle_block.0.out_layers.3.weight") ||
        read_depth(k, "middle_block.1", ch, &u->depth_middle))
        return k->err->code;
    if (!u->depth_middle)
        return err_set(k->err, BERTH_EUNSUPPORTED, "the UNet's middle has no transformer");
    return BERTH_OK;
}

static berth_status walk_up(struct walk *k)
{
    struct unet_net *u = k->u;
    uint64_t ch = 0;
    if (count_blocks(k, "output_blocks", "up_blocks", &u->output_blocks))
        return k->err->code;
    if (u->output_blocks != u->input_blocks)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a UNet of %u input and %u output blocks",
                       u->input_blocks, u->output_blocks);
    for (uint32_t i = 0; i < u->output_blocks; i++)
        if (read_block(k, "output_blocks", i, &ch, &u->depth_out[i]))
            return k->err->code;
    return BERTH_OK;
}

/* Files in diffusers' names: how many res blocks a level has decides what everything else is
 * called. */
static void look_for_diffusers(struct walk *k)
{
    if (arch_find(k->in.w, k->in.root, "input_blocks.0.0.weight"))
        return;
    uint32_t n = arch_layers(k->in.w, k->in.root, "down_blocks.0.resnets");
    if (n > UNET_BLOCKS_MAX)
        n = 0;
    k->u->diffusers = n > 0;
    k->u->res[0] = n;
    k->in.names = unet_names(k->u);
}

/* What can be told to be missing though nothing asks for it: the vector of SDXL's models, whose
 * contexts no other has; halves of pairs. */
static berth_status whole(const struct walk *k)
{
    const struct unet_net *u = k->u;
    if (!u->adm_channels && (canonical_find(&k->in, "label_emb.0.0.bias") ||
                             canonical_find(&k->in, "label_emb.0.2.weight") ||
                             canonical_find(&k->in, "label_emb.0.2.bias") ||
                             u->context_dim == SDXL_CONTEXT || u->context_dim == REFINER_CONTEXT))
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a UNet of SDXL's without '%slabel_emb.0.0.weight'", k->in.root);
    if (u->in_channels < u->out_channels)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a UNet of %llu channels in and %llu out",
                       (unsigned long long)u->in_channels, (unsigned long long)u->out_channels);
    return BERTH_OK;
}

/* half: without output blocks and what is behind them. */
static berth_status detect(const struct weights *w, const char *root, bool half,
                           struct unet_net *out, berth_err *err)
{
    *out = (struct unet_net) { .out_channels = 4 };
    struct walk k = { .in = { .w = w, .root = root, .user = out }, .u = out, .err = err };
    look_for_diffusers(&k);
    const struct weights_entry *first = canonical_find(&k.in, "input_blocks.0.0.weight"),
                               *last = canonical_find(&k.in, "out.2.weight"),
                               *adm = canonical_find(&k.in, "label_emb.0.0.weight");
    if (!first || !canonical_find(&k.in, "time_embed.0.weight"))
        return err_set(err, BERTH_EUNSUPPORTED, "no UNet behind '%s'", root);
    if (canonical_find(&k.in, "input_blocks.1.0.time_stack.in_layers.0.weight"))
        return err_set(err, BERTH_EUNSUPPORTED, "a UNet for video (SVD)");
    if (canonical_find(&k.in, "label_emb.weight"))
        return err_set(err, BERTH_EUNSUPPORTED, "a UNet with classes (the x4 upscaler)");
    if (dim(&k, first, 0, &out->model_channels, "") || dim(&k, first, 1, &out->in_channels, "") ||
        (last && dim(&k, last, 0, &out->out_channels, "")) ||
        (adm && dim(&k, adm, 1, &out->adm_channels, "")) || walk_down(&k) || walk_middle(&k) ||
        (!half && walk_up(&k)))
        return err->code;
    if (!out->context_dim)
        return err_set(err, BERTH_EUNSUPPORTED, "a UNet without transformers");
    return whole(&k);
}

berth_status unet_detect(const struct weights *w, const char *root, struct unet_net *out,
                         berth_err *err)
{
    return detect(w, root, false, out, err);
}

berth_status unet_detect_half(const struct weights *w, const char *root, struct unet_net *out,
                              berth_err *err)
{
    return detect(w, root, true, out, err);
}
