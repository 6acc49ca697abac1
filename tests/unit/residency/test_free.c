/* The free flow: the table row by row, selectors, what a dry run promises, and what goes wrong
 * half way. */
#include "support/oom.h"
#include "support/res_rig.h"

#define DEVICES "cpu=256m,null:0=64m,null:1=64m"
#define SIZE RIG_TINY_SIZE
#define BLOCKS RIG_TINY_BLOCKS

static enum res_retention retention_of(char c)
{
    return c == 'k' ? RES_KEEP : c == 'e' ? RES_EJECT : RES_AUTO;
}

/* ---- the table ---- */

struct row {
    const char *models; /* k, e, a: retention of each; upper case: in use */
    struct res_free_args args;
    bool unload_kept; /* free_when_unflagged = unload */
    const char *want; /* g goes, - stays, b stays because it is in use */
};

static const struct row table[] = {
    { "ekk", { .unload_models = true }, false, "g--" },
    { "ekk", { .free_memory = true }, false, "g--" },
    { "kk", { .unload_models = true, .free_memory = true }, false, "--" },
    { "eaa", { .unload_models = true }, false, "g--" },
    { "aa", { .unload_models = true }, false, "gg" },
    { "ka", { .free_memory = true }, false, "-g" },
    { "ka", { .free_memory = true }, true, "gg" },
    { "eka", { .free_memory = true }, true, "g--" },
    { "eka", { .unload_models = true, .force = true }, false, "ggg" },
    { "eka", { .force = true }, false, "ggg" },
    { "kk", { .free_memory = true, .force = true }, false, "gg" },
    { "eka", { .automatic = true }, false, "g--" },
    { "ka", { .automatic = true }, false, "--" },
    { "ka", { .automatic = true }, true, "--" },
    { "eka", { 0 }, false, "---" },
    { "Eka", { .unload_models = true }, false, "b--" },
    { "eA", { .unload_models = true }, false, "g-" },
    { "aA", { .unload_models = true }, false, "gb" },
    { "AKE", { .force = true }, false, "bbb" },
    { "eka", { .unload_models = true, .tiers = RES_TIER_IDLE }, false, "---" },
    { "eka", { .force = true, .tiers = RES_TIER_IDLE | RES_TIER_STAGING }, false, "---" },
    { "eka", { .unload_models = true, .tiers = RES_TIER_WEIGHTS }, false, "g--" },
    { "", { .free_memory = true, .force = true }, false, "" },
};

static void check_row(const struct row *t, size_t number)
{
    static const char *const names[] = { "m0", "m1", "m2" };
    struct res_config cfg = { .when_unflagged =
                                  t->unload_kept ? RES_UNFLAGGED_UNLOAD : RES_UNFLAGGED_KEEP };
    struct rig *g = rig_open(DEVICES, NULL, &cfg);
    struct res_model *m[3] = { 0 };
    berth_err err = { 0 };
    size_t n = strnlen(t->models, ARRAY_LEN(m));
    for (size_t i = 0; i < n; i++) {
        bool used = t->models[i] < 'a';
        m[i] = rig_load(g,
                        rig_tiny(names[i], i % 2 ? "null:1" : "null:0",
                                 retention_of((char)(t->models[i] | 0x20))),
                        NULL, NULL);
        if (used)
            assert_ok(res_use_begin(m[i], &err), err);
    }
    bool no_weights = t->args.tiers && !(t->args.tiers & RES_TIER_WEIGHTS);
    struct res_receipt x = rig_free(g, t->args);
    assert_int_equal(x.models, n);
    for (size_t i = 0; i < n; i++) {
        const struct res_receipt_model *line = line_of(&x, names[i]);
        char got = line->verdict == RES_KEPT ? '-' : line->verdict == RES_BUSY ? 'b' : 'g';
        if (got != t->want[i])
            fail_msg("row %zu '%s': model %zu is %s (%s)", number, t->models, i,
                     res_verdict_name(line->verdict), line->why);
        assert_true(line->bytes == SIZE && line->why[0] && !line->read && !line->moved);
        struct res_model *now = res_model_by_id(g->r, line->id);
        if (got != 'g') { /* alive; an auto one was anchored if models were asked for and it was not
                             busy: a use holds it too. After a prompt only if one was marked */
            assert_ptr_equal(now, m[i]);
            assert_int_equal(res_info(now).state, RES_RESIDENT);
            bool asked = t->args.unload_models || t->args.free_memory || t->args.force ||
                         (t->args.automatic && strpbrk(t->models, "eE"));
            if (res_info(now).retention == RES_AUTO)
                assert_int_equal(res_info(now).anchor[RES_ANCHOR_SURVIVED], asked && got == '-');
        } else if (now) { /* somebody still has a handle: known, without bytes */
            assert_int_equal(res_info(now).state, RES_EJECTED);
            assert_false(t->args.free_memory);
        }
    }
    struct device *null0 = device_named(g->set, "null:0");
    if (!(t->args.tiers && !(t->args.tiers & RES_TIER_IDLE)))
        assert_int_equal(stats_of(null0).idle, 0);
    else
        assert_true(stats_of(null0).idle > 0); /* not trimmed */
    assert_int_equal(g->resets, t->args.free_memory);
    assert_int_equal(g->errors, 0);
    assert_true(!no_weights || res_metrics(g->r).ejects == 0);
    res_receipt_release(&x);
    for (size_t i = 0; i < n; i++)
        if (t->models[i] < 'a')
            res_use_end(m[i]);
    rig_close(g);
}

