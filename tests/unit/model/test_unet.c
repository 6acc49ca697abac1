/* What a UNet is, read from names and shapes: families, diffusers' names, files that are wrong. */
#include "support/nets.h"
#include "support/sparse.h"

#include "model/families.h"
#include "model/preset.h"
#include "model/unet/presets.h"
#include "model/unet/unet.h"

static struct weights *open_file(const char *path)
{
    struct weights *w;
    berth_err err = { 0 };
    assert_ok(weights_open(path, NULL, &w, &err), err);
    return w;
}

static void keys_of(const struct unet_config *c, struct keys *k)
{
    *k = (struct keys) { 0 };
    keys_unet(k, c);
    assert_false(k->bad);
}

/* 2 levels, as small as can be; head width is 4. */
static const struct unet_config tiny = { .in_channels = 4,
                                         .out_channels = 4,
                                         .model_channels = 32,
                                         .context_dim = 16,
                                         .levels = 2,
                                         .mult = { 1, 2 },
                                         .depth = { 1, 2 },
                                         .depth_middle = 1,
                                         .res_blocks = 1 };

static void small_configs_are_read(void **state)
{
    struct keys k;
    struct unet_net u;
    berth_err err = { 0 };
    (void)state;
    keys_of(&tiny, &k);
    struct weights *w = open_file(keys_file(&k, "tiny", DT_F32, "safetensors", NULL));
    assert_ok(unet_detect(w, "", &u, &err), err);
    assert_int_equal(u.model_channels, 32);
    assert_int_equal(u.context_dim, 16);
    assert_int_equal(u.levels, 2);
    assert_int_equal(u.res[0] + 10 * u.res[1], 11);
    assert_int_equal(u.mult[0] + 10 * u.mult[1], 21);
    assert_int_equal(u.input_blocks, 4);
    assert_int_equal(u.output_blocks, 4);
    assert_int_equal(u.depth_in[1] + 10 * u.depth_in[2] + 100 * u.depth_in[3], 201);
    assert_int_equal(u.depth_out[0] + 10 * u.depth_out[3], 12);
    assert_true(u.middle && u.middle_attention && u.depth_middle == 1);
    assert_true(u.heads == 8 && !u.linear_proj && !u.adm_channels && !u.diffusers);
    assert_null(unet_names(&u));
    assert_fails(unet_detect(w, "first_stage_model.", &u, &err), err, BERTH_EUNSUPPORTED,
                 "no UNet");
    weights_close(w);
    keys_release(&k);
}

struct without {
    const char *lead[2]; /* tensors whose names begin so are left out */
};

static bool leave_out(const void *user, const struct key *key, char *name, size_t cap,
                      struct shape *shape)
{
    const struct without *x = user;
    (void)name, (void)cap, (void)shape;
    for (size_t i = 0; i < ARRAY_LEN(x->lead) && x->lead[i]; i++)
        if (!strncmp(key->name, x->lead[i], strlen(x->lead[i])))
            return false;
    return true;
}

