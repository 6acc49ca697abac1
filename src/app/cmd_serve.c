/* berth serve: the server, from options to exit. */
#include "app/device_options.h"
#include "app/numbers.h"
#include "app/serve_args.h"
#include "app/serve_folders.h"
#include "app/serve_log.h"
#include "base/file.h"
#include "device/cpu/meminfo.h"
#include "media/media.h"
#include "node/node.h"
#include "server/server.h"

#include <errno.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN_MAX 4096
#define LISTEN_MAX 16

struct options {
    struct folder_options folders;
    struct server_config cfg; /* what is the server's as it is given */
    const char *listen, *token, *token_file, *reserve, *headroom, *upload, *cache_ram, *hashing;
    struct opt_list verbose, flags;
    uint64_t port, preview_size, grace;
    struct number_options numbers;
    struct device_options devices;
    bool classic, none, cpu, quick, silent_start, list_flags;
};

#define SERVE_OPTIONS 72
/* Fills t; returns how many. */
static size_t option_table(struct options *o, struct opt *t)
{
    const struct opt table[] = {
        FOLDER_OPTIONS(&o->folders),
        opt_text("user-directory", "DIR", "instead of BASE/user", &o->folders.user),
        opt_text("front-end-root", "DIR", "an unmodified build of ComfyUI's frontend to serve",
                 &o->folders.frontend),
        opt_list("extra-model-paths-config", "FILE...",
                 "further model folders, as ComfyUI's extra_model_paths.yaml", &o->folders.yaml),
        opt_text("listen", "IP,...", "addresses (default 127.0.0.1; without a value 0.0.0.0,::)",
                 &o->listen),
        opt_letter('p',
                   opt_int("port", "N", "default 8188; 0 takes a free one", 0, 65535, &o->port)),
        opt_text("token", "TEXT",
                 "what clients must send (Authorization: Bearer TEXT), 8 or more characters; "
                 "also $BERTH_TOKEN",
                 &o->token),
        opt_text("token-file", "FILE", "the same, from the first line of a file", &o->token_file),
        opt_flag("insecure", "listen beyond this machine without a token", &o->cfg.insecure),
        opt_text("enable-cors-header", "ORIGIN",
                 "let pages of another origin in (without a value: any)", &o->cfg.cors_origin),
        opt_text("tls-keyfile", "FILE", "with --tls-certfile: HTTPS", &o->cfg.tls_key),
        opt_text("tls-certfile", "FILE", "PEM, with its chain", &o->cfg.tls_cert),
        DEVICE_OPTIONS(&o->devices),
        opt_text("reserve-vram", "GiB", "kept free on compute devices by automatic plans",
                 &o->reserve),
        opt_text("vram-headroom", "GiB", "as much more than --reserve-vram", &o->headroom),
        opt_flag("cpu", "the same as --devices cpu", &o->cpu),
        opt_flag("cache-classic", "keep what the last prompt used (default)", &o->classic),
        opt_int("cache-lru", "N", "keep N results of nodes", 0, 1000000, &o->cfg.cache_lru),
        opt_text("cache-ram", "GiB",
                 "keep all while this much RAM is free (without a value: a tenth, 2 to 10)",
                 &o->cache_ram),
        opt_flag("cache-none", "keep nothing between prompts", &o->none),
        opt_text("max-upload-size", "MiB", "largest body of a request (default 100)", &o->upload),
        opt_int("max-queue", "N", "prompts that may wait (default 10000)", 1, 1000000,
                &o->cfg.max_pending),
        opt_int("max-history", "N", "finished prompts remembered (default 10000)", 1, 1000000,
                &o->cfg.max_history),
        opt_int("max-sockets", "N", "connections at a time (default 4096)", 8, 100000,
                &o->cfg.max_sockets),
        opt_text("database", "FILE",
                 "queue and history (default USER/__berth/state.db); KIND:WHERE another kind of "
                 "store than a SQLite file",
                 &o->cfg.database),
        opt_flag("enable-compress-response-body", "gzip for JSON and text", &o->cfg.compress),
        opt_flag("multi-user", "settings and workflows per user", &o->cfg.multi_user),
        opt_flag("disable-metadata", "no prompt and workflow in saved files",
                 &o->cfg.disable_metadata),
        opt_flag("disable-smart-memory", "unload all models but kept ones after every prompt",
                 &o->cfg.unload_after_prompt),
        opt_text("preview-method", "METHOD", "none (default), auto, latent2rgb, taesd",
                 &o->cfg.preview_method),
        opt_int("preview-size", "N", "longest side of previews (default 512)", 16, 16384,
                &o->preview_size),
        opt_int("grace", "SECONDS",
                "at SIGTERM: seconds the running prompt may take to end (default 10)", 0, 86400,
                &o->grace),
        opt_text("default-hashing-function", "HASH", "accepted; uploads are compared byte by byte",
                 &o->hashing),
        opt_list("verbose", "LEVEL[,FILE]",
                 "DEBUG DETAIL INFO WARNING ERROR CRITICAL; as --log-level, or what FILE gets",
                 &o->verbose),
        opt_list("feature-flag", "KEY[=VALUE]", "a flag for frontends", &o->flags),
        opt_flag("list-feature-flags", "show those that frontends know, as JSON, and stop",
                 &o->list_flags),
        NUMBER_OPTIONS(&o->numbers),
        opt_flag("dont-print-server", "say nothing at the start", &o->silent_start),
        opt_flag("quick-test-for-ci", "start, then stop", &o->quick),
    };
    _Static_assert(ARRAY_LEN(table) <= SERVE_OPTIONS, "room for all options");
    memcpy(t, table, sizeof table);
    return ARRAY_LEN(table);
}

