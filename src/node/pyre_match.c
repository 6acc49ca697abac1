/* pyre_match: a pattern against a text. Ways not taken yet lie on a stack, and between them what
 * has to be put back when one of them is taken. */
#include "base/utf8.h"
#include "node/py.h"
#include "node/pyre_impl.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

#define STACK_MAX ((size_t)2 << 20) /* entries */

/* ---- characters ---- */

/* Letters that share an upper case, beside those that lower case finds. */
static const uint32_t alike[][2] = {
    { 0x131, 'i' },     { 0x17f, 's' },     { 0xb5, 0x3bc },   { 0x345, 0x3b9 },  { 0x1fbe, 0x3b9 },
    { 0x1fd3, 0x390 },  { 0x1fe3, 0x3b0 },  { 0x3d0, 0x3b2 },  { 0x3f5, 0x3b5 },  { 0x3d1, 0x3b8 },
    { 0x3f0, 0x3ba },   { 0x3d6, 0x3c0 },   { 0x3f1, 0x3c1 },  { 0x3c2, 0x3c3 },  { 0x3d5, 0x3c6 },
    { 0x1e9b, 0x1e61 }, { 0xfb05, 0xfb06 }, { 0x1c80, 0x432 }, { 0x1c81, 0x434 }, { 0x1c82, 0x43e },
    { 0x1c83, 0x441 },  { 0x1c84, 0x442 },  { 0x1c85, 0x442 }, { 0x1c86, 0x44a }, { 0x1c87, 0x463 },
    { 0x1c88, 0xa64b },
};

/* What a function of whole texts makes of one point; several: the point itself, except for U+0130,
 * whose lower case begins with i. */
static uint32_t mapped(uint32_t c, void (*fn)(const char *s, size_t n, struct str *out))
{
    char bytes[4];
    struct str out = { 0 };
    uint32_t to = c;
    if (c >= 0xd800 && c < 0xe000)
        return c;
    fn(bytes, utf8_put(c, bytes), &out);
    if (out.n && (utf8_get(out.p, out.n, &to) < out.n) && c != 0x130)
        to = c;
    str_release(&out);
    return to;
}

static uint32_t lower(uint32_t c)
{
    return c < 0x80 ? (c >= 'A' && c <= 'Z' ? c + 0x20 : c) : mapped(c, py_lower);
}

uint32_t pyre_fold(uint32_t c)
{
    c = lower(c);
    for (size_t i = 0; i < ARRAY_LEN(alike) && c >= 0x80; i++)
        if (alike[i][0] == c)
            return alike[i][1];
    return c;
}

static uint32_t fold_ascii(uint32_t c)
{
    return c >= 'A' && c <= 'Z' ? c + 0x20 : c;
}

bool pyre_is_word(uint32_t c, bool ascii)
{
    if (c < 0x80 || ascii)
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '_';
    enum uc_class k = uc_class(c);
    return k == UC_LETTER || k == UC_NUMBER;
}

static bool is_digit(uint32_t c, bool ascii)
{
    return c < 0x80 || ascii ? c >= '0' && c <= '9' : uc_decimal(c) >= 0;
}

static bool is_space(uint32_t c, bool ascii)
{
    return ascii ? c == ' ' || (c >= 9 && c <= 13) : py_is_space(c);
}

static bool is_member(enum re_member k, uint32_t c, bool ascii)
{
    return k == IN_DIGIT  ? is_digit(c, ascii)
           : k == IN_WORD ? pyre_is_word(c, ascii)
                          : is_space(c, ascii);
}

static bool has(const struct re_set *s, uint32_t c, bool ascii)
{
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (c < s->range[mid].from)
            hi = mid;
        else if (c > s->range[mid].to)
            lo = mid + 1;
        else
            return true;
    }
    for (int k = 0; k < RE_MEMBERS; k++)
        if ((s->in[k] || s->out[k]) && (is_member(k, c, ascii) ? s->in[k] : s->out[k]))
            return true;
    return false;
}

bool pyre_in_set(const struct re_set *s, uint32_t c, bool fold, bool ascii)
{
    bool in = has(s, c, ascii);
    if (!in && fold) {
        uint32_t low = ascii ? fold_ascii(c) : pyre_fold(c);
        in = has(s, low, ascii);
        if (!in && (c < 0x80 || ascii)) {
            in = low >= 'a' && low <= 'z' && has(s, low - 0x20, ascii);
        } else if (!in) {
            in = has(s, mapped(low, py_upper), ascii);
        }
        for (size_t i = 0; !in && !ascii && i < ARRAY_LEN(alike); i++)
            in = alike[i][1] == low && has(s, alike[i][0], ascii);
    }
    return in != s->inverse;
}

/* ---- the stack ---- */

enum kept { WAY, MARK, REGISTER };
struct entry {
    enum kept is;
    size_t a, b; /* WAY: instruction, place. else: which, and its old value */
};

static bool push(struct pyre_scan *s, enum kept is, size_t a, size_t b)
{
    if (s->stack.n >= STACK_MAX)
        return false;
    s->no_memory = !vec_push(&s->stack, &(struct entry) { is, a, b });
    return !s->no_memory;
}