/* The table of unet.md 1, in full size: files of holes. */
static void known_models_are_read(void **state)
{
    static const struct {
        const char *name;
        struct unet_config c;
        struct without w;
        uint32_t heads, depth_in[9]; /* by res block */
        uint32_t depth_middle;
        bool middle;
    } list[] = {
        { "SD1",
          { 4, 4, 320, 768, 0, 4, { 1, 2, 4, 4 }, { 1, 1, 1, 0 }, 1, 2, false },
          { { NULL } },
          8,
          { 1, 1, 1, 1, 1, 1, 0, 0 },
          1,
          true },
        { "SD2",
          { 4, 4, 320, 1024, 0, 4, { 1, 2, 4, 4 }, { 1, 1, 1, 0 }, 1, 2, true },
          { { NULL } },
          0,
          { 1, 1, 1, 1, 1, 1, 0, 0 },
          1,
          true },
        { "SDXL",
          { 4, 4, 320, 2048, 2816, 3, { 1, 2, 4 }, { 0, 2, 10 }, 10, 2, true },
          { { NULL } },
          0,
          { 0, 0, 2, 2, 10, 10 },
          10,
          true },
        { "refiner",
          { 4, 4, 384, 1280, 2560, 4, { 1, 2, 4, 4 }, { 0, 4, 4, 0 }, 4, 2, true },
          { { NULL } },
          0,
          { 0, 0, 4, 4, 4, 4, 0, 0 },
          4,
          true },
        { "Vega",
          { 4, 4, 320, 2048, 2816, 3, { 1, 2, 4 }, { 0, 1, 2 }, 1, 2, true },
          { { "middle_block.1.", "middle_block.2." } },
          0,
          { 0, 0, 1, 1, 2, 2 },
          0,
          true },
        { "KOALA 700M",
          { 4, 4, 320, 2048, 2816, 3, { 1, 2, 4 }, { 0, 2, 5 }, 1, 1, true },
          { { "middle_block." } },
          0,
          { 0, 2, 5 },
          0,
          false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct keys all, k = { 0 };
        struct unet_net u;
        berth_err err = { 0 };
        keys_of(&list[i].c, &all);
        for (size_t q = 0; q < all.n; q++) {
            const uint64_t *d = all.at[q].shape.dim;
            if (leave_out(&list[i].w, &all.at[q], NULL, 0, NULL))
                keys_tensor(&k, all.at[q].name, d[0], d[1], d[2], d[3]);
        }
        const char *path = tmp_path("known.safetensors");
        assert_ok(sparse_keys(path, &k, DT_F16, &err), err);
        struct weights *w = open_file(path);
        assert_ok(unet_detect(w, "", &u, &err), err);
        weights_close(w);
        assert_int_equal(u.heads, list[i].heads);
        assert_int_equal(u.head_dim, list[i].heads ? 0 : 64);
        assert_int_equal(u.levels, list[i].c.levels);
        assert_int_equal(u.depth_middle, list[i].depth_middle);
        assert_int_equal(u.middle_attention, list[i].depth_middle > 0);
        assert_int_equal(u.middle, list[i].middle);
        for (uint32_t l = 0, block = 1, n = 0; l < u.levels; l++, block++)
            for (uint32_t b = 0; b < u.res[l]; b++)
                assert_int_equal(u.depth_in[block++], list[i].depth_in[n++]);
        keys_release(&all);
        keys_release(&k);
    }
}

/* ---- diffusers' names ---- */

struct diffusers {
    uint32_t res;
};

static bool to_diffusers(const void *user, const struct key *key, char *name, size_t cap,
                         struct shape *shape)
{
    const struct diffusers *d = user;
    char layer[192], theirs[192];
    const char *what = strrchr(key->name, '.');
    (void)shape;
    snprintf(layer, sizeof layer, "%.*s", (int)(what - key->name), key->name);
    if (!unet_diffusers_name(layer, d->res, theirs, sizeof theirs))
        fail_msg("'%s' has no name", layer);
    snprintf(name, cap, "%s%s", theirs, what);
    return true;
}

/* One pass over a file; *n values, to be freed. */
static float *pass(const char *path, const struct unet_config *c, struct unet_net *u, size_t h,
                   size_t w, size_t *n)
{
    struct net_rig g;
    struct net *net;
    size_t L = 7;
    berth_err err = { 0 };
    net_rig_open(&g, "cpu=256m", path, NULL, NULL);
    assert_ok(unet_detect(res_weights(g.m), "", u, &err), err);
    struct net_args a = net_rig_args(&g);
    a.names = unet_names(u);
    a.names_user = u;
    assert_ok(net_open(&a, &net, &err), err);
    *n = 2 * h * w * (size_t)c->out_channels;
    float *x = noise_floats(1, 2 * h * w * (size_t)c->in_channels),
          *ctx = noise_floats(2, 2 * L * (size_t)c->context_dim),
          *y = noise_floats(3, 2 * (size_t)c->adm_channels + 1), *out = calloc(*n, sizeof *out);
    assert_non_null(out);
    struct family_batch in = { .shape = { 4, { 2, c->in_channels, h, w } },
                               .x = x,
                               .t = (const float[]) { 500.0f, 3.0f },
                               .context = ctx,
                               .tokens = L,
                               .y = c->adm_channels ? y : NULL,
                               .out = out };
    assert_ok(unet_forward(net, u, &in, NULL, &err), err);
    free(x), free(ctx), free(y);
    net_close(net);
    net_rig_close(&g);
    return out;
}

static void diffusers_files_are_the_same_network(void **state)
{
    static const struct unet_config sdxl = { .in_channels = 4,
                                             .out_channels = 4,
                                             .model_channels = 64,
                                             .context_dim = 32,
                                             .adm_channels = 48,
                                             .levels = 3,
                                             .mult = { 1, 1, 2 },
                                             .depth = { 0, 1, 2 },
                                             .depth_middle = 1,
                                             .res_blocks = 2,
                                             .linear_proj = true };
    const struct unet_config *const list[] = { &tiny, &sdxl };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct keys k;
        struct unet_net ours, theirs;
        size_t n, m;
        keys_of(list[i], &k);
        struct diffusers d = { list[i]->res_blocks };
        float *a =
            pass(keys_file(&k, "ours", DT_F32, "safetensors", NULL), list[i], &ours, 5, 9, &n);
        float *b =
            pass(keys_file_changed(&k, "theirs", to_diffusers, &d), list[i], &theirs, 5, 9, &m);
        assert_true(theirs.diffusers && !ours.diffusers);
        theirs.diffusers = false;
        assert_memory_equal(&ours, &theirs, sizeof ours);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n * sizeof *a);
        free(a), free(b);
        keys_release(&k);
    }
}

