/* state: what others may know of the worker.
 *
 * Models belong to the worker's thread, so it publishes a text of each: a new list is made outside of
 * the lock and takes the place of the old one inside. A signature of everything in the texts but
 * counters that only running work moves says whether there is anything to publish; with a few models
 * it costs less than a message. Devices, ledgers and the journal answer any thread themselves. */
#include "server/worker_impl.h"

#include "base/hash.h"
#include "journal/journal.h"

#include <inttypes.h>

/* ---- pieces ---- */

static void add_u64(struct str *out, const char *before, uint64_t v)
{
    str_addf(out, "%s%" PRIu64, before, v);
}

static void add_kinds(struct str *out, const struct device *d)
{
    uint64_t bytes[DEV_KIND_COUNT];
    dev_by_kind(d, bytes);
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        str_addf(out, "%c\"%s\":%" PRIu64, k ? ',' : '{', dev_kind_name((enum dev_kind)k),
                 bytes[k]);
    str_addc(out, '}');
}

/* ---- models ---- */

static void add_anchors(struct str *out, const struct res_model_info *i)
{
    const char *between = "";
    str_adds(out, ",\"anchors\":[");
    for (int a = 0; a < RES_ANCHOR_COUNT; a++)
        if (i->anchor[a]) {
            str_addf(out, "%s{\"reason\":\"%s\",\"count\":%u}", between,
                     res_anchor_text((enum res_anchor)a), i->anchor[a]);
            between = ",";
        }
    str_addc(out, ']');
}

static void add_devices_of(const struct worker *w, struct str *out, const struct res_model *m)
{
    const char *between = "";
    str_adds(out, ",\"devices\":{");
    for (size_t d = 0; d < devset_count(w->parts.devices); d++)
        if (res_bytes_on(m, d)) {
            json_text_pair(out, between, devset_at(w->parts.devices, d)->name);
            add_u64(out, ":", res_bytes_on(m, d));
            between = ",";
        }
    str_addc(out, '}');
}

static void add_plan(struct str *out, const struct plan *p)
{
    struct str text = { 0 };
    plan_string(p, &text);
    json_text_pair(out, ",\"plan\":{\"allocation\":", str_c(&text));
    json_text_pair(out, ",\"layout\":", plan_layout_name(p->layout));
    json_text_pair(out, ",\"compute\":", p->devices.at[p->quotas.compute].name);
    str_addc(out, '}');
    out->bad |= text.bad;
    str_release(&text);
}

/* Milliseconds since 1970; the registry counts on the monotonic clock. */
static void add_last_use(const struct worker *w, struct str *out, uint64_t at)
{
    uint64_t now = worker_now(w), wall = clock_wall_ns(w->clock);
    if (!at || at > now || now - at > wall)
        str_adds(out, ",\"last_use\":null");
    else
        add_u64(out, ",\"last_use\":", (wall - (now - at)) / 1000000);
}

static void model_json(const struct worker *w, struct res_model *m, struct str *out)
{
    struct res_model_info i = res_info(m);
    add_u64(out, "{\"id\":", i.id);
    json_text_pair(out, ",\"name\":", i.name);
    json_text_pair(out, ",\"role\":", i.role);
    json_text_pair(out, ",\"path\":", i.path);
    json_text_pair(out, ",\"part\":", i.part);
    if (i.converted != DT_NONE)
        json_text_pair(out, ",\"converted\":", dtype_name(i.converted));
    else
        str_adds(out, ",\"converted\":null");
    json_text_pair(out, ",\"state\":", res_state_name(i.state));
    json_text_pair(out, ",\"retention\":", res_retention_name(i.retention));
    add_anchors(out, &i);
    str_addf(out, ",\"handles\":%u,\"uses\":%u", i.handles, i.uses);
    add_u64(out, ",\"bytes\":", i.bytes);
    add_u64(out, ",\"resident\":", i.resident);
    add_devices_of(w, out, m);
    add_u64(out, ",\"demoted\":", i.demoted);
    add_u64(out, ",\"patches\":", i.patches);
    add_u64(out, ",\"loads\":", i.loads);
    add_u64(out, ",\"read\":", i.read);
    add_u64(out, ",\"moved\":", i.moved);
    add_u64(out, ",\"attached\":", i.attached);
    add_plan(out, res_plan(m));
    add_last_use(w, out, i.last_use);
}