static void the_table_row_by_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        check_row(&table[i], i);
}

/* ---- selectors ---- */

static void models_by_name_and_number(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct res_model *a = rig_load(g, rig_tiny("m0", "null:0", RES_AUTO), NULL, NULL);
    struct res_model *b = rig_load(g, rig_tiny("m1", "null:0", RES_KEEP), NULL, NULL);
    struct res_model *c = rig_load(g, rig_tiny("m2", "null:1", RES_AUTO), NULL, NULL);
    struct res_receipt x;
    char id[24], both[64];
    const char *who[] = { "m0", "m1" };
    (void)state;
    x = rig_free(g, (struct res_free_args) { .models = who, .models_n = 2 });
    assert_verdict(&x, "m0", RES_EJECTED_BY_FREE, "asked for by name");
    assert_verdict(&x, "m1", RES_KEPT, "marked keep");
    assert_verdict(&x, "m2", RES_KEPT, "not selected");
    assert_int_equal(res_info(a).state, RES_EJECTED); /* its handle is still there */
    res_receipt_release(&x);

    snprintf(id, sizeof id, "%llu", (unsigned long long)res_info(c).id);
    who[0] = id;
    x = rig_free(g, (struct res_free_args) { .models = who, .models_n = 1 });
    assert_verdict(&x, "m2", RES_EJECTED_BY_FREE, "asked for by name");
    res_receipt_release(&x);

    snprintf(both, sizeof both, "m1#%llu", (unsigned long long)res_info(b).id);
    who[0] = both; /* keep ones only with force */
    x = rig_free(g, (struct res_free_args) { .models = who, .models_n = 1, .force = true });
    assert_verdict(&x, "m1", RES_EJECTED_BY_FREE, "force");
    res_receipt_release(&x);
    rig_close(g);
}

static void devices_narrow_the_table(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct res_model *a = rig_load(g, rig_tiny("m0", "null:0", RES_EJECT), NULL, NULL);
    rig_load(g, rig_tiny("m1", "null:1", RES_AUTO), NULL, NULL);
    rig_load(g, rig_tiny("m2", "null:0", RES_AUTO), NULL, NULL);
    const char *where[] = { " NULL:1 " };
    uint64_t id = res_info(a).id;
    (void)state;
    struct res_receipt x = rig_free(
        g, (struct res_free_args) { .unload_models = true, .devices = where, .devices_n = 1 });
    assert_verdict(&x, "m1", RES_EJECTED_BY_FREE,
                   "goes because no model is marked eject"); /* none there is */
    assert_verdict(&x, "m0", RES_KEPT, "not selected");
    assert_verdict(&x, "m2", RES_KEPT, "not selected");
    assert_int_equal(x.devices, 1);
    assert_string_equal(x.device[0].name, "null:1");
    assert_true(x.device[0].released >= SIZE);
    assert_int_equal(stats_of(device_named(g->set, "null:1")).in_use, 0);
    assert_true(stats_of(device_named(g->set, "null:0")).in_use >= 2 * SIZE);
    res_receipt_release(&x);

    /* With a reset, which takes their last handles: anchors hold m2 and m0, though m0 is marked. */
    x = rig_free(g,
                 (struct res_free_args) { .free_memory = true, .devices = where, .devices_n = 1 });
    assert_verdict(&x, "m0", RES_KEPT, "not selected");
    assert_verdict(&x, "m2", RES_KEPT, "not selected");
    assert_int_equal(x.violations, 0);
    assert_int_equal(res_model_count(g->r), 2);
    assert_int_equal(res_info(res_model_by_id(g->r, id)).anchor[RES_ANCHOR_MARKED], 1);
    res_receipt_release(&x);
    x = rig_free(g, (struct res_free_args) { .unload_models = true }); /* the next one takes it */
    assert_verdict(&x, "m0", RES_EJECTED_BY_FREE, "marked eject");
    assert_null(res_model_by_id(g->r, id));
    res_receipt_release(&x);
    rig_close(g);
}

/* Whatever narrows a free, marked models that it passes over survive its reset at their addresses,
 * and its dry run says so. */
