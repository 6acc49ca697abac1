/* controlnet: control nets, which prompts bring along, and what they look at.
 *
 * A picture is cut and scaled to the size of what is sampled when a sampler knows that, so nodes
 * only note what is wanted. */
#include "node/compute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- on prompts ---- */

void cond_control_unref(struct cond_control *k)
{
    while (k && --k->counts == 0) {
        struct cond_control *before = k->before;
        model_ref_release(&k->net);
        model_ref_release(&k->vae);
        htensor_unref(k->image);
        htensor_unref(k->mask);
        free(k);
        k = before;
    }
}

static struct res_model *model_of(const struct cond_control *k)
{
    return k->net.part[0];
}

/* One that stands behind `before`, without a reference to it. */
static berth_status control_new(const struct cond_control *like, const struct cond_control *before,
                                struct cond_control **out, berth_err *err)
{
    struct cond_control *k = *out = calloc(1, sizeof *k);
    if (!k)
        return err_set(err, BERTH_ENOMEM, "a control net");
    *k = *like;
    k->counts = 1;
    k->before = (struct cond_control *)before;
    k->net = k->vae = (struct model_ref) { 0 };
    if (model_ref_copy(&like->net, &k->net, err) || model_ref_copy(&like->vae, &k->vae, err)) {
        model_ref_release(&k->net);
        free(k);
        *out = NULL;
        return err->code;
    }
    htensor_ref(k->image);
    if (k->mask)
        htensor_ref(k->mask);
    if (k->before)
        k->before->counts++;
    return BERTH_OK;
}

#define CHAINS_MAX 64 /* of control nets that prompts of one node have already */
struct chains {       /* prompts that were steered alike stay so */
    struct cond_control *made[CHAINS_MAX];
    size_t n;
};

static berth_status chain(struct chains *s, const struct cond_control *like, struct cond_entry *e,
                          berth_err *err)
{
    struct cond_control *k = NULL;
    for (size_t i = 0; i < s->n && !k; i++)
        if (s->made[i]->before == e->control)
            k = s->made[i];
    if (k) {
        k->counts++;
    } else {
        if (control_new(like, e->control, &k, err))
            return err->code;
        if (s->n < CHAINS_MAX) {
            s->made[s->n++] = k;
            k->counts++;
        }
    }
    cond_control_unref(e->control);
    e->control = k;
    return BERTH_OK;
}

/* Output i: the prompts at this input, steered. */
static berth_status steer_list(struct node_call *c, const char *input, size_t i,
                               const struct cond_control *like, bool to_all, struct chains *made,
                               berth_err *err)
{
    const struct conditioning *x;
    struct conditioning *out;
    if (in_conditioning(c, input, &x, err) || conditioning_copy(x, &out, err))
        return err->code;
    berth_status s = BERTH_OK;
    for (size_t k = 0; !s && k < out->n && like->strength != 0; k++) {
        s = chain(made, like, &out->at[k], err);
        out->at[k].control_to_all = to_all;
    }
    if (!s)
        return out_conditioning(c, i, out, err);
    conditioning_free(out);
    return s;
}

/* What the node's inputs say of it; all borrowed. */
static berth_status read_control(struct node_call *c, struct cond_control *out,
                                 struct control_info *info, berth_err *err)
{
    const struct model_ref *net, *vae;
    *out = (struct cond_control) { .end_percent = 1 };
    if (in_model(c, "control_net", &net, err) || in_image(c, "image", &out->image, err) ||
        in_f64(c, "strength", &out->strength, err))
        return err->code;
    if (!net->parts)
        return err_set(err, BERTH_EINVAL, "a control net without weights");
    if (!htensor_count(out->image))
        return err_set(err, BERTH_EINVAL, "a picture without pixels for a control net");
    out->net = *net;
    struct res_model *m = net->part[0];
    if (diffusion_control_info(res_weights(m), res_info(m).part, info, err))
        return err->code;
    if (!info->latents)
        return BERTH_OK;
    if (node_input_index(c->cls, "vae") == SIZE_MAX || !in_given(c, "vae"))
        return err_set(err, BERTH_EINVAL,
                       "'%.120s' looks at latents: give a node that applies it a VAE",
                       weights_path(res_weights(m)));
    if (in_model(c, "vae", &vae, err))
        return err->code;
    out->vae = *vae;
    return BERTH_OK;
}

static berth_status run_apply(struct node_call *c, berth_err *err)
{
    struct cond_control k;
    struct control_info info;
    struct chains made = { .n = 0 };
    if (read_control(c, &k, &info, err))
        return err->code;
    berth_status s = steer_list(c, "conditioning", 0, &k, true, &made, err);
    for (size_t i = 0; i < made.n; i++)
        cond_control_unref(made.made[i]);
    return s;
}

