/* Pictures of ComfyUI 0.33, what golden numbers do not show: files, ui, inputs that do not fit. */
#include "base/file.h"
#include "paths/paths.h"
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

/* ui[key][i].filename */
static const char *shown(struct node_rig *r, const char *key, size_t i)
{
    const char *s = json_string_value(
        json_object_get(json_array_get(json_object_get(r->call.ui, key), i), "filename"));
    if (!s)
        fail_msg("no ui.%s[%zu]", key, i);
    return s;
}

static char *read_file(const char *name, size_t *n)
{
    char *p;
    berth_err err;
    assert_ok(file_read_all(tmp_path(name), 1 << 24, &p, n, &err), err);
    return p;
}

static json_t *parse(const char *text)
{
    json_t *j;
    berth_err err;
    assert_ok(js_parse(text, strlen(text), NULL, &j, &err), err);
    return j;
}

static void set_box(struct node_rig *r, const char *box)
{
    rig_set(r, "crop_region", value_json(parse(box)));
}

static void a_box_cuts_and_is_shown(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ImageCropV2");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 2, 3, 1), (float[]) { 0, 1, 2, 3, 4, 5 }));
    set_box(r, "{\"x\": 1, \"y\": 9, \"width\": 7}"); /* inside; as high as there is */
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 1, 2, 1), (float[]) { 4, 5 }, 0);
    assert_memory_equal(shown(r, "images", 0), "ComfyUI_temp_", 13);
    assert_true(json_is_false(json_array_get(json_object_get(r->call.ui, "animated"), 0)));

    static const struct {
        const char *box, *why;
    } bad[] = { { "{\"width\": 0}", "a part of 0x2 of a picture of 3x2" },
                { "{\"x\": -1}", "'x' is -1" },
                { "{\"y\": \"a\"}", "'y' is no number" },
                { "[1]", "wants a box" } };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        rig_node(r, "ImageCropV2");
        rig_set(r, "image", rig_tensor(SHAPE4(1, 2, 3, 1), NULL));
        set_box(r, bad[i].box);
        assert_fails(rig_run(r), r->err, BERTH_EINVAL, bad[i].why);
    }
}

static void comparing_shows_both_sides(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ImageCompare");
    rig_set(r, "image_a", rig_tensor(SHAPE4(2, 1, 1, 3), NULL));
    assert_ok(rig_run(r), r->err);
    assert_memory_equal(shown(r, "a_images", 1), "comfy.compare.a_temp_", 21);
    assert_non_null(strstr(shown(r, "a_images", 1), "_00002_.png"));
    const json_t *none = json_object_get(r->call.ui, "b_images");
    assert_true(json_is_array(none) && json_array_size(none) == 0);
}

static void masks_are_shown_grey(void **state)
{
    struct node_rig *r = *state;
    char name[128];
    size_t n;
    struct image_file f;
    rig_node(r, "MaskPreview");
    rig_set(r, "mask", rig_tensor(SHAPE3(1, 1, 2), (float[]) { 0.5f, 1 }));
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE3(1, 1, 2), (float[]) { 0.5f, 1 }, 0);
    snprintf(name, sizeof name, "temp/%s", shown(r, "images", 0));
    char *p = read_file(name, &n);
    assert_ok(image_decode((const uint8_t *)p, n, NULL, &f, &r->err), r->err);
    assert_memory_equal(f.frame[0].px, ((uint8_t[]) { 127, 127, 127, 255, 255, 255 }), 6);
    image_file_release(&f);
    free(p);
}

/* ---- SaveImageAdvanced ---- */

static void save_as(struct node_rig *r, const char *format, const char *depth, const char *space,
                    size_t channels, const float *px)
{
    rig_node(r, "SaveImageAdvanced");
    rig_set(r, "images", rig_tensor(SHAPE4(1, 1, 2, channels), px));
    rig_text(r, "filename_prefix", "adv");
    rig_text(r, "format", format);
    rig_text(r, "format.bit_depth", depth);
    rig_text(r, "format.input_color_space", space);
}

