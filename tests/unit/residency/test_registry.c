/* Handles, anchors, retention, keys: who is alive, and what an open finds again. */
#include "support/models.h"
#include "support/oom.h"

#include <sys/stat.h>
#include <unistd.h>

#define DEVICES "cpu=8m,null:0=4m"
#define SPLIT "null:0,256kb;cpu,*#null:0"

static struct res_model_info info(const struct res_model *m)
{
    return res_info(m);
}

static void states(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    struct res_block_at at;
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    struct res_model *m = model_open(&f, model_file("a", 8, 64 << 10), SPLIT, RES_AUTO);
    assert_int_equal(info(m).state, RES_REGISTERED);
    assert_int_equal(info(m).resident, 0);
    assert_int_equal(fixture_in_use(&f, "cpu") + fixture_in_use(&f, "null:0"), 0);
    assert_fails(res_use_begin(m, &err), err, BERTH_EINVAL, "a#1 is registered");
    assert_fails(res_block_at(m, 0, &at, &err), err, BERTH_EINVAL, "registered");
    assert_ok(res_eject(m, &err), err); /* nothing to eject: still registered */
    assert_int_equal(info(m).state, RES_REGISTERED);
    model_load(m);
    assert_int_equal(info(m).state, RES_RESIDENT);
    assert_int_equal(info(m).resident, 8 * 65536);
    assert_int_equal(res_bytes_on(m, 1), 4 * 65536);
    model_intact(m);
    assert_ok(res_use_begin(m, &err), err);
    assert_fails(res_eject(m, &err), err, BERTH_EBUSY, "a#1 is in use");
    res_use_end(m);
    assert_ok(res_eject(m, &err), err);
    assert_int_equal(info(m).state, RES_EJECTED);
    assert_int_equal(fixture_in_use(&f, "cpu") + fixture_in_use(&f, "null:0"), 0);
    model_load(m);
    assert_int_equal(info(m).loads, 2);
    model_intact(m);
    fixture_check(&f);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 0);
    fixture_close(&f);
}

/* What can happen to a model that nobody has a handle on. */
static void owners(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    const char *path = model_file("a", 4, 16 << 10);
    struct res_model *m = model_open(&f, path, SPLIT, RES_KEEP);
    assert_int_equal(info(m).anchor[RES_ANCHOR_KEEP], 1);
    model_load(m);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 1); /* its anchor holds it */
    assert_ptr_equal(res_model_at(f.r, 0), m);
    assert_ptr_equal(res_model_by_id(f.r, 1), m);
    res_set_retention(m, RES_AUTO); /* the anchor stays under another reason */
    assert_int_equal(info(m).anchor[RES_ANCHOR_KEEP], 0);
    assert_int_equal(info(m).anchor[RES_ANCHOR_SURVIVED], 1);
    res_set_retention(m, RES_EJECT); /* for the next free */
    assert_int_equal(info(m).anchors, 1);
    assert_int_equal(info(m).anchor[RES_ANCHOR_MARKED], 1);
    res_set_retention(m, RES_AUTO);
    assert_int_equal(info(m).anchors, 1);
    assert_int_equal(info(m).anchor[RES_ANCHOR_SURVIVED], 1);
    res_set_retention(m, RES_EJECT);
    res_set_retention(m, RES_KEEP);
    assert_int_equal(info(m).anchors, 1);
    assert_int_equal(info(m).anchor[RES_ANCHOR_KEEP], 1);
    res_set_retention(m, RES_EJECT);
    res_set_retention(m, RES_EJECT);
    model_intact(m);
    assert_ok(res_eject(m, &err), err); /* what it holds is bytes */
    assert_int_equal(res_model_count(f.r), 0);

    m = model_open(&f, path, SPLIT, RES_EJECT); /* a new one: ids are not used twice */
    assert_int_equal(info(m).id, 2);
    assert_null(res_model_by_id(f.r, 1));
    res_ref(m);
    assert_int_equal(info(m).handles, 2);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 1);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 0);

    m = model_open(&f, path, SPLIT, RES_AUTO); /* a use holds it too */
    model_load(m);
    assert_ok(res_use_begin(m, &err), err);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 1);
    model_intact(m);
    res_use_end(m);
    assert_int_equal(res_model_count(f.r), 0);

    m = model_open(&f, path, SPLIT, RES_KEEP); /* left to residency_free() */
    model_load(m);
    res_unref(m);
    fixture_close(&f);
}

