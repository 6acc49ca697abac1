/* guidance: nodes that change what a model's predictions become (sample/guidance.def). Each says a
 * patch and the inputs that are its numbers; the model that comes out carries it to the sampler. */
#include "node/compute.h"

#include <math.h>

/* Which patch a class stands for, and where its numbers come from. */
struct guidance {
    const struct guide_patch_kind *is;
    const char *input[GUIDE_PARAMS]; /* for p[i]; NULL: 0 */
};

berth_status in_finite(const struct node_call *c, const char *input, double *out, berth_err *err)
{
    if (in_f64(c, input, out, err))
        return err->code;
    return isfinite(*out) ? BERTH_OK : err_set(err, BERTH_EINVAL, "input '%s' is no number", input);
}

berth_status give_changed(struct node_call *c, struct model_change change, berth_err *err)
{
    struct model_ref m;
    if (in_model_copy(c, "model", &m, err)) {
        value_unref(change.with);
        return err->code;
    }
    if (!model_ref_change(&m, change, err))
        return out_value(c, 0, value_model(&m), err);
    model_ref_release(&m);
    return err->code;
}

static berth_status in_guidance(struct node_call *c, struct model_change *out, berth_err *err)
{
    const struct guidance *g = c->cls->own;
    *out = (struct model_change) { .guide.is = g->is };
    for (size_t i = 0; i < GUIDE_PARAMS; i++)
        if (g->input[i] && in_finite(c, g->input[i], &out->guide.p[i], err))
            return err->code;
    return BERTH_OK;
}

static berth_status run_guidance(struct node_call *c, berth_err *err)
{
    struct model_change change;
    return in_guidance(c, &change, err) ? err->code : give_changed(c, change, err);
}

#define GUIDANCE(kind, ...)                                                                        \
    .run = run_guidance, .own = &(const struct guidance)                                           \
    {                                                                                              \
        .is = &guide_##kind, .input = { __VA_ARGS__ }                                              \
    }
#define PATCHED OUTS({ .type = "MODEL", .name = "patched_model" })
#define MODEL_IN SOCKET("model", "MODEL")

NODE_CLASS(RescaleCFG, .category = "advanced/model", .module = MOD("model_advanced"),
           INS(MODEL_IN, FLOAT_IN("multiplier", 0.7, 0.0, 1.0, 0.01)), OUT_OF("MODEL"),
           GUIDANCE(rescale_cfg, "multiplier"));

NODE_CLASS(CFGZeroStar, .category = "advanced/guidance", V3("cfg"), INS(MODEL_IN), PATCHED,
           GUIDANCE(cfg_zero_star, NULL));

static berth_status run_cfg_norm(struct node_call *c, berth_err *err)
{
    struct model_change change;
    bool pre;
    if (in_guidance(c, &change, err) || in_bool(c, "pre_cfg", &pre, err))
        return err->code;
    if (pre)
        change.guide.is = &guide_cfg_norm_pre;
    return give_changed(c, change, err);
}

