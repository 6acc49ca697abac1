/* loader_lora: adapters put into model references. Nothing is merged here: whoever computes hands
 * the list to residency. */
#include "node/hooks.h"
#include "node/loader_impl.h"

#include "lora/lora.h"
#include "model/lora_names.h"

#include <math.h>

/* What adapter files call the tensors of these models. A part of a family whose adapters are not
 * known has no names; that all are is an error. */
static berth_status collect_names(struct lora_table *t, const struct model_ref *const *ref,
                                  size_t refs, berth_err *err)
{
    berth_err last = { 0 };
    bool some = false;
    for (size_t i = 0; i < refs; i++)
        for (size_t k = 0; k < ref[i]->parts; k++) {
            struct res_model *m = ref[i]->part[k];
            berth_err now = { 0 };
            berth_status s = lora_names_file(t, res_weights(m), res_info(m).part, &now);
            some |= s == BERTH_OK;
            if (s)
                last = now;
            if (s && s != BERTH_EUNSUPPORTED) {
                *err = now;
                return s;
            }
        }
    if (!some && last.code) {
        *err = last;
        return last.code;
    }
    return some ? BERTH_OK : err_set(err, BERTH_EINVAL, "a model without weights");
}

static berth_status read_strength(struct node_call *c, const char *name, double *out,
                                  berth_err *err)
{
    if (in_f64(c, name, out, err))
        return err->code;
    return isfinite((float)*out)
               ? BERTH_OK
               : err_set(err, BERTH_EINVAL, "input '%s': %f is no number", name, *out);
}

struct target { /* an input that goes out patched */
    const char *input, *strength_name;
    const struct model_ref *in;
    struct model_ref out;
    double strength;
};

static berth_status read_target(struct node_call *c, struct target *t, berth_err *err)
{
    return in_model(c, t->input, &t->in, err) ||
                   read_strength(c, t->strength_name, &t->strength, err)
               ? err->code
               : model_ref_copy(t->in, &t->out, err);
}

berth_status lora_for(struct node_call *c, const char *path, const struct model_ref *ref,
                      struct res_adapter **out, berth_err *err)
{
    struct lora_table table = { 0 };
    berth_status s = collect_names(&table, &ref, 1, err);
    struct lora_names names = lora_table_names(&table);
    if (!s)
        s = lora_open(path, &names, c->env->log, out, err);
    lora_table_release(&table);
    return s;
}

static berth_status open_adapter(struct node_call *c, const struct target *t, size_t n,
                                 struct res_adapter **out, berth_err *err)
{
    const struct model_ref *ref[2] = { t[0].in, n > 1 ? t[1].in : NULL };
    struct lora_table table = { 0 };
    struct str path = { 0 };
    const char *name = "";
    berth_status s = in_text(c, "lora_name", &name, err);
    if (!s && (folders_resolve(c->env->folders, "loras", name, &path, err) ||
               collect_names(&table, ref, n, err)))
        s = err->code;
    struct lora_names names = lora_table_names(&table);
    if (!s)
        s = lora_open(path.p, &names, c->env->log, out, err);
    lora_table_release(&table);
    str_release(&path);
    return s ? err_add(err, "lora '%.100s'", name) : BERTH_OK;
}

/* Part i with this tensor so much wider, in the place of what it was. */
static berth_status widen_part(struct node_call *c, struct model_ref *m, size_t i,
                               const char *tensor, uint64_t cols, berth_err *err)
{
    struct res_model *to = NULL;
    if (res_open_wider(m->part[i], tensor, cols, &to, err) || call_load(c, to, true, err)) {
        res_unref(to);
        return err->code;
    }
    log_info(c->env->log, "node.lora", "node=%s tensor=%s columns=%llu", c->id, tensor,
             (unsigned long long)cols);
    res_unref(m->part[i]);
    res_unref(m->loaded[i]); /* the adapter does not fit the model as it was */
    m->loaded[i] = NULL;
    m->part[i] = to;
    return BERTH_OK;
}

/* An adapter may be for a first layer that sees more than the model's does (Flux control LoRAs):
 * the parts that have it are opened wider. */
