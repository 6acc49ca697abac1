/* berth synth: model files whose weights follow from their names (model/synth.h). */
#include "app/app.h"
#include "app/jsonout.h"
#include "base/file.h"
#include "model/preset.h"
#include "model/synth.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREADS_MAX 1024

struct options {
    const char *preset, *keys, *dtype, *format, *output;
    uint64_t threads; /* 0: one per core */
    bool list, json, force;
};

struct job {                     /* zeroed is empty */
    const struct preset *preset; /* NULL: the keys come from a file */
    struct keys keys;
    enum dtype dtype;
    const struct weights_writer *format;
    struct str output;
    struct synth synth;
};

static void job_release(struct job *j)
{
    synth_release(&j->synth);
    keys_release(&j->keys);
    str_release(&j->output);
}

/* ---- what to write: each returns 0 or the exit code of a mistake it named ---- */

static int unknown_preset(struct app *a, const char *name)
{
    struct nearest near = { .word = name };
    struct str all = { 0 };
    for (size_t i = 0; i < preset_count(); i++) {
        nearest_try(&near, preset_at(i)->name);
        str_addf(&all, "%s%s", i ? ", " : "", preset_at(i)->name);
    }
    int code = near.best
                   ? app_usage(a, "unknown preset '%.80s', did you mean '%s'?", name, near.best)
                   : app_usage(a, "unknown preset '%.80s'; there are %s", name, str_c(&all));
    str_release(&all);
    return code;
}

static int choose_dtype(struct app *a, const struct options *o, struct job *j)
{
    const char *name = o->dtype ? o->dtype : "f32";
    j->dtype = dtype_by_name(name, strlen(name));
    if (j->dtype != DT_NONE)
        return APP_OK;
    struct str can = { 0 };
    for (int t = 0; t < DT_COUNT; t++)
        if (synth_can((enum dtype)t, NULL))
            str_addf(&can, " %s", dtype_name((enum dtype)t));
    int code = app_usage(a, "unknown dtype '%.80s'; there are%s", name, str_c(&can));
    str_release(&can);
    return code;
}

/* What a type is written in when nobody says: safetensors if it can, else the first that can. */
static const struct weights_writer *default_format(enum dtype t)
{
    const struct weights_writer *f = weights_writer_find("safetensors");
    for (size_t i = 0; f && !f->stores(t); i++)
        f = weights_writer_at(i);
    return f ? f : weights_writer_at(0); /* none can: synth_init() will say so */
}

static void list_formats(struct str *t, const char *prefix)
{
    const struct weights_writer *f;
    for (size_t i = 0; (f = weights_writer_at(i)); i++)
        str_addf(t, "%s%s%s", i ? ", " : "", prefix, f->name);
}

/* --format, else the ending of --output, else what can hold the type. */
static int choose_format(struct app *a, const struct options *o, struct job *j)
{
    j->format = o->format   ? weights_writer_find(o->format)
                : o->output ? weights_writer_by_path(o->output)
                            : default_format(j->dtype);
    if (j->format)
        return APP_OK;
    struct str all = { 0 };
    list_formats(&all, o->format ? "" : ".");
    int code = o->format
                   ? app_usage(a, "unknown format '%.80s'; there are %s", o->format, str_c(&all))
                   : app_usage(a, "'%.200s' ends in none of %s: say which format with --format",
                               o->output, str_c(&all));
    str_release(&all);
    return code;
}

/* Without --output the file is called after the preset, or after the keys file, in this folder. */
static void choose_output(const struct options *o, struct job *j)
{
    if (o->output) {
        str_adds(&j->output, o->output);
        return;
    }
    const char *base = j->preset ? j->preset->name : o->keys;
    size_t n = strlen(base);
    if (!j->preset) {
        const char *slash = strrchr(base, '/');
        base = slash ? slash + 1 : base;
        n = strlen(base);
        n -= str_ends(base, n, ".json") ? 5 : 0;
    }
    str_add(&j->output, base, n);
    str_add(&j->output, j->format->ext, strcspn(j->format->ext, " "));
}

