/* Frees and prompts. What a free will do is written into the naive model before the registry does
 * it (the reset callback needs it half way), and taken back when the free fails. */
#include "support/res_world_impl.h"

#include <stdlib.h>

struct forecast {
    struct naive before[MODELS_MAX];
    bool goes[MODELS_MAX], busy[MODELS_MAX];
    bool forgotten
        [MODELS_MAX]; /* has no bytes, and is of those that would go: anchors let go of it */
    bool anchors;     /* those that stay are anchored */
    uint64_t resident[MODELS_MAX];
    bool refused; /* nothing happens */
};

/* ---- what is meant ---- */

static bool named(const struct naive *n, const struct res_free_args *a)
{
    char id[24];
    snprintf(id, sizeof id, "%" PRIu64, n->id);
    for (size_t i = 0; i < a->models_n; i++)
        if (strcmp(a->models[i], id) == 0 ||
            strcmp(a->models[i], identities[n->identity].name) == 0)
            return true;
    return a->models_n == 0;
}

static bool on_devices(const struct naive *n, const struct res_free_args *a)
{
    for (size_t i = 0; i < a->devices_n; i++)
        for (size_t b = 0; b < n->blocks; b++)
            if (n->at[b].dev && n->at[b].bytes && strcmp(n->at[b].dev->name, a->devices[i]) == 0)
                return true;
    return a->devices_n == 0;
}

static bool selected(const struct naive *n, const struct res_free_args *a)
{
    return n->exists && named(n, a) && on_devices(n, a);
}

/* The table of architecture.md section 4, with the rows the header adds to it. */
static bool table_says_go(const struct world *w, const struct naive *n,
                          const struct res_free_args *a, bool some_eject)
{
    if (a->force)
        return true;
    if (a->models_n || a->automatic)
        return n->retention == RES_EJECT || (n->retention == RES_AUTO && !a->automatic);
    if (some_eject)
        return n->retention == RES_EJECT;
    return n->retention == RES_AUTO || w->when_unflagged == RES_UNFLAGGED_UNLOAD;
}

static void forecast(struct world *w, const struct res_free_args *a, struct forecast *f)
{
    bool some_eject = false, weights = !a->tiers || a->tiers & RES_TIER_WEIGHTS;
    bool unload = a->unload_models || a->free_memory || a->force || a->automatic || a->models_n;
    bool stays = false, some_go = false;
    memset(f, 0, sizeof *f);
    memcpy(f->before, w->model, sizeof f->before);
    for (size_t i = 0; i < MODELS_MAX; i++) {
        const struct naive *n = &w->model[i];
        some_eject =
            some_eject || (selected(n, a) && n->state == RES_RESIDENT && n->retention == RES_EJECT);
    }
    /* else: nothing happens */
    f->anchors = unload && (!a->automatic || some_eject || a->force || a->free_memory);
    for (size_t i = 0; i < MODELS_MAX; i++) {
        struct naive *n = &w->model[i];
        bool go = unload && weights && selected(n, a) && table_says_go(w, n, a, some_eject);
        bool here = n->state == RES_RESIDENT;
        for (size_t b = 0; b < n->blocks; b++)
            f->resident[i] += here ? n->at[b].bytes : 0;
        f->goes[i] = go && here && !n->uses;
        f->busy[i] = go && here && n->uses;
        f->forgotten[i] = go && !here;
        stays |= here && selected(n, a);
        some_go |= f->goes[i];
    }
    /* Models were named and all of them stay: nothing is freed at all. */
    f->refused = a->models_n && weights && stays && !some_go;
    if (f->refused) {
        f->anchors = false;
        memset(f->forgotten, 0, sizeof f->forgotten);
    }
}

/* Up to the reset: those that go are without bytes, those that stay have their anchors. One that is
 * in use is held by that, and goes with it when nobody else holds it. */
static void apply_unload(struct world *w, const struct forecast *f)
{
    for (size_t i = 0; i < MODELS_MAX; i++) {
        struct naive *n = &w->model[i];
        if (f->goes[i]) {
            naive_eject(n);
            naive_gone(n);
        } else if (f->anchors && !f->busy[i] && n->exists && n->state == RES_RESIDENT) {
            n->anchor[RES_ANCHOR_SURVIVED] |= n->retention == RES_AUTO;
            n->anchor[RES_ANCHOR_MARKED] |= n->retention == RES_EJECT;
        }
    }
}

/* Behind it: what went is held by the program's handles and anchors, not by the registry's own. */
static void apply_retire(struct world *w, const struct forecast *f)
{
    for (size_t i = 0; i < MODELS_MAX; i++) {
        struct naive *n = &w->model[i];
        if (!(f->goes[i] || f->forgotten[i]) || !n->exists)
            continue;
        n->anchor[RES_ANCHOR_SURVIVED] = 0;
        if (!naive_handles(n))
            n->anchor[RES_ANCHOR_KEEP] = 0;
        naive_gone(n);
    }
}

