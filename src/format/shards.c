/* *.safetensors.index.json: a model in several files. The rules are in weights.h. */
#include "format/format_impl.h"

#include <inttypes.h>

enum { DEPTH = 32, FILE_NAME_MAX = 255 };

struct placed { /* one line of the weight map */
    const char *name;
    size_t len;
    uint32_t file; /* number in `file` */
    bool seen;
};

struct shard_name {
    const char *s;
    size_t n;
    uint32_t shard; /* its number once sorted */
};

struct shard_map { /* the parsed index */
    struct opening *o;
    struct vec placed;  /* struct placed */
    struct vec file;    /* struct shard_name, in order of appearance */
    struct map by_name; /* tensor name -> number in `placed` */
    struct map by_file; /* file name -> number in `file` */
    bool has_map, has_meta;
};

/* JSON text. A safetensors file may begin with the same byte (a header of 123 + 256 k bytes), but
 * the upper half of its length is zero. */
static bool probe(const uint8_t *head, size_t n)
{
    size_t i = 0;
    while (i < n && (head[i] == ' ' || head[i] == '\n' || head[i] == '\r' || head[i] == '\t'))
        i++;
    return i < n && head[i] == '{' && !memchr(head, '\0', n < 8 ? n : 8);
}

static berth_status no_memory(const struct shard_map *m, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "out of memory for the weight map, %zu tensors in",
                   m->placed.n);
}

/* A file name may not lead out of the folder. */
static berth_status check_file_name(const char *s, size_t n, berth_err *err)
{
    if (name_check(s, n, FILE_NAME_MAX, "file name", err))
        return err->code;
    if (s[0] == '.' || memchr(s, '/', n) || memchr(s, '\\', n))
        return err_set(err, BERTH_EFORMAT,
                       "file name '%s' is not a plain name in the folder of the index",
                       excerpt(s, n).s);
    return BERTH_OK;
}

/* *out: the number of the file, a new one when it was not named before. */
static berth_status file_number(struct shard_map *m, const struct jstok *t, uint32_t *out,
                                berth_err *err)
{
    uint64_t at;
    if (!t->has_escape && map_get(&m->by_file, t->s, t->n, &at)) {
        *out = (uint32_t)at;
        return BERTH_OK;
    }
    const char *s;
    size_t n;
    if (open_token(m->o, t, &s, &n, err) || check_file_name(s, n, err))
        return err->code;
    if (map_get(&m->by_file, s, n, &at)) {
        *out = (uint32_t)at;
        return BERTH_OK;
    }
    if (m->file.n >= m->o->lim.max_shards)
        return err_set(err, BERTH_ELIMIT, "more than %" PRIu32 " shards", m->o->lim.max_shards);
    *out = (uint32_t)m->file.n;
    bool ok = vec_push(&m->file, &(struct shard_name) { .s = s, .n = n }) &&
              map_add(&m->by_file, s, n, *out) == MAP_ADDED;
    return ok ? BERTH_OK : no_memory(m, err);
}

/* One "tensor": "file". */
static berth_status read_placed(void *user, struct jstok *t, berth_err *err)
{
    struct shard_map *m = user;
    const char *name;
    size_t len;
    uint32_t file = 0;
    if (open_token(m->o, t, &name, &len, err) ||
        name_check(name, len, m->o->lim.max_name, "tensor name", err))
        return err->code;
    if (m->placed.n >= m->o->lim.max_tensors)
        return err_set(err, BERTH_ELIMIT, "more than %" PRIu64 " tensors", m->o->lim.max_tensors);
    if (jstok_next(t) != JSTOK_STRING)
        return jstok_fail(t, "a file name must be a string", err);
    if (file_number(m, t, &file, err))
        return err->code;
    if (name_add(&m->by_name, name, len, m->placed.n, "tensor", "occurs twice in the weight map",
                 err))
        return err->code;
    const struct placed p = { .name = name, .len = len, .file = file };
    return vec_push(&m->placed, &p) ? BERTH_OK : no_memory(m, err);
}

static berth_status set_number(const struct jstok *t, struct weights_meta *m, berth_err *err)
{
    if (jstok_u64(t, &m->u)) {
        m->kind = META_UINT;
        return BERTH_OK;
    }
    m->kind = META_INT;
    if (jstok_i64(t, &m->i))
        return BERTH_OK;
    m->kind = META_FLOAT;
    return jstok_f64(t, &m->f) ? BERTH_OK : jstok_fail(t, "number out of range", err);
}

