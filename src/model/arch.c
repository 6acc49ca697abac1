#include "model/arch.h"

#include "base/str.h"

static const struct arch *const all[] = {
#define ARCH(x) &arch_##x,
#include "model/archs.def"
#undef ARCH
};

size_t arch_count(void)
{
    return ARRAY_LEN(all);
}

const struct arch *arch_at(size_t i)
{
    if (i >= ARRAY_LEN(all))
        BUG("architecture %zu of %zu", i, ARRAY_LEN(all));
    return all[i];
}

const struct arch *arch_detect(const struct weights *w, const char *prefix)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (arch_is(all[i], w, prefix ? prefix : "", NULL))
            return all[i];
    return NULL;
}

bool arch_is(const struct arch *arch, const struct weights *w, const char *prefix,
             char root[ARCH_ROOT_MAX])
{
    static const char *const none[] = { "", NULL };
    char buf[ARCH_ROOT_MAX];
    for (const char *const *lead = arch->lead ? arch->lead : none; *lead; lead++) {
        int n = snprintf(buf, sizeof buf, "%s%s", prefix, *lead);
        if (n < 0 || (size_t)n >= sizeof buf || !arch->detect(w, buf))
            continue;
        if (root)
            memcpy(root, buf, (size_t)n + 1);
        return true;
    }
    return false;
}

/* A name longer than this is in no file: readers have a limit of 1024. */
#define NAME_MAX_BYTES 1100

const struct weights_entry *arch_find(const struct weights *w, const char *root, const char *name)
{
    char full[NAME_MAX_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", root, name);
    return n > 0 && (size_t)n < sizeof full ? weights_find(w, full, (size_t)n) : NULL;
}

const struct block_arch *arch_blocks(const struct weights *w, const char *prefix)
{
    const struct arch *a = arch_detect(w, prefix);
    return a ? &a->base : NULL;
}

bool arch_has_part(const struct weights *w, const char *prefix, const struct arch_part *part)
{
    char full[NAME_MAX_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", prefix ? prefix : "", part->prefix);
    return n > 0 && (size_t)n < sizeof full && arch_is(part->family, w, full, NULL);
}

size_t arch_part_of(const struct arch *arch, const char *block, size_t n, size_t *rest)
{
    size_t i = 0, at = 0;
    for (; i < arch->parts; i++) {
        size_t len = strlen(arch->part[i].prefix);
        at = n < len ? n : len; /* the prefix, or all of it but the dot */
        if (at + 1 >= len && memcmp(block, arch->part[i].prefix, at) == 0)
            break;
    }
    if (rest)
        *rest = i < arch->parts ? at : 0;
    return i;
}

bool arch_ends_with(const char *name, size_t n, const char *word)
{
    size_t len = strlen(word);
    return str_ends(name, n, word) && (n == len || name[n - len - 1] == '.');
}

/* ---- order ---- */

/* What stands at one place of a name, by rank. */
enum place { PLACE_END, PLACE_NUMBER, PLACE_WORD, PLACE_UNKNOWN };

struct token {
    enum place place;
    uint64_t value; /* NUMBER: itself; WORD: index in the list */
    size_t len;     /* of the name, dots behind not included */
};

struct cursor { /* a place in a name */
    const char *p;
    size_t n;
};

/* Does the name at this place begin with the entry, in whole parts? Sorting asks this a lot: the
 * cheap questions come first. */
static bool match(const struct arch_word *e, const struct cursor *at)
{
    return e->text[0] == at->p[0] && e->len <= at->n && (e->len == at->n || at->p[e->len] == '.') &&
           memcmp(e->text, at->p, e->len) == 0;
}

static struct token read_number(const char *s, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v)) {
            v = UINT64_MAX; /* so many blocks there are not: they may be equal */
            break;
        }
    return (struct token) { PLACE_NUMBER, v, n };
}

/* down: does the number behind the word count down? Left alone unless a word was read. */
static struct token read_token(const struct arch_word *word, size_t words, const struct cursor *at,
                               bool *down)
{
    if (!at->n)
        return (struct token) { PLACE_END, 0, 0 };
    size_t digits = 0;
    while (digits < at->n && at->p[digits] >= '0' && at->p[digits] <= '9')
        digits++;
    if (digits && (digits == at->n || at->p[digits] == '.'))
        return read_number(at->p, digits);
    struct token best = { PLACE_UNKNOWN, 0, 0 };
    for (size_t i = 0; i < words; i++)
        if (word[i].len > best.len && match(&word[i], at)) {
            best = (struct token) { PLACE_WORD, i, word[i].len };
            *down = word[i].down;
        }
    return best;
}

static void step(struct cursor *at, const struct token *t)
{
    size_t n = t->len < at->n ? t->len + 1 : at->n; /* the dot too */
    at->p += n;
    at->n -= n;
}

int arch_order(const struct arch_word *word, size_t words, const char *a, size_t an, const char *b,
               size_t bn)
{
    struct cursor x = { a, an }, y = { b, bn };
    bool down = false;
    for (;;) {
        bool down_y = false, was = down;
        down = false;
        struct token s = read_token(word, words, &x, &down);
        struct token t = read_token(word, words, &y, &down_y);
        if (s.place != t.place)
            return s.place < t.place ? -1 : 1;
        if (s.place == PLACE_END || s.place == PLACE_UNKNOWN)
            return 0;
        if (s.value != t.value)
            return (s.value < t.value) != (was && s.place == PLACE_NUMBER) ? -1 : 1;
        step(&x, &s);
        step(&y, &t);
    }
}
