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
        s->file_bytes += file_map_size(weights_shard(w, i));
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        uint64_t params;
        if (!shape_count(&e->shape, &params))
            BUG("'%s' was not checked", e->name);
        add(&s->all, e, params);
        add(&s->by_dtype[e->dtype], e, params);
        rank(s, e);
    }
}

struct options {
    bool json, tensors, picture;
};

static void show(const struct app *a, const struct options *o, struct jsonout *j,
                 const struct weights *w)
{
    struct summary s;
    summary_make(w, &s);
    if (o->json) {
        inspect_json(j, w, &s, o->tensors);
        return;
    }
    inspect_text(a, w, &s, o->tensors);
    if (o->picture || (a->out.tty && a->out.color))
        inspect_picture(a, w, &s);
}

static int one_file(const struct app *a, const char *path, const struct options *o,
                    struct jsonout *j)
{
    struct weights *w;
    berth_err err;
    if (!weights_open(path, NULL, &w, &err)) {
        show(a, o, j, w);
        weights_close(w);
        return APP_OK;
    }
    if (o->json) {
        jsonout_open(j, NULL, '{');
        jsonout_str(j, "file", path);
        jsonout_open(j, "error", '{');
        jsonout_str(j, "code", berth_status_name(err.code));
        jsonout_str(j, "message", err.msg);
        jsonout_close(j, '}');
        jsonout_close(j, '}');
    }
    if (!strstr(err.msg, path))
        err_add(&err, "%s", path);
    return app_fail(a, &err);
}

static int run(struct app *a, int argc, char **argv)
{
    struct options o = { 0 };
    const struct opt opt[] = {
        { .name = "json", .help = "print a JSON array, one object per file", .to = &o.json },
        { .name = "tensors",
          .letter = 't',
          .help = "list every tensor in file order",
          .to = &o.tensors },
        { .name = "picture",
          .help = "draw the byte layout, on a terminal or not",
          .to = &o.picture },
    };
    int n, code;
    if (!app_args(a, &command_inspect, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (!n)
        return app_usage(a, "which file?");
    struct jsonout j = { .out = stdout };
    if (o.json)
        jsonout_open(&j, NULL, '[');
    for (int i = 0; i < n; i++) {
        if (i && !o.json)
            putchar('\n');
        if (one_file(a, argv[i], &o, &j))
            code = APP_FAILED;
    }
    if (o.json) {
        jsonout_close(&j, ']');
        if (!jsonout_end(&j))
            code = APP_FAILED;
    }
    return code;
}

const struct command command_inspect = {
    .name = "inspect",
    .about = "look inside weight files",
    .usage = "FILE... [--json] [--tensors] [--picture]",
    .more =
        "FILE is a .safetensors or .gguf file, or the *.safetensors.index.json of a sharded "
        "model.\n"
        "Only headers are read. A file that cannot be read is named on stderr, the others are "
        "still\n"
        "shown, and the exit code is 1.\n\n"
        "JSON: an array with one object per file: file, format, bytes, data_bytes, tensors,\n"
        "parameters, shards, dtypes, metadata, largest, and with --tensors index (every tensor "
        "with\n"
        "shard, offset, bytes). A file that failed has file and error {code, message}. Sizes and\n"
        "offsets are bytes from the start of the shard; shapes are outermost first.\n",
    .run = run,
};
