/* image_save.c: pictures to files. */
#include "base/hash.h"
#include "node/node_impl.h"

#include <stdlib.h>
#include <string.h>

static berth_status save_pngs(struct node_call *c, const char *kind, const char *prefix, int level,
                              berth_err *err)
{
    struct htensor *t;
    struct saved to;
    berth_status s = in_image(c, "images", &t, err);
    if (s)
        return s;
    s = save_begin(c, kind, prefix, dim(t, 2), dim(t, 1), &to, err);
    if (s)
        return s;
    struct str png = { 0 };
    for (size_t i = 0; !s && i < dim(t, 0); i++) {
        struct image im = { 0 };
        struct image_png_args args = { .level = level, .text = to.text, .texts = to.texts };
        str_clear(&png);
        s = call_check(c, err);
        if (!s)
            s = image_8bit(t, i, &im, err);
        if (!s)
            s = image_png(&im, &args, &png, err);
        image_release(&im);
        if (!s)
            s = save_add(c, &to, i, ".png", "images", &png, err);
    }
    str_release(&png);
    save_end(&to);
    return s;
}

/* ---- SaveImage ---- */

static berth_status save_run(struct node_call *c, berth_err *err)
{
    const char *prefix;
    berth_status s = in_text(c, "filename_prefix", &prefix, err);
    return s ? s : save_pngs(c, "output", prefix, 4, err);
}

static const struct node_input save_in[] = {
    SOCKET("images", "IMAGE"),
    TEXT_IN("filename_prefix", "ComfyUI"),
};
NODE_CLASS(SaveImage, .display = "Save Image", .category = "image", .module = "nodes",
           .description = "Saves the pictures as PNG files in the output folder.",
           .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO, IN(save_in), .run = save_run);

/* ---- PreviewImage ---- */

/* "ComfyUI_temp_" and five letters that stay with the node while its id stays in prompts. */
static berth_status preview_prefix(struct node_call *c, struct str *out, berth_err *err)
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
    str_addf(out, "ComfyUI_temp_%s", c->state ? *c->state : letters);
    return out->bad ? err_set(err, BERTH_ENOMEM, "prefix of a preview") : BERTH_OK;
}

static berth_status preview_run(struct node_call *c, berth_err *err)
{
    struct str prefix = { 0 };
    berth_status s = preview_prefix(c, &prefix, err);
    if (!s)
        s = save_pngs(c, "temp", str_c(&prefix), 1, err);
    str_release(&prefix);
    return s;
}

static const struct node_input preview_in[] = { SOCKET("images", "IMAGE") };
NODE_CLASS(PreviewImage, .display = "Preview Image", .category = "image", .module = "nodes",
           .description = "Shows the pictures; the files go when the server stops.",
           .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO, IN(preview_in),
           .run = preview_run);
