/* GGUF versions 2 and 3, read, and 3, written. Little-endian throughout.
 *
 *     "GGUF" | u32 version | u64 tensor_count | u64 kv_count
 *     kv_count     x  string key | u32 type | value
 *     tensor_count x  string name | u32 n_dims | n_dims x u64 ne | u32 ggml type | u64 offset
 *     zeros up to a multiple of general.alignment (u32, 32 when absent)
 *     tensor data; offsets count from here and are multiples of the alignment
 *
 *     string = u64 length, bytes        array = u32 element type, u64 count, elements
 *
 * ne[0] is the innermost dimension: torch's shape is ne reversed. Where a converter had to flatten
 * a tensor, comfy.gguf.orig_shape.<name> (array of i32) carries its true shape. n_dims 0 is a
 * scalar; a dimension of 0 makes a tensor without bytes, as in current ggml. Tensors may be listed
 * in any order, but their bytes follow each other as ggml wants it: without overlap, and with no
 * more between two of them, or behind the last, than the padding to the next multiple of the
 * alignment. Keys with a meaning fixed by the format must have their type (fixed_key); others may
 * have any. */
#include "format/format_impl.h"

#include "base/rd.h"
#include "base/sz.h"

#include <inttypes.h>

enum {
    GGUF_DIMS_MAX = 4,  /* that are written, and that ggml knows */
    GGUF_DIMS_READ = 5, /* of filters over frames, as people write them */
    GGUF_ALIGN_DEFAULT = 32,
    GGUF_ALIGN_MAX = 2 << 20, /* a huge page; more makes no sense */
    GGUF_KEY_EXTRA = 64,      /* a key may be a tensor name with a prefix */
    GGUF_NAME_MAX = 127,      /* written; ComfyUI-GGUF's converter has the same limit */
};

#define GGUF_ORIG_SHAPE "comfy.gguf.orig_shape."

struct gguf { /* one file being read */
    struct opening *o;
    struct rd r;
    uint32_t shard;
    uint64_t size; /* of the file */
    uint64_t align;
    size_t orig_shapes; /* metadata keys that carry one */
};

static const struct value_type {
    const char *name;
    uint8_t bytes; /* 0: no fixed size */
    enum weights_meta_kind kind;
} value_type[] = {
    [GGUF_U8] = { "u8", 1, META_UINT },           [GGUF_I8] = { "i8", 1, META_INT },
    [GGUF_U16] = { "u16", 2, META_UINT },         [GGUF_I16] = { "i16", 2, META_INT },
    [GGUF_U32] = { "u32", 4, META_UINT },         [GGUF_I32] = { "i32", 4, META_INT },
    [GGUF_F32] = { "f32", 4, META_FLOAT },        [GGUF_BOOL] = { "bool", 1, META_BOOL },
    [GGUF_STRING] = { "string", 0, META_STRING }, [GGUF_ARRAY] = { "array", 0, META_ARRAY },
    [GGUF_U64] = { "u64", 8, META_UINT },         [GGUF_I64] = { "i64", 8, META_INT },
    [GGUF_F64] = { "f64", 8, META_FLOAT },
};

static const char *type_name(uint32_t t)
{
    return t < ARRAY_LEN(value_type) ? value_type[t].name : "?";
}

/* GGML types that we do not carry, so that the message can say which one it was. */
static const char *ggml_name(uint32_t id)
{
    static const char *const name[] = {
        [4] = "Q4_2, removed",
        [5] = "Q4_3, removed",
        [9] = "Q8_1",
        [15] = "Q8_K",
        [16] = "IQ2_XXS",
        [17] = "IQ2_XS",
        [18] = "IQ3_XXS",
        [19] = "IQ1_S",
        [21] = "IQ3_S",
        [22] = "IQ2_S",
        [29] = "IQ1_M",
        [31] = "Q4_0_4_4, removed",
        [32] = "Q4_0_4_8, removed",
        [33] = "Q4_0_8_8, removed",
        [34] = "TQ1_0",
        [35] = "TQ2_0",
        [36] = "IQ4_NL_4_4, removed",
        [37] = "IQ4_NL_4_8, removed",
        [38] = "IQ4_NL_8_8, removed",
        [39] = "MXFP4",
        [40] = "NVFP4",
        [41] = "Q1_0",
    };
    return id < ARRAY_LEN(name) && name[id] ? name[id] : "unknown";
}

