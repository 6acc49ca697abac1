/* The GGUF reader: what it gives, and what it refuses. */
#include "support/data_bytes.h"
#include "unit/format/build.h"

#include "base/rd.h"

/* ---- a valid file, in parts that a case can change ---- */

struct info {
    const char *name;
    uint32_t ndim;
    uint64_t ne[6];
    uint32_t type;
    uint64_t off;
};

struct recipe {
    const char *magic;
    uint32_t version;
    uint64_t tensors, pairs; /* written as the counts; 0: the true ones */
    struct str kv;           /* encoded pairs */
    uint64_t kv_count;
    struct info info[4];
    uint64_t info_count;
    uint64_t name_len; /* written for the first tensor's name; 0: the true one */
    size_t align;      /* of the data section as laid out */
    size_t data;       /* bytes */
    size_t cut;        /* bytes dropped at the end of the file */
    size_t keep;       /* not 0: only that many bytes of the file are left */
};

static void text(struct str *f, const char *s)
{
    put_uint(f, strlen(s), 8);
    str_adds(f, s);
}

/* A key and its type; the value follows. */
static struct str *key(struct recipe *r, const char *name, uint32_t type)
{
    text(&r->kv, name);
    put_uint(&r->kv, type, 4);
    r->kv_count++;
    return &r->kv;
}

static void kv_uint(struct recipe *r, const char *name, uint32_t type, uint64_t v, int bytes)
{
    put_uint(key(r, name, type), v, bytes);
}

static void kv_text(struct recipe *r, const char *name, const char *value)
{
    text(key(r, name, GGUF_STRING), value);
}

static void kv_i32s(struct recipe *r, const char *name, size_t n, const int32_t *v)
{
    struct str *f = key(r, name, GGUF_ARRAY);
    put_uint(f, GGUF_I32, 4);
    put_uint(f, n, 8);
    for (size_t i = 0; i < n; i++)
        put_uint(f, (uint32_t)v[i], 4);
}

/* An array's key, element type and count; the elements follow. */
static struct str *kv_array(struct recipe *r, const char *name, uint32_t type, uint64_t count)
{
    struct str *f = key(r, name, GGUF_ARRAY);
    put_uint(f, type, 4);
    put_uint(f, count, 8);
    return f;
}

/* Three tensors: Q4_0 [2, 64] at 0 (72 bytes), F32 [3, 2] at 96 (24), F16 [5] at 128 (10). */
static void recipe_init(struct recipe *r)
{
    *r = (struct recipe) {
        .magic = "GGUF",
        .version = 3,
        .info = { { "blk.0.weight", 2, { 64, 2 }, 2, 0 },
                  { "blk.0.bias", 2, { 2, 3 }, 0, 96 },
                  { "norm", 1, { 5 }, 1, 128 } },
        .info_count = 3,
        .align = 32,
        .data = 138,
    };
    kv_text(r, "general.architecture", "flux");
    kv_uint(r, "general.quantization_version", GGUF_U32, 2, 4);
}

static void recipe_bytes(const struct recipe *r, struct str *f)
{
    str_adds(f, r->magic);
    put_uint(f, r->version, 4);
    put_uint(f, r->tensors ? r->tensors : r->info_count, 8);
    put_uint(f, r->pairs ? r->pairs : r->kv_count, 8);
    str_add(f, r->kv.p, r->kv.n);
    for (size_t i = 0; i < r->info_count; i++) {
        const struct info *t = &r->info[i];
        put_uint(f, i == 0 && r->name_len ? r->name_len : strlen(t->name), 8);
        str_adds(f, t->name);
        put_uint(f, t->ndim, 4);
        for (uint32_t k = 0; k < t->ndim && k < ARRAY_LEN(t->ne); k++)
            put_uint(f, t->ne[k], 8);
        put_uint(f, t->type, 4);
        put_uint(f, t->off, 8);
    }
    while (f->n % r->align)
        str_addc(f, '\0');
    for (size_t i = 0; i < r->data; i++)
        str_addc(f, (char)(i * 5 + 3));
    assert_false(f->bad);
    f->n -= r->cut;
    if (r->keep)
        f->n = r->keep;
}

/* ---- one thing wrong at a time ---- */

