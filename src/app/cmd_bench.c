/* berth bench: how fast a model runs when some of it lives elsewhere. */
#include "app/bench.h"

#include "base/file.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define ROWS_MAX 16

struct options {
    const char *preset, *file, *dir, *offload, *dtype, *act, *layout, *pin, *device, *devices,
        *donor;
    uint64_t width, height, tokens, steps, warmup;
    bool json, keep, profile;
};

struct wanted {                  /* the options, understood */
    const struct preset *preset; /* NULL: a file of the user's */
    enum dtype dtype;
    unsigned offload[ROWS_MAX];
    size_t rows;
    struct bench_model model;
};

static int read_offload(struct app *a, const char *text, struct wanted *w)
{
    for (const char *at = text; *at;) {
        char *end;
        unsigned long n = strtoul(at, &end, 10);
        if (end == at || (*end && *end != ',') || n > 100 || w->rows == ROWS_MAX)
            return app_usage(a, "--offload: '%.80s' is no list of at most %d percentages", text,
                             ROWS_MAX);
        w->offload[w->rows++] = (unsigned)n;
        at = end + (*end == ',');
    }
    return w->rows ? 0 : app_usage(a, "--offload: no percentage");
}

static bool type_named(const char *text, enum dtype *out)
{
    static const struct {
        const char *text;
        enum dtype t;
    } names[] = { { "f32", DT_F32 },     { "f16", DT_F16 },         { "bf16", DT_BF16 },
                  { "fp8", DT_F8_E4M3 }, { "fp16", DT_F16 },        { "fp32", DT_F32 },
                  { "q8_0", DT_Q8_0 },   { "q5_0", DT_Q5_0 },       { "q4_0", DT_Q4_0 },
                  { "q4_k", DT_Q4_K },   { "fp8_e5m2", DT_F8_E5M2 } };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcasecmp(text, names[i].text) == 0) {
            *out = names[i].t;
            return true;
        }
    return false;
}

static int understand(struct app *a, const struct options *o, struct wanted *w)
{
    struct bench_model *m = &w->model;
    *m = (struct bench_model) { .devices = o->devices,
                                .device = o->device,
                                .donor = o->donor,
                                .act = DT_NONE,
                                .width = o->width,
                                .height = o->height,
                                .tokens = o->tokens,
                                .warmup = o->warmup,
                                .steps = o->steps };
    if (o->file && o->preset)
        return app_usage(a, "--preset makes weights, --file names some: one of them");
    if (!o->file && !(w->preset = preset_find(o->preset ? o->preset : "flux-dev")))
        return app_usage(a, "no preset '%.80s'; `berth synth --list` has them", o->preset);
    if (!type_named(o->dtype, &w->dtype))
        return app_usage(
            a, "--dtype: '%.40s' is none of bf16, f16, f32, fp8, q8_0, q5_0, q4_0, q4_k", o->dtype);
    if (o->act && (!type_named(o->act, &m->act) ||
                   (m->act != DT_F32 && m->act != DT_F16 && m->act != DT_BF16)))
        return app_usage(a, "--act: '%.40s' is none of bf16, f16, f32", o->act);
    if (o->layout && !plan_layout_parse(o->layout, strlen(o->layout), &m->layout))
        return app_usage(a, "--layout: '%.80s' is neither spread nor tail", o->layout);
    int code = app_pin_budget(a, o->pin, &m->pin_budget);
    return code ? code : read_offload(a, o->offload, w);
}

/* ---- what is printed ---- */

static void print_head(const struct app *a)
{
    printf("%s%8s %10s %9s %9s %8s %8s %9s %8s %9s%s\n", term_style(&a->out, STYLE_BOLD), "offload",
           "a step", "limit", "copied", "GB/s", "exposed", "peak", "load", "output",
           term_style(&a->out, STYLE_RESET));
}

