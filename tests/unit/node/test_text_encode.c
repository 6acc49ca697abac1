/* CLIPTextEncode and kin over tiny encoders and a tiny tokenizer. Numbers: tests/golden/text. */
#include "support/loader_rig.h"
#include "support/resave.h"
#include "support/tokenizer.h"
#include "support/torch_file.h"

#include "node/compute.h"

struct scene {
    struct rig r;
    struct call ckpt;
    const char *folder[1];
    char path[512];
};

static void scene_open(struct scene *s, const char *preset)
{
    char name[96], inputs[128];
    berth_err err = { 0 };
    *s = (struct scene) { 0 };
    rig_open(&s->r, "cpu=1g");
    snprintf(name, sizeof name, "checkpoints/%s.safetensors", preset);
    rig_preset(&s->r, name, preset);
    snprintf(inputs, sizeof inputs, "{\"ckpt_name\": \"%s.safetensors\"}", preset);
    assert_ok(rig_run(&s->r, &s->ckpt, "CheckpointLoaderSimple", inputs, &err), err);
    snprintf(s->path, sizeof s->path, "%s", tmp_path("tokenizers"));
    assert_ok(path_make_dirs(s->path, &err), err);
    assert_true(tiny_tokenizer_write(tmp_path("tokenizers/clip"), false) > 0);
    s->folder[0] = s->path;
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1;
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
}

static void scene_close(struct scene *s)
{
    call_release(&s->ckpt);
    node_assets_free(s->r.env.assets);
    rig_close(&s->r);
}

static void make(struct scene *s, struct call *x, const char *cls, const char *inputs,
                 struct value *clip)
{
    rig_call(&s->r, x, cls, inputs);
    call_give(x, "clip", clip ? clip : s->ckpt.out[1].at[0]);
}

static const struct cond_entry *first(const struct call *x)
{
    assert_int_equal(x->out[0].n, 1);
    const struct conditioning *c = x->out[0].at[0]->object.obj;
    assert_int_equal(c->n, 1);
    return &c->at[0];
}

static bool same(const struct htensor *a, const struct htensor *b)
{
    return shape_eq(&a->shape, &b->shape) &&
           memcmp(a->data, b->data, htensor_count(a) * sizeof(float)) == 0;
}

static void encode(struct scene *s, struct call *x, const char *inputs, struct value *clip)
{
    berth_err err = { 0 };
    make(s, x, "CLIPTextEncode", inputs, clip);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static void a_prompt_becomes_numbers(void **state)
{
    struct scene s;
    struct call a, b, c, skip, d;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "sd15-tiny");
    encode(&s, &a, "{\"text\": \"photo of the cat\"}", NULL);
    encode(&s, &b, "{\"text\": \"photo of the cat\"}", NULL);
    encode(&s, &c, "{\"text\": \"photo of the (cat:1.5)\"}", NULL);
    assert_int_equal(dim(first(&a)->cond, 1), 77);
    assert_int_equal(dim(first(&a)->cond, 2), 64);
    assert_non_null(first(&a)->pooled);
    assert_true(same(first(&a)->cond, first(&b)->cond));
    assert_false(same(first(&a)->cond, first(&c)->cond));
    rig_call(&s.r, &skip, "CLIPSetLastLayer", "{\"stop_at_clip_layer\": -2}");
    call_give(&skip, "clip", s.ckpt.out[1].at[0]);
    assert_ok(skip.c.cls->run(&skip.c, &err), err);
    encode(&s, &d, "{\"text\": \"photo of the cat\"}", skip.out[0].at[0]);
    assert_false(same(first(&a)->cond, first(&d)->cond));
    struct call *const all[] = { &a, &b, &c, &skip, &d };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    scene_close(&s);
}

