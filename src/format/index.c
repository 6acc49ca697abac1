/* The index while it is built and as it stays: packed texts, entries, the name table. */
#include "format/format_impl.h"

#include "base/hash.h"
#include "base/sz.h"
#include "base/utf8.h"

#include <inttypes.h>

enum { TEXT_BLOCK = 4 << 10 }; /* names are packed into blocks of this size */

static berth_status no_memory(const struct opening *o, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "out of memory for the index, %zu tensors in", o->entry.n);
}

/* ---- names ---- */

struct excerpt excerpt(const char *s, size_t n)
{
    struct excerpt e;
    size_t keep = n < sizeof e.s ? n : sizeof e.s - 1;
    memcpy(e.s, s, keep);
    e.s[keep] = '\0';
    size_t len = utf8_mark_cut(e.s, sizeof e.s, n);
    for (size_t i = 0; i < len; i++)
        if (e.s[i] == '\0')
            e.s[i] = '?';
    utf8_sanitize(e.s, len);
    return e;
}

berth_status name_check(const char *s, size_t n, size_t max, const char *what, berth_err *err)
{
    if (n == 0)
        return err_set(err, BERTH_EFORMAT, "empty %s", what);
    if (n > max)
        return err_set(err, BERTH_ELIMIT, "%s '%s' is %zu bytes long, the limit is %zu", what,
                       excerpt(s, n).s, n, max);
    for (size_t i = 0, step; i < n; i += step) {
        step = utf8_step(s + i, n - i);
        const uint8_t *c = (const uint8_t *)s + i;
        if (step == 0)
            return err_set(err, BERTH_EFORMAT, "%s '%s' is not UTF-8 at byte %zu", what,
                           excerpt(s, n).s, i);
        if (c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0))
            return err_set(err, BERTH_EFORMAT, "%s '%s' has a control character at byte %zu", what,
                           excerpt(s, n).s, i);
    }
    return BERTH_OK;
}

berth_status name_add(struct map *m, const char *s, size_t n, uint64_t value, const char *what,
                      const char *twice, berth_err *err)
{
    switch (map_add(m, s, n, value)) {
    case MAP_ADDED:
        return BERTH_OK;
    case MAP_EXISTS:
        return err_set(err, BERTH_EFORMAT, "%s '%s' %s", what, excerpt(s, n).s, twice);
    default:
        return err_set(err, BERTH_ENOMEM, "out of memory for a %s", what);
    }
}

berth_status read_object(struct jstok *t, const char *no_object, const char *malformed,
                         member_fn *member, void *user, berth_err *err)
{
    if (jstok_next(t) != JSTOK_OBJECT)
        return jstok_fail(t, no_object, err);
    for (;;) {
        enum jstok_type type = jstok_next(t);
        if (type == JSTOK_OBJECT_END)
            return BERTH_OK;
        if (type != JSTOK_KEY)
            return jstok_fail(t, malformed, err);
        if (member(user, t, err))
            return err->code;
    }
}

char *open_text(struct opening *o, const void *p, size_t n)
{
    size_t need;
    if (!sz_add(n, 1, &need))
        return NULL;
    if (need > o->text_left) {
        if (need > TEXT_BLOCK / 4) { /* large: on its own, the block stays for the small ones */
            char *own = arena_alloc(&o->w->mem, need);
            return own ? memcpy(own, p, n) : NULL;
        }
        o->text = arena_alloc(&o->w->mem, TEXT_BLOCK);
        o->text_left = o->text ? TEXT_BLOCK : 0;
        if (!o->text)
            return NULL;
    }
    char *at = o->text;
    if (n)
        memcpy(at, p, n); /* the NUL is there: arena memory comes zeroed */
    o->text += need;
    o->text_left -= need;
    return at;
}

bool token_decode(const struct jstok *t, char *scratch, char *out, size_t *n)
{
    struct jstok copy;
    size_t len = t->n;
    scratch[0] = '"';
    memcpy(scratch + 1, t->s, len);
    scratch[len + 1] = '"';
    jstok_init(&copy, scratch, len + 2, 1);
    return jstok_next(&copy) == JSTOK_STRING && copy.n == len && jstok_decode(&copy, out, n, NULL);
}

static berth_status open_escaped(struct opening *o, const struct jstok *t, const char **s,
                                 size_t *n, berth_err *err)
{
    size_t len = t->n; /* part of a mapped header: 2 * len + 2 cannot overflow */
    char *scratch = malloc(2 * len + 2), *out = scratch + len + 2;
    if (!scratch)
        return no_memory(o, err);
    bool ok = token_decode(t, scratch, out, n);
    *s = ok ? open_text(o, out, *n) : NULL;
    free(scratch);
    if (!ok)
        return jstok_fail(t, "malformed escape in a string", err);
    return *s ? BERTH_OK : no_memory(o, err);
}

