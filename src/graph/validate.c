/* validate: may this prompt run, and which of its outputs.
 *
 * Every node that an output needs is looked at once: state NEW -> OPEN (on the stack) -> GOOD or
 * BAD. Its inputs are taken in declared order; a link to a NEW node suspends the node and looks at
 * that one first. A link to an OPEN node closes a cycle: every node on it gets an error that shows
 * the way around. Where Python would raise an exception in the middle of a node
 * (a link to nowhere, a node without inputs), the check of that node ends, and this replaces its
 * other errors. */
#include "graph/graph_impl.h"

/* Combos of model folders can have thousands of choices: answers show them until this many in all,
 * then input_config is null. */
#define CHOICES_SHOWN_MAX 100000
#define CHOICES_QUOTED_MAX 20 /* ComfyUI's */

struct frame {
    size_t node, in;
    bool good;
    size_t looped; /* frames from here down to this one, counted from 1, are on cycles; 0: not */
};

struct choices {                 /* of a combo whose list is not in the class */
    const struct node_input *in; /* its key */
    struct names names;
};

struct check {
    const struct node_env *env;
    struct workflow wf;
    struct checked *node;
    struct vec stack;   /* struct frame */
    struct map choices; /* address of the node_input -> struct choices */
    struct arena mem;   /* those */
    size_t shown;       /* choices in answers so far */
    const char *raised; /* exception type; NULL: none */
    struct str raised_text;
    bool cycle;
    berth_err *err;
};

enum step { NEXT, DESCEND, RAISED, FAILED };

static enum step no_memory(struct check *c)
{
    err_set(c->err, BERTH_ENOMEM, "validating a prompt of %zu nodes", c->wf.n);
    return FAILED;
}

/* ---- errors of a node ---- */

/* Adds an error to a node; takes it. */
static enum step add_error(struct check *c, size_t node, json_t *reason)
{
    if (!c->node[node].errors)
        c->node[node].errors = json_array();
    return json_array_append_new(c->node[node].errors, reason) ? no_memory(c) : NEXT;
}

/* cfg of an answer: [type, options], always both, or null when answers have shown enough. */
static berth_status input_config(struct check *c, const struct node_class *cls,
                                 const struct node_input *in, json_t **out)
{
    *out = NULL;
    if (c->shown < CHOICES_SHOWN_MAX) {
        berth_status s = node_input_spec(c->env, cls, in, out, c->err);
        if (s == BERTH_ENOMEM)
            return s;
        if (s) /* a folder that cannot be listed: the error is reported without it */
            *out = json_null();
        if (json_array_size(*out) == 1 && json_array_append_new(*out, json_object())) {
            json_decref(*out);
            *out = NULL;
            return err_set(c->err, BERTH_ENOMEM, "configuration of '%s'", in->name);
        }
        const json_t *listed = json_array_get(*out, 0);
        if (!json_is_array(listed))
            listed = json_object_get(json_array_get(*out, 1), "options");
        c->shown += 1 + json_array_size(listed);
    } else {
        *out = json_null();
    }
    return BERTH_OK;
}

/* {"input_name", "input_config", "received_value"}; NULL: out of memory, err is set. */
static json_t *input_extra(struct check *c, const struct wf_node *n, const struct node_input *in,
                           bool config, json_t *received)
{
    json_t *cfg = json_null();
    if (config && input_config(c, n->cls, in, &cfg))
        return NULL;
    return json_pack("{s:s,s:o,s:O*}", "input_name", in->name, "input_config", cfg,
                     "received_value", received);
}

/* extra with the members of `more`; takes both. NULL: out of memory, also when one of them is. */
static json_t *extend(json_t *extra, json_t *more)
{
    if (!json_object_update_new(extra, more))
        return extra;
    json_decref(extra);
    return NULL;
}

static enum step raise(struct check *c, const char *type)
{
    c->raised = type;
    return c->raised_text.bad ? no_memory(c) : RAISED;
}

/* ---- links ---- */

static size_t type_part(const char **s)
{
    while (**s == ' ')
        ++*s;
    size_t n = strcspn(*s, ",");
    while (n && (*s)[n - 1] == ' ')
        n--;
    return n;
}

static bool any_type(const char *s, size_t n)
{
    return str_eq(s, n, "*");
}

