/* Encoders of pictures and style models: config, pixels, failures. Numbers against ComfyUI are in
 * golden.node.clip_vision. */
#include "support/nets.h"
#include "support/oom.h"
#include "support/sparse_open.h"

#include "model/clip_vision/clip_vision.h"
#include "model/clip_vision/presets.h"
#include "model/preset.h"
#include "model/style.h"

static void every_size(void **state)
{
    static const struct {
        const char *preset;
        uint32_t side, patch, heads, layers;
        uint64_t tokens, rows, embeds;
        enum clip_vision_kind kind;
    } row[] = {
        { "clip-vision-l", 224, 14, 16, 24, 257, 1, 768, CLIP_VISION_L },
        { "clip-vision-l-336", 336, 14, 16, 24, 577, 1, 768, CLIP_VISION_L },
        { "clip-vision-h", 224, 14, 16, 32, 257, 1, 1024, CLIP_VISION_H },
        { "clip-vision-g", 224, 14, 16, 48, 257, 1, 1280, CLIP_VISION_H },
        { "siglip-384", 384, 14, 16, 27, 729, 729, 1152, CLIP_VISION_SIGLIP },
        { "siglip-512", 512, 16, 16, 27, 1024, 1024, 1152, CLIP_VISION_SIGLIP },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct weights *w = sparse_open_preset(row[i].preset);
        struct vision_net v;
        berth_err err = { 0 };
        assert_ok(vision_find(w, NULL, &v, &err), err);
        assert_int_equal(v.side, row[i].side);
        assert_int_equal(v.patch, row[i].patch);
        assert_int_equal(v.tokens, row[i].tokens);
        assert_int_equal(v.embeds_rows, row[i].rows);
        assert_int_equal(v.embeds_width, row[i].embeds);
        assert_int_equal(v.projected_rows, 0);
        assert_int_equal(clip_vision_of(&v)->kind, row[i].kind);
        assert_int_equal(clip_vision_of(&v)->heads, row[i].heads);
        assert_int_equal(clip_vision_of(&v)->layers, row[i].layers);
        assert_true((v.mean[0] == 0.5f) == (row[i].kind == CLIP_VISION_SIGLIP));
        weights_close(w);
    }
}

static const struct clip_vision_config small = {
    .width = 32, .mlp = 48, .patch = 4, .tokens = 10, .layers = 2, .projection = 24, .llava = 40
};

static void other_names(void **state)
{
    struct keys k = { 0 };
    struct vision_net v;
    berth_err err = { 0 };
    (void)state;
    keys_openclip_vision(&k, &small);
    struct weights *w = sparse_open(&k);
    assert_ok(vision_find(w, NULL, &v, &err), err);
    assert_true(clip_vision_of(&v)->openclip && clip_vision_of(&v)->projection);
    assert_int_equal(v.side, 12);
    assert_int_equal(v.embeds_width, 24);
    weights_close(w);
}

static void refused(void **state)
{
    static const struct {
        const char *tensor, *why;
        struct shape to;
    } row[] = {
        { "vision_model.embeddings.patch_embedding.weight", "naflex", { 2, { 32, 48 } } },
        { "vision_model.embeddings.patch_embedding.weight",
          "patches of 0",
          { 4, { 32, 3, 4, 0 } } },
        { "vision_model.embeddings.position_embedding.weight", "12 tokens", { 2, { 12, 32 } } },
        { "vision_model.embeddings.position_embedding.weight", "1 tokens", { 2, { 1, 32 } } },
        { "vision_model.embeddings.patch_embedding.weight", "width 40", { 4, { 40, 3, 4, 4 } } },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct keys k = { 0 };
        struct vision_net v;
        berth_err err = { 0 };
        keys_clip_vision(&k, &small);
        for (size_t t = 0; t < k.n; t++)
            if (!strcmp(k.at[t].name, row[i].tensor))
                k.at[t].shape = row[i].to;
        struct weights *w = sparse_open(&k);
        assert_fails(vision_find(w, NULL, &v, &err), err, BERTH_EUNSUPPORTED, row[i].why);
        weights_close(w);
    }
    struct weights *w = sparse_open_preset("vae-tiny");
    struct vision_net v;
    berth_err err = { 0 };
    assert_fails(vision_find(w, NULL, &v, &err), err, BERTH_EUNSUPPORTED, "no encoder of pictures");
    weights_close(w);
}