berth_status open_token(struct opening *o, const struct jstok *t, const char **s, size_t *n,
                        berth_err *err)
{
    if (t->has_escape)
        return open_escaped(o, t, s, n, err);
    *n = t->n;
    *s = open_text(o, t->s, *n);
    return *s ? BERTH_OK : no_memory(o, err);
}

/* ---- shards ---- */

const struct shard *open_shard_at(const struct opening *o, uint32_t shard)
{
    return vec_at(&o->w->shard, shard);
}

static const struct weights_file *memory_file(const struct opening *o, const char *name)
{
    for (size_t i = 0; i < o->file_count; i++)
        if (strcmp(o->files[i].name, name) == 0)
            return &o->files[i];
    return NULL;
}

berth_status open_shard(struct opening *o, const char *path, berth_err *err)
{
    struct shard *s = vec_add(&o->w->shard);
    if (!s)
        return no_memory(o, err);
    s->path = open_text(o, path, strlen(path));
    if (!s->path)
        return no_memory(o, err);
    if (!o->files) {
        if (file_map_open(path, &s->map, err))
            return err->code;
        s->data = s->map->data;
        s->size = s->map->size;
        return BERTH_OK;
    }
    const struct weights_file *f = memory_file(o, path);
    if (!f)
        return err_set(err, BERTH_ENOTFOUND, "'%s': no such file", path);
    s->data = f->data;
    s->size = f->size;
    return BERTH_OK;
}

void open_drop_shards(struct opening *o)
{
    for (size_t i = 0; i < o->w->shard.n; i++)
        file_map_close(((struct shard *)vec_at(&o->w->shard, i))->map);
    vec_release(&o->w->shard);
}

/* ---- entries and metadata ---- */

struct weights_entry *open_entry(struct opening *o, uint32_t shard, berth_err *err)
{
    if (o->entry.n >= o->lim.max_tensors) {
        err_set(err, BERTH_ELIMIT, "more than %" PRIu64 " tensors", o->lim.max_tensors);
        return NULL;
    }
    struct weights_entry *e = vec_add(&o->entry);
    if (!e)
        no_memory(o, err);
    else
        e->shard = shard;
    return e;
}

struct weights_meta *open_meta(struct opening *o, const char *key, size_t len, berth_err *err)
{
    if (o->meta.n >= o->lim.max_kv) {
        err_set(err, BERTH_ELIMIT, "more than %" PRIu64 " metadata entries", o->lim.max_kv);
        return NULL;
    }
    struct weights_meta *m = vec_add(&o->meta);
    if (!m) {
        no_memory(o, err);
        return NULL;
    }
    m->key = key;
    m->key_len = (uint32_t)len; /* name_check() has seen it */
    if (!name_add(&o->meta_key, key, len, o->meta.n - 1, "metadata key", "occurs twice", err))
        return m;
    vec_pop(&o->meta);
    return NULL;
}

berth_status entry_measure(struct weights_entry *e, berth_err *err)
{
    uint64_t n;
    char text[SHAPE_TEXT_MAX];
    if (!shape_count(&e->shape, &n) || n > INT64_MAX)
        return err_set(err, BERTH_EFORMAT, "tensor '%s': shape %s has too many elements",
                       excerpt(e->name, e->name_len).s, shape_text(&e->shape, text));
    if (!dtype_bytes(e->dtype, n, &e->size) || e->size > INT64_MAX)
        return err_set(err, BERTH_EFORMAT,
                       "tensor '%s': shape %s does not make whole blocks of %s, or too many",
                       excerpt(e->name, e->name_len).s, shape_text(&e->shape, text),
                       dtype_name(e->dtype));
    e->stored = e->dtype;
    return BERTH_OK;
}

struct sort_key {
    uint64_t off, size;
    size_t at; /* where the entry was; makes the order total, so that any sort is stable */
};

