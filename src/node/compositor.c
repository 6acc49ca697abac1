/* compositor.c: AddLayer and ImageCompositor: pictures stacked, placed and blended.
 *
 * What people arranged in the browser's editor comes back as a state with the fingerprints of the
 * layers it was made for. It is used while these are the same; else the items say how they lie. */
#include "base/sha256.h"
#include "node/draw.h"
#include "node/layers.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX 50
#define PLACE_MAX 16384.0

/* ---- LAYERS ---- */

struct item {
    struct htensor *image, *mask; /* references; mask NULL: none */
    char *name;                   /* NULL: none */
    int64_t x, y, z;
    uint64_t w, h; /* 0: its own */
    double rotation, opacity;
    size_t mode;
    bool flip_h, flip_v;
};

struct stack {
    struct item *at;
    size_t n;
    uint64_t w, h; /* canvas; 0: as far as the layers reach */
};

static void item_release(struct item *it)
{
    htensor_unref(it->image);
    htensor_unref(it->mask);
    free(it->name);
    *it = (struct item) { 0 };
}

static void stack_free(void *obj)
{
    struct stack *s = obj;
    for (size_t i = 0; s && i < s->n; i++)
        item_release(&s->at[i]);
    if (s)
        free(s->at);
    free(s);
}

static size_t stack_bytes(const void *obj)
{
    const struct stack *s = obj;
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += (htensor_count(s->at[i].image) + (s->at[i].mask ? htensor_count(s->at[i].mask) : 0)) *
             sizeof(float);
    return n;
}

static const struct value_type type_layers = { .name = "LAYERS",
                                               .free = stack_free,
                                               .bytes = stack_bytes };

static berth_status in_stack(const struct node_call *c, const struct stack **out, berth_err *err)
{
    const struct value *v = in_value(c, "layers");
    *out = NULL;
    if (!v)
        return BERTH_OK;
    if (v->kind != V_OBJECT || v->object.type != &type_layers)
        return err_set(err, BERTH_EINVAL, "input 'layers' is not a stack of layers");
    *out = v->object.obj;
    return BERTH_OK;
}

/* A copy with room for more items. */
static struct stack *stack_copy(const struct stack *from, size_t more)
{
    struct stack *s = calloc(1, sizeof *s);
    size_t n = from ? from->n : 0;
    if (s && !(s->at = calloc(n + more, sizeof *s->at))) {
        free(s);
        return NULL;
    }
    if (s && from) {
        s->w = from->w;
        s->h = from->h;
    }
    for (size_t i = 0; s && i < n; i++) {
        struct item *it = &s->at[s->n++];
        *it = from->at[i];
        it->image = htensor_ref(it->image);
        it->mask = it->mask ? htensor_ref(it->mask) : NULL;
        it->name = it->name ? strdup(it->name) : NULL;
        if (from->at[i].name && !it->name) {
            stack_free(s);
            return NULL;
        }
    }
    return s;
}

static berth_status in_item(struct node_call *c, struct item *it, berth_err *err)
{
    const char *name, *mode;
    double degrees;
    struct htensor *image, *mask = NULL;
    if (in_image(c, "image", &image, err) ||
        (in_given(c, "mask") && in_mask(c, "mask", &mask, err)) || in_text(c, "name", &name, err) ||
        in_i64(c, "x", &it->x, err) || in_i64(c, "y", &it->y, err) ||
        in_f64(c, "opacity", &it->opacity, err) || in_text(c, "blend_mode", &mode, err) ||
        in_f64(c, "rotation", &degrees, err) || in_u64(c, "width", &it->w, err) ||
        in_u64(c, "height", &it->h, err) || in_i64(c, "z_index", &it->z, err) ||
        in_bool(c, "flip_h", &it->flip_h, err) || in_bool(c, "flip_v", &it->flip_v, err))
        return err->code;
    if (dim(image, 3) < 3)
        return err_set(err, BERTH_EINVAL, "a layer needs a picture of at least 3 channels, not %zu",
                       dim(image, 3));
    it->rotation = degrees * (acos(-1.0) / 180);
    it->mode = layer_mode(mode);
    if (*name && !(it->name = strdup(name)))
        return err_set(err, BERTH_ENOMEM, "a layer");
    it->image = htensor_ref(image);
    it->mask = mask ? htensor_ref(mask) : NULL;
    return BERTH_OK;
}

