/* The operations on models: each one is drawn, performed, told to the naive model, compared. */
#include "support/oom.h"
#include "support/res_world_impl.h"

/* ---- faults ---- */

void fault_arm(struct world *w, bool patches)
{
    struct device *d = devset_at(w->set, draw(w, w->devices));
    size_t kind = draw(w, 12), k = draw(w, 24), call = draw(w, NULL_CALL_COUNT);
    w->fault = false;
    if (kind == 0 && strcmp(d->phys->driver->name, "null") == 0) {
        null_fail(d, (enum null_call)call, 1 + k % 6);
        say(w, " [%s fails call kind %zu after %zu]", d->name, call, k % 6);
        w->fault = true;
    } else if (kind == 1 && !w->pool) {
        say(w, " [allocation %zu fails]", k);
        w->fault = true;
        oom_once((long)k);
    } else if (kind == 2 && patches && !w->pool) {
        w->terms_fail = 1 + (unsigned)k % 4;
        say(w, " [patch terms %u fail]", w->terms_fail);
        w->fault = true;
    }
}

void fault_off(struct world *w)
{
    oom_off();
    w->terms_fail = 0;
    for (size_t i = 0; i < w->devices; i++) {
        struct device *d = devset_at(w->set, i);
        for (int c = 0; strcmp(d->phys->driver->name, "null") == 0 && c < NULL_CALL_COUNT; c++)
            null_fail(d, (enum null_call)c, 0);
    }
}

bool error_ok(struct world *w, const berth_err *err, berth_status s, const berth_status *codes,
              size_t n)
{
    static const berth_status by_fault[] = { BERTH_ENOMEM, BERTH_ENODEVMEM, BERTH_EDEVICE,
                                             BERTH_EFORMAT };
    bool known = false;
    say(w, " -> %s '%s'", berth_status_name(s), err->msg);
    CHECK(w, err->code == s && err->msg[0], "%s, but the error says %s '%s'", berth_status_name(s),
          berth_status_name(err->code), err->msg);
    for (size_t i = 0; i < n; i++)
        known = known || codes[i] == s;
    for (size_t i = 0; w->fault && i < ARRAY_LEN(by_fault); i++)
        known = known || by_fault[i] == s;
    CHECK(w, known, "should not fail with %s '%s'", berth_status_name(s), err->msg);
    return true;
}

/* ---- drawing ---- */

/* A model that exists, or NOBODY. */
static size_t draw_model(struct world *w)
{
    size_t from = draw(w, MODELS_MAX);
    for (size_t k = 0; k < MODELS_MAX; k++)
        if (w->model[(from + k) % MODELS_MAX].exists)
            return (from + k) % MODELS_MAX;
    return NOBODY;
}

static const char *device_name(const struct world *w, size_t i)
{
    return devset_at(w->set, i)->name;
}

/* Mostly plans that make sense, on few texts so that they meet again. */
static void draw_plan(struct world *w, struct naive_plan *p)
{
    size_t kind = draw(w, 8), c = draw(w, w->devices), a = draw(w, w->devices),
           b = (a + 1 + draw(w, 2)) % w->devices, amount = draw(w, 4);
    const char *x = device_name(w, a), *y = device_name(w, b);
    *p = (struct naive_plan) { .compute = c,
                               .layout = draw(w, 4) ? PLAN_SPREAD : PLAN_TAIL,
                               .reserve = 16 * KIB };
    char *t = p->alloc;
    switch (kind) {
    case 0:
    case 1:
        p->reserve = amount * 24 * KIB;
        return; /* auto */
    case 2:
        snprintf(t, PLAN_TEXT_MAX, "%s,*", x);
        return;
    case 3:
        if (a != b) {
            snprintf(t, PLAN_TEXT_MAX, "%s,%zuk;%s,*", x, 8 + 24 * amount, y);
            return;
        }
        snprintf(t, PLAN_TEXT_MAX, "%s,%zuk*", x, 8 + 24 * amount);
        return;
    case 4:
        if (a != b) {
            snprintf(t, PLAN_TEXT_MAX, "%s,%zu%%;%s,%zu%%", x, 20 + 15 * amount, y, (size_t)35);
            return;
        }
        snprintf(t, PLAN_TEXT_MAX, "%s,100%%", x);
        return;
    case 5:
        snprintf(t, PLAN_TEXT_MAX, "%s,0.0%zu", x, 2 + 2 * amount);
        return;
    case 6:
        if (a != c) {
            snprintf(t, PLAN_TEXT_MAX, "#%s;0.0000%zu;%s", device_name(w, c), 2 + 2 * amount, x);
            return;
        }
        snprintf(t, PLAN_TEXT_MAX, "#%s", x);
        return;
    default:
        snprintf(t, PLAN_TEXT_MAX, "%s,*", device_name(w, c));
    }
}

