#include "journal/journal_impl.h"

#include "base/json.h"
#include "base/sz.h"
#include "base/utf8.h"
#include "base/vec.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#define RING_MAX ((size_t)1 << 24) /* entries; a configured number meets it */
#define GIB 1073741824.0

/* A snapshot as rings keep it: only as wide as the set has devices. */
struct snap {
    uint64_t seq, wall_ns;
    char identifier[JOURNAL_NAME_MAX], tag[JOURNAL_NAME_MAX];
    uint64_t value[]; /* used of n devices, then total of n devices */
};

struct ring { /* grows by doubling up to max, then the oldest makes place */
    unsigned char *p;
    size_t cap, max, n, head;
};

struct series {
    char name[JOURNAL_NAME_MAX];
    struct ring ring;
    uint64_t last; /* seq of its latest snapshot */
};

struct journal {
    const struct devset *devices; /* these down to json: constant */
    const struct log *log;
    const struct clock *clock;
    size_t n;                           /* devices */
    uint8_t order[JOURNAL_DEVICES_MAX]; /* set indices as lines name them */
    size_t stride, ring_max;
    bool log_lines;
    struct journal_json *json;
    pthread_mutex_t lock; /* of all below; a leaf */
    bool lock_made;
    struct ring timeline;
    struct vec series; /* struct series */
    uint64_t seq;
    atomic_uint_least64_t dropped; /* no lock needed */
};

/* ---- rings ---- */

static struct snap *ring_at(const struct journal *j, const struct ring *r, size_t i)
{
    return (struct snap *)(void *)(r->p + (r->head + i) % r->cap * j->stride);
}

/* The place for one more; NULL: no memory, nothing changed. */
static struct snap *ring_push(const struct journal *j, struct ring *r)
{
    if (r->n == r->cap && r->cap < r->max) { /* head is still 0 */
        size_t cap = r->cap ? r->cap * 2 : 8, bytes;
        if (cap > r->max)
            cap = r->max;
        unsigned char *p = sz_mul(cap, j->stride, &bytes) ? realloc(r->p, bytes) : NULL;
        if (!p)
            return NULL;
        r->p = p;
        r->cap = cap;
    }
    if (r->n < r->cap)
        return ring_at(j, r, r->n++);
    struct snap *oldest = ring_at(j, r, 0);
    r->head = (r->head + 1) % r->cap;
    return oldest;
}

static struct series *find_series(const struct journal *j, const char *name)
{
    for (size_t i = 0; i < j->series.n; i++) {
        struct series *s = vec_at(&j->series, i);
        if (strcmp(s->name, name) == 0)
            return s;
    }
    return NULL;
}

/* Its series, made if need be: with all places taken, the one that was quiet longest gives way. */
static struct series *series_of(struct journal *j, const char *name)
{
    struct series *s = find_series(j, name);
    if (s)
        return s;
    if (j->series.n < JOURNAL_SERIES_MAX) {
        s = vec_add(&j->series);
        if (!s)
            return NULL;
    } else {
        s = vec_at(&j->series, 0);
        for (size_t i = 1; i < j->series.n; i++) {
            struct series *other = vec_at(&j->series, i);
            if (other->last < s->last)
                s = other;
        }
        free(s->ring.p);
        s->ring = (struct ring) { 0 };
    }
    s->ring.max = j->ring_max;
    snprintf(s->name, sizeof s->name, "%s", name);
    return s;
}

/* ---- lifetime ---- */

static int by_line_order(const struct device *a, const struct device *b)
{
    int a_cpu = strcmp(a->name, "cpu") == 0, b_cpu = strcmp(b->name, "cpu") == 0;
    return a_cpu != b_cpu ? b_cpu - a_cpu : strcmp(a->name, b->name);
}

static void sort_devices(struct journal *j) /* insertion: there are few */
{
    for (size_t i = 0; i < j->n; i++) {
        size_t at = i;
        for (; at &&
               by_line_order(devset_at(j->devices, i), devset_at(j->devices, j->order[at - 1])) < 0;
             at--)
            j->order[at] = j->order[at - 1];
        j->order[at] = (uint8_t)i;
    }
}

static size_t ring_limit(size_t asked, size_t normal)
{
    return asked == 0 ? normal : asked < RING_MAX ? asked : RING_MAX;
}

