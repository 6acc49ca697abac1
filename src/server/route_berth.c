/* route_berth: POST /free and Berth's own surface: devices, models, memory, receipts, health,
 * metrics. Errors are {"error": text}: 400 for a wrong request, 404 for a model that is not there,
 * 409 for one that may not be touched that way, 503 when the server stops. */
#include "server/body.h"
#include "server/routes.h"

#include "plan/alloc.h"
#include "residency/residency.h"

#include <inttypes.h>

#define NAMES_MAX 256     /* of one selector */
#define NAME_BYTES 1024   /* of one name in it */
#define TIMELINE_MAX 4096 /* snapshots in one answer */
#define TIMELINE_SOME 256 /* when nobody says how many */

/* ---- answers ---- */

/* Limits here are those of plans and selectors, not of a body's size. */
static void reply_error(struct http_req *r, const berth_err *err)
{
    http_reply_err(r, err->code == BERTH_ELIMIT ? 400 : 0, err);
}

void reply_worker(struct server *s, void *user, berth_status st, const berth_err *err,
                  struct str *text)
{
    struct http_req *r = user;
    (void)s;
    if (st)
        reply_error(r, err);
    else
        http_reply_json_text(r, 200, text);
    http_unhold(r);
}

/* ---- /free ---- */

/* Texts of an array; numbers, as ids are, too. */
static berth_status read_names(const json_t *v, const char *what, char ***out, size_t *n,
                               berth_err *err)
{
    size_t count = json_array_size(v);
    if (!v || js_kind(v) == JS_NULL)
        return BERTH_OK;
    if (js_kind(v) != JS_ARRAY)
        return err_set(err, BERTH_EINVAL, "%s: not an array", what);
    if (count > NAMES_MAX)
        return err_set(err, BERTH_ELIMIT, "%s: %zu names, at most %d", what, count, NAMES_MAX);
    *out = calloc(count ? count : 1, sizeof **out);
    if (!*out)
        return err_set(err, BERTH_ENOMEM, "%s", what);
    for (size_t i = 0; i < count; i++) {
        const json_t *x = json_array_get(v, i);
        struct str text = { 0 };
        uint64_t id;
        if (js_kind(x) == JS_STRING && json_string_length(x) && json_string_length(x) <= NAME_BYTES)
            str_adds(&text, json_string_value(x));
        else if (js_get_u64(x, &id))
            str_addf(&text, "%" PRIu64, id);
        else
            return err_set(err, BERTH_EINVAL, "%s: entry %zu is no name", what, i + 1);
        (*out)[*n] = str_take(&text);
        str_release(&text);
        if (!(*out)[*n])
            return err_set(err, BERTH_ENOMEM, "%s", what);
        ++*n;
    }
    return BERTH_OK;
}

static berth_status read_tiers(const json_t *v, unsigned *out, berth_err *err)
{
    if (!v || js_kind(v) == JS_NULL)
        return BERTH_OK;
    if (js_kind(v) != JS_ARRAY || !json_array_size(v))
        return err_set(err, BERTH_EINVAL, "tiers: not an array of names");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *x = json_array_get(v, i);
        const char *word = js_kind(x) == JS_STRING ? json_string_value(x) : "";
        unsigned bit = 0;
        for (int k = 0; k < DEV_KIND_COUNT; k++)
            if (strcmp(word, dev_kind_name((enum dev_kind)k)) == 0)
                bit = 1u << k;
        if (!bit)
            return err_set(err, BERTH_EINVAL,
                           "tiers: '%.40s' is none of weights, staging, activations, pinned, "
                           "pool-idle",
                           word);
        *out |= bit;
    }
    return BERTH_OK;
}

/* A copy; NULL when it is not there. */
static berth_status copy_text(const json_t *body, const char *name, char **out, berth_err *err)
{
    const char *text;
    if (body_text(body, name, &text, err))
        return err->code;
    if (!json_is_string(json_object_get(body, name)))
        return BERTH_OK;
    *out = strdup(text);
    return *out ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%s", name);
}

static const char *const plain_free[] = { "unload_models", "free_memory", NULL };
static const char *const our_free[] = { "unload_models", "free_memory", "wait",  "dry_run",
                                        "models",        "devices",     "tiers", "force",
                                        "reason",        NULL };

