/* berth bench: how fast a model runs when some of it lives elsewhere. */
#include "app/bench.h"

#include "app/device_options.h"
#include "app/presets.h"
#include "model/synth.h"

#include <inttypes.h>
#include <unistd.h>

struct options {
    const char *preset, *file, *dir, *offload, *dtype, *act, *layout, *device, *donor;
    struct device_options devices;
    uint64_t width, height, tokens, steps, warmup;
    bool keep, profile;
};

struct wanted {                  /* the options, understood */
    const struct preset *preset; /* NULL: a file of the user's */
    enum dtype dtype;
    struct spec spec; /* of --devices */
    struct app_ctx_args args;
    struct bench_model model;
};

static int read_offload(struct app *a, const char *text, struct bench_model *m)
{
    for (const char *at = text; *at;) {
        char *end;
        unsigned long n = strtoul(at, &end, 10);
        if (end == at || (*end && *end != ',') || n > 100 || m->places == BENCH_ROWS_MAX)
            return app_usage(a, "--offload: '%.80s' is no list of at most %d percentages", text,
                             BENCH_ROWS_MAX);
        m->place[m->places++].offload = (unsigned)n;
        at = end + (*end == ',');
    }
    return m->places ? 0 : app_usage(a, "--offload: no percentage");
}

/* Names as synth has them, and those people type. */
static bool type_named(const char *text, enum dtype *out)
{
    static const struct {
        const char *text;
        enum dtype t;
    } names[] = { { "fp8", DT_F8_E4M3 },
                  { "fp8_e4m3", DT_F8_E4M3 },
                  { "fp8_e5m2", DT_F8_E5M2 },
                  { "fp16", DT_F16 },
                  { "fp32", DT_F32 } };
    *out = dtype_by_name(text, strlen(text));
    if (*out != DT_NONE)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcasecmp(text, names[i].text) == 0) {
            *out = names[i].t;
            return true;
        }
    return false;
}

/* What weights are stored in, and can be written in. */
static bool is_weight_type(enum dtype t)
{
    bool plain = t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_F8_E4M3 || t == DT_F8_E5M2;
    return plain || t == DT_Q4_K || (dtype_is_quant(t) && synth_can(t, NULL));
}

/* Which devices, by all the options about them. */
static int read_devices(struct app *a, const struct options *o, struct wanted *w)
{
    const char *devices = o->devices.devices;
    struct bench_model *m = &w->model;
    berth_err err;
    int code = app_devices(a, &o->devices, &w->args);
    if (code)
        return code;
    m->pin_budget = w->args.pin_budget;
    m->env = app_dev_env(a, &w->args);
    if (devices && spec_parse(devices, strlen(devices), false, &w->spec, &err))
        return app_fail_devices(a, &err);
    m->spec = devices ? &w->spec : NULL;
    if (!bench_places(m, o->device, o->donor, &err))
        return APP_OK;
    app_blame_card_option(w->args.cards, &err);
    if (err.code == BERTH_EUNSUPPORTED && devices)
        return app_usage(a, "--devices: %s", err.msg);
    return err.code == BERTH_EINVAL ? app_usage(a, "%s", err.msg) : app_fail(a, &err);
}

static int understand(struct app *a, const struct options *o, struct wanted *w)
{
    struct bench_model *m = &w->model;
    berth_err err;
    *m = (struct bench_model) { .act = DT_NONE,
                                .width = o->width,
                                .height = o->height,
                                .tokens = o->tokens,
                                .warmup = o->warmup,
                                .steps = o->steps };
    if (o->file && o->preset)
        return app_usage(a, "--preset makes weights, --file names some: one of them");
    if (!o->file && !(w->preset = preset_find(o->preset ? o->preset : "flux-dev")))
        return app_usage(a, "no preset '%.80s'; `berth synth --list` has them", o->preset);
    if (o->file && o->dtype)
        return app_usage(a, "--dtype goes with --preset: the weights of --file are what they are");
    const char *dtype = o->dtype ? o->dtype : "bf16";
    if (!type_named(dtype, &w->dtype) || !is_weight_type(w->dtype))
        return app_usage(
            a, "--dtype: '%.40s' is none of bf16, f16, f32, fp8, q8_0, q5_0, q4_0, q4_k", dtype);
    if (o->act && (!type_named(o->act, &m->act) ||
                   (m->act != DT_F32 && m->act != DT_F16 && m->act != DT_BF16)))
        return app_usage(a, "--act: '%.40s' is none of bf16, f16, f32", o->act);
    if (o->layout && !plan_layout_parse(o->layout, strlen(o->layout), &m->layout))
        return app_usage(a, "--layout: '%.80s' is neither spread nor tail", o->layout);
    if (w->preset && bench_preset_runs(w->preset, &err))
        return err.code == BERTH_EINVAL ? app_usage(a, "--preset: %s", err.msg) : app_fail(a, &err);
    int code = read_offload(a, o->offload, m);
    return code ? code : read_devices(a, o, w);
}

