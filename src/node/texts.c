#include "node/texts.h"

#include <inttypes.h>
#include <string.h>

berth_status text_fits(const struct node_call *c, size_t n, berth_err *err)
{
    return n <= TEXT_MAX ? BERTH_OK
                         : err_set(err, BERTH_ELIMIT, "%s: the text is larger than %zu MiB",
                                   c->cls->name, TEXT_MAX >> 20);
}

berth_status in_string(const struct node_call *c, const char *name, struct text *out,
                       berth_err *err)
{
    const struct value *v = in_value(c, name);
    if (v && v->kind == V_STRING) {
        *out = (struct text) { v->s.p, v->s.n };
        return BERTH_OK;
    }
    const char *text; /* the default, or the error */
    if (in_text(c, name, &text, err))
        return err->code;
    *out = (struct text) { text, strlen(text) };
    return BERTH_OK;
}

berth_status give_text(struct node_call *c, size_t i, struct str *taken, berth_err *err)
{
    berth_status s = taken->bad ? err_set(err, BERTH_ENOMEM, "a text of %s", c->cls->name)
                                : text_fits(c, taken->n, err);
    if (!s)
        s = out_value(c, i, value_string(str_c(taken), taken->n), err);
    str_release(taken);
    return s;
}

berth_status value_truth(struct node_call *c, const struct value *v, bool *out, berth_err *err)
{
    switch (v->kind) {
    case V_NULL:
        *out = false;
        break;
    case V_INT:
        *out = v->i != 0;
        break;
    case V_UINT:
        *out = v->u != 0;
        break;
    case V_FLOAT:
        *out = v->f != 0;
        break;
    case V_BOOL:
        *out = v->b;
        break;
    case V_STRING:
        *out = v->s.n > 0;
        break;
    case V_JSON:
        *out = py_truth(v->json);
        break;
    case V_TENSOR:
        if (htensor_count(v->tensor) > 1)
            return raise_as(c, "RuntimeError", err,
                            "Boolean value of Tensor with more than one value is ambiguous");
        *out = htensor_count(v->tensor) == 1 && v->tensor->data[0] != 0;
        break;
    case V_LATENT:
    case V_MODEL:
    case V_OBJECT:
        *out = true;
        break;
    }
    return BERTH_OK;
}

const char *value_type_name(const struct value *v)
{
    static const char *const name[] = {
        [V_NULL] = "NoneType", [V_INT] = "int",     [V_UINT] = "int",
        [V_FLOAT] = "float",   [V_BOOL] = "bool",   [V_STRING] = "str",
        [V_TENSOR] = "Tensor", [V_LATENT] = "dict", [V_MODEL] = "MODEL",
    };
    return v->kind == V_JSON     ? py_type(v->json)
           : v->kind == V_OBJECT ? v->object.type->name
                                 : name[v->kind];
}

void value_text(const struct value *v, struct str *out)
{
    json_t *j = NULL;
    switch (v->kind) {
    case V_NULL:
        str_adds(out, "None");
        break;
    case V_INT:
        str_addf(out, "%" PRId64, v->i);
        break;
    case V_UINT:
        str_addf(out, "%" PRIu64, v->u);
        break;
    case V_FLOAT:
        py_repr_f64(v->f, out);
        break;
    case V_BOOL:
        str_adds(out, v->b ? "True" : "False");
        break;
    case V_STRING:
        str_add(out, v->s.p, v->s.n);
        break;
    case V_JSON:
        py_str(v->json, out);
        break;
    case V_TENSOR:
    case V_LATENT:
    case V_MODEL:
    case V_OBJECT:
        j = value_describe(v);
        if (j)
            str_add(out, json_string_value(j), json_string_length(j));
        out->bad = out->bad || !j;
        json_decref(j);
        break;
    }
}

berth_status give_int(struct node_call *c, size_t i, node_int v, berth_err *err)
{
    if (v < INT64_MIN || v > (node_int)UINT64_MAX)
        return err_set(err, BERTH_EINVAL, "%s: an INT beyond 64 bits cannot be handed on",
                       c->cls->name);
    return out_value(c, i, v > INT64_MAX ? value_uint((uint64_t)v) : value_int((int64_t)v), err);
}
