/* pyre_impl: instructions, shared by pyre_emit.c, which makes them, and pyre_match.c. */
#pragma once

#include "node/pyre.h"

enum re_op {
    RE_CHAR,     /* c */
    RE_ANY,      /* flag: line ends too */
    RE_SET,      /* set */
    RE_SPLIT,    /* x first, then y */
    RE_JUMP,     /* x */
    RE_MARK,     /* mark c */
    RE_LOOP,     /* register c: the loop begins here */
    RE_PROGRESS, /* register c: on only if something was matched since; else to x */
    RE_GROUP,    /* the same text as group c */
    RE_AT,       /* c: enum re_at */
    RE_LOOK,     /* does the next on to RE_DONE match here (behind: c points before)? flag: not;
                    then x */
    RE_ATOMIC,   /* the next on to RE_DONE, whose other ways are forgotten; then x */
    RE_COND,     /* on if group c took part, else to x */
    RE_DONE,     /* of RE_LOOK and RE_ATOMIC */
    RE_MATCH,
};
enum re_at { AT_START, AT_LINE_START, AT_END, AT_TEXT_END, AT_LINE_END, AT_WORD, AT_NO_WORD };

/* What a set is made of: classes (\d, \W ...) and ranges, which are sorted and lie apart, so that
 * a look at a set of thousands of characters costs no more than a few steps. */
enum re_member { IN_DIGIT, IN_WORD, IN_SPACE };
#define RE_MEMBERS 3
struct re_range {
    uint32_t from, to;
};
struct re_set {
    bool inverse;
    bool in[RE_MEMBERS], out[RE_MEMBERS]; /* members, and those inverted */
    struct re_range *range;
    size_t n;
};

struct pyre_code {
    enum re_op op;
    bool flag, fold, ascii, behind;
    uint32_t c;
    size_t x, y;
    const struct re_set *set;
};

uint32_t pyre_fold(uint32_t c); /* what letters of both cases become */
bool pyre_is_word(uint32_t c, bool ascii);
bool pyre_in_set(const struct re_set *s, uint32_t c, bool fold, bool ascii);
