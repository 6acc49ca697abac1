/* berth synth: model files whose weights follow from their names (model/synth.h). */
#include "app/presets.h"
#include "base/file.h"
#include "model/synth.h"
#include "text/stand_in.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREADS_MAX 1024

struct options {
    const char *preset, *keys, *dtype, *format, *output, *tokenizer;
    uint64_t threads; /* 0: one per core it may use */
    bool list, force;
};

struct job {                     /* zeroed is empty */
    const struct preset *preset; /* NULL: the keys come from a file */
    struct keys keys;
    enum dtype dtype;
    const struct synth_layout *layout; /* NULL: none; dtype is then what is not in it */
    const struct weights_writer *format;
    struct str output;
    struct synth synth;
};

/* ---- what to write: each returns 0 or the exit code of a mistake it named ---- */

/* The i-th type that can be written, in some format. */
static const char *writable_name(size_t i)
{
    for (int t = 0; t < DT_COUNT; t++)
        if (synth_can((enum dtype)t, NULL) && !i--)
            return dtype_name((enum dtype)t);
    return i < synth_layouts_n ? synth_layouts[i].name : NULL;
}

/* As --dtype has it. */
static const char *type_name(const struct job *j)
{
    return j->layout ? j->layout->name : dtype_name(j->dtype);
}

static int choose_dtype(struct app *a, const struct options *o, struct job *j)
{
    const char *name = o->dtype ? o->dtype : "f32";
    j->layout = synth_layout_find(name);
    j->dtype = j->layout ? DT_BF16 : dtype_by_name(name, strlen(name));
    return j->dtype != DT_NONE ? APP_OK : app_unknown(a, "dtype", name, writable_name);
}

static const char *format_name(size_t i)
{
    const struct weights_writer *f = weights_writer_at(i);
    return f ? f->name : NULL;
}

static int ending_says_nothing(struct app *a, const char *path)
{
    struct str all = { 0 };
    for (size_t i = 0; format_name(i); i++)
        str_addf(&all, "%s.%s", i ? ", " : "", format_name(i));
    int code = app_usage(a, "'%.200s' ends in none of %s: say which format with --format", path,
                         str_c(&all));
    str_release(&all);
    return code;
}

/* --format, else the ending of --output, else what can hold the type. */
static int choose_format(struct app *a, const struct options *o, struct job *j)
{
    const struct weights_writer *ending = o->output ? weights_writer_by_path(o->output) : NULL;
    if (o->output && !strcmp(o->output, "-"))
        return app_usage(a, "standard output is not supported: give a file name");
    j->format = o->format   ? weights_writer_find(o->format)
                : o->output ? ending
                            : app_format_of(j->dtype);
    if (!j->format)
        return o->format ? app_unknown(a, "format", o->format, format_name)
                         : ending_says_nothing(a, o->output);
    if (j->layout && j->format != weights_writer_find("safetensors"))
        return app_usage(a, "%s cannot be stored in a %s file; write safetensors instead",
                         j->layout->name, j->format->name);
    if (ending && ending != j->format)
        return app_usage(a, "'%.200s' ends like a %s file, but --format says %s", o->output,
                         ending->name, j->format->name);
    return APP_OK;
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
    int code = o->preset ? app_preset(a, o->preset, &j->preset) : APP_OK;
    if (code)
        return code;
    berth_err err;
    if (j->preset ? preset_keys(j->preset, &j->keys, &err) : keys_read(o->keys, &j->keys, &err))
        return app_fail(a, &err);
    return APP_OK;
}

