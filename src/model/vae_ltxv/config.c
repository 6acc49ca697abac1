/* What a file's VAE looks like, from its tensors and its metadata (ltxv.md 7). */
#include "model/vae_ltxv/vae_ltxv.h"

#include "base/json.h"
#include "model/config_look.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

#define COLOURS 3
#define PIXELS (VAE_LTXV_PATCH * VAE_LTXV_PATCH)

bool vae_ltxv_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "decoder.up_blocks.0.res_blocks.0.conv1.conv.weight") ||
           arch_find(w, root, "encoder.down_blocks.0.res_blocks.0.conv1.conv.weight");
}

/* ---- a list of blocks ---- */

struct list {
    const struct config_look *k;
    const char *name; /* "encoder.down_blocks" */
    bool up;
    uint8_t *kind, n;
    uint64_t channels; /* behind the last one */
};

static const char *layer(char out[96], const struct list *l, uint32_t i, const char *of)
{
    snprintf(out, 96, "%s.%u.%s.weight", l->name, i, of);
    return out;
}

static bool has(const struct list *l, uint32_t i, const char *of)
{
    char name[96];
    return arch_find(l->k->w, l->k->root, layer(name, l, i, of)) != NULL;
}

static berth_status channels_of(const struct list *l, uint32_t i, const char *of, int axis,
                                uint64_t *out)
{
    char name[96];
    return config_dim(l->k, layer(name, l, i, of), 5, axis, out);
}

/* Channels that block i takes. */
static berth_status channels_into(const struct list *l, uint32_t i, uint64_t *out)
{
    static const char *const first[] = { "res_blocks.0.conv1.conv", "conv1.conv", "conv.conv",
                                         "conv" };
    if (i == l->n) {
        *out = l->channels;
        return BERTH_OK;
    }
    for (size_t k = 0; k < ARRAY_LEN(first); k++)
        if (has(l, i, first[k]))
            return channels_of(l, i, first[k], 1, out);
    return err_set(l->k->err, BERTH_EUNSUPPORTED, "%s.%u: a block of a kind that is not known",
                   l->name, i);
}

/* What cells of so many pixels and frames are. */
static berth_status cells(const struct list *l, uint32_t i, uint64_t n, uint8_t *bits)
{
    *bits = n == 8   ? VAE_LTXV_TIME | VAE_LTXV_SPACE
            : n == 4 ? VAE_LTXV_SPACE
            : n == 2 ? VAE_LTXV_TIME
                     : 0;
    return *bits ? BERTH_OK
                 : err_set(l->k->err, BERTH_EUNSUPPORTED, "%s.%u makes cells of %llu", l->name, i,
                           (unsigned long long)n);
}

static berth_status read_block(const struct list *l, uint32_t i, uint8_t *kind)
{
    uint64_t in, rows, next;
    uint8_t bits;
    *kind = has(l, i, "res_blocks.0.conv1.conv") ? VAE_LTXV_RES : VAE_LTXV_WIDER;
    if (*kind == VAE_LTXV_RES || has(l, i, "conv1.conv"))
        return BERTH_OK;
    *kind = VAE_LTXV_STRIDED | VAE_LTXV_TIME | VAE_LTXV_SPACE;
    if (!l->up && has(l, i, "conv"))
        return BERTH_OK;
    if (channels_of(l, i, "conv.conv", 0, &rows) || channels_of(l, i, "conv.conv", 1, &in) ||
        channels_into(l, i + 1, &next) || cells(l, i, l->up ? rows / next : next / rows, &bits))
        return l->k->err->code;
    /* Where channels stay the same the decoder adds nothing (0.9). */
    *kind = (l->up && next == in ? VAE_LTXV_STRIDED : VAE_LTXV_FOLDED) | bits;
    return BERTH_OK;
}

/* out: the convolution behind the list. */
static berth_status read_list(struct list *l, const char *out)
{
    const uint32_t n = arch_layers(l->k->w, l->k->root, l->name);
    if (!n || n > VAE_LTXV_BLOCKS_MAX)
        return err_set(l->k->err, n ? BERTH_ELIMIT : BERTH_EUNSUPPORTED, "'%s' has %u blocks",
                       l->name, n);
    l->n = (uint8_t)n;
    if (config_dim(l->k, out, 5, 1, &l->channels))
        return l->k->err->code;
    for (uint32_t i = 0; i < n; i++)
        if (read_block(l, i, &l->kind[i]))
            return l->k->err->code;
    return BERTH_OK;
}

/* ---- what the metadata says ---- */