/* Do two words differ in at most two letters (added, missing, changed, swapped neighbours)? One, if
 * a word is short: with two, "at" would match "wait". */
static bool is_misspelt(const char *a, const char *b)
{
    enum { WORD = 16 };
    size_t n = strlen(a), m = strlen(b), d[WORD + 1][WORD + 1]; /* [i][j]: of the first letters */
    if (n > WORD || m > WORD)
        return false;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            size_t least = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            least = d[i - 1][j] + 1 < least ? d[i - 1][j] + 1 : least;
            least = d[i][j - 1] + 1 < least ? d[i][j - 1] + 1 : least;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < least)
                least = d[i - 2][j - 2] + 1;
            d[i][j] = least;
        }
    return d[n][m] <= (n < 6 || m < 6 ? 1 : 2);
}

/* Unknown members are ignored, as in ComfyUI: its clients expect a 200. Unless a member is one of
 * ours, or nearly: whoever misspells dry_run does not want to free anything. */
static bool is_strict(const json_t *body)
{
    const char *key;
    json_t *x;
    json_object_foreach((json_t *)body, key, x)
    {
        if (body_is_one_of(key, plain_free))
            continue;
        for (size_t i = 0; our_free[i]; i++)
            if (!body_is_one_of(our_free[i], plain_free) && is_misspelt(key, our_free[i]))
                return true;
    }
    return false;
}

/* The two flags are taken as Python takes them; what is ours is strict. */
static berth_status read_free(const json_t *body, struct worker_free *f, berth_err *err)
{
    if (js_kind(body) != JS_OBJECT)
        return err_set(err, BERTH_EINVAL, "not an object");
    if (is_strict(body) && body_check(body, our_free, err))
        return err->code;
    f->unload_models = py_truth(json_object_get(body, "unload_models"));
    f->free_memory = py_truth(json_object_get(body, "free_memory"));
    berth_status st = body_bool(body, "wait", &f->wait, err);
    st = st ? st : body_bool(body, "force", &f->force, err);
    st = st ? st : body_bool(body, "dry_run", &f->dry_run, err);
    st = st ? st : copy_text(body, "reason", &f->reason, err);
    st = st ? st : read_tiers(json_object_get(body, "tiers"), &f->tiers, err);
    st = st ? st
            : read_names(json_object_get(body, "models"), "models", &f->models, &f->models_n, err);
    return st ? st
              : read_names(json_object_get(body, "devices"), "devices", &f->devices, &f->devices_n,
                           err);
}

void route_free(struct http_req *r)
{
    struct worker_free f = { 0 };
    berth_err err = { 0 };
    json_t *body;
    if (!http_json(r, "{}", &body))
        return;
    if (read_free(body, &f, &err)) {
        reply_error(r, &err);
    } else if (f.wait || f.dry_run) {
        f.left = f.dry_run ? &r->left : NULL; /* a free is remembered, whoever waits for it */
        worker_post_free(r->server, &f, reply_worker, http_hold(r));
    } else {
        worker_post_free(r->server, &f, NULL, NULL);
        http_reply_empty(r, 200);
    }
    worker_free_release(&f);
    json_decref(body);
}

/* ---- looking ---- */

/* With an id: a list of that model, or an empty one. A model that has gone since the client heard
 * of it is no error. */
void route_berth_models(struct http_req *r)
{
    struct str text = { 0 }, only = { 0 };
    uint64_t id;
    berth_err err = { 0 };
    bool one = http_query(r, "id", &only);
    if (one && !str_parse_u64(str_c(&only), only.n, &id))
        err_set(&err, BERTH_EINVAL, "id: '%.40s' is not the id of a model", str_c(&only));
    else if (!one && query_is(r, "blocks", "1"))
        err_set(&err, BERTH_EINVAL, "blocks: of which model? Say its id too");
    str_release(&only);
    if (err.code) {
        reply_error(r, &err);
        return;
    }
    if (one) {
        struct jsonout w = { .out = &text };
        jo_open(&w, NULL, '{');
        jo_open(&w, "models", '[');
        worker_model_json(r->server, id, query_is(r, "blocks", "1"), &text);
        jo_close(&w, ']');
        jo_close(&w, '}');
    } else {
        worker_models_json(r->server, &text);
    }
    http_reply_json_text(r, 200, &text);
}