/* Only regular files are replaced, and only when told to. */
static int check_place(struct app *a, const struct options *o, const char *path)
{
    struct stat st;
    berth_err err;
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        err_set(&err, BERTH_EINVAL, "%s: is %s", path,
                S_ISDIR(st.st_mode) ? "a directory" : "no regular file");
    else if (!o->force && !lstat(path, &st))
        err_set(&err, BERTH_EBUSY, "%s: exists already; --force replaces it", path);
    else
        return APP_OK;
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
    struct preset_meta meta;
    size_t metas = j->preset ? preset_meta(j->preset, j->format->mixed, &meta) : 0;
    struct str label = { 0 };
    struct progress bar;
    term_safe(&label, str_c(&j->output), j->output.n, 30);
    progress_init(&bar, stderr, &a->err, a->clock, str_c(&label));
    const struct weights_write_args args = {
        .format = j->format->name,
        .path = str_c(&j->output),
        .spec = j->synth.spec,
        .count = j->synth.n,
        .meta = meta.at,
        .meta_count = metas,
        .fill = synth_weights_fill,
        .user = (void *)(uintptr_t)&j->synth, /* only read */
        .pool = pool,
        .progress = a->quiet ? NULL : on_progress,
        .progress_user = &bar,
    };
    berth_status s = weights_write(&args, err);
    progress_end(&bar);
    str_release(&label);
    return s;
}

/* How many tensors have which type; the type asked for may have found none. */
struct types {
    uint64_t tensors[DT_COUNT];
};

static struct types count_types(const struct job *j)
{
    struct types t = { 0 };
    for (size_t i = 0; i < j->synth.n; i++)
        t.tensors[j->synth.spec[i].dtype]++;
    return t;
}

static void type_text(struct str *out, const struct job *j)
{
    const struct types types = count_types(j);
    if (j->layout || types.tensors[j->dtype] || !j->keys.n) {
        str_adds(out, type_name(j));
        return;
    }
    const char *comma = "";
    for (int t = 0; t < DT_COUNT; t++)
        if (types.tensors[t]) {
            str_addf(out, "%s%s", comma, dtype_name((enum dtype)t));
            comma = " and ";
        }
    str_addf(out, " (no tensor is fit for %s)", dtype_name(j->dtype));
}

static void report_text(const struct job *j, uint64_t file_bytes, uint64_t elapsed_ns)
{
    char text[STR_BYTES_MAX];
    struct str t = { 0 };
    double seconds = (double)elapsed_ns * 1e-9;
    term_safe(&t, str_c(&j->output), j->output.n, 0);
    str_adds(&t, ": ");
    term_count(&t, j->synth.n, "tensor");
    str_adds(&t, ", ");
    term_short_number(&t, j->keys.params);
    str_addf(&t, " parameter%s, ", j->keys.params == 1 ? "" : "s");
    type_text(&t, j);
    str_addf(&t, ", %s, %s", j->format->name, str_bytes(file_bytes, text));
    if (elapsed_ns > PROGRESS_DELAY_NS)
        str_addf(&t, ", %.1f s, %s/s", seconds,
                 str_bytes((uint64_t)((double)j->synth.bytes / seconds), text));
    puts(str_c(&t));
    str_release(&t);
}

static int report_json(struct app *a, const struct job *j, uint64_t file_bytes, uint64_t elapsed_ns,
                       size_t threads)
{
    const struct types types = count_types(j);
    struct jsonout out;
    app_json_begin(a, &out);
    jo_open(&out, NULL, '{');
    jo_str(&out, "file", str_c(&j->output));
    jo_str(&out, "preset", j->preset ? j->preset->name : NULL);
    jo_str(&out, "format", j->format->name);
    jo_str(&out, "dtype", type_name(j));
    jo_open_flat(&out, "dtypes", '{');
    for (int t = 0; t < DT_COUNT; t++)
        if (types.tensors[t])
            jo_u64(&out, dtype_name((enum dtype)t), types.tensors[t]);
    jo_close(&out, '}');
    jo_u64(&out, "tensors", j->synth.n);
    jo_u64(&out, "parameters", j->keys.params);
    jo_u64(&out, "bytes", file_bytes);
    jo_u64(&out, "data_bytes", j->synth.bytes);
    jo_f64(&out, "seconds", (double)elapsed_ns * 1e-9);
    jo_u64(&out, "threads", threads);
    jo_close(&out, '}');
    return app_json_end(a, APP_OK);
}

