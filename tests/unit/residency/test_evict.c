/* Making room: each step, its order, who never goes, and what the error says. */
#include "residency/residency_impl.h"
#include "support/clock_manual.h"
#include "support/models.h"

/* A layer takes 65,792 bytes of a device: 65,536, padding before the bias, rounded to 256. Budgets
 * are whole layers: 257k are four of them, 514k eight. */
enum { BYTES = 64 << 10, KB = 1 << 10 };

/* ---- what was logged ---- */

struct said {
    struct log log;
    char text[4096]; /* "event text" lines of res.evict and res.demote */
};

static void hear(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                 const char *text)
{
    struct said *s = user;
    size_t n = strlen(s->text);
    (void)level, (void)wall_ns;
    if (strcmp(event, "res.evict") == 0 || strcmp(event, "res.demote") == 0)
        snprintf(s->text + n, sizeof s->text - n, "%s %s\n", event, text);
}

static struct res_config listening(struct said *s)
{
    *s = (struct said) { .log = { .level = LOG_DEBUG, .write = hear, .user = s } };
    return (struct res_config) { .log = &s->log, .pin_budget = RES_NO_PINS };
}

/* A model of `layers` blocks, loaded, a second after the one before. */
static struct res_model *tenant(struct fixture *f, const char *name, size_t layers,
                                const char *alloc, enum res_retention retention)
{
    struct res_model *m = model_open(f, model_file(name, layers, BYTES), alloc, retention);
    clock_manual_advance(&f->clock, 1000000000);
    model_load(m);
    return m;
}

static enum res_state state_of(const struct res_model *m)
{
    return res_info(m).state;
}

/* ---- steps ---- */

static void eject_models_go_first(void **state)
{
    struct fixture f;
    struct said said;
    struct res_config cfg = listening(&said);
    (void)state;
    fixture_open(&f, "cpu=1m,null:0=514k", &cfg);
    struct res_model *old = tenant(&f, "old", 2, "#null:0", RES_AUTO);
    struct res_model *keep = tenant(&f, "keep", 2, "#null:0", RES_KEEP);
    struct res_model *eject = tenant(&f, "eject", 2, "#null:0", RES_EJECT);
    struct res_model *new = tenant(&f, "new", 4, "#null:0", RES_AUTO);
    assert_int_equal(state_of(eject), RES_EJECTED);
    assert_int_equal(res_bytes_on(old, 1), 2 * BYTES); /* enough: nobody else moved */
    assert_int_equal(res_bytes_on(keep, 1), 2 * BYTES);
    assert_string_equal(said.text, "res.evict model=eject#3 bytes=131072 dev=null:0 why=room\n");
    model_intact(new);
    fixture_check(&f);
    res_unref(old), res_unref(keep), res_unref(eject), res_unref(new);
    fixture_close(&f);
}

static void auto_blocks_move_to_their_donors(void **state)
{
    struct fixture f;
    struct said said;
    struct res_config cfg = listening(&said);
    (void)state;
    fixture_open(&f, "cpu=1m,null:0=514k,null:1=150k", &cfg);
    struct res_model *a = tenant(&f, "a", 4, "null:0,256kb;null:1,*#null:0", RES_AUTO);
    struct res_model *b = tenant(&f, "b", 4, "#null:0", RES_AUTO);
    struct res_model *c = tenant(&f, "c", 3, "#null:0", RES_AUTO);
    /* Three blocks too many. a was unused for longest: two to its own donor, one to the host. */
    assert_int_equal(res_bytes_on(a, 1), BYTES);
    assert_int_equal(res_bytes_on(a, 2), 2 * BYTES);
    assert_int_equal(res_bytes_on(a, 0), BYTES);
    assert_int_equal(res_bytes_on(b, 1), 4 * BYTES);
    assert_string_equal(said.text,
                        "res.demote model=a#1 blocks=3 bytes=196608 dev=null:0 why=room\n");
    assert_int_equal(res_metrics(f.r).demotions, 3);
    assert_int_equal(res_metrics(f.r).demoted_bytes, 3 * BYTES);
    assert_int_equal(res_metrics(f.r).ejects, 0);
    assert_int_equal(res_info(a).demoted, 3);
    model_intact(a);
    model_intact(c);
    fixture_check(&f);
    /* They come home when there is room, not before, and not by pushing. */
    assert_int_equal(model_load(a).moved, 0);
    res_unref(c);
    assert_int_equal(model_load(a).moved, 3 * BYTES);
    assert_int_equal(res_bytes_on(a, 1), 4 * BYTES);
    model_intact(a);
    res_unref(a), res_unref(b);
    fixture_close(&f);
}