NODE_CLASS(CFGNorm, .category = "advanced/guidance", .module = MOD("cfg"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(MODEL_IN, FLOAT_IN("strength", 1.0, 0.0, 100.0, 0.01),
               BOOL_IN("pre_cfg", false, .optional = true)),
           PATCHED, .run = run_cfg_norm,
           .own = &(const struct guidance) { &guide_cfg_norm, { "strength" } });

NODE_CLASS(APG, .display = "Adaptive Projected Guidance", .category = "model/sampling/custom",
           V3("apg"),
           INS(MODEL_IN, FLOAT_IN("eta", 1.0, -10.0, 10.0, 0.01, .more = ADVANCED),
               FLOAT_IN("norm_threshold", 5.0, 0.0, 50.0, 0.1, .more = ADVANCED),
               FLOAT_IN("momentum", 0.0, -5.0, 1.0, 0.01, .more = ADVANCED)),
           OUT_OF("MODEL"), GUIDANCE(apg, "eta", "norm_threshold", "momentum"));

NODE_CLASS(TCFG, .display = "Tangential Damping CFG", .category = "advanced/guidance", V3("tcfg"),
           INS(MODEL_IN), PATCHED, GUIDANCE(tcfg, NULL));

NODE_CLASS(Mahiro, .display = "Positive-Biased Guidance", .category = "experimental",
           .module = MOD("mahiro"), .flags = NODE_V3 | NODE_EXPERIMENTAL, INS(MODEL_IN), PATCHED,
           GUIDANCE(mahiro, NULL));

NODE_CLASS(FreSca, .display = "FreSca", .category = "experimental", .module = MOD("fresca"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(MODEL_IN, FLOAT_IN("scale_low", 1.0, 0, 10, 0.01, .more = ADVANCED),
               FLOAT_IN("scale_high", 1.25, 0, 10, 0.01, .more = ADVANCED),
               INT_IN("freq_cutoff", 20, 1, 10000, 1, .more = ADVANCED)),
           OUT_OF("MODEL"), GUIDANCE(fresca, "scale_low", "scale_high", "freq_cutoff"));

NODE_CLASS(RenormCFG, .category = "model/patch", V3("lumina2"),
           INS(MODEL_IN, FLOAT_IN("cfg_trunc", 100, 0.0, 100.0, 0.01, .more = ADVANCED),
               FLOAT_IN("renorm_cfg", 1.0, 0.0, 100.0, 0.01, .more = ADVANCED)),
           OUT_OF("MODEL"), GUIDANCE(renorm_cfg, "cfg_trunc", "renorm_cfg"));

#define NUMBER "\"advanced\":true,\"display\":\"number\""
/* Its name has a blank: not what NODE_CLASS() is for. */
const struct node_class node_EpsilonScaling = {
    .name = "Epsilon Scaling",
    .category = "model/patch/unet",
    V3("eps"),
    INS(MODEL_IN, FLOAT_IN("scaling_factor", 1.005, 0.5, 1.5, 0.001, .more = NUMBER)),
    OUT_OF("MODEL"),
    GUIDANCE(epsilon_scaling, "scaling_factor"),
};

NODE_CLASS(TemporalScoreRescaling, .display = "TSR - Temporal Score Rescaling",
           .category = "model/patch/unet", V3("eps"),
           INS(MODEL_IN, FLOAT_IN("tsr_k", 0.95, 0.01, 100.0, 0.001, .more = NUMBER),
               FLOAT_IN("tsr_sigma", 1.0, 0.01, 100.0, 0.001, .more = NUMBER)),
           PATCHED, GUIDANCE(tsr, "tsr_k", "tsr_sigma"));

NODE_CLASS(VideoLinearCFGGuidance, .display = "Video Linear CFG Guidance",
           .category = "model/sampling/guiders", .module = MOD("video_model"),
           INS(MODEL_IN,
               FLOAT_IN("min_cfg", 1.0, 0.0, 100.0, 0.5, .round = "0.01", .more = ADVANCED)),
           OUT_OF("MODEL"), GUIDANCE(video_linear, "min_cfg"));

NODE_CLASS(VideoTriangleCFGGuidance, .display = "Video Triangle CFG Guidance",
           .category = "model/sampling/guiders", .module = MOD("video_model"),
           INS(MODEL_IN,
               FLOAT_IN("min_cfg", 1.0, 0.0, 100.0, 0.5, .round = "0.01", .more = ADVANCED)),
           OUT_OF("MODEL"), GUIDANCE(video_triangle, "min_cfg"));

/* ---- between noise levels ---- */

berth_status in_percents(struct node_call *c, double *start, double *end, berth_err *err)
{
    const struct model_ref *ref;
    struct msampling ms;
    double from, to;
    if (in_finite(c, "start_percent", &from, err) || in_finite(c, "end_percent", &to, err) ||
        in_model(c, "model", &ref, err) || ready_msampling(ref, &ms, err))
        return err->code;
    *start = ms_percent(&ms, from);
    *end = ms_percent(&ms, to);
    ms_release(&ms);
    return BERTH_OK;
}

static berth_status run_ranged(struct node_call *c, berth_err *err)
{
    struct model_change change;
    return in_guidance(c, &change, err) ||
                   in_percents(c, &change.guide.p[1], &change.guide.p[2], err)
               ? err->code
               : give_changed(c, change, err);
}

NODE_CLASS(CFGOverride, .display = "CFG Override", .category = "model/sampling/guiders",
           V3("custom_sampler"),
           INS(MODEL_IN, FLOAT_IN("cfg", 1.0, 0.0, 100.0, 0.1, .round = "0.01"),
               FLOAT_IN("start_percent", 0.0, 0.0, 1.0, 0.001),
               FLOAT_IN("end_percent", 1.0, 0.0, 1.0, 0.001)),
           OUT_OF("MODEL"), .run = run_ranged,
           .own = &(const struct guidance) { &guide_cfg_override, { "cfg" } });

/* ---- against an empty prompt ---- */

static berth_status run_perp_neg(struct node_call *c, berth_err *err)
{
    const struct conditioning *empty;
    struct model_change change;
    if (in_conditioning(c, "empty_conditioning", &empty, err) || in_guidance(c, &change, err))
        return err->code;
    change.with = value_ref(in_value(c, "empty_conditioning"));
    return give_changed(c, change, err);
}

NODE_CLASS(PerpNeg, .display = "Perp-Neg (DEPRECATED by Perp-Neg Guider)",
           .category = "experimental", .module = MOD("perpneg"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL | NODE_DEPRECATED,
           INS(MODEL_IN, SOCKET("empty_conditioning", "CONDITIONING"),
               FLOAT_IN("neg_scale", 1.0, 0.0, 100.0, 0.01, .more = ADVANCED)),
           OUT_OF("MODEL"), .run = run_perp_neg,
           .own = &(const struct guidance) { &guide_perp_neg, { "neg_scale" } });
