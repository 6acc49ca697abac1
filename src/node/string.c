/* string.c: texts cut, joined, compared and changed, as Python's str does it. */
#include "node/pyformat.h"

#include <string.h>

/* ---- one text in, one out ---- */

typedef void text_fn(struct text t, struct str *out);

static berth_status change(struct node_call *c, const char *name, text_fn *fn, berth_err *err)
{
    struct text t;
    struct str out = { 0 };
    if (in_string(c, name, &t, err))
        return err->code;
    fn(t, &out);
    return give_text(c, 0, &out, err);
}

static void upper(struct text t, struct str *out)
{
    py_upper(t.p, t.n, out);
}
static void lower(struct text t, struct str *out)
{
    py_lower(t.p, t.n, out);
}
static void capitalize(struct text t, struct str *out)
{
    py_capitalize(t.p, t.n, out);
}
static void title(struct text t, struct str *out)
{
    py_title(t.p, t.n, out);
}

static void strip(struct text t, bool left, bool right, struct str *out)
{
    py_strip(&t.p, &t.n, left, right);
    str_add(out, t.p, t.n);
}
static void strip_both(struct text t, struct str *out)
{
    strip(t, true, true, out);
}
static void strip_left(struct text t, struct str *out)
{
    strip(t, true, false, out);
}
static void strip_right(struct text t, struct str *out)
{
    strip(t, false, true, out);
}
static void keep(struct text t, struct str *out)
{
    str_add(out, t.p, t.n);
}

struct mode {
    const char *name;
    text_fn *fn;
};

/* own: modes, ended by one without a name, for what a link may bring. */
static berth_status mode_run(struct node_call *c, berth_err *err)
{
    const struct mode *m = c->cls->own;
    const char *mode;
    if (in_text(c, "mode", &mode, err))
        return err->code;
    while (m->name && strcmp(m->name, mode) != 0)
        m++;
    return change(c, "string", m->fn, err);
}

static const struct mode cases[] = {
    { "UPPERCASE", upper },  { "lowercase", lower }, { "Capitalize", capitalize },
    { "Title Case", title }, { NULL, keep },
};
static const struct mode trims[] = {
    { "Both", strip_both }, { "Left", strip_left }, { "Right", strip_right }, { NULL, keep }
};

TEXT_NODE(CaseConverter, "Convert Text Case",
          INS(LONG_TEXT_IN("string"),
              COMBO_IN("mode", CHOICES("UPPERCASE", "lowercase", "Capitalize", "Title Case"))),
          OUT_OF("STRING"), .run = mode_run, .own = cases);
TEXT_NODE(StringTrim, "Trim Text",
          INS(LONG_TEXT_IN("string"), COMBO_IN("mode", CHOICES("Both", "Left", "Right"))),
          OUT_OF("STRING"), .run = mode_run, .own = trims);

/* ---- parts ---- */

static berth_status join(struct node_call *c, struct text a, struct text b, struct text d,
                         berth_err *err)
{
    struct str out = { 0 };
    if (text_fits(c, a.n + b.n + d.n, err))
        return err->code;
    str_add(&out, a.p, a.n);
    str_add(&out, d.p, d.n);
    str_add(&out, b.p, b.n);
    return give_text(c, 0, &out, err);
}

static berth_status concatenate_run(struct node_call *c, berth_err *err)
{
    struct text a, b, d;
    if (in_string(c, "string_a", &a, err) || in_string(c, "string_b", &b, err) ||
        in_string(c, "delimiter", &d, err))
        return err->code;
    return join(c, a, b, d, err);
}

TEXT_NODE(StringConcatenate, "Concatenate Text",
          INS(LONG_TEXT_IN("string_a"), LONG_TEXT_IN("string_b"), TEXT_IN("delimiter", "")),
          OUT_OF("STRING"), .run = concatenate_run);

static berth_status substring_run(struct node_call *c, berth_err *err)
{
    struct text t;
    int64_t start, end;
    struct str out = { 0 };
    if (in_string(c, "string", &t, err) || in_i64(c, "start", &start, err) ||
        in_i64(c, "end", &end, err))
        return err->code;
    py_slice(t.p, t.n, start, end, &out);
    return give_text(c, 0, &out, err);
}

#define PLAIN_INT_IN(n) INT_IN(n, 0, 0, 0, 0, .no_default = true, .no_range = true)
TEXT_NODE(StringSubstring, "Substring",
          INS(LONG_TEXT_IN("string"), PLAIN_INT_IN("start"), PLAIN_INT_IN("end")), OUT_OF("STRING"),
          .run = substring_run);

static berth_status length_run(struct node_call *c, berth_err *err)
{
    struct text t;
    if (in_string(c, "string", &t, err))
        return err->code;
    return out_value(c, 0, value_int((int64_t)py_len(t.p, t.n)), err);
}