/* One value a channel: whatever the size, the square has it, rounded to 8 bits and normalised. */
static void pixels_of_any_size(void **state)
{
    static const size_t sides[][2] = { { 1, 1 }, { 12, 12 }, { 5, 90 }, { 200, 3 } };
    const float colour[4] = { 0.2f, 1.5f, -3.0f, 0.7f };
    struct vision_net v = {
        .side = 12, .patch = 4, .mean = { 0.5f, 0.5f, 0.5f }, .std = { 0.25f, 0.25f, 0.25f }
    };
    float got[3 * 12 * 12];
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(sides); i++) {
        const size_t h = sides[i / 2][0], w = sides[i / 2][1], c = 3 + i % 2;
        float *image = calloc(h * w * c, sizeof *image);
        berth_err err = { 0 };
        assert_non_null(image);
        for (size_t k = 0; k < h * w * c; k++)
            image[k] = colour[k % c];
        struct vision_job job = { .image = image, .n = 1, .h = h, .w = w, .c = c, .crop = i % 2 };
        assert_ok(vision_pixels(&v, &job, 0, got, &err), err);
        for (size_t k = 0; k < ARRAY_LEN(got); k++) {
            const float want[3] = { (51.0f / 255 - 0.5f) * 4, 2.0f, -2.0f };
            assert_true(fabsf(got[k] - want[k / 144]) < 1e-6f);
        }
        job.c = 2;
        assert_fails(vision_pixels(&v, &job, 0, got, &err), err, BERTH_EINVAL, "2 channels");
        free(image);
    }
}

/* ---- networks ---- */

#define N 2
struct seen {
    float last[N * 10 * 32], penultimate[N * 10 * 32], embeds[N * 24], projected[N * 9 * 40];
};

static berth_status see(struct net_rig *g, const float *image, struct seen *out, berth_err *err)
{
    struct vision_net v;
    struct net *net = NULL;
    const struct net_args args = { .res = g->f.r, .m = g->m };
    const struct vision_job job = { .image = image,
                                    .n = N,
                                    .h = 9,
                                    .w = 15,
                                    .c = 3,
                                    .last = out->last,
                                    .penultimate = out->penultimate,
                                    .embeds = out->embeds,
                                    .projected = out->projected };
    berth_status s = vision_open(&args, NULL, &v, &net, err);
    if (!s)
        s = vision_see(net, &v, &job, err);
    net_close(net);
    return s;
}

static void draw(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i * 2654435761u % 1000) / 1000;
}

static struct seen want, got;

/* Pictures of a batch are as if alone, blocks may lie elsewhere, memory may be short. */
static void no_memory_is_survived(void **state)
{
    struct keys k = { 0 };
    struct net_rig g;
    float image[N * 9 * 15 * 3];
    berth_status s = BERTH_ENOMEM;
    berth_err err = { 0 };
    (void)state;
    draw(image, ARRAY_LEN(image));
    keys_clip_vision(&k, &small);
    const char *path = keys_file(&k, "vision", DT_F32, "safetensors", NULL);
    keys_release(&k);
    net_rig_open(&g, "cpu=64m", path, NULL, NULL);
    assert_ok(see(&g, image, &want, &err), err);
    for (long n = 0; s != BERTH_OK; n++) {
        err = (berth_err) { 0 };
        oom_after(n);
        s = see(&g, image, &got, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
    }
    assert_memory_equal(&want, &got, sizeof want);
    net_rig_close(&g);
    net_rig_open(&g, "cuda:0@cpu=32m,cuda:1@cpu=32m,cpu=64m", path, NULL,
                 "cuda:0,20%;cuda:1,40%;cpu,40%#cuda:0");
    assert_ok(see(&g, image, &got, &err), err);
    assert_memory_equal(&want, &got, sizeof want);
    net_rig_close(&g);
}

static berth_status style(struct net_rig *g, const float *x, float *out, berth_err *err)
{
    struct style_net s;
    struct net *net = NULL;
    const struct net_args args = { .res = g->f.r, .m = g->m };
    berth_status bad = style_open(&args, NULL, &s, &net, err);
    if (!bad)
        bad = style_tokens(net, &s, x, 5, out, err);
    net_close(net);
    return bad;
}

static void styles(void **state)
{
    struct keys k = { 0 };
    struct net_rig g;
    float x[5 * 64], first[5 * 64], again[5 * 64];
    berth_status s = BERTH_ENOMEM;
    berth_err err = { 0 };
    (void)state;
    draw(x, ARRAY_LEN(x));
    assert_ok(preset_keys(preset_find("flux-redux-tiny"), &k, &err), err);
    net_rig_open(&g, "cpu=64m", keys_file(&k, "redux", DT_F32, "safetensors", NULL), NULL, NULL);
    keys_release(&k);
    assert_ok(style(&g, x, first, &err), err);
    for (long n = 0; s != BERTH_OK; n++) {
        err = (berth_err) { 0 };
        oom_after(n);
        s = style(&g, x, again, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
    }
    assert_memory_equal(first, again, sizeof first);
    net_rig_close(&g);
    keys_clip_vision(&k, &small);
    net_rig_open(&g, "cpu=64m", keys_file(&k, "vision", DT_F32, "safetensors", NULL), NULL, NULL);
    keys_release(&k);
    assert_fails(style(&g, x, again, &err), err, BERTH_EUNSUPPORTED, "no style model");
    net_rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size),
        cmocka_unit_test(other_names),
        cmocka_unit_test(refused),
        cmocka_unit_test(pixels_of_any_size),
        cmocka_unit_test(no_memory_is_survived),
        cmocka_unit_test(styles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
