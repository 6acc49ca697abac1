/* What every command leans on: its options, and how it speaks of failure. */
#include "app/app.h"

#include "berth/ctx.h"
#include "device/devset.h"
#include "device/spec.h"

#include <stdarg.h>
#include <strings.h>

static void complain(struct app *a, const char *msg)
{
    if (a->json_begun) { /* err_set() and err_add() leave no line ends in a message */
        str_addf(&a->late, "%s\n", msg);
        return;
    }
    fflush(stdout); /* what was printed so far stands above */
    fprintf(stderr, "berth%s%s: %s\n", a->cmd ? " " : "", a->cmd ? a->cmd : "", msg);
}

void app_json_begin(struct app *a, struct jsonout *j)
{
    *j = (struct jsonout) { .out = &a->json_text, .indent = 2 };
    a->json_begun = true;
}

void app_json_error(struct jsonout *j, const berth_err *err)
{
    jo_open(j, "error", '{');
    jo_str(j, "code", berth_status_name(err->code));
    jo_str(j, "message", err->msg);
    jo_close(j, '}');
}

int app_json_end(struct app *a, int code)
{
    bool whole = !a->json_text.bad && !a->late.bad;
    puts(str_c(&a->json_text));
    str_release(&a->json_text);
    a->json_begun = false;
    for (const char *at = str_c(&a->late), *end; (end = strchr(at, '\n')); at = end + 1) {
        fflush(stdout);
        fprintf(stderr, "berth%s%s: %.*s\n", a->cmd ? " " : "", a->cmd ? a->cmd : "",
                (int)(end - at), at);
    }
    str_release(&a->late);
    if (!whole) {
        complain(a, "out of memory: some of the output is missing");
        code = code ? code : APP_FAILED;
    }
    return code;
}

int app_fail(struct app *a, const berth_err *err)
{
    if (a->json && !a->json_begun) {
        struct jsonout j;
        app_json_begin(a, &j);
        jo_open(&j, NULL, '{');
        app_json_error(&j, err);
        jo_close(&j, '}');
        (void)app_json_end(a, APP_FAILED);
    }
    complain(a, err->msg);
    return APP_FAILED;
}

int app_no_memory(struct app *a)
{
    berth_err err;
    err_set(&err, BERTH_ENOMEM, "out of memory");
    return app_fail(a, &err);
}