/* ---- options to a configuration: each returns 0 or an exit code ---- */

static int read_number(struct app *a, const char *name, const char *text, double max, double *out)
{
    char *end;
    if (!text)
        return APP_OK;
    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out) || *out < 0 || *out > max)
        return app_usage(a, "--%s: '%.80s' is no number from 0 to %.0f", name, text, max);
    return APP_OK;
}

static int read_token(struct app *a, const struct options *o, char **out)
{
    *out = NULL;
    const char *env = getenv("BERTH_TOKEN");
    const char *given = o->token ? o->token : o->token_file ? NULL : env && *env ? env : NULL;
    if (o->token && o->token_file)
        return app_usage(a, "--token or --token-file, not both");
    berth_err err;
    size_t n = 0;
    if (o->token_file && file_read_all(o->token_file, TOKEN_MAX, out, &n, &err))
        return app_fail(a, &err);
    if (given && !(*out = strdup(given)))
        return app_no_memory(a);
    if (*out)
        (*out)[strcspn(*out, "\r\n")] = '\0';
    if (*out && strlen(*out) < 8) {
        free(*out);
        *out = NULL;
        return app_usage(a, "the token has fewer than 8 characters: anybody could guess it");
    }
    return APP_OK;
}

/* As ComfyUI: a tenth of the RAM, from 2 to 10 GiB. */
static double default_cache_ram(void)
{
    uint64_t total = 0, unused;
    berth_err err;
    double tenth = meminfo_read("", &total, &unused, &err) ? 0 : (double)total * 0x1p-30 / 10;
    return tenth < 2 ? 2 : tenth > 10 ? 10 : tenth;
}

/* "", "A" or "A,I". ComfyUI drops results of earlier prompts while less than I is free, those of
 * the running one while less than A is; here both go below A. */
static int read_cache_ram(struct app *a, const char *text, double *out)
{
    char first[32];
    double ignored;
    const char *second = strchr(text, ',');
    size_t n = second ? (size_t)(second - text) : strlen(text);
    if (second && strchr(second + 1, ','))
        return app_usage(a, "--cache-ram accepts at most two values: active GiB and inactive GiB");
    if (!*text) {
        *out = default_cache_ram();
        return APP_OK;
    }
    snprintf(first, sizeof first, "%.*s", (int)n, text);
    int code = read_number(a, "cache-ram", n < sizeof first ? first : text, 1e6, out);
    if (!code && second && !(code = read_number(a, "cache-ram", second + 1, 1e6, &ignored)))
        log_info(&a->log, "serve.ignored",
                 "why=\"no meaning here\" flags=\"the second value of --cache-ram\"");
    return code;
}

