/* describe: the commands and their options as data, for completions and the man page.
 *
 * Every command keeps its options in a table inside its own run(), with pointers to where values
 * go. Asking a command for help is the one way to see that table, so that is what happens here:
 * run("--help") with a listener in the place of the printer. Nothing can be described that --help
 * does not show, and nothing that it shows can be left out.
 *
 * Words  A value is what its name says, everywhere: FILE is a file in every command. values.c knows
 *        what a shell may offer for each name; a test sees to it that it knows them all. */
#pragma once

#include "app/app.h"

const struct command *describe_at(size_t i); /* in the order of commands.def; NULL: no more */
const struct command *describe_find(const char *name);

/* fn(user, c, o): o is c's own table, with the global options behind it; valid for the call. False:
 * fn was not called, for want of memory, and the command has said so. */
typedef void describe_fn(void *user, const struct command *c, const struct opts *o);
bool describe(struct app *a, const struct command *c, describe_fn *fn, void *user);

/* The options in front of a command. */
void describe_globals(struct app *a, void (*fn)(void *user, const struct opts *o), void *user);

enum words {
    WORDS_NONE,    /* a number, a text: nothing to offer */
    WORDS_FILES,   /* names of files */
    WORDS_DIRS,    /* names of folders */
    WORDS_DEVICES, /* devices of the machine, one or several with commas between them */
    WORDS_LIST,    /* one of a few words */
};
/* What may stand for `value`, as struct opt and struct command name it. WORDS_LIST: the words are
 * appended to `out`, with blanks between them. False: nobody has heard of it, *kind is
 * WORDS_NONE. */
bool value_words(const char *value, enum words *kind, struct str *out);

/* A program that completes for one shell; completion_<shell>.c. */
struct shell {
    const char *name;
    const char *use; /* how it is switched on */
    void (*begin)(struct str *out, const struct opts *globals);
    void (*command)(struct str *out, const struct command *c, const struct opts *o);
    const char *end;
};
extern const struct shell shell_bash, shell_fish, shell_zsh;

/* cmd_help.c: what main() says as well. */
void help_overview(struct app *a);
int help_explain(struct app *a, const char *name); /* what `berth NAME --help` prints */
int help_unknown(struct app *a, const char *name); /* no such command; returns APP_USAGE */

/* The commands' part of the man page, as troff. */
void man_commands(struct app *a, struct str *out);