/* Both prompts, steered from one percent to the other. */
static berth_status steer_pair(struct node_call *c, struct cond_control *k, berth_err *err)
{
    struct chains made = { .n = 0 };
    if (in_f64(c, "start_percent", &k->start_percent, err) ||
        in_f64(c, "end_percent", &k->end_percent, err))
        return err->code;
    berth_status s = steer_list(c, "positive", 0, k, false, &made, err);
    if (!s)
        s = steer_list(c, "negative", 1, k, false, &made, err);
    for (size_t i = 0; i < made.n; i++)
        cond_control_unref(made.made[i]);
    return s;
}

static berth_status run_advanced(struct node_call *c, berth_err *err)
{
    struct cond_control k;
    struct control_info info;
    return read_control(c, &k, &info, err) ? err->code : steer_pair(c, &k, err);
}

/* 1 - mask: what stays. */
static berth_status what_stays(const struct htensor *mask, struct htensor **out, berth_err *err)
{
    if (htensor_copy(mask, out, err))
        return err->code;
    for (size_t i = 0; i < htensor_count(*out); i++)
        (*out)->data[i] = 1.0f - (*out)->data[i];
    return BERTH_OK;
}

/* The picture where the mask says so, else black. */
static berth_status what_is_seen(struct node_call *c, const struct htensor *image,
                                 const struct htensor *stays, struct htensor **out, berth_err *err)
{
    const size_t w = dim(image, 2), h = dim(image, 1), channels = dim(image, 3);
    struct htensor *m = NULL;
    *out = NULL;
    if (dim(stays, 0) != 1 && dim(stays, 0) != dim(image, 0))
        return err_set(err, BERTH_EINVAL, "%zu masks for %zu pictures", dim(stays, 0),
                       dim(image, 0));
    if (scale_planes(c, stays, w, h, "bilinear", true, &m, err) || htensor_copy(image, out, err)) {
        htensor_unref(m);
        return err->code;
    }
    for (size_t i = 0; i < htensor_count(*out); i++)
        (*out)->data[i] *= nearbyintf(m->data[i / channels % (dim(stays, 0) * h * w)]);
    htensor_unref(m);
    return BERTH_OK;
}

static berth_status run_inpainting(struct node_call *c, berth_err *err)
{
    struct cond_control k;
    struct control_info info;
    struct htensor *mask, *seen = NULL;
    if (read_control(c, &k, &info, err) || in_mask(c, "mask", &mask, err))
        return err->code;
    if (!info.masked)
        return steer_pair(c, &k, err);
    berth_status s = what_stays(mask, &k.mask, err);
    if (!s)
        s = what_is_seen(c, k.image, k.mask, &seen, err);
    if (!s) {
        k.image = seen;
        s = steer_pair(c, &k, err);
    }
    htensor_unref(seen);
    htensor_unref(k.mask);
    return s;
}

#define STRENGTH_IN FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01)
#define RANGE_IN                                                                                   \
    FLOAT_IN("start_percent", 0.0, 0.0, 1.0, 0.001), FLOAT_IN("end_percent", 1.0, 0.0, 1.0, 0.001)

NODE_CLASS(ControlNetApply, .display = "Apply ControlNet (OLD)",
           .category = "conditioning/controlnet", .module = "nodes", .flags = NODE_DEPRECATED,
           INS(SOCKET("conditioning", "CONDITIONING"), SOCKET("control_net", "CONTROL_NET"),
               SOCKET("image", "IMAGE"), STRENGTH_IN),
           OUT_OF("CONDITIONING"), .run = run_apply);

NODE_CLASS(ControlNetApplyAdvanced, .display = "Apply ControlNet",
           .category = "conditioning/controlnet", .module = "nodes",
           INS(PAIR_IN, SOCKET("control_net", "CONTROL_NET"), SOCKET("image", "IMAGE"), STRENGTH_IN,
               RANGE_IN, OPTIONAL("vae", "VAE")),
           OUTS(PAIR_OUT), .run = run_advanced);

NODE_CLASS(ControlNetApplySD3, .display = "Apply Controlnet with VAE",
           .category = "conditioning/controlnet", .module = MOD("sd3"),
           .flags = NODE_V3 | NODE_DEPRECATED,
           INS(PAIR_IN, SOCKET("control_net", "CONTROL_NET"), SOCKET("vae", "VAE"),
               SOCKET("image", "IMAGE"), STRENGTH_IN, RANGE_IN),
           OUTS(PAIR_OUT), .run = run_advanced);