static void a_narrowed_free_takes_what_is_selected(void **state)
{
    static const char *const who[] = { "m1" }, *const where[] = { "null:1" };
    const struct res_free_args narrow[] = {
        { .free_memory = true, .models = who, .models_n = 1 },
        { .free_memory = true, .devices = where, .devices_n = 1 },
        { .free_memory = true, .tiers = RES_TIER_IDLE },
        { .free_memory = true, .force = true, .models = who, .models_n = 1 },
        { .free_memory = true, .models = who, .models_n = 1, .devices = where, .devices_n = 1 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(narrow); i++) {
        struct rig *g = rig_open(DEVICES, NULL, NULL);
        struct res_model *m = rig_load(g, rig_tiny("m0", "null:0", RES_EJECT), NULL, NULL);
        struct res_free_args dry = narrow[i];
        struct res_block_at before, after;
        berth_err err = { 0 };
        uint64_t id = res_info(m).id;
        rig_load(g, rig_tiny("m1", "null:1", RES_EJECT), NULL, NULL);
        assert_ok(res_block_at(m, 0, &before, &err), err);
        dry.dry_run = true;
        struct res_receipt said = rig_free(g, dry), x = rig_free(g, narrow[i]);
        assert_verdict(&said, "m0", RES_KEPT, "selected");
        assert_verdict(&x, "m0", RES_KEPT, "selected");
        enum res_verdict other = narrow[i].tiers ? RES_KEPT : RES_EJECTED_BY_FREE;
        assert_verdict(&said, "m1", other, "");
        assert_verdict(&x, "m1", other, "");
        m = res_model_by_id(g->r, id);
        assert_non_null(m);
        assert_int_equal(res_info(m).handles, 0); /* the reset took the loader's */
        assert_ok(res_block_at(m, 0, &after, &err), err);
        assert_true(after.addr == before.addr && x.violations == 0);
        res_receipt_release(&said);
        res_receipt_release(&x);
        rig_close(g);
    }
}

static void selectors_that_name_nothing(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct res_model *m = rig_load(g, rig_tiny("m0", "null:0", RES_EJECT), NULL, NULL);
    static const char *const nobody[] = { "m0", "m9" }, *const nowhere[] = { "cuda:3" };
    static const char *const empty[] = { "" };
    struct res_receipt x;
    berth_err err = { 0 };
    (void)state;
    struct res_free_args a = { .models = nobody, .models_n = 2 };
    assert_fails(res_free(g->r, &a, &x, &err), err, BERTH_ENOTFOUND, "'m9'; there are: m0#1");
    res_receipt_release(&x);
    a = (struct res_free_args) { .models = empty, .models_n = 1 };
    assert_fails(res_free(g->r, &a, NULL, &err), err, BERTH_ENOTFOUND, "''");
    a = (struct res_free_args) { .force = true, .devices = nowhere, .devices_n = 1 };
    assert_fails(res_free(g->r, &a, NULL, &err), err, BERTH_ENOTFOUND, "cuda:3");
    assert_int_equal(res_info(m).state, RES_RESIDENT); /* nothing happened */
    assert_int_equal(res_metrics(g->r).frees, 0);
    rig_close(g);
}

/* Every way to refuse a free: no cache is emptied, no model goes, nothing is trimmed. */
static void a_refused_free_empties_nothing(void **state)
{
    static const char *const nobody[] = { "auto", "m9" }, *const nowhere[] = { "cuda:3" };
    static const char *const kept[] = { "kept" }, *const busy[] = { "busy" };
    static const char *const both[] = { "kept", "busy" };
    static const struct {
        struct res_free_args args;
        berth_status status;
    } refused[] = {
        { { .free_memory = true, .models = nobody, .models_n = 2 }, BERTH_ENOTFOUND },
        { { .free_memory = true, .force = true, .devices = nowhere, .devices_n = 1 },
          BERTH_ENOTFOUND },
        { { .free_memory = true, .models = kept, .models_n = 1 }, BERTH_OK },
        { { .free_memory = true, .models = busy, .models_n = 1 }, BERTH_OK },
        { { .free_memory = true, .force = true, .models = busy, .models_n = 1 }, BERTH_OK },
        { { .free_memory = true, .models = both, .models_n = 2 }, BERTH_OK },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct rig *g = rig_open(DEVICES, NULL, NULL);
        struct res_model *m[] = { rig_load(g, rig_tiny("auto", "null:0", RES_AUTO), NULL, NULL),
                                  rig_load(g, rig_tiny("kept", "null:0", RES_KEEP), NULL, NULL),
                                  rig_load(g, rig_tiny("busy", "null:0", RES_AUTO), NULL, NULL),
                                  rig_load(g, rig_tiny("gone", "null:0", RES_AUTO), NULL, NULL) };
        struct res_receipt x, said;
        berth_err err = { 0 };
        assert_ok(res_use_begin(m[2], &err), err);
        assert_ok(res_eject(m[3], &err), err); /* leaves memory that a trim would give back */
        uint64_t idle = stats_of(device_named(g->set, "null:0")).idle;
        struct res_free_args ask = refused[i].args;
        ask.dry_run = true;
        assert_true(idle > 0);
        assert_int_equal(res_free(g->r, &ask, &said, &err), refused[i].status);
        assert_int_equal(res_free(g->r, &refused[i].args, &x, &err), refused[i].status);
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(res_info(m[k]).state, RES_RESIDENT);
        assert_int_equal(res_info(m[0]).anchors, 0);
        assert_int_equal(g->resets, 0);
        assert_int_equal(stats_of(device_named(g->set, "null:0")).idle, idle);
        for (size_t k = 0; k < x.devices; k++)
            assert_true(x.device[k].released == 0 && said.device[k].released == 0);
        assert_false(x.free_memory || said.free_memory);
        res_receipt_release(&x);
        res_receipt_release(&said);
        res_use_end(m[2]);
        rig_close(g);
    }
}

/* ---- dry run ---- */

static void dry_run_changes_nothing_and_tells_the_truth(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct rig_model spread = rig_tiny("m0", NULL, RES_EJECT); /* half of it pinned in RAM */
    spread.alloc = "null:0,512kb;cpu,*#null:0";
    struct res_model *m[3] = { rig_load(g, spread, NULL, NULL),
                               rig_load(g, rig_tiny("m1", "null:0", RES_AUTO), NULL, NULL),
                               rig_load(g, rig_tiny("m2", "null:1", RES_KEEP), NULL, NULL) };
    struct res_model_info before[3], after;
    struct journal_entry e;
    (void)state;
    for (int i = 0; i < 3; i++)
        before[i] = res_info(m[i]);
    uint64_t idle = stats_of(device_named(g->set, "null:0")).idle;
    size_t lines = journal_query(res_journal(g->r), 0, "general", &e, 1, NULL);
    struct res_receipt dry = rig_free(
        g, (struct res_free_args) { .free_memory = true, .dry_run = true, .reason = "what if" });
    for (int i = 0; i < 3; i++) {
        after = res_info(m[i]);
        assert_true(after.state == before[i].state && after.retention == before[i].retention);
        assert_true(after.handles == before[i].handles && after.anchors == before[i].anchors);
        assert_true(after.resident == before[i].resident && after.last_use == before[i].last_use);
    }
    assert_int_equal(g->resets, 0);
    assert_int_equal(res_metrics(g->r).frees, 0);
    assert_int_equal(journal_query(res_journal(g->r), 0, "general", &e, 1, NULL), lines);
    assert_true(stats_of(device_named(g->set, "null:0")).idle == idle);
    assert_true(dry.dry_run && dry.serial == 0);

    struct res_receipt real = rig_free(g, (struct res_free_args) { .free_memory = true });
    assert_int_equal(real.serial, 1);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(dry.model[i].verdict, real.model[i].verdict);
        assert_string_equal(dry.model[i].why, real.model[i].why);
    }
    assert_true(real.device[0].before[DEV_PINNED] >= SIZE / 2);
    for (size_t d = 0; d < 3; d++) { /* what was foretold came true, byte by byte */
        assert_memory_equal(dry.device[d].before, real.device[d].before,
                            sizeof dry.device[d].before);
        assert_memory_equal(dry.device[d].after, real.device[d].after, sizeof dry.device[d].after);
        assert_true(dry.device[d].released == real.device[d].released);
    }
    res_receipt_release(&dry);
    res_receipt_release(&real);
    rig_close(g);
}

