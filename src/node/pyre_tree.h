/* pyre_tree: what a regular expression is on its way to instructions, and what reads its text;
 * shared by pyre_parse.c, which makes trees, pyre_emit.c, which makes instructions of them, and
 * pyre_template.c, which reads replacements. */
#pragma once

#include "base/utf8.h"
#include "node/pyre_impl.h"

enum kind {
    T_EMPTY,
    T_CHAR, /* c */
    T_ANY,
    T_SET,    /* set */
    T_CAT,    /* kid, next of each */
    T_ALT,    /* the same */
    T_REPEAT, /* kid, min, max, how */
    T_GROUP,  /* kid, c: number; 0: without */
    T_BACK,   /* c */
    T_AT,     /* c */
    T_LOOK,   /* kid, behind, not */
    T_ATOMIC, /* kid */
    T_COND,   /* c, kid: yes, and its next: no */
};
enum how { GREEDY, LAZY, POSSESSIVE };
#define MANY UINT32_MAX

struct tree {
    enum kind kind;
    unsigned flags;
    uint32_t c, min, max;
    enum how how;
    bool behind, inverse;
    const struct re_set *set;
    struct tree *kid, *next;
};

struct parser {
    struct pyre *p;
    const char *s; /* UTF-8 */
    size_t n, at;  /* bytes */
    unsigned flags, depth;
    bool open[PYRE_GROUPS_MAX];   /* groups that are not closed yet */
    size_t cond[PYRE_GROUPS_MAX]; /* where a condition named them first, plus 1; 0: none did */
    bool failed;
    berth_err *err;
};

struct escape {
    enum { E_CHAR, E_MEMBER, E_AT, E_GROUP } is;
    uint32_t c; /* a point, an enum re_at, a group */
    enum re_member member;
    bool inverse;
};

/* ---- characters of the pattern ---- */

static inline bool more(const struct parser *p)
{
    return p->at < p->n;
}

static inline char look(const struct parser *p)
{
    return more(p) ? p->s[p->at] : 0;
}

static inline bool take(struct parser *p, char c)
{
    if (!more(p) || p->s[p->at] != c)
        return false;
    p->at++;
    return true;
}

static inline uint32_t next_point(struct parser *p)
{
    uint32_t c = 0;
    p->at += utf8_get(p->s + p->at, p->n - p->at, &c);
    return c;
}

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

static inline bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* ---- pyre_parse.c ---- */

/* BERTH_EINVAL at byte `at`, which people count in characters. NULL, always. */
struct tree *re_fail_at(struct parser *p, size_t at, const char *what);
/* The digit in front of p->at, behind '\\', and what follows: octal, or the number of a group. */
bool re_numbered(struct parser *p, size_t from, struct escape *e);
bool re_bad_escape(struct parser *p, size_t from); /* says so; false */
/* A name up to `end`, which is taken. False: said. */
bool re_name_until(struct parser *p, char end, const char *what, const char **name, size_t *n);
bool re_is_identifier(const char *s, size_t n);
bool re_bad_name(struct parser *p, const char *name, size_t n); /* says so; false */
/* The number of a group by its name. */
bool re_find_name(const struct pyre *p, const char *s, size_t n, unsigned *out);

/* The fewest and the most characters it matches. */
void re_width(const struct tree *t, uint64_t *low, uint64_t *high);

/* ---- pyre_emit.c ---- */

/* The instructions of the whole expression. BERTH_ELIMIT: more than PYRE_CODE_MAX. */
berth_status pyre_emit(struct pyre *p, const struct tree *t, berth_err *err);
