/* vision: pictures as encoders see them (CLIP_VISION_OUTPUT), and prompts made of that. */
#include "node/compute.h"

#include "tensor/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- CLIP_VISION_OUTPUT ---- */

void vision_output_free(void *obj)
{
    struct vision_output *o = obj;
    htensor_unref(o->last);
    htensor_unref(o->penultimate);
    htensor_unref(o->mid);
    htensor_unref(o->low);
    htensor_unref(o->embeds);
    htensor_unref(o->projected);
    free(o);
}

static size_t output_bytes(const void *obj)
{
    const struct vision_output *o = obj;
    const struct htensor *const all[] = { o->last, o->penultimate, o->mid,
                                          o->low,  o->embeds,      o->projected };
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        n += all[i] ? htensor_count(all[i]) * sizeof(float) : 0;
    return n;
}

const struct value_type type_vision_output = { .name = "CLIP_VISION_OUTPUT",
                                               .free = vision_output_free,
                                               .bytes = output_bytes };

berth_status in_vision_output(const struct node_call *c, const char *name,
                              const struct vision_output **out, berth_err *err)
{
    const void *obj = NULL;
    berth_status s = in_object(c, name, &type_vision_output, &obj, err);
    *out = obj;
    return s;
}

/* ---- CLIPVisionEncode ---- */

/* Room for what the encoder says of n pictures. SigLIP's embeds are its last states. */
static berth_status output_new(const struct vision_net *v, uint64_t n, struct vision_output **out,
                               berth_err *err)
{
    const struct shape states = { 3, { n, v->tokens, v->width } };
    const struct shape row = { 2, { n, v->embeds_width } };
    const struct shape projected = { 3, { n, v->projected_rows, v->projected_width } };
    struct vision_output *o = calloc(1, sizeof *o);
    if (!o)
        return err_set(err, BERTH_ENOMEM, "what an encoder saw");
    berth_status s = htensor_new(&states, &o->last, err);
    if (!s)
        s = htensor_new(&states, &o->penultimate, err);
    if (!s && v->deep)
        s = htensor_new(&states, &o->mid, err);
    if (!s && v->deep)
        s = htensor_new(&states, &o->low, err);
    if (!s && v->embeds_rows == 1)
        s = htensor_new(&row, &o->embeds, err);
    else if (!s)
        o->embeds = htensor_ref(o->last);
    if (!s && v->projected_rows)
        s = htensor_new(&projected, &o->projected, err);
    o->side = v->side;
    *out = s ? NULL : o;
    if (s)
        vision_output_free(o);
    return s;
}

static berth_status look_at(struct node_call *c, struct net *net, const struct vision_net *v,
                            const struct htensor *image, bool crop, struct vision_output **out,
                            berth_err *err)
{
    if (output_new(v, dim(image, 0), out, err))
        return err->code;
    const struct vision_job job = { .image = image->data,
                                    .n = dim(image, 0),
                                    .h = dim(image, 1),
                                    .w = dim(image, 2),
                                    .c = dim(image, 3),
                                    .crop = crop,
                                    .pool = c->env->pool,
                                    .cancel = cancel_of(c),
                                    .last = (*out)->last->data,
                                    .penultimate = (*out)->penultimate->data,
                                    .mid = v->deep ? (*out)->mid->data : NULL,
                                    .low = v->deep ? (*out)->low->data : NULL,
                                    .embeds = (*out)->embeds->data,
                                    .projected =
                                        (*out)->projected ? (*out)->projected->data : NULL };
    berth_status s = vision_see(net, v, &job, err);
    if (s) {
        vision_output_free(*out);
        *out = NULL;
    }
    return s;
}

