#include "graph/cache.h"

#include "device/cpu/meminfo.h"

#include <math.h>

#define AGE_FACTOR 1.3            /* an unused prompt makes an entry this much heavier */
#define ENOUGH 1.1                /* of the limit: where evicting stops */
#define ENTRY_BYTES (64.0 * 1024) /* what an entry weighs beside its values: age decides then */

/* ---- entries ---- */

struct entry *entry_new(size_t outs)
{
    struct entry *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->out = calloc(outs ? outs : 1, sizeof *e->out);
    if (!e->out) {
        free(e);
        return NULL;
    }
    e->refs = 1;
    e->outs = outs;
    return e;
}

struct entry *entry_ref(struct entry *e)
{
    e->refs++;
    return e;
}

void entry_unref(struct entry *e)
{
    if (!e || --e->refs)
        return;
    for (size_t i = 0; i < e->outs; i++)
        values_release(&e->out[i]);
    json_decref(e->ui);
    free(e->out);
    free(e);
}

static size_t entry_bytes(const struct entry *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->outs; i++)
        for (size_t k = 0; k < e->out[i].n; k++)
            n += value_bytes(e->out[i].at[k]);
    return n;
}

/* ---- tables ---- */

static void *table_at(const struct table *t, size_t i)
{
    return *(void **)vec_at(&t->item, i);
}

static void *table_get(const struct table *t, const char *key, size_t len)
{
    uint64_t i;
    return map_get(&t->by_key, key, len, &i) ? table_at(t, (size_t)i) : NULL;
}

/* pre: its key is not there. False: out of memory. */
static bool table_add(struct table *t, struct keyed *k)
{
    k->at = t->item.n;
    if (!vec_push(&t->item, &k))
        return false;
    if (map_add(&t->by_key, k->key, k->len, k->at) == MAP_ADDED)
        return true;
    vec_pop(&t->item);
    return false;
}

/* The last one takes its place. */
static void table_remove(struct table *t, const struct keyed *k)
{
    struct keyed *last = table_at(t, t->item.n - 1);
    map_del(&t->by_key, k->key, k->len);
    if (last != k) {
        last->at = k->at;
        *(struct keyed **)vec_at(&t->item, last->at) = last;
        map_set(&t->by_key, last->key, last->len, last->at);
    }
    vec_pop(&t->item);
}

/* ---- the cache's entries ---- */

static void drop(struct cache *c, struct entry *e)
{
    table_remove(&c->entries, &e->in);
    c->bytes -= e->bytes;
    entry_unref(e);
}

static struct entry *find_entry(const struct cache *c, const struct node_key *key)
{
    return key->set ? table_get(&c->entries, (const char *)key->h, sizeof key->h) : NULL;
}

static void mark_used(struct cache *c, struct entry *e)
{
    e->used = c->generation;
    e->touched = ++c->touches;
}

struct entry *cache_get(struct cache *c, const struct node_key *key)
{
    struct entry *e = find_entry(c, key);
    if (e)
        mark_used(c, e);
    return e;
}

void cache_put(struct cache *c, struct entry *e, const struct node_key *key)
{
    if (c->mode == CACHE_NONE || !key->set || find_entry(c, key))
        return;
    e->key = *key;
    e->in = (struct keyed) { .key = (const char *)e->key.h, .len = sizeof e->key.h };
    if (!table_add(&c->entries, &e->in))
        return;
    entry_ref(e);
    e->bytes = entry_bytes(e);
    c->bytes += e->bytes;
    mark_used(c, e);
}

/* The prompt that makes an entry go may have the same loader with another plan in it. */
static void linger(const struct entry *e)
{
    for (size_t i = 0; i < e->outs; i++)
        for (size_t k = 0; k < e->out[i].n; k++) {
            const struct value *v = e->out[i].at[k];
            for (size_t p = 0; v->kind == V_MODEL && p < v->model.parts; p++)
                res_linger(v->model.part[p]);
        }
}

/* Those not used since generation `from`, at the start of a prompt. */
static void drop_older(struct cache *c, uint64_t from)
{
    for (size_t i = c->entries.item.n; i-- > 0;) {
        struct entry *e = table_at(&c->entries, i);
        if (e->used >= from)
            continue;
        linger(e);
        drop(c, e);
    }
}

/* ---- RAM ---- */

static uint64_t ram_free(const struct cache *c)
{
    if (c->ram_free)
        return c->ram_free(c->ram_user);
    uint64_t total, left;
    berth_err ignored;
    return meminfo_read("", &total, &left, &ignored) ? UINT64_MAX : left; /* unknown: no pressure */
}