/* Too little room for the part that has to move: nothing is copied only to be thrown away. */
static void no_copy_before_the_end(void **state)
{
    struct fixture f;
    struct said said;
    struct res_config cfg = listening(&said);
    (void)state;
    fixture_open(&f, "cpu=150k,null:0=514k", &cfg); /* two layers on the host, and staging */
    struct res_model *a = tenant(&f, "a", 8, "#null:0", RES_AUTO);
    struct res_model *b = tenant(&f, "b", 4, "#null:0", RES_AUTO);
    assert_int_equal(state_of(a), RES_EJECTED);
    assert_string_equal(said.text, "res.evict model=a#1 bytes=524288 dev=null:0 why=room\n");
    assert_int_equal(res_metrics(f.r).demotions, 0);
    res_unref(a), res_unref(b);
    fixture_close(&f);
}

/* No other place: whole models, by what it costs to have them back. */
static void whole_models_by_cost(void **state)
{
    struct fixture f;
    struct said said;
    struct res_config cfg = listening(&said);
    (void)state;
    fixture_open(&f, "cpu=640k", &cfg);
    struct res_model *a = tenant(&f, "a", 3, NULL, RES_AUTO);
    struct res_model *b = tenant(&f, "b", 3, NULL, RES_AUTO);
    struct res_model *c = tenant(&f, "c", 2, NULL, RES_AUTO);
    model_load(a); /* used again: b is now the one that was idle for longest */
    struct res_model *d = tenant(&f, "d", 3, NULL, RES_AUTO);
    assert_int_equal(state_of(b), RES_EJECTED);
    assert_true(state_of(a) == RES_RESIDENT && state_of(c) == RES_RESIDENT);
    /* Of the same age the one that is cheaper to read again. */
    model_load(a), model_load(c), model_load(d);
    clock_manual_advance(&f.clock, 5);
    struct res_model *e = tenant(&f, "e", 3, NULL, RES_AUTO);
    assert_int_equal(state_of(c), RES_EJECTED);
    assert_string_equal(said.text, "res.evict model=b#2 bytes=196608 dev=cpu why=room\n"
                                   "res.evict model=c#3 bytes=131072 dev=cpu why=room\n");
    fixture_check(&f);
    res_unref(a), res_unref(b), res_unref(c), res_unref(d), res_unref(e);
    fixture_close(&f);
}

static void the_running_prompt_goes_last(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=400k", NULL);
    struct res_model *a = tenant(&f, "a", 2, NULL, RES_AUTO);
    struct res_model *b = tenant(&f, "b", 2, NULL, RES_AUTO);
    res_prompt_begin(f.r);
    assert_ok(res_use_begin(a, &err), err);
    res_use_end(a);
    clock_manual_advance(&f.clock, 1000000000);
    model_load(b); /* used later than a, but not by this prompt */
    struct res_model *c = tenant(&f, "c", 3, NULL, RES_AUTO);
    assert_int_equal(state_of(b), RES_EJECTED);
    assert_int_equal(state_of(a), RES_RESIDENT);
    res_unref(a), res_unref(b), res_unref(c);
    struct res_receipt receipt;
    assert_ok(res_prompt_end(f.r, &receipt, &err), err);
    res_receipt_release(&receipt);
    fixture_close(&f);
}

/* What only lingers goes whole, before anybody has to move. */
static void lingering_goes_first(void **state)
{
    struct fixture f;
    struct said said;
    struct res_config cfg = listening(&said);
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=1m,null:0=514k", &cfg);
    struct res_model *held = tenant(&f, "held", 3, "#null:0", RES_AUTO);
    struct res_model *lingers = tenant(&f, "lingers", 4, "#null:0", RES_AUTO);
    res_prompt_begin(f.r);
    res_linger(held); /* but somebody has a handle */
    res_linger(lingers);
    res_unref(lingers);
    struct res_model *new = tenant(&f, "new", 4, "#null:0", RES_AUTO);
    assert_string_equal(said.text, "res.evict model=lingers#2 bytes=262144 dev=null:0 why=room\n");
    assert_int_equal(res_bytes_on(held, 1), 3 * BYTES);
    assert_int_equal(res_model_count(f.r), 2);
    fixture_check(&f);
    res_unref(held), res_unref(new);
    assert_ok(res_prompt_end(f.r, NULL, &err), err);
    assert_int_equal(res_model_count(f.r), 0);
    fixture_close(&f);
}

