/* doom: nodes that would stop a prompt which is otherwise right: those that cannot be computed in
 * this build, loaders of files that cannot, and VAEs that do not fit (fit.c). Found before the
 * prompt is taken, so that no model makes room or is read for it. A node is doomed when it is one
 * of them, or cannot run without one; what stands behind lazy inputs alone may never be asked for,
 * and is left to the run. */
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
