/* metrics: numbers for Prometheus, text format 0.0.4. Every family has HELP and TYPE, once. */
#include "device/cpu/meminfo.h"
#include "server/worker_impl.h"

#include <inttypes.h>

static void family(struct str *out, const char *name, const char *type, const char *help)
{
    str_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct str *out, const char *name, const char *type, const char *help, uint64_t v)
{
    family(out, name, type, help);
    str_addf(out, "%s %" PRIu64 "\n", name, v);
}

static uint64_t counted(struct worker *w, enum worker_count c)
{
    return atomic_load_explicit(&w->count[c], memory_order_relaxed);
}

static void add_prompts(struct worker *w, struct str *out)
{
    static const struct {
        enum worker_count count;
        const char *outcome;
    } row[] = {
        { COUNT_SUCCESS, "success" },
        { COUNT_ERROR, "error" },
        { COUNT_INTERRUPTED, "interrupted" },
        { COUNT_PARKED, "parked" },
    };
    family(out, "berth_prompts_total", "counter", "Prompts that ended, by outcome.");
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        str_addf(out, "berth_prompts_total{outcome=\"%s\"} %" PRIu64 "\n", row[i].outcome,
                 counted(w, row[i].count));
    family(out, "berth_nodes_total", "counter", "Nodes of prompts, by how they got their outputs.");
    str_addf(out, "berth_nodes_total{how=\"executed\"} %" PRIu64 "\n",
             counted(w, COUNT_NODES_EXECUTED));
    str_addf(out, "berth_nodes_total{how=\"cached\"} %" PRIu64 "\n",
             counted(w, COUNT_NODES_CACHED));
}

static void add_residency(struct str *out, const struct res_metrics *m)
{
    const struct {
        const char *name, *help;
        uint64_t v;
    } row[] = {
        { "berth_model_loads_total", "Loads of models.", m->loads },
        { "berth_model_load_failures_total", "Loads that failed.", m->load_failures },
        { "berth_model_attaches_total", "Resident models found again by their key.", m->attaches },
        { "berth_model_ejects_total", "Models that left memory.", m->ejects },
        { "berth_frees_total", "Frees, asked for or automatic.", m->frees },
        { "berth_block_demotions_total", "Blocks moved off a device to make room.", m->demotions },
        { "berth_block_demoted_bytes_total", "Bytes of such blocks.", m->demoted_bytes },
        { "berth_weight_moved_bytes_total", "Weight bytes copied between memories.",
          m->moved_bytes },
        { "berth_weight_read_bytes_total", "Weight bytes that came from files, as they are held.",
          m->read_bytes },
        { "berth_executor_resets_total", "Resets of the node cache.", m->resets },
        { "berth_pressure_resets_total", "Resets because host memory ran short.",
          m->pressure_resets },
        { "berth_retention_violations_total", "Retained models that did not stay in place.",
          m->retention_violations },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        one(out, row[i].name, "counter", row[i].help, row[i].v);
}

static void add_cache(struct str *out, const struct executor_info *c)
{
    one(out, "berth_cache_entries", "gauge", "Cached outputs of nodes.", c->entries);
    one(out, "berth_cache_bytes", "gauge", "Host bytes of cached outputs, roughly.", c->bytes);
    one(out, "berth_cache_hits_total", "counter", "Node outputs found in the cache.", c->hits);
    one(out, "berth_cache_misses_total", "counter", "Node outputs that were not there.", c->misses);
}

/* Names of devices have nothing that a label would have to escape. */
static void add_devices(struct worker *w, struct str *out)
{
    size_t n = devset_count(w->parts.devices);
    family(out, "berth_device_bytes", "gauge", "Bytes held on a device, by tier.");
    for (size_t i = 0; i < n; i++) {
        const struct device *d = devset_at(w->parts.devices, i);
        uint64_t bytes[DEV_KIND_COUNT];
        dev_by_kind(d, bytes);
        for (int k = 0; k < DEV_KIND_COUNT; k++)
            str_addf(out, "berth_device_bytes{device=\"%s\",tier=\"%s\"} %" PRIu64 "\n", d->name,
                     dev_kind_name((enum dev_kind)k), bytes[k]);
    }
    family(out, "berth_device_budget_bytes", "gauge", "The most a device may hold.");
    for (size_t i = 0; i < n; i++) {
        const struct device *d = devset_at(w->parts.devices, i);
        str_addf(out, "berth_device_budget_bytes{device=\"%s\"} %" PRIu64 "\n", d->name, d->budget);
    }
}

void worker_metrics_text(struct server *s, struct str *out)
{
    struct worker *w = s->worker;
    pthread_mutex_lock(&w->lock);
    struct res_metrics metrics = w->metrics;
    struct executor_info cache = w->cache;
    size_t models = w->models.n;
    pthread_mutex_unlock(&w->lock);
    family(out, "berth_info", "gauge", "Which Berth this is.");
    str_addf(out, "berth_info{version=\"%s\"} 1\n", berth_version());
    family(out, "berth_uptime_seconds", "gauge", "Seconds since the server started.");
    str_addf(out, "berth_uptime_seconds %.3f\n", (double)(worker_now(w) - s->started_ns) * 1e-9);
    one(out, "berth_resident_memory_bytes", "gauge", "Resident memory of the process.",
        meminfo_rss());
    one(out, "berth_http_requests_total", "counter", "HTTP requests, malformed ones too.",
        s->http_requests);
    one(out, "berth_websocket_clients", "gauge", "Open WebSockets.", hub_count(s));
    one(out, "berth_queue_remaining", "gauge", "Prompts pending or running.",
        store_remaining(s->store));
    one(out, "berth_history_entries", "gauge", "Entries of the history.",
        store_history_count(s->store));
    add_prompts(w, out);
    one(out, "berth_messages_dropped_total", "counter", "Messages that memory did not suffice for.",
        counted(w, COUNT_DROPPED));
    add_cache(out, &cache);
    one(out, "berth_models", "gauge", "Models the registry knows.", models);
    add_residency(out, &metrics);
    add_devices(w, out);
}