static int report(struct app *a, const struct job *j, uint64_t elapsed_ns, size_t threads)
{
    const char *path = str_c(&j->output);
    struct stat st = { 0 };
    stat(path, &st); /* just written; 0 if somebody took it away */
    log_info(&a->log, "synth.done", "bytes=%" PRIu64 " seconds=%.3f threads=%zu file=\"%s\"",
             (uint64_t)st.st_size, (double)elapsed_ns * 1e-9, threads, path);
    if (a->json)
        return report_json(a, j, (uint64_t)st.st_size, elapsed_ns, threads);
    report_text(j, (uint64_t)st.st_size, elapsed_ns);
    return APP_OK;
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
    if (j->output.bad)
        return app_no_memory(a);
    const char *path = str_c(&j->output);
    code = check_place(a, o, path);
    if (code)
        return code;
    const char *const *hiprec = j->preset ? j->preset->hiprec : NULL;
    if (j->layout
            ? synth_layout_init(&j->synth, &j->keys, j->layout, hiprec, signals_watch(), &err)
            : synth_init(&j->synth, &j->keys, j->dtype, j->format, hiprec, signals_watch(), &err)) {
        if (err.code == BERTH_EUNSUPPORTED) /* a type that does not go with the format */
            return app_usage(a, "%s: %s", path, err.msg);
        err_add(&err, "%s", path);
        return app_fail(a, &err);
    }
    struct tpool *pool;
    if (tpool_new((size_t)o->threads, &pool, &err))
        return app_fail(a, &err);
    size_t threads = tpool_size(pool);
    log_info(&a->log, "synth.start",
             "tensors=%zu params=%" PRIu64 " data_bytes=%" PRIu64
             " dtype=%s format=%s threads=%zu file=\"%s\"",
             j->synth.n, j->keys.params, j->synth.bytes, type_name(j), j->format->name, threads,
             path);
    uint64_t start = clock_mono_ns(a->clock);
    berth_status s = write_file(a, j, pool, &err);
    uint64_t elapsed = clock_mono_ns(a->clock) - start;
    tpool_free(pool);
    if (s) {
        if (s == BERTH_ECANCELED)
            err_set(&err, s, "%s: stopped by a signal, nothing was written", path);
        else if (!err_names(&err, path))
            err_add(&err, "%s", path);
        code = app_fail(a, &err);
    } else {
        code = report(a, j, elapsed, threads);
    }
    return signals_caught() ? APP_SIGNAL + signals_caught() : code;
}

/* ---- --list ---- */

#define SIZE_COLUMNS 9  /* of a size in the list, with the blank in front */
#define COUNT_COLUMNS 8 /* of a number of tensors or parameters */

struct list {                            /* what every line of the list shares */
    const struct weights_writer *format; /* NULL: what the type is usually written in */
    enum dtype dtype[DT_COUNT];          /* the sizes that are shown */
    size_t n;
    int name;     /* columns */
    bool tensors; /* there is room for their number */
    struct jsonout json;
};

/* Only the one that was asked for; otherwise JSON has them all, and people get a few that differ:
 * as many of those as fit on a line. */
static void choose_columns(const struct app *a, const struct options *o, enum dtype dtype,
                           struct list *l)
{
    static const enum dtype shown[] = { DT_F32, DT_F16, DT_Q8_0, DT_Q4_K };
    for (size_t i = 0; i < preset_count(); i++) {
        int n = (int)strlen(preset_at(i)->name);
        l->name = n > l->name ? n : l->name;
    }
    int left = a->out.width - l->name - COUNT_COLUMNS;
    l->tensors = left >= COUNT_COLUMNS;
    left -= l->tensors ? COUNT_COLUMNS : 0;
    size_t room = left > 0 ? (size_t)left / SIZE_COLUMNS : 0;
    if (o->dtype) {
        l->dtype[l->n++] = dtype;
        return;
    }
    for (size_t i = 0; i < (a->json ? DT_COUNT : ARRAY_LEN(shown)); i++) {
        enum dtype t = a->json ? (enum dtype)i : shown[i];
        if (synth_can(t, l->format) && (a->json || l->n < room))
            l->dtype[l->n++] = t;
    }
}

