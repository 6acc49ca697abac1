/* loader_forms: every form that a loader has (plain, MultiGPU, DisTorch2, GGUF and their mixtures)
 * opens the same model.
 *
 *     static const char *const models[] = { "UNETLoader", "UnetLoaderGGUF", NULL };
 *     struct loader_forms f = { &rig, models, "unet_name", "qwen", NULL, use, &scene };
 *     assert_int_equal(loader_forms(&f), 12);
 *
 * Files are models/.../<model>.safetensors, and .gguf for loaders of those. Devices cuda:0, cuda:1
 * and cpu must be there. */
#ifndef SUPPORT_LOADER_FORMS_H
#define SUPPORT_LOADER_FORMS_H

#include "support/loader_rig.h"

/* A model put to use; the caller's reference. */
typedef struct htensor *form_use_fn(void *user, struct value *opened);
struct loader_forms {
    struct rig *r;
    const char *const *base; /* what class names begin with; NULL ends them */
    const char *input;       /* that names the file */
    const char *model;
    const char *type; /* of CLIPLoader's kin; NULL: none */
    form_use_fn *use;
    void *user;
};

static inline bool form_has(const struct node_class *c, const char *input)
{
    return node_input_index(c, input) != SIZE_MAX;
}

static inline bool form_begins(const struct node_class *c, const char *const *base)
{
    for (; *base; base++)
        if (strncmp(c->name, *base, strlen(*base)) == 0)
            return true;
    return false;
}

/* Inputs of a form: the file, and a placement if it declares one. */
static inline void form_inputs(const struct loader_forms *f, const struct node_class *c, char *out,
                               size_t cap)
{
    bool multi = strstr(c->name, "MultiGPU"), type = f->type && form_has(c, "type");
    snprintf(out, cap, "{\"%s\": \"%s.%s\"%s%s%s%s%s%s%s}", f->input, f->model,
             strstr(c->name, "GGUF") && strcmp(f->input, "vae_name") ? "gguf" : "safetensors",
             type ? ", \"type\": \"" : "", type ? f->type : "", type ? "\"" : "",
             form_has(c, "compute_device") ? ", \"compute_device\": \"cuda:0\"" : "",
             form_has(c, "device") && multi ? ", \"device\": \"cuda:0\"" : "",
             form_has(c, "virtual_vram_gb") ? ", \"virtual_vram_gb\": 0.001" : "",
             form_has(c, "donor_device") ? ", \"donor_device\": \"cuda:1\"" : "");
}

/* A placed form computes where it was told to, and other bytes lie where it said. */
static inline void form_place(const struct loader_forms *f, const struct node_class *c,
                              const struct call *x)
{
    struct res_model *m = call_model(x, 0)->part[0];
    if (!strstr(c->name, "MultiGPU"))
        return;
    assert_string_equal(res_compute(m)->name, "cuda:0");
    if (form_has(c, "donor_device"))
        assert_true(rig_bytes_on(f->r, m, "cuda:1") > 0);
    else if (form_has(c, "virtual_vram_gb"))
        assert_true(rig_bytes_on(f->r, m, "cpu") > 0);
    else
        assert_int_equal(rig_bytes_on(f->r, m, "cuda:0"), res_info(m).bytes);
}

static inline bool form_same(const struct htensor *a, const struct htensor *b)
{
    return shape_eq(&a->shape, &b->shape) &&
           memcmp(a->data, b->data, htensor_count(a) * sizeof(float)) == 0;
}

/* Every class that begins so gives the same, for files of either kind. How many there are. */
static inline size_t loader_forms(const struct loader_forms *f)
{
    struct htensor *want[2] = { NULL, NULL };
    size_t forms = 0;
    for (size_t i = 0; i < node_count(); i++) {
        const struct node_class *c = node_at(i);
        struct call x;
        char inputs[320];
        berth_err err = { 0 };
        if (!form_begins(c, f->base) || !form_has(c, f->input))
            continue;
        bool gguf = strstr(c->name, "GGUF");
        form_inputs(f, c, inputs, sizeof inputs);
        assert_ok(rig_run(f->r, &x, c->name, inputs, &err), err);
        form_place(f, c, &x);
        struct htensor *got = f->use(f->user, x.out[0].at[0]);
        if (want[gguf] && !form_same(got, want[gguf]))
            fail_msg("%s: another result of %s", c->name, f->model);
        if (!want[gguf])
            want[gguf] = htensor_ref(got);
        htensor_unref(got);
        call_release(&x);
        forms++;
    }
    htensor_unref(want[0]);
    htensor_unref(want[1]);
    return forms;
}

#endif
