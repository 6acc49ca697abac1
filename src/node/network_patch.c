/* network_patch: nodes that change a model's network while it runs (model/patches.def), and
 * guidance by passes of a network so changed. What a family does not offer is refused here, before
 * anything is loaded. */
#include "model/hypernet.h"
#include "node/compute.h"
#include "op/resize.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define MODEL_IN SOCKET("model", "MODEL")

/* Can the input's network be changed so? */
static berth_status can_patch(struct node_call *c, const struct net_patch_kind *kind,
                              berth_err *err)
{
    const struct model_ref *ref;
    struct diffusion_info info;
    if (in_model(c, "model", &ref, err) || ready_info(ref, &info, err))
        return err->code;
    if (info.places & kind->places)
        return BERTH_OK;
    return err_set(err, BERTH_EUNSUPPORTED, "%s has nothing that %s could change", info.family,
                   c->cls->name);
}

static berth_status give_patched(struct node_call *c, const struct model_change *change,
                                 berth_err *err)
{
    return can_patch(c, change->net.is, err) ? err->code : give_changed(c, *change, err);
}

/* ---- by numbers alone ---- */

struct network_patch {
    const struct net_patch_kind *net;
    const struct guide_patch_kind *guide; /* NULL: none */
    const char *input[PATCH_PARAMS];      /* for p[i] */
};

static berth_status run_patch(struct node_call *c, berth_err *err)
{
    const struct network_patch *how = c->cls->own;
    struct model_change change = { .net.is = how->net, .guide.is = how->guide };
    for (size_t i = 0; i < PATCH_PARAMS; i++)
        if (how->input[i] && in_finite(c, how->input[i], &change.net.p[i], err))
            return err->code;
    return give_patched(c, &change, err);
}