static void advanced_pngs_have_their_depth(void **state)
{
    struct node_rig *r = *state;
    float px[] = { 0, 0.5f, 1, 2, -1, 0.25f };
    size_t n;
    save_as(r, "png", "16-bit", "sRGB", 3, px);
    assert_ok(rig_run(r), r->err);
    assert_string_equal(shown(r, "images", 0), "adv_00001.png");
    assert_ptr_equal(rig_out(r, 0)->tensor, r->in[0].at[0]->tensor);
    char *p = read_file("output/adv_00001.png", &n);
    assert_int_equal(p[24], 16); /* bits, and RGB */
    assert_int_equal(p[25], 2);
    struct image_file f;
    assert_ok(image_decode((const uint8_t *)p, n, NULL, &f, &r->err), r->err);
    assert_memory_equal(f.frame[0].px, ((uint8_t[]) { 0, 127, 255, 255, 0, 63 }), 6);
    image_file_release(&f);
    free(p);
    save_as(r, "png", "8-bit", "sRGB", 3, px); /* the counter sees names without an end */
    assert_ok(rig_run(r), r->err);
    assert_string_equal(shown(r, "images", 0), "adv_00002.png");
    p = read_file("output/adv_00002.png", &n);
    assert_int_equal(p[24], 8);
    free(p);
    save_as(r, "png", "8-bit", "sRGB", 2, px);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL,
                 "No png/8-bit encoder for 2-channel images: supported channel counts");
}

static float float_at(const char *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void exr_is_linear(void **state)
{
    struct node_rig *r = *state;
    json_t *prompt = parse("{\"1\": 2}");
    float px[] = { 0.02f, 0.5f, 3, 0.7f, 0.1f, -1, 0.25f, 0.9f };
    static const struct {
        const char *space;
        double red, green; /* of 0.02 and 0.5 */
    } t[] = { { "sRGB", 0.02 / 12.92, 0.21404114 },
              { "HDR", 0.02 * 0.02 / 3, 0.25 / 3 },
              { "linear", 0.02, 0.5 } };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        char name[64];
        size_t n;
        save_as(r, "exr", "32-bit float", t[i].space, 4, px);
        r->call.prompt = prompt;
        assert_ok(rig_run(r), r->err);
        snprintf(name, sizeof name, "output/%s", shown(r, "images", 0));
        char *p = read_file(name, &n);
        assert_memory_equal(p, "\x76\x2f\x31\x01\x02\0\0\0channels\0chlist", 23);
        assert_memory_equal(memmem(p, n, "prompt\0string", 14),
                            "prompt\0string\0\x08\0\0\0{\"1\": 2}", 26);
        const char *colors = memmem(p, n, "chromaticities\0chromaticities", 30);
        assert_true(fabs((double)float_at(colors + 34) - (i == 1 ? 0.708 : 0.64)) < 1e-6);
        const char *line = p + n - 40; /* y, bytes, then A, B, G, R of two pixels */
        assert_int_equal(line[4], 32);
        assert_true(float_at(line + 8) == 0.7f && float_at(line + 12) == 0.9f);
        assert_true(fabs((double)float_at(line + 24) - t[i].green) < 1e-6);
        assert_true(fabs((double)float_at(line + 32) - t[i].red) < 1e-7);
        const char *table = line - 8; /* of one line */
        assert_int_equal((size_t)(uint8_t)table[0] + 256u * (uint8_t)table[1], n - 40);
        free(p);
    }
    json_decref(prompt);
}

/* ---- files from browsers ---- */

static void put_picture(const char *name, uint32_t w, uint32_t h, unsigned channels,
                        const uint8_t *px)
{
    struct image im = { .w = w, .h = h, .channels = channels };
    struct image_png_args args = { .level = 1 };
    struct str out = { 0 };
    berth_err err;
    im.px = (uint8_t *)(uintptr_t)px;
    assert_ok(image_png(&im, &args, &out, &err), err);
    assert_ok(path_make_dirs(tmp_path("input"), &err), err);
    tmp_write(name, str_c(&out), out.n);
    str_release(&out);
}