static void middles_may_be_missing(void **state)
{
    static const struct without list[] = { { { NULL } },
                                           { { "middle_block.1.", "middle_block.2." } },
                                           { { "middle_block." } } };
    float *out[ARRAY_LEN(list)];
    size_t n = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct keys k;
        struct unet_net u;
        keys_of(&tiny, &k);
        out[i] = pass(keys_file_changed(&k, "middle", leave_out, &list[i]), &tiny, &u, 6, 5, &n);
        assert_int_equal(u.middle, i < 2);
        assert_int_equal(u.middle_attention, i == 0);
        keys_release(&k);
    }
    assert_true(rel_error(out[0], out[1], n) > 1e-2);
    assert_true(rel_error(out[1], out[2], n) > 1e-2);
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        free(out[i]);
}

/* A network of which only two norms are left: every res block and transformer adds nothing, but the
 * first transformer, which adds a thousandth of its norm. */
static float two_norms(const struct key *key, uint64_t i)
{
    const char *first = "input_blocks.1.1.";
    bool weight = str_ends(key->name, key->name_len, ".weight");
    if (!weight || strstr(key->name, "transformer_blocks"))
        return 0;
    if (key->shape.ndim == 1)
        return strncmp(key->name, first, strlen(first)) ? 1 : 1e-3f;
    bool through = strstr(key->name, "skip_connection") || strstr(key->name, "proj_in") ||
                   !strcmp(key->name, "input_blocks.1.1.proj_out.weight") ||
                   !strcmp(key->name, "input_blocks.0.0.weight") ||
                   !strcmp(key->name, "out.2.weight");
    return through && key->shape.ndim == 4 ? keys_tap(key, i) : 0;
}

/* Values so small that the epsilon of a norm is what counts: 1e-6 in front of transformers, else
 * 1e-5. */
static void norms_have_their_own_epsilon(void **state)
{
    struct unet_config c = tiny;
    struct keys k;
    struct net_rig g;
    struct net *net;
    struct unet_net u;
    enum { SIDE = 6, HW = SIDE * SIDE };
    float *x = noise_floats(5, 4 * HW), out[4 * HW], want[4 * HW], t = 1,
          *ctx = noise_floats(6, 16);
    berth_err err = { 0 };
    (void)state;
    c.levels = 1;
    for (size_t i = 0; i < 4 * HW; i++)
        x[i] *= 1e-3f;
    keys_of(&c, &k);
    net_rig_open(&g, "cpu=64m", keys_file_made(&k, "norms", two_norms), NULL, NULL);
    keys_release(&k);
    assert_ok(unet_detect(res_weights(g.m), "", &u, &err), err);
    struct net_args a = net_rig_args(&g);
    assert_ok(net_open(&a, &net, &err), err);
    struct family_batch in = { .shape = { 4, { 1, 4, SIDE, SIDE } },
                               .x = x,
                               .t = &t,
                               .context = ctx,
                               .tokens = 1,
                               .out = out };
    assert_ok(unet_forward(net, &u, &in, NULL, &err), err);
    for (size_t ch = 0; ch < 4; ch++) { /* 32 groups of one channel each */
        double n[HW];
        float h[HW];
        plain_norm(x + ch * HW, HW, 1e-6, n);
        for (size_t i = 0; i < HW; i++)
            h[i] = (float)(x[ch * HW + i] + 1e-3 * n[i]);
        plain_norm(h, HW, 1e-5, n);
        for (size_t i = 0; i < HW; i++)
            want[ch * HW + i] = (float)(n[i] / (1 + exp(-n[i])));
    }
    assert_near("norms", out, want, 4 * HW, 1e-5);
    free(x), free(ctx);
    net_close(net);
    net_rig_close(&g);
}

