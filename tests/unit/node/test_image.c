/* Pictures: numbers worked out by hand. */
#include "support/node_rig.h"

#include <math.h>

#define SHAPE4(a, b, c, d)                                                                         \
    4, (size_t[])                                                                                  \
    {                                                                                              \
        a, b, c, d                                                                                 \
    }
#define SHAPE3(a, b, c)                                                                            \
    3, (size_t[])                                                                                  \
    {                                                                                              \
        a, b, c                                                                                    \
    }

static void empty_has_the_colour(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "EmptyImage");
    rig_int(r, "width", 2);
    rig_int(r, "height", 1);
    rig_int(r, "batch_size", 2);
    rig_int(r, "color", 0xff8000);
    assert_ok(rig_run(r), r->err);
    float g = 128.0f / 255.0f;
    float want[] = { 1, g, 0, 1, g, 0, 1, g, 0, 1, g, 0 };
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(2, 1, 2, 3), want, 1e-7f);
    rig_node(r, "EmptyImage"); /* defaults */
    assert_ok(rig_run(r), r->err);
    assert_int_equal(htensor_count(rig_out(r, 0)->tensor), 512 * 512 * 3);
}

static void too_large_is_an_error(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "EmptyImage");
    rig_int(r, "width", 16384);
    rig_int(r, "height", 16384);
    rig_int(r, "batch_size", 4096);
    assert_fails(rig_run(r), r->err, BERTH_ELIMIT, "[4096, 16384, 16384, 3]");
    rig_node(r, "EmptyImage"); /* a link may bring what validation would refuse */
    rig_int(r, "width", -1);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "'width' is negative");
}

static void invert(void **state)
{
    struct node_rig *r = *state;
    float in[] = { 0, 0.25f, 1, 2, -1, 0.5f }, want[] = { 1, 0.75f, 0, -1, 2, 0.5f };
    rig_node(r, "ImageInvert");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 2, 3), in));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 1, 2, 3), want, 0);
}

static void other_kinds_are_refused(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ImageInvert");
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "'image' is not given");
    rig_set(r, "image", value_string("x", 1));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "wants IMAGE and got STRING");
    rig_node(r, "ImageInvert");
    rig_set(r, "image", rig_tensor(SHAPE3(1, 2, 2), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "[1, 2, 2]");
    rig_node(r, "ImageInvert");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 0, 2, 3), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "[1, 0, 2, 3]");
}

static void batch_fits_the_second_to_the_first(void **state)
{
    struct node_rig *r = *state;
    float a[] = { 0.1f, 0.2f, 0.3f, 0.4f }, b[] = { 0.5f, 0.6f, 0.7f };
    rig_node(r, "ImageBatch"); /* RGBA and RGB: the missing alpha is opaque */
    rig_set(r, "image1", rig_tensor(SHAPE4(1, 1, 1, 4), a));
    rig_set(r, "image2", rig_tensor(SHAPE4(1, 1, 1, 3), b));
    assert_ok(rig_run(r), r->err);
    float want[] = { 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 1 };
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(2, 1, 1, 4), want, 0);
    rig_node(r, "ImageBatch"); /* sizes: the second is cut to the aspect and resized */
    rig_set(r, "image1", rig_tensor(SHAPE4(1, 2, 2, 1), (float[]) { 1, 2, 3, 4 }));
    rig_set(r, "image2", rig_tensor(SHAPE4(1, 1, 3, 1), (float[]) { 7, 8, 9 }));
    assert_ok(rig_run(r), r->err);
    float fit[] = { 1, 2, 3, 4, 8, 8, 8, 8 };
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(2, 2, 2, 1), fit, 1e-6f);
}