static struct entry *top(const struct pyre_scan *s)
{
    return vec_at(&s->stack, s->stack.n - 1);
}

static void put_back(struct pyre_scan *s, const struct entry *e)
{
    if (e->is == MARK)
        s->mark[e->a] = e->b;
    else if (e->is == REGISTER)
        s->loop[e->a] = e->b;
}

/* The last way not taken, above `base`. False: there is none. */
static bool back(struct pyre_scan *s, size_t base, size_t *pc, size_t *at)
{
    while (s->stack.n > base) {
        struct entry e = *top(s);
        vec_pop(&s->stack);
        if (e.is == WAY) {
            *pc = e.a;
            *at = e.b;
            return true;
        }
        put_back(s, &e);
    }
    return false;
}

/* Forgets the ways above `base`, and keeps what has to be put back. */
static void cut(struct pyre_scan *s, size_t base)
{
    size_t to = base;
    for (size_t i = base; i < s->stack.n; i++) {
        struct entry e = *(struct entry *)vec_at(&s->stack, i);
        if (e.is != WAY)
            *(struct entry *)vec_at(&s->stack, to++) = e;
    }
    while (s->stack.n > to)
        vec_pop(&s->stack);
}

static void undo(struct pyre_scan *s, size_t base)
{
    while (s->stack.n > base) {
        put_back(s, top(s));
        vec_pop(&s->stack);
    }
}

/* ---- matching ---- */

static bool same_char(const struct pyre_code *c, uint32_t t)
{
    if (t == c->c)
        return true;
    return c->fold && (c->ascii ? fold_ascii(t) == fold_ascii(c->c) : pyre_fold(t) == c->x);
}

static bool is_at(const struct pyre_scan *s, const struct pyre_code *c, size_t at)
{
    bool before, after;
    switch ((enum re_at)c->c) {
    case AT_START:
        return at == 0;
    case AT_LINE_START:
        return at == 0 || s->text[at - 1] == '\n';
    case AT_END: /* in front of a line end that is the last too */
        return at == s->n || (at + 1 == s->n && s->text[at] == '\n');
    case AT_TEXT_END:
        return at == s->n;
    case AT_LINE_END:
        return at == s->n || s->text[at] == '\n';
    default:
        before = at && pyre_is_word(s->text[at - 1], c->ascii);
        after = at < s->n && pyre_is_word(s->text[at], c->ascii);
        return s->n && (before != after) == (c->c == AT_WORD); /* neither is in an empty text */
    }
}

/* The text of a group once more; its length, SIZE_MAX: not here. Each point compared is a step. */
static size_t repeated(struct pyre_scan *s, const struct pyre_code *c, size_t at)
{
    size_t from = s->mark[2 * c->c], to = s->mark[2 * c->c + 1];
    if (from == SIZE_MAX || to == SIZE_MAX || to - from > s->n - at)
        return SIZE_MAX;
    for (size_t i = 0; i < to - from; i++, s->steps++) {
        uint32_t a = s->text[from + i], b = s->text[at + i];
        bool same = a == b ||
                    (c->fold && (c->ascii ? fold_ascii(a) == fold_ascii(b) : lower(a) == lower(b)));
        if (!same)
            return SIZE_MAX;
    }
    return to - from;
}

enum outcome { FOUND, NONE, STOPPED };

#define STEPS_BETWEEN_LOOKS (1 << 16)

/* One step more. False: too many, or nobody wants the result any longer. */
static bool go_on(struct pyre_scan *s)
{
    if (++s->steps > PYRE_STEPS_MAX)
        return false;
    if (s->cancel && s->steps >= s->next_look) {
        s->next_look = s->steps + STEPS_BETWEEN_LOOKS;
        s->canceled = atomic_load_explicit(s->cancel, memory_order_relaxed);
    }
    return !s->canceled;
}

static enum outcome run(struct pyre_scan *s, size_t pc, size_t *at);

/* RE_LOOK and RE_ATOMIC: what stands between them and their RE_DONE. *ok: goes on at *at. */
static enum outcome inner(struct pyre_scan *s, const struct pyre_code *c, size_t pc, size_t *at,
                          bool *ok)
{
    size_t base = s->stack.n, place = *at;
    *ok = c->op == RE_LOOK && c->flag; /* not: good, if nothing is found */
    if (c->behind) {
        if (c->c > place)
            return FOUND;
        place -= c->c;
    }
    enum outcome o = run(s, pc + 1, &place);
    if (o != FOUND)
        return o == NONE ? FOUND : o;
    if (c->op == RE_LOOK && c->flag) {
        undo(s, base);
        *ok = false;
        return FOUND;
    }
    cut(s, base);
    *at = c->op == RE_ATOMIC ? place : *at;
    *ok = true;
    return FOUND;
}

/* From an instruction and a place on, to RE_MATCH or RE_DONE. NONE: everything above the stack's
 * present top was tried and put back. */