static berth_status widen(struct node_call *c, struct model_ref *m, const struct res_adapter *a,
                          berth_err *err)
{
    char key[RES_KEY_MAX];
    for (size_t i = 0; i < m->parts; i++) {
        const struct weights *w = res_weights(m->part[i]);
        const char *part = res_info(m->part[i]).part;
        for (size_t k = 0; k < weights_count(w); k++) {
            const struct weights_entry *e = weights_at(w, k);
            if (e->shape.ndim != 2 || strncmp(e->name, part, strlen(part)) != 0)
                continue;
            uint64_t cols =
                lora_widens(a, key, res_tensor_key(m->part[i], e, key), e->shape.dim[1]);
            if (!cols)
                continue;
            if (widen_part(c, m, i, e->name, cols, err))
                return err->code;
            break; /* e was of the file that is no longer ours; there is one such layer */
        }
    }
    return BERTH_OK;
}

static berth_status apply(struct node_call *c, struct target *t, size_t n, berth_err *err)
{
    struct res_adapter *a = NULL;
    bool any = false;
    berth_status s = BERTH_OK;
    for (size_t i = 0; !s && i < n; i++) {
        s = read_target(c, &t[i], err);
        any |= t[i].strength != 0;
    }
    if (!s && any) /* all 0: they go through as they came, and the file is not opened */
        s = open_adapter(c, t, n, &a, err);
    for (size_t i = 0; !s && i < n; i++) {
        if (t[i].strength != 0)
            s = widen(c, &t[i].out, a, err);
        if (!s && t[i].strength != 0)
            s = model_ref_patch(&t[i].out, a, t[i].strength, err);
        if (!s)
            s = loader_give(c, i, &t[i].out, err);
    }
    for (size_t i = 0; i < n; i++)
        model_ref_release(&t[i].out);
    res_adapter_unref(a);
    return s;
}

static berth_status run_lora(struct node_call *c, berth_err *err)
{
    struct target t[2] = { { .input = "model", .strength_name = "strength_model" },
                           { .input = "clip", .strength_name = "strength_clip" } };
    return apply(c, t, loader_declares(c, "clip") ? 2 : 1, err);
}

NODE_CLASS(LoraLoader, .display = "Load LoRA", .category = "loaders", .module = "nodes",
           .description = "Adds an adapter to a diffusion model and its text encoders.",
           INS(SOCKET("model", "MODEL"), SOCKET("clip", "CLIP"), FOLDER_IN("lora_name", "loras"),
               FLOAT_IN("strength_model", 1.0, -100.0, 100.0, 0.01),
               FLOAT_IN("strength_clip", 1.0, -100.0, 100.0, 0.01)),
           OUTS({ .type = "MODEL" }, { .type = "CLIP" }), .run = run_lora);

NODE_CLASS(LoraLoaderModelOnly, .category = "loaders", .module = "nodes",
           INS(SOCKET("model", "MODEL"), FOLDER_IN("lora_name", "loras"),
               FLOAT_IN("strength_model", 1.0, -100.0, 100.0, 0.01)),
           OUT(out_model), .run = run_lora);

/* ComfyUI adds these to what layers give instead of their weights; the sum is the same. */
NODE_CLASS(LoraLoaderBypass, .display = "Load LoRA (Bypass) (For debugging)",
           .category = "model/loaders", .module = MOD("lora_debug"), .flags = NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"), SOCKET("clip", "CLIP"), FOLDER_IN("lora_name", "loras"),
               FLOAT_IN("strength_model", 1.0, -100.0, 100.0, 0.01),
               FLOAT_IN("strength_clip", 1.0, -100.0, 100.0, 0.01)),
           OUTS({ .type = "MODEL" }, { .type = "CLIP" }), .run = run_lora);

NODE_CLASS(LoraLoaderBypassModelOnly, .display = "Load LoRA (Bypass, Model Only) (for debugging)",
           .category = "model/loaders", .module = MOD("lora_debug"), .flags = NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"), FOLDER_IN("lora_name", "loras"),
               FLOAT_IN("strength_model", 1.0, -100.0, 100.0, 0.01)),
           OUT(out_model), .run = run_lora);