/* Scalars are kept, the rest is skipped. */
static berth_status read_meta_value(struct shard_map *m, struct jstok *t, const char *key,
                                    size_t len, berth_err *err)
{
    struct weights_meta v = { 0 };
    struct jstok ahead = *t;
    enum jstok_type type = jstok_next(&ahead);
    if (type == JSTOK_ARRAY || type == JSTOK_OBJECT || type == JSTOK_NULL || type == JSTOK_ERROR)
        return jstok_skip(t) ? BERTH_OK : jstok_fail(t, "malformed metadata", err);
    *t = ahead;
    if (type == JSTOK_STRING) {
        v.kind = META_STRING;
        if (open_token(m->o, t, &v.str, &v.str_len, err))
            return err->code;
        if (!str_is_utf8(v.str, v.str_len) || memchr(v.str, '\0', v.str_len))
            return err_set(err, BERTH_EFORMAT, "metadata '%s' has a NUL or is not UTF-8",
                           excerpt(key, len).s);
    } else if (type == JSTOK_TRUE || type == JSTOK_FALSE) {
        v.kind = META_BOOL;
        v.b = type == JSTOK_TRUE;
    } else if (set_number(t, &v, err)) {
        return err->code;
    }
    struct weights_meta *out = open_meta(m->o, key, len, err);
    if (!out)
        return err->code;
    v.key = out->key;
    v.key_len = out->key_len;
    *out = v;
    return BERTH_OK;
}

static berth_status read_meta(void *user, struct jstok *t, berth_err *err)
{
    struct shard_map *m = user;
    const char *key;
    size_t len;
    if (open_token(m->o, t, &key, &len, err) ||
        name_check(key, len, m->o->lim.max_name, "metadata key", err))
        return err->code;
    return read_meta_value(m, t, key, len, err);
}

/* One member of the index. */
static berth_status read_member(void *user, struct jstok *t, berth_err *err)
{
    struct shard_map *m = user;
    const char *key;
    size_t len;
    if (open_token(m->o, t, &key, &len, err))
        return err->code;
    bool map = str_eq(key, len, "weight_map"), meta = str_eq(key, len, "metadata");
    if ((map && m->has_map) || (meta && m->has_meta))
        return err_set(err, BERTH_EFORMAT, "'%s' occurs twice", key);
    m->has_map |= map;
    m->has_meta |= meta;
    if (map)
        return read_object(t, "weight_map must be an object", "malformed weight_map", read_placed,
                           m, err);
    if (meta)
        return read_object(t, "metadata must be an object", "malformed metadata", read_meta, m,
                           err);
    return jstok_skip(t) ? BERTH_OK : jstok_fail(t, "malformed shard index", err);
}

static berth_status read_index(struct shard_map *m, const struct shard *f, berth_err *err)
{
    if (f->size > m->o->lim.max_header)
        return err_set(err, BERTH_ELIMIT, "an index of %zu bytes is over the limit of %" PRIu64,
                       f->size, m->o->lim.max_header);
    struct jstok t;
    jstok_init(&t, (const char *)f->data, f->size, DEPTH);
    if (read_object(&t, "a shard index must be an object", "malformed shard index", read_member, m,
                    err))
        return err->code;
    if (jstok_next(&t) != JSTOK_END)
        return jstok_fail(&t, "text behind the shard index", err);
    if (!m->has_map && memmem(f->data, f->size, "\"class_type\"", strlen("\"class_type\"")))
        return err_set(err, BERTH_EFORMAT,
                       "a workflow, which holds no weights: berth run takes it");
    if (!m->has_map)
        return err_set(err, BERTH_EFORMAT, "JSON without a 'weight_map': not a shard index");
    if (!m->placed.n)
        return err_set(err, BERTH_EFORMAT, "the weight map is empty");
    return BERTH_OK;
}

/* ---- the shards ---- */

static int name_cmp(const void *pa, const void *pb)
{
    const struct shard_name *const *a = pa, *const *b = pb;
    return strcmp((*a)->s, (*b)->s);
}

