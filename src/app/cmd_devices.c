/* berth devices: what there is to put models on. */
#include "app/app.h"
#include "app/jsonout.h"

static void print_json(struct jsonout *j, const berth_device_info *d)
{
    jsonout_open(j, NULL, '{');
    jsonout_str(j, "name", d->name);
    jsonout_str(j, "kind", d->kind);
    jsonout_str(j, "physical", d->physical);
    jsonout_u64(j, "total", d->total);
    jsonout_u64(j, "free", d->free);
    jsonout_u64(j, "budget", d->budget);
    jsonout_u64(j, "in_use", d->in_use);
    jsonout_u64(j, "idle", d->idle);
    jsonout_u64(j, "peak", d->peak);
    jsonout_u64(j, "pinned", d->pinned);
    jsonout_open_flat(j, "can", '[');
#define CAP(id, bit, text)                                                                         \
    if (d->caps & BERTH_CAP_##id)                                                                  \
        jsonout_str(j, NULL, text);
    BERTH_CAP_MAP(CAP)
#undef CAP
    jsonout_close(j, ']');
    jsonout_close(j, '}');
}

static void print_head(const struct app *a)
{
    printf("%s%-8s  %-5s  %-8s  %9s  %9s  %9s  %-10s  %s%s\n", term_style(&a->out, STYLE_BOLD),
           "device", "kind", "on", "total", "free", "budget", "used", "can",
           term_style(&a->out, STYLE_RESET));
}

/* The bar shows how much of the physical memory is taken. */
static void print_row(const struct app *a, const berth_device_info *d)
{
    char total[STR_BYTES_MAX], avail[STR_BYTES_MAX], budget[STR_BYTES_MAX];
    struct str bar = { 0 };
    term_bar(&bar, &a->out, d->total ? 1 - (double)d->free / (double)d->total : 0, 10);
    printf("%-8s  %-5s  %-8s  %9s  %9s  %9s  %s%s%s  %s\n", d->name, d->kind,
           strcmp(d->name, d->physical) ? d->physical : "-", str_bytes(d->total, total),
           str_bytes(d->free, avail), str_bytes(d->budget, budget), term_color(&a->out, 0),
           str_c(&bar), term_style(&a->out, STYLE_RESET), d->caps_text);
    str_release(&bar);
}

static int list(struct app *a, berth_ctx *ctx, bool json)
{
    struct jsonout j = { .out = stdout };
    berth_err err;
    int code = APP_OK;
    if (json)
        jsonout_open(&j, NULL, '[');
    else
        print_head(a);
    for (size_t i = 0; i < berth_ctx_device_count(ctx); i++) {
        berth_device_info d;
        if (berth_ctx_device_info(ctx, i, &d, &err))
            code = app_fail(a, &err);
        else if (json)
            print_json(&j, &d);
        else
            print_row(a, &d);
    }
    if (json) {
        jsonout_close(&j, ']');
        if (!jsonout_end(&j))
            code = APP_FAILED;
    }
    return code;
}

_Static_assert((int)LOG_DEBUG == (int)BERTH_LOG_DEBUG && (int)LOG_OFF == (int)BERTH_LOG_OFF,
               "the library's log levels and base/log.h are one list");

static void forward_log(void *user, berth_log_level level, uint64_t wall_ns, const char *event,
                        const char *text)
{
    const struct log *l = user;
    l->write(l->user, (enum log_level)level, wall_ns, event, text);
}

static int run(struct app *a, int argc, char **argv)
{
    bool json = false;
    const char *devices = NULL;
    const struct opt opt[] = {
        { .name = "json", .help = "print a JSON array, one object per device", .to = &json },
        { .name = "devices",
          .kind = OPT_TEXT,
          .value = "SPEC",
          .help = "name[@physical][=budget],...; default: all of this machine",
          .to = &devices },
    };
    int n, code;
    if (!app_args(a, &command_devices, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (n)
        return app_usage(a, "unexpected argument '%.80s' (devices are given with --devices)",
                         argv[0]);
    const berth_config cfg = { .devices = devices,
                               .log = forward_log,
                               .log_user = &a->log,
                               .log_level = (berth_log_level)a->log.level };
    berth_ctx *ctx;
    berth_err err;
    if (berth_ctx_new(&cfg, &ctx, &err))
        return app_fail(a, &err);
    code = list(a, ctx, json);
    berth_ctx_free(ctx);
    return code;
}

const struct command command_devices = {
    .name = "devices",
    .about = "list devices: memory, budget, what they can do",
    .usage = "[--devices SPEC] [--json]",
    .more = "A SPEC splits the machine into logical devices, each with its own budget:\n"
            "  cpu=16g,null:0=24g         two devices, budgets in GiB\n"
            "  cuda:0@cpu=8g              a device called cuda:0 that lives in host memory\n"
            "Numbers in JSON are bytes.\n",
    .run = run,
};