/* A block's kind by its name in a config; UINT8_MAX: none that is known. */
static uint8_t kind_named(const char *name, const json_t *how, bool up)
{
    static const struct {
        const char *name;
        uint8_t bits;
    } changes[] = { { "compress_time", VAE_LTXV_TIME },
                    { "compress_space", VAE_LTXV_SPACE },
                    { "compress_all", VAE_LTXV_TIME | VAE_LTXV_SPACE },
                    { "compress_all_x_y", VAE_LTXV_TIME | VAE_LTXV_SPACE } };
    if (!strcmp(name, "res_x"))
        return VAE_LTXV_RES;
    if (!strcmp(name, "res_x_y"))
        return VAE_LTXV_WIDER;
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        const size_t n = strlen(changes[i].name);
        const bool folded = !strcmp(name + (strlen(name) < n ? strlen(name) : n), "_res");
        if (strncmp(name, changes[i].name, n) != 0 || (name[n] && !(folded && !up)))
            continue;
        const bool beside = up ? json_is_true(json_object_get(how, "residual")) : folded;
        return (uint8_t)(changes[i].bits | (beside ? VAE_LTXV_FOLDED : VAE_LTXV_STRIDED));
    }
    return UINT8_MAX;
}

/* Steps along sides and frames, and what is added, as the config's list has them. The decoder's is
 * written from the pictures on. */
static berth_status said_list(const json_t *c, const char *name, struct list *l)
{
    const json_t *list = json_object_get(c, name);
    list = list ? list : json_object_get(c, "blocks");
    if (!list)
        return BERTH_OK;
    if (json_array_size(list) != l->n)
        return err_set(l->k->err, BERTH_EUNSUPPORTED, "'%s' has %u blocks, its metadata %zu",
                       l->name, l->n, json_array_size(list));
    for (uint32_t i = 0; i < l->n; i++) {
        const json_t *b = json_array_get(list, l->up ? l->n - 1 - i : i);
        const char *what = json_string_value(json_array_get(b, 0));
        const uint8_t kind = what ? kind_named(what, json_array_get(b, 1), l->up) : UINT8_MAX;
        const bool sized = l->kind[i] > VAE_LTXV_WIDER;
        if (kind == UINT8_MAX || (kind > VAE_LTXV_WIDER) != sized || (!sized && kind != l->kind[i]))
            return err_set(l->k->err, BERTH_EUNSUPPORTED,
                           "%s.%u: the metadata says '%.40s', which it is not, or which is not "
                           "known",
                           l->name, i, what ? what : "nothing");
        l->kind[i] = kind;
    }
    return BERTH_OK;
}

static berth_status said_padding(const json_t *c, uint8_t *out, berth_err *err)
{
    static const char *const name[] = {
        [NET_ZEROS] = "zeros", [NET_EDGE] = "replicate", [NET_MIRROR] = "reflect"
    };
    const char *s = json_string_value(json_object_get(c, "spatial_padding_mode"));
    for (uint8_t i = 0; s && i < ARRAY_LEN(name); i++)
        if (!strcmp(s, name[i])) {
            *out = i;
            return BERTH_OK;
        }
    return s ? err_set(err, BERTH_EUNSUPPORTED, "a VAE whose pictures go on as '%.40s'", s)
             : BERTH_OK;
}

static void said_float(const json_t *c, const char *name, float *out)
{
    double v;
    if (js_get_f64(json_object_get(c, name), &v) && v >= 0 && v <= 1)
        *out = (float)v;
}

static berth_status read_config(const json_t *c, struct vae_ltxv *own, struct list lists[2],
                                berth_err *err)
{
    const char *norm = json_string_value(json_object_get(c, "norm_layer"));
    double patch = VAE_LTXV_PATCH;
    js_get_f64(json_object_get(c, "patch_size"), &patch);
    if ((norm && strcmp(norm, "pixel_norm") != 0) || patch != VAE_LTXV_PATCH)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a VAE of LTX-Video's kind with norms '%.40s' and cells of %g pixels",
                       norm ? norm : "pixel_norm", patch);
    if ((lists[0].n && said_list(c, "encoder_blocks", &lists[0])) ||
        (lists[1].n && said_list(c, "decoder_blocks", &lists[1])) ||
        said_padding(c, &own->enc_space, err) || said_padding(c, &own->space, err))
        return err->code;
    own->causal = json_is_true(json_object_get(c, "causal_decoder"));
    said_float(c, "decode_noise_scale", &own->noise);
    said_float(c, "decode_timestep", &own->time);
    return BERTH_OK;
}

static berth_status read_metadata(const struct weights *w, struct vae_ltxv *own,
                                  struct list lists[2], berth_err *err)
{
    const struct weights_meta *m = weights_meta_find(w, "config");
    json_t *all;
    if (!m || m->kind != META_STRING)
        return BERTH_OK;
    if (js_parse(m->str, m->str_len, &js_limits_loose, &all, err))
        return err_add(err, "the metadata's \"config\"");
    const json_t *c = json_object_get(all, "vae");
    berth_status s = c ? read_config(c, own, lists, err) : BERTH_OK;
    json_decref(all);
    return s;
}

/* ---- all of it ---- */