static void drawings_lie_over_pictures(void **state)
{
    struct node_rig *r = *state;
    put_picture("input/drawing.png", 2, 1, 4, (uint8_t[]) { 255, 0, 0, 255, 0, 255, 0, 51 });
    rig_node(r, "Painter");
    rig_set(r, "image", rig_tensor(SHAPE4(2, 1, 2, 3), (float[12]) { 1, 1, 1, 1, 1, 1 }));
    rig_text(r, "mask", "drawing.png");
    assert_ok(rig_run(r), r->err);
    float want[] = { 1, 0, 0, 0.8f, 1, 0.8f };
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 1, 2, 3), want, 1e-6f);
    rig_expect(rig_out(r, 1)->tensor, SHAPE3(1, 1, 2), (float[]) { 1, 0.2f }, 1e-6f);
    assert_non_null(shown(r, "images", 0));

    rig_node(r, "Painter"); /* nothing drawn, nothing below: a colour */
    rig_text(r, "mask", " ");
    rig_int(r, "width", 1);
    rig_int(r, "height", 1);
    rig_text(r, "bg_color", "#ff0080");
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 1, 1, 3), (float[]) { 1, 0, 128 / 255.0f }, 1e-6f);
    rig_expect(rig_out(r, 1)->tensor, SHAPE3(1, 1, 1), (float[]) { 0 }, 0);

    rig_node(r, "Painter");
    rig_text(r, "mask", "gone.png");
    assert_fails(rig_run(r), r->err, BERTH_ENOTFOUND, "drawing 'gone.png'");
}

static void drawings_are_known_by_their_bytes(void **state)
{
    struct node_rig *r = *state;
    struct str first = { 0 }, again = { 0 };
    json_t *inputs = parse("{\"mask\": \"drawing.png\"}"), *blank = parse("{\"mask\": \"\"}");
    struct node_check k = { .env = &r->env, .cls = node_find("Painter"), .inputs = inputs };
    put_picture("input/drawing.png", 1, 1, 3, (uint8_t[]) { 1, 2, 3 });
    assert_ok(k.cls->changed(&k, &first, &r->err), r->err);
    put_picture("input/drawing.png", 1, 1, 3, (uint8_t[]) { 1, 2, 4 });
    assert_ok(k.cls->changed(&k, &again, &r->err), r->err);
    assert_true(first.n == 64 && strcmp(str_c(&first), str_c(&again)) != 0);
    str_clear(&first);
    k.inputs = blank;
    assert_ok(k.cls->changed(&k, &first, &r->err), r->err);
    assert_int_equal(first.n, 0);
    str_release(&first);
    str_release(&again);
    json_decref(inputs);
    json_decref(blank);
}

static void webcams_give_one_picture(void **state)
{
    struct node_rig *r = *state;
    put_picture("input/cam.png", 1, 1, 3, (uint8_t[]) { 255, 0, 51 });
    rig_node(r, "WebcamCapture");
    rig_text(r, "image", "cam.png");
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 1, 1, 3), (float[]) { 1, 0, 0.2f }, 1e-6f);
}

static void svgs_carry_their_prompt(void **state)
{
    struct node_rig *r = *state;
    json_t *prompt = parse("{\"1\": 2}");
    size_t n;
    rig_node(r, "SaveSVGNode");
    r->call.prompt = prompt;
    rig_set(r, "svg", value_json(parse("[\"<a/><svg x='1'><svg></svg></svg>\", \"plain\"]")));
    assert_ok(rig_run(r), r->err);
    assert_string_equal(shown(r, "images", 1), "ComfyUI_00002_.svg");
    char *p = read_file("output/svg/ComfyUI_00001_.svg", &n);
    static const char head[] = "<a/><svg x='1'>\n  <metadata>\n                <![CDATA[\n"
                               "            {\n  \"prompt\": {\n    \"1\": 2\n  }\n}\n";
    assert_memory_equal(p, head, sizeof head - 1);
    const char *first = memmem(p, n, "<metadata>", 10); /* each tag has one */
    assert_non_null(memmem(first + 1, n - (size_t)(first + 1 - p), "<metadata>", 10));
    free(p);
    p = read_file("output/svg/ComfyUI_00002_.svg", &n);
    assert_true(n == 5 && !memcmp(p, "plain", 5));
    free(p);
    json_decref(prompt);
    rig_node(r, "SaveSVGNode");
    rig_set(r, "svg", value_json(parse("[7]")));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "item 0 is not a text");

    /* Each of many tags would get the whole prompt. */
    struct str tags = { 0 };
    json_t *large = json_object();
    for (size_t i = 0; i < 40000; i++)
        str_adds(&tags, "<svg>");
    json_object_set_new(large, "text", json_string(str_c(&tags)));
    rig_node(r, "SaveSVGNode");
    r->call.prompt = large;
    rig_text(r, "svg", str_c(&tags));
    assert_fails(rig_run(r), r->err, BERTH_ELIMIT, "larger than 64 MiB");
    atomic_store(&r->cancel, true);
    assert_fails(rig_run(r), r->err, BERTH_ECANCELED, "interrupted");
    atomic_store(&r->cancel, false);
    json_decref(large);
    str_release(&tags);
}