static void names_of_layers(void **state)
{
    static const struct {
        const char *ours, *theirs;
    } list[] = {
        { "input_blocks.0.0", "conv_in" },
        { "input_blocks.1.0.in_layers.0", "down_blocks.0.resnets.0.norm1" },
        { "input_blocks.3.0.op", "down_blocks.0.downsamplers.0.conv" },
        { "input_blocks.5.1.proj_in", "down_blocks.1.attentions.1.proj_in" },
        { "middle_block.0.emb_layers.1", "mid_block.resnets.0.time_emb_proj" },
        { "middle_block.1.norm", "mid_block.attentions.0.norm" },
        { "middle_block.2.out_layers.3", "mid_block.resnets.1.conv2" },
        { "output_blocks.2.1.conv", "up_blocks.0.upsamplers.0.conv" },
        { "output_blocks.5.2.conv", "up_blocks.1.upsamplers.0.conv" },
        { "output_blocks.4.0.skip_connection", "up_blocks.1.resnets.1.conv_shortcut" },
        { "out.2", "conv_out" },
        { "time_embed.0", "time_embedding.linear_1" },
        { "input_blocks.3.0.in_layers.0", NULL },
        { "output_blocks.4.1.conv", NULL }, /* only the last block of a level has one */
        { "input_blocks.1.2.conv", NULL },
        { "middle_block.3.norm", NULL },
        { "input_blocks.99999999999.0.op", NULL },
        { "input_blocks.", NULL },
        { "", NULL },
    };
    char q[64];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        bool there = unet_diffusers_name(list[i].ours, 2, q, sizeof q);
        assert_int_equal(there, list[i].theirs != NULL);
        if (there)
            assert_string_equal(q, list[i].theirs);
    }
    assert_false(unet_diffusers_name("middle_block.1.norm", 2, q, 10));
}

/* ---- files that are not what they look like ---- */

struct wrong {
    const char *name;    /* this tensor ... */
    struct shape shape;  /* ... has this shape, of as many elements; ndim 0: is left out */
    const char *instead; /* or this name */
    const char *says;
};

static bool change(const void *user, const struct key *key, char *name, size_t cap,
                   struct shape *shape)
{
    const struct wrong *x = user;
    if (strcmp(key->name, x->name) != 0)
        return true;
    if (x->instead)
        snprintf(name, cap, "%s", x->instead);
    else if (!x->shape.ndim)
        return false;
    else
        *shape = x->shape;
    return true;
}

static void wrong_files_are_told(void **state)
{
    static const struct wrong list[] = {
        { .name = "time_embed.0.weight", .says = "no UNet" },
        { .name = "input_blocks.0.0.weight", .says = "no UNet" },
        { .name = "input_blocks.1.0.out_layers.3.weight", .says = "without" },
        { .name = "input_blocks.1.1.proj_in.weight", .says = "proj_in" },
        { .name = "input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", .says = "to_k" },
        { .name = "input_blocks.0.0.weight", .shape = { 1, { 32 * 4 * 9 } }, .says = "is [1152]" },
        { .name = "input_blocks.1.0.out_layers.3.weight",
          .shape = { 4, { 36, 256, 1, 1 } },
          .says = "heads" },
        { .name = "input_blocks.3.1.proj_in.weight",
          .shape = { 2, { 64, 64 } },
          .says = "not like" },
        { .name = "time_embed.2.bias",
          .instead = "input_blocks.1.0.time_stack.in_layers.0.weight",
          .says = "video" },
        { .name = "time_embed.2.bias", .instead = "label_emb.weight", .says = "classes" },
    };
    struct keys k;
    struct unet_net u;
    (void)state;
    keys_of(&tiny, &k);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        berth_err err = { 0 };
        /* element counts must agree: those that do not are written with a shape of the same size */
        struct weights *w = open_file(keys_file_changed(&k, "wrong", change, &list[i]));
        assert_fails(unet_detect(w, "", &u, &err), err, BERTH_EUNSUPPORTED, list[i].says);
        weights_close(w);
    }
    keys_release(&k);
}

/* A file that lacks any one of its tensors is refused, by name where that is known: none is
 * optional. */
static void no_tensor_may_be_missing(void **state)
{
    struct unet_config with = tiny; /* and with SDXL's vector */
    (void)state;
    with.adm_channels = 40;
    for (int adm = 0; adm < 2; adm++) {
        struct keys k;
        keys_of(adm ? &with : &tiny, &k);
        for (size_t i = 0; i < k.n; i++) {
            struct wrong x = { .name = k.at[i].name };
            struct net_rig g;
            struct net *net = NULL;
            struct unet_net u;
            uint64_t peak;
            berth_err err = { 0 };
            if (adm && !strstr(x.name, "label_emb"))
                continue;
            net_rig_open(&g, "cpu=256m", keys_file_changed(&k, "less", change, &x), NULL, NULL);
            struct net_args a = net_rig_args(&g);
            struct family_batch in = { .shape = { 4, { 1, 4, 8, 8 } }, .tokens = 3 };
            berth_status s = unet_detect(res_weights(g.m), "", &u, &err);
            u.heads = adm ? 4 : u.heads; /* the toy's own */
            if (!s)
                s = net_open(&a, &net, &err);
            if (!s)
                s = unet_forward(net, &u, &in, &peak, &err);
            if (!s)
                fail_msg("without '%s' it runs", x.name);
            if (s == BERTH_ENOTFOUND && !strstr(err.msg, x.name))
                fail_msg("without '%s': %s", x.name, err.msg);
            net_close(net);
            net_rig_close(&g);
        }
        keys_release(&k);
    }
}