NODE_CLASS(ControlNetInpaintingAliMamaApply, .category = "conditioning/controlnet",
           V3("controlnet"),
           INS(PAIR_IN, SOCKET("control_net", "CONTROL_NET"), SOCKET("vae", "VAE"),
               SOCKET("image", "IMAGE"), SOCKET("mask", "MASK"), STRENGTH_IN, RANGE_IN),
           OUTS(PAIR_OUT), .run = run_inpainting);

/* ---- what they are told ---- */

static const char *const types[] = { "auto",
                                     "openpose",
                                     "depth",
                                     "hed/pidi/scribble/ted",
                                     "canny/lineart/anime_lineart/mlsd",
                                     "normal",
                                     "segment",
                                     "tile",
                                     "repaint",
                                     NULL };

static berth_status run_type(struct node_call *c, berth_err *err)
{
    const char *type;
    struct model_ref m;
    if (in_text(c, "type", &type, err) || in_model_copy(c, "control_net", &m, err))
        return err->code;
    m.said.picture = 0;
    for (int i = 1; types[i]; i++)
        if (!strcmp(types[i], type))
            m.said.picture = i;
    return out_value(c, 0, value_model(&m), err);
}

NODE_CLASS(SetUnionControlNetType, .category = "conditioning/controlnet", V3("controlnet"),
           INS(SOCKET("control_net", "CONTROL_NET"), COMBO_IN("type", types)),
           OUT_OF("CONTROL_NET"), .run = run_type);

static berth_status run_text(struct node_call *c, berth_err *err)
{
    const struct conditioning *x;
    struct conditioning *told = NULL, *out = NULL;
    const char *text;
    if (in_conditioning(c, "conditioning", &x, err) || in_text(c, "text", &text, err) ||
        text_conditioning(c, &(struct text_prompt) { .text = text }, 1, NULL, &told, err))
        return err->code;
    berth_status s = conditioning_copy(x, &out, err);
    for (size_t i = 0; !s && i < out->n; i++) {
        htensor_unref(out->at[i].control_text);
        out->at[i].control_text = htensor_ref(told->at[0].cond);
    }
    conditioning_free(told);
    return s ? s : out_conditioning(c, 0, out, err);
}

NODE_CLASS(CLIPTextEncodeControlnet, .display = "CLIP Text Encode (Controlnet)",
           .category = "model/conditioning", .module = MOD("cond"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("clip", "CLIP"), SOCKET("conditioning", "CONDITIONING"),
               TEXT_IN("text", "", .no_default = true, .more = PROMPT_TEXT)),
           OUT_OF("CONDITIONING"), .run = run_text);

/* ---- for samplers ---- */

berth_status controls_check(const struct cond_control *last, const struct model_ref *model,
                            berth_err *err)
{
    const struct res_model_info of = res_info(model->part[0]);
    for (const struct cond_control *k = last; k; k = k->before)
        if (diffusion_control_fits(res_weights(model->part[0]), of.part, res_weights(model_of(k)),
                                   res_info(model_of(k)).part, err))
            return err->code;
    return BERTH_OK;
}

/* [n, h, w, c] as planes, [n, channels, h, w]; a net of one channel gets their mean. */
static berth_status planes_of(const struct htensor *t, const struct control_info *info,
                              struct arena *mem, struct control_hint *out, berth_err *err)
{
    const size_t c = dim(t, 3), hw = dim(t, 1) * dim(t, 2);
    const bool mean = info->channels == 1 && c > 1;
    if (!mean && c != info->channels)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels; the %s looks at %llu", c,
                       info->what, (unsigned long long)info->channels);
    float *x = arena_array(mem, (size_t)info->channels * dim(t, 0), hw * sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a control net's picture");
    for (size_t i = 0; i < dim(t, 0) * hw; i++) {
        const float *px = t->data + i * c;
        float sum = 0;
        for (size_t k = 0; k < c; k++) {
            sum += px[k];
            if (!mean)
                x[(i / hw * c + k) * hw + i % hw] = px[k];
        }
        if (mean)
            x[i] = sum / (float)c;
    }
    out->x = x;
    out->shape = (struct shape) { 4, { dim(t, 0), info->channels, dim(t, 1), dim(t, 2) } };
    return BERTH_OK;
}

/* The mask at the latents' pixels, nearest, cut to their aspect, behind the latents of each
 * picture; all ones where there is none. */