static void nested(struct recipe *r, int depth)
{
    struct str *f = key(r, "deep", GGUF_ARRAY);
    for (int i = 1; i < depth; i++) {
        put_uint(f, GGUF_ARRAY, 4);
        put_uint(f, 1, 8);
    }
    put_uint(f, GGUF_U8, 4);
    put_uint(f, 1, 8);
    put_uint(f, 7, 1);
}

static const int32_t six[] = { 1, 6 }, seven[] = { 7 }, minus[] = { -2, -3 },
                     nine[] = { 1, 1, 1, 1, 1, 1, 1, 1, 6 };

/* HOSTILE(name, status, words of the message, the change) */
#define HOSTILE_FILES                                                                              \
    HOSTILE(magic, EFORMAT, "does not begin with 'GGUF'", r->magic = "GGUX")                       \
    HOSTILE(magic_lower, EFORMAT, "does not begin with 'GGUF'", r->magic = "gguf")                 \
    HOSTILE(version_0, EUNSUPPORTED, "GGUF version 0", r->version = 0)                             \
    HOSTILE(version_1, EUNSUPPORTED, "GGUF version 1", r->version = 1)                             \
    HOSTILE(version_4, EUNSUPPORTED, "GGUF version 4: versions 2 and 3", r->version = 4)           \
    HOSTILE(big_endian, EUNSUPPORTED, "big-endian GGUF (version 3)", r->version = 3u << 24)        \
    HOSTILE(cut_magic_only, EFORMAT, "cut short in the first 24 bytes", r->keep = 4)               \
    HOSTILE(cut_counts, EFORMAT, "cut short in the first 24 bytes", r->keep = 23)                  \
    HOSTILE(cut_after_counts, EFORMAT, "do not fit the 0 bytes", r->keep = 24)                     \
    HOSTILE(cut_key, EFORMAT, "metadata entries do not fit", r->keep = 40)                         \
    HOSTILE(cut_value, EFORMAT, "only 125 are left", r->info_count = 0, r->tensors = 0,            \
            kv_uint(r, "s", GGUF_STRING, 126, 8), r->data = 125, r->align = 1)                     \
    HOSTILE(cut_tensor_list, EFORMAT, "cut short", r->keep = 200)                                  \
    HOSTILE(cut_data, EFORMAT, "'norm' takes 10 bytes at offset 128", r->cut = 1)                  \
    HOSTILE(cut_all_data, EFORMAT, "cut short, or its header lies", r->cut = 138)                  \
    HOSTILE(count_tensors_huge, ELIMIT, "18446744073709551615 tensors", r->tensors = UINT64_MAX)   \
    HOSTILE(count_tensors_limit, ELIMIT, "1000001 tensors", r->tensors = 1000001)                  \
    HOSTILE(count_tensors_more, EFORMAT, "tensors and 2 metadata", r->tensors = 900)               \
    HOSTILE(count_pairs_huge, ELIMIT, "18446744073709551615 metadata", r->pairs = UINT64_MAX)      \
    HOSTILE(count_pairs_more, EFORMAT, "60 metadata entries do not fit", r->pairs = 60)            \
    HOSTILE(count_pairs_less, EFORMAT, "has too many elements", r->pairs = 1)                      \
    HOSTILE(key_twice, EFORMAT, "'general.architecture' occurs twice",                             \
            kv_text(r, "general.architecture", "sd1"))                                             \
    HOSTILE(key_empty, EFORMAT, "empty metadata key", kv_text(r, "", "x"))                         \
    HOSTILE(key_control, EFORMAT, "control character", kv_text(r, "a\033[2J", "x"))                \
    HOSTILE(key_not_utf8, EFORMAT, "not UTF-8 at byte 1", kv_text(r, "a\xff", "x"))                \
    HOSTILE(key_length_huge, EFORMAT, "metadata key of 18446744073709551615 bytes",                \
            put_uint(&r->kv, UINT64_MAX, 8), r->kv_count++)                                        \
    HOSTILE(value_type_13, EFORMAT, "metadata 'x': unknown value type 13",                         \
            kv_uint(r, "x", 13, 0, 8))                                                             \
    HOSTILE(value_type_huge, EFORMAT, "unknown value type 4294967295",                             \
            kv_uint(r, "x", UINT32_MAX, 0, 8))                                                     \
    HOSTILE(value_bool_2, EFORMAT, "must be 0 or 1, not 2", kv_uint(r, "x", GGUF_BOOL, 2, 1))      \
    HOSTILE(value_string_huge, EFORMAT, "string of 18446744073709551608 bytes",                    \
            kv_uint(r, "x", GGUF_STRING, UINT64_MAX - 7, 8))                                       \
    HOSTILE(value_string_nul, EFORMAT, "has a NUL", kv_uint(r, "x", GGUF_STRING, 1, 8),            \
            put_uint(&r->kv, 0, 1))                                                                \
    HOSTILE(value_string_not_utf8, EFORMAT, "not UTF-8", kv_text(r, "x", "\xc3"))                  \
    HOSTILE(array_count_huge, EFORMAT, "18446744073709551615 x u8 does not fit",                   \
            kv_array(r, "x", GGUF_U8, UINT64_MAX))                                                 \
    HOSTILE(array_count_wraps, EFORMAT, "2305843009213693953 x u64 does not fit",                  \
            kv_array(r, "x", GGUF_U64, (UINT64_C(1) << 61) + 1))                                   \
    HOSTILE(array_strings_huge, EFORMAT, "x string does not fit",                                  \
            kv_array(r, "x", GGUF_STRING, UINT64_MAX))                                             \
    HOSTILE(array_string_long, EFORMAT, "a string of 999999 bytes in an array",                    \
            put_uint(kv_array(r, "x", GGUF_STRING, 1), 999999, 8))                                 \
    HOSTILE(array_type_13, EFORMAT, "unknown array element type 13", kv_array(r, "x", 13, 0))      \
    HOSTILE(array_bool_7, EFORMAT, "must be 0 or 1, not 7",                                        \
            put_uint(kv_array(r, "x", GGUF_BOOL, 2), 0x0701, 2))                                   \
    HOSTILE(array_nested_huge, EFORMAT, "x array does not fit",                                    \
            kv_array(r, "x", GGUF_ARRAY, UINT64_MAX))                                              \
    HOSTILE(array_nested_inner_huge, EFORMAT, "x u16 does not fit",                                \
            put_uint(kv_array(r, "x", GGUF_ARRAY, 1), GGUF_U16, 4),                                \
            put_uint(&r->kv, UINT64_MAX / 2, 8))                                                   \
    HOSTILE(array_too_deep, ELIMIT, "nested deeper than 4", nested(r, 5))                          \
    HOSTILE(align_0, EFORMAT, "'general.alignment': 0 is not a power of two",                      \
            kv_uint(r, "general.alignment", GGUF_U32, 0, 4))                                       \
    HOSTILE(align_24, EFORMAT, "24 is not a power of two",                                         \
            kv_uint(r, "general.alignment", GGUF_U32, 24, 4))                                      \
    HOSTILE(align_huge, EFORMAT, "2147483648 is not a power of two between 1 and",                 \
            kv_uint(r, "general.alignment", GGUF_U32, UINT64_C(1) << 31, 4))                       \
    HOSTILE(align_type, EFORMAT, "must be a u32, not u64",                                         \
            kv_uint(r, "general.alignment", GGUF_U64, 32, 8))                                      \
    HOSTILE(align_64, EFORMAT, "offset 96 is no multiple of the alignment 64",                     \
            kv_uint(r, "general.alignment", GGUF_U32, 64, 4), r->align = 64)                       \
    HOSTILE(name_twice, EFORMAT, "'norm' occurs twice", r->info[0].name = "norm")                  \
    HOSTILE(name_empty, EFORMAT, "empty tensor name", r->info[1].name = "")                        \
    HOSTILE(name_control, EFORMAT, "control character", r->info[1].name = "a\nb")                  \
    HOSTILE(name_not_utf8, EFORMAT, "not UTF-8", r->info[1].name = "\x80")                         \
    HOSTILE(name_long, EFORMAT, "tensor name of 1099511627776 bytes",                              \
            r->name_len = UINT64_C(1) << 40)                                                       \
    HOSTILE(name_nul, EFORMAT, "control character", r->name_len = 14)                              \
    HOSTILE(dims_6, EFORMAT, "'norm' has 6 dimensions", r->info[2].ndim = 6)                       \
    HOSTILE(dims_huge, EFORMAT, "has 4294967295 dimensions", r->info[2].ndim = UINT32_MAX)         \
    HOSTILE(ne_huge, EFORMAT, "too many elements", r->info[1].ne[0] = UINT64_MAX)                  \
    HOSTILE(ne_overflow, EFORMAT, "too many elements", r->info[1].ne[0] = UINT64_C(1) << 33,       \
            r->info[1].ne[1] = UINT64_C(1) << 33)                                                  \
    HOSTILE(ne_overflow_by_0, EFORMAT, "too many elements", r->info[1].ndim = 3,                   \
            r->info[1].ne[0] = UINT64_C(1) << 33, r->info[1].ne[1] = UINT64_C(1) << 33)            \
    HOSTILE(ne_bytes_overflow, EFORMAT, "too many", r->info[1].ne[0] = UINT64_C(1) << 61)          \
    HOSTILE(ne_larger, EFORMAT, "cut short, or its header lies", r->info[2].ne[0] = 6)             \
    HOSTILE(ne_not_whole_blocks, EFORMAT, "a row of 63 is no multiple of the 32",                  \
            r->info[0].ne[0] = 63)                                                                 \
    HOSTILE(ne_scalar_quant, EFORMAT, "a row of 1 is no multiple", r->info[0].ndim = 0)            \
    HOSTILE(type_removed, EUNSUPPORTED, "GGML type 4 (Q4_2, removed)", r->info[0].type = 4)        \
    HOSTILE(type_repacked, EUNSUPPORTED, "GGML type 31 (Q4_0_4_4, removed)", r->info[0].type = 31) \
    HOSTILE(type_iq2, EUNSUPPORTED, "GGML type 16 (IQ2_XXS)", r->info[0].type = 16)                \
    HOSTILE(type_mxfp4, EUNSUPPORTED, "GGML type 39 (MXFP4)", r->info[0].type = 39)                \
    HOSTILE(type_q8_k, EUNSUPPORTED, "GGML type 15 (Q8_K)", r->info[0].type = 15)                  \
    HOSTILE(type_unknown, EUNSUPPORTED, "GGML type 99 (unknown)", r->info[0].type = 99)            \
    HOSTILE(type_huge, EUNSUPPORTED, "GGML type 4294967295", r->info[0].type = UINT32_MAX)         \
    HOSTILE(offset_unaligned, EFORMAT, "offset 100 is no multiple", r->info[1].off = 100)          \
    HOSTILE(offset_huge, EFORMAT, "offset 18446744073709551584", r->info[1].off = UINT64_MAX - 31) \
    HOSTILE(offset_beyond, EFORMAT, "offset 1024 of the data", r->info[1].off = 1024)              \
    HOSTILE(overlap, EFORMAT, "'blk.0.bias' at byte", r->info[1].off = 64)                         \
    HOSTILE(overlap_same, EFORMAT, "overlaps the one before", r->info[2].off = 96)                 \
    HOSTILE(hole, EFORMAT, "40 bytes before tensor 'norm'", r->info[2].off = 160, r->data = 170)   \
    HOSTILE(hole_at_start, EFORMAT, "32 bytes before tensor 'blk.0.weight'", r->info[0].off = 32,  \
            r->info[1].off = 128, r->info[2].off = 160, r->data = 170)                             \
    HOSTILE(junk_behind, EFORMAT, "32 bytes behind the last tensor", r->data = 138 + 32)           \
    HOSTILE(file_type_type, EFORMAT, "'general.file_type': must be a u32, not string",             \
            kv_text(r, "general.file_type", "flux"))                                               \
    HOSTILE(shape_of_nothing, EFORMAT, "must be an array of i32",                                  \
            kv_text(r, "comfy.gguf.orig_shape.absent", "[1, 6]"))                                  \
    HOSTILE(shape_type, EFORMAT, "must be an array of i32",                                        \
            kv_text(r, "comfy.gguf.orig_shape.blk.0.bias", "[1, 6]"))                              \
    HOSTILE(shape_elem_type, EFORMAT, "must be an array of i32",                                   \
            kv_array(r, "comfy.gguf.orig_shape.blk.0.bias", GGUF_U32, 0))                          \
    HOSTILE(shape_count, EFORMAT, "[7] has not as many elements as [3, 2]",                        \
            kv_i32s(r, "comfy.gguf.orig_shape.blk.0.bias", 1, seven))                              \
    HOSTILE(shape_empty, EFORMAT, "[] has not as many elements",                                   \
            kv_i32s(r, "comfy.gguf.orig_shape.blk.0.bias", 0, seven))                              \
    HOSTILE(shape_negative, EFORMAT, "dimension -2 is negative",                                   \
            kv_i32s(r, "comfy.gguf.orig_shape.blk.0.bias", 2, minus))                              \
    HOSTILE(shape_nine, ELIMIT, "9 dimensions",                                                    \
            kv_i32s(r, "comfy.gguf.orig_shape.blk.0.bias", 9, nine))