berth_status see_picture(struct node_call *c, const struct model_ref *ref,
                         const struct htensor *image, bool crop, struct vision_output **out,
                         berth_err *err)
{
    struct vision_net v;
    struct net_args args;
    struct net *net = NULL;
    *out = NULL;
    if (ready_net(c, ref, "CLIP_VISION", &args, err) ||
        vision_open(&args, res_info(ref->part[0]).part, &v, &net, err))
        return err->code;
    berth_status s = look_at(c, net, &v, image, crop, out, err);
    struct net_report done = net_report(net);
    ready_done(c, ref->part[0], "vision", &done);
    net_close(net);
    return s ? err_add(err, "'%.80s'", ready_name(ref)) : BERTH_OK;
}

static berth_status run_vision(struct node_call *c, berth_err *err)
{
    const struct model_ref *ref;
    struct htensor *image;
    struct vision_output *seen = NULL;
    const char *crop;
    if (in_model(c, "clip_vision", &ref, err) || in_image(c, "image", &image, err) ||
        in_text(c, "crop", &crop, err) ||
        see_picture(c, ref, image, strcmp(crop, "center") == 0, &seen, err))
        return err->code;
    return out_value(c, 0, value_object(&type_vision_output, seen), err);
}

NODE_CLASS(CLIPVisionEncode, .display = "CLIP Vision Encode", .category = "conditioning",
           .module = "nodes",
           INS(SOCKET("clip_vision", "CLIP_VISION"), SOCKET("image", "IMAGE"),
               COMBO_IN("crop", CHOICES("center", "none"))),
           OUT_OF("CLIP_VISION_OUTPUT"), .run = run_vision);

/* ---- StyleModelApply ---- */

/* [1, n * tokens, width]: what the style model makes of all pictures, one after the other. */
static berth_status style_prompt(struct node_call *c, const struct model_ref *ref,
                                 const struct vision_output *seen, struct htensor **out,
                                 berth_err *err)
{
    struct style_net s;
    struct net_args args;
    struct net *net = NULL;
    const uint64_t rows = (uint64_t)dim(seen->last, 0) * dim(seen->last, 1);
    if (ready_net(c, ref, "STYLE_MODEL", &args, err) ||
        style_open(&args, res_info(ref->part[0]).part, &s, &net, err))
        return err->code;
    const struct shape shape = { 3, { 1, rows, s.out } };
    berth_status bad = BERTH_OK;
    if (s.states)
        bad = err_set(err, BERTH_EUNSUPPORTED,
                      "a projector of USO is no style model: take USOStyleReference");
    else if (dim(seen->last, 2) != s.in)
        bad = err_set(err, BERTH_EINVAL,
                      "the style model wants pictures as %llu values, this encoder gave %zu",
                      (unsigned long long)s.in, dim(seen->last, 2));
    if (!bad)
        bad = htensor_new(&shape, out, err);
    if (!bad)
        bad = style_tokens(net, &s, seen->last->data, rows, (*out)->data, err);
    struct net_report done = net_report(net);
    ready_done(c, ref->part[0], "style", &done);
    net_close(net);
    return bad ? err_add(err, "'%.80s'", ready_name(ref)) : BERTH_OK;
}

/* A number as the reference's half-precision masks have it. */
static float as_half(float x)
{
    uint16_t raw;
    dtype_desc(DT_F16)->from_f32(&x, &raw, 1);
    dtype_desc(DT_F16)->to_f32(&raw, &x, 1);
    return x;
}

/* Room for n more tokens behind the others and in front of the picture; those who were there before
 * add `bias` when they look at the new ones, which themselves add nothing. */
static berth_status wider_bias(const struct cond_entry *e, size_t n, float bias,
                               struct htensor **out, berth_err *err)
{
    const size_t text = dim(e->cond, 1), old = text + 1, side = text + n + 1;
    const struct shape s = { 2, { side, side } };
    if (e->bias && (dim(e->bias, 0) != old || dim(e->bias, 1) != old))
        return err_set(err, BERTH_EINVAL,
                       "a prompt of %zu tokens; what attention adds is said for %zu", text,
                       dim(e->bias, 0) - 1);
    if (htensor_zeros(&s, out, err))
        return err->code;
    for (size_t i = 0; i < old; i++) {
        float *row = (*out)->data + (i < text ? i : side - 1) * side;
        for (size_t k = 0; e->bias && k < old; k++)
            row[k < text ? k : side - 1] = e->bias->data[i * old + k];
        for (size_t k = text; k < text + n; k++)
            row[k] = bias;
    }
    return BERTH_OK;
}