/* Maps and indexes one shard, which must be a plain safetensors file. */
static berth_status open_one(struct opening *o, const char *dir, size_t dir_len,
                             const struct shard_name *f, berth_err *err)
{
    struct str path = { 0 };
    uint32_t shard = f->shard;
    str_add(&path, dir, dir_len);
    str_add(&path, f->s, f->n);
    berth_status s = path.bad ? err_set(err, BERTH_ENOMEM, "out of memory for a path")
                              : open_shard(o, path.p, err);
    str_release(&path);
    if (s)
        return s;
    const struct shard *sh = open_shard_at(o, shard);
    const struct format *is = format_probe(sh->data, sh->size);
    if (is == &format_safetensors || is == &format_pickle) /* which says why not */
        s = is->open(o, shard, err);
    else
        s = err_set(err, BERTH_EFORMAT, "not a safetensors file");
    if (s)
        return err_add(err, "shard '%s'", excerpt(f->s, f->n).s);
    return sh->map ? file_map_check(sh->map, err) : BERTH_OK;
}

/* Opens all shards, numbered by file name. `dir` is the folder of the index, with its '/'. */
static berth_status open_shards(struct shard_map *m, const char *dir, size_t dir_len,
                                berth_err *err)
{
    size_t n = m->file.n;
    struct shard_name **order = calloc(n ? n : 1, sizeof(struct shard_name *));
    if (!order)
        return no_memory(m, err);
    for (size_t i = 0; i < n; i++)
        order[i] = vec_at(&m->file, i);
    qsort(order, n, sizeof(struct shard_name *), name_cmp);
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < n && s == BERTH_OK; i++) {
        order[i]->shard = (uint32_t)i;
        s = open_one(m->o, dir, dir_len, order[i], err);
    }
    free(order);
    return s;
}

/* The map and the files must agree. */
static berth_status compare(struct shard_map *m, berth_err *err)
{
    for (size_t i = 0; i < m->o->entry.n; i++) {
        const struct weights_entry *e = vec_at(&m->o->entry, i);
        const struct excerpt name = excerpt(e->name, e->name_len);
        const char *path = open_shard_at(m->o, e->shard)->path;
        uint64_t at;
        if (!map_get(&m->by_name, e->name, e->name_len, &at))
            return err_set(err, BERTH_EFORMAT, "tensor '%s' is in '%s' but not in the weight map",
                           name.s, excerpt(path, strlen(path)).s);
        struct placed *p = vec_at(&m->placed, (size_t)at);
        const struct shard_name *f = vec_at(&m->file, p->file);
        if (f->shard != e->shard)
            return err_set(err, BERTH_EFORMAT, "tensor '%s' is in '%s', the weight map says '%s'",
                           name.s, excerpt(path, strlen(path)).s, excerpt(f->s, f->n).s);
        p->seen = true;
    }
    for (size_t i = 0; i < m->placed.n; i++) {
        const struct placed *p = vec_at(&m->placed, i);
        const struct shard_name *f = vec_at(&m->file, p->file);
        if (!p->seen)
            return err_set(err, BERTH_EFORMAT,
                           "tensor '%s' is not in '%s', where the weight map puts it",
                           excerpt(p->name, p->len).s, excerpt(f->s, f->n).s);
    }
    return BERTH_OK;
}

static berth_status shards_open(struct opening *o, uint32_t shard, berth_err *err)
{
    const struct shard *f = open_shard_at(o, shard);
    const char *path = f->path, *slash = strrchr(path, '/');
    size_t dir_len = slash ? (size_t)(slash - path) + 1 : 0;
    struct shard_map m = {
        .o = o,
        .placed = { .elem = sizeof(struct placed) },
        .file = { .elem = sizeof(struct shard_name) },
        .by_name = { .seed = o->meta_key.seed },
        .by_file = { .seed = o->meta_key.seed },
    };
    berth_status s = read_index(&m, f, err);
    if (s == BERTH_OK && f->map)
        s = file_map_check(f->map, err);
    if (s == BERTH_OK) {
        open_drop_shards(o); /* the index itself; its path lives on in the arena */
        s = open_shards(&m, path, dir_len, err);
    }
    if (s == BERTH_OK)
        s = compare(&m, err);
    vec_release(&m.placed);
    vec_release(&m.file);
    map_release(&m.by_name);
    map_release(&m.by_file);
    return s;
}

const struct format format_shards = {
    .name = "safetensors (sharded)",
    .ext = ".index.json",
    .probe = probe,
    .open = shards_open,
};