#define HOSTILE(name, want, words, ...)                                                            \
    static void break_##name(struct recipe *r)                                                     \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
HOSTILE_FILES
#undef HOSTILE

static const struct {
    const char *name;
    berth_status want;
    const char *words;
    void (*change)(struct recipe *r);
} hostile[] = {
#define HOSTILE(name, want, words, ...) { #name, BERTH_##want, words, break_##name },
    HOSTILE_FILES
#undef HOSTILE
};

static void hostile_files_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        struct recipe r;
        struct str f = { 0 };
        recipe_init(&r);
        hostile[i].change(&r);
        recipe_bytes(&r, &f);
        expect_refusal(hostile[i].name, &f, "x.gguf", hostile[i].want, hostile[i].words);
        str_release(&f);
        str_release(&r.kv);
    }
}

/* ---- files that open ---- */

static struct weights *open_recipe(struct recipe *r, const char *name, void **mem)
{
    struct str f = { 0 };
    struct weights *w;
    berth_err err;
    recipe_bytes(r, &f);
    dump_case(name, &f);
    assert_ok(open_bytes(&f, "x", mem, &w, &err), err);
    str_release(&f);
    str_release(&r->kv);
    return w;
}

static void valid_file_opens(void **state)
{
    (void)state;
    struct recipe r;
    void *mem;
    recipe_init(&r);
    struct weights *w = open_recipe(&r, "valid", &mem);
    assert_string_equal(weights_format(w), "gguf");
    assert_int_equal(weights_count(w), 3);
    assert_int_equal(data_bytes(w), 72 + 24 + 10);
    const struct weights_entry *e = weights_find(w, "blk.0.weight", 12);
    assert_ptr_equal(e, weights_at(w, 0));
    assert_int_equal(e->dtype, DT_Q4_0);
    assert_int_equal(e->shape.ndim, 2); /* torch's order: [2, 64] */
    assert_int_equal(e->shape.dim[0], 2);
    assert_int_equal(e->shape.dim[1], 64);
    assert_int_equal(e->off % 32, 0);
    assert_int_equal(e->size, 72);
    assert_int_equal(weights_data(w, e)[1], 8);
    assert_int_equal(weights_at(w, 1)->off, e->off + 96);
    assert_int_equal(weights_at(w, 1)->shape.dim[0], 3);
    const struct weights_meta *m = weights_meta_find(w, "general.quantization_version");
    assert_int_equal(m->kind, META_UINT);
    assert_int_equal(m->u, 2);
    assert_string_equal(weights_meta_find(w, "general.architecture")->str, "flux");
    weights_close(w);
    free(mem);
}