int app_usage(struct app *a, const char *fmt, ...)
{
    char msg[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    berth_err err;
    err_set(&err, BERTH_EINVAL, "%s", msg); /* makes outside text printable */
    complain(a, err.msg);
    fprintf(stderr, "Try 'berth%s%s --help'.\n", a->cmd ? " " : "", a->cmd ? a->cmd : "");
    return APP_USAGE;
}

int app_fail_devices(struct app *a, const berth_err *err)
{
    berth_err said = *err;
    if (said.subject)
        err_rename_subject(&said, "--devices");
    else if (said.code == BERTH_EINVAL)
        err_add(&said, "--devices");
    return said.code == BERTH_EINVAL ? app_usage(a, "%s", said.msg) : app_fail(a, &said);
}

void app_globals(struct app *a, struct app_globals *g, bool with_version)
{
    *g = (struct app_globals) { 0 };
    g->opt[0] = opt_letter('h', opt_flag("help", "show this text and stop", &g->help));
    g->opt[1] = opt_text("log-level", "LEVEL",
                         a->log_default ? "debug, info (default), warn, error, off; to stderr"
                                        : "debug, info, warn (default), error, off; to stderr",
                         &a->log_level);
    g->opt[2] = opt_flag("log-json", "log as JSON, one object a line", &a->log_json);
    g->opt[3] =
        opt_letter('q', opt_flag("quiet", "print results and errors, nothing else", &a->quiet));
    g->opt[4] = opt_flag("version", "show the version and stop", &g->version);
    g->table = (struct opts) { .at = g->opt, .n = ARRAY_LEN(g->opt) - !with_version };
}

bool app_log_setup(struct app *a)
{
    const char *level = a->log_level     ? a->log_level
                        : a->quiet       ? "error"
                        : a->log_default ? a->log_default
                                         : "warn";
    a->log_file = (struct log_file) { .out = stderr, .color = a->err.color };
    a->log = (struct log) { .write = a->log_json ? log_write_json : log_write_text,
                            .user = &a->log_file,
                            .clock = a->clock };
    if (log_level_parse(level, strlen(level), &a->log.level))
        return true;
    app_usage(a, "--log-level: '%.80s' is none of debug, info, warn, error, off", level);
    return false;
}

static void print_help(const struct app *a, const struct command *c, const struct opts *o)
{
    struct str s = { 0 };
    const char *bold = term_style(&a->out, STYLE_BOLD), *off = term_style(&a->out, STYLE_RESET);
    str_addf(&s, "%sberth %s%s: %s\n\nUsage: berth %s %s\n\nOptions:\n", bold, c->name, off,
             c->about, c->name, c->usage);
    args_help(o, &s);
    if (c->more)
        str_addf(&s, "\n%s", c->more);
    if (c->tables)
        c->tables(&s);
    fputs(str_c(&s), stdout);
    str_release(&s);
}

bool app_args(struct app *a, const struct command *c, const struct opt *opt, size_t opts, int argc,
              char **argv, int *n, int *code)
{
    struct app_globals g;
    app_globals(a, &g, false);
    const struct opts table = { .at = opt, .n = opts, .next = &g.table, .guess = c->guesses };
    berth_err err;
    *code = APP_OK;
    berth_status s = args_parse(&table, argc, argv, n, &err);
    if (!s && g.help) {
        if (a->on_help)
            a->on_help(a->on_help_user, c, &table);
        else
            print_help(a, c, &table);
        return false;
    }
    if (s)
        *code = app_usage(a, "%s", err.msg);
    else if (!app_log_setup(a))
        *code = APP_USAGE;
    return !*code;
}

_Static_assert((int)LOG_DEBUG == (int)BERTH_LOG_DEBUG && (int)LOG_OFF == (int)BERTH_LOG_OFF,
               "the library's log levels and base/log.h are one list");

static void forward_log(void *user, berth_log_level level, uint64_t wall_ns, const char *event,
                        const char *text)
{
    const struct log *l = user;
    l->write(l->user, (enum log_level)level, wall_ns, event, text);
}

static bool is_negative(const char *text)
{
    return text &&
           (!strcasecmp(text, "0") || !strcasecmp(text, "false") || !strcasecmp(text, "no"));
}

static const char *id_from_env(void *user, int workflow)
{
    (void)user;
    return getenv(workflow ? "MGPU_JSON_WORKFLOW" : "MGPU_JSON_PROMPT");
}

/* The variables ComfyUI-MultiGPU reads. */
static berth_json_log json_log_from_env(void)
{
    const char *path = getenv("MGPU_JSON_LOG_PATH");
    return (berth_json_log) { .path = path && *path ? path : NULL,
                              .level = getenv("MGPU_JSON_MIN_LEVEL"),
                              .append = is_negative(getenv("MGPU_JSON_OVERWRITE")),
                              .fields = getenv("MGPU_JSON_STATIC_FIELDS"),
                              .id = id_from_env };
}

/* Shall there be cards? Not where the devices that are named all live elsewhere. */
static bool wants_cards(const char *devices)
{
    struct spec spec;
    berth_err ignore;
    if (!devices || !*devices || spec_parse(devices, strlen(devices), false, &spec, &ignore))
        return true; /* opening them will say what is wrong */
    for (size_t i = 0; i < spec.n; i++)
        if (!strcmp(spec.entry[i].phys.kind, "cuda"))
            return true;
    return false;
}

void app_blame_card_option(const char *cards, berth_err *err)
{
    if (cards[0] && err->code == BERTH_EUNSUPPORTED && !err->subject)
        err_add(err, strchr(cards, '*') ? "--default-device" : "--cuda-device");
}

const char *app_log_absent(const struct app *a, const struct app_ctx_args *args, berth_ctx *ctx)
{
    struct dev_absent x;
    if (!wants_cards(args->devices) || !devset_absent(ctx_parts(ctx).devices, 0, &x))
        return NULL;
    log_event(&a->log, x.broken ? LOG_WARN : LOG_INFO, "dev.absent", "kind=%s why=\"%s\"", x.kind,
              x.why);
    return x.why;
}

struct dev_env app_dev_env(const struct app *a, const struct app_ctx_args *args)
{
    return (struct dev_env) { .log = &a->log,
                              .host_budget = args->ram_budget,
                              .cuda_library = getenv("BERTH_CUDA_LIBRARY"),
                              .cuda_cards = args->cards[0] && wants_cards(args->devices)
                                                ? args->cards
                                                : NULL };
}

berth_status app_ctx_new(struct app *a, const struct app_ctx_args *args, berth_ctx **out,
                         berth_err *err)
{
    const struct dev_env env = app_dev_env(a, args);
    const berth_config cfg = { .size = sizeof cfg,
                               .devices = args->devices,
                               .log = forward_log,
                               .log_user = &a->log,
                               .log_level = (berth_log_level)a->log.level,
                               .ram_budget = env.host_budget,
                               .cuda_cards = env.cuda_cards,
                               .cuda_library = env.cuda_library,
                               .pin_budget = args->pin_budget,
                               .reserve = args->reserve,
                               .json_log = json_log_from_env() };
    if (berth_ctx_new(&cfg, out, err))
        app_blame_card_option(args->cards, err);
    return *out ? BERTH_OK : err->code;
}
