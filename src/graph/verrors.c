/* verrors: the JSON that validation answers with. */
#include "base/utf8.h"
#include "graph/graph_impl.h"

#include <stdarg.h>

/* Entries of all dependent_outputs together: they grow with the square of a prompt. */
#define DEPENDENTS_MAX 100000

json_t *js_text(const char *s, size_t n)
{
    if (str_is_utf8(s, n))
        return json_stringn_nocheck(s, n);
    struct str t = { 0 }; /* a file name, perhaps */
    str_add(&t, s, n);
    if (t.p)
        utf8_sanitize(t.p, t.n);
    json_t *v = t.bad ? NULL : json_stringn_nocheck(str_c(&t), t.n);
    str_release(&t);
    return v;
}

json_t *js_textf(const char *fmt, ...)
{
    char buf[1024]; /* messages of ours with a name or a number in them */
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : js_text(buf, utf8_mark_cut(buf, sizeof buf, (size_t)n));
}

json_t *js_take(struct str *text)
{
    json_t *v = text->bad ? NULL : js_text(str_c(text), text->n);
    str_release(text);
    return v;
}

json_t *reason_new(const char *type, json_t *message, json_t *details, json_t *extra)
{
    return json_pack("{s:s,s:o,s:o,s:o}", "type", type, "message", message, "details", details,
                     "extra_info", extra);
}

bool trace_add(json_t *trace, const struct wf_node *n, const char *input)
{
    return !json_array_append_new(trace, js_textf("  Node %s (%s)%s%s\n", n->id, n->cls->name,
                                                  input ? ", input " : "", input ? input : ""));
}

struct verdict {
    const struct workflow *wf;
    struct checked *node;
    bool cycle;
};

/* ---- which outputs a node spoils ---- */

/* Which failing outputs depend on each node: one bit each, carried upstream along the links.
 * `order` has dependants before what they depend on, except for cycles, which take more rounds. */
static void carry_bits(const struct verdict *c, const size_t *order, size_t n, uint64_t *bits,
                       size_t words)
{
    bool changed = true;
    for (int round = 0; changed && round < (c->cycle ? 8 : 1); round++) {
        changed = false;
        for (size_t k = 0; k < n; k++) {
            const struct wf_node *node = &c->wf->node[order[k]];
            for (size_t l = node->link; l < node->link + node->links; l++) {
                uint64_t *to = bits + c->wf->link[l].from * words, *from = bits + order[k] * words;
                for (size_t i = 0; i < words; i++) {
                    changed = changed || (from[i] & ~to[i]);
                    to[i] |= from[i];
                }
            }
        }
    }
}

struct upstream {  /* nodes that failing outputs depend on */
    size_t *order; /* filled from its end, so that dependants stand first */
    size_t at;     /* where it begins */
};

static berth_status add_upstream(void *user, size_t node, berth_err *err)
{
    struct upstream *u = user;
    (void)err;
    u->order[--u->at] = node;
    return BERTH_OK;
}

static bool is_failing(const struct verdict *c, size_t node)
{
    return c->node[node].wanted && c->node[node].state == CHECK_BAD;
}

static berth_status find_upstream(const struct verdict *c, struct upstream *u, berth_err *err)
{
    bool *seen = calloc(c->wf->n, sizeof *seen);
    berth_status s = seen ? BERTH_OK : err_set(err, BERTH_ENOMEM, "errors of a prompt");
    u->at = c->wf->n;
    for (size_t i = 0; i < c->wf->n && !s; i++)
        if (is_failing(c, i))
            s = workflow_walk(c->wf, i, seen, add_upstream, u, err);
    free(seen);
    return s;
}

/* ---- the answer ---- */

berth_status validation_refuse(struct validation *out, const char *type, json_t *message,
                               json_t *details, berth_err *err)
{
    out->ok = false;
    out->error = reason_new(type, message, details, json_object());
    return out->error ? BERTH_OK : err_set(err, BERTH_ENOMEM, "refusing a prompt");
}

/* {"errors", "dependent_outputs", "class_type"} of one node; takes the errors out of c. */
static json_t *node_error(const struct verdict *c, size_t node, const uint64_t *bits,
                          const size_t *outputs, size_t outputs_n, size_t *budget)
{
    json_t *dep = json_array(), *errors = c->node[node].errors;
    for (size_t i = 0; i < outputs_n && *budget; i++)
        if (bits[i / 64] >> (i % 64) & 1) {
            if (json_array_append_new(dep, json_string_nocheck(c->wf->node[outputs[i]].id))) {
                json_decref(dep);
                return NULL;
            }
            --*budget;
        }
    c->node[node].errors = NULL;
    return json_pack("{s:o,s:o,s:O}", "errors", errors, "dependent_outputs", dep, "class_type",
                     c->wf->node[node].class_type);
}