/* Comma lists with a common member, or a "*" in one of them. */
static bool types_meet(const char *a, const char *b)
{
    for (const char *p = a; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        size_t pn = type_part(&p);
        for (const char *q = b; q; q = strchr(q, ',') ? strchr(q, ',') + 1 : NULL) {
            size_t qn = type_part(&q);
            if (any_type(p, pn) || any_type(q, qn) || (pn == qn && memcmp(p, q, pn) == 0))
                return true;
        }
    }
    return false;
}

static bool type_fits(const char *received, const struct node_input *in)
{
    static const char *const name[] = {
        [IN_INT] = "INT",         [IN_FLOAT] = "FLOAT", [IN_STRING] = "STRING",
        [IN_BOOLEAN] = "BOOLEAN", [IN_COMBO] = "COMBO", [IN_DYNCOMBO] = "COMFY_DYNAMICCOMBO_V3"
    };
    const char *wanted = in->type ? in->type : name[in->kind];
    return strcmp(received, NODE_MATCH) == 0 || strcmp(wanted, NODE_MATCH) == 0 ||
           types_meet(received, wanted);
}

static enum step type_mismatch(struct check *c, size_t node, const struct node_input *in,
                               const char *received, json_t *link)
{
    json_t *extra = extend(input_extra(c, &c->wf.node[node], in, true, NULL),
                           json_pack("{s:s,s:O}", "received_type", received, "linked_node", link));
    const json_t *type = json_array_get(json_object_get(extra, "input_config"), 0);
    struct str text = { 0 };
    str_addf(&text, "%s, received_type(%s) mismatch input_type(", in->name, received);
    if (type)
        py_str(type, &text);
    else
        str_adds(&text, in->type ? in->type : "COMBO");
    str_addc(&text, ')');
    return add_error(c, node,
                     reason_new("return_type_mismatch",
                                json_string("Return type mismatch between linked nodes"),
                                js_take(&text), extra));
}

/* The node a link names, as Python's prompt[id] would find it. */
static enum step link_source(struct check *c, const json_t *id, size_t *from)
{
    switch (js_kind(id)) {
    case JS_ARRAY:
    case JS_OBJECT:
        str_addf(&c->raised_text, "unhashable type: '%s'", py_type(id));
        return raise(c, "TypeError");
    case JS_STRING:
        *from = workflow_find(&c->wf, json_string_value(id));
        if (*from != SIZE_MAX)
            return NEXT;
        break;
    default:
        break;
    }
    py_repr(id, &c->raised_text);
    return raise(c, "KeyError");
}

/* RETURN_TYPES[slot]: a list in newer nodes, a tuple in older ones. Python would count from the end
 * for negative slots; no client sends them, and here they are out of range. */
static enum step link_type(struct check *c, const struct node_class *cls, const json_t *slot,
                           const char **type)
{
    const char *what = cls->flags & NODE_V3 ? "list" : "tuple";
    uint64_t i;
    enum js_kind kind = js_kind(slot);
    if (kind == JS_BOOL) { /* an int in Python */
        i = json_is_true(slot);
    } else if (kind != JS_I64 && kind != JS_U64) {
        str_addf(&c->raised_text, "%s indices must be integers or slices, not %s", what,
                 py_type(slot));
        return raise(c, "TypeError");
    } else if (!js_get_u64(slot, &i)) {
        i = UINT64_MAX;
    }
    if (i >= cls->outs) {
        str_addf(&c->raised_text, "%s index out of range", what);
        return raise(c, "IndexError");
    }
    *type = cls->out[i].type;
    return NEXT;
}

/* ---- cycles ---- */

#define CYCLE_SHOWN_MAX 32 /* nodes of a cycle that its errors name */

static struct frame *frame_at(const struct check *c, size_t i)
{
    return vec_at(&c->stack, i);
}

/* What all nodes of the cycle from frame `first` to the top are told: the way around, and their
 * ids. False: out of memory. */
static bool cycle_words(const struct check *c, size_t first, json_t **path, json_t **ids)
{
    struct str text = { 0 };
    size_t n = c->stack.n - first;
    bool ok = true;
    *ids = json_array();
    for (size_t i = 0; i <= n; i++) {
        const struct wf_node *node = &c->wf.node[frame_at(c, first + i % n)->node];
        if (i == CYCLE_SHOWN_MAX && i < n) {
            str_addf(&text, " -> (%zu more)", n - i);
            i = n - 1;
            continue;
        }
        str_addf(&text, "%s%s (%s)", i ? " -> " : "", node->id, node->cls->name);
        ok = ok && (i == n || !json_array_append_new(*ids, json_string_nocheck(node->id)));
    }
    *path = js_take(&text);
    return ok && *ids && *path;
}