/* A gap counts as missing; what is not part of the network is counted. */
static void gaps_and_leftovers(void **state)
{
    struct keys k;
    struct unet_net u;
    struct net_rig g;
    struct net *net;
    uint64_t peak;
    const char *first;
    berth_err err = { 0 };
    struct family_batch in = { .shape = { 4, { 1, 4, 8, 8 } }, .tokens = 3 };
    struct wrong x = { .name = "time_embed.2.bias",
                       .instead = "input_blocks.1.1.transformer_blocks.2.norm1.weight" };
    (void)state;
    keys_of(&tiny, &k);
    struct weights *w = open_file(keys_file_changed(&k, "gap", change, &x));
    assert_ok(unet_detect(w, "", &u, &err), err);
    assert_int_equal(u.depth_in[1], 3);
    weights_close(w);
    x = (struct wrong) { .name = "out.2.bias", .instead = "middle_block.1.norm.more" };
    net_rig_open(&g, "cpu=256m", keys_file_changed(&k, "left", change, &x), NULL, NULL);
    keys_release(&k);
    struct net_args a = net_rig_args(&g);
    assert_ok(unet_detect(res_weights(g.m), "", &u, &err), err);
    assert_ok(net_open(&a, &net, &err), err);
    assert_fails(unet_forward(net, &u, &in, &peak, &err), err, BERTH_ENOTFOUND,
                 "out.2: no such weight 'out.2.bias' in '");
    assert_true(net_unused(net, &first) >= 1);
    net_close(net);
    net_rig_close(&g);
}

/* Contexts of SDXL's widths without its vector: its file was cut. */
static void sdxl_without_its_vector_is_told(void **state)
{
    struct unet_config c = tiny;
    (void)state;
    for (int refiner = 0; refiner < 2; refiner++) {
        struct keys k;
        struct unet_net u;
        berth_err err = { 0 };
        c.context_dim = refiner ? 1280 : 2048;
        keys_of(&c, &k);
        struct weights *w = open_file(keys_file(&k, "cut", DT_F32, "safetensors", NULL));
        assert_fails(unet_detect(w, "", &u, &err), err, BERTH_EUNSUPPORTED, "label_emb.0.0.weight");
        weights_close(w);
        keys_release(&k);
    }
}

/* Weights of a wrong shape behind a right config: the layer is named. */
static void layers_check_their_weights(void **state)
{
    static const struct wrong x = { .name = "middle_block.0.in_layers.2.weight",
                                    .shape = { 4, { 64, 32, 6, 3 } } };
    struct keys k;
    struct net_rig g;
    struct net *net;
    struct unet_net u;
    uint64_t peak;
    berth_err err = { 0 };
    (void)state;
    keys_of(&tiny, &k);
    net_rig_open(&g, "cpu=256m", keys_file_changed(&k, "bad", change, &x), NULL, NULL);
    keys_release(&k);
    assert_ok(unet_detect(res_weights(g.m), "", &u, &err), err);
    struct net_args a = net_rig_args(&g);
    assert_ok(net_open(&a, &net, &err), err);
    struct family_batch in = { .shape = { 4, { 1, 4, 8, 8 } }, .tokens = 3 };
    assert_fails(unet_forward(net, &u, &in, &peak, &err), err, BERTH_EINVAL,
                 "middle_block.0.in_layers.2");
    net_close(net);
    net_rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_configs_are_read),
        cmocka_unit_test(known_models_are_read),
        cmocka_unit_test(middles_may_be_missing),
        cmocka_unit_test(diffusers_files_are_the_same_network),
        cmocka_unit_test(norms_have_their_own_epsilon),
        cmocka_unit_test(names_of_layers),
        cmocka_unit_test(wrong_files_are_told),
        cmocka_unit_test(no_tensor_may_be_missing),
        cmocka_unit_test(gaps_and_leftovers),
        cmocka_unit_test(sdxl_without_its_vector_is_told),
        cmocka_unit_test(layers_check_their_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