/* Marked to go, but this prompt has used it: one that was idle for an hour goes before. */
static void eject_of_the_running_prompt_goes_late(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    struct res_receipt receipt;
    (void)state;
    for (int host_has_room = 0; host_has_room < 2; host_has_room++) {
        fixture_open(&f, host_has_room ? "cpu=1m,null:0=400k" : "cpu=80k,null:0=400k", NULL);
        struct res_model *idle = tenant(&f, "idle", 2, "#null:0", RES_AUTO);
        struct res_model *flux = tenant(&f, "flux", 2, "#null:0", RES_EJECT);
        clock_manual_advance(&f.clock, UINT64_C(3600) * 1000000000);
        res_prompt_begin(f.r);
        assert_ok(res_use_begin(flux, &err), err);
        res_use_end(flux);
        struct res_model *vae = tenant(&f, "vae", 3, "#null:0", RES_AUTO);
        assert_int_equal(state_of(flux), RES_RESIDENT);
        assert_true(res_bytes_on(idle, 1) < 2 * BYTES);
        assert_int_equal(state_of(idle), host_has_room ? RES_RESIDENT : RES_EJECTED);
        struct res_model *next = tenant(&f, "next", 3, "#null:0", RES_AUTO);
        assert_int_equal(state_of(flux), RES_RESIDENT); /* vae was not used, only loaded */
        assert_ok(res_use_begin(next, &err), err);
        res_use_end(next);
        struct res_model *last = tenant(&f, "last", 3, "#null:0", RES_AUTO);
        assert_int_equal(state_of(flux), RES_EJECTED); /* both are this prompt's: marked first */
        assert_true(res_bytes_on(next, 1) > 0);
        model_intact(last);
        fixture_check(&f);
        res_unref(idle), res_unref(flux), res_unref(vae), res_unref(next), res_unref(last);
        assert_ok(res_prompt_end(f.r, &receipt, &err), err);
        res_receipt_release(&receipt);
        fixture_close(&f);
    }
}

static void keep_goes_only_when_told(void **state)
{
    struct fixture f;
    struct said said;
    struct res_config cfg = listening(&said);
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=512k,null:0=257k", &cfg);
    struct res_model *keep = tenant(&f, "keep", 3, "#null:0", RES_KEEP);
    struct res_model *m = model_open(&f, model_file("new", 2, BYTES), "#null:0", RES_AUTO);
    assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_ENODEVMEM,
                 "in the way: keep#1 keep 192 KiB");
    assert_true(state_of(keep) == RES_RESIDENT && state_of(m) == RES_REGISTERED);
    assert_int_equal(res_bytes_on(keep, 1), 3 * BYTES); /* not even demoted */
    /* Nor for a wish that the budget has room for, and the device refused all the same. */
    assert_false(res_evict(f.r, &(struct res_need) { 1, 1, NULL, false }));
    assert_int_equal(state_of(keep), RES_RESIDENT);
    struct res_load_args args = { .evict_keep = true };
    assert_ok(res_load(m, &args, NULL, &err), err);
    assert_int_equal(state_of(keep), RES_EJECTED);
    assert_int_equal(res_info(keep).anchor[RES_ANCHOR_KEEP], 1); /* still known, still keep */
    assert_string_equal(said.text, "res.evict model=keep#1 bytes=196608 dev=null:0 why=room\n");
    /* evict_keep is the last resort: an auto model goes before. */
    assert_ok(res_eject(m, &err), err);
    model_load(keep);
    struct res_model *other = tenant(&f, "auto", 1, "#null:0", RES_AUTO);
    struct res_model *one = model_open(&f, model_file("one", 1, BYTES), "#null:0", RES_AUTO);
    assert_ok(res_load(one, &args, NULL, &err), err);
    assert_int_equal(state_of(keep), RES_RESIDENT);
    assert_int_equal(res_bytes_on(other, 1), 0);
    fixture_check(&f);
    res_unref(keep), res_unref(m), res_unref(other), res_unref(one);
    fixture_close(&f);
}

