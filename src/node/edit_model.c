/* edit_model: pictures that models look at while they make another: reference latents, and prompts
 * that show what they speak of (qwen-image-edit.md 7). */
#include "node/compute.h"
#include "text/chat.h"

#include <math.h>
#include <string.h>

#define REFS_MAX 64 /* pictures of a prompt */

/* ---- reference latents ---- */

/* Adds a latent to look at to every prompt of x. */
static berth_status add_ref(struct conditioning *x, struct htensor *latent, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    if ((latent->shape.ndim != 4 && latent->shape.ndim != 5) || !htensor_count(latent))
        return err_set(err, BERTH_EINVAL, "a latent %s is nothing to look at",
                       shape_text(&latent->shape, text));
    for (size_t i = 0; i < x->n; i++) {
        if (cond_refs(x->at[i].ref) == REFS_MAX)
            return err_set(err, BERTH_ELIMIT, "more than %d pictures for a prompt to look at",
                           REFS_MAX);
        if (cond_ref_add(&x->at[i].ref, latent, err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status give(struct node_call *c, berth_status s, struct conditioning *taken,
                         berth_err *err)
{
    if (!s)
        return out_conditioning(c, 0, taken, err);
    conditioning_free(taken);
    return s;
}

static berth_status run_reference(struct node_call *c, berth_err *err)
{
    const struct conditioning *from;
    const struct latent *l;
    struct conditioning *x;
    if (in_conditioning(c, "conditioning", &from, err) || conditioning_copy(from, &x, err))
        return err->code;
    berth_status s = BERTH_OK;
    if (in_given(c, "latent"))
        s = in_latent(c, "latent", &l, err) ? err->code : add_ref(x, l->samples, err);
    return give(c, s, x, err);
}

NODE_CLASS(ReferenceLatent, .category = "advanced/conditioning/edit_models", V3("edit_model"),
           .description = "Gives a model that edits pictures one to look at. Several in a row give "
                          "it several.",
           INS(SOCKET("conditioning", "CONDITIONING"), OPTIONAL("latent", "LATENT")),
           OUT_OF("CONDITIONING"), .run = run_reference);

static const struct {
    const char *name;
    enum diffusion_ref_method is;
} methods[] = { { "offset", REF_OFFSET },
                { "index", REF_INDEX },
                { "uxo/uno", REF_UXO },
                { "index_timestep_zero", REF_INDEX_TIMESTEP_ZERO } };

static berth_status run_method(struct node_call *c, berth_err *err)
{
    const struct conditioning *from;
    struct conditioning *x;
    const char *name;
    size_t k = 0;
    if (in_text(c, "reference_latents_method", &name, err) ||
        in_conditioning(c, "conditioning", &from, err))
        return err->code;
    while (k < ARRAY_LEN(methods) && strcmp(name, methods[k].name) != 0)
        k++;
    if (k == ARRAY_LEN(methods))
        return err_set(err, BERTH_EINVAL, "no reference_latents_method '%.40s'", name);
    if (conditioning_copy(from, &x, err))
        return err->code;
    for (size_t i = 0; i < x->n; i++)
        x->at[i].ref_method = methods[k].is;
    return out_conditioning(c, 0, x, err);
}

NODE_CLASS(FluxKontextMultiReferenceLatentMethod, .display = "Edit Model Reference Method",
           .category = "advanced/conditioning/flux", .module = MOD("flux"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           .description = "How pictures to look at are placed beside the one that is made.",
           INS(SOCKET("conditioning", "CONDITIONING"),
               COMBO_IN("reference_latents_method",
                        CHOICES("offset", "index", "uxo/uno", "index_timestep_zero"),
                        .more = "\"advanced\":true")),
           OUT_OF("CONDITIONING"), .run = run_method);

/* ---- prompts that show pictures ---- */

/* Its latent, by the VAE that is given. */
static berth_status encode(struct node_call *c, const struct htensor *image, struct htensor **out,
                           berth_err *err)
{
    const struct model_ref *vae;
    *out = NULL;
    return in_model(c, "vae", &vae, err) ? err->code : encode_picture(c, vae, image, out, err);
}

#define SEEN_AREA (384.0 * 384.0)     /* pixels that a text encoder is shown of several */
#define LATENT_AREA (1024.0 * 1024.0) /* pixels of what is encoded to be looked at */
#define PICTURES 3                    /* inputs of Edit-Plus */

/* The picture with so many pixels, by the filter that averages; sides are multiples of `of`. The
 * first three of its channels. */
static berth_status with_area(struct node_call *c, const struct htensor *t, double area, double of,
                              struct htensor **out, berth_err *err)
{
    const double w = (double)dim(t, 2), h = (double)dim(t, 1), by = sqrt(area / (w * h));
    struct htensor *all = NULL;
    size_t ow, oh;
    *out = NULL;
    if (dim(t, 3) < 3)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels to edit", dim(t, 3));
    if (round_side(w * by / of, &ow, err) || round_side(h * by / of, &oh, err) ||
        scale_image(c, t, ow * (size_t)of, oh * (size_t)of, "area", false, &all, err))
        return err->code;
    if (dim(all, 3) == 3) {
        *out = all;
        return BERTH_OK;
    }
    const size_t n = htensor_count(all) / dim(all, 3), ch = dim(all, 3);
    berth_status s = image_tensor(dim(all, 0), dim(all, 1), dim(all, 2), 3, out, err);
    for (size_t i = 0; !s && i < n; i++)
        memcpy((*out)->data + 3 * i, all->data + ch * i, 3 * sizeof(float));
    htensor_unref(all);
    return s;
}

struct shown { /* the pictures of a prompt; shown_release() */
    struct htensor *seen[PICTURES], *latent[PICTURES];
    struct text_picture picture[PICTURES];
    size_t n, latents;
};

static void shown_release(struct shown *x)
{
    for (size_t i = 0; i < PICTURES; i++) {
        htensor_unref(x->seen[i]);
        htensor_unref(x->latent[i]);
    }
    *x = (struct shown) { .n = 0 };
}

/* Of a batch the text encoder sees the first one. Takes seen. */
static void show(struct shown *x, struct htensor *seen)
{
    x->seen[x->n] = seen;
    x->picture[x->n++] =
        (struct text_picture) { .rgb = seen->data, .width = dim(seen, 2), .height = dim(seen, 1) };
}

/* Prompts with their pictures as conditioning, and with the latents to look at. */
static berth_status give_shown(struct node_call *c, const struct text_prompt *p, struct shown *x,
                               berth_err *err)
{
    struct conditioning *made = NULL;
    berth_status s = text_conditioning(c, p, 1, NULL, &made, err);
    for (size_t i = 0; !s && i < x->latents; i++)
        s = add_ref(made, x->latent[i], err);
    shown_release(x);
    return give(c, s, made, err);
}

static berth_status run_edit(struct node_call *c, berth_err *err)
{
    const char *text;
    struct htensor *image, *sized;
    struct shown x = { .n = 0 };
    berth_status s = in_text(c, "prompt", &text, err);
    if (!s && in_given(c, "image")) {
        s = in_image(c, "image", &image, err);
        if (!s)
            s = with_area(c, image, LATENT_AREA, 1, &sized, err);
        if (!s)
            show(&x, sized);
        if (!s && in_given(c, "vae"))
            s = encode(c, sized, &x.latent[x.latents++], err);
    }
    if (!s)
        return give_shown(
            c, &(struct text_prompt) { .text = text, .picture = x.picture, .pictures = x.n }, &x,
            err);
    shown_release(&x);
    return s;
}

NODE_CLASS(TextEncodeQwenImageEdit, .category = "advanced/conditioning", V3("qwen"),
           .description = "A prompt about a picture, which its text encoder sees and, with a VAE, "
                          "the model looks at.",
           INS(SOCKET("clip", "CLIP"),
               TEXT_IN("prompt", NULL, .no_default = true, .more = PROMPT_TEXT),
               OPTIONAL("vae", "VAE"), OPTIONAL("image", "IMAGE")),
           OUT_OF("CONDITIONING"), .run = run_edit);

/* What the model was trained to be told, whether there are pictures or not; they stand in front of
 * the prompt. */
static const struct chat_template edit_plus = {
    .before =
        "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, "
        "texture, objects, background), then explain how the user's text instruction should "
        "alter or modify the image. Generate a new image that meets the user's requirements "
        "while maintaining consistency with the original input where "
        "appropriate.<|im_end|>\n" CHAT_QWEN_USER,
    .after = CHAT_QWEN_END,
    .unless = (const char *const[]) { "<|im_start|>", "<|start_header_id|>", NULL },
};

/* Input k of Edit-Plus, if it is given: shown, encoded, and named in front of the prompt. */
static berth_status take_picture(struct node_call *c, size_t k, struct shown *x, struct str *text,
                                 berth_err *err)
{
    char name[16];
    struct htensor *image, *seen, *sized = NULL;
    snprintf(name, sizeof name, "image%zu", k);
    if (!in_given(c, name))
        return BERTH_OK;
    if (in_image(c, name, &image, err) || with_area(c, image, SEEN_AREA, 1, &seen, err))
        return err->code;
    show(x, seen);
    str_addf(text, "Picture %zu: " CHAT_QWEN_IMAGE, k);
    if (!in_given(c, "vae"))
        return BERTH_OK;
    berth_status s = with_area(c, image, LATENT_AREA, USUAL_RATIO, &sized, err);
    if (!s)
        s = encode(c, sized, &x->latent[x->latents++], err);
    htensor_unref(sized);
    return s;
}

static berth_status run_edit_plus(struct node_call *c, berth_err *err)
{
    const char *prompt;
    struct shown x = { .n = 0 };
    struct str text = { 0 };
    berth_status s = in_text(c, "prompt", &prompt, err);
    for (size_t k = 1; !s && k <= PICTURES; k++)
        s = take_picture(c, k, &x, &text, err);
    if (!s) {
        str_adds(&text, prompt);
        s = text.bad ? err_set(err, BERTH_ENOMEM, "a prompt") : BERTH_OK;
    }
    if (!s)
        s = give_shown(
            c,
            &(struct text_prompt) {
                .text = str_c(&text), .chat = &edit_plus, .picture = x.picture, .pictures = x.n },
            &x, err);
    else
        shown_release(&x);
    str_release(&text);
    return s;
}

NODE_CLASS(TextEncodeQwenImageEditPlus, .category = "advanced/conditioning", V3("qwen"),
           .description = "A prompt about up to three pictures, \"Picture 1\" to \"Picture 3\", "
                          "which its text encoder sees and, with a VAE, the model looks at.",
           INS(SOCKET("clip", "CLIP"),
               TEXT_IN("prompt", NULL, .no_default = true, .more = PROMPT_TEXT),
               OPTIONAL("vae", "VAE"), OPTIONAL("image1", "IMAGE"), OPTIONAL("image2", "IMAGE"),
               OPTIONAL("image3", "IMAGE")),
           OUT_OF("CONDITIONING"), .run = run_edit_plus);

/* ---- Z-Image Omni ---- */

#define SEEN_PATCH 16 /* pixels of what an encoder saw, as the model counts them */

/* A text around pictures, as it stands. */
static const struct chat_template plain_text = { .before = "", .after = "" };
static const struct chat_template behind_pictures = { .before = "<|vision_end|>",
                                                      .after = CHAT_QWEN_END "<|vision_start|>" };

struct around { /* what is said around pictures; around_release() */
    struct cond_ref *latent, *text, *seen;
    size_t n;
};

static void around_release(struct around *a)
{
    cond_ref_release(a->latent);
    cond_ref_release(a->text);
    cond_ref_release(a->seen);
    *a = (struct around) { .n = 0 };
}

/* What the encoder at input `image_encoder` sees of it, as rows and columns of patches. */
static berth_status add_seen(struct node_call *c, struct around *a, const struct htensor *image,
                             berth_err *err)
{
    const struct model_ref *ref;
    struct vision_output *o = NULL;
    struct htensor *t = NULL;
    if (in_model(c, "image_encoder", &ref, err) || see_picture(c, ref, image, true, &o, err))
        return err->code;
    const size_t side = o->side / SEEN_PATCH, n = dim(o->last, 1), wide = dim(o->last, 2);
    const struct shape s = { 4, { dim(o->last, 0), side, side, wide } };
    berth_status bad = BERTH_OK;
    if (side * side != n)
        bad = err_set(err, BERTH_EINVAL,
                      "'%.80s' sees pictures of %zu x %zu as %zu patches; Z-Image Omni wants "
                      "patches of %d pixels, as of SigLIP 2 for 512",
                      ready_name(ref), o->side, o->side, n, SEEN_PATCH);
    if (!bad)
        bad = htensor_new(&s, &t, err);
    if (!bad) {
        memcpy(t->data, o->last->data, htensor_count(t) * sizeof *t->data);
        bad = cond_ref_add(&a->seen, t, err);
    }
    htensor_unref(t);
    vision_output_free(o);
    return bad;
}

static berth_status add_latent(struct node_call *c, struct around *a, struct htensor *image,
                               berth_err *err)
{
    struct htensor *sized = htensor_ref(image), *latent = NULL;
    bool resize;
    berth_status s = in_bool(c, "auto_resize_images", &resize, err);
    if (!s && resize) {
        htensor_unref(sized);
        s = with_area(c, image, LATENT_AREA, USUAL_RATIO, &sized, err);
    }
    if (!s)
        s = encode(c, sized, &latent, err);
    if (!s)
        s = cond_ref_add(&a->latent, latent, err);
    htensor_unref(latent);
    htensor_unref(sized);
    return s;
}

/* The tokens of a text of its own. */
static berth_status add_text(struct node_call *c, struct around *a, const char *text,
                             berth_err *err)
{
    const struct text_prompt p = { .text = text, .chat = &plain_text };
    struct conditioning *x = NULL;
    berth_status s = text_conditioning(c, &p, 1, NULL, &x, err);
    if (!s)
        s = cond_ref_add(&a->text, x->at[0].cond, err);
    conditioning_free(x);
    return s;
}

static berth_status take_pictures(struct node_call *c, struct around *a, berth_err *err)
{
    berth_status s = BERTH_OK;
    for (size_t k = 1; !s && k <= PICTURES; k++) {
        struct htensor *image;
        char name[16];
        snprintf(name, sizeof name, "image%zu", k);
        if (!in_given(c, name))
            continue;
        a->n++;
        s = in_image(c, name, &image, err);
        if (!s && in_given(c, "image_encoder"))
            s = add_seen(c, a, image, err);
        if (!s && in_given(c, "vae"))
            s = add_latent(c, a, image, err);
    }
    for (size_t k = 0; !s && a->n && k <= a->n; k++)
        s = add_text(c, a,
                     k == 0     ? "<|im_start|>user\n<|vision_start|>"
                     : k < a->n ? "<|vision_end|><|vision_start|>"
                                : "<|vision_end|><|im_end|>",
                     err);
    return s;
}

/* Gives every prompt of x what is around. */
static void look_around(struct conditioning *x, const struct around *a)
{
    for (size_t i = 0; i < x->n; i++) {
        x->at[i].ref = cond_ref_share(a->latent);
        x->at[i].ref_text = cond_ref_share(a->text);
        x->at[i].ref_seen = cond_ref_share(a->seen);
    }
}

static berth_status run_omni(struct node_call *c, berth_err *err)
{
    const char *text;
    struct around a = { .n = 0 };
    struct conditioning *x = NULL;
    berth_status s = in_text(c, "prompt", &text, err);
    if (!s)
        s = take_pictures(c, &a, err);
    if (!s)
        s = text_conditioning(
            c, &(struct text_prompt) { .text = text, .chat = a.n ? &behind_pictures : NULL }, 1,
            NULL, &x, err);
    if (!s)
        look_around(x, &a);
    around_release(&a);
    return give(c, s, x, err);
}

NODE_CLASS(TextEncodeZImageOmni, .category = "model/conditioning/z-image", .module = MOD("zimage"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           .description = "A prompt about up to three pictures, which the model looks at with a "
                          "VAE, and sees as an encoder of pictures does with one.",
           INS(SOCKET("clip", "CLIP"), OPTIONAL("image_encoder", "CLIP_VISION"),
               TEXT_IN("prompt", NULL, .no_default = true, .more = PROMPT_TEXT),
               BOOL_IN("auto_resize_images", true), OPTIONAL("vae", "VAE"),
               OPTIONAL("image1", "IMAGE"), OPTIONAL("image2", "IMAGE"),
               OPTIONAL("image3", "IMAGE")),
           OUT_OF("CONDITIONING"), .run = run_omni);