static struct plan_args plan_args(const struct world *w, const struct naive_plan *p)
{
    return (struct plan_args) { .alloc = p->alloc[0] ? p->alloc : NULL,
                                .compute = device_name(w, p->compute),
                                .layout = p->layout,
                                .reserve = p->reserve };
}

static void say_plan(struct world *w, const struct naive_plan *p)
{
    say(w, " plan '%s' compute %s %s reserve %" PRIu64, p->alloc, device_name(w, p->compute),
        plan_layout_name(p->layout), p->reserve);
}

static void say_model(struct world *w, const char *op, size_t i)
{
    const struct naive *n = &w->model[i];
    say(w, "%s %s#%" PRIu64, op, identities[n->identity].name, n->id);
}

/* Can `need` (a model's bytes, wherever) be had without anybody leaving? Generous: what is asked
 * for in pages, staging and patch scratch all together has to be there on every device. */
static bool is_roomy(const struct world *w, const struct naive *n)
{
    uint64_t need = n ? n->bytes * 2 + n->blocks * 8 * KIB + 256 * KIB : 0;
    for (size_t d = 0; d < w->devices; d++) {
        struct device *dev = devset_at(w->set, d);
        struct dev_stats s;
        dev_ledger(dev, NULL, 0, &s);
        if (s.in_use + s.pinned + need > dev->budget)
            return false;
        for (size_t k = 0; k < w->devices; k++) /* two on one phys: its memory is shared */
            if (k != d && devset_at(w->set, k)->phys == dev->phys)
                return false;
    }
    return true;
}

/* ---- open, unref ---- */

static size_t find_key(const struct world *w, size_t identity, unsigned generation,
                       const struct naive_plan *p)
{
    for (size_t i = 0; i < MODELS_MAX; i++)
        if (w->model[i].exists && w->model[i].identity == identity &&
            w->model[i].generation == generation && plan_is_same(&w->model[i].plan, p))
            return i;
    return NOBODY;
}

static size_t find_id(const struct world *w, uint64_t id)
{
    for (size_t i = 0; i < MODELS_MAX; i++)
        if (w->model[i].exists && w->model[i].id == id)
            return i;
    return NOBODY;
}

static unsigned generation_of(const struct world *w, size_t identity)
{
    return w->generation[identities[identity].file];
}

static bool adoptable(const struct world *w, const struct naive *n, size_t identity)
{
    return n->exists && n->identity == identity && n->generation == generation_of(w, identity) &&
           !naive_handles(n) && !n->uses;
}

/* The model whose blocks an adoption that failed has moved half way; NOBODY: none. Of several a
 * keep one: the others are auto, and may have been demoted to make room for it. */
static size_t half_adopted(const struct world *w, size_t identity)
{
    size_t found = NOBODY;
    for (size_t i = 0; i < MODELS_MAX; i++) {
        const struct naive *n = &w->model[i];
        struct res_block_at at;
        berth_err err = { 0 };
        bool moved = false;
        for (size_t b = 0; adoptable(w, n, identity) && b < n->blocks; b++)
            moved = moved || (res_model_by_id(w->r, n->id) && !res_block_at(n->m, b, &at, &err) &&
                              at.device != n->at[b].device);
        if (moved && (found == NOBODY || n->retention == RES_KEEP))
            found = i;
    }
    return found;
}