static enum step add_cycle(struct check *c, size_t node, json_t *path, json_t *ids)
{
    json_t *extra = json_pack("{s:s,s:O}", "node_id", c->wf.node[node].id, "cycle_nodes", ids);
    json_t *reason = reason_new("dependency_cycle", json_string("Dependency cycle detected"),
                                json_incref(path), extra);
    if (!c->node[node].errors)
        c->node[node].errors = json_array();
    return json_array_insert_new(c->node[node].errors, 0, reason) ? no_memory(c) : NEXT;
}

/* The top of the stack wants `node`, which is on it. Each node is told of one cycle. */
static enum step close_cycle(struct check *c, size_t node)
{
    size_t first = c->node[node].frame, top = c->stack.n - 1;
    json_t *path = NULL, *ids = NULL;
    c->cycle = true;
    if (frame_at(c, top)->looped && frame_at(c, top)->looped <= first + 1)
        return NEXT;
    enum step s = cycle_words(c, first, &path, &ids) ? NEXT : no_memory(c);
    for (size_t i = top + 1; i > first && s == NEXT;) {
        struct frame *f = frame_at(c, i - 1);
        if (f->looped) { /* and so are those below it, which are passed over */
            i = f->looped - 1;
        } else {
            s = add_cycle(c, f->node, path, ids);
            i--;
        }
        f->looped = f->looped && f->looped <= first ? f->looped : first + 1;
    }
    json_decref(path);
    json_decref(ids);
    return s;
}

static enum step check_link(struct check *c, struct frame *f, const struct node_input *in,
                            json_t *v, size_t *descend)
{
    const struct wf_node *n = &c->wf.node[f->node];
    if (json_array_size(v) != 2) {
        json_t *message =
            json_string("Bad linked input, must be a length-2 list of [node_id, slot_index]");
        return add_error(c, f->node,
                         reason_new("bad_linked_input", message, json_string(in->name),
                                    input_extra(c, n, in, true, v)));
    }
    size_t from = SIZE_MAX;
    const char *type = NULL;
    enum step s = link_source(c, json_array_get(v, 0), &from);
    if (s == NEXT)
        s = link_type(c, c->wf.node[from].cls, json_array_get(v, 1), &type);
    if (s != NEXT)
        return s;
    if (!(n->cls->flags & NODE_CHECKS_TYPES) && !type_fits(type, in))
        return type_mismatch(c, f->node, in, type, v);
    switch (c->node[from].state) {
    case CHECK_NEW:
        *descend = from;
        return DESCEND;
    case CHECK_OPEN:
        f->good = false;
        return close_cycle(c, from);
    case CHECK_BAD:
        f->good = false;
        break;
    case CHECK_GOOD:
        break;
    }
    return NEXT;
}

/* ---- constants ---- */

static const char *kind_name(enum input_kind k)
{
    return k == IN_INT ? "INT" : k == IN_FLOAT ? "FLOAT" : k == IN_STRING ? "STRING" : "BOOLEAN";
}

static void add_int(node_int i, struct str *out)
{
    json_t *v = js_int(i);
    out->bad |= !v;
    if (v)
        js_write(v, 0, out);
    json_decref(v);
}

/* "Value 5 smaller than min of 16"; number: as Python prints it. */
static enum step range_error(struct check *c, size_t node, const struct node_input *in, bool small,
                             const char *number, json_t *received)
{
    json_t *extra = input_extra(c, &c->wf.node[node], in, true, received);
    const json_t *limit = json_object_get(json_array_get(json_object_get(extra, "input_config"), 1),
                                          small ? "min" : "max");
    struct str message = { 0 };
    str_addf(&message, "Value %s %s of ", number, small ? "smaller than min" : "bigger than max");
    if (limit)
        py_str(limit, &message);
    else if (in->kind == IN_FLOAT)
        py_repr_f64(small ? in->fmin : in->fmax, &message);
    else
        add_int(small ? in->imin : in->imax, &message);
    const char *type = small ? "value_smaller_than_min" : "value_bigger_than_max";
    return add_error(c, node, reason_new(type, js_take(&message), json_string(in->name), extra));
}

