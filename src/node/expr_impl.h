/* expr_impl: what expr_parse.c, expr_eval.c and expr_fn.c share. */
#pragma once

#include "node/expr.h"

enum expr_op {
    OP_VALUE,   /* value */
    OP_NAME,    /* text */
    OP_CALL,    /* text, arg[] */
    OP_INDEX,   /* arg[0][arg[1]] */
    OP_SLICE,   /* arg[0][arg[1]:arg[2]:arg[3]]; NULL: not given */
    OP_IF,      /* arg[1] if arg[0] else arg[2] */
    OP_FEATURE, /* text: what the evaluator has not */
    OP_AND,
    OP_OR,
    OP_NOT,
    OP_NEG,
    OP_POS,
    OP_INVERT,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_LSHIFT,
    OP_RSHIFT,
    OP_BITAND,
    OP_BITOR,
    OP_BITXOR,
    OP_COMPARE, /* args values, compare[args - 1] between them */
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_EQ,
    OP_NE,
    OP_IN,
    OP_NOT_IN,
    OP_IS,
    OP_IS_NOT,
};

struct expr_tree {
    enum expr_op op;
    unsigned depth;
    struct ev value;
    const char *text; /* NUL-terminated */
    const struct expr_tree **arg;
    size_t args;
    enum expr_op *compare;
};

#define expr_raise(x, type, err, ...)                                                              \
    ((x)->raised = (type), err_set(err, BERTH_EINVAL, __VA_ARGS__))
berth_status expr_too_big(berth_err *err); /* BERTH_ELIMIT: an integer */
berth_status expr_no_memory(berth_err *err);

/* The expression in messages: at most 200 bytes of it. */
#define EXPR_SHOWN(x) ((x)->n > 200 ? 200 : (int)(x)->n), (x)->text

/* expr_eval.c */
bool ev_truth(const struct ev *v);
bool ev_int(const struct ev *v, __int128 *out); /* of int and bool */
double ev_f64(const struct ev *v);              /* of int, bool and float */
bool ev_is_number(const struct ev *v);          /* one of these three */
berth_status ev_binary(struct expr *x, enum expr_op op, const struct ev *a, const struct ev *b,
                       struct ev *out, berth_err *err);
berth_status ev_compare(struct expr *x, enum expr_op op, const struct ev *a, const struct ev *b,
                        bool *out, berth_err *err);
struct ev ev_of_int(__int128 i);
struct ev ev_of_f64(double f);
struct ev ev_of_bool(bool b);
/* int(f): BERTH_EINVAL with Python's words for what is not finite. */
berth_status ev_trunc(struct expr *x, double f, struct ev *out, berth_err *err);

/* expr_fn.c */
bool expr_is_function(const char *name);
berth_status expr_call(struct expr *x, const char *name, const struct ev *arg, size_t n,
                       struct ev *out, berth_err *err);