static bool probe(const uint8_t *head, size_t n)
{
    return n >= 4 && memcmp(head, "GGUF", 4) == 0;
}

/* The cursor ran off the end: of the file, or of what we are willing to read as a header. */
static berth_status cut_short(const struct gguf *g, const char *where, berth_err *err)
{
    if (g->size > g->o->lim.max_header)
        return err_set(err, BERTH_ELIMIT,
                       "the header is over the limit of %" PRIu64 " bytes, in %s",
                       g->o->lim.max_header, where);
    return err_set(err, BERTH_EFORMAT, "cut short in %s: the file has %" PRIu64 " bytes", where,
                   g->size);
}

/* A string, copied into the index. The length meets the bytes that are left before it is used. */
static berth_status read_text(struct gguf *g, const char *what, const char **s, size_t *n,
                              berth_err *err)
{
    uint64_t len = rd_u64le(&g->r);
    if (g->r.bad)
        return cut_short(g, what, err);
    if (len > rd_left(&g->r))
        return err_set(err, BERTH_EFORMAT, "%s of %" PRIu64 " bytes, but only %zu are left", what,
                       len, rd_left(&g->r));
    *n = (size_t)len;
    *s = open_text(g->o, rd_take(&g->r, *n), *n);
    return *s ? BERTH_OK : err_set(err, BERTH_ENOMEM, "out of memory for a %s", what);
}

/* ---- metadata ---- */

static berth_status check_bools(const uint8_t *p, uint64_t n, berth_err *err)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return err_set(err, BERTH_EFORMAT, "a bool must be 0 or 1, not %u", p[i]);
    return BERTH_OK;
}

/* Walks over `count` elements of `type`. Every element takes at least one byte, and the count meets
 * the bytes that are left before the loop: no file can make us count to 2^64. */
static berth_status walk_array(struct gguf *g, uint32_t type, uint64_t count, uint32_t depth,
                               berth_err *err)
{
    if (type >= ARRAY_LEN(value_type))
        return err_set(err, BERTH_EFORMAT, "unknown array element type %" PRIu32, type);
    uint64_t least = type == GGUF_STRING ? 8 : type == GGUF_ARRAY ? 12 : value_type[type].bytes;
    if (count > rd_left(&g->r) / least)
        return err_set(err, BERTH_EFORMAT,
                       "an array of %" PRIu64 " x %s does not fit the %zu bytes that are left",
                       count, type_name(type), rd_left(&g->r));
    if (value_type[type].bytes) {
        const uint8_t *p = rd_take(&g->r, (size_t)(count * least));
        return type == GGUF_BOOL ? check_bools(p, count, err) : BERTH_OK;
    }
    if (type == GGUF_ARRAY && depth >= g->o->lim.max_nesting)
        return err_set(err, BERTH_ELIMIT, "arrays nested deeper than %" PRIu32,
                       g->o->lim.max_nesting);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t inner = type == GGUF_ARRAY ? rd_u32le(&g->r) : 0;
        uint64_t n = rd_u64le(&g->r);
        if (g->r.bad)
            return cut_short(g, "an array", err);
        if (type == GGUF_ARRAY) {
            if (walk_array(g, inner, n, depth + 1, err))
                return err->code;
        } else if (n > rd_left(&g->r)) {
            return err_set(err, BERTH_EFORMAT,
                           "a string of %" PRIu64 " bytes in an array, but only %zu are left", n,
                           rd_left(&g->r));
        } else {
            (void)rd_take(&g->r, (size_t)n);
        }
    }
    return BERTH_OK;
}

static berth_status read_array(struct gguf *g, struct weights_meta *m, berth_err *err)
{
    m->elem_type = rd_u32le(&g->r);
    m->count = rd_u64le(&g->r);
    if (g->r.bad)
        return cut_short(g, "an array", err);
    m->raw = g->r.p;
    if (walk_array(g, m->elem_type, m->count, 1, err))
        return err->code;
    m->raw_len = (size_t)(g->r.p - m->raw);
    return BERTH_OK;
}

static berth_status read_string(struct gguf *g, struct weights_meta *m, berth_err *err)
{
    if (read_text(g, "string", &m->str, &m->str_len, err))
        return err->code;
    if (!str_is_utf8(m->str, m->str_len) || memchr(m->str, '\0', m->str_len))
        return err_set(err, BERTH_EFORMAT, "the string has a NUL or is not UTF-8");
    return BERTH_OK;
}

