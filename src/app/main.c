/* berth: one binary, many commands. See app.h for the way through this folder. */
#include "app/app.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

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

static const char *command_name(size_t i)
{
    return i < ARRAY_LEN(commands) ? commands[i]->name : NULL;
}

static int unknown_command(struct app *a, const char *name)
{
    struct str near = { 0 };
    suggest(&near, name, command_name);
    int code = app_usage(a, "unknown command '%.80s'%s", name, str_c(&near));
    str_release(&near);
    return code;
}

static void print_overview(struct app *a)
{
    struct app_globals g;
    struct str s = { 0 };
    const char *bold = term_style(&a->out, STYLE_BOLD), *off = term_style(&a->out, STYLE_RESET);
    app_globals(a, &g, true);
    str_addf(&s, "%sberth %s%s: a place for every model\n\n", bold, berth_version(), off);
    str_adds(&s, "Usage: berth [OPTIONS] COMMAND ...\n\nCommands:\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        str_addf(&s, "  %-9s  %s\n", commands[i]->name, commands[i]->about);
    str_adds(&s, "\nOptions:\n");
    args_help(&g.table, &s);
    str_adds(&s, "\nExit codes: 0 fine, 1 failed, 2 wrong usage, 128 + n stopped by signal n\n"
                 "(130: Ctrl-C; 141: the reader of a pipe is gone, which needs no message).\n"
                 "With --json a command that fails prints {\"error\": {\"code\", \"message\"}} on\n"
                 "stdout, inspect one for each such file; stderr has the message as well.\n");
    fputs(str_c(&s), stdout);
    str_release(&s);
}

static int explain(struct app *a, const char *name)
{
    const struct command *c = find_command(name);
    if (!c)
        return unknown_command(a, name);
    char flag[] = "--help", *only_help[] = { flag, NULL };
    a->cmd = c->name;
    return c->run(a, 1, only_help);
}

static int run_help(struct app *a, int argc, char **argv)
{
    int n, code;
    if (!app_args(a, &command_help, NULL, 0, argc, argv, &n, &code))
        return code;
    if (n > 1)
        return app_usage(a, "one command at a time, not '%.80s' as well", argv[1]);
    if (n)
        return explain(a, argv[0]);
    print_overview(a);
    return APP_OK;
}

/* Here because it alone knows all the others. */
const struct command command_help = {
    .name = "help",
    .about = "explain a command",
    .usage = "[COMMAND]",
    .more = "The same as berth COMMAND --help; without COMMAND, the same as berth --help.\n",
    .run = run_help,
};

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
    if (g.help && at < argc)
        return explain(a, argv[at]);
    if (g.help) {
        print_overview(a);
        return APP_OK;
    }
    if (at == argc)
        return app_usage(a, "which command?");
    const struct command *c = find_command(argv[at]);
    if (!c)
        return unknown_command(a, argv[at]);
    a->cmd = c->name;
    return c->run(a, argc - at - 1, argv + at + 1);
}

/* A standard stream that came closed would lend its number to the next file we open, and messages
 * would end up inside a model. Its place is taken; writing to such a stdout still fails. */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) < 0)
            return; /* no /dev/null: nothing left to try */
}

/* Is stdout a pipe or socket that nobody reads any more? The write that failed may lie far back,
 * and its errno is gone. */
static bool reader_is_gone(void)
{
    struct stat st;
    struct pollfd p = { .fd = STDOUT_FILENO, .events = POLLOUT };
    return !fstat(p.fd, &st) && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) &&
           poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP));
}

/* Did everything arrive that was printed? */
static int finish_output(const struct app *a, int code)
{
    bool lost = ferror(stdout);
    errno = 0;
    if (!fflush(stdout) && !lost)
        return code;
    int native = errno;
    if (native == EPIPE || reader_is_gone())
        return code ? code : APP_SIGNAL + SIGPIPE;
    berth_err err;
    if (native)
        err_sys(&err, BERTH_EIO, native, "cannot write to standard output");
    else
        err_set(&err, BERTH_EIO, "cannot write to standard output");
    fprintf(stderr, "berth%s%s: %s\n", a->cmd ? " " : "", a->cmd ? a->cmd : "", err.msg);
    return code ? code : APP_FAILED;
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe must not end us in the middle of a file, */
    signal(SIGXFSZ, SIG_IGN); /* and one that grew over the process's limit is an error to report */
    struct app a = { .clock = clock_system() };
    a.out = term_probe(stdout);
    a.err = term_probe(stderr);
    int code = dispatch(&a, argc > 0 ? argc - 1 : 0, argc > 0 ? argv + 1 : argv);
    return finish_output(&a, code);
}
