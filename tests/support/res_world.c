/* The machine, and one sequence from its first byte to the last check. */
#include "support/res_world.h"
#include "support/clock_manual.h"

#include "support/res_world_impl.h"
#include "support/rng.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

static const struct str *running; /* trace of the world that runs */

const char *world_trace(void)
{
    return running ? str_c(running) : "";
}

bool world_fail(struct world *w, const char *file, int line, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (w->failed)
        return false;
    w->failed = true;
    const char *slash = strrchr(file, '/');
    str_addf(&w->trace, "\n*** %s (%s:%d)", text, slash ? slash + 1 : file, line);
    return false;
}

void say(struct world *w, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    str_adds(&w->trace, text);
}

/* First the record's own bytes, then numbers that follow from all of them. */
size_t draw(struct world *w, size_t n)
{
    if (w->drawn < WORLD_RECORD)
        return w->record[w->drawn++] % n;
    struct rng r = { w->mix };
    uint64_t x = rng_u64(&r);
    w->mix = r.state;
    return (size_t)(x >> 8) % n;
}

static void use_record(struct world *w, const uint8_t *record)
{
    w->record = record;
    w->drawn = 0;
    memcpy(&w->mix, record, sizeof w->mix);
}

/* ---- the machine ---- */

static const char *const machines[] = {
    "cpu=1m,null:0=300k,null:1=160k",
    "cpu=400k",
    "cpu=2m,null:0=1m,null:1=512k",
    "null:0=400k,cpu=600k",
    "cpu=700k,cuda:0@null:0=200k,cuda:1@null:0=240k",
    "cpu=500k,cuda:0@cpu=300k",
    "null:0=600k,null:1=300k", /* no host at all */
    "cpu=4m,null:0=2m",
};

static void on_hazard(void *user, enum null_hazard kind, const char *text)
{
    struct world *w = user;
    (void)kind;
    if (w->hazards++ == 0)
        snprintf(w->hazard, sizeof w->hazard, "%s", text);
}

static void on_reset(void *user)
{
    struct world *w = user;
    struct res_receipt x = { 0 };
    berth_err err = { 0 };
    w->resets++;
    drop_cache(w);
    if (res_free(w->r, &(struct res_free_args) { .force = true }, &x, &err) != BERTH_EBUSY)
        world_fail(w, __FILE__, __LINE__, "a free inside the reset callback");
    res_receipt_release(&x);
}

static bool open_machine(struct world *w, struct dev_env *env, struct tpool *pool)
{
    static const uint64_t pins[] = { 0, RES_NO_PINS, 64 * KIB };
    const char *text = machines[draw(w, ARRAY_LEN(machines))];
    struct res_config cfg = { .pressure_percent =
                                  1000, /* what else runs here is nobody's business */
                              .reset = on_reset,
                              .reset_user = w,
                              .reserve = 16 * KIB };
    struct spec spec;
    berth_err err = { 0 };
    env->stress = draw(w, 4) == 0;
    w->when_unflagged = draw(w, 6) == 0 ? RES_UNFLAGGED_UNLOAD : RES_UNFLAGGED_KEEP;
    w->auto_cleanup = draw(w, 4) != 0;
    w->pool = draw(w, 6) == 0 ? pool : NULL;
    cfg.pin_budget = pins[draw(w, ARRAY_LEN(pins))];
    say(w, "devices %s%s%s%s%s", text, env->stress ? " stress" : "",
        w->when_unflagged == RES_UNFLAGGED_UNLOAD ? " unflagged=unload" : "",
        w->auto_cleanup ? "" : " no auto cleanup", w->pool ? " threads" : "");
    CHECK(w,
          !spec_parse(text, strlen(text), false, &spec, &err) &&
              !devset_open(&spec, env, &w->set, &err),
          "devices: %s", err.msg);
    w->devices = devset_count(w->set);
    cfg.devices = w->set;
    cfg.pool = w->pool;
    cfg.when_unflagged = w->when_unflagged;
    cfg.no_auto_cleanup = !w->auto_cleanup;
    cfg.clock = &w->clock.base;
    CHECK(w, !residency_new(&cfg, &w->r, &err), "residency_new: %s", err.msg);
    return naive_compare(w, NOBODY, 0);
}

