#include "graph/order.h"

static berth_status no_memory(const struct order *o, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "ordering %zu nodes", o->wf->n);
}

berth_status order_init(struct order *o, const struct workflow *wf, struct arena *mem,
                        berth_err *err)
{
    *o = (struct order) {
        .wf = wf,
        .node = arena_array(mem, wf->n, sizeof *o->node),
        .consumer = arena_array(mem, wf->links, sizeof *o->consumer),
        .back = arena_array(mem, wf->links, sizeof *o->back),
        .strong = arena_array(mem, wf->links, sizeof *o->strong),
        .by_seq = arena_array(mem, wf->n, sizeof *o->by_seq),
        .heap.elem = sizeof(uint64_t),
        .stack.elem = sizeof(size_t),
        .fresh.elem = sizeof(size_t),
    };
    if (!o->node || !o->consumer || !o->back || !o->strong || !o->by_seq)
        return no_memory(o, err);
    for (size_t i = 0; i < wf->n; i++)
        for (size_t l = wf->node[i].link; l < wf->node[i].link + wf->node[i].links; l++) {
            o->consumer[l] = (unsigned)i;
            o->node[wf->link[l].from].backs++;
        }
    for (size_t i = 0, at = 0; i < wf->n; i++) {
        struct order_node *node = &o->node[i];
        node->back = at;
        at += node->backs;
        node->backs = 0;
        node->rank = wf->node[i].cls && wf->node[i].cls->flags & NODE_OUTPUT ? 0 : 3;
    }
    for (size_t l = 0; l < wf->links; l++) {
        struct order_node *from = &o->node[wf->link[l].from];
        o->back[from->back + from->backs++] = l;
    }
    return BERTH_OK;
}

void order_release(struct order *o)
{
    vec_release(&o->heap);
    vec_release(&o->stack);
    vec_release(&o->fresh);
    *o = (struct order) { 0 };
}

/* ---- the heap ---- */

static uint64_t *heap_at(const struct order *o, size_t i)
{
    return vec_at(&o->heap, i);
}

static void swap(uint64_t *a, uint64_t *b)
{
    uint64_t t = *a;
    *a = *b;
    *b = t;
}

static bool push(struct order *o, size_t node)
{
    uint64_t place = (uint64_t)o->node[node].rank << 32 | o->node[node].seq;
    if (!vec_push(&o->heap, &place))
        return false;
    for (size_t i = o->heap.n - 1; i && *heap_at(o, i) < *heap_at(o, (i - 1) / 2); i = (i - 1) / 2)
        swap(heap_at(o, i), heap_at(o, (i - 1) / 2));
    return true;
}

static uint64_t pop(struct order *o)
{
    uint64_t top = *heap_at(o, 0);
    *heap_at(o, 0) = *heap_at(o, o->heap.n - 1);
    vec_pop(&o->heap);
    for (size_t i = 0;;) {
        size_t least = i, left = 2 * i + 1;
        for (size_t k = left; k < left + 2 && k < o->heap.n; k++)
            if (*heap_at(o, k) < *heap_at(o, least))
                least = k;
        if (least == i)
            return top;
        swap(heap_at(o, i), heap_at(o, least));
        i = least;
    }
}

static bool is_ready(const struct order_node *n)
{
    return n->pending && !n->missing;
}

/* ---- ranks ---- */

/* A better rank; one that is ready is found under it too. */
static bool improve_rank(struct order *o, size_t node, uint8_t r)
{
    struct order_node *n = &o->node[node];
    if (n->rank <= r)
        return true;
    n->rank = r;
    return !is_ready(n) || push(o, node);
}

/* What a strong link tells about the node it comes from. */
static bool rank_by_link(struct order *o, size_t link)
{
    size_t from = o->wf->link[link].from;
    const struct wf_node *f = &o->wf->node[from];
    struct order_node *n = &o->node[from], *to = &o->node[o->consumer[link]];
    if (to->feeds && !improve_rank(o, from, 2))
        return false;
    if (to->rank != 0 || n->feeds)
        return true;
    n->feeds = true;
    bool ok = improve_rank(o, from, 1);
    for (size_t l = f->link; l < f->link + f->links && ok; l++)
        if (o->strong[l])
            ok = improve_rank(o, o->wf->link[l].from, 2);
    return ok;
}

/* ---- links that become strong ---- */

static void set_pending(struct order *o, size_t node)
{
    o->node[node].pending = true;
    o->node[node].seq = o->discovered;
    o->by_seq[o->discovered++] = (unsigned)node;
    o->pending++;
}

