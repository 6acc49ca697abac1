/* keys: what makes two opens the same model, and the devices and plan a model gets. */
#include "residency/residency_impl.h"

#include "base/hash.h"
#include "plan/alloc.h"

#include <inttypes.h>

/* Strings from outside with their length in front: no text can look like two. */
static void add_text(struct str *s, const char *name, const char *text)
{
    text = text ? text : "";
    str_addf(s, "|%s=%zu:%s", name, strlen(text), text);
}

/* The device that computes, as far as the texts say: one spelling for one device. text (may be
 * NULL): gets the one spelling of the allocation string. */
static berth_status compute_of(const struct residency *r, const struct plan_args *plan,
                               const char **out, struct str *text, berth_err *err)
{
    struct alloc *a = plan->alloc && *plan->alloc ? malloc(sizeof *a) : NULL;
    const char *name = plan->compute && *plan->compute ? plan->compute : NULL;
    berth_status s = BERTH_OK;
    size_t i = res_default_compute(r);
    if (plan->alloc && *plan->alloc) {
        if (!a)
            return err_set(err, BERTH_ENOMEM, "an allocation string");
        s = alloc_parse(plan->alloc, strlen(plan->alloc), a, err);
        if (!s && a->compute[0])
            name = a->compute;
        if (!s && text)
            alloc_canonical(a, text);
    }
    if (!s && name && devset_find(r->devices, name, strlen(name), &i, err))
        s = err_add(err, "compute device");
    if (!s)
        *out = res_device(r, i)->name;
    free(a);
    return s;
}

berth_status res_key_make(const struct residency *r, const struct weights *w, const char *part,
                          const char *options, bool high_precision, const struct plan_args *plan,
                          struct res_key *out, berth_err *err)
{
    bool is_auto = !plan->alloc || !*plan->alloc;
    const char *compute;
    struct str s = { 0 }, alloc = { 0 };
    *out = (struct res_key) { 0 };
    if (compute_of(r, plan, &compute, &alloc, err)) {
        str_release(&alloc);
        return err->code;
    }
    for (size_t i = 0; i < weights_shards(w); i++) {
        struct file_id id = file_map_id(weights_shard(w, i));
        str_addf(&s, "%s%" PRIu64 ".%" PRIu64 ".%" PRIu64 ".%" PRIu64, i ? "," : "file=", id.dev,
                 id.inode, id.size, id.mtime_ns);
    }
    add_text(&s, "part", part);
    add_text(&s, "options", options);
    if (weights_converted(w) != DT_NONE) /* of a file that has the type it is the same model */
        add_text(&s, "dtype", dtype_name(weights_converted(w)));
    if (high_precision)
        str_adds(&s, "|high_precision");
    out->base_len = s.n;
    add_text(&s, "compute", compute);
    add_text(&s, "alloc", str_c(&alloc));
    str_addf(&s, "|layout=%s", plan_layout_name(plan->layout));
    if (is_auto) /* a string says itself what stays free */
        str_addf(&s, "|reserve=%" PRIu64, plan->reserve);
    s.bad |= alloc.bad;
    str_release(&alloc);
    out->text = str_take(&s);
    if (!out->text) {
        str_release(&s);
        return err_set(err, BERTH_ENOMEM, "the key of '%s'", weights_path(w));
    }
    out->base = hash_xxh64(out->text, out->base_len, 0);
    out->full = hash_xxh64(out->text, strlen(out->text), 0);
    return BERTH_OK;
}

bool res_key_is(const struct res_model *m, const struct res_key *k, bool base_only)
{
    if (m->base_len != k->base_len || m->base_key != k->base)
        return false;
    if (base_only)
        return memcmp(m->key_text, k->text, k->base_len) == 0;
    return m->key == k->full && strcmp(m->key_text, k->text) == 0;
}

/* ---- plans over the registry's devices ---- */

