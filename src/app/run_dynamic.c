/* run_dynamic: --set of inputs that other inputs bring, NODE.sampling_mode.temperature=0.9: which
 * there are follows from what the node has. */
#include "app/run.h"

/* The node's plain inputs if it also had `input`, by the values in `inputs`. */
static const struct node_input *find_live(const struct node_class *c, json_t *inputs,
                                          const char *input, struct arena *mem)
{
    struct node_inputs live = { 0 };
    berth_err unread;
    json_t *with = json_copy(inputs);
    const struct node_input *found = NULL;
    if (with && !json_object_get(with, input))
        json_object_set_new(with, input, json_null());
    if (with && !node_live_inputs(c, with, mem, &live, &unread))
        for (size_t i = 0; i < live.n && !found; i++)
            if (strcmp(live.in[i].name, input) == 0)
                found = &live.in[i];
    json_decref(with);
    return found;
}

/* The input of the class that may bring this one; NULL: none. */
static const struct node_input *group_of(const struct node_class *c, const char *input)
{
    for (size_t i = 0; i < c->ins; i++) {
        size_t n = strlen(c->in[i].name);
        if (c->in[i].kind >= IN_DYNCOMBO && strncmp(c->in[i].name, input, n) == 0 &&
            input[n] == '.')
            return &c->in[i];
    }
    return NULL;
}

/* Does the combo bring it with this choice? */
static bool choice_brings(const struct node_class *c, json_t *inputs, const char *combo,
                          const char *choice, const char *input)
{
    struct arena mem = { 0 };
    json_t *with = json_copy(inputs);
    bool brings = with && !json_object_set_new(with, combo, json_string(choice)) &&
                  find_live(c, with, input, &mem);
    json_decref(with);
    arena_release(&mem);
    return brings;
}

/* "mode.a, mode.b (with mode=x)": all that it may bring. */
static void list_children(const struct node_input *in, struct str *out)
{
    for (size_t i = 0; i < in->choices; i++) {
        for (size_t k = 0; k < in->choice[i].ins; k++)
            str_addf(out, "%s%s.%s", out->n ? ", " : "", in->name, in->choice[i].in[k].name);
        if (in->choice[i].ins)
            str_addf(out, " (with %s=%s)", in->name, in->choice[i].key);
    }
    for (size_t i = 0; in->members && in->members[i] && i < 4; i++)
        str_addf(out, "%s%s.%s", i ? ", " : "", in->name, in->members[i]);
    if (in->kind == IN_AUTOGROW && in->members && in->members[0])
        str_adds(out, ", ...");
    else if (in->kind == IN_AUTOGROW)
        str_addf(out, "%s.%s0 to %s.%s%u", in->name, in->prefix, in->name, in->prefix, in->max - 1);
    for (size_t i = 0; in->kind == IN_DYNSLOT && i < in->subs; i++)
        str_addf(out, "%s%s.%s", i ? ", " : "", in->name, in->sub[i].name);
}

static berth_status unknown_child(const struct node_class *c, const struct node_input *in,
                                  const char *input, berth_err *err)
{
    struct str names = { 0 };
    list_children(in, &names);
    err_set(err, BERTH_EINVAL, "%s has no input '%.80s'; there are %s", c->name, input,
            names.n ? str_c(&names) : "none");
    str_release(&names);
    return err->code;
}

/* The combo has another choice, or none yet: then the first that brings the input is taken. */
static berth_status choose(const struct node_class *c, json_t *inputs, const struct node_input *in,
                           const char *input, berth_err *err)
{
    const char *fits = NULL, *has = json_string_value(json_object_get(inputs, in->name));
    for (size_t i = 0; i < in->choices && !fits; i++)
        if (choice_brings(c, inputs, in->name, in->choice[i].key, input))
            fits = in->choice[i].key;
    if (!fits)
        return unknown_child(c, in, input, err);
    if (json_object_get(inputs, in->name))
        return err_set(err, BERTH_EINVAL,
                       "'%.80s' comes with %s=%s, and the node has %s=%.40s: set %s first", input,
                       in->name, fits, in->name, has ? has : "another value", in->name);
    if (json_object_set_new(inputs, in->name, json_string(fits)))
        return err_set(err, BERTH_ENOMEM, "an input");
    return run_dynamic_fill(c, inputs, in->name, err);
}

berth_status run_dynamic_check(const struct node_class *c, json_t *inputs, const char *input,
                               berth_err *err)
{
    struct arena mem = { 0 };
    const struct node_input *in = group_of(c, input);
    bool live = !in || find_live(c, inputs, input, &mem);
    arena_release(&mem);
    if (live)
        return BERTH_OK;
    return in->kind == IN_DYNCOMBO ? choose(c, inputs, in, input, err)
                                   : unknown_child(c, in, input, err);
}

enum input_kind run_dynamic_kind(const struct node_class *c, json_t *inputs, const char *input)
{
    struct arena mem = { 0 };
    const struct node_input *in = find_live(c, inputs, input, &mem);
    enum input_kind kind = in ? in->kind : IN_SOCKET;
    arena_release(&mem);
    return kind;
}

/* NULL: it has no default that is known here. */
static json_t *default_of(const struct node_input *in)
{
    switch (in->no_default ? IN_SOCKET : in->kind) {
    case IN_INT:
        return in->idef > INT64_MAX ? NULL : json_integer((json_int_t)in->idef);
    case IN_FLOAT:
        return json_real(in->fdef);
    case IN_BOOLEAN:
        return json_boolean(in->bdef);
    case IN_STRING:
        return json_string(in->sdef ? in->sdef : "");
    case IN_COMBO:
        return in->sdef                        ? json_string(in->sdef)
               : in->options && in->options[0] ? json_string(in->options[0])
                                               : NULL;
    case IN_DYNCOMBO:
        return in->choices ? json_string(in->choice[0].key) : NULL;
    default:
        return NULL;
    }
}

/* The first required input of the combo that is not given and has a default; NULL: none. */
static const struct node_input *next_missing(const struct node_class *c, const json_t *inputs,
                                             const char *combo, struct arena *mem)
{
    struct node_inputs live = { 0 };
    size_t n = strlen(combo);
    berth_err unread;
    if (node_live_inputs(c, inputs, mem, &live, &unread))
        return NULL;
    for (size_t i = 0; i < live.n; i++) {
        const struct node_input *in = &live.in[i];
        json_t *def = NULL;
        bool missing = strncmp(in->name, combo, n) == 0 && in->name[n] == '.' && !in->optional &&
                       !json_object_get(inputs, in->name) && (def = default_of(in));
        json_decref(def);
        if (missing)
            return in;
    }
    return NULL;
}

berth_status run_dynamic_fill(const struct node_class *c, json_t *inputs, const char *combo,
                              berth_err *err)
{
    struct arena mem = { 0 };
    const struct node_input *in;
    berth_status s = BERTH_OK;
    while (!s && (in = next_missing(c, inputs, combo, &mem))) /* one less each time */
        if (json_object_set_new(inputs, in->name, default_of(in)))
            s = err_set(err, BERTH_ENOMEM, "an input");
    arena_release(&mem);
    return s;
}