static void curves_are_pairs(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "CurveEditor");
    rig_set(r, "curve", value_json(parse("{\"points\": [[0, 0.5], [1, 1]]}")));
    rig_set(r, "histogram", value_json(parse("[3, 4]")));
    assert_ok(rig_run(r), r->err);
    assert_int_equal(json_array_size(json_object_get(r->call.ui, "histogram")), 2);
    static const char *const bad[] = { "{}", "{\"points\": [[1]]}", "[[1, \"a\"]]" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        rig_node(r, "CurveEditor");
        rig_set(r, "curve", value_json(parse(bad[i])));
        assert_fails(rig_run(r), r->err, BERTH_EINVAL, "'curve'");
    }
}

/* ---- text and boxes ---- */

/* Rows of an output picture that are not as `v`: the first and the last; false: none. */
static bool rows_other(const struct htensor *t, float v, size_t rows[2])
{
    bool any = false;
    size_t row = (size_t)(t->shape.dim[2] * t->shape.dim[3]);
    for (size_t i = 0; i < htensor_count(t); i++)
        if (t->data[i] != v) {
            rows[0] = any ? rows[0] : i / row;
            rows[1] = i / row;
            any = true;
        }
    return any;
}

static void overlay(struct node_rig *r, const char *text, const char *position, bool outline)
{
    static float grey[100 * 120 * 3];
    for (size_t i = 0; i < ARRAY_LEN(grey); i++)
        grey[i] = 0.5f;
    rig_node(r, "TextOverlay");
    rig_set(r, "images", rig_tensor(SHAPE4(1, 100, 120, 3), grey));
    rig_text(r, "text", text);
    rig_text(r, "position", position);
    rig_text(r, "color", "#ff0000");
    rig_float(r, "font_size", 12);
    rig_bool(r, "outline", outline);
    assert_ok(rig_run(r), r->err);
}

/* n times a part, over a picture; BERTH_OK, or what stopped it. */
static berth_status overlay_many(struct node_rig *r, const char *part, size_t n, double size)
{
    struct str text = { 0 };
    for (size_t i = 0; i < n; i++)
        str_adds(&text, part);
    rig_node(r, "TextOverlay");
    rig_set(r, "images", rig_tensor(SHAPE4(1, 100, 120, 3), NULL));
    rig_text(r, "text", str_c(&text));
    rig_float(r, "font_size", size);
    str_release(&text);
    return rig_run(r);
}

static void long_texts_end(void **state)
{
    struct node_rig *r = *state;
    assert_fails(overlay_many(r, "a", 200000, 5), r->err, BERTH_ELIMIT, "200000 bytes");
    assert_ok(overlay_many(r, "a", 60000, 5), r->err); /* one word */
    assert_ok(overlay_many(r, "a word ", 9000, 50),
              r->err); /* smaller until lines are few enough */
    assert_fails(overlay_many(r, "\n.", 5000, 5), r->err, BERTH_ELIMIT, "more than 4096 lines");
    atomic_store(&r->cancel, true);
    assert_fails(overlay_many(r, "a", 10, 5), r->err, BERTH_ECANCELED, "interrupted");
    atomic_store(&r->cancel, false);
}

