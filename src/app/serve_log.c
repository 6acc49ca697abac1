#include "app/serve_log.h"

#include "base/err.h"

#include <errno.h>

static const struct {
    const char *python, *ours;
} levels[] = { { "DEBUG", "debug" },  { "DETAIL", "debug" }, { "INFO", "info" },
               { "WARNING", "warn" }, { "ERROR", "error" },  { "CRITICAL", "error" } };

/* Our name of Python's level; of another word itself, as --log-level has names, too. */
static const char *our_name(const char *word, size_t n, char own[16])
{
    for (size_t i = 0; i < ARRAY_LEN(levels); i++)
        if (str_eq(word, n, levels[i].python))
            return levels[i].ours;
    snprintf(own, 16, "%.*s", (int)n, word);
    return own;
}

static int read_level(struct app *a, const char *text, size_t n, enum log_level *out)
{
    char own[16];
    const char *name = our_name(text, n, own);
    if (n < sizeof own && log_level_parse(name, strlen(name), out))
        return APP_OK;
    return app_usage(a,
                     "--verbose: '%.80s' is none of DEBUG, DETAIL, INFO, WARNING, ERROR, CRITICAL, "
                     "with a file behind it or without",
                     text);
}

static void write_all(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                      const char *text)
{
    struct serve_log *l = user;
    if (level >= l->terminal.level)
        l->terminal.write(l->terminal.user, level, wall_ns, event, text);
    for (size_t i = 0; i < l->n; i++)
        if (level >= l->out[i].level)
            log_write_text(&l->out[i].file, level, wall_ns, event, text);
}

static int add_file(struct app *a, const char *path, enum log_level level, struct serve_log *out)
{
    struct log_out *o = &out->out[out->n];
    berth_err err;
    *o = (struct log_out) { .level = level, .file.out = fopen(path, "ae") };
    if (!o->file.out) {
        err_sys(&err, BERTH_EIO, errno, "--verbose: '%.200s'", path);
        return app_fail(a, &err);
    }
    setvbuf(o->file.out, NULL, _IOLBF, 0);
    out->n++;
    return APP_OK;
}

int serve_log_open(struct app *a, const struct opt_list *given, struct serve_log *out)
{
    enum log_level most = LOG_OFF;
    int code = APP_OK;
    *out = (struct serve_log) { .out = calloc(given->n ? given->n : 1, sizeof *out->out) };
    if (!out->out)
        return app_no_memory(a);
    for (size_t i = 0; !code && i < given->n; i++) {
        const char *text = given->at[i], *comma = strchr(text, ',');
        enum log_level level = LOG_INFO;
        code = read_level(a, text, comma ? (size_t)(comma - text) : strlen(text), &level);
        if (!code && comma)
            code = add_file(a, comma + 1, level, out);
        else if (level < most)
            most = level;
    }
    if (!code && most != LOG_OFF && !a->log_level)
        a->log.level = most;
    out->terminal = a->log;
    if (!code && out->n) {
        for (size_t i = 0; i < out->n; i++)
            if (out->out[i].level < a->log.level)
                a->log.level = out->out[i].level;
        a->log.write = write_all;
        a->log.user = out;
    }
    return code;
}

void serve_log_close(struct app *a, struct serve_log *l)
{
    if (l->n)
        a->log = l->terminal;
    for (size_t i = 0; i < l->n; i++)
        fclose(l->out[i].file.out);
    free(l->out);
    *l = (struct serve_log) { 0 };
}