/* ---- what is printed ---- */

static void print_row(const struct bench_row *r)
{
    char copied[STR_BYTES_MAX], peak[STR_BYTES_MAX], limit[32] = "?";
    if (r->link_gbps > 0)
        snprintf(limit, sizeof limit, "%.1f ms", r->limit_ms);
    printf("%6u %% %7.1f ms %9s %9s %8.1f %6.1f %% %9s %4.1f GB/s  %08x\n", r->place->offload,
           r->ms, limit, str_bytes(r->donor_bytes, copied), r->gbps, 100 * r->exposed,
           str_bytes(r->peak, peak), r->load_gbps, (unsigned)(r->hash >> 32));
    fflush(stdout);
}

/* Of one step. */
static void print_times(const struct bench_model *m)
{
    const struct net_times *t = m->times;
    for (size_t i = 0; t && i < t->n; i++)
        printf("    %-48s %6.0f times %9.3f ms %9.1f us each\n", t->at[i].what,
               (double)t->at[i].count / (double)m->steps,
               (double)t->at[i].ns / 1e6 / (double)m->steps,
               (double)t->at[i].ns / 1e3 / (double)t->at[i].count);
}

static void json_row(struct jsonout *j, const struct bench_model *m, const struct bench_row *r)
{
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, r->hash);
    jo_open(j, NULL, '{');
    jo_u64(j, "offload", r->place->offload);
    jo_str(j, "device", m->device);
    jo_str(j, "alloc", r->place->alloc);
    jo_u64(j, "bytes", r->bytes);
    jo_u64(j, "donor_bytes", r->donor_bytes);
    jo_f64(j, "ms", r->ms);
    jo_f64(j, "ms_min", r->ms_min);
    jo_f64(j, "ms_max", r->ms_max);
    jo_f64(j, "link_gbps", r->link_gbps);
    jo_f64(j, "limit_ms", r->limit_ms);
    jo_f64(j, "gbps", r->gbps);
    jo_f64(j, "exposed", r->exposed);
    jo_f64(j, "runs", r->runs);
    jo_f64(j, "copies", r->copies);
    jo_u64(j, "out_of_order", r->out_of_order);
    jo_u64(j, "dropped", r->dropped);
    jo_u64(j, "peak", r->peak);
    jo_u64(j, "ring", r->ring);
    jo_u64(j, "card", r->card);
    jo_f64(j, "load_s", r->load_s);
    jo_f64(j, "load_gbps", r->load_gbps);
    jo_str(j, "output", hash);
    jo_close(j, '}');
}

/* ---- the run ---- */

/* A signal is no failure of what was measured. */
static int report_end(struct app *a, berth_err *err)
{
    int caught = err->code == BERTH_ECANCELED ? signals_caught() : 0;
    if (caught)
        err_set(err, BERTH_ECANCELED, "stopped");
    int code = app_fail(a, err);
    return caught ? APP_SIGNAL + caught : code;
}

static int measure(struct app *a, const struct bench_model *m, const atomic_bool *cancel)
{
    struct jsonout j;
    berth_err err = { 0 };
    berth_status s = BERTH_OK;
    uint64_t first = 0;
    bool same = true, in_place = false;
    if (a->json) {
        app_json_begin(a, &j);
        jo_open(&j, NULL, '{');
        jo_open(&j, "rows", '[');
    } else {
        printf("%s%8s %10s %9s %9s %8s %8s %9s %9s %9s%s\n", term_style(&a->out, STYLE_BOLD),
               "offload", "a step", "limit", "copied", "GB/s", "exposed", "peak", "load", "output",
               term_style(&a->out, STYLE_RESET));
    }
    size_t rows = 0;
    for (size_t i = 0; i < m->places; i++) {
        struct bench_row row;
        s = atomic_load(cancel) ? err_set(&err, BERTH_ECANCELED, "canceled")
                                : bench_row(a, m, &m->place[i], cancel, &row, &err);
        if (s)
            break;
        rows++;
        in_place |= row.in_place && m->place[i].offload;
        first = i ? first : row.hash;
        same &= row.hash == first;
        if (a->json)
            json_row(&j, m, &row);
        else
            print_row(&row);
        if (!a->json)
            print_times(m);
    }
    if (!s && !same)
        s = err_set(&err, BERTH_EDEVICE, "placements gave different outputs");
    if (!a->json && !a->quiet && in_place)
        printf("%s is RAM: blocks are read where they lie, nothing is copied\n", m->device);
    if (!a->json)
        return s ? report_end(a, &err) : APP_OK;
    jo_close(&j, ']');
    if (rows > 1)
        jo_bool(&j, "same_output", same);
    int code = s ? report_end(a, &err) : APP_OK;
    if (s)
        app_json_error(&j, &err);
    jo_close(&j, '}');
    return app_json_end(a, code);
}

