/* select_device: which device computes what a loader opened: ComfyUI's names of devices on ours.
 * `cpu` is the cpu, `gpu:N` the N-th device that is none; `default` what the loader chose. A
 * device that is not there leaves the input as it is, with a line in the log: workflows travel. */
#include "node/compute.h"
#include "node/loader_impl.h"

#include <stdlib.h>
#include <string.h>

static berth_status add_choice(struct names *out, const char *s, berth_err *err)
{
    return names_add(out, s, strlen(s)) ? BERTH_OK : err_set(err, BERTH_ENOMEM, "choices");
}

/* One card alone has no name of its own: it is the default. */
static berth_status cards(const struct node_env *env, struct names *out, berth_err *err)
{
    size_t n = 0;
    char name[32];
    for (size_t i = 0; i < env->devices_n; i++)
        n += strcmp(env->devices[i], "cpu") != 0;
    for (size_t i = 0; n > 1 && i < n; i++) {
        snprintf(name, sizeof name, "gpu:%zu", i);
        if (add_choice(out, name, err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status choices(const struct node_env *env, struct names *out, berth_err *err)
{
    return add_choice(out, "default", err) || add_choice(out, "cpu", err) ? err->code
                                                                          : cards(env, out, err);
}

static berth_status choices_vae(const struct node_env *env, struct names *out, berth_err *err)
{
    return add_choice(out, "default", err) ? err->code : cards(env, out, err);
}

/* Our name of it; NULL: there is no such device. */
static const char *device_of(const struct node_env *env, const char *choice)
{
    bool cpu = strcmp(choice, "cpu") == 0;
    char *end;
    if (!cpu && strncmp(choice, "gpu:", 4) != 0)
        return NULL;
    unsigned long at = cpu ? 0 : strtoul(choice + 4, &end, 10);
    for (size_t i = 0; i < env->devices_n; i++)
        if ((strcmp(env->devices[i], "cpu") == 0) == cpu && !at--)
            return env->devices[i];
    return NULL;
}

/* The parts that the loader opened take the place of others. */
static void back_to_loaded(struct model_ref *m)
{
    for (size_t i = 0; i < m->parts; i++) {
        if (!m->loaded[i])
            continue;
        res_unref(m->part[i]);
        m->part[i] = m->loaded[i];
        m->loaded[i] = NULL;
    }
}

/* Part i of the same file, to compute there. */
static berth_status move_part(struct node_call *c, struct model_ref *m, size_t i,
                              const char *device, berth_err *err)
{
    struct res_model_info info = res_info(m->part[i]);
    struct placement p = { .compute = device, .retention = RES_AUTO };
    struct opened_part to = { 0 };
    if (strcmp(res_compute(m->part[i])->name, device) == 0)
        return BERTH_OK;
    if (info.converted != DT_NONE)
        p.dtype = dtype_name(info.converted);
    if (loader_place(c, info.path, info.part, info.role, &p, false, &to, err))
        return err->code;
    if (info.wide) { /* as an adapter wanted it */
        struct res_model *plain = to.m;
        berth_status s = res_open_wider(plain, info.wide, info.wide_cols, &to.m, err);
        res_unref(plain);
        if (s)
            return s;
    }
    m->loaded[i] = m->part[i];
    m->part[i] = to.m;
    return BERTH_OK;
}

static berth_status run_select(struct node_call *c, berth_err *err)
{
    const char *input = c->cls->in[0].name, *choice, *device;
    struct model_ref m;
    if (in_text(c, "device", &choice, err) || in_model_copy(c, input, &m, err))
        return err->code;
    berth_status s = BERTH_OK;
    device = device_of(c->env, choice);
    if (strcmp(choice, "default") == 0 || device)
        back_to_loaded(&m);
    else
        log_info(c->env->log, "node.device",
                 "node=%s device=%s why=\"there is no such device here\"", c->id, choice);
    for (size_t i = 0; !s && device && i < m.parts; i++)
        s = move_part(c, &m, i, device, err);
    if (!s)
        return out_value(c, 0, value_model(&m), err);
    model_ref_release(&m);
    return s;
}

/* Any name is fine: what is not here is left alone when the node runs. */
static berth_status any_device(const struct node_check *k, berth_err *err)
{
    (void)k;
    (void)err;
    return BERTH_OK;
}

#define SELECTS(c, title, what, type, fn)                                                          \
    NODE_CLASS(c, .display = title, .category = "advanced/multigpu", V3("multigpu"),               \
               INS(SOCKET(what, type), CHOICE_IN("device", fn)), OUT_OF(type), .run = run_select,  \
               .validate = any_device, .validates = "device")
SELECTS(SelectModelDevice, "Select Model Device", "model", "MODEL", choices);
SELECTS(SelectCLIPDevice, "Select CLIP Device", "clip", "CLIP", choices);
SELECTS(SelectVAEDevice, "Select VAE Device", "vae", "VAE", choices_vae);

/* ComfyUI computes the prompts of a step on several cards at once, a copy of the model on each.
 * Here one device computes them together, and the others may hold its blocks: the picture is the
 * same, so the model goes through. */
static berth_status run_units(struct node_call *c, berth_err *err)
{
    struct model_ref m;
    if (in_model_copy(c, "model", &m, err))
        return err->code;
    log_info(c->env->log, "node.device",
             "node=%s why=\"prompts of a step are computed together, on one device\"", c->id);
    return out_value(c, 0, value_model(&m), err);
}

NODE_CLASS(MultiGPU_WorkUnits, .display = "MultiGPU CFG Split", .category = "advanced/multigpu",
           V3("multigpu"),
           INS(SOCKET("model", "MODEL"),
               INT_IN("max_gpus", 2, 0, 0, 1, .no_range = true, .more = "\"min\":1")),
           OUT_OF("MODEL"), .run = run_units);
