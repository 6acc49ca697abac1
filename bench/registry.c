/* registry: what the bookkeeping of a model of 10,000 blocks costs.
 *
 * Every row is one operation on a resident model split between a null device and the host; none of
 * those with a bar reads or moves a weight. The bar is 10 ms for each. In the same run: ejecting
 * and loading the model, and memcpy of its bytes. */
#include "base/clock.h"
#include "bench.h"
#include "device/null/null.h"
#include "residency/residency.h"

#include <inttypes.h>
#include <unistd.h>

enum { BLOCKS = 10000, BLOCK_BYTES = 2048, TRIES = 15 };

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user, (void)off, (void)err;
    memset(dst, (int)i, n);
    return BERTH_OK;
}

static berth_status write_model(const char *path, berth_err *err)
{
    static struct weights_spec spec[BLOCKS];
    static char name[BLOCKS][32];
    for (size_t i = 0; i < BLOCKS; i++) {
        snprintf(name[i], sizeof name[i], "blocks.%zu.weight", i);
        spec[i] = (struct weights_spec) { name[i], DT_U8, { 1, { BLOCK_BYTES } } };
    }
    struct weights_write_args a = {
        .format = "safetensors", .path = path, .spec = spec, .count = BLOCKS, .fill = fill
    };
    return weights_write(&a, err);
}

/* ---- what is timed ---- */

#define SPLIT "null:0,50%;cpu,50%#null:0"

struct bench {
    struct residency *r;
    struct res_open_args open;
    struct res_model *m; /* kept, one handle */
    void *from, *to;     /* as many bytes as the model has */
};

typedef berth_status act_fn(struct bench *b, berth_err *err);

static berth_status act_attach(struct bench *b, berth_err *err)
{
    struct res_model *m;
    res_unref(b->m);
    if (res_open(b->r, &b->open, &m, NULL, err))
        return err->code;
    b->m = m;
    return res_load(m, NULL, NULL, err);
}

static berth_status act_retention(struct bench *b, berth_err *err)
{
    (void)err;
    res_set_retention(b->m, RES_AUTO);
    res_set_retention(b->m, RES_EJECT);
    res_set_retention(b->m, RES_KEEP);
    return BERTH_OK;
}

static berth_status act_use(struct bench *b, berth_err *err)
{
    if (res_use_begin(b->m, err))
        return err->code;
    res_use_end(b->m);
    return BERTH_OK;
}

static berth_status act_info(struct bench *b, berth_err *err)
{
    (void)err;
    return res_info(b->m).blocks == BLOCKS ? BERTH_OK : err_set(err, BERTH_EDEVICE, "blocks");
}

/* The same places under another text: all of a plan, none of the moving. */
static berth_status act_replan_nothing(struct bench *b, berth_err *err)
{
    struct plan_args other = { .alloc = "null:0,50.0%;cpu,50%#null:0" };
    if (res_replan(b->m, &other, NULL, err))
        return err->code;
    return res_replan(b->m, &b->open.plan, NULL, err);
}

static berth_status act_free_kept(struct bench *b, berth_err *err)
{
    struct res_free_args args = { .unload_models = true };
    struct res_receipt receipt;
    berth_status s = res_free(b->r, &args, &receipt, err);
    res_receipt_release(&receipt);
    return s;
}

static berth_status act_free_dry(struct bench *b, berth_err *err)
{
    struct res_free_args args = { .free_memory = true, .force = true, .dry_run = true };
    struct res_receipt receipt;
    berth_status s = res_free(b->r, &args, &receipt, err);
    res_receipt_release(&receipt);
    return s;
}

static berth_status act_check(struct bench *b, berth_err *err)
{
    return res_check(b->r, err);
}

static berth_status act_eject_and_load(struct bench *b, berth_err *err)
{
    return res_eject(b->m, err) || res_load(b->m, NULL, NULL, err) ? err->code : BERTH_OK;
}

static berth_status act_memcpy(struct bench *b, berth_err *err)
{
    (void)err;
    memcpy(b->to, b->from, (size_t)BLOCKS * BLOCK_BYTES);
    __asm__ volatile("" ::"r"(b->to) : "memory");
    return BERTH_OK;
}