static void unusual_files_open(void **state)
{
    (void)state;
    struct recipe r;
    void *mem;
    recipe_init(&r);
    r.version = 2;
    weights_close(open_recipe(&r, "version_2", &mem));
    free(mem);

    recipe_init(&r); /* no tensors: no padding, no data */
    r.info_count = 0;
    r.align = 1;
    r.data = 0;
    weights_close(open_recipe(&r, "no_tensors", &mem));
    free(mem);

    recipe_init(&r); /* alignment 64, tensors out of order */
    kv_uint(&r, "general.alignment", GGUF_U32, 64, 4);
    r.align = 64;
    r.info[0].off = 128;
    r.info[1].off = 64;
    r.info[2].off = 0;
    r.data = 128 + 72;
    struct weights *w = open_recipe(&r, "align_64_unsorted", &mem);
    assert_string_equal(weights_at(w, 0)->name, "norm");
    assert_string_equal(weights_at(w, 2)->name, "blk.0.weight");
    assert_int_equal(weights_at(w, 2)->off % 64, 0);
    weights_close(w);
    free(mem);

    recipe_init(&r); /* a scalar, a tensor without bytes inside another one, padding behind */
    r.info[1].ndim = 0;
    r.info[2].ne[0] = 0;
    r.info[2].off = 32;
    r.data = 96 + 4 + 28;
    w = open_recipe(&r, "scalar_and_empty", &mem);
    assert_int_equal(weights_find(w, "blk.0.bias", 10)->shape.ndim, 0);
    assert_int_equal(weights_find(w, "blk.0.bias", 10)->size, 4);
    assert_ptr_equal(weights_find(w, "norm", 4), weights_at(w, 1));
    weights_close(w);
    free(mem);
}

