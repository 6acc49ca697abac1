/* Order by words, for networks that are placed but have no forward in this folder (arch.h). */
#include "model/arch.h"

#include "base/arena.h"
#include "base/str.h"

#include <stdlib.h>

/* What stands at one place of a name, by rank, in the upper bits of its code. The end of a name
 * comes before all of them. */
#define NUMBER (UINT64_C(1) << 62)  /* + the number */
#define WORD (UINT64_C(2) << 62)    /* + index in the list */
#define UNKNOWN (UINT64_C(3) << 62) /* and what is behind it does not count */
#define NUMBER_MAX (NUMBER - 1)     /* so many blocks there are not: beyond they may be equal */

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
static bool next_code(const struct arch *arch, struct cursor *at, uint64_t *code)
{
    if (!at->n)
        return false;
    size_t digits = 0, len = 0;
    while (digits < at->n && at->p[digits] >= '0' && at->p[digits] <= '9')
        digits++;
    if (digits && (digits == at->n || at->p[digits] == '.')) {
        *code = NUMBER + read_number(at->p, digits);
        step(at, digits);
        return true;
    }
    *code = UNKNOWN;
    for (size_t i = 0; i < arch->words_n; i++)
        if (arch->words[i].len > len && match(&arch->words[i], at)) {
            len = arch->words[i].len;
            *code = WORD + i;
        }
    step(at, len ? len : at->n);
    return true;
}

size_t arch_key(const struct arch *arch, const char *name, size_t n, uint64_t *out, size_t cap)
{
    struct cursor x = { .p = name, .n = n };
    uint64_t code;
    size_t k = 0;
    for (; next_code(arch, &x, &code); k++)
        if (k < cap)
            out[k] = code;
    return k;
}

/* ---- a file's tensors in that order ---- */

#define KEY_MAX 64 /* numbers of a key that count */

struct named { /* a tensor */
    size_t index;
    const uint64_t *key;
    size_t n;
};

static int by_key(const struct named *x, const struct named *y)
{
    for (size_t i = 0; i < x->n && i < y->n; i++)
        if (x->key[i] != y->key[i])
            return x->key[i] < y->key[i] ? -1 : 1;
    return (x->n > y->n) - (x->n < y->n);
}

static int by_key_and_place(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int c = by_key(x, y);
    return c ? c : (x->index > y->index) - (x->index < y->index);
}

/* False: out of memory. */
static bool read_key(const struct arch *arch, const char *block, size_t len, struct arena *mem,
                     struct named *out)
{
    uint64_t key[KEY_MAX];
    size_t n = arch_key(arch, block, len, key, KEY_MAX);
    out->n = n < KEY_MAX ? n : KEY_MAX;
    uint64_t *keep = arena_array(mem, out->n + 1, sizeof *keep);
    if (keep)
        memcpy(keep, key, out->n * sizeof *key);
    out->key = keep;
    return keep;
}

berth_status arch_trace_words(const struct arch *arch, const struct weights *w, const char *root,
                              struct block_trace *out, berth_err *err)
{
    struct arena mem = { 0 };
    size_t skip = strlen(root), n = 0;
    struct named *at = arena_array(&mem, weights_count(w) + 1, sizeof *at);
    bool fits = at;
    for (size_t i = 0; fits && i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (!str_starts(e->name, e->name_len, root))
            continue;
        size_t len = block_name_length(e->name + skip, e->name_len - skip);
        at[n].index = i;
        out->use[i].lookup = arch->embedding && arch->embedding(e->name + skip, len);
        fits = read_key(arch, e->name + skip, len, &mem, &at[n++]);
    }
    if (fits)
        qsort(at, n, sizeof *at, by_key_and_place);
    for (size_t i = 0; fits && i < n; i++) {
        out->turns += i == 0 || by_key(&at[i - 1], &at[i]) != 0;
        out->use[at[i].index].when = out->turns;
    }
    arena_release(&mem);
    return fits ? BERTH_OK : err_set(err, BERTH_ENOMEM, "the order of '%s'", weights_path(w));
}
