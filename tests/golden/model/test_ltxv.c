/* LTX-Video in the golden files: the transformer of every ltxv_<model>, and the VAE of every
 * vae_ltxv_<model>, of the manifest. Their configs go into the metadata of the files.
 *
 * A transformer's case is <name>/out. "x", "t" and "context" are of two latents; a case with an x
 * of its own is of one. <name>/mask is the noise mask; the manifest's "cases" say the rest: frame
 * rate, whether text is masked, guides. */
#include "support/golden_video.h"

#include "model/ltxv/ltxv.h"

#define GUIDES_MAX 4

/* ---- transformers ---- */

struct guides {
    struct diffusion_guide at[GUIDES_MAX];
    float *weight[GUIDES_MAX];
    size_t n;
};

static void read_guides(struct guides *g, const struct weights *w, const char *name,
                        const json_t *list, const struct shape *latent)
{
    char of[32];
    *g = (struct guides) { .n = json_array_size(list) };
    assert_true(g->n <= GUIDES_MAX);
    for (size_t i = 0; i < g->n; i++) {
        const json_t *about = json_array_get(list, i);
        struct shape s;
        size_t n = 0;
        snprintf(of, sizeof of, "weight%zu", i);
        g->weight[i] = gv_tensor(w, name, of, &s, &n);
        g->at[i] = (struct diffusion_guide) {
            .frames = (uint64_t)gv_number(about, "frames", 0),
            .rows = latent->dim[3],
            .columns = latent->dim[4],
            .at = (int64_t)gv_number(about, "at", 0),
            .first = json_is_true(json_object_get(about, "first")),
            .spread = (uint32_t)gv_number(about, "factor", 1),
            .strength = (float)gv_number(about, "strength", 1),
            .weight = g->weight[i],
            .weights = n,
        };
    }
}

static void run_case(struct diffusion *d, const struct weights *w, const char *model,
                     const char *name, const json_t *about)
{
    struct shape s, cs, ts;
    struct guides guides;
    char full[96];
    float *want = gv_tensor(w, name, "out", &s, NULL), *own = gv_tensor(w, name, "x", &ts, NULL);
    float *x = own ? own : gv_tensor(w, "", "x", &ts, NULL), *t = gv_tensor(w, "", "t", &cs, NULL);
    float *context = gv_tensor(w, "", "context", &cs, NULL),
          *mask = gv_tensor(w, name, "mask", &ts, NULL);
    struct diffusion_cond cond[2];
    assert_true(want && x && t && context);
    bool *hidden = gv_hidden(w, (size_t)cs.dim[1]);
    read_guides(&guides, w, name, json_object_get(about, "guides"), &s);
    for (size_t i = 0; i < 2; i++)
        cond[i] = (struct diffusion_cond) {
            .context = context + i * cs.dim[1] * cs.dim[2],
            .tokens = (size_t)cs.dim[1],
            .width = (size_t)cs.dim[2],
            .hidden = json_is_true(json_object_get(about, "attention_mask")) ? hidden : NULL,
            .frame_rate = gv_number(about, "frame_rate", 0),
            .guide = guides.at,
            .guides = guides.n,
        };
    const struct diffusion_in in = { .shape = s, .x = x, .t = t, .mask = mask };
    snprintf(full, sizeof full, "%s/out", name);
    gv_forward(d, in, cond, want, model, full);
    for (size_t i = 0; i < guides.n; i++)
        free(guides.weight[i]);
    free(want), free(x), free(t), free(context), free(mask), free(hidden);
}

static void compare_config(const struct weights *w, const json_t *c)
{
    struct ltxv_net f;
    berth_err err = { 0 };
    assert_ok(ltxv_detect(w, "", &f, &err), err);
    assert_int_equal(f.heads, gv_number(c, "num_attention_heads", 0));
    assert_int_equal(f.hidden / f.heads, gv_number(c, "attention_head_dim", 0));
    assert_int_equal(f.depth, gv_number(c, "num_layers", 0));
    assert_int_equal(f.context_dim, gv_number(c, "caption_channels", 0));
    assert_int_equal(f.causal, json_is_true(json_object_get(c, "causal_temporal_positioning")));
}

static void run_model(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    const json_t *config = json_object_get(about, "config");
    struct gv_model m;
    struct diffusion *d;
    const char *one;
    json_t *how;
    size_t ran = 0;
    berth_err err = { 0 };
    gv_open(&m, name, made_config(config, NULL));
    compare_config(res_weights(m.g.m), config);
    struct diffusion_args args = { .res = m.g.f.r, .m = m.g.m, .pool = m.g.pool, .act = at.act };
    assert_ok(diffusion_open(&args, &d, &err), err);
    print_message("%s\n", name);
    json_object_foreach(json_object_get(about, "cases"), one, how)
    {
        run_case(d, m.golden, name, one, how);
        ran++;
    }
    assert_true(ran > 0);
    diffusion_close(d);
    gv_close(&m);
}

/* ---- VAEs ---- */

static void run_vae(const char *name, const json_t *about)
{
    gv_vae(name, about, made_config(NULL, json_object_get(about, "config")), NULL);
}

static void transformers_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    gv_each("ltxv_", "ltxv_run", run_model);
}

static void vaes_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    gv_each("vae_ltxv_", NULL, run_vae);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(transformers_equal_the_golden_files),
                                        cmocka_unit_test(vaes_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
