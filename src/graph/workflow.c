/* workflow: a prompt whose nodes have numbers, so that walks are arrays and not look-ups. */
#include "graph/graph_impl.h"

#include <limits.h>

const struct node_class *graph_class(const struct node_env *env, const char *name)
{
    return env->find ? env->find(name) : node_find(name);
}

bool workflow_is_lazy(const struct wf_node *n, const struct wf_link *l)
{
    return n->cls->lazy && n->in[l->in].lazy;
}

size_t workflow_find(const struct workflow *w, const char *id)
{
    uint64_t i;
    return map_get(&w->by_id, id, strlen(id), &i) ? (size_t)i : SIZE_MAX;
}

bool workflow_is_editors(const json_t *v)
{
    return json_is_array(json_object_get(v, "nodes")) && json_object_get(v, "links");
}

json_t *workflow_constant(json_t *v)
{
    json_t *inner = v ? json_object_get(v, "__value__") : NULL;
    return inner ? inner : v;
}

static berth_status load_node(const struct node_env *env, const char *id, json_t *v,
                              struct arena *mem, struct wf_node *n, berth_err *err)
{
    n->id = id;
    n->json = v;
    n->class_type = json_object_get(v, "class_type");
    json_t *inputs = json_object_get(v, "inputs");
    n->inputs = json_is_object(inputs) ? inputs : NULL;
    if (n->class_type && js_kind(n->class_type) == JS_STRING)
        n->cls = graph_class(env, json_string_value(n->class_type));
    n->broken = !n->cls || !n->inputs;
    if (!n->cls)
        return BERTH_OK;
    struct node_inputs live;
    berth_status s = node_live_inputs(n->cls, n->inputs, mem, &live, err);
    n->in = live.in;
    n->ins = live.n;
    return s;
}

/* true and false are 1 and 0 in Python. */
static bool get_slot(const json_t *v, int64_t *out)
{
    if (!json_is_boolean(v))
        return js_get_i64(v, out);
    *out = json_is_true(v);
    return true;
}

/* The links of one node; space for all of them is there. */
static void load_links(struct workflow *w, struct wf_node *n)
{
    n->link = w->links;
    if (n->broken)
        return;
    for (size_t i = 0; i < n->ins; i++) {
        json_t *v = json_object_get(n->inputs, n->in[i].name);
        if (!json_is_array(v))
            continue;
        json_t *id = json_array_get(v, 0);
        int64_t slot;
        size_t from = SIZE_MAX;
        if (json_array_size(v) == 2 && js_kind(id) == JS_STRING &&
            get_slot(json_array_get(v, 1), &slot))
            from = workflow_find(w, json_string_value(id));
        if (from == SIZE_MAX || !w->node[from].cls || (uint64_t)slot >= w->node[from].cls->outs) {
            n->broken = true;
            continue; /* the other links still count as dependencies */
        }
        w->link[w->links++] = (struct wf_link) {
            .in = (unsigned)i,
            .from = (unsigned)from,
            .slot = (unsigned)slot,
        };
    }
    n->links = w->links - n->link;
}

berth_status workflow_load(const struct node_env *env, json_t *prompt, struct workflow *out,
                           berth_err *err)
{
    struct workflow w = { .by_id.seed = clock_mono_ns(env->clock) ^ (uintptr_t)prompt };
    size_t n = json_object_size(prompt), links = 0;
    w.node = calloc(n ? n : 1, sizeof *w.node);
    if (!w.node || !map_reserve(&w.by_id, n))
        goto no_memory;
    for (void *it = json_object_iter(prompt); it; it = json_object_iter_next(prompt, it)) {
        struct wf_node *node = &w.node[w.n];
        if (load_node(env, json_object_iter_key(it), json_object_iter_value(it), &w.mem, node, err))
            goto no_memory;
        if (map_add(&w.by_id, node->id, strlen(node->id), w.n) != MAP_ADDED)
            goto no_memory;
        links += node->ins; /* those of the prompt, and what classes require */
        w.n++;
    }
    w.link = calloc(links ? links : 1, sizeof *w.link);
    if (!w.link)
        goto no_memory;
    for (size_t i = 0; i < w.n; i++)
        load_links(&w, &w.node[i]);
    *out = w;
    return BERTH_OK;
no_memory:
    workflow_release(&w);
    *out = w;
    return err_set(err, BERTH_ENOMEM, "a prompt of %zu nodes", n);
}

berth_status workflow_walk(const struct workflow *w, size_t node, bool *seen,
                           berth_status (*visit)(void *user, size_t node, berth_err *err),
                           void *user, berth_err *err)
{
    struct place {
        size_t node, link;
    };
    struct vec stack = { .elem = sizeof(struct place) };
    bool room = seen[node] || vec_push(&stack, &(struct place) { .node = node });
    berth_status s = BERTH_OK;
    seen[node] = true;
    while (stack.n && room && !s) {
        struct place *at = vec_at(&stack, stack.n - 1);
        const struct wf_node *n = &w->node[at->node];
        if (at->link == n->links) {
            s = visit(user, at->node, err);
            vec_pop(&stack);
            continue;
        }
        size_t from = w->link[n->link + at->link++].from;
        if (!seen[from])
            room = vec_push(&stack, &(struct place) { .node = from });
        seen[from] = true;
    }
    vec_release(&stack);
    return room ? s : err_set(err, BERTH_ENOMEM, "walking %zu nodes", w->n);
}

void workflow_release(struct workflow *w)
{
    free(w->node);
    free(w->link);
    map_release(&w->by_id);
    arena_release(&w->mem);
    *w = (struct workflow) { 0 };
}
