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

json_t *reason_new(const char *type, json_t *message, json_t *details, json_t *extra)
{
    json_t *r = json_object();
    int bad = !r;
    bad |= json_object_set_new_nocheck(r, "type", json_string_nocheck(type));
    bad |= json_object_set_new_nocheck(r, "message", message);
    bad |= json_object_set_new_nocheck(r, "details", details);
    bad |= json_object_set_new_nocheck(r, "extra_info", extra);
    if (!bad)
        return r;
    json_decref(r);
    return NULL;
}

bool trace_add(json_t *trace, const struct wf_node *n, const char *input)
{
    return !json_array_append_new(trace, js_textf("  Node %s (%s)%s%s\n", n->id, n->cls->name,
                                                  input ? ", input " : "", input ? input : ""));
}

/* ---- which outputs a node spoils ---- */

/* Which failing outputs depend on each node: one bit each, carried upstream along the links.
 * `order` has dependants before what they depend on, but for cycles, which take more rounds. */
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

struct walk {
    size_t node, link;
};

/* Everything upstream of `output` that was not seen yet goes into `order`, which is filled from its
 * end: a node stands before everything it depends on. False: out of memory. */
static bool place(const struct verdict *c, size_t output, struct vec *stack, uint8_t *seen,
                  size_t *order, size_t *at)
{
    struct walk *w = vec_add(stack);
    if (!w)
        return false;
    w->node = output;
    seen[output] = 1;
    while (stack->n) {
        w = vec_at(stack, stack->n - 1);
        const struct wf_node *node = &c->wf->node[w->node];
        if (w->link == node->links) {
            order[--*at] = w->node;
            vec_pop(stack);
            continue;
        }
        size_t from = c->wf->link[node->link + w->link++].from;
        if (seen[from])
            continue;
        seen[from] = 1;
        if (!(w = vec_add(stack)))
            return false;
        w->node = from;
    }
    return true;
}

/* Nodes upstream of failing outputs, dependants first; they are order[*at] and on. */
static bool dependants_first(const struct verdict *c, size_t *order, size_t *at)
{
    struct vec stack = { .elem = sizeof(struct walk) };
    uint8_t *seen = calloc(c->wf->n, 1);
    bool ok = seen != NULL;
    *at = c->wf->n;
    for (size_t i = 0; i < c->wf->n && ok; i++)
        if (c->wanted[i] && c->state[i] == CHECK_BAD && !seen[i])
            ok = place(c, i, &stack, seen, order, at);
    vec_release(&stack);
    free(seen);
    return ok;
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
    json_t *dep = json_array(), *e = json_object();
    int bad = 0;
    for (size_t i = 0; i < outputs_n && *budget && !bad; i++)
        if (bits[i / 64] >> (i % 64) & 1) {
            bad |= json_array_append_new(dep, json_string_nocheck(c->wf->node[outputs[i]].id));
            --*budget;
        }
    json_t *errors = c->errors[node];
    c->errors[node] = NULL;
    bad |= json_object_set_new_nocheck(e, "errors", errors);
    bad |= json_object_set_new_nocheck(e, "dependent_outputs", dep);
    bad |= json_object_set_new_nocheck(
        e, "class_type", json_incref((json_t *)(uintptr_t)c->wf->node[node].class_type));
    if (!bad)
        return e;
    json_decref(e);
    return NULL;
}

static berth_status node_errors(const struct verdict *c, struct validation *out, berth_err *err)
{
    size_t n = c->wf->n, failing = 0, words, budget = DEPENDENTS_MAX, at;
    for (size_t i = 0; i < n; i++)
        failing += c->wanted[i] && c->state[i] == CHECK_BAD;
    if (!failing)
        return BERTH_OK;
    words = (failing + 63) / 64;
    size_t *output = calloc(failing, sizeof *output), *order = calloc(n, sizeof *order);
    uint64_t *bits = calloc(n * words, sizeof *bits); /* 10,000 squared bits at most */
    berth_status s = BERTH_OK;
    if (!output || !order || !bits || !dependants_first(c, order, &at)) {
        s = err_set(err, BERTH_ENOMEM, "errors of %zu outputs", failing);
        goto done;
    }
    for (size_t i = 0, k = 0; i < n; i++)
        if (c->wanted[i] && c->state[i] == CHECK_BAD) {
            bits[i * words + k / 64] |= UINT64_C(1) << (k % 64);
            output[k++] = i;
        }
    carry_bits(c, order + at, n - at, bits, words);
    for (size_t i = 0; i < n && !s; i++) {
        if (!c->errors[i])
            continue;
        json_t *e = node_error(c, i, bits + i * words, output, failing, &budget);
        if (json_object_set_new_nocheck(out->node_errors, c->wf->node[i].id, e))
            s = err_set(err, BERTH_ENOMEM, "errors of node %s", c->wf->node[i].id);
    }
done:
    free(bits);
    free(order);
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
        for (size_t k = 0; c->wanted[i] && k < json_array_size(errors); k++) {
            const json_t *e = json_array_get(errors, k);
            const json_t *d = json_object_get(e, "details");
            if (text.n)
                str_addc(&text, '\n');
            str_adds(&text, json_string_value(json_object_get(e, "message")));
            str_adds(&text, ": ");
            str_add(&text, json_string_value(d), json_string_length(d));
        }
    }
    json_t *details = text.bad ? NULL : js_text(str_c(&text), text.n);
    str_release(&text);
    return validation_refuse(out, "prompt_outputs_failed_validation",
                             json_string("Prompt outputs failed validation"), details, err);
}

berth_status verdict_answer(const struct verdict *c, struct validation *out, berth_err *err)
{
    berth_status s = node_errors(c, out, err);
    for (size_t i = 0; i < c->wf->n && !s; i++)
        if (c->wanted[i] && c->state[i] == CHECK_GOOD &&
            json_array_append_new(out->outputs, json_string_nocheck(c->wf->node[i].id)))
            s = err_set(err, BERTH_ENOMEM, "outputs of a prompt");
    if (s)
        return s;
    out->ok = json_array_size(out->outputs) > 0;
    return out->ok ? BERTH_OK : refuse_outputs(c, out, err);
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
    *v = (struct validation) { 0 };
}