#define NETWORK(kind, guide_, ...)                                                                 \
    OUT_OF("MODEL"), .run = run_patch, .own = &(const struct network_patch)                        \
    {                                                                                              \
        &patch_##kind, guide_,                                                                     \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define MORE_IN(n, def, lo, hi, by) FLOAT_IN(n, def, lo, hi, by, .more = ADVANCED)
#define FREE_U_IN(b1, b2)                                                                          \
    INS(MODEL_IN, MORE_IN("b1", b1, 0.0, 10.0, 0.01), MORE_IN("b2", b2, 0.0, 10.0, 0.01),          \
        MORE_IN("s1", 0.9, 0.0, 10.0, 0.01), MORE_IN("s2", 0.2, 0.0, 10.0, 0.01))

NODE_CLASS(FreeU, .category = "model/patch/unet", V3("freelunch"), FREE_U_IN(1.1, 1.2),
           NETWORK(free_u, NULL, "b1", "b2", "s1", "s2"));
NODE_CLASS(FreeU_V2, .category = "model/patch/unet", V3("freelunch"), FREE_U_IN(1.3, 1.4),
           NETWORK(free_u_2, NULL, "b1", "b2", "s1", "s2"));
NODE_CLASS(NAGuidance, .display = "Normalized Attention Guidance", .category = "advanced/guidance",
           .module = MOD("nag"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(MODEL_IN, FLOAT_IN("nag_scale", 5.0, 0.0, 50.0, 0.1),
               FLOAT_IN("nag_alpha", 0.5, 0.0, 1.0, 0.01),
               FLOAT_IN("nag_tau", 1.5, 1.0, 10.0, 0.01)),
           NETWORK(nag, &guide_both_prompts, "nag_scale", "nag_alpha", "nag_tau"));
NODE_CLASS(
    ScaleROPE, .category = "model/patch", .module = MOD("rope"),
    .flags = NODE_V3 | NODE_EXPERIMENTAL,
    INS(MODEL_IN, MORE_IN("scale_x", 1.0, 0.0, 100.0, 0.1),
        MORE_IN("shift_x", 0.0, -256.0, 256.0, 0.1), MORE_IN("scale_y", 1.0, 0.0, 100.0, 0.1),
        MORE_IN("shift_y", 0.0, -256.0, 256.0, 0.1), MORE_IN("scale_t", 1.0, 0.0, 100.0, 0.1),
        MORE_IN("shift_t", 0.0, -256.0, 256.0, 0.1)),
    NETWORK(positions, NULL, "scale_x", "shift_x", "scale_y", "shift_y", "scale_t", "shift_t"));

/* ---- Deep Shrink ---- */

static berth_status in_method(const struct node_call *c, const char *input, double *out,
                              berth_err *err)
{
    const char *name;
    enum resize how;
    if (in_text(c, input, &name, err))
        return err->code;
    if (!resize_parse(name, &how) || how == RESIZE_LANCZOS)
        return err_set(err, BERTH_EINVAL, "'%.60s' does not resize latents", name);
    *out = how;
    return BERTH_OK;
}

static berth_status run_shrink(struct node_call *c, berth_err *err)
{
    struct model_change change = { .net.is = &patch_shrink };
    double *p = change.net.p; /* block, factor, from, to, down, up */
    bool after;
    if (in_finite(c, "block_number", &p[0], err) || in_finite(c, "downscale_factor", &p[1], err) ||
        in_percents(c, &p[2], &p[3], err) || in_bool(c, "downscale_after_skip", &after, err) ||
        in_method(c, "downscale_method", &p[4], err) || in_method(c, "upscale_method", &p[5], err))
        return err->code;
    if (!(p[1] >= 0.1))
        return err_set(err, BERTH_EINVAL, "a downscale_factor of %g", p[1]);
    if (!after)
        change.net.is = &patch_shrink_kept;
    return give_patched(c, &change, err);
}

#define METHODS CHOICES("bicubic", "nearest-exact", "bilinear", "area", "bislerp")
NODE_CLASS(PatchModelAddDownscale, .display = "PatchModelAddDownscale (Kohya Deep Shrink)",
           .category = "model/patch/unet", V3("model_downscale"),
           INS(MODEL_IN, INT_IN("block_number", 3, 1, 32, 1, .more = ADVANCED),
               FLOAT_IN("downscale_factor", 2.0, 0.1, 9.0, 0.001),
               MORE_IN("start_percent", 0.0, 0.0, 1.0, 0.001),
               MORE_IN("end_percent", 0.35, 0.0, 1.0, 0.001),
               BOOL_IN("downscale_after_skip", true, .more = ADVANCED),
               COMBO_IN("downscale_method", METHODS), COMBO_IN("upscale_method", METHODS)),
           OUT_OF("MODEL"), .run = run_shrink);

/* ---- away from a network made worse ---- */

static berth_status run_perturbed(struct node_call *c, berth_err *err)
{
    struct model_change change = { .net.is = &patch_blind_middle,
                                   .guide = { .is = &guide_changed_pass,
                                              .p = { 0, HUGE_VAL, -HUGE_VAL } } };
    return in_finite(c, "scale", &change.guide.p[0], err) ? err->code
                                                          : give_patched(c, &change, err);
}

NODE_CLASS(PerturbedAttentionGuidance, .category = "model/patch/unet", V3("pag"),
           INS(MODEL_IN, FLOAT_IN("scale", 3.0, 0.0, 100.0, 0.01, .round = "0.01")),
           OUT_OF("MODEL"), .run = run_perturbed);

static berth_status run_self_attention(struct node_call *c, berth_err *err)
{
    struct model_change change = { .net.is = &patch_sees_middle, .guide.is = &guide_sag };
    double *p = change.guide.p;
    if (in_finite(c, "scale", &p[0], err) || in_finite(c, "blur_sigma", &p[1], err))
        return err->code;
    if (!(p[1] > 0))
        return err_set(err, BERTH_EINVAL, "a blur_sigma of %g", p[1]);
    return give_patched(c, &change, err);
}

NODE_CLASS(SelfAttentionGuidance, .display = "Self-Attention Guidance", .category = "experimental",
           .module = MOD("sag"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(MODEL_IN, FLOAT_IN("scale", 0.5, -2.0, 5.0, 0.01),
               MORE_IN("blur_sigma", 2.0, 0.0, 10.0, 0.1)),
           OUT_OF("MODEL"), .run = run_self_attention);

/* The numbers in a text, whatever is between them, as bits. */
static berth_status in_blocks(const struct node_call *c, const char *input, uint64_t *out,
                              berth_err *err)
{
    const char *text;
    *out = 0;
    if (in_text(c, input, &text, err))
        return err->code;
    while (*text) {
        unsigned n = 0;
        if (!isdigit((unsigned char)*text)) {
            text++;
            continue;
        }
        while (isdigit((unsigned char)*text) && n < 1000)
            n = n * 10 + (unsigned)(*text++ - '0');
        if (n > 63)
            return err_set(err, BERTH_EINVAL, "block %u of '%s': there are 0 to 63", n, input);
        *out |= UINT64_C(1) << n;
    }
    return BERTH_OK;
}

/* Which inputs name blocks; the guide counts what is left out in them. */
struct skipped {
    const char *doubles, *singles; /* singles NULL: none */
    const struct guide_patch_kind *guide;
    bool scale, rescaling; /* has these inputs */
};

static berth_status run_skipped(struct node_call *c, berth_err *err)
{
    const struct skipped *how = c->cls->own;
    struct model_change change = { .net.is = &patch_leave_out, .guide.is = how->guide };
    uint64_t *blocks = change.net.blocks;
    double *p = change.guide.p; /* scale, from, to, rescaling */
    struct model_ref same;
    if (in_blocks(c, how->doubles, &blocks[0], err) ||
        (how->singles && in_blocks(c, how->singles, &blocks[1], err)) ||
        in_percents(c, &p[1], &p[2], err) || (how->scale && in_finite(c, "scale", &p[0], err)) ||
        (how->rescaling && in_finite(c, "rescaling_scale", &p[3], err)))
        return err->code;
    if (blocks[0] || blocks[1])
        return give_patched(c, &change, err);
    return in_model_copy(c, "model", &same, err) ? err->code
                                                 : out_value(c, 0, value_model(&same), err);
}

#define BLOCKS_IN(n) TEXT_IN(n, "7, 8, 9", .more = "\"advanced\":true,\"multiline\":false")
#define SKIPPED(...)                                                                               \
    OUT_OF("MODEL"), .run = run_skipped, .own = &(const struct skipped)                            \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

NODE_CLASS(SkipLayerGuidanceDiT, .category = "advanced/guidance", .module = MOD("slg"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(MODEL_IN, BLOCKS_IN("double_layers"), BLOCKS_IN("single_layers"),
               FLOAT_IN("scale", 3.0, 0.0, 10.0, 0.1),
               MORE_IN("start_percent", 0.01, 0.0, 1.0, 0.001),
               MORE_IN("end_percent", 0.15, 0.0, 1.0, 0.001),
               FLOAT_IN("rescaling_scale", 0.0, 0.0, 10.0, 0.01)),
           SKIPPED("double_layers", "single_layers", &guide_changed_pass, true, true));
NODE_CLASS(SkipLayerGuidanceDiTSimple, .category = "advanced/guidance", .module = MOD("slg"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(MODEL_IN, BLOCKS_IN("double_layers"), BLOCKS_IN("single_layers"),
               MORE_IN("start_percent", 0.0, 0.0, 1.0, 0.001),
               MORE_IN("end_percent", 1.0, 0.0, 1.0, 0.001)),
           SKIPPED("double_layers", "single_layers", &guide_changed_negative, false, false));
NODE_CLASS(SkipLayerGuidanceSD3, .category = "advanced/guidance", .module = MOD("sd3"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(MODEL_IN, BLOCKS_IN("layers"), FLOAT_IN("scale", 3.0, 0.0, 10.0, 0.1),
               MORE_IN("start_percent", 0.01, 0.0, 1.0, 0.001),
               MORE_IN("end_percent", 0.15, 0.0, 1.0, 0.001)),
           SKIPPED("layers", NULL, &guide_changed_pass, true, false));

/* ---- steps that need not be computed ---- */

static berth_status run_cache(struct node_call *c, berth_err *err)
{
    struct model_change change = { .cache = { .said = true, .whole = c->cls->own != NULL } };
    struct model_cache *k = &change.cache;
    if (in_finite(c, "reuse_threshold", &k->threshold, err) ||
        in_finite(c, "start_percent", &k->start, err) || in_finite(c, "end_percent", &k->end, err))
        return err->code;
    return give_changed(c, change, err);
}

#define CACHE_IN                                                                                   \
    INS(MODEL_IN, MORE_IN("reuse_threshold", 0.2, 0.0, 3.0, 0.01),                                 \
        MORE_IN("start_percent", 0.15, 0.0, 1.0, 0.01),                                            \
        MORE_IN("end_percent", 0.95, 0.0, 1.0, 0.01), BOOL_IN("verbose", false, .more = ADVANCED))

NODE_CLASS(EasyCache, .display = "EasyCache", .category = "advanced/debug",
           .module = MOD("easycache"), .flags = NODE_V3 | NODE_EXPERIMENTAL, CACHE_IN,
           OUT_OF("MODEL"), .run = run_cache);
NODE_CLASS(LazyCache, .display = "LazyCache", .category = "advanced/debug",
           .module = MOD("easycache"), .flags = NODE_V3 | NODE_EXPERIMENTAL, CACHE_IN,
           OUT_OF("MODEL"), .run = run_cache, .own = "whole predictions");

/* ---- pictures to look at that need not be computed in every step ---- */

NODE_CLASS(FluxKVCache, .display = "Flux KV Cache", .category = "experimental",
           .module = MOD("flux"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           .description = "Keeps what the model sees of reference latents from the first step on. "
                          "They count as free of noise then.",
           INS(MODEL_IN), NETWORK(keep_refs, NULL, NULL));

/* ---- hypernetworks ---- */

static void free_hypernet(void *obj)
{
    hypernet_free(obj);
}
static const struct value_type type_hypernet = { .name = "HYPERNETWORK", .free = free_hypernet };

static berth_status run_hypernet(struct node_call *c, berth_err *err)
{
    struct model_change change = { .net.is = &patch_hypernet };
    struct str path = { 0 };
    struct hypernet *h = NULL;
    const char *name;
    if (can_patch(c, change.net.is, err) || in_finite(c, "strength", &change.net.p[0], err) ||
        in_text(c, "hypernetwork_name", &name, err))
        return err->code;
    berth_status s = folders_resolve(c->env->folders, "hypernetworks", name, &path, err);
    if (!s)
        s = hypernet_open(path.p, &h, err);
    str_release(&path);
    if (s)
        return s;
    if (h->dropout)
        log_warn(c->env->log, "node.hypernetwork",
                 "node=%s file=%s why=\"trained with dropout, which is left out here\"", c->id,
                 name);
    change.net.hyper = h;
    change.with = value_object(&type_hypernet, h); /* takes h */
    return change.with ? give_changed(c, change, err)
                       : err_set(err, BERTH_ENOMEM, "a hypernetwork");
}

NODE_CLASS(HypernetworkLoader, .display = "Load Hypernetwork", .category = "model/loaders",
           .module = MOD("hypernetwork"), .flags = NODE_V3,
           INS(SOCKET("model", "MODEL"), FOLDER_IN("hypernetwork_name", "hypernetworks"),
               FLOAT_IN("strength", 1.0, -10.0, 10.0, 0.01)),
           OUT_OF("MODEL"), .run = run_hypernet);

/* ---- fewer tokens for self-attention ---- */

static berth_status run_tiles(struct node_call *c, berth_err *err)
{
    struct model_change change = { .net.is = &patch_tiles };
    double *p = change.net.p; /* size of a tile, choices, depth, larger with depth */
    bool scaled;
    if (in_finite(c, "tile_size", &p[0], err) || in_finite(c, "swap_size", &p[1], err) ||
        in_finite(c, "max_depth", &p[2], err) || in_bool(c, "scale_depth", &scaled, err))
        return err->code;
    for (size_t i = 0; i < 3; i++)
        if (!(p[i] >= 0) || p[i] > 65536)
            return err_set(err, BERTH_EINVAL, "%s of %g", c->cls->in[1 + i].name, p[i]);
    p[3] = scaled;
    return give_patched(c, &change, err);
}

NODE_CLASS(HyperTile, .category = "model/patch/unet", V3("hypertile"),
           INS(MODEL_IN, INT_IN("tile_size", 256, 1, 2048, 0, .more = ADVANCED),
               INT_IN("swap_size", 2, 1, 128, 0, .more = ADVANCED),
               INT_IN("max_depth", 0, 0, 10, 0, .more = ADVANCED),
               BOOL_IN("scale_depth", false, .more = ADVANCED)),
           OUT_OF("MODEL"), .run = run_tiles);

static berth_status run_merge(struct node_call *c, berth_err *err)
{
    struct model_change change = { .net.is = &patch_merge };
    if (in_finite(c, "ratio", &change.net.p[0], err))
        return err->code;
    if (!(change.net.p[0] >= 0 && change.net.p[0] <= 1))
        return err_set(err, BERTH_EINVAL, "a ratio of %g, not 0 to 1", change.net.p[0]);
    return give_patched(c, &change, err);
}

NODE_CLASS(TomePatchModel, .category = "model/patch/unet", V3("tomesd"),
           INS(MODEL_IN, FLOAT_IN("ratio", 0.3, 0.0, 1.0, 0.01)), OUT_OF("MODEL"),
           .run = run_merge);