static void print_row(const struct bench_row *r)
{
    char copied[STR_BYTES_MAX], peak[STR_BYTES_MAX];
    printf("%6u %% %7.1f ms %6.1f ms %9s %8.1f %6.1f %% %9s %5.1f/s  %08x\n", r->offload, r->ms,
           r->limit_ms, str_bytes(r->donor_bytes, copied), r->gbps, 100 * r->exposed,
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

static void json_row(struct jsonout *j, const struct bench_row *r)
{
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, r->hash);
    jsonout_open(j, NULL, '{');
    jsonout_u64(j, "offload", r->offload);
    jsonout_str(j, "device", r->device);
    jsonout_str(j, "alloc", r->alloc);
    jsonout_u64(j, "bytes", r->bytes);
    jsonout_u64(j, "donor_bytes", r->donor_bytes);
    jsonout_f64(j, "ms", r->ms);
    jsonout_f64(j, "ms_min", r->ms_min);
    jsonout_f64(j, "ms_max", r->ms_max);
    jsonout_f64(j, "link_gbps", r->link_gbps);
    jsonout_f64(j, "limit_ms", r->limit_ms);
    jsonout_f64(j, "gbps", r->gbps);
    jsonout_f64(j, "exposed", r->exposed);
    jsonout_u64(j, "peak", r->peak);
    jsonout_u64(j, "ring", r->ring);
    jsonout_u64(j, "card", r->card);
    jsonout_f64(j, "load_s", r->load_s);
    jsonout_f64(j, "load_gbps", r->load_gbps);
    jsonout_str(j, "output", hash);
    jsonout_close(j, '}');
}

/* ---- the run ---- */

static int measure(struct app *a, const struct wanted *w, const atomic_bool *cancel)
{
    struct jsonout j;
    berth_err err = { 0 };
    berth_status s = BERTH_OK;
    uint64_t first = 0;
    bool same = true;
    if (a->json) {
        app_json_begin(a, &j);
        jsonout_open(&j, NULL, '{');
        jsonout_open(&j, "rows", '[');
    } else {
        print_head(a);
    }
    for (size_t i = 0; i < w->rows && !s; i++) {
        struct bench_row row;
        s = bench_row(a, &w->model, w->offload[i], cancel, &row, &err);
        if (s)
            break;
        first = i ? first : row.hash;
        same &= row.hash == first;
        if (a->json)
            json_row(&j, &row);
        else
            print_row(&row);
        if (!a->json)
            print_times(&w->model);
    }
    if (!s && !same)
        s = err_set(&err, BERTH_EDEVICE, "placements gave different outputs");
    if (!a->json)
        return s ? app_fail(a, &err) : APP_OK;
    jsonout_close(&j, ']');
    jsonout_bool(&j, "same_output", same);
    if (s)
        app_json_error(&j, &err);
    jsonout_close(&j, '}');
    return app_json_end(a, &j, s ? APP_FAILED : APP_OK);
}

static int with_weights(struct app *a, const struct options *o, struct wanted *w)
{
    const atomic_bool *cancel = signals_watch();
    berth_err err;
    struct str path = { 0 };
    if (o->file) {
        w->model.path = o->file;
        return measure(a, w, cancel);
    }
    str_addf(&path, "%s/berth-bench-%ld-%s.%s", o->dir, (long)getpid(), w->preset->name,
             bench_extension(w->dtype));
    if (path.bad)
        return app_fail(a, (err_set(&err, BERTH_ENOMEM, "a file's name"), &err));
    if (!a->json)
        printf("%s in %s: writing %s\n", w->preset->name, o->dtype, str_c(&path));
    fflush(stdout);
    w->model.path = str_c(&path);
    int code = bench_write(w->preset, w->dtype, str_c(&path), cancel, &err) ? app_fail(a, &err)
                                                                            : measure(a, w, cancel);
    if (!o->keep)
        unlink(str_c(&path));
    str_release(&path);
    return code;
}

static int run(struct app *a, int argc, char **argv)
{
    struct options o = { .offload = "0,20,50,100",
                         .dtype = "bf16",
                         .donor = "cpu",
                         .dir = "/tmp",
                         .width = 1024,
                         .height = 1024,
                         .tokens = 512,
                         .steps = 9,
                         .warmup = 2 };
    const struct opt opt[] = {
        { "preset", 0, OPT_TEXT, "NAME", "whose shapes (flux-dev)", &o.preset, 0, 0 },
        { "file", 0, OPT_TEXT, "FILE", "a diffusion model of yours instead", &o.file, 0, 0 },
        { "offload", 0, OPT_TEXT, "LIST", "percent of the model on the donor (0,20,50,100)",
          &o.offload, 0, 0 },
        { "dtype", 0, OPT_TEXT, "TYPE", "of the weights: bf16, fp8, q8_0, q4_k ... (bf16)",
          &o.dtype, 0, 0 },
        { "act", 0, OPT_TEXT, "TYPE", "of activations: bf16, f16, f32 (the model's own)", &o.act, 0,
          0 },
        { "device", 0, OPT_TEXT, "NAME", "that computes (the first card)", &o.device, 0, 0 },
        { "donor", 0, OPT_TEXT, "LIST", "where the rest lives, each the same part (cpu)", &o.donor,
          0, 0 },
        { "devices", 0, OPT_TEXT, "SPEC", "as everywhere: cuda:0=40g,cuda:1@cuda:0=20g,cpu",
          &o.devices, 0, 0 },
        { "layout", 0, OPT_TEXT, "NAME", "spread or tail (spread)", &o.layout, 0, 0 },
        PIN_OPTION(&o.pin),
        { "width", 0, OPT_INT, "N", "pixels (1024)", &o.width, 16, 16384 },
        { "height", 0, OPT_INT, "N", "pixels (1024)", &o.height, 16, 16384 },
        { "tokens", 0, OPT_INT, "N", "of the prompt (512)", &o.tokens, 1, 65536 },
        { "steps", 0, OPT_INT, "N", "that count; their median is told (9)", &o.steps, 1, 1000 },
        { "warmup", 0, OPT_INT, "N", "steps before them (2)", &o.warmup, 0, 1000 },
        { "dir", 0, OPT_TEXT, "DIR", "where a preset's weights are written meanwhile (/tmp)",
          &o.dir, 0, 0 },
        { "keep", 0, OPT_FLAG, NULL, "leave that file there", &o.keep, 0, 0 },
        { "profile", 0, OPT_FLAG, NULL, "where the time goes, layer by layer; each is waited for",
          &o.profile, 0, 0 },
        { "json", 0, OPT_FLAG, NULL, "one object", &o.json, 0, 0 },
    };
    struct wanted w = { 0 };
    struct net_times times = { .n = 0 };
    int n, code;
    if (!app_args(a, &command_bench, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    a->json = o.json;
    if (n != 1 || strcmp(argv[0], "stream") != 0)
        return app_usage(a, "what is to be measured? There is: stream");
    code = understand(a, &o, &w);
    w.model.times = o.profile ? &times : NULL;
    return code ? code : with_weights(a, &o, &w);
}

const struct command command_bench = {
    .name = "bench",
    .about = "measure a model that lives on several devices",
    .usage = "stream [options]",
    .more =
        "Runs steps of a diffusion model with more and more of it on a donor, mostly RAM, from\n"
        "where it streams to the device that computes. A row tells a step's time (median), the\n"
        "least its copies can take on this link, what was copied, how fast and how much of it\n"
        "layers stood waiting for, the most memory this program held on the device, and a sum\n"
        "over the output, which is the same in every row.\n",
    .run = run,
};