/* ---- what there is to publish ---- */

static void mix(uint64_t *h, const void *p, size_t n)
{
    *h = hash_xxh64(p, n, *h);
}

static uint64_t signature(const struct worker *w)
{
    uint64_t h = 1;
    size_t devices = devset_count(w->parts.devices);
    for (size_t k = 0; k < res_model_count(w->parts.res); k++) {
        const struct res_model *m = res_model_at(w->parts.res, k);
        struct res_model_info i = res_info(m);
        const uint64_t fact[] = { i.id,      i.key,     i.state,   i.retention, i.handles,
                                  i.anchors, i.patches, i.bytes,   i.resident,  i.loads,
                                  i.read,    i.moved,   i.demoted, i.attached };
        mix(&h, fact, sizeof fact);
        mix(&h, i.anchor, sizeof i.anchor);
        for (size_t d = 0; d < devices; d++) {
            uint64_t n = res_bytes_on(m, d);
            mix(&h, &n, sizeof n);
        }
    }
    for (size_t d = 0; d < devices; d++) {
        uint64_t bytes[DEV_KIND_COUNT];
        dev_by_kind(devset_at(w->parts.devices, d), bytes);
        mix(&h, &bytes[DEV_WEIGHTS], sizeof bytes[0]);
        mix(&h, &bytes[DEV_PINNED], sizeof bytes[0]);
    }
    return h;
}

static void models_release(struct vec *v)
{
    for (size_t i = 0; i < v->n; i++) {
        struct model_text *t = vec_at(v, i);
        str_release(&t->text);
        model_blocks_release(&t->blocks);
    }
    vec_release(v);
}

/* False: no memory; what was published before stands. */
static bool models_build(struct worker *w, struct vec *out)
{
    size_t n = res_model_count(w->parts.res);
    bool ok = vec_reserve(out, n);
    for (size_t i = 0; ok && i < n; i++) {
        struct res_model *m = res_model_at(w->parts.res, i);
        struct model_text *t = vec_add(out);
        if (t) {
            t->id = res_info(m).id;
            model_json(w, m, &t->text);
        }
        ok = t && !t->text.bad && model_blocks_make(w, m, &t->blocks);
    }
    return ok;
}

static void swap_in(struct worker *w, struct vec *models)
{
    struct plan_devices devices;
    berth_err err = { 0 };
    bool planned = res_plan_devices(w->parts.res, NULL, false, &devices, &err) == BERTH_OK;
    pthread_mutex_lock(&w->lock);
    struct vec old = w->models;
    w->models = *models;
    if (planned)
        w->plan_devices = devices;
    pthread_mutex_unlock(&w->lock);
    models_release(&old);
}

static void publish_counters(struct worker *w)
{
    struct res_metrics metrics = res_metrics(w->parts.res);
    struct executor_info cache = engine_info(w->server->engine);
    pthread_mutex_lock(&w->lock);
    w->metrics = metrics;
    w->cache = cache;
    pthread_mutex_unlock(&w->lock);
}

/* ---- berth.residency ---- */

static void list_models(struct worker *w, struct str *out)
{
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < w->models.n; i++) {
        const struct model_text *t = vec_at(&w->models, i);
        str_adds(out, i ? "," : "");
        str_add(out, t->text.p, t->text.n);
        str_addf(out, ",\"blocks\":%zu}", model_blocks_count(&t->blocks));
    }
    pthread_mutex_unlock(&w->lock);
}

static void list_devices(struct worker *w, struct str *out);

void state_tell(struct worker *w, uint64_t *due)
{
    uint64_t now = worker_now(w);
    *due = UINT64_MAX;
    if (!w->untold)
        return;
    if (w->told && now - w->told < WORKER_TELL_NS) {
        *due = w->told + WORKER_TELL_NS;
        return;
    }
    struct str m = { 0 };
    if (!hub_berth_wanted(w->server)) {
        w->untold = NULL;
        return;
    }
    str_addf(&m,
             "{\"type\":\"berth.residency\",\"data\":{\"reason\":\"%s\",\"receipt\":%" PRIu64
             ",\"models\":[",
             w->untold, w->receipt_last);
    list_models(w, &m);
    str_adds(&m, "],\"devices\":[");
    list_devices(w, &m);
    str_adds(&m, "]}}");
    if (m.bad)
        worker_add(w, COUNT_DROPPED, 1);
    else
        hub_send_berth(w->server, false, &m);
    str_release(&m);
    w->untold = NULL;
    w->told = now;
}