/* Between models that stay trimming leaves the ends of pages: foretold too, to the byte. */
static void a_dry_run_knows_what_trimming_leaves(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct res_free_args ask = { .unload_models = true };
    static const enum res_retention retention[] = { RES_KEEP, RES_AUTO, RES_KEEP };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(retention); i++) {
        char name[32];
        snprintf(name, sizeof name, "odd%zu.safetensors", i);
        const char *file = rig_file(name, 5, 5 * 5000); /* blocks that end within a page */
        rig_load(g, (struct rig_model) { file, NULL, "null:0", retention[i] }, NULL, NULL);
    }
    struct res_receipt real, dry;
    for (int twice = 0; twice < 2; twice++) { /* then nothing goes, and nothing is given back */
        ask.dry_run = true;
        dry = rig_free(g, ask);
        ask.dry_run = false;
        real = rig_free(g, ask);
        assert_true(real.device[1].after[DEV_POOL_IDLE] > 0);
        assert_memory_equal(dry.device[1].after, real.device[1].after, sizeof dry.device[1].after);
        assert_true(dry.device[1].released == real.device[1].released);
        assert_true((real.device[1].released == 0) == twice);
        res_receipt_release(&dry);
        res_receipt_release(&real);
    }
    rig_close(g);
}

/* A prompt runs: one model is in use, one lingers. What a free at its end does
 * is foretold, and comes true. */