static void slices_and_repeats(void **state)
{
    struct node_rig *r = *state;
    float in[] = { 1, 2, 3 };
    rig_node(r, "ImageFromBatch"); /* beyond the end: the last one */
    rig_set(r, "image", rig_tensor(SHAPE4(3, 1, 1, 1), in));
    rig_int(r, "batch_index", 9);
    rig_int(r, "length", 9);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 1, 1, 1), (float[]) { 3 }, 0);
    rig_node(r, "ImageFromBatch");
    rig_set(r, "image", rig_tensor(SHAPE4(3, 1, 1, 1), in));
    rig_int(r, "batch_index", 1);
    rig_int(r, "length", 4);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(2, 1, 1, 1), (float[]) { 2, 3 }, 0);
    rig_node(r, "RepeatImageBatch");
    rig_set(r, "image", rig_tensor(SHAPE4(3, 1, 1, 1), in));
    rig_int(r, "amount", 2);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(6, 1, 1, 1), (float[]) { 1, 2, 3, 1, 2, 3 }, 0);
    rig_node(r, "RepeatImageBatch");
    rig_set(r, "image", rig_tensor(SHAPE4(3, 1, 1, 1), in));
    rig_set(r, "amount", value_uint(UINT64_MAX));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "18446744073709551615");
}

static void crop_stays_inside(void **state)
{
    struct node_rig *r = *state;
    float in[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };
    rig_node(r, "ImageCrop");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 3, 3, 1), in));
    rig_int(r, "width", 2);
    rig_int(r, "height", 9);
    rig_int(r, "x", 1);
    rig_int(r, "y", 1);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 2, 2, 1), (float[]) { 4, 5, 7, 8 }, 0);
    rig_node(r, "ImageCrop"); /* outside: the last pixel */
    rig_set(r, "image", rig_tensor(SHAPE4(1, 3, 3, 1), in));
    rig_int(r, "x", 100);
    rig_int(r, "y", 100);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 1, 1, 1), (float[]) { 8 }, 0);
}

static void padding_is_grey_and_feathered(void **state)
{
    struct node_rig *r = *state;
    float in[5 * 5];
    for (int i = 0; i < 25; i++)
        in[i] = 0.1f;
    rig_node(r, "ImagePadForOutpaint");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 5, 5, 1), in));
    rig_int(r, "left", 1);
    rig_int(r, "feathering", 2);
    assert_ok(rig_run(r), r->err);
    const struct htensor *o = rig_out(r, 0)->tensor, *m = rig_out(r, 1)->tensor;
    assert_true(o->shape.dim[2] == 6 && m->shape.ndim == 3 && m->shape.dim[2] == 6);
    for (size_t y = 0; y < 5; y++) {
        assert_true(o->data[y * 6] == 0.5f && o->data[y * 6 + 1] == 0.1f);
        float want[] = { 1, 1, 0.25f, 0, 0, 0 }; /* ((2 - d) / 2)^2 for d = 0, 1 */
        for (size_t x = 0; x < 6; x++)
            assert_true(m->data[y * 6 + x] == want[x]);
    }
    rig_node(r, "ImagePadForOutpaint"); /* feathering as wide as the picture: none */
    rig_set(r, "image", rig_tensor(SHAPE4(1, 5, 5, 1), in));
    rig_int(r, "top", 1);
    assert_ok(rig_run(r), r->err);
    assert_true(rig_out(r, 1)->tensor->data[5] == 0.0f);
}

static void sizes_are_told(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "GetImageSize");
    rig_set(r, "image", rig_tensor(SHAPE4(2, 3, 5, 1), NULL));
    assert_ok(rig_run(r), r->err);
    assert_true(rig_out(r, 0)->i == 5 && rig_out(r, 1)->i == 3 && rig_out(r, 2)->i == 2);
    rig_node(r, "GetImageSizeAndCount");
    struct value *v = rig_tensor(SHAPE4(2, 3, 5, 1), NULL);
    rig_set(r, "image", v);
    assert_ok(rig_run(r), r->err);
    assert_ptr_equal(rig_out(r, 0)->tensor, v->tensor); /* handed on, not copied */
    assert_int_equal(rig_out(r, 3)->i, 2);
}