static void text_lies_over_pictures(void **state)
{
    struct node_rig *r = *state;
    size_t top[2], low[2], two[2];
    overlay(r, "Ay", "top", false);
    assert_true(rows_other(rig_out(r, 0)->tensor, 0.5f, top));
    assert_true(top[0] == 1 && top[1] < 20); /* flush with the margin */
    const float *px = rig_out(r, 0)->tensor->data;
    bool red = false, black = false;
    for (size_t i = 0; i < 100 * 120; i++, px += 3)
        red = red || (px[0] > 0.7f && px[1] < 0.25f && px[2] < 0.25f);
    assert_true(red);
    overlay(r, "Ay", "bottom", true);
    assert_true(rows_other(rig_out(r, 0)->tensor, 0.5f, low));
    assert_true(low[1] == 98 && low[0] > 75);
    px = rig_out(r, 0)->tensor->data;
    for (size_t i = 0; i < 100 * 120; i++, px += 3)
        black = black || (px[0] == 0 && px[1] == 0 && px[2] == 0);
    assert_true(black);
    overlay(r, "Ay\\nAy", "top", false);
    assert_true(rows_other(rig_out(r, 0)->tensor, 0.5f, two));
    assert_int_equal(two[1] - top[1], 14); /* 1.2 * 12, in whole pixels */
    overlay(r,
            "many words that do not fit into a line of a hundred and twenty pixels at all, and "
            "aWordThatIsLongerThanAnyLineCouldBe besides",
            "top", true);
    assert_true(rows_other(rig_out(r, 0)->tensor, 0.5f, two));
    assert_true(two[1] <= 99);
    overlay(r, " \t", "top", true);
    assert_false(rows_other(rig_out(r, 0)->tensor, 0.5f, two));
    rig_node(r, "TextOverlay");
    rig_set(r, "images", rig_tensor(SHAPE4(1, 4, 4, 3), NULL));
    rig_text(r, "text", "x");
    rig_text(r, "color", "#12");
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "unknown color specifier: '#12'");
}

static void boxes_are_drawn(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "CreateBoundingBoxes");
    rig_int(r, "width", 64);
    rig_int(r, "height", 64);
    rig_set(r, "editor_state",
            value_json(parse("[{\"x\": 20, \"y\": 30, \"width\": 40, \"height\": 30, \"metadata\":"
                             " {\"palette\": [\"#ff0000\"], \"desc\": \"a b\"}}]")));
    assert_ok(rig_run(r), r->err);
    const struct htensor *t = rig_out(r, 0)->tensor;
    const float *corner = t->data + (59 * 64 + 60) * 3, *out = t->data + (29 * 64 + 20) * 3;
    assert_true(corner[0] == 1 && corner[1] == 0 && corner[2] == 0);
    assert_true(fabsf(out[0] - 32 / 255.0f) < 1e-6f);
    assert_int_equal(json_array_size(json_object_get(r->call.ui, "dims")), 2);

    static const struct {
        const char *text, *why;
    } bad[] = { { "{\"x\": 1}", "bboxes dict must be a bounding box" },
                { "[3]", "bboxes items must be" },
                { "{", "not valid JSON" },
                { "[{\"bbox\": [1, 2, 3, \"a\"]}]", "four numbers" },
                { "[{\"bbox\": [1, 2, 3, 4]}, {\"bbox\": 1}]", "missing a valid 'bbox'" },
                { "[{\"x\": \"a\", \"y\": 1, \"width\": 1, \"height\": 1}]",
                  "'x' is not a number" } };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        rig_node(r, "CreateBoundingBoxes");
        rig_text(r, "bboxes", bad[i].text);
        assert_fails(rig_run(r), r->err, BERTH_EINVAL, bad[i].why);
    }
}

/* ---- layers ---- */

/* AddLayer of n pictures of 2x2; a reference. */
static struct value *layer_of(struct node_rig *r, size_t n)
{
    rig_node(r, "AddLayer");
    rig_set(r, "image", rig_tensor(SHAPE4(n, 2, 2, 3), NULL));
    rig_text(r, "name", "mine");
    rig_int(r, "x", 1);
    assert_ok(rig_run(r), r->err);
    return value_ref(rig_out(r, 0));
}