static void every_metadata_type_is_read(void **state)
{
    (void)state;
    struct recipe r;
    void *mem;
    recipe_init(&r);
    kv_uint(&r, "u8", GGUF_U8, 200, 1);
    kv_uint(&r, "i8", GGUF_I8, 0x80, 1);
    kv_uint(&r, "u16", GGUF_U16, 65535, 2);
    kv_uint(&r, "i16", GGUF_I16, 0x8000, 2);
    kv_uint(&r, "i32", GGUF_I32, UINT32_MAX, 4);
    kv_uint(&r, "u64", GGUF_U64, UINT64_MAX, 8);
    kv_uint(&r, "i64", GGUF_I64, UINT64_MAX - 1, 8);
    kv_uint(&r, "f32", GGUF_F32, 0x3fc00000, 4);
    kv_uint(&r, "f64", GGUF_F64, UINT64_C(0xbfe0000000000000), 8);
    kv_uint(&r, "bool", GGUF_BOOL, 1, 1);
    kv_text(&r, "text", "zwei Zeilen:\n\xc3\xa4");
    nested(&r, 4);
    struct str *f = kv_array(&r, "words", GGUF_STRING, 2);
    text(f, "a");
    text(f, "bc");
    struct weights *w = open_recipe(&r, "metadata_types", &mem);
    assert_int_equal(weights_meta_find(w, "u8")->u, 200);
    assert_int_equal(weights_meta_find(w, "i8")->i, -128);
    assert_int_equal(weights_meta_find(w, "u16")->u, 65535);
    assert_int_equal(weights_meta_find(w, "i16")->i, -32768);
    assert_int_equal(weights_meta_find(w, "i32")->i, -1);
    assert_true(weights_meta_find(w, "u64")->u == UINT64_MAX);
    assert_int_equal(weights_meta_find(w, "i64")->i, -2);
    assert_true(weights_meta_find(w, "f32")->f == 1.5);
    assert_true(weights_meta_find(w, "f64")->f == -0.5);
    assert_true(weights_meta_find(w, "bool")->b);
    assert_int_equal(weights_meta_find(w, "text")->str_len, 15);
    assert_int_equal(weights_meta_find(w, "deep")->elem_type, GGUF_ARRAY);
    const struct weights_meta *m = weights_meta_find(w, "words");
    assert_int_equal(m->kind, META_ARRAY);
    assert_int_equal(m->elem_type, GGUF_STRING);
    assert_int_equal(m->count, 2);
    assert_int_equal(m->raw_len, 8 + 1 + 8 + 2);
    struct rd c = rd_init(m->raw, m->raw_len);
    assert_int_equal(rd_u64le(&c), 1);
    assert_int_equal(*rd_take(&c, 1), 'a');
    weights_close(w);
    free(mem);
}