static void scaled_to(struct node_rig *r, uint64_t h, uint64_t w)
{
    assert_ok(rig_run(r), r->err);
    const struct shape *s = &rig_out(r, 0)->tensor->shape;
    if (s->dim[1] != h || s->dim[2] != w)
        fail_msg("%s: %llux%llu, wanted %llux%llu", r->call.cls->name,
                 (unsigned long long)s->dim[2], (unsigned long long)s->dim[1],
                 (unsigned long long)w, (unsigned long long)h);
}

static void sizes_follow_comfyui(void **state)
{
    struct node_rig *r = *state;
    static const size_t dims[] = { 1, 3, 5, 3 };
    rig_node(r, "ImageScale");
    rig_set(r, "image", rig_tensor(4, dims, NULL));
    rig_int(r, "width", 0);
    rig_int(r, "height", 8); /* 5 * 8 / 3 = 13.33 */
    scaled_to(r, 8, 13);
    rig_node(r, "ImageScale");
    rig_set(r, "image", rig_tensor(4, dims, NULL));
    rig_int(r, "width", 10);
    rig_int(r, "height", 0);
    rig_text(r, "crop", "center");
    rig_text(r, "upscale_method", "lanczos");
    scaled_to(r, 6, 10);
    rig_node(r, "ImageScale"); /* both 0: the same picture */
    struct value *v = rig_tensor(4, dims, NULL);
    rig_set(r, "image", v);
    rig_int(r, "width", 0);
    rig_int(r, "height", 0);
    assert_ok(rig_run(r), r->err);
    assert_ptr_equal(rig_out(r, 0)->tensor, v->tensor);
    rig_node(r, "ImageScaleBy"); /* 7.5 rounds to 8, 4.5 to 4: to even */
    rig_set(r, "image", rig_tensor(4, dims, NULL));
    rig_float(r, "scale_by", 1.5);
    scaled_to(r, 4, 8);
    rig_node(r, "ImageScaleBy");
    rig_set(r, "image", rig_tensor(4, dims, NULL));
    rig_float(r, "scale_by", 0.01);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "0x0");
    rig_node(r, "ImageScaleToTotalPixels"); /* sqrt(2^20 * 0.01 / 15) = 26.44 */
    rig_set(r, "image", rig_tensor(4, dims, NULL));
    rig_float(r, "megapixels", 0.01);
    scaled_to(r, 79, 132);
    rig_node(r, "ImageScaleToTotalPixels");
    rig_set(r, "image", rig_tensor(4, dims, NULL));
    rig_float(r, "megapixels", 0.01);
    rig_int(r, "resolution_steps", 16);
    scaled_to(r, 80, 128);
    rig_node(r, "ImageScaleToMaxDimension"); /* round(0.6 * 7) */
    rig_set(r, "image", rig_tensor(4, dims, NULL));
    rig_int(r, "largest_size", 7);
    scaled_to(r, 4, 7);
    rig_node(r, "FluxKontextImageScale"); /* 5:3 = 1.667, 1328x800 = 1.66 */
    rig_set(r, "image", rig_tensor(4, dims, NULL));
    scaled_to(r, 800, 1328);
}

static void compositing(void **state)
{
    struct node_rig *r = *state;
    float d[] = { 0, 0, 0, 0 }, s[] = { 1, 1, 1, 1 }, m[] = { 0.25f, 1, 1, 1 };
    rig_node(r, "ImageCompositeMasked");
    rig_set(r, "destination", rig_tensor(SHAPE4(1, 2, 2, 1), d));
    rig_set(r, "source", rig_tensor(SHAPE4(1, 2, 2, 1), s));
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 2, 2), m));
    rig_int(r, "x", 1);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 2, 2, 1), (float[]) { 0, 0.25f, 0, 1 }, 1e-6f);
    rig_node(r, "ImageCompositeMasked"); /* RGBA under RGB: what is pasted is opaque */
    rig_set(r, "destination", rig_tensor(SHAPE4(1, 1, 1, 4), (float[]) { 0, 0, 0, 0 }));
    rig_set(r, "source", rig_tensor(SHAPE4(1, 1, 1, 3), (float[]) { 1, 0.5f, 0 }));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 1, 1, 4), (float[]) { 1, 0.5f, 0, 1 }, 0);
    rig_node(r, "ImageCompositeMasked"); /* the source repeats; far outside nothing happens */
    rig_set(r, "destination", rig_tensor(SHAPE4(3, 1, 1, 1), (float[]) { 1, 2, 3 }));
    rig_set(r, "source", rig_tensor(SHAPE4(2, 1, 1, 1), (float[]) { 7, 8 }));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(3, 1, 1, 1), (float[]) { 7, 8, 7 }, 0);
    rig_int(r, "x", 5);
    rig_int(r, "y", 5);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(3, 1, 1, 1), (float[]) { 1, 2, 3 }, 0);
}

