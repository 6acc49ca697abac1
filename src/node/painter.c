/* painter.c: Painter: what people drew in a browser, over a picture. */
#include "node/node_impl.h"

#include <stdlib.h>
#include <string.h>

static bool is_blank(const char *s)
{
    return s[strspn(s, " \t\r\n\f\v")] == '\0';
}

/* The picture below: the first one given, or one in a colour; a bad colour is black. */
static berth_status base_of(struct node_call *c, struct htensor **out, berth_err *err)
{
    struct htensor *t;
    const struct value *v = in_value(c, "bg_color");
    uint8_t rgb[3];
    uint64_t w, h;
    if (in_given(c, "image")) {
        if (in_image(c, "image", &t, err))
            return err->code;
        if (dim(t, 3) != 3)
            return err_set(err, BERTH_EINVAL, "input 'image' has %zu channels, not 3", dim(t, 3));
        return tensor_slice(t, 0, 1, out, err);
    }
    if (in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        image_tensor(1, h, w, 3, out, err))
        return err->code;
    const char *text = v && v->kind == V_STRING ? v->s.p : "";
    text += strspn(text, "#");
    if (strlen(text) != 6 || !parse_hex_color(text, 3, rgb))
        memset(rgb, 0, sizeof rgb);
    for (size_t i = 0, n = htensor_count(*out); i < n; i++)
        (*out)->data[i] = (float)rgb[i % 3] / 255.0f;
    return BERTH_OK;
}

/* The drawing as RGBA, w x h. */
static berth_status drawing_of(struct node_call *c, const char *name, size_t w, size_t h,
                               struct htensor **out, berth_err *err)
{
    char *bytes = NULL;
    size_t n;
    struct image_file f = { 0 };
    struct image rgba = { 0 };
    struct htensor *t = NULL;
    *out = NULL;
    berth_status s = input_read(c->env, name, &bytes, &n, err);
    if (!s)
        s = image_decode((const uint8_t *)bytes, n, NULL, &f, err);
    if (!s)
        s = image_convert(&f.frame[0], 4, &rgba, err);
    if (!s)
        s = image_tensor(1, rgba.h, rgba.w, 4, &t, err);
    for (size_t i = 0, all = s ? 0 : htensor_count(t); i < all; i++)
        t->data[i] = (float)rgba.px[i] / 255.0f;
    if (!s && rgba.w == w && rgba.h == h)
        *out = htensor_ref(t);
    else if (!s)
        s = scale_image(c, t, w, h, "lanczos", false, out, err);
    htensor_unref(t);
    image_release(&rgba);
    image_file_release(&f);
    free(bytes);
    return s ? err_add(err, "drawing '%s'", name) : BERTH_OK;
}

static void draw(const struct htensor *from, struct htensor *image, struct htensor *mask)
{
    for (size_t i = 0, n = htensor_count(mask); i < n; i++) {
        const float *p = from->data + 4 * i;
        for (size_t k = 0; k < 3; k++)
            image->data[3 * i + k] = p[k] * p[3] + image->data[3 * i + k] * (1.0f - p[3]);
        mask->data[i] = p[3];
    }
}

static berth_status painter_run(struct node_call *c, berth_err *err)
{
    struct htensor *image, *mask = NULL, *drawing = NULL;
    const char *name;
    if (in_text(c, "mask", &name, err) || base_of(c, &image, err))
        return err->code;
    struct shape to = { .ndim = 3, .dim = { 1, dim(image, 1), dim(image, 2) } };
    berth_status s = htensor_zeros(&to, &mask, err);
    if (!s && !is_blank(name))
        s = drawing_of(c, name, dim(image, 2), dim(image, 1), &drawing, err);
    if (!s && drawing)
        draw(drawing, image, mask);
    htensor_unref(drawing);
    if (!s)
        s = show_images(c, image, err);
    if (!s)
        return give_tensors(c, image, mask, err);
    htensor_unref(image);
    htensor_unref(mask);
    return s;
}

static berth_status painter_changed(const struct node_check *k, struct str *out, berth_err *err)
{
    const json_t *v = check_input(k, "mask");
    if (v && js_kind(v) == JS_STRING && is_blank(json_string_value(v)))
        return BERTH_OK;
    return input_changed(k, out, err);
}

/* A missing drawing is reported when the node runs, as in ComfyUI. */
static berth_status painter_validate(const struct node_check *k, berth_err *err)
{
    (void)k;
    (void)err;
    return BERTH_OK;
}

#define HIDDEN "\"hidden\":true,\"socketless\":true"
NODE_CLASS(Painter, .display = "Painter", .category = "image", .module = MOD("painter"),
           .flags = NODE_V3 | NODE_INTERMEDIATE,
           INS(TEXT_IN("mask", "",
                       .more = "\"widgetType\":\"PAINTER\",\"image_upload\":true," SOCKETLESS),
               INT_IN("width", 512, 64, 4096, 64, .more = HIDDEN),
               INT_IN("height", 512, 64, 4096, 64, .more = HIDDEN), COLOR_IN("bg_color", "#000000"),
               OPTIONAL("image", "IMAGE")),
           OUT(out_image_mask), .run = painter_run, .changed = painter_changed,
           .validate = painter_validate, .validates = "mask");