static berth_status add_run(struct node_call *c, berth_err *err)
{
    const struct stack *before;
    struct item it = { 0 };
    if (in_stack(c, &before, err) || in_item(c, &it, err))
        return err->code;
    struct stack *s = stack_copy(before, 1);
    if (!s) {
        item_release(&it);
        return err_set(err, BERTH_ENOMEM, "a layer");
    }
    s->at[s->n++] = it;
    return out_value(c, 0, value_object(&type_layers, s), err);
}

#define PLACE(n) INT_IN(n, 0, -MAX_SIDE, MAX_SIDE, 0, .optional = true)
#define SIDE(n) INT_IN(n, 0, 0, MAX_SIDE, 0, .optional = true)
NODE_CLASS(AddLayer, .display = "Add Layer", .category = "image", .module = MOD("compositor"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("image", "IMAGE"), OPTIONAL("layers", "LAYERS"), OPTIONAL("mask", "MASK"),
               TEXT_IN("name", "", .optional = true), PLACE("x"), PLACE("y"),
               FLOAT_IN("opacity", 1.0, 0.0, 1.0, 0.01, .optional = true),
               COMBO_IN("blend_mode", layer_modes, .sdef = "normal", .optional = true),
               FLOAT_IN("rotation", 0.0, -360.0, 360.0, 1.0, .optional = true), SIDE("width"),
               SIDE("height"), INT_IN("z_index", 0, -1000, 1000, 0, .optional = true),
               BOOL_IN("flip_h", false, .optional = true),
               BOOL_IN("flip_v", false, .optional = true)),
           OUT_OF("LAYERS"), .run = add_run);

/* ---- LayersFromBoundingBoxes: each frame has a box of its own ---- */

static int64_t whole(const json_t *v, int64_t def)
{
    double n;
    if (!v || json_is_boolean(v) || !js_get_f64(v, &n) || !(fabs(n) <= 1e9))
        return def;
    return (int64_t)n;
}

static size_t between(int64_t v, size_t most)
{
    return v < 0 ? 0 : (uint64_t)v < most ? (size_t)v : most;
}

/* The part of a frame that has something in it, as its box says; false: all of it. */
static bool content_of(const json_t *rect, const struct htensor *t, struct part *p)
{
    if (json_array_size(rect) != 4)
        return false;
    p->x = between(whole(json_array_get(rect, 0), 0), dim(t, 2));
    p->y = between(whole(json_array_get(rect, 1), 0), dim(t, 1));
    p->w = between(whole(json_array_get(rect, 2), 0), dim(t, 2) - p->x);
    p->h = between(whole(json_array_get(rect, 3), 0), dim(t, 1) - p->y);
    return p->w && p->h;
}

/* Frame i of t, or the part of it that counts. c: channels. */
static berth_status cut_frame(const struct htensor *t, size_t i, size_t c, const struct part *p,
                              struct htensor **out, berth_err *err)
{
    struct shape to = t->shape;
    size_t h = dim(t, 1), w = dim(t, 2);
    if (!p)
        return tensor_slice(t, i, 1, out, err);
    to.dim[0] = 1;
    to.dim[1] = p->h;
    to.dim[2] = p->w;
    berth_status s = htensor_new(&to, out, err);
    if (!s)
        copy_part(t->data + i * h * w * c, h, w, c, 1, *p, (*out)->data);
    return s;
}

struct boxed {
    struct htensor *image, *mask;
    bool crop;
    int64_t z; /* of the first */
};