/* PixArt Alpha's is an ordinary prompt with the sides of the picture. */
static void a_prompt_with_sides(void **state)
{
    struct scene s;
    struct call plain, sized;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "sd15-tiny");
    encode(&s, &plain, "{\"text\": \"photo of the cat\"}", NULL);
    make(&s, &sized, "CLIPTextEncodePixArtAlpha",
         "{\"width\": 640, \"height\": 480, \"text\": \"photo of the cat\"}", NULL);
    assert_ok(sized.c.cls->run(&sized.c, &err), err);
    assert_true(same(first(&plain)->cond, first(&sized)->cond));
    const struct diffusion_size *z = &first(&sized)->size;
    assert_true(z->said && z->width == 640 && z->height == 480 && z->target_width == 640 &&
                z->target_height == 480 && !z->crop_w && !z->crop_h);
    assert_false(first(&plain)->size.said);
    call_release(&plain);
    call_release(&sized);
    scene_close(&s);
}

/* What people see who have not brought one, and who have no encoder. */
static void missing_things_are_named(void **state)
{
    struct scene s;
    struct call x;
    berth_err err = { 0 };
    const char *nowhere[] = { "/nowhere/a", "/nowhere/b" };
    (void)state;
    scene_open(&s, "sd15-tiny");
    s.r.env.tokenizers = nowhere;
    s.r.env.tokenizers_n = 2;
    make(&s, &x, "CLIPTextEncode", "{\"text\": \"a\"}", NULL);
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_ENOTFOUND);
    const char *const wanted[] = { "--tokenizers", "/nowhere/a/clip", "/nowhere/b/sd1_tokenizer" };
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (!strstr(err.msg, wanted[i]))
            fail_msg("'%s' does not name %s", err.msg, wanted[i]);
    s.r.env.tokenizers_n = 0;
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_ENOTFOUND);
    call_release(&x);

    struct value *none = value_null();
    make(&s, &x, "CLIPTextEncode", "{\"text\": \"a\"}", none);
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "clip input is invalid: None"));
    call_release(&x);
    value_unref(none);

    make(&s, &x, "CLIPTextEncodeSDXL", /* two prompts for one encoder */
         "{\"width\": 64, \"height\": 64, \"crop_w\": 0, \"crop_h\": 0, \"target_width\": 64, "
         "\"target_height\": 64, \"text_g\": \"a\", \"text_l\": \"b\"}",
         NULL);
    s.r.env.tokenizers = s.folder;
    s.r.env.tokenizers_n = 1;
    assert_fails(
        x.c.cls->run(&x.c, &err), err, BERTH_EINVAL,
        "two prompts are for SDXL's text encoders, CLIP-L and CLIP-G; this is SD1's: CLIP-L");
    call_release(&x);
    scene_close(&s);
}

/* One file as both encoders of SDXL: two of a kind, which are wanted, and that before it is
 * loaded. */
static void the_same_file_twice(void **state)
{
    struct scene s;
    struct call clip;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "sd15-tiny");
    rig_preset(&s.r, "text_encoders/l.safetensors", "clip-l-tiny");
    assert_fails(rig_run(&s.r, &clip, "DualCLIPLoader",
                         "{\"clip_name1\": \"l.safetensors\", \"clip_name2\": "
                         "\"l.safetensors\", \"type\": \"sdxl\"}",
                         &err),
                 err, BERTH_EINVAL,
                 "type 'sdxl' wants CLIP-L and CLIP-G: CLIP-G is missing, two files are CLIP-L");
    call_release(&clip);
    scene_close(&s);
}

/* ---- embedding:name ---- */

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    float *f = dst;
    (void)user, (void)i, (void)err;
    for (size_t k = 0; k < n / sizeof *f; k++)
        f[k] = (float)(int)((off / sizeof *f + k) % 13) / 6 - 1;
    return BERTH_OK;
}

static void embeddings_are_found(void **state)
{
    struct scene s;
    struct call with, in_folder, without;
    struct weights_spec spec = { "emb_params", DT_F32, { 2, { 2, 64 } } };
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "sd15-tiny");
    struct weights_write_args args = { .format = "safetensors",
                                       .path = rig_path(&s.r, "embeddings/sub/style.safetensors"),
                                       .spec = &spec,
                                       .count = 1,
                                       .fill = fill };
    assert_ok(weights_write(&args, &err), err);
    encode(&s, &with, "{\"text\": \"cat embedding:style\"}", NULL);
    encode(&s, &in_folder, "{\"text\": \"cat embedding:sub/style.safetensors\"}", NULL);
    encode(&s, &without, "{\"text\": \"cat embedding:nothing\"}", NULL);
    assert_true(same(first(&with)->cond, first(&in_folder)->cond));
    assert_false(same(first(&with)->cond, first(&without)->cond));
    call_release(&with);
    call_release(&in_folder);
    call_release(&without);
    scene_close(&s);
}

