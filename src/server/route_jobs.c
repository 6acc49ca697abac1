/* /api/jobs: queue and history as one list, for newer frontends.
 *
 * Runs on AUX_LISTS, in two passes: the first keeps of every job only what filters and sorting
 * need, the second builds the objects of the requested page. A job that ends in between is found in
 * its new place. */
#include "base/vec.h"
#include "node/py.h"
#include "server/routes.h"

#include <strings.h>

enum { PENDING = 1, IN_PROGRESS = 2, COMPLETED = 4, FAILED = 8, CANCELLED = 16 };
#define OVER (COMPLETED | FAILED | CANCELLED)
#define ALL_STATES (PENDING | IN_PROGRESS | OVER)
#define TEXT_PREVIEW 1024 /* characters */

static const struct {
    const char *name;
    unsigned bit;
} states[] = {
    { "pending", PENDING }, { "in_progress", IN_PROGRESS }, { "completed", COMPLETED },
    { "failed", FAILED },   { "cancelled", CANCELLED },
};

static const char *state_name(unsigned bit)
{
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        if (states[i].bit == bit)
            return states[i].name;
    return "";
}

/* ---- what a job object is made of ---- */

static json_t *parse(const char *text)
{
    json_t *v = NULL;
    berth_err err = { 0 };
    if (!text || js_parse(text, strlen(text), NULL, &v, &err))
        return NULL;
    return v;
}

/* extra_data.extra_pnginfo.workflow.id; borrowed; NULL: none. */
static json_t *workflow_id(const json_t *extra)
{
    return json_object_get(json_object_get(json_object_get(extra, "extra_pnginfo"), "workflow"),
                           "id");
}

/* null members are left out. Takes v. */
static void put(json_t *o, const char *key, json_t *v)
{
    if (v && !json_is_null(v))
        json_object_set(o, key, v);
    json_decref(v);
}

struct run_times { /* borrowed from a status object */
    json_t *start, *end, *error;
    bool interrupted;
};

static struct run_times run_times(const json_t *status)
{
    struct run_times t = { 0 };
    const json_t *messages = json_object_get(status, "messages");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const char *event = json_string_value(json_array_get(m, 0));
        json_t *data = json_array_get(m, 1), *at = json_object_get(data, "timestamp");
        if (!event || !json_is_object(data))
            continue;
        if (strcmp(event, "execution_start") == 0) {
            t.start = at;
        } else if (strcmp(event, "execution_success") == 0) {
            t.end = at;
        } else if (strcmp(event, "execution_interrupted") == 0) {
            t.end = at;
            t.interrupted = true;
        } else if (strcmp(event, "execution_error") == 0) {
            t.end = at;
            t.error = data;
        }
    }
    return t;
}

static unsigned state_of(const json_t *status, const struct run_times *t)
{
    const char *s = json_string_value(json_object_get(status, "status_str"));
    if (!s || strcmp(s, "error") != 0)
        return COMPLETED;
    return t->interrupted ? CANCELLED : FAILED;
}

/* ---- what it made ---- */

static bool starts(const json_t *v, const char *z)
{
    return json_is_string(v) && str_starts(json_string_value(v), json_string_length(v), z);
}

static bool ends(const json_t *v, const char *const *any)
{
    return json_is_string(v) && http_ends_with(json_string_value(v), json_string_length(v), any);
}

static const char *const models_3d[] = { ".obj", ".fbx", ".gltf", ".glb", ".usdz", NULL };
static const char *const texts[] = { ".txt", ".md", ".json", NULL };

static bool is_text(const char *kind, const json_t *item)
{
    return !strcmp(kind, "text") || ends(json_object_get(item, "filename"), texts);
}

static bool previewable(const char *kind, const json_t *item)
{
    static const char *const kinds[] = { "images", "video", "audio", "3d", "text" };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kind, kinds[i]) == 0)
            return true;
    const json_t *format = json_object_get(item, "format");
    return starts(format, "video/") || starts(format, "audio/") || is_text(kind, item) ||
           ends(json_object_get(item, "filename"), models_3d);
}

/* A file of an output: an object, or the name of a 3D model. Owned; NULL: none. */
static json_t *output_file(json_t *item)
{
    if (json_is_object(item))
        return json_incref(item);
    if (!ends(item, models_3d))
        return NULL;
    return json_pack("{s:O,s:s,s:s,s:s}", "filename", item, "type", "output", "subfolder", "",
                     "mediaType", "3d");
}

