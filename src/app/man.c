/* The commands of the man page: --help as troff. The prose around them is docs/man/berth.1.in. */
#include "app/describe.h"

/* n bytes of text: no letter of it is an instruction, and what is typed stays what it is. */
static void text(struct str *out, const char *s, size_t n)
{
    static const char special[] = "\\-`'~^";
    static const char *const as[] = { "\\e", "\\-", "\\(ga", "\\(aq", "\\(ti", "\\(ha" };
    for (size_t i = 0; i < n; i++) {
        const char *at = s[i] ? strchr(special, s[i]) : NULL;
        bool begins = !out->n || str_c(out)[out->n - 1] == '\n';
        if (begins && s[i] == '.')
            str_adds(out, "\\&"); /* else it would be a request */
        if (at)
            str_adds(out, as[at - special]);
        else
            str_addc(out, s[i]);
    }
}

static void option(struct str *out, const struct opt *t)
{
    str_adds(out, ".TP\n");
    if (t->letter)
        str_addf(out, "\\fB\\-%c\\fR, ", t->letter);
    str_adds(out, "\\fB\\-\\-");
    text(out, t->name, strlen(t->name));
    str_adds(out, "\\fR");
    if (t->value) {
        str_adds(out, " \\fI");
        text(out, t->value, strlen(t->value));
        str_adds(out, "\\fR");
    }
    str_addc(out, '\n');
    text(out, t->help, strlen(t->help));
    str_addc(out, '\n');
}

/* Paragraphs are filled; lines that begin with a blank are tables or examples and stay as they
 * are. */
static void put_prose(struct str *out, const char *s)
{
    bool open = false, literal = false;
    for (size_t n; *s; s += n + (s[n] == '\n')) {
        n = strcspn(s, "\n");
        bool table = n && s[0] == ' ';
        if (literal && !table) {
            str_adds(out, ".EE\n");
            literal = open = false;
        }
        if (!n) {
            open = false;
            continue;
        }
        if (!open)
            str_adds(out, ".PP\n");
        open = true;
        if (table && !literal)
            str_adds(out, ".EX\n");
        literal = table;
        text(out, s, n);
        str_addc(out, '\n');
    }
    if (literal)
        str_adds(out, ".EE\n");
}

/* Every command takes the global options; they are described once. */
static void add(void *user, const struct command *c, const struct opts *o)
{
    struct str *out = user;
    str_addf(out, ".SS berth %s ", c->name);
    text(out, c->usage, strlen(c->usage));
    str_addc(out, '\n');
    for (const char *p = c->about; p == c->about && *p; p++)
        str_addc(out, *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p);
    text(out, c->about + 1, strlen(c->about + 1));
    str_adds(out, ".\n");
    for (size_t i = 0; i < o->n; i++)
        option(out, &o->at[i]);
    if (c->more)
        put_prose(out, c->more);
    if (c->tables) {
        struct str more = { 0 };
        c->tables(&more);
        put_prose(out, str_c(&more));
        out->bad |= more.bad;
        str_release(&more);
    }
}

static void globals(void *user, const struct opts *o)
{
    for (size_t i = 0; i < o->n; i++)
        option(user, &o->at[i]);
}

void man_commands(struct app *a, struct str *out)
{
    str_adds(out, ".SH OPTIONS\nOf every command, in front of it or behind it; \\-\\-version in "
                  "front only.\n");
    describe_globals(a, globals, out);
    str_adds(out, ".SH COMMANDS\n");
    for (size_t i = 0; describe_at(i); i++)
        if (!describe(a, describe_at(i), add, out))
            out->bad = true; /* a page without a command is none */
}