static berth_status mask_behind(struct node_call *c, const struct htensor *mask,
                                const struct control_hint *x, float *data, berth_err *err)
{
    const size_t each = (size_t)shape_inner(&x->shape, 1), hw = x->h * x->w;
    struct htensor *m = NULL;
    if (mask && scale_planes(c, mask, x->w, x->h, "nearest-exact", true, &m, err))
        return err->code;
    for (size_t i = 0; i < (size_t)x->shape.dim[0]; i++)
        for (size_t k = 0; k < hw; k++)
            data[(i + 1) * each - hw + k] = m ? m->data[i % dim(mask, 0) * hw + k] : 1.0f;
    htensor_unref(m);
    return BERTH_OK;
}

/* Latents of pictures that are cut and scaled already, in the model's scale. */
static berth_status latents_of(struct node_call *c, const struct cond_control *k,
                               const struct control_info *info, const struct latent_format *f,
                               const struct htensor *pictures, struct arena *mem,
                               struct control_hint *out, berth_err *err)
{
    const size_t n = dim(pictures, 0), own = info->channels - info->masked;
    char text[SHAPE_TEXT_MAX];
    struct htensor *z = NULL;
    if (n > 1 && f->rank == 3)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "%zu pictures for this control net cannot be used yet; give it one", n);
    if (encode_picture(c, &k->vae, pictures, &z, err))
        return err->code;
    const struct shape still = { 4, { n, own, out->h, out->w } };
    const struct shape frame = { 5, { n, own, 1, out->h, out->w } };
    struct shape s = f->rank == 3 ? frame : still;
    berth_status st = BERTH_OK;
    if (!shape_eq(&z->shape, &s))
        st = err_set(err, BERTH_EINVAL, "this VAE's latents are %s, not what the %s looks at",
                     shape_text(&z->shape, text), info->what);
    if (!st)
        latent_in(f, z->data, &s);
    const size_t each = (size_t)shape_inner(&s, 1);
    s.dim[1] = info->channels;
    const size_t room = (size_t)shape_inner(&s, 1);
    float *x = st ? NULL : arena_array(mem, n, room * sizeof *x);
    if (!st && !x)
        st = err_set(err, BERTH_ENOMEM, "a control net's picture");
    for (size_t i = 0; !st && i < n; i++)
        memcpy(x + i * room, z->data + i * each, each * sizeof *x);
    htensor_unref(z);
    out->x = x;
    out->shape = s;
    return st || !info->masked ? st : mask_behind(c, k->mask, out, x, err);
}

static size_t up_to(size_t side, size_t multiple)
{
    return (side + multiple - 1) / multiple * multiple;
}

static berth_status look(struct node_call *c, const struct cond_control *k,
                         const struct latent_format *f, struct arena *mem, struct control_hint *x,
                         berth_err *err)
{
    struct control_info info;
    struct htensor *t = NULL;
    if (diffusion_control_info(res_weights(model_of(k)), res_info(model_of(k)).part, &info, err))
        return err->code;
    const size_t ratio = info.latents ? f->ratio : info.ratio;
    if (scale_image(c, k->image, up_to(x->w * ratio, info.multiple),
                    up_to(x->h * ratio, info.multiple), "nearest-exact", true, &t, err))
        return err->code;
    berth_status s = info.latents ? latents_of(c, k, &info, f, t, mem, x, err)
                                  : planes_of(t, &info, mem, x, err);
    htensor_unref(t);
    return s ? err_add(err, "'%.120s'", weights_path(res_weights(model_of(k)))) : BERTH_OK;
}

berth_status control_hint(struct node_call *c, const struct cond_control *k,
                          const struct latent_format *f, size_t h, size_t w, struct arena *mem,
                          struct control_hint **list, const struct control_hint **out,
                          berth_err *err)
{
    struct control_hint *x = *list;
    while (x && (x->of != k || x->h != h || x->w != w))
        x = x->next;
    if (!x) {
        if (!(x = arena_array(mem, 1, sizeof *x)))
            return err_set(err, BERTH_ENOMEM, "a control net's picture");
        *x = (struct control_hint) { .of = k, .h = h, .w = w };
        if (look(c, k, f, mem, x, err))
            return err->code;
        x->next = *list;
        *list = x;
    }
    *out = x;
    return BERTH_OK;
}

/* Of nets for colours alone; ComfyUI goes by the file's name as well. */
static bool is_for_colours(const char *path)
{
    static const char *const end[] = { "_shuffle", "_shuffle_fp16" };
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    const size_t n = dot && dot > slash ? (size_t)(dot - path) : strlen(path);
    for (size_t i = 0; i < ARRAY_LEN(end); i++)
        if (str_ends(path, n, end[i]))
            return true;
    return false;
}

void control_manner(const struct cond_control *k, struct diffusion_steer *out)
{
    out->strength = (float)k->strength;
    out->type = k->net.said.picture - 1;
    out->mean = is_for_colours(weights_path(res_weights(model_of(k))));
}