static void naive_retention(struct naive *n, enum res_retention x)
{
    bool loose = !naive_handles(n) && !n->uses && n->state == RES_RESIDENT;
    if (x == RES_KEEP) {
        n->anchor[RES_ANCHOR_KEEP] = 1;
        n->anchor[RES_ANCHOR_MARKED] = 0;
    }
    if (x == RES_EJECT) {
        memset(n->anchor, 0, sizeof n->anchor);
        n->anchor[RES_ANCHOR_MARKED] = loose; /* for the free that is to come */
    }
    if (x == RES_AUTO && (n->anchor[RES_ANCHOR_KEEP] || n->anchor[RES_ANCHOR_MARKED])) {
        n->anchor[RES_ANCHOR_KEEP] = n->anchor[RES_ANCHOR_MARKED] = 0;
        n->anchor[RES_ANCHOR_SURVIVED] = 1;
    }
    n->retention = x;
}

static bool opened_new(struct world *w, size_t slot, size_t identity, struct res_model *m)
{
    struct naive *n = &w->model[slot];
    const struct identity *id = &identities[identity];
    struct res_model_info x = res_info(m);
    CHECK(w, x.id > w->last_id, "id %" PRIu64 " was there before", x.id);
    w->last_id = x.id;
    *n = (struct naive) { .exists = true,
                          .m = m,
                          .id = x.id,
                          .identity = identity,
                          .generation = generation_of(w, identity),
                          .state = RES_REGISTERED,
                          .blocks = x.blocks,
                          .bytes = x.bytes };
    CHECK(w, n->blocks > 0 && n->blocks <= BLOCKS_MAX, "%zu blocks", n->blocks);
    CHECK(w, strcmp(x.name, identities[identity].name) == 0, "its name is %s", x.name);
    uint64_t sum = 0;
    const struct file_fact *f = file_fact(identities[identity].file);
    for (size_t i = 0; i < f->n; i++) {
        const struct tensor_fact *t = &f->tensor[i];
        uint64_t bytes;
        if (id->part && !str_starts(t->name, strlen(t->name), id->part))
            continue;
        CHECK(w, dtype_bytes(held_as(id, t), t->count, &bytes), "size of %s", t->name);
        sum += bytes;
    }
    CHECK(w, sum == n->bytes, "%" PRIu64 " bytes, its tensors have %" PRIu64, n->bytes, sum);
    return true;
}

/* Models of a file as it was before lose their marks to the one that was opened now, and what the
 * registry held them by. */
static void naive_replaced(struct world *w, struct naive *n)
{
    for (uint64_t id = 0; id < n->id; id++) { /* oldest first: the last mark counts */
        size_t i = find_id(w, id);
        struct naive *o = i == NOBODY ? NULL : &w->model[i];
        if (!o || o->identity != n->identity || o->generation == n->generation)
            continue;
        enum res_retention mark = o->retention;
        memset(o->anchor, 0, sizeof o->anchor);
        o->retention = RES_AUTO;
        naive_gone(o);
        if (mark != RES_AUTO)
            naive_retention(n, mark);
    }
}

