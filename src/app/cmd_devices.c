/* berth devices: what there is to put models on, or what there would be (--hypothetical). */
#include "app/device_options.h"
#include "berth/ctx.h"
#include "device/spec.h"
#include "op/ops.h"

#define CELL 9 /* columns of a size: "1023 GiB" */

/* real: the device itself; NULL: hypothetical. */
static void print_json(struct jsonout *j, const berth_device_info *d, const struct device *real)
{
    const bool hypothetical = !real;
    jo_open(j, NULL, '{');
    jo_str(j, "name", d->name);
    jo_str(j, "kind", d->kind);
    jo_str(j, "physical", d->physical);
    if (d->model[0])
        jo_str(j, "model", d->model);
    jo_bool(j, "hypothetical", hypothetical);
    jo_u64(j, "total", d->total);
    if (!hypothetical)
        jo_u64(j, "free", d->free);
    jo_u64(j, "budget", d->budget);
    if (hypothetical) {
        jo_close(j, '}');
        return;
    }
    jo_u64(j, "in_use", d->in_use);
    jo_u64(j, "idle", d->idle);
    jo_u64(j, "peak", d->peak);
    jo_u64(j, "pinned", d->pinned);
    jo_open_flat(j, "can", '[');
#define CAP(id, bit, text)                                                                         \
    if (d->caps & BERTH_CAP_##id)                                                                  \
        jo_str(j, NULL, text);
    BERTH_CAP_MAP(CAP)
#undef CAP
    jo_close(j, ']');
    jo_open_flat(j, "missing", '[');
    berth_err why;
    for (unsigned i = 0; op_library(real, i, &why); i++)
        if (why.code)
            jo_str(j, NULL, why.msg);
    jo_close(j, ']');
    jo_close(j, '}');
}

struct table { /* what is printed for people */
    const struct app *a;
    const berth_device_info *at;
    size_t n;
    int name, physical; /* columns of the two texts */
    bool hypothetical;
};

static int wider(int width, const char *text)
{
    int n = (int)strlen(text);
    return n > width ? n : width;
}

/* What a device may take and has taken. What it can do stands behind, or below where that does not
 * fit. */
static void print_devices(const struct table *t)
{
    const struct term *term = &t->a->out;
    int left = t->name + 2 + t->physical + 2 * (2 + CELL) + 2;
    bool beside = true;
    for (size_t i = 0; i < t->n; i++)
        beside = beside && left + (int)strlen(t->at[i].caps_text) <= term->width;
    printf("%s%-*s  %-*s  %*s", term_style(term, STYLE_BOLD), t->name, "device", t->physical, "on",
           CELL, "budget");
    if (!t->hypothetical)
        printf("  %*s%s", CELL, "in use", beside ? "  can" : "");
    printf("%s\n", term_style(term, STYLE_RESET));
    for (size_t i = 0; i < t->n; i++) {
        const berth_device_info *d = &t->at[i];
        char budget[STR_BYTES_MAX], in_use[STR_BYTES_MAX];
        printf("%-*s  %-*s  %*s", t->name, d->name, t->physical, d->physical, CELL,
               str_bytes(d->budget, budget));
        if (!t->hypothetical)
            printf("  %*s", CELL, str_bytes(d->in_use + d->idle, in_use));
        struct str can = { 0 };
        if (beside)
            str_addf(&can, "%s%s", d->caps_text[0] ? "  " : "", d->caps_text);
        else
            term_wrap(&can, d->caps_text, 4, (size_t)term->width);
        puts(str_c(&can));
        str_release(&can);
    }
}

/* Memory belongs to the physical devices: once for each, however many share it. */
static void print_physical(const struct table *t)
{
    const struct term *term = &t->a->out;
    const int wide = t->physical + 2 * (2 + CELL) + 2;
    printf("\n%s%-*s  %*s", term_style(term, STYLE_BOLD), t->physical, "physical", CELL, "total");
    if (!t->hypothetical)
        printf("  %*s", CELL, "free");
    printf("%s\n", term_style(term, STYLE_RESET));
    for (size_t i = 0; i < t->n; i++) {
        const berth_device_info *d = &t->at[i];
        size_t first = 0;
        while (strcmp(t->at[first].physical, d->physical))
            first++;
        if (first < i)
            continue;
        int left = wide;
        char total[STR_BYTES_MAX], avail[STR_BYTES_MAX];
        printf("%-*s  %*s", t->physical, d->physical, CELL, str_bytes(d->total, total));
        if (!t->hypothetical)
            printf("  %*s", CELL, str_bytes(d->free, avail));
        if (!t->hypothetical && d->total && left + 22 <= term->width) {
            double taken = 1 - (double)d->free / (double)d->total;
            struct str bar = { 0 };
            term_bar(&bar, term, taken, 10);
            printf("  %s%s%s %3.0f %% taken", term_color(term, 0), str_c(&bar),
                   term_style(term, STYLE_RESET), taken * 100);
            str_release(&bar);
            left += 24;
        }
        if (d->model[0] && left + 2 + (int)strlen(d->model) <= term->width)
            printf("  %s", d->model);
        putchar('\n');
    }
}

static void print_line(const struct app *a, const char *kind, const char *text)
{
    struct str line = { 0 }, wrapped = { 0 };
    str_addf(&line, "%s: %s", kind, text);
    term_wrap(&wrapped, str_c(&line), 0, (size_t)a->out.width);
    puts(str_c(&wrapped));
    str_release(&wrapped);
    str_release(&line);
}

/* Libraries that are not here, once for each kind of device. */
static void print_missing(const struct app *a, const struct devset *set)
{
    berth_err why;
    for (size_t i = 0; set && i < devset_count(set); i++) {
        const struct device *d = devset_at(set, i);
        size_t first = 0;
        while (devset_at(set, first)->phys->driver != d->phys->driver)
            first++;
        for (unsigned k = 0; first == i && op_library(d, k, &why); k++)
            if (why.code)
                print_line(a, d->phys->driver->name, why.msg);
    }
}

/* Kinds of devices that could be here and are not: only where nobody said what to open. */
static void print_absent(const struct app *a, const berth_ctx *ctx, struct jsonout *j)
{
    const char *kind, *why;
    for (size_t i = 0; ctx && berth_ctx_absent(ctx, i, &kind, &why); i++) {
        if (j) {
            jo_open(j, NULL, '{');
            jo_str(j, "kind", kind);
            jo_str(j, "absent", why);
            jo_close(j, '}');
            continue;
        }
        print_line(a, kind, why);
    }
}

/* set: the devices themselves; NULL: hypothetical. ctx: whose absent kinds are reported; NULL:
 * nobody's. */
static int print_list(struct app *a, const berth_device_info *at, size_t n,
                      const struct devset *set, const berth_ctx *ctx)
{
    if (a->json) {
        struct jsonout j;
        app_json_begin(a, &j);
        jo_open(&j, NULL, '[');
        for (size_t i = 0; i < n; i++)
            print_json(&j, &at[i], set ? devset_at(set, i) : NULL);
        print_absent(a, ctx, &j);
        jo_close(&j, ']');
        return app_json_end(a, APP_OK);
    }
    struct table t = { .a = a, .at = at, .n = n, .hypothetical = !set };
    t.name = wider(0, "device");
    t.physical = wider(0, "physical");
    for (size_t i = 0; i < n; i++) {
        t.name = wider(t.name, at[i].name);
        t.physical = wider(t.physical, at[i].physical);
    }
    print_devices(&t);
    print_physical(&t);
    print_missing(a, set);
    print_absent(a, ctx, NULL);
    return APP_OK;
}

static int list_real(struct app *a, const struct app_ctx_args *args)
{
    berth_ctx *ctx;
    berth_err err;
    if (app_ctx_new(a, args, &ctx, &err))
        return app_fail_devices(a, &err);
    size_t n = berth_ctx_device_count(ctx);
    berth_device_info *at = calloc(n ? n : 1, sizeof *at);
    berth_status s = at ? BERTH_OK : err_set(&err, BERTH_ENOMEM, "list of %zu devices", n);
    for (size_t i = 0; !s && i < n; i++)
        s = berth_ctx_device_info(ctx, i, &at[i], &err);
    int code = s ? app_fail(a, &err)
                 : print_list(a, at, n, ctx_parts(ctx).devices, args->devices ? NULL : ctx);
    free(at);
    berth_ctx_free(ctx);
    return code;
}

/* Opens nothing: what the text says is all there is. */
static int list_hypothetical(struct app *a, const char *devices)
{
    struct spec spec;
    berth_err err;
    berth_device_info at[SPEC_MAX];
    if (spec_parse(devices, strlen(devices), true, &spec, &err))
        return app_fail_devices(a, &err);
    for (size_t i = 0; i < spec.n; i++) {
        const struct spec_entry *e = &spec.entry[i];
        struct spec_shares shares;
        if (spec_shares(&spec, e->phys.text, &shares, &err))
            return app_fail_devices(a, &err);
        at[i] = (berth_device_info) { .total = shares.stated, .budget = e->budget };
        snprintf(at[i].name, sizeof at[i].name, "%s", e->name.text);
        snprintf(at[i].kind, sizeof at[i].kind, "%s", e->phys.kind);
        snprintf(at[i].physical, sizeof at[i].physical, "%s", e->phys.text);
    }
    return print_list(a, at, spec.n, NULL, NULL);
}

static int run(struct app *a, int argc, char **argv)
{
    bool hypothetical = false;
    struct device_options o = { 0 };
    struct app_ctx_args args = { 0 };
    const struct opt opt[] = {
        opt_text("devices", "SPEC", "what to open, see below; default: all of this machine",
                 &o.devices),
        opt_flag("hypothetical", "open nothing: the SPEC of a machine that is not here",
                 &hypothetical),
        CARD_OPTIONS(&o),
        opt_text("ram-budget", "SIZE", "the most host memory to hold; not beside --devices",
                 &o.ram),
        opt_flag("json", "print a JSON array, one object per device", &a->json),
    };
    int n, code;
    if (!app_args(a, &command_devices, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (n)
        return app_usage(a, "unexpected argument '%.80s' (devices are given with --devices)",
                         argv[0]);
    if (hypothetical && !o.devices)
        return app_usage(a, "--hypothetical needs --devices SPEC, which says what there would be");
    if ((code = app_devices(a, &o, &args)))
        return code;
    return hypothetical ? list_hypothetical(a, o.devices) : list_real(a, &args);
}

/* The words of "can". A capability without a text here does not compile. */
#define ABOUT_HOST_VISIBLE "its memory is host memory, the processor may touch it"
#define ABOUT_ASYNC "copies and kernels run by themselves while the processor goes on"
#define ABOUT_PINNED "hands out pinned host memory, which it copies from faster"
#define ABOUT_PEER "may copy straight to another device of its kind"
#define ABOUT_LAUNCH "runs functions in the order of its streams"

static void tables(struct str *out)
{
    str_adds(out, "\nWhat a device can do:\n");
#define CAP(id, bit, text) str_addf(out, "  %-12s  %s\n", text, ABOUT_##id);
    BERTH_CAP_MAP(CAP)
#undef CAP
}

const struct command command_devices = {
    .name = "devices",
    .about = "list devices: memory, budget, what they can do",
    .usage = "[--devices SPEC [--hypothetical] | --ram-budget N] [--json]",
    .more = "SPEC is NAME[@PHYSICAL][=BUDGET],...\n"
            "  NAME      a kind, with a number from 0 to 255 where there may be several: cpu,\n"
            "            cuda:0, xpu:0, npu:0, mlu:0, directml:0, corex:0, mps, or another\n"
            "            word. null:0 is made up, for tests, with the memory its budget says\n"
            "  PHYSICAL  whose memory it is; without it, NAME itself. With it, NAME is a\n"
            "            logical device: several may share a physical one within its memory\n"
            "  BUDGET    the most it may hold: bytes, or with k, m, g for KiB, MiB, GiB;\n"
            "            decimals are fine. * or nothing: what the others there leave\n"
            "Examples:\n"
            "  cpu=16g,null:0=2.5g         two devices\n"
            "  cuda:0@cpu=8g,cuda:1@cpu=*  two logical devices that live in host memory\n"
            "A device that is not there, and a budget beyond its memory, is refused with exit\n"
            "code 1; a SPEC that cannot be understood, with 2.\n\n"
            "on: the physical device. in use: what Berth holds of the budget, handed out or\n"
            "kept for reuse. total, free: of the physical device, whoever uses it.\n\n"
            "Kinds of devices that are missing here are listed below with the reason, unless\n"
            "--devices says what to open. So are libraries that cards need and that are not\n"
            "here. $BERTH_CUDA_LIBRARY names the library of the NVIDIA driver if it is not\n"
            "libcuda.so.1.\n\n"
            "JSON: name, kind (the driver), physical, model (of a card), hypothetical, total,\n"
            "free, budget, in_use and idle (\"in use\" is their sum), peak (highest in_use),\n"
            "pinned (host memory), can, missing (libraries it needs: the reason of each).\n"
            "Numbers are bytes. A hypothetical device has none of free, in_use, idle, peak,\n"
            "pinned, can, missing; its physical device is as large as the budgets on it. What\n"
            "is not here comes last: kind, absent (the reason).\n"
            "A failure is {\"error\": {\"code\", \"message\"}}.\n",
    .tables = tables,
    .run = run,
};
