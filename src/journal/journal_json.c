/* journal_json: the JSON log, one object per line, written as Python's json.dumps would. */
#include "journal/journal_impl.h"

#include "base/file.h"
#include "base/json.h"
#include "base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { NOT_YET = -1, NEVER = -2 };

#define STATIC_BYTES_MAX 65536 /* text of the static fields */
#define STATIC_DEPTH_MAX 16

/* One field of a record. A static one owns its key and has its value rendered already, because
 * jansson's values are for one thread at a time. */
struct field {
    const char *key;
    const char *text;
    bool rendered;
};

struct journal_json {
    pthread_mutex_t lock; /* of opening */
    atomic_int fd;        /* NOT_YET, or NEVER: it could not be opened */
    char *path;
    bool append;
    const struct log *log;
    int level;
    struct vec fixed; /* struct field, merged last; strings from malloc */
    const char *(*id)(void *user, bool workflow);
    void *user;
    atomic_uint_least64_t errors; /* any thread */
};

void journal_time(struct str *s, uint64_t wall_ns, unsigned digits)
{
    time_t sec = (time_t)(wall_ns / 1000000000u);
    unsigned micro = (unsigned)(wall_ns / 1000u % 1000000u);
    struct tm tm = { 0 };
    gmtime_r(&sec, &tm);
    str_addf(s, "%04d-%02d-%02dT%02d:%02d:%02d.", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
             tm.tm_hour, tm.tm_min, tm.tm_sec);
    if (digits == 6)
        str_addf(s, "%06uZ", micro);
    else
        str_addf(s, "%03uZ", micro / 1000);
}

/* ---- opening ---- */

static int open_file(const struct journal_json *x)
{
    int how = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (x->append ? 0 : O_TRUNC);
    int fd = open(x->path, how, 0666);
    const char *slash = strrchr(x->path, '/');
    if (fd >= 0 || errno != ENOENT || !slash)
        return fd;
    char *folder = strndup(x->path, (size_t)(slash - x->path));
    berth_err err; /* what is missing in the end, open() says */
    if (folder)
        (void)file_make_dirs(folder, &err);
    free(folder);
    return open(x->path, how, 0666);
}

/* With the first record, so that a program that has nothing to say empties nobody's log. */
static int open_log(struct journal_json *x)
{
    pthread_mutex_lock(&x->lock);
    int fd = atomic_load(&x->fd);
    if (fd == NOT_YET) {
        fd = open_file(x);
        int e = errno;
        if (fd < 0) {
            fd = NEVER;
            atomic_fetch_add(&x->errors, 1);
            log_warn(x->log, "journal.open", "no JSON log, errno=%d (%s) path=\"%s\"", e,
                     strerror(e), x->path);
        }
        atomic_store(&x->fd, fd);
    }
    pthread_mutex_unlock(&x->lock);
    return fd;
}

static void fields_release(struct vec *v)
{
    for (size_t i = 0; i < v->n; i++) {
        struct field *f = vec_at(v, i);
        free((char *)f->key);
        free((char *)f->text);
    }
    vec_release(v);
}

static bool keep_static(struct vec *v, const json_t *object)
{
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)object, key, item)
    {
        struct str text = { 0 };
        struct field *f = vec_add(v);
        if (!f)
            return false;
        struct jsonout j = { .out = &text, .python = true };
        jo_value(&j, NULL, item);
        *f = (struct field) { strdup(key), str_take(&text), true };
        if (!f->key || !f->text)
            return false;
    }
    return true;
}

static berth_status read_static(struct journal_json *x, const char *text, const struct log *log,
                                berth_err *err)
{
    static const struct js_limits lim = { .max_bytes = STATIC_BYTES_MAX,
                                          .max_depth = STATIC_DEPTH_MAX,
                                          .max_values = STATIC_BYTES_MAX };
    json_t *v = NULL;
    berth_err why = { 0 };
    if (!text || !*text)
        return BERTH_OK;
    berth_status s = js_parse(text, strlen(text), &lim, &v, &why);
    if (s == BERTH_OK && js_kind(v) != JS_OBJECT)
        s = err_set(&why, BERTH_EFORMAT, "not an object");
    if (s == BERTH_OK && !keep_static(&x->fixed, v))
        s = err_set(&why, BERTH_ENOMEM, "no memory");
    json_decref(v);
    if (s == BERTH_ENOMEM)
        return err_set(err, s, "static fields of the JSON log: %s", why.msg);
    if (s)
        log_warn(log, "journal.static", "static fields are ignored: %s", why.msg);
    return BERTH_OK;
}

berth_status journal_json_new(const struct journal_config *cfg, const struct log *log,
                              struct journal_json **out, berth_err *err)
{
    *out = NULL;
    struct journal_json *x = calloc(1, sizeof *x);
    if (!x || pthread_mutex_init(&x->lock, NULL)) {
        free(x);
        return err_set(err, BERTH_ENOMEM, "JSON log '%.100s'", cfg->json_path);
    }
    atomic_init(&x->fd, NOT_YET);
    x->append = cfg->json_append;
    x->log = log;
    x->level = cfg->json_level ? cfg->json_level : JOURNAL_FOCUS;
    x->fixed.elem = sizeof(struct field);
    x->id = cfg->json_id;
    x->user = cfg->json_user;
    x->path = strdup(cfg->json_path);
    berth_status s = x->path ? read_static(x, cfg->json_static, log, err)
                             : err_set(err, BERTH_ENOMEM, "JSON log '%.100s'", cfg->json_path);
    if (s) {
        journal_json_free(x);
        return s;
    }
    *out = x;
    return BERTH_OK;
}