/* Everybody lets go. What only anchors hold is the registry's to end. */
static void let_go(struct world *w)
{
    for (size_t i = 0; i < MODELS_MAX; i++) {
        struct naive *n = &w->model[i];
        while (n->exists && n->uses) {
            n->uses--;
            res_use_end(n->m);
            naive_gone(n);
        }
        while (n->exists && n->held) {
            n->held--;
            res_unref(n->m);
            naive_gone(n);
        }
    }
    drop_cache(w);
    for (size_t k = 0; k < SCRATCH_MAX; k++) {
        dev_free(&w->scratch[k]);
        dev_owner_close(w->scratch_owner[k]);
    }
}

static bool nothing_left(struct world *w)
{
    for (size_t i = 0; i < ADAPTERS; i++)
        CHECK(w, atomic_load(&w->adapter[i].base.refs) == 1, "adapter %zu has %u references", i,
              atomic_load(&w->adapter[i].base.refs));
    CHECK(w, w->adapters_freed == 0, "an adapter was freed");
    for (size_t d = 0; d < w->devices; d++) {
        struct device *dev = devset_at(w->set, d);
        dev_trim(dev);
        struct dev_ledger_row row = { 0 };
        size_t n = dev_ledger(dev, &row, 1, NULL);
        CHECK(w, n == 0, "%s: %" PRIu64 " bytes %s of '%s' are left", dev->name, row.bytes,
              dev_kind_name(row.kind), row.owner);
    }
    return true;
}

static bool close_machine(struct world *w, bool ok)
{
    if (w->r && ok) {
        let_go(w);
        ok = naive_compare(w, NOBODY, 0);
        residency_free(w->r);
        ok = ok && nothing_left(w);
        devset_close(w->set);
        CHECK(w, !ok || w->hazards == 0, "hazard at the end: %s", w->hazard);
    } /* else: a world that failed is left as it is, it may not even be closable */
    return ok;
}

/* ---- the sequence ---- */

typedef bool op_fn(struct world *w);

static const struct {
    op_fn *run;
    unsigned weight;
} ops[] = {
    { do_open, 10 },   { do_load, 14 }, { do_ref, 1 },       { do_unref, 5 },   { do_use, 4 },
    { do_unuse, 4 },   { do_eject, 2 }, { do_retention, 4 }, { do_replan, 5 },  { do_patches, 5 },
    { do_scratch, 4 }, { do_free, 7 },  { do_prompt, 4 },    { do_request, 1 }, { do_settle, 1 },
    { do_cleanup, 1 }, { do_touch, 1 },
};

static bool perform(struct world *w)
{
    unsigned sum = 0;
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        sum += ops[i].weight;
    size_t at = draw(w, sum), i = 0;
    while (at >= ops[i].weight)
        at -= ops[i++].weight;
    w->fault = w->roomy = false;
    say(w, "\n  ");
    return ops[i].run(w) && !w->failed;
}

void world_prepare(void)
{
    files_make();
    fake_root();
}

bool world_run(const uint8_t *data, size_t n, struct str *report)
{
    static struct world world; /* large, and its address is the callbacks' user */
    static struct tpool *pool; /* lives as long as the process, which a fork begins anew */
    static pid_t owner;
    static const uint8_t zero[WORLD_RECORD];
    struct world *w = &world;
    berth_err err = { 0 };
    memset(w, 0, sizeof *w);
    world_prepare();
    if (owner != getpid() && tpool_new(2, &pool, &err))
        abort();
    owner = getpid();
    adapters_make(w->adapter, &w->terms_fail, &w->adapters_freed);
    clock_manual_init(&w->clock, 1, 1);
    w->trace = *report;
    str_clear(&w->trace);
    running = &w->trace;
    use_record(w, n >= WORLD_RECORD ? data : zero);
    struct null_config null = {
        .seed = w->mix, .lazy = w->mix & 1, .on_hazard = on_hazard, .user = w
    };
    struct dev_env env = { .null = &null, .root = fake_root() };
    bool ok = open_machine(w, &env, pool);
    for (size_t at = 1; ok && at < WORLD_RECORDS && (at + 1) * WORLD_RECORD <= n; at++) {
        use_record(w, data + at * WORLD_RECORD);
        ok = perform(w);
    }
    if (ok)
        say(w, "\n  end");
    ok = close_machine(w, ok);
    running = NULL;
    *report = w->trace;
    return ok;
}

size_t world_random(uint64_t seed, uint8_t out[WORLD_RANDOM_MAX])
{
    struct rng r = { seed };
    size_t n = (13 + rng_below(&r, 29)) * WORLD_RECORD;
    for (size_t i = 0; i < n && i < WORLD_RANDOM_MAX; i++)
        out[i] = (uint8_t)(rng_u64(&r) >> 32);
    return n < WORLD_RANDOM_MAX ? n : WORLD_RANDOM_MAX;
}
