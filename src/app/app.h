/* app: the command line. The only folder that reads argv, the environment and signals.
 *
 * Flow     main() reads the options in front of the command, finds it in commands.def and runs it;
 *          the command reads its own options with app_args() and returns an exit code; main() makes
 *          sure that everything printed arrived.
 * Exit     0 fine, 1 failed, 2 wrong usage, 128 + n stopped by signal n. A closed pipe ends us as
 *          SIGPIPE would, 141 and no word, but what was going on is finished and cleaned up first.
 * Output   Results on stdout. Errors on stderr as "berth CMD: message", naming the file. `--json`
 *          prints one value: lists are arrays. A command that fails (1) still prints JSON, with an
 *          "error" {code, message} in it; wrong usage (2) prints nothing on stdout. Messages wait
 *          until the JSON text is whole: both may share a terminal. `--quiet` leaves results and
 *          errors: whatever else a command says asks app.quiet first.
 * Adding   cmd_<x>.c with `const struct command command_<x>` and a line in commands.def.
 * Files    main.c finds the command; app.c what commands share; args.c options; term.c terminals;
 *          signals.c; demo.c where the demo model is; notify.c the service manager;
 *          describe.c the commands as data, which completion_*.c and man.c print; cmd_*.c one
 *          command each; inspect_*.c, plan_*.c, run_*.c and serve_*.c the pieces of those; show.c a
 *          picture in a terminal. */
#pragma once

#include "app/args.h"
#include "app/term.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "device/driver.h"

#include <stdatomic.h>

enum app_exit { APP_OK = 0, APP_FAILED = 1, APP_USAGE = 2, APP_SIGNAL = 128 };

struct command;
struct app {              /* owner: the main thread */
    const char *cmd;      /* running command, for messages; NULL: none yet */
    struct term out, err; /* stdout, stderr */
    const struct clock *clock;
    struct log log; /* to stderr; --log-level, --log-json */
    struct log_file log_file;
    const char *log_level;   /* as given; NULL: log_default, or errors alone with --quiet */
    const char *log_default; /* NULL: "warn" */
    bool log_json;
    bool quiet;      /* --quiet: print results and errors, nothing else */
    bool json;       /* the command was asked for JSON: its --json goes here */
    bool json_begun; /* between app_json_begin() and app_json_end() */
    struct str json_text;
    struct str late; /* messages that wait for the end of the JSON, one a line */
    /* Gets the options of a command in place of the printed help (describe.h); NULL: prints. */
    void (*on_help)(void *user, const struct command *c, const struct opts *o);
    void *on_help_user;
};

struct command {
    const char *name;
    const char *about;               /* one line, in the list of commands */
    const char *usage;               /* what follows "berth NAME " */
    const char *args;                /* what plain arguments are, as opt.value; NULL: none */
    const char *more;                /* paragraphs behind the options; may be NULL */
    const struct opt_guess *guesses; /* opts.guess */
    void (*tables)(struct str *out); /* appends those that come from tables; may be NULL */
    int (*run)(struct app *a, int argc, char **argv); /* argv: behind the command's name */
};

#define COMMAND(x) extern const struct command command_##x;
#include "app/commands.def"
#undef COMMAND

/* Reads the command's options and the global ones. True: go on, argv[0..*n) are the plain
 * arguments. False: return *code; the help was printed, or the mistake was named. */
bool app_args(struct app *a, const struct command *c, const struct opt *opt, size_t opts, int argc,
              char **argv, int *n, int *code);

/* "berth CMD: message" on stderr; returns APP_FAILED or APP_USAGE. app_fail() with --json, outside
 * app_json_begin() and app_json_end(), also prints {"error": ...}. */
