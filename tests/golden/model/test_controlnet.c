/* UNets with ControlNets beside them, as the golden file has them: every net of the manifest's
 * controlnet.nets, with its weights from controlnet_<net>_keys.json and those of the UNet from
 * controlnet_base_<base>_keys.json. A case is a <net>/out/<strength>: what x, t, context, pooled
 * and hint of the net give. Each runs over all latents at once, and one by one. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/diffusion.h"

#define ITEMS_MAX 4

/* <net>/<name>; NULL: there is none. */
static float *tensor(const struct weights *w, const char *net, const char *name, struct shape *s)
{
    size_t n;
    char full[128];
    snprintf(full, sizeof full, "%s/%s", net, name);
    const struct weights_entry *e = weights_find(w, full, strlen(full));
    *s = e ? e->shape : (struct shape) { 0 };
    return e ? golden_floats(w, e, &n) : NULL;
}

struct pair { /* two models over one set of devices */
    struct net_rig g;
    struct res_model *control;
    struct diffusion *d;
    size_t net;
};

static void pair_open(struct pair *p, const char *base, const char *control)
{
    const struct where at = where_from_env();
    berth_err err = { 0 };
    net_rig_open(&p->g, at.devices, base, NULL, NULL);
    assert_ok(tpool_new(2, &p->g.pool, &err), err);
    struct res_open_args args = { .path = control, .arch = arch_blocks };
    assert_ok(res_open(p->g.f.r, &args, &p->control, NULL, &err), err);
    assert_ok(res_load(p->control, NULL, NULL, &err), err);
    assert_ok(
        diffusion_control_fits(res_weights(p->g.m), NULL, res_weights(p->control), NULL, &err),
        err);
    struct diffusion_args open = { .res = p->g.f.r, .m = p->g.m, .pool = p->g.pool, .act = at.act };
    assert_ok(diffusion_open(&open, &p->d, &err), err);
    assert_false(diffusion_control_find(p->d, p->control, &p->net));
    assert_ok(diffusion_control_open(p->d, p->control, NULL, &p->net, &err), err);
    assert_true(diffusion_control_find(p->d, p->control, &p->net));
}

static void pair_close(struct pair *p)
{
    diffusion_close(p->d);
    res_unref(p->control);
    net_rig_close(&p->g);
}

static void run_case(struct pair *p, const struct weights *w, const char *net, const char *out_name,
                     int type)
{
    const struct where at = where_from_env();
    struct shape xs, cs, ts, hs, os, ps;
    float *x = tensor(w, net, "x", &xs), *context = tensor(w, net, "context", &cs),
          *t = tensor(w, net, "t", &ts), *hint = tensor(w, net, "hint", &hs),
          *pooled = tensor(w, net, "pooled", &ps), *want = tensor(w, net, out_name, &os);
    assert_true(x && context && t && hint && want);
    const size_t items = (size_t)xs.dim[0], each = (size_t)shape_inner(&os, 1), n = items * each;
    float *out = calloc(n, sizeof *out), *one = calloc(n, sizeof *one);
    struct diffusion_cond c[ITEMS_MAX];
    const struct diffusion_cond *list[ITEMS_MAX];
    char text[128];
    berth_err err = { 0 };
    assert_true(out && one && items <= ITEMS_MAX);
    const struct diffusion_steer by = { .net = p->net,
                                        .hint = hint,
                                        .hint_shape = hs,
                                        .strength = strtof(strchr(out_name, '/') + 1, NULL),
                                        .type = type };
    for (size_t i = 0; i < items; i++) {
        c[i] = (struct diffusion_cond) { .context = context + i * cs.dim[1] * cs.dim[2],
                                         .tokens = (size_t)cs.dim[1],
                                         .width = (size_t)cs.dim[2],
                                         .pooled = pooled ? pooled + i * ps.dim[1] : NULL,
                                         .pooled_n = pooled ? (size_t)ps.dim[1] : 0 };
        list[i] = &c[i];
    }
    struct diffusion_in in = {
        .shape = xs, .x = x, .t = t, .cond = list, .steer = &by, .steers = 1, .out = out
    };
    assert_ok(diffusion_forward(p->d, &in, &err), err);
    snprintf(text, sizeof text, "%s %s", net, out_name);
    snprintf(text + strlen(text), sizeof text - strlen(text), " of all");
    assert_near(text, out, want, n, where_limit(&at, WHERE_MODULE, "controlnet", out_name));
    for (size_t i = 0; i < items; i++) {
        in.shape.dim[0] = 1;
        in.x = x + i * each;
        in.t = t + i;
        in.cond = list + i;
        in.out = one + i * each;
        assert_ok(diffusion_forward(p->d, &in, &err), err);
    }
    if (!at.card)
        assert_memory_equal(one, out, n * sizeof *out); /* batches do not change bits */
    in.out = one + (items - 1) * each;
    in.steers = 0; /* and it does steer */
    assert_ok(diffusion_forward(p->d, &in, &err), err);
    assert_true(rel_error(one + (items - 1) * each, want + (items - 1) * each, each) > 1e-2);
    free(x), free(context), free(t), free(hint), free(pooled), free(want), free(out), free(one);
}

static void run_net(const struct weights *w, const char *net, const char *base, int type)
{
    struct keys k = { 0 }, b = { 0 };
    char file[96], of[512], by[512], lead[96];
    struct pair p;
    size_t cases = 0;
    berth_err err = { 0 };
    snprintf(file, sizeof file, "controlnet_base_%s_keys.json", base);
    assert_ok(keys_read(golden_path(file), &b, &err), err);
    snprintf(of, sizeof of, "%s", keys_file(&b, "base", DT_F32, "safetensors", NULL));
    snprintf(file, sizeof file, "controlnet_%s_keys.json", net);
    assert_ok(keys_read(golden_path(file), &k, &err), err);
    snprintf(by, sizeof by, "%s", keys_file(&k, "control", DT_F32, "safetensors", NULL));
    pair_open(&p, of, by);
    snprintf(lead, sizeof lead, "%s/out/", net);
    for (size_t i = 0; i < weights_count(w); i++) {
        const char *name = weights_at(w, i)->name;
        if (strncmp(name, lead, strlen(lead)) != 0)
            continue;
        run_case(&p, w, net, name + strlen(net) + 1, type);
        cases++;
    }
    assert_true(cases > 0);
    pair_close(&p);
    keys_release(&k);
    keys_release(&b);
}

static void nets_equal_the_golden_file(void **state)
{
    json_t *manifest;
    const json_t *base;
    const char *net;
    uint64_t type;
    berth_err err;
    (void)state;
    where_or_skip();
    struct weights *w = golden_open("controlnet.safetensors");
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_t *about = json_object_get(manifest, "controlnet");
    json_t *nets = json_object_get(about, "nets");
    assert_true(json_object_size(nets) > 0);
    assert_true(js_get_u64(json_object_get(about, "type"), &type));
    json_object_foreach(nets, net, base)
    {
        run_net(w, net, json_string_value(base), (int)type);
    }
    weights_close(w);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(nets_equal_the_golden_file) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
