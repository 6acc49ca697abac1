/* call.c: what a running node may ask and give. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <string.h>

/* ---- inputs ---- */

static const char *const kind_name[] = {
    [V_NULL] = "None",     [V_INT] = "INT",       [V_UINT] = "INT",      [V_FLOAT] = "FLOAT",
    [V_BOOL] = "BOOLEAN",  [V_STRING] = "STRING", [V_JSON] = "JSON",     [V_TENSOR] = "tensor",
    [V_LATENT] = "LATENT", [V_MODEL] = "MODEL",   [V_OBJECT] = "object",
};

/* An input that this node does not have: without a value, and without a default. */
static const struct node_input absent = { .kind = IN_SOCKET };

static const struct node_input *declared(const struct node_call *c, const char *name, size_t *i)
{
    const struct node_input *in = c->live.in ? c->live.in : c->cls->in;
    size_t n = c->live.in ? c->live.n : c->cls->ins;
    for (*i = 0; *i < n; ++*i)
        if (!strcmp(in[*i].name, name))
            return &in[*i];
    if (!node_input_may_be(c->cls, name))
        BUG("%s has no input '%s'", c->cls->name, name);
    return &absent;
}

struct value *in_value(const struct node_call *c, const char *name)
{
    size_t i;
    return declared(c, name, &i) != &absent && c->in[i].n ? c->in[i].at[0] : NULL;
}

bool in_given(const struct node_call *c, const char *name)
{
    return in_value(c, name) != NULL;
}

static berth_status wrong_kind(const char *name, const struct value *v, const char *want,
                               berth_err *err)
{
    const char *is = v->kind == V_OBJECT ? v->object.type->name : kind_name[v->kind];
    return err_set(err, BERTH_EINVAL, "input '%s' wants %s and got %s", name, want, is);
}

static berth_status missing(const char *name, berth_err *err)
{
    return err_set(err, BERTH_EINVAL, "input '%s' is not given", name);
}

/* An integer of any size a prompt can hold; what is not given has its default. */
static berth_status in_int(const struct node_call *c, const char *name, node_int *out,
                           berth_err *err)
{
    size_t i;
    const struct node_input *d = declared(c, name, &i);
    const struct value *v = in_value(c, name);
    if (d == &absent)
        return missing(name, err);
    if (!v)
        *out = d->idef;
    else if (v->kind == V_INT)
        *out = v->i;
    else if (v->kind == V_UINT)
        *out = (node_int)v->u;
    else if (v->kind == V_BOOL)
        *out = v->b;
    else
        return wrong_kind(name, v, "INT", err);
    return BERTH_OK;
}

berth_status in_i64(const struct node_call *c, const char *name, int64_t *out, berth_err *err)
{
    node_int n = 0;
    if (in_int(c, name, &n, err))
        return err->code;
    if (n > INT64_MAX || n < INT64_MIN)
        return err_set(err, BERTH_EINVAL, "input '%s' is beyond 2^63", name);
    *out = (int64_t)n;
    return BERTH_OK;
}

berth_status in_u64(const struct node_call *c, const char *name, uint64_t *out, berth_err *err)
{
    node_int n = 0;
    if (in_int(c, name, &n, err))
        return err->code;
    if (n < 0 || n > (node_int)UINT64_MAX)
        return err_set(err, BERTH_EINVAL, "input '%s' is %s", name, n < 0 ? "negative" : "too big");
    *out = (uint64_t)n;
    return BERTH_OK;
}

berth_status in_f64(const struct node_call *c, const char *name, double *out, berth_err *err)
{
    size_t i;
    const struct node_input *d = declared(c, name, &i);
    const struct value *v = in_value(c, name);
    if (d == &absent)
        return missing(name, err);
    if (!v)
        *out = d->fdef;
    else if (v->kind == V_FLOAT)
        *out = v->f;
    else if (v->kind == V_INT)
        *out = (double)v->i;
    else if (v->kind == V_UINT)
        *out = (double)v->u;
    else if (v->kind == V_BOOL)
        *out = v->b;
    else
        return wrong_kind(name, v, "FLOAT", err);
    return BERTH_OK;
}