static void alpha_joins_and_splits(void **state)
{
    struct node_rig *r = *state;
    float px[] = { 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f };
    rig_node(r, "JoinImageWithAlpha"); /* the fewer repeat; the mask is stretched */
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 2, 3), px));
    rig_set(r, "alpha", rig_tensor(SHAPE3(2, 1, 1), (float[]) { 0.25f, 0 }));
    assert_ok(rig_run(r), r->err);
    float joined[] = { 0.1f, 0.2f, 0.3f, 0.75f, 0.4f, 0.5f, 0.6f, 0.75f,
                       0.1f, 0.2f, 0.3f, 1,     0.4f, 0.5f, 0.6f, 1 };
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(2, 1, 2, 4), joined, 1e-6f);
    rig_node(r, "SplitImageWithAlpha");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 2, 4), joined));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 1, 2, 3), px, 0);
    rig_expect(rig_out(r, 1)->tensor, SHAPE3(1, 1, 2), (float[]) { 0.25f, 0.25f }, 1e-6f);
    rig_node(r, "SplitImageWithAlpha"); /* without alpha nothing is transparent */
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 2, 3), px));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 1)->tensor, SHAPE3(1, 1, 2), (float[]) { 0, 0 }, 0);
}

/* The kernel of radius 1, sigma 1 reaches from -1 to 1: e^-0.5, 1, e^-0.5. */
static void blur_has_its_kernel(void **state)
{
    struct node_rig *r = *state;
    float in[25] = { 0 }, want[25] = { 0 };
    in[12] = 1;
    double e = exp(-0.5), k[3] = { e / (1 + 2 * e), 1 / (1 + 2 * e), e / (1 + 2 * e) };
    for (size_t y = 0; y < 3; y++)
        for (size_t x = 0; x < 3; x++)
            want[(y + 1) * 5 + x + 1] = (float)(k[y] * k[x]);
    rig_node(r, "ImageBlur");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 5, 5, 1), in));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 5, 5, 1), want, 1e-6f);
    rig_node(r, "ImageBlur"); /* the edge is mirrored without itself: column 1 counts twice */
    rig_set(r, "image", rig_tensor(SHAPE4(1, 3, 3, 1), (float[]) { 0, 1, 0, 0, 1, 0, 0, 1, 0 }));
    assert_ok(rig_run(r), r->err);
    float edge = (float)(2 * k[0]), mid = (float)k[1];
    float mirrored[] = { edge, mid, edge, edge, mid, edge, edge, mid, edge };
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 3, 3, 1), mirrored, 1e-6f);
    rig_node(r, "ImageBlur");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 3, 3, 1), NULL));
    rig_int(r, "blur_radius", 3);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "radius of 3");
}