void state_publish(struct worker *w, const char *reason, bool always)
{
    uint64_t due, now = signature(w);
    if (always || !w->job) /* between prompts; during one they can wait */
        publish_counters(w);
    if (now == w->signature && !always) {
        state_tell(w, &due);
        return;
    }
    struct vec models = { .elem = sizeof(struct model_text) };
    if (models_build(w, &models)) {
        swap_in(w, &models);
        w->signature = now;
    } else {
        models_release(&models);
    }
    w->published = worker_now(w);
    w->untold = reason; /* the latest reason stands for those that were held back */
    state_tell(w, &due);
}

void state_tick(struct worker *w)
{
    if (worker_now(w) - w->published >= WORKER_TELL_NS) {
        state_publish(w, "load", false);
        w->published = worker_now(w);
    }
}

void state_release(struct worker *w)
{
    models_release(&w->models);
}

/* ---- from any thread ---- */

void worker_models_json(struct server *s, struct str *out)
{
    str_adds(out, "{\"models\":[");
    list_models(s->worker, out);
    str_adds(out, "]}");
}

bool worker_model_json(struct server *s, uint64_t id, bool blocks, struct str *out)
{
    struct worker *w = s->worker;
    struct model_blocks copy = { 0 };
    const struct model_text *t = NULL;
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < w->models.n && !t; i++) {
        t = vec_at(&w->models, i);
        t = t->id == id ? t : NULL;
    }
    if (t) {
        str_add(out, t->text.p, t->text.n);
        out->bad |= blocks && !model_blocks_copy(&t->blocks, &copy);
        if (!blocks)
            str_addf(out, ",\"blocks\":%zu}", model_blocks_count(&t->blocks));
    }
    pthread_mutex_unlock(&w->lock);
    if (t && blocks) {
        str_adds(out, ",\"blocks\":");
        model_blocks_json(w, &copy, out);
        str_addc(out, '}');
    }
    model_blocks_release(&copy);
    return t;
}

/* What a device will not say is 0. */
static struct dev_info look(const struct device *d)
{
    struct dev_info i = { 0 };
    berth_err err = { 0 };
    if (dev_info(d, &i, &err))
        i = (struct dev_info) { .budget = d->budget };
    return i;
}

static void add_caps(struct str *out, uint32_t caps)
{
    const char *between = "";
    str_adds(out, ",\"can\":[");
#define CAP(id, bit, text)                                                                         \
    if (caps & BERTH_CAP_##id) {                                                                   \
        str_addf(out, "%s\"%s\"", between, text);                                                  \
        between = ",";                                                                             \
    }
    BERTH_CAP_MAP(CAP)
#undef CAP
    str_addc(out, ']');
}

/* As `berth devices --json`, and what is in use by tier. */
static void list_devices(struct worker *w, struct str *out)
{
    for (size_t k = 0; k < devset_count(w->parts.devices); k++) {
        const struct device *d = devset_at(w->parts.devices, k);
        struct dev_info i = look(d);
        json_text_pair(out, k ? ",{\"name\":" : "{\"name\":", d->name);
        json_text_pair(out, ",\"kind\":", d->phys->driver->name);
        json_text_pair(out, ",\"physical\":", d->phys->name);
        add_u64(out, ",\"hypothetical\":false,\"total\":", i.total);
        add_u64(out, ",\"free\":", i.free);
        add_u64(out, ",\"budget\":", i.budget);
        add_u64(out, ",\"in_use\":", i.stats.in_use);
        add_u64(out, ",\"idle\":", i.stats.idle);
        add_u64(out, ",\"peak\":", i.stats.peak);
        add_u64(out, ",\"pinned\":", i.stats.pinned);
        add_caps(out, d->phys->caps);
        str_adds(out, ",\"tiers\":");
        add_kinds(out, d);
        str_addc(out, '}');
    }
}