bool do_open(struct world *w)
{
    size_t identity = draw(w, identities_n), slot = NOBODY;
    const struct identity *id = &identities[identity];
    enum res_retention retention = (enum res_retention)draw(w, 3);
    bool cached = draw(w, 2), others = draw(w, 8) == 0, attached = false, adopts = false;
    struct naive_plan plan;
    struct res_model *m = NULL;
    berth_err err = { 0 };
    draw_plan(w, &plan);
    if (draw(w, 3) == 0) /* the plan of one that is there */
        for (size_t i = 0; i < MODELS_MAX; i++)
            if (w->model[i].exists && w->model[i].identity == identity)
                plan = w->model[i].plan;
    for (size_t i = 0; i < MODELS_MAX; i++) {
        slot = !w->model[i].exists ? i : slot;
        adopts = adopts || adoptable(w, &w->model[i], identity);
    }
    size_t known = find_key(w, identity, generation_of(w, identity), &plan);
    if (slot == NOBODY)
        return true;
    say(w, "open %s %s%s%s", id->name, res_retention_name(retention), cached ? " cached" : "",
        others ? " eject_others" : "");
    say_plan(w, &plan);
    fault_arm(w, false);
    w->roomy = !adopts && is_roomy(w, NULL);
    struct res_open_args args = { .path = file_fact(id->file)->path,
                                  .part = id->part,
                                  .name = id->name,
                                  .options = id->options,
                                  .dtype = id->dtype,
                                  .arch = id->arch,
                                  .plan = plan_args(w, &plan),
                                  .retention = retention,
                                  .eject_others = others };
    berth_status s = res_open(w->r, &args, &m, &attached, &err);
    fault_off(w);
    unsigned may = adopts && known == NOBODY ? MAY_EVICT | MAY_MOVE : 0;
    if (s) {
        static const berth_status codes[] = { BERTH_EINVAL, BERTH_ELIMIT, BERTH_ENODEVMEM };
        CHECK(w, !m, "failed, but a model came out");
        CHECK(w, known == NOBODY || w->fault, "could not attach: %s", err.msg);
        if (!error_ok(w, &err, s, codes, may ? 3 : 2))
            return false;
        return naive_compare(w, may ? half_adopted(w, identity) : NOBODY, may);
    }
    CHECK(w, m, "no model came out");
    size_t got = find_id(w, res_info(m).id);
    say(w, " -> #%" PRIu64, res_info(m).id);
    if (known != NOBODY) {
        CHECK(w, got == known, "key known as #%" PRIu64 ", got #%" PRIu64, w->model[known].id,
              res_info(m).id);
    } else if (got != NOBODY) {
        CHECK(w, adoptable(w, &w->model[got], identity), "adopted a model that somebody holds");
        w->model[got].plan = plan;
    } else {
        CHECK(w, !adopts || w->fault, "nobody held the other one, and it was not adopted");
        if (!opened_new(w, slot, identity, m))
            return false;
        w->model[slot].plan = plan;
        got = slot;
    }
    struct naive *n = &w->model[got];
    CHECK(w, attached == (n->state == RES_RESIDENT), "attached %d, it was %s", attached,
          res_state_name(n->state));
    n->attached += n->state == RES_RESIDENT;
    w->count.attaches += n->state == RES_RESIDENT;
    if (!naive_handles(n) && n->patches.n) { /* those of the owner before */
        n->patches = (struct patch_list) { 0 };
        n->patches_changed = true;
    }
    *(cached ? &n->cached : &n->held) += 1;
    n->eject_others = n->eject_others || others;
    naive_replaced(w, n);
    if (retention != RES_AUTO)
        naive_retention(n, retention);
    return naive_compare(w, got, known == NOBODY ? may : 0);
}

bool do_ref(struct world *w)
{
    size_t i = draw_model(w);
    if (i == NOBODY)
        return true;
    say_model(w, "ref", i);
    res_ref(w->model[i].m);
    *(draw(w, 2) ? &w->model[i].cached : &w->model[i].held) += 1;
    return naive_compare(w, i, 0);
}

bool do_unref(struct world *w)
{
    size_t i = draw_model(w);
    if (i == NOBODY || !naive_handles(&w->model[i]))
        return true;
    struct naive *n = &w->model[i];
    say_model(w, "unref", i);
    *(n->held && (!n->cached || draw(w, 2)) ? &n->held : &n->cached) -= 1;
    res_unref(n->m);
    naive_gone(n);
    return naive_compare(w, i, 0);
}

