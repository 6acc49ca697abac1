/* loader_rig: a models folder with small files, devices, and loader nodes called as the executor
 * does.
 *
 *     struct rig r;
 *     rig_open(&r, "cpu=256m,null:0=128m");
 *     rig_preset(&r, "diffusion_models/flux.safetensors", "flux-tiny");
 *     struct call x;
 *     assert_ok(rig_run(&r, &x, "UNETLoader", "{\"unet_name\": \"flux.safetensors\"}", &err), err);
 *     struct res_model *m = call_model(&x, 0)->part[0];
 *     call_release(&x);
 *     rig_close(&r);                                      nothing leaked */
#ifndef SUPPORT_LOADER_RIG_H
#define SUPPORT_LOADER_RIG_H

#include "node/node.h"
#include "support/models.h"
#include "support/presets.h"
#include "text/unigram.h"

struct rig {
    struct fixture f;
    struct folders *folders;
    struct node_env env;
    const char *device[8];
    char base[512];
};

static inline void rig_open(struct rig *r, const char *devices)
{
    berth_err err = { 0 };
    struct res_config cfg = { .reserve = 1 << 20 };
    *r = (struct rig) { .base = "" };
    snprintf(r->base, sizeof r->base, "%s", tmp_path("base"));
    fixture_open(&r->f, devices, &cfg);
    struct folders_config folders = { .base = r->base };
    assert_ok(folders_new(&folders, &r->folders, &err), err);
    size_t n = devset_count(r->f.set);
    assert_true(n <= ARRAY_LEN(r->device));
    for (size_t i = 0; i < n; i++)
        r->device[i] = devset_at(r->f.set, i)->name;
    r->env = (struct node_env) { .folders = r->folders,
                                 .res = r->f.r,
                                 .devices = r->device,
                                 .devices_n = n,
                                 .clock = &r->f.clock.base,
                                 /* golden numbers are F32, and their noise is a cpu's */
                                 .numbers = {
                                     .act_unet = DT_F32, .act_vae = DT_F32, .cpu_noise = true } };
}

static inline void rig_close(struct rig *r)
{
    folders_free(r->folders);
    fixture_close(&r->f);
}

/* Absolute path of models/<name>, its folder made. Good until the next call. */
static inline const char *rig_path(struct rig *r, const char *name)
{
    static char path[1024];
    char dir[1024];
    berth_err err = { 0 };
    snprintf(path, sizeof path, "%s/models/%s", r->base, name);
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    assert_ok(path_make_dirs(dir, &err), err);
    return path;
}

static inline void rig_preset(struct rig *r, const char *name, const char *preset)
{
    const char *path = rig_path(r, name);
    FILE *there = fopen(path, "rb"); /* the folder outlives a rig */
    if (there)
        fclose(there);
    else
        preset_write(preset, DT_F16, path);
}

/* The same of T5, which alone encodes for Mochi and wants its tokenizer, beside it. */
static inline void rig_t5(struct rig *r, const char *name)
{
    char dir[1024];
    berth_err err = { 0 };
    rig_preset(r, name, "t5-tiny");
    const char *path = rig_path(r, name);
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    assert_ok(unigram_write_stand_in(dir, &err), err);
}

struct call {
    struct node_call c;
    struct values in[NODE_INPUTS_MAX], out[NODE_OUTPUTS_MAX];
    struct node_host host;
};

static inline void call_release(struct call *x)
{
    for (size_t i = 0; i < ARRAY_LEN(x->in); i++)
        values_release(&x->in[i]);
    for (size_t i = 0; i < ARRAY_LEN(x->out); i++)
        values_release(&x->out[i]);
    json_decref(x->c.ui);
    x->c.ui = NULL;
}

/* inputs: JSON object; names the class does not have fail the test. */
static inline void rig_call(struct rig *r, struct call *x, const char *cls, const char *inputs)
{
    json_t *o = NULL, *v;
    const char *key;
    berth_err err = { 0 };
    *x = (struct call) { .c.id = "1" };
    x->c.env = &r->env;
    x->c.cls = node_find(cls);
    if (!x->c.cls)
        fail_msg("no node %s", cls);
    x->c.host = &x->host;
    x->c.in = x->in;
    x->c.out = x->out;
    assert_ok(js_parse(inputs, strlen(inputs), NULL, &o, &err), err);
    json_object_foreach(o, key, v)
    {
        size_t i = node_input_index(x->c.cls, key);
        if (i == SIZE_MAX)
            fail_msg("%s has no input %s", cls, key);
        assert_ok(values_add(&x->in[i], value_from_json(v), &err), err);
    }
    json_decref(o);
}

static inline void call_give(struct call *x, const char *input, struct value *borrowed)
{
    size_t i = node_input_index(x->c.cls, input);
    berth_err err = { 0 };
    assert_true(i != SIZE_MAX);
    assert_ok(values_add(&x->in[i], value_ref(borrowed), &err), err);
}

static inline berth_status rig_run(struct rig *r, struct call *x, const char *cls,
                                   const char *inputs, berth_err *err)
{
    rig_call(r, x, cls, inputs);
    return x->c.cls->run(&x->c, err);
}

static inline const struct model_ref *call_model(const struct call *x, size_t output)
{
    assert_int_equal(x->out[output].n, 1);
    assert_int_equal(x->out[output].at[0]->kind, V_MODEL);
    return &x->out[output].at[0]->model;
}

static inline uint64_t rig_bytes_on(const struct rig *r, const struct res_model *m,
                                    const char *device)
{
    size_t i;
    berth_err err = { 0 };
    assert_ok(devset_find(r->f.set, device, strlen(device), &i, &err), err);
    return res_bytes_on(m, i);
}

#endif
