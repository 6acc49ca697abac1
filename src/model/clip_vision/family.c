/* family.c: what the rest of the program knows of CLIP's encoders of pictures. */
#include "model/clip_vision/clip_vision.h"
#include "model/clip_vision/presets.h"

#include "base/str.h"
#include "model/canonical.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define WIDTH_MAX 65536
#define TOKENS_MAX 65536
#define LAYERS_MIN 2 /* the one before the last is asked for */
#define LAYERS_MAX 1024
#define HEADS 16 /* of all sizes that ComfyUI knows */

static_assert(sizeof(struct clip_vision) <= VISION_OWN_MAX, "own has its place");

static bool is_openclip(const struct weights *w, const char *root)
{
    return arch_find(w, root, "visual.transformer.resblocks.0.attn.in_proj_weight");
}

static bool at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "vision_model.encoder.layers.0.self_attn.q_proj.weight") ||
           is_openclip(w, root);
}

/* Without the token: SigLIP. */
static enum clip_vision_kind kind_of(const struct weights *w, uint32_t layers, bool class)
{
    const struct weights_meta *m = weights_meta_find(w, "berth.clip");
    if (!class)
        return CLIP_VISION_SIGLIP;
    if (m && m->kind == META_STRING && m->str_len == 1 && strchr("lhg", *m->str))
        return *m->str == 'l' ? CLIP_VISION_L : CLIP_VISION_H;
    return layers > 30 ? CLIP_VISION_H : CLIP_VISION_L;
}

static uint64_t heads_of(const struct weights *w)
{
    const struct weights_meta *m = weights_meta_find(w, "berth.heads");
    uint64_t n = 0;
    return m && m->kind == META_STRING && str_parse_u64(m->str, m->str_len, &n) && n ? n : HEADS;
}

/* Pixels of the square, from its patches. 27 x 27 of 14 are what fits into 384. */
static uint32_t side_of(uint64_t patches, uint32_t patch)
{
    uint64_t n = 1;
    while (n * n < patches)
        n++;
    if (n * n != patches || n * patch > VISION_SIDE_MAX)
        return 0;
    return n == 27 && patch == 14 ? 384 : (uint32_t)n * patch;
}

static berth_status check(const struct vision_net *v, uint64_t heads, uint64_t patch,
                          const char *root, berth_err *err)
{
    const struct clip_vision *c = clip_vision_of(v);
    if (!v->side || v->width == 0 || v->width > WIDTH_MAX || v->tokens > TOKENS_MAX ||
        heads > v->width || v->width % heads || c->layers < LAYERS_MIN || c->layers > LAYERS_MAX)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "CLIP vision at '%.60s': %" PRIu64 " tokens for patches of %" PRIu64
                       " pixels, width %" PRIu64 ", %" PRIu64 " heads, %u layers",
                       root, v->tokens, patch, v->width, heads, c->layers);
    return BERTH_OK;
}

#define DEEP_LAYERS 20

static void fill_results(const struct canonical *in, struct vision_net *v, struct clip_vision *c)
{
    const struct weights_entry *proj = canonical_find(in, "visual_projection.weight");
    const struct weights_entry *llava = canonical_find(in, "multi_modal_projector.linear_2.weight");
    const bool siglip = c->kind == CLIP_VISION_SIGLIP;
    c->projection = !siglip && proj;
    v->deep = siglip && c->layers >= DEEP_LAYERS;
    v->embeds_rows = siglip ? v->tokens : 1;
    v->embeds_width = c->projection ? arch_dim(proj, c->openclip ? 1 : 0) : v->width;
    v->projected_rows = llava && !siglip ? v->tokens - 1 : 0;
    v->projected_width = v->projected_rows ? arch_dim(llava, 0) : 0;
}

static berth_status config(const struct weights *w, const char *root, struct vision_net *v,
                           berth_err *err)
{
    static const float mean[2][3] = { { 0.48145466f, 0.4578275f, 0.40821073f },
                                      { 0.5f, 0.5f, 0.5f } };
    static const float std[2][3] = { { 0.26862954f, 0.26130258f, 0.27577711f },
                                     { 0.5f, 0.5f, 0.5f } };
    struct clip_vision *c = (struct clip_vision *)(void *)v->own;
    const struct canonical in = { .w = w, .root = root, .names = clip_vision_names, .user = v };
    c->openclip = is_openclip(w, root);
    const struct weights_entry *patch =
        canonical_find(&in, "vision_model.embeddings.patch_embedding.weight");
    const struct weights_entry *position =
        canonical_find(&in, "vision_model.embeddings.position_embedding.weight");
    if (!patch || !position || patch->shape.ndim != 4)
        return err_set(err, BERTH_EUNSUPPORTED,
                       patch && position ? "SigLIP 2 of any sides (naflex) cannot be computed yet"
                                         : "CLIP vision without its embeddings");
    const uint64_t side = arch_dim(patch, 3);
    const bool class = canonical_find(&in, "vision_model.embeddings.class_embedding.weight");
    v->width = arch_dim(patch, 0);
    v->tokens = arch_dim(position, 0);
    v->patch = side < VISION_SIDE_MAX ? (uint32_t)side : 0;
    c->layers = arch_layers(w, root, clip_vision_list(c->openclip));
    c->kind = kind_of(w, c->layers, class);
    v->side = v->patch && v->tokens > class ? side_of(v->tokens - class, v->patch) : 0;
    memcpy(v->mean, mean[!class], sizeof v->mean);
    memcpy(v->std, std[!class], sizeof v->std);
    const uint64_t heads = heads_of(w);
    if (check(v, heads, side, root, err))
        return err->code;
    c->heads = (uint32_t)heads;
    fill_results(&in, v, c);
    return BERTH_OK;
}

const struct vision_class vision_clip_vision = {
    .arch = { VISION_ARCH("clip-vision", "CLIP vision (L, H, G) and SigLIP"), .detect = at,
              .presets = clip_vision_presets },
    .name = "CLIP vision",
    .what = "a CLIP vision model",
    .config = config,
    .names = clip_vision_names,
    .forward = clip_vision_forward,
};