/* ---- load ---- */

struct progress {
    atomic_bool cancel;
    size_t calls, cancel_at;
    uint64_t done, total;
    bool backwards;
};

static void on_progress(void *user, uint64_t done, uint64_t total)
{
    struct progress *p = user;
    p->backwards = p->backwards || done < p->done || done > total;
    p->done = done;
    p->total = total;
    if (++p->calls == p->cancel_at)
        atomic_store(&p->cancel, true);
}

/* Will block b be F32 once the patches are merged? 16-bit weights are where the cpu computes. */
static bool widens(const struct naive *n, size_t b)
{
    const struct blocks *all = res_blocks(n->m);
    bool wide = false;
    for (size_t k = 0; k < all->at[b].n; k++) {
        const struct weights_entry *e = all->tensor[all->at[b].first + k].entry;
        if (!patches_touch(&n->patches, e->name, e->name_len))
            continue;
        if (dtype_is_quant(e->dtype) || e->dtype == DT_F8_E4M3)
            return false;
        wide = wide || e->dtype == DT_F16 || e->dtype == DT_BF16;
    }
    return wide && dev_can(res_compute(n->m), BERTH_CAP_HOST_VISIBLE);
}

static bool is_wide(const struct naive *n, size_t b)
{
    struct res_block_at at;
    berth_err err;
    return !res_block_at(n->m, b, &at, &err) && at.patched == DT_F32;
}

/* Bytes of blocks whose merged patches are not those of the set. unsure: and of those that may have
 * others after a load that failed. */
static uint64_t stale_bytes(const struct naive *n, bool unsure)
{
    const struct blocks *b = res_blocks(n->m);
    uint64_t sum = 0;
    for (size_t i = 0; i < n->blocks; i++) {
        bool stale = (unsure && n->unsure[i]) || is_wide(n, i) != widens(n, i);
        for (size_t k = 0; k < b->at[i].n && !stale; k++) {
            const struct weights_entry *e = b->tensor[b->at[i].first + k].entry;
            stale = !patches_same(&n->applied[i], &n->patches, e->name, e->name_len);
        }
        sum += stale ? b->at[i].bytes : 0;
    }
    return sum;
}

static bool loaded(struct world *w, struct naive *n, const struct res_load_result *got,
                   uint64_t stale, size_t demoted, bool was_resident)
{
    CHECK(w, got->was_resident == was_resident, "was_resident %d", got->was_resident);
    if (was_resident) {
        CHECK(w, got->read <= stale, "read %" PRIu64 " bytes for %" PRIu64 " that changed",
              got->read, stale);
        CHECK(w, stale || got->read == 0, "read %" PRIu64 " bytes of a resident model", got->read);
        CHECK(w, stale || demoted || got->moved == 0, "moved %" PRIu64 " bytes", got->moved);
    } else {
        CHECK(w, got->read == n->bytes, "read %" PRIu64 " bytes of %" PRIu64, got->read, n->bytes);
    }
    n->state = RES_RESIDENT;
    n->patches_changed = false;
    for (size_t b = 0; b < n->blocks; b++) {
        n->applied[b] = n->patches;
        n->unsure[b] = false;
        CHECK(w, is_wide(n, b) == widens(n, b), "block %zu is%s F32", b,
              is_wide(n, b) ? "" : " not");
    }
    return true;
}

/* eject_others: the rest has left the compute device. */
static bool alone_on_compute(struct world *w, size_t target)
{
    size_t d = w->model[target].plan.compute;
    for (size_t i = 0; i < MODELS_MAX; i++) {
        const struct naive *n = &w->model[i];
        if (i == target || !n->exists || n->retention == RES_KEEP || n->uses)
            continue;
        const struct res_model *m = res_model_by_id(w->r, n->id);
        CHECK(w, !m || !res_bytes_on(m, d), "%s#%" PRIu64 " is still on the compute device",
              identities[n->identity].name, n->id);
    }
    return true;
}