static berth_status list_sizes(struct list *l, const struct preset *p, const struct keys *k,
                               uint64_t *bytes, berth_err *err)
{
    for (size_t i = 0; i < l->n; i++) {
        struct synth y = { 0 };
        if (synth_init(&y, k, l->dtype[i], l->format ? l->format : app_format_of(l->dtype[i]),
                       p->hiprec, NULL, err))
            return err->code;
        bytes[i] = y.bytes;
        synth_release(&y);
    }
    return BERTH_OK;
}

static void list_json(struct list *l, const struct preset *p, const struct keys *k,
                      const uint64_t *bytes)
{
    struct jsonout *j = &l->json;
    jo_open(j, NULL, '{');
    jo_str(j, "preset", p->name);
    jo_str(j, "about", p->about);
    jo_str(j, "architecture", p->arch);
    jo_u64(j, "tensors", k->n);
    jo_u64(j, "parameters", k->params);
    jo_open_flat(j, "data_bytes", '{');
    for (size_t i = 0; i < l->n; i++)
        jo_u64(j, dtype_name(l->dtype[i]), bytes[i]);
    jo_close(j, '}');
    jo_close(j, '}');
}

/* The description stands below: beside the sizes there is no room for it. */
static void list_text(const struct app *a, const struct list *l, const struct preset *p,
                      const struct keys *k, const uint64_t *bytes)
{
    struct str line = { 0 }, params = { 0 };
    char size[STR_BYTES_MAX];
    term_short_number(&params, k->params);
    str_addf(&line, "%-*s", l->name, p->name);
    if (l->tensors)
        str_addf(&line, "%*zu", COUNT_COLUMNS, k->n);
    str_addf(&line, "%*s", COUNT_COLUMNS, str_c(&params));
    for (size_t i = 0; i < l->n; i++)
        str_addf(&line, "%*s", SIZE_COLUMNS, str_bytes(bytes[i], size));
    str_adds(&line, term_style(&a->out, STYLE_DIM));
    term_wrap(&line, p->about, 4, (size_t)a->out.width);
    printf("%s%s\n", str_c(&line), term_style(&a->out, STYLE_RESET));
    str_release(&line);
    str_release(&params);
}

static berth_status list_one(const struct app *a, struct list *l, const struct preset *p,
                             berth_err *err)
{
    struct keys k = { 0 };
    uint64_t bytes[DT_COUNT];
    if (preset_keys(p, &k, err))
        return err->code;
    berth_status s = list_sizes(l, p, &k, bytes, err);
    if (!s && a->json)
        list_json(l, p, &k, bytes);
    else if (!s)
        list_text(a, l, p, &k, bytes);
    keys_release(&k);
    return s;
}

/* Asks the maker itself, with a model that has no tensors, so that the message is its own. */
static berth_status check_type(enum dtype t, const struct weights_writer *format, berth_err *err)
{
    const struct keys none = { 0 };
    struct synth y;
    berth_status s = synth_init(&y, &none, t, format ? format : app_format_of(t), NULL, NULL, err);
    synth_release(&y);
    return s;
}

static void list_head(const struct app *a, const struct list *l)
{
    printf("%s%-*s%s%*s", term_style(&a->out, STYLE_BOLD), l->name, "preset",
           l->tensors ? " tensors" : "", COUNT_COLUMNS, "params");
    for (size_t i = 0; i < l->n; i++)
        printf("%*s", SIZE_COLUMNS, dtype_name(l->dtype[i]));
    printf("%s\n", term_style(&a->out, STYLE_RESET));
}