static berth_status boxed_item(const struct boxed *b, size_t i, const json_t *box, struct item *it,
                               berth_err *err)
{
    const json_t *meta = json_object_get(box, "metadata");
    const char *name = json_string_value(json_object_get(meta, "name"));
    struct part p;
    bool cut = b->crop && content_of(json_object_get(meta, "content_rect"), b->image, &p);
    size_t masks = b->mask ? dim(b->mask, 0) : 0, at = masks == 1 ? 0 : i;
    int64_t w = whole(json_object_get(box, "width"), 0),
            h = whole(json_object_get(box, "height"), 0);
    *it = (struct item) { .opacity = 1,
                          .x = whole(json_object_get(box, "x"), 0) + (cut ? (int64_t)p.x : 0),
                          .y = whole(json_object_get(box, "y"), 0) + (cut ? (int64_t)p.y : 0),
                          .z = whole(json_object_get(meta, "z_index"), b->z + (int64_t)i),
                          .w = cut || w < 0 ? 0 : (uint64_t)w,
                          .h = cut || h < 0 ? 0 : (uint64_t)h };
    if (it->w > PLACE_MAX || it->h > PLACE_MAX)
        return err_set(err, BERTH_EINVAL, "a layer cannot be %" PRIu64 "x%" PRIu64 " pixels", it->w,
                       it->h);
    berth_status s = cut_frame(b->image, i, dim(b->image, 3), cut ? &p : NULL, &it->image, err);
    bool fits =
        at < masks &&
        (!cut || (dim(b->mask, 1) == dim(b->image, 1) && dim(b->mask, 2) == dim(b->image, 2)));
    if (!s && at < masks && !fits)
        s = err_set(err, BERTH_EINVAL, "masks of %zux%zu cannot be cut as pictures of %zux%zu",
                    dim(b->mask, 2), dim(b->mask, 1), dim(b->image, 2), dim(b->image, 1));
    if (!s && fits)
        s = cut_frame(b->mask, at, 1, cut ? &p : NULL, &it->mask, err);
    if (!name || !*name)
        name = json_string_value(json_object_get(meta, "desc"));
    if (!s && name && *name && !(it->name = strdup(name)))
        s = err_set(err, BERTH_ENOMEM, "a layer");
    return s;
}

static berth_status boxed_run(struct node_call *c, berth_err *err)
{
    const struct stack *before;
    struct boxed b = { 0 };
    uint64_t w, h;
    json_t *boxes = NULL;
    if (in_image(c, "image", &b.image, err) ||
        (in_given(c, "mask") && in_mask(c, "mask", &b.mask, err)) || in_stack(c, &before, err) ||
        in_bool(c, "crop_to_content", &b.crop, err) || in_u64(c, "canvas_width", &w, err) ||
        in_u64(c, "canvas_height", &h, err))
        return err->code;
    if (dim(b.image, 3) < 3 || w > PLACE_MAX || h > PLACE_MAX)
        return err_set(err, BERTH_EINVAL,
                       "pictures of %zu channels cannot be laid on a canvas of %" PRIu64
                       "x%" PRIu64,
                       dim(b.image, 3), w, h);
    struct stack *s = stack_copy(before, dim(b.image, 0));
    berth_status st = s ? in_boxes(c, w, h, &boxes, err) : err_set(err, BERTH_ENOMEM, "layers");
    for (size_t i = 0; s && i < s->n; i++)
        b.z = !i || s->at[i].z + 1 > b.z ? s->at[i].z + 1 : b.z;
    for (size_t i = 0; !st && i < dim(b.image, 0); i++)
        st = boxed_item(&b, i, json_array_get(boxes, i), &s->at[s->n++], err);
    if (!st && w && h) {
        s->w = w;
        s->h = h;
    }
    json_decref(boxes);
    if (!st)
        return out_value(c, 0, value_object(&type_layers, s), err);
    stack_free(s);
    return st;
}