/* A step from black to white is one line of edge; a weak one alone is none. */
static void canny_finds_a_step(void **state)
{
    struct node_rig *r = *state;
    float in[16 * 16], weak[16 * 16];
    for (size_t i = 0; i < 256; i++) {
        in[i] = i % 16 > 8 ? 1.0f : i % 16 == 8 ? 0.5f : 0.0f; /* steepest in one column */
        weak[i] = in[i] * 0.15f;
    }
    rig_node(r, "Canny");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 16, 16, 1), in));
    assert_ok(rig_run(r), r->err);
    const struct htensor *o = rig_out(r, 0)->tensor;
    assert_true(o->shape.dim[3] == 3);
    for (size_t y = 0; y < 16; y++)
        for (size_t x = 0; x < 16; x++) {
            float v = o->data[(y * 16 + x) * 3];
            assert_true(v == (x == 8 ? 1.0f : 0.0f));
        }
    rig_node(r, "Canny");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 16, 16, 1), weak));
    assert_ok(rig_run(r), r->err);
    for (size_t i = 0; i < 16 * 16 * 3; i++)
        assert_true(rig_out(r, 0)->tensor->data[i] == 0.0f);
    rig_node(r, "Canny");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 16, 16, 1), in));
    rig_float(r, "low_threshold", 0.9);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "low_threshold");
}

static void concat_puts_side_by_side(void **state)
{
    struct node_rig *r = *state;
    float a[] = { 1, 2, 3, 4 }, b[] = { 5 };
    rig_node(r, "ImageConcatMulti");
    rig_set(r, "image_1", rig_tensor(SHAPE4(1, 2, 2, 1), a));
    rig_set(r, "image_2", rig_tensor(SHAPE4(1, 1, 1, 1), b));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 2, 3, 1), (float[]) { 1, 2, 5, 3, 4, 0 }, 0);
    rig_text(r, "direction", "up");
    rig_int(r, "inputcount", 3); /* the third is missing: black, as large as the first */
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 5, 2, 1),
               (float[]) { 0, 0, 0, 0, 5, 0, 1, 2, 3, 4 }, 0);
    rig_node(r, "ImageConcatMulti"); /* the shorter batch goes on with its last */
    rig_set(r, "image_1", rig_tensor(SHAPE4(2, 1, 1, 1), (float[]) { 1, 2 }));
    rig_set(r, "image_2", rig_tensor(SHAPE4(1, 1, 1, 1), b));
    rig_text(r, "direction", "left");
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(2, 1, 2, 1), (float[]) { 5, 1, 5, 2 }, 0);
    rig_int(r, "inputcount", 1000);
    assert_fails(rig_run(r), r->err, BERTH_ELIMIT, "1000 pictures");
}

static void kj(struct node_rig *r, const char *keep, const char *position, int64_t w, int64_t h,
               int64_t divisor)
{
    rig_node(r, "ImageResizeKJv2"); /* 4 wide, 2 high: 1 2 3 4 / 5 6 7 8 */
    rig_set(r, "image", rig_tensor(SHAPE4(1, 2, 4, 1), (float[]) { 1, 2, 3, 4, 5, 6, 7, 8 }));
    rig_text(r, "keep_proportion", keep);
    rig_text(r, "crop_position", position);
    rig_text(r, "pad_color", "51, 0, 0");
    rig_int(r, "width", w);
    rig_int(r, "height", h);
    rig_int(r, "divisible_by", divisor);
}