static void models_in_use_never_go(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=512k,null:0=257k", NULL);
    struct res_model *busy = tenant(&f, "busy", 3, "#null:0", RES_EJECT);
    assert_ok(res_use_begin(busy, &err), err);
    struct res_model *m = model_open(&f, model_file("new", 2, BYTES), "#null:0", RES_AUTO);
    struct res_load_args args = { .evict_keep = true };
    assert_fails(res_load(m, &args, NULL, &err), err, BERTH_ENODEVMEM,
                 "busy#1 eject 192 KiB (in use)");
    assert_non_null(strstr(err.msg, "block 'layers.0' (64.0 KiB) of model new#2 on null:0"));
    assert_non_null(
        strstr(err.msg, "null:0 is full: needs 128 KiB, 64.3 KiB of 257 KiB are left;"));
    res_use_end(busy);
    assert_ok(res_load(m, NULL, NULL, &err), err);
    assert_int_equal(state_of(busy), RES_EJECTED);
    res_unref(m), res_unref(busy);
    fixture_close(&f);
}

/* A model that fits no better when everybody who may go is gone: they stay. */
static void a_hopeless_load_moves_nobody(void **state)
{
    struct fixture f;
    struct said said;
    struct res_config cfg = listening(&said);
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=1m,null:0=514k", &cfg);
    struct res_model *keep = tenant(&f, "keep", 4, "#null:0", RES_KEEP);
    struct res_model *a = tenant(&f, "a", 3, "#null:0", RES_AUTO);
    struct res_open_args args = { .path = model_file("new", 6, BYTES),
                                  .plan.alloc = "#null:0",
                                  .eject_others = true };
    struct res_model *new;
    assert_ok(res_open(f.r, &args, &new, NULL, &err), err);
    assert_fails(res_load(new, NULL, NULL, &err), err, BERTH_ENODEVMEM,
                 "null:0 is full: needs 385 KiB, 64.3 KiB of 514 KiB are left; in the way: "
                 "keep#1 keep 256 KiB, a#2 auto 192 KiB");
    assert_string_equal(said.text, "");
    assert_int_equal(res_bytes_on(a, 1), 3 * BYTES);
    res_set_retention(keep, RES_AUTO);
    model_load(new);
    assert_int_equal(res_bytes_on(new, 1), 6 * BYTES);
    res_unref(keep), res_unref(a), res_unref(new);
    res_set_retention(keep, RES_EJECT); /* its anchor was left over */
    fixture_close(&f);
}

/* Where a model is to lie on two devices, the error has the numbers of both. */
static void every_device_of_the_plan_is_named(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=512k,null:0=257k", NULL);
    struct res_model *keep = tenant(&f, "keep", 3, "#null:0", RES_KEEP);
    struct res_model *m =
        model_open(&f, model_file("new", 4, BYTES), "null:0,128kb;cpu,*#null:0", RES_AUTO);
    assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_ENODEVMEM, "null:0 is full: needs");
    assert_non_null(strstr(err.msg, "its plan has 129 KiB on cpu, where"));
    assert_non_null(strstr(err.msg, "of 512 KiB are left"));
    res_unref(keep), res_unref(m);
    res_set_retention(keep, RES_EJECT);
    fixture_close(&f);
}

/* What cannot help is not done. */
static void a_hopeless_wish_moves_nobody(void **state)
{
    struct fixture f;
    struct said said;
    struct res_config cfg = listening(&said);
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=1m,null:0=514k", &cfg);
    struct res_model *keep = tenant(&f, "keep", 4, "#null:0", RES_KEEP);
    struct res_model *a = tenant(&f, "a", 2, "#null:0", RES_AUTO);
    struct res_model *e = tenant(&f, "e", 1, "#null:0", RES_EJECT);
    struct device *d = devset_at(f.set, 1);
    struct dev_owner *o = owner_of(d, "step", DEV_ACTIVATIONS);
    struct dev_mem mem;
    assert_fails(res_alloc(f.r, &(struct res_alloc_args) { d, o, 300 * KB, NULL }, &mem, &err), err,
                 BERTH_ENODEVMEM,
                 "null:0 is full: needs 300 KiB, 64.3 KiB of 514 KiB are left; in the way: ");
    assert_string_equal(said.text, "");
    assert_true(state_of(a) == RES_RESIDENT && state_of(e) == RES_RESIDENT);
    assert_int_equal(res_bytes_on(a, 1), 2 * BYTES);
    /* 256 KiB can be had: e goes, two blocks of a move. For a's own sake only e. */
    assert_fails(res_alloc(f.r, &(struct res_alloc_args) { d, o, 256 * KB, a }, &mem, &err), err,
                 BERTH_ENODEVMEM, "a#2 auto 128 KiB (itself)");
    assert_ok(res_alloc(f.r, &(struct res_alloc_args) { d, o, 256 * KB, NULL }, &mem, &err), err);
    assert_int_equal(state_of(e), RES_EJECTED);
    assert_int_equal(res_bytes_on(a, 0), 2 * BYTES);
    assert_int_equal(res_bytes_on(keep, 1), 4 * BYTES);
    /* Activations are named as what they are. */
    struct dev_mem more;
    assert_fails(res_alloc(f.r, &(struct res_alloc_args) { d, o, 2 * KB, NULL }, &more, &err), err,
                 BERTH_ENODEVMEM, "in the way: activations 256 KiB, keep#1 keep 256 KiB");
    dev_free(&mem);
    dev_owner_close(o);
    fixture_check(&f);
    res_unref(keep), res_unref(a), res_unref(e);
    fixture_close(&f);
}