NODE_CLASS(LayersFromBoundingBoxes, .display = "Layers From Bounding Boxes", .category = "image",
           .module = MOD("compositor"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           .description = "Makes a layer of each picture in a batch, placed by its bounding box.",
           INS(SOCKET("image", "IMAGE"), SOCKET("bboxes", "BOUNDING_BOX,ARRAY,STRING"),
               OPTIONAL("mask", "MASK"), OPTIONAL("layers", "LAYERS"),
               BOOL_IN("crop_to_content", true, .optional = true), SIDE("canvas_width"),
               SIDE("canvas_height")),
           OUT_OF("LAYERS"), .run = boxed_run);

/* ---- layers: every frame of every item ---- */

struct layer {
    const struct item *of;
    struct htensor *frame, *alpha; /* [1,h,w,c], [1,h,w] or NULL */
    struct layer_place place;
    double opacity;
    size_t mode;
    bool hidden;
    char print[17]; /* fingerprint */
};

struct picture { /* what is composed */
    struct layer at[LAYERS_MAX];
    size_t order[LAYERS_MAX];
    size_t n;
    double w, h;   /* canvas */
    float back[4]; /* linear, and its opacity; 0: none */
};

static void picture_free(struct picture *p)
{
    for (size_t i = 0; p && i < p->n; i++) {
        htensor_unref(p->at[i].frame);
        htensor_unref(p->at[i].alpha);
    }
    free(p);
}

/* What of frame i is there: its own alpha times what its mask leaves. */
static berth_status alpha_of(struct node_call *c, const struct item *it, size_t i,
                             const struct htensor *frame, struct htensor **out, berth_err *err)
{
    size_t h = dim(frame, 1), w = dim(frame, 2), ch = dim(frame, 3);
    size_t masks = it->mask ? dim(it->mask, 0) : 0, at = masks == 1 ? 0 : i;
    struct htensor *one = NULL, *fit = NULL;
    berth_status s = BERTH_OK;
    *out = NULL;
    if (ch != 4 && at >= masks)
        return BERTH_OK;
    if (at < masks) {
        s = tensor_slice(it->mask, at, 1, &one, err);
        if (!s)
            s = scale_planes(c, one, w, h, "bilinear", false, &fit, err);
        htensor_unref(one);
    }
    if (!s)
        s = mask_tensor(1, h, w, out, err);
    for (size_t p = 0; !s && p < h * w; p++)
        (*out)->data[p] =
            (ch == 4 ? frame->data[4 * p + 3] : 1.0f) * (fit ? clamp01(1.0f - fit->data[p]) : 1.0f);
    htensor_unref(fit);
    return s;
}

static berth_status add_frames(struct node_call *c, const struct item *it, struct picture *p,
                               berth_err *err)
{
    berth_status s = BERTH_OK;
    for (size_t i = 0; !s && i < dim(it->image, 0); i++) {
        if (p->n == LAYERS_MAX)
            return err_set(err, BERTH_EINVAL, "Compositor supports at most %d layers", LAYERS_MAX);
        struct layer *l = &p->at[p->n];
        *l = (struct layer) { .of = it, .opacity = it->opacity, .mode = it->mode };
        l->place = (struct layer_place) { .x = (double)it->x,
                                          .y = (double)it->y,
                                          .w = (double)(it->w ? it->w : dim(it->image, 2)),
                                          .h = (double)(it->h ? it->h : dim(it->image, 1)),
                                          .rotation = it->rotation,
                                          .flip_h = it->flip_h,
                                          .flip_v = it->flip_v };
        s = tensor_slice(it->image, i, 1, &l->frame, err);
        p->order[p->n] = p->n;
        p->n += !s;
        if (!s)
            s = alpha_of(c, it, i, l->frame, &l->alpha, err);
    }
    return s;
}

/* By z, and in order among equals. */
static berth_status add_items(struct node_call *c, const struct stack *s, struct picture *p,
                              berth_err *err)
{
    bool *done = calloc(s->n ? s->n : 1, sizeof *done);
    berth_status st = done ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%zu layers", s->n);
    for (size_t k = 0; !st && k < s->n; k++) {
        size_t next = s->n;
        for (size_t i = 0; i < s->n; i++)
            if (!done[i] && (next == s->n || s->at[i].z < s->at[next].z))
                next = i;
        done[next] = true;
        st = add_frames(c, &s->at[next], p, err);
    }
    free(done);
    return st;
}

/* ---- fingerprints, as ComfyUI makes them ---- */

static void hash_bits(struct sha256 *h, const struct htensor *t, size_t channels)
{
    size_t ch = t->shape.ndim == 4 ? dim(t, 3) : 1, px = dim(t, 1) * dim(t, 2);
    for (size_t i = 0; i < px; i++) {
        uint8_t b[3];
        for (size_t k = 0; k < channels; k++)
            b[k] = (uint8_t)nearbyintf(clamp01(t->data[i * ch + k]) * 255.0f);
        sha256_add(h, b, channels);
    }
}

static berth_status fingerprint(struct layer *l, berth_err *err)
{
    struct sha256 h;
    struct str text = { 0 };
    char hex[SHA256_HEX];
    const struct layer_place *p = &l->place;
    sha256_init(&h);
    str_addf(&text, "(1, %zu, %zu, %zu)", dim(l->frame, 1), dim(l->frame, 2), dim(l->frame, 3));
    sha256_add(&h, str_c(&text), text.n);
    hash_bits(&h, l->frame, 3);
    if (l->alpha)
        hash_bits(&h, l->alpha, 1);
    str_clear(&text);
    str_addf(&text, "(%.0f, %.0f, %.0f, %.0f, ", p->x, p->y, p->w, p->h);
    js_write_f64(p->rotation, true, &text);
    str_adds(&text, ", ");
    js_write_f64(l->opacity, true, &text);
    str_addf(&text, ", '%s', True, %s, %s)", layer_modes[l->mode], p->flip_h ? "True" : "False",
             p->flip_v ? "True" : "False");
    sha256_add(&h, str_c(&text), text.n);
    sha256_end(&h, hex);
    memcpy(l->print, hex, sizeof l->print - 1);
    bool bad = text.bad;
    str_release(&text);
    return bad ? err_set(err, BERTH_ENOMEM, "a layer's fingerprint") : BERTH_OK;
}

/* ---- the editor's state ---- */

static double number(const json_t *o, const char *key, double def)
{
    double v;
    const json_t *x = json_object_get(o, key);
    return x && js_get_f64(x, &v) && isfinite(v) ? v : def;
}

static double within(double v, double lo, double hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static bool get_bool(const json_t *o, const char *key, bool def)
{
    const json_t *v = json_object_get(o, key);
    double n;
    if (!v)
        return def;
    return json_is_true(v) || (js_get_f64(v, &n) && n != 0) ||
           (json_is_string(v) && json_string_length(v)) || json_array_size(v) ||
           json_object_size(v);
}

/* Is the state for these very layers? */
static bool state_fits(const json_t *state, const struct picture *p)
{
    const json_t *canvas = json_object_get(state, "canvas"), *v = json_object_get(state, "version");
    const json_t *layers = json_object_get(state, "layers"), *in = json_object_get(state, "inputs");
    double n;
    if ((v && !json_is_null(v) && !(js_get_f64(v, &n) && n == 1)) || !json_is_object(canvas) ||
        !json_is_array(layers) || !p->n || json_array_size(layers) != p->n ||
        json_array_size(in) != p->n)
        return false;
    for (size_t i = 0; i < p->n; i++) {
        const char *print = json_string_value(json_array_get(in, i));
        if (!print || strcmp(print, p->at[i].print) != 0)
            return false;
    }
    return nearbyint(number(canvas, "w", 0)) > 0 && nearbyint(number(canvas, "h", 0)) > 0;
}

static void place_by_state(const json_t *entry, struct layer *l)
{
    const json_t *t = json_object_get(entry, "transform");
    const char *blend = json_string_value(json_object_get(entry, "blend"));
    double w = (double)dim(l->frame, 2), h = (double)dim(l->frame, 1);
    double tw = number(t, "w", w), th = number(t, "h", h);
    l->hidden = !get_bool(entry, "visible", true);
    l->opacity = within(number(entry, "opacity", 1), 0, 1);
    l->mode = layer_mode(blend ? blend : "normal");
    l->place = (struct layer_place) { .x = within(number(t, "x", 0), -PLACE_MAX, PLACE_MAX),
                                      .y = within(number(t, "y", 0), -PLACE_MAX, PLACE_MAX),
                                      .w = tw <= 0 ? w : within(tw, 0, PLACE_MAX),
                                      .h = th <= 0 ? h : within(th, 0, PLACE_MAX),
                                      .rotation = number(t, "rotation", 0),
                                      .flip_h = get_bool(entry, "flipH", false),
                                      .flip_v = get_bool(entry, "flipV", false) };
}

/* An order that names every layer once. */
static void order_by_state(const json_t *order, struct picture *p)
{
    bool seen[LAYERS_MAX] = { false };
    size_t at[LAYERS_MAX];
    if (json_array_size(order) != p->n)
        return;
    for (size_t i = 0; i < p->n; i++) {
        const json_t *v = json_array_get(order, i);
        json_int_t k = json_is_integer(v) ? json_integer_value(v) : -1;
        if (k < 0 || (size_t)k >= p->n || seen[k])
            return;
        seen[k] = true;
        at[i] = (size_t)k;
    }
    memcpy(p->order, at, p->n * sizeof *at);
}

static void background_by_state(const json_t *b, struct picture *p)
{
    const char *text = json_string_value(json_object_get(b, "color"));
    uint8_t rgb[3] = { 255, 255, 255 };
    char wide[7] = "";
    if (!json_is_object(b) || !get_bool(b, "visible", true))
        return;
    if (text && *text == '#' && strlen(text) == 4)
        for (int i = 0; i < 6; i++)
            wide[i] = text[1 + i / 2];
    else if (text && *text == '#' && strlen(text) == 7)
        memcpy(wide, text + 1, 6);
    if (*wide && !parse_hex_color(wide, 3, rgb))
        memset(rgb, 255, sizeof rgb);
    for (int k = 0; k < 3; k++)
        p->back[k] = layer_to_linear((float)rgb[k] / 255.0f);
    p->back[3] = (float)within(number(b, "opacity", 1), 0, 1);
}

static void use_state(const json_t *state, struct picture *p)
{
    const json_t *canvas = json_object_get(state, "canvas");
    p->w = nearbyint(number(canvas, "w", 0));
    p->h = nearbyint(number(canvas, "h", 0));
    for (size_t i = 0; i < p->n; i++)
        place_by_state(json_array_get(json_object_get(state, "layers"), i), &p->at[i]);
    order_by_state(json_object_get(state, "order"), p);
    background_by_state(json_object_get(state, "background"), p);
}

/* ---- composing ---- */

/* As far as the layers reach to the right and down. */
static void canvas_of_layers(struct picture *p)
{
    p->w = p->h = 1;
    for (size_t i = 0; i < p->n; i++) {
        struct layer_bounds b = layer_bounds(&p->at[i].place);
        p->w = b.x + b.w > p->w ? b.x + b.w : p->w;
        p->h = b.y + b.h > p->h ? b.y + b.h : p->h;
    }
}

/* A layer is rendered whole, also what lies beside the canvas. Up to these many pixels, or so many
 * times what the canvas has, it may be. */
#define LAYER_PIXELS_MAX (8192.0 * 8192.0)
#define LAYER_SPARE 4

static berth_status check_size(const struct layer *l, ptrdiff_t W, ptrdiff_t H, berth_err *err)
{
    double px = l->place.w * l->place.h, most = LAYER_SPARE * (double)W * (double)H;
    most = most > LAYER_PIXELS_MAX ? most : LAYER_PIXELS_MAX;
    if (px > most)
        return err_set(err, BERTH_ELIMIT,
                       "a layer of %.0fx%.0f pixels is too large for a canvas of %tdx%td; at most "
                       "%.0f million pixels are rendered",
                       l->place.w, l->place.h, W, H, most / 1e6);
    return BERTH_OK;
}

/* The bitmap lies in the middle of its bounds; only what is on the canvas is blended. */
static berth_status put_layer(struct node_call *c, const struct layer *l, struct htensor *canvas,
                              berth_err *err)
{
    struct htensor *bitmap;
    struct layer_bounds b = layer_bounds(&l->place);
    ptrdiff_t W = (ptrdiff_t)dim(canvas, 2), H = (ptrdiff_t)dim(canvas, 1);
    if (l->hidden || b.x >= (double)W || b.y >= (double)H || b.x + b.w <= 0 || b.y + b.h <= 0)
        return BERTH_OK;
    if (check_size(l, W, H, err))
        return err->code;
    if (layer_bitmap(c, l->frame, l->alpha, &l->place, &bitmap, err))
        return err->code;
    ptrdiff_t w = (ptrdiff_t)dim(bitmap, 2), h = (ptrdiff_t)dim(bitmap, 1);
    ptrdiff_t x0 = (ptrdiff_t)(b.x + floor((b.w - (double)w) / 2));
    ptrdiff_t y0 = (ptrdiff_t)(b.y + floor((b.h - (double)h) / 2));
    berth_status s = BERTH_OK;
    for (ptrdiff_t y = 0; !s && y < h; y++) {
        s = call_check(c, err);
        for (ptrdiff_t x = 0; !s && x < w; x++) {
            ptrdiff_t cx = x0 + x, cy = y0 + y;
            bool in = cx >= 0 && cy >= 0 && cx < W && cy < H && cx >= (ptrdiff_t)b.x &&
                      cy >= (ptrdiff_t)b.y && (double)cx < b.x + b.w && (double)cy < b.y + b.h;
            const float *p = bitmap->data + (y * w + x) * 4;
            float px[4] = { 0, 0, 0, p[3] };
            for (int k = 0; in && k < 3; k++)
                px[k] = layer_to_linear(p[k]);
            if (in)
                layer_blend(l->mode, (float)l->opacity, px, canvas->data + (cy * W + cx) * 4, 1);
        }
    }
    htensor_unref(bitmap);
    return s;
}

static berth_status compose(struct node_call *c, const struct picture *p, struct htensor **out,
                            berth_err *err)
{
    if (p->w > PLACE_MAX || p->h > PLACE_MAX)
        return err_set(err, BERTH_EINVAL,
                       "Compositor canvas %.0fx%.0f exceeds the maximum supported size of "
                       "%.0fx%.0f",
                       p->w, p->h, PLACE_MAX, PLACE_MAX);
    struct shape to = { .ndim = 4, .dim = { 1, (uint64_t)p->h, (uint64_t)p->w, 4 } };
    berth_status s = htensor_zeros(&to, out, err);
    float full[4] = { p->back[0], p->back[1], p->back[2], 1 };
    size_t px = s ? 0 : htensor_count(*out) / 4;
    for (size_t i = 0; p->back[3] > 0 && i < px; i++)
        layer_blend(0, p->back[3], full, (*out)->data + 4 * i, 1);
    for (size_t i = 0; !s && i < p->n; i++)
        s = put_layer(c, &p->at[p->order[i]], *out, err);
    for (size_t i = 0; !s && i < px * 4; i++) {
        float v = clamp01((*out)->data[i]);
        (*out)->data[i] = i % 4 == 3 ? v : layer_to_srgb(v);
    }
    return htensor_made(s, out);
}

/* ---- the node ---- */

static json_t *entry_of(const struct layer *l)
{
    const struct layer_place *p = &l->place;
    return json_pack("{s:I,s:I,s:I,s:I,s:f,s:s?,s:b,s:f,s:s,s:b,s:b}", "x", (json_int_t)p->x, "y",
                     (json_int_t)p->y, "width", (json_int_t)p->w, "height", (json_int_t)p->h,
                     "rotation", p->rotation, "name", l->of->name, "visible", 1, "opacity",
                     l->opacity, "blend", layer_modes[l->mode], "flipH", p->flip_h, "flipV",
                     p->flip_v);
}

/* What the editor shows: each layer as a file, its fingerprint and where it lies. */
static berth_status show_layers(struct node_call *c, const struct picture *p, berth_err *err)
{
    static const char *const lists[] = { "compositor_layers", "compositor_inputs",
                                         "compositor_bboxes" };
    berth_status s = BERTH_OK;
    c->ui = c->ui ? c->ui : json_object();
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (json_object_set_new(c->ui, lists[i], json_array()))
            return err_set(err, BERTH_ENOMEM, "ui of %s", c->cls->name);
    for (size_t i = 0; !s && i < p->n; i++) {
        const struct layer *l = &p->at[i];
        size_t ch = dim(l->frame, 3), to = l->alpha ? 4 : 3;
        struct htensor *t;
        if (image_tensor(1, dim(l->frame, 1), dim(l->frame, 2), to, &t, err))
            return err->code;
        for (size_t k = 0, n = htensor_count(t); k < n; k++)
            t->data[k] = k % to == 3 ? l->alpha->data[k / 4] : l->frame->data[k / to * ch + k % to];
        s = show_images_as(c, t, lists[0], err);
        htensor_unref(t);
        if (!s)
            s = ui_add(c, lists[1], json_string(l->print), err);
        if (!s)
            s = ui_add(c, lists[2], entry_of(l), err);
    }
    return s;
}

/* Without alpha where it is opaque; and what is not there as a mask. */
static berth_status split_alpha(struct htensor *rgba, struct htensor **image, struct htensor **mask,
                                berth_err *err)
{
    size_t px = htensor_count(rgba) / 4;
    bool opaque = true;
    for (size_t i = 0; opaque && i < px; i++)
        opaque = rgba->data[4 * i + 3] >= 1.0f - 1e-3f;
    berth_status s = mask_tensor(1, dim(rgba, 1), dim(rgba, 2), mask, err);
    for (size_t i = 0; !s && i < px; i++)
        (*mask)->data[i] = opaque ? 0.0f : clamp01(1.0f - rgba->data[4 * i + 3]);
    if (!s && !opaque)
        *image = htensor_ref(rgba);
    else if (!s)
        s = image_tensor(1, dim(rgba, 1), dim(rgba, 2), 3, image, err);
    for (size_t i = 0; !s && opaque && i < px * 3; i++)
        (*image)->data[i] = rgba->data[i / 3 * 4 + i % 3];
    return s;
}

static berth_status compose_state(struct node_call *c, struct picture *p, struct htensor **out,
                                  berth_err *err)
{
    const struct value *v = in_value(c, "compositor");
    json_t *parsed = NULL;
    berth_err why;
    if (v && v->kind == V_STRING && js_parse(v->s.p, v->s.n, NULL, &parsed, &why))
        parsed = NULL;
    const json_t *state = v && v->kind == V_JSON ? v->json : parsed;
    bool given = v && ((v->kind == V_STRING && v->s.n && strcmp(v->s.p, "{}") != 0) ||
                       (v->kind == V_JSON && json_object_size(v->json)));
    bool fits = json_is_object(state) && state_fits(state, p);
    berth_status s = BERTH_OK;
    if (fits)
        use_state(state, p);
    else if (!p->w || !p->h)
        canvas_of_layers(p);
    if (p->n) {
        s = compose(c, p, out, err);
    } else { /* nothing: black */
        s = image_tensor(1, 64, 64, 4, out, err);
        for (size_t i = 0, n = s ? 0 : htensor_count(*out); i < n; i++)
            (*out)->data[i] = i % 4 == 3 ? 1.0f : 0.0f;
    }
    if (!s && given && !fits)
        s = ui_add(c, "compositor_state_stale", json_true(), err);
    json_decref(parsed);
    return s;
}

static berth_status compositor_run(struct node_call *c, berth_err *err)
{
    const struct stack *layers;
    struct htensor *rgba = NULL, *image = NULL, *mask = NULL;
    if (in_stack(c, &layers, err))
        return err->code;
    struct picture *p = calloc(1, sizeof *p);
    berth_status s = p ? BERTH_OK : err_set(err, BERTH_ENOMEM, "layers");
    if (!s && layers) {
        p->w = (double)layers->w;
        p->h = (double)layers->h;
        s = add_items(c, layers, p, err);
    }
    for (size_t i = 0; !s && i < p->n; i++)
        s = fingerprint(&p->at[i], err);
    if (!s)
        s = show_layers(c, p, err);
    if (!s)
        s = compose_state(c, p, &rgba, err);
    if (!s)
        s = split_alpha(rgba, &image, &mask, err);
    if (!s)
        s = show_images(c, image, err);
    picture_free(p);
    htensor_unref(rgba);
    if (!s)
        return give_tensors(c, image, mask, err);
    htensor_unref(image);
    htensor_unref(mask);
    return s;
}

NODE_CLASS(ImageCompositor, .display = "Create Layered Image", .category = "image",
           .module = MOD("compositor"),
           .description = "Puts layers over each other, as arranged in the editor.",
           .flags = NODE_V3 | NODE_OUTPUT | NODE_INTERMEDIATE | NODE_EXPERIMENTAL | NODE_PROMPT |
                    NODE_EXTRA_PNGINFO,
           INS(SOCKET("layers", "LAYERS"),
               SOCKET("compositor", "COMPOSITOR", .more = "\"default\":{}," SOCKETLESS)),
           OUT(out_image_mask), .run = compositor_run);