static void copy_embedding(struct scene *s, const char *from, const char *to)
{
    char path[512], name[64], *data;
    size_t n;
    berth_err err = { 0 };
    snprintf(path, sizeof path, BERTH_SOURCE_DIR "/tests/unit/format/pickles/%s", from);
    snprintf(name, sizeof name, "embeddings/%s", to);
    assert_ok(file_read_all(path, 1 << 20, &data, &n, &err), err);
    assert_ok(file_write_all(rig_path(&s->r, name), data, n, &err), err);
    free(data);
}

/* The same vectors pickled and not: the same numbers, to the bit. */
static void pickled_embeddings_are_the_same(void **state)
{
    struct scene s;
    struct call plain, zip, stream, both, none;
    (void)state;
    scene_open(&s, "sd15-tiny");
    copy_embedding(&s, "style.pt", "zip.pt");
    copy_embedding(&s, "style_stream.pt", "stream.pt");
    copy_embedding(&s, "style.pt.safetensors", "plain.safetensors");
    copy_embedding(&s, "alone.pt", "plain.bin"); /* of another width; the safetensors goes first */
    encode(&s, &plain, "{\"text\": \"cat embedding:plain.safetensors\"}", NULL);
    encode(&s, &both, "{\"text\": \"cat embedding:plain\"}", NULL);
    encode(&s, &zip, "{\"text\": \"cat embedding:zip\"}", NULL);
    encode(&s, &stream, "{\"text\": \"cat embedding:stream.pt\"}", NULL);
    encode(&s, &none, "{\"text\": \"cat\"}", NULL);
    assert_true(same(first(&plain)->cond, first(&both)->cond));
    assert_true(same(first(&plain)->cond, first(&zip)->cond));
    assert_true(same(first(&plain)->cond, first(&stream)->cond));
    assert_false(same(first(&plain)->cond, first(&none)->cond));
    struct call *const all[] = { &plain, &zip, &stream, &both, &none };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    scene_close(&s);
}

/* A file that is there and cannot be read fails the node, with the reason. */
static void unreadable_embeddings_fail(void **state)
{
    static const char evil[] = "\x80\2"
                               "cos\nsystem\n(X\2\0\0\0idtR.";
    struct scene s;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "sd15-tiny");
    assert_ok(file_write_all(rig_path(&s.r, "embeddings/evil.pt"), evil, sizeof evil - 1, &err),
              err);
    make(&s, &x, "CLIPTextEncode", "{\"text\": \"cat embedding:evil\"}", NULL);
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EUNSUPPORTED,
                 "wants os.system, which Berth does not run");
    assert_non_null(strstr(err.msg, "evil.pt"));
    call_release(&x);
    scene_close(&s);
}

/* A whole checkpoint as .ckpt: found, told apart, and of the same numbers. Metadata, which presets
 * have and pickles have not, is left behind on both sides. */
static void pickled_checkpoints_open(void **state)
{
    struct scene s;
    struct call plain, ckpt, a, b;
    char from[1024];
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "sd15-tiny");
    snprintf(from, sizeof from, "%s", rig_path(&s.r, "checkpoints/sd15-tiny.safetensors"));
    torch_save(from, rig_path(&s.r, "checkpoints/old.ckpt"));
    resave(from, DT_F16, rig_path(&s.r, "checkpoints/plain.safetensors"));
    assert_ok(rig_run(&s.r, &plain, "CheckpointLoaderSimple",
                      "{\"ckpt_name\": \"plain.safetensors\"}", &err),
              err);
    assert_ok(rig_run(&s.r, &ckpt, "CheckpointLoaderSimple", "{\"ckpt_name\": \"old.ckpt\"}", &err),
              err);
    encode(&s, &a, "{\"text\": \"the cat\"}", plain.out[1].at[0]);
    encode(&s, &b, "{\"text\": \"the cat\"}", ckpt.out[1].at[0]);
    assert_true(same(first(&a)->cond, first(&b)->cond));
    assert_true(same(first(&a)->pooled, first(&b)->pooled));
    struct call *const all[] = { &a, &b, &plain, &ckpt };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    scene_close(&s);
}