/* The host is a device like any other: with a budget, with models that go, with pins in it. */
/* A card's budget is all of it, but other programs have most: nobody moves for what their leaving
 * cannot give, and those whose leaving is enough do. */
static void other_programs_count(void **state)
{
    struct fixture f;
    struct said said;
    struct res_config cfg = listening(&said);
    struct dev_mem mem = { 0 };
    uint64_t theirs;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=8m,null:0=8m", &cfg);
    struct device *d = device_named(f.set, "null:0");
    struct res_model *old = tenant(&f, "old", 16, "#null:0", RES_AUTO); /* a bit more than 1 MiB */
    struct dev_owner *o = owner_of(d, "pass", DEV_ACTIVATIONS);
    assert_ok(d->phys->driver->alloc(d->phys, 5 << 20, &theirs, &err), err);
    assert_fails(res_alloc(f.r, &(struct res_alloc_args) { d, o, 4 << 20, NULL }, &mem, &err), err,
                 BERTH_ENODEVMEM, "by its driver; in the way: old#1");
    assert_string_equal(said.text, "");
    assert_int_equal(res_info(old).demoted, 0);
    struct res_model *hopeless =
        model_open(&f, model_file("hopeless", 64, BYTES), "#null:0", RES_AUTO);
    assert_fails(res_load(hopeless, NULL, NULL, &err), err, BERTH_ENODEVMEM, "null:0");
    assert_string_equal(said.text, "");
    assert_ok(res_alloc(f.r, &(struct res_alloc_args) { d, o, 5 << 19, NULL }, &mem, &err), err);
    assert_non_null(strstr(said.text, "res.demote model=old#1"));
    model_intact(old);
    dev_free(&mem);
    d->phys->driver->free(d->phys, theirs, 5 << 20);
    dev_owner_close(o);
    res_unref(old), res_unref(hopeless);
    fixture_close(&f);
}

static void the_host_has_a_budget(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    struct res_config cfg = { .pin_budget = 100 * KB };
    (void)state;
    fixture_open(&f, "cpu=520k,null:0=257k", &cfg);
    struct res_model *a = tenant(&f, "a", 4, "cpu,*#null:0", RES_AUTO);
    assert_true(stats_of(devset_at(f.set, 0)).pinned >= BYTES);
    struct res_model *b = tenant(&f, "b", 4, "#cpu", RES_AUTO);
    assert_true(state_of(a) == RES_RESIDENT && state_of(b) == RES_RESIDENT);
    struct res_model *c = tenant(&f, "c", 3, "#cpu", RES_AUTO);
    assert_int_equal(state_of(a), RES_EJECTED);
    assert_true(stats_of(devset_at(f.set, 0)).in_use <= 520 * KB);
    res_set_retention(b, RES_KEEP);
    res_set_retention(c, RES_KEEP);
    assert_fails(res_load(a, NULL, NULL, &err), err, BERTH_ENODEVMEM, "on cpu");
    assert_non_null(strstr(err.msg, " of 520 KiB are left"));
    assert_non_null(strstr(err.msg, "b#2 keep 256 KiB, c#3 keep 192 KiB"));
    fixture_check(&f);
    res_unref(a), res_unref(b), res_unref(c);
    fixture_close(&f);
}

/* ---- the first steps, which need no model ---- */

