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
#define LAYERS_MAX 10000 /* numbers beyond are no layers' */

const struct weights_entry *arch_find(const struct weights *w, const char *root, const char *name)
{
    char full[NAME_MAX_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", root, name);
    return n > 0 && (size_t)n < sizeof full ? weights_find(w, full, (size_t)n) : NULL;
}

uint32_t arch_layers(const struct weights *w, const char *root, const char *list)
{
    char lead[NAME_MAX_BYTES];
    uint32_t most = 0;
    int n = snprintf(lead, sizeof lead, "%s%s.", root, list);
    if (n < 0 || (size_t)n >= sizeof lead)
        return 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        const char *s = e->name + n, *dot;
        uint64_t number;
        if (str_starts(e->name, e->name_len, lead) && (dot = strchr(s, '.')) &&
            str_parse_u64(s, (size_t)(dot - s), &number) && number < LAYERS_MAX && number >= most)
            most = (uint32_t)number + 1;
    }
    return most;
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

/* What stands at one place of a name, by rank, in the upper bits of its code. The end of a name
 * comes before all of them. */
#define NUMBER (UINT64_C(1) << 62)  /* + the number */
#define WORD (UINT64_C(2) << 62)    /* + index in the list */
#define UNKNOWN (UINT64_C(3) << 62) /* and what is behind it does not count */
#define NUMBER_MAX (NUMBER - 1)     /* so many blocks there are not: beyond they may be equal */

struct cursor { /* a place in a name */
    const char *p;
    size_t n;
    bool down; /* a number here counts down */
};

/* Does the name at this place begin with the entry, in whole parts? Sorting asks this a lot: the
 * cheap questions come first. */
static bool match(const struct arch_word *e, const struct cursor *at)
{
    return e->text[0] == at->p[0] && e->len <= at->n && (e->len == at->n || at->p[e->len] == '.') &&
           memcmp(e->text, at->p, e->len) == 0;
}

static uint64_t read_number(const char *s, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n && v < NUMBER_MAX; i++) {
        unsigned digit = (unsigned)(s[i] - '0');
        v = v > (NUMBER_MAX - digit) / 10 ? NUMBER_MAX : 10 * v + digit;
    }
    return v;
}

/* Over `len` bytes of the name and the dot behind them. */
static void step(struct cursor *at, size_t len)
{
    size_t n = len < at->n ? len + 1 : at->n;
    at->p += n;
    at->n -= n;
}

/* The code of what stands here, and on to the next; false: the name ends here. */
static bool next_code(const struct arch_word *word, size_t words, struct cursor *at, uint64_t *code)
{
    if (!at->n)
        return false;
    bool down = at->down;
    size_t digits = 0, len = 0;
    at->down = false;
    while (digits < at->n && at->p[digits] >= '0' && at->p[digits] <= '9')
        digits++;
    if (digits && (digits == at->n || at->p[digits] == '.')) {
        uint64_t v = read_number(at->p, digits);
        *code = NUMBER + (down ? NUMBER_MAX - v : v);
        step(at, digits);
        return true;
    }
    *code = UNKNOWN;
    for (size_t i = 0; i < words; i++)
        if (word[i].len > len && match(&word[i], at)) {
            len = word[i].len;
            *code = WORD + i;
            at->down = word[i].down;
        }
    step(at, len ? len : at->n);
    return true;
}

int arch_order(const struct arch_word *word, size_t words, const char *a, size_t an, const char *b,
               size_t bn)
{
    struct cursor x = { .p = a, .n = an }, y = { .p = b, .n = bn };
    for (;;) {
        uint64_t s, t;
        bool more = next_code(word, words, &x, &s), more_y = next_code(word, words, &y, &t);
        if (!more || !more_y)
            return more - more_y;
        if (s != t)
            return s < t ? -1 : 1;
    }
}

size_t arch_key(const struct arch_word *word, size_t words, const char *name, size_t n,
                uint64_t *out, size_t cap)
{
    struct cursor x = { .p = name, .n = n };
    uint64_t code;
    size_t k = 0;
    for (; next_code(word, words, &x, &code); k++)
        if (k < cap)
            out[k] = code;
    return k;
}