bool do_load(struct world *w)
{
    static const berth_status codes[] = { BERTH_ENODEVMEM, BERTH_EBUSY };
    size_t i = draw_model(w);
    if (i == NOBODY)
        return true;
    struct naive *n = &w->model[i];
    bool keep = draw(w, 6) == 0, was = n->state == RES_RESIDENT;
    struct progress p = { .cancel_at = draw(w, 5) == 0 ? 1 + draw(w, 6) : 0 };
    struct res_load_args args = {
        .progress = on_progress, .progress_user = &p, .cancel = &p.cancel, .evict_keep = keep
    };
    struct res_load_result got = { 0 };
    struct res_model_info before = res_info(n->m);
    uint64_t stale = was ? stale_bytes(n, true) : n->bytes;
    berth_err err = { 0 };
    atomic_init(&p.cancel, p.cancel_at == 6);
    w->clock.mono += 1000;
    say_model(w, "load", i);
    say(w, "%s%s", keep ? " evict_keep" : "", p.cancel_at ? " cancel" : "");
    fault_arm(w, n->patches.n > 0);
    w->roomy = is_roomy(w, n) && !w->fault;
    berth_status s = res_load(n->m, &args, &got, &err);
    fault_off(w);
    unsigned may = MAY_MOVE | MAY_EVICT | (keep ? MAY_EVICT_KEEP : 0) |
                   (n->eject_others ? MAY_EJECT_OTHERS : 0);
    bool old_file = n->generation != generation_of(w, n->identity);
    CHECK(w, !p.backwards, "progress went back, or beyond its end");
    if (s) {
        bool canceled = s == BERTH_ECANCELED && atomic_load(&p.cancel);
        if (s == BERTH_ECANCELED || s == BERTH_EIO)
            say(w, " -> %s '%s'", berth_status_name(s), err.msg);
        bool busy = n->uses && stale; /* its patches changed, and now it is in use */
        bool changed = s == BERTH_EIO && old_file && stale;
        if (canceled || changed)
            CHECK(w, err.code == s && err.msg[0], "no message");
        else if (!error_ok(w, &err, s, codes, busy ? 2 : 1))
            return false;
        CHECK(w, s != BERTH_ENODEVMEM || !w->roomy, "there was room: %s", err.msg);
        w->fault = true; /* some blocks may have their new patches already */
        for (size_t b = 0; b < n->blocks; b++)
            n->unsure[b] = was && stale;
        return naive_compare(w, i, may);
    }
    CHECK(w, !old_file || was, "loaded from a file that had changed");
    CHECK(w, !n->uses || !stale_bytes(n, false), "patched a model in use");
    CHECK(w, p.calls == 0 || p.done == p.total, "progress ended at %" PRIu64 " of %" PRIu64, p.done,
          p.total);
    w->count.loads += !was;
    if (!was && n->eject_others && !alone_on_compute(w, i))
        return false;
    if (!was)
        n->eject_others = false;
    return loaded(w, n, &got, stale, before.demoted, was) && naive_compare(w, i, may);
}

/* ---- uses ---- */

bool do_use(struct world *w)
{
    size_t i = draw_model(w);
    if (i == NOBODY || w->model[i].uses > 2)
        return true;
    struct naive *n = &w->model[i];
    berth_err err = { 0 };
    say_model(w, "use", i);
    w->clock.mono += 1000;
    berth_status s = res_use_begin(n->m, &err);
    if (n->state != RES_RESIDENT || n->patches_changed) {
        static const berth_status codes[] = { BERTH_EINVAL };
        CHECK(w, s, "a use of a model that is %s%s", res_state_name(n->state),
              n->patches_changed ? ", and its patches changed" : "");
        return error_ok(w, &err, s, codes, 1) && naive_compare(w, i, 0);
    }
    CHECK(w, !s, "use: %s", err.msg);
    n->uses++;
    n->used_in_prompt = n->used_in_prompt || w->prompt;
    return naive_compare(w, i, 0);
}