TEXT_NODE(StringLength, "Text Length", INS(LONG_TEXT_IN("string")),
          OUTS({ .type = "INT", .name = "length" }), .run = length_run);

static berth_status format_run(struct node_call *c, berth_err *err)
{
    struct text t;
    struct str out = { 0 };
    if (in_string(c, "f_string", &t, err))
        return err->code;
    berth_status s = py_format(c, t, "values", &out, err);
    if (!s)
        return give_text(c, 0, &out, err);
    str_release(&out);
    return s;
}

TEXT_NODE(StringFormat, "Format Text",
          INS(AUTOGROW_NAMES_IN("values", list_a_to_z, 0, SOCKET("value", "*")),
              TEXT_IN("f_string", "{a}", .more = MULTILINE)),
          OUT_OF("STRING"), .run = format_run);

/* ---- find, replace, compare ---- */

static const char *find(struct text in, struct text what)
{
    return what.n ? memmem(in.p, in.n, what.p, what.n) : in.p;
}

/* str.replace(): an empty text is found around every character. */
static berth_status replace_all(struct node_call *c, struct text t, struct text what,
                                struct text by, berth_err *err)
{
    struct str out = { 0 };
    size_t at = 0;
    berth_status s = BERTH_OK;
    if (!what.n)
        str_add(&out, by.p, by.n);
    while (at < t.n && !s && !out.bad) {
        if (what.n) {
            const char *hit = find((struct text) { t.p + at, t.n - at }, what);
            size_t to = hit ? (size_t)(hit - t.p) : t.n;
            str_add(&out, t.p + at, to - at);
            if (hit)
                str_add(&out, by.p, by.n);
            at = to + (hit ? what.n : 0);
        } else {
            size_t len = py_offset(t.p + at, t.n - at, 1);
            str_add(&out, t.p + at, len);
            str_add(&out, by.p, by.n);
            at += len;
        }
        s = call_check(c, err);
        if (!s)
            s = text_fits(c, out.n, err);
    }
    if (!s)
        return give_text(c, 0, &out, err);
    str_release(&out);
    return s;
}

/* own: the name of the text. */
static berth_status replace_run(struct node_call *c, berth_err *err)
{
    struct text t, what, by;
    if (in_string(c, c->cls->own, &t, err) || in_string(c, "find", &what, err) ||
        in_string(c, "replace", &by, err))
        return err->code;
    return replace_all(c, t, what, by, err);
}

TEXT_NODE(StringReplace, "Replace Text",
          INS(LONG_TEXT_IN("string"), LONG_TEXT_IN("find"), LONG_TEXT_IN("replace")),
          OUT_OF("STRING"), .run = replace_run, .own = "string");

/* Two texts, lowered where case does not count; owned. */
struct pair {
    struct str a, b;
};

static void pair_release(struct pair *p)
{
    str_release(&p->a);
    str_release(&p->b);
}

static berth_status in_pair(struct node_call *c, const char *name_a, const char *name_b,
                            struct pair *out, berth_err *err)
{
    struct text a, b;
    bool exact;
    *out = (struct pair) { 0 };
    if (in_string(c, name_a, &a, err) || in_string(c, name_b, &b, err) ||
        in_bool(c, "case_sensitive", &exact, err))
        return err->code;
    (exact ? keep : lower)(a, &out->a);
    (exact ? keep : lower)(b, &out->b);
    if (!out->a.bad && !out->b.bad)
        return BERTH_OK;
    pair_release(out);
    return err_set(err, BERTH_ENOMEM, "comparing texts");
}

static berth_status contains_run(struct node_call *c, berth_err *err)
{
    struct pair p;
    if (in_pair(c, "string", "substring", &p, err))
        return err->code;
    bool has = find((struct text) { str_c(&p.a), p.a.n }, (struct text) { str_c(&p.b), p.b.n });
    pair_release(&p);
    return out_value(c, 0, value_bool(has), err);
}

#define EXACT_IN BOOL_IN("case_sensitive", true)
TEXT_NODE(StringContains, "Contains Text",
          INS(LONG_TEXT_IN("string"), LONG_TEXT_IN("substring"), EXACT_IN),
          OUTS({ .type = "BOOLEAN", .name = "contains" }), .run = contains_run);

