/* The UNets of the golden files: every unet_<model> of the manifest, its weights made from
 * <model>_unet_keys.json.
 *
 * Error: largest absolute difference over the largest absolute value of the reference, at most what
 * support/where.h has for a module. And without a card: what the networks make of BF16, every
 * result rounded (op_rounding.h), by the norm of the difference at most 2e-2; with sums of BF16 it
 * is 2.1e-2. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/families.h"
#include "model/unet/unet.h"
#include "net/net_impl.h"
#include "unit/op/op_rounding.h"

static float *case_tensor(const struct weights *w, const char *lead, const char *name,
                          struct shape *s)
{
    char full[64];
    size_t n;
    int len = snprintf(full, sizeof full, "%s%s", lead, name);
    const struct weights_entry *e = weights_find(w, full, (size_t)len);
    *s = e ? e->shape : (struct shape) { 0 };
    return e ? golden_floats(w, e, &n) : NULL;
}

struct model {
    struct net_rig g;
    struct net *net;
    struct unet_net u;
    char root[ARCH_ROOT_MAX];
    struct where at;
    bool rounding; /* BF16 on the cpu */
};

/* The root is what stands in front of the first block in the key list. */
static void model_open_keys(struct model *m, const char *model, bool rounding)
{
    struct keys k = { 0 };
    char file[96];
    berth_err err = { 0 };
    m->at = where_from_env();
    m->rounding = rounding;
    snprintf(file, sizeof file, "%s_unet_keys.json", model);
    assert_ok(keys_read(golden_path(file), &k, &err), err);
    m->root[0] = '\0';
    for (size_t i = 0; i < k.n; i++) {
        const char *at = strstr(k.at[i].name, "input_blocks.0.0.weight");
        if (at)
            snprintf(m->root, sizeof m->root, "%.*s", (int)(at - k.at[i].name), k.at[i].name);
    }
    const char *path = keys_file(&k, model, DT_F32, "safetensors", NULL);
    net_rig_open(&m->g, rounding ? "cpu=2g" : m->at.devices, path, m->root[0] ? m->root : NULL,
                 NULL);
    keys_release(&k);
    assert_ok(unet_detect(res_weights(m->g.m), m->root, &m->u, &err), err);
    assert_ok(tpool_new(2, &m->g.pool, &err), err);
    struct net_args a = net_rig_args(&m->g);
    a.root = m->root;
    a.act = m->at.act;
    assert_ok(net_open(&a, &m->net, &err), err);
    if (rounding) {
        m->net->backend = &op_rounding;
        m->net->act = DT_BF16;
    }
}

static void model_close_keys(struct model *m)
{
    net_close(m->net);
    net_rig_close(&m->g);
}

static uint64_t number(const json_t *config, const char *name)
{
    uint64_t v = 0;
    return js_get_u64(json_object_get(config, name), &v) ? v : 0;
}

static uint64_t at(const json_t *list, size_t i)
{
    uint64_t v = UINT64_MAX;
    assert_true(js_get_u64(json_array_get(list, i), &v));
    return v;
}

/* What was read from shapes is what the reference was built with. */
static void compare_config(const struct unet_net *u, const json_t *c)
{
    const json_t *res = json_object_get(c, "num_res_blocks"),
                 *mult = json_object_get(c, "channel_mult"),
                 *depth = json_object_get(c, "transformer_depth"),
                 *depth_out = json_object_get(c, "transformer_depth_output");
    assert_int_equal(u->in_channels, number(c, "in_channels"));
    assert_int_equal(u->out_channels, number(c, "out_channels"));
    assert_int_equal(u->model_channels, number(c, "model_channels"));
    assert_int_equal(u->context_dim, number(c, "context_dim"));
    assert_int_equal(u->adm_channels, number(c, "adm_in_channels"));
    assert_int_equal(u->depth_middle, number(c, "transformer_depth_middle"));
    assert_int_equal(u->heads, number(c, "num_heads"));
    assert_int_equal(u->linear_proj, json_is_true(json_object_get(c, "use_linear_in_transformer")));
    if (!u->heads)
        assert_int_equal(u->head_dim, number(c, "num_head_channels"));
    assert_int_equal(u->levels, json_array_size(mult));
    size_t block = 1, k = 0;
    for (uint32_t l = 0; l < u->levels; l++, block++) { /* a step between levels has no depth */
        assert_int_equal(u->res[l], at(res, l));
        assert_int_equal(u->mult[l], at(mult, l));
        for (uint32_t i = 0; i < u->res[l]; i++)
            assert_int_equal(u->depth_in[block++], at(depth, k++));
    }
    assert_int_equal(u->output_blocks, json_array_size(depth_out));
    for (uint32_t i = 0; i < u->output_blocks; i++) /* listed from the last block to the first */
        assert_int_equal(u->depth_out[i], at(depth_out, u->output_blocks - 1 - i));
}