berth_status in_bool(const struct node_call *c, const char *name, bool *out, berth_err *err)
{
    size_t i;
    const struct node_input *d = declared(c, name, &i);
    const struct value *v = in_value(c, name);
    if (d == &absent)
        return missing(name, err);
    if (!v)
        *out = d->bdef;
    else if (v->kind == V_BOOL)
        *out = v->b;
    else if (v->kind == V_INT)
        *out = v->i != 0;
    else if (v->kind == V_FLOAT)
        *out = v->f != 0;
    else
        return wrong_kind(name, v, "BOOLEAN", err);
    return BERTH_OK;
}

berth_status in_text(const struct node_call *c, const char *name, const char **out, berth_err *err)
{
    size_t i;
    const struct node_input *d = declared(c, name, &i);
    const struct value *v = in_value(c, name);
    const char *sdef = d->sdef_fn ? d->sdef_fn(c->env) : d->sdef;
    if (v && v->kind != V_STRING)
        return wrong_kind(name, v, d->kind == IN_COMBO ? "one of its choices" : "STRING", err);
    if (v)
        *out = v->s.p;
    else if (sdef)
        *out = sdef;
    else if (d->kind == IN_COMBO && d->options)
        *out = d->options[0];
    else if (d->kind == IN_STRING)
        *out = "";
    else
        return missing(name, err);
    return BERTH_OK;
}

static berth_status in_tensor(const struct node_call *c, const char *name, const char *type,
                              int ndim, struct htensor **out, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    struct value *v = in_value(c, name);
    if (!v)
        return missing(name, err);
    if (v->kind != V_TENSOR)
        return wrong_kind(name, v, type, err);
    const struct shape *s = &v->tensor->shape;
    bool empty = s->ndim != ndim;
    for (int i = 0; !empty && i < ndim; i++)
        empty = s->dim[i] == 0;
    if (empty)
        return err_set(err, BERTH_EINVAL, "input '%s' wants %s and got a tensor %s", name, type,
                       shape_text(s, text));
    *out = v->tensor;
    return BERTH_OK;
}

berth_status in_image(const struct node_call *c, const char *name, struct htensor **out,
                      berth_err *err)
{
    *out = NULL;
    return in_tensor(c, name, "IMAGE", 4, out, err);
}

berth_status in_mask(const struct node_call *c, const char *name, struct htensor **out,
                     berth_err *err)
{
    *out = NULL;
    return in_tensor(c, name, "MASK", 3, out, err);
}

berth_status in_sigmas(const struct node_call *c, struct htensor **out, berth_err *err)
{
    const struct value *v = in_value(c, "sigmas");
    if (!v || v->kind != V_TENSOR || v->tensor->shape.ndim != 1)
        return err_set(err, BERTH_EINVAL, "input 'sigmas' is no list of noise levels");
    *out = v->tensor;
    return BERTH_OK;
}

berth_status in_steps(const struct node_call *c, uint64_t *out, berth_err *err)
{
    if (in_u64(c, "steps", out, err))
        return err->code;
    return *out >= 1 && *out <= STEPS_MAX
               ? BERTH_OK
               : err_set(err, BERTH_EINVAL, "%" PRIu64 " steps, not 1 to %d", *out, STEPS_MAX);
}

berth_status in_latents(const struct node_call *c, const char *name, const struct latent **out,
                        berth_err *err)
{
    struct value *v = in_value(c, name);
    if (!v)
        return missing(name, err);
    if (v->kind != V_LATENT)
        return wrong_kind(name, v, "LATENT", err);
    *out = &v->latent;
    return BERTH_OK;
}

berth_status in_latent(const struct node_call *c, const char *name, const struct latent **out,
                       berth_err *err)
{
    return in_latents(c, name, out, err) ? err->code : latent_single(name, *out, err);
}

berth_status latent_single(const char *name, const struct latent *l, berth_err *err)
{
    return l->more[0].samples ? err_set(err, BERTH_EINVAL,
                                        "input '%s' has several latents, such as a video and its "
                                        "sound; this node takes one",
                                        name)
                              : BERTH_OK;
}

