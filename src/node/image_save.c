/* image_save.c: pictures to files. */
#include "base/hash.h"
#include "node/node_impl.h"

#include <stdlib.h>
#include <string.h>

struct png_save {
    const char *kind, *prefix, *key; /* key: of the ui */
    int level;
    bool plain; /* without the prompt */
};

static berth_status save_pngs(struct node_call *c, const struct htensor *t,
                              const struct png_save *how, berth_err *err)
{
    struct saved to;
    berth_status s = BERTH_OK;
    if (save_begin(c, how->kind, how->prefix, dim(t, 2), dim(t, 1), &to, err))
        return err->code;
    struct str png = { 0 };
    for (size_t i = 0; !s && i < dim(t, 0); i++) {
        struct image im = { 0 };
        struct image_png_args args = { .level = how->level,
                                       .text = to.text,
                                       .texts = how->plain ? 0 : to.texts,
                                       .cancel = cancel_of(c) };
        str_clear(&png);
        s = call_check(c, err);
        if (!s && (image_8bit(t, i, &im, err) || image_png(&im, &args, &png, err)))
            s = err->code;
        image_release(&im);
        if (!s)
            s = save_add(c, &to, i, ".png", how->key, &png, err);
    }
    str_release(&png);
    save_end(&to);
    return s;
}

static const struct node_output out_images[] = { { .type = "IMAGE", .name = "images" } };

static berth_status save_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    struct png_save how = { .kind = "output", .key = "images", .level = 4 };
    if (in_image(c, "images", &t, err) || in_text(c, "filename_prefix", &how.prefix, err))
        return err->code;
    berth_status s = save_pngs(c, t, &how, err);
    return s ? s : out_input(c, 0, "images", err);
}

NODE_CLASS(SaveImage, .display = "Save Image", .category = "image", .module = "nodes",
           .description = "Saves the pictures as PNG files in the output folder.",
           .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(SOCKET("images", "IMAGE"), TEXT_IN("filename_prefix", "ComfyUI")), OUT(out_images),
           .run = save_run);

berth_status preview_prefix(struct node_call *c, const char *base, struct str *out, berth_err *err)
{
    char letters[6] = "";
    if (!c->state || !*c->state) {
        uint64_t h =
            hash_xxh64(c->id, strlen(c->id), c->env->temp_seed ^ clock_wall_ns(c->env->clock));
        for (int i = 0; i < 5; i++, h /= 26)
            letters[i] = (char)('a' + h % 26);
        if (c->state && !(*c->state = strdup(letters)))
            return err_set(err, BERTH_ENOMEM, "prefix of a preview");
    }
    str_addf(out, "%s_temp_%s", base, c->state ? *c->state : letters);
    return out->bad ? err_set(err, BERTH_ENOMEM, "prefix of a preview") : BERTH_OK;
}

static berth_status preview(struct node_call *c, const struct htensor *t, const char *base,
                            const char *key, bool plain, berth_err *err)
{
    struct str prefix = { 0 };
    struct png_save how = { .kind = "temp", .key = key, .level = 1, .plain = plain };
    berth_status s = preview_prefix(c, base, &prefix, err);
    how.prefix = str_c(&prefix);
    if (!s)
        s = save_pngs(c, t, &how, err);
    str_release(&prefix);
    return s;
}

static berth_status preview_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    if (in_image(c, "images", &t, err) || preview(c, t, "ComfyUI", "images", false, err))
        return err->code;
    return out_input(c, 0, "images", err);
}

berth_status show_images_as(struct node_call *c, const struct htensor *t, const char *key,
                            berth_err *err)
{
    return preview(c, t, "ComfyUI", key, true, err);
}

berth_status show_images(struct node_call *c, const struct htensor *t, berth_err *err)
{
    berth_status s = preview(c, t, "ComfyUI", "images", true, err);
    return s ? s : ui_add(c, "animated", json_false(), err);
}