int app_fail(struct app *a, const berth_err *err);
int app_no_memory(struct app *a); /* the same of an error that says so */
int app_usage(struct app *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The same for an error of opening devices, "devices: entry 1 ...", which becomes that of
 * --devices. A mistake in the text is wrong usage; a machine that lacks what was asked for is a
 * failure. */
int app_fail_devices(struct app *a, const berth_err *err);

/* A command that prints its JSON piece by piece writes it between these two, and its errors,
 * with app_json_error(), where they belong. app_json_end() prints it and the messages that waited,
 * and returns `code`, or APP_FAILED when some of the text is missing for want of memory. */
void app_json_begin(struct app *a, struct jsonout *j);
void app_json_error(struct jsonout *j, const berth_err *err); /* "error": {"code", "message"} */
int app_json_end(struct app *a, int code);

/* The options every command has, and how they take effect. --version only in front of a command. */
struct app_globals {
    struct opt opt[5];
    struct opts table;
    bool help, version;
};
void app_globals(struct app *a, struct app_globals *g, bool with_version);
/* From log_level, quiet and log_json; called again after every reading of options. False: no
 * such level, and it was complained about. */
bool app_log_setup(struct app *a);

/* berth_ctx_new() that logs where the command does, and to the JSON log the environment names; a
 * outlives the context. */
#define APP_CARDS_MAX 64
struct app_ctx_args { /* zero: the default of every field */
    const char *devices;
    char cards[APP_CARDS_MAX]; /* as dev_env.cuda_cards; no card among the devices: means nothing */
    uint64_t ram_budget, pin_budget, reserve;
};
/* The same as devices are opened from: by app_ctx_new(), and by commands without a context. */
struct dev_env app_dev_env(const struct app *a, const struct app_ctx_args *args);
berth_status app_ctx_new(struct app *a, const struct app_ctx_args *args, berth_ctx **out,
                         berth_err *err);
/* Names the option that cards came from, where it was they that are not there. */
void app_blame_card_option(const char *cards, berth_err *err);
/* Logs why there are no cards, unless the options ask for none. Returns the reason, or
 * NULL; borrowed from ctx. */
const char *app_log_absent(const struct app *a, const struct app_ctx_args *args, berth_ctx *ctx);
/* memory.c: a limit of the process's own, below that of its control group. The kernel hands memory
 * out when it is first touched. If the group is full at that moment, the process is killed: no call
 * has failed, and nobody can say why. So in a limited group the process may not even reserve more
 * than there is. RLIMIT_DATA counts what is reserved (all private writable memory: pools, tensors,
 * what libpng, libwebp or SQLite take), and a request beyond it fails with an error that can be
 * reported. Once, when all threads are there: their stacks are promised in full and hardly touched,
 * so they must not count. Nothing happens where no group limits memory, and with cards, whose
 * driver reserves more than it takes. */
void app_limit_memory(struct app *a, berth_ctx *ctx);
/* The limit for a process that was promised `data` bytes and finds `left` in its group. */
uint64_t app_memory_most(uint64_t data, uint64_t left);
/* notify.c: tells a service manager how far we are, in systemd's protocol: a datagram of NAME=VALUE
 * lines. socket: the text of $NOTIFY_SOCKET; NULL or "": nobody listens, which is fine. A manager
 * that cannot be reached is an error to log; the server goes on. Thread: any. Does not block. */
#define NOTIFY_READY "READY=1"
#define NOTIFY_STOPPING "STOPPING=1"
berth_status notify_send(const char *socket, const char *state, berth_err *err);
/* show.c: appends the lines of a picture file (PNG and what else image.h reads; of an animation the
 * first frame) for a terminal, two pixels a character ("▀": the upper one is the colour of the
 * letter, the lower one that of the paper), `columns` wide or as wide as the picture is. Needs
 * 24-bit colour and UTF-8 (term.photos). */
#define SHOW_COLUMNS_MAX 120
#define SHOW_BYTES_MAX ((size_t)64 << 20) /* of a file */
berth_status show_picture(const void *bytes, size_t n, int columns, struct str *out,
                          berth_err *err);
/* signals.c: SIGINT, SIGTERM and SIGHUP as a flag that long work looks at. */
const atomic_bool *signals_watch(void); /* from here on they no longer end the process */
int signals_caught(void);               /* the last signal, or 0 */
int signals_count(void);                /* how many came */
/* fn(user) from the handler, after the flag is set: it must be safe there. NULL: nobody any
 * more. */
void signals_notify(void (*fn)(void *user), void *user);