bool do_unuse(struct world *w)
{
    size_t i = draw_model(w);
    for (size_t k = 0; i != NOBODY && !w->model[i].uses && k < MODELS_MAX; k++)
        i = (i + 1) % MODELS_MAX;
    if (i == NOBODY || !w->model[i].uses)
        return true;
    say_model(w, "end use of", i);
    w->model[i].uses--;
    res_use_end(w->model[i].m);
    naive_gone(&w->model[i]);
    return naive_compare(w, i, 0);
}

/* ---- eject, retention, anchors ---- */

bool do_eject(struct world *w)
{
    static const berth_status codes[] = { BERTH_EBUSY };
    size_t i = draw_model(w);
    if (i == NOBODY)
        return true;
    struct naive *n = &w->model[i];
    berth_err err = { 0 };
    say_model(w, "eject", i);
    fault_arm(w, false);
    berth_status s = res_eject(n->m, &err);
    fault_off(w);
    CHECK(w, s || !n->uses, "ejected a model in use");
    if (s) {
        CHECK(w, n->uses || w->fault, "not in use, and not ejected: %s", err.msg);
        return error_ok(w, &err, s, codes, n->uses ? 1 : 0) && naive_compare(w, i, 0);
    }
    naive_eject(n);
    naive_gone(n);
    return naive_compare(w, i, 0);
}

bool do_retention(struct world *w)
{
    size_t i = draw_model(w);
    enum res_retention x = (enum res_retention)draw(w, 3);
    if (i == NOBODY)
        return true;
    say_model(w, "retention of", i);
    say(w, " %s", res_retention_name(x));
    fault_arm(w, false);
    res_set_retention(w->model[i].m, x);
    fault_off(w);
    naive_retention(&w->model[i], x);
    naive_gone(&w->model[i]);
    return naive_compare(w, i, 0);
}

/* ---- plans and patches ---- */

bool do_replan(struct world *w)
{
    static const berth_status codes[] = { BERTH_EINVAL, BERTH_ELIMIT, BERTH_ENODEVMEM };
    static const berth_status busy[] = { BERTH_EBUSY };
    size_t i = draw_model(w);
    if (i == NOBODY)
        return true;
    struct naive *n = &w->model[i];
    struct naive_plan plan;
    struct res_load_result got = { 0 };
    berth_err err = { 0 };
    draw_plan(w, &plan);
    size_t other = find_key(w, n->identity, n->generation, &plan);
    bool refused = n->uses || (other != NOBODY && other != i);
    say_model(w, "replan", i);
    say_plan(w, &plan);
    fault_arm(w, false);
    w->roomy = is_roomy(w, n) && !w->fault;
    struct plan_args args = plan_args(w, &plan);
    berth_status s = res_replan(n->m, &args, &got, &err);
    fault_off(w);
    CHECK(w, s || !refused, "a plan for a model in use, or one that another has");
    if (s) {
        CHECK(w, s != BERTH_ENODEVMEM || !w->roomy, "there was room: %s", err.msg);
        if (!error_ok(w, &err, s, refused ? busy : codes, refused ? 1 : 3))
            return false;
        return naive_compare(w, i, refused ? 0 : MAY_MOVE | MAY_EVICT);
    }
    CHECK(w, got.read == 0, "a new plan read %" PRIu64 " bytes", got.read);
    uint64_t moved = 0;
    for (size_t b = 0; n->state == RES_RESIDENT && b < n->blocks; b++) {
        struct res_block_at at;
        CHECK(w, !res_block_at(n->m, b, &at, &err), "block_at: %s", err.msg);
        const struct plan *p = res_plan(n->m);
        CHECK(w, strcmp(at.dev->name, p->devices.at[p->device[b]].name) == 0,
              "block %zu is on %s after a new plan", b, at.dev->name);
        moved += at.device != n->at[b].device ? at.bytes : 0;
        CHECK(w,
              at.device != n->at[b].device || at.addr == n->at[b].addr ||
                  at.pinned != n->at[b].pinned,
              "block %zu moved within %s", b, at.dev->name);
        n->patches_changed |= is_wide(n, b) != widens(n, b);
    }
    CHECK(w, got.moved >= moved && (moved || got.moved == 0 || n->state == RES_RESIDENT),
          "moved %" PRIu64 " bytes, blocks of %" PRIu64 " changed device", got.moved, moved);
    n->plan = plan;
    return naive_compare(w, i, MAY_MOVE | MAY_EVICT);
}