static void no_such_model(struct http_req *r)
{
    berth_err err;
    err_set(&err, BERTH_ENOTFOUND, "no model has the id '%.40s'", str_c(&r->param[0]));
    reply_error(r, &err);
}

/* The id in the path. False: it is none, and it replied. */
static bool model_id(struct http_req *r, uint64_t *id)
{
    bool ok = str_parse_u64(str_c(&r->param[0]), r->param[0].n, id);
    if (!ok)
        no_such_model(r);
    return ok;
}

void route_berth_model(struct http_req *r)
{
    struct str text = { 0 };
    uint64_t id;
    if (!model_id(r, &id))
        return;
    if (worker_model_json(r->server, id, query_is(r, "blocks", "1"), &text))
        http_reply_json_text(r, 200, &text);
    else
        no_such_model(r);
}

void route_berth_memory(struct http_req *r)
{
    struct str text = { 0 };
    int64_t since = 0, limit = TIMELINE_SOME;
    bool has_since, has_limit;
    berth_err err;
    if (!query_int(r, "since", &has_since, &since) || since < 0 ||
        !query_int(r, "limit", &has_limit, &limit) || limit < 0) {
        err_set(&err, BERTH_EINVAL, "since and limit are integers from 0 on");
        reply_error(r, &err);
        return;
    }
    size_t cap = limit < TIMELINE_MAX ? (size_t)limit : TIMELINE_MAX;
    worker_memory_json(r->server, has_since ? (uint64_t)since : UINT64_MAX, cap, &text);
    http_reply_json_text(r, 200, &text);
}

/* For scripts that wait for the server: costs nothing and tells nothing. */
void health_json(struct server *s, struct str *out)
{
    (void)s;
    struct jsonout w = { .out = out };
    jo_open(&w, NULL, '{');
    jo_str(&w, "status", "ok");
    jo_str(&w, "version", berth_version());
    jo_close(&w, '}');
}

void route_metrics(struct http_req *r)
{
    struct str text = { 0 };
    worker_metrics_text(r->server, &text);
    http_reply_take(r, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
}

/* ---- changing ---- */

berth_status read_change(const json_t *body, const char *const *known, struct worker_change *c,
                         berth_err *err)
{
    struct str alloc = { 0 };
    struct alloc parsed;
    bool given;
    const char *retention, *layout;
    if (body_check(body, known, err) || body_text(body, "retention", &retention, err) ||
        body_text(body, "layout", &layout, err) || copy_text(body, "compute", &c->compute, err))
        return err->code;
    c->sets_retention = json_is_string(json_object_get(body, "retention"));
    c->sets_layout = json_is_string(json_object_get(body, "layout"));
    if (c->sets_retention && !res_retention_parse(retention, &c->retention))
        return err_set(err, BERTH_EINVAL, "retention '%.40s' is none of keep, eject, auto",
                       retention);
    if (c->sets_layout && !plan_layout_parse(layout, strlen(layout), &c->layout))
        return err_set(err, BERTH_EINVAL, "layout '%.40s' is neither spread nor tail", layout);
    berth_status st = body_allocation(body, &alloc, &given, err);
    if (!st && given && !(c->allocation = strdup(str_c(&alloc))))
        st = err_set(err, BERTH_ENOMEM, "an allocation string");
    if (!st && alloc.n)
        st = alloc_parse(alloc.p, alloc.n, &parsed, err);
    str_release(&alloc);
    return st;
}

void route_berth_model_patch(struct http_req *r)
{
    static const char *const known[] = { "retention", "layout", BODY_ALLOCATION, NULL };
    struct worker_change c = { .left = &r->hung_up };
    berth_err err = { 0 };
    json_t *body;
    if (!model_id(r, &c.model) || !http_json(r, NULL, &body))
        return;
    if (read_change(body, known, &c, &err))
        reply_error(r, &err);
    else
        worker_post_change(r->server, &c, reply_worker, http_hold(r));
    worker_change_release(&c);
    json_decref(body);
}

void route_berth_model_delete(struct http_req *r)
{
    struct worker_change c = { .eject = true,
                               .force = query_is(r, "force", "1") || query_is(r, "force", "true"),
                               .left = &r->hung_up };
    if (model_id(r, &c.model))
        worker_post_change(r->server, &c, reply_worker, http_hold(r));
}
