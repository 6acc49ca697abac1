/* texts: what nodes about texts, numbers and logic share. */
#pragma once

#include "node/node_impl.h"
#include "node/py.h"

struct text { /* borrowed */
    const char *p;
    size_t n;
};

/* A chain of nodes that each double a text would fill the memory: it ends here. */
#define TEXT_MAX ((size_t)64 << 20)
berth_status text_fits(const struct node_call *c, size_t n, berth_err *err);

/* The input as a whole, zero bytes too; not given: its default, "". */
berth_status in_string(const struct node_call *c, const char *name, struct text *out,
                       berth_err *err);
/* Output i; takes it, also on failure. */
berth_status give_text(struct node_call *c, size_t i, struct str *taken, berth_err *err);

/* An error of run() whose exception_type is not ValueError. */
#define raise_as(c, type, err, ...) ((c)->raised = (type), err_set(err, BERTH_EINVAL, __VA_ARGS__))

/* bool(v) of Python. BERTH_EINVAL: a tensor of several values. */
berth_status value_truth(struct node_call *c, const struct value *v, bool *out, berth_err *err);
/* type(v).__name__ of it: "int", "str", "Tensor", "dict" */
const char *value_type_name(const struct value *v);
/* str(v), appended: as Python has it for what JSON has, else a description. */
void value_text(const struct value *v, struct str *out);
/* An integer as a value; BERTH_EINVAL beyond -2^63 .. 2^64 - 1, which is what values hold. */
berth_status give_int(struct node_call *c, size_t i, node_int v, berth_err *err);

#define STRING_OUT(n) OUTS({ .type = "STRING", .name = n })
#define TEXT_NODE(c, shown, ...)                                                                   \
    NODE_CLASS(c, .display = shown, .category = "text", V3("string"), __VA_ARGS__)
/* ComfyUI gives these no default; a prompt always has them. */
#define LONG_TEXT_IN(n) TEXT_IN(n, NULL, .no_default = true, .more = MULTILINE)