static const struct node_input preview_in[] = { SOCKET("images", "IMAGE") };
NODE_CLASS(PreviewImage, .display = "Preview Image", .category = "image", .module = "nodes",
           .description = "Shows the pictures; the files go when the server stops.",
           .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO, IN(preview_in), OUT(out_images),
           .run = preview_run);

static berth_status mask_preview_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *grey;
    if (in_mask(c, "mask", &t, err) || image_tensor(dim(t, 0), dim(t, 1), dim(t, 2), 3, &grey, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(t); i < n; i++)
        grey->data[3 * i] = grey->data[3 * i + 1] = grey->data[3 * i + 2] = t->data[i];
    berth_status s = show_images(c, grey, err);
    htensor_unref(grey);
    return s ? s : out_tensor(c, 0, htensor_ref(t), err);
}

NODE_CLASS(MaskPreview, .display = "Preview Mask", .category = "image/mask", .module = MOD("mask"),
           .description = "Shows the masks; the files go when the server stops.",
           .flags = NODE_V3 | NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(SOCKET("mask", "MASK")), OUTS({ .type = "MASK", .name = "mask" }),
           .run = mask_preview_run);

/* ---- ImageCompare: two batches that a browser lays over each other ---- */

static berth_status compare_side(struct node_call *c, const char *input, const char *key,
                                 const char *base, berth_err *err)
{
    struct htensor *t;
    if (!c->ui)
        c->ui = json_object();
    if (json_object_set_new(c->ui, key, json_array())) /* there, also with nothing in it */
        return err_set(err, BERTH_ENOMEM, "ui '%s' of %s", key, c->cls->name);
    if (!in_given(c, input))
        return BERTH_OK;
    return in_image(c, input, &t, err) ? err->code : preview(c, t, base, key, true, err);
}

static berth_status compare_run(struct node_call *c, berth_err *err)
{
    berth_status s = compare_side(c, "image_a", "a_images", "comfy.compare.a", err);
    return s ? s : compare_side(c, "image_b", "b_images", "comfy.compare.b", err);
}

NODE_CLASS(ImageCompare, .display = "Compare Images", .category = "image",
           .module = MOD("image_compare"),
           .description = "Shows two pictures with a slider between them.",
           .essentials = "Image Tools",
           .flags = NODE_V3 | NODE_OUTPUT | NODE_EXPERIMENTAL | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(SOCKET("compare_view", "IMAGECOMPARE", .more = SOCKETLESS),
               OPTIONAL("image_a", "IMAGE"), OPTIONAL("image_b", "IMAGE")),
           .run = compare_run);

/* ---- animations: one file for all pictures ---- */

/* The pictures of `images` as 8 bits; n of them, free()d after image_release() of each. */
static berth_status all_frames(struct node_call *c, const struct htensor *t, struct image **out,
                               berth_err *err)
{
    struct image *im = calloc(dim(t, 0), sizeof *im);
    berth_status s = im ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%zu frames", dim(t, 0));
    for (size_t i = 0; !s && i < dim(t, 0); i++) {
        s = image_8bit(t, i, &im[i], err);
        if (!s)
            s = call_check(c, err);
    }
    *out = im;
    return s;
}

typedef berth_status anim_fn(const struct image *frame, size_t n,
                             const struct image_anim_args *args, struct str *out, berth_err *err);