/* One pixel, drawn large, of which a corner lies on the canvas. */
static berth_status compose_large(struct node_rig *r, int64_t side, double degrees, int64_t at)
{
    rig_node(r, "AddLayer");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 1, 3), NULL));
    rig_int(r, "width", side);
    rig_int(r, "height", side);
    rig_int(r, "x", at);
    rig_int(r, "y", at);
    rig_float(r, "rotation", degrees);
    assert_ok(rig_run(r), r->err);
    struct value *layers = value_ref(rig_out(r, 0));
    rig_node(r, "ImageCompositor");
    rig_set(r, "layers", layers);
    return rig_run(r);
}

static void layers_far_larger_than_the_canvas(void **state)
{
    struct node_rig *r = *state;
    assert_fails(compose_large(r, 16384, 0, -16320), r->err, BERTH_ELIMIT,
                 "a layer of 16384x16384 pixels is too large for a canvas of 64x64");
    assert_fails(compose_large(r, 16384, 10, -16320), r->err, BERTH_ELIMIT, "16384x16384");
    assert_ok(compose_large(r, 512, 10, -448), r->err);
}

static void layers_are_shown_to_the_editor(void **state)
{
    struct node_rig *r = *state;
    struct value *layers = layer_of(r, 2);
    rig_node(r, "ImageCompositor");
    rig_set(r, "layers", value_ref(layers));
    rig_set(r, "compositor", value_json(parse("{\"inputs\": [\"of\", \"others\"]}")));
    assert_ok(rig_run(r), r->err);
    assert_int_equal(rig_out(r, 0)->tensor->shape.dim[2], 3);
    assert_int_equal(rig_out(r, 0)->tensor->shape.dim[3], 4); /* its left column is empty */
    assert_true(rig_out(r, 1)->tensor->data[0] == 1 && rig_out(r, 1)->tensor->data[1] == 0);
    assert_non_null(shown(r, "compositor_layers", 1));
    assert_int_equal(json_array_size(json_object_get(r->call.ui, "compositor_inputs")), 2);
    const json_t *box = json_array_get(json_object_get(r->call.ui, "compositor_bboxes"), 0);
    assert_string_equal(json_string_value(json_object_get(box, "name")), "mine");
    assert_int_equal(json_integer_value(json_object_get(box, "x")), 1);
    assert_non_null(json_object_get(r->call.ui, "compositor_state_stale"));
    value_unref(layers);

    layers = layer_of(r, 51);
    rig_node(r, "ImageCompositor");
    rig_set(r, "layers", layers);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "at most 50 layers");
    rig_node(r, "ImageCompositor"); /* nothing to compose */
    assert_ok(rig_run(r), r->err);
    assert_int_equal(htensor_count(rig_out(r, 0)->tensor), 64 * 64 * 3);
    rig_node(r, "AddLayer");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 1, 3), NULL));
    rig_set(r, "layers", value_string("x", 1));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "'layers' is not a stack of layers");
}

/* ---- what does not fit ---- */

static void sizes_that_leave_nothing(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ResizeAndPadImage");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 100, 3), NULL));
    rig_int(r, "target_width", 10);
    rig_int(r, "target_height", 10);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "nothing is left of 100x1");
    rig_node(r, "ImageStitch");
    rig_set(r, "image1", rig_tensor(SHAPE4(1, 2, 2, 3), NULL));
    rig_set(r, "image2", rig_tensor(SHAPE4(1, 100, 3, 3), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "a size of 0x2");
    rig_node(r, "ResizeImageMaskNode");
    rig_set(r, "input", rig_tensor(SHAPE3(1, 3, 3), NULL));
    rig_text(r, "resize_type", "scale by multiplier");
    rig_float(r, "resize_type.multiplier", 0.01);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "nothing is left of 3x3");
    rig_node(r, "ResizeImageMaskNode");
    rig_set(r, "input", rig_latent(SHAPE4(1, 4, 3, 3), NULL));
    rig_text(r, "resize_type", "scale width");
    rig_int(r, "resize_type.width", 3);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "'input' wants MASK and got LATENT");
}