static berth_status compare_run(struct node_call *c, berth_err *err)
{
    const char *mode;
    struct pair p;
    if (in_text(c, "mode", &mode, err) || in_pair(c, "string_a", "string_b", &p, err))
        return err->code;
    bool fits = p.a.n >= p.b.n, same = false;
    if (fits && strcmp(mode, "Starts With") == 0)
        same = memcmp(str_c(&p.a), str_c(&p.b), p.b.n) == 0;
    else if (fits && strcmp(mode, "Ends With") == 0)
        same = memcmp(str_c(&p.a) + p.a.n - p.b.n, str_c(&p.b), p.b.n) == 0;
    else if (fits && strcmp(mode, "Equal") == 0)
        same = p.a.n == p.b.n && memcmp(str_c(&p.a), str_c(&p.b), p.b.n) == 0;
    pair_release(&p);
    return out_value(c, 0, value_bool(same), err);
}

TEXT_NODE(StringCompare, "Compare Text",
          INS(LONG_TEXT_IN("string_a"), LONG_TEXT_IN("string_b"),
              COMBO_IN("mode", CHOICES("Starts With", "Ends With", "Equal")), EXACT_IN),
          OUT_OF("BOOLEAN"), .run = compare_run);

/* ---- texts of datasets: older names for the same ---- */

#define DATASET(c, shown, more_flags, ...)                                                         \
    NODE_CLASS(c, .display = shown, .category = "text", .module = MOD("dataset"),                  \
               .flags = NODE_V3 | NODE_EXPERIMENTAL | (more_flags), STRING_OUT("texts"),           \
               __VA_ARGS__)
#define TEXTS_IN TEXT_IN("texts", NULL, .no_default = true)

static berth_status lower_run(struct node_call *c, berth_err *err)
{
    return change(c, "texts", lower, err);
}
static berth_status upper_run(struct node_call *c, berth_err *err)
{
    return change(c, "texts", upper, err);
}
static berth_status strip_run(struct node_call *c, berth_err *err)
{
    return change(c, "texts", strip_both, err);
}

static berth_status truncate_run(struct node_call *c, berth_err *err)
{
    struct text t;
    int64_t max;
    struct str out = { 0 };
    if (in_string(c, "texts", &t, err) || in_i64(c, "max_length", &max, err))
        return err->code;
    py_slice(t.p, t.n, 0, max, &out);
    return give_text(c, 0, &out, err);
}

/* own: "prefix" or "suffix", the names of the inputs. */
static berth_status affix_run(struct node_call *c, berth_err *err)
{
    struct text t, more;
    bool front = strcmp(c->cls->own, "prefix") == 0;
    if (in_string(c, "texts", &t, err) || in_string(c, c->cls->own, &more, err))
        return err->code;
    return front ? join(c, more, t, (struct text) { "", 0 }, err)
                 : join(c, t, more, (struct text) { "", 0 }, err);
}

/* The list as it came, as one value: Python's list. */
static berth_status merge_run(struct node_call *c, berth_err *err)
{
    json_t *list = json_array();
    int bad = !list;
    for (size_t i = 0; i < c->in[0].n && !bad; i++)
        bad = json_array_append_new(list, value_describe(c->in[0].at[i]));
    if (!bad)
        return out_value(c, 0, value_json(list), err);
    json_decref(list);
    return err_set(err, BERTH_ENOMEM, "a list of texts");
}

DATASET(TextToLowercase, "Convert Text to Lowercase (DEPRECATED)", NODE_DEPRECATED, INS(TEXTS_IN),
        .run = lower_run);
DATASET(TextToUppercase, "Convert Text to Uppercase (DEPRECATED)", NODE_DEPRECATED, INS(TEXTS_IN),
        .run = upper_run);
DATASET(StripWhitespace, "Strip Whitespace (DEPRECATED)", NODE_DEPRECATED, INS(TEXTS_IN),
        .run = strip_run);
DATASET(TruncateText, "Truncate Text", 0, INS(TEXTS_IN, INT_IN("max_length", 77, 1, 10000, 0)),
        .run = truncate_run);
DATASET(AddTextPrefix, "Add Text Prefix (DEPRECATED)", NODE_DEPRECATED,
        INS(TEXTS_IN, TEXT_IN("prefix", "")), .run = affix_run, .own = "prefix");
DATASET(AddTextSuffix, "Add Text Suffix (DEPRECATED)", NODE_DEPRECATED,
        INS(TEXTS_IN, TEXT_IN("suffix", "")), .run = affix_run, .own = "suffix");
DATASET(ReplaceText, "Replace Text (DEPRECATED)", NODE_DEPRECATED,
        INS(TEXTS_IN, TEXT_IN("find", ""), TEXT_IN("replace", "")), .run = replace_run,
        .own = "texts");
NODE_CLASS(MergeTextLists, .display = "Merge Text Lists (DEPRECATED)", .category = "text",
           .module = MOD("dataset"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL | NODE_DEPRECATED | NODE_INPUT_IS_LIST,
           INS(TEXTS_IN), OUTS({ .type = "STRING", .name = "texts" }), .run = merge_run);
