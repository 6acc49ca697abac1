/* VAE nodes: sizes, tiles, masks for inpainting. Numbers: tests/golden/model, tests/golden/node. */
#include "support/loader_rig.h"

#include "node/compute.h"

#include <math.h>

struct scene {
    struct rig r;
    struct call ckpt;
};

static int setup(void **state)
{
    static struct scene s;
    berth_err err = { 0 };
    s = (struct scene) { 0 };
    rig_open(&s.r, "cpu=1g");
    rig_preset(&s.r, "checkpoints/sd15.safetensors", "sd15-tiny");
    assert_ok(rig_run(&s.r, &s.ckpt, "CheckpointLoaderSimple",
                      "{\"ckpt_name\": \"sd15.safetensors\"}", &err),
              err);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    call_release(&s->ckpt);
    rig_close(&s->r);
    return 0;
}

static struct value *tensor(int ndim, const uint64_t *dims)
{
    struct shape s = { .ndim = ndim };
    struct htensor *t;
    berth_err err = { 0 };
    memcpy(s.dim, dims, (size_t)ndim * sizeof *dims);
    assert_ok(htensor_new(&s, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)(i * 31 % 101) / 100;
    return value_tensor(t);
}

static struct value *latent(uint64_t n, uint64_t c, uint64_t h, uint64_t w)
{
    struct value *v = tensor(4, (uint64_t[]) { n, c, h, w });
    struct latent l = { .samples = htensor_ref(v->tensor) };
    value_unref(v);
    return value_latent(&l);
}

static void make(struct scene *s, struct call *x, const char *cls, const char *inputs,
                 const char *name, struct value *taken)
{
    rig_call(&s->r, x, cls, inputs);
    call_give(x, "vae", s->ckpt.out[2].at[0]);
    call_give(x, name, taken);
    value_unref(taken);
}

static void run(struct call *x)
{
    berth_err err = { 0 };
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static void expect_shape(const struct htensor *t, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    struct shape s = { .ndim = 4, .dim = { a, b, c, d } };
    char text[SHAPE_TEXT_MAX];
    if (!shape_eq(&s, &t->shape))
        fail_msg("shape %s", shape_text(&t->shape, text));
}

static double furthest(const struct htensor *a, const struct htensor *b)
{
    double off = 0;
    assert_true(shape_eq(&a->shape, &b->shape));
    for (size_t i = 0; i < htensor_count(a); i++)
        off = fmax(off, fabs((double)a->data[i] - (double)b->data[i]));
    return off;
}

static void there_and_back(void **state)
{
    struct scene *s = *state;
    struct call x, y;
    make(s, &x, "VAEEncode", "{}", "pixels", tensor(4, (uint64_t[]) { 2, 35, 50, 4 }));
    run(&x);
    expect_shape(x.out[0].at[0]->latent.samples, 2, 4, 4, 6); /* cut to 32 x 48 */
    make(s, &y, "VAEDecode", "{}", "samples", value_ref(x.out[0].at[0]));
    run(&y);
    expect_shape(y.out[0].at[0]->tensor, 2, 32, 48, 3);
    for (size_t i = 0; i < htensor_count(y.out[0].at[0]->tensor); i++) {
        float v = y.out[0].at[0]->tensor->data[i];
        assert_true(v >= 0 && v <= 1);
    }
    call_release(&x);
    call_release(&y);
}

struct told { /* by the host of a call */
    char text[80];
    json_t *network; /* the last one's */
};

static void hear_text(void *user, const char *s, size_t n)
{
    struct told *t = user;
    if (!strncmp(s, "in ", 3)) /* others are about loading */
        snprintf(t->text, sizeof t->text, "%.*s", (int)n, s);
}

static void hear_network(void *user, json_t *taken)
{
    struct told *t = user;
    json_decref(t->network);
    t->network = taken;
}

/* Tiles nobody asked for are told while it works and in the history, where they count as a rung; a
 * whole picture has none of it. */
static void expect_told(struct told *t, const char *what, bool tiles)
{
    long long n = json_integer_value(json_object_get(t->network, "tiles"));
    char text[80];
    snprintf(text, sizeof text, "in %lld tiles for want of memory", n);
    assert_string_equal(json_string_value(json_object_get(t->network, "what")), what);
    assert_int_equal(n > 1, tiles);
    assert_int_equal(json_object_get(t->network, "tiles") != NULL, tiles);
    assert_string_equal(t->text, tiles ? text : "");
    if (tiles)
        assert_true(json_integer_value(json_object_get(t->network, "passes")) >= n);
    assert_int_equal(json_integer_value(json_object_get(t->network, "rungs")) > 0, tiles);
    json_decref(t->network);
    *t = (struct told) { 0 };
}

/* One tile is the whole; several come near it, and say how far they are. */
static void in_tiles(void **state)
{
    struct scene *s = *state;
    struct call whole, one, many, e, et;
    struct told told = { .text = "" };
    make(s, &whole, "VAEDecode", "{}", "samples", latent(1, 4, 12, 20));
    run(&whole);
    make(s, &one, "VAEDecodeTiled", "{\"tile_size\": 512}", "samples", latent(1, 4, 12, 20));
    run(&one);
    assert_true(furthest(whole.out[0].at[0]->tensor, one.out[0].at[0]->tensor) < 1e-5);
    make(s, &many, "VAEDecodeTiled", "{\"tile_size\": 64, \"overlap\": 64}", "samples",
         latent(1, 4, 12, 20)); /* overlap becomes 16 pixels */
    many.host = (struct node_host) { .user = &told, .text = hear_text, .network = hear_network };
    run(&many);
    expect_told(&told, "decode", false); /* somebody asked for them */
    expect_shape(many.out[0].at[0]->tensor, 1, 96, 160, 3);
    make(s, &e, "VAEEncode", "{}", "pixels", tensor(4, (uint64_t[]) { 1, 64, 96, 3 }));
    run(&e);
    make(s, &et, "VAEEncodeTiled", "{\"tile_size\": 512}", "pixels",
         tensor(4, (uint64_t[]) { 1, 64, 96, 3 }));
    run(&et);
    assert_true(furthest(e.out[0].at[0]->latent.samples, et.out[0].at[0]->latent.samples) < 1e-4);
    struct call *const all[] = { &whole, &one, &many, &e, &et };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
}

/* A device too small for a whole pass: pieces, and a picture all the same. */
static void pieces_where_there_is_no_room(void **state)
{
    struct rig r;
    struct call ckpt, x, y;
    berth_err err = { 0 };
    static const char *const device[2] = { "cpu", "cuda:0" };
    struct htensor *picture[2];
    struct told told = { .text = "" };
    const struct node_host host = { .user = &told, .text = hear_text, .network = hear_network };
    (void)state;
    rig_open(&r, "cpu=1g,cuda:0@cpu=24m");
    rig_preset(&r, "checkpoints/sd15.safetensors", "sd15-tiny");
    for (size_t i = 0; i < 2; i++) {
        char inputs[160];
        snprintf(inputs, sizeof inputs,
                 "{\"ckpt_name\": \"sd15.safetensors\", \"unet_device\": \"cpu\", \"clip_device\": "
                 "\"cpu\", \"vae_device\": \"%s\"}",
                 device[i]);
        assert_ok(rig_run(&r, &ckpt, "CheckpointLoaderAdvancedMultiGPU", inputs, &err), err);
        struct value *z = latent(1, 4, 48, 40);
        rig_call(&r, &x, "VAEDecode", "{}");
        call_give(&x, "vae", ckpt.out[2].at[0]);
        call_give(&x, "samples", z);
        value_unref(z);
        x.host = host;
        run(&x);
        expect_told(&told, "decode", i == 1);
        picture[i] = htensor_ref(x.out[0].at[0]->tensor);
        rig_call(&r, &y, "VAEEncode", "{}"); /* and the way back */
        call_give(&y, "vae", ckpt.out[2].at[0]);
        call_give(&y, "pixels", x.out[0].at[0]);
        y.host = host;
        run(&y);
        expect_told(&told, "encode", i == 1);
        expect_shape(y.out[0].at[0]->latent.samples, 1, 4, 48, 40);
        call_release(&x);
        call_release(&y);
        call_release(&ckpt);
    }
    expect_shape(picture[1], 1, 384, 320, 3);
    double off = furthest(picture[0], picture[1]);
    print_message("pieces are %.3g off\n", off);
    assert_true(off > 0); /* attention of a piece sees the piece */
    htensor_unref(picture[0]);
    htensor_unref(picture[1]);
    rig_close(&r);
}

struct heard {
    char predicted[2][200];
    int n;
};

static void hear(void *user, enum log_level level, uint64_t ns, const char *event, const char *text)
{
    struct heard *h = user;
    (void)level, (void)ns;
    if (!strcmp(event, "node.predict") && h->n < 2)
        snprintf(h->predicted[h->n++], sizeof h->predicted[0], "%s", text);
    if (!strcmp(event, "node.vae")) /* told before it ran */
        assert_true(h->n > 0);
}

/* What a pass will take is told before it runs, and is what it takes. */
static void peaks_are_told_before(void **state)
{
    struct scene *s = *state;
    struct call x;
    struct heard h = { .n = 0 };
    const struct log log = { .level = LOG_INFO, .write = hear, .user = &h }, *was = s->r.env.log;
    s->r.env.log = &log;
    make(s, &x, "VAEDecode", "{}", "samples", latent(2, 4, 8, 8));
    run(&x);
    call_release(&x);
    make(s, &x, "VAEEncode", "{}", "pixels", tensor(4, (uint64_t[]) { 1, 64, 64, 3 }));
    run(&x);
    call_release(&x);
    s->r.env.log = was;
    assert_int_equal(h.n, 2);
    if (!strstr(h.predicted[0], "model=sd15 what=decode batch=2 peak=") ||
        !strstr(h.predicted[1], "model=sd15 what=encode batch=1 peak=") ||
        strstr(h.predicted[0], "peak=0"))
        fail_msg("told '%s' and '%s'", h.predicted[0], h.predicted[1]);
}

static void wrong_things_are_refused(void **state)
{
    struct scene *s = *state;
    struct call x;
    berth_err err = { 0 };
    make(s, &x, "VAEDecode", "{}", "samples", latent(1, 16, 8, 8));
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_EINVAL);
    assert_non_null(
        strstr(err.msg, "[1, 16, 8, 8]; 'sd15' is a VAE of the SD1, SD2 and SDXL kind"));
    call_release(&x);
    make(s, &x, "VAEEncode", "{}", "pixels", tensor(4, (uint64_t[]) { 1, 7, 64, 3 }));
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_EINVAL);
    call_release(&x);
    make(s, &x, "VAEEncode", "{}", "pixels", tensor(4, (uint64_t[]) { 1, 16, 16, 1 }));
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_EINVAL);
    call_release(&x);
    assert_int_equal(res_info(call_model(&s->ckpt, 2)->part[0]).uses, 0);
}

