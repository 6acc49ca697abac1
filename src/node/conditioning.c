/* conditioning: nodes that say more about prompts: where, when and how strongly they count. */
#include "node/compute.h"

#include <string.h>

/* Output 0 of what ended with s: if that is an error, it goes. */
static berth_status give_conditioning(struct node_call *c, berth_status s,
                                      struct conditioning *taken, berth_err *err)
{
    if (!s)
        return out_conditioning(c, 0, taken, err);
    conditioning_free(taken);
    return s;
}

/* ---- several into one ---- */

static berth_status run_combine(struct node_call *c, berth_err *err)
{
    const struct conditioning *a, *b;
    struct conditioning *x;
    if (in_conditioning(c, "conditioning_1", &a, err) ||
        in_conditioning(c, "conditioning_2", &b, err) || conditioning_join(a, b, &x, err))
        return err->code;
    return out_conditioning(c, 0, x, err);
}

NODE_CLASS(ConditioningCombine, .display = "Conditioning (Combine)", .category = "conditioning",
           .module = "nodes",
           INS(SOCKET("conditioning_1", "CONDITIONING"), SOCKET("conditioning_2", "CONDITIONING")),
           OUT_OF("CONDITIONING"), .run = run_combine);

/* The first prompt of `conditioning_from`, which alone counts. */
static berth_status in_to_from(struct node_call *c, const struct conditioning **to,
                               const struct cond_entry **from, berth_err *err)
{
    const struct conditioning *f;
    if (in_conditioning(c, "conditioning_to", to, err) ||
        in_conditioning(c, "conditioning_from", &f, err))
        return err->code;
    if (!f->n)
        return err_set(err, BERTH_EINVAL, "conditioning_from is empty");
    if (f->n > 1)
        log_warn(c->env->log, "node.conditioning",
                 "node=%s prompts=%zu why=\"only the first of conditioning_from counts\"", c->id,
                 f->n);
    *from = &f->at[0];
    for (size_t i = 0; i < (*to)->n; i++)
        if (dim((*to)->at[i].cond, 2) != dim((*from)->cond, 2))
            return err_set(err, BERTH_EINVAL, "prompts of %zu and %zu features do not mix",
                           dim((*to)->at[i].cond, 2), dim((*from)->cond, 2));
    return BERTH_OK;
}

/* a * weight + b * (1 - weight), b cut to a or continued with zeros. */
static berth_status mix(const struct htensor *a, const struct htensor *b, double weight,
                        struct htensor **out, berth_err *err)
{
    size_t n = htensor_count(a), m = htensor_count(b);
    float wa = (float)weight, wb = (float)(1.0 - weight);
    berth_status s = htensor_new(&a->shape, out, err);
    for (size_t i = 0; !s && i < n; i++)
        (*out)->data[i] = a->data[i] * wa + (i < m ? b->data[i] : 0.0f) * wb;
    return s;
}

static void put(struct htensor **at, struct htensor *taken)
{
    htensor_unref(*at);
    *at = taken;
}

static berth_status average(struct cond_entry *e, const struct cond_entry *from, double weight,
                            berth_err *err)
{
    struct htensor *t;
    if (mix(e->cond, from->cond, weight, &t, err))
        return err->code;
    put(&e->cond, t);
    if (!from->pooled)
        return BERTH_OK;
    if (!e->pooled) {
        e->pooled = htensor_ref(from->pooled);
        return BERTH_OK;
    }
    if (htensor_count(e->pooled) != htensor_count(from->pooled))
        return err_set(err, BERTH_EINVAL, "pooled outputs of %zu and %zu features do not mix",
                       htensor_count(e->pooled), htensor_count(from->pooled));
    if (mix(e->pooled, from->pooled, weight, &t, err))
        return err->code;
    put(&e->pooled, t);
    return BERTH_OK;
}

static berth_status run_average(struct node_call *c, berth_err *err)
{
    const struct conditioning *to;
    const struct cond_entry *from;
    struct conditioning *x;
    double weight;
    berth_status s = BERTH_OK;
    if (in_to_from(c, &to, &from, err) || in_f64(c, "conditioning_to_strength", &weight, err) ||
        conditioning_copy(to, &x, err))
        return err->code;
    for (size_t i = 0; !s && i < x->n; i++)
        s = average(&x->at[i], from, weight, err);
    return give_conditioning(c, s, x, err);
}

