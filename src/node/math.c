/* math.c: ComfyMathExpression. */
#include "node/expr.h"
#include "node/texts.h"

#include <math.h>

#define VALUES_MAX 26 /* a to z */

/* The value as the expression sees it. */
static berth_status as_ev(struct node_call *c, const struct value *v, struct ev *out,
                          berth_err *err)
{
    switch (v->kind) {
    case V_INT:
        *out = (struct ev) { .kind = EV_INT, .i = v->i };
        return BERTH_OK;
    case V_UINT:
        *out = (struct ev) { .kind = EV_INT, .i = (__int128)v->u };
        return BERTH_OK;
    case V_FLOAT:
        *out = (struct ev) { .kind = EV_FLOAT, .f = v->f };
        return BERTH_OK;
    case V_BOOL:
        *out = (struct ev) { .kind = EV_BOOL, .b = v->b };
        return BERTH_OK;
    case V_STRING:
        *out = (struct ev) { .kind = EV_TEXT, .s = { v->s.p, v->s.n } };
        return BERTH_OK;
    case V_NULL:
        *out = (struct ev) { .kind = EV_NONE };
        return BERTH_OK;
    default:
        return raise_as(c, "TypeError", err, "%s: %s cannot be computed with", c->cls->name,
                        value_type_name(v));
    }
}

static berth_status give_result(struct node_call *c, struct text t, const struct ev *r,
                                berth_err *err)
{
    __int128 i = r->kind == EV_BOOL ? r->b : r->kind == EV_INT ? r->i : 0;
    double f = r->kind == EV_FLOAT ? r->f : (double)i;
    int shown = t.n > 200 ? 200 : (int)t.n;
    if (r->kind != EV_BOOL && r->kind != EV_INT && r->kind != EV_FLOAT) {
        struct str text = { 0 };
        ev_repr(r, &text);
        err_set(err, BERTH_EINVAL,
                "Math Expression '%.*s' must evaluate to a numeric result, got %s: %s", shown, t.p,
                ev_type(r), str_c(&text));
        str_release(&text);
        return err->code;
    }
    if (!isfinite(f))
        return err_set(err, BERTH_EINVAL, "Math Expression '%.*s' produced a non-finite result: %s",
                       shown, t.p,
                       isnan(f) ? "nan"
                       : f < 0  ? "-inf"
                                : "inf");
    if (r->kind == EV_FLOAT)
        i = fabs(f) < 0x1p126 ? (__int128)f : (__int128)1 << 126; /* beyond what INT can be */
    if (out_value(c, 0, value_float(f), err) || give_int(c, 1, i, err))
        return err->code;
    return out_value(c, 2, value_bool(f != 0 || i != 0), err);
}

static berth_status math_run(struct node_call *c, berth_err *err)
{
    struct ev all[VALUES_MAX];
    struct expr_name name[VALUES_MAX + 1];
    struct text t, blank;
    size_t n = 0;
    const struct values *v;
    const char *member;
    if (in_string(c, "expression", &t, err))
        return err->code;
    blank = t;
    py_strip(&blank.p, &blank.n, true, true);
    if (!blank.n)
        return err_set(err, BERTH_EINVAL, "Expression cannot be empty.");
    for (size_t at = 0; n < VALUES_MAX && (v = in_member(c, "values", &at, &member)); n++) {
        if (as_ev(c, v->at[0], &all[n], err))
            return err->code;
        name[n] = (struct expr_name) { member, all[n] };
    }
    name[n] = (struct expr_name) { "values", { .kind = EV_LIST, .list = { all, n } } };
    struct expr x = { .text = t.p, .n = t.n, .name = name, .names = n + 1 };
    struct ev result;
    berth_status s = expr_parse(&x, err);
    if (!s)
        s = expr_eval(&x, &result, err);
    if (s)
        c->raised = s == BERTH_EINVAL ? x.raised : NULL;
    else
        s = give_result(c, t, &result, err);
    expr_release(&x);
    return s;
}

NODE_CLASS(ComfyMathExpression, .display = "Math Expression", .category = "utilities", V3("math"),
           INS(TEXT_IN("expression", "a + b", .more = MULTILINE),
               AUTOGROW_NAMES_IN("values", list_a_to_z, 1, SOCKET("value", "FLOAT,INT,BOOLEAN"))),
           OUTS({ .type = "FLOAT" }, { .type = "INT" }, { .type = "BOOLEAN", .name = "BOOL" }),
           .run = math_run);