/* What people get who say nothing: a file in F32 gives what the same weights in F16 give. */
static void f32_encoders_are_held_as_f16(void **state)
{
    static const char file[] = "{\"ckpt_name\": \"f32.safetensors\"}";
    struct scene s;
    struct call f16, f32, half, plain, rounded;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "sd15-tiny"); /* presets are written in F16 */
    preset_write("sd15-tiny", DT_F32, rig_path(&s.r, "checkpoints/f32.safetensors"));
    assert_ok(rig_run(&s.r, &f32, "CheckpointLoaderSimple", file, &err), err);
    encode(&s, &f16, "{\"text\": \"the cat\"}", NULL);
    encode(&s, &plain, "{\"text\": \"the cat\"}", f32.out[1].at[0]);
    s.r.env.numbers = node_numbers_own;
    assert_ok(rig_run(&s.r, &half, "CheckpointLoaderSimple", file, &err), err);
    encode(&s, &rounded, "{\"text\": \"the cat\"}", half.out[1].at[0]);
    assert_false(same(first(&f16)->cond, first(&plain)->cond));
    assert_true(same(first(&f16)->cond, first(&rounded)->cond));
    assert_true(same(first(&f16)->pooled, first(&rounded)->pooled));
    struct call *const all[] = { &f16, &f32, &half, &plain, &rounded };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    scene_close(&s);
}

/* --fp8_e4m3fn-text-enc, --fp8_e5m2-text-enc: as if the file had been saved so. */
static void encoders_can_be_held_as_fp8(void **state)
{
    static const enum dtype types[] = { DT_F8_E4M3, DT_F8_E5M2 };
    static const char file[] = "{\"ckpt_name\": \"f32.safetensors\"}";
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct scene s;
        struct call plain, held, saved, text[3];
        berth_err err = { 0 };
        scene_open(&s, "sd15-tiny");
        preset_write("sd15-tiny", DT_F32, rig_path(&s.r, "checkpoints/f32.safetensors"));
        preset_write("sd15-tiny", types[i], rig_path(&s.r, "checkpoints/saved.safetensors"));
        assert_ok(rig_run(&s.r, &plain, "CheckpointLoaderSimple", file, &err), err);
        assert_ok(rig_run(&s.r, &saved, "CheckpointLoaderSimple",
                          "{\"ckpt_name\": \"saved.safetensors\"}", &err),
                  err);
        s.r.env.numbers.weights_text = dtype_name(types[i]);
        assert_ok(rig_run(&s.r, &held, "CheckpointLoaderSimple", file, &err), err);
        struct call *const model[] = { &plain, &saved, &held };
        for (size_t k = 0; k < ARRAY_LEN(model); k++)
            encode(&s, &text[k], "{\"text\": \"the cat\"}", model[k]->out[1].at[0]);
        assert_false(same(first(&text[0])->cond, first(&text[2])->cond));
        assert_true(same(first(&text[1])->cond, first(&text[2])->cond));
        assert_true(same(first(&text[1])->pooled, first(&text[2])->pooled));
        for (size_t k = 0; k < ARRAY_LEN(model); k++) {
            call_release(&text[k]);
            call_release(model[k]);
        }
        scene_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_becomes_numbers),
        cmocka_unit_test(a_prompt_with_sides),
        cmocka_unit_test(missing_things_are_named),
        cmocka_unit_test(the_same_file_twice),
        cmocka_unit_test(embeddings_are_found),
        cmocka_unit_test(pickled_embeddings_are_the_same),
        cmocka_unit_test(unreadable_embeddings_fail),
        cmocka_unit_test(pickled_checkpoints_open),
        cmocka_unit_test(f32_encoders_are_held_as_f16),
        cmocka_unit_test(encoders_can_be_held_as_fp8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