static enum outcome run(struct pyre_scan *s, size_t pc, size_t *at)
{
    const struct pyre_code *code = s->p->code.p;
    size_t base = s->stack.n, place = *at, start = *at, n;
    for (;;) {
        const struct pyre_code *c = &code[pc];
        bool ok = true, room = true;
        if (!go_on(s))
            return STOPPED;
        switch (c->op) {
        case RE_CHAR:
            ok = place < s->n && same_char(c, s->text[place]);
            place += ok;
            break;
        case RE_ANY:
            ok = place < s->n && (c->flag || s->text[place] != '\n');
            place += ok;
            break;
        case RE_SET:
            ok = place < s->n && pyre_in_set(c->set, s->text[place], c->fold, c->ascii);
            place += ok;
            break;
        case RE_SPLIT:
            room = push(s, WAY, c->y, place);
            pc = c->x - 1;
            break;
        case RE_JUMP:
            pc = c->x - 1;
            break;
        case RE_MARK:
            room = push(s, MARK, c->c, s->mark[c->c]);
            s->mark[c->c] = place;
            break;
        case RE_LOOP:
            room = push(s, REGISTER, c->c, s->loop[c->c]);
            s->loop[c->c] = place;
            break;
        case RE_PROGRESS:
            pc = s->loop[c->c] == place ? c->x - 1 : pc;
            break;
        case RE_GROUP:
            n = repeated(s, c, place);
            ok = n != SIZE_MAX;
            place += ok ? n : 0;
            break;
        case RE_AT:
            ok = is_at(s, c, place);
            break;
        case RE_LOOK:
        case RE_ATOMIC:
            if (inner(s, c, pc, &place, &ok) == STOPPED)
                return STOPPED;
            pc = c->x - 1;
            break;
        case RE_COND:
            pc = s->mark[2 * c->c + 1] == SIZE_MAX ? c->x - 1 : pc;
            break;
        case RE_MATCH:
            if (s->must_advance && place == start && start == s->at) {
                ok = false;
                break;
            }
            /* fallthrough */
        case RE_DONE:
            *at = place;
            return FOUND;
        }
        if (!room)
            return STOPPED;
        pc++;
        if (!ok && !back(s, base, &pc, &place))
            return NONE;
    }
}

/* ---- scans ---- */

berth_status pyre_open(struct pyre_scan *s, const struct pyre *p, const char *text, size_t n,
                       berth_err *err)
{
    size_t points = py_len(text, n);
    *s = (struct pyre_scan) { .p = p, .stack.elem = sizeof(struct entry) };
    if (points > PYRE_TEXT_MAX)
        return err_set(err, BERTH_ELIMIT,
                       "the text has %zu characters; the limit for searches is %zu", points,
                       PYRE_TEXT_MAX);
    s->text = calloc(points + 1, sizeof *s->text);
    s->loop = calloc(p->loops + 1, sizeof *s->loop);
    if (!s->text || !s->loop)
        return err_set(err, BERTH_ENOMEM, "searching a text");
    for (size_t i = 0; i < n; s->n++)
        i += utf8_get(text + i, n - i, &s->text[s->n]);
    return BERTH_OK;
}

void pyre_close(struct pyre_scan *s)
{
    free(s->text);
    free(s->loop);
    vec_release(&s->stack);
    *s = (struct pyre_scan) { 0 };
}

berth_status pyre_next(struct pyre_scan *s, bool *found, berth_err *err)
{
    *found = false;
    for (size_t from = s->at; from <= s->n; from++) {
        size_t end = from;
        for (size_t i = 0; i < 2 * (s->p->groups + 1); i++)
            s->mark[i] = SIZE_MAX;
        while (s->stack.n)
            vec_pop(&s->stack);
        enum outcome o = run(s, 0, &end);
        if (o == STOPPED && s->no_memory)
            return err_set(err, BERTH_ENOMEM, "searching a text");
        if (o == STOPPED && s->canceled)
            return err_set(err, BERTH_ECANCELED, "the search was interrupted");
        if (o == STOPPED)
            return err_set(err, BERTH_ELIMIT,
                           "the regular expression takes more than %d steps for this text",
                           PYRE_STEPS_MAX);
        if (o == NONE)
            continue;
        s->mark[0] = from;
        s->mark[1] = end;
        s->must_advance = end == from;
        s->at = end;
        *found = true;
        return BERTH_OK;
    }
    s->at = s->n + 1;
    return BERTH_OK;
}

void pyre_part(const struct pyre_scan *s, size_t from, size_t to, struct str *out)
{
    for (size_t i = from; i < to; i++) {
        char bytes[4];
        str_add(out, bytes, utf8_put(s->text[i], bytes));
    }
}

void pyre_expand(const struct pyre_template *t, struct pyre_scan *s, size_t most, struct str *out)
{
    s->steps += t->part.n;
    for (size_t i = 0; i < t->part.n && out->n <= most && !out->bad; i++) {
        const struct pyre_piece *p = vec_at(&t->part, i);
        if (!p->is_group)
            str_add(out, str_c(&t->text) + p->from, p->n);
        else if (s->mark[2 * p->group + 1] != SIZE_MAX)
            pyre_part(s, s->mark[2 * p->group], s->mark[2 * p->group + 1], out);
    }
}
