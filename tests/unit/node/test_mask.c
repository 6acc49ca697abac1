/* Masks: numbers worked out by hand. */
#include "support/node_rig.h"

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

static void between_pictures_and_masks(void **state)
{
    struct node_rig *r = *state;
    float px[] = { 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f };
    rig_node(r, "ImageToMask");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 2, 3), px));
    rig_text(r, "channel", "blue");
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 1, 2), (float[]) { 0.3f, 0.6f }, 0);
    rig_node(r, "ImageToMask");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 2, 3), px));
    rig_text(r, "channel", "alpha");
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "no 'alpha'");
    rig_node(r, "MaskToImage");
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 1, 2), (float[]) { 0.3f, 0.6f }));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 1, 2, 3),
               (float[]) { 0.3f, 0.3f, 0.3f, 0.6f, 0.6f, 0.6f }, 0);
    rig_node(r, "ImageColorToMask"); /* 127.5 rounds to 128; values are cut to 0..1 first */
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 2, 3), (float[]) { 0.5f, 2, -1, 0, 1, 0 }));
    rig_int(r, "color", 0x80ff00);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 1, 2), (float[]) { 1, 0 }, 0);
}

static void solid_inverted_and_cut(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "SolidMask");
    rig_float(r, "value", 0.25);
    rig_int(r, "width", 2);
    rig_int(r, "height", 1);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 1, 2), (float[]) { 0.25f, 0.25f }, 0);
    rig_node(r, "InvertMask");
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 1, 2), (float[]) { 0.25f, 1 }));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 1, 2), (float[]) { 0.75f, 0 }, 0);
    rig_node(r, "ThresholdMask"); /* above, not at */
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 1, 3), (float[]) { 0.4f, 0.5f, 0.6f }));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 1, 3), (float[]) { 0, 0, 1 }, 0);
    float in[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };
    rig_node(r, "CropMask");
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 3, 3), in));
    rig_int(r, "x", 1);
    rig_int(r, "y", 2);
    rig_int(r, "width", 5);
    rig_int(r, "height", 1);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 1, 2), (float[]) { 7, 8 }, 0);
    rig_node(r, "CropMask");
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 3, 3), in));
    rig_int(r, "x", 3);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "3x3");
}

static void composites(void **state)
{
    struct node_rig *r = *state;
    static const struct {
        const char *op;
        float want[4]; /* destination 0.5 0.5 / 1 0.2, source 0.4 0.8 at (0, 0) in the first row */
    } t[] = {
        { "multiply", { 0.2f, 0.4f, 1, 0.2f } },
        { "add", { 0.9f, 1, 1, 0.2f } },
        { "subtract", { 0.1f, 0, 1, 0.2f } },
        { "and", { 0, 0, 1, 0.2f } },
        { "or", { 0, 1, 1, 0.2f } },
        { "xor", { 0, 1, 1, 0.2f } },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) { /* round(0.5) is 0: halves go to even */
        rig_node(r, "MaskComposite");
        rig_set(r, "destination", rig_tensor(SHAPE3(1, 2, 2), (float[]) { 0.5f, 0.5f, 1, 0.2f }));
        rig_set(r, "source", rig_tensor(SHAPE3(1, 1, 2), (float[]) { 0.4f, 0.8f }));
        rig_text(r, "operation", t[i].op);
        assert_ok(rig_run(r), r->err);
        rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 2, 2), t[i].want, 1e-6f);
    }
    rig_node(r, "MaskComposite"); /* the part that is inside; one source for a whole batch */
    rig_set(r, "destination", rig_tensor(SHAPE3(2, 1, 2), (float[]) { 0, 0, 0, 0 }));
    rig_set(r, "source", rig_tensor(SHAPE3(1, 3, 3), NULL));
    rig_int(r, "x", 1);
    rig_text(r, "operation", "add");
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(2, 1, 2), (float[]) { 0, 0, 0, 0 }, 0);
    rig_node(r, "MaskComposite");
    rig_set(r, "destination", rig_tensor(SHAPE3(1, 1, 2), NULL));
    rig_set(r, "source", rig_tensor(SHAPE3(2, 1, 2), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "2 masks cannot be put onto 1");
}

/* ComfyUI's own: right and bottom begin at column and row "minus 0". */
static void feather(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "FeatherMask");
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 1, 4), (float[]) { 1, 1, 1, 1 }));
    rig_int(r, "left", 2);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 1, 4), (float[]) { 0.5f, 1, 1, 1 }, 0);
    rig_node(r, "FeatherMask");
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 1, 4), (float[]) { 1, 1, 1, 1 }));
    rig_int(r, "right", 4);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 1, 4), (float[]) { 0.25f, 1, 0.75f, 0.5f }, 0);
    rig_node(r, "FeatherMask");
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 3, 1), (float[]) { 1, 1, 1 }));
    rig_int(r, "top", 9); /* more than there is: all of it */
    rig_int(r, "bottom", 2);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 3, 1), (float[]) { 1.0f / 6, 2.0f / 3, 1 }, 1e-6f);
}

static void grows(struct node_rig *r, int64_t by, bool tapered, const float *in, const float *want)
{
    rig_node(r, "GrowMask");
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 5, 5), in));
    rig_int(r, "expand", by);
    rig_bool(r, "tapered_corners", tapered);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 5, 5), want, 0);
}

static void growing(void **state)
{
    struct node_rig *r = *state;
    float dot[25] = { 0 }, plus[25] = { 0 }, box[25] = { 0 }, diamond[25], full[25];
    dot[12] = 0.5f;
    for (int y = 0; y < 5; y++)
        for (int x = 0; x < 5; x++) {
            int d = abs(x - 2) + abs(y - 2), m = abs(x - 2) > abs(y - 2) ? abs(x - 2) : abs(y - 2);
            plus[y * 5 + x] = d <= 1 ? 0.5f : 0;
            box[y * 5 + x] = m <= 1 ? 0.5f : 0;
            diamond[y * 5 + x] = d <= 2 ? 0.5f : 0;
            full[y * 5 + x] = 0.5f;
        }
    grows(r, 0, true, dot, dot);
    grows(r, 1, true, dot, plus);
    grows(r, 2, true, dot, diamond);
    grows(r, 1, false, dot, box);
    grows(r, 16384, false, dot, full);
    grows(r, -1, true, plus, dot); /* what is outside does not eat in: */
    grows(r, -3, true, full, full);
    r->cancel = true;
    rig_node(r, "GrowMask");
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 5, 5), dot));
    rig_int(r, "expand", 1);
    assert_fails(rig_run(r), r->err, BERTH_ECANCELED, "GrowMask was interrupted");
    r->cancel = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_pictures_and_masks),
        cmocka_unit_test(solid_inverted_and_cut),
        cmocka_unit_test(composites),
        cmocka_unit_test(feather),
        cmocka_unit_test(growing),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
