/* safetensors, reading and laying out.
 *
 *     u64 N | N bytes of JSON, padded with spaces | tensor data
 *
 * The header is walked in place, without a tree. Sorted by offset every tensor begins where the one
 * before ended, the first at 0, the last ending with the file. Fields of a tensor that we do not
 * know are skipped, as the reference library (0.8) does.
 * We are stricter than it where it accepts: white space before the object, white space other than
 * spaces behind it, a name given twice (all three against the format's own text), a tensor written
 * as an array instead of an object, null metadata, a metadata key given twice, empty names, control
 * characters in names. */
#include "format/format_impl.h"

#include "base/json.h"
#include "base/rd.h"

#include <inttypes.h>

enum { DEPTH = 16 }; /* of the header's JSON: 3 are needed, the rest is for fields to come */

static bool probe(const uint8_t *head, size_t n)
{
    return n >= 9 && head[8] == '{';
}

/* The current STRING or KEY when it may be one of the short words we know; a longer text is left
 * raw and matches none of them. */
struct word {
    char buf[32];
    const char *s;
    size_t n;
};

static void read_word(const struct jstok *t, struct word *w)
{
    char scratch[sizeof w->buf + 2];
    w->s = t->s;
    w->n = t->n;
    if (t->has_escape && t->n <= sizeof w->buf && token_decode(t, scratch, w->buf, &w->n))
        w->s = w->buf;
}

/* Types that exist in the format and that we do not carry. */
static bool known_elsewhere(const char *s, size_t n)
{
    static const char *const name[] = { "F4",  "F6_E2M3",     "F6_E3M2",
                                        "C64", "F8_E4M3FNUZ", "F8_E5M2FNUZ" };
    for (size_t i = 0; i < ARRAY_LEN(name); i++)
        if (str_eq(s, n, name[i]))
            return true;
    return false;
}

static berth_status read_dtype(struct jstok *t, struct weights_entry *e, berth_err *err)
{
    struct word w;
    if (jstok_next(t) != JSTOK_STRING)
        return jstok_fail(t, "dtype must be a string", err);
    read_word(t, &w);
    e->dtype = dtype_by_st_name(w.s, w.n);
    if (e->dtype != DT_NONE)
        return BERTH_OK;
    if (known_elsewhere(w.s, w.n))
        return err_set(err, BERTH_EUNSUPPORTED, "dtype %s is not supported", excerpt(w.s, w.n).s);
    return err_set(err, BERTH_EFORMAT, "unknown dtype '%s'", excerpt(w.s, w.n).s);
}

/* The number that comes next: an integer in [0, 2^64). Refuses "-0", as the reference does. */
static berth_status read_u64(struct jstok *t, enum jstok_type type, const char *what, uint64_t *out,
                             berth_err *err)
{
    if (type != JSTOK_INT || t->s[0] == '-' || !jstok_u64(t, out))
        return jstok_fail(t, what, err);
    return BERTH_OK;
}

static berth_status read_shape(struct jstok *t, struct shape *s, berth_err *err)
{
    if (jstok_next(t) != JSTOK_ARRAY)
        return jstok_fail(t, "shape must be an array", err);
    for (;;) {
        enum jstok_type type = jstok_next(t);
        uint64_t dim = 0;
        if (type == JSTOK_ARRAY_END)
            return BERTH_OK;
        if (read_u64(t, type, "a dimension must be an integer, 0 or more", &dim, err))
            return err->code;
        if (s->ndim == SHAPE_MAX_DIMS)
            return err_set(err, BERTH_ELIMIT, "more than %d dimensions", SHAPE_MAX_DIMS);
        s->dim[s->ndim++] = dim;
    }
}