static berth_status append(struct cond_entry *e, const struct htensor *style, bool bias,
                           double strength, berth_err *err)
{
    const size_t n = htensor_count(e->cond), more = htensor_count(style);
    struct shape shape = e->cond->shape;
    struct htensor *text, *wider = NULL;
    if (e->shown)
        return err_set(err, BERTH_EUNSUPPORTED, "a style for a prompt that says what is padding");
    if (dim(e->cond, 2) != dim(style, 2))
        return err_set(err, BERTH_EINVAL, "a prompt of width %zu and a style of width %zu",
                       dim(e->cond, 2), dim(style, 2));
    if ((e->bias || (bias && strength != 1.0)) &&
        wider_bias(e, dim(style, 1), bias ? as_half(logf((float)strength)) : 0.0f, &wider, err))
        return err->code;
    shape.dim[1] += style->shape.dim[1];
    if (htensor_new(&shape, &text, err)) {
        htensor_unref(wider);
        return err->code;
    }
    memcpy(text->data, e->cond->data, n * sizeof(float));
    memcpy(text->data + n, style->data, more * sizeof(float));
    htensor_unref(e->cond);
    e->cond = text;
    if (wider) {
        htensor_unref(e->bias);
        e->bias = wider;
    }
    return BERTH_OK;
}

static berth_status run_style(struct node_call *c, berth_err *err)
{
    const struct conditioning *in;
    const struct model_ref *ref;
    const struct vision_output *seen;
    struct conditioning *x = NULL;
    struct htensor *style = NULL;
    const char *type;
    double strength;
    if (in_conditioning(c, "conditioning", &in, err) || in_model(c, "style_model", &ref, err) ||
        in_vision_output(c, "clip_vision_output", &seen, err) ||
        in_finite(c, "strength", &strength, err) || in_text(c, "strength_type", &type, err))
        return err->code;
    const bool bias = strcmp(type, "attn_bias") == 0;
    berth_status s = style_prompt(c, ref, seen, &style, err);
    for (size_t i = 0; !s && !bias && i < htensor_count(style); i++)
        style->data[i] *= (float)strength;
    if (!s)
        s = conditioning_tokens_fit(conditioning_tokens(in) + in->n * dim(style, 1), err);
    if (!s)
        s = conditioning_copy(in, &x, err);
    for (size_t i = 0; !s && i < x->n; i++)
        s = append(&x->at[i], style, bias, strength, err);
    htensor_unref(style);
    if (s)
        conditioning_free(x);
    return s ? s : out_conditioning(c, 0, x, err);
}

NODE_CLASS(StyleModelApply, .display = "Apply Style Model", .category = "conditioning/style_model",
           .module = "nodes",
           INS(SOCKET("conditioning", "CONDITIONING"), SOCKET("style_model", "STYLE_MODEL"),
               SOCKET("clip_vision_output", "CLIP_VISION_OUTPUT"),
               FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.001),
               COMBO_IN("strength_type", CHOICES("multiply", "attn_bias"))),
           OUT_OF("CONDITIONING"), .run = run_style);

/* ---- USOStyleReference ---- */