void worker_devices_json(struct server *s, struct str *out)
{
    add_u64(out, "{\"started\":", s->started_ms);
    str_adds(out, ",\"devices\":[");
    list_devices(s->worker, out);
    str_adds(out, "]}");
}

static void add_ledger(struct str *out, const struct device *d)
{
    size_t n = dev_ledger(d, NULL, 0, NULL), have;
    struct dev_ledger_row *row = calloc(n ? n : 1, sizeof *row);
    out->bad |= !row;
    have = row ? dev_ledger(d, row, n, NULL) : 0;
    n = have < n ? have : n; /* it may have grown or shrunk meanwhile */
    str_adds(out, ",\"owners\":[");
    for (size_t i = 0; i < n; i++) {
        str_addf(out, "%s{\"tier\":\"%s\"", i ? "," : "", dev_kind_name(row[i].kind));
        json_text_pair(out, ",\"owner\":", row[i].owner[0] ? row[i].owner : NULL);
        add_u64(out, ",\"bytes\":", row[i].bytes);
        add_u64(out, ",\"requested\":", row[i].requested);
        add_u64(out, ",\"count\":", row[i].count);
        str_addc(out, '}');
    }
    str_addc(out, ']');
    free(row);
}

void worker_memory_json(struct server *s, uint64_t after, size_t cap, struct str *out)
{
    struct worker *w = s->worker;
    struct journal *j = res_journal(w->parts.res);
    uint64_t last = journal_last(j);
    if (after == UINT64_MAX)
        after = last > cap ? last - cap : 0;
    str_adds(out, "{\"devices\":[");
    for (size_t k = 0; k < devset_count(w->parts.devices); k++) {
        const struct device *d = devset_at(w->parts.devices, k);
        struct dev_info i = look(d);
        json_text_pair(out, k ? ",{\"device\":" : "{\"device\":", d->name);
        add_u64(out, ",\"total\":", i.total);
        add_u64(out, ",\"free\":", i.free);
        add_u64(out, ",\"budget\":", i.budget);
        add_u64(out, ",\"retired\":", i.stats.retired);
        str_adds(out, ",\"tiers\":");
        add_kinds(out, d);
        add_ledger(out, d);
        str_addc(out, '}');
    }
    add_u64(out, "],\"last\":", last);
    str_adds(out, ",\"timeline\":");
    journal_timeline_json(j, after, cap, out);
    str_addc(out, '}');
}

/* The device that computes unless somebody says otherwise, in the words of PyTorch: what the
 * allocator has is total, what of it nobody uses is free. A logical device is as large as its
 * budget. */
void worker_stats_json(struct server *s, struct str *out)
{
    struct worker *w = s->worker;
    size_t n = devset_count(w->parts.devices), at = 0;
    for (size_t k = n; k-- > 0;) /* by name, as the loaders' default: RAM may stand in for a card */
        if (strcmp(devset_at(w->parts.devices, k)->name, "cpu") != 0)
            at = k;
    const struct device *d = devset_at(w->parts.devices, at);
    struct dev_info i = look(d);
    uint64_t held = i.stats.in_use + i.stats.idle, total = i.total, avail = i.free + i.stats.idle;
    if (i.budget < total)
        total = i.budget;
    uint64_t used = i.stats.in_use + i.stats.pinned;
    uint64_t left = total > used ? total - used : 0;
    avail = avail < left ? avail : left;
    size_t kind = strcspn(d->name, ":");
    char name[DEV_NAME_MAX + DEV_MODEL_MAX + 16];
    const char *model = d->phys->model; /* "cuda:0 NVIDIA H200 : native", ComfyUI's way */
    snprintf(name, sizeof name, "%s%s%s%s", d->name, *model ? " " : "", model,
             *model ? " : native" : "");
    json_text_pair(out, "[{\"name\":", name);
    str_adds(out, ",\"type\":");
    js_write_string(d->name, kind, out);
    str_addf(out, ",\"index\":%s", d->name[kind] ? d->name + kind + 1 : "null");
    add_u64(out, ",\"vram_total\":", total);
    add_u64(out, ",\"vram_free\":", avail);
    add_u64(out, ",\"torch_vram_total\":", d->name[kind] ? held : total);
    add_u64(out, ",\"torch_vram_free\":", d->name[kind] ? i.stats.idle : avail);
    str_adds(out, "}]");
}