static berth_status read_value(struct gguf *g, uint32_t type, struct weights_meta *m,
                               berth_err *err)
{
    if (type >= ARRAY_LEN(value_type))
        return err_set(err, BERTH_EFORMAT, "unknown value type %" PRIu32, type);
    const struct value_type *is = &value_type[type];
    const unsigned unused = 64 - 8u * is->bytes; /* bits above the number's own */
    struct rd number = g->r;
    uint64_t u = rd_uint_le(&g->r, is->bytes);
    uint8_t b = (uint8_t)u;
    m->elem_type = type;
    m->kind = is->kind;
    switch (is->kind) {
    case META_STRING:
        return read_string(g, m, err);
    case META_ARRAY:
        return read_array(g, m, err);
    case META_BOOL:
        m->b = b;
        return check_bools(&b, 1, err);
    case META_INT:
        m->i = (int64_t)(u << unused) >> unused;
        break;
    case META_UINT:
        m->u = u;
        break;
    case META_FLOAT:
        m->f = is->bytes == 4 ? (double)rd_f32le(&number) : rd_f64le(&number);
        break;
    }
    return BERTH_OK;
}

/* The alignment must be known before the tensors are placed. */
static berth_status take_alignment(struct gguf *g, const struct weights_meta *m, berth_err *err)
{
    if (!sz_is_pow2((size_t)m->u) || m->u > GGUF_ALIGN_MAX)
        return err_set(err, BERTH_EFORMAT, "%" PRIu64 " is not a power of two between 1 and %d",
                       m->u, GGUF_ALIGN_MAX);
    g->align = m->u;
    return BERTH_OK;
}

/* The shape that an orig_shape array spells out. */
static berth_status orig_shape(const struct weights_meta *m, struct shape *out, berth_err *err)
{
    if (m->kind != META_ARRAY || m->elem_type != GGUF_I32)
        return err_set(err, BERTH_EFORMAT, "must be an array of i32");
    if (m->count > SHAPE_MAX_DIMS)
        return err_set(err, BERTH_ELIMIT, "%" PRIu64 " dimensions, at most %d are supported",
                       m->count, SHAPE_MAX_DIMS);
    struct rd r = rd_init(m->raw, m->raw_len);
    *out = (struct shape) { .ndim = (int)m->count };
    for (int i = 0; i < out->ndim; i++) {
        int32_t dim = (int32_t)rd_u32le(&r);
        if (dim < 0)
            return err_set(err, BERTH_EFORMAT, "dimension %" PRId32 " is negative", dim);
        out->dim[i] = (uint64_t)dim;
    }
    return BERTH_OK;
}

/* Keys whose meaning and type the format itself fixes. */
static berth_status check_fixed_key(const char *key, size_t len, uint32_t type, berth_err *err)
{
    static const struct {
        const char *key;
        uint32_t type;
    } fixed_key[] = {
        { "general.architecture", GGUF_STRING },
        { "general.alignment", GGUF_U32 },
        { "general.quantization_version", GGUF_U32 },
        { "general.file_type", GGUF_U32 },
    };
    for (size_t i = 0; i < ARRAY_LEN(fixed_key); i++)
        if (str_eq(key, len, fixed_key[i].key) && type != fixed_key[i].type)
            return err_set(err, BERTH_EFORMAT, "must be a %s, not %s", type_name(fixed_key[i].type),
                           type_name(type));
    return BERTH_OK;
}

/* What a key says about the rest of the file. */
static berth_status apply_key(struct gguf *g, uint32_t type, const struct weights_meta *m,
                              berth_err *err)
{
    struct shape ignored;
    if (check_fixed_key(m->key, m->key_len, type, err))
        return err->code;
    if (str_eq(m->key, m->key_len, "general.alignment"))
        return take_alignment(g, m, err);
    if (!str_starts(m->key, m->key_len, GGUF_ORIG_SHAPE))
        return BERTH_OK;
    g->orig_shapes++;
    return orig_shape(m, &ignored, err); /* well-formed, even if its tensor is not there */
}