static int list(struct app *a, const struct options *o)
{
    struct list l = { 0 };
    struct job j = { 0 };
    berth_err err;
    int code = choose_dtype(a, o, &j);
    if (code)
        return code;
    if (j.layout)
        return app_usage(a, "--list shows sizes of types, and %s is a layout", j.layout->name);
    if (o->format && !(l.format = weights_writer_find(o->format)))
        return app_unknown(a, "format", o->format, format_name);
    if (o->dtype && check_type(j.dtype, l.format, &err))
        return app_usage(a, "%s", err.msg);
    choose_columns(a, o, j.dtype, &l);
    if (a->json) {
        app_json_begin(a, &l.json);
        jo_open(&l.json, NULL, '[');
    } else {
        list_head(a, &l);
    }
    for (size_t i = 0; !code && i < preset_count(); i++)
        if (list_one(a, &l, preset_at(i), &err)) {
            if (a->json) {
                jo_open(&l.json, NULL, '{');
                jo_str(&l.json, "preset", preset_at(i)->name);
                app_json_error(&l.json, &err);
                jo_close(&l.json, '}');
            }
            code = app_fail(a, &err);
        }
    if (a->json) {
        jo_close(&l.json, ']');
        code = app_json_end(a, code);
    }
    return code;
}

/* Small files with fixed names: those that are there are left alone, as everywhere. */
static int make_tokenizer(struct app *a, const struct options *o)
{
    static const char *const name[] = { "vocab.json", "tokenizer.json" };
    berth_err err;
    int code = APP_OK;
    if (o->preset || o->keys || o->output)
        return app_usage(a, "--tokenizer stands alone: a model is another command");
    if (file_make_dirs(o->tokenizer, &err))
        return app_fail(a, &err);
    for (size_t i = 0; !code && i < ARRAY_LEN(name); i++) {
        struct str path = { 0 };
        str_addf(&path, "%s/%s", o->tokenizer, name[i]);
        code = check_place(a, o, str_c(&path));
        str_release(&path);
    }
    if (!code && stand_ins_write(o->tokenizer, &err))
        code = app_fail(a, &err);
    if (!code && a->json) {
        struct jsonout out;
        app_json_begin(a, &out);
        jo_open(&out, NULL, '{');
        jo_str(&out, "tokenizer", o->tokenizer);
        jo_close(&out, '}');
        return app_json_end(a, APP_OK);
    }
    if (!code)
        puts("wrote vocab.json and merges.txt (CLIP), tokenizer.json (T5), a folder for each "
             "language model: letters, no words");
    return code;
}

