/* berth help: the commands, and each of them. */
#include "app/describe.h"

static const char *command_name(size_t i)
{
    return describe_at(i) ? describe_at(i)->name : NULL;
}

int help_unknown(struct app *a, const char *name)
{
#ifndef BERTH_SERVER
    static const char *const absent[] = { "serve", "run", "ps", "keep", "eject", "free" };
    for (size_t i = 0; i < ARRAY_LEN(absent); i++)
        if (strcmp(name, absent[i]) == 0)
            return app_usage(a, "this build is the engine alone (BERTH_SERVER=OFF): no '%s'", name);
#endif
    struct str near = { 0 };
    suggest(&near, name, command_name);
    int code = app_usage(a, "unknown command '%.80s'%s", name, str_c(&near));
    str_release(&near);
    return code;
}

void help_overview(struct app *a)
{
    struct app_globals g;
    struct str s = { 0 };
    const char *bold = term_style(&a->out, STYLE_BOLD), *off = term_style(&a->out, STYLE_RESET);
    app_globals(a, &g, true);
    str_addf(&s, "%sberth %s%s: a place for every model\n\n", bold, berth_version(), off);
    str_adds(&s, "Usage: berth [OPTIONS] COMMAND ...\n\nCommands:\n");
    for (size_t i = 0; describe_at(i); i++)
        str_addf(&s, "  %-10s  %s\n", describe_at(i)->name, describe_at(i)->about);
    str_adds(&s, "\nOptions:\n");
    args_help(&g.table, &s);
    str_adds(&s, "\nExit codes: 0 fine, 1 failed, 2 wrong usage, 128 + n stopped by signal n\n"
                 "(130: Ctrl-C; 141: the reader of a pipe is gone, which needs no message).\n"
                 "With --json a command that fails prints {\"error\": {\"code\", \"message\"}} on\n"
                 "stdout, inspect one for each such file; stderr has the message as well.\n");
    fputs(str_c(&s), stdout);
    str_release(&s);
}

int help_explain(struct app *a, const char *name)
{
    const struct command *c = describe_find(name);
    if (!c)
        return help_unknown(a, name);
    char flag[] = "--help", *only_help[] = { flag, NULL };
    a->cmd = c->name;
    return c->run(a, 1, only_help);
}

static int print_man(struct app *a)
{
    struct str s = { 0 };
    man_commands(a, &s);
    int code = s.bad ? app_no_memory(a) : (fputs(str_c(&s), stdout), APP_OK);
    str_release(&s);
    return code;
}

static int run_help(struct app *a, int argc, char **argv)
{
    bool man = false;
    const struct opt opt[] = {
        opt_flag("man", "all commands and options as troff, for berth(1)", &man),
    };
    int n, code;
    if (!app_args(a, &command_help, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (man && n)
        return app_usage(a, "--man is all of them, not '%.80s' alone", argv[0]);
    if (man)
        return print_man(a);
    if (n > 1)
        return app_usage(a, "one command at a time, not '%.80s' as well", argv[1]);
    if (n)
        return help_explain(a, argv[0]);
    help_overview(a);
    return APP_OK;
}

const struct command command_help = {
    .name = "help",
    .about = "explain a command",
    .usage = "[COMMAND | --man]",
    .args = "COMMAND",
    .more = "The same as berth COMMAND --help; without COMMAND, the same as berth --help.\n",
    .run = run_help,
};