/* From the best preview to the worst: what was saved, what was shown, a text file, a text. */
enum rank { SAVED, SHOWN, TEXT_FILE, TEXT, RANKS };

struct outputs_seen {
    json_int_t count, previewable;
    json_t *first[RANKS]; /* owned; NULL: none */
};

/* Takes p. */
static void see_preview(struct outputs_seen *o, enum rank rank, const char *node, const char *kind,
                        json_t *p)
{
    if (o->first[rank]) {
        json_decref(p);
        return;
    }
    json_object_set_new(p, "nodeId", json_string(node));
    if (!json_object_get(p, "mediaType"))
        json_object_set_new(p, "mediaType", json_string(kind));
    o->first[rank] = p;
}

static json_t *text_preview(const json_t *text)
{
    const char *s = json_string_value(text);
    size_t all = json_string_length(text), n = py_offset(s, all, TEXT_PREVIEW);
    json_t *p = json_pack("{s:o}", "content", json_stringn(s, n));
    if (n < all)
        json_object_set_new(p, "truncated", json_true());
    return p;
}

static void see_item(struct outputs_seen *o, const char *node, const char *kind, json_t *item)
{
    json_t *file = output_file(item);
    if (!file && json_is_string(item) && !strcmp(kind, "text"))
        see_preview(o, TEXT, node, kind, text_preview(item));
    if (!file)
        return;
    o->count++;
    if (previewable(kind, file)) {
        const char *type = json_string_value(json_object_get(file, "type"));
        enum rank rank = is_text(kind, file)                   ? TEXT_FILE
                         : type && strcmp(type, "output") == 0 ? SAVED
                                                               : SHOWN;
        o->previewable++;
        see_preview(o, rank, node, kind, json_copy(file));
    }
    json_decref(file);
}

static struct outputs_seen see_outputs(json_t *outputs)
{
    struct outputs_seen o = { 0 };
    const char *node, *kind;
    json_t *ui, *items;
    json_object_foreach(outputs, node, ui)
    {
        json_object_foreach(ui, kind, items)
        {
            for (size_t i = 0; strcmp(kind, "animated") && i < json_array_size(items); i++)
                see_item(&o, node, kind, json_array_get(items, i));
        }
    }
    return o;
}

/* The best preview, owned; NULL: none. Of `o` nothing is left. */
static json_t *take_preview(struct outputs_seen *o)
{
    json_t *best = NULL;
    for (size_t i = 0; i < RANKS; i++) {
        if (best)
            json_decref(o->first[i]);
        else
            best = o->first[i];
    }
    return best;
}

/* Names of 3D models become files, and nulls go. */
static void normalise_list(json_t *items)
{
    for (size_t i = 0; i < json_array_size(items);) {
        json_t *item = json_array_get(items, i);
        if (json_is_null(item)) {
            json_array_remove(items, i);
            continue;
        }
        json_t *file = output_file(item);
        if (file)
            json_array_set_new(items, i, file);
        i++;
    }
}

static void normalise_outputs(json_t *outputs)
{
    const char *node, *kind;
    json_t *ui, *items;
    json_object_foreach(outputs, node, ui)
    {
        json_object_foreach(ui, kind, items)
        {
            if (strcmp(kind, "animated"))
                normalise_list(items);
        }
    }
}

/* ---- objects ---- */

/* Members that both kinds begin with. */
static json_t *job_head(const struct store_job *j, unsigned state, const json_t *extra)
{
    json_t *o = json_object();
    put(o, "id", json_string(j->id));
    put(o, "status", json_string(state_name(state)));
    put(o, "priority", parse(j->number));
    put(o, "create_time", json_incref(json_object_get(extra, "create_time")));
    return o;
}

static json_t *queue_job(const struct store_job *j, bool running)
{
    json_t *extra = parse(j->extra_data);
    json_t *o = job_head(j, running ? IN_PROGRESS : PENDING, extra);
    put(o, "outputs_count", json_integer(0));
    put(o, "previewable_outputs_count", json_integer(0));
    put(o, "workflow_id", json_incref(workflow_id(extra)));
    json_decref(extra);
    return o;
}