static void run_case(struct model *m, const struct weights *w, const char *name, const char *lead)
{
    struct shape xs, ts, cs, ys, os;
    float *x = case_tensor(w, lead, "x", &xs), *t = case_tensor(w, lead, "t", &ts),
          *context = case_tensor(w, lead, "context", &cs), *y = case_tensor(w, lead, "adm", &ys),
          *want = case_tensor(w, lead, "out", &os);
    size_t n = (size_t)(os.dim[0] * os.dim[1] * os.dim[2] * os.dim[3]);
    float *out = calloc(n, sizeof *out);
    char what[96], out_name[64];
    uint64_t peak;
    berth_err err = { 0 };
    assert_true(x && t && context && want && out && !y == !m->u.adm_channels);
    struct family_batch in = { .shape = xs,
                               .x = x,
                               .t = t,
                               .context = context,
                               .tokens = (size_t)cs.dim[1],
                               .y = y,
                               .out = out };
    assert_ok(unet_forward(m->net, &m->u, &in, &peak, &err), err);
    assert_ok(unet_forward(m->net, &m->u, &in, NULL, &err), err);
    assert_int_equal(net_report(m->net).peak, peak);
    snprintf(what, sizeof what, "%s %s", name, lead);
    snprintf(out_name, sizeof out_name, "%sout", lead);
    assert_near(what, out, want, n,
                m->rounding ? 2e-2 : where_limit(&m->at, WHERE_MODULE, name, out_name));
    free(x), free(t), free(context), free(y), free(want), free(out);
}

/* The vector of SDXL, from the pooled text and the sizes that the file's note tells. */
static void run_with_sizes(struct model *m, const struct weights *w, const char *name,
                           const char *note)
{
    struct diffusion_size s = { .said = true };
    struct shape xs, ts, cs, ps, os;
    struct diffusion *d;
    berth_err err = { 0 };
    if (!note ||
        sscanf(note, "adm for width %u height %u crop_w %u crop_h %u target %ux%u", &s.width,
               &s.height, &s.crop_w, &s.crop_h, &s.target_width, &s.target_height) != 6)
        return;
    float *x = case_tensor(w, "", "x", &xs), *t = case_tensor(w, "", "t", &ts),
          *context = case_tensor(w, "", "context", &cs),
          *pooled = case_tensor(w, "", "pooled", &ps), *want = case_tensor(w, "", "out", &os);
    const double limit = where_limit(&m->at, WHERE_MODULE, name, "out");
    size_t n = (size_t)(os.dim[1] * os.dim[2] * os.dim[3]);
    float *out = calloc(n, sizeof *out);
    assert_true(x && t && context && pooled && want && out);
    assert_ok(diffusion_open(&(struct diffusion_args) { .res = m->g.f.r,
                                                        .m = m->g.m,
                                                        .part = m->g.part,
                                                        .pool = m->g.pool,
                                                        .act = m->at.act },
                             &d, &err),
              err);
    struct diffusion_cond c = { .context = context,
                                .tokens = (size_t)cs.dim[1],
                                .width = (size_t)cs.dim[2],
                                .pooled = pooled,
                                .pooled_n = (size_t)ps.dim[1],
                                .size = s };
    const struct diffusion_cond *const list[] = { &c };
    struct diffusion_in in = { .shape = xs, .x = x, .t = t, .cond = list, .out = out };
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_near("with sizes of the picture", out, want, n, limit);
    /* height before width, and all of them count */
    double apart = limit < 1e-3 ? 10 * limit : 0;
    uint32_t *field[] = { &c.size.width,  &c.size.height,       &c.size.crop_w,
                          &c.size.crop_h, &c.size.target_width, &c.size.target_height };
    for (size_t i = 0; i + 1 < ARRAY_LEN(field); i++) {
        c.size = s;
        uint32_t swap = *field[i];
        *field[i] = *field[i + 1];
        *field[i + 1] = swap;
        assert_ok(diffusion_forward(d, &in, &err), err);
        assert_true(rel_error(out, want, n) > apart);
    }
    diffusion_close(d);
    free(x), free(t), free(context), free(pooled), free(want), free(out);
}

static void run_model(const char *name, const json_t *about, bool rounding)
{
    struct model m;
    char file[96];
    snprintf(file, sizeof file, "%s.safetensors", name);
    struct weights *w = golden_open(file);
    model_open_keys(&m, name + strlen("unet_"), rounding);
    compare_config(&m.u, json_object_get(about, "config"));
    size_t cases = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (!str_ends(e->name, e->name_len, "/x") && strcmp(e->name, "x") != 0)
            continue;
        char lead[32];
        snprintf(lead, sizeof lead, "%.*s", (int)e->name_len - 1, e->name);
        run_case(&m, w, name, lead);
        cases++;
    }
    assert_true(cases > 0);
    if (!rounding)
        run_with_sizes(&m, w, name, json_string_value(json_object_get(about, "note")));
    model_close_keys(&m);
    weights_close(w);
}

static void run_models(bool rounding)
{
    json_t *manifest, *about;
    const char *name;
    size_t models = 0;
    berth_err err;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        if (strncmp(name, "unet_", 5) != 0)
            continue;
        run_model(name, about, rounding);
        models++;
    }
    assert_true(models > 0);
    json_decref(manifest);
}

static void unets_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    run_models(false);
}

static void in_bf16_they_stay_near(void **state)
{
    (void)state;
    run_models(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(unets_equal_the_golden_files),
                                        cmocka_unit_test(in_bf16_they_stay_near) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
