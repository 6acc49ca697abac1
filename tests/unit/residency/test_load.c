/* Loading: every way a byte can take, progress, cancel, files that change under us. */
#include "journal/journal.h"
#include "support/models.h"
#include "support/oom.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct res_load_result load_with(struct fixture *f, const char *path, const char *alloc)
{
    struct res_model *m = model_open(f, path, alloc, RES_AUTO);
    struct res_load_result got = model_load(m);
    model_intact(m);
    fixture_check(f);
    res_unref(m);
    return got;
}

/* The same bytes arrive whatever the plan, the pins and the threads. */
static void every_way(void **state)
{
    enum { LAYERS = 6, BYTES = 96 << 10 };
    static const struct {
        const char *devices, *alloc;
        uint64_t pins;
        unsigned moved_layers; /* to devices that are not host memory */
    } cases[] = {
        { "cpu=8m", NULL, 0, 0 },
        { "cpu=8m", "#cpu", 0, 0 },
        { "cuda:0@cpu=1m,cpu=8m", "cuda:0,192kb;cpu,*#cuda:0", 0, 0 },
        { "cpu=8m,null:0=1m", "#null:0", 0, 6 },
        { "cpu=8m,null:0=1m", "null:0,192kb;cpu,*#null:0", 0, 2 },
        { "cpu=8m,null:0=1m", "null:0,192kb;cpu,*#null:0", RES_NO_PINS, 2 },
        { "cpu=8m,null:0=1m", "null:0,192kb;cpu,*#null:0", 200 << 10, 2 }, /* pins for two */
        { "cpu=8m,null:0=1m,null:1=1m", "null:0,192kb;null:1,192kb;cpu,*#null:0", 0, 4 },
        { "null:0=1m,null:1=1m", "null:0,192kb;null:1,*#null:0", 0, 6 }, /* no host at all */
    };
    (void)state;
    const char *path = model_file("a", LAYERS, BYTES);
    for (size_t threads = 0; threads < 4; threads += 3)
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            struct fixture f;
            struct tpool *pool = NULL;
            berth_err err = { 0 };
            if (threads)
                assert_ok(tpool_new(threads, &pool, &err), err);
            struct res_config cfg = { .pin_budget = cases[i].pins, .pool = pool };
            fixture_open(&f, cases[i].devices, &cfg);
            struct res_load_result got = load_with(&f, path, cases[i].alloc);
            assert_int_equal(got.read, LAYERS * BYTES);
            assert_int_equal(got.moved, cases[i].moved_layers * BYTES);
            assert_false(got.was_resident);
            fixture_close(&f);
            tpool_free(pool);
        }
}

static void pinned_until_the_budget(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    struct res_config cfg = { .pin_budget = 3 * (64 << 10) + 1000 };
    (void)state;
    fixture_open(&f, "cpu=8m,null:0=4m", &cfg);
    struct res_model *m = model_open(&f, model_file("a", 8, 64 << 10), "cpu,*#null:0", RES_AUTO);
    model_load(m);
    unsigned pinned = 0, pageable = 0;
    for (size_t i = 0; i < 8; i++) {
        struct res_block_at at;
        assert_ok(res_block_at(m, i, &at, &err), err);
        assert_int_equal(at.device, 0);
        pinned += at.pinned;
        pageable += !at.pinned;
    }
    assert_int_equal(pinned, 3);
    assert_int_equal(pageable, 5);
    assert_true(stats_of(devset_at(f.set, 0)).pinned >= 3 * 65536);
    model_intact(m);
    res_unref(m);

    /* Pins that the driver refuses are pageable memory, not an error. */
    m = model_open(&f, tmp_path("a.safetensors"), "cpu,*#null:0", RES_AUTO);
    null_fail(devset_at(f.set, 1), NULL_HOST_ALLOC, 1);
    model_load(m);
    model_intact(m);
    fixture_check(&f);
    res_unref(m);
    fixture_close(&f);
}

/* Larger than a piece, and a staging buffer smaller than a tensor. */
static void large_tensors(void **state)
{
    struct fixture f;
    (void)state;
    const char *path = model_file("large", 2, 9 << 20);
    fixture_open(&f, "cpu=64m,null:0=32m", NULL);
    load_with(&f, path, NULL);
    fixture_close(&f);
    fixture_open(&f, "cpu=300k,null:0=32m", NULL); /* staging gets what the host has */
    struct res_load_result got = load_with(&f, path, "#null:0");
    assert_int_equal(got.moved, 18 << 20);
    fixture_close(&f);
    fixture_open(&f, "cpu=64m", NULL);
    load_with(&f, path, NULL);
    fixture_close(&f);
}

