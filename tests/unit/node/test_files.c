/* What nodes write and read: pictures with their prompt, animations, latents, previews. */
#include "base/file.h"
#include "base/sha256.h"
#include "format/weights.h"
#include "support/clock_manual.h"
#include "support/names_has.h"
#include "support/node_rig.h"
#include "support/oom.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHAPE4(a, b, c, d)                                                                         \
    4, (size_t[])                                                                                  \
    {                                                                                              \
        a, b, c, d                                                                                 \
    }

/* ui[key][i].field */
static const char *ui(struct node_rig *r, const char *key, size_t i, const char *field)
{
    const char *s = json_string_value(
        json_object_get(json_array_get(json_object_get(r->call.ui, key), i), field));
    if (!s)
        fail_msg("no ui.%s[%zu].%s", key, i, field);
    return s;
}

static struct image_file decode(const char *path)
{
    struct image_file f;
    char *p;
    size_t n;
    berth_err err;
    assert_ok(file_read_all(path, 1 << 24, &p, &n, &err), err);
    assert_ok(image_decode((const uint8_t *)p, n, NULL, &f, &err), err);
    free(p);
    return f;
}

static json_t *parse(const char *text)
{
    json_t *j;
    berth_err err;
    assert_ok(js_parse(text, strlen(text), NULL, &j, &err), err);
    return j;
}

static void with_prompt(struct node_rig *r, json_t *prompt, json_t *extra)
{
    r->call.prompt = prompt;
    r->call.extra_pnginfo = extra;
}

static void saved_pictures_carry_their_prompt(void **state)
{
    struct node_rig *r = *state;
    json_t *prompt =
        parse("{\"1\":{\"class_type\":\"A\",\"inputs\":{\"t\":\"\xc3\xa9\xf0\x9f\x98\x80"
              "\",\"f\":1.0,\"e\":0.00001,\"n\":18446744073709551615,\"x\":[]}}}");
    json_t *extra = parse("{\"workflow\":{\"nodes\":[1,2]},\"more\":null}");
    float px[] = { 0, 0.5f, 1, 1.5f, -1, 0.999f };
    rig_node(r, "SaveImage");
    with_prompt(r, prompt, extra);
    rig_set(r, "images", rig_tensor(SHAPE4(2, 1, 1, 3), px));
    rig_text(r, "filename_prefix", "sub/a_%width%x%height%_%batch_num%");
    assert_ok(rig_run(r), r->err);
    assert_string_equal(ui(r, "images", 0, "filename"), "a_1x1_0_00001_.png");
    assert_string_equal(ui(r, "images", 1, "filename"), "a_1x1_1_00002_.png");
    assert_string_equal(ui(r, "images", 1, "subfolder"), "sub");
    assert_string_equal(ui(r, "images", 1, "type"), "output");
    struct image_file f = decode(tmp_path("output/sub/a_1x1_1_00002_.png"));
    uint8_t want[] = { 255, 0, 254 }; /* cut, not rounded: 254.745 */
    assert_true(f.w == 1 && f.h == 1 && f.frame[0].channels == 3);
    assert_memory_equal(f.frame[0].px, want, 3);
    assert_int_equal(f.texts, 3);
    assert_string_equal(f.text[0].key, "prompt");
    assert_string_equal(
        f.text[0].value,
        "{\"1\": {\"class_type\": \"A\", \"inputs\": {\"t\": \"\\u00e9\\ud83d\\ude00\", "
        "\"f\": 1.0, \"e\": 1e-05, \"n\": 18446744073709551615, \"x\": []}}}");
    assert_string_equal(f.text[1].key, "workflow");
    assert_string_equal(f.text[1].value, "{\"nodes\": [1, 2]}");
    assert_string_equal(f.text[2].value, "null");
    image_file_release(&f);

    r->env.disable_metadata = true;
    rig_node(r, "SaveImage");
    with_prompt(r, prompt, extra);
    rig_set(r, "images", rig_tensor(SHAPE4(1, 1, 1, 4), px));
    rig_text(r, "filename_prefix", "plain");
    assert_ok(rig_run(r), r->err);
    r->env.disable_metadata = false;
    f = decode(tmp_path("output/plain_00001_.png"));
    assert_true(f.texts == 0 && f.alpha);
    image_file_release(&f);
    json_decref(prompt);
    json_decref(extra);
}

