/* The three scenarios by name, each on the host alone and on several devices: who goes, and that
 * who stays really stays: addresses, bytes, anchors, ledger, pools, the process's pages,
 * re-attaching. */
#include "support/res_rig.h"

#include <unistd.h>

#define BLOCKS 8
#define BIG (64 * MIB) /* what goes: large enough to be seen in the process's pages */
#define SMALL (8 * MIB)
#define FRESH(x) ((x) - (x) / 8) /* of these bytes, what must really leave the process */

/* Where the models of a scenario live. */
struct place {
    const char *devices;
    const char *flux;           /* allocation string of the one that is spread */
    const char *first, *second; /* devices of the others */
};

static const struct place on_cpu = { "cpu=1g", "cpu,*", "cpu", "cpu" };
static const struct place on_many = { "cpu=1g,null:0=256m,null:1=256m",
                                      "null:0,24mb;null:1,16mb;cpu,*#null:0", "null:0", "null:1" };

/* Pages of the process that belong to no file: mapped weight files come and go by the kernel's
 * will, what was copied out of them is ours. */
static uint64_t private_bytes(void)
{
    char text[256] = "";
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    char *at = strchr(text, ' '); /* size resident shared ... */
    assert_non_null(at);
    uint64_t resident = strtoull(at, &at, 10), shared = strtoull(at, NULL, 10);
    return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Everything about a model that a free must leave alone. */
struct picture {
    const char *name;
    struct rig_model how; /* to open it again */
    struct res_model *m;
    uint64_t id, sum, addr[BLOCKS], ledger[4];
    struct res_model_info info;
};

static struct picture picture_of(struct rig *g, const char *name, struct rig_model how)
{
    struct picture p = { .name = name, .how = how, .m = rig_load(g, how, NULL, NULL) };
    berth_err err = { 0 };
    p.id = res_info(p.m).id;
    p.sum = checksum_of(p.m);
    for (size_t b = 0; b < BLOCKS; b++) {
        struct res_block_at at;
        assert_ok(res_block_at(p.m, b, &at, &err), err);
        p.addr[b] = at.addr;
    }
    for (size_t d = 0; d < devset_count(g->set); d++)
        p.ledger[d] = ledger_bytes(devset_at(g->set, d), name);
    p.info = res_info(p.m);
    assert_true(p.info.resident == p.info.bytes);
    return p;
}

static void assert_untouched(struct rig *g, const struct picture *p)
{
    berth_err err = { 0 };
    assert_ptr_equal(res_model_by_id(g->r, p->id), p->m);
    struct res_model_info now = res_info(p->m);
    assert_int_equal(now.state, RES_RESIDENT);
    assert_true(now.resident == now.bytes && now.read == p->info.read);
    assert_true(now.moved == p->info.moved && now.loads == p->info.loads);
    for (size_t b = 0; b < BLOCKS; b++) {
        struct res_block_at at;
        assert_ok(res_block_at(p->m, b, &at, &err), err);
        assert_true(at.addr == p->addr[b]);
    }
    for (size_t d = 0; d < devset_count(g->set); d++)
        assert_true(ledger_bytes(devset_at(g->set, d), p->name) == p->ledger[d]);
    assert_true(checksum_of(p->m) == p->sum);
}

static void assert_gone(struct rig *g, const struct picture *p)
{
    assert_null(res_model_by_id(g->r, p->id));
    for (size_t d = 0; d < devset_count(g->set); d++)
        assert_int_equal(ledger_bytes(devset_at(g->set, d), p->name), 0);
}

/* Pools hold what the survivors need and nothing else. */
static void assert_pools(struct rig *g, const struct picture *kept, size_t n)
{
    for (size_t d = 0; d < devset_count(g->set); d++) {
        struct device *dev = devset_at(g->set, d);
        struct dev_stats s = stats_of(dev);
        uint64_t want = 0;
        for (size_t i = 0; i < n; i++)
            want += kept[i].ledger[d];
        assert_true(s.requested + s.pinned >= want && s.requested + s.pinned < want + MIB);
        assert_int_equal(s.retired, 0);
        assert_true(s.idle < MIB); /* less than a granule at the ends of ranges */
        if (!want)
            assert_true(s.in_use == 0 && s.idle == 0 && s.segments == 0);
    }
}

/* The loader node runs again after the reset and finds its model as it was. */
static void assert_reattaches(struct rig *g, const struct picture *p)
{
    struct res_load_result result;
    bool attached;
    uint64_t copies = 0, copies_after = 0;
    for (size_t d = 1; d < devset_count(g->set); d++)
        copies += null_calls(devset_at(g->set, d), NULL_COPY);
    uint64_t before = res_metrics(g->r).read_bytes + res_metrics(g->r).moved_bytes;
    assert_ptr_equal(rig_load(g, p->how, &result, &attached), p->m);
    assert_true(attached && result.was_resident && result.read == 0 && result.moved == 0);
    assert_true(res_metrics(g->r).read_bytes + res_metrics(g->r).moved_bytes == before);
    for (size_t d = 1; d < devset_count(g->set); d++)
        copies_after += null_calls(devset_at(g->set, d), NULL_COPY);
    assert_true(copies == copies_after);
    assert_untouched(g, p);
}

static void assert_anchor(const struct picture *p, enum res_anchor reason)
{
    struct res_model_info now = res_info(p->m);
    assert_int_equal(now.anchors, 1);
    assert_int_equal(now.anchor[reason], 1);
}

static void assert_snapshots(struct rig *g, unsigned frees)
{
    static const char *const tags[] = { "pre-unload", "post-unload", "post-reset",
                                        "post-soft-empty" };
    struct journal_entry e[64];
    size_t n = journal_query(res_journal(g->r), 0, "general", e, 64, NULL), at = 0;
    assert_int_equal(n, (4 + 2 * devset_count(g->set)) * frees);
    for (size_t i = 0; i < n; i++)
        if (!strstr(e[i].tag, "-empty:")) /* around each device's trim */
            assert_string_equal(e[i].tag, tags[at++ % 4]);
    assert_int_equal(at, 4 * frees);
    assert_int_equal(journal_query(res_journal(g->r), 0, "executor_reset", e, 64, NULL), 2 * frees);
}

/* A(eject) B(keep) C(keep): only A goes. */
static void minimal(const struct place *at)
{
    struct rig *g = rig_open(at->devices, NULL, NULL);
    struct picture a = picture_of(
        g, "A",
        (struct rig_model) { rig_file("A.safetensors", BLOCKS, BIG), NULL, at->first, RES_EJECT });
    struct picture kept[2] = {
        picture_of(g, "B",
                   (struct rig_model) { rig_file("B.safetensors", BLOCKS, SMALL), NULL, at->first,
                                        RES_KEEP }),
        picture_of(g, "C",
                   (struct rig_model) { rig_file("C.safetensors", BLOCKS, SMALL), NULL, at->second,
                                        RES_KEEP }),
    };
    uint64_t pages = private_bytes();
    struct res_receipt x =
        rig_free(g, (struct res_free_args) { .unload_models = true, .free_memory = true });
    assert_true(pages >= private_bytes() + FRESH(BIG));
    assert_int_equal(g->resets, 1);
    assert_int_equal(res_model_count(g->r), 2);
    assert_gone(g, &a);
    assert_verdict(&x, "A", RES_EJECTED_BY_FREE, "marked eject");
    assert_true(line_of(&x, "A")->bytes == BIG);
    for (int i = 0; i < 2; i++) {
        const struct res_receipt_model *line = line_of(&x, kept[i].name);
        assert_verdict(&x, kept[i].name, RES_KEPT, "marked keep");
        assert_true(line->bytes == SMALL && line->read == 0 && line->moved == 0);
        assert_anchor(&kept[i], RES_ANCHOR_KEEP);
        assert_untouched(g, &kept[i]);
    }
    assert_pools(g, kept, 2);
    assert_true(x.rss_before >= x.rss_after + FRESH(BIG));
    assert_int_equal(x.violations, 0);
    assert_int_equal(g->errors, 0);
    assert_snapshots(g, 1);
    for (int i = 0; i < 2; i++)
        assert_reattaches(g, &kept[i]);
    res_receipt_release(&x);
    rig_close(g);
}

/* D(keep) E(keep): nothing goes, caches only. */
static void all_kept(const struct place *at)
{
    struct rig *g = rig_open(at->devices, NULL, NULL);
    struct picture kept[2] = {
        picture_of(g, "D",
                   (struct rig_model) { rig_file("D.safetensors", BLOCKS, BIG), at->flux, NULL,
                                        RES_KEEP }),
        picture_of(g, "E",
                   (struct rig_model) { rig_file("E.safetensors", BLOCKS, SMALL), NULL, at->second,
                                        RES_KEEP }),
    };
    struct device *d = device_named(g->set, at->first); /* a cache: idle memory in a pool */
    struct dev_owner *o = owner_of(d, "step", DEV_ACTIVATIONS);
    struct dev_mem m = alloc_on(d, o, 32 * MIB);
    dev_free(&m);
    dev_owner_close(o);
    assert_true(stats_of(d).idle >= 32 * MIB);
    for (unsigned press = 1; press <= 3; press++) { /* however often it is pressed */
        struct res_receipt x =
            rig_free(g, (struct res_free_args) { .unload_models = true, .free_memory = true });
        assert_int_equal(g->resets, press);
        assert_int_equal(res_model_count(g->r), 2);
        for (int i = 0; i < 2; i++) {
            assert_verdict(&x, kept[i].name, RES_KEPT, "marked keep");
            assert_anchor(&kept[i], RES_ANCHOR_KEEP);
            assert_untouched(g, &kept[i]);
        }
        assert_pools(g, kept, 2);
        assert_int_equal(x.violations, 0);
        assert_true(x.rss_after < x.rss_before + 4 * MIB);
        res_receipt_release(&x);
    }
    assert_int_equal(g->errors, 0);
    assert_snapshots(g, 3);
    for (int i = 0; i < 2; i++)
        assert_reattaches(g, &kept[i]);
    rig_close(g);
}

/* Flux(eject, spread over all devices) + VAE, CLIP(auto): the first free drops Flux and keeps both,
 * the second one, the Manager's button again, empties the machine. */
static void distorch_then_manager(const struct place *at)
{
    struct rig *g = rig_open(at->devices, NULL, NULL);
    struct picture flux = picture_of(g, "flux",
                                     (struct rig_model) { rig_file("flux.safetensors", BLOCKS, BIG),
                                                          at->flux, NULL, RES_EJECT });
    struct picture others[2] = {
        picture_of(g, "vae",
                   (struct rig_model) { rig_file("vae.safetensors", BLOCKS, SMALL), NULL, at->first,
                                        RES_AUTO }),
        picture_of(g, "clip",
                   (struct rig_model) { rig_file("clip.safetensors", BLOCKS, SMALL), NULL,
                                        at->second, RES_AUTO }),
    };
    for (size_t d = 0; d < devset_count(g->set); d++)
        assert_true(flux.ledger[d] > 0); /* it really is everywhere */
    uint64_t pages = private_bytes();
    struct res_receipt x =
        rig_free(g, (struct res_free_args) { .unload_models = true, .free_memory = true });
    assert_true(pages >= private_bytes() + FRESH(BIG));
    assert_gone(g, &flux);
    assert_int_equal(res_model_count(g->r), 2);
    assert_verdict(&x, "flux", RES_EJECTED_BY_FREE, "marked eject");
    assert_true(x.rss_before >= x.rss_after + FRESH(BIG));
    for (int i = 0; i < 2; i++) {
        assert_verdict(&x, others[i].name, RES_KEPT, "auto: others are marked eject");
        assert_anchor(&others[i], RES_ANCHOR_SURVIVED);
        assert_untouched(g, &others[i]);
    }
    assert_pools(g, others, 2);
    res_receipt_release(&x);
    for (int i = 0; i < 2; i++)
        assert_reattaches(g, &others[i]);

    pages = private_bytes();
    x = rig_free(g, (struct res_free_args) { .unload_models = true, .free_memory = true });
    assert_true(pages >= private_bytes() + FRESH(2 * SMALL));
    assert_int_equal(res_model_count(g->r), 0);
    for (int i = 0; i < 2; i++) {
        assert_verdict(&x, others[i].name, RES_EJECTED_BY_FREE,
                       "auto; goes because no model is marked eject");
        assert_gone(g, &others[i]);
    }
    assert_pools(g, NULL, 0);
    for (size_t d = 0; d < x.devices; d++)
        for (int k = 0; k < DEV_KIND_COUNT; k++)
            assert_int_equal(x.device[d].after[k], 0);
    assert_true(x.rss_before >= x.rss_after + FRESH(2 * SMALL));
    assert_int_equal(x.violations, 0);
    assert_int_equal(g->errors, 0);
    assert_snapshots(g, 2);
    res_receipt_release(&x);
    rig_close(g);
}

#define ON_BOTH(scenario)                                                                          \
    static void retention_##scenario##_cpu(void **state)                                           \
    {                                                                                              \
        (void)state;                                                                               \
        scenario(&on_cpu);                                                                         \
    }                                                                                              \
    static void retention_##scenario##_null(void **state)                                          \
    {                                                                                              \
        (void)state;                                                                               \
        scenario(&on_many);                                                                        \
    }

ON_BOTH(minimal)
ON_BOTH(all_kept)
ON_BOTH(distorch_then_manager)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retention_minimal_cpu),
        cmocka_unit_test(retention_minimal_null),
        cmocka_unit_test(retention_all_kept_cpu),
        cmocka_unit_test(retention_all_kept_null),
        cmocka_unit_test(retention_distorch_then_manager_cpu),
        cmocka_unit_test(retention_distorch_then_manager_null),
    };
    return cmocka_run_group_tests_name("retention", tests, NULL, NULL);
}