berth_status journal_new(const struct journal_config *cfg, const struct devset *devices,
                         const struct log *log, const struct clock *clock, struct journal **out,
                         berth_err *err)
{
    static const struct journal_config none;
    *out = NULL;
    cfg = cfg ? cfg : &none;
    struct journal *j = calloc(1, sizeof *j);
    if (!j)
        return err_set(err, BERTH_ENOMEM, "journal");
    j->devices = devices;
    j->log = log;
    j->clock = clock ? clock : clock_system();
    j->n = devset_count(devices);
    if (j->n > JOURNAL_DEVICES_MAX)
        BUG("%zu devices in a set", j->n);
    sort_devices(j);
    j->stride = sizeof(struct snap) + 2 * j->n * sizeof(uint64_t);
    j->ring_max = ring_limit(cfg->ring, JOURNAL_RING_DEFAULT);
    j->timeline.max = ring_limit(cfg->timeline, JOURNAL_TIMELINE_DEFAULT);
    j->series.elem = sizeof(struct series);
    j->log_lines = cfg->log_lines;
    int e = pthread_mutex_init(&j->lock, NULL);
    j->lock_made = e == 0;
    if (e)
        err_sys(err, BERTH_ENOMEM, e, "journal: lock");
    else if (!cfg->json_path || journal_json_new(cfg, log, &j->json, err) == BERTH_OK)
        *out = j;
    if (!*out)
        journal_free(j);
    return *out ? BERTH_OK : err->code;
}

void journal_free(struct journal *j)
{
    if (!j)
        return;
    for (size_t i = 0; i < j->series.n; i++)
        free(((struct series *)vec_at(&j->series, i))->ring.p);
    vec_release(&j->series);
    free(j->timeline.p);
    journal_json_free(j->json);
    if (j->lock_made)
        pthread_mutex_destroy(&j->lock);
    free(j);
}

/* ---- taking ---- */

/* A name as rings keep it: cut at a whole character, nothing that could break a line. */
static void keep_name(char out[JOURNAL_NAME_MAX], const char *name)
{
    int wanted = snprintf(out, JOURNAL_NAME_MAX, "%s", name ? name : "");
    size_t n = utf8_mark_cut(out, JOURNAL_NAME_MAX, wanted < 0 ? 0 : (size_t)wanted);
    utf8_sanitize(out, n);
}

static void look(const struct journal *j, uint64_t *used, uint64_t *total)
{
    for (size_t i = 0; i < j->n; i++) {
        struct dev_info info = { 0 };
        berth_err err = { 0 };
        used[i] = total[i] = 0;
        if (dev_info(devset_at(j->devices, i), &info, &err) == BERTH_OK) {
            used[i] = info.total - info.free;
            total[i] = info.total;
        }
    }
}

static bool keep_in(const struct journal *j, struct ring *r, const struct journal_entry *e)
{
    struct snap *s = ring_push(j, r);
    if (!s)
        return false;
    s->seq = e->seq;
    s->wall_ns = e->wall_ns;
    memcpy(s->identifier, e->identifier, sizeof s->identifier);
    memcpy(s->tag, e->tag, sizeof s->tag);
    memcpy(s->value, e->used, j->n * sizeof *s->value);
    memcpy(s->value + j->n, e->total, j->n * sizeof *s->value);
    return true;
}

static void keep(struct journal *j, struct journal_entry *e)
{
    pthread_mutex_lock(&j->lock);
    e->seq = j->seq + 1;
    bool ok = keep_in(j, &j->timeline, e);
    if (ok)
        j->seq = e->seq;
    struct series *s = series_of(j, e->identifier);
    if (s) {
        s->last = e->seq;
        ok = keep_in(j, &s->ring, e) && ok;
    }
    if (!ok || !s)
        atomic_fetch_add(&j->dropped, 1);
    pthread_mutex_unlock(&j->lock);
}

void journal_snapshot(struct journal *j, const char *identifier, const char *tag)
{
    static const char *const fields[] = { "component", "model_management", NULL };
    struct journal_entry e = { .wall_ns = clock_wall_ns(j->clock), .devices = j->n };
    keep_name(e.identifier, identifier);
    keep_name(e.tag, tag);
    look(j, e.used, e.total);
    keep(j, &e);
    if (!j->log_lines && !journal_json_wants(j->json, JOURNAL_FOCUS))
        return;
    struct str line = { 0 };
    str_adds(&line, "[MultiGPU Model Management] ");
    journal_line(j, &e, &line);
    if (j->log_lines)
        log_info(j->log, "res.memory", "%s", str_c(&line));
    journal_json_record(j->json, e.wall_ns, JOURNAL_FOCUS, str_c(&line), fields);
    str_release(&line);
}

void journal_record(struct journal *j, int level, const char *message, const char *const *fields)
{
    journal_json_record(j->json, clock_wall_ns(j->clock), level, message, fields);
}

uint64_t journal_dropped(const struct journal *j)
{
    return atomic_load(&j->dropped);
}

uint64_t journal_json_failures(const struct journal *j)
{
    return journal_json_errors(j->json);
}

/* ---- reading ---- */