static int read_keys(struct app *a, const struct options *o, struct job *j)
{
    if (!o->preset == !o->keys)
        return app_usage(a, "give --preset NAME or --keys FILE%s; --list shows the presets",
                         o->preset ? ", not both" : "");
    if (o->preset && !(j->preset = preset_find(o->preset)))
        return unknown_preset(a, o->preset);
    berth_err err;
    if (j->preset ? preset_keys(j->preset, &j->keys, &err) : keys_read(o->keys, &j->keys, &err))
        return app_fail(a, &err);
    return APP_OK;
}

static int refuse_overwrite(struct app *a, const struct options *o, const char *path)
{
    struct stat st;
    berth_err err;
    if (o->force || lstat(path, &st))
        return APP_OK;
    err_set(&err, BERTH_EBUSY, "%s: exists already; --force replaces it", path);
    return app_fail(a, &err);
}

/* ---- writing ---- */

static void on_progress(void *user, uint64_t done, uint64_t total)
{
    progress_set(user, done, total);
}

static berth_status write_file(const struct app *a, const struct job *j, struct tpool *pool,
                               berth_err *err)
{
    const struct weights_meta_spec meta[] = { { "general.architecture",
                                                j->preset ? j->preset->arch : NULL } };
    bool with_arch = j->format->mixed && meta[0].value;
    struct str label = { 0 };
    struct progress bar;
    term_safe(&label, str_c(&j->output), j->output.n, 30);
    progress_init(&bar, stderr, &a->err, a->clock, str_c(&label));
    const struct weights_write_args args = {
        .format = j->format->name,
        .path = str_c(&j->output),
        .spec = j->synth.spec,
        .count = j->keys.n,
        .meta = meta,
        .meta_count = with_arch ? 1 : 0,
        .fill = synth_weights_fill,
        .user = (void *)(uintptr_t)&j->synth, /* only read */
        .pool = pool,
        .progress = on_progress,
        .progress_user = &bar,
    };
    berth_status s = weights_write(&args, err);
    progress_end(&bar);
    str_release(&label);
    return s;
}

static int report(const struct app *a, const struct options *o, const struct job *j,
                  uint64_t elapsed_ns, size_t threads)
{
    const char *path = str_c(&j->output);
    double seconds = (double)elapsed_ns * 1e-9;
    double rate = seconds > 0 ? (double)j->synth.bytes * 1e-9 / seconds : 0;
    struct stat st = { 0 };
    stat(path, &st); /* just written; 0 if somebody took it away */
    log_info(&a->log, "synth.done",
             "file=\"%s\" bytes=%" PRIu64 " seconds=%.3f gb_s=%.2f threads=%zu", path,
             (uint64_t)st.st_size, seconds, rate, threads);
    if (!o->json) {
        char size[STR_BYTES_MAX];
        struct str t = { 0 };
        term_safe(&t, path, strlen(path), 0);
        str_addf(&t, ": %zu tensors, ", j->keys.n);
        term_short_number(&t, j->keys.params);
        str_addf(&t, " parameters, %s, %s, %s", dtype_name(j->dtype), j->format->name,
                 str_bytes((uint64_t)st.st_size, size));
        if (elapsed_ns > PROGRESS_DELAY_NS)
            str_addf(&t, ", %.1f s, %.2f GB/s", seconds, rate);
        puts(str_c(&t));
        str_release(&t);
        return APP_OK;
    }
    struct jsonout out = { .out = stdout };
    jsonout_open(&out, NULL, '{');
    jsonout_str(&out, "file", path);
    jsonout_str(&out, "preset", j->preset ? j->preset->name : NULL);
    jsonout_str(&out, "format", j->format->name);
    jsonout_str(&out, "dtype", dtype_name(j->dtype));
    jsonout_u64(&out, "tensors", j->keys.n);
    jsonout_u64(&out, "parameters", j->keys.params);
    jsonout_u64(&out, "bytes", (uint64_t)st.st_size);
    jsonout_u64(&out, "data_bytes", j->synth.bytes);
    jsonout_f64(&out, "seconds", seconds);
    jsonout_u64(&out, "threads", threads);
    jsonout_close(&out, '}');
    return jsonout_end(&out) ? APP_OK : APP_FAILED;
}

