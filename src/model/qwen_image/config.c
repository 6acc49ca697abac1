/* Config of a Qwen-Image transformer, from names and shapes of its tensors (qwen-image.md 1). */
#include "model/qwen_image/qwen_image.h"

#include "model/arch.h"
#include "model/config_look.h"

#define PIXELS (QWEN_IMAGE_PATCH * QWEN_IMAGE_PATCH)

bool qwen_image_at(const struct weights *w, const char *root)
{
    static const char *const has[] = { "txt_norm.weight", "img_in.weight",
                                       "time_text_embed.timestep_embedder.linear_1.weight",
                                       "transformer_blocks.0.img_mod.1.weight" };
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(has); i++)
        n += arch_find(w, root, has[i]) != NULL;
    return n == ARRAY_LEN(has) && !qwen_image_control_at(w, root);
}

bool qwen_image_control_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "controlnet_blocks.0.weight") &&
           arch_find(w, root, "controlnet_x_embedder.weight") &&
           arch_find(w, root, "transformer_blocks.0.img_mlp.net.0.proj.weight");
}

/* Heads follow from the norm of one; what each axis has of a head from its width: an eighth, and
 * 7 / 16 twice (16, 56, 56 of 128). */
static berth_status heads(const struct config_look *k, struct qwen_image_net *q)
{
    uint64_t head;
    if (config_dim(k, "transformer_blocks.0.attn.norm_q.weight", 1, 0, &head))
        return k->err->code;
    if (head % 32 || q->hidden % head)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a Qwen-Image transformer of width %llu with heads of %llu: they have no "
                       "whole pairs for each axis, or are not all of it",
                       (unsigned long long)q->hidden, (unsigned long long)head);
    q->head_dim = (uint32_t)head;
    q->heads = (uint32_t)(q->hidden / head);
    q->axis[0] = q->head_dim / 8;
    q->axis[1] = q->axis[2] = q->head_dim / 16 * 7;
    return BERTH_OK;
}

static berth_status detect(const struct weights *w, const char *root, bool control,
                           struct qwen_image_net *q, berth_err *err)
{
    const struct config_look k = { .w = w,
                                   .root = root,
                                   .what = "a Qwen-Image transformer",
                                   .most = QWEN_IMAGE_WIDTH_MAX,
                                   .err = err };
    *q = (struct qwen_image_net) { .depth = arch_layers(w, root, "transformer_blocks") };
    if (q->depth > QWEN_IMAGE_DEPTH_MAX)
        return err_set(err, BERTH_ELIMIT, "%u transformer_blocks, at most %d are taken", q->depth,
                       QWEN_IMAGE_DEPTH_MAX);
    if (config_dim(&k, "img_in.weight", 2, 0, &q->hidden) ||
        config_channels(&k, "img_in.weight", 1, PIXELS, &q->in_channels) ||
        (!control && config_channels(&k, "proj_out.weight", 0, PIXELS, &q->out_channels)) ||
        config_dim(&k, "txt_in.weight", 2, 1, &q->context_dim) ||
        config_dim(&k, "transformer_blocks.0.img_mlp.net.0.proj.weight", 2, 0, &q->mlp) ||
        heads(&k, q))
        return err->code;
    if (control)
        q->out_channels = q->in_channels;
    q->layered = arch_find(w, root, "time_text_embed.addition_t_embedding.weight") != NULL;
    q->refs = q->layered                                      ? REF_NEGATIVE_INDEX
              : arch_find(w, root, "__index_timestep_zero__") ? REF_INDEX_TIMESTEP_ZERO
                                                              : REF_INDEX;
    return BERTH_OK;
}

berth_status qwen_image_detect(const struct weights *w, const char *root, struct qwen_image_net *q,
                               berth_err *err)
{
    if (!qwen_image_at(w, root))
        return err_set(err, BERTH_EUNSUPPORTED, "no Qwen-Image transformer behind '%s'", root);
    return detect(w, root, false, q, err);
}

berth_status qwen_image_detect_control(const struct weights *w, const char *root,
                                       struct qwen_image_net *q, berth_err *err)
{
    return detect(w, root, true, q, err);
}