static enum step conversion_error(struct check *c, size_t node, const struct node_input *in,
                                  json_t *v, const struct conversion *conv)
{
    const char *why = conv->outcome == CONVERT_REFUSED ? str_c(&conv->text)
                      : in->kind == IN_INT             ? "Python int too large to convert to C long"
                                                       : "value too large for a float";
    json_t *extra = extend(input_extra(c, &c->wf.node[node], in, true, v),
                           json_pack("{s:o}", "exception_message", js_text(why, strlen(why))));
    struct str text = { 0 };
    str_addf(&text, "%s, ", in->name);
    py_str(v, &text);
    str_adds(&text, ", ");
    str_adds(&text, why);
    json_t *message =
        js_textf("Failed to convert an input value to a %s value", kind_name(in->kind));
    return add_error(c, node, reason_new("invalid_input_type", message, js_take(&text), extra));
}

/* min, then max. *said: there was an error. */
static enum step check_range(struct check *c, size_t node, const struct node_input *in, json_t *v,
                             bool *said)
{
    bool small = false, big = false;
    double f;
    node_int i;
    if (in->kind == IN_INT && !in->no_range && js_get_int(v, &i)) {
        small = i < in->imin;
        big = i > in->imax;
    } else if (in->kind == IN_FLOAT && !in->no_range && js_get_f64(v, &f)) {
        small = f < in->fmin;
        big = f > in->fmax;
    }
    *said = small || big;
    if (!*said)
        return NEXT;
    struct str number = { 0 };
    py_str(v, &number);
    enum step s = number.bad ? no_memory(c) : range_error(c, node, in, small, str_c(&number), v);
    str_release(&number);
    return s;
}

/* The choices of a folder or a function, read once per prompt; those in the class are just
 * there. */
static berth_status choices_of(struct check *c, const struct node_input *in,
                               const struct names **out)
{
    uint64_t known = 0;
    if (map_get(&c->choices, (const char *)&in, sizeof in, &known)) {
        *out = &((struct choices *)(uintptr_t)known)->names;
        return BERTH_OK;
    }
    struct choices *ch = arena_alloc(&c->mem, sizeof *ch);
    if (ch)
        ch->in = in;
    if (!ch || map_add(&c->choices, (const char *)&ch->in, sizeof ch->in,
                       (uint64_t)(uintptr_t)ch) != MAP_ADDED)
        return err_set(c->err, BERTH_ENOMEM, "choices of '%s'", in->name);
    *out = &ch->names;
    berth_status s = node_options(c->env, in, &ch->names, c->err);
    if (s)
        map_del(&c->choices, (const char *)&ch->in, sizeof ch->in);
    return s;
}

static bool is_choice(const json_t *v, const char *const *choice, size_t n)
{
    for (size_t i = 0; i < n && js_kind(v) == JS_STRING; i++)
        if (str_eq(json_string_value(v), json_string_length(v), choice[i]))
            return true;
    return false;
}

static enum step not_in_list(struct check *c, size_t node, const struct node_input *in, json_t *v,
                             const char *const *choice, size_t n)
{
    struct str text = { 0 };
    str_addf(&text, "%s: ", in->name);
    if (!in->multiselect || !json_is_array(v))
        py_repr(v, &text);
    for (size_t i = 0, said = 0; in->multiselect && i < json_array_size(v); i++) {
        if (is_choice(json_array_get(v, i), choice, n))
            continue;
        str_adds(&text, said++ ? ", " : "");
        py_repr(json_array_get(v, i), &text);
    }
    str_adds(&text, " not in ");
    if (n > CHOICES_QUOTED_MAX) {
        str_addf(&text, "(list of length %zu)", n);
    } else {
        str_addc(&text, '[');
        for (size_t i = 0; i < n; i++) {
            str_adds(&text, i ? ", " : "");
            py_repr_text(choice[i], strlen(choice[i]), SIZE_MAX, &text);
        }
        str_addc(&text, ']');
    }
    json_t *extra = input_extra(c, &c->wf.node[node], in, n <= CHOICES_QUOTED_MAX, v);
    return add_error(
        c, node,
        reason_new("value_not_in_list", json_string("Value not in list"), js_take(&text), extra));
}

