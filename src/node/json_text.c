/* json_text.c: JSON in texts and texts of it, prompts made of it, and texts as files. Our reader is
 * stricter than Python's: what has a key twice, NaN, or an integer beyond 64 bits is no JSON. */
#include "node/texts.h"

#include <string.h>

static berth_status no_memory(const struct node_call *c, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "JSON of %s", c->cls->name);
}

/* json.dumps(v, ensure_ascii=False); indent 0: on one line. */
static void dump(const json_t *v, int indent, struct str *out)
{
    struct jsonout j = { .out = out, .indent = indent, .python = true, .utf8 = true };
    jo_value(&j, NULL, v);
}

/* ---- JsonExtractString ---- */

static berth_status extract_run(struct node_call *c, berth_err *err)
{
    struct text t, key;
    json_t *all = NULL;
    berth_err bad = { 0 };
    struct str out = { 0 };
    if (in_string(c, "json_string", &t, err) || in_string(c, "key", &key, err))
        return err->code;
    if (js_parse(t.p, t.n, NULL, &all, &bad) == BERTH_ENOMEM)
        return no_memory(c, err);
    bool plain = strlen(key.p) == key.n; /* keys have no zero bytes: our reader refuses them */
    const json_t *v = plain ? json_object_get(all, key.p) : NULL;
    if (v && !json_is_null(v))
        py_str(v, &out);
    json_decref(all);
    return give_text(c, 0, &out, err);
}

TEXT_NODE(JsonExtractString, "Extract Text from JSON",
          INS(LONG_TEXT_IN("json_string"), TEXT_IN("key", NULL, .no_default = true)),
          OUT_OF("STRING"), .run = extract_run);

/* ---- ConvertDictionaryToString, ConvertArrayToString ---- */

#define INDENT_MAX 64 /* what a link may bring; the widget ends at 8 */

/* own: the name of the input. */
static berth_status dump_run(struct node_call *c, berth_err *err)
{
    const struct value *v = in_value(c, c->cls->own);
    int64_t indent;
    struct str out = { 0 };
    if (in_i64(c, "indent", &indent, err))
        return err->code;
    if (indent < 0 || indent > INDENT_MAX)
        return err_set(err, BERTH_EINVAL, "indent is %lld, but has to be 0 to %d",
                       (long long)indent, INDENT_MAX);
    if (v && v->kind >= V_TENSOR)
        return raise_as(c, "TypeError", err, "Object of type %s is not JSON serializable",
                        value_type_name(v));
    json_t *j = v ? value_describe(v) : json_null(); /* of what JSON has: itself */
    if (!j)
        return no_memory(c, err);
    dump(j, (int)indent, &out);
    json_decref(j);
    return give_text(c, 0, &out, err);
}

#define INDENT_IN INT_IN("indent", 2, 0, 8, 0)
TEXT_NODE(ConvertDictionaryToString, "Convert Dictionary to String",
          INS(SOCKET("dictionary", "DICT"), INDENT_IN), OUT_OF("STRING"), .run = dump_run,
          .own = "dictionary");
TEXT_NODE(ConvertArrayToString, "Convert Array to String", INS(SOCKET("array", "ARRAY"), INDENT_IN),
          OUT_OF("STRING"), .run = dump_run, .own = "array");

/* ---- BuildJsonPromptIdeogram ---- */

static bool add_colour(json_t *out, const json_t *colour)
{
    struct str text = { 0 };
    if (!json_string_length(colour))
        return true; /* what is no text is left out */
    py_upper(json_string_value(colour), json_string_length(colour), &text);
    bool ok = !text.bad && !json_array_append_new(out, json_stringn(str_c(&text), text.n));
    str_release(&text);
    return ok;
}

/* Colours in capitals, from a list or an object. NULL: out of memory. */
static json_t *palette(const struct value *v)
{
    json_t *out = json_array(), *from = v && v->kind == V_JSON ? v->json : NULL, *colour;
    bool ok = out;
    size_t i;
    const char *key;
    json_array_foreach(from, i, colour) ok = ok && add_colour(out, colour);
    json_object_foreach(from, key, colour) ok = ok && add_colour(out, colour);
    if (ok)
        return out;
    json_decref(out);
    return NULL;
}

static bool put(json_t *o, const char *key, struct text t)
{
    return !json_object_set_new(o, key, json_stringn(t.p, t.n));
}

/* "style_description" in the order that the model was trained on. */
static bool put_style(json_t *root, const char *style, struct text aesthetics, struct text lighting,
                      struct text medium, struct text own, const struct value *colours)
{
    bool photo = strcmp(style, "photo") == 0;
    json_t *o = json_object(), *list = palette(colours);
    bool ok = o && list && put(o, "aesthetics", aesthetics) && put(o, "lighting", lighting) &&
              (photo ? put(o, "photo", own) && put(o, "medium", medium)
                     : put(o, "medium", medium) && put(o, "art_style", own));
    if (ok && json_array_size(list))
        ok = !json_object_set(o, "color_palette", list);
    json_decref(list);
    if (!ok) {
        json_decref(o);
        return false;
    }
    return !json_object_set_new(root, "style_description", o);
}