berth_status in_model(const struct node_call *c, const char *name, const struct model_ref **out,
                      berth_err *err)
{
    size_t i;
    const struct node_input *d = declared(c, name, &i);
    struct value *v = in_value(c, name);
    if (!v)
        return missing(name, err);
    if (v->kind == V_NULL && v->why)
        return err_set(err, BERTH_EINVAL, "input '%s' is None: %s", name, v->why);
    if (v->kind != V_MODEL)
        return wrong_kind(name, v, d->type ? d->type : "MODEL", err);
    *out = &v->model;
    return BERTH_OK;
}

const json_t *check_input(const struct node_check *k, const char *name)
{
    const json_t *v = json_object_get(k->inputs, name);
    return v && js_kind(v) != JS_ARRAY ? v : NULL; /* an array is a link */
}

/* ---- outputs ---- */

berth_status out_value(struct node_call *c, size_t i, struct value *taken, berth_err *err)
{
    if (i >= c->cls->outs)
        BUG("%s has no output %zu", c->cls->name, i);
    return values_add(&c->out[i], taken, err);
}

berth_status out_tensor(struct node_call *c, size_t i, struct htensor *taken, berth_err *err)
{
    return out_value(c, i, value_tensor(taken), err);
}

berth_status out_input(struct node_call *c, size_t i, const char *name, berth_err *err)
{
    struct value *v = in_value(c, name);
    return out_value(c, i, v ? value_ref(v) : value_null(), err);
}

berth_status ui_add(struct node_call *c, const char *key, json_t *taken, berth_err *err)
{
    if (!c->ui)
        c->ui = json_object();
    json_t *list = json_object_get(c->ui, key);
    if (!list && c->ui && taken) {
        list = json_array();
        if (json_object_set_new(c->ui, key, list))
            list = NULL;
    }
    if (!list || !taken) {
        json_decref(taken);
        return err_set(err, BERTH_ENOMEM, "ui '%s' of %s", key, c->cls->name);
    }
    if (json_array_append_new(list, taken)) /* takes it, also when it fails */
        return err_set(err, BERTH_ENOMEM, "ui '%s' of %s", key, c->cls->name);
    return BERTH_OK;
}

berth_status ui_add_file(struct node_call *c, const char *key, const char *name,
                         const char *subfolder, const char *type, berth_err *err)
{
    return ui_add(
        c, key,
        json_pack("{s:s, s:s, s:s}", "filename", name, "subfolder", subfolder, "type", type), err);
}

/* ---- while it runs ---- */

berth_status call_step(struct node_call *c, const struct node_step *s, berth_err *err)
{
    if (call_check(c, err))
        return err->code;
    if (!c->host || !c->host->progress)
        return BERTH_OK;
    return c->host->progress(c->host->user, s, err);
}

berth_status call_progress(struct node_call *c, double value, double max, berth_err *err)
{
    return call_step(c, &(struct node_step) { .value = value, .max = max }, err);
}

void call_text(struct node_call *c, const char *s, size_t n)
{
    if (c->host && c->host->text)
        c->host->text(c->host->user, s, n);
}

berth_status call_check(struct node_call *c, berth_err *err)
{
    if (c->host && c->host->cancel && atomic_load_explicit(c->host->cancel, memory_order_relaxed))
        return err_set(err, BERTH_ECANCELED, "%s was interrupted", c->cls->name);
    return BERTH_OK;
}

berth_status node_not_yet(struct node_call *c, berth_err *err)
{
    return err_set(err, BERTH_EUNSUPPORTED, "%s %s", c->cls->name, node_cannot_run(c->cls));
}

const char *node_exception(berth_status s)
{
    static const char *const name[] = {
        [BERTH_ENOMEM] = "MemoryError",
        [BERTH_ENODEVMEM] = "torch.OutOfMemoryError",
        [BERTH_EINVAL] = "ValueError",
        [BERTH_EFORMAT] = "ValueError",
        [BERTH_ELIMIT] = "ValueError",
        [BERTH_EIO] = "OSError",
        [BERTH_ENOTFOUND] = "FileNotFoundError",
        [BERTH_EUNSUPPORTED] = "NotImplementedError",
        [BERTH_ECANCELED] = "comfy.model_management.InterruptProcessingException",
    };
    return s < ARRAY_LEN(name) && name[s] ? name[s] : "RuntimeError";
}