static void a_dry_run_during_a_prompt_is_about_its_end(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct res_free_args ask = { .unload_models = true, .dry_run = true };
    struct res_receipt now, dry, real;
    berth_err err = { 0 };
    (void)state;
    struct res_model *used = rig_load(g, rig_tiny("m0", "null:0", RES_EJECT), NULL, NULL);
    rig_load(g, rig_tiny("m2", "null:1", RES_AUTO), NULL, NULL);
    struct res_model *lingers = rig_load(g, rig_tiny("m1", "null:0", RES_AUTO), NULL, NULL);
    res_prompt_begin(g->r);
    assert_ok(res_use_begin(used, &err), err);
    res_linger(lingers);
    res_unref(g->cached[--g->cached_n]); /* its node's output */
    now = rig_free(g, ask);
    assert_verdict(&now, "m0", RES_BUSY, "in use");
    assert_verdict(&now, "m1", RES_KEPT, "auto: others are marked eject");
    ask.after_prompt = true;
    dry = rig_free(g, ask);
    assert_verdict(&dry, "m0", RES_EJECTED_BY_FREE, "marked eject");
    assert_verdict(&dry, "m1", RES_EJECTED_BY_FREE, "until the prompt ends");
    assert_verdict(&dry, "m2", RES_KEPT, "auto: others are marked eject");
    assert_int_equal(res_info(used).state, RES_RESIDENT); /* nothing happened */
    assert_int_equal(res_model_count(g->r), 3);
    res_use_end(used);
    res_prompt_done(g->r);
    assert_int_equal(res_model_count(g->r), 2);
    real = rig_free(g, (struct res_free_args) { .unload_models = true });
    assert_verdict(&real, "m0", RES_EJECTED_BY_FREE, "marked eject");
    assert_verdict(&real, "m2", RES_KEPT, "auto: others are marked eject");
    for (size_t d = 0; d < 3; d++)
        assert_memory_equal(dry.device[d].after, real.device[d].after, sizeof dry.device[d].after);
    assert_ok(res_prompt_end(g->r, NULL, &err), err);
    res_receipt_release(&now);
    res_receipt_release(&dry);
    res_receipt_release(&real);
    rig_close(g);
}

/* ---- anchors ---- */

static void a_kept_model_after_force(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct res_model *m = rig_load(g, rig_tiny("m0", "null:0", RES_KEEP), NULL, NULL);
    struct res_receipt x;
    berth_err err = { 0 };
    (void)state;
    uint64_t sum = checksum_of(m);
    x = rig_free(g, (struct res_free_args) { .force = true }); /* the cache still has a handle */
    res_receipt_release(&x);
    assert_int_equal(res_info(m).state, RES_EJECTED);
    assert_int_equal(res_info(m).anchor[RES_ANCHOR_KEEP], 1);
    assert_ok(res_load(m, NULL, NULL, &err), err);
    assert_true(checksum_of(m) == sum);
    x = rig_free(g, (struct res_free_args) { .free_memory = true }); /* and is kept again */
    assert_verdict(&x, "m0", RES_KEPT, "marked keep");
    res_receipt_release(&x);
    x = rig_free(g, (struct res_free_args) { .force = true }); /* nobody has a handle now */
    res_receipt_release(&x);
    assert_int_equal(res_model_count(g->r), 0);
    rig_close(g);
}

/* What only an anchor holds is marked, not thrown away: the next free takes it and nothing else. */
static void a_survivor_is_marked(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    const struct res_free_args button = { .unload_models = true, .free_memory = true };
    struct res_block_at was, is;
    berth_err err = { 0 };
    (void)state;
    rig_load(g, rig_tiny("m0", "null:0", RES_EJECT), NULL, NULL);
    struct res_model *m1 = rig_load(g, rig_tiny("m1", "null:0", RES_AUTO), NULL, NULL);
    struct res_model *m2 = rig_load(g, rig_tiny("m2", "null:0", RES_AUTO), NULL, NULL);
    struct res_receipt x = rig_free(g, button);
    res_receipt_release(&x);
    assert_int_equal(res_model_count(g->r), 2);
    assert_ok(res_block_at(m1, 0, &was, &err), err);
    res_set_retention(m1, RES_EJECT);
    assert_ok(res_block_at(m1, 0, &is, &err), err);
    assert_true(was.addr == is.addr && res_info(m1).state == RES_RESIDENT);
    static const char *const other[] = { "m2" };
    x = rig_free(g, (struct res_free_args) { .free_memory = true, .models = other, .models_n = 1 });
    assert_verdict(&x, "m1", RES_KEPT, "not selected");
    res_receipt_release(&x);
    m2 = rig_load(g, rig_tiny("m2", "null:0", RES_AUTO), NULL, NULL);
    x = rig_free(g, button);
    assert_verdict(&x, "m1", RES_EJECTED_BY_FREE, "marked eject");
    assert_verdict(&x, "m2", RES_KEPT, "auto: others are marked eject");
    res_receipt_release(&x);
    assert_int_equal(res_model_count(g->r), 1);
    assert_ptr_equal(res_model_at(g->r, 0), m2);
    rig_close(g);
}

