/* dynamic.c: inputs made of others, as the plain inputs that one node of a prompt has.
 *
 * A class says IN_DYNCOMBO "mode"; a prompt has "mode": "scale" and "mode.factor": 2. What comes
 * out are two plain inputs of these names: validation, keys and calls are about nothing else. */
#include "node/node_impl.h"

#include <string.h>

struct growing { /* the list that is made */
    struct arena *mem;
    const json_t *given;
    struct vec in; /* struct node_input */
};

static bool add(struct growing *g, const struct node_input *in, const char *name, bool optional)
{
    struct node_input plain = *in;
    plain.name = name;
    plain.optional = optional;
    plain.lazy = in->lazy && !strchr(name, '.'); /* laziness goes by names of the class */
    return vec_push(&g->in, &plain);
}

/* "mode.width", of mem; NULL: out of memory. */
static const char *dotted(struct growing *g, const char *prefix, const char *name)
{
    return prefix ? arena_printf(g->mem, "%s.%s", prefix, name) : name;
}

static bool expand(struct growing *g, const struct node_input *in, size_t n, const char *prefix);

static bool expand_choice(struct growing *g, const struct node_input *in, const char *name)
{
    const json_t *key = json_object_get(g->given, name);
    if (!key)
        return true; /* a node that copes without has old prompts which do not name it */
    if (!add(g, in, name, in->optional))
        return false;
    for (size_t i = 0; i < in->choices && js_kind(key) == JS_STRING; i++)
        if (str_eq(json_string_value(key), json_string_length(key), in->choice[i].key))
            return expand(g, in->choice[i].in, in->choice[i].ins, name);
    return true;
}

/* The i-th member, of mem; *end: there is none. */
static const char *member_name(struct growing *g, const struct node_input *in, const char *group,
                               size_t i, bool *end)
{
    *end = in->members ? !in->members[i] : i >= in->max;
    if (*end)
        return NULL;
    return in->members ? arena_printf(g->mem, "%s.%s", group, in->members[i])
                       : arena_printf(g->mem, "%s.%s%zu", group, in->prefix, i);
}

static bool expand_members(struct growing *g, const struct node_input *in, const char *group)
{
    bool end;
    for (size_t i = 0;; i++) {
        const char *name = member_name(g, in, group, i, &end);
        if (!name)
            return end;
        bool required = i < in->min && !in->sub->optional;
        if ((required || json_object_get(g->given, name)) && !add(g, in->sub, name, !required))
            return false;
    }
}

static bool expand_slot(struct growing *g, const struct node_input *in, const char *name)
{
    return add(g, in, name, true) &&
           (!json_object_get(g->given, name) || expand(g, in->sub, in->subs, name));
}

static bool expand(struct growing *g, const struct node_input *in, size_t n, const char *prefix)
{
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        const char *name = dotted(g, prefix, in[i].name);
        switch (name ? in[i].kind : IN_SOCKET) {
        case IN_DYNCOMBO:
            ok = expand_choice(g, &in[i], name);
            break;
        case IN_AUTOGROW:
            ok = expand_members(g, &in[i], name);
            break;
        case IN_DYNSLOT:
            ok = expand_slot(g, &in[i], name);
            break;
        default:
            ok = name && add(g, &in[i], name, in[i].optional);
        }
    }
    return ok;
}

bool node_input_may_be(const struct node_class *c, const char *name)
{
    size_t n = strcspn(name, ".");
    for (size_t i = 0; i < c->ins; i++)
        if (c->in[i].kind >= IN_DYNCOMBO && str_eq(name, n, c->in[i].name))
            return true;
    return false;
}

static bool is_dynamic(const struct node_class *c)
{
    for (size_t i = 0; i < c->ins; i++)
        if (c->in[i].kind >= IN_DYNCOMBO)
            return true;
    return false;
}

berth_status node_live_inputs(const struct node_class *c, const json_t *inputs, struct arena *mem,
                              struct node_inputs *out, berth_err *err)
{
    *out = (struct node_inputs) { .in = c->in, .n = c->ins };
    if (!is_dynamic(c))
        return BERTH_OK;
    struct growing g = { .mem = mem, .given = inputs, .in.elem = sizeof(struct node_input) };
    bool ok = expand(&g, c->in, c->ins, NULL);
    struct node_input *in = ok ? arena_array(mem, g.in.n ? g.in.n : 1, sizeof *in) : NULL;
    if (in && g.in.n)
        memcpy(in, g.in.p, g.in.n * sizeof *in);
    *out = (struct node_inputs) { .in = in, .n = in ? g.in.n : 0 };
    vec_release(&g.in);
    return in ? BERTH_OK : err_set(err, BERTH_ENOMEM, "inputs of %s", c->name);
}

const struct values *in_member(const struct node_call *c, const char *group, size_t *at,
                               const char **name)
{
    size_t n = strlen(group);
    for (; *at < c->live.n; ++*at) {
        const char *full = c->live.in[*at].name;
        if (strncmp(full, group, n) != 0 || full[n] != '.' || !c->in[*at].n)
            continue;
        if (name)
            *name = full + n + 1;
        return &c->in[(*at)++];
    }
    return NULL;
}