static void entry_of(const struct journal *j, const struct snap *s, struct journal_entry *e)
{
    e->seq = s->seq;
    e->wall_ns = s->wall_ns;
    memcpy(e->identifier, s->identifier, sizeof e->identifier);
    memcpy(e->tag, s->tag, sizeof e->tag);
    e->devices = j->n;
    memset(e->used, 0, sizeof e->used);
    memset(e->total, 0, sizeof e->total);
    memcpy(e->used, s->value, j->n * sizeof *s->value);
    memcpy(e->total, s->value + j->n, j->n * sizeof *s->value);
}

uint64_t journal_last(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    uint64_t seq = j->seq;
    pthread_mutex_unlock(&j->lock);
    return seq;
}

size_t journal_query(struct journal *j, uint64_t after, const char *identifier,
                     struct journal_entry *out, size_t cap, uint64_t *lost)
{
    char name[JOURNAL_NAME_MAX];
    size_t n = 0;
    keep_name(name, identifier);
    pthread_mutex_lock(&j->lock);
    const struct ring *r = &j->timeline;
    uint64_t first = r->n ? ring_at(j, r, 0)->seq : j->seq + 1; /* numbers have no gaps */
    if (lost)
        *lost = first - 1 > after ? first - 1 - after : 0;
    size_t from = after >= j->seq ? r->n : after < first ? 0 : (size_t)(after + 1 - first);
    for (size_t i = from; i < r->n && n < cap; i++) {
        const struct snap *s = ring_at(j, r, i);
        if (!identifier || strcmp(s->identifier, name) == 0)
            entry_of(j, s, &out[n++]);
    }
    pthread_mutex_unlock(&j->lock);
    return n;
}

static void add_line(const struct journal *j, uint64_t wall_ns, const char *identifier,
                     const char *tag, const uint64_t *used, struct str *out)
{
    journal_time(out, wall_ns, 3);
    str_addc(out, ' ');
    size_t from = out->n;
    str_addf(out, "%s_%s", identifier, tag);
    if (!out->bad && out->n < from + 35)
        str_pad(out, ' ', from + 35);
    for (size_t i = 0; i < j->n; i++)
        str_addf(out, " %s|%.2f", devset_at(j->devices, j->order[i])->name,
                 (double)used[j->order[i]] / GIB);
}

void journal_line(const struct journal *j, const struct journal_entry *e, struct str *out)
{
    add_line(j, e->wall_ns, e->identifier, e->tag, e->used, out);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct series *const *)a)->name,
                  (*(const struct series *const *)b)->name);
}

void journal_summary(struct journal *j, struct str *out)
{
    pthread_mutex_lock(&j->lock);
    size_t n = j->series.n;
    const struct series **series = malloc((n ? n : 1) * sizeof(struct series *)); /* n is bounded */
    for (size_t i = 0; series && i < n; i++)
        series[i] = vec_at(&j->series, i);
    out->bad |= !series;
    if (series)
        qsort(series, n, sizeof(struct series *), by_name);
    for (size_t i = 0; series && i < n; i++) {
        str_addf(out, "=== memory summary: %s ===\n", series[i]->name);
        for (size_t k = 0; k < series[i]->ring.n; k++) {
            const struct snap *x = ring_at(j, &series[i]->ring, k);
            add_line(j, x->wall_ns, x->identifier, x->tag, x->value, out);
            str_addc(out, '\n');
        }
    }
    pthread_mutex_unlock(&j->lock);
    free(series);
}

static void add_entry_json(const struct journal *j, const struct journal_entry *e,
                           struct jsonout *to)
{
    struct str when = { 0 };
    journal_time(&when, e->wall_ns, 3);
    jo_open(to, NULL, '{');
    jo_u64(to, "seq", e->seq);
    jo_str(to, "time", str_c(&when));
    jo_str(to, "identifier", e->identifier);
    jo_str(to, "tag", e->tag);
    jo_open(to, "devices", '[');
    for (size_t i = 0; i < e->devices; i++) {
        jo_open(to, NULL, '{');
        jo_str(to, "device", devset_at(j->devices, i)->name);
        jo_u64(to, "used", e->used[i]);
        jo_u64(to, "total", e->total[i]);
        jo_close(to, '}');
    }
    jo_close(to, ']');
    jo_close(to, '}');
    to->out->bad |= when.bad;
    str_release(&when);
}

void journal_timeline_json(struct journal *j, uint64_t after, size_t cap, struct str *out)
{
    struct journal_entry e[8];
    struct jsonout to = { .out = out };
    size_t done = 0, n;
    jo_open(&to, NULL, '[');
    do {
        n = journal_query(j, after, NULL, e, cap - done < ARRAY_LEN(e) ? cap - done : ARRAY_LEN(e),
                          NULL);
        for (size_t i = 0; i < n; i++)
            add_entry_json(j, &e[i], &to);
        after = n ? e[n - 1].seq : after;
        done += n;
    } while (n && done < cap && !out->bad);
    jo_close(&to, ']');
}
