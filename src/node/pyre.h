/* pyre: regular expressions as Python's re reads and matches them (3.11): a backtracking matcher
 * over code points, with bounds that Python does not have.
 *
 * Words      pattern   a compiled expression; mark  where a group begins or ends, two per group
 * There      everything of re but \N{...}, (?L) and bytes; lookbehind of fixed width, conditions,
 *            atomic groups, possessive repeats, named groups, flags inside, verbose
 * Limits     patterns of PYRE_MAX bytes that become at most PYRE_CODE_MAX instructions and nest
 *            PYRE_DEPTH_MAX deep; texts of PYRE_TEXT_MAX points; PYRE_STEPS_MAX steps over all
 *            searches of one text, where Python would go on for hours; replacements of
 *            PYRE_PIECES_MAX pieces: BERTH_ELIMIT
 * Errors     BERTH_EINVAL: the pattern is wrong; the message is re.error's. BERTH_ECANCELED: the
 *            flag of a scan was set
 * Threads    A pattern belongs to one. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "base/vec.h"

#include <stdatomic.h>

#define PYRE_MAX 16384
#define PYRE_CODE_MAX 100000
#define PYRE_DEPTH_MAX 100
#define PYRE_TEXT_MAX ((size_t)4 << 20)
#define PYRE_STEPS_MAX 20000000
#define PYRE_PIECES_MAX 65536
#define PYRE_GROUPS_MAX 256 /* the whole match included */

enum { /* flags */
       PYRE_IGNORECASE = 1 << 0,
       PYRE_MULTILINE = 1 << 1,
       PYRE_DOTALL = 1 << 2,
       PYRE_VERBOSE = 1 << 3,
       PYRE_ASCII = 1 << 4,
};

struct pyre_code;

struct pyre_name {
    const char *name;
    unsigned group;
};

struct pyre { /* zeroed before pyre_compile(); pyre_release() always */
    struct arena mem;
    struct vec code; /* struct pyre_code */
    struct vec name; /* struct pyre_name */
    unsigned groups; /* without the whole */
    unsigned loops;  /* registers of loops that may match nothing */
};
berth_status pyre_compile(struct pyre *p, const char *s, size_t n, unsigned flags, berth_err *err);
void pyre_release(struct pyre *p);

/* A text that is searched, from match to match. */
struct pyre_scan {
    const struct pyre *p;
    uint32_t *text; /* points; owned */
    size_t n;
    size_t at;                 /* where the next search begins */
    bool must_advance;         /* the last match was empty: another one here would not advance */
    uint64_t steps, next_look; /* done, and when to look at the flag again */
    const atomic_bool *cancel; /* set after pyre_open(); NULL: none */
    bool canceled;
    struct vec stack;                 /* of the matcher */
    bool no_memory;                   /* for it */
    size_t *loop;                     /* registers; owned */
    size_t mark[2 * PYRE_GROUPS_MAX]; /* of the last match, in points; SIZE_MAX: no part of it */
};
berth_status pyre_open(struct pyre_scan *s, const struct pyre *p, const char *text, size_t n,
                       berth_err *err);
/* The next match, as re.finditer() has them. *found: there is one. */
berth_status pyre_next(struct pyre_scan *s, bool *found, berth_err *err);
/* A part of the text as UTF-8, appended. */
void pyre_part(const struct pyre_scan *s, size_t from, size_t to, struct str *out);
void pyre_close(struct pyre_scan *s); /* also after pyre_open() failed */

/* A replacement, as re.sub() reads it: \1, \g<name>, \n. */
struct pyre_template {
    struct str text; /* literal bytes, all of them */
    struct vec part; /* struct pyre_piece */
};
struct pyre_piece {
    size_t from, n; /* of text; or */
    unsigned group; /* this group */
    bool is_group;
};
berth_status pyre_template(struct pyre_template *t, const struct pyre *p, const char *s, size_t n,
                           berth_err *err);
/* The replacement for the last match, appended; it ends early once `out` has more than `most`
 * bytes. Its pieces count as steps of the scan. */
void pyre_expand(const struct pyre_template *t, struct pyre_scan *s, size_t most, struct str *out);
void pyre_template_release(struct pyre_template *t);