static json_t *history_job(const struct store_entry *e, bool whole)
{
    json_t *extra = parse(e->job.extra_data), *status = parse(e->status),
           *outputs = parse(e->outputs);
    struct run_times t = run_times(status);
    struct outputs_seen seen = see_outputs(outputs);
    json_t *o = job_head(&e->job, state_of(status, &t), extra);
    put(o, "execution_start_time", json_incref(t.start));
    put(o, "execution_end_time", json_incref(t.end));
    put(o, "execution_error", json_incref(t.error));
    put(o, "outputs_count", json_integer(seen.count));
    put(o, "previewable_outputs_count", json_integer(seen.previewable));
    put(o, "preview_output", take_preview(&seen));
    put(o, "workflow_id", json_incref(workflow_id(extra)));
    if (whole) {
        json_t *w = json_object();
        put(w, "prompt", parse(e->job.prompt));
        normalise_outputs(outputs);
        json_object_set(w, "extra_data", extra);
        json_object_set(o, "outputs", outputs);
        json_object_set(o, "execution_status", status);
        json_object_set_new(o, "workflow", w);
    }
    json_decref(extra);
    json_decref(status);
    json_decref(outputs);
    return o;
}

/* ---- a list ---- */

struct jobs_query {
    struct later base;
    unsigned want;  /* states */
    char *workflow; /* NULL: any */
    bool by_duration, ascending, has_limit;
    int64_t limit, offset;
};

struct brief { /* of one job, for the first pass */
    char *id;
    double key;
    size_t place; /* as met: ties stay in this order */
    bool history, ascending;
};

struct first_pass {
    const struct jobs_query *q;
    struct vec *out; /* struct brief */
    bool failed;     /* no memory */
};

static bool workflow_matches(const struct jobs_query *q, const char *extra_data)
{
    if (!q->workflow)
        return true;
    json_t *extra = parse(extra_data);
    const json_t *id = workflow_id(extra);
    bool same = json_is_string(id) && strcmp(json_string_value(id), q->workflow) == 0;
    json_decref(extra);
    return same;
}

static bool add_brief(struct first_pass *f, const struct store_job *j, double key, bool history)
{
    struct brief *b = vec_add(f->out);
    if (!b || !(b->id = strdup(j->id))) {
        if (b)
            vec_pop(f->out);
        f->failed = true;
        return false;
    }
    b->key = key;
    b->place = f->out->n;
    b->history = history;
    b->ascending = f->q->ascending;
    return true;
}

static bool see_queued(void *user, const struct store_job *j, bool running)
{
    struct first_pass *f = user;
    if (!(f->q->want & (running ? IN_PROGRESS : PENDING)) || !workflow_matches(f->q, j->extra_data))
        return true;
    return add_brief(f, j, f->q->by_duration ? 0 : (double)j->created_ms, false);
}

static double duration(const struct run_times *t)
{
    double a = 0, b = 0;
    js_get_f64(t->start, &a);
    js_get_f64(t->end, &b);
    return a != 0 && b != 0 ? b - a : 0;
}

static bool see_entry(void *user, const struct store_entry *e)
{
    struct first_pass *f = user;
    json_t *status = parse(e->status);
    struct run_times t = run_times(status);
    double key = f->q->by_duration ? duration(&t) : (double)e->job.created_ms;
    unsigned state = state_of(status, &t);
    json_decref(status);
    if (!(f->q->want & state) || !workflow_matches(f->q, e->job.extra_data))
        return true;
    return add_brief(f, &e->job, key, true);
}