static void batches_that_differ(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "BatchImagesNode"); /* one channel more is not enough */
    rig_set(r, "images.image0", rig_tensor(SHAPE4(1, 1, 1, 4), NULL));
    rig_set(r, "images.image1", rig_tensor(SHAPE4(1, 1, 1, 1), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "[1, 1, 1, 4] and [1, 1, 1, 2]");
    rig_node(r, "BatchMasksNode");
    rig_set(r, "masks.mask0", rig_tensor(SHAPE4(1, 1, 1, 1), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "'mask0' is no MASK but a tensor [1, 1, 1, 1]");
    rig_node(r, "BatchImagesNode");
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "nothing is connected to 'images'");
    rig_node(r, "ImageBlend");
    rig_set(r, "image1", rig_tensor(SHAPE4(2, 1, 1, 3), NULL));
    rig_set(r, "image2", rig_tensor(SHAPE4(3, 1, 1, 3), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "2 pictures cannot be blended with 3");
    rig_node(r, "RebatchImages");
    rig_set(r, "images", rig_tensor(SHAPE4(1, 1, 1, 3), NULL));
    rig_set(r, "images", rig_tensor(SHAPE4(1, 1, 2, 3), NULL));
    rig_int(r, "batch_size", 2);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "[1, 1, 1, 3] and [1, 1, 2, 3]");
    rig_node(r, "PorterDuffImageComposite");
    rig_set(r, "source", rig_tensor(SHAPE4(1, 1, 1, 3), NULL));
    rig_set(r, "source_alpha", rig_tensor(SHAPE3(1, 1, 1), NULL));
    rig_set(r, "destination", rig_tensor(SHAPE4(1, 1, 1, 4), NULL));
    rig_set(r, "destination_alpha", rig_tensor(SHAPE3(1, 1, 1), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "source has 3 channels, destination 4");
}

static void colours_that_are_none(void **state)
{
    struct node_rig *r = *state;
    static const char *const bad[] = { "red", "#12", "#12345", "#gg0000", "#1234567" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        rig_node(r, "ColorToRGBInt");
        rig_text(r, "color", bad[i]);
        assert_fails(rig_run(r), r->err, BERTH_EINVAL, "#RRGGBB or #RRGGBBAA");
    }
    rig_node(r, "ImageRGBToYUV");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 1, 4), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "4 channels is not RGB");
}

static void too_many_tiles(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "SplitImageToTileList");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 3000, 3000, 1), NULL));
    rig_int(r, "tile_width", 1500);
    rig_int(r, "tile_height", 16);
    rig_int(r, "overlap", 4096);
    assert_ok(rig_run(r), r->err);
    assert_int_equal(r->out[0].n, 5 * 747);
    rig_node(r, "SplitImageToTileList");
    rig_set(r, "image", rig_tensor(SHAPE4(1, 1, 1, 1), NULL));
    rig_int(r, "tile_width", 2);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "tiles of 2x1024");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_box_cuts_and_is_shown),
        cmocka_unit_test(comparing_shows_both_sides),
        cmocka_unit_test(masks_are_shown_grey),
        cmocka_unit_test(advanced_pngs_have_their_depth),
        cmocka_unit_test(exr_is_linear),
        cmocka_unit_test(drawings_lie_over_pictures),
        cmocka_unit_test(drawings_are_known_by_their_bytes),
        cmocka_unit_test(webcams_give_one_picture),
        cmocka_unit_test(svgs_carry_their_prompt),
        cmocka_unit_test(curves_are_pairs),
        cmocka_unit_test(text_lies_over_pictures),
        cmocka_unit_test(long_texts_end),
        cmocka_unit_test(boxes_are_drawn),
        cmocka_unit_test(layers_are_shown_to_the_editor),
        cmocka_unit_test(layers_far_larger_than_the_canvas),
        cmocka_unit_test(sizes_that_leave_nothing),
        cmocka_unit_test(batches_that_differ),
        cmocka_unit_test(colours_that_are_none),
        cmocka_unit_test(too_many_tiles),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
