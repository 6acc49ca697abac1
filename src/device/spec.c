#include "device/spec.h"

#include <inttypes.h>

struct text {
    const char *s;
    size_t n;
};

/* How workflows write names whose driver this build may lack. Only for better words when the index
 * is forgotten: any other kind is as good a name, and a driver of this build speaks for itself. */
static const struct {
    const char *name;
    bool indexed;
} ecosystem[] = {
    { "cuda", true }, { "xpu", true },      { "npu", true },   { "mlu", true },
    { "mps", false }, { "directml", true }, { "corex", true },
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static struct text trim(struct text t)
{
    while (t.n && is_space(t.s[0])) {
        t.s++;
        t.n--;
    }
    while (t.n && is_space(t.s[t.n - 1]))
        t.n--;
    return t;
}

/* Splits at the first c: *head is before it, the rest behind it. False: there is no c. */
static bool cut(struct text *t, char c, struct text *head)
{
    const char *at = t->n ? memchr(t->s, c, t->n) : NULL;
    *head = *t;
    if (!at)
        return false;
    head->n = (size_t)(at - t->s);
    t->s = at + 1;
    t->n -= head->n + 1;
    return true;
}

/* What outside text may take of a message. */
static int shown_len(struct text t)
{
    return t.n > 40 ? 40 : (int)t.n;
}

static berth_status parse_index(struct text t, struct spec_name *out, berth_err *err)
{
    uint64_t index;
    if (!str_parse_u64(t.s, t.n, &index) || (t.n > 1 && t.s[0] == '0'))
        return err_set(err, BERTH_EINVAL, "'%.*s' is not a device index", shown_len(t), t.s);
    if (index > DEV_INDEX_MAX)
        return err_set(err, BERTH_EINVAL, "device index %.*s is over %d", shown_len(t), t.s,
                       DEV_INDEX_MAX);
    out->index = (unsigned)index;
    return BERTH_OK;
}

/* Lower case letters into kind. False: something else is in it, or too much of it. */
static bool parse_kind(struct text t, char kind[DEV_NAME_MAX])
{
    if (!t.n || t.n > SPEC_KIND_MAX)
        return false;
    for (size_t i = 0; i < t.n; i++) {
        char c = t.s[i] >= 'A' && t.s[i] <= 'Z' ? (char)(t.s[i] + 32) : t.s[i];
        if (c < 'a' || c > 'z')
            return false;
        kind[i] = c;
    }
    kind[t.n] = '\0';
    return true;
}

/* Whether names of this kind carry an index. False: nobody here knows. */
static bool kind_indexed(const char *kind, bool *indexed)
{
    for (const struct dev_driver *const *d = dev_drivers(); *d; d++)
        if (strcmp((*d)->name, kind) == 0) {
            *indexed = (*d)->indexed;
            return true;
        }
    for (size_t i = 0; i < ARRAY_LEN(ecosystem); i++)
        if (strcmp(ecosystem[i].name, kind) == 0) {
            *indexed = ecosystem[i].indexed;
            return true;
        }
    return false;
}

void spec_name_text(struct spec_name *n)
{
    if (n->indexed)
        snprintf(n->text, sizeof n->text, "%.*s:%u", SPEC_KIND_MAX, n->kind, n->index);
    else
        snprintf(n->text, sizeof n->text, "%s", n->kind);
}

berth_status spec_parse_name(const char *s, size_t n, struct spec_name *out, berth_err *err)
{
    struct text t = trim((struct text) { s, n }), whole = t, kind;
    bool indexed;
    *out = (struct spec_name) { 0 };
    if (!t.n)
        return err_set(err, BERTH_EINVAL, "device name missing");
    bool has_index = cut(&t, ':', &kind);
    if (!parse_kind(kind, out->kind))
        return err_set(err, BERTH_EINVAL,
                       "'%.*s' is not a device name (write letters and an index, as in cuda:0)",
                       shown_len(whole), whole.s);
    if (kind_indexed(out->kind, &indexed) && indexed != has_index)
        return indexed ? err_set(err, BERTH_EINVAL, "device index missing: write %s:0", out->kind)
                       : err_set(err, BERTH_EINVAL, "%s takes no index", out->kind);
    if (has_index && parse_index(t, out, err))
        return err->code;
    out->indexed = has_index;
    spec_name_text(out);
    return BERTH_OK;
}

static berth_status parse_budget(struct text t, uint64_t *out, berth_err *err)
{
    t = trim(t);
    *out = SPEC_REST;
    if (t.n == 1 && t.s[0] == '*')
        return BERTH_OK;
    if (!t.n)
        return err_set(err, BERTH_EINVAL, "budget missing behind '='");
    if (!str_parse_bytes(t.s, t.n, out) || *out == SPEC_REST)
        return err_set(err, BERTH_EINVAL,
                       "'%.*s' is not a budget (write 24g, 512m, 1073741824 or *)", shown_len(t),
                       t.s);
    if (!*out)
        return err_set(err, BERTH_EINVAL, "budget is zero");
    return BERTH_OK;
}

static berth_status parse_entry(struct text t, struct spec_entry *e, berth_err *err)
{
    struct text left, name;
    bool has_budget = cut(&t, '=', &left);
    bool has_phys = cut(&left, '@', &name);
    if (spec_parse_name(name.s, name.n, &e->name, err))
        return err->code;
    e->phys = e->name;
    if (has_phys && spec_parse_name(left.s, left.n, &e->phys, err))
        return err_add(err, "behind '@'");
    e->budget = SPEC_REST;
    return has_budget ? parse_budget(t, &e->budget, err) : BERTH_OK;
}

static bool is_logical(const struct spec_entry *e)
{
    return strcmp(e->name.text, e->phys.text) != 0;
}

berth_status spec_shares(const struct spec *s, const char *phys, struct spec_shares *out,
                         berth_err *err)
{
    *out = (struct spec_shares) { 0 };
    for (size_t i = 0; i < s->n; i++) {
        const struct spec_entry *e = &s->entry[i];
        if (strcmp(e->phys.text, phys) != 0)
            continue;
        if (e->budget == SPEC_REST)
            out->rest = true;
        else if (__builtin_add_overflow(out->stated, e->budget, &out->stated))
            return err_set(err, BERTH_ELIMIT, "the budgets on %s do not fit in 64 bits", phys);
    }
    return BERTH_OK;
}

/* The new, last entry against those before it. */
static berth_status check_entry(const struct spec *s, bool hypothetical, berth_err *err)
{
    const struct spec_entry *e = &s->entry[s->n - 1];
    struct spec_shares shares;
    if (hypothetical && e->budget == SPEC_REST)
        return err_set(err, BERTH_EINVAL, "a hypothetical device needs a budget, as in %s=24g",
                       e->name.text);
    if (hypothetical && spec_shares(s, e->phys.text, &shares, err))
        return err->code; /* a real one is asked for its memory when it opens */
    for (size_t i = 0; i + 1 < s->n; i++) {
        const struct spec_entry *o = &s->entry[i];
        bool same_phys = strcmp(e->phys.text, o->phys.text) == 0;
        if (strcmp(e->name.text, o->name.text) == 0)
            return err_set(err, BERTH_EINVAL, "%s is also entry %zu", e->name.text, i + 1);
        if (same_phys && e->budget == SPEC_REST && o->budget == SPEC_REST)
            return err_set(err, BERTH_EINVAL,
                           "entry %zu already takes all that is left of %s: give one a budget",
                           i + 1, e->phys.text);
        const char *twofold =
            is_logical(o) && strcmp(e->phys.text, o->name.text) == 0   ? o->name.text
            : is_logical(e) && strcmp(o->phys.text, e->name.text) == 0 ? e->name.text
                                                                       : NULL;
        if (twofold)
            return err_set(err, BERTH_EINVAL,
                           "%s is a logical device here and a physical one there (entry %zu)",
                           twofold, i + 1);
    }
    return BERTH_OK;
}

static berth_status add_entry(struct text t, bool hypothetical, struct spec *out, berth_err *err)
{
    if (out->n == SPEC_MAX)
        return err_set(err, BERTH_ELIMIT, "devices: more than %d entries", SPEC_MAX);
    struct spec_entry *e = &out->entry[out->n++];
    *e = (struct spec_entry) { 0 };
    if (!t.n)
        err_set(err, BERTH_EINVAL, "empty");
    if (!t.n || parse_entry(t, e, err) || check_entry(out, hypothetical, err))
        return err_add(err, "devices: entry %zu '%.*s'", out->n, shown_len(t), t.n ? t.s : "");
    return BERTH_OK;
}

berth_status spec_parse(const char *s, size_t n, bool hypothetical, struct spec *out,
                        berth_err *err)
{
    struct text t = { s, n }, entry;
    berth_status st = BERTH_OK;
    out->n = 0;
    if (n > SPEC_TEXT_MAX)
        st = err_set(err, BERTH_ELIMIT, "devices: %zu bytes of text, at most %d", n, SPEC_TEXT_MAX);
    else if (!trim(t).n)
        st = err_set(err, BERTH_EINVAL, "devices: no device named");
    for (bool more = true; more && !st;) {
        more = cut(&t, ',', &entry);
        st = add_entry(trim(entry), hypothetical, out, err);
    }
    if (!st)
        return BERTH_OK;
    out->n = 0;
    return err_about(err, "devices");
}

const char *spec_entry_text(const struct spec_entry *e, char buf[SPEC_ENTRY_TEXT_MAX])
{
    static const char *const name[] = { "", "k", "m", "g" };
    char budget[24] = "";
    if (e->budget != SPEC_REST) {
        unsigned unit = 0; /* the largest that divides it */
        while (unit < 3 && e->budget % (UINT64_C(1) << 10 * (unit + 1)) == 0)
            unit++;
        snprintf(budget, sizeof budget, "=%" PRIu64 "%s", e->budget >> 10 * unit, name[unit]);
    }
    snprintf(buf, SPEC_ENTRY_TEXT_MAX, "%s%s%s%s", e->name.text, is_logical(e) ? "@" : "",
             is_logical(e) ? e->phys.text : "", budget);
    return buf;
}