static int run(struct app *a, int argc, char **argv)
{
    struct options o = { 0 };
    const struct opt opt[] = {
        opt_letter('p',
                   opt_text("preset", "PRESET", "a built-in shape table; see --list", &o.preset)),
        opt_letter('k',
                   opt_text("keys", "FILE",
                            "a JSON file: {\"tensor name\": [dims, outermost first]}", &o.keys)),
        opt_letter('d', opt_text("dtype", "TYPE", "how weights are stored, see below; default: f32",
                                 &o.dtype)),
        opt_letter('f',
                   opt_text("format", "FORMAT",
                            "safetensors or gguf; default: by the ending of --output", &o.format)),
        opt_letter('o',
                   opt_text("output", "FILE", "where to write; default: see below", &o.output)),
        opt_letter(
            'j',
            opt_int("threads", "N",
                    "default: one per core it may use (a container's CPU quota counts); the bytes "
                    "are the same for any N",
                    1, THREADS_MAX, &o.threads)),
        opt_text("tokenizer", "DIR", "instead: stand-ins for tokenizers; see below", &o.tokenizer),
        opt_flag("force", "replace an existing file", &o.force),
        opt_flag("list", "show the presets and their sizes, with -d in that type", &o.list),
        opt_flag("json", "print the result, or the list, as JSON", &a->json),
    };
    int n, code;
    if (!app_args(a, &command_synth, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (n)
        return app_usage(a, "unexpected argument '%.80s' (the file is given with --output)",
                         argv[0]);
    if (o.list)
        return list(a, &o);
    if (o.tokenizer)
        return make_tokenizer(a, &o);
    struct job j = { 0 };
    code = make(a, &o, &j);
    synth_release(&j.synth);
    keys_release(&j.keys);
    str_release(&j.output);
    return code;
}

static void add_types(struct str *out, const char *what, size_t columns,
                      const struct weights_writer *f, bool can)
{
    struct str names = { 0 }, text = { 0 };
    for (int t = 0; t < DT_COUNT; t++)
        if (synth_can((enum dtype)t, f) == can)
            str_addf(&names, " %s", dtype_name((enum dtype)t));
    term_wrap(&text, str_c(&names), columns + 4, 80);
    /* the first line continues behind the label */
    str_addf(out, "  %-*s  %s\n", (int)columns, what,
             text.n > columns + 5 ? str_c(&text) + columns + 5 : "");
    out->bad |= names.bad || text.bad;
    str_release(&names);
    str_release(&text);
}

static void add_layouts(struct str *out)
{
    struct str names = { 0 }, text = { 0 };
    for (size_t i = 0; i < synth_layouts_n; i++)
        str_addf(&names, " %s", synth_layouts[i].name);
    term_wrap(&text, str_c(&names), 2, 80);
    str_addf(out, "\nLayouts of quantised files, in safetensors:%s\n", str_c(&text));
    out->bad |= names.bad || text.bad;
    str_release(&names);
    str_release(&text);
}

static void tables(struct str *out)
{
    static const char others[] = "read-only";
    size_t columns = sizeof others - 1;
    for (size_t i = 0; format_name(i); i++)
        columns = strlen(format_name(i)) > columns ? strlen(format_name(i)) : columns;
    add_layouts(out);
    str_adds(out, "\nTypes that can be written (upper or lower case), and those that cannot:\n");
    for (size_t i = 0; format_name(i); i++)
        add_types(out, format_name(i), columns, weights_writer_at(i), true);
    add_types(out, others, columns, NULL, false);
}

const struct command command_synth = {
    .name = "synth",
    .about = "write a synthetic model file: weights computed from their names",
    .usage = "(--preset PRESET | --keys FILE | --tokenizer DIR) [OPTIONS]",
    .more = "The same names and shapes give the same bytes on every machine.\n"
            "Without --output the file is called after the preset, or after the keys file\n"
            "without its .json, and goes into this folder. Without --format the ending of\n"
            "--output decides, or else the type: safetensors, and gguf for quant types.\n"
            "safetensors files hold one dtype throughout. GGUF files follow ComfyUI-GGUF:\n"
            "tensors with fewer than two dimensions or at most 1024 elements stay F32; with a\n"
            "quant dtype, sensitive tensors (the model's inputs and outputs) and those that\n"
            "do not fill whole blocks stay F16; general.architecture is set for presets that\n"
            "have one.\n"
            "A layout makes codes of matrices, with scales and markers beside them as ComfyUI\n"
            "reads them; all else, and what does not fit, is BF16.\n"
            "The file appears when it is whole; an interrupted run leaves nothing behind.\n"
            "--tokenizer DIR writes vocab.json and merges.txt for people who have no CLIP\n"
            "tokenizer at hand, tokenizer.json for those without T5's, and folders for\n"
            "language models (qwen25, qwen35, llama3, tekken, gemma2, gemma3, gemma4). These\n"
            "know letters but no words: prompts run, but mean nothing.\n\n"
            "JSON: file, preset, format, dtype, dtypes (tensors of each), tensors,\n"
            "parameters, bytes, data_bytes, seconds, threads; with --list an array with the\n"
            "data_bytes of every type. A failure is {\"error\": {\"code\", \"message\"}}.\n",
    .tables = tables,
    .run = run,
};