/* What an anchor for keep or survived retains is bytes: without them, and nobody else to hold it,
 * the model is gone. */
static void anchors_hold_bytes(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    const char *path = model_file("a", 4, 16 << 10);
    struct res_model *m = model_open(&f, path, SPLIT, RES_KEEP);
    assert_int_equal(info(m).anchor[RES_ANCHOR_KEEP], 1);
    res_unref(m); /* never loaded */
    assert_int_equal(res_model_count(f.r), 0);

    m = model_open(&f, path, SPLIT, RES_KEEP);
    model_load(m);
    assert_ok(res_eject(m, &err), err);
    assert_int_equal(res_model_count(f.r), 1); /* its handle */
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 0);

    m = model_open(&f, path, SPLIT, RES_KEEP);
    model_load(m);
    res_unref(m);
    assert_ok(res_eject(m, &err), err); /* the other way round */
    assert_int_equal(res_model_count(f.r), 0);

    m = model_open(&f, path, "#null:0", RES_KEEP); /* evicted to make room */
    model_load(m);
    res_unref(m);
    struct res_load_args args = { .evict_keep = true };
    struct res_model *b =
        model_open(&f, model_file("b", 4, (1 << 20) - (16 << 10)), "#null:0", RES_AUTO);
    assert_ok(res_load(b, &args, NULL, &err), err);
    assert_int_equal(res_model_count(f.r), 1);
    assert_ptr_equal(res_model_at(f.r, 0), b);
    res_unref(b);
    fixture_close(&f);
}

/* ---- adapters of somebody before ---- */

static bool adds_to(const struct res_adapter *a, const char *key, size_t n)
{
    (void)a;
    return str_ends(key, n, "1.weight");
}

static berth_status adds(const struct res_adapter *a, const char *key, size_t n,
                         const struct shape *shape, float strength, struct arena *tmp,
                         struct vec *out, berth_err *err)
{
    uint64_t rows = shape->dim[0], cols = shape->dim[1];
    float *dense = arena_array(tmp, (size_t)(rows * cols), sizeof *dense);
    struct res_term *t = vec_add(out);
    (void)a, (void)key, (void)n;
    if (!dense || !t)
        return err_set(err, BERTH_ENOMEM, "a term");
    for (uint64_t i = 0; i < rows * cols; i++)
        dense[i] = 1;
    *t = (struct res_term) {
        .kind = TERM_ADD, .rows = rows, .cols = cols, .scale = strength, .dense = dense
    };
    return BERTH_OK;
}

static void never(struct res_adapter *a)
{
    (void)a;
}

enum { FLOATS = 16 * 16 };

static berth_status fill_halves(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    for (size_t k = 0; k < n / sizeof(float); k++)
        ((float *)dst)[k] = 0.5f;
    return BERTH_OK;
}

static const char *float_file(void)
{
    static const struct weights_spec spec[] = {
        { "layers.0.weight", DT_F32, { 2, { 16, 16 } } },
        { "layers.1.weight", DT_F32, { 2, { 16, 16 } } },
    };
    berth_err err = { 0 };
    const char *path = tmp_path("floats.safetensors");
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = fill_halves };
    assert_ok(weights_write(&args, &err), err);
    return path;
}

static float first_of(struct res_model *m, size_t block)
{
    float x[FLOATS];
    berth_err err = { 0 };
    assert_ok(res_tensor_read(m, block, 0, x, sizeof x, &err), err);
    return x[0];
}

