/* vocab: texts and their ids, found by either. For text/ alone.
 *
 * Ids may come in any order and leave gaps. Made for the 150,000 to 260,000 texts of a language
 * model: one block of bytes, eight more for each id, and a table of four for each text.
 * Threads    Immutable once filled: any. */
#pragma once

#include "base/attr.h"
#include "base/vec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VOCAB_IDS_MAX (1u << 20)
#define VOCAB_BYTES_MAX (64u << 20) /* of all texts */

struct vocab {        /* a zeroed one is empty; vocab_release() */
    struct vec bytes; /* all texts, one after the other */
    struct vec entry; /* where the text of an id lies; [highest id + 1] */
    uint32_t *slot;   /* id + 1; 0: empty */
    size_t cap, n;    /* slots, a power of two; texts */
};
enum vocab_result {
    VOCAB_OK,
    VOCAB_NOMEM,
    VOCAB_TEXT_TWICE, /* nothing was added */
    VOCAB_ID_TWICE,   /* as well */
    VOCAB_FULL        /* one of the limits */
};
WARN_UNUSED enum vocab_result vocab_add(struct vocab *v, const char *text, size_t n, uint64_t id);
int32_t vocab_find(const struct vocab *v, const char *text, size_t n); /* -1: none has it */
size_t vocab_ids(const struct vocab *v);                               /* highest id + 1 */
/* NULL: there is no such id. Borrowed until the next vocab_add(). */
const char *vocab_text(const struct vocab *v, int32_t id, size_t *n);
void vocab_release(struct vocab *v);