/* A choice, or, where several may be given, a list of them. */
static bool is_chosen(const struct node_input *in, const json_t *v, const char *const *choice,
                      size_t n)
{
    if (!in->multiselect || !json_is_array(v))
        return is_choice(v, choice, n);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!is_choice(json_array_get(v, i), choice, n))
            return false;
    return true;
}

static enum step check_combo(struct check *c, size_t node, const struct node_input *in, json_t *v)
{
    const char *const *choice = in->options;
    size_t n = 0;
    if (choice) {
        while (choice[n])
            n++;
    } else {
        const struct names *names = NULL;
        berth_status s = choices_of(c, in, &names);
        if (s == BERTH_ENOMEM)
            return FAILED;
        if (s) { /* as if INPUT_TYPES() had raised it */
            str_adds(&c->raised_text, c->err->msg);
            return raise(c, node_exception(s));
        }
        choice = (const char *const *)names->at;
        n = names->n;
    }
    return is_chosen(in, v, choice, n) ? NEXT : not_in_list(c, node, in, v, choice, n);
}

static bool validator_owns(const struct node_class *cls, const struct node_input *in)
{
    return cls->validate && cls->validates && strcmp(cls->validates, in->name) == 0;
}

static enum step check_constant(struct check *c, size_t node, const struct node_input *in,
                                json_t *stored)
{
    const struct wf_node *n = &c->wf.node[node];
    json_t *v = workflow_constant(stored);
    struct conversion conv;
    if (py_convert(in->kind, v, &conv, c->err)) {
        conversion_release(&conv);
        return FAILED;
    }
    enum step s = NEXT;
    bool owned = validator_owns(n->cls, in), said = false;
    bool ranged = (in->kind == IN_INT || in->kind == IN_FLOAT) && !in->no_range && !owned;
    if (conv.outcome == CONVERT_OK) {
        /* Kept as [...] it would be a link for the next reader: arrays stay wrapped. */
        json_t *store = conv.value ? conv.value : json_is_array(v) ? stored : v;
        json_incref(store); /* v may live inside what is replaced */
        if (store != stored && json_object_set_nocheck(n->inputs, in->name, store))
            s = no_memory(c);
        v = conv.value ? conv.value : v; /* the old one may be gone by now */
        if (s == NEXT && !owned)
            s = check_range(c, node, in, v, &said);
        if (s == NEXT && !owned && !said && (in->kind == IN_COMBO || in->kind == IN_DYNCOMBO))
            s = check_combo(c, node, in, v);
        json_decref(store);
    } else if (conv.outcome == CONVERT_REFUSED || !ranged) {
        s = conversion_error(c, node, in, v, &conv);
    } else {
        s = range_error(c, node, in, conv.outcome == CONVERT_SMALL, str_c(&conv.text), v);
    }
    conversion_release(&conv);
    return s;
}

/* ---- a node ---- */

static enum step missing_input(struct check *c, size_t node, const struct node_input *in)
{
    const char *dot = c->wf.node[node].cls->flags & NODE_V3 ? strrchr(in->name, '.') : NULL;
    return add_error(c, node,
                     reason_new("required_input_missing", json_string("Required input is missing"),
                                json_string(dot ? dot + 1 : in->name),
                                json_pack("{s:s}", "input_name", in->name)));
}

/* Python's `name in v`, of a list and of a text. */
static bool is_in(const char *name, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *x = json_array_get(v, i);
        if (js_kind(x) == JS_STRING && strcmp(json_string_value(x), name) == 0)
            return true;
    }
    return js_kind(v) == JS_STRING && strstr(json_string_value(v), name);
}

/* What Python says when "inputs" is not there, or is no object. In a list or a text it can look for
 * names, so that required ones are missing; one that it finds cannot be taken out. Nothing found
 * and nothing missing, it would run the node without inputs: no client sends that, and we refuse
 * it. */
