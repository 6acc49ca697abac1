/* state: what others may know of the worker.
 *
 * Models belong to the worker's thread, so it publishes a text about each: a new list is built
 * outside the lock and replaces the old one inside. A signature over everything in the texts,
 * except counters that only running work changes, tells whether there is anything to publish; with
 * a few models it costs less than a message. Devices, ledgers and the journal answer any thread. */
#include "server/worker_impl.h"

#include "base/hash.h"
#include "journal/journal.h"

/* ---- pieces ---- */

static void add_kinds(struct jsonout *j, const struct device *d)
{
    uint64_t bytes[DEV_KIND_COUNT];
    dev_by_kind(d, bytes);
    jo_open(j, "tiers", '{');
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        jo_u64(j, dev_kind_name((enum dev_kind)k), bytes[k]);
    jo_close(j, '}');
}

/* ---- models ---- */

static void add_anchors(struct jsonout *j, const struct res_model_info *i)
{
    jo_open(j, "anchors", '[');
    for (int a = 0; a < RES_ANCHOR_COUNT; a++)
        if (i->anchor[a]) {
            jo_open(j, NULL, '{');
            jo_str(j, "reason", res_anchor_text((enum res_anchor)a));
            jo_u64(j, "count", i->anchor[a]);
            jo_close(j, '}');
        }
    jo_close(j, ']');
}

static void add_devices_of(const struct worker *w, struct jsonout *j, const struct res_model *m)
{
    jo_open(j, "devices", '{');
    for (size_t d = 0; d < devset_count(w->parts.devices); d++)
        if (res_bytes_on(m, d))
            jo_u64(j, devset_at(w->parts.devices, d)->name, res_bytes_on(m, d));
    jo_close(j, '}');
}

static void add_plan(struct jsonout *j, const struct plan *p)
{
    struct str text = { 0 };
    plan_string(p, &text);
    jo_open(j, "plan", '{');
    jo_str(j, "allocation", str_c(&text));
    jo_str(j, "layout", plan_layout_name(p->layout));
    jo_str(j, "compute", p->devices.at[p->quotas.compute].name);
    jo_close(j, '}');
    j->out->bad |= text.bad;
    str_release(&text);
}

/* Milliseconds since 1970; the registry counts on the monotonic clock. */
static void add_last_use(const struct worker *w, struct jsonout *j, uint64_t at)
{
    uint64_t now = worker_now(w), wall = clock_wall_ns(w->clock);
    if (!at || at > now || now - at > wall)
        jo_str(j, "last_use", NULL);
    else
        jo_u64(j, "last_use", (wall - (now - at)) / 1000000);
}

/* All but "blocks" and the closing brace. */
static void model_json(const struct worker *w, struct res_model *m, struct str *out)
{
    struct res_model_info i = res_info(m);
    struct jsonout j = { .out = out };
    jo_open(&j, NULL, '{');
    jo_u64(&j, "id", i.id);
    jo_str(&j, "name", i.name);
    jo_str(&j, "role", i.role);
    jo_str(&j, "path", i.path);
    jo_str(&j, "part", i.part);
    jo_str(&j, "converted", i.converted != DT_NONE ? dtype_name(i.converted) : NULL);
    jo_str(&j, "state", res_state_name(i.state));
    jo_str(&j, "retention", res_retention_name(i.retention));
    add_anchors(&j, &i);
    jo_u64(&j, "handles", i.handles);
    jo_u64(&j, "uses", i.uses);
    jo_u64(&j, "bytes", i.bytes);
    jo_u64(&j, "resident", i.resident);
    add_devices_of(w, &j, m);
    jo_u64(&j, "demoted", i.demoted);
    jo_u64(&j, "patches", i.patches);
    jo_u64(&j, "loads", i.loads);
    jo_u64(&j, "read", i.read);
    jo_u64(&j, "moved", i.moved);
    jo_u64(&j, "attached", i.attached);
    add_plan(&j, res_plan(m));
    add_last_use(w, &j, i.last_use);
}

/* Where every block is; a millisecond for 2,000 of them. */
static void blocks_json(const struct worker *w, const struct res_model *m, struct str *out)
{
    const struct blocks *b = res_blocks(m);
    struct jsonout j = { .out = out };
    jo_open(&j, NULL, '[');
    for (size_t i = 0; i < b->n; i++) {
        struct res_block_place at = res_block_place(m, i);
        bool there = at.device != RES_NO_DEVICE;
        jo_open(&j, NULL, '{');
        jo_text(&j, "name", b->at[i].name, b->at[i].name_len);
        jo_u64(&j, "bytes", at.bytes);
        jo_str(&j, "device", there ? devset_at(w->parts.devices, at.device)->name : NULL);
        jo_str(&j, "planned", devset_at(w->parts.devices, at.home)->name);
        jo_close(&j, '}');
    }
    jo_close(&j, ']');
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
        str_release(&t->blocks);
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
            t->blocks_n = res_blocks(m)->n;
            model_json(w, m, &t->text);
            blocks_json(w, m, &t->blocks);
        }
        ok = t && !t->text.bad && !t->blocks.bad;
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