static int read_cache(struct app *a, const struct options *o, struct server_config *cfg)
{
    if ((int)o->classic + (cfg->cache_lru > 0) + (o->cache_ram != NULL) + (int)o->none > 1)
        return app_usage(a, "one of --cache-classic (--high-ram), --cache-lru, --cache-ram, "
                            "--cache-none");
    cfg->cache = cfg->cache_lru ? CACHE_LRU
                 : o->cache_ram ? CACHE_RAM
                 : o->none      ? CACHE_NONE
                                : CACHE_CLASSIC;
    return o->cache_ram ? read_cache_ram(a, o->cache_ram, &cfg->cache_ram_gb) : APP_OK;
}

/* What frontends shall know; flags that cannot be told are left out there. */
static void check_flags(struct app *a, const struct opt_list *flags)
{
    for (size_t i = 0; i < flags->n; i++) {
        const char *why = server_flag_wrong(flags->at[i]);
        if (why)
            log_warn(&a->log, "serve.flag", "flag=\"%.100s\" why=\"%s\"", flags->at[i], why);
    }
}

static int list_flags(void)
{
    struct str out = { 0 };
    server_flags_json(&out);
    puts(str_c(&out));
    str_release(&out);
    return APP_OK;
}

static int check_preview(struct app *a, const char *method)
{
    static const char *const known[] = { "none", "auto", "latent2rgb", "taesd" };
    for (size_t i = 0; method && i < ARRAY_LEN(known); i++)
        if (!strcmp(method, known[i]))
            return APP_OK;
    return method
               ? app_usage(a, "--preview-method: '%.80s' is none of none, auto, latent2rgb, taesd",
                           method)
               : APP_OK;
}

/* "a,b" -> addresses; text is cut in place. */
static size_t split_listen(char *text, const char **out)
{
    size_t n = 0;
    for (char *at = text; at && n < LISTEN_MAX;) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma = '\0';
        if (*at)
            out[n++] = at;
        at = comma ? comma + 1 : NULL;
    }
    return n;
}

/* USER/__berth/state.db: names that begin with "__" are no users. */
static int place_database(struct app *a, const struct options *o, const struct folders *f,
                          struct str *out)
{
    berth_err err;
    if (o->cfg.database) {
        str_adds(out, o->cfg.database);
        return APP_OK;
    }
    str_addf(out, "%s/__berth", folders_own(f, FOLDERS_USER));
    if (path_make_dirs(str_c(out), &err))
        return app_fail(a, &err);
    str_adds(out, "/state.db");
    return APP_OK;
}

/* As many descriptors as the system lets us have: thousands of idle clients are normal. */
static void raise_files(void)
{
    struct rlimit lim;
    if (!getrlimit(RLIMIT_NOFILE, &lim) && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &lim);
    }
}

/* From the signal handler. The second one is meant. */
static void wake(void *server)
{
    if (signals_count() > 1)
        server_hurry(server);
    else
        server_wake(server);
}

/* An address that listens everywhere is one to open in a browser here only as this machine's. */
static const char *visible_host(const char *host)
{
    return !strcmp(host, "0.0.0.0") ? "127.0.0.1" : !strcmp(host, "::") ? "::1" : host;
}

static void greet(const struct app *a, const struct options *o, const struct server_config *cfg,
                  const struct server *srv, const char *no_cards)
{
    if (o->silent_start || a->quiet)
        return;
    const char *host = cfg->listens ? cfg->listen[0] : "127.0.0.1", *here = visible_host(host);
    bool v6 = strchr(host, ':');
    const char *scheme = cfg->tls_cert ? "https" : "http", *open = v6 ? "[" : "",
               *close = v6 ? "]" : "";
    printf("berth %s\n  dashboard              %s://%s%s%s:%u/berth\n", berth_version(), scheme,
           open, here, close, server_port(srv));
    printf("  listening on           %s://%s%s%s:%u\n", scheme, open, host, close,
           server_port(srv));
    printf("  models, input, output  %s\n", folders_own(cfg->folders, FOLDERS_BASE));
    if (o->folders.demo)
        printf("  demo model             " DEMO_MODEL "\n");
    if (cfg->frontend)
        printf("  frontend               %s\n", cfg->frontend);
    if (no_cards)
        printf("  cards                  none: %s\n", no_cards);
    printf("  stop with              Ctrl-C\n");
    fflush(stdout);
}