void journal_json_free(struct journal_json *x)
{
    if (!x)
        return;
    int fd = atomic_load(&x->fd);
    if (fd >= 0)
        close(fd);
    fields_release(&x->fixed);
    pthread_mutex_destroy(&x->lock);
    free(x->path);
    free(x);
}

bool journal_json_wants(const struct journal_json *x, int level)
{
    return x && level >= x->level && atomic_load(&x->fd) != NEVER;
}

uint64_t journal_json_errors(const struct journal_json *x)
{
    return x ? atomic_load(&x->errors) : 0;
}

/* ---- one record ---- */

static const struct {
    const char *name;
    int level;
} levels[] = { { "DEBUG", JOURNAL_DEBUG }, { "INFO", JOURNAL_INFO },
               { "FOCUS", JOURNAL_FOCUS }, { "WARNING", JOURNAL_WARNING },
               { "ERROR", JOURNAL_ERROR }, { "CRITICAL", JOURNAL_CRITICAL } };

int journal_level_parse(const char *text)
{
    text = text ? text : "";
    while (*text == ' ')
        text++;
    size_t n = strlen(text);
    while (n && text[n - 1] == ' ')
        n--;
    for (size_t i = 0; i < ARRAY_LEN(levels); i++)
        if (strlen(levels[i].name) == n && strncasecmp(text, levels[i].name, n) == 0)
            return levels[i].level;
    uint64_t level;
    bool minus = n && *text == '-';
    if (!str_parse_u64(text + minus, n - minus, &level))
        return JOURNAL_FOCUS;
    return minus || level == 0 ? 1 : level < INT_MAX ? (int)level : INT_MAX;
}

static const char *level_name(int level, char buf[24])
{
    for (size_t i = 0; i < ARRAY_LEN(levels); i++)
        if (levels[i].level == level)
            return levels[i].name;
    snprintf(buf, 24, "Level %d", level);
    return buf;
}

/* A later value of a key takes the place of the earlier one, as in a Python dict; unless `keep`. */
static bool put(struct vec *v, struct field x, bool keep)
{
    struct field *f = NULL;
    for (size_t i = 0; i < v->n && !f; i++)
        if (strcmp(((struct field *)vec_at(v, i))->key, x.key) == 0)
            f = vec_at(v, i);
    if (f && keep)
        return true;
    f = f ? f : vec_add(v);
    if (f)
        *f = x;
    return f;
}

/* "[Category] rest": the text between the brackets. */
static void leading_category(const char *message, struct str *out)
{
    const char *end = *message == '[' ? strchr(message, ']') : NULL;
    if (end && end > message + 1)
        str_add(out, message + 1, (size_t)(end - message - 1));
}

/* own: fields of every record; fields: as journal_record()'s. */
static bool collect(const struct journal_json *x, struct vec *v, const struct field *own, size_t n,
                    const char *const *fields)
{
    const struct field ids[] = { { "workflow_id", x->id ? x->id(x->user, true) : NULL, false },
                                 { "prompt_id", x->id ? x->id(x->user, false) : NULL, false } };
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = put(v, own[i], false);
    for (; ok && fields && fields[0] && fields[1]; fields += 2)
        ok = put(v, (struct field) { fields[0], fields[1], false }, false);
    for (size_t i = 0; ok && i < ARRAY_LEN(ids); i++)
        ok = !ids[i].text || !*ids[i].text || put(v, ids[i], true);
    for (size_t i = 0; ok && i < x->fixed.n; i++)
        ok = put(v, *(const struct field *)vec_at(&x->fixed, i), false);
    return ok;
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n) { /* once, unless a signal or a full disk cuts it short */
        ssize_t got = write(fd, p, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        p += got;
        n -= (size_t)got;
    }
    return true;
}

void journal_json_record(struct journal_json *x, uint64_t wall_ns, int level, const char *message,
                         const char *const *fields)
{
    int fd = journal_json_wants(x, level) ? atomic_load(&x->fd) : NEVER;
    if (fd == NOT_YET)
        fd = open_log(x);
    if (fd < 0)
        return;
    struct str when = { 0 }, category = { 0 }, line = { 0 };
    struct jsonout j = { .out = &line, .python = true };
    struct vec v = { .elem = sizeof(struct field) };
    char number[24];
    journal_time(&when, wall_ns, 6);
    leading_category(message, &category);
    const struct field own[] = { { "timestamp", str_c(&when), false },
                                 { "level", level_name(level, number), false },
                                 { "name", "MultiGPU", false },
                                 { "message", message, false },
                                 { "event_category", str_c(&category), false } };
    bool ok = collect(x, &v, own, ARRAY_LEN(own) - !category.n, fields);
    jo_open(&j, NULL, '{');
    for (size_t i = 0; i < v.n; i++) {
        const struct field *f = vec_at(&v, i);
        if (f->rendered)
            jo_raw(&j, f->key, f->text, strlen(f->text));
        else
            jo_str(&j, f->key, f->text);
    }
    jo_close(&j, '}');
    str_addc(&line, '\n');
    ok = ok && !when.bad && !category.bad && !line.bad;
    if (!ok || !write_all(fd, line.p, line.n))
        atomic_fetch_add(&x->errors, 1);
    vec_release(&v);
    str_release(&when);
    str_release(&category);
    str_release(&line);
}