/* The host has no room for staging until somebody leaves. */
static void staging_makes_room(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "cpu=256k,null:0=1m", NULL);
    struct res_model *old = model_open(&f, model_file("old", 2, 125 << 10), "cpu,*#cpu", RES_AUTO);
    model_load(old);
    load_with(&f, model_file("a", 4, 64 << 10), "#null:0");
    assert_int_equal(res_info(old).state, RES_EJECTED);
    res_set_retention(old, RES_KEEP);
    model_load(old);
    struct res_model *m = model_open(&f, tmp_path("a.safetensors"), "#null:0", RES_AUTO);
    berth_err err = { 0 };
    assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_ENODEVMEM, "staging 65536 bytes");
    assert_non_null(strstr(err.msg, "on null:0"));
    assert_int_equal(res_info(m).state, RES_REGISTERED);
    assert_int_equal(res_info(old).state, RES_RESIDENT);
    res_unref(m);
    res_unref(old);
    fixture_close(&f);
}

static void no_bytes_in_a_tensor(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    struct weights_spec spec[] = {
        { "a.weight", DT_U8, { 1, { 300 } } },
        { "a.bias", DT_U8, { 1, { 0 } } },
        { "empty.weight", DT_F32, { 2, { 0, 4 } } },
    };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path("zero.safetensors"),
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = model_fill };
    assert_ok(weights_write(&args, &err), err);
    fixture_open(&f, "cpu=1m,null:0=1m", NULL);
    struct res_model *m = model_open(&f, args.path, "#null:0", RES_AUTO);
    struct plan_args to_cpu = { .alloc = "#cpu" };
    uint64_t a, b;
    assert_int_equal(model_load(m).read, 300);
    assert_ok(res_checksum(m, &a, &err), err);
    assert_ok(res_replan(m, &to_cpu, NULL, &err), err);
    assert_ok(res_checksum(m, &b, &err), err);
    assert_true(a == b);
    fixture_check(&f);
    res_unref(m);
    fixture_close(&f);
}

/* ---- progress, cancel ---- */

struct watch {
    uint64_t last, total, calls;
    bool backwards;
    atomic_bool cancel;
    uint64_t cancel_after; /* bytes; 0: never */
};

static void watch(void *user, uint64_t done, uint64_t total)
{
    struct watch *w = user;
    w->backwards |= done < w->last || done > total || (w->total && w->total != total);
    w->last = done;
    w->total = total;
    w->calls++;
    if (w->cancel_after && done >= w->cancel_after)
        atomic_store(&w->cancel, true);
}

static void progress_ends_at_the_total(void **state)
{
    static const char *const alloc[] = { "#null:0", "cpu,*#null:0", "null:0,32kb;cpu,*#null:0" };
    const char *path = model_file("a", 700, 200); /* more pieces than a batch has */
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(alloc); i++) {
        struct fixture f;
        struct watch w = { .last = 0 };
        struct res_load_args args = { .progress = watch, .progress_user = &w };
        berth_err err = { 0 };
        fixture_open(&f, "cpu=8m,null:0=4m", NULL);
        struct res_model *m = model_open(&f, path, alloc[i], RES_AUTO);
        assert_ok(res_load(m, &args, NULL, &err), err);
        assert_false(w.backwards);
        assert_true(w.last == 700 * 200 && w.total == w.last && w.calls >= 2);
        w = (struct watch) { .last = 0 }; /* resident: said once, done */
        assert_ok(res_load(m, &args, NULL, &err), err);
        assert_true(w.calls == 1 && w.last == 700 * 200);
        res_unref(m);
        fixture_close(&f);
    }
}