static void nothing_is_overwritten(void **state)
{
    struct node_rig *r = *state;
    for (int i = 0; i < 3; i++) {
        rig_node(r, "SaveImage");
        rig_set(r, "images", rig_tensor(SHAPE4(1, 1, 1, 3), NULL));
        rig_text(r, "filename_prefix", "again");
        assert_ok(rig_run(r), r->err);
    }
    assert_string_equal(ui(r, "images", 0, "filename"), "again_00003_.png");
}

static void a_prefix_stays_inside(void **state)
{
    struct node_rig *r = *state;
    static const char *const bad[] = { "../x", "/etc/x", "a/../../x" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rig_node(r, "SaveImage");
        rig_set(r, "images", rig_tensor(SHAPE4(1, 1, 1, 3), NULL));
        rig_text(r, "filename_prefix", bad[i]);
        assert_int_not_equal(rig_run(r), BERTH_OK);
        assert_null(r->call.ui);
    }
    rig_node(r, "SaveImage");
    rig_set(r, "images", rig_tensor(SHAPE4(1, 1, 1, 2), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "2 channels");
}

static void previews_keep_their_prefix(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "PreviewImage");
    rig_set(r, "images", rig_tensor(SHAPE4(2, 1, 1, 3), NULL));
    assert_ok(rig_run(r), r->err);
    assert_string_equal(ui(r, "images", 0, "type"), "temp");
    char first[64];
    snprintf(first, sizeof first, "%s", ui(r, "images", 0, "filename"));
    assert_int_equal(strlen(first), strlen("ComfyUI_temp_abcde_00001_.png"));
    assert_memory_equal(first, "ComfyUI_temp_", 13);
    for (int i = 13; i < 18; i++)
        assert_in_range(first[i], 'a', 'z');
    clock_manual_advance(&r->clock, 5);
    assert_ok(rig_run(r), r->err); /* the node again: the same letters, the next numbers */
    assert_memory_equal(ui(r, "images", 2, "filename"), first, 18);
    assert_string_equal(ui(r, "images", 2, "filename") + 18, "_00003_.png");
}

static void animations(void **state)
{
    struct node_rig *r = *state;
    json_t *prompt = parse("{\"1\":{}}");
    static const char *const cls[] = { "SaveAnimatedWEBP", "SaveAnimatedPNG" };
    for (size_t i = 0; i < 2; i++) {
        rig_node(r, cls[i]);
        with_prompt(r, prompt, NULL);
        float px[3 * 4 * 4 * 3];
        for (size_t k = 0; k < sizeof px / sizeof *px; k++)
            px[k] = (float)(k / 48) * 0.3f;
        rig_set(r, "images", rig_tensor(SHAPE4(3, 4, 4, 3), px));
        rig_text(r, "filename_prefix", "anim");
        rig_float(r, "fps", 10);
        assert_ok(rig_run(r), r->err);
        const char *name = ui(r, "images", 0, "filename");
        assert_true(json_is_true(json_array_get(json_object_get(r->call.ui, "animated"), 0)));
        char rel[80];
        snprintf(rel, sizeof rel, "output/%s", name);
        struct image_file f = decode(tmp_path(rel));
        if (i == 0) /* every reader of ours shows WebP frames; APNG's first picture is a PNG */
            assert_int_equal(f.frames, 3);
        assert_true(f.w == 4 && f.frame[0].px[0] == 0);
        image_file_release(&f);
    }
    for (size_t i = 0; i < 2; i++) { /* of a still picture not even "animated": [false] */
        rig_node(r, cls[i]);
        rig_set(r, "images", rig_tensor(SHAPE4(1, 1, 1, 3), NULL));
        assert_ok(rig_run(r), r->err);
        assert_non_null(ui(r, "images", 0, "filename"));
        assert_null(json_object_get(r->call.ui, "animated"));
    }
    json_decref(prompt);
}

static void write_png(const char *name, uint32_t w, uint32_t h, unsigned channels, uint8_t first)
{
    struct image im;
    struct str png = { 0 };
    berth_err err;
    assert_ok(image_init(&im, w, h, channels, &err), err);
    for (size_t i = 0; i < (size_t)w * h * channels; i++)
        im.px[i] = (uint8_t)(first + i);
    assert_ok(image_png(&im, &(struct image_png_args) { .level = 1 }, &png, &err), err);
    tmp_write(name, png.p, png.n);
    str_release(&png);
    image_release(&im);
}

