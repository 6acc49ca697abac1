/* expr: one Python expression over numbers, as the library evaluates it that ComfyUI's Math
 * Expression uses (simpleeval): its operators, its refusals, and their words.
 *
 * Words      name     a variable of the expression: a to z, and "values", the list of them
 *            raised   type of the Python exception that an error stands for
 * Flow       expr_parse() text to a tree; expr_eval() the tree to a value
 * Values     integers of 127 bits (Python's have no end: beyond is BERTH_ELIMIT), doubles, bools,
 *            texts, None, the list "values" and slices of it. Complex numbers can only be refused.
 * Limits     EXPR_MAX bytes, EXPR_NEST_MAX brackets, EXPR_DEPTH_MAX operators deep, texts of
 *            EXPR_TEXT_MAX characters. There are no loops: the cost is that of the length.
 * Not there  assignments, several statements, attributes, f-strings, keyword arguments:
 *            BERTH_EUNSUPPORTED
 * Threads    Any. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#define EXPR_MAX 16384
#define EXPR_NEST_MAX 200  /* brackets; CPython's */
#define EXPR_DEPTH_MAX 400 /* operators that wait for each other, as in a chain of additions */
#define EXPR_TEXT_MAX 100000

enum ev_kind { EV_NONE, EV_BOOL, EV_INT, EV_FLOAT, EV_COMPLEX, EV_TEXT, EV_LIST };
struct ev {
    enum ev_kind kind;
    union {
        bool b;
        __int128 i;
        double f;
        struct {
            double re, im;
        } z;
        struct {
            const char *p;
            size_t n;
        } s;
        struct {
            const struct ev *at;
            size_t n;
        } list;
    };
};

struct expr_name {
    const char *name;
    struct ev value;
};

struct expr_tree;

struct expr {         /* one evaluation; zeroed except for text and names */
    const char *text; /* NUL-terminated */
    size_t n;
    const struct expr_name *name;
    size_t names;
    struct arena mem; /* tree and texts */
    const struct expr_tree *root;
    const char *raised; /* of the error: "ZeroDivisionError"; NULL: not Python's */
};

/* BERTH_EINVAL with x->raised, BERTH_ELIMIT, BERTH_EUNSUPPORTED, BERTH_ENOMEM. */
berth_status expr_parse(struct expr *x, berth_err *err);
berth_status expr_eval(struct expr *x, struct ev *out, berth_err *err); /* of x->mem, or names */
void expr_release(struct expr *x);

const char *ev_type(const struct ev *v);           /* "int", "NoneType" */
void ev_repr(const struct ev *v, struct str *out); /* appended */