NODE_CLASS(ConditioningAverage, .category = "conditioning", .module = "nodes",
           INS(SOCKET("conditioning_to", "CONDITIONING"),
               SOCKET("conditioning_from", "CONDITIONING"),
               FLOAT_IN("conditioning_to_strength", 1.0, 0.0, 1.0, 0.01)),
           OUT_OF("CONDITIONING"), .run = run_average);

static berth_status run_concat(struct node_call *c, berth_err *err)
{
    const struct conditioning *to;
    const struct cond_entry *from;
    struct conditioning *x;
    berth_status s = BERTH_OK;
    if (in_to_from(c, &to, &from, err) ||
        conditioning_tokens_fit(conditioning_tokens(to) + to->n * dim(from->cond, 1), err) ||
        conditioning_copy(to, &x, err))
        return err->code;
    for (size_t i = 0; !s && i < x->n; i++) {
        struct cond_entry *e = &x->at[i];
        struct shape shape = e->cond->shape; /* [1, tokens, width] */
        size_t n = htensor_count(e->cond), m = htensor_count(from->cond);
        struct htensor *t;
        shape.dim[1] += from->cond->shape.dim[1];
        s = htensor_new(&shape, &t, err);
        if (s)
            break;
        memcpy(t->data, e->cond->data, n * sizeof(float));
        memcpy(t->data + n, from->cond->data, m * sizeof(float));
        put(&e->cond, t);
    }
    return give_conditioning(c, s, x, err);
}

NODE_CLASS(ConditioningConcat, .display = "Conditioning (Concat)", .category = "conditioning",
           .module = "nodes",
           INS(SOCKET("conditioning_to", "CONDITIONING"),
               SOCKET("conditioning_from", "CONDITIONING")),
           OUT_OF("CONDITIONING"), .run = run_concat);

/* ---- where ---- */

/* A copy of input "conditioning", to be said something about. */
static berth_status in_copy(const struct node_call *c, struct conditioning **out, berth_err *err)
{
    const struct conditioning *x;
    return in_conditioning(c, "conditioning", &x, err) ? err->code : conditioning_copy(x, out, err);
}

static berth_status set_area(struct node_call *c, enum cond_area kind, const double area[4],
                             double strength, berth_err *err)
{
    struct conditioning *x;
    berth_status s = in_copy(c, &x, err);
    for (size_t i = 0; !s && i < x->n; i++) {
        struct cond_entry *e = &x->at[i];
        e->area_kind = kind;
        memcpy(e->area, area, sizeof e->area);
        e->strength = strength;
        e->mask_bounds = false;
    }
    return s ? s : out_conditioning(c, 0, x, err);
}

static const char *const area_input[4] = { "height", "width", "y", "x" };

static berth_status run_area(struct node_call *c, berth_err *err)
{
    double area[4], strength;
    berth_status s = in_f64(c, "strength", &strength, err);
    for (int i = 0; !s && i < 4; i++) {
        uint64_t v;
        s = in_u64(c, area_input[i], &v, err);
        if (!s && v > SIDE_MAX)
            s = err_set(err, BERTH_EINVAL, "%s of an area is beyond %zu pixels", area_input[i],
                        SIDE_MAX);
        area[i] = s ? 0 : (double)v;
    }
    return s ? s : set_area(c, AREA_PIXELS, area, strength, err);
}

NODE_CLASS(ConditioningSetArea, .display = "Conditioning (Set Area)", .category = "conditioning",
           .module = "nodes",
           INS(SOCKET("conditioning", "CONDITIONING"), SIZE_IN(64, 64, 64, 8),
               INT_IN("x", 0, 0, MAX_SIDE, 8), INT_IN("y", 0, 0, MAX_SIDE, 8),
               FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01)),
           OUT_OF("CONDITIONING"), .run = run_area);

static berth_status run_area_percentage(struct node_call *c, berth_err *err)
{
    double area[4], strength;
    berth_status s = in_f64(c, "strength", &strength, err);
    for (int i = 0; !s && i < 4; i++) {
        s = in_f64(c, area_input[i], &area[i], err);
        if (!s && !(area[i] >= 0 && area[i] <= 1))
            s = err_set(err, BERTH_EINVAL, "%s of an area is %g, not 0 to 1", area_input[i],
                        area[i]);
    }
    return s ? s : set_area(c, AREA_PERCENT, area, strength, err);
}