static void loaded_pictures_have_masks(void **state)
{
    struct node_rig *r = *state;
    write_png("input/rgba.png", 1, 2, 4, 100);
    rig_node(r, "LoadImage");
    rig_text(r, "image", "rgba.png");
    assert_ok(rig_run(r), r->err);
    float px[] = { 100 / 255.0f, 101 / 255.0f, 102 / 255.0f,
                   104 / 255.0f, 105 / 255.0f, 106 / 255.0f };
    rig_expect(rig_out(r, 0)->tensor, SHAPE4(1, 2, 1, 3), px, 0);
    rig_expect(rig_out(r, 1)->tensor, 3, (size_t[]) { 1, 2, 1 },
               (float[]) { 1 - 103 / 255.0f, 1 - 107 / 255.0f }, 1e-7f);
    write_png("input/grey.png", 2, 1, 1, 50);
    rig_node(r, "LoadImage"); /* no alpha: a mask of nothing, 64 x 64 */
    rig_text(r, "image", "grey.png [input]");
    assert_ok(rig_run(r), r->err);
    rig_expect(
        rig_out(r, 0)->tensor, SHAPE4(1, 1, 2, 3),
        (float[]) { 50 / 255.0f, 50 / 255.0f, 50 / 255.0f, 51 / 255.0f, 51 / 255.0f, 51 / 255.0f },
        0);
    const struct shape want = { .ndim = 3, .dim = { 1, 64, 64 } };
    assert_true(shape_eq(&rig_out(r, 1)->tensor->shape, &want));
    assert_true(rig_out(r, 1)->tensor->data[4095] == 0.0f);
}

static void hear(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                 const char *text)
{
    (void)level, (void)wall_ns, (void)event;
    snprintf(user, 200, "%s", text);
}

/* A cut picture is what there is of it, and a line in the log. */
static void cut_pictures_load(void **state)
{
    struct node_rig *r = *state;
    char said[200] = "", *p;
    const struct log log = { .level = LOG_WARN, .write = hear, .user = said };
    size_t n;
    write_png("input/whole.png", 8, 40, 3, 1);
    assert_ok(file_read_all(tmp_path("input/whole.png"), 1 << 20, &p, &n, &r->err), r->err);
    tmp_write("input/cut.png", p, n - 30);
    free(p);
    r->env.log = &log;
    rig_node(r, "LoadImage");
    rig_text(r, "image", "whole.png");
    assert_ok(rig_run(r), r->err);
    struct htensor *whole = htensor_ref(rig_out(r, 0)->tensor);
    assert_string_equal(said, "");
    rig_node(r, "LoadImage");
    rig_text(r, "image", "cut.png");
    assert_ok(rig_run(r), r->err);
    const struct htensor *t = rig_out(r, 0)->tensor;
    assert_true(shape_eq(&t->shape, &whole->shape));
    assert_memory_equal(t->data, whole->data, 8 * 3 * sizeof(float)); /* the first row */
    assert_true(t->data[8 * 40 * 3 - 1] == 0.0f && whole->data[8 * 40 * 3 - 1] > 0.0f);
    assert_non_null(strstr(said, "cut.png"));
    assert_non_null(strstr(said, "cut short"));
    htensor_unref(whole);
    r->env.log = NULL;
}

/* The list shows what can be read. */
static void listed_pictures_can_be_read(void **state)
{
    struct node_rig *r = *state;
    const struct node_class *c = node_find("LoadImage");
    struct names names = { 0 };
    tmp_write("input/scan.exr", "v/1", 3);
    tmp_write("input/phone.HEIC", "x", 1);
    assert_ok(node_options(&r->env, &c->in[0], &names, &r->err), r->err);
    assert_true(names_has(&names, "rgba.png"));
    assert_false(names_has(&names, "scan.exr"));
    assert_false(names_has(&names, "phone.HEIC"));
    names_release(&names);
}

