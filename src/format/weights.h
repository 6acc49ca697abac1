/* format: weight files as an index over a mapping: name -> dtype, shape, byte range.
 *
 * Words   entry: one tensor in a file; shard: one file of a model split over several.
 * Flow    weights_open() maps the file, asks each format of formats.def whether the first bytes are
 *         its own, parses and checks the header, sorts the entries, and checks that the file did
 *         not change meanwhile. weights_write() lays a file out, then fills and writes it in
 *         pieces, on all threads.
 * Trust   Every file is hostile until checked: each number meets its limit before it sizes
 *         anything, and opening reads no tensor data. Data is read through weights_read() or
 *         weights_data(); both survive a file that is cut short under us (base/file.h). A mapping
 *         can change while we read it, so each number is fetched once, and texts are copied before
 *         they are checked.
 * Pickles Nothing in them is run (pickle_impl.h). Dicts inside dicts give names with dots; what
 *         ComfyUI unwraps ("state_dict", a single key) is unwrapped. A tensor whose elements do not
 *         follow each other in the file is copied when it is opened: its `shard` is then
 *         weights_shards(), behind the files.
 * Types   weights_convert() gives an entry another type than its file has: dtype and size are the
 *         new ones, `stored` is the file's, and weights_read() converts (convert.h rounds). Whoever
 *         plans, books or copies the entry sees one type and one size.
 * Layouts Of weights in ComfyUI's quantised layouts dtype, stored and shape are those of the codes
 *         they hold, which stand in the file as bytes (format/layout.h).
 * Wider   weights_widen() gives a matrix more columns than its file has, of zeros: for adapters
 *         that a network's first layer grows with. Its bytes are then a copy in memory.
 * Shards  *.safetensors.index.json: {"metadata": {}, "weight_map": {tensor name: file name}}. File
 *         names are plain names in the folder of the index. Map and files must agree exactly: a
 *         tensor that is missing, elsewhere or not in the map means that two versions were mixed.
 *         metadata.total_size is not compared: files in the field count shared tensors either way.
 * Invariants (weights_verify())
 *         (1) every entry lies inside its shard's file   (2) entries of a shard do not overlap, but
 *         in a pickle, where tensors may share a storage, to four times the file's size together
 *         (3) size == dtype_bytes(count(shape)), in the file the same of `stored`
 *         (4) names are unique in the whole index   (5) entries are in file order
 * Threads An open index is immutable: any thread may read it. weights_convert() and weights_widen()
 *         belong to whoever opened it, before anybody else has it.
 * Files   weights.c opening and reading; index.c entries, metadata, name table; safetensors.c;
 *         gguf.c; shards.c; layout.c quantised weights; pickle*.c and zip.c; sniff.c what other
 *         bytes look like; write.c fills and writes. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "base/tpool.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

struct weights; /* an open model file, or all shards of one */
struct weights_layout;

struct weights_limits {
    uint64_t max_header;  /* bytes, either format, or of a shard index; 100,000,000 */
    uint64_t max_tensors; /* 1,000,000; below 2^32 */
    uint32_t max_name;    /* bytes; 1024 */
    uint64_t max_kv;      /* metadata entries; 65,536 */
    uint32_t max_nesting; /* GGUF arrays of arrays, a stack frame each; 4 */
    uint32_t max_shards;  /* 1024 */
};
extern const struct weights_limits weights_limits_default;

struct weights_entry {
    const char *name; /* NUL-terminated, UTF-8 without NUL inside */
    uint32_t name_len;
    uint32_t shard;
    enum dtype dtype;
    enum dtype stored;   /* in the file: dtype, unless weights_convert() said otherwise */
    struct shape shape;  /* torch order; comfy.gguf.orig_shape already applied */
    uint64_t off, size;  /* where it begins in the shard's file; bytes as dtype */
    const uint8_t *copy; /* its bytes as `stored`, after weights_widen(); NULL: the file's */
    uint64_t narrow;     /* columns that the file has of it then */
    const struct weights_layout *layout; /* of a quantised weight (format/layout.h); NULL: none */
};