/* What noise levels are multiplied with before they are embedded: one number. */
static berth_status read_multiplier(const struct weights *w, const char *root, float *out,
                                    berth_err *err)
{
    const struct weights_entry *e = arch_find(w, root, "decoder.timestep_scale_multiplier");
    unsigned char raw[8];
    float v;
    if (!e || !e->size || e->size > sizeof raw)
        return BERTH_OK;
    if (weights_read(w, e, 0, raw, (size_t)e->size, err))
        return err->code;
    if (dtype_is_quant(e->dtype) ||
        (e->dtype != DT_F32 && e->dtype != DT_F16 && e->dtype != DT_BF16))
        return BERTH_OK;
    dtype_desc(e->dtype)->to_f32(raw, &v, 1);
    if (isfinite(v))
        *out = v;
    return BERTH_OK;
}

/* How many blocks members of the decoder's list have, and whether those want noise. */
static berth_status read_blocks(const struct weights *w, const char *root, struct vae_ltxv *own,
                                berth_err *err)
{
    char name[96];
    for (uint32_t i = 0; i < own->decs; i++) {
        snprintf(name, sizeof name, "decoder.up_blocks.%u.res_blocks", i);
        const uint32_t n = own->dec[i] == VAE_LTXV_RES ? arch_layers(w, root, name) : 0;
        if (n > UINT8_MAX)
            return err_set(err, BERTH_ELIMIT, "'%s' has %u blocks", name, n);
        own->dec_blocks[i] = (uint8_t)n;
        snprintf(name, sizeof name, "decoder.up_blocks.%u.res_blocks.0.per_channel_scale1", i);
        own->noisy = own->noisy || arch_find(w, root, name);
    }
    return BERTH_OK;
}

static void count_steps(const uint8_t *kind, uint32_t n, uint32_t *sides, uint32_t *frames)
{
    *sides = *frames = 0;
    for (uint32_t i = 0; i < n; i++) {
        *sides += (kind[i] & VAE_LTXV_SPACE) != 0;
        *frames += (kind[i] & VAE_LTXV_TIME) != 0;
    }
}

static berth_status read_lists(const struct config_look *k, struct vae_net *v, struct list lists[2],
                               uint64_t latent[2])
{
    const char *const in[] = { "encoder.conv_in.conv.weight", "decoder.conv_out.conv.weight" };
    for (int up = 0; up < 2; up++) {
        uint64_t cell;
        if (!(up ? v->decoder : v->encoder))
            continue;
        if (read_list(&lists[up],
                      up ? "decoder.conv_out.conv.weight" : "encoder.conv_out.conv.weight") ||
            config_dim(k, in[up], 5, !up, &cell) ||
            config_dim(k,
                       up ? "decoder.conv_in.conv.weight" : "per_channel_statistics.std-of-means",
                       up ? 5 : 1, up, &latent[up]))
            return k->err->code;
        if (cell != COLOURS * PIXELS)
            return err_set(k->err, BERTH_EUNSUPPORTED,
                           "a VAE of LTX-Video's kind over cells of %llu values",
                           (unsigned long long)cell);
    }
    return BERTH_OK;
}

berth_status vae_ltxv_config(const struct weights *w, const char *root, struct vae_net *out,
                             berth_err *err)
{
    struct vae_ltxv *own = vae_ltxv_of(out);
    const struct config_look k = { w, root, "a VAE of LTX-Video's kind", VAE_LTXV_CHANNELS_MAX,
                                   err };
    struct list lists[2] = { { &k, "encoder.down_blocks", false, own->enc, 0, 0 },
                             { &k, "decoder.up_blocks", true, own->dec, 0, 0 } };
    uint64_t latent[2] = { 0 };
    uint32_t sides[2], frames[2];
    float by = 1000;
    own->space = NET_MIRROR;
    own->noise = 0.025f;
    own->time = 0.05f;
    out->encoder = arch_find(w, root, "encoder.down_blocks.0.res_blocks.0.conv1.conv.weight");
    out->decoder = arch_find(w, root, "decoder.up_blocks.0.res_blocks.0.conv1.conv.weight");
    if (read_lists(&k, out, lists, latent) || read_metadata(w, own, lists, err) ||
        read_multiplier(w, root, &by, err))
        return err->code;
    own->encs = lists[0].n;
    own->decs = lists[1].n;
    own->timed = arch_find(w, root, "decoder.last_scale_shift_table") != NULL;
    own->time *= by;
    if (read_blocks(w, root, own, err))
        return err->code;
    count_steps(own->enc, own->encs, &sides[0], &frames[0]);
    count_steps(own->dec, own->decs, &sides[1], &frames[1]);
    if (out->encoder && out->decoder &&
        (latent[0] != latent[1] || sides[0] != sides[1] || frames[0] != frames[1]))
        return err_set(err, BERTH_EUNSUPPORTED, "a VAE of LTX-Video's kind whose halves differ");
    const int h = out->decoder;
    if (sides[h] > 8 || frames[h] > 8)
        return err_set(err, BERTH_EUNSUPPORTED, "a VAE that halves sides %u times", sides[h]);
    out->latent = (struct latent_format) { .name = "the LTX-Video kind",
                                           .channels = (uint32_t)latent[h],
                                           .rank = 3,
                                           .ratio = (uint32_t)VAE_LTXV_PATCH << sides[h],
                                           .time_ratio = UINT32_C(1) << frames[h] };
    return BERTH_OK;
}
