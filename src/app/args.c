#include "app/args.h"

#include "app/term.h"
#include "base/str.h"

#include <ctype.h>
#include <inttypes.h>
#include <strings.h>

#define HELP_COLUMNS 80
#define SUGGESTIONS 5
#define NEAREST_MAX 64 /* names of files have their length; longer words are not worth guessing */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* Edit distance with swaps of neighbours, over words of at most NEAREST_MAX letters. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t d[NEAREST_MAX + 1][NEAREST_MAX + 1];
    for (size_t i = 0; i <= n; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            size_t best = d[i - 1][j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]) && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

/* Letters and digits alone, for people write "dpm++ 2m" for dpmpp_2m. Returns how many. */
static size_t only_letters(const char *word, char out[NEAREST_MAX + 1])
{
    size_t n = 0;
    for (; *word && n < NEAREST_MAX; word++)
        if (!strchr(" _-.", *word))
            out[n++] = *word == '+' ? 'p' : *word;
    out[n] = '\0';
    return n;
}

static bool begins(const char *word, const char *candidate)
{
    size_t i = 0;
    while (word[i] && lower(word[i]) == lower(candidate[i]))
        i++;
    return !word[i];
}

/* Letters of ".safetensors" when both names end so: that makes no two files alike. 0: they do
 * not. */
static size_t same_ending(const char *a, const char *b)
{
    const char *x = strrchr(a, '.'), *y = strrchr(b, '.');
    return x && y && x > a && y > b && strcasecmp(x, y) == 0 ? strlen(x) : 0;
}

void nearest_try(struct nearest *n, const char *candidate)
{
    size_t a = strlen(n->word), b = strlen(candidate);
    if (!a || a > NEAREST_MAX || b > NEAREST_MAX)
        return;
    size_t ending = same_ending(n->word, candidate);
    a -= ending, b -= ending;
    size_t far = distance(n->word, a, candidate, b), longer = a > b ? a : b;
    if (a >= 3 && begins(n->word, candidate)) /* the start of it: as good as one slip */
        far = 1;
    char bare[NEAREST_MAX + 1], other[NEAREST_MAX + 1];
    size_t bare_n = only_letters(n->word, bare), other_n = only_letters(candidate, other);
    if (far > 1 && bare_n > 1 && bare_n == other_n && !distance(bare, bare_n, other, other_n))
        far = 1;
    if (far * 3 <= longer && (!n->best || far < n->distance)) {
        n->best = candidate;
        n->distance = far;
    }
}

/* "flux" begins 'flux2-dev', too, but 'flux-dev' is the likelier one: the word ends there. */
static int how_begun(const char *word, const char *name)
{
    return !begins(word, name) ? 0 : isalnum((unsigned char)name[strlen(word)]) ? 1 : 2;
}

bool suggest(struct str *out, const char *word, const char *(*at)(size_t i))
{
    struct nearest near = { .word = word };
    size_t begun[3] = { 0 }, said = 0;
    for (size_t i = 0; at(i); i++) {
        nearest_try(&near, at(i));
        if (strlen(word) >= 2)
            begun[how_begun(word, at(i))]++;
    }
    if (!begun[1] && !begun[2]) {
        if (near.best)
            str_addf(out, ", did you mean '%s'?", near.best);
        return near.best;
    }
    int how = begun[2] ? 2 : 1;
    size_t shown = begun[how] > SUGGESTIONS ? SUGGESTIONS : begun[how];
    for (size_t i = 0; said < shown; i++)
        if (how_begun(word, at(i)) == how) {
            str_addf(out, "%s'%s'",
                     !said                    ? ", did you mean "
                     : said + 1 == begun[how] ? " or "
                                              : ", ",
                     at(i));
            said++;
        }
    if (begun[how] > shown)
        str_addf(out, " or %zu others", begun[how] - shown);
    str_addc(out, '?');
    return true;
}

static const struct opt *find(const struct opts *o, const char *name, size_t len)
{
    for (; o; o = o->next)
        for (size_t i = 0; i < o->n; i++)
            if (str_eq(name, len, o->at[i].name))
                return &o->at[i];
    return NULL;
}

static const struct opt *find_letter(const struct opts *o, char letter)
{
    for (; o; o = o->next)
        for (size_t i = 0; i < o->n; i++)
            if (o->at[i].letter && o->at[i].letter == letter)
                return &o->at[i];
    return NULL;
}

static const char *guessed(const struct opts *o, const char *name, size_t len)
{
    for (; o; o = o->next)
        for (const struct opt_guess *g = o->guess; g && g->names; g++)
            for (const char *at = g->names; *at;) {
                size_t n = strcspn(at, "|");
                if (n == len && strncmp(at, name, n) == 0)
                    return g->instead;
                at += n + (at[n] == '|');
            }
    return NULL;
}

static berth_status unknown(const struct opts *o, const char *name, size_t len, berth_err *err)
{
    const char *instead = guessed(o, name, len);
    if (instead)
        return err_set(err, BERTH_EINVAL, "unknown option '--%.*s': %s", (int)len, name, instead);
    char word[NEAREST_MAX + 2] = "";
    if (len < sizeof word)
        memcpy(word, name, len);
    struct nearest near = { .word = word };
    for (; o; o = o->next)
        for (size_t i = 0; i < o->n; i++)
            nearest_try(&near, o->at[i].name);
    int shown = len < 80 ? (int)len : 80;
    if (near.best)
        return err_set(err, BERTH_EINVAL, "unknown option '--%.*s', did you mean '--%s'?", shown,
                       name, near.best);
    return err_set(err, BERTH_EINVAL, "unknown option '--%.*s'", shown, name);
}

