/* doom: nodes that would stop a prompt which is otherwise right: those that cannot be computed in
 * this build, loaders of files that cannot, VAEs that do not fit (fit.c), and samplers whose
 * prompts bring control nets that are for none of their models. Found before the prompt is taken,
 * so that no model makes room or is read for it. A node is doomed when it is one of them, or
 * cannot run without one; what stands behind lazy inputs alone may never be asked for, and is left
 * to the run. */
#include "graph/graph_impl.h"

static berth_status set_reason(json_t *taken, json_t **out, berth_err *err)
{
    *out = taken;
    return taken ? BERTH_OK : err_set(err, BERTH_ENOMEM, "refusing a node");
}

static berth_status look_at_files(const struct node_env *env, const struct wf_node *n,
                                  struct checked *c, berth_err *err)
{
    struct node_check k = { .env = env, .cls = n->cls, .id = n->id, .inputs = n->inputs };
    const char *input = NULL;
    berth_err said = { 0 };
    berth_status s = node_look(&k, &input, &said);
    if (s == BERTH_ENOMEM)
        *err = said;
    if (!s || s == BERTH_ENOMEM)
        return s;
    c->no_device = said.device[0];
    return set_reason(
        reason_new("custom_validation_failed", json_string("Custom validation failed for node"),
                   js_textf("%s - %s", input, said.msg), json_pack("{s:s}", "input_name", input)),
        &c->why, err);
}

static berth_status look_at_vae(const struct node_env *env, const struct workflow *w, size_t node,
                                struct checked *c, berth_err *err)
{
    struct str why = { 0 };
    if (fit_check(env, w, node, &why))
        return BERTH_OK;
    return set_reason(reason_new("custom_validation_failed",
                                 json_string("Custom validation failed for node"), js_take(&why),
                                 json_pack("{s:s}", "input_name", "vae")),
                      &c->why, err);
}

/* ---- control nets and the models they meet ---- */

struct meeting { /* of a node's models and its prompts' control nets */
    const struct node_env *env;
    const struct workflow *w;
    struct vec model, control; /* size_t: loaders */
    const char *role;          /* whose loaders are collected now */
};

static berth_status note_loader(void *user, size_t node, berth_err *err)
{
    struct meeting *m = user;
    const struct node_class *cls = m->w->node[node].cls;
    struct vec *to = strcmp(m->role, "unet") == 0 ? &m->model : &m->control;
    if (!cls || !node_loads(cls, m->role))
        return BERTH_OK;
    return vec_push(to, &node) ? BERTH_OK : err_set(err, BERTH_ENOMEM, "loaders of a prompt");
}

/* Loaders of this role upstream of the node's inputs of a type. */
static berth_status collect(struct meeting *m, const struct wf_node *n, const char *type,
                            const char *role, berth_err *err)
{
    bool *seen = calloc(m->w->n ? m->w->n : 1, sizeof *seen);
    berth_status s = seen ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%zu nodes", m->w->n);
    m->role = role;
    for (size_t l = n->link; l < n->link + n->links && !s; l++) {
        const struct wf_link *link = &m->w->link[l];
        const char *is = n->in[link->in].type;
        if (is && strcmp(is, type) == 0)
            s = workflow_walk(m->w, link->from, seen, note_loader, m, err);
    }
    free(seen);
    return s;
}

/* *said: why a control net is for none of the models; code BERTH_OK: it is for one, or nobody can
 * tell. */
static berth_status meet(const struct meeting *m, size_t control, berth_err *said, berth_err *err)
{
    for (size_t i = 0; i < m->model.n; i++) {
        const struct wf_node *a = &m->w->node[*(const size_t *)vec_at(&m->model, i)],
                             *b = &m->w->node[control];
        const struct node_check model = { m->env, a->cls, a->id, .inputs = a->inputs },
                                net = { m->env, b->cls, b->id, .inputs = b->inputs };
        *said = (berth_err) { 0 };
        berth_status s = node_look_both(&model, &net, said);
        if (s == BERTH_ENOMEM)
            *err = *said;
        if (!s || s == BERTH_ENOMEM)
            return s;
    }
    return BERTH_OK;
}