static void a_new_owner_has_no_adapters(void **state)
{
    static const struct res_adapter_ops ops = { adds_to, adds, never };
    static const char *const other_plan[] = { SPLIT, "#null:0" }; /* the second adopts */
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(other_plan); k++)
        for (int same_again = 0; same_again < 2; same_again++) {
            struct res_adapter adapter = { .ops = &ops, .refs = 1, .id = 7, .name = "adds" };
            struct res_patch p = { &adapter, 2 };
            struct fixture f;
            berth_err err = { 0 };
            fixture_open(&f, DEVICES, NULL);
            const char *path = float_file();
            struct res_model *m = model_open(&f, path, SPLIT, RES_KEEP);
            assert_ok(res_set_patches(m, &p, 1, &err), err);
            model_load(m);
            assert_true(first_of(m, 0) == 0.5f && first_of(m, 1) == 2.5f);
            struct res_model *second = model_open(&f, path, SPLIT, RES_AUTO);
            assert_int_equal(info(m).patches, 1); /* he who sees the owner sees his adapters */
            res_unref(second);
            res_unref(m);
            assert_int_equal(atomic_load(&adapter.refs), 2); /* may be wanted again */

            m = model_open(&f, path, other_plan[k], RES_AUTO);
            assert_int_equal(info(m).patches, 0);
            assert_int_equal(atomic_load(&adapter.refs), 1);
            assert_fails(res_use_begin(m, &err), err, BERTH_EINVAL, "load it first");
            if (same_again)
                assert_ok(res_set_patches(m, &p, 1, &err), err);
            struct res_load_result got = model_load(m);
            assert_true(got.was_resident);
            assert_int_equal(got.read, same_again ? 0 : FLOATS * sizeof(float));
            assert_true(first_of(m, 0) == 0.5f && first_of(m, 1) == (same_again ? 2.5f : 0.5f));
            assert_ok(res_use_begin(m, &err), err);
            res_use_end(m);
            fixture_check(&f);
            res_set_retention(m, RES_EJECT);
            res_unref(m);
            assert_int_equal(atomic_load(&adapter.refs), 1);
            fixture_close(&f);
        }
}

/* Set and not loaded: what is in memory is not what was asked for. */
static void half_patched_models_do_not_compute(void **state)
{
    static const struct res_adapter_ops ops = { adds_to, adds, never };
    struct res_adapter adapter = { .ops = &ops, .refs = 1, .id = 7, .name = "adds" };
    struct res_patch p = { &adapter, 2 };
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    struct res_model *m = model_open(&f, float_file(), SPLIT, RES_AUTO);
    atomic_bool yes;
    atomic_init(&yes, true);
    struct res_load_args canceled = { .cancel = &yes };
    model_load(m);
    assert_ok(res_set_patches(m, &p, 1, &err), err);
    assert_fails(res_use_begin(m, &err), err, BERTH_EINVAL, "floats#1: its adapters changed");
    assert_fails(res_load(m, &canceled, NULL, &err), err, BERTH_ECANCELED, "");
    assert_fails(res_use_begin(m, &err), err, BERTH_EINVAL, "load it first");
    assert_int_equal(info(m).uses, 0);
    model_load(m);
    assert_ok(res_use_begin(m, &err), err);
    res_use_end(m);
    res_unref(m);
    fixture_close(&f);
}

