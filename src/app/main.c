/* berth: one binary, many commands. See app.h for the way through this folder. */
#include "app/describe.h"
#ifdef BERTH_SERVER
#include "media/media.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
        return help_explain(a, argv[at]);
    if (g.help) {
        help_overview(a);
        return APP_OK;
    }
    if (at == argc)
        return app_usage(a, "which command?");
    const struct command *c = describe_find(argv[at]);
    if (!c)
        return help_unknown(a, argv[at]);
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
#ifdef BERTH_SERVER
    if (argc > 1 && strcmp(argv[1], MEDIA_HELPER) == 0) /* we were started to read one file */
        return media_helper();
#endif
    hold_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe must not end us in the middle of a file, */
    signal(SIGXFSZ, SIG_IGN); /* and one that grew over the process's limit is an error to report */
    struct app a = { .clock = clock_system() };
    a.out = term_probe(stdout);
    a.err = term_probe(stderr);
    int code = dispatch(&a, argc > 0 ? argc - 1 : 0, argc > 0 ? argv + 1 : argv);
    return finish_output(&a, code);
}