static berth_status read_pair(struct gguf *g, berth_err *err)
{
    const char *key = NULL;
    size_t len = 0;
    if (read_text(g, "metadata key", &key, &len, err) ||
        name_check(key, len, (size_t)g->o->lim.max_name + GGUF_KEY_EXTRA, "metadata key", err))
        return err->code;
    struct weights_meta *m = open_meta(g->o, key, len, err);
    if (!m)
        return err->code;
    uint32_t type = rd_u32le(&g->r);
    if (!g->r.bad && read_value(g, type, m, err))
        return err_add(err, "metadata '%s'", excerpt(key, len).s);
    if (g->r.bad)
        return cut_short(g, "the metadata", err);
    if (apply_key(g, type, m, err))
        return err_add(err, "metadata '%s'", excerpt(key, len).s);
    return BERTH_OK;
}

/* ---- tensors ---- */

/* name, dimensions and type; *off as the file gives it. */
static berth_status read_info(struct gguf *g, struct weights_entry *e, uint64_t *off,
                              berth_err *err)
{
    size_t len = 0;
    uint64_t ne[GGUF_DIMS_READ];
    if (read_text(g, "tensor name", &e->name, &len, err) ||
        name_check(e->name, len, g->o->lim.max_name, "tensor name", err))
        return err->code;
    e->name_len = (uint32_t)len;
    const struct excerpt name = excerpt(e->name, len);
    uint32_t ndim = rd_u32le(&g->r);
    if (ndim > GGUF_DIMS_READ)
        return err_set(err, BERTH_EFORMAT,
                       "tensor '%s' has %" PRIu32 " dimensions, GGUF has at "
                       "most %d",
                       name.s, ndim, GGUF_DIMS_READ);
    for (uint32_t i = 0; i < ndim; i++)
        ne[i] = rd_u64le(&g->r);
    uint32_t id = rd_u32le(&g->r);
    *off = rd_u64le(&g->r);
    if (g->r.bad)
        return cut_short(g, "the tensor list", err);
    e->dtype = dtype_by_ggml_id(id);
    if (e->dtype == DT_NONE)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "tensor '%s' has GGML type %" PRIu32 " (%s), which is not supported", name.s,
                       id, ggml_name(id));
    e->shape.ndim = (int)ndim;
    for (uint32_t i = 0; i < ndim; i++)
        e->shape.dim[i] = ne[ndim - 1 - i];
    uint64_t row = ndim ? ne[0] : 1, block = dtype_desc(e->dtype)->elems;
    if (row % block)
        return err_set(err, BERTH_EFORMAT,
                       "tensor '%s': a row of %" PRIu64 " is no multiple of the "
                       "%" PRIu64 " of a %s block",
                       name.s, row, block, dtype_name(e->dtype));
    return entry_measure(e, err);
}

/* Makes offsets absolute, once the end of the header is known. */
static berth_status place(const struct gguf *g, struct weights_entry *e, uint64_t data_at,
                          berth_err *err)
{
    const struct excerpt name = excerpt(e->name, e->name_len);
    uint64_t off = e->off, end;
    if (off % g->align)
        return err_set(err, BERTH_EFORMAT,
                       "tensor '%s': offset %" PRIu64 " is no multiple of the alignment %" PRIu64,
                       name.s, off, g->align);
    if (__builtin_add_overflow(off, data_at, &e->off) ||
        __builtin_add_overflow(e->off, e->size, &end) || end > g->size)
        return err_set(err, BERTH_EFORMAT,
                       "tensor '%s' takes %" PRIu64 " bytes at offset %" PRIu64
                       " of the data, which "
                       "begins at %" PRIu64 " of a file of %" PRIu64 ": it is cut short, or its "
                       "header lies; download it again",
                       name.s, e->size, off, data_at, g->size);
    return BERTH_OK;
}

