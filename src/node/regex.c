/* regex.c: texts matched, taken out and replaced by regular expressions (pyre.h). */
#include "node/pyre.h"
#include "node/texts.h"

#include <string.h>

struct job { /* pattern and text of a node */
    struct text text, pattern;
    struct pyre re;
    struct pyre_scan scan;
};

static void job_release(struct job *j)
{
    pyre_close(&j->scan);
    pyre_release(&j->re);
}

/* *bad: the pattern is wrong, which some of the nodes take for no match. */
static berth_status job_open(struct node_call *c, struct job *j, bool *bad, berth_err *err)
{
    bool fold, lines, dot;
    *j = (struct job) { 0 };
    *bad = false;
    if (in_string(c, "string", &j->text, err) || in_string(c, "regex_pattern", &j->pattern, err) ||
        in_bool(c, "case_insensitive", &fold, err) || in_bool(c, "multiline", &lines, err) ||
        in_bool(c, "dotall", &dot, err))
        return err->code;
    unsigned flags =
        (fold ? PYRE_IGNORECASE : 0u) | (lines ? PYRE_MULTILINE : 0u) | (dot ? PYRE_DOTALL : 0u);
    berth_status s = pyre_compile(&j->re, j->pattern.p, j->pattern.n, flags, err);
    *bad = s == BERTH_EINVAL;
    if (*bad)
        c->raised = "re.error";
    if (!s)
        s = pyre_open(&j->scan, &j->re, j->text.p, j->text.n, err);
    j->scan.cancel = cancel_of(c);
    return s;
}

/* ---- RegexMatch ---- */

static berth_status match_run(struct node_call *c, berth_err *err)
{
    struct job j;
    bool bad, found = false;
    berth_status s = job_open(c, &j, &bad, err);
    if (!s)
        s = pyre_next(&j.scan, &found, err);
    job_release(&j);
    return s && !bad ? s : out_value(c, 0, value_bool(found), err);
}

#define PATTERN_IN LONG_TEXT_IN("string"), LONG_TEXT_IN("regex_pattern")
TEXT_NODE(RegexMatch, "Match Text",
          INS(PATTERN_IN, BOOL_IN("case_insensitive", true), BOOL_IN("multiline", false),
              BOOL_IN("dotall", false)),
          OUTS({ .type = "BOOLEAN", .name = "matches" }), .run = match_run);

/* ---- RegexExtract ---- */

/* Adds group i of the match, on a line of its own. */
static void add_group(const struct job *j, unsigned i, bool first, struct str *out)
{
    if (!first)
        str_addc(out, '\n');
    if (j->scan.mark[2 * i + 1] != SIZE_MAX)
        pyre_part(&j->scan, j->scan.mark[2 * i], j->scan.mark[2 * i + 1], out);
}

static bool took_part(const struct job *j, unsigned i)
{
    return j->scan.mark[2 * i + 1] != SIZE_MAX;
}

/* Group i of the first match. *none: it took no part, which is None. */
static berth_status extract_one(struct job *j, unsigned i, bool *none, struct str *out,
                                berth_err *err)
{
    bool found;
    berth_status s = pyre_next(&j->scan, &found, err);
    *none = !s && found && !took_part(j, i);
    if (!s && found)
        add_group(j, i, true, out);
    return s;
}

/* Of every match. */
static berth_status extract_all(struct node_call *c, struct job *j, unsigned i, bool strict,
                                struct str *out, berth_err *err)
{
    bool found = true;
    for (size_t n = 0;; n++) {
        berth_status s = pyre_next(&j->scan, &found, err);
        if (!s && found && strict && !took_part(j, i))
            s = raise_as(c, "TypeError", err,
                         "sequence item %zu: expected str instance, NoneType found", n);
        if (!s)
            s = text_fits(c, out->n, err);
        if (s || !found)
            return s;
        add_group(j, i, n == 0, out);
    }
}

