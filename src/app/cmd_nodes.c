/* berth nodes: which node classes there are, and which of them can be computed. */
#include "app/nodes_inputs.h"

struct options {
    bool json, missing;
    bool named; /* classes were asked for: their inputs are shown */
};

/* What keeps a class from running; NULL: nothing. cls NULL: there is no such class. */
static const char *obstacle(const struct node_class *cls)
{
    return cls ? node_cannot_run(cls) : "is not known";
}

static void print_one(const struct options *o, struct jsonout *j, const char *name,
                      const struct node_class *cls)
{
    const char *why = obstacle(cls);
    if (!o->json) {
        printf(why ? "%s: %s\n" : "%s\n", name, why);
        if (o->named && cls)
            nodes_inputs_print(cls);
        return;
    }
    jo_open(j, NULL, '{');
    jo_str(j, "class", name);
    jo_bool(j, "runs", !why);
    if (why)
        jo_str(j, "why", why);
    if (cls)
        jo_str(j, "module", cls->module);
    if (o->named && cls)
        nodes_inputs_json(cls, j);
    jo_close(j, '}');
}

static const char *class_name(size_t i)
{
    return i < node_count() ? node_at(i)->name : NULL;
}

#define SAID_MAX 300 /* bytes of suggestions: "Image" begins dozens of names */

/* "KSampelr is not known, did you mean 'KSampler'?" */
static void set_unknown(const char *name, berth_err *err)
{
    struct str hint = { 0 };
    struct nearest near = { .word = name };
    if (suggest(&hint, name, class_name) && hint.n > SAID_MAX) {
        str_clear(&hint);
        for (size_t i = 0; i < node_count(); i++)
            nearest_try(&near, node_at(i)->name);
        if (near.best)
            str_addf(&hint, ", did you mean '%s'? `berth nodes` lists all", near.best);
    }
    err_set(err, BERTH_ENOTFOUND, "%.80s is not known%s", name, str_c(&hint));
    str_release(&hint);
}

/* Those that cannot run are errors, which JSON has beside the others. */
static int print_named(struct app *a, const struct options *o, struct jsonout *j, int n,
                       char **names)
{
    int code = APP_OK;
    for (int i = 0; i < n; i++) {
        const struct node_class *cls = node_find(names[i]);
        const char *why = obstacle(cls);
        berth_err err;
        if (!why || o->json)
            print_one(o, j, names[i], cls);
        if (cls && why)
            err_set(&err, BERTH_EUNSUPPORTED, "%s %s", names[i], why);
        else if (!cls)
            set_unknown(names[i], &err);
        if (why)
            code = app_fail(a, &err);
    }
    return code;
}

static int run(struct app *a, int argc, char **argv)
{
    struct options o = { 0 };
    const struct opt opt[] = {
        opt_flag("missing", "only those that are declared and cannot be computed yet", &o.missing),
        opt_flag("json", "print a JSON array, one object per class", &o.json),
    };
    int n, code;
    if (!app_args(a, &command_nodes, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    struct jsonout j;
    a->json = o.json;
    if (o.json) {
        app_json_begin(a, &j);
        jo_open(&j, NULL, '[');
    }
    o.named = n > 0;
    code = print_named(a, &o, &j, n, argv);
    for (size_t i = 0; !n && i < node_count(); i++)
        if (!o.missing || node_cannot_run(node_at(i)))
            print_one(&o, &j, node_at(i)->name, node_at(i));
    if (o.json) {
        jo_close(&j, ']');
        code = app_json_end(a, code);
    }
    return code;
}

const struct command command_nodes = {
    .name = "nodes",
    .about = "which node classes there are, and which can be computed",
    .usage = "[CLASS...] [--missing] [--json]",
    .args = "CLASS",
    .more = "Without CLASS all are listed. With CLASS only those, with their inputs as\n"
            "`berth run --set` names them, and the exit code is 1 if one of them is not\n"
            "known or cannot be computed: a script can ask before it queues a workflow.\n"
            "Inputs that a choice brings stand behind it: mode.width (with mode=scale).\n\n"
            "JSON: class, runs, why (what keeps it from running), module; with CLASS inputs\n"
            "(name, type, optional, with: the choices it comes with).\n",
    .run = run,
};