static void reattach_reads_and_moves_nothing(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    bool attached;
    uint64_t before, after;
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    const char *path = model_file("a", 8, 64 << 10);
    struct res_model *m = model_open(&f, path, SPLIT, RES_KEEP), *again;
    model_load(m);
    struct res_block_at at[8];
    for (size_t i = 0; i < 8; i++)
        assert_ok(res_block_at(m, i, &at[i], &err), err);
    assert_ok(res_checksum(m, &before, &err), err);
    res_unref(m);
    struct dev_stats cpu = stats_of(devset_at(f.set, 0)), card = stats_of(devset_at(f.set, 1));
    uint64_t copies = null_calls(devset_at(f.set, 1), NULL_COPY);
    struct res_metrics was = res_metrics(f.r);

    struct res_open_args args = { .path = path, .plan.alloc = SPLIT };
    assert_ok(res_open(f.r, &args, &again, &attached, &err), err);
    assert_true(attached);
    assert_ptr_equal(again, m);
    struct res_load_result got = model_load(again);
    assert_true(got.was_resident && got.read == 0 && got.moved == 0);
    assert_int_equal(info(m).attached, 1);
    assert_int_equal(info(m).retention, RES_KEEP); /* auto in an open says nothing */
    assert_int_equal(res_metrics(f.r).attaches, was.attaches + 1);
    assert_int_equal(res_metrics(f.r).read_bytes, was.read_bytes);
    assert_int_equal(res_metrics(f.r).moved_bytes, was.moved_bytes);
    assert_int_equal(null_calls(devset_at(f.set, 1), NULL_COPY), copies);
    assert_int_equal(stats_of(devset_at(f.set, 0)).allocs, cpu.allocs);
    assert_int_equal(stats_of(devset_at(f.set, 1)).allocs, card.allocs);
    for (size_t i = 0; i < 8; i++) {
        struct res_block_at now;
        assert_ok(res_block_at(m, i, &now, &err), err);
        assert_true(now.addr == at[i].addr && now.device == at[i].device);
    }
    assert_ok(res_checksum(m, &after, &err), err);
    assert_true(before == after);

    args.retention = RES_EJECT; /* an open may change its mind */
    assert_ok(res_open(f.r, &args, &again, &attached, &err), err);
    assert_int_equal(info(m).retention, RES_EJECT);
    assert_int_equal(info(m).anchors, 0);
    res_unref(again);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 0);
    fixture_close(&f);
}

/* Opens that are the same model, and opens that are not. */
static void keys(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    const char *path = model_file("a", 4, 16 << 10);
    char linked[300];
    snprintf(linked, sizeof linked, "%s", tmp_path("link.safetensors"));
    assert_int_equal(symlink(path, linked), 0);
    static const struct {
        bool link, same;
        struct res_open_args a;
    } cases[] = {
        { false, true, { .plan.alloc = SPLIT } },
        { true, true, { .plan.alloc = SPLIT, .name = "other", .role = "unet" } },
        { false, true, { .plan = { .alloc = SPLIT, .compute = "NULL:0" } } },
        { false, true, { .plan = { .alloc = SPLIT, .compute = "cpu" } } }, /* the suffix wins */
        { false, true, { .plan = { .alloc = SPLIT, .reserve = 7 } } },
        { false, false, { .plan.alloc = "null:0,128kb;cpu,*#null:0" } },
        { false, false, { .plan = { .alloc = SPLIT, .layout = PLAN_TAIL } } },
        { false, false, { .plan.alloc = SPLIT, .part = "layers.1." } },
        { false, false, { .plan.alloc = SPLIT, .options = "fp8" } },
        { false, false, { .plan.alloc = NULL } },
        { false, false, { .plan = { .alloc = NULL, .compute = "cpu" } } },
        { false, false, { .plan = { .alloc = NULL, .reserve = 7 } } },
    };
    struct res_model *first = model_open(&f, path, SPLIT, RES_AUTO), *other[ARRAY_LEN(cases)];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct res_open_args a = cases[i].a;
        a.path = cases[i].link ? linked : path;
        assert_ok(res_open(f.r, &a, &other[i], NULL, &err), err);
        if ((other[i] == first) != cases[i].same)
            fail_msg("case %zu: %s model", i, cases[i].same ? "another" : "the same");
    }
    assert_int_equal(res_model_count(f.r), 8);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        res_unref(other[i]);
    /* The default compute device has one spelling. */
    struct res_open_args a = { .path = path, .plan.compute = " null:0 " };
    struct res_model *x, *y;
    assert_ok(res_open(f.r, &a, &x, NULL, &err), err);
    a.plan.compute = NULL;
    assert_ok(res_open(f.r, &a, &y, NULL, &err), err);
    assert_ptr_equal(x, y);
    res_unref(x);
    res_unref(y);
    res_unref(first);
    fixture_close(&f);
}

/* A file that was replaced is another model; the old one goes on living from the old file. */
static void replaced_file(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    const char *path = model_file("a", 4, 16 << 10);
    struct res_model *old = model_open(&f, path, SPLIT, RES_AUTO);
    model_file("a", 6, 16 << 10); /* written beside it and renamed over it */
    struct res_model *new = model_open(&f, path, SPLIT, RES_AUTO);
    assert_ptr_not_equal(old, new);
    assert_int_equal(info(old).blocks, 4);
    assert_int_equal(info(new).blocks, 6);
    model_load(old);
    model_load(new);
    model_intact(old);
    model_intact(new);
    res_unref(old);
    res_unref(new);
    fixture_close(&f);
}