/* Entries in file order. A tensor without bytes neither overlaps nor leaves a hole. */
static berth_status check_cover(const struct gguf *g, size_t first, uint64_t data_at,
                                berth_err *err)
{
    uint64_t end = data_at; /* of the tensors so far, padding not included */
    for (size_t i = first; i < g->o->entry.n; i++) {
        const struct weights_entry *e = vec_at(&g->o->entry, i);
        if (e->size == 0)
            continue;
        if (e->off < end)
            return err_set(err, BERTH_EFORMAT,
                           "tensor '%s' at byte %" PRIu64 " of the file overlaps the one before, "
                           "which ends at %" PRIu64,
                           excerpt(e->name, e->name_len).s, e->off, end);
        if (e->off - end >= g->align) /* both ends are aligned or follow aligned data */
            return err_set(err, BERTH_EFORMAT,
                           "%" PRIu64 " bytes before tensor '%s' at byte %" PRIu64
                           " of the file belong to nothing",
                           e->off - end, excerpt(e->name, e->name_len).s, e->off);
        end = e->off + e->size;
    }
    if (g->size > end && g->size - end >= g->align)
        return err_set(err, BERTH_EFORMAT,
                       "%" PRIu64 " bytes behind the last tensor, which ends at %" PRIu64
                       ", belong to nothing",
                       g->size - end, end);
    return BERTH_OK;
}

static berth_status restore_shape(struct weights_entry *e, const struct weights_meta *m,
                                  berth_err *err)
{
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    struct shape s;
    uint64_t was, now;
    if (orig_shape(m, &s, err))
        return err_add(err, "metadata '%s'", excerpt(m->key, m->key_len).s);
    if (!shape_count(&e->shape, &was) || !shape_count(&s, &now) || was != now)
        return err_set(err, BERTH_EFORMAT, "metadata '%s': %s has not as many elements as %s",
                       excerpt(m->key, m->key_len).s, shape_text(&s, a), shape_text(&e->shape, b));
    e->shape = s;
    return BERTH_OK;
}

/* A key for a tensor that is not there means nothing: converters leave such keys behind. */
static berth_status restore_shapes(const struct gguf *g, size_t first, berth_err *err)
{
    struct str key = { 0 };
    berth_status s = BERTH_OK;
    for (size_t i = first; g->orig_shapes && i < g->o->entry.n && !s; i++) {
        struct weights_entry *e = vec_at(&g->o->entry, i);
        uint64_t at;
        str_clear(&key);
        str_adds(&key, GGUF_ORIG_SHAPE);
        str_add(&key, e->name, e->name_len);
        if (key.bad)
            s = err_set(err, BERTH_ENOMEM, "out of memory for a metadata key");
        else if (map_get(&g->o->meta_key, key.p, key.n, &at))
            s = restore_shape(e, vec_at(&g->o->meta, (size_t)at), err);
    }
    str_release(&key);
    return s;
}

/* ---- the file ---- */

static berth_status check_version(uint32_t v, berth_err *err)
{
    if (v == 2 || v == 3)
        return BERTH_OK;
    if (v && (v & 0xffff) == 0)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "big-endian GGUF (version %" PRIu32 "): only little-endian files are read",
                       v >> 24);
    return err_set(err, BERTH_EUNSUPPORTED, "GGUF version %" PRIu32 ": versions 2 and 3 are read%s",
                   v, v == 1 ? "; convert the file with a current tool" : "");
}

/* Smallest possible encodings: a count meets them before it sizes or drives anything. */
enum { PAIR_MIN = 8 + 1 + 4 + 1, INFO_MIN = 8 + 1 + 4 + 4 + 8 };