static void cancel_leaves_nothing(void **state)
{
    static const char *const alloc[] = { "#null:0", "cpu,*#null:0", "null:0,70kb;cpu,*#null:0" };
    const char *path = model_file("a", 700, 200);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(alloc); i++)
        for (int eject_first = 0; eject_first < 2; eject_first++) {
            struct fixture f;
            struct watch w = { .cancel_after = 1 };
            struct res_load_args args = { .progress = watch,
                                          .progress_user = &w,
                                          .cancel = &w.cancel };
            berth_err err = { 0 };
            fixture_open(&f, "cpu=8m,null:0=4m", NULL);
            struct res_model *m = model_open(&f, path, alloc[i], RES_AUTO);
            if (eject_first) {
                model_load(m);
                assert_ok(res_eject(m, &err), err);
            }
            assert_fails(res_load(m, &args, NULL, &err), err, BERTH_ECANCELED, "of 140000 bytes");
            assert_int_equal(res_info(m).state, eject_first ? RES_EJECTED : RES_REGISTERED);
            assert_true(w.last > 0 && w.last < 140000);
            assert_int_equal(fixture_in_use(&f, "cpu") + fixture_in_use(&f, "null:0"), 0);
            assert_int_equal(res_metrics(f.r).load_failures, 0);
            fixture_check(&f);
            model_load(m); /* and it can be had all the same */
            model_intact(m);
            res_unref(m);
            fixture_close(&f);
        }
    struct fixture f; /* before the first byte */
    struct watch w = { .last = 0 };
    struct res_load_args args = { .cancel = &w.cancel };
    berth_err err = { 0 };
    atomic_store(&w.cancel, true);
    fixture_open(&f, "cpu=8m", NULL);
    struct res_model *m = model_open(&f, path, NULL, RES_AUTO);
    assert_fails(res_load(m, &args, NULL, &err), err, BERTH_ECANCELED, "after 0 of");
    res_unref(m);
    fixture_close(&f);
}

/* What a callback may not do, it is told. */
static void reenter(void *user, uint64_t done, uint64_t total)
{
    struct res_model *m = user;
    struct plan_args plan = { .alloc = "#cpu" };
    berth_err err = { 0 };
    if (done == total)
        return;
    assert_int_equal(res_info(m).state, RES_LOADING);
    assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_EBUSY, "is being loaded");
    assert_fails(res_eject(m, &err), err, BERTH_EBUSY, "in use");
    assert_fails(res_replan(m, &plan, NULL, &err), err, BERTH_EBUSY, "in use");
    assert_fails(res_set_patches(m, NULL, 0, &err), err, BERTH_EBUSY, "in use");
    assert_fails(res_use_begin(m, &err), err, BERTH_EINVAL, "is loading");
}

static void loading_is_a_state(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=8m", NULL);
    struct res_model *m = model_open(&f, model_file("a", 700, 200), NULL, RES_AUTO);
    struct res_load_args args = { .progress = reenter, .progress_user = m };
    assert_ok(res_load(m, &args, NULL, &err), err);
    assert_int_equal(res_info(m).state, RES_RESIDENT);
    res_unref(m);
    fixture_close(&f);
}

/* The callback gives the last handle back: the load ends first, well or not, then the model
 * goes. */
struct quitter {
    struct res_model *m;
    struct residency *r;
    atomic_bool left;
};

static void quit(void *user, uint64_t done, uint64_t total)
{
    struct quitter *q = user;
    (void)done, (void)total;
    if (!atomic_exchange(&q->left, true))
        res_unref(q->m);
    assert_int_equal(res_model_count(q->r), 1); /* not under the load's feet */
}

static void let_go_while_loading(void **state)
{
    static const struct {
        bool resident, cancel, keep, stays;
    } row[] = {
        { false, false, false, false }, { false, false, true, true },
        { false, true, false, false },  { false, true, true, false }, /* keeps bytes, has none */
        { true, false, false, false },  { true, false, true, true },
    };
    const char *path = model_file("a", 700, 200);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct fixture f;
        berth_err err = { 0 };
        fixture_open(&f, "cpu=8m", NULL);
        struct res_model *m = model_open(&f, path, NULL, row[i].keep ? RES_KEEP : RES_AUTO);
        struct quitter q = { .m = m, .r = f.r };
        struct res_load_args args = { .progress = quit,
                                      .progress_user = &q,
                                      .cancel = row[i].cancel ? &q.left : NULL };
        if (row[i].resident)
            model_load(m);
        assert_int_equal(res_load(m, &args, NULL, &err),
                         row[i].cancel ? BERTH_ECANCELED : BERTH_OK);
        assert_true(atomic_load(&q.left));
        assert_int_equal(res_model_count(f.r), row[i].stays);
        assert_int_equal(fixture_in_use(&f, "cpu") > 0, row[i].stays);
        fixture_close(&f);
    }
}

/* ---- files that change ---- */

