/* Random networks and random damage: what detection reads is what was built, what it accepts either
 * runs, its peak as predicted, or is refused with a message. Nothing else may happen (sanitizers
 * watch). */
#include "support/nets.h"
#include "support/rng.h"
#include "support/seed.h"
#include "support/sparse.h"

#include "model/diffusion.h"
#include "model/flux/flux.h"
#include "model/flux/presets.h"
#include "model/unet/presets.h"
#include "model/unet/unet.h"
#include "model/vae.h"
#include "model/vae_kl/presets.h"

#define ROUNDS 40

static const char *sparse(const struct keys *k)
{
    const char *path = tmp_path("random.safetensors");
    berth_err err = { 0 };
    assert_ok(sparse_keys(path, k, DT_F16, &err), err);
    return path;
}

static struct unet_config random_unet(struct rng *r)
{
    struct unet_config c = { .in_channels = (uint64_t[]) { 4, 8, 9 }[rng_below(r, 3)],
                             .out_channels = 4,
                             .context_dim = 8 * (1 + rng_below(r, 4)),
                             .levels = 1 + (int)rng_below(r, 3),
                             .res_blocks = (uint8_t)(1 + rng_below(r, 2)),
                             .linear_proj = rng_below(r, 2),
                             .depth_middle = (uint8_t)(1 + rng_below(r, 2)) };
    c.model_channels = c.linear_proj ? 64 : 32;
    if (c.linear_proj && rng_below(r, 2))
        c.adm_channels = 6 * 256 + 8 * (1 + rng_below(r, 4));
    for (int i = 0; i < c.levels; i++) {
        c.mult[i] = (uint8_t)(1 + rng_below(r, 2));
        c.depth[i] = (uint8_t)(c.adm_channels && !i ? 0 : rng_below(r, 3));
    }
    return c;
}

/* Some tensors go, are called otherwise, or have other shapes. */
static void damage(struct keys *k, struct rng *r)
{
    struct keys out = { 0 };
    for (size_t i = 0; i < k->n; i++) {
        struct key *at = &k->at[i];
        uint64_t d[4] = { at->shape.dim[0], at->shape.dim[1], at->shape.dim[2], at->shape.dim[3] };
        char name[200];
        snprintf(name, sizeof name, "%s", at->name);
        if (rng_below(r, k->n / 2 + 1) == 0) {
            switch (rng_below(r, 4)) {
            case 0:
                continue;
            case 1:
                d[rng_below(r, (size_t)at->shape.ndim)] = 1 + rng_below(r, 97);
                break;
            case 2:
                d[at->shape.ndim - 1] = at->shape.ndim > 1 ? 0 : d[0]; /* a dimension less */
                break;
            default:
                name[rng_below(r, strlen(name))] = (char)('0' + rng_below(r, 10));
            }
        }
        bool twice = false; /* a digit may lead to a name that is there */
        for (size_t q = 0; q < out.n && !twice; q++)
            twice = !strcmp(out.at[q].name, name);
        if (!twice)
            keys_tensor(&out, name, d[0], d[1], d[2], d[3]);
    }
    assert_false(out.bad);
    keys_release(k);
    *k = out;
}

/* A pass of the model in the file, if it is one; err has why not. */
static berth_status try_diffusion(const char *path, struct rng *r, berth_err *err)
{
    struct net_rig g;
    struct diffusion *d;
    size_t h = 1 + rng_below(r, 9), w = 1 + rng_below(r, 9), L = 1 + rng_below(r, 5);
    net_rig_open(&g, "cpu=256m", path, NULL, NULL);
    berth_status s = diffusion_open(
        &(struct diffusion_args) { .res = g.f.r, .m = g.m, .pool = g.pool }, &d, err);
    if (!s) {
        const struct diffusion_info *i = diffusion_info(d);
        size_t each = i->latent.channels * h * w;
        float *x = noise_floats(1, each), *ctx = noise_floats(2, L * (size_t)i->context_dim),
              *out = noise_floats(3, each), t = 7;
        struct diffusion_cond c = { .context = ctx, .tokens = L, .width = (size_t)i->context_dim };
        const struct diffusion_cond *list[] = { &c };
        struct diffusion_in in = { .shape = { 4, { 1, diffusion_info(d)->latent.channels, h, w } },
                                   .x = x,
                                   .t = &t,
                                   .cond = list,
                                   .out = out };
        uint64_t peak;
        s = diffusion_predict(d, &in, &peak, err);
        if (!s) /* what a dry run passes computes */
            assert_ok(diffusion_forward(d, &in, err), *err);
        if (!s)
            assert_int_equal(diffusion_report(d).peak, peak);
        free(x), free(ctx), free(out);
    }
    diffusion_close(d);
    net_rig_close(&g);
    return s;
}