static berth_status node_errors(const struct verdict *c, struct validation *out, berth_err *err)
{
    size_t n = c->wf->n, failing = 0, words, budget = DEPENDENTS_MAX;
    for (size_t i = 0; i < n; i++)
        failing += is_failing(c, i);
    if (!failing)
        return BERTH_OK;
    words = (failing + 63) / 64;
    size_t *output = calloc(failing, sizeof *output);
    struct upstream u = { .order = calloc(n, sizeof *u.order) };
    uint64_t *bits = calloc(n * words, sizeof *bits); /* 10,000 squared bits at most */
    berth_status s = !output || !u.order || !bits
                         ? err_set(err, BERTH_ENOMEM, "errors of %zu outputs", failing)
                         : find_upstream(c, &u, err);
    if (s)
        goto done;
    for (size_t i = 0, k = 0; i < n; i++)
        if (is_failing(c, i)) {
            bits[i * words + k / 64] |= UINT64_C(1) << (k % 64);
            output[k++] = i;
        }
    carry_bits(c, u.order + u.at, n - u.at, bits, words);
    for (size_t i = 0; i < n && !s; i++) {
        if (!c->node[i].errors)
            continue;
        json_t *e = node_error(c, i, bits + i * words, output, failing, &budget);
        if (json_object_set_new_nocheck(out->node_errors, c->wf->node[i].id, e))
            s = err_set(err, BERTH_ENOMEM, "errors of node %s", c->wf->node[i].id);
    }
done:
    free(bits);
    free(u.order);
    free(output);
    return s;
}

/* "message: details" of every error of the outputs themselves. */
static berth_status refuse_outputs(const struct verdict *c, struct validation *out, berth_err *err)
{
    struct str text = { 0 };
    for (size_t i = 0; i < c->wf->n; i++) {
        json_t *errors =
            json_object_get(json_object_get(out->node_errors, c->wf->node[i].id), "errors");
        for (size_t k = 0; c->node[i].wanted && k < json_array_size(errors); k++) {
            const json_t *e = json_array_get(errors, k);
            const json_t *d = json_object_get(e, "details");
            if (text.n)
                str_addc(&text, '\n');
            str_adds(&text, json_string_value(json_object_get(e, "message")));
            str_adds(&text, ": ");
            str_add(&text, json_string_value(d), json_string_length(d));
        }
    }
    return validation_refuse(out, "prompt_outputs_failed_validation",
                             json_string("Prompt outputs failed validation"), js_take(&text), err);
}

berth_status verdict_answer(const struct workflow *wf, struct checked *node, bool cycle,
                            struct validation *out, berth_err *err)
{
    const struct verdict c = { wf, node, cycle };
    berth_status s = node_errors(&c, out, err);
    for (size_t i = 0; i < wf->n && !s; i++)
        if (node[i].wanted && node[i].state == CHECK_GOOD &&
            json_array_append_new(out->outputs, json_string_nocheck(wf->node[i].id)))
            s = err_set(err, BERTH_ENOMEM, "outputs of a prompt");
    if (s)
        return s;
    out->ok = json_array_size(out->outputs) > 0;
    return out->ok ? BERTH_OK : refuse_outputs(&c, out, err);
}

json_t *validation_no_prompt(json_t *body)
{
    static const char text[] = "No prompt provided";
    static const char bare[] = "This is a workflow by itself: wrap it as {\"prompt\": ...}";
    const char *details = text;
    json_t *node;
    const char *id;
    json_object_foreach(body, id, node) if (json_object_get(node, "class_type")) details = bare;
    if (workflow_is_editors(body))
        details = "This is a workflow by itself, and " WORKFLOW_OF_EDITOR;
    json_t *error = reason_new("no_prompt", json_string_nocheck(text), json_string_nocheck(details),
                               json_object());
    return error ? json_pack("{s:o,s:{}}", "error", error, "node_errors") : NULL;
}

void validation_release(struct validation *v)
{
    json_decref(v->error);
    json_decref(v->node_errors);
    json_decref(v->outputs);
    json_decref(v->no_device);
    *v = (struct validation) { 0 };
}