static int with_file(struct app *a, struct bench_model *m, const char *path,
                     const atomic_bool *cancel)
{
    berth_err err;
    m->path = path;
    return bench_part(path, &m->part, &err) ? app_fail(a, &err) : measure(a, m, cancel);
}

static int with_weights(struct app *a, const struct options *o, struct wanted *w)
{
    const atomic_bool *cancel = signals_watch();
    berth_err err;
    struct str path = { 0 };
    if (o->file)
        return with_file(a, &w->model, o->file, cancel);
    str_addf(&path, "%s/berth-bench-%ld-%s.%s", o->dir, (long)getpid(), w->preset->name,
             app_format_of(w->dtype)->name);
    if (path.bad)
        return app_no_memory(a);
    if (!a->json && !a->quiet)
        printf("%s in %s: writing %s\n", w->preset->name, dtype_name(w->dtype), str_c(&path));
    fflush(stdout);
    int code = bench_write(w->preset, w->dtype, str_c(&path), cancel, &err)
                   ? report_end(a, &err)
                   : with_file(a, &w->model, str_c(&path), cancel);
    if (!o->keep)
        unlink(str_c(&path));
    str_release(&path);
    return code;
}

static int run(struct app *a, int argc, char **argv)
{
    struct options o = { .offload = "0,20,50,100",
                         .donor = "cpu",
                         .dir = "/tmp",
                         .width = 1024,
                         .height = 1024,
                         .tokens = 512,
                         .steps = 9,
                         .warmup = 2 };
    const struct opt opt[] = {
        opt_text("preset", "PRESET", "model to take the shapes from (flux-dev)", &o.preset),
        opt_text("file", "FILE", "your own diffusion model instead", &o.file),
        opt_text("offload", "PERCENT,...", "percent of the model on the donor (0,20,50,100)",
                 &o.offload),
        opt_text("dtype", "TYPE", "type of the weights: bf16, fp8, q8_0, q4_k ... (bf16)",
                 &o.dtype),
        opt_text("act", "FLOAT", "type of activations: bf16, f16, f32 (the model's own)", &o.act),
        opt_text("device", "DEVICE", "the one that computes (the first card)", &o.device),
        opt_text("donor", "DEVICE,...", "where the rest lives, in equal parts (cpu)", &o.donor),
        opt_text("devices", "SPEC", "as everywhere: cuda:0=40g,cuda:1@cuda:0=20g,cpu",
                 &o.devices.devices),
        opt_text("layout", "LAYOUT", "spread or tail (spread)", &o.layout),
        CARD_OPTIONS(&o.devices),
        BUDGET_OPTIONS(&o.devices),
        opt_int("width", "N", "pixels (1024)", 16, 16384, &o.width),
        opt_int("height", "N", "pixels (1024)", 16, 16384, &o.height),
        opt_int("tokens", "N", "tokens of the prompt (512)", 1, 65536, &o.tokens),
        opt_int("steps", "N", "steps to measure; prints their median (9)", 1, 1000, &o.steps),
        opt_int("warmup", "N", "steps before them (2)", 0, 1000, &o.warmup),
        opt_text("dir", "DIR", "where a preset's weights are written meanwhile (/tmp)", &o.dir),
        opt_flag("keep", "keep that file", &o.keep),
        opt_flag("profile", "print where the time goes, waiting for each layer", &o.profile),
        opt_flag("json", "print a JSON object", &a->json),
    };
    struct wanted w = { 0 };
    struct net_times times = { .n = 0 };
    int n, code;
    if (!app_args(a, &command_bench, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (n && strcmp(argv[0], "stream") != 0)
        return app_usage(a, "'%.80s' cannot be measured; there is: stream", argv[0]);
    if (n != 1)
        return app_usage(a, "what is to be measured? There is: stream");
    code = understand(a, &o, &w);
    w.model.times = o.profile ? &times : NULL;
    return code ? code : with_weights(a, &o, &w);
}

const struct command command_bench = {
    .name = "bench",
    .about = "measure a model that lives on several devices",
    .usage = "stream [OPTIONS]",
    .args = "stream",
    .more = "Runs steps of a diffusion model with more and more of it on a donor (usually\n"
            "RAM), from where it streams to the device that computes. Each row has the median\n"
            "time of a step, the least time its copies can take on this link, what was\n"
            "copied, how fast, how much of that time layers waited, the most memory this\n"
            "program held on the device, and a sum over the output, the same in every row.\n"
            "\n"
            "--json: {\"rows\": [...], \"same_output\"}. A row: offload (percent asked for),\n"
            "device, alloc, bytes (of the model), donor_bytes (copied each step), ms, ms_min,\n"
            "ms_max (of a step), link_gbps (of one large copy), limit_ms (donor_bytes at that\n"
            "rate), gbps, exposed (share of the copies' time that layers waited),\n"
            "peak, ring (bytes held on the device), card (taken there by anybody), load_s,\n"
            "load_gbps, output (the sum).\n",
    .run = run,
};