/* ---- trouble half way ---- */

static struct res_model *victim; /* of the callbacks below */

static void move_it(struct rig *g)
{
    struct plan_args plan = { .alloc = "null:1,*", .compute = "null:1" };
    berth_err err = { 0 };
    (void)g;
    assert_ok(res_replan(victim, &plan, NULL, &err), err);
}

static void eject_it(struct rig *g)
{
    berth_err err = { 0 };
    (void)g;
    assert_ok(res_eject(victim, &err), err);
}

static void who_stays_and_does_not_is_reported(void **state)
{
    static void (*const harm[])(struct rig *) = { move_it, eject_it };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(harm); i++) {
        struct rig *g = rig_open(DEVICES, NULL, NULL);
        struct res_block_at at;
        struct str json = { 0 };
        char was[32];
        berth_err err = { 0 };
        rig_load(g, rig_tiny("m0", "null:0", RES_EJECT), NULL, NULL);
        rig_load(g, rig_tiny("m2", "null:0", RES_KEEP), NULL, NULL);
        victim = rig_load(g, rig_tiny("m1", "null:0", RES_KEEP), NULL, NULL);
        assert_ok(res_block_at(victim, 0, &at, &err), err);
        g->at_reset = harm[i];
        struct res_receipt x = rig_free(g, (struct res_free_args) { .free_memory = true });
        assert_int_equal(x.violations, 1);
        const struct res_receipt_violation *v = &x.violation[0];
        assert_string_equal(v->of->name, "m1");
        assert_string_equal(v->step, "reset");
        assert_true(v->was == at.addr && v->is != at.addr);
        assert_int_equal(v->gone, i != 0);
        if (i == 0) {
            assert_string_equal(v->block, "blocks.0");
            assert_ok(res_block_at(victim, 0, &at, &err), err);
            assert_true(v->is == at.addr);
            assert_verdict(&x, "m1", RES_KEPT, "marked keep");
        } else {
            assert_int_equal(v->is, 0);
            assert_verdict(&x, "m1", RES_FAILED, "gone in step reset");
            assert_non_null(strstr(g->last_error, "is=gone"));
        }
        assert_verdict(&x, "m2", RES_KEPT, "marked keep");
        assert_int_equal(res_metrics(g->r).retention_violations, 1);
        assert_int_equal(g->errors, 1);
        snprintf(was, sizeof was, "was=0x%llx", (unsigned long long)v->was);
        assert_non_null(strstr(g->last_error, was));
        assert_non_null(strstr(g->last_error, "step=reset"));
        assert_non_null(strstr(g->last_error, "model=\"m1\""));
        res_receipt_json(&x, &json);
        assert_non_null(strstr(str_c(&json), "\"step\":\"reset\""));
        assert_non_null(strstr(str_c(&json), i ? "\"gone\":true" : "\"gone\":false"));
        res_receipt_text(&x, &json);
        assert_non_null(
            strstr(str_c(&json), "VIOLATION: m1, model, was to stay, but after step 'reset' "));
        assert_true(!strstr(str_c(&json), "it is gone (was at 0x") == !i);
        assert_true(!strstr(str_c(&json), "moved from 0x") == !!i);
        str_release(&json);
        res_receipt_release(&x);
        rig_close(g);
    }
}

static berth_status tried[2];

static void free_again(struct rig *g)
{
    struct res_free_args a = { .force = true };
    struct res_receipt x;
    berth_err err = { 0 };
    tried[0] = res_free(g->r, &a, &x, &err);
    res_receipt_release(&x);
    res_request_free(g->r, true, false, false);
    tried[1] = res_settle(g->r, &x, &err);
    res_receipt_release(&x);
}

static void no_free_inside_a_free(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct res_receipt x;
    berth_err err = { 0 };
    (void)state;
    rig_load(g, rig_tiny("m0", "null:0", RES_KEEP), NULL, NULL);
    g->at_reset = free_again;
    x = rig_free(g, (struct res_free_args) { .free_memory = true });
    res_receipt_release(&x);
    assert_int_equal(tried[0], BERTH_EBUSY);
    assert_int_equal(tried[1], BERTH_EBUSY);
    assert_int_equal(res_metrics(g->r).frees, 1);
    assert_int_equal(res_model_count(g->r), 1);
    assert_true(res_has_requests(g->r)); /* it was not lost */
    g->at_reset = NULL;
    assert_ok(res_settle(g->r, &x, &err), err);
    assert_int_equal(x.serial, 2);
    res_receipt_release(&x);
    rig_close(g);
}