static bool is_blank(struct text t)
{
    py_strip(&t.p, &t.n, true, true);
    return !t.n;
}

static berth_status ideogram_run(struct node_call *c, berth_err *err)
{
    struct text about, background, aesthetics, lighting, medium, own = { "", 0 };
    const char *style = "none";
    const struct value *elements = in_value(c, "element");
    if (in_string(c, "high_level_description", &about, err) ||
        in_string(c, "background", &background, err) ||
        in_string(c, "aesthetics", &aesthetics, err) || in_string(c, "lighting", &lighting, err) ||
        in_string(c, "medium", &medium, err))
        return err->code;
    if (in_given(c, "style") && in_text(c, "style", &style, err))
        return err->code;
    const char *child = strcmp(style, "photo") == 0 ? "style.photo" : "style.art_style";
    if (in_given(c, child) && in_string(c, child, &own, err))
        return err->code;
    json_t *root = json_object(), *layout = json_object();
    json_t *list = elements && elements->kind == V_JSON && json_is_array(elements->json)
                       ? json_incref(elements->json)
                       : json_array();
    bool ok = root && layout && list && put(layout, "background", background) &&
              !json_object_set(layout, "elements", list);
    if (ok && !is_blank(about))
        ok = put(root, "high_level_description", about);
    if (ok && strcmp(style, "none") != 0)
        ok =
            put_style(root, style, aesthetics, lighting, medium, own, in_value(c, "color_palette"));
    ok = ok && !json_object_set(root, "compositional_deconstruction", layout);
    json_decref(layout);
    json_decref(list);
    if (ok)
        return out_value(c, 0, value_json(root), err);
    json_decref(root);
    return no_memory(c, err);
}

NODE_CLASS(BuildJsonPromptIdeogram, .display = "Build JSON Prompt (Ideogram)", .category = "text",
           .module = MOD("json_prompt"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("element", "ARRAY"), TEXT_IN("high_level_description", "", .more = MULTILINE),
               TEXT_IN("background", "", .more = MULTILINE),
               DYNCOMBO_IN("style", WITH(CHOICE0("none"), CHOICE("photo", TEXT_IN("photo", "")),
                                         CHOICE("art_style", TEXT_IN("art_style", "")))),
               TEXT_IN("aesthetics", ""), TEXT_IN("lighting", ""), TEXT_IN("medium", ""),
               SOCKET("color_palette", "COLORS", .more = "\"default\":[],\"socketless\":false")),
           OUTS({ .type = "DICT", .name = "prompt" }), .run = ideogram_run);

/* ---- SaveText ---- */

static const char *const text_formats[] = { "txt", "csv", "md", "json", NULL };

static bool is_format(const char *format)
{
    for (size_t i = 0; text_formats[i]; i++)
        if (strcmp(text_formats[i], format) == 0)
            return true;
    return false;
}

/* The text, or for .json the same value in lines, if it is one. */
static bool file_text(struct text t, const char *format, struct str *out)
{
    json_t *v = NULL;
    berth_err ignored;
    if (strcmp(format, "json") == 0 && !js_parse(t.p, t.n, NULL, &v, &ignored))
        dump(v, 2, out);
    else
        str_add(out, t.p, t.n);
    json_decref(v);
    return !out->bad;
}

static berth_status save_run(struct node_call *c, berth_err *err)
{
    struct text t;
    const char *prefix, *format;
    struct saved save = { 0 };
    struct str bytes = { 0 };
    char ext[8];
    if (in_string(c, "text", &t, err) || in_text(c, "filename_prefix", &prefix, err) ||
        in_text(c, "format", &format, err))
        return err->code;
    if (!is_format(format)) /* a link may bring anything, even a path */
        return err_set(err, BERTH_EINVAL, "Unsupported text format: '%.40s'", format);
    snprintf(ext, sizeof ext, ".%s", format);
    berth_status s = file_text(t, format, &bytes) ? BERTH_OK : no_memory(c, err);
    if (!s)
        s = ui_add(c, "text", json_stringn(t.p, t.n), err);
    if (!s)
        s = save_begin(c, "output", prefix, 1, 1, &save, err);
    save.path.bare = true;
    if (!s)
        s = save_add(c, &save, 0, ext, "files", &bytes, err);
    save_end(&save);
    str_release(&bytes);
    return s ? s : out_value(c, 0, value_string(t.p, t.n), err);
}

NODE_CLASS(SaveText, .display = "Save Text", .category = "text", .module = MOD("text"),
           .flags = NODE_V3 | NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(TEXT_IN("text", NULL, .no_default = true, .more = FORCE_INPUT),
               TEXT_IN("filename_prefix", "ComfyUI"),
               COMBO_IN("format", CHOICES("txt", "csv", "md", "json"), .sdef = "txt")),
           STRING_OUT("text"), .run = save_run);