static enum step no_inputs(struct check *c, size_t node)
{
    const struct wf_node *n = &c->wf.node[node];
    const json_t *v = json_object_get(n->json, "inputs");
    if (!v) {
        str_adds(&c->raised_text, "'inputs'");
        return raise(c, "KeyError");
    }
    bool list = json_is_array(v) || js_kind(v) == JS_STRING, found = false;
    for (size_t i = 0; list && !found && i < n->ins; i++) {
        found = is_in(n->in[i].name, v);
        if (!found && !n->in[i].optional && missing_input(c, node, &n->in[i]) == FAILED)
            return FAILED;
    }
    if (list && !found && c->node[node].errors)
        return NEXT;
    if (json_is_array(v))
        str_adds(&c->raised_text, "list indices must be integers or slices, not str");
    else if (js_kind(v) == JS_STRING)
        str_adds(&c->raised_text, "string indices must be integers, not 'str'");
    else
        str_addf(&c->raised_text, "argument of type '%s' is not iterable", py_type(v));
    return raise(c, "TypeError");
}

/* The class's own validator; it wants the input it is about as a constant. */
static enum step custom(struct check *c, size_t node)
{
    const struct wf_node *n = &c->wf.node[node];
    const char *x = n->cls->validates;
    struct node_check k = { .env = c->env, .cls = n->cls, .id = n->id, .inputs = n->inputs };
    if (!n->cls->validate || (x && !check_input(&k, x)))
        return NEXT;
    berth_err why = { 0 };
    k.refused = &x;
    berth_status s = n->cls->validate(&k, &why);
    if (s == BERTH_OK)
        return NEXT;
    if (s == BERTH_ENOMEM) {
        *c->err = why;
        return FAILED;
    }
    c->node[node].no_device = why.device[0];
    json_t *details = js_textf("%s%s%s", x ? x : "", x && why.msg[0] ? " - " : "", why.msg);
    return add_error(c, node,
                     reason_new("custom_validation_failed",
                                json_string("Custom validation failed for node"), details,
                                json_pack("{s:s?}", "input_name", x)));
}

/* Goes on with the node on top of the stack until it is done or wants another one first. */
static enum step node_step(struct check *c, struct frame *f, size_t *descend)
{
    const struct wf_node *n = &c->wf.node[f->node];
    if (!n->inputs)
        return no_inputs(c, f->node);
    for (; f->in < n->ins; f->in++) {
        const struct node_input *in = &n->in[f->in];
        json_t *v = json_object_get(n->inputs, in->name);
        enum step s = NEXT;
        if (!v && !in->optional)
            s = missing_input(c, f->node, in);
        else if (json_is_array(v))
            s = check_link(c, f, in, v, descend);
        else if (v)
            s = check_constant(c, f->node, in, v);
        if (s != NEXT)
            return s;
    }
    return custom(c, f->node);
}

#define TRACE_MAX 32 /* nodes; nearest to the one that raised it */

/* How validation came to the node: an output first, as Python has the latest call last. NULL: out
 * of memory. */
static json_t *traceback(const struct check *c, size_t node)
{
    json_t *trace = json_array();
    size_t n = c->stack.n;
    for (size_t i = n > TRACE_MAX ? n - TRACE_MAX : 0; i < n; i++) {
        const struct frame *f = vec_at(&c->stack, i);
        const struct wf_node *from = &c->wf.node[f->node];
        if (!trace_add(trace, from, from->in[f->in].name))
            break;
    }
    if (trace_add(trace, &c->wf.node[node], NULL))
        return trace;
    json_decref(trace);
    return NULL;
}

/* Replaces the node's errors by the exception. `down`: the frame whose link led here, or NULL. */
static enum step exception(struct check *c, size_t node, const struct frame *down)
{
    json_t *text = js_text(str_c(&c->raised_text), c->raised_text.n), *extra;
    const char *type = "exception_during_validation", *message = "Exception when validating node";
    if (down) {
        const struct wf_node *n = &c->wf.node[down->node];
        const struct node_input *in = &n->in[down->in];
        extra = extend(input_extra(c, n, in, true, NULL),
                       json_pack("{s:O,s:s,s:o,s:O}", "exception_message", text, "exception_type",
                                 c->raised, "traceback", traceback(c, node), "linked_node",
                                 json_object_get(n->inputs, in->name)));
        type = "exception_during_inner_validation";
        message = "Exception when validating inner node";
    } else {
        extra =
            json_pack("{s:s,s:o}", "exception_type", c->raised, "traceback", traceback(c, node));
    }
    json_decref(c->node[node].errors);
    c->node[node].errors = NULL;
    c->raised = NULL;
    str_clear(&c->raised_text);
    return add_error(c, node, reason_new(type, json_string(message), text, extra));
}