/* Types of metadata values, with their numbers in GGUF files. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,   /* one byte, 0 or 1 */
    GGUF_STRING, /* u64 length, bytes */
    GGUF_ARRAY,  /* u32 element type, u64 count, elements */
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

/* Metadata: safetensors `__metadata__`, GGUF key/values, "metadata" of a shard index; of pickles
 * numbers and texts of the dict that has the tensors. */
enum weights_meta_kind { META_STRING, META_INT, META_UINT, META_FLOAT, META_BOOL, META_ARRAY };
struct weights_meta {
    const char *key; /* NUL-terminated, UTF-8 without control characters */
    uint32_t key_len;
    enum weights_meta_kind kind;
    /* META_STRING: text, NUL-terminated, UTF-8 without NUL inside (control characters and line ends
     * may occur). Borrowed from the index. */
    const char *str;
    size_t str_len;
    union {
        int64_t i;
        uint64_t u;
        double f;
        bool b;
    };
    /* META_ARRAY: type and number of the elements; `raw` is their encoding, raw_len bytes in the
     * mapping. Walk it with base/rd.h (the file may have changed since it was checked) and ask
     * weights_check() afterwards. Texts in it are unchecked bytes. A GGUF scalar has its own type
     * here. */
    uint32_t elem_type; /* enum gguf_type */
    uint64_t count;
    const uint8_t *raw;
    size_t raw_len;
};

/* path: a .safetensors/.sft/.gguf file, a *.safetensors.index.json, or what torch.save() wrote. The
 * content decides the format, not the name. lim NULL: the defaults. *out is owned
 * (weights_close()); NULL on error.
 * Status: EFORMAT malformed, ELIMIT over a limit, EUNSUPPORTED well-formed but not for us (types we
 * do not carry, pickles that want more than tensors), EIO and ENOTFOUND from the disk, ENOMEM.
 * Messages name the file. */
berth_status weights_open(const char *path, const struct weights_limits *lim, struct weights **out,
                          berth_err *err);
/* An index of tensors that exist nowhere, for plans: all but their bytes, which cannot be read.
 * Names are copied. name: what weights_path() says. */
struct weights_spec;
berth_status weights_declare(const char *name, const struct weights_spec *spec, size_t count,
                             struct weights **out, berth_err *err);
void weights_close(struct weights *w); /* NULL is fine */

/* What these return is borrowed until weights_close(). */
const char *weights_path(const struct weights *w);
/* "safetensors", "gguf", "safetensors (sharded)" */
const char *weights_format(const struct weights *w);
/* What weights_convert() made of entries, the last time; DT_NONE: nothing was converted. */
enum dtype weights_converted(const struct weights *w);
size_t weights_heap_bytes(const struct weights *w); /* what the index itself costs in RAM */

/* Whole-index validator: BUG() when an invariant above does not hold. weights_open() calls it in
 * builds with BERTH_CHECKS. */
void weights_verify(const struct weights *w);

size_t weights_count(const struct weights *w);
/* By shard, then file offset; a tensor without bytes before the one that begins where it lies. */
const struct weights_entry *weights_at(const struct weights *w, size_t i);
/* NULL: no such tensor. */
const struct weights_entry *weights_find(const struct weights *w, const char *name, size_t len);
/* The one a Python program meets first: by its place in the file, or, in a pickle, as that lists
 * them. NULL: there is none. */
const struct weights_entry *weights_first(const struct weights *w);

size_t weights_meta_count(const struct weights *w);
const struct weights_meta *weights_meta_at(const struct weights *w, size_t i);
const struct weights_meta *weights_meta_find(const struct weights *w, const char *key);

size_t weights_shards(const struct weights *w);                          /* files; at least 1 */
const struct file_map *weights_shard(const struct weights *w, size_t i); /* borrowed */

