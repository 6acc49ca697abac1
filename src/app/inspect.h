/* inspect: the pieces of `berth inspect`, one file each.
 *
 * Flow   weights_open() -> summary_make() -> inspect_text() or inspect_json(), and on a terminal
 *        inspect_picture(). Nothing here touches tensor data. */
#pragma once

#include "app/app.h"
#include "format/weights.h"
#include "model/family.h"

#define INSPECT_TOP 10
#define INSPECT_CLASSES 8 /* parts, and types, that get a colour of their own */
/* Colours: parts of the model take the first, types those behind, so that no two things share one
 * as long as there are at most seven types. */
#define INSPECT_TYPE_COLOR INSPECT_CLASSES

struct tally {
    uint64_t tensors, params, bytes;
};

struct summary {         /* zeroed is empty; holds no memory */
    uint64_t file_bytes; /* of all shards */
    struct tally all, by_dtype[DT_COUNT];
    const struct weights_entry *top[INSPECT_TOP]; /* largest first, ties in file order */
    size_t tops;
    struct family_info family; /* name NULL: none that we know */
};

void summary_make(const struct weights *w, struct summary *s);

/* inspect_words.c: "8-bit integers (int8_tensorwise), a scale for each row" */
#define INSPECT_WORDS_MAX 128
const char *inspect_words(const struct weights *w, const struct weights_entry *e,
                          char buf[INSPECT_WORDS_MAX]);

/* inspect_text.c; ask weights_check() afterwards. */
void inspect_text(const struct app *a, const struct weights *w, const struct summary *s,
                  bool tensors);

/* inspect_json.c: one object. Metadata arrays come out of the mapping while they are printed: when
 * weights_check() then fails, so does this, and the object has an "error". */
berth_status inspect_json(struct jsonout *j, const struct weights *w, const struct summary *s,
                          bool tensors, berth_err *err);
/* One metadata value; at most max_items elements of an array (then "..."), 0: all. */
void inspect_meta(struct jsonout *j, const char *key, const struct weights_meta *m,
                  uint64_t max_items);
const char *inspect_meta_type(uint32_t gguf_type); /* "u32", "string"; "?" when unknown */

/* inspect_picture.c: where in the file what lies. Draws nothing when memory is short. */
void inspect_picture(const struct app *a, const struct weights *w, const struct summary *s);