bool do_patches(struct world *w)
{
    static const berth_status busy[] = { BERTH_EBUSY };
    static const int8_t strengths[] = { 1, 1, 2, -1, 0 };
    size_t i = draw_model(w);
    if (i == NOBODY)
        return true;
    struct naive *n = &w->model[i];
    struct patch_list list = { .n = draw(w, PATCHES_MAX + 1) };
    struct res_patch patch[PATCHES_MAX];
    berth_err err = { 0 };
    say_model(w, "patches of", i);
    for (size_t k = 0; k < list.n; k++) {
        list.at[k].adapter = (uint8_t)draw(w, ADAPTERS);
        list.at[k].strength = strengths[draw(w, ARRAY_LEN(strengths))];
        patch[k] = (struct res_patch) { .adapter = &w->adapter[list.at[k].adapter].base,
                                        .strength = list.at[k].strength };
        say(w, " %u*%d", list.at[k].adapter, list.at[k].strength);
    }
    fault_arm(w, false);
    berth_status s = res_set_patches(n->m, patch, list.n, &err);
    fault_off(w);
    CHECK(w, s || !n->uses, "patches of a model in use");
    if (s)
        return error_ok(w, &err, s, busy, n->uses ? 1 : 0) && naive_compare(w, i, 0);
    n->patches = list;
    n->patches_changed = true;
    return naive_compare(w, i, 0);
}

/* ---- somebody else's memory ---- */

bool do_scratch(struct world *w)
{
    static const berth_status codes[] = { BERTH_ENODEVMEM };
    size_t k = draw(w, SCRATCH_MAX), d = draw(w, w->devices), n = 1 + draw(w, 256) * 400;
    struct device *dev = devset_at(w->set, d);
    berth_err err = { 0 };
    if (w->scratch[k].dev) {
        say(w, "free scratch %zu of %s", k, w->scratch[k].dev->name);
        dev_free(&w->scratch[k]);
        dev_owner_close(w->scratch_owner[k]);
        w->scratch_owner[k] = NULL;
        return naive_compare(w, NOBODY, 0);
    }
    say(w, "alloc %zu bytes on %s", n, dev->name);
    CHECK(w, !dev_owner_open(dev, "scratch", DEV_ACTIVATIONS, &w->scratch_owner[k], &err),
          "owner: %s", err.msg);
    fault_arm(w, false);
    struct dev_stats stats;
    dev_ledger(dev, NULL, 0, &stats);
    w->roomy =
        !w->fault && stats.in_use + stats.pinned + n + 64 * KIB <= dev->budget && is_roomy(w, NULL);
    berth_status s = res_alloc(w->r, &(struct res_alloc_args) { dev, w->scratch_owner[k], n, NULL },
                               &w->scratch[k], &err);
    fault_off(w);
    if (s) {
        CHECK(w, !w->scratch[k].dev, "failed, but memory came out");
        dev_owner_close(w->scratch_owner[k]);
        w->scratch_owner[k] = NULL;
        if (!error_ok(w, &err, s, codes, 1))
            return false;
    }
    return naive_compare(w, NOBODY, MAY_EVICT);
}

bool do_touch(struct world *w)
{
    size_t file = draw(w, FILES);
    say(w, "file %zu changes", file);
    file_touch(file);
    w->generation[file]++;
    return naive_compare(w, NOBODY, 0);
}