/* From now on entry i is of type `to`, of one or two bytes; both types are plain floats; anything
 * else is a BUG(). Nothing when it is already. */
void weights_convert(struct weights *w, size_t i, enum dtype to);
/* From now on entry i, a matrix, has `cols` columns, at least as many as before; the new ones are
 * 0. BERTH_EUNSUPPORTED: no matrix, or a row would not be whole blocks of its
 * type. */
berth_status weights_widen(struct weights *w, size_t i, uint64_t cols, berth_err *err);
/* Copies [off, off+n) of an entry's bytes to dst. Error when the file shrank or changed. A
 * converted entry goes through 64 KiB of the caller's stack. */
berth_status weights_read(const struct weights *w, const struct weights_entry *e, uint64_t off,
                          void *dst, size_t n, berth_err *err);
/* Borrowed, possibly unaligned bytes in the mapping; call weights_check() after using them. BUG()
 * for a converted entry, whose bytes are nowhere. */
const uint8_t *weights_data(const struct weights *w, const struct weights_entry *e);
/* The same for callers that convert by themselves: bytes of type e->stored. */
const uint8_t *weights_stored(const struct weights *w, const struct weights_entry *e);
berth_status weights_check(const struct weights *w, berth_err *err);
/* The file's pages leave the process, see file_map_drop(); borrowed bytes stay good. */
void weights_drop(const struct weights *w);

/* ---- writing ---- */

struct weights_spec { /* one tensor to write; order in the file = order given */
    const char *name;
    enum dtype dtype;
    struct shape shape;
};
struct weights_meta_spec { /* string metadata (safetensors and GGUF) */
    const char *key, *value;
};
/* Produces the encoded bytes [off, off+n) of tensor i. off and n are multiples of the type's block
 * size in bytes. Any thread, any order. */
typedef berth_status weights_fill_fn(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                     berth_err *err);
/* Bytes of tensor data; called by one thread at a time. */
typedef void weights_progress_fn(void *user, uint64_t done, uint64_t total);

struct write_plan; /* format/ alone */
struct weights_write_args;

struct weights_writer { /* a kind of file that can be written; ask it, not its name */
    const char *name;
    const char *ext; /* file name endings, blank-separated; a new file gets the first */
    /* The custom of this format's tools: vectors and small tensors stay F32 whatever the type of
     * the file, and "general.architecture" names the network. */
    bool mixed;
    bool (*stores)(enum dtype t);
    /* Lays the file out; format/ alone. */
    berth_status (*plan)(const struct weights_write_args *a, struct write_plan *p, berth_err *err);
};
const struct weights_writer *weights_writer_at(size_t i);              /* NULL behind the last */
const struct weights_writer *weights_writer_find(const char *name);    /* NULL: there is none */
const struct weights_writer *weights_writer_by_path(const char *path); /* by its ending, or NULL */

struct weights_write_args {
    const char *format; /* name of a writer */
    const char *path;
    const struct weights_spec *spec;
    size_t count;
    const struct weights_meta_spec *meta;
    size_t meta_count;
    weights_fill_fn *fill;
    void *user;
    struct tpool *pool;            /* NULL: this thread only */
    weights_progress_fn *progress; /* may be NULL */
    void *progress_user;
};
/* The bytes of the file depend on the arguments alone, never on the number of threads. The first
 * error stops all threads; an existing file then stays as it was. Takes 4 MiB for each thread.
 * GGUF: written as version 3, alignment 32. Names up to 127 bytes, as in ComfyUI-GGUF (ggml without
 * its patch reads 63). A shape with more than four dimensions, or whose innermost dimension is no
 * multiple of the type's block, is flattened and its true shape kept in
 * comfy.gguf.orig_shape.<name>, as ComfyUI-GGUF does; when the element count is no multiple of the
 * block either, that is an error. */
berth_status weights_write(const struct weights_write_args *a, berth_err *err);
