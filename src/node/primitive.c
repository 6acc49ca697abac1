/* primitive.c: constants, and values shown as text. */
#include "node/texts.h"

static const struct node_output out_string[] = { { .type = "STRING" } };

/* The input "value" is the output; what is not given has its kind's zero. */
static berth_status value_run(struct node_call *c, berth_err *err)
{
    struct value *v = in_value(c, "value");
    if (v)
        return out_value(c, 0, value_ref(v), err);
    switch (c->cls->in[0].kind) {
    case IN_INT:
        return out_value(c, 0, value_int((int64_t)c->cls->in[0].idef), err);
    case IN_FLOAT:
        return out_value(c, 0, value_float(c->cls->in[0].fdef), err);
    case IN_BOOLEAN:
        return out_value(c, 0, value_bool(c->cls->in[0].bdef), err);
    default:
        return out_value(c, 0, value_string("", 0), err);
    }
}

#define PRIMITIVE(c, shown, ...)                                                                   \
    NODE_CLASS(c, .display = shown, .category = "utils/primitive", .module = MOD("primitive"),     \
               .flags = NODE_V3, .run = value_run, __VA_ARGS__)

PRIMITIVE(PrimitiveInt, "Int",
          INS(INT_IN("value", 0, -(node_int)INT64_MAX, INT64_MAX, 0, .no_default = true,
                     .more = "\"control_after_generate\":\"fixed\"")),
          OUT_OF("INT"));

PRIMITIVE(PrimitiveFloat, "Float",
          INS(FLOAT_IN("value", 0, -(double)INT64_MAX, (double)INT64_MAX, 0.1, .no_default = true)),
          OUT_OF("FLOAT"));

PRIMITIVE(PrimitiveString, "String", INS(TEXT_IN("value", NULL, .no_default = true)),
          OUT(out_string));

PRIMITIVE(PrimitiveStringMultiline, "String (Multiline)",
          INS(TEXT_IN("value", NULL, .no_default = true, .more = MULTILINE)), OUT(out_string));

PRIMITIVE(PrimitiveBoolean, "Boolean", INS(BOOL_IN("value", false, .no_default = true)),
          OUT_OF("BOOLEAN"));

NODE_CLASS(INTConstant, .display = "INT Constant", .category = "KJNodes/constants",
           .module = "custom_nodes.ComfyUI-KJNodes", INS(INT_IN("value", 0, -U64_MAX, U64_MAX, 0)),
           OUTS({ .type = "INT", .name = "value" }), .run = value_run);

/* JSON in lines, the rest as Python's str() has it. */
static void text_of(const struct value *v, struct str *out)
{
    struct jsonout text = { .out = out, .indent = 4, .python = true, .utf8 = true };
    if (v->kind == V_JSON)
        jo_value(&text, NULL, v->json);
    else
        value_text(v, out);
}

static berth_status preview_run(struct node_call *c, berth_err *err)
{
    const struct value *v = in_value(c, "source");
    struct str text = { 0 };
    if (v)
        text_of(v, &text);
    else
        str_adds(&text, "None");
    berth_status s = text.bad ? err_set(err, BERTH_ENOMEM, "text of a value")
                              : ui_add(c, "text", json_stringn(str_c(&text), text.n), err);
    if (!s)
        return give_text(c, 0, &text, err);
    str_release(&text);
    return s;
}

NODE_CLASS(PreviewAny, .display = "Preview as Text", .category = "utils",
           .module = MOD("preview_any"), .flags = NODE_OUTPUT,
           INS(SOCKET("source", "*", .more = "")), OUT(out_string), .run = preview_run);