/* With its blocks, or how many there are. */
static void add_model(const struct model_text *t, bool blocks, struct jsonout *j)
{
    jo_raw(j, NULL, t->text.p, t->text.n);
    j->depth++; /* the object is open */
    if (blocks)
        jo_raw(j, "blocks", t->blocks.p, t->blocks.n);
    else
        jo_u64(j, "blocks", t->blocks_n);
    jo_close(j, '}');
}

static void list_models(struct worker *w, struct jsonout *j)
{
    jo_open(j, "models", '[');
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < w->models.n; i++)
        add_model(vec_at(&w->models, i), false, j);
    pthread_mutex_unlock(&w->lock);
    jo_close(j, ']');
}

static void list_devices(struct worker *w, struct jsonout *j);

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
    struct jsonout j = { .out = &m };
    if (!hub_berth_wanted(w->server)) {
        w->untold = NULL;
        return;
    }
    jo_open(&j, NULL, '{');
    jo_str(&j, "type", "berth.residency");
    jo_open(&j, "data", '{');
    jo_str(&j, "reason", w->untold);
    jo_u64(&j, "receipt", w->receipt_last);
    list_models(w, &j);
    list_devices(w, &j);
    jo_close(&j, '}');
    jo_close(&j, '}');
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
    for (size_t i = 0; i < RECEIPTS_MAX; i++)
        str_release(&w->receipt[i].text);
}

/* ---- what the last frees did, whoever asked for them ---- */

void receipts_add(struct worker *w, const struct res_receipt *x)
{
    struct receipt_text now = { .time = clock_wall_ns(w->clock) / 1000000 };
    if (!x->serial) /* nothing was freed, or only looked at */
        return;
    res_receipt_json(x, &now.text);
    if (now.text.bad) { /* it was told to who asked, or not even that */
        worker_add(w, COUNT_DROPPED, 1);
        str_release(&now.text);
        return;
    }
    pthread_mutex_lock(&w->lock);
    struct receipt_text *at = &w->receipt[w->receipts++ % RECEIPTS_MAX], old = *at;
    *at = now;
    pthread_mutex_unlock(&w->lock);
    str_release(&old.text);
    w->receipt_last = x->serial;
}

void worker_receipts_json(struct server *s, struct str *out)
{
    struct worker *w = s->worker;
    struct jsonout j = { .out = out };
    jo_open(&j, NULL, '{');
    jo_open(&j, "receipts", '[');
    pthread_mutex_lock(&w->lock);
    size_t n = w->receipts < RECEIPTS_MAX ? w->receipts : RECEIPTS_MAX;
    for (size_t i = 0; i < n; i++) {
        const struct receipt_text *x = &w->receipt[(w->receipts - 1 - i) % RECEIPTS_MAX];
        jo_open(&j, NULL, '{');
        jo_u64(&j, "time", x->time);
        jo_raw(&j, NULL, x->text.p + 1, x->text.n - 1); /* without its brace, which is open */
        j.depth--;
    }
    pthread_mutex_unlock(&w->lock);
    jo_close(&j, ']');
    jo_close(&j, '}');
}

/* ---- from any thread ---- */

void worker_models_json(struct server *s, struct str *out)
{
    struct jsonout j = { .out = out };
    jo_open(&j, NULL, '{');
    list_models(s->worker, &j);
    jo_close(&j, '}');
}

bool worker_model_json(struct server *s, uint64_t id, bool blocks, struct str *out)
{
    struct worker *w = s->worker;
    struct jsonout j = { .out = out };
    const struct model_text *t = NULL;
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < w->models.n && !t; i++) {
        t = vec_at(&w->models, i);
        t = t->id == id ? t : NULL;
    }
    if (t)
        add_model(t, blocks, &j);
    pthread_mutex_unlock(&w->lock);
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