/* Memory that queued work still reads, on both cards; one of them does not answer. */
static void a_device_in_trouble_does_not_stop_the_others(void **state)
{
    static const struct null_config lazy = { .lazy = true };
    static const struct dev_env env = { .null = &lazy };
    (void)state;
    for (int wait = 0; wait < 2; wait++) {
        struct rig *g = rig_open(DEVICES, &env, NULL);
        struct dev_stream *s[2];
        struct dev_event *e[2];
        struct dev_owner *o[2];
        berth_err err = { 0 };
        rig_load(g, rig_tiny("m0", "null:0", RES_AUTO), NULL, NULL);
        rig_load(g, rig_tiny("m1", "null:1", RES_AUTO), NULL, NULL);
        for (int i = 0; i < 2; i++) {
            static uint8_t zero[4096];
            struct device *d = devset_at(g->set, (size_t)i + 1);
            s[i] = stream_of(d);
            e[i] = event_of(d);
            o[i] = owner_of(d, "step", DEV_ACTIVATIONS);
            struct dev_mem m = alloc_on(d, o[i], sizeof zero);
            assert_ok(dev_copy_h2d(s[i], m.addr, zero, sizeof zero, &err), err);
            assert_ok(dev_event_record(e[i], s[i], &err), err);
            dev_retire(&m, e[i]);
        }
        struct device *sick = devset_at(g->set, 1), *well = devset_at(g->set, 2);
        null_fail(sick, wait ? NULL_EVENT_SYNC : NULL_EVENT_QUERY, 1);
        struct res_receipt x =
            rig_free(g, (struct res_free_args) { .free_memory = true, .wait = wait });
        assert_int_equal(res_model_count(g->r), 0); /* both models went all the same */
        assert_int_equal(ledger_bytes(sick, "m"), 0);
        assert_int_equal(ledger_bytes(well, "m"), 0);
        assert_int_equal(ledger_bytes(sick, "step"), 4096); /* still read, still booked */
        assert_int_equal(ledger_bytes(well, "step"), wait ? 0 : 4096);
        assert_true(x.device[2].after[DEV_ACTIVATIONS] == (wait ? 0 : 4096));
        assert_true(x.device[1].released > 0 && x.device[2].released > 0);
        res_receipt_release(&x);
        for (int i = 0; i < 2; i++) {
            dev_stream_free(s[i]);
            assert_ok(dev_drain(devset_at(g->set, (size_t)i + 1), NULL, &err), err);
            dev_event_free(e[i]);
            dev_owner_close(o[i]);
        }
        rig_close(g);
    }
}

