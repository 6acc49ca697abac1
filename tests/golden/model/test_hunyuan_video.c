/* HunyuanVideo in the golden files: the transformer of every hunyuan_video_<model>, and the VAE of
 * every vae_hunyuan_video_<model>, of the manifest. Cases are of two latents; each is also run
 * alone. */
#include "support/golden_video.h"

#include "model/hunyuan_video/hunyuan_video.h"

static void run_case(struct diffusion *d, const struct weights *w, const char *model,
                     const char *name, double guidance)
{
    struct shape s, cs, ts;
    float *want = gv_tensor(w, "", name, &s, NULL), *x = gv_tensor(w, "", "x", &ts, NULL);
    float *t = gv_tensor(w, "", "t", &cs, NULL), *y = gv_tensor(w, "", "y", &ts, NULL);
    float *context = gv_tensor(w, "", "context", &cs, NULL);
    struct diffusion_cond cond[2];
    assert_true(want && x && t && y && context && s.dim[0] == ARRAY_LEN(cond));
    bool *hidden = gv_hidden(w, (size_t)cs.dim[1]);
    for (size_t i = 0; i < 2; i++)
        cond[i] = (struct diffusion_cond) {
            .context = context + i * cs.dim[1] * cs.dim[2],
            .tokens = (size_t)cs.dim[1],
            .width = (size_t)cs.dim[2],
            .hidden = strcmp(name, "out_masked") ? NULL : hidden,
            .pooled = y + i * ts.dim[1],
            .pooled_n = (size_t)ts.dim[1],
            .guided = strcmp(name, "out_guided") ? 0 : 1,
            .guidance = (float)guidance,
        };
    gv_forward(d, (struct diffusion_in) { .shape = s, .x = x, .t = t }, cond, want, model, name);
    free(want), free(x), free(t), free(y), free(context), free(hidden);
}

static void run_model(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    const json_t *c = json_object_get(about, "config");
    struct gv_model m;
    struct diffusion *d;
    struct hunyuan_net f;
    size_t ran = 0;
    berth_err err = { 0 };
    gv_open(&m, name, NULL);
    assert_ok(hunyuan_detect(res_weights(m.g.m), "", &f, &err), err);
    assert_int_equal(f.hidden, gv_number(c, "hidden_size", 0));
    assert_int_equal(f.heads, gv_number(c, "num_heads", 0));
    assert_int_equal(f.depth, gv_number(c, "depth", 0));
    assert_int_equal(f.single, gv_number(c, "depth_single_blocks", 0));
    assert_int_equal(f.context_dim, gv_number(c, "context_in_dim", 0));
    assert_int_equal(f.vector_dim, gv_number(c, "vec_in_dim", 0));
    assert_int_equal(f.guidance, json_is_true(json_object_get(c, "guidance_embed")));
    struct diffusion_args args = {
        .res = m.g.f.r, .m = m.g.m, .pool = m.g.pool, .act = at.act, .exact_guidance = true
    };
    assert_ok(diffusion_open(&args, &d, &err), err);
    print_message("%s\n", name);
    for (size_t i = 0; i < weights_count(m.golden); i++)
        if (!strncmp(weights_at(m.golden, i)->name, "out", 3)) {
            run_case(d, m.golden, name, weights_at(m.golden, i)->name,
                     gv_number(about, "guidance", 0));
            ran++;
        }
    assert_true(ran > 0);
    diffusion_close(d);
    gv_close(&m);
}

static void compare_vae(const struct vae_net *v, const json_t *config)
{
    assert_int_equal(v->latent.channels, gv_number(config, "z_channels", 0));
    assert_int_equal(v->latent.ratio, 8);
    assert_int_equal(v->latent.time_ratio, gv_number(config, "time_compress", 0));
}

static void run_vae(const char *name, const json_t *about)
{
    gv_vae(name, about, NULL, compare_vae);
}

static void transformers_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    gv_each("hunyuan_video_", NULL, run_model);
}

static void vaes_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    gv_each("vae_hunyuan_video_", NULL, run_vae);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(transformers_equal_the_golden_files),
                                        cmocka_unit_test(vaes_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