void drop_cache(struct world *w)
{
    for (size_t i = 0; i < MODELS_MAX; i++) {
        struct naive *n = &w->model[i];
        while (n->exists && n->cached) {
            n->cached--;
            res_unref(n->m);
            naive_gone(n);
        }
    }
}

/* ---- the receipt ---- */

static bool check_line(struct world *w, const struct forecast *f, const struct res_receipt_model *x)
{
    size_t i = 0;
    while (i < MODELS_MAX && !(f->before[i].exists && f->before[i].id == x->id))
        i++;
    CHECK(w, i < MODELS_MAX, "the receipt has a model #%" PRIu64 " that was not there", x->id);
    const char *name = identities[f->before[i].identity].name;
    CHECK(w, strcmp(name, x->name) == 0 && x->retention == f->before[i].retention && x->why[0],
          "receipt: #%" PRIu64 " is %s", x->id, x->name);
    CHECK(w, x->bytes == f->resident[i],
          "receipt: %s#%" PRIu64 " %" PRIu64 " bytes, it had %" PRIu64, name, x->id, x->bytes,
          f->resident[i]);
    CHECK(w, x->read == 0 && x->moved == 0, "receipt: %s read or moved", name);
    enum res_verdict want = f->goes[i] ? RES_EJECTED_BY_FREE : f->busy[i] ? RES_BUSY : RES_KEPT;
    CHECK(w, want == RES_EJECTED_BY_FREE || w->model[i].exists,
          "receipt: %s#%" PRIu64 " was to stay and is gone", name, x->id);
    CHECK(w, x->verdict == want, "receipt: %s#%" PRIu64 " has verdict %d (%s), should have %d",
          name, x->id, (int)x->verdict, x->why, (int)want);
    return true;
}

static bool check_receipt(struct world *w, const struct forecast *f, const struct res_receipt *x,
                          const struct res_free_args *a)
{
    size_t resident = 0;
    for (size_t i = 0; i < MODELS_MAX; i++)
        resident += f->before[i].exists && f->before[i].state == RES_RESIDENT;
    CHECK(w, x->models == resident, "receipt of %zu models, %zu were resident", x->models,
          resident);
    for (size_t k = 0; k < x->models; k++)
        if (!check_line(w, f, &x->model[k]))
            return false;
    CHECK(w, x->violations == 0, "receipt: retention violated, model %s in step %s",
          x->violation[0].of->name, x->violation[0].step);
    CHECK(w,
          x->free_memory == (a->free_memory && !f->refused) && x->force == a->force &&
              x->automatic == a->automatic && x->dry_run == a->dry_run,
          "receipt: flags");
    CHECK(w, a->dry_run || x->serial > w->last_serial, "receipt: serial %" PRIu64, x->serial);
    w->last_serial = a->dry_run ? w->last_serial : x->serial;
    for (size_t d = 0; d < x->devices; d++) {
        struct dev_ledger_row row[64];
        uint64_t by_kind[DEV_KIND_COUNT] = { 0 };
        size_t at;
        berth_err err = { 0 };
        CHECK(w, !devset_find(w->set, x->device[d].name, strlen(x->device[d].name), &at, &err),
              "receipt: device %s", x->device[d].name);
        size_t n = dev_ledger(devset_at(w->set, at), row, ARRAY_LEN(row), NULL);
        for (size_t k = 0; k < n && k < ARRAY_LEN(row); k++)
            by_kind[row[k].kind] += row[k].bytes;
        for (size_t k = 0; k < DEV_KIND_COUNT; k++)
            CHECK(w, by_kind[k] == (a->dry_run ? x->device[d].before[k] : x->device[d].after[k]),
                  "receipt: %s of %s", dev_kind_name((enum dev_kind)k), x->device[d].name);
    }
    struct str text = { 0 };
    res_receipt_json(x, &text);
    res_receipt_text(x, &text);
    bool bad = text.bad || !text.n;
    str_release(&text);
    CHECK(w, !bad, "a receipt without text");
    return true;
}

/* ---- one free, however it was asked for ---- */

static void begin_free(struct world *w, const struct res_free_args *a, struct forecast *f)
{
    forecast(w, a, f);
    for (size_t i = 0; i < MODELS_MAX; i++)
        if (f->goes[i] || f->busy[i])
            say(w, " %s#%" PRIu64 "%s", identities[w->model[i].identity].name, w->model[i].id,
                f->busy[i] ? " is busy" : " goes");
    if (!a->dry_run)
        apply_unload(w, f);
}

