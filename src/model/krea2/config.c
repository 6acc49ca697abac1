/* Config of a Krea 2 transformer, from names and shapes of its tensors (krea2.md 1). */
#include "model/krea2/krea2.h"

#include "model/arch.h"
#include "model/config_look.h"

#define PIXELS (KREA2_PATCH * KREA2_PATCH)

bool krea2_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "txtfusion.projector.weight") && arch_find(w, root, "first.weight");
}

/* Of the attention of a block of width D; they follow from the norm of one. */
static berth_status heads(const struct config_look *k, const char *block, uint64_t D,
                          uint32_t multiple, struct krea2_heads *out)
{
    uint64_t wide, keys;
    char norm[128], key[128];
    snprintf(norm, sizeof norm, "%s.attn.qknorm.qnorm.scale", block);
    snprintf(key, sizeof key, "%s.attn.wk.weight", block);
    if (config_dim(k, norm, 1, 0, &wide) || config_dim(k, key, 2, 0, &keys))
        return k->err->code;
    if (wide % multiple || D % wide || keys % wide || D % keys)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'%s': heads of %llu and %llu rows of keys for a width of %llu: they have "
                       "no whole pairs for each axis, or are not all of it",
                       block, (unsigned long long)wide, (unsigned long long)keys,
                       (unsigned long long)D);
    *out = (struct krea2_heads) { .q = (uint32_t)(D / wide),
                                  .kv = (uint32_t)(keys / wide),
                                  .wide = (uint32_t)wide };
    return BERTH_OK;
}

/* What each axis has of a head: a quarter, and 3 / 8 twice (32, 48, 48 of 128). */
static void axes(struct krea2_net *f)
{
    f->axis[1] = f->axis[2] = f->heads.wide / 16 * 6;
    f->axis[0] = f->heads.wide - 2 * f->axis[1];
}

static berth_status depth(const struct config_look *k, const char *list, uint32_t *out)
{
    *out = arch_layers(k->w, k->root, list);
    return *out > KREA2_DEPTH_MAX ? err_set(k->err, BERTH_ELIMIT, "%u %s, at most %d are taken",
                                            *out, list, KREA2_DEPTH_MAX)
                                  : BERTH_OK;
}

berth_status krea2_detect(const struct weights *w, const char *root, struct krea2_net *f,
                          berth_err *err)
{
    const struct config_look k = {
        .w = w, .root = root, .what = "a Krea 2 transformer", .most = KREA2_WIDTH_MAX, .err = err
    };
    uint64_t taps;
    *f = (struct krea2_net) { .depth = 0 };
    if (!krea2_at(w, root))
        return err_set(err, BERTH_EUNSUPPORTED, "no Krea 2 transformer behind '%s'", root);
    if (config_dim(&k, "first.weight", 2, 0, &f->hidden) ||
        config_channels(&k, "first.weight", 1, PIXELS, &f->in_channels) ||
        config_channels(&k, "last.linear.weight", 0, PIXELS, &f->out_channels) ||
        config_dim(&k, "txtfusion.projector.weight", 2, 1, &taps) ||
        config_dim(&k, "txtfusion.layerwise_blocks.0.prenorm.scale", 1, 0, &f->text_dim) ||
        heads(&k, "blocks.0", f->hidden, 16, &f->heads) ||
        heads(&k, "txtfusion.layerwise_blocks.0", f->text_dim, 2, &f->text_heads) ||
        depth(&k, "blocks", &f->depth) || depth(&k, "txtfusion.layerwise_blocks", &f->layerwise) ||
        depth(&k, "txtfusion.refiner_blocks", &f->refiners))
        return err->code;
    if (taps > KREA2_TAPS_MAX)
        return err_set(err, BERTH_ELIMIT, "a Krea 2 transformer of %llu taps, at most %d are taken",
                       (unsigned long long)taps, KREA2_TAPS_MAX);
    f->taps = (uint32_t)taps;
    axes(f);
    return BERTH_OK;
}
