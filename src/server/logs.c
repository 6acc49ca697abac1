/* logs: the last events of this server, for /internal/logs and subscribers. server.log ends here:
 * an event is kept, passed on to the log the server was given, and sent to subscribers. None of the
 * three logs anything itself, so there is no recursion. */
#include "base/utf8.h"
#include "server/server_impl.h"

#include <pthread.h>

#define LOGS_KEPT 300
#define LOGS_COLS 80 /* a made-up terminal size */
#define LOGS_ROWS 24

struct logs_entry {
    uint64_t wall_ns;
    char *text; /* NULL: not used yet */
};

struct logs {
    struct server *server;
    const struct log *next; /* may be NULL */
    pthread_mutex_t lock;
    struct logs_entry entry[LOGS_KEPT]; /* lock */
    size_t at;                          /* lock: the oldest, the next to go */
};

static void add_time(uint64_t wall_ns, struct str *out)
{
    time_t t = (time_t)(wall_ns / 1000000000);
    struct tm tm;
    char text[32] = "";
    if (gmtime_r(&t, &tm))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    str_addf(out, "%s.%06u", text, (unsigned)(wall_ns / 1000 % 1000000));
}

static void add_entry(uint64_t wall_ns, const char *text, struct jsonout *j)
{
    struct str time = { 0 };
    add_time(wall_ns, &time);
    jo_open(j, NULL, '{');
    jo_str(j, "t", str_c(&time));
    jo_str(j, "m", text);
    jo_close(j, '}');
    str_release(&time);
}

static void keep(struct logs *l, uint64_t wall_ns, char *taken)
{
    pthread_mutex_lock(&l->lock);
    struct logs_entry *e = &l->entry[l->at];
    l->at = (l->at + 1) % LOGS_KEPT;
    char *old = e->text;
    *e = (struct logs_entry) { wall_ns, taken };
    pthread_mutex_unlock(&l->lock);
    free(old);
}

static void send(struct logs *l, uint64_t wall_ns, const char *text)
{
    struct str m = { 0 };
    struct jsonout j = { .out = &m, .spaced = true };
    jo_open(&j, NULL, '{');
    jo_str(&j, "type", "logs");
    jo_open(&j, "data", '{');
    jo_open(&j, "entries", '[');
    add_entry(wall_ns, text, &j);
    jo_close(&j, ']');
    jo_str(&j, "size", NULL);
    jo_close(&j, '}');
    jo_close(&j, '}');
    hub_send_logs(l->server, &m);
}

static void write_logs(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                       const char *text)
{
    struct logs *l = user;
    struct str line = { 0 };
    if (l->next && l->next->write && level >= l->next->level)
        l->next->write(l->next->user, level, wall_ns, event, text);
    str_addf(&line, "[%s] %s %s", log_level_name(level), event, text);
    utf8_sanitize(line.p, line.n); /* clients choose parts of it, and terminals show it */
    str_addc(&line, '\n');
    char *p = str_take(&line);
    if (!p) {
        str_release(&line);
        return;
    }
    if (hub_logs_wanted(l->server))
        send(l, wall_ns, p);
    keep(l, wall_ns, p);
}

berth_status logs_open(struct server *s, berth_err *err)
{
    struct logs *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, BERTH_ENOMEM, "the server's log");
    s->logs = l;
    l->server = s;
    l->next = s->cfg.log;
    l->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    s->log =
        (struct log) { .level = LOG_INFO, .write = write_logs, .user = l, .clock = s->cfg.clock };
    if (l->next && l->next->level < LOG_INFO)
        s->log.level = l->next->level;
    return BERTH_OK;
}

void logs_close(struct server *s)
{
    struct logs *l = s->logs;
    if (!l)
        return;
    s->log = (struct log) { .level = LOG_OFF };
    for (size_t i = 0; i < LOGS_KEPT; i++)
        free(l->entry[i].text);
    free(l);
    s->logs = NULL;
}

void logs_pair(struct str *out, const char *key, const char *value)
{
    size_t n = strcspn(value, "\n");
    const char *quote = !n || strcspn(value, " \t\"") < n ? "\"" : "";
    str_addf(out, " %s=%s", key, quote);
    for (size_t i = 0; i < n; i++) {
        if (*quote && (value[i] == '"' || value[i] == '\\'))
            str_addc(out, '\\');
        str_addc(out, value[i]);
    }
    str_adds(out, quote);
}

void logs_text(struct server *s, struct str *out)
{
    struct logs *l = s->logs;
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < LOGS_KEPT; i++) {
        const struct logs_entry *e = &l->entry[(l->at + i) % LOGS_KEPT];
        if (!e->text)
            continue;
        add_time(e->wall_ns, out);
        str_adds(out, " - ");
        str_adds(out, e->text);
    }
    pthread_mutex_unlock(&l->lock);
}

void logs_json(struct server *s, struct str *out)
{
    struct logs *l = s->logs;
    struct jsonout j = { .out = out, .spaced = true };
    jo_open(&j, NULL, '{');
    jo_open(&j, "entries", '[');
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < LOGS_KEPT; i++) {
        const struct logs_entry *e = &l->entry[(l->at + i) % LOGS_KEPT];
        if (e->text)
            add_entry(e->wall_ns, e->text, &j);
    }
    pthread_mutex_unlock(&l->lock);
    jo_close(&j, ']');
    jo_open(&j, "size", '{');
    jo_u64(&j, "cols", LOGS_COLS);
    jo_u64(&j, "rows", LOGS_ROWS);
    jo_close(&j, '}');
    jo_close(&j, '}');
}