static void changed_files(void **state)
{
    enum { CUT, CUT_TO_HEADER, TOUCHED, CASES };
    (void)state;
    for (int i = 0; i < CASES; i++)
        for (int card = 0; card < 2; card++) {
            struct fixture f;
            berth_err err = { 0 };
            struct timespec times[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
            fixture_open(&f, "cpu=8m,null:0=4m", NULL);
            const char *path = model_file("a", 8, 64 << 10);
            struct res_model *m = model_open(&f, path, card ? "#null:0" : "#cpu", RES_AUTO);
            if (i == TOUCHED)
                assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
            else
                assert_int_equal(truncate(path, i == CUT ? 400000 : 4000), 0);
            assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_EIO, "a.safetensors");
            assert_non_null(strstr(err.msg, "a#1"));
            assert_int_equal(res_info(m).state, RES_REGISTERED);
            assert_int_equal(fixture_in_use(&f, "cpu") + fixture_in_use(&f, "null:0"), 0);
            assert_int_equal(res_metrics(f.r).load_failures, 1);
            res_unref(m);
            fixture_close(&f);
        }
}

/* ---- eject_others ---- */

static void ejects_others(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=8m,null:0=4m", NULL);
    const char *path = model_file("a", 4, 64 << 10);
    static const char *const part[] = { "layers.0", "layers.1", "layers.2", "layers.3" };
    struct res_model *m[4];
    for (size_t i = 0; i < 4; i++) {
        struct res_open_args args = { .path = path,
                                      .part = part[i],
                                      .plan.alloc = "#null:0",
                                      .retention = i == 0   ? RES_EJECT
                                                   : i == 1 ? RES_KEEP
                                                            : RES_AUTO };
        assert_ok(res_open(f.r, &args, &m[i], NULL, &err), err);
        model_load(m[i]);
    }
    assert_ok(res_use_begin(m[3], &err), err);
    struct res_open_args args = { .path = model_file("b", 2, 64 << 10),
                                  .plan.alloc = "#null:0",
                                  .eject_others = true };
    struct res_model *b;
    assert_ok(res_open(f.r, &args, &b, NULL, &err), err);
    model_load(b);
    assert_int_equal(res_info(m[0]).state, RES_EJECTED); /* marked to go: goes */
    assert_int_equal(res_bytes_on(m[1], 1), 64 << 10);   /* kept */
    assert_int_equal(res_bytes_on(m[2], 1), 0);          /* auto: to the host, not lost */
    assert_int_equal(res_bytes_on(m[2], 0), 64 << 10);
    assert_int_equal(res_bytes_on(m[3], 1), 64 << 10); /* in use */
    res_use_end(m[3]);
    model_load(b); /* resident: evicts nothing */
    assert_int_equal(res_bytes_on(m[3], 1), 64 << 10);
    /* Coming home costs a copy and no read. */
    struct res_load_result got = model_load(m[2]);
    assert_true(got.read == 0 && got.moved == 64 << 10 && got.was_resident);
    got = model_load(m[2]);
    assert_true(got.read == 0 && got.moved == 0);
    fixture_check(&f);
    for (size_t i = 0; i < 4; i++)
        res_unref(m[i]);
    res_unref(b);
    fixture_close(&f);
}

/* Making room for the load sends nobody back to the device that it was to clear. */
static void nobody_comes_back(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=8m,null:0=4m,null:1=260k", NULL);
    struct res_model *a =
        model_open(&f, model_file("a", 4, 64 << 10), "null:0,128kb;null:1,128kb#cpu", RES_AUTO);
    model_load(a);
    assert_int_equal(res_bytes_on(a, 1), 128 << 10);
    assert_int_equal(res_bytes_on(a, 2), 128 << 10);
    struct res_open_args args = { .path = model_file("b", 4, 64 << 10),
                                  .plan.alloc = "null:1,256kb#null:0",
                                  .eject_others = true };
    struct res_model *b;
    assert_ok(res_open(f.r, &args, &b, NULL, &err), err);
    model_load(b);
    assert_int_equal(res_bytes_on(b, 2), 256 << 10);
    assert_int_equal(res_bytes_on(a, 1) + res_bytes_on(a, 2), 0);
    assert_int_equal(res_bytes_on(a, 0), 256 << 10); /* the host had room */
    fixture_check(&f);
    res_unref(a), res_unref(b);
    fixture_close(&f);
}

/* A wish of a model that was there already waits for its next load, and clears nothing until
 * then. */