static void box_keeps_proportions(void **state)
{
    struct node_rig *r = *state;
    kj(r, "stretch", "center", 2, 0, 0);
    scaled_to(r, 2, 2);
    kj(r, "resize", "center", 9, 9, 2); /* 9 x 4.5 -> 4, then to multiples of 2 */
    scaled_to(r, 4, 8);
    assert_true(rig_out(r, 1)->i == 8 && rig_out(r, 2)->i == 4);
    assert_int_equal(rig_out(r, 3)->tensor->shape.dim[1], 64);
    kj(r, "total_pixels", "center", 8, 4, 0);
    scaled_to(r, 4, 8);
    kj(r, "crop", "left", 2, 2, 0);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 2, 2, 1), (float[]) { 1, 2, 5, 6 }, 0);
    kj(r, "crop", "center", 2, 2, 0);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 2, 2, 1), (float[]) { 2, 3, 6, 7 }, 0);
    kj(r, "pad", "top", 4, 3, 0);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 3, 4, 1),
               (float[]) { 1, 2, 3, 4, 5, 6, 7, 8, 0.2f, 0.2f, 0.2f, 0.2f }, 1e-6f);
    rig_expect(rig_out(r, 3)->tensor, SHAPE3(1, 3, 4),
               (float[]) { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1 }, 0);
    kj(r, "pad_edge_pixel", "bottom", 4, 3, 0);
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 2, 4), (float[]) { 1, 0, 0, 0, 0, 0, 0, 0 }));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 3, 4, 1),
               (float[]) { 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8 }, 0);
    rig_expect(rig_out(r, 3)->tensor, SHAPE3(1, 3, 4),
               (float[]) { 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0 }, 0);
    kj(r, "pad", "center", 4, 3, 4); /* both to multiples of 4; 2 rows are less than that */
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "divisible by 4");
    kj(r, "pad_edge", "center", 6, 4, 0); /* 6 x 3 and a row */
    assert_ok(rig_run(r), r->err);
    assert_int_equal(rig_out(r, 0)->tensor->shape.dim[1], 4);
    kj(r, "pad_edge", "center", 4, 4, 0);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 4, 4, 1),
               (float[]) { 2.5f, 2.5f, 2.5f, 2.5f, 1, 2, 3, 4, 5, 6, 7, 8, 6.5f, 6.5f, 6.5f, 6.5f },
               1e-6f);
    rig_node(r, "ImageResizeKJv2"); /* high and narrow: columns beside it */
    rig_set(r, "image", rig_tensor(SHAPE4(1, 2, 1, 1), (float[]) { 1, 3 }));
    rig_text(r, "keep_proportion", "pad_edge");
    rig_int(r, "width", 3);
    rig_int(r, "height", 2);
    rig_int(r, "divisible_by", 0);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 2, 3, 1), (float[]) { 2, 1, 2, 2, 3, 2 }, 1e-6f);
}

/* A mask need not have its picture's size, nor as many items. Whatever the plan, it is scaled
 * whole, but for "crop": the picture's part is cut out of it, where it lies within it. */
static void box_with_a_mask_of_another_size(void **state)
{
    struct node_rig *r = *state;
    static const char *const whole[] = { "stretch", "resize", "total_pixels" };
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
        kj(r, whole[i], "center", 8, 4, 0);
        rig_set(r, "mask", rig_tensor(SHAPE3(2, 8, 16), NULL));
        rig_text(r, "upscale_method", "nearest-exact");
        assert_ok(rig_run(r), r->err);
        const struct htensor *m = rig_out(r, 3)->tensor;
        assert_true(m->shape.dim[0] == 2 && m->shape.dim[1] == 4 && m->shape.dim[2] == 8);
        for (size_t k = 0; k < 64; k++) /* the lower right one of every four */
            if (m->data[k] != (float)(k / 32 * 128 + k / 8 % 4 * 32 + 16 + k % 8 * 2 + 1) / 64.0f)
                fail_msg("%s: [%zu] is %g", whole[i], k, (double)m->data[k]);
    }
    kj(r, "crop", "right", 2, 2, 0); /* columns 2 and 3 */
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 3, 5), NULL));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 3)->tensor, SHAPE3(1, 2, 2),
               (float[]) { 2 / 64.0f, 3 / 64.0f, 7 / 64.0f, 8 / 64.0f }, 0);
    static const size_t small[][2] = { { 2, 3 }, { 1, 4 }, { 2, 2 }, { 1, 1 } };
    for (size_t i = 0; i < ARRAY_LEN(small); i++) {
        kj(r, "crop", "right", 2, 2, 0);
        rig_set(r, "mask", rig_tensor(SHAPE3(1, small[i][0], small[i][1]), NULL));
        assert_fails(rig_run(r), r->err, BERTH_EINVAL,
                     "the part 2x2 at 2, 0 of the picture is not within its mask of ");
    }
}

