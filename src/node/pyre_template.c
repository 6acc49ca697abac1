/* pyre_template: replacements of regular expressions, as Python's re reads them. */
#include "node/pyre_tree.h"

#include <string.h>

static bool add_piece(struct pyre_template *t, struct pyre_piece piece)
{
    return (!piece.is_group && !piece.n) || vec_push(&t->part, &piece);
}

/* \g<name> behind 'g'. */
static bool template_group(struct parser *p, unsigned *out)
{
    const char *name;
    size_t n;
    uint64_t v;
    if (!take(p, '<')) {
        re_fail_at(p, p->at, "missing <");
        return false;
    }
    if (!re_name_until(p, '>', "group name", &name, &n))
        return false;
    if (is_digit(*name)) {
        if (!str_parse_u64(name, n, &v))
            return re_bad_name(p, name, n);
        if (v > p->p->groups) {
            char text[64];
            snprintf(text, sizeof text, "invalid group reference %.*s", n > 20 ? 20 : (int)n, name);
            re_fail_at(p, (size_t)(name - p->s), text);
            return false;
        }
        *out = (unsigned)v;
        return true;
    }
    if (!re_is_identifier(name, n))
        return re_bad_name(p, name, n);
    return re_find_name(p->p, name, n, out) ||
           (p->failed = true,
            err_set(p->err, BERTH_ENOTFOUND, "unknown group name '%.*s'", n > 100 ? 100 : (int)n,
                    name),
            false);
}

/* A digit behind '\': octal, or a group that must be there. */
static bool template_digit(struct parser *p, size_t from, struct escape *e)
{
    if (!re_numbered(p, from, e))
        return false;
    if (e->is != E_GROUP || e->c <= p->p->groups)
        return true;
    char text[64];
    snprintf(text, sizeof text, "invalid group reference %u", e->c);
    re_fail_at(p, from + 1, text);
    return false;
}

static bool template_escape(struct parser *p, struct escape *e, bool *both)
{
    static const char name[] = "abfnrtv\\", value[] = "\a\b\f\n\r\t\v\\";
    size_t from = p->at - 1;
    *both = false;
    if (!more(p)) {
        re_fail_at(p, from, "bad escape (end of pattern)");
        return false;
    }
    char c = p->s[p->at++];
    const char *at = strchr(name, c);
    unsigned group;
    if (c && at) {
        *e = (struct escape) { .is = E_CHAR, .c = (uint32_t)value[at - name] };
        return true;
    }
    if (c == 'g') {
        bool ok = template_group(p, &group);
        *e = (struct escape) { .is = E_GROUP, .c = ok ? group : 0 };
        return ok;
    }
    if (is_digit(c))
        return template_digit(p, from, e);
    if (is_letter(c))
        return re_bad_escape(p, from);
    p->at--;
    *e = (struct escape) { .is = E_CHAR, .c = next_point(p) };
    *both = true; /* the backslash stays */
    return true;
}

berth_status pyre_template(struct pyre_template *t, const struct pyre *p, const char *s, size_t n,
                           berth_err *err)
{
    struct pyre names = *p; /* looked at, not changed */
    struct parser x = { .p = &names, .s = s, .n = n, .err = err };
    size_t begun = 0;
    bool room = true;
    *t = (struct pyre_template) { .part.elem = sizeof(struct pyre_piece) };
    while (more(&x) && room) {
        struct escape e = { .is = E_CHAR };
        bool both = false;
        if (!take(&x, '\\')) {
            str_addc(&t->text, x.s[x.at++]);
            continue;
        }
        if (!template_escape(&x, &e, &both))
            return err->code;
        if (e.is == E_GROUP) {
            room = add_piece(t, (struct pyre_piece) { .from = begun, .n = t->text.n - begun }) &&
                   add_piece(t, (struct pyre_piece) { .group = e.c, .is_group = true });
            begun = t->text.n;
            if (t->part.n > PYRE_PIECES_MAX)
                return err_set(err, BERTH_ELIMIT, "the replacement has more than %d pieces",
                               PYRE_PIECES_MAX);
        } else {
            char bytes[4];
            if (both)
                str_addc(&t->text, '\\');
            str_add(&t->text, bytes, utf8_put(e.c, bytes));
        }
    }
    room = room && add_piece(t, (struct pyre_piece) { .from = begun, .n = t->text.n - begun });
    return room && !t->text.bad ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a replacement");
}

void pyre_template_release(struct pyre_template *t)
{
    str_release(&t->text);
    vec_release(&t->part);
}