static berth_status read_counts(struct gguf *g, uint64_t *tensors, uint64_t *pairs, berth_err *err)
{
    const uint8_t *magic = rd_take(&g->r, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return err_set(err, BERTH_EFORMAT, "does not begin with 'GGUF'");
    uint32_t version = rd_u32le(&g->r);
    if (!g->r.bad && check_version(version, err))
        return err->code;
    *tensors = rd_u64le(&g->r);
    *pairs = rd_u64le(&g->r);
    if (g->r.bad)
        return cut_short(g, "the first 24 bytes", err);
    if (*tensors > g->o->lim.max_tensors || *pairs > g->o->lim.max_kv)
        return err_set(err, BERTH_ELIMIT,
                       "%" PRIu64 " tensors and %" PRIu64 " metadata entries; the limits are "
                       "%" PRIu64 " and %" PRIu64,
                       *tensors, *pairs, g->o->lim.max_tensors, g->o->lim.max_kv);
    size_t left = rd_left(&g->r);
    if (*pairs > left / PAIR_MIN || *tensors > (left - *pairs * PAIR_MIN) / INFO_MIN)
        return err_set(err, BERTH_EFORMAT,
                       "cut short: %" PRIu64 " tensors and %" PRIu64 " metadata entries do not fit "
                       "the %zu bytes that are left",
                       *tensors, *pairs, left);
    return BERTH_OK;
}

static berth_status read_tensors(struct gguf *g, uint64_t count, berth_err *err)
{
    size_t first = g->o->entry.n, data_at;
    if (!vec_reserve(&g->o->entry, first + (size_t)count))
        return err_set(err, BERTH_ENOMEM, "out of memory for %" PRIu64 " tensors", count);
    for (uint64_t i = 0; i < count; i++) {
        struct weights_entry *e = open_entry(g->o, g->shard, err);
        if (!e || read_info(g, e, &e->off, err))
            return err->code;
    }
    size_t header = (size_t)(g->r.p - open_shard_at(g->o, g->shard)->data);
    if (!sz_align(header, (size_t)g->align, &data_at))
        return err_set(err, BERTH_EFORMAT, "the header does not end");
    for (size_t i = first; i < g->o->entry.n; i++)
        if (place(g, vec_at(&g->o->entry, i), data_at, err))
            return err->code;
    if (open_sort(g->o, first, err) || check_cover(g, first, data_at, err))
        return err->code;
    return restore_shapes(g, first, err);
}

static berth_status gguf_open(struct opening *o, uint32_t shard, berth_err *err)
{
    const struct shard *f = open_shard_at(o, shard);
    uint64_t tensors = 0, pairs = 0;
    size_t head = f->size < o->lim.max_header ? f->size : (size_t)o->lim.max_header;
    struct gguf g = { .o = o, .shard = shard, .size = f->size, .align = GGUF_ALIGN_DEFAULT };
    g.r = rd_init(f->data, head);
    if (read_counts(&g, &tensors, &pairs, err))
        return err->code;
    for (uint64_t i = 0; i < pairs; i++)
        if (read_pair(&g, err))
            return err->code;
    return read_tensors(&g, tensors, err);
}

/* ---- writing: version 3 ---- */

static void put_uint(struct str *h, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(h, (char)(v >> (8 * i)));
}

static void put_text(struct str *h, const char *s)
{
    size_t n = strlen(s);
    put_uint(h, n, 8);
    str_add(h, s, n);
}

/* The shape a tensor gets in the file. *flat: it is not its own, and orig_shape must tell. */
static berth_status file_shape(const struct weights_spec *s, struct shape *out, bool *flat,
                               berth_err *err)
{
    const struct dtype_desc *d = dtype_desc(s->dtype);
    const struct excerpt name = excerpt(s->name, strlen(s->name));
    uint64_t last = s->shape.ndim ? s->shape.dim[s->shape.ndim - 1] : 1, n;
    char text[SHAPE_TEXT_MAX];
    if (strlen(s->name) > GGUF_NAME_MAX)
        return err_set(err, BERTH_ELIMIT, "tensor name '%s' is %zu bytes long, gguf takes %d",
                       name.s, strlen(s->name), GGUF_NAME_MAX);
    *out = s->shape;
    *flat = s->shape.ndim > GGUF_DIMS_MAX || last % d->elems != 0;
    if (!*flat)
        return BERTH_OK;
    if (!shape_count(&s->shape, &n) || n % d->elems != 0)
        return err_set(err, BERTH_EINVAL,
                       "tensor '%s': %s does not make whole blocks of %s (%d elements each)",
                       name.s, shape_text(&s->shape, text), d->name, d->elems);
    for (int i = 0; i < s->shape.ndim; i++)
        if (s->shape.dim[i] > INT32_MAX)
            return err_set(err, BERTH_EINVAL,
                           "tensor '%s': %s must be flattened, but has a dimension over 2^31-1",
                           name.s, shape_text(&s->shape, text));
    /* Too many dimensions alone: the rows stay. Otherwise rows of 256, as ComfyUI-GGUF writes them,
     * or shorter ones where the count asks for it. */
    bool keep = last && last % d->elems == 0;
    uint64_t row = keep ? last : n % 256 == 0 ? 256 : 32;
    *out = (struct shape) { .ndim = 2, .dim = { n / row, row } };
    return BERTH_OK;
}

static berth_status put_metadata(const struct weights_write_args *a, struct str *h, berth_err *err)
{
    for (size_t i = 0; i < a->meta_count; i++) {
        const char *key = a->meta[i].key;
        if (strcmp(key, "general.alignment") == 0 || str_starts(key, strlen(key), GGUF_ORIG_SHAPE))
            return err_set(err, BERTH_EINVAL, "metadata '%s' is the writer's own",
                           excerpt(key, strlen(key)).s);
        put_text(h, key);
        put_uint(h, GGUF_STRING, 4);
        put_text(h, a->meta[i].value);
    }
    return BERTH_OK;
}

static void put_orig_shape(struct str *h, const struct weights_spec *s)
{
    put_uint(h, strlen(GGUF_ORIG_SHAPE) + strlen(s->name), 8);
    str_adds(h, GGUF_ORIG_SHAPE);
    str_adds(h, s->name);
    put_uint(h, GGUF_ARRAY, 4);
    put_uint(h, GGUF_I32, 4);
    put_uint(h, (uint64_t)s->shape.ndim, 8);
    for (int i = 0; i < s->shape.ndim; i++)
        put_uint(h, s->shape.dim[i], 4);
}

/* Key/value count and the orig_shape pairs depend on the tensors, so they are looked at first. */
static berth_status put_pairs(const struct weights_write_args *a, struct str *h, berth_err *err)
{
    struct str orig = { 0 };
    size_t flats = 0;
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < a->count && s == BERTH_OK; i++) {
        struct shape shape;
        bool flat;
        s = file_shape(&a->spec[i], &shape, &flat, err);
        if (s == BERTH_OK && flat) {
            flats++;
            put_orig_shape(&orig, &a->spec[i]);
        }
    }
    put_uint(h, a->meta_count + flats, 8);
    if (s == BERTH_OK)
        s = put_metadata(a, h, err);
    str_add(h, orig.p, orig.n);
    h->bad |= orig.bad;
    str_release(&orig);
    if (s == BERTH_OK && a->meta_count + flats > weights_limits_default.max_kv)
        s = err_set(err, BERTH_ELIMIT, "%zu metadata entries, the limit is %" PRIu64,
                    a->meta_count + flats, weights_limits_default.max_kv);
    return s;
}

