/* image_basic.c: pictures from nothing, and what needs no geometry. */
#include "node/node_impl.h"
#include "sample/rng.h"

#include <string.h>

static berth_status empty_run(struct node_call *c, berth_err *err)
{
    uint64_t w, h, n, color;
    struct htensor *t;
    if (in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        in_u64(c, "batch_size", &n, err) || in_u64(c, "color", &color, err) ||
        image_tensor(n, h, w, 3, &t, err))
        return err->code;
    float rgb[3];
    for (int i = 0; i < 3; i++)
        rgb[i] = (float)((color >> (16 - 8 * i)) & 0xff) / 255.0f;
    size_t px = htensor_count(t) / 3;
    for (size_t i = 0; i < px; i++)
        memcpy(t->data + 3 * i, rgb, sizeof rgb);
    return out_tensor(c, 0, t, err);
}

NODE_CLASS(EmptyImage, .display = NULL, .category = "image", .module = "nodes",
           INS(SIZE_IN(512, 512, 1, 1), BATCH_IN,
               INT_IN("color", 0, 0, 0xffffff, 1, .more = "\"display\":\"color\"")),
           OUT(out_image), .run = empty_run);

static berth_status invert_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    if (in_image(c, "image", &t, err) || htensor_new(&t->shape, &o, err))
        return err->code;
    size_t n = htensor_count(t);
    for (size_t i = 0; i < n; i++)
        o->data[i] = 1.0f - t->data[i];
    return out_tensor(c, 0, o, err);
}

NODE_CLASS(ImageInvert, .display = "Invert Image", .category = "image", .module = "nodes",
           INS(SOCKET("image", "IMAGE")), OUT(out_image), .run = invert_run);

static berth_status noise_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    struct torch_rng rng;
    uint64_t seed;
    double strength;
    if (in_image(c, "image", &t, err) || in_u64(c, "seed", &seed, err) ||
        in_f64(c, "strength", &strength, err) || htensor_new(&t->shape, &o, err))
        return err->code;
    size_t n = htensor_count(t);
    torch_seed(&rng, seed);
    torch_randn(&rng, o->data, n);
    for (size_t i = 0; i < n; i++)
        o->data[i] = clamp01(t->data[i] + (float)strength * o->data[i]);
    return out_tensor(c, 0, o, err);
}

NODE_CLASS(ImageAddNoise, .display = "Add Noise to Image", .category = "image/filters",
           V3("images"),
           INS(SOCKET("image", "IMAGE"), INT_IN("seed", 0, 0, U64_MAX, 0, .more = CONTROL),
               FLOAT_IN("strength", 0.5, 0.0, 1.0, 0.01)),
           OUT(out_image), .run = noise_run);
