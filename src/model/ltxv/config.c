/* Config of an LTX-Video transformer, from names and shapes of its tensors and what its metadata
 * says beside them (ltxv.md 1). */
#include "model/ltxv/ltxv.h"

#include "base/json.h"
#include "model/arch.h"
#include "model/config_look.h"

#include <math.h>
#include <string.h>

bool ltxv_at(const struct weights *w, const char *root)
{
    static const char *const has[] = { "patchify_proj.weight",
                                       "transformer_blocks.0.attn2.to_k.weight",
                                       "adaln_single.emb.timestep_embedder.linear_1.weight" };
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(has); i++)
        n += arch_find(w, root, has[i]) != NULL;
    return n == ARRAY_LEN(has) && !arch_find(w, root, "pos_embed.proj.bias") &&
           !arch_find(w, root, "audio_adaln_single.linear.weight") &&
           !arch_find(w, root, "audio_patchify_proj.weight");
}

/* ---- what the metadata says ---- */

/* A number from 1 to `most`, whole where it must be; not there: *out stays. */
static berth_status said(const json_t *c, const char *name, bool whole, double most, double *out,
                         berth_err *err)
{
    const json_t *v = json_object_get(c, name);
    double x;
    if (!v || json_is_null(v))
        return BERTH_OK;
    if (!js_get_f64(v, &x) || !(x >= 1 && x <= most) || (whole && x != floor(x)))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "the metadata's \"%s\" is no %snumber from 1 to %.0f", name,
                       whole ? "whole " : "", most);
    *out = x;
    return BERTH_OK;
}

/* Options that later models have, and this network has not. */
static berth_status refuse_options(const json_t *c, berth_err *err)
{
    static const char *const must_be_off[] = { "cross_attention_adaln", "apply_gated_attention",
                                               "caption_proj_before_connector",
                                               "use_keyframes_abs_pos_embedding" };
    const char *rope = json_string_value(json_object_get(c, "rope_type"));
    for (size_t i = 0; i < ARRAY_LEN(must_be_off); i++)
        if (json_is_true(json_object_get(c, must_be_off[i])))
            return err_set(err, BERTH_EUNSUPPORTED,
                           "an LTX-Video transformer with \"%s\", which is of later models",
                           must_be_off[i]);
    if (rope && strcmp(rope, "interleaved") != 0)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "an LTX-Video transformer with positions of the kind '%.40s'", rope);
    return BERTH_OK;
}

static berth_status read_most(const json_t *c, struct ltxv_net *f, berth_err *err)
{
    const json_t *most = json_object_get(c, "positional_embedding_max_pos");
    if (!most || json_is_null(most))
        return BERTH_OK;
    if (!json_is_array(most) || json_array_size(most) != TOKENS_AXES)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "the metadata's largest positions are not %d numbers", TOKENS_AXES);
    for (size_t i = 0; i < TOKENS_AXES; i++)
        if (!js_get_f64(json_array_get(most, i), &f->most[i]) || !(f->most[i] > 0) ||
            !isfinite(f->most[i]))
            return err_set(err, BERTH_EUNSUPPORTED,
                           "the metadata's largest positions are not "
                           "above 0");
    return BERTH_OK;
}

static berth_status read_config(const json_t *c, struct ltxv_net *f, berth_err *err)
{
    const char *precision = json_string_value(json_object_get(c, "frequencies_precision"));
    double heads = f->heads;
    if (refuse_options(c, err) ||
        said(c, "num_attention_heads", true, LTXV_WIDTH_MAX, &heads, err) ||
        said(c, "positional_embedding_theta", false, 1e12, &f->theta, err) ||
        said(c, "timestep_scale_multiplier", false, 1e9, &f->times, err) || read_most(c, f, err))
        return err->code;
    f->heads = (uint32_t)heads;
    f->causal = json_is_true(json_object_get(c, "causal_temporal_positioning"));
    f->middle = json_is_true(json_object_get(c, "use_middle_indices_grid"));
    f->precise = precision && !strcmp(precision, "float64");
    return BERTH_OK;
}

/* Files carry it as JSON in JSON: {"transformer": {...}, "vae": {...}}. */
static berth_status read_metadata(const struct weights *w, struct ltxv_net *f, berth_err *err)
{
    const struct weights_meta *m = weights_meta_find(w, "config");
    json_t *all;
    if (!m || m->kind != META_STRING)
        return BERTH_OK;
    if (js_parse(m->str, m->str_len, &js_limits_loose, &all, err))
        return err_add(err, "the metadata's \"config\"");
    const json_t *c = json_object_get(all, "transformer");
    berth_status s = c ? read_config(c, f, err) : BERTH_OK;
    json_decref(all);
    return s;
}

/* ---- what the tensors say ---- */

berth_status ltxv_detect(const struct weights *w, const char *root, struct ltxv_net *f,
                         berth_err *err)
{
    const struct config_look k = {
        .w = w, .root = root, .what = "an LTX-Video transformer", .most = LTXV_WIDTH_MAX, .err = err
    };
    uint64_t out;
    *f = (struct ltxv_net) { .depth = arch_layers(w, root, "transformer_blocks"),
                             .heads = LTXV_HEADS,
                             .theta = 10000,
                             .most = { 20, 2048, 2048 },
                             .times = 1000 };
    if (!ltxv_at(w, root))
        return err_set(err, BERTH_EUNSUPPORTED, "no LTX-Video transformer behind '%s'", root);
    if (f->depth > LTXV_DEPTH_MAX)
        return err_set(err, BERTH_ELIMIT, "%u transformer_blocks, at most %d are taken", f->depth,
                       LTXV_DEPTH_MAX);
    if (config_dim(&k, "patchify_proj.weight", 2, 0, &f->hidden) ||
        config_dim(&k, "patchify_proj.weight", 2, 1, &f->channels) ||
        config_dim(&k, "proj_out.weight", 2, 0, &out) ||
        config_dim(&k, "caption_projection.linear_1.weight", 2, 1, &f->context_dim) ||
        config_dim(&k, "transformer_blocks.0.ff.net.0.proj.weight", 2, 0, &f->mlp) ||
        read_metadata(w, f, err))
        return err->code;
    if (out != f->channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "an LTX-Video transformer of %llu channels in and %llu out",
                       (unsigned long long)f->channels, (unsigned long long)out);
    if (f->hidden % f->heads || f->hidden / f->heads % 2 || f->hidden < 2 * TOKENS_AXES)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "an LTX-Video transformer of width %llu with %u heads",
                       (unsigned long long)f->hidden, f->heads);
    return BERTH_OK;
}