/* ---- inpainting ---- */

/* 1 in rows [y, y + n) and columns [x, x + n) of 24 x 32. */
static struct value *square(size_t y, size_t x, size_t n)
{
    struct value *v = tensor(3, (uint64_t[]) { 1, 24, 32 });
    for (size_t i = 0; i < 24 * 32; i++)
        v->tensor->data[i] = i / 32 >= y && i / 32 < y + n && i % 32 >= x && i % 32 < x + n;
    return v;
}

/* A square of 2 pixels at (10, 12), grown by 6: 2 before and 3 behind in each direction, as the
 * reference's even kernel does; by 0: itself; by 1: itself. */
static void masks_grow(void **state)
{
    static const struct {
        int grow;
        size_t from, n;
    } row[] = { { 0, 0, 2 }, { 1, 0, 2 }, { 6, 2, 7 }, { 5, 2, 6 } };
    struct scene *s = *state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call x;
        char inputs[64];
        snprintf(inputs, sizeof inputs, "{\"grow_mask_by\": %d}", row[i].grow);
        make(s, &x, "VAEEncodeForInpaint", inputs, "pixels",
             tensor(4, (uint64_t[]) { 1, 24, 32, 3 }));
        struct value *mask = square(10, 12, 2);
        call_give(&x, "mask", mask);
        value_unref(mask);
        run(&x);
        const struct latent *l = &x.out[0].at[0]->latent;
        expect_shape(l->samples, 1, 4, 3, 4);
        expect_shape(l->noise_mask, 1, 1, 24, 32);
        size_t y0 = 10 - row[i].from, x0 = 12 - row[i].from;
        for (size_t k = 0; k < 24 * 32; k++) {
            bool in =
                k / 32 >= y0 && k / 32 < y0 + row[i].n && k % 32 >= x0 && k % 32 < x0 + row[i].n;
            if (l->noise_mask->data[k] != (in ? 1.0f : 0.0f))
                fail_msg("grown by %d: (%zu, %zu) is %g", row[i].grow, k / 32, k % 32,
                         (double)l->noise_mask->data[k]);
        }
        call_release(&x);
    }
}