static int make(struct app *a, const struct options *o, struct job *j)
{
    int code = read_keys(a, o, j);
    code = code ? code : choose_dtype(a, o, j);
    code = code ? code : choose_format(a, o, j);
    if (code)
        return code;
    choose_output(o, j);
    berth_err err;
    if (j->output.bad) {
        err_set(&err, BERTH_ENOMEM, "file name");
        return app_fail(a, &err);
    }
    const char *path = str_c(&j->output);
    code = refuse_overwrite(a, o, path);
    if (code)
        return code;
    if (synth_init(&j->synth, &j->keys, j->dtype, j->format, j->preset ? j->preset->hiprec : NULL,
                   signals_watch(), &err)) {
        if (err.code == BERTH_EUNSUPPORTED) /* a type that does not go with the format */
            return app_usage(a, "%s: %s", path, err.msg);
        err_add(&err, "%s", path);
        return app_fail(a, &err);
    }
    struct tpool *pool;
    if (tpool_new((size_t)o->threads, &pool, &err))
        return app_fail(a, &err);
    uint64_t start = clock_mono_ns(a->clock);
    berth_status s = write_file(a, j, pool, &err);
    uint64_t elapsed = clock_mono_ns(a->clock) - start;
    size_t threads = tpool_size(pool);
    tpool_free(pool);
    if (s) {
        if (s == BERTH_ECANCELED)
            err_set(&err, s, "%s: stopped by a signal, nothing was written", path);
        else if (!strstr(err.msg, path))
            err_add(&err, "%s", path);
        code = app_fail(a, &err);
    } else {
        code = report(a, o, j, elapsed, threads);
    }
    return signals_caught() ? APP_SIGNAL + signals_caught() : code;
}

/* ---- --list ---- */

static const enum dtype listed[] = { DT_F32, DT_BF16, DT_F8_E4M3, DT_Q8_0, DT_Q4_0 };

static berth_status list_one(struct app *a, const struct preset *p, struct jsonout *json,
                             berth_err *err)
{
    struct keys k = { 0 };
    berth_status s = preset_keys(p, &k, err);
    if (s)
        return s;
    struct str line = { 0 }, params = { 0 };
    if (json) {
        jsonout_open(json, NULL, '{');
        jsonout_str(json, "preset", p->name);
        jsonout_str(json, "about", p->about);
        jsonout_str(json, "architecture", p->arch);
        jsonout_u64(json, "tensors", k.n);
        jsonout_u64(json, "parameters", k.params);
        jsonout_open_flat(json, "data_bytes", '{');
    }
    term_short_number(&params, k.params);
    str_addf(&line, "%-14s %7zu %9s ", p->name, k.n, str_c(&params));
    for (size_t i = 0; !s && i < ARRAY_LEN(listed); i++) {
        struct synth y = { 0 };
        char size[STR_BYTES_MAX];
        s = synth_init(&y, &k, listed[i], default_format(listed[i]), p->hiprec, NULL, err);
        str_addf(&line, " %9s", str_bytes(y.bytes, size));
        if (json)
            jsonout_u64(json, dtype_name(listed[i]), y.bytes);
        synth_release(&y);
    }
    if (json) {
        jsonout_close(json, '}');
        jsonout_close(json, '}');
    } else {
        printf("%s  %s%s%s\n", str_c(&line), term_style(&a->out, STYLE_DIM), p->about,
               term_style(&a->out, STYLE_RESET));
    }
    str_release(&line);
    str_release(&params);
    keys_release(&k);
    return s;
}

