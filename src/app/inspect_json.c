#include "app/inspect.h"

#include "base/rd.h"

/* GGUF metadata types, by number. */
static const struct {
    const char *name;
    unsigned char bytes; /* of a number; 0: it is none */
    char kind;           /* u and i whole, f float, b bool, s string, a array */
} types[] = {
    { "u8", 1, 'u' },     { "i8", 1, 'i' },    { "u16", 2, 'u' }, { "i16", 2, 'i' },
    { "u32", 4, 'u' },    { "i32", 4, 'i' },   { "f32", 4, 'f' }, { "bool", 1, 'b' },
    { "string", 0, 's' }, { "array", 0, 'a' }, { "u64", 8, 'u' }, { "i64", 8, 'i' },
    { "f64", 8, 'f' },
};

const char *inspect_meta_type(uint32_t type)
{
    return type < ARRAY_LEN(types) ? types[type].name : "?";
}

static void array(struct jsonout *j, const char *key, struct rd *r, uint32_t type, uint64_t count,
                  uint64_t max);

static void number(struct jsonout *j, struct rd *r, unsigned bytes, char kind)
{
    unsigned spare = 64 - 8 * bytes;
    if (kind == 'f')
        jo_f64(j, NULL, bytes == 4 ? (double)rd_f32le(r) : rd_f64le(r));
    else if (kind == 'b')
        jo_bool(j, NULL, rd_u8(r) != 0);
    else if (kind == 'i') /* with its sign */
        jo_i64(j, NULL, (int64_t)(rd_uint_le(r, bytes) << spare) >> spare);
    else
        jo_u64(j, NULL, rd_uint_le(r, bytes));
}

static void element(struct jsonout *j, struct rd *r, uint32_t type, uint64_t max)
{
    char kind = type < ARRAY_LEN(types) ? types[type].kind : 0;
    if (kind == 's') {
        size_t n = (size_t)rd_u64le(r);
        const uint8_t *s = rd_take(r, n);
        jo_text(j, NULL, s ? (const char *)s : "", s ? n : 0);
    } else if (kind == 'a') {
        uint32_t inner = rd_u32le(r);
        uint64_t count = rd_u64le(r);
        array(j, NULL, r, inner, count, max);
    } else if (kind) {
        number(j, r, types[type].bytes, kind);
    } else {
        r->bad = true; /* the reader let none through */
    }
}

static void array(struct jsonout *j, const char *key, struct rd *r, uint32_t type, uint64_t count,
                  uint64_t max)
{
    jo_open_flat(j, key, '[');
    for (uint64_t i = 0; i < count && !r->bad; i++) {
        if (max && i == max) {
            jo_str(j, NULL, "...");
            r->bad = true; /* the rest is not walked */
            break;
        }
        element(j, r, type, max);
    }
    jo_close(j, ']');
}

void inspect_meta(struct jsonout *j, const char *key, const struct weights_meta *m,
                  uint64_t max_items)
{
    switch (m->kind) {
    case META_STRING:
        jo_text(j, key, m->str, m->str_len);
        return;
    case META_INT:
        jo_i64(j, key, m->i);
        return;
    case META_UINT:
        jo_u64(j, key, m->u);
        return;
    case META_FLOAT:
        jo_f64(j, key, m->f);
        return;
    case META_BOOL:
        jo_bool(j, key, m->b);
        return;
    case META_ARRAY: {
        struct rd r = rd_init(m->raw, m->raw_len);
        array(j, key, &r, m->elem_type, m->count, max_items);
        return;
    }
    }
}

static void shape(struct jsonout *j, const struct shape *s)
{
    jo_open_flat(j, "shape", '[');
    for (int i = 0; i < s->ndim; i++)
        jo_u64(j, NULL, s->dim[i]);
    jo_close(j, ']');
}

static void entry(struct jsonout *j, const struct weights *w, const struct weights_entry *e,
                  bool place)
{
    char words[INSPECT_WORDS_MAX];
    jo_open_flat(j, NULL, '{');
    jo_text(j, "name", e->name, e->name_len);
    jo_str(j, "dtype", dtype_name(e->dtype));
    jo_str(j, "stored", inspect_words(w, e, words));
    shape(j, &e->shape);
    if (place) {
        jo_u64(j, "shard", e->shard);
        jo_u64(j, "offset", e->off);
    }
    jo_u64(j, "bytes", e->size);
    jo_close(j, '}');
}

static void json_family(struct jsonout *j, const struct family_info *f)
{
    if (!f->name)
        return;
    jo_open(j, "family", '{');
    jo_str(j, "name", f->name);
    jo_str(j, "is", f->what);
    jo_bool(j, "runs", f->runs);
    if (f->why[0])
        jo_str(j, "why", f->why);
    jo_close(j, '}');
}

berth_status inspect_json(struct jsonout *j, const struct weights *w, const struct summary *s,
                          bool tensors, berth_err *err)
{
    jo_open(j, NULL, '{');
    jo_str(j, "file", weights_path(w));
    jo_str(j, "format", weights_format(w));
    json_family(j, &s->family);
    jo_u64(j, "bytes", s->file_bytes);
    jo_u64(j, "data_bytes", s->all.bytes);
    jo_u64(j, "tensors", s->all.tensors);
    jo_u64(j, "parameters", s->all.params);
    jo_open(j, "shards", '[');
    for (size_t i = 0; i < weights_shards(w); i++) {
        jo_open_flat(j, NULL, '{');
        jo_str(j, "file", weights_shard(w, i)->path);
        jo_u64(j, "bytes", weights_shard(w, i)->size);
        jo_close(j, '}');
    }
    jo_close(j, ']');
    jo_open(j, "dtypes", '[');
    for (int t = 0; t < DT_COUNT; t++) {
        const struct tally *c = &s->by_dtype[t];
        if (!c->tensors)
            continue;
        jo_open_flat(j, NULL, '{');
        jo_str(j, "dtype", dtype_name((enum dtype)t));
        jo_u64(j, "tensors", c->tensors);
        jo_u64(j, "parameters", c->params);
        jo_u64(j, "bytes", c->bytes);
        jo_close(j, '}');
    }
    jo_close(j, ']');
    jo_open(j, "metadata", '{');
    for (size_t i = 0; i < weights_meta_count(w); i++) {
        const struct weights_meta *m = weights_meta_at(w, i);
        inspect_meta(j, m->key, m, 0);
    }
    jo_close(j, '}');
    jo_open(j, "largest", '[');
    for (size_t i = 0; i < s->tops; i++)
        entry(j, w, s->top[i], false);
    jo_close(j, ']');
    if (tensors) {
        jo_open(j, "index", '[');
        for (size_t i = 0; i < weights_count(w); i++)
            entry(j, w, weights_at(w, i), true);
        jo_close(j, ']');
    }
    berth_status status = weights_check(w, err);
    if (status)
        app_json_error(j, err);
    jo_close(j, '}');
    return status;
}