static enum step open_node(struct check *c, size_t node)
{
    c->node[node].state = CHECK_OPEN;
    c->node[node].frame = c->stack.n;
    return vec_push(&c->stack, &(struct frame) { .node = node, .good = true }) ? NEXT
                                                                               : no_memory(c);
}

/* Everything upstream of an output, and the output itself. */
static berth_status check_tree(struct check *c, size_t output)
{
    if (c->node[output].state == CHECK_NEW && open_node(c, output) == FAILED)
        return c->err->code;
    while (c->stack.n) {
        struct frame *f = vec_at(&c->stack, c->stack.n - 1);
        size_t node = f->node, descend = SIZE_MAX;
        enum step s = node_step(c, f, &descend);
        if (s == DESCEND) { /* the one below stays at its input and looks again later */
            if (open_node(c, descend) == FAILED)
                return c->err->code;
            continue;
        }
        if (s == FAILED)
            return c->err->code;
        bool good = f->good && s == NEXT && !c->node[node].errors;
        vec_pop(&c->stack);
        struct frame *down = c->stack.n ? vec_at(&c->stack, c->stack.n - 1) : NULL;
        if (s == RAISED && exception(c, node, down) == FAILED)
            return c->err->code;
        c->node[node].state = good ? CHECK_GOOD : CHECK_BAD;
        if (doom_add(c->node, c->env, &c->wf, node, good, c->err))
            return c->err->code;
    }
    return BERTH_OK;
}

/* ---- the answer ---- */

static berth_status refuse(struct validation *out, json_t *message, berth_err *err)
{
    return validation_refuse(out, "invalid_prompt", message, json_string(""), err);
}

static berth_status refuse_no_outputs(struct validation *out, berth_err *err)
{
    return validation_refuse(out, "prompt_no_outputs", json_string("Prompt has no outputs"),
                             json_string(""), err);
}

static berth_status refuse_node(struct validation *out, json_t *message, const char *id,
                                berth_err *err)
{
    return validation_refuse(out, "invalid_prompt", message, js_textf("Node ID '#%s'", id), err);
}

/* A node without a class, or of one that is not there. */
static berth_status refuse_class(struct validation *out, const struct wf_node *n, berth_err *err)
{
    json_t *title = json_object_get(json_object_get(n->json, "_meta"), "title");
    struct str text = { 0 };
    str_adds(&text, "Node '");
    if (n->class_type) {
        title = title ? title : (json_t *)(uintptr_t)n->class_type;
        py_str(title, &text);
        str_adds(&text, "' not found. The custom node may not be installed.");
    } else {
        if (py_truth(title))
            py_str(title, &text);
        else
            str_addf(&text, "ID #%s", n->id);
        str_adds(&text, "' has no class_type. The workflow may be corrupted or a custom node is "
                        "missing.");
    }
    json_t *extra = json_pack("{s:s,s:O?,s:O?}", "node_id", n->id, "class_type", n->class_type,
                              "node_title", title);
    out->error =
        reason_new("missing_node_type", js_take(&text), js_textf("Node ID '#%s'", n->id), extra);
    return out->error ? BERTH_OK : err_set(err, BERTH_ENOMEM, "refusing a prompt");
}

/* A1, A2 and the limits: the first node that cannot even be looked at. */
static berth_status check_nodes(const struct workflow *w, struct validation *out, berth_err *err)
{
    for (size_t i = 0; i < w->n; i++) {
        const struct wf_node *n = &w->node[i];
        if (strlen(n->id) > GRAPH_ID_MAX)
            return refuse_node(out,
                               js_textf("Cannot execute because a node id is %zu bytes long; at "
                                        "most %d are taken.",
                                        strlen(n->id), GRAPH_ID_MAX),
                               n->id, err);
        if (!n->cls)
            return refuse_class(out, n, err);
        if (json_object_size(n->inputs) > GRAPH_INPUTS_MAX)
            return refuse_node(out,
                               js_textf("Cannot execute because a node has %zu inputs; at most %d "
                                        "are taken.",
                                        json_object_size(n->inputs), GRAPH_INPUTS_MAX),
                               n->id, err);
    }
    return BERTH_OK;
}