static double weight(const struct cache *c, const struct entry *e)
{
    double age = (double)(c->generation - e->used);
    return ((double)e->bytes + ENTRY_BYTES) * pow(AGE_FACTOR, age);
}

/* The heaviest that would free something; the longest unused of equal ones. */
static struct entry *heaviest(const struct cache *c)
{
    struct entry *best = NULL;
    for (size_t i = 0; i < c->entries.item.n; i++) {
        struct entry *e = table_at(&c->entries, i);
        if (e->refs > 1)
            continue;
        double d = best ? weight(c, e) - weight(c, best) : 1;
        if (d > 0 || (d == 0 && e->touched < best->touched))
            best = e;
    }
    return best;
}

void cache_relieve(struct cache *c)
{
    double limit = c->ram_gb * 0x1p30;
    if (c->mode != CACHE_RAM || (double)ram_free(c) > limit)
        return;
    struct entry *e;
    while ((double)ram_free(c) < limit * ENOUGH && (e = heaviest(c)))
        drop(c, e);
}

/* ---- node states ---- */

struct node_state {
    struct keyed in; /* by `key` */
    char *key;       /* id, NUL, class */
    char *state;     /* free()d */
    uint64_t used;
};

static void state_free(struct node_state *s)
{
    free(s->state);
    free(s->key);
    free(s);
}

static bool state_key(const char *id, const char *class_name, struct str *out)
{
    str_add(out, id, strlen(id) + 1);
    str_adds(out, class_name);
    return !out->bad;
}

static struct node_state *state_find(const struct cache *c, const struct str *key)
{
    return table_get(&c->states, key->p, key->n);
}

static struct node_state *state_new(struct cache *c, struct str *key)
{
    struct node_state *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->in.len = key->n;
    s->in.key = s->key = str_take(key);
    if (table_add(&c->states, &s->in))
        return s;
    state_free(s);
    return NULL;
}

char **cache_state(struct cache *c, const char *id, const char *class_name)
{
    struct str key = { 0 };
    struct node_state *s = NULL;
    if (state_key(id, class_name, &key)) {
        s = state_find(c, &key);
        if (!s)
            s = state_new(c, &key);
    }
    str_release(&key);
    if (!s)
        return NULL;
    s->used = c->generation;
    return &s->state;
}

static void state_drop(struct cache *c, struct node_state *s)
{
    table_remove(&c->states, &s->in);
    state_free(s);
}

/* Those of nodes that are not in the prompt go. */
static void states_begin(struct cache *c, const struct workflow *wf)
{
    if (!c->states.item.n)
        return;
    struct str key = { 0 };
    for (size_t i = 0; i < wf->n; i++) {
        str_clear(&key);
        if (!wf->node[i].cls || !state_key(wf->node[i].id, wf->node[i].cls->name, &key))
            continue;
        struct node_state *s = state_find(c, &key);
        if (s)
            s->used = c->generation;
    }
    str_release(&key);
    for (size_t i = c->states.item.n; i-- > 0;) {
        struct node_state *s = table_at(&c->states, i);
        if (s->used < c->generation)
            state_drop(c, s);
    }
}

/* ---- the cache ---- */

void cache_init(struct cache *c, const struct executor_config *cfg)
{
    *c = (struct cache) {
        .mode = cfg->cache,
        .lru = cfg->lru,
        .ram_gb = cfg->ram_gb,
        .ram_free = cfg->ram_free,
        .ram_user = cfg->ram_user,
        .entries.item.elem = sizeof(struct keyed *),
        .states.item.elem = sizeof(struct keyed *),
    };
}

void cache_begin(struct cache *c, const struct workflow *wf, const struct node_key *key)
{
    c->generation++;
    for (size_t i = 0; i < wf->n; i++)
        cache_get(c, &key[i]);
    if (c->mode == CACHE_CLASSIC)
        drop_older(c, c->generation);
    while (c->mode == CACHE_LRU && c->entries.item.n > c->lru && c->oldest < c->generation)
        drop_older(c, ++c->oldest);
    states_begin(c, wf);
}

void cache_clear(struct cache *c)
{
    while (c->entries.item.n)
        drop(c, table_at(&c->entries, c->entries.item.n - 1));
    while (c->states.item.n)
        state_drop(c, table_at(&c->states, c->states.item.n - 1));
}

void cache_release(struct cache *c)
{
    cache_clear(c);
    vec_release(&c->entries.item);
    vec_release(&c->states.item);
    map_release(&c->entries.by_key);
    map_release(&c->states.by_key);
}