static int list(struct app *a, bool json)
{
    struct jsonout out = { .out = stdout };
    berth_err err;
    berth_status s = BERTH_OK;
    if (json) {
        jsonout_open(&out, NULL, '[');
    } else {
        printf("%s%-14s %7s %9s ", term_style(&a->out, STYLE_BOLD), "preset", "tensors", "params");
        for (size_t i = 0; i < ARRAY_LEN(listed); i++)
            printf(" %9s", dtype_name(listed[i]));
        printf("%s\n", term_style(&a->out, STYLE_RESET));
    }
    for (size_t i = 0; !s && i < preset_count(); i++)
        s = list_one(a, preset_at(i), json ? &out : NULL, &err);
    bool whole = true;
    if (json) {
        jsonout_close(&out, ']');
        whole = jsonout_end(&out);
    }
    return s ? app_fail(a, &err) : whole ? APP_OK : APP_FAILED;
}

static int run(struct app *a, int argc, char **argv)
{
    struct options o = { 0 };
    const struct opt opt[] = {
        { .name = "preset",
          .letter = 'p',
          .kind = OPT_TEXT,
          .value = "NAME",
          .help = "a built-in shape table; see --list",
          .to = &o.preset },
        { .name = "keys",
          .letter = 'k',
          .kind = OPT_TEXT,
          .value = "FILE",
          .help = "a JSON file: {\"tensor name\": [dims, outermost first], ...}",
          .to = &o.keys },
        { .name = "dtype",
          .letter = 'd',
          .kind = OPT_TEXT,
          .value = "TYPE",
          .help = "f32 (default), f16, bf16, f8_e4m3, q8_0, q4_0, ...",
          .to = &o.dtype },
        { .name = "format",
          .letter = 'f',
          .kind = OPT_TEXT,
          .value = "FORMAT",
          .help = "safetensors or gguf; default: by the ending of --output",
          .to = &o.format },
        { .name = "output",
          .letter = 'o',
          .kind = OPT_TEXT,
          .value = "FILE",
          .help = "where to write; default: <preset>.<format> in this folder",
          .to = &o.output },
        { .name = "threads",
          .letter = 'j',
          .kind = OPT_INT,
          .value = "N",
          .help = "default: one per core; the bytes are the same for any N",
          .to = &o.threads,
          .min = 1,
          .max = THREADS_MAX },
        { .name = "force", .help = "replace an existing file", .to = &o.force },
        { .name = "list", .help = "show the presets with their sizes and stop", .to = &o.list },
        { .name = "json", .help = "print the result, or the list, as JSON", .to = &o.json },
    };
    int n, code;
    if (!app_args(a, &command_synth, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (n)
        return app_usage(a, "unexpected argument '%.80s' (the file is given with --output)",
                         argv[0]);
    if (o.list)
        return list(a, o.json);
    struct job j = { 0 };
    code = make(a, &o, &j);
    job_release(&j);
    return code;
}

const struct command command_synth = {
    .name = "synth",
    .about = "write a synthetic model file: weights that follow from their names",
    .usage = "(--preset NAME | --keys FILE) [--dtype TYPE] [--output FILE] ...",
    .more =
        "The same names and shapes give the same bytes on every machine.\n"
        "safetensors files hold one dtype throughout. GGUF files follow ComfyUI-GGUF: tensors\n"
        "with fewer than two dimensions or at most 1024 elements stay F32; with a quant dtype,\n"
        "sensitive tensors (the model's inputs and outputs) and those that do not fill whole\n"
        "blocks stay F16; general.architecture is set for presets that have one.\n"
        "The file appears when it is whole; an interrupted run leaves nothing behind.\n",
    .run = run,
};
