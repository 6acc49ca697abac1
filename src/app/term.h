/* term: what the other end of a stream can show, and text made safe for it.
 *
 * Rules   Pictures when it is a terminal; colour when also NO_COLOR is unset or empty and TERM is
 *         not "dumb"; block characters when the locale says UTF-8; photographs (berth run --show)
 *         when there is both, and COLORTERM says 24 bits; the width is what the terminal says,
 *         else COLUMNS, else 80.
 * Threads struct progress: one thread at a time, as its callers promise. */
#pragma once

#include "base/clock.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdio.h>

struct term {
    bool tty, color, utf8, photos;
    int width; /* columns, TERM_WIDTH_MIN at least */
};

#define TERM_WIDTH_MIN 40
#define TERM_WIDTH_MAX 400

struct term_env { /* the environment as far as terminals care; NULL: unset */
    const char *no_color, *term, *columns, *lc_all, *lc_ctype, *lang, *colorterm;
};

struct term term_probe(FILE *f); /* asks the system */
int term_columns(FILE *f);       /* of the terminal right now; 0: none, or it does not say */
/* The rules alone. */
struct term term_decide(bool tty, int columns, const struct term_env *env);

/* Escape sequences, or "" without colour. */
enum style { STYLE_RESET, STYLE_BOLD, STYLE_DIM };
const char *term_style(const struct term *t, enum style s);
#define TERM_COLORS 15 /* all different; the first eight stand out best */
const char *term_color(const struct term *t, unsigned i); /* foreground, i modulo TERM_COLORS */

/* Appends outside text with control characters, marks that reorder a line and malformed bytes
 * escaped (\n, \x1b, \u{202e}); at most `max` columns, then "..." (0: no limit). */
void term_safe(struct str *out, const char *s, size_t n, size_t max);

/* The same in exactly `width` columns, 3 at least: a longer text ends in "...", a shorter one is
 * filled up with blanks. */
void term_cell(struct str *out, const char *s, size_t n, size_t width);
size_t term_width_of(const char *safe); /* columns of a text that term_safe() made */

/* A bar of `width` columns with `share` of it filled, 0..1. */
void term_bar(struct str *out, const struct term *t, double share, int width);

/* "12,345,678" */
void term_number(struct str *out, uint64_t v);
/* "860 M", "11.9 B": three digits for people; the exact number stands beside it */
void term_short_number(struct str *out, uint64_t v);

/* Appends the words of `text` on lines of their own, each indented and at most `width` columns
 * long; a longer word is left whole. Begins with a line end, has none at the end. */
void term_wrap(struct str *out, const char *text, size_t indent, size_t width);

/* "1 tensor", "2 tensors"; `one` is a word that takes an s. */
void term_count(struct str *out, uint64_t n, const char *one);

/* A line that is redrawn in place. It never wraps: the width is asked before every drawing, and
 * what does not fit is left out, the percentage last. Rate and time left follow the recent past,
 * because a disk that is fast while its cache fills would promise too much; the time is shown once
 * the line has been there for a second. */
struct progress {
    FILE *out;        /* stderr */
    struct term term; /* draws only on a tty */
    const struct clock *clock;
    const char *label; /* printable, borrowed */
    uint64_t start_ns, drawn_ns, drawn_done;
    double bytes, seconds; /* of the recent past: older drawings count less */
    size_t columns;        /* of the line that stands there; 0: none */
};

/* Nothing is drawn before: short jobs stay quiet. */
#define PROGRESS_DELAY_NS UINT64_C(1000000000)
#define PROGRESS_EVERY_NS UINT64_C(100000000)

void progress_init(struct progress *p, FILE *out, const struct term *t, const struct clock *clock,
                   const char *label);
void progress_set(struct progress *p, uint64_t done, uint64_t total); /* bytes */
void progress_end(struct progress *p);                                /* takes the line away */
