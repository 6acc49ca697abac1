/* Config of a Mochi transformer, from names and shapes of its tensors (mochi.md 1). */
#include "model/mochi/mochi.h"

#include "model/arch.h"
#include "model/config_look.h"
#include "tensor/dtype.h"

#include <stdlib.h>

#define PIXELS (MOCHI_PATCH * MOCHI_PATCH)

bool mochi_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "t5_yproj.weight") && arch_find(w, root, "pos_frequencies") &&
           arch_find(w, root, "x_embedder.proj.weight");
}

void mochi_release(struct mochi_net *f)
{
    free(f->frequency);
    f->frequency = NULL;
}

/* The learned frequencies, which tables of positions are made of. */
static berth_status read_frequencies(const struct weights *w, const char *root, struct mochi_net *f,
                                     berth_err *err)
{
    const struct weights_entry *e = arch_find(w, root, "pos_frequencies");
    const uint64_t half = f->hidden / f->heads / 2, n = 3 * f->heads * half;
    char text[SHAPE_TEXT_MAX];
    if (e->shape.ndim != 3 || e->shape.dim[0] != 3 || e->shape.dim[2] != half ||
        dtype_is_quant(e->dtype) || !dtype_desc(e->dtype)->to_f32)
        return err_set(err, BERTH_EUNSUPPORTED, "'%.120s' is %s: no frequencies of %u heads",
                       e->name, shape_text(&e->shape, text), f->heads);
    unsigned char *raw = malloc((size_t)e->size);
    f->frequency = calloc((size_t)n, sizeof *f->frequency);
    berth_status s = raw && f->frequency ? weights_read(w, e, 0, raw, (size_t)e->size, err)
                                         : err_set(err, BERTH_ENOMEM, "frequencies of positions");
    if (!s)
        dtype_desc(e->dtype)->to_f32(raw, f->frequency, (size_t)n);
    free(raw);
    if (s)
        mochi_release(f);
    return s;
}

berth_status mochi_detect(const struct weights *w, const char *root, struct mochi_net *f,
                          berth_err *err)
{
    const struct config_look k = {
        .w = w, .root = root, .what = "a Mochi transformer", .most = MOCHI_WIDTH_MAX, .err = err
    };
    uint64_t heads, out;
    *f = (struct mochi_net) { .depth = arch_layers(w, root, "blocks") };
    if (!mochi_at(w, root))
        return err_set(err, BERTH_EUNSUPPORTED, "no Mochi transformer behind '%s'", root);
    if (f->depth > MOCHI_DEPTH_MAX)
        return err_set(err, BERTH_ELIMIT, "%u blocks, at most %d are taken", f->depth,
                       MOCHI_DEPTH_MAX);
    if (config_dim(&k, "x_embedder.proj.weight", 4, 0, &f->hidden) ||
        config_dim(&k, "x_embedder.proj.weight", 4, 1, &f->channels) ||
        config_dim(&k, "t5_yproj.weight", 2, 0, &f->text_hidden) ||
        config_dim(&k, "t5_yproj.weight", 2, 1, &f->context_dim) ||
        config_dim(&k, "pos_frequencies", 3, 1, &heads) ||
        config_dim(&k, "blocks.0.mlp_x.w2.weight", 2, 1, &f->mlp) ||
        config_channels(&k, "final_layer.linear.weight", 0, PIXELS, &out) ||
        (f->depth > 1 && config_dim(&k, "blocks.0.mlp_y.w2.weight", 2, 1, &f->text_mlp)))
        return err->code;
    f->heads = (uint32_t)heads;
    if (f->hidden % heads || f->hidden / heads % 2 || f->context_dim % MOCHI_POOL_HEADS ||
        out != f->channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Mochi transformer of width %llu with %u heads, text of width %llu, and "
                       "%llu channels out of %llu",
                       (unsigned long long)f->hidden, f->heads, (unsigned long long)f->context_dim,
                       (unsigned long long)out, (unsigned long long)f->channels);
    return read_frequencies(w, root, f, err);
}
