/* berth: one binary, many commands. See app.h for the way through this folder. */
#include "app/app.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

static const struct command *const commands[] = {
#define COMMAND(x) &command_##x,
#include "app/commands.def"
#undef COMMAND
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    return NULL;
}

static int unknown_command(const struct app *a, const char *name)
{
    struct nearest near = { .word = name };
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        nearest_try(&near, commands[i]->name);
    if (near.best)
        return app_usage(a, "unknown command '%.80s', did you mean '%s'?", name, near.best);
    return app_usage(a, "unknown command '%.80s'", name);
}

static void print_overview(const struct app *a, const struct opts *o)
{
    struct str s = { 0 };
    const char *bold = term_style(&a->out, STYLE_BOLD), *off = term_style(&a->out, STYLE_RESET);
    str_addf(&s, "%sberth %s%s: a place for every model\n\n", bold, berth_version(), off);
    str_adds(&s, "Usage: berth [OPTIONS] COMMAND ...\n\nCommands:\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        str_addf(&s, "  %-9s  %s\n", commands[i]->name, commands[i]->about);
    str_addf(&s, "  %-9s  %s\n\nOptions:\n", "help", "explain a command: berth help COMMAND");
    args_help(o, &s);
    str_adds(&s, "\nExit codes: 0 fine, 1 failed, 2 wrong usage.\n");
    fputs(str_c(&s), stdout);
    str_release(&s);
}

/* Finds the command and runs it; returns the exit code. */
static int dispatch(struct app *a, int argc, char **argv)
{
    struct app_globals g;
    app_globals(a, &g, true);
    berth_err err;
    int at;
    if (args_parse_front(&g.table, argc, argv, &at, &err))
        return app_usage(a, "%s", err.msg);
    if (!app_log_setup(a))
        return APP_USAGE;
    if (g.version) {
        printf("berth %s\n", berth_version());
        return APP_OK;
    }
    bool help = at < argc && !strcmp(argv[at], "help");
    if (g.help || (help && at + 1 == argc)) {
        print_overview(a, &g.table);
        return APP_OK;
    }
    if (at == argc)
        return app_usage(a, "which command?");
    at += help;
    const struct command *c = find_command(argv[at]);
    if (!c)
        return unknown_command(a, argv[at]);
    a->cmd = c->name;
    char flag[] = "--help", *only_help[] = { flag, NULL };
    return help ? c->run(a, 1, only_help) : c->run(a, argc - at - 1, argv + at + 1);
}

/* A standard stream that came closed would lend its number to the next file we open, and messages
 * would end up inside a model. Its place is taken; writing to such a stdout still fails. */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) < 0)
            return; /* no /dev/null: nothing left to try */
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error to report, not a way to die, */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file that grew over the process's limit */
    struct app a = { .clock = clock_system() };
    a.out = term_probe(stdout);
    a.err = term_probe(stderr);
    int code = dispatch(&a, argc > 0 ? argc - 1 : 0, argc > 0 ? argv + 1 : argv);
    bool lost = ferror(stdout);
    errno = 0;
    if (fflush(stdout) || lost) {
        berth_err err;
        if (errno)
            err_sys(&err, BERTH_EIO, errno, "cannot write to standard output");
        else
            err_set(&err, BERTH_EIO, "cannot write to standard output");
        fprintf(stderr, "berth%s%s: %s\n", a.cmd ? " " : "", a.cmd ? a.cmd : "", err.msg);
        code = code ? code : APP_FAILED;
    }
    return code;
}