static bool takes(const struct workflow *w, const struct wf_node *n, const char *type)
{
    for (size_t l = n->link; l < n->link + n->links; l++) {
        const char *is = n->in[w->link[l].in].type;
        if (is && strcmp(is, type) == 0)
            return true;
    }
    return false;
}

static berth_status look_at_controls(const struct node_env *env, const struct workflow *w,
                                     const struct wf_node *n, struct checked *c, berth_err *err)
{
    struct meeting m = { env, w, { .elem = sizeof(size_t) }, { .elem = sizeof(size_t) }, NULL };
    berth_err said = { 0 };
    if (!takes(w, n, "MODEL") || !takes(w, n, "CONDITIONING")) /* it samples nothing */
        return BERTH_OK;
    berth_status s = collect(&m, n, "CONDITIONING", "control", err);
    if (!s && m.control.n)
        s = collect(&m, n, "MODEL", "unet", err);
    for (size_t i = 0; !s && m.model.n && i < m.control.n && !said.code; i++)
        s = meet(&m, *(const size_t *)vec_at(&m.control, i), &said, err);
    if (!s && said.code)
        s = set_reason(reason_new("custom_validation_failed",
                                  json_string("Custom validation failed for node"),
                                  js_textf("%s", said.msg), json_object()),
                       &c->why, err);
    vec_release(&m.model);
    vec_release(&m.control);
    return s;
}

berth_status doom_add(struct checked *c, const struct node_env *env, const struct workflow *w,
                      size_t node, bool good, berth_err *err)
{
    const struct wf_node *n = &w->node[node];
    const char *reason = node_cannot_run(n->cls);
    berth_status s = BERTH_OK;
    if (reason)
        s = set_reason(reason_new("node_cannot_run", json_string("Node cannot be computed"),
                                  js_textf("%s %s", n->cls->name, reason), json_object()),
                       &c[node].why, err);
    else if (good)
        s = look_at_files(env, n, &c[node], err);
    if (!s && good && !c[node].why)
        s = look_at_vae(env, w, node, &c[node], err);
    if (!s && good && !c[node].why)
        s = look_at_controls(env, w, n, &c[node], err);
    c[node].doomed = c[node].why != NULL;
    for (size_t l = n->link; l < n->link + n->links && !c[node].doomed; l++)
        c[node].doomed = c[w->link[l].from].doomed && !workflow_is_lazy(n, &w->link[l]);
    return s;
}

/* The reasons that `output` is doomed for become errors; seen[]: nodes that were asked. */
static berth_status add_reasons(struct checked *c, const struct workflow *w, size_t output,
                                struct vec *todo, bool *seen)
{
    if (!vec_push(todo, &output))
        return BERTH_ENOMEM;
    seen[output] = true;
    while (todo->n) {
        size_t node = *(size_t *)vec_at(todo, todo->n - 1);
        const struct wf_node *n = &w->node[node];
        vec_pop(todo);
        if (c[node].why && !c[node].errors)
            c[node].errors = json_array();
        if (c[node].why && json_array_append(c[node].errors, c[node].why))
            return BERTH_ENOMEM;
        for (size_t l = n->link; l < n->link + n->links; l++) {
            size_t from = w->link[l].from;
            if (seen[from] || !c[from].doomed || workflow_is_lazy(n, &w->link[l]))
                continue;
            if (!vec_push(todo, &from))
                return BERTH_ENOMEM;
            seen[from] = true;
        }
    }
    return BERTH_OK;
}

berth_status doom_judge(struct checked *c, const struct workflow *w, berth_err *err)
{
    struct vec todo = { .elem = sizeof(size_t) };
    bool *seen = calloc(w->n ? w->n : 1, sizeof *seen);
    berth_status s = seen ? BERTH_OK : BERTH_ENOMEM;
    for (size_t i = 0; i < w->n && !s; i++)
        if (c[i].wanted && c[i].doomed) {
            c[i].state = CHECK_BAD;
            s = seen[i] ? BERTH_OK : add_reasons(c, w, i, &todo, seen);
        }
    vec_release(&todo);
    free(seen);
    return s ? err_set(err, s, "validating a prompt of %zu nodes", w->n) : BERTH_OK;
}