/* A 3x3 convolution that a converter flattened to rows of 256 gets its shape back. */
static void original_shapes_are_restored(void **state)
{
    (void)state;
    static const int32_t conv[] = { 32, 8, 3, 3 }, five[] = { 1, 2, 1, 3, 1 };
    struct recipe r;
    void *mem;
    recipe_init(&r);
    r.info[0] = (struct info) { "conv.weight", 2, { 256, 9 }, 8, 0 }; /* Q8_0: 2304/32*34 = 2448 */
    r.info[1].off = 2464;
    r.info[2].off = 2496;
    r.data = 2496 + 10;
    kv_i32s(&r, "comfy.gguf.orig_shape.conv.weight", 4, conv);
    kv_i32s(&r, "comfy.gguf.orig_shape.blk.0.bias", 5, five);
    kv_i32s(&r, "comfy.gguf.orig_shape.not.here", 1, seven);
    struct weights *w = open_recipe(&r, "orig_shape", &mem);
    const struct weights_entry *e = weights_find(w, "conv.weight", 11);
    assert_int_equal(e->size, 2448);
    assert_int_equal(e->shape.ndim, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(e->shape.dim[i], conv[i]);
    assert_int_equal(weights_find(w, "blk.0.bias", 10)->shape.ndim, 5);
    assert_int_equal(weights_find(w, "norm", 4)->shape.ndim, 1);
    weights_close(w);
    free(mem);
}

/* A filter over frames, as people write it though ggml knows none. */
static void five_dimensions_are_read(void **state)
{
    (void)state;
    struct recipe r;
    void *mem;
    recipe_init(&r);
    const uint64_t old = r.info[1].ne[0];
    r.info[1].ndim = 5;
    r.info[1].ne[0] = 1;
    r.info[1].ne[1] = old;
    r.info[1].ne[2] = r.info[1].ne[3] = r.info[1].ne[4] = 1;
    struct weights *w = open_recipe(&r, "five", &mem);
    const struct weights_entry *e = weights_find(w, "blk.0.bias", 10);
    assert_int_equal(e->shape.ndim, 5);
    assert_int_equal(e->shape.dim[3], old);
    assert_int_equal(e->shape.dim[4], 1);
    weights_close(w);
    free(mem);
}

/* Every GGML number is either a type we carry or refused by that number. */
static void every_type_number_is_known(void **state)
{
    (void)state;
    size_t carried = 0;
    for (uint32_t id = 0; id < 64; id++) {
        struct recipe r;
        struct str f = { 0 };
        struct weights *w;
        berth_err err;
        void *mem;
        char words[32];
        recipe_init(&r);
        uint64_t bytes = 0;
        enum dtype t = dtype_by_ggml_id(id);
        assert_true(t == DT_NONE || dtype_bytes(t, 256, &bytes));
        r.info[0] = (struct info) { "t", 1, { 256 }, id, 64 };
        r.info[1].off = 0;
        r.info[2].off = 32;
        r.data = 64 + (size_t)bytes;
        recipe_bytes(&r, &f);
        snprintf(words, sizeof words, "GGML type %u (", id);
        if (t == DT_NONE) {
            assert_fails(open_bytes(&f, "x", &mem, &w, &err), err, BERTH_EUNSUPPORTED, words);
        } else {
            carried++;
            assert_ok(open_bytes(&f, "x", &mem, &w, &err), err);
            assert_int_equal(weights_find(w, "t", 1)->dtype, t);
            weights_close(w);
        }
        free(mem);
        str_release(&f);
        str_release(&r.kv);
    }
    assert_true(carried >= 20);
}

static void limits_hold(void **state)
{
    (void)state;
    static const struct {
        struct weights_limits lim;
        const char *words;
    } cases[] = {
        { { .max_header = 150, .max_tensors = 9, .max_name = 99, .max_kv = 9 }, "limit of 150" },
        { { .max_header = 999, .max_tensors = 2, .max_name = 99, .max_kv = 9 }, "3 tensors" },
        { { .max_header = 999, .max_tensors = 9, .max_name = 11, .max_kv = 9 }, "limit is 11" },
        { { .max_header = 999, .max_tensors = 9, .max_name = 99, .max_kv = 1 }, "2 metadata" },
    };
    struct recipe r;
    struct str f = { 0 };
    recipe_init(&r);
    recipe_bytes(&r, &f);
    struct weights_file file = { .name = "x", .data = f.p, .size = f.n };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct weights *w;
        berth_err err;
        assert_fails(weights_open_memory(&file, 1, &cases[i].lim, &w, &err), err, BERTH_ELIMIT,
                     cases[i].words);
    }
    str_release(&f);
    str_release(&r.kv);
}

static void open_survives_oom(void **state)
{
    (void)state;
    struct recipe r;
    struct str f = { 0 };
    recipe_init(&r);
    kv_i32s(&r, "comfy.gguf.orig_shape.blk.0.bias", 2, six);
    r.info[0].off = 64; /* unsorted, so that sorting allocates too */
    r.info[1].off = 0;
    r.info[2].off = 32;
    r.data = 64 + 72;
    recipe_bytes(&r, &f);
    struct weights_file file = { .name = "x", .data = f.p, .size = f.n };
    expect_survives_oom(&file, 1);
    str_release(&f);
    str_release(&r.kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_file_opens),
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(unusual_files_open),
        cmocka_unit_test(every_metadata_type_is_read),
        cmocka_unit_test(original_shapes_are_restored),
        cmocka_unit_test(five_dimensions_are_read),
        cmocka_unit_test(every_type_number_is_known),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(open_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
