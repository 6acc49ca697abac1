/* svg.c: SaveSVGNode. An SVG travels as its text; several are a list in JSON. */
#include "node/texts.h"

#include <string.h>

/* {"prompt": ..., and what extra_pnginfo has}, as the element that goes behind each <svg>. */
static berth_status metadata(struct node_call *c, struct str *out, berth_err *err)
{
    json_t *all = json_object(), *extra = (json_t *)(uintptr_t)c->extra_pnginfo;
    bool ok =
        all && (!c->prompt || !json_object_set(all, "prompt", (json_t *)(uintptr_t)c->prompt));
    for (void *i = json_object_iter(extra); ok && i; i = json_object_iter_next(extra, i))
        ok = !json_object_set(all, json_object_iter_key(i), json_object_iter_value(i));
    if (ok && json_object_size(all)) {
        struct jsonout j = { .out = out, .indent = 2, .python = true };
        str_adds(out, "\n  <metadata>\n                <![CDATA[\n            ");
        jo_value(&j, NULL, all);
        str_adds(out, "\n                ]]>\n            </metadata>\n            ");
    }
    json_decref(all);
    return ok && !out->bad ? BERTH_OK : err_set(err, BERTH_ENOMEM, "metadata of an SVG");
}

/* The text with `more` behind every opening <svg ...>, of which a text may have any number. */
static berth_status insert_behind_tags(struct node_call *c, const char *p, size_t n,
                                       const struct str *more, struct str *out, berth_err *err)
{
    const char *end = p + n, *at;
    while ((at = memmem(p, (size_t)(end - p), "<svg", 4))) {
        const char *close = memchr(at, '>', (size_t)(end - at));
        if (!close)
            break;
        str_add(out, p, (size_t)(close + 1 - p));
        str_add(out, str_c(more), more->n);
        p = close + 1;
        if (call_check(c, err) || text_fits(c, out->n, err))
            return err->code;
    }
    str_add(out, p, (size_t)(end - p));
    return out->bad ? err_set(err, BERTH_ENOMEM, "an SVG of %zu bytes", n) : BERTH_OK;
}

static berth_status save_one(struct node_call *c, struct saved *to, size_t i, const char *p,
                             size_t n, const struct str *more, berth_err *err)
{
    struct str text = { 0 };
    berth_status s = insert_behind_tags(c, p, n, more, &text, err);
    if (!s)
        s = save_add(c, to, i, ".svg", "images", &text, err);
    str_release(&text);
    return s;
}

static berth_status save_all(struct node_call *c, struct saved *to, const struct value *v,
                             const struct str *more, berth_err *err)
{
    berth_status s = BERTH_OK;
    if (v->kind == V_STRING)
        return save_one(c, to, 0, v->s.p, v->s.n, more, err);
    for (size_t i = 0; !s && i < json_array_size(v->json); i++) {
        const json_t *one = json_array_get(v->json, i);
        if (!json_is_string(one))
            return err_set(err, BERTH_EINVAL, "input 'svg': item %zu is not a text", i);
        s = save_one(c, to, i, json_string_value(one), json_string_length(one), more, err);
    }
    return s;
}

static berth_status save_run(struct node_call *c, berth_err *err)
{
    struct value *v = in_value(c, "svg");
    const char *prefix;
    struct saved to;
    struct str more = { 0 };
    if (!v || (v->kind != V_STRING && (v->kind != V_JSON || !json_is_array(v->json))))
        return err_set(err, BERTH_EINVAL, "input 'svg' is not an SVG");
    if (in_text(c, "filename_prefix", &prefix, err) ||
        save_begin(c, "output", prefix, 0, 0, &to, err))
        return err->code;
    berth_status s = metadata(c, &more, err);
    if (!s)
        s = save_all(c, &to, v, &more, err);
    str_release(&more);
    save_end(&to);
    return s ? s : out_value(c, 0, value_ref(v), err);
}

NODE_CLASS(SaveSVGNode, .display = "Save SVG", .category = "image", .module = MOD("images"),
           .description = "Saves SVG files in the output folder.",
           .flags = NODE_V3 | NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(SOCKET("svg", "SVG"), TEXT_IN("filename_prefix", "svg/ComfyUI")),
           OUTS({ .type = "SVG", .name = "svg" }), .run = save_run);