/* What was kept of the old file is of no use: the new one has its mark, and it goes. */
static void a_replaced_file_hands_its_mark_over(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    const char *path = model_file("a", 4, 16 << 10);
    struct res_model *m = model_open(&f, path, SPLIT, RES_KEEP);
    model_load(m);
    res_unref(m); /* only the mark holds it */
    model_file("a", 6, 16 << 10);
    m = model_open(&f, path, SPLIT, RES_AUTO);
    assert_int_equal(res_model_count(f.r), 1);
    assert_int_equal(info(m).blocks, 6);
    assert_int_equal(info(m).retention, RES_KEEP);
    assert_int_equal(fixture_in_use(&f, "cpu") + fixture_in_use(&f, "null:0"), 0);
    model_file("a", 5, 16 << 10);
    struct res_model *next = model_open(&f, path, SPLIT, RES_EJECT); /* its loader has a say */
    assert_int_equal(info(next).retention, RES_EJECT);
    assert_int_equal(info(m).retention, RES_AUTO); /* somebody holds it still */
    assert_int_equal(info(m).anchors, 0);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 1);
    fixture_check(&f);
    res_unref(next);
    fixture_close(&f);
}

/* Anchored, nobody has a handle, another plan: the same blocks move, nothing is read. */
static void adopts(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    bool attached;
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    const char *path = model_file("a", 8, 64 << 10);
    struct res_model *m = model_open(&f, path, "#null:0", RES_KEEP), *got, *other;
    model_load(m);
    struct res_open_args args = { .path = path, .plan.alloc = SPLIT };
    assert_ok(res_open(f.r, &args, &other, &attached, &err), err); /* m is held: a second model */
    assert_ptr_not_equal(other, m);
    assert_false(attached);
    res_unref(other);
    res_unref(m);
    uint64_t read = res_metrics(f.r).read_bytes, moved = res_metrics(f.r).moved_bytes;
    assert_ok(res_open(f.r, &args, &got, &attached, &err), err);
    assert_true(attached);
    assert_ptr_equal(got, m);
    assert_int_equal(res_metrics(f.r).read_bytes, read);
    assert_int_equal(res_metrics(f.r).moved_bytes, moved + 4 * 65536);
    assert_int_equal(res_bytes_on(m, 0), 4 * 65536);
    model_intact(m);
    struct res_load_result r = model_load(m);
    assert_true(r.read == 0 && r.moved == 0);
    assert_int_equal(res_model_count(f.r), 1);
    res_unref(got);
    fixture_close(&f);
}

static void names(void **state)
{
    static const struct {
        const char *file, *want;
    } cases[] = { { "flux1-dev", "flux1-dev" }, { "v1.5.fp16", "v1.5.fp16" } };
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *path = model_file(cases[i].file, 1, 1000);
        struct res_model *m = model_open(&f, path, NULL, RES_AUTO);
        assert_string_equal(info(m).name, cases[i].want);
        assert_string_equal(info(m).path, path);
        assert_string_equal(info(m).role, "model");
        assert_string_equal(info(m).part, "");
        res_unref(m);
    }
    char long_name[2000];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    struct res_open_args args = { .path = model_file("a", 1, 1000), .name = long_name };
    struct res_model *m;
    assert_ok(res_open(f.r, &args, &m, NULL, &err), err);
    model_load(m); /* its ledger line is cut and still unique */
    assert_string_equal(info(m).name, long_name);
    res_unref(m);
    fixture_close(&f);
}