/* Marks the outputs that are asked for; refuses a prompt without any. */
static berth_status find_outputs(struct check *c, const json_t *targets, struct validation *out)
{
    const struct workflow *w = &c->wf;
    bool all = !targets || json_is_null(targets), some = false;
    if (!all && !json_is_array(targets))
        return refuse(out, js_textf("partial_execution_targets must be a list of node ids."),
                      c->err);
    for (size_t i = 0; !all && i < json_array_size(targets); i++) {
        const json_t *id = json_array_get(targets, i);
        size_t node = js_kind(id) == JS_STRING ? workflow_find(w, json_string_value(id)) : SIZE_MAX;
        if (node != SIZE_MAX)
            c->node[node].wanted = true;
    }
    for (size_t i = 0; i < w->n; i++) {
        c->node[i].wanted = (all || c->node[i].wanted) && w->node[i].cls->flags & NODE_OUTPUT;
        some = some || c->node[i].wanted;
    }
    return some ? BERTH_OK : refuse_no_outputs(out, c->err);
}

static void check_release(struct check *c)
{
    for (size_t i = 0; c->node && i < c->wf.n; i++) {
        json_decref(c->node[i].errors);
        json_decref(c->node[i].why);
    }
    const char *key;
    size_t len;
    uint64_t ch;
    for (size_t it = 0; map_next(&c->choices, &it, &key, &len, &ch);)
        names_release(&((struct choices *)(uintptr_t)ch)->names);
    map_release(&c->choices);
    arena_release(&c->mem);
    vec_release(&c->stack);
    str_release(&c->raised_text);
    workflow_release(&c->wf);
    *c = (struct check) { 0 };
}

static berth_status validate(struct check *c, json_t *prompt, const json_t *targets,
                             struct validation *out)
{
    berth_err *err = c->err;
    berth_status s = graph_replace(c->env, prompt, err);
    if (!s)
        s = workflow_load(c->env, prompt, &c->wf, err);
    if (s)
        return s;
    size_t n = c->wf.n;
    c->node = arena_array(&c->mem, n, sizeof *c->node);
    if (!c->node)
        return err_set(err, BERTH_ENOMEM, "validating a prompt of %zu nodes", n);
    s = check_nodes(&c->wf, out, err);
    if (!s && !out->error)
        s = find_outputs(c, targets, out);
    if (s || out->error)
        return s;
    for (size_t i = 0; i < n; i++)
        if (c->node[i].wanted && check_tree(c, i))
            return err->code;
    if (doom_judge(c->node, &c->wf, err))
        return err->code;
    for (size_t i = 0; i < c->wf.n; i++)
        if (c->node[i].no_device && /* a hint, no more: without memory it is not given */
            json_object_set_new_nocheck(out->no_device, c->wf.node[i].id, json_true()))
            break;
    return verdict_answer(&c->wf, c->node, c->cycle, out, err);
}

berth_status graph_validate(const struct node_env *env, json_t *prompt, const json_t *targets,
                            struct validation *out, berth_err *err)
{
    *out = (struct validation) { .node_errors = json_object(),
                                 .outputs = json_array(),
                                 .no_device = json_object() };
    berth_status s = BERTH_OK;
    if (!out->node_errors || !out->outputs || !out->no_device)
        s = err_set(err, BERTH_ENOMEM, "validating a prompt");
    else if (json_is_array(prompt)) /* Python finds no node in it */
        return refuse_no_outputs(out, err);
    else if (!json_is_object(prompt))
        return refuse(out, js_textf("Cannot execute because the prompt is not an object."), err);
    else if (workflow_is_editors(prompt)) /* else "nodes" would be a node without a class */
        return refuse(out, js_textf("Cannot execute: " WORKFLOW_OF_EDITOR), err);
    else if (json_object_size(prompt) > GRAPH_NODES_MAX)
        return refuse(out,
                      js_textf("Cannot execute because the prompt has %zu nodes; at most %d are "
                               "taken.",
                               json_object_size(prompt), GRAPH_NODES_MAX),
                      err);
    if (!s) {
        struct check c = { .env = env, .stack.elem = sizeof(struct frame), .err = err };
        s = validate(&c, prompt, targets, out);
        check_release(&c);
    }
    if (s)
        validation_release(out);
    return s;
}
