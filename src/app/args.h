/* args: a small command-line reader.
 *
 * Forms   --name, --name=value, --name value, -x, -xvalue, -x value; "--" ends the options; a lone
 *         "-" is an argument. Options and arguments may come in any order; of an option given
 *         twice the last counts, unless it is an OPT_LIST. Long names are never abbreviated.
 * Errors  BERTH_EINVAL naming the offender, with the nearest name there is. Nothing is printed. */
#pragma once

#include "base/err.h"

enum opt_kind {
    OPT_FLAG, /* bool *: becomes true */
    OPT_TEXT, /* const char **: points into argv */
    OPT_INT,  /* uint64_t *: decimal, min..max */
    OPT_LIST, /* struct opt_list *: every value, in order */
};

#define OPT_LIST_MAX 64
struct opt_list {
    const char *at[OPT_LIST_MAX]; /* point into argv */
    size_t n;
};

struct opt {
    const char *name; /* without the dashes */
    char letter;      /* short form; 0: none */
    enum opt_kind kind;
    const char *value; /* what the value is called in the help text: "FILE"; NULL for flags */
    const char *help;  /* one line, or as many as it takes: it is wrapped */
    void *to;          /* see opt_kind; untouched when the option is not given */
    uint64_t min, max; /* OPT_INT */
};

/* One of each kind; `to` as opt_kind says. */
static inline struct opt opt_flag(const char *name, const char *help, bool *to)
{
    return (struct opt) { .name = name, .help = help, .to = to };
}

static inline struct opt opt_text(const char *name, const char *value, const char *help,
                                  const char **to)
{
    return (struct opt) { name, 0, OPT_TEXT, value, help, to, 0, 0 };
}

static inline struct opt opt_list(const char *name, const char *value, const char *help,
                                  struct opt_list *to)
{
    return (struct opt) { name, 0, OPT_LIST, value, help, to, 0, 0 };
}

static inline struct opt opt_int(const char *name, const char *value, const char *help,
                                 uint64_t min, uint64_t max, uint64_t *to)
{
    return (struct opt) { name, 0, OPT_INT, value, help, to, min, max };
}

static inline struct opt opt_letter(char letter, struct opt o) /* the same with a short form */
{
    o.letter = letter;
    return o;
}

struct opt_guess { /* names that people try ("a|b") and that are no options, and what does it */
    const char *names, *instead;
};

struct opts { /* several tables read as one, so that commands share the global options */
    const struct opt *at;
    size_t n;
    const struct opts *next;       /* NULL: the last table */
    const struct opt_guess *guess; /* up to one without a name; NULL: none */
};

/* Reads argv[0..argc). What is left, the plain arguments, moves to the front of argv in order; *n
 * tells how many. */
berth_status args_parse(const struct opts *o, int argc, char **argv, int *n, berth_err *err);

/* Like args_parse, and stops in front of the first plain argument: *n is its index, or argc. */
berth_status args_parse_front(const struct opts *o, int argc, char **argv, int *n, berth_err *err);

/* Appends every option, aligned, in 80 columns: "  -o, --output FILE   where to write". */
struct str;
void args_help(const struct opts *o, struct str *out);

/* The candidate that looks most like `word`, or NULL when none is close: at most a third of its
 * letters differ (inserted, dropped, changed or swapped; upper and lower case are equal), or
 * nothing but what stands between letters: "DPM++ 2M" is close to "dpmpp_2m". An ending of files
 * that both have (".safetensors") does not count. */
struct nearest {
    const char *word; /* in */
    const char *best; /* out: NULL when nothing is close */
    size_t distance;  /* of best */
};
void nearest_try(struct nearest *n, const char *candidate);

/* Appends ", did you mean 'a'?" with those of at(0), at(1), ... up to NULL that `word` begins, a
 * few of them where there are many, or else with the nearest. False: nothing is close, and nothing
 * was appended. */
bool suggest(struct str *out, const char *word, const char *(*at)(size_t i));