static void channels_become_masks(void **state)
{
    struct node_rig *r = *state;
    static const struct {
        const char *file, *channel;
        float want;
    } t[] = { { "rgba.png", "alpha", 1 - 103 / 255.0f },
              { "rgba.png", "green", 101 / 255.0f },
              { "grey.png", "blue", 50 / 255.0f },
              { "grey.png", "alpha", 0 } };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        rig_node(r, "LoadImageMask");
        rig_text(r, "image", t[i].file);
        rig_text(r, "channel", t[i].channel);
        assert_ok(rig_run(r), r->err);
        float got = rig_out(r, 0)->tensor->data[0];
        assert_true(got >= t[i].want - 1e-6f && got <= t[i].want + 1e-6f);
        /* without alpha the mask is LoadImage's, of a size of its own */
        assert_true(rig_out(r, 0)->tensor->shape.dim[1] == (i < 2 ? 2 : i == 2 ? 1 : 64));
    }
}

static void animations_become_batches(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "LoadImage");
    rig_text(r, "image", "anim_00001_.webp [output]");
    assert_ok(rig_run(r), r->err);
    const struct htensor *t = rig_out(r, 0)->tensor;
    assert_true(t->shape.dim[0] == 3 && t->shape.dim[1] == 4);
    assert_true(t->data[0] == 0.0f && t->data[48] > 0.2f && t->data[96] > 0.5f); /* lossless */
    assert_int_equal(rig_out(r, 1)->tensor->shape.dim[0], 3);
}

static void broken_and_missing_files(void **state)
{
    struct node_rig *r = *state;
    tmp_write("input/broken.png", "\x89PNG\r\n\x1a\nnothing", 15);
    static const struct {
        const char *name;
        const char *text;
    } t[] = { { "broken.png", "loading 'broken.png'" },
              { "none.png", "none.png" },
              { "../base.png", "../base.png" },
              { "rgba.png [temp]", "rgba.png" } };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        rig_node(r, "LoadImage");
        rig_text(r, "image", t[i].name);
        assert_int_not_equal(rig_run(r), BERTH_OK);
        assert_non_null(strstr(r->err.msg, t[i].text));
        assert_true(r->out[0].n == 0 && r->out[1].n == 0);
    }
}