static berth_status extract_run(struct node_call *c, berth_err *err)
{
    const char *mode;
    int64_t index;
    struct job j = { 0 };
    struct str out = { 0 };
    bool bad = false, none = false;
    if (in_text(c, "mode", &mode, err) || in_i64(c, "group_index", &index, err))
        return err->code;
    berth_status s = job_open(c, &j, &bad, err);
    bool there = !s && index <= j.re.groups;
    if (there && index < 0)
        s = raise_as(c, "IndexError", err, "no such group");
    unsigned i = there && index > 0 ? (unsigned)index : 0;
    if (!s && strcmp(mode, "First Match") == 0)
        s = extract_one(&j, 0, &none, &out, err);
    else if (!s && strcmp(mode, "All Matches") == 0) /* with groups, the first of them */
        s = extract_all(c, &j, j.re.groups ? 1 : 0, false, &out, err);
    else if (!s && strcmp(mode, "First Group") == 0 && there)
        s = extract_one(&j, i, &none, &out, err);
    else if (!s && strcmp(mode, "All Groups") == 0 && there && j.re.groups)
        s = extract_all(c, &j, i, true, &out, err);
    job_release(&j);
    if (s && !bad) {
        str_release(&out);
        return s;
    }
    if (!none)
        return give_text(c, 0, &out, err);
    str_release(&out);
    return out_value(c, 0, value_null(), err);
}

TEXT_NODE(RegexExtract, "Extract Text",
          INS(PATTERN_IN,
              COMBO_IN("mode", CHOICES("First Match", "All Matches", "First Group", "All Groups")),
              BOOL_IN("case_insensitive", true), BOOL_IN("multiline", false),
              BOOL_IN("dotall", false), INT_IN("group_index", 1, 0, 100, 0)),
          OUT_OF("STRING"), .run = extract_run);

/* ---- RegexReplace ---- */

static berth_status replace_all(struct node_call *c, struct job *j, const struct pyre_template *t,
                                int64_t count, struct str *out, berth_err *err)
{
    size_t done = 0;
    bool found = true;
    for (int64_t n = 0; found && (count == 0 || n < count); n++) {
        if (pyre_next(&j->scan, &found, err) || text_fits(c, out->n, err))
            return err->code;
        if (!found)
            break;
        pyre_part(&j->scan, done, j->scan.mark[0], out);
        pyre_expand(t, &j->scan, TEXT_MAX, out);
        done = j->scan.mark[1];
    }
    pyre_part(&j->scan, done, j->scan.n, out);
    return BERTH_OK;
}

static berth_status replace_run(struct node_call *c, berth_err *err)
{
    struct job j = { 0 };
    struct pyre_template t = { 0 };
    struct text by;
    int64_t count;
    bool bad;
    struct str out = { 0 };
    if (in_string(c, "replace", &by, err) || in_i64(c, "count", &count, err))
        return err->code;
    berth_status s = job_open(c, &j, &bad, err);
    if (!s) {
        s = pyre_template(&t, &j.re, by.p, by.n, err);
        c->raised = s == BERTH_ENOTFOUND ? "IndexError" : "re.error";
    }
    if (!s)
        s = replace_all(c, &j, &t, count < 0 ? 0 : count, &out, err);
    if (s != BERTH_EINVAL && s != BERTH_ENOTFOUND)
        c->raised = NULL;
    pyre_template_release(&t);
    job_release(&j);
    if (!s)
        return give_text(c, 0, &out, err);
    str_release(&out);
    return s;
}

TEXT_NODE(RegexReplace, "Replace Text (Regex)",
          INS(PATTERN_IN, LONG_TEXT_IN("replace"),
              BOOL_IN("case_insensitive", true, .optional = true),
              BOOL_IN("multiline", false, .optional = true),
              BOOL_IN("dotall", false, .optional = true),
              INT_IN("count", 0, 0, 100, 0, .optional = true)),
          OUT_OF("STRING"), .run = replace_run);