static void refuses(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    struct res_model *m;
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    const char *path = model_file("a", 4, 16 << 10);
    static const struct {
        struct res_open_args a;
        berth_status code;
        const char *text;
    } cases[] = {
        { { .path = "/nowhere/x.safetensors" }, BERTH_ENOTFOUND, "/nowhere/x.safetensors" },
        { { .plan.alloc = "cuda:9,1gb" }, BERTH_EINVAL, "cuda:9" },
        { { .plan.compute = "cuda:9" }, BERTH_ENOTFOUND, "there is: cpu, null:0" },
        { { .part = "nothing." }, BERTH_ENOTFOUND, "nothing." },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct res_open_args a = cases[i].a;
        a.path = a.path ? a.path : path;
        assert_fails(res_open(f.r, &a, &m, NULL, &err), err, cases[i].code, cases[i].text);
        assert_null(m);
        assert_int_equal(res_model_count(f.r), 0);
    }
    struct residency *none;
    struct res_config cfg = { 0 };
    assert_fails(residency_new(&cfg, &none, &err), err, BERTH_EINVAL, "without devices");
    assert_null(none);
    fixture_close(&f);
}

static void new_survives_oom(void **state)
{
    struct devset *set = open_devices(DEVICES, NULL);
    berth_status s = BERTH_ENOMEM;
    (void)state;
    for (long k = 0; s != BERTH_OK; k++) {
        struct res_config cfg = { .devices = set };
        struct residency *r;
        berth_err err = { 0 };
        oom_after(k);
        s = residency_new(&cfg, &r, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !r && err.msg[0]));
        residency_free(r);
    }
    devset_close(set);
}

static void open_survives_oom(void **state)
{
    const char *path = model_file("a", 4, 16 << 10);
    for (int adopt = 0; adopt < 2; adopt++) {
        struct fixture f;
        berth_status s = BERTH_ENOMEM;
        (void)state;
        fixture_open(&f, DEVICES, NULL);
        if (adopt) { /* anchored with another plan */
            struct res_model *m = model_open(&f, path, "#null:0", RES_KEEP);
            model_load(m);
            res_unref(m);
        }
        for (long k = 0; s != BERTH_OK; k++) {
            struct res_open_args args = { .path = path, .plan.alloc = SPLIT };
            struct res_model *m;
            berth_err err = { 0 };
            oom_after(k);
            s = res_open(f.r, &args, &m, NULL, &err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !m && err.msg[0]));
            fixture_check(&f);
            assert_int_equal(res_model_count(f.r), s == BERTH_OK || adopt);
            res_unref(m);
        }
        fixture_close(&f);
    }
}

static berth_status fill_row(void *user, size_t i, uint64_t off, void *dst, size_t n,
                             berth_err *err)
{
    (void)user, (void)err;
    for (size_t k = 0; k < n / sizeof(float); k++)
        ((float *)dst)[k] = (float)(i * 100 + off / sizeof(float) + k + 1);
    return BERTH_OK;
}

/* A model whose matrix has more columns than its file is another one: planned, booked and filled
 * as it is wanted, beside the first or without it. */
static void wider(void **state)
{
    static const struct weights_spec spec[] = { { "a.weight", DT_F32, { 2, { 3, 4 } } },
                                                { "b.weight", DT_F32, { 2, { 2, 5 } } } };
    const char *path = tmp_path("wider.safetensors");
    struct fixture f;
    struct res_model *plain, *m = NULL, *again;
    float got[3 * 6];
    berth_status s = BERTH_ENOMEM;
    berth_err err = { 0 };
    (void)state;
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .count = 2, .fill = fill_row
    };
    assert_ok(weights_write(&args, &err), err);
    fixture_open(&f, DEVICES, NULL);
    plain = model_open(&f, path, "null:0,40b;cpu,*#null:0", RES_AUTO);
    model_load(plain);
    assert_fails(res_open_wider(plain, "c.weight", 6, &m, &err), err, BERTH_ENOTFOUND, "c.weight");
    assert_fails(res_open_wider(plain, "a.weight", 3, &m, &err), err, BERTH_EUNSUPPORTED,
                 "3 columns");
    for (long k = 0; s != BERTH_OK; k++) {
        oom_after(k);
        s = res_open_wider(plain, "a.weight", 6, &m, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !m && err.msg[0]));
        fixture_check(&f);
    }
    assert_ptr_not_equal(m, plain);
    assert_int_equal(info(m).bytes, info(plain).bytes + 3 * 2 * sizeof(float));
    assert_ptr_equal(res_compute(m), res_compute(plain));
    model_load(m);
    for (size_t b = 0; b < 2; b++) {
        const struct block_tensor *t = &res_blocks(m)->tensor[res_blocks(m)->at[b].first];
        const bool wide = !strcmp(t->entry->name, "a.weight");
        const size_t cols = wide ? 6 : 5, had = wide ? 4 : 5, rows = wide ? 3 : 2;
        assert_int_equal(t->bytes, rows * cols * sizeof(float));
        assert_ok(res_tensor_read(m, b, 0, got, (size_t)t->bytes, &err), err);
        for (size_t i = 0; i < rows * cols; i++)
            assert_true(got[i] == (i % cols < had
                                       ? (float)((wide ? 0 : 100) + i / cols * had + i % cols + 1)
                                       : 0.0f));
    }
    assert_ok(res_open_wider(plain, "a.weight", 6, &again, &err), err);
    assert_ptr_equal(again, m);                        /* found again */
    assert_int_equal(info(plain).state, RES_RESIDENT); /* and the first is not outdated */
    fixture_check(&f);
    res_unref(again);
    res_unref(m);
    res_unref(plain);
    fixture_close(&f);
}

