/* keys: what the outputs of a node depend on, in 128 bits.
 *
 * A byte string that is the same for equal nodes and differs for different ones: class, IS_CHANGED,
 * the id where the class asks for it, then every input by name, constants by value and links by the
 * key of the node they come from; last the files that constants name (key_files.c). Two XXH64 over
 * it, with secret seeds of the executor, are the key. Numbers are equal by
 * value, whatever JSON calls them: 1 = 1.0 = true.
 * A link of an undeclared input is a constant: no node gets its value. */
#include "base/jstok.h"
#include "graph/cache.h"

#include <math.h>

/* ---- canonical bytes ---- */

static void put_size(struct str *out, size_t n)
{
    uint64_t v = n;
    str_add(out, (const char *)&v, sizeof v); /* keys never leave the process: any byte order */
}

static void put_text(struct str *out, const char *s, size_t n)
{
    put_size(out, n);
    str_add(out, s, n);
}

static void put_int(struct str *out, node_int i)
{
    str_addc(out, 'i');
    str_add(out, (const char *)&i, sizeof i);
}

static void put_f64(struct str *out, double f)
{
    if (f == trunc(f) && f >= -0x1p63 && f < 0x1p64) {
        put_int(out, (node_int)f);
        return;
    }
    str_addc(out, 'f');
    str_add(out, (const char *)&f, sizeof f);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of an object in order; free(). NULL: out of memory. */
static const char **sorted_names(json_t *o, size_t *n)
{
    *n = json_object_size(o);
    const char **name = calloc(*n ? *n : 1, sizeof *name);
    size_t i = 0;
    for (void *it = json_object_iter(o); name && it; it = json_object_iter_next(o, it))
        name[i++] = json_object_iter_key(it);
    if (name)
        qsort(name, *n, sizeof *name, by_name);
    return name;
}

static void put_value(struct str *out, const json_t *v, unsigned depth);

static void put_object(struct str *out, const json_t *v, unsigned depth)
{
    size_t n;
    const char **name = sorted_names((json_t *)(uintptr_t)v, &n);
    if (!name) {
        out->bad = true;
        return;
    }
    str_addc(out, 'o');
    put_size(out, n);
    for (size_t i = 0; i < n; i++) {
        put_text(out, name[i], strlen(name[i]));
        put_value(out, json_object_get(v, name[i]), depth + 1);
    }
    free(name);
}

static void put_value(struct str *out, const json_t *v, unsigned depth)
{
    if (depth > JSTOK_DEPTH_MAX) { /* deeper than anything js_parse() reads */
        out->bad = true;
        return;
    }
    node_int i;
    switch (js_kind(v)) {
    case JS_NULL:
        str_addc(out, 'n');
        break;
    case JS_BOOL:
        put_int(out, json_is_true(v));
        break;
    case JS_I64:
    case JS_U64:
        js_get_int(v, &i);
        put_int(out, i);
        break;
    case JS_F64:
        put_f64(out, json_real_value(v));
        break;
    case JS_STRING:
        str_addc(out, 's');
        put_text(out, json_string_value(v), json_string_length(v));
        break;
    case JS_ARRAY:
        str_addc(out, 'a');
        put_size(out, json_array_size(v));
        for (size_t k = 0; k < json_array_size(v); k++)
            put_value(out, json_array_get(v, k), depth + 1);
        break;
    case JS_OBJECT:
        put_object(out, v, depth);
        break;
    }
}

struct keyer {
    const struct node_env *env;
    const struct workflow *wf;
    const atomic_bool *cancel;
    struct node_key *key;
    const uint64_t *seed;
    struct str bytes;
    struct file_hashes hashes;
};

/* ---- IS_CHANGED ---- */

/* Writes "is_changed" into the node unless it is there. *never: not to be cached. */
static berth_status node_changed(struct keyer *x, const struct wf_node *n, bool *never,
                                 berth_err *err)
{
    *never = false;
    if (!n->cls->changed || json_object_get(n->json, "is_changed"))
        return BERTH_OK;
    struct node_check k = { .env = x->env,
                            .cls = n->cls,
                            .id = n->id,
                            .inputs = n->inputs,
                            .cancel = x->cancel,
                            .hashes = &x->hashes };
    struct str text = { 0 };
    berth_err why = { 0 };
    berth_status s = n->cls->changed(&k, &text, &why);
    if (s == BERTH_ECANCELED) {
        *err = why;
    } else if (s) {
        log_warn(x->env->log, "graph.changed", "node=%s class=%s error=\"%s\"", n->id, n->cls->name,
                 why.msg);
        *never = true;
        s = BERTH_OK;
    } else {
        if (json_object_set_new_nocheck(n->json, "is_changed", json_pack("[o]", js_take(&text))))
            s = err_set(err, BERTH_ENOMEM, "is_changed of node %s", n->id);
    }
    str_release(&text);
    return s;
}

/* ---- keys ---- */

/* The link behind a declared input of the node, or NULL. */
static const struct wf_link *link_of(const struct keyer *k, const struct wf_node *n,
                                     const char *name)
{
    for (size_t l = n->link; l < n->link + n->links; l++)
        if (strcmp(n->in[k->wf->link[l].in].name, name) == 0)
            return &k->wf->link[l];
    return NULL;
}

/* pre: everything upstream has its key. */
static berth_status node_key(void *user, size_t node, berth_err *err)
{
    struct keyer *k = user;
    const struct wf_node *n = &k->wf->node[node];
    bool never = n->broken;
    if (k->cancel && atomic_load_explicit(k->cancel, memory_order_relaxed))
        return err_set(err, BERTH_ECANCELED, "interrupted");
    for (size_t l = n->link; l < n->link + n->links; l++)
        never = never || !k->key[k->wf->link[l].from].set;
    if (n->cls && n->inputs) {
        bool failed; /* is_changed is part of the prompt that runs, whether cached or not */
        berth_status s = node_changed(k, n, &failed, err);
        if (s)
            return s;
        never = never || failed;
    }
    if (never)
        return BERTH_OK;
    size_t names;
    const char **name = sorted_names(n->inputs, &names);
    if (!name)
        return err_set(err, BERTH_ENOMEM, "key of node %s", n->id);
    struct str *b = &k->bytes;
    str_clear(b);
    put_text(b, n->cls->name, strlen(n->cls->name));
    if (n->cls->changed)
        put_value(b, json_object_get(n->json, "is_changed"), 0);
    if (n->cls->flags & (NODE_UNIQUE_ID | NODE_NOT_IDEMPOTENT))
        put_text(b, n->id, strlen(n->id));
    for (size_t i = 0; i < names; i++) {
        const struct wf_link *l = link_of(k, n, name[i]);
        put_text(b, name[i], strlen(name[i]));
        if (l) {
            str_addc(b, 'l');
            str_add(b, (const char *)k->key[l->from].h, sizeof k->key[l->from].h);
            put_size(b, l->slot);
        } else {
            put_value(b, json_object_get(n->inputs, name[i]), 0);
        }
    }
    free(name);
    key_files(k->env, n, b);
    if (b->bad)
        return err_set(err, BERTH_ENOMEM, "key of node %s", n->id);
    for (int i = 0; i < 2; i++)
        k->key[node].h[i] = hash_xxh64(b->p, b->n, k->seed[i]);
    k->key[node].set = true;
    return BERTH_OK;
}

/* A cycle leaves the nodes on it without a key. */
berth_status keys_make(const struct node_env *env, const struct workflow *wf,
                       const uint64_t seed[2], const atomic_bool *cancel, struct node_key *key,
                       berth_err *err)
{
    struct keyer k = { .env = env, .wf = wf, .cancel = cancel, .key = key, .seed = seed };
    bool *seen = calloc(wf->n ? wf->n : 1, sizeof *seen);
    berth_status s = seen ? BERTH_OK : err_set(err, BERTH_ENOMEM, "keys of %zu nodes", wf->n);
    for (size_t i = 0; i < wf->n && !s; i++)
        s = workflow_walk(wf, i, seen, node_key, &k, err);
    str_release(&k.bytes);
    file_hashes_release(&k.hashes);
    free(seen);
    return s;
}