static void add_caps(struct jsonout *j, uint32_t caps)
{
    jo_open(j, "can", '[');
#define CAP(id, bit, text)                                                                         \
    if (caps & BERTH_CAP_##id)                                                                     \
        jo_str(j, NULL, text);
    BERTH_CAP_MAP(CAP)
#undef CAP
    jo_close(j, ']');
}

/* As `berth devices --json`, and what is in use by tier. */
static void list_devices(struct worker *w, struct jsonout *j)
{
    jo_open(j, "devices", '[');
    for (size_t k = 0; k < devset_count(w->parts.devices); k++) {
        const struct device *d = devset_at(w->parts.devices, k);
        struct dev_info i = look(d);
        jo_open(j, NULL, '{');
        jo_str(j, "name", d->name);
        jo_str(j, "kind", d->phys->driver->name);
        jo_str(j, "physical", d->phys->name);
        jo_bool(j, "hypothetical", false);
        jo_u64(j, "total", i.total);
        jo_u64(j, "free", i.free);
        jo_u64(j, "budget", i.budget);
        jo_u64(j, "in_use", i.stats.in_use);
        jo_u64(j, "idle", i.stats.idle);
        jo_u64(j, "peak", i.stats.peak);
        jo_u64(j, "pinned", i.stats.pinned);
        add_caps(j, d->phys->caps);
        add_kinds(j, d);
        jo_close(j, '}');
    }
    jo_close(j, ']');
}

void worker_devices_json(struct server *s, struct str *out)
{
    struct jsonout j = { .out = out };
    jo_open(&j, NULL, '{');
    jo_u64(&j, "started", s->started_ms);
    list_devices(s->worker, &j);
    jo_close(&j, '}');
}

static void add_ledger(struct jsonout *j, const struct device *d)
{
    size_t n = dev_ledger(d, NULL, 0, NULL), have;
    struct dev_ledger_row *row = calloc(n ? n : 1, sizeof *row);
    j->out->bad |= !row;
    have = row ? dev_ledger(d, row, n, NULL) : 0;
    n = have < n ? have : n; /* it may have grown or shrunk meanwhile */
    jo_open(j, "owners", '[');
    for (size_t i = 0; i < n; i++) {
        jo_open(j, NULL, '{');
        jo_str(j, "tier", dev_kind_name(row[i].kind));
        jo_str(j, "owner", row[i].owner[0] ? row[i].owner : NULL);
        jo_u64(j, "bytes", row[i].bytes);
        jo_u64(j, "requested", row[i].requested);
        jo_u64(j, "count", row[i].count);
        jo_close(j, '}');
    }
    jo_close(j, ']');
    free(row);
}

void worker_memory_json(struct server *s, uint64_t after, size_t cap, struct str *out)
{
    struct worker *w = s->worker;
    struct journal *journal = res_journal(w->parts.res);
    struct jsonout j = { .out = out };
    uint64_t last = journal_last(journal);
    if (after == UINT64_MAX)
        after = last > cap ? last - cap : 0;
    jo_open(&j, NULL, '{');
    jo_open(&j, "devices", '[');
    for (size_t k = 0; k < devset_count(w->parts.devices); k++) {
        const struct device *d = devset_at(w->parts.devices, k);
        struct dev_info i = look(d);
        jo_open(&j, NULL, '{');
        jo_str(&j, "device", d->name);
        jo_u64(&j, "total", i.total);
        jo_u64(&j, "free", i.free);
        jo_u64(&j, "budget", i.budget);
        jo_u64(&j, "retired", i.stats.retired);
        add_kinds(&j, d);
        add_ledger(&j, d);
        jo_close(&j, '}');
    }
    jo_close(&j, ']');
    jo_u64(&j, "last", last);
    jo_raw(&j, "timeline", "", 0); /* its value: */
    journal_timeline_json(journal, after, cap, out);
    jo_close(&j, '}');
}

/* A device in the words of PyTorch: what the
 * allocator has is total, what of it nobody uses is free. A logical device is as large as its
 * budget. */
static void stats_of(const struct device *d, struct jsonout *j)
{
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
    jo_open(j, NULL, '{');
    jo_str(j, "name", name);
    jo_text(j, "type", d->name, kind);
    jo_fmt(j, "index", "%s", d->name[kind] ? d->name + kind + 1 : "null");
    jo_u64(j, "vram_total", total);
    jo_u64(j, "vram_free", avail);
    jo_u64(j, "torch_vram_total", d->name[kind] ? held : total);
    jo_u64(j, "torch_vram_free", d->name[kind] ? i.stats.idle : avail);
    jo_close(j, '}');
}

/* Cards, the loaders' default first; without one the cpu. By name: RAM may stand in for a card. */
void worker_stats_json(struct server *s, struct str *out)
{
    const struct devset *all = s->worker->parts.devices;
    const struct device *cpu = NULL;
    struct jsonout j = { .out = out };
    size_t cards = 0;
    jo_open(&j, NULL, '[');
    for (size_t k = 0; k < devset_count(all); k++) {
        const struct device *d = devset_at(all, k);
        bool card = strcmp(d->name, "cpu") != 0;
        if (card)
            stats_of(d, &j);
        else
            cpu = d;
        cards += card;
    }
    if (!cards && cpu)
        stats_of(cpu, &j);
    jo_close(&j, ']');
}