static struct value *any_prompt(void)
{
    struct value *t = tensor(3, (uint64_t[]) { 1, 2, 4 });
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(conditioning_new(htensor_ref(t->tensor), NULL, &x, &err), err);
    value_unref(t);
    return value_object(&type_conditioning, x);
}

/* The latent is of the whole picture; conditionings carry the masked one and the mask. */
static void models_for_inpainting(void **state)
{
    struct scene *s = *state;
    struct call x, plain;
    struct value *mask = square(0, 0, 16), *prompt = any_prompt();
    make(s, &plain, "VAEEncode", "{}", "pixels", tensor(4, (uint64_t[]) { 1, 24, 32, 3 }));
    run(&plain);
    make(s, &x, "InpaintModelConditioning", "{}", "pixels",
         tensor(4, (uint64_t[]) { 1, 24, 32, 3 }));
    call_give(&x, "mask", mask);
    call_give(&x, "positive", prompt);
    call_give(&x, "negative", prompt);
    run(&x);
    for (size_t i = 0; i < 2; i++) {
        const struct conditioning *c = x.out[i].at[0]->object.obj;
        assert_non_null(c->at[0].concat_mask);
        expect_shape(c->at[0].concat_latent, 1, 4, 3, 4);
        assert_true(furthest(c->at[0].concat_latent, plain.out[0].at[0]->latent.samples) > 1e-3);
    }
    const struct latent *l = &x.out[2].at[0]->latent;
    assert_true(furthest(l->samples, plain.out[0].at[0]->latent.samples) == 0);
    assert_non_null(l->noise_mask);
    value_unref(mask);
    value_unref(prompt);
    call_release(&x);
    call_release(&plain);
}

