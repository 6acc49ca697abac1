/* logic.c: switches, truth, and lists made of several inputs. */
#include "node/texts.h"

#include <string.h>

/* ---- ComfySwitchNode ---- */

static berth_status switch_run(struct node_call *c, berth_err *err)
{
    bool on;
    if (in_bool(c, "switch", &on, err))
        return err->code;
    struct value *v = in_value(c, on ? "on_true" : "on_false");
    return out_value(c, 0, v ? value_ref(v) : value_null(), err);
}

/* Places among the inputs of the class. */
enum { ON_FALSE = 1, ON_TRUE = 2 };

static berth_status switch_lazy(struct node_call *c, bool *need, berth_err *err)
{
    bool on;
    if (in_bool(c, "switch", &on, err))
        return err->code;
    need[on ? ON_TRUE : ON_FALSE] = true;
    return BERTH_OK;
}

#define LOGIC(c, shown, ...)                                                                       \
    NODE_CLASS(c, .display = shown, .category = "utilities/logic", .module = MOD("logic"),         \
               __VA_ARGS__)

LOGIC(ComfySwitchNode, "If/Else Switch", .flags = NODE_V3 | NODE_EXPERIMENTAL,
      INS(BOOL_IN("switch", false, .no_default = true),
          MATCH_IN("on_false", "switch", "*", .lazy = true),
          MATCH_IN("on_true", "switch", "*", .lazy = true)),
      OUTS(MATCH_OUT("output", "switch")), .run = switch_run, .lazy = switch_lazy);

/* ---- not, and, or ---- */

static berth_status not_run(struct node_call *c, berth_err *err)
{
    const struct value *v = in_value(c, "value");
    bool truth = false;
    if (v && value_truth(c, v, &truth, err))
        return err->code;
    return out_value(c, 0, value_bool(!truth), err);
}

/* own: the truth that decides at once. */
static const bool decides_and = false, decides_or = true;

static berth_status all_run(struct node_call *c, berth_err *err)
{
    bool decides = *(const bool *)c->cls->own, truth = !decides;
    const struct values *v;
    for (size_t at = 0; truth != decides && (v = in_member(c, "values", &at, NULL));)
        if (value_truth(c, v->at[0], &truth, err))
            return err->code;
    return out_value(c, 0, value_bool(truth), err);
}

#define VALUES_IN AUTOGROW_IN("values", "value", 1, 10, SOCKET("value", "*"))
LOGIC(ComfyNotNode, "Not", .flags = NODE_V3, INS(SOCKET("value", "*")), OUT_OF("BOOLEAN"),
      .run = not_run);
LOGIC(ComfyAndNode, "And", .flags = NODE_V3, INS(VALUES_IN), OUT_OF("BOOLEAN"), .run = all_run,
      .own = &decides_and);
LOGIC(ComfyOrNode, "Or", .flags = NODE_V3, INS(VALUES_IN), OUT_OF("BOOLEAN"), .run = all_run,
      .own = &decides_or);

/* ---- CustomCombo: people write its choices in the browser, and it sends which one it was ---- */

static berth_status any_choice(const struct node_check *k, berth_err *err)
{
    (void)k;
    (void)err;
    return BERTH_OK;
}

static berth_status custom_run(struct node_call *c, berth_err *err)
{
    struct value *v = in_value(c, "choice");
    const json_t *index = json_object_get(c->raw, "index");
    struct value *at = index && !json_is_array(index) ? value_from_json(index) : value_int(0);
    berth_status s = out_value(c, 0, v ? value_ref(v) : value_string("", 0), err);
    if (s) {
        value_unref(at);
        return s;
    }
    return out_value(c, 1, at, err);
}

NODE_CLASS(CustomCombo, .display = "Custom Combo", .category = "utilities", .module = MOD("logic"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL | NODE_ANY_INPUT,
           INS(COMBO_IN("choice", (const char *const[]) { NULL })),
           OUTS({ .type = "STRING" }, { .type = "INT", .name = "INDEX" }), .run = custom_run,
           .validate = any_choice, .validates = "choice");

/* ---- CreateList ---- */

static berth_status list_run(struct node_call *c, berth_err *err)
{
    const struct values *v;
    berth_status s = BERTH_OK;
    for (size_t at = 0; !s && (v = in_member(c, "inputs", &at, NULL));)
        for (size_t i = 0; i < v->n && !s; i++)
            s = out_value(c, 0, value_ref(v->at[i]), err);
    return s;
}

NODE_CLASS(CreateList, .display = "Create List", .category = "utilities", .module = MOD("toolkit"),
           .flags = NODE_V3 | NODE_INPUT_IS_LIST,
           INS(AUTOGROW_IN("inputs", "input", 1, 10, MATCH_IN("input", "type", "*"))),
           OUTS({ .type = NODE_MATCH, .name = "list", .match = "type", .is_list = true }),
           .run = list_run);
