/* berth inspect: what is in a weight file, from its header alone. */
#include "app/inspect.h"

/* Keeps the largest INSPECT_TOP entries, largest first; an equal one stays behind. */
static void rank(struct summary *s, const struct weights_entry *e)
{
    size_t at = s->tops;
    while (at && s->top[at - 1]->size < e->size)
        at--;
    if (at == INSPECT_TOP)
        return;
    if (s->tops < INSPECT_TOP)
        s->tops++;
    for (size_t i = s->tops - 1; i > at; i--)
        s->top[i] = s->top[i - 1];
    s->top[at] = e;
}

static void add(struct tally *t, const struct weights_entry *e, uint64_t params)
{
    t->tensors++;
    t->params += params;
    t->bytes += e->size;
}

void summary_make(const struct weights *w, struct summary *s)
{
    *s = (struct summary) { 0 };
    for (size_t i = 0; i < weights_shards(w); i++)
        s->file_bytes += weights_shard(w, i)->size;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        uint64_t params;
        if (!shape_count(&e->shape, &params))
            BUG("'%s' was not checked", e->name);
        add(&s->all, e, params);
        add(&s->by_dtype[e->dtype], e, params);
        rank(s, e);
    }
    berth_err unread;
    if (family_find(w, NULL, &s->family, &unread))
        s->family = (struct family_info) { 0 };
}

struct options {
    bool tensors, picture;
};

/* The mapping may have changed while it was printed; what was printed is then not in the file. */
static berth_status show(const struct app *a, const struct options *o, struct jsonout *j,
                         const struct weights *w, berth_err *err)
{
    struct summary s;
    summary_make(w, &s);
    if (a->json)
        return inspect_json(j, w, &s, o->tensors, err);
    inspect_text(a, w, &s, o->tensors);
    if (o->picture || a->out.tty)
        inspect_picture(a, w, &s);
    return weights_check(w, err);
}

static int one_file(struct app *a, const char *path, const struct options *o, struct jsonout *j)
{
    struct weights *w;
    berth_err err;
    uint64_t start = clock_mono_ns(a->clock);
    berth_status status = weights_open(path, NULL, &w, &err);
    if (!status) {
        log_info(&a->log, "inspect.open",
                 "tensors=%zu shards=%zu ms=%.3f format=\"%s\" file=\"%s\"", weights_count(w),
                 weights_shards(w), (double)(clock_mono_ns(a->clock) - start) * 1e-6,
                 weights_format(w), path);
        status = show(a, o, j, w, &err);
        weights_close(w);
    } else if (a->json) {
        jo_open(j, NULL, '{');
        jo_str(j, "file", path);
        app_json_error(j, &err);
        jo_close(j, '}');
    }
    log_debug(&a->log, "inspect.done", "ms=%.3f status=%s file=\"%s\"",
              (double)(clock_mono_ns(a->clock) - start) * 1e-6, berth_status_name(status), path);
    if (!status)
        return APP_OK;
    if (!err_names(&err, path))
        err_add(&err, "%s", path);
    return app_fail(a, &err);
}

static int run(struct app *a, int argc, char **argv)
{
    struct options o = { 0 };
    const struct opt opt[] = {
        opt_flag("json", "print a JSON array, one object per file", &a->json),
        opt_letter('t', opt_flag("tensors", "list every tensor in file order", &o.tensors)),
        opt_flag("picture", "draw the byte layout even when this is no terminal", &o.picture),
    };
    int n, code;
    if (!app_args(a, &command_inspect, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (!n)
        return app_usage(a, "which file?");
    struct jsonout j;
    if (a->json) {
        app_json_begin(a, &j);
        jo_open(&j, NULL, '[');
    }
    for (int i = 0; i < n; i++) {
        if (i && !a->json)
            putchar('\n');
        if (one_file(a, argv[i], &o, &j))
            code = APP_FAILED;
    }
    if (a->json) {
        jo_close(&j, ']');
        code = app_json_end(a, code);
    }
    return code;
}

const struct command command_inspect = {
    .name = "inspect",
    .about = "look inside weight files",
    .usage = "FILE... [--json] [--tensors] [--picture]",
    .args = "FILE",
    .more = "FILE is a .safetensors or .gguf file, one that torch.save() wrote (.ckpt, .pt,\n"
            ".pth, .bin), or the *.safetensors.index.json of a sharded model. Only headers\n"
            "are read, and nothing in them is run. A file that cannot be read, or that\n"
            "changes while it is printed, is named on stderr, the others are still shown, and\n"
            "the exit code is 1.\n\n"
            "On a terminal, or with --picture, the byte layout follows: a strip as wide as\n"
            "the terminal for the parts of the model, and one for the types. Without colour\n"
            "(NO_COLOR, TERM=dumb, no terminal) letters take the place of colours.\n\n"
            "JSON: an array with one object per file: file, format, family (if known:\n"
            "name, is, runs (whether Berth can compute it), why (what keeps it from that)),\n"
            "bytes, data_bytes, tensors, parameters, shards, dtypes, metadata, largest, and\n"
            "with --tensors index (every tensor with shard, offset, bytes). Tensors have\n"
            "name, dtype, stored (how, in words), shape. A file that failed has file and\n"
            "error {code, message}; one that changed while it was printed has error beside\n"
            "the rest. Offsets are bytes from the start of the\n"
            "shard; shapes are outermost first. A shard number past the last file\n"
            "stands for tensors of a pickle that had to be gathered.\n",
    .run = run,
};