static uint64_t reserve_of(const struct residency *r, const struct plan_args *args)
{
    if (args->reserve != UINT64_MAX)
        return args->reserve;
    return r->cfg.reserve ? r->cfg.reserve : UINT64_MAX;
}

/* Only an automatic plan that spills over to one of several donors asks which is faster. */
static bool wants_speeds(const struct residency *r, const struct blocks *b, size_t compute,
                         const struct plan_args *args)
{
    uint64_t budget = res_device(r, compute)->budget, reserve = reserve_of(r, args);
    if ((args->alloc && *args->alloc) || r->n_devices < 3)
        return false;
    if (reserve == UINT64_MAX)
        reserve = plan_reserve_default(budget, compute == r->host);
    return reserve >= budget || b->bytes > budget - reserve;
}

/* Memory of device d that no load may push out: of keep models and models in use, but the one that
 * these blocks are of. */
static uint64_t settled_on(const struct residency *r, size_t d, const struct blocks *but)
{
    uint64_t sum = 0;
    for (const struct res_model *m = r->first; m; m = m->next) {
        if (&m->blocks == but || (m->retention != RES_KEEP && !m->uses) || !m->bytes_on[d])
            continue;
        for (size_t i = 0; i < m->blocks.n; i++)
            if (m->block[i].device == d)
                sum += m->block[i].host.ptr
                           ? m->block[i].host.held
                           : (m->block[i].span + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    }
    return sum;
}

/* A string is what somebody wants, whoever is there. An automatic plan goes around those who cannot
 * be pushed out; where that leaves too little it is made as if they were not there, because the load
 * may be allowed to push them out, or they are gone by then. */
static berth_status plan_around_others(const struct residency *r, const struct blocks *b,
                                       const struct plan_devices *devices,
                                       const struct plan_args *args, struct plan *out,
                                       berth_err *err)
{
    struct plan_devices *left = args->alloc && *args->alloc ? NULL : malloc(sizeof *left);
    bool settled = false;
    if (left)
        *left = *devices;
    for (size_t d = 0; left && d < devices->n; d++) {
        uint64_t taken = settled_on(r, d, b), *budget = &left->at[d].budget;
        *budget -= taken < *budget ? taken : *budget;
        settled |= taken > 0;
    }
    berth_status s = BERTH_ELIMIT;
    if (settled)
        s = plan_from_args(b, left, args, out, err);
    free(left);
    return s == BERTH_ELIMIT ? plan_from_args(b, devices, args, out, err) : s;
}

/* Of a plan that was made without them: who applies it measures, and may then prefer other donors. */
static void note_unmeasured(struct plan *p)
{
    bool all = true;
    for (size_t i = 0; i < p->devices.n; i++)
        all &= i == p->quotas.compute || p->devices.at[i].speed > 0;
    if (!all)
        quotas_note(&p->quotas, true,
                    "links are not measured while a prompt runs: the donor may differ");
}

berth_status res_make_plan(struct residency *r, const struct blocks *b,
                           const struct plan_args *args, bool measure, struct plan *out,
                           berth_err *err)
{
    struct plan_args a = *args;
    size_t i;
    *out = (struct plan) { 0 };
    struct plan_devices *devices = malloc(sizeof *devices);
    if (!devices)
        return err_set(err, BERTH_ENOMEM, "the devices of a plan");
    berth_status s = compute_of(r, args, &a.compute, NULL, err);
    if (!s)
        s = devset_find(r->devices, a.compute, strlen(a.compute), &i, err);
    a.reserve = reserve_of(r, args);
    bool speeds = !s && wants_speeds(r, b, i, args);
    if (!s)
        s = res_plan_devices(r, a.compute, measure && speeds, devices, err);
    if (!s)
        s = plan_around_others(r, b, devices, &a, out, err);
    if (!s && speeds && !measure)
        note_unmeasured(out);
    free(devices);
    return s;
}
