/* Config of a HunyuanVideo transformer, from names and shapes of its tensors (hunyuan-video.md
 * 1). */
#include "model/hunyuan_video/hunyuan_video.h"

#include "model/arch.h"
#include "model/config_look.h"

#include <string.h>

#define PIXELS (HUNYUAN_PATCH * HUNYUAN_PATCH)
#define HEAD 128 /* wide */
#define REFINER "txt_in.individual_token_refiner.blocks"

bool hunyuan_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, REFINER ".0.norm1.weight") &&
           arch_find(w, root, "img_in.proj.weight");
}

/* Relatives that it is told from, and what they are. */
static const char *relative(const struct weights *w, const char *root)
{
    static const char *const has[][2] = {
        { "vision_in.proj.0.weight", "HunyuanVideo 1.5's, which cannot be computed yet" },
        { "byt5_in.fc1.weight", "of HunyuanImage's kind, which cannot be computed yet" },
        { "time_r_in.in_layer.weight", "distilled to mean flows, which cannot be computed yet" },
        { "cond_type_embedding.weight", "a relative, which cannot be computed yet" },
    };
    for (size_t i = 0; i < ARRAY_LEN(has); i++)
        if (arch_find(w, root, has[i][0]))
            return has[i][1];
    return NULL;
}

/* Channels and width, from the filter over patches. */
static berth_status way_in(const struct config_look *k, struct hunyuan_net *f)
{
    const struct weights_entry *e = arch_find(k->w, k->root, "img_in.proj.weight");
    char text[SHAPE_TEXT_MAX];
    if (e->shape.ndim != 5 || e->shape.dim[2] != 1 || e->shape.dim[3] != HUNYUAN_PATCH ||
        e->shape.dim[4] != HUNYUAN_PATCH)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'%.120s' is %s: no patches of one frame and %d x %d pixels", e->name,
                       shape_text(&e->shape, text), HUNYUAN_PATCH, HUNYUAN_PATCH);
    if (config_dim(k, "img_in.proj.weight", 5, 0, &f->hidden) ||
        config_dim(k, "img_in.proj.weight", 5, 1, &f->in_channels))
        return k->err->code;
    return BERTH_OK;
}

berth_status hunyuan_detect(const struct weights *w, const char *root, struct hunyuan_net *f,
                            berth_err *err)
{
    const struct config_look k = { .w = w,
                                   .root = root,
                                   .what = "a HunyuanVideo transformer",
                                   .most = HUNYUAN_WIDTH_MAX,
                                   .err = err };
    *f = (struct hunyuan_net) { .depth = arch_layers(w, root, "double_blocks"),
                                .single = arch_layers(w, root, "single_blocks"),
                                .refiners = arch_layers(w, root, REFINER),
                                .axis = { HEAD / 8, HEAD / 16 * 7, HEAD / 16 * 7 } };
    if (!hunyuan_at(w, root))
        return err_set(err, BERTH_EUNSUPPORTED, "no HunyuanVideo transformer behind '%s'", root);
    if (relative(w, root))
        return err_set(err, BERTH_EUNSUPPORTED, "the transformer is %s", relative(w, root));
    if (f->depth > HUNYUAN_DEPTH_MAX || f->single > HUNYUAN_DEPTH_MAX ||
        f->refiners > HUNYUAN_DEPTH_MAX)
        return err_set(err, BERTH_ELIMIT,
                       "%u double_blocks, %u single_blocks: at most %d are taken", f->depth,
                       f->single, HUNYUAN_DEPTH_MAX);
    f->guidance = arch_find(w, root, "guidance_in.in_layer.weight") ||
                  arch_find(w, root, "guidance_in.mlp.0.weight");
    f->authors = arch_find(w, root, "time_in.mlp.0.weight") != NULL;
    f->scales = arch_find(w, root, "double_blocks.0.img_attn.norm.query_norm.scale") != NULL;
    const char *mlp =
        f->authors ? "double_blocks.0.img_mlp.fc1.weight" : "double_blocks.0.img_mlp.0.weight";
    if (way_in(&k, f) ||
        config_channels(&k, "final_layer.linear.weight", 0, PIXELS, &f->out_channels) ||
        config_dim(&k, "txt_in.input_embedder.weight", 2, 1, &f->context_dim) ||
        config_dim(&k, mlp, 2, 0, &f->mlp) ||
        (arch_find(w, root, "vector_in.in_layer.weight") &&
         config_dim(&k, "vector_in.in_layer.weight", 2, 1, &f->vector_dim)))
        return err->code;
    if (f->hidden % HEAD)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a HunyuanVideo transformer of width %llu: heads are %d wide",
                       (unsigned long long)f->hidden, HEAD);
    f->heads = (uint32_t)(f->hidden / HEAD);
    return BERTH_OK;
}