static const struct {
    const char *name;
    act_fn *act;
    unsigned ops; /* operations in one act */
    double bar_ms;
} rows[] = {
    { "re-attach and load", act_attach, 1, 10 },
    { "retention change", act_retention, 3, 10 },
    { "use begin and end", act_use, 1, 10 },
    { "info", act_info, 1, 10 },
    { "replan, nothing moves", act_replan_nothing, 2, 10 },
    { "free, everything kept", act_free_kept, 1, 10 },
    { "free, dry run", act_free_dry, 1, 10 },
    { "check", act_check, 1, 0 },
    { "eject and load", act_eject_and_load, 1, 0 },
    { "memcpy of its bytes", act_memcpy, 1, 0 },
};

static berth_status measure(struct bench *b, bool json, berth_err *err)
{
    if (!json)
        printf("%-24s %10s  %s\n", "10,000 blocks", "ms", "bar");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double ms[TRIES];
        for (int k = 0; k < TRIES; k++) {
            double t = bench_now_ms();
            if (rows[i].act(b, err))
                return err_add(err, "%s", rows[i].name);
            ms[k] = (bench_now_ms() - t) / rows[i].ops;
        }
        qsort(ms, TRIES, sizeof *ms, bench_by_value);
        double m = ms[TRIES / 2];
        if (json)
            printf("  {\"op\": \"%s\", \"ms\": %.4f, \"bar_ms\": %.0f}%s\n", rows[i].name, m,
                   rows[i].bar_ms, i + 1 < ARRAY_LEN(rows) ? "," : "");
        else if (rows[i].bar_ms > 0)
            printf("%-24s %10.4f  < %.0f ms: %s\n", rows[i].name, m, rows[i].bar_ms,
                   m < rows[i].bar_ms ? "met" : "MISSED");
        else
            printf("%-24s %10.4f  reference\n", rows[i].name, m);
    }
    return BERTH_OK;
}

static berth_status bench_in(struct devset *set, const char *path, bool json, berth_err *err)
{
    struct res_config cfg = { .devices = set };
    struct bench b = { .open = { .path = path, .plan.alloc = SPLIT, .retention = RES_KEEP },
                       .from = calloc(BLOCKS, BLOCK_BYTES),
                       .to = calloc(BLOCKS, BLOCK_BYTES) };
    berth_status s = b.from && b.to ? BERTH_OK : err_set(err, BERTH_ENOMEM, "two buffers");
    if (!s)
        s = residency_new(&cfg, &b.r, err);
    if (!s)
        s = res_open(b.r, &b.open, &b.m, NULL, err);
    if (!s)
        s = res_load(b.m, NULL, NULL, err);
    if (json)
        printf("[\n");
    if (!s)
        s = measure(&b, json, err);
    if (json)
        printf("]\n");
    res_unref(b.m);
    residency_free(b.r);
    free(b.from);
    free(b.to);
    return s;
}

static berth_status run(bool json, berth_err *err)
{
    static const char text[] = "cpu=256m,null:0=256m";
    static const struct dev_env env;
    const char *dir = getenv("TMPDIR");
    char path[512];
    struct spec spec;
    struct devset *set = NULL;
    snprintf(path, sizeof path, "%s/berth-registry-%ld.safetensors", dir && *dir ? dir : "/tmp",
             (long)getpid());
    berth_status s = write_model(path, err);
    if (!s)
        s = spec_parse(text, sizeof text - 1, false, &spec, err);
    if (!s)
        s = devset_open(&spec, &env, &set, err);
    if (!s)
        s = bench_in(set, path, json, err);
    devset_close(set);
    unlink(path);
    return s;
}

int main(int argc, char **argv)
{
    bool json;
    int code = bench_args(
        argc, argv,
        "usage: registry [--json]\n"
        "Time for the registry's bookkeeping on a model of 10,000 blocks, no weight read or\n"
        "moved. Writes a file of 20 MiB to $TMPDIR; takes a few seconds.\n",
        &json);
    if (code >= 0)
        return code;
    berth_err err;
    if (run(json, &err)) {
        fprintf(stderr, "registry: %s\n", err.msg);
        return 1;
    }
    return 0;
}
