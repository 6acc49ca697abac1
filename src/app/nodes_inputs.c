/* nodes_inputs: the inputs of a class as --set and prompts name them, those that others bring among
 * them. */
#include "app/nodes_inputs.h"

#define CHOICES_SHOWN 6

struct walk {
    node_inputs_fn *visit;
    void *user;
};

static void walk(const struct walk *w, const struct node_input *in, size_t n, const char *prefix,
                 const char *when);

static void visit(const struct walk *w, const struct node_input *in, const char *name,
                  const char *when)
{
    struct str with = { 0 };
    w->visit(w->user, in, name, when);
    for (size_t i = 0; in->kind == IN_DYNCOMBO && i < in->choices; i++) {
        str_clear(&with);
        str_addf(&with, "%s%s%s=%s", when, *when ? ", " : "", name, in->choice[i].key);
        walk(w, in->choice[i].in, in->choice[i].ins, name, str_c(&with));
    }
    if (in->kind == IN_DYNSLOT) {
        str_addf(&with, "%s%s%s", when, *when ? ", " : "", name);
        walk(w, in->sub, in->subs, name, str_c(&with));
    }
    str_release(&with);
}

static void walk(const struct walk *w, const struct node_input *in, size_t n, const char *prefix,
                 const char *when)
{
    for (size_t i = 0; i < n; i++) {
        struct str name = { 0 };
        str_addf(&name, "%s%s%s", prefix, *prefix ? "." : "", in[i].name);
        if (!in[i].unlisted)
            visit(w, &in[i], str_c(&name), when);
        str_release(&name);
    }
}

void nodes_inputs(const struct node_class *c, node_inputs_fn *visit_, void *user)
{
    const struct walk w = { visit_, user };
    walk(&w, c->in, c->ins, "", "");
}

const char *nodes_input_type(const struct node_input *in)
{
    static const char *const kind[] = {
        [IN_INT] = "INT",         [IN_FLOAT] = "FLOAT", [IN_STRING] = "STRING",
        [IN_BOOLEAN] = "BOOLEAN", [IN_COMBO] = "COMBO", [IN_DYNCOMBO] = "COMBO",
    };
    switch (in->kind) {
    case IN_SOCKET:
        return in->type;
    case IN_AUTOGROW:
        return nodes_input_type(in->sub);
    case IN_DYNSLOT:
        return in->type ? in->type : "*";
    default:
        return kind[in->kind];
    }
}

/* "euler, heun, ... 12 more"; of a folder what it is called. */
static void add_choices(const struct node_input *in, struct str *out)
{
    size_t n = 0;
    for (; in->kind == IN_DYNCOMBO && n < in->choices; n++)
        str_addf(out, "%s%s", n ? ", " : ": ", in->choice[n].key);
    for (; in->options && in->options[n]; n++)
        if (n < CHOICES_SHOWN)
            str_addf(out, "%s%s", n ? ", " : ": ", in->options[n]);
    if (in->options && n > CHOICES_SHOWN)
        str_addf(out, " and %zu more", n - CHOICES_SHOWN);
    if (in->folder)
        str_addf(out, ": a file of %s", in->folder);
}

/* "INT 0", "COMBO: on, off", "IMAGE, image0 to image9" */
static void add_kind(const struct node_input *in, struct str *out)
{
    str_adds(out, nodes_input_type(in));
    switch (in->no_default ? IN_SOCKET : in->kind) {
    case IN_INT:
        str_addf(out, in->idef > INT64_MAX ? " %llu" : " %lld", (long long)in->idef);
        break;
    case IN_FLOAT:
        str_addf(out, " %g", in->fdef);
        break;
    case IN_BOOLEAN:
        str_adds(out, in->bdef ? " true" : " false");
        break;
    case IN_COMBO:
    case IN_DYNCOMBO:
        add_choices(in, out);
        break;
    case IN_AUTOGROW:
        if (in->members && in->members[0])
            str_addf(out, ", as %s.%s, %s.%s ...", in->name, in->members[0], in->name,
                     in->members[1] ? in->members[1] : "");
        else
            str_addf(out, ", as %s.%s0 to %s%u", in->name, in->prefix, in->prefix, in->max - 1);
        break;
    default:
        break;
    }
}

struct printing {
    size_t width; /* of names */
    bool measure;
};

static void print_input(void *user, const struct node_input *in, const char *name, const char *when)
{
    struct printing *p = user;
    struct str text = { 0 };
    if (p->measure) {
        p->width = strlen(name) > p->width ? strlen(name) : p->width;
        return;
    }
    add_kind(in, &text);
    if (in->optional)
        str_adds(&text, ", optional");
    if (*when)
        str_addf(&text, " (with %s)", when);
    printf("    %-*s  %s\n", (int)p->width, name, str_c(&text));
    str_release(&text);
}

void nodes_inputs_print(const struct node_class *c)
{
    struct printing p = { .measure = true };
    nodes_inputs(c, print_input, &p);
    p.measure = false;
    nodes_inputs(c, print_input, &p);
}

static void add_json(void *user, const struct node_input *in, const char *name, const char *when)
{
    struct jsonout *j = user;
    jo_open_flat(j, NULL, '{');
    jo_str(j, "name", name);
    jo_str(j, "type", nodes_input_type(in));
    jo_bool(j, "optional", in->optional);
    if (*when)
        jo_str(j, "with", when);
    jo_close(j, '}');
}

void nodes_inputs_json(const struct node_class *c, struct jsonout *j)
{
    jo_open(j, "inputs", '[');
    nodes_inputs(c, add_json, j);
    jo_close(j, ']');
}