static void files_are_checked_and_hashed(void **state)
{
    struct node_rig *r = *state;
    json_t *inputs = parse("{\"image\":\"abc.png\"}");
    struct node_check k = {
        .env = &r->env, .cls = node_find("LoadImage"), .id = "1", .inputs = inputs
    };
    struct str hash = { 0 };
    assert_fails(k.cls->validate(&k, &r->err), r->err, BERTH_EINVAL, "Invalid image file: abc.png");
    assert_int_not_equal(k.cls->changed(&k, &hash, &r->err), BERTH_OK);
    tmp_write("input/abc.png", "abc", 3);
    assert_ok(k.cls->validate(&k, &r->err), r->err);
    assert_ok(k.cls->changed(&k, &hash, &r->err), r->err);
    assert_string_equal(str_c(&hash),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    atomic_bool cancel = true; /* an interrupt does not wait for files to be read */
    k.cancel = &cancel;
    assert_fails(k.cls->changed(&k, &hash, &r->err), r->err, BERTH_ECANCELED, "interrupted");
    k.cancel = NULL;
    json_object_set_new(inputs, "image", json_pack("[s,i]", "3", 0)); /* a link: not known yet */
    assert_ok(k.cls->validate(&k, &r->err), r->err);
    assert_int_not_equal(k.cls->changed(&k, &hash, &r->err), BERTH_OK);
    str_release(&hash);
    json_decref(inputs);
}

static void hash_is(struct node_check *k, const char *want)
{
    struct str hash = { 0 };
    berth_err err = { 0 };
    assert_ok(k->cls->changed(k, &hash, &err), err);
    assert_memory_equal(str_c(&hash), want, strlen(want));
    str_release(&hash);
}

/* Behind the prompt's back, with the same size and time: only who reads it again sees it. */
static void a_prompt_hashes_a_file_once(void **state)
{
    struct node_rig *r = *state;
    json_t *inputs = parse("{\"image\":\"once.png\"}");
    struct file_hashes hashes = { 0 };
    struct node_check k = { .env = &r->env,
                            .cls = node_find("LoadImage"),
                            .id = "1",
                            .inputs = inputs,
                            .hashes = &hashes };
    struct stat st;
    const char *path = tmp_write("input/once.png", "abc", 3);
    assert_int_equal(stat(path, &st), 0);
    hash_is(&k, "ba7816bf");
    int fd = open(path, O_WRONLY);
    assert_int_equal(write(fd, "abd", 3), 3);
    assert_int_equal(futimens(fd, (struct timespec[]) { st.st_atim, st.st_mtim }), 0);
    close(fd);
    hash_is(&k, "ba7816bf");
    k.hashes = NULL;
    hash_is(&k, "a52d159f");
    file_hashes_release(&hashes);
    json_decref(inputs);
}

/* The map of hashes borrows its keys: those of many files must all be there when it grows. */
static void a_prompt_hashes_many_files(void **state)
{
    enum { FILES = 40 };
    struct node_rig *r = *state;
    struct file_hashes hashes = { 0 };
    char first[FILES][65];
    for (int i = 0; i < 2 * FILES; i++) {
        char name[32], text[64];
        snprintf(name, sizeof name, "input/many%d.png", i % FILES);
        if (i < FILES)
            tmp_write(name, name, strlen(name));
        snprintf(text, sizeof text, "{\"image\":\"%s\"}", name + strlen("input/"));
        json_t *inputs = parse(text);
        struct node_check k = { .env = &r->env,
                                .cls = node_find("LoadImage"),
                                .id = "1",
                                .inputs = inputs,
                                .hashes = &hashes };
        struct str hash = { 0 };
        berth_err err = { 0 };
        assert_ok(k.cls->changed(&k, &hash, &err), err);
        if (i < FILES)
            snprintf(first[i], sizeof first[i], "%s", str_c(&hash));
        assert_memory_equal(str_c(&hash), first[i % FILES], 64);
        str_release(&hash);
        json_decref(inputs);
    }
    assert_int_equal(hashes.by_file.n, FILES);
    assert_int_equal(hashes.hex.n, FILES); /* none was read twice */
    file_hashes_release(&hashes);
}

static void latents_come_back(void **state)
{
    struct node_rig *r = *state;
    json_t *prompt = parse("{\"1\":{\"a\":\"\xc3\xa9\"}}");
    float v[] = { 1.5f, -2.25f, 1e-20f, 3 };
    rig_node(r, "SaveLatent");
    with_prompt(r, prompt, NULL);
    rig_set(r, "samples", rig_latent(SHAPE4(1, 4, 1, 1), v));
    assert_ok(rig_run(r), r->err);
    assert_string_equal(ui(r, "latents", 0, "filename"), "ComfyUI_00001_.latent");
    assert_string_equal(ui(r, "latents", 0, "subfolder"), "latents");
    struct weights *w; /* as any reader of safetensors sees it */
    assert_ok(weights_open(tmp_path("output/latents/ComfyUI_00001_.latent"), NULL, &w, &r->err),
              r->err);
    assert_int_equal(weights_count(w), 2);
    assert_non_null(weights_find(w, "latent_format_version_0", 23));
    assert_string_equal(weights_meta_find(w, "prompt")->str, "{\"1\": {\"a\": \"\\u00e9\"}}");
    weights_close(w);
    rig_node(r, "LoadLatent");
    rig_text(r, "latent", "latents/ComfyUI_00001_.latent [output]");
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->latent.samples, SHAPE4(1, 4, 1, 1), v, 0);
    json_decref(prompt);
}

static const float old_values[4] = { 0.18215f, 0, -0.18215f, 0.36430f };
static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user, (void)i, (void)err;
    memcpy(dst, (const char *)old_values + off, n);
    return BERTH_OK;
}

static void old_latents_are_scaled(void **state)
{
    struct node_rig *r = *state;
    struct weights_spec spec = { .name = "latent_tensor",
                                 .dtype = DT_F32,
                                 .shape = { .ndim = 4, .dim = { 1, 4, 1, 1 } } };
    struct weights_write_args a = { .format = "safetensors",
                                    .path = tmp_path("input/old.latent"),
                                    .spec = &spec,
                                    .count = 1,
                                    .fill = fill };
    assert_ok(weights_write(&a, &r->err), r->err);
    rig_node(r, "LoadLatent");
    rig_text(r, "latent", "old.latent");
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->latent.samples, SHAPE4(1, 4, 1, 1), (float[]) { 1, 0, -1, 2 }, 1e-6f);
    spec.name = "other";
    assert_ok(weights_write(&a, &r->err), r->err);
    rig_node(r, "LoadLatent");
    rig_text(r, "latent", "old.latent");
    assert_fails(rig_run(r), r->err, BERTH_EFORMAT, "no tensor 'latent_tensor'");
    spec = (struct weights_spec) { .name = "latent_tensor",
                                   .dtype = DT_F32,
                                   .shape = { .ndim = 1, .dim = { 4 } } };
    assert_ok(weights_write(&a, &r->err), r->err);
    assert_fails(rig_run(r), r->err, BERTH_EFORMAT, "[4]");
}