static void free_survives_oom(void **state)
{
    (void)state;
    for (long k = 0;; k++) {
        struct rig *g = rig_open(DEVICES, NULL, NULL);
        struct res_model *m[2] = { rig_load(g, rig_tiny("m0", "null:0", RES_EJECT), NULL, NULL),
                                   rig_load(g, rig_tiny("m1", "null:0", RES_AUTO), NULL, NULL) };
        struct res_free_args a = { .free_memory = true };
        struct res_receipt x;
        berth_err err = { 0 };
        res_request_free(g->r, true, false, false);
        oom_after(k);
        berth_status s = k % 2 ? res_free(g->r, &a, &x, &err) : res_settle(g->r, &x, &err);
        bool whole = oom_seen() <= k;
        oom_off();
        if (s) { /* nothing happened, nothing was forgotten */
            assert_int_equal(s, BERTH_ENOMEM);
            assert_true(err.msg[0] && x.models == 0);
            assert_int_equal(res_info(m[0]).state, RES_RESIDENT);
            assert_int_equal(res_info(m[1]).anchors, 0);
            assert_true(res_has_requests(g->r));
            assert_int_equal(g->resets, 0);
        } else { /* done, if perhaps without a line of the journal */
            assert_verdict(&x, "m0", RES_EJECTED_BY_FREE, "marked");
            assert_verdict(&x, "m1", RES_KEPT, "others");
        }
        assert_ok(res_check(g->r, &err), err);
        res_receipt_release(&x);
        rig_close(g);
        if (whole && k % 2)
            break;
    }
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define OTHER_MALLOC 1 /* a sanitizer's, which keeps what is freed */
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OTHER_MALLOC 1
#endif
#endif
#ifndef OTHER_MALLOC
#define OTHER_MALLOC 0
#endif

/* Heap that is free but below something that is not stays with malloc, until somebody says so. */
static void host_pages_go_back(void **state)
{
    enum { PIECES = 16384, PIECE = 4000 };
    static char *piece[PIECES];
    (void)state;
    if (OTHER_MALLOC)
        skip();
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    for (size_t i = 0; i < PIECES; i++) {
        piece[i] = malloc(PIECE);
        assert_non_null(piece[i]);
        memset(piece[i], 1, PIECE);
    }
    for (size_t i = 0; i + 1 < PIECES; i++)
        free(piece[i]);
    static const char *const elsewhere[] = { "null:0" };
    struct res_receipt x =
        rig_free(g, (struct res_free_args) { .devices = elsewhere, .devices_n = 1 });
    assert_true(x.rss_after + 8 * MIB > x.rss_before); /* RAM was not meant */
    res_receipt_release(&x);
    x = rig_free(g, (struct res_free_args) { 0 });
    assert_true(x.rss_after + 32 * MIB < x.rss_before);
    res_receipt_release(&x);
    free(piece[PIECES - 1]);
    rig_close(g);
}

/* ---- snapshots ---- */

static void expect_lines(struct rig *g, const char *identifier, const char *const *tag, size_t n)
{
    struct journal_entry e[24];
    size_t got = journal_query(res_journal(g->r), 0, identifier, e, ARRAY_LEN(e), NULL);
    for (size_t i = 0; i < n && i < got; i++)
        assert_string_equal(e[i].tag, tag[i]);
    assert_int_equal(got, n);
}

static void snapshots_of_a_free(void **state)
{
    static const char *const all[] = { "pre-unload",        "post-unload",      "post-reset",
                                       "pre-empty:cpu",     "post-empty:cpu",   "pre-empty:null:0",
                                       "post-empty:null:0", "pre-empty:null:1", "post-empty:null:1",
                                       "post-soft-empty" };
    static const char *const one[] = { "pre-unload",       "post-unload",       "post-reset",
                                       "pre-empty:null:1", "post-empty:null:1", "post-soft-empty" };
    static const char *const none[] = { "pre-unload", "post-unload", "post-reset",
                                        "post-soft-empty" };
    static const char *const resets[] = { "pre-trigger (why)", "post-trigger (why)" };
    static const char *const where[] = { "null:1" };
    const struct {
        struct res_free_args args;
        const char *const *tag;
        size_t n;
    } row[] = {
        { { .free_memory = true, .reason = "why" }, all, ARRAY_LEN(all) },
        { { .unload_models = true }, all, ARRAY_LEN(all) },
        { { .devices = where, .devices_n = 1 }, one, ARRAY_LEN(one) },
        { { .force = true, .tiers = RES_TIER_WEIGHTS }, none, ARRAY_LEN(none) },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct rig *g = rig_open(DEVICES, NULL, NULL);
        rig_load(g, rig_tiny("m0", "null:0", RES_AUTO), NULL, NULL);
        struct res_receipt x = rig_free(g, row[i].args);
        expect_lines(g, "general", row[i].tag, row[i].n);
        expect_lines(g, "executor_reset", resets, row[i].args.free_memory ? 2 : 0);
        res_receipt_release(&x);
        rig_close(g);
    }
    struct rig *g = rig_open(DEVICES, NULL, NULL); /* no executor: there is nothing to trigger */
    res_set_reset(g->r, NULL, NULL);
    struct res_receipt x = rig_free(g, row[0].args);
    expect_lines(g, "general", all, ARRAY_LEN(all));
    expect_lines(g, "executor_reset", NULL, 0);
    res_receipt_release(&x);
    rig_close(g);
}

/* The lines around the callback and around a trim show what it did. */
static void snapshots_see_the_trim(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct journal_entry e[16];
    (void)state;
    rig_load(g, rig_tiny("m0", "null:0", RES_AUTO), NULL, NULL);
    struct res_receipt x = rig_free(g, (struct res_free_args) { .unload_models = true });
    size_t n = journal_query(res_journal(g->r), 0, "general", e, 16, NULL);
    assert_int_equal(n, 10);
    assert_true(e[4].used[1] == e[5].used[1]);        /* cpu's trim is not null:0's */
    assert_true(e[5].used[1] >= e[6].used[1] + SIZE); /* its own is */
    assert_true(e[6].used[1] == e[9].used[1]);
    res_receipt_release(&x);
    rig_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_row_by_row),
        cmocka_unit_test(models_by_name_and_number),
        cmocka_unit_test(devices_narrow_the_table),
        cmocka_unit_test(a_narrowed_free_takes_what_is_selected),
        cmocka_unit_test(selectors_that_name_nothing),
        cmocka_unit_test(a_refused_free_empties_nothing),
        cmocka_unit_test(dry_run_changes_nothing_and_tells_the_truth),
        cmocka_unit_test(a_dry_run_knows_what_trimming_leaves),
        cmocka_unit_test(a_dry_run_during_a_prompt_is_about_its_end),
        cmocka_unit_test(a_kept_model_after_force),
        cmocka_unit_test(a_survivor_is_marked),
        cmocka_unit_test(who_stays_and_does_not_is_reported),
        cmocka_unit_test(no_free_inside_a_free),
        cmocka_unit_test(a_device_in_trouble_does_not_stop_the_others),
        cmocka_unit_test(free_survives_oom),
        cmocka_unit_test(host_pages_go_back),
        cmocka_unit_test(snapshots_of_a_free),
        cmocka_unit_test(snapshots_see_the_trim),
    };
    return cmocka_run_group_tests_name("free", tests, NULL, NULL);
}
