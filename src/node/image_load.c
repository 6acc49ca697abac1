/* image_load.c: pictures from files. */
#include "node/node_impl.h"

#include <stdlib.h>
#include <string.h>

#define MASK_NONE 64 /* side of the mask of a picture without alpha */

berth_status load_picture(struct node_call *c, const char *name, bool as_stored,
                          struct image_file *f, berth_err *err)
{
    const struct image_limits lim = { .as_stored = as_stored };
    char *bytes = NULL;
    size_t n;
    *f = (struct image_file) { 0 };
    berth_status s = input_read(c->env, name, &bytes, &n, err);
    if (!s)
        s = image_decode((const uint8_t *)bytes, n, &lim, f, err);
    if (s == BERTH_EFORMAT) { /* what is there is better than nothing, says ComfyUI */
        berth_err worse;
        image_file_release(f);
        const struct image_limits some = { .partial = true, .as_stored = as_stored };
        if (!image_decode((const uint8_t *)bytes, n, &some, f, &worse)) {
            log_warn(c->env->log, "node.image", "node=%s file=\"%s\" incomplete: %s", c->id, name,
                     err->msg);
            s = BERTH_OK;
        }
    }
    free(bytes);
    return s ? err_add(err, "loading '%s'", name) : BERTH_OK;
}

static berth_status load_file(struct node_call *c, struct image_file *f, berth_err *err)
{
    const char *name;
    *f = (struct image_file) { 0 };
    return in_text(c, "image", &name, err) ? err->code : load_picture(c, name, false, f, err);
}

berth_status put_rgb(const struct image *im, struct htensor *t, size_t at, berth_err *err)
{
    struct image rgb = { 0 };
    berth_status s = im->channels == 3 ? BERTH_OK : image_convert(im, 3, &rgb, err);
    if (s)
        return s;
    const uint8_t *px = im->channels == 3 ? im->px : rgb.px;
    size_t n = (size_t)im->w * im->h * 3;
    for (size_t k = 0; k < n; k++)
        t->data[at * n + k] = (float)px[k] / 255.0f;
    image_release(&rgb);
    return BERTH_OK;
}

static void put_mask(const struct image *im, struct htensor *t, size_t at)
{
    size_t n = dim(t, 1) * dim(t, 2);
    for (size_t k = 0; k < n; k++)
        t->data[at * n + k] = im->channels == 4 ? 1.0f - (float)im->px[4 * k + 3] / 255.0f : 0.0f;
}

/* All frames of one size, and what is not there of each; both are new. */
static berth_status load_tensors(struct node_call *c, struct htensor **image_out,
                                 struct htensor **mask_out, berth_err *err)
{
    struct image_file f;
    struct htensor *image = NULL, *mask = NULL;
    size_t n = 0;
    berth_status s = load_file(c, &f, err);
    if (s)
        goto done;
    bool alpha = false; /* masks of one batch have one size */
    for (unsigned i = 0; i < f.frames; i++) {
        bool same = f.frame[i].w == f.frame[0].w && f.frame[i].h == f.frame[0].h;
        n += same;
        alpha = alpha || (same && f.frame[i].channels == 4);
    }
    s = image_tensor(n, f.frame[0].h, f.frame[0].w, 3, &image, err);
    if (!s)
        s = mask_tensor(n, alpha ? f.frame[0].h : MASK_NONE, alpha ? f.frame[0].w : MASK_NONE,
                        &mask, err);
    size_t at = 0;
    for (unsigned i = 0; !s && i < f.frames; i++) {
        if (f.frame[i].w != f.frame[0].w || f.frame[i].h != f.frame[0].h)
            continue;
        put_mask(&f.frame[i], mask, at);
        s = put_rgb(&f.frame[i], image, at++, err);
        if (!s)
            s = call_check(c, err);
    }
done:
    image_file_release(&f);
    if (s) {
        htensor_unref(image);
        htensor_unref(mask);
    }
    *image_out = s ? NULL : image;
    *mask_out = s ? NULL : mask;
    return s;
}

static berth_status load_run(struct node_call *c, berth_err *err)
{
    struct htensor *image, *mask;
    if (load_tensors(c, &image, &mask, err))
        return err->code;
    if (c->cls->outs > 1)
        return give_tensors(c, image, mask, err);
    htensor_unref(mask);
    return out_tensor(c, 0, image, err);
}

/* Those we would read. */
static berth_status list_images(const struct node_env *env, struct names *out, berth_err *err)
{
    return input_list(env, image_reads, out, err);
}

static berth_status list_files(const struct node_env *env, struct names *out, berth_err *err)
{
    return folders_inputs(env->folders, out, err);
}

NODE_CLASS(LoadImage, .display = "Load Image", .category = "image", .module = "nodes",
           INS({ .name = "image",
                 .kind = IN_COMBO,
                 .options_fn = list_images,
                 .more = "\"image_upload\":true" }),
           OUT(out_image_mask), .run = load_run, INPUT_FILE("image"));

/* The browser fetches the list itself. */
NODE_CLASS(LoadImageOutput, .display = "Load Image (from Outputs)", .category = "image",
           .module = "nodes", .flags = NODE_EXPERIMENTAL,
           .description = "Loads a picture from the output folder; refreshing selects the newest.",
           INS({ .name = "image",
                 .kind = IN_COMBO,
                 .more = "\"image_upload\":true,\"image_folder\":\"output\",\"remote\":"
                         "{\"route\":\"/internal/files/output\",\"refresh_button\":true,"
                         "\"control_after_refresh\":\"first\"}" }),
           OUT(out_image_mask), .run = load_run, INPUT_FILE("image"));

/* The browser has put the picture there. */
NODE_CLASS(WebcamCapture, .display = "Webcam Capture", .category = "image", .module = MOD("webcam"),
           .essentials = "Basics",
           INS(SOCKET("image", "WEBCAM"), SIZE_IN(0, 0, 0, 1), BOOL_IN("capture_on_queue", true)),
           OUT(out_image), .run = load_run, INPUT_FILE("image"));

static berth_status load_mask_run(struct node_call *c, berth_err *err)
{
    static const char letters[] = "rgb";
    struct htensor *image, *mask, *o = NULL;
    const char *channel;
    if (in_text(c, "channel", &channel, err) || load_tensors(c, &image, &mask, err))
        return err->code;
    const char *at = *channel ? strchr(letters, *channel) : NULL;
    berth_status s = BERTH_OK;
    if (at) {
        s = mask_tensor(dim(image, 0), dim(image, 1), dim(image, 2), &o, err);
        for (size_t i = 0, n = s ? 0 : htensor_count(o); i < n; i++)
            o->data[i] = image->data[3 * i + (size_t)(at - letters)];
    } else {
        o = htensor_ref(mask);
    }
    htensor_unref(image);
    htensor_unref(mask);
    return give_tensor(c, s, o, err);
}

NODE_CLASS(LoadImageMask, .display = "Load Image (as Mask)", .category = "mask", .module = "nodes",
           INS({ .name = "image",
                 .kind = IN_COMBO,
                 .options_fn = list_files,
                 .more = "\"image_upload\":true" },
               COMBO_IN("channel", CHOICES("alpha", "red", "green", "blue"))),
           OUT(out_mask), .run = load_mask_run, INPUT_FILE("image"));