static void a_wish_waits_for_its_load(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=8m,null:0=260k", NULL);
    struct res_open_args args = { .path = model_file("b", 4, 64 << 10),
                                  .plan.alloc = "null:0,64kb;cpu,*#cpu" };
    struct res_model *b, *again;
    assert_ok(res_open(f.r, &args, &b, NULL, &err), err);
    model_load(b);
    args.eject_others = true;
    assert_ok(res_open(f.r, &args, &again, NULL, &err), err);
    struct res_model *a = model_open(&f, model_file("a", 3, 64 << 10), "#null:0", RES_AUTO);
    model_load(a);
    struct device *d = devset_at(f.set, 1);
    struct dev_owner *o = owner_of(d, "step", DEV_ACTIVATIONS);
    struct dev_mem mem;
    assert_ok(res_alloc(f.r, &(struct res_alloc_args) { d, o, 64 << 10, b }, &mem, &err), err);
    assert_int_equal(res_info(a).state, RES_RESIDENT);
    assert_int_equal(res_bytes_on(a, 0), 64 << 10); /* b computes there */
    dev_free(&mem);
    dev_owner_close(o);
    res_unref(a), res_unref(b), res_unref(again);
    fixture_close(&f);
}

/* A plain open of the same model does not take it back; the load does. */
static void a_plain_open_erases_no_wish(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=8m,null:0=4m", NULL);
    struct res_model *other = model_open(&f, model_file("a", 2, 64 << 10), "#null:0", RES_EJECT);
    struct res_open_args args = { .path = model_file("b", 2, 64 << 10),
                                  .plan.alloc = "#null:0",
                                  .eject_others = true };
    struct res_model *b, *again;
    model_load(other);
    assert_ok(res_open(f.r, &args, &b, NULL, &err), err);
    again = model_open(&f, args.path, "#null:0", RES_AUTO);
    assert_ptr_equal(again, b);
    model_load(b);
    assert_int_equal(res_info(other).state, RES_EJECTED);
    model_load(other);
    assert_ok(res_eject(b, &err), err);
    model_load(b);
    assert_int_equal(res_info(other).state, RES_RESIDENT);
    res_unref(again), res_unref(b), res_unref(other);
    fixture_close(&f);
}

/* ---- the journal ---- */

/* "identifier tag" of the snapshots after *seq, which moves on; key8 becomes "key". */
static const char *snapshots(struct fixture *f, const struct res_model *m, uint64_t *seq)
{
    static char text[1024];
    struct journal_entry e[32];
    char key[16];
    size_t n = journal_query(res_journal(f->r), *seq, NULL, e, ARRAY_LEN(e), NULL), at = 0;
    snprintf(key, sizeof key, "%08llx", (unsigned long long)(res_info(m).key >> 32));
    text[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const char *colon = strchr(e[i].identifier, ':');
        if (colon && strcmp(colon + 1, key) == 0)
            memcpy(e[i].identifier + (colon - e[i].identifier) + 1, "key", sizeof "key");
        at += (size_t)snprintf(text + at, sizeof text - at, "%s %s\n", e[i].identifier, e[i].tag);
        *seq = e[i].seq;
    }
    return text;
}

static void snapshots_of_a_load(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    uint64_t seq = 0;
    (void)state;
    fixture_open(&f, "cpu=8m,null:0=400k", NULL);
    struct res_model *a = model_open(&f, model_file("a", 4, 64 << 10), "#null:0", RES_EJECT);
    model_load(a);
    assert_string_equal(snapshots(&f, a, &seq), "load_models_gpu_top_level start\n"
                                                "model:key pre-load\n"
                                                "model:key post-weights\n"
                                                "model:key post-model\n"
                                                "model:key post-load\n");
    model_load(a); /* nothing happens, nothing is said */
    assert_string_equal(snapshots(&f, a, &seq), "");
    struct res_open_args args = { .path = model_file("b", 4, 64 << 10),
                                  .role = "unet",
                                  .plan.alloc = "#null:0" };
    struct res_model *b;
    assert_ok(res_open(f.r, &args, &b, NULL, &err), err);
    model_load(b);
    assert_int_equal(res_info(a).state, RES_EJECTED);
    assert_string_equal(snapshots(&f, b, &seq), "load_models_gpu_top_level start\n"
                                                "unet:key pre-load\n"
                                                "free_memory pre\n"
                                                "free_memory post\n"
                                                "unet:key post-weights\n"
                                                "unet:key post-model\n"
                                                "unet:key post-load\n");
    assert_ok(res_eject(b, &err), err);
    atomic_bool yes;
    atomic_init(&yes, true);
    struct res_load_args canceled = { .cancel = &yes };
    assert_int_equal(res_load(b, &canceled, NULL, &err), BERTH_ECANCELED);
    assert_string_equal(snapshots(&f, b, &seq), "load_models_gpu_top_level start\n"
                                                "unet:key pre-load\n"
                                                "unet:key post-load\n");
    res_unref(a), res_unref(b);
    fixture_close(&f);
}