static berth_status store(const struct opt *o, const char *value, berth_err *err)
{
    switch (o->kind) {
    case OPT_FLAG:
        *(bool *)o->to = true;
        return BERTH_OK;
    case OPT_TEXT:
        *(const char **)o->to = value;
        return BERTH_OK;
    case OPT_LIST: {
        struct opt_list *l = o->to;
        if (l->n == OPT_LIST_MAX)
            return err_set(err, BERTH_EINVAL, "more than %d --%s", OPT_LIST_MAX, o->name);
        l->at[l->n++] = value;
        return BERTH_OK;
    }
    case OPT_INT:
        break;
    }
    uint64_t v;
    if (!str_parse_u64(value, strlen(value), &v) || v < o->min || v > o->max)
        return err_set(err, BERTH_EINVAL, "--%s: '%.80s' is no number from %" PRIu64 " to %" PRIu64,
                       o->name, value, o->min, o->max);
    *(uint64_t *)o->to = v;
    return BERTH_OK;
}

struct reader {
    const struct opts *o;
    int argc, at;
    char **argv;
};

/* The value of `o`: what is attached, or the next word. `shown` is how the option was spelt. */
static berth_status take_value(struct reader *r, const struct opt *o, const char *attached,
                               const char *shown, berth_err *err)
{
    if (o->kind == OPT_FLAG) {
        if (attached)
            return err_set(err, BERTH_EINVAL, "option '%s' takes no value", shown);
        return store(o, NULL, err);
    }
    if (attached)
        return store(o, attached, err);
    if (r->at == r->argc)
        return err_set(err, BERTH_EINVAL, "option '%s' needs a value: %s", shown, o->value);
    const char *next = r->argv[r->at];
    if (next[0] == '-' && next[1] == '-') /* more likely a forgotten value than a value */
        return err_set(err, BERTH_EINVAL,
                       "option '%s' needs a value: %s, and '%.80s' looks like an option (write "
                       "--%s=%.80s if it is meant)",
                       shown, o->value, next, o->name, next);
    r->at++;
    return store(o, next, err);
}

static berth_status long_option(struct reader *r, const char *word, berth_err *err)
{
    const char *name = word + 2, *eq = strchr(name, '=');
    size_t len = eq ? (size_t)(eq - name) : strlen(name);
    const struct opt *o = find(r->o, name, len);
    if (!o)
        return unknown(r->o, name, len, err);
    char shown[64];
    snprintf(shown, sizeof shown, "--%s", o->name);
    return take_value(r, o, eq ? eq + 1 : NULL, shown, err);
}

/* -x, -xvalue; flags may be bundled: -ab. */
static berth_status short_options(struct reader *r, const char *word, berth_err *err)
{
    if (word[2] && find(r->o, word + 1, strlen(word + 1))) /* not -o with the value "utput" */
        return err_set(err, BERTH_EINVAL, "unknown option '%s', did you mean '-%s'?", word, word);
    for (const char *p = word + 1; *p; p++) {
        const char shown[3] = { '-', *p, '\0' };
        const struct opt *o = find_letter(r->o, *p);
        if (!o)
            return err_set(err, BERTH_EINVAL, "unknown option '%s'",
                           p == word + 1 && p[1] ? word : shown);
        if (o->kind != OPT_FLAG)
            return take_value(r, o, p[1] ? p + 1 : NULL, shown, err);
        berth_status s = take_value(r, o, NULL, shown, err);
        if (s)
            return s;
    }
    return BERTH_OK;
}

static berth_status parse(const struct opts *o, int argc, char **argv, bool front, int *n,
                          berth_err *err)
{
    struct reader r = { .o = o, .argc = argc, .argv = argv };
    bool only_plain = false;
    *n = 0;
    while (r.at < argc) {
        char *word = argv[r.at];
        berth_status s = BERTH_OK;
        if (only_plain || word[0] != '-' || !word[1]) {
            if (front)
                break;
            argv[(*n)++] = word; /* never ahead of r.at */
            r.at++;
            continue;
        }
        r.at++;
        if (word[1] != '-')
            s = short_options(&r, word, err);
        else if (word[2])
            s = long_option(&r, word, err);
        else
            only_plain = true;
        if (s)
            return s;
    }
    if (front)
        *n = r.at;
    return BERTH_OK;
}

berth_status args_parse(const struct opts *o, int argc, char **argv, int *n, berth_err *err)
{
    return parse(o, argc, argv, false, n, err);
}

berth_status args_parse_front(const struct opts *o, int argc, char **argv, int *n, berth_err *err)
{
    return parse(o, argc, argv, true, n, err);
}

static size_t label(const struct opt *o, char *buf, size_t cap)
{
    char letter[5] = "    ";
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    int n = snprintf(buf, cap, "  %s--%s%s%s", letter, o->name, o->value ? " " : "",
                     o->value ? o->value : "");
    return n < 0 ? 0 : (size_t)n;
}

void args_help(const struct opts *o, struct str *out)
{
    char buf[96];
    size_t width = 0;
    for (const struct opts *t = o; t; t = t->next)
        for (size_t i = 0; i < t->n; i++) {
            size_t n = label(&t->at[i], buf, sizeof buf);
            width = n > width ? n : width;
        }
    for (const struct opts *t = o; t; t = t->next)
        for (size_t i = 0; i < t->n; i++) {
            struct str text = { 0 };
            label(&t->at[i], buf, sizeof buf);
            term_wrap(&text, t->at[i].help, width + 2, HELP_COLUMNS);
            /* the first line continues behind the label */
            str_addf(out, "%-*s  %s\n", (int)width, buf,
                     text.n > width + 3 ? str_c(&text) + width + 3 : "");
            str_release(&text);
        }
}