static void retired_memory_is_taken(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=1m,null:0=257k", NULL);
    struct device *d = devset_at(f.set, 1);
    struct dev_owner *o = owner_of(d, "step", DEV_ACTIVATIONS);
    struct res_model *keep = tenant(&f, "keep", 2, "#null:0", RES_AUTO);
    struct dev_stream *s = stream_of(d);
    struct dev_event *e = event_of(d);
    struct dev_mem mem = alloc_on(d, o, 2 * BYTES), more;
    static unsigned char bytes[16];
    assert_ok(dev_copy_h2d(s, mem.addr, bytes, sizeof bytes, &err), err);
    assert_ok(dev_event_record(e, s, &err), err);
    dev_retire(&mem, e);
    dev_event_free(e);
    assert_true(res_evict(f.r, &(struct res_need) { 1, 2 * BYTES, NULL, false }));
    assert_int_equal(stats_of(d).retired, 0);
    assert_int_equal(res_bytes_on(keep, 1), 2 * BYTES); /* one step at a time */
    assert_ok(res_alloc(f.r, &(struct res_alloc_args) { d, o, 2 * BYTES, NULL }, &more, &err), err);
    assert_int_equal(res_bytes_on(keep, 1), 2 * BYTES);
    dev_free(&more);
    dev_stream_free(s);
    dev_owner_close(o);
    res_unref(keep);
    fixture_close(&f);
}

static void neighbours_give_their_idle_bytes(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "cpu=1m,null:0=257k,cuda:1@null:0=257k", NULL);
    struct device *d = devset_at(f.set, 1), *n = devset_at(f.set, 2);
    struct dev_owner *o = owner_of(n, "step", DEV_ACTIVATIONS);
    struct dev_mem mem = alloc_on(n, o, BYTES);
    struct res_model *keep = tenant(&f, "keep", 2, "#null:0", RES_AUTO);
    dev_free(&mem);
    assert_true(stats_of(n).idle > 0);
    assert_true(res_evict(f.r, &(struct res_need) { 1, BYTES, NULL, false }));
    assert_int_equal(stats_of(n).idle, 0);
    assert_int_equal(res_bytes_on(keep, 1), 2 * BYTES);
    assert_true(res_evict(
        f.r, &(struct res_need) { 1, 3 * BYTES, NULL, false })); /* now somebody has to move */
    assert_int_equal(res_bytes_on(keep, 1), BYTES);
    assert_ptr_equal(d, devset_at(f.set, 1));
    dev_owner_close(o);
    res_unref(keep);
    fixture_close(&f);
}

/* Names of any length and number: the message is cut, and says so. */
static void many_tenants_fit_in_a_message(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    struct res_model *m[20];
    (void)state;
    fixture_open(&f, "cpu=1290k", NULL);
    const char *path = model_file("many", 20, BYTES);
    for (size_t i = 0; i < 20; i++) {
        char part[32], name[300];
        snprintf(part, sizeof part, "layers.%zu.", i);
        memset(name, 'a' + (int)i, sizeof name);
        name[sizeof name - 1] = 0;
        struct res_open_args args = {
            .path = path, .part = part, .name = name, .retention = RES_KEEP
        };
        assert_ok(res_open(f.r, &args, &m[i], NULL, &err), err);
        model_load(m[i]);
    }
    struct res_model *new = model_open(&f, model_file("new", 2, BYTES), NULL, RES_AUTO);
    assert_fails(res_load(new, NULL, NULL, &err), err, BERTH_ENODEVMEM, "keep 64.0 KiB");
    assert_true(strlen(err.msg) < sizeof err.msg - 1);
    assert_non_null(strstr(err.msg, ", ..."));
    assert_non_null(strstr(err.msg, "of model new#21 on cpu"));
    for (size_t i = 0; i < 20; i++)
        res_unref(m[i]);
    res_unref(new);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eject_models_go_first),
        cmocka_unit_test(auto_blocks_move_to_their_donors),
        cmocka_unit_test(no_copy_before_the_end),
        cmocka_unit_test(whole_models_by_cost),
        cmocka_unit_test(the_running_prompt_goes_last),
        cmocka_unit_test(lingering_goes_first),
        cmocka_unit_test(eject_of_the_running_prompt_goes_late),
        cmocka_unit_test(keep_goes_only_when_told),
        cmocka_unit_test(models_in_use_never_go),
        cmocka_unit_test(a_hopeless_load_moves_nobody),
        cmocka_unit_test(a_hopeless_wish_moves_nobody),
        cmocka_unit_test(every_device_of_the_plan_is_named),
        cmocka_unit_test(other_programs_count),
        cmocka_unit_test(the_host_has_a_budget),
        cmocka_unit_test(retired_memory_is_taken),
        cmocka_unit_test(neighbours_give_their_idle_bytes),
        cmocka_unit_test(many_tenants_fit_in_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