static berth_status save_animation(struct node_call *c, struct image_anim_args *args,
                                   anim_fn *encode, const char *ext, berth_err *err)
{
    struct htensor *t;
    struct saved to;
    struct image *frame = NULL;
    struct str bytes = { 0 };
    const char *prefix;
    berth_status s = BERTH_OK;
    if (in_image(c, "images", &t, err) || in_text(c, "filename_prefix", &prefix, err) ||
        in_f64(c, "fps", &args->fps, err) ||
        save_begin(c, "output", prefix, dim(t, 2), dim(t, 1), &to, err))
        return err->code;
    if (!(args->fps > 0))
        s = err_set(err, BERTH_EINVAL, "%g frames per second", args->fps);
    args->text = to.text;
    args->texts = to.texts;
    args->cancel = cancel_of(c);
    if (!s && (all_frames(c, t, &frame, err) || encode(frame, dim(t, 0), args, &bytes, err) ||
               save_add(c, &to, 0, ext, "images", &bytes, err)))
        s = err->code;
    if (!s && dim(t, 0) > 1) /* ComfyUI says nothing of a still picture */
        s = ui_add(c, "animated", json_true(), err);
    for (size_t i = 0; frame && i < dim(t, 0); i++)
        image_release(&frame[i]);
    free(frame);
    str_release(&bytes);
    save_end(&to);
    return s ? s : out_input(c, 0, "images", err);
}

static berth_status webp_run(struct node_call *c, berth_err *err)
{
    struct image_anim_args args = { 0 };
    uint64_t quality;
    const char *method;
    if (in_bool(c, "lossless", &args.lossless, err) || in_u64(c, "quality", &quality, err) ||
        in_text(c, "method", &method, err))
        return err->code;
    args.quality = quality < 100 ? (int)quality : 100;
    args.method = *method == 'f' ? 0 : *method == 's' ? 6 : 4;
    return save_animation(c, &args, image_anim_webp, ".webp", err);
}

NODE_CLASS(SaveAnimatedWEBP, .category = "image/animation", .module = MOD("images"),
           .flags = NODE_V3 | NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(SOCKET("images", "IMAGE"), TEXT_IN("filename_prefix", "ComfyUI"),
               FLOAT_IN("fps", 6.0, 0.01, 1000.0, 0.01), BOOL_IN("lossless", true),
               INT_IN("quality", 80, 0, 100, 0),
               COMBO_IN("method", CHOICES("default", "fastest", "slowest"))),
           OUT(out_images), .run = webp_run);

static berth_status apng_run(struct node_call *c, berth_err *err)
{
    struct image_anim_args args = { 0 };
    uint64_t level;
    if (in_u64(c, "compress_level", &level, err))
        return err->code;
    args.level = level < 9 ? (int)level : 9;
    return save_animation(c, &args, image_anim_png, ".png", err);
}

NODE_CLASS(SaveAnimatedPNG, .category = "image/animation", .module = MOD("images"),
           .flags = NODE_V3 | NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(SOCKET("images", "IMAGE"), TEXT_IN("filename_prefix", "ComfyUI"),
               FLOAT_IN("fps", 6.0, 0.01, 1000.0, 0.01), INT_IN("compress_level", 4, 0, 9, 0)),
           OUT(out_images), .run = apng_run);

/* ---- SaveImageWebsocket: pictures to the client alone, as full-size PNG previews ---- */

static berth_status websocket_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    berth_status s = in_image(c, "images", &t, err);
    for (size_t i = 0; !s && i < dim(t, 0); i++) {
        struct image im;
        struct node_step step = { (double)i, (double)dim(t, 0), &im, true };
        s = image_8bit(t, i, &im, err);
        if (s)
            break;
        s = call_step(c, &step, err);
        image_release(&im);
    }
    return s;
}

/* The time: it runs with every prompt. */
static berth_status websocket_changed(const struct node_check *k, struct str *out, berth_err *err)
{
    str_addf(out, "%llu", (unsigned long long)clock_wall_ns(k->env->clock));
    return out->bad ? err_set(err, BERTH_ENOMEM, "SaveImageWebsocket") : BERTH_OK;
}

NODE_CLASS(SaveImageWebsocket, .category = "api/image",
           .module = "custom_nodes.websocket_image_save", .flags = NODE_OUTPUT, IN(preview_in),
           .run = websocket_run, .changed = websocket_changed);