/* What the encoder saw, from its earliest layer on: [3, rows, width]. */
static berth_status three_states(const struct vision_output *seen, const struct style_net *s,
                                 float **out, berth_err *err)
{
    const struct htensor *const state[] = { seen->low, seen->mid, seen->penultimate };
    if (!seen->low)
        return err_set(err, BERTH_EINVAL,
                       "USO wants what a SigLIP of 20 layers or more saw; this encoder gives none "
                       "of its earlier layers");
    if (dim(seen->low, 0) != 1)
        return err_set(err, BERTH_EUNSUPPORTED, "%zu pictures for a style; USO takes one",
                       dim(seen->low, 0));
    if (dim(seen->low, 1) != s->rows || dim(seen->low, 2) != s->in)
        return err_set(err, BERTH_EINVAL,
                       "USO wants pictures as %llu rows of %llu values, this encoder gave %zu of "
                       "%zu",
                       (unsigned long long)s->rows, (unsigned long long)s->in, dim(seen->low, 1),
                       dim(seen->low, 2));
    const size_t each = htensor_count(seen->low);
    if (!(*out = malloc(ARRAY_LEN(state) * each * sizeof **out)))
        return err_set(err, BERTH_ENOMEM, "what an encoder saw");
    for (size_t i = 0; i < ARRAY_LEN(state); i++)
        memcpy(*out + i * each, state[i]->data, each * sizeof **out);
    return BERTH_OK;
}

/* Tokens of the style; those that were there before come behind them. */
static berth_status style_before(struct node_call *c, const struct model_ref *patch,
                                 const struct vision_output *seen, const struct htensor *before,
                                 struct htensor **out, berth_err *err)
{
    struct style_net s;
    struct net_args args;
    struct net *net = NULL;
    float *x = NULL;
    if (ready_net(c, patch, "MODEL_PATCH", &args, err) ||
        style_open(&args, res_info(patch->part[0]).part, &s, &net, err))
        return err->code;
    const uint64_t rows = style_rows(&s, 0), more = before ? before->shape.dim[1] : 0;
    const struct shape shape = { 3, { 1, rows + more, s.out } };
    berth_status bad = s.states ? three_states(seen, &s, &x, err)
                                : err_set(err, BERTH_EUNSUPPORTED,
                                          "a style model is no projector of USO: take "
                                          "StyleModelApply");
    if (!bad && before && before->shape.dim[2] != s.out)
        bad = err_set(err, BERTH_EINVAL, "a style of width %llu behind one of %zu",
                      (unsigned long long)s.out, dim(before, 2));
    if (!bad)
        bad = htensor_new(&shape, out, err);
    if (!bad)
        bad = style_tokens(net, &s, x, s.rows, (*out)->data, err);
    if (!bad && before)
        memcpy((*out)->data + rows * s.out, before->data, htensor_count(before) * sizeof(float));
    free(x);
    struct net_report done = net_report(net);
    ready_done(c, patch->part[0], "style", &done);
    net_close(net);
    return bad ? err_add(err, "'%.80s'", ready_name(patch)) : BERTH_OK;
}

static berth_status run_uso(struct node_call *c, berth_err *err)
{
    const struct model_ref *model, *patch;
    const struct vision_output *seen;
    struct htensor *tokens = NULL;
    struct model_ref m;
    if (in_model(c, "model", &model, err) || in_model(c, "model_patch", &patch, err) ||
        in_vision_output(c, "clip_vision_output", &seen, err))
        return err->code;
    berth_status s = style_before(c, patch, seen, model->tokens, &tokens, err);
    if (!s)
        s = in_model_copy(c, "model", &m, err);
    if (s) {
        htensor_unref(tokens);
        return s;
    }
    htensor_unref(m.tokens);
    m.tokens = tokens;
    return out_value(c, 0, value_model(&m), err);
}

NODE_CLASS(USOStyleReference, .category = "model/patch/flux", .module = MOD("model_patch"),
           .flags = NODE_EXPERIMENTAL,
           .description = "Puts the style of a picture in front of Flux's text, as USO's projector "
                          "makes it of what SigLIP saw.",
           INS(SOCKET("model", "MODEL"), SOCKET("model_patch", "MODEL_PATCH"),
               SOCKET("clip_vision_output", "CLIP_VISION_OUTPUT")),
           OUT_OF("MODEL"), .run = run_uso);