static int by_key(const void *a, const void *b)
{
    const struct brief *x = a, *y = b;
    if (x->key != y->key)
        return (x->key < y->key) == x->ascending ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static bool keep_job(void *user, const struct store_entry *e)
{
    json_t **out = user;
    *out = history_job(e, false);
    return false;
}

/* NULL: gone. */
static json_t *job_of(struct store *st, const struct brief *b)
{
    struct store_job j = { 0 };
    bool running;
    json_t *o = NULL;
    berth_err err = { 0 };
    if (!b->history && store_job_get(st, b->id, &j, &running)) {
        o = queue_job(&j, running);
        store_job_release(&j);
        return o;
    }
    store_entry_get(st, b->id, keep_job, &o, &err);
    return o;
}

static void jobs_release(struct later *l)
{
    free(((struct jobs_query *)l)->workflow);
}

static void write_page(struct jobs_query *q, const struct vec *all, struct str *out)
{
    size_t from = (uint64_t)q->offset < all->n ? (size_t)q->offset : all->n;
    size_t to =
        q->has_limit && (uint64_t)q->limit < all->n - from ? from + (size_t)q->limit : all->n;
    struct jsonout j = { .out = out };
    jo_open(&j, NULL, '{');
    jo_open(&j, "jobs", '[');
    for (size_t i = from; i < to; i++) {
        json_t *job = job_of(q->base.server->store, vec_at(all, i));
        if (job)
            jo_value(&j, NULL, job);
        json_decref(job);
    }
    jo_close(&j, ']');
    jo_open(&j, "pagination", '{');
    jo_i64(&j, "offset", q->offset);
    if (q->has_limit)
        jo_i64(&j, "limit", q->limit);
    else
        jo_str(&j, "limit", NULL);
    jo_u64(&j, "total", all->n);
    jo_bool(&j, "has_more", to < all->n && from < to);
    jo_close(&j, '}');
    jo_close(&j, '}');
}

static void jobs_work(struct later *l)
{
    struct jobs_query *q = (struct jobs_query *)l;
    struct vec all = { .elem = sizeof(struct brief) };
    struct first_pass f = { .q = q, .out = &all };
    if (q->want & (PENDING | IN_PROGRESS))
        l->failed = store_each_job(l->server->store, q->workflow, see_queued, &f, &l->err);
    if (!l->failed && q->want & OVER)
        l->failed = store_each_brief(l->server->store, q->workflow, see_entry, &f, &l->err);
    if (!l->failed && f.failed)
        l->failed = err_set(&l->err, BERTH_ENOMEM, "listing jobs");
    if (all.n)
        qsort(all.p, all.n, all.elem, by_key);
    if (!l->failed)
        write_page(q, &all, &l->body);
    for (size_t i = 0; i < all.n; i++)
        free(((struct brief *)vec_at(&all, i))->id);
    vec_release(&all);
}

/* ---- what was asked for ---- */

/* "completed, failed": names in any case, spaces around them, empty ones skipped. */
static unsigned read_states(char *text, struct str *unknown)
{
    unsigned got = 0;
    for (char *c = text; *c; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    for (char *save, *p = strtok_r(text, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        unsigned bit = 0;
        p += strspn(p, " ");
        for (size_t n = strlen(p); n && p[n - 1] == ' ';)
            p[--n] = '\0';
        for (size_t i = 0; i < ARRAY_LEN(states); i++)
            if (strcmp(p, states[i].name) == 0)
                bit = states[i].bit;
        got |= bit;
        if (*p && !bit)
            str_addf(unknown, "%s%s", unknown->n ? ", " : "", p);
    }
    return got;
}

static bool read_status(struct http_req *r, struct jobs_query *q)
{
    struct str v = { 0 }, unknown = { 0 }, text = { 0 };
    q->want = ALL_STATES;
    if (http_query(r, "status", &v) && v.n)
        q->want = read_states(v.p, &unknown);
    bool ok = unknown.n == 0 && !unknown.bad;
    if (!ok) {
        str_addf(&text,
                 "Invalid status value(s): %s. Valid values: pending, in_progress, completed, "
                 "failed, cancelled",
                 str_c(&unknown));
        reply_wrong(r, str_c(&text));
    }
    str_release(&v);
    str_release(&unknown);
    str_release(&text);
    return ok;
}

/* One of two words; the first is the default. */
static bool read_choice(struct http_req *r, const char *name, const char *first, const char *second,
                        bool *is_second)
{
    struct str v = { 0 };
    bool ok = true;
    *is_second = false;
    if (http_query(r, name, &v)) {
        *is_second = strcasecmp(str_c(&v), second) == 0;
        ok = *is_second || strcasecmp(str_c(&v), first) == 0;
    }
    str_release(&v);
    return ok;
}

static bool read_query(struct http_req *r, struct jobs_query *q)
{
    bool has_offset;
    if (!read_status(r, q))
        return false;
    if (!read_choice(r, "sort_by", "created_at", "execution_duration", &q->by_duration))
        reply_wrong(r, "sort_by must be 'created_at' or 'execution_duration'");
    else if (!read_choice(r, "sort_order", "desc", "asc", &q->ascending))
        reply_wrong(r, "sort_order must be 'asc' or 'desc'");
    else if (!query_int(r, "limit", &q->has_limit, &q->limit))
        reply_wrong(r, "limit must be an integer");
    else if (q->has_limit && q->limit <= 0)
        reply_wrong(r, "limit must be a positive integer");
    else if (!query_int(r, "offset", &has_offset, &q->offset))
        reply_wrong(r, "offset must be an integer");
    else
        return true;
    return false;
}

void route_jobs_get(struct http_req *r)
{
    struct jobs_query *q = later_new(r, sizeof *q, AUX_LISTS, jobs_work);
    struct str w = { 0 };
    if (!q)
        return;
    q->base.release = jobs_release;
    if (!read_query(r, q)) {
        later_free(&q->base);
        return;
    }
    if (q->offset < 0)
        q->offset = 0;
    if (http_query(r, "workflow_id", &w) && w.n)
        q->workflow = str_take(&w);
    str_release(&w);
    later_run(&q->base);
}

/* ---- one job ---- */

static bool keep_whole(void *user, const struct store_entry *e)
{
    json_t **out = user;
    *out = history_job(e, true);
    return false;
}

void later_jobs_one(struct later *l)
{
    struct store *st = l->server->store;
    const char *id = str_c(&l->r->param[0]);
    json_t *o = NULL;
    berth_err err = { 0 };
    struct store_job j = { 0 };
    bool running;
    berth_status s = store_entry_get(st, id, keep_whole, &o, &err); /* history wins */
    if (s == BERTH_ENOTFOUND && store_job_get(st, id, &j, &running)) {
        o = queue_job(&j, running);
        store_job_release(&j);
    }
    if (s && s != BERTH_ENOTFOUND)
        later_err(l, 0, &err);
    else if (o)
        later_json(l, 200, o);
    else
        later_json(l, 404, json_pack("{s:s}", "error", "Job not found"));
}

static bool job_cancel(struct server *s, const char *id, berth_err *err)
{
    size_t gone = store_delete(s->store, &id, 1, err);
    if (gone)
        hub_send_status(s);
    return worker_interrupt(s, id) || gone;
}

/* On AUX_FILES: a job that leaves the queue may wait for the disk. */
static void cancel_work(struct later *l)
{
    bool any = false;
    for (size_t i = 0; i < json_array_size(l->json) && !l->err.code; i++)
        any |= job_cancel(l->server, json_string_value(json_array_get(l->json, i)), &l->err);
    l->failed = l->err.code;
    later_json(l, 200, json_pack("{s:b}", "cancelled", any));
}

void later_jobs_cancel_one(struct later *l)
{
    bool gone = job_cancel(l->server, str_c(&l->r->param[0]), &l->err);
    l->failed = l->err.code;
    later_json(l, 200, json_pack("{s:b}", "cancelled", gone));
}

/* Those that are no ids, as Python prints them; owned. */
static json_t *wrong_ids(const json_t *ids)
{
    json_t *wrong = json_array();
    for (size_t i = 0; i < json_array_size(ids); i++) {
        json_t *id = json_array_get(ids, i);
        struct str text = { 0 };
        if (is_uuid(id))
            continue;
        py_str(id, &text);
        json_array_append_new(wrong, json_stringn(str_c(&text), text.n));
        str_release(&text);
    }
    return wrong;
}

void route_jobs_cancel(struct http_req *r)
{
    json_t *body = NULL;
    berth_err err = { 0 };
    if (http_body_json(&r->body, NULL, &body, &err)) {
        reply_wrong(r, "Request body must be valid JSON");
        return;
    }
    json_t *ids = json_incref(json_object_get(body, "job_ids")), *wrong = wrong_ids(ids);
    json_decref(body);
    struct later *l = NULL;
    if (!json_is_array(ids))
        reply_wrong(r, "job_ids must be a list");
    else if (json_array_size(wrong))
        http_reply_json(r, 400,
                        json_pack("{s:s,s:O}", "error", "job_ids contains invalid id(s)",
                                  "invalid_ids", wrong));
    else
        l = later_new_json(r, sizeof *l, AUX_FILES, cancel_work, json_incref(ids));
    if (l)
        later_run(l);
    json_decref(ids);
    json_decref(wrong);
}