/* ---- what the process has ---- */

/* Sanitizers keep what was freed, and a shadow of everything: RSS says nothing then. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RSS_IS_OURS 0
#elif defined(__has_feature)
#define RSS_IS_OURS (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define RSS_IS_OURS 1
#endif

/* Resident pages of the process, of the mapped file too. */
static uint64_t resident_now(void)
{
    unsigned long size, resident;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &size, &resident), 2);
    fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The bytes are in memory once, not as the file's pages a second time; ejected they are not
 * there. */
static void memory_once(void **state)
{
    enum { LAYERS = 4 };
    const uint64_t bytes = 16 << 20, all = LAYERS * bytes, slack = all / 4;
    struct fixture f;
    berth_err err = { 0 };
    struct res_receipt receipt;
    (void)state;
    const char *path = model_file("rss", LAYERS, bytes), *names[] = { "rss" };
    for (int canceled = 0; canceled < 2; canceled++) {
        struct watch w = { .cancel_after = canceled ? bytes : 0 };
        struct res_load_args args = { .progress = watch, .progress_user = &w, .cancel = &w.cancel };
        fixture_open(&f, "cpu=128m", NULL);
        struct res_model *m = model_open(&f, path, NULL, RES_AUTO);
        uint64_t before = resident_now();
        assert_int_equal(res_load(m, &args, NULL, &err), canceled ? BERTH_ECANCELED : BERTH_OK);
        uint64_t loaded = resident_now();
        if (RSS_IS_OURS && !canceled &&
            (loaded < before + all - slack || loaded > before + all + slack))
            fail_msg("%llu -> %llu with a model of %llu", (unsigned long long)before,
                     (unsigned long long)loaded, (unsigned long long)all);
        struct res_free_args free_args = { .models = names, .models_n = 1 };
        assert_ok(res_free(f.r, &free_args, &receipt, &err), err);
        res_receipt_release(&receipt);
        assert_int_equal(res_info(m).handles, 1);
        if (RSS_IS_OURS && resident_now() > before + slack)
            fail_msg("%llu -> %llu after the model went", (unsigned long long)before,
                     (unsigned long long)resident_now());
        res_unref(m);
        fixture_close(&f);
    }
}

/* ---- exhaustion ---- */

static void load_survives_oom(void **state)
{
    static const char *const alloc[] = { "#cpu", "null:0,128kb;cpu,*#null:0" };
    const char *path = model_file("a", 4, 64 << 10);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(alloc); i++) {
        struct fixture f;
        berth_status s = BERTH_ENOMEM;
        fixture_open(&f, "cpu=8m,null:0=4m", NULL);
        for (long k = 0; s != BERTH_OK; k++) {
            struct res_model *m = model_open(&f, path, alloc[i], RES_AUTO);
            berth_err err = { 0 };
            oom_after(k);
            s = res_load(m, NULL, NULL, &err);
            oom_off();
            if (s && (s != BERTH_ENOMEM || !err.msg[0]))
                fail_msg("allocation %ld: %s '%s'", k, berth_status_name(s), err.msg);
            assert_int_equal(res_info(m).state, s ? RES_REGISTERED : RES_RESIDENT);
            if (!s)
                model_intact(m);
            fixture_check(&f);
            res_unref(m);
        }
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way),
        cmocka_unit_test(pinned_until_the_budget),
        cmocka_unit_test(large_tensors),
        cmocka_unit_test(staging_makes_room),
        cmocka_unit_test(no_bytes_in_a_tensor),
        cmocka_unit_test(progress_ends_at_the_total),
        cmocka_unit_test(cancel_leaves_nothing),
        cmocka_unit_test(loading_is_a_state),
        cmocka_unit_test(let_go_while_loading),
        cmocka_unit_test(changed_files),
        cmocka_unit_test(ejects_others),
        cmocka_unit_test(nobody_comes_back),
        cmocka_unit_test(a_wish_waits_for_its_load),
        cmocka_unit_test(a_plain_open_erases_no_wish),
        cmocka_unit_test(snapshots_of_a_load),
        cmocka_unit_test(memory_once),
        cmocka_unit_test(load_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