/* Fractions of frames too; the sampler knows whether there are any. */
static berth_status run_area_video(struct node_call *c, berth_err *err)
{
    static const char *const input[6] = { "height", "width", "y", "x", "temporal", "z" };
    double v[6], strength;
    struct conditioning *x;
    berth_status s = in_f64(c, "strength", &strength, err);
    for (int i = 0; !s && i < 6; i++) {
        s = in_f64(c, input[i], &v[i], err);
        if (!s && !(v[i] >= 0 && v[i] <= 1))
            s = err_set(err, BERTH_EINVAL, "%s of an area is %g, not 0 to 1", input[i], v[i]);
    }
    if (s || in_copy(c, &x, err))
        return err->code;
    for (size_t i = 0; i < x->n; i++) {
        struct cond_entry *e = &x->at[i];
        e->area_kind = AREA_VIDEO;
        memcpy(e->area, v, sizeof e->area);
        memcpy(e->area_time, v + 4, sizeof e->area_time);
        e->strength = strength;
        e->mask_bounds = false;
    }
    return out_conditioning(c, 0, x, err);
}

NODE_CLASS(ConditioningSetAreaPercentageVideo,
           .display = "Conditioning (Set Area with Percentage for Video)",
           .category = "model/conditioning/transform", .module = MOD("video_model"),
           INS(SOCKET("conditioning", "CONDITIONING"), FLOAT_IN("width", 1.0, 0, 1.0, 0.01),
               FLOAT_IN("height", 1.0, 0, 1.0, 0.01), FLOAT_IN("temporal", 1.0, 0, 1.0, 0.01),
               FLOAT_IN("x", 0, 0, 1.0, 0.01), FLOAT_IN("y", 0, 0, 1.0, 0.01),
               FLOAT_IN("z", 0, 0, 1.0, 0.01), FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01)),
           OUT_OF("CONDITIONING"), .run = run_area_video);

NODE_CLASS(ConditioningSetAreaPercentage, .display = "Conditioning (Set Area with Percentage)",
           .category = "conditioning", .module = "nodes",
           INS(SOCKET("conditioning", "CONDITIONING"), FLOAT_IN("width", 1.0, 0, 1.0, 0.01),
               FLOAT_IN("height", 1.0, 0, 1.0, 0.01), FLOAT_IN("x", 0, 0, 1.0, 0.01),
               FLOAT_IN("y", 0, 0, 1.0, 0.01), FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01)),
           OUT_OF("CONDITIONING"), .run = run_area_percentage);

static berth_status run_mask(struct node_call *c, berth_err *err)
{
    struct conditioning *x;
    struct htensor *mask;
    double strength;
    const char *bounds;
    if (in_mask(c, "mask", &mask, err) || in_f64(c, "strength", &strength, err) ||
        in_text(c, "set_cond_area", &bounds, err) || in_copy(c, &x, err))
        return err->code;
    for (size_t i = 0; i < x->n; i++) {
        struct cond_entry *e = &x->at[i];
        put(&e->mask, htensor_ref(mask));
        e->mask_strength = strength;
        e->mask_bounds = strcmp(bounds, "default") != 0;
    }
    return out_conditioning(c, 0, x, err);
}

NODE_CLASS(ConditioningSetMask, .display = "Conditioning (Set Mask)", .category = "conditioning",
           .module = "nodes",
           INS(SOCKET("conditioning", "CONDITIONING"), SOCKET("mask", "MASK"),
               FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01),
               COMBO_IN("set_cond_area", CHOICES("default", "mask bounds"))),
           OUT_OF("CONDITIONING"), .run = run_mask);

/* ---- how closely: models with a guidance embedding ---- */

static berth_status give_guided(struct node_call *c, int guided, double guidance, berth_err *err)
{
    struct conditioning *x;
    berth_status s = in_copy(c, &x, err);
    for (size_t i = 0; !s && i < x->n; i++) {
        x->at[i].guided = guided;
        x->at[i].guidance = guidance;
    }
    return s ? s : out_conditioning(c, 0, x, err);
}

static berth_status run_guidance(struct node_call *c, berth_err *err)
{
    double guidance;
    return in_f64(c, "guidance", &guidance, err) ? err->code : give_guided(c, 1, guidance, err);
}