static berth_status read_offsets(struct jstok *t, uint64_t off[2], berth_err *err)
{
    if (jstok_next(t) != JSTOK_ARRAY)
        return jstok_fail(t, "data_offsets must be an array", err);
    for (int i = 0; i < 2; i++)
        if (read_u64(t, jstok_next(t), "data_offsets must hold two integers, 0 or more", &off[i],
                     err))
            return err->code;
    if (jstok_next(t) != JSTOK_ARRAY_END)
        return jstok_fail(t, "data_offsets must hold two integers and no more", err);
    return BERTH_OK;
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

struct fields { /* of one tensor */
    struct weights_entry *e;
    uint64_t off[2];
    unsigned has;
};

static berth_status read_field(void *user, struct jstok *t, berth_err *err)
{
    struct fields *f = user;
    struct word w;
    read_word(t, &w);
    unsigned field = str_eq(w.s, w.n, "dtype")          ? HAS_DTYPE
                     : str_eq(w.s, w.n, "shape")        ? HAS_SHAPE
                     : str_eq(w.s, w.n, "data_offsets") ? HAS_OFFSETS
                                                        : 0;
    if (field & f->has)
        return err_set(err, BERTH_EFORMAT, "field '%s' occurs twice", excerpt(w.s, w.n).s);
    f->has |= field;
    switch (field) {
    case HAS_DTYPE:
        return read_dtype(t, f->e, err);
    case HAS_SHAPE:
        return read_shape(t, &f->e->shape, err);
    case HAS_OFFSETS:
        return read_offsets(t, f->off, err);
    default:
        return jstok_skip(t) ? BERTH_OK : jstok_fail(t, "malformed value", err);
    }
}

static berth_status read_fields(struct fields *f, struct jstok *t, berth_err *err)
{
    if (read_object(t, "a tensor must be an object", "malformed object", read_field, f, err))
        return err->code;
    if (f->has != HAS_ALL)
        return err_set(err, BERTH_EFORMAT, "field '%s' is missing",
                       !(f->has & HAS_DTYPE)   ? "dtype"
                       : !(f->has & HAS_SHAPE) ? "shape"
                                               : "data_offsets");
    return BERTH_OK;
}

struct header { /* of one file, being read */
    struct opening *o;
    uint32_t shard;
    uint64_t data_at, data_len; /* the tensors' bytes in the file */
    bool has_metadata;
    struct map keys; /* of its metadata so far */
};

/* off: [begin, end) of the data. */
static berth_status place(const struct header *h, struct weights_entry *e, const uint64_t off[2],
                          berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    const struct excerpt name = excerpt(e->name, e->name_len);
    if (entry_measure(e, err))
        return err->code;
    if (off[0] > off[1])
        return err_set(err, BERTH_EFORMAT,
                       "tensor '%s': data_offsets [%" PRIu64 ", %" PRIu64 "] run backwards", name.s,
                       off[0], off[1]);
    if (off[1] - off[0] != e->size)
        return err_set(err, BERTH_EFORMAT,
                       "tensor '%s': data_offsets span %" PRIu64 " bytes, but %s of shape %s "
                       "takes %" PRIu64,
                       name.s, off[1] - off[0], dtype_name(e->dtype), shape_text(&e->shape, text),
                       e->size);
    if (off[1] > h->data_len)
        return err_set(err, BERTH_EFORMAT,
                       "tensor '%s' ends at byte %" PRIu64 " of the data, but the file holds only "
                       "%" PRIu64 ": it is cut short, or its header lies; download it again",
                       name.s, off[1], h->data_len);
    e->off = h->data_at + off[0];
    return BERTH_OK;
}

static berth_status read_tensor(struct header *h, struct jstok *t, const char *name, size_t len,
                                berth_err *err)
{
    if (name_check(name, len, h->o->lim.max_name, "tensor name", err))
        return err->code;
    struct fields f = { .e = open_entry(h->o, h->shard, err) };
    if (!f.e)
        return err->code;
    f.e->name = name;
    f.e->name_len = (uint32_t)len;
    if (read_fields(&f, t, err))
        return err_add(err, "tensor '%s'", excerpt(name, len).s);
    return place(h, f.e, f.off, err);
}

static berth_status read_pair(void *user, struct jstok *t, berth_err *err)
{
    struct header *h = user;
    struct opening *o = h->o;
    const char *key, *value;
    size_t key_len, value_len;
    if (open_token(o, t, &key, &key_len, err) ||
        name_check(key, key_len, o->lim.max_name, "metadata key", err))
        return err->code;
    if (jstok_next(t) != JSTOK_STRING) {
        jstok_fail(t, "the value must be a string", err);
        return err_add(err, "metadata '%s'", excerpt(key, key_len).s);
    }
    if (open_token(o, t, &value, &value_len, err))
        return err->code;
    if (!str_is_utf8(value, value_len) || memchr(value, '\0', value_len))
        return err_set(err, BERTH_EFORMAT, "metadata '%s': the value has a NUL or is not UTF-8",
                       excerpt(key, key_len).s);
    if (name_add(&h->keys, key, key_len, 0, "metadata key", "occurs twice", err))
        return err->code;
    if (map_get(&o->meta_key, key, key_len, NULL))
        return BERTH_OK; /* shards repeat each other and the index: the first one's word stands */
    struct weights_meta *m = open_meta(o, key, key_len, err);
    if (!m)
        return err->code;
    m->kind = META_STRING;
    m->str = value;
    m->str_len = value_len;
    return BERTH_OK;
}

/* One member of the header: a tensor, or the metadata. */
static berth_status read_member(void *user, struct jstok *t, berth_err *err)
{
    struct header *h = user;
    const char *name;
    size_t len;
    if (open_token(h->o, t, &name, &len, err))
        return err->code;
    if (!str_eq(name, len, "__metadata__"))
        return read_tensor(h, t, name, len, err);
    if (h->has_metadata)
        return err_set(err, BERTH_EFORMAT, "'__metadata__' occurs twice");
    h->has_metadata = true;
    return read_object(t, "__metadata__ must be an object", "malformed __metadata__", read_pair, h,
                       err);
}

static berth_status read_header(struct header *h, struct jstok *t, berth_err *err)
{
    berth_status s =
        read_object(t, "the header must be an object", "malformed header", read_member, h, err);
    map_release(&h->keys);
    if (!s && jstok_next(t) != JSTOK_END)
        s = jstok_fail(t, "text behind the header object", err);
    return s;
}

/* Sorted entries from `first` on: from the first byte of the data to the last, no hole, no
 * overlap. */
static berth_status check_cover(const struct header *h, size_t first, berth_err *err)
{
    uint64_t at = h->data_at;
    for (size_t i = first; i < h->o->entry.n; i++) {
        const struct weights_entry *e = vec_at(&h->o->entry, i);
        if (e->off != at)
            return err_set(err, BERTH_EFORMAT,
                           "tensor '%s' begins at byte %" PRIu64 " of the data, %s at %" PRIu64,
                           excerpt(e->name, e->name_len).s, e->off - h->data_at,
                           e->off > at ? "leaving a hole: the one before ends"
                                       : "overlapping the one before, which ends",
                           at - h->data_at);
        at += e->size;
    }
    if (at - h->data_at != h->data_len)
        return err_set(err, BERTH_EFORMAT,
                       "the tensors cover %" PRIu64 " bytes of data, the file has %" PRIu64,
                       at - h->data_at, h->data_len);
    return BERTH_OK;
}

/* Where the header's text is; padding removed. */
static berth_status find_header(const struct opening *o, const struct shard *f, const char **text,
                                size_t *len, uint64_t *data_at, berth_err *err)
{
    struct rd r = rd_init(f->data, f->size);
    uint64_t n = rd_u64le(&r);
    if (r.bad)
        return err_set(err, BERTH_EFORMAT,
                       "cut short: %zu bytes, where 8 give the length of the header", f->size);
    if (n > o->lim.max_header)
        return err_set(err, BERTH_ELIMIT,
                       "a header of %" PRIu64 " bytes is over the limit of %" PRIu64, n,
                       o->lim.max_header);
    if (n > rd_left(&r))
        return err_set(err, BERTH_EFORMAT,
                       "cut short: the header takes %" PRIu64 " bytes, but only %zu are there", n,
                       rd_left(&r));
    const char *p = (const char *)rd_take(&r, (size_t)n);
    size_t used = (size_t)n;
    if (used == 0 || p[0] != '{')
        return err_set(err, BERTH_EFORMAT, "the header must begin with '{'");
    while (used > 0 && p[used - 1] == ' ')
        used--;
    if (used == 0 || p[used - 1] != '}')
        return err_set(err, BERTH_EFORMAT, "the header must end with '}' and spaces");
    *text = p;
    *len = used;
    *data_at = 8 + n;
    return BERTH_OK;
}

static berth_status st_open(struct opening *o, uint32_t shard, berth_err *err)
{
    const struct shard *f = open_shard_at(o, shard);
    struct header h = { .o = o, .shard = shard, .keys.seed = o->meta_key.seed };
    size_t first = o->entry.n, len = 0;
    const char *text = NULL;
    if (find_header(o, f, &text, &len, &h.data_at, err))
        return err->code;
    h.data_len = f->size - h.data_at;
    struct jstok t;
    jstok_init(&t, text, len, DEPTH);
    if (read_header(&h, &t, err) || open_sort(o, first, err))
        return err->code;
    return check_cover(&h, first, err);
}

/* ---- writing ---- */

static void add_tensor(struct jsonout *j, const struct weights_spec *s, uint64_t begin,
                       uint64_t end)
{
    jo_open(j, s->name, '{');
    jo_str(j, "dtype", dtype_desc(s->dtype)->st_name);
    jo_open(j, "shape", '[');
    for (int k = 0; k < s->shape.ndim; k++)
        jo_u64(j, NULL, s->shape.dim[k]);
    jo_close(j, ']');
    jo_open(j, "data_offsets", '[');
    jo_u64(j, NULL, begin);
    jo_u64(j, NULL, end);
    jo_close(j, ']');
    jo_close(j, '}');
}

/* Tensors lie one behind the other in the order given. */
static berth_status st_plan(const struct weights_write_args *a, struct write_plan *p,
                            berth_err *err)
{
    struct str *h = &p->header;
    struct jsonout j = { .out = h };
    uint64_t at = 0;
    str_pad(h, '\0', 8); /* the length, known at the end */
    jo_open(&j, NULL, '{');
    if (a->meta_count)
        jo_open(&j, "__metadata__", '{');
    for (size_t i = 0; i < a->meta_count; i++)
        jo_str(&j, a->meta[i].key, a->meta[i].value);
    if (a->meta_count)
        jo_close(&j, '}');
    for (size_t i = 0; i < a->count; i++) {
        const struct weights_spec *s = &a->spec[i];
        if (strcmp(s->name, "__metadata__") == 0)
            return err_set(err, BERTH_EINVAL, "a tensor cannot be called '__metadata__'");
        add_tensor(&j, s, at, at + p->size[i]);
        p->off[i] = at;
        at += p->size[i]; /* write.c has seen that the sum fits */
    }
    jo_close(&j, '}');
    str_pad(h, ' ', (h->n + 7) / 8 * 8);
    if (h->bad)
        return err_set(err, BERTH_ENOMEM, "out of memory for a header of %zu tensors", a->count);
    if (h->n - 8 > weights_limits_default.max_header)
        return err_set(err, BERTH_ELIMIT, "a header of %zu bytes is over the limit of %" PRIu64,
                       h->n - 8, weights_limits_default.max_header);
    for (int i = 0; i < 8; i++)
        h->p[i] = (char)((uint64_t)(h->n - 8) >> (8 * i));
    for (size_t i = 0; i < a->count; i++)
        p->off[i] += h->n;
    p->total = h->n + at;
    return BERTH_OK;
}

static bool stores(enum dtype t)
{
    return dtype_desc(t)->st_name != NULL;
}

static const struct weights_writer writer = {
    .name = "safetensors",
    .ext = ".safetensors .sft",
    .mixed = false,
    .stores = stores,
    .plan = st_plan,
};

const struct format format_safetensors = {
    .name = "safetensors",
    .ext = ".safetensors .sft",
    .probe = probe,
    .open = st_open,
    .writer = &writer,
};