/* A cached output that goes when a prompt starts: the prompt's own loader finds its model again. */
static void lingering(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    const char *path = model_file("a", 8, 64 << 10);
    struct res_model *m = model_open(&f, path, SPLIT, RES_AUTO);
    res_prompt_begin(f.r);
    res_linger(m); /* has no bytes */
    assert_int_equal(info(m).anchors, 0);
    model_load(m);
    assert_ok(res_prompt_end(f.r, NULL, &err), err);
    res_linger(m); /* no prompt would take it back */
    assert_int_equal(info(m).anchors, 0);

    res_prompt_begin(f.r);
    res_linger(m);
    res_linger(m);
    assert_int_equal(info(m).anchor[RES_ANCHOR_PROMPT], 1);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 1);
    m = model_open(&f, path, "null:0,128kb;cpu,*#null:0", RES_AUTO); /* another plan */
    assert_int_equal(info(m).state, RES_RESIDENT);
    assert_int_equal(info(m).read, 8 * 65536); /* once */
    assert_int_equal(info(m).moved, 4 * 65536 + 2 * 65536);
    model_intact(m);
    assert_ok(res_prompt_end(f.r, NULL, &err), err);
    assert_int_equal(info(m).anchors, 0);

    res_prompt_begin(f.r); /* nobody wanted it: gone at the end */
    res_linger(m);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 1);
    fixture_check(&f);
    assert_ok(res_prompt_end(f.r, NULL, &err), err);
    assert_int_equal(res_model_count(f.r), 0);

    m = model_open(&f, path, SPLIT, RES_EJECT); /* an eject model has no anchor */
    model_load(m);
    res_prompt_begin(f.r);
    res_linger(m);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 0);
    m = model_open(&f, path, SPLIT, RES_AUTO); /* becoming one drops it */
    model_load(m);
    res_linger(m);
    res_unref(m);
    res_set_retention(m, RES_EJECT);
    assert_int_equal(res_model_count(f.r), 0);
    assert_ok(res_prompt_end(f.r, NULL, &err), err);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states),
        cmocka_unit_test(owners),
        cmocka_unit_test(lingering),
        cmocka_unit_test(anchors_hold_bytes),
        cmocka_unit_test(a_new_owner_has_no_adapters),
        cmocka_unit_test(half_patched_models_do_not_compute),
        cmocka_unit_test(reattach_reads_and_moves_nothing),
        cmocka_unit_test(keys),
        cmocka_unit_test(replaced_file),
        cmocka_unit_test(a_replaced_file_hands_its_mark_over),
        cmocka_unit_test(adopts),
        cmocka_unit_test(names),
        cmocka_unit_test(refuses),
        cmocka_unit_test(new_survives_oom),
        cmocka_unit_test(open_survives_oom),
        cmocka_unit_test(wider),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