static berth_status gguf_plan(const struct weights_write_args *a, struct write_plan *p,
                              berth_err *err)
{
    struct str *h = &p->header;
    uint64_t at = 0;
    str_adds(h, "GGUF");
    put_uint(h, 3, 4);
    put_uint(h, a->count, 8);
    if (put_pairs(a, h, err))
        return err->code;
    for (size_t i = 0; i < a->count; i++) {
        const struct weights_spec *s = &a->spec[i];
        struct shape shape;
        bool flat;
        if (file_shape(s, &shape, &flat, err))
            return err->code;
        put_text(h, s->name);
        put_uint(h, (uint64_t)shape.ndim, 4);
        for (int k = shape.ndim; k-- > 0;)
            put_uint(h, shape.dim[k], 8);
        put_uint(h, (uint64_t)dtype_desc(s->dtype)->ggml_id, 4);
        put_uint(h, at, 8);
        p->off[i] = at;
        /* write.c has seen that the sum fits, padding included */
        at = (at + p->size[i] + GGUF_ALIGN_DEFAULT - 1) & ~(uint64_t)(GGUF_ALIGN_DEFAULT - 1);
    }
    str_pad(h, '\0', (h->n + GGUF_ALIGN_DEFAULT - 1) & ~(size_t)(GGUF_ALIGN_DEFAULT - 1));
    if (h->bad)
        return err_set(err, BERTH_ENOMEM, "out of memory for a header of %zu tensors", a->count);
    if (h->n > weights_limits_default.max_header)
        return err_set(err, BERTH_ELIMIT, "a header of %zu bytes is over the limit of %" PRIu64,
                       h->n, weights_limits_default.max_header);
    for (size_t i = 0; i < a->count; i++)
        p->off[i] += h->n;
    p->total = h->n + at;
    return BERTH_OK;
}

static bool stores(enum dtype t)
{
    return dtype_desc(t)->ggml_id >= 0;
}

static const struct weights_writer writer = {
    .name = "gguf",
    .ext = ".gguf",
    .mixed = true,
    .stores = stores,
    .plan = gguf_plan,
};

const struct format format_gguf = {
    .name = "gguf",
    .ext = ".gguf",
    .probe = probe,
    .open = gguf_open,
    .writer = &writer,
};
