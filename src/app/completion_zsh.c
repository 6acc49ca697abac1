/* What zsh needs: one function a command that calls _arguments, and one that chooses. */
#include "app/describe.h"

static const char head[] = "#compdef berth\n"
                           "# zsh completion for berth; 'berth completion zsh' printed it\n"
                           "\n"
                           "_berth_devices() # the host, and the cards that NVIDIA's driver shows\n"
                           "{\n"
                           "    local -a names=(cpu) cards=(/dev/nvidia<->(N))\n"
                           "    names+=(${cards/#\\/dev\\/nvidia/cuda:})\n"
                           "    compset -P '*,'\n"
                           "    compadd -S '' -a names\n"
                           "}\n"
                           "\n";

static const char tail[] =
    "_berth() # in front of a command; behind one, its own function\n"
    "{\n"
    "    local curcontext=$curcontext state line\n"
    "    _arguments -C -S $_berth_globals '1:command:->command' '*::argument:->argument' && "
    "return\n"
    "    case $state in\n"
    "    command) _describe -t commands command _berth_commands ;;\n"
    "    argument) (( $+functions[_berth_command_${line[1]}] )) && _berth_command_${line[1]} ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "if [[ $funcstack[1] == _berth ]]; then # loaded as a function file of fpath\n"
    "    _berth \"$@\"\n"
    "else\n"
    "    compdef _berth berth\n"
    "fi\n";

/* Inside '...' of the shell; `escaped` are letters that mean something to who reads the text. */
static void quoted(struct str *out, const char *text, const char *escaped)
{
    for (; *text; text++) {
        if (*text == '\'') {
            str_adds(out, "'\\''");
            continue;
        }
        if (strchr(escaped, *text))
            str_addc(out, '\\');
        str_addc(out, *text == '\n' ? ' ' : *text);
    }
}

/* ":what:action" of _arguments. */
static void action(struct str *out, const char *value)
{
    enum words kind;
    struct str list = { 0 };
    value_words(value, &kind, &list);
    str_addc(out, ':');
    quoted(out, value, ":\\");
    str_addc(out, ':');
    if (kind == WORDS_FILES)
        str_adds(out, "_files");
    else if (kind == WORDS_DIRS)
        str_adds(out, "_files -/");
    else if (kind == WORDS_DEVICES)
        str_adds(out, "_berth_devices");
    else if (kind == WORDS_LIST) {
        str_addc(out, '(');
        quoted(out, str_c(&list), ":\\");
        str_addc(out, ')');
    } else {
        str_addc(out, ' '); /* nothing to offer, and not the next argument either */
    }
    out->bad |= list.bad;
    str_release(&list);
}

/* One option is one word of _arguments, or two: with its letter they shut each other out. */
static void option(struct str *out, const struct opt *t)
{
    const bool takes = t->kind != OPT_FLAG, again = t->kind == OPT_LIST;
    if (t->letter)
        str_addf(out, "    '(-%c --%s)'{-%c%s,--%s%s}'[", t->letter, t->name, t->letter,
                 takes ? "+" : "", t->name, takes ? "=" : "");
    else
        str_addf(out, "    '%s--%s%s[", again ? "*" : "", t->name, takes ? "=" : "");
    quoted(out, t->help, "[]\\");
    str_addc(out, ']');
    if (takes)
        action(out, t->value);
    str_adds(out, "'\n");
}

static void options(struct str *out, const struct opts *o)
{
    for (; o; o = o->next)
        for (size_t i = 0; i < o->n; i++)
            option(out, &o->at[i]);
}

static void begin(struct str *out, const struct opts *globals)
{
    str_adds(out, head);
    str_adds(out, "typeset -ga _berth_globals=(\n");
    options(out, globals);
    str_adds(out, ")\ntypeset -ga _berth_commands=(\n");
    for (size_t i = 0; describe_at(i); i++) {
        str_addf(out, "    '%s:", describe_at(i)->name);
        quoted(out, describe_at(i)->about, ":\\");
        str_adds(out, "'\n");
    }
    str_adds(out, ")\n\n");
}

static void command(struct str *out, const struct command *c, const struct opts *o)
{
    str_addf(out, "_berth_command_%s()\n{\n    local -a take=(\n", c->name);
    options(out, o);
    if (c->args) {
        str_adds(out, "    '*");
        action(out, c->args);
        str_adds(out, "'\n");
    }
    str_adds(out, "    )\n    _arguments -s -S $take\n}\n\n");
}

const struct shell shell_zsh = { .name = "zsh",
                                 .use = "source <(berth completion zsh), behind compinit",
                                 .begin = begin,
                                 .command = command,
                                 .end = tail };