/* Numbers of a plain sum over the reference's formula. */
static void box_on_a_blurred_ground(void **state)
{
    struct node_rig *r = *state;
    static const float want[] = {
        0.044566f, 0.043188f, 0.048185f, 0.066684f, 0.066206f, 0.066065f, 0.075700f, 0.076987f,
        0.068018f, 0.061718f, 0.063699f, 0.051902f, 0.100000f, 0.125000f, 0.250000f, 0.200000f,
        0.250000f, 0.250000f, 0.300000f, 0.375000f, 0.250000f, 0.400000f, 0.500000f, 0.250000f,
        0.500000f, 0.125000f, 0.500000f, 0.600000f, 0.250000f, 0.500000f, 0.700000f, 0.375000f,
        0.500000f, 0.800000f, 0.500000f, 0.500000f, 0.085315f, 0.045655f, 0.074579f, 0.121275f,
        0.069510f, 0.101423f, 0.130290f, 0.080292f, 0.103377f, 0.102467f, 0.066166f, 0.078295f
    };
    float px[24];
    for (size_t i = 0; i < 8; i++) {
        px[3 * i] = (float)(1 + i) / 10.0f;
        px[3 * i + 1] = (float)(1 + i % 4) / 8.0f;
        px[3 * i + 2] = (float)(i / 4 + 1) / 4.0f;
    }
    for (int masked = 0; masked < 2; masked++) {
        rig_node(r, "ImageResizeKJv2");
        rig_set(r, "image", rig_tensor(SHAPE4(1, 2, 4, 3), px));
        rig_text(r, "keep_proportion", "pillarbox_blur");
        rig_int(r, "width", 4);
        rig_int(r, "height", 4);
        rig_int(r, "divisible_by", 0);
        if (masked)
            rig_set(r, "mask", rig_tensor(SHAPE3(1, 2, 4), (float[]) { 0, 0, 1, 1, 0, 0, 1, 1 }));
        assert_ok(rig_run(r), r->err);
        rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 4, 4, 3), want, 2e-6f);
        const float in = (float)masked;
        rig_expect(rig_out(r, 3)->tensor, SHAPE3(1, 4, 4),
                   (float[]) { 1, 1, 1, 1, 0, 0, in, in, 0, 0, in, in, 1, 1, 1, 1 }, 0);
    }
}

/* Every input count that is offered works. */
static void concat_joins_as_many_as_it_says(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ImageConcatMulti");
    int64_t most = (int64_t)r->call.cls->in[0].imax;
    assert_true(most > 16 && (size_t)most <= r->call.cls->ins);
    for (int64_t i = 1; i <= most; i++) {
        char name[24];
        snprintf(name, sizeof name, "image_%d", (int)i);
        rig_set(r, name, rig_tensor(SHAPE4(1, 1, 1, 1), (float[]) { (float)i }));
    }
    rig_int(r, "inputcount", most);
    assert_ok(rig_run(r), r->err);
    const struct htensor *t = rig_out(r, 0)->tensor;
    assert_int_equal(t->shape.dim[2], most);
    for (int64_t i = 0; i < most; i++)
        assert_true(t->data[i] == (float)(i + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_has_the_colour),
        cmocka_unit_test(box_with_a_mask_of_another_size),
        cmocka_unit_test(box_on_a_blurred_ground),
        cmocka_unit_test(concat_joins_as_many_as_it_says),
        cmocka_unit_test(too_large_is_an_error),
        cmocka_unit_test(invert),
        cmocka_unit_test(other_kinds_are_refused),
        cmocka_unit_test(batch_fits_the_second_to_the_first),
        cmocka_unit_test(slices_and_repeats),
        cmocka_unit_test(crop_stays_inside),
        cmocka_unit_test(padding_is_grey_and_feathered),
        cmocka_unit_test(sizes_are_told),
        cmocka_unit_test(sizes_follow_comfyui),
        cmocka_unit_test(compositing),
        cmocka_unit_test(alpha_joins_and_splits),
        cmocka_unit_test(blur_has_its_kernel),
        cmocka_unit_test(canny_finds_a_step),
        cmocka_unit_test(concat_puts_side_by_side),
        cmocka_unit_test(box_keeps_proportions),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