/* To systemd, where it started us: units that wait for us start when prompts are taken. */
static void tell_manager(const struct app *a, const char *state)
{
    berth_err err;
    if (notify_send(getenv("NOTIFY_SOCKET"), state, &err))
        log_warn(&a->log, "serve.notify", "state=%s why=\"%s\"", state, err.msg);
}

static void tell_stopping(void *app)
{
    tell_manager(app, NOTIFY_STOPPING);
}

static int serve(struct app *a, const struct options *o, struct server_config *cfg,
                 const char *no_cards)
{
    cfg->stopping = tell_stopping; /* before the grace of a running prompt, not behind it */
    cfg->user = a;
    berth_err err;
    struct server *srv;
    if (server_new(cfg, &srv, &err)) {
        int code = app_fail(a, &err);
        if (err.code == BERTH_EBUSY && err.native != EADDRINUSE)
            fprintf(stderr,
                    "Another server works with this folder: stop it, or give this one its own"
                    " --base-directory and --port.\n");
        if (err.native == EADDRNOTAVAIL)
            fprintf(stderr, "No network of this machine has that address: --listen 0.0.0.0 takes"
                            " all it has, 127.0.0.1 none\nbut its own.\n");
        if (err.code == BERTH_EBUSY && err.native == EADDRINUSE)
            fprintf(stderr,
                    "Something listens there already, perhaps another berth or a ComfyUI: stop it,"
                    " or choose\nanother port: --port N (--port 0 takes a free one; make serve"
                    " SERVE=\"--port N\").\n");
        return code;
    }
    app_limit_memory(a, cfg->ctx);
    const atomic_bool *stop = signals_watch();
    signals_notify(wake, srv);
    greet(a, o, cfg, srv, no_cards);
    tell_manager(a, NOTIFY_READY);
    static const atomic_bool at_once = true;
    berth_status s = server_run(srv, o->quick ? &at_once : stop, &err);
    signals_notify(NULL, NULL);
    size_t kept = o->quick ? 0 : server_kept(srv);
    server_free(srv);
    if (kept && !a->quiet)
        fprintf(stderr, "%zu prompt%s kept and start%s again with the server\n", kept,
                kept == 1 ? " is" : "s are", kept == 1 ? "s" : "");
    return s ? app_fail(a, &err) : APP_OK; /* a stop that was asked for is no failure */
}

/* argv is shown in /system_stats, and by ps(1): the token is not for those. token: a copy. */
static void hide_token(int argc, char **argv, const char *token)
{
    for (int i = 0; token && i < argc; i++) {
        char *at = strstr(argv[i], token);
        if (at && (at == argv[i] || at[-1] == '='))
            memset(at, '*', strlen(at));
    }
}

/* Everything that must be closed afterwards. */
struct parts {
    struct app_folders folders;
    berth_ctx *ctx;
    char *token, *listen;
    struct str database;
};