/* Masks that belong to other pictures are refused, and what was made before that is let go of once:
 * a second release of the scaled mask took memory from under others. */
static void masks_for_other_pictures(void **state)
{
    static const char *const nodes[] = { "VAEEncodeForInpaint", "InpaintModelConditioning" };
    struct scene *s = *state;
    struct value *prompt = any_prompt();
    for (size_t i = 0; i < 2 * ARRAY_LEN(nodes); i++) {
        struct call x;
        berth_err err = { 0 };
        make(s, &x, nodes[i / 2], "{}", "pixels", tensor(4, (uint64_t[]) { 4, 24, 35, 3 }));
        struct value *mask = tensor(3, (uint64_t[]) { 3, 8 + i, 9 });
        call_give(&x, "mask", mask);
        value_unref(mask);
        for (size_t k = 0; i / 2 && k < 2; k++)
            call_give(&x, k ? "negative" : "positive", prompt);
        assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL, "3 masks for 4 pictures");
        call_release(&x);
    }
    value_unref(prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(in_tiles),
        cmocka_unit_test(pieces_where_there_is_no_room),
        cmocka_unit_test(wrong_things_are_refused),
        cmocka_unit_test(peaks_are_told_before),
        cmocka_unit_test(masks_grow),
        cmocka_unit_test(models_for_inpainting),
        cmocka_unit_test(masks_for_other_pictures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
