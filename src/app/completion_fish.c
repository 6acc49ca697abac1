/* What fish needs: one `complete` line an option. */
#include "app/describe.h"

static const char head[] =
    "# fish completion for berth; 'berth completion fish' printed it\n"
    "\n"
    "function __berth_devices # the host, and the cards that NVIDIA's driver shows\n"
    "    set -l before (string match -r '^.*,' -- (commandline -ct | string replace -r '^--[^=]*=' "
    "''))\n"
    "    echo \"$before\"cpu\n"
    "    for card in /dev/nvidia*\n"
    "        set -l n (string match -r '[0-9]+$' -- $card); and echo \"$before\"cuda:$n\n"
    "    end\n"
    "end\n"
    "\n";

/* fish's own __fish_use_subcommand takes the value of an option for the command. */
static const char at_begin[] =
    "function __berth_at -a command # is the cursor behind it? '': in front of any\n"
    "    set -l words (commandline -opc)\n"
    "    set -l value\n"
    "    set -e words[1]\n"
    "    for word in $words\n"
    "        if test -n \"$value\"\n"
    "            set value\n"
    "            continue\n"
    "        end\n"
    "        switch $word\n"
    "            case";
static const char at_end[] = "\n"
                             "                set value next\n"
                             "            case '-*'\n"
                             "            case '*'\n"
                             "                test \"$word\" = \"$command\"\n"
                             "                return\n"
                             "        end\n"
                             "    end\n"
                             "    test -z \"$command\"\n"
                             "end\n"
                             "\n"
                             "complete -c berth -f\n";

static void begin_at(struct str *out, const struct opts *globals)
{
    str_adds(out, at_begin);
    for (const struct opts *o = globals; o; o = o->next)
        for (size_t i = 0; i < o->n; i++) {
            if (o->at[i].kind == OPT_FLAG)
                continue;
            str_addf(out, " --%s", o->at[i].name);
            if (o->at[i].letter)
                str_addf(out, " -%c", o->at[i].letter);
        }
    str_adds(out, at_end);
}

/* Inside '...' of fish. */
static void quoted(struct str *out, const char *text)
{
    str_addc(out, '\'');
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            str_addc(out, '\\');
        str_addc(out, *text == '\n' ? ' ' : *text);
    }
    str_addc(out, '\'');
}

/* What is offered: options of `complete`. An option's value must be there (-r, -x). */
static void offer(struct str *out, const char *value, bool option)
{
    enum words kind;
    struct str list = { 0 };
    value_words(value, &kind, &list);
    if (kind == WORDS_FILES)
        str_adds(out, option ? " -r -F" : " -F");
    else if (option)
        str_adds(out, " -x");
    if (kind == WORDS_DIRS)
        str_adds(out, " -a '(__fish_complete_directories)'");
    else if (kind == WORDS_DEVICES)
        str_adds(out, " -a '(__berth_devices)'");
    else if (kind == WORDS_LIST)
        str_addf(out, " -a '%s'", str_c(&list));
    out->bad |= list.bad;
    str_release(&list);
}

static void options(struct str *out, const char *when, const struct opts *o)
{
    for (; o; o = o->next)
        for (size_t i = 0; i < o->n; i++) {
            const struct opt *t = &o->at[i];
            str_addf(out, "complete -c berth -n '%s' -l %s", when, t->name);
            if (t->letter)
                str_addf(out, " -s %c", t->letter);
            if (t->kind != OPT_FLAG)
                offer(out, t->value, true);
            str_adds(out, " -d ");
            quoted(out, t->help);
            str_addc(out, '\n');
        }
}

static void begin(struct str *out, const struct opts *globals)
{
    str_adds(out, head);
    begin_at(out, globals);
    options(out, "__berth_at \"\"", globals);
}

static void command(struct str *out, const struct command *c, const struct opts *o)
{
    char when[96];
    snprintf(when, sizeof when, "__berth_at %s", c->name);
    str_addf(out, "\ncomplete -c berth -n '__berth_at \"\"' -a %s -d ", c->name);
    quoted(out, c->about);
    str_addc(out, '\n');
    options(out, when, o);
    if (c->args) {
        str_addf(out, "complete -c berth -n '%s'", when);
        offer(out, c->args, false);
        str_addc(out, '\n');
    }
}

const struct shell shell_fish = { .name = "fish",
                                  .use = "berth completion fish | source",
                                  .begin = begin,
                                  .command = command,
                                  .end = "" };