static int with_parts(struct app *a, const struct options *o, int argc, char **argv,
                      struct parts *p)
{
    const char *listen[LISTEN_MAX];
    struct server_config cfg = o->cfg;
    cfg.port = (unsigned)o->port;
    cfg.preview_size = (unsigned)o->preview_size;
    cfg.grace_s = (unsigned)o->grace;
    cfg.argv = (const char *const *)argv;
    cfg.argc = (size_t)argc;
    cfg.log = &a->log;
    cfg.clock = a->clock;
    struct app_ctx_args ctx = { 0 };
    double upload = 0, reserve = 0, headroom = 0;
    int code;
    if (o->cpu && o->devices.devices)
        return app_usage(a, "--cpu or --devices, not both");
    if (!cfg.tls_key != !cfg.tls_cert)
        return app_usage(a, "--tls-keyfile and --tls-certfile come together");
    if ((code = read_number(a, "max-upload-size", o->upload, 1e6, &upload)) ||
        (code = read_number(a, "reserve-vram", o->reserve, 1e6, &reserve)) ||
        (code = read_number(a, "vram-headroom", o->headroom, 1e6, &headroom)) ||
        (code = read_cache(a, o, &cfg)) || (code = check_preview(a, cfg.preview_method)) ||
        (code = app_numbers(a, &o->numbers, &cfg.numbers)) ||
        (code = app_devices(a, &o->devices, &ctx)) || (code = read_token(a, o, &p->token)))
        return code;
    if (o->cpu)
        ctx.devices = "cpu";
    cfg.max_upload = (uint64_t)(upload * 1048576.0);
    ctx.reserve = (uint64_t)((reserve + headroom) * 1073741824.0);
    cfg.token = p->token;
    hide_token(argc, argv, p->token);
    berth_err err;
    if (o->listen && !(p->listen = strdup(o->listen)))
        return app_no_memory(a);
    cfg.listen = listen;
    cfg.listens = split_listen(p->listen, listen);
    if ((code = app_folders_open(a, &o->folders, &p->folders)) ||
        (code = place_database(a, o, p->folders.folders, &p->database)))
        return code;
    cfg.folders = p->folders.folders;
    cfg.tokenizers = (const char *const *)p->folders.tokenizers.at;
    cfg.tokenizers_n = p->folders.tokenizers.n;
    cfg.media_helper = MEDIA_SELF;
    cfg.frontend = p->folders.frontend.n ? str_c(&p->folders.frontend) : NULL;
    cfg.packages = p->folders.packages.n ? str_c(&p->folders.packages) : NULL;
    cfg.comfyui = p->folders.comfyui.n ? str_c(&p->folders.comfyui) : NULL;
    cfg.database = str_c(&p->database);
    cfg.flags = o->flags.at;
    cfg.flags_n = o->flags.n;
    check_flags(a, &o->flags);
    if (app_ctx_new(a, &ctx, &p->ctx, &err))
        return app_fail_devices(a, &err);
    cfg.ctx = p->ctx;
    serve_check_tokenizers(a, &o->folders, &p->folders);
    raise_files();
    return serve(a, o, &cfg, app_log_absent(a, &ctx, p->ctx));
}

static int run_serve(struct app *a, int argc, char **argv)
{
    struct options o = { .port = 8188, .preview_size = 512, .grace = 10 };
    struct opt table[SERVE_OPTIONS];
    size_t opts = option_table(&o, table);
    struct app_globals g;
    app_globals(a, &g, false);
    const struct opts own = { .at = table, .n = opts, .next = &g.table };
    struct serve_args args;
    berth_err err;
    if (serve_args_rewrite(&own, argc, argv, &args, &err))
        return err.code == BERTH_EINVAL ? app_usage(a, "%s", err.msg) : app_fail(a, &err);
    a->log_default = "info"; /* a server that says nothing helps nobody */
    int n, code;
    bool go = app_args(a, &command_serve, table, opts, args.argc, args.argv, &n, &code);
    struct serve_log log = { 0 };
    if (go && (code = serve_log_open(a, &o.verbose, &log)))
        go = false;
    if (go && n)
        code = app_usage(a, "'%.80s': serve takes options only", args.argv[0]);
    else if (go && o.list_flags)
        code = list_flags();
    else if (go) {
        if (args.ignored.n)
            log_info(&a->log, "serve.ignored", "why=\"no meaning here\" flags=\"%s\"",
                     str_c(&args.ignored));
        struct parts p = { 0 };
        code = with_parts(a, &o, argc, argv, &p);
        berth_ctx_free(p.ctx);
        app_folders_release(&p.folders);
        str_release(&p.database);
        free(p.token);
        free(p.listen);
    }
    serve_log_close(a, &log);
    serve_args_release(&args);
    return code;
}

static const struct opt_guess guesses[] = { FP8_GUESS, { 0 } };

const struct command command_serve = {
    .guesses = guesses,
    .name = "serve",
    .about = "run workflows for ComfyUI's clients (HTTP and WebSocket)",
    .usage = "[OPTIONS]",
    .more = "Answers ComfyUI's API on port 8188, bare and under /api, and Berth's own under\n"
            "/berth and /metrics. The queue and the history are on disk: a prompt that was\n"
            "accepted survives a crash. SIGTERM lets the running prompt end (--grace) or puts\n"
            "it back into the queue; a second one does so at once. To listen beyond this\n"
            "machine, a token is required.\n" TOKENIZERS_HELP,
    .tables = serve_args_help,
    .run = run_serve,
};
