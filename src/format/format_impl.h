/* format_impl: what the files of format/ share; nobody but they and their tests include it.
 *
 * An opening is one weights_open() in progress, a struct on its stack. The formats add entries and
 * metadata to it; index_finish() turns them into the immutable index. */
#pragma once

#include "base/arena.h"
#include "base/jstok.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "format/weights.h"

struct opening;
struct write_plan;

struct format {
    const char *name; /* what weights_format() says */
    const char *ext;  /* file name endings, blank-separated; they only help the error message */
    bool shares;      /* tensors may lie in the same bytes of the file */
    /* Do the first bytes (at most FORMAT_HEAD) claim to be this format? */
    bool (*probe)(const uint8_t *head, size_t n);
    /* Adds what shard number `shard` holds to the opening, in file order, fully checked. */
    berth_status (*open)(struct opening *o, uint32_t shard, berth_err *err);
    const struct weights_writer *writer; /* NULL: this format is not written */
};

#define FORMAT_HEAD 512

#define FORMAT(x) extern const struct format format_##x;
#include "format/formats.def"
#undef FORMAT

const struct format *format_probe(const uint8_t *data, size_t n); /* NULL: no format claims it */

/* ---- the index ---- */

struct shard {
    struct file_map *map; /* owned; NULL: bytes in memory, handed in or the index's own */
    const char *path;     /* in the index's arena */
    const uint8_t *data;
    size_t size;
};

struct name_slot { /* one place of the name table */
    uint32_t tag;  /* upper half of the name's hash */
    uint32_t at;   /* entry number + 1; 0: free */
};

struct weights { /* immutable once weights_open() returned it */
    const struct format *format;
    const char *path;
    struct arena mem; /* everything below except `shard` and the mappings */
    struct vec shard; /* struct shard */
    struct weights_entry *entry;
    size_t count;
    struct weights_meta *meta;
    size_t metas;
    struct name_slot *slot;
    size_t slots;         /* a power of two */
    uint64_t hash_seed;   /* differs from run to run, so that a file cannot aim at collisions */
    const char *first;    /* name of weights_first(); NULL: by its place in the file */
    bool copies;          /* the last shard is not a file but copied tensors */
    enum dtype converted; /* weights_converted() */
};

struct weights_file { /* a file in memory, for weights_open_memory() */
    const char *name;
    const void *data;
    size_t size;
};

struct opening {
    struct weights *w; /* owned until handed out */
    struct weights_limits lim;
    struct vec entry;    /* struct weights_entry */
    struct vec meta;     /* struct weights_meta */
    struct map meta_key; /* key -> number in `meta` */
    char *text;          /* rest of the arena block that texts are packed into */
    size_t text_left;
    const struct weights_file *files; /* not NULL: open these, not the disk */
    size_t file_count;
};

/* Opens files[0]; a shard index finds its shards among the others, by name. The bytes are borrowed
 * until weights_close(). This is how the fuzzers and the hostile tables get in. */
berth_status weights_open_memory(const struct weights_file *files, size_t count,
                                 const struct weights_limits *lim, struct weights **out,
                                 berth_err *err);

/* index.c */

/* Maps `path` and appends it to the shards. */
berth_status open_shard(struct opening *o, const char *path, berth_err *err);
const struct shard *open_shard_at(const struct opening *o, uint32_t shard);
void open_drop_shards(struct opening *o);

/* Copies n bytes and adds a NUL; packed, no alignment. NULL: out of memory. */
WARN_UNUSED char *open_text(struct opening *o, const void *p, size_t n);
/* Decodes the reader's current STRING or KEY by way of a private copy, since jstok_decode() relies
 * on what the walk saw. scratch: t->n + 2 bytes, out: t->n bytes. False: malformed. */
WARN_UNUSED bool token_decode(const struct jstok *t, char *scratch, char *out, size_t *n);
/* Copies and decodes the reader's current STRING or KEY into the index, with a NUL. */
berth_status open_token(struct opening *o, const struct jstok *t, const char **s, size_t *n,
                        berth_err *err);
/* A zeroed entry of `shard`, or NULL and err: too many, or out of memory. */
struct weights_entry *open_entry(struct opening *o, uint32_t shard, berth_err *err);
/* A zeroed metadata entry under `key` (already in the index, NUL-terminated); NULL and err when the
 * key is there already, there are too many, or memory is out. */
struct weights_meta *open_meta(struct opening *o, const char *key, size_t len, berth_err *err);
/* Fills what follows: size from dtype and shape, stored. EFORMAT when it does not fit. */
berth_status entry_measure(struct weights_entry *e, berth_err *err);
/* Puts the entries from number `first` on into file order: by offset; a zero-size tensor before the
 * bytes that follow it; otherwise in the order they were added. */
berth_status open_sort(struct opening *o, size_t first, berth_err *err);
/* Copies the entries to their final place, builds the name table, refuses duplicate names. */
berth_status index_finish(struct opening *o, berth_err *err);

/* layout.c: finds the quantised weights. BERTH_ENOMEM alone. */
berth_status layouts_attach(struct weights *w, berth_err *err);

/* ---- names ---- */

/* Tensor names and metadata keys, read or written: 1 to max bytes of UTF-8 without control
 * characters. `what`: "tensor name", "metadata key". */
berth_status name_check(const char *s, size_t n, size_t max, const char *what, berth_err *err);

/* Adds a name to a table of those that were met; once it is there "<what> '<name>' <twice>". */
berth_status name_add(struct map *m, const char *s, size_t n, uint64_t value, const char *what,
                      const char *twice, berth_err *err);

/* Reads an object that comes next, member by member: `member` is called with the reader on each key
 * and leaves it behind the value. no_object, malformed: messages. */
typedef berth_status member_fn(void *user, struct jstok *t, berth_err *err);
berth_status read_object(struct jstok *t, const char *no_object, const char *malformed,
                         member_fn *member, void *user, berth_err *err);

/* Outside text made short and printable for an error message: excerpt(s, n).s */
struct excerpt {
    char s[100];
};
struct excerpt excerpt(const char *s, size_t n);

/* sniff.c: what the first bytes of a file that nobody claims look like */
#define SNIFF_MAX 128
const char *sniff(const uint8_t *head, size_t n); /* "a PNG image"; NULL: nothing we know */
const char *sniff_raw(const uint8_t *head, size_t n, char buf[SNIFF_MAX]); /* "bytes 4d 5a ..." */

/* ---- writing ---- */

struct write_plan { /* a file laid out: header, then tensor i at off[i], zeros in between */
    struct str header;
    uint64_t *size; /* of each tensor, filled in by write.c */
    uint64_t *off;  /* of each tensor from the start of the file, ascending */
    uint64_t total; /* bytes of the whole file */
};

#define WRITE_ALIGN_MAX 64 /* most padding a format puts behind a tensor */
