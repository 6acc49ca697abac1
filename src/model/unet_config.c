/* What a file's UNet looks like, from the names and shapes of its tensors (unet.md 1). */
#include "model/unet.h"

#include "model/arch.h"

#include <stdarg.h>

struct walk { /* a file seen through canonical names */
    const struct weights *w;
    const char *root;
    struct unet_net *u;
    berth_err *err;
};

/* The tensor's entry by its canonical name, or NULL. */
static const struct weights_entry *find(const struct walk *k, const char *fmt, ...)
    PRINTF_LIKE(2, 3);
static const struct weights_entry *find(const struct walk *k, const char *fmt, ...)
{
    char name[192];
    struct net_source at;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof name)
        return NULL;
    net_names_fn *names = unet_names(k->u);
    if (!names)
        return arch_find(k->w, k->root, name);
    return names(k->u, name, &at) ? arch_find(k->w, k->root, at.name) : NULL;
}

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

/* Transformer blocks of "<block>.1."; UNET_DEPTH_MAX + 1: too many. */
static uint32_t depth_of(const struct walk *k, const char *side, uint32_t i)
{
    uint32_t n = 0;
    while (n <= UNET_DEPTH_MAX &&
           find(k, "%s.%u.1.transformer_blocks.%u.attn1.to_q.weight", side, i, n))
        n++;
    return n;
}

/* What any transformer of the network says about all of them; blocks have it at "<side>.<i>.1.". */
static berth_status read_transformer(struct walk *k, const char *path, uint64_t ch)
{
    struct unet_net *u = k->u;
    const struct weights_entry *proj = find(k, "%s.proj_in.weight", path);
    uint64_t context = 0;
    char text[SHAPE_TEXT_MAX];
    if (dim(k, find(k, "%s.transformer_blocks.0.attn2.to_k.weight", path), 1, &context,
            "attn2.to_k.weight"))
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
static berth_status read_depth(struct walk *k, const char *side, uint32_t i, uint64_t ch,
                               uint32_t *depth)
{
    char path[64];
    *depth = depth_of(k, side, i);
    if (!*depth)
        return BERTH_OK;
    if (*depth > UNET_DEPTH_MAX)
        return err_set(k->err, BERTH_ELIMIT, "'%s.%u' has more than %d transformer blocks", side, i,
                       UNET_DEPTH_MAX);
    snprintf(path, sizeof path, "%s.%u.1", side, i);
    return read_transformer(k, path, ch);
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
    uint32_t res = 0, i = 1;
    u->levels = 0;
    for (;; i++) {
        bool op = find(k, "input_blocks.%u.0.op.weight", i) != NULL;
        if (!op && !find(k, "input_blocks.%u.0.in_layers.0.weight", i))
            break;
        if (i == UNET_BLOCKS_MAX)
            return err_set(k->err, BERTH_ELIMIT, "a UNet of more than %d input blocks",
                           UNET_BLOCKS_MAX);
        if (op) {
            if (close_level(k, res, ch))
                return k->err->code;
            res = 0;
            continue;
        }
        res++;
        if (dim(k, find(k, "input_blocks.%u.0.out_layers.3.weight", i), 0, &ch,
                "out_layers.3.weight") ||
            read_depth(k, "input_blocks", i, ch, &u->depth_in[i]))
            return k->err->code;
    }
    u->input_blocks = i;
    return close_level(k, res, ch);
}

static berth_status walk_middle(struct walk *k)
{
    struct unet_net *u = k->u;
    uint64_t ch;
    u->middle_attention = find(k, "middle_block.1.proj_in.weight") != NULL;
    u->middle = find(k, "middle_block.0.in_layers.0.weight") != NULL;
    if (!u->middle_attention)
        return BERTH_OK;
    while (u->depth_middle <= UNET_DEPTH_MAX &&
           find(k, "middle_block.1.transformer_blocks.%u.attn1.to_q.weight", u->depth_middle))
        u->depth_middle++;
    if (!u->middle || !u->depth_middle || u->depth_middle > UNET_DEPTH_MAX)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "the UNet's middle: %s res block, %u transformer blocks",
                       u->middle ? "a" : "no", u->depth_middle);
    return dim(k, find(k, "middle_block.0.out_layers.3.weight"), 0, &ch, "out_layers.3.weight")
               ? k->err->code
               : read_transformer(k, "middle_block.1", ch);
}

static berth_status walk_up(struct walk *k)
{
    struct unet_net *u = k->u;
    uint64_t ch;
    uint32_t i = 0;
    for (; i < UNET_BLOCKS_MAX && find(k, "output_blocks.%u.0.in_layers.0.weight", i); i++)
        if (dim(k, find(k, "output_blocks.%u.0.out_layers.3.weight", i), 0, &ch,
                "out_layers.3.weight") ||
            read_depth(k, "output_blocks", i, ch, &u->depth_out[i]))
            return k->err->code;
    u->output_blocks = i;
    if (i != u->input_blocks)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a UNet of %u input and %u output blocks",
                       u->input_blocks, i);
    return BERTH_OK;
}

/* Files in diffusers' names: how many res blocks a level has decides what everything else is called. */
static void look_for_diffusers(struct walk *k)
{
    char name[64];
    uint32_t n = 0;
    if (arch_find(k->w, k->root, "input_blocks.0.0.weight"))
        return;
    for (; n < UNET_BLOCKS_MAX; n++) {
        snprintf(name, sizeof name, "down_blocks.0.resnets.%u.norm1.weight", n);
        if (!arch_find(k->w, k->root, name))
            break;
    }
    k->u->diffusers = n > 0;
    k->u->res[0] = n;
}

berth_status unet_detect(const struct weights *w, const char *root, struct unet_net *out,
                         berth_err *err)
{
    *out = (struct unet_net) { .out_channels = 4 };
    struct walk k = { .w = w, .root = root, .u = out, .err = err };
    look_for_diffusers(&k);
    const struct weights_entry *first = find(&k, "input_blocks.0.0.weight"),
                               *last = find(&k, "out.2.weight"),
                               *adm = find(&k, "label_emb.0.0.weight");
    if (!first || !find(&k, "time_embed.0.weight"))
        return err_set(err, BERTH_EUNSUPPORTED, "no UNet behind '%s'", root);
    if (find(&k, "input_blocks.1.0.time_stack.in_layers.0.weight"))
        return err_set(err, BERTH_EUNSUPPORTED, "a UNet for video (SVD)");
    if (find(&k, "label_emb.weight"))
        return err_set(err, BERTH_EUNSUPPORTED, "a UNet with classes (the x4 upscaler)");
    if (dim(&k, first, 0, &out->model_channels, "") || dim(&k, first, 1, &out->in_channels, "") ||
        (last && dim(&k, last, 0, &out->out_channels, "")) ||
        (adm && dim(&k, adm, 1, &out->adm_channels, "")) || walk_down(&k) || walk_middle(&k) ||
        walk_up(&k))
        return err->code;
    if (!out->context_dim)
        return err_set(err, BERTH_EUNSUPPORTED, "a UNet without transformers");
    if (out->in_channels < out->out_channels)
        return err_set(err, BERTH_EUNSUPPORTED, "a UNet of %llu channels in and %llu out",
                       (unsigned long long)out->in_channels, (unsigned long long)out->out_channels);
    return BERTH_OK;
}