static void random_unets(void **state)
{
    struct rng r = { rng_seed() };
    size_t ran = 0, refused = 0;
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        running = r.state;
        struct unet_config c = random_unet(&r);
        struct keys k = { 0 };
        struct unet_net u;
        struct weights *w;
        berth_err err = { 0 };
        keys_unet(&k, &c);
        const char *path = sparse(&k);
        assert_ok(weights_open(path, NULL, &w, &err), err);
        assert_ok(unet_detect(w, "", &u, &err), err);
        weights_close(w);
        assert_int_equal(u.levels, c.levels);
        assert_int_equal(u.context_dim, c.context_dim);
        assert_int_equal(u.adm_channels, c.adm_channels);
        assert_int_equal(u.linear_proj, c.linear_proj);
        for (int l = 0, block = 1; l < c.levels; l++, block++)
            for (int b = 0; b < c.res_blocks; b++)
                assert_int_equal(u.depth_in[block++], c.depth[l]);
        assert_ok(try_diffusion(path, &r, &err), err);
        damage(&k, &r);
        berth_status s = try_diffusion(sparse(&k), &r, &err);
        assert_true(s == BERTH_OK || err.msg[0]);
        ran += s == BERTH_OK;
        refused += s != BERTH_OK;
        keys_release(&k);
    }
    print_message("damaged: %zu ran, %zu were refused\n", ran, refused);
    running = 0;
}

static void random_fluxes(void **state)
{
    struct rng r = { rng_seed() };
    size_t ran = 0, refused = 0;
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        running = r.state;
        struct flux_config c = { .in_channels = 64,
                                 .head_dim = 32 * (1 + rng_below(&r, 2)),
                                 .context_dim = 8 * (1 + rng_below(&r, 4)),
                                 .vec_dim = 8 * (1 + rng_below(&r, 4)),
                                 .depth = 1 + (int)rng_below(&r, 2),
                                 .depth_single = (int)rng_below(&r, 3),
                                 .guidance = rng_below(&r, 2) };
        struct keys k = { 0 };
        struct flux_net f;
        struct weights *w;
        berth_err err = { 0 };
        c.hidden = c.head_dim * (1 + rng_below(&r, 3));
        keys_flux(&k, &c);
        const char *path = sparse(&k);
        assert_ok(weights_open(path, NULL, &w, &err), err);
        assert_ok(flux_detect(w, "", &f, &err), err);
        weights_close(w);
        assert_int_equal(f.hidden, c.hidden);
        assert_int_equal(f.head_dim, c.head_dim);
        assert_int_equal(f.context_dim, c.context_dim);
        assert_int_equal(f.vec_dim, c.vec_dim);
        assert_int_equal(f.depth, c.depth);
        assert_int_equal(f.depth_single, c.depth_single);
        assert_int_equal(f.guidance, c.guidance);
        assert_ok(try_diffusion(path, &r, &err), err);
        damage(&k, &r);
        berth_status s = try_diffusion(sparse(&k), &r, &err);
        assert_true(s == BERTH_OK || err.msg[0]);
        ran += s == BERTH_OK;
        refused += s != BERTH_OK;
        keys_release(&k);
    }
    print_message("damaged: %zu ran, %zu were refused\n", ran, refused);
    running = 0;
}

static berth_status try_vae(const char *path, struct rng *r, berth_err *err)
{
    struct net_rig g;
    struct vae_net v;
    struct net *net;
    size_t h = 1 + rng_below(r, 6), w = 1 + rng_below(r, 6);
    net_rig_open(&g, "cpu=256m", path, NULL, NULL);
    struct net_args a = net_rig_args(&g);
    berth_status s = vae_open(&a, NULL, &v, &net, err);
    if (!s) {
        size_t pixels = 3 * h * w * v.latent.ratio * v.latent.ratio,
               latent = (size_t)v.latent.channels * h * w;
        float *z = noise_floats(1, latent), *x = noise_floats(2, pixels);
        struct vae_job j = { .net = net, .vae = &v };
        const struct shape zs = { 4, { 1, v.latent.channels, h, w } }, xs = vae_decoded(&v, &zs);
        uint64_t peak;
        s = vae_predict(&j, true, &zs, &peak, err);
        if (!s)
            assert_ok(vae_decode(&j, z, &zs, x, err), *err);
        if (!s)
            s = vae_encode(&j, x, &xs, z, err);
        free(z), free(x);
    }
    net_close(net);
    net_rig_close(&g);
    return s;
}

static void random_vaes(void **state)
{
    struct rng r = { rng_seed() };
    size_t ran = 0, refused = 0;
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        running = r.state;
        struct vae_config c = { .ch = 32,
                                .z_channels = (uint64_t[]) { 4, 16 }[rng_below(&r, 2)],
                                .levels = 1 + (int)rng_below(&r, 3),
                                .res_blocks = (uint8_t)(1 + rng_below(&r, 2)),
                                .quant_convs = rng_below(&r, 2) };
        struct keys k = { 0 };
        berth_err err = { 0 };
        for (int l = 0; l < c.levels; l++)
            c.mult[l] = (uint8_t)(1 + rng_below(&r, 2));
        keys_vae(&k, &c);
        assert_ok(try_vae(sparse(&k), &r, &err), err);
        damage(&k, &r);
        berth_status s = try_vae(sparse(&k), &r, &err);
        assert_true(s == BERTH_OK || err.msg[0]);
        ran += s == BERTH_OK;
        refused += s != BERTH_OK;
        keys_release(&k);
    }
    print_message("damaged: %zu ran, %zu were refused\n", ran, refused);
    running = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_unets, say_seed),
        cmocka_unit_test_teardown(random_fluxes, say_seed),
        cmocka_unit_test_teardown(random_vaes, say_seed),
    };
    signal(SIGABRT, say_seed_and_die);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