NODE_CLASS(FluxGuidance, .category = "advanced/conditioning/flux", V3("flux"),
           INS(SOCKET("conditioning", "CONDITIONING"), FLOAT_IN("guidance", 3.5, 0.0, 100.0, 0.1)),
           OUT_OF("CONDITIONING"), .run = run_guidance);

static berth_status run_no_guidance(struct node_call *c, berth_err *err)
{
    return give_guided(c, -1, 0, err);
}

NODE_CLASS(FluxDisableGuidance, .category = "advanced/conditioning/flux", V3("flux"),
           INS(SOCKET("conditioning", "CONDITIONING")), OUT_OF("CONDITIONING"),
           .run = run_no_guidance);

/* ---- when, and not at all ---- */

static berth_status run_range(struct node_call *c, berth_err *err)
{
    struct conditioning *x;
    double start, end;
    if (in_f64(c, "start", &start, err) || in_f64(c, "end", &end, err) || in_copy(c, &x, err))
        return err->code;
    for (size_t i = 0; i < x->n; i++) {
        x->at[i].start_percent = start;
        x->at[i].end_percent = end;
        x->at[i].ranged = true;
    }
    return out_conditioning(c, 0, x, err);
}

NODE_CLASS(ConditioningSetTimestepRange, .category = "advanced/conditioning", .module = "nodes",
           INS(SOCKET("conditioning", "CONDITIONING"), FLOAT_IN("start", 0.0, 0.0, 1.0, 0.001),
               FLOAT_IN("end", 1.0, 0.0, 1.0, 0.001)),
           OUT_OF("CONDITIONING"), .run = run_range);

static berth_status zeroed(struct htensor **at, berth_err *err)
{
    struct htensor *t;
    if (htensor_zeros(&(*at)->shape, &t, err))
        return err->code;
    put(at, t);
    return BERTH_OK;
}

static berth_status run_zero(struct node_call *c, berth_err *err)
{
    struct conditioning *x;
    berth_status s = in_copy(c, &x, err);
    if (s)
        return s;
    for (size_t i = 0; !s && i < x->n; i++) {
        s = zeroed(&x->at[i].cond, err);
        if (!s && x->at[i].pooled)
            s = zeroed(&x->at[i].pooled, err);
    }
    return give_conditioning(c, s, x, err);
}

NODE_CLASS(ConditioningZeroOut, .category = "advanced/conditioning", .module = "nodes",
           INS(SOCKET("conditioning", "CONDITIONING")), OUT_OF("CONDITIONING"), .run = run_zero);

/* ---- how strongly ---- */

static berth_status multiplied(struct htensor **at, double by, berth_err *err)
{
    struct htensor *t;
    if (!*at)
        return BERTH_OK;
    if (htensor_new(&(*at)->shape, &t, err))
        return err->code;
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (*at)->data[i] * (float)by;
    put(at, t);
    return BERTH_OK;
}

static berth_status run_multiply(struct node_call *c, berth_err *err)
{
    struct conditioning *x;
    double by;
    if (in_f64(c, "multiplier", &by, err) || in_copy(c, &x, err))
        return err->code;
    berth_status s = BERTH_OK;
    for (size_t i = 0; !s && i < x->n; i++) {
        s = multiplied(&x->at[i].cond, by, err);
        if (!s)
            s = multiplied(&x->at[i].pooled, by, err);
    }
    return give_conditioning(c, s, x, err);
}

NODE_CLASS(ConditioningMultiply, .display = "Conditioning (Multiply)",
           .category = "model/conditioning/transform", .module = "nodes",
           INS(SOCKET("conditioning", "CONDITIONING"),
               FLOAT_IN("multiplier", 1.0, -100.0, 100.0, 0.01)),
           OUT_OF("CONDITIONING"), .run = run_multiply);

static berth_status run_strength(struct node_call *c, berth_err *err)
{
    struct conditioning *x;
    double strength;
    if (in_f64(c, "strength", &strength, err) || in_copy(c, &x, err))
        return err->code;
    for (size_t i = 0; i < x->n; i++)
        x->at[i].strength = strength;
    return out_conditioning(c, 0, x, err);
}

NODE_CLASS(ConditioningSetAreaStrength, .display = "Conditioning (Set Area Strength)",
           .category = "model/conditioning/transform", .module = "nodes",
           INS(SOCKET("conditioning", "CONDITIONING"), FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01)),
           OUT_OF("CONDITIONING"), .run = run_strength);