/* x may be NULL. ran: resets is the count before it. */
static bool end_free(struct world *w, const struct res_free_args *a, const struct forecast *f,
                     const struct res_receipt *x, unsigned resets)
{
    if (!a->dry_run)
        apply_retire(w, f);
    if (w->failed)
        return false;
    w->count.frees += !a->dry_run;
    CHECK(w, w->resets - resets == (a->free_memory && !a->dry_run && !f->refused), "%u resets",
          w->resets - resets);
    CHECK(w, res_metrics(w->r).retention_violations == 0, "retention was violated");
    return (!x || check_receipt(w, f, x, a)) && naive_compare(w, NOBODY, 0);
}

static bool failed_free(struct world *w, const struct forecast *f, berth_status s,
                        const berth_err *err, unsigned resets, bool bad_selector)
{
    static const berth_status codes[] = { BERTH_ENOTFOUND };
    memcpy(w->model, f->before, sizeof w->model);
    CHECK(w, w->resets == resets, "a free that failed reset the executor");
    return error_ok(w, err, s, codes, bad_selector) && naive_compare(w, NOBODY, 0);
}

/* The dry run says of every model and every device what the free then did. A device that was told
 * to fail may not have given everything back. */
static bool check_foretold(struct world *w, const struct res_receipt *said,
                           const struct res_receipt *x)
{
    CHECK(w, said->models == x->models && said->devices == x->devices,
          "the dry run has %zu models, the free %zu", said->models, x->models);
    for (size_t i = 0; i < x->models; i++) {
        const struct res_receipt_model *a = &said->model[i], *b = &x->model[i];
        CHECK(w,
              a->id == b->id && a->verdict == b->verdict && a->bytes == b->bytes &&
                  a->retention == b->retention && strcmp(a->why, b->why) == 0,
              "%s#%" PRIu64 ": the dry run says %s (%s), the free %s (%s)", b->name, b->id,
              res_verdict_name(a->verdict), a->why, res_verdict_name(b->verdict), b->why);
    }
    for (size_t d = 0; d < x->devices; d++)
        for (int k = 0; k < DEV_KIND_COUNT; k++)
            CHECK(w,
                  said->device[d].after[k] == x->device[d].after[k] ||
                      (w->fault && k == DEV_POOL_IDLE),
                  "%s of %s: the dry run says %" PRIu64 ", the free left %" PRIu64,
                  dev_kind_name((enum dev_kind)k), x->device[d].name, said->device[d].after[k],
                  x->device[d].after[k]);
    return true;
}

bool do_free(struct world *w)
{
    static struct forecast f; /* large */
    static const char *const nobody = "nobody", *const nowhere = "cuda:9";
    size_t flags = draw(w, 16), tiers = draw(w, 6), select = draw(w, 8), i = draw(w, MODELS_MAX);
    char id[24];
    const char *model, *device = devset_at(w->set, draw(w, w->devices))->name;
    struct res_free_args a = { .unload_models = flags & 1,
                               .free_memory = flags & 2,
                               .force = flags >= 14,
                               .automatic = flags == 4 || flags == 6,
                               .dry_run = draw(w, 6) == 0,
                               .wait = draw(w, 2),
                               .models = &model,
                               .devices = &device,
                               .reason = "test" };
    struct res_receipt x, said = { 0 };
    berth_err err = { 0 };
    unsigned resets = w->resets;
    snprintf(id, sizeof id, "%" PRIu64, w->model[i].id);
    model = draw(w, 2) ? id : identities[w->model[i].identity].name;
    if (tiers == 0)
        a.tiers = RES_TIER_IDLE;
    if (tiers == 1)
        a.tiers = RES_TIER_WEIGHTS | RES_TIER_PINNED;
    if (select & 1 && w->model[i].exists)
        a.models_n = 1;
    if (select & 2)
        a.devices_n = 1;
    bool bad = select == 4 && draw(w, 4) == 0;
    if (bad && draw(w, 2)) {
        a.models_n = 1;
        model = nobody;
    } else if (bad) {
        a.devices_n = 1;
        device = nowhere;
    }
    say(w, "free%s%s%s%s%s", a.unload_models ? " unload" : "", a.free_memory ? " memory" : "",
        a.force ? " force" : "", a.automatic ? " automatic" : "", a.dry_run ? " dry" : "");
    say(w, " tiers %u%s%s%s%s:", a.tiers, a.models_n ? " model " : "", a.models_n ? model : "",
        a.devices_n ? " device " : "", a.devices_n ? device : "");
    struct res_free_args dry = a;
    dry.dry_run = dry.wait = true;
    if (!bad && !a.dry_run && res_free(w->r, &dry, &said, &err))
        return world_fail(w, __FILE__, __LINE__, "dry run: %s", err.msg);
    fault_arm(w, false);
    begin_free(w, &a, &f);
    berth_status s = res_free(w->r, &a, &x, &err);
    fault_off(w);
    bool ok = s ? failed_free(w, &f, s, &err, resets, bad) : end_free(w, &a, &f, &x, resets);
    if (ok && !s && bad)
        ok = world_fail(w, __FILE__, __LINE__, "a selector that names nothing");
    if (ok && !s && !a.dry_run)
        ok = check_foretold(w, &said, &x);
    res_receipt_release(&said);
    res_receipt_release(&x);
    return ok;
}