/* Nodes on the stack become pending, and so do those behind their strong links. */
static bool discover(struct order *o)
{
    while (o->stack.n) {
        size_t node = *(size_t *)vec_at(&o->stack, o->stack.n - 1);
        vec_pop(&o->stack);
        struct order_node *n = &o->node[node];
        const struct wf_node *w = &o->wf->node[node];
        if (n->pending || n->done)
            continue;
        set_pending(o, node);
        for (size_t l = w->link; l < w->link + w->links; l++) {
            if (workflow_is_lazy(w, &o->wf->link[l]))
                continue;
            if (!vec_push(&o->fresh, &l) || !vec_push(&o->stack, &(size_t) { o->wf->link[l].from }))
                return false;
        }
    }
    return true;
}

/* Counts what the fresh links wait for, and queues what waits for nothing. */
static bool settle(struct order *o, unsigned first)
{
    bool ok = true;
    for (size_t i = 0; i < o->fresh.n && ok; i++) {
        size_t l = *(size_t *)vec_at(&o->fresh, i);
        if (o->strong[l])
            continue;
        o->strong[l] = true;
        if (o->node[o->wf->link[l].from].done)
            continue;
        o->node[o->consumer[l]].missing++;
        ok = rank_by_link(o, l);
    }
    o->fresh.n = 0;
    for (unsigned s = first; s < o->discovered && ok; s++)
        if (is_ready(&o->node[o->by_seq[s]]))
            ok = push(o, o->by_seq[s]);
    return ok;
}

berth_status order_add(struct order *o, size_t node, berth_err *err)
{
    unsigned first = o->discovered;
    bool ok;
    if (o->node[node].done) { /* from the cache: it still takes its turn, and waits for nothing */
        set_pending(o, node);
        ok = push(o, node);
    } else {
        ok = vec_push(&o->stack, &node) && discover(o) && settle(o, first);
    }
    return ok ? BERTH_OK : no_memory(o, err);
}

berth_status order_need(struct order *o, size_t node, unsigned in, berth_err *err)
{
    const struct wf_node *w = &o->wf->node[node];
    unsigned first = o->discovered;
    for (size_t l = w->link; l < w->link + w->links; l++)
        if (o->wf->link[l].in == in &&
            !(vec_push(&o->fresh, &l) && vec_push(&o->stack, &(size_t) { o->wf->link[l].from }) &&
              discover(o) && settle(o, first)))
            return no_memory(o, err);
    return BERTH_OK;
}

static bool gives(const struct wf_node *n, const char *type)
{
    for (size_t i = 0; i < n->cls->outs; i++)
        if (strcmp(n->cls->out[i].type, type) == 0)
            return true;
    return false;
}

bool order_leads_to(struct order *o, size_t node, size_t slot, const char *type)
{
    const struct wf_node *from = &o->wf->node[node];
    const char *what = from->cls->out[slot].type;
    bool *seen = calloc(o->wf->n, sizeof *seen), found = false;
    size_t at = node;
    o->stack.n = 0;
    while (seen && !found) {
        const struct order_node *n = &o->node[at];
        for (size_t i = n->back; i < n->back + n->backs && !found; i++) {
            const struct wf_link *l = &o->wf->link[o->back[i]];
            unsigned to = o->consumer[o->back[i]];
            if (!o->strong[o->back[i]] || !o->node[to].pending || o->node[to].done || seen[to])
                continue;
            const char *out = o->wf->node[at].cls->out[l->slot].type;
            if (at == node ? l->slot != slot : strcmp(out, what) && strcmp(out, "*"))
                continue;
            seen[to] = true;
            found = gives(&o->wf->node[to], type);
            if (!vec_push(&o->stack, &(size_t) { to }))
                break;
        }
        if (!o->stack.n)
            break;
        at = *(size_t *)vec_at(&o->stack, o->stack.n - 1);
        vec_pop(&o->stack);
    }
    o->stack.n = 0;
    free(seen);
    return found;
}

/* ---- the run ---- */

size_t order_next(struct order *o)
{
    while (o->heap.n) {
        size_t node = o->by_seq[pop(o) & UINT32_MAX];
        if (is_ready(&o->node[node]))
            return node;
    }
    return SIZE_MAX;
}

berth_status order_again(struct order *o, size_t node, berth_err *err)
{
    return !is_ready(&o->node[node]) || push(o, node) ? BERTH_OK : no_memory(o, err);
}

berth_status order_done(struct order *o, size_t node, berth_err *err)
{
    struct order_node *n = &o->node[node];
    bool had = n->done; /* from the cache: no node waits for it */
    n->pending = false;
    n->done = true;
    o->pending--;
    for (size_t i = 0; !had && i < n->backs; i++) {
        size_t l = o->back[n->back + i], to = o->consumer[l];
        if (!o->strong[l])
            continue;
        if (--o->node[to].missing == 0 && is_ready(&o->node[to]) && !push(o, to))
            return no_memory(o, err);
    }
    return BERTH_OK;
}