static unsigned shown;
static berth_status show(void *user, const struct node_step *s, berth_err *err)
{
    (void)user;
    assert_true(s->png && s->picture->w == 2 && s->value == (double)(shown % 3) && s->max == 3.0);
    return ++shown == 5 ? err_set(err, BERTH_ECANCELED, "enough") : BERTH_OK;
}

static void websockets_get_pictures(void **state)
{
    struct node_rig *r = *state;
    r->host.progress = show;
    rig_node(r, "SaveImageWebsocket");
    rig_set(r, "images", rig_tensor(SHAPE4(3, 1, 2, 3), NULL));
    assert_ok(rig_run(r), r->err);
    assert_int_equal(shown, 3);
    assert_null(r->call.ui);
    rig_set(r, "images", rig_tensor(SHAPE4(3, 1, 2, 3), NULL));
    assert_fails(rig_run(r), r->err, BERTH_ECANCELED, "enough");
    r->host.progress = NULL;
    struct node_check k = { .env = &r->env, .cls = r->call.cls, .id = "1" };
    struct str a = { 0 }, b = { 0 };
    assert_ok(k.cls->changed(&k, &a, &r->err), r->err);
    clock_manual_advance(&r->clock, 1);
    assert_ok(k.cls->changed(&k, &b, &r->err), r->err);
    assert_string_not_equal(str_c(&a), str_c(&b));
    str_release(&a);
    str_release(&b);
}

/* A folder that cannot be made: an error, and nothing is announced. */
static void a_failed_save_is_an_error(void **state)
{
    struct node_rig *r = *state;
    tmp_write("output/file", "x", 1);
    rig_node(r, "SaveImage");
    rig_set(r, "images", rig_tensor(SHAPE4(1, 1, 1, 3), NULL));
    rig_text(r, "filename_prefix", "file/below");
    assert_int_not_equal(rig_run(r), BERTH_OK);
    assert_true(r->err.msg[0] && !r->call.ui);
}

static void saving_survives_oom(void **state)
{
    struct node_rig *r = *state;
    json_t *prompt = parse("{\"1\":{}}");
    berth_status s = BERTH_ENOMEM;
    json_set_alloc_funcs(oom_malloc, free);
    for (long k = 0; s; k++) {
        rig_node(r, "SaveLatent");
        with_prompt(r, prompt, NULL);
        rig_set(r, "samples", rig_latent(SHAPE4(1, 4, 1, 1), NULL));
        rig_text(r, "filename_prefix", "oom");
        oom_after(k);
        s = rig_run(r);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && r->err.msg[0]));
    }
    rig_clear(r);
    json_set_alloc_funcs(malloc, free);
    json_decref(prompt);
}

/* ---- folders ---- */

static void folder_files(void)
{
    assert_int_equal(mkdir(tmp_path("input/set"), 0777), 0);
    assert_int_equal(mkdir(tmp_path("input/set/2_more"), 0777), 0);
    assert_int_equal(mkdir(tmp_path("input/set/x_y"), 0777), 0);
    write_png("input/set/b.PNG", 2, 1, 3, 10);
    write_png("input/set/a.png", 1, 1, 1, 50);
    write_png("input/set/2_more/c.png", 1, 2, 4, 90);
    tmp_write("input/set/a.txt", "  a cat \n", 9);
    tmp_write("input/set/2_more/c.txt", "", 0);
    tmp_write("input/set/note.md", "x", 1);
}