static int sort_cmp(const void *pa, const void *pb)
{
    const struct sort_key *a = pa, *b = pb;
    if (a->off != b->off)
        return a->off < b->off ? -1 : 1;
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static bool in_order(const struct weights_entry *e, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (e[i].off < e[i - 1].off || (e[i].off == e[i - 1].off && e[i].size < e[i - 1].size))
            return false;
    return true;
}

berth_status open_sort(struct opening *o, size_t first, berth_err *err)
{
    size_t n = o->entry.n - first, bytes;
    if (n == 0)
        return BERTH_OK;
    struct weights_entry *e = vec_at(&o->entry, first);
    if (in_order(e, n)) /* true of nearly every real file */
        return BERTH_OK;
    struct sort_key *key = sz_mul(n, sizeof *key, &bytes) ? malloc(bytes) : NULL;
    struct weights_entry *was = sz_mul(n, sizeof *was, &bytes) ? malloc(bytes) : NULL;
    if (key && was) {
        memcpy(was, e, bytes);
        for (size_t i = 0; i < n; i++)
            key[i] = (struct sort_key) { .off = e[i].off, .size = e[i].size, .at = i };
        qsort(key, n, sizeof *key, sort_cmp);
        for (size_t i = 0; i < n; i++)
            e[i] = was[key[i].at];
    }
    berth_status s = key && was ? BERTH_OK : no_memory(o, err);
    free(key);
    free(was);
    return s;
}

/* ---- the name table: linear probing, at most three quarters full ----
 *
 * Eight bytes for each place, where base/map.h takes 32: with that, opening 100,000 tensors takes
 * 16 % longer. */

static uint64_t name_hash(const struct weights *w, const char *name, size_t len)
{
    return hash_xxh64(name, len, w->hash_seed);
}

/* The slot that holds the name, or the free one where it would go. */
static struct name_slot *name_slot(const struct weights *w, const char *name, size_t len,
                                   uint64_t hash)
{
    size_t mask = w->slots - 1;
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        struct name_slot *s = &w->slot[i];
        if (!s->at)
            return s;
        if (s->tag != tag)
            continue;
        const struct weights_entry *e = &w->entry[s->at - 1];
        if (e->name_len == len && memcmp(e->name, name, len) == 0)
            return s;
    }
}

static berth_status occurs_twice(const struct weights *w, const struct weights_entry *x,
                                 const struct weights_entry *y, berth_err *err)
{
    if (x->shard == y->shard)
        return err_set(err, BERTH_EFORMAT, "tensor '%s' occurs twice",
                       excerpt(y->name, y->name_len).s);
    const struct shard *sx = vec_at(&w->shard, x->shard), *sy = vec_at(&w->shard, y->shard);
    return err_set(err, BERTH_EFORMAT, "tensor '%s' occurs twice, in '%s' and in '%s'",
                   excerpt(y->name, y->name_len).s, excerpt(sx->path, strlen(sx->path)).s,
                   excerpt(sy->path, strlen(sy->path)).s);
}

static berth_status table_build(struct weights *w, berth_err *err)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct weights_entry *e = &w->entry[i];
        uint64_t hash = name_hash(w, e->name, e->name_len);
        struct name_slot *s = name_slot(w, e->name, e->name_len, hash);
        if (s->at)
            return occurs_twice(w, &w->entry[s->at - 1], e, err);
        *s = (struct name_slot) { .tag = (uint32_t)(hash >> 32), .at = (uint32_t)i + 1 };
    }
    return BERTH_OK;
}

berth_status index_finish(struct opening *o, berth_err *err)
{
    struct weights *w = o->w;
    size_t n = o->entry.n, slots = 16;
    while (slots - slots / 4 <= n) /* n <= max_tensors: no overflow */
        slots *= 2;
    w->entry = arena_array(&w->mem, n ? n : 1, sizeof *w->entry);
    w->meta = arena_array(&w->mem, o->meta.n ? o->meta.n : 1, sizeof *w->meta);
    w->slot = arena_array(&w->mem, slots, sizeof *w->slot);
    if (!w->entry || !w->meta || !w->slot)
        return no_memory(o, err);
    if (n)
        memcpy(w->entry, o->entry.p, n * sizeof *w->entry);
    if (o->meta.n)
        memcpy(w->meta, o->meta.p, o->meta.n * sizeof *w->meta);
    w->count = n;
    w->metas = o->meta.n;
    w->slots = slots;
    w->hash_seed = (uint64_t)(uintptr_t)w * UINT64_C(0x9e3779b97f4a7c15);
    return table_build(w, err);
}

const struct weights_entry *weights_find(const struct weights *w, const char *name, size_t len)
{
    const struct name_slot *s = name_slot(w, name, len, name_hash(w, name, len));
    return s->at ? &w->entry[s->at - 1] : NULL;
}

const struct weights_meta *weights_meta_find(const struct weights *w, const char *key)
{
    size_t len = strlen(key);
    for (size_t i = 0; i < w->metas; i++)
        if (w->meta[i].key_len == len && memcmp(w->meta[i].key, key, len) == 0)
            return &w->meta[i];
    return NULL;
}