/* ---- prompts ---- */

static struct res_free_args requested_args(const struct world *w)
{
    return (struct res_free_args) { .unload_models = w->requested & 1,
                                    .free_memory = w->requested & 2,
                                    .force = w->requested & 4 };
}

/* automatic: an eject model was used and auto cleanup is on. */
static bool settle(struct world *w, bool end_of_prompt, bool automatic)
{
    static struct forecast f;
    struct res_free_args a = requested_args(w);
    bool runs = w->requested || automatic;
    struct res_receipt x;
    berth_err err = { 0 };
    unsigned resets = w->resets;
    if (!w->requested)
        a.automatic = true;
    fault_arm(w, false);
    if (runs)
        begin_free(w, &a, &f);
    berth_status s = end_of_prompt ? res_prompt_end(w->r, &x, &err) : res_settle(w->r, &x, &err);
    fault_off(w);
    bool ok;
    if (s) {
        if (!runs)
            memcpy(f.before, w->model, sizeof f.before);
        ok = failed_free(w, &f, s, &err, resets, false);
        CHECK(w, !w->requested || res_has_requests(w->r), "a request was forgotten");
    } else if (runs) {
        w->requested = 0;
        ok = end_free(w, &a, &f, &x, resets);
    } else {
        CHECK(w, x.serial == 0 && x.models == 0, "a free that nobody asked for");
        ok = naive_compare(w, NOBODY, 0);
    }
    if (ok && res_has_requests(w->r) != (w->requested != 0))
        ok = world_fail(w, __FILE__, __LINE__, "requested: %d", res_has_requests(w->r));
    res_receipt_release(&x);
    return ok;
}

bool do_prompt(struct world *w)
{
    bool used = false;
    if (!w->prompt) {
        say(w, "prompt begins");
        res_prompt_begin(w->r);
        w->prompt = true;
        for (size_t i = 0; i < MODELS_MAX; i++)
            w->model[i].used_in_prompt = false;
        return naive_compare(w, NOBODY, 0);
    }
    say(w, "prompt ends:");
    for (size_t i = 0; i < MODELS_MAX; i++) {
        struct naive *n = &w->model[i];
        used = used || (n->exists && n->used_in_prompt && n->retention == RES_EJECT &&
                        n->state == RES_RESIDENT);
        n->used_in_prompt = false;
    }
    w->prompt = false;
    return settle(w, true, used && w->auto_cleanup);
}

bool do_settle(struct world *w)
{
    if (w->prompt)
        return true;
    say(w, "settle:");
    return settle(w, false, false);
}

bool do_request(struct world *w)
{
    unsigned bits = 1 + (unsigned)draw(w, 7);
    bool force = bits & 4 && draw(w, 2);
    bits = (bits & 3u) | (force ? 4u : 0u);
    bits = bits ? bits : 1;
    say(w, "request %u", bits);
    res_request_free(w->r, bits & 1, bits & 2, bits & 4);
    w->requested |= bits;
    CHECK(w, res_has_requests(w->r), "a request was forgotten");
    return naive_compare(w, NOBODY, 0);
}

bool do_cleanup(struct world *w)
{
    static struct forecast f;
    bool force = draw(w, 2), waits = w->prompt; /* not forced: for ever, nothing is asked for */
    struct res_free_args a = { .unload_models = true, .free_memory = true };
    struct str summary = { 0 };
    berth_err err = { 0 };
    unsigned resets = w->resets;
    say(w, "full cleanup%s:", force ? " force" : "");
    if (!waits)
        begin_free(w, &a, &f);
    berth_status s = res_force_full_cleanup(w->r, "button", force, &summary, &err);
    bool said = summary.n > 0;
    str_release(&summary);
    CHECK(w, !s && said, "full cleanup: %s", err.msg);
    if (!waits) {
        w->last_serial++;
        return end_free(w, &a, &f, NULL, resets);
    }
    w->requested |= force ? 3 : 0;
    CHECK(w, res_has_requests(w->r) == (w->requested != 0), "full cleanup in a prompt");
    return naive_compare(w, NOBODY, 0);
}