static void folders_are_loaded(void **state)
{
    static const char *const want[] = { "a cat", "", "", "" };
    struct node_rig *r = *state;
    struct names names = { 0 };
    folder_files();
    const struct node_class *c = node_find("LoadImageDataSetFromFolder");
    assert_ok(node_options(&r->env, &c->in[0], &names, &r->err), r->err);
    assert_int_equal(names.n, 3);
    assert_string_equal(names.at[0], "set");
    assert_string_equal(names.at[1], "set/2_more");
    names_release(&names);
    rig_node(r, "LoadImageDataSetFromFolder");
    rig_text(r, "folder", "set");
    assert_ok(rig_run(r), r->err);
    assert_int_equal(r->out[0].n, 2);
    rig_expect(r->out[0].at[0]->tensor, SHAPE4(1, 1, 1, 3),
               (float[]) { 50 / 255.0f, 50 / 255.0f, 50 / 255.0f }, 0);
    rig_node(r, "LoadImageTextDataSetFromFolder");
    rig_text(r, "folder", "set");
    assert_ok(rig_run(r), r->err);
    assert_int_equal(r->out[0].n, 4);
    assert_int_equal(r->out[1].n, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(r->out[1].at[i]->s.p, want[i]);
    assert_int_equal(r->out[0].at[3]->tensor->shape.dim[1], 2);
    rig_node(r, "LoadImageDataSetFromFolder");
    rig_text(r, "folder", "set/x_y");
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "No valid images found in input");
    rig_node(r, "LoadImageDataSetFromFolder");
    rig_text(r, "folder", "../output");
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "../output");
}

static void save_folder(struct node_rig *r, const char *mode)
{
    rig_node(r, "SaveImageTextDataSetToFolder");
    for (int i = 0; i < 2; i++) {
        struct htensor *t;
        assert_ok(htensor_zeros(&(struct shape) { 4, { 1, 1, 1, 3 } }, &t, &r->err), r->err);
        assert_ok(
            values_add(&r->in[node_input_index(r->call.cls, "images")], value_tensor(t), &r->err),
            r->err);
    }
    rig_text(r, "texts", "one");
    rig_text(r, "folder_name", "made/here");
    rig_text(r, "filename_prefix", "p");
    rig_text(r, "mode", mode);
    assert_ok(rig_run(r), r->err);
}

static void folders_are_saved(void **state)
{
    struct node_rig *r = *state;
    char *text;
    size_t n;
    save_folder(r, "overwrite");
    save_folder(r, "overwrite");
    assert_int_equal(access(tmp_path("output/made/here/p_00001.png"), F_OK), 0);
    assert_int_equal(access(tmp_path("output/made/here/p_00002.png"), F_OK), -1);
    assert_int_equal(access(tmp_path("output/made/here/p_00001.txt"), F_OK), -1);
    assert_ok(file_read_all(tmp_path("output/made/here/p_00000.txt"), 100, &text, &n, &r->err),
              r->err);
    assert_int_equal(n, 3);
    free(text);
    save_folder(r, "increment");
    assert_int_equal(access(tmp_path("output/made/here/p_00002_00000.png"), F_OK), 0);
    assert_int_equal(access(tmp_path("output/made/here/p_00003_00001.png"), F_OK), 0);
    rig_node(r, "SaveImageDataSetToFolder");
    rig_text(r, "folder_name", "../..");
    rig_text(r, "filename_prefix", "p");
    assert_true(rig_run(r) != BERTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_pictures_carry_their_prompt),
        cmocka_unit_test(nothing_is_overwritten),
        cmocka_unit_test(a_prefix_stays_inside),
        cmocka_unit_test(previews_keep_their_prefix),
        cmocka_unit_test(animations),
        cmocka_unit_test(loaded_pictures_have_masks),
        cmocka_unit_test(cut_pictures_load),
        cmocka_unit_test(listed_pictures_can_be_read),
        cmocka_unit_test(channels_become_masks),
        cmocka_unit_test(animations_become_batches),
        cmocka_unit_test(broken_and_missing_files),
        cmocka_unit_test(files_are_checked_and_hashed),
        cmocka_unit_test(a_prompt_hashes_a_file_once),
        cmocka_unit_test(a_prompt_hashes_many_files),
        cmocka_unit_test(latents_come_back),
        cmocka_unit_test(old_latents_are_scaled),
        cmocka_unit_test(websockets_get_pictures),
        cmocka_unit_test(a_failed_save_is_an_error),
        cmocka_unit_test(saving_survives_oom),
        cmocka_unit_test(folders_are_loaded),
        cmocka_unit_test(folders_are_saved),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
