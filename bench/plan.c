/* plan: how long it takes to say where the blocks of a model go.
 *
 * First FLUX.1-dev as a whole process, as people run it: `berth plan` of a sparse 24 GB file for
 * machines that are not here. In the same run, the same way: `berth inspect`, which only opens the
 * file, and `berth version`, which is what starting a process costs.
 *
 * Then the steps alone, for FLUX.1-dev and for a Flux of 10,000 blocks, as people write it and with
 * its tensors in any order: opening the file, its blocks in execution order, quotas and layout. In
 * the same run: memcpy of the block table, the least that anything looking at all blocks could
 * cost. */
#include "plan/plan.h"
#include "../tests/support/sparse.h"
#include "base/clock.h"
#include "bench.h"
#include "model/arch.h"
#include "model/flux/presets.h"

#include <inttypes.h>
#include <spawn.h>
#include <sys/wait.h>

enum { TRIES = 31 };

extern char **environ;

/* An unlinked file of these tensors; *path names it as long as the descriptor is open. */
static berth_status make_file(const struct keys *k, int *fd, char path[64], berth_err *err)
{
    const char *dir = getenv("TMPDIR");
    char name[512];
    snprintf(name, sizeof name, "%s/berth-plan-XXXXXX", dir && dir[0] ? dir : "/tmp");
    *fd = mkstemp(name); /* stays open over exec: the children open it under its number */
    if (*fd < 0)
        return err_sys(err, BERTH_EIO, errno, "'%s'", name);
    berth_status s = sparse_keys(name, k, DT_BF16, err);
    unlink(name);
    snprintf(path, 64, "/proc/self/fd/%d", *fd);
    return s;
}

/* ---- whole processes ---- */

static double time_process(const char *const *argv, berth_err *err)
{
    double ms[TRIES];
    posix_spawn_file_actions_t io;
    posix_spawn_file_actions_init(&io);
    posix_spawn_file_actions_addopen(&io, 1, "/dev/null", O_WRONLY, 0);
    for (int i = 0; i < TRIES; i++) {
        pid_t pid;
        int status = 0;
        double t = bench_now_ms();
        if (posix_spawn(&pid, argv[0], &io, NULL, (char *const *)(uintptr_t)argv, environ) ||
            waitpid(pid, &status, 0) != pid || status) {
            posix_spawn_file_actions_destroy(&io);
            err_set(err, BERTH_EIO, "'%s %s' ended with %d", argv[0], argv[1], status);
            return -1;
        }
        ms[i] = bench_now_ms() - t;
    }
    posix_spawn_file_actions_destroy(&io);
    return bench_median(ms, TRIES);
}

static berth_status processes(const char *berth, const char *file, bool json, berth_err *err)
{
#define MACHINE "cuda:0=12g,cuda:1=8g,cpu=64g"
    const struct {
        const char *what;
        const char *argv[8];
        double bar_ms; /* 0: a reference */
    } row[] = {
        { "plan", { berth, "plan", file, "--devices", MACHINE, NULL }, 50 },
        { "plan --json", { berth, "plan", file, "--devices", MACHINE, "--json", NULL }, 50 },
        { "plan --virtual-vram 12",
          { berth, "plan", file, "--devices", MACHINE, "--virtual-vram", "12", NULL },
          50 },
        { "inspect", { berth, "inspect", file, NULL }, 0 },
        { "version", { berth, "version", NULL }, 0 },
    };
#undef MACHINE
    if (!json)
        printf("%-24s %10s  %s\n", "flux-dev, whole process", "ms", "bar");
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        double ms = time_process(row[i].argv, err);
        if (ms < 0)
            return err->code;
        if (json)
            printf("  {\"process\": \"%s\", \"ms\": %.3f, \"bar_ms\": %.0f},\n", row[i].what, ms,
                   row[i].bar_ms);
        else if (row[i].bar_ms > 0)
            printf("%-24s %10.2f  < %.0f ms: %s\n", row[i].what, ms, row[i].bar_ms,
                   ms < row[i].bar_ms ? "met" : "MISSED");
        else
            printf("%-24s %10.2f  reference\n", row[i].what, ms);
    }
    return BERTH_OK;
}

/* ---- steps ---- */

struct result { /* medians in ms */
    size_t blocks;
    uint64_t bytes;
    double open, order, automatic, string, spread, tail, copy;
};

/* One time through; every number is the time of its step. */
static berth_status steps_once(const char *path, struct result *r, berth_err *err)
{
    struct plan_devices d = { .n = 3 };
    const uint64_t gib = UINT64_C(1) << 30;
    d.at[0] = (struct plan_device) { .name = "cuda:0", .total = 12 * gib, .budget = 12 * gib };
    d.at[1] = (struct plan_device) { .name = "cuda:1", .total = 8 * gib, .budget = 8 * gib };
    d.at[2] = (struct plan_device) { .name = "cpu", .host = true };
    d.at[2].total = d.at[2].budget = 4096 * gib;
    struct weights *w;
    struct blocks b = { 0 };
    struct plan p = { 0 };
    struct quotas q;
    static struct alloc a; /* large */
    static const char text[] = "cuda:0,40%;cuda:1,10%;cpu,*#cuda:0";

    double t = bench_now_ms();
    if (weights_open(path, NULL, &w, err))
        return err->code;
    r->open = bench_now_ms() - t;

    t = bench_now_ms();
    const struct arch *arch = arch_detect(w, NULL);
    berth_status s = blocks_from_weights(w, NULL, arch ? &arch->base : NULL, &b, err);
    r->order = bench_now_ms() - t;
    r->blocks = b.n;
    r->bytes = b.bytes;
    if (b.bytes > 24 * gib) /* the strings are shares: keep to them on a machine that holds it */
        d.at[0].total = d.at[0].budget = d.at[1].total = d.at[1].budget = 4096 * gib;

    t = bench_now_ms();
    if (!s)
        s = plan_auto(&b, &d, NULL, UINT64_MAX, &q, err);
    r->automatic = bench_now_ms() - t;

    t = bench_now_ms();
    if (!s)
        s = alloc_parse(text, sizeof text - 1, &a, err);
    if (!s)
        s = alloc_resolve(&a, &d, NULL, b.bytes, &q, err);
    r->string = bench_now_ms() - t;

    for (int layout = 0; !s && layout < 2; layout++) {
        t = bench_now_ms();
        s = plan_make(&b, &d, &q, layout ? PLAN_TAIL : PLAN_SPREAD, &p, err);
        *(layout ? &r->tail : &r->spread) = bench_now_ms() - t;
        plan_release(&p);
    }

    struct block *copy = malloc(b.n * sizeof *copy + 1);
    t = bench_now_ms();
    if (copy)
        memcpy(copy, b.at, b.n * sizeof *copy);
    __asm__ volatile("" ::"r"(copy) : "memory"); /* somebody might look at it */
    r->copy = bench_now_ms() - t;
    free(copy);
    blocks_release(&b);
    weights_close(w);
    return s;
}

static berth_status steps(const char *what, const char *path, bool json, bool first, bool last,
                          berth_err *err)
{
    double v[7][TRIES];
    struct result r = { 0 };
    for (int i = 0; i < TRIES; i++) {
        if (steps_once(path, &r, err))
            return err->code;
        const double one[] = { r.open, r.order, r.automatic, r.string, r.spread, r.tail, r.copy };
        for (size_t k = 0; k < ARRAY_LEN(one); k++)
            v[k][i] = one[k];
    }
    double m[7];
    for (size_t k = 0; k < ARRAY_LEN(m); k++)
        m[k] = bench_median(v[k], TRIES);
    if (json) {
        printf("  {\"model\": \"%s\", \"blocks\": %zu, \"bytes\": %" PRIu64
               ", \"open_ms\": %.3f, \"blocks_ms\": %.3f, \"auto_ms\": %.3f, \"string_ms\": %.3f, "
               "\"spread_ms\": %.3f, \"tail_ms\": %.3f, \"memcpy_ms\": %.4f, \"bar_ms\": 10}%s\n",
               what, r.blocks, r.bytes, m[0], m[1], m[2], m[3], m[4], m[5], m[6], last ? "" : ",");
        return BERTH_OK;
    }
    if (first)
        printf("\n%-14s %7s %8s %8s %8s %8s %8s %8s %9s  %s\n", "steps, ms", "blocks", "open",
               "blocks", "auto", "string", "spread", "tail", "memcpy", "bar");
    double worst = m[1] + (m[2] > m[3] ? m[2] : m[3]) + (m[4] > m[5] ? m[4] : m[5]);
    printf("%-14s %7zu %8.3f %8.3f %8.3f %8.3f %8.3f %8.3f %9.4f  plan %.2f < 10 ms: %s\n", what,
           r.blocks, m[0], m[1], m[2], m[3], m[4], m[5], m[6], worst,
           worst < 10 ? "met" : "MISSED");
    return BERTH_OK;
}

/* ---- all of it ---- */

/* The same keys in another order, every time the same one. */
static void shuffle(struct keys *k)
{
    uint64_t x = 1;
    for (size_t i = k->n; i > 1; i--) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t other = (size_t)((x >> 33) % i);
        struct key swap = k->at[i - 1];
        k->at[i - 1] = k->at[other];
        k->at[other] = swap;
    }
}

/* The program is one folder above the benchmarks. */
static bool find_berth(char *path, size_t cap)
{
    ssize_t n = readlink("/proc/self/exe", path, cap);
    if (n <= 0 || (size_t)n >= cap)
        return false;
    path[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
    size_t used = strlen(path);
    return snprintf(path + used, cap - used, "/berth") == 6 && access(path, X_OK) == 0;
}

static berth_status run(bool json, berth_err *err)
{
    char berth[512], flux[64] = "", many[64] = "", mixed[64] = "";
    struct keys k = { 0 };
    int fd[3] = { -1, -1, -1 };
    if (!find_berth(berth, sizeof berth))
        return err_set(err, BERTH_ENOTFOUND, "no berth one folder above this program");
    if (preset_keys(preset_find("flux-dev"), &k, err))
        return err->code;
    berth_status s = make_file(&k, &fd[0], flux, err);
    keys_release(&k);
    /* 14 blocks in a double one, 5 in a single one, 10 around them */
    keys_flux(&k, &(struct flux_config) { .in_channels = 64,
                                          .hidden = 3072,
                                          .head_dim = 128,
                                          .context_dim = 4096,
                                          .vec_dim = 768,
                                          .depth = 400,
                                          .depth_single = 878,
                                          .guidance = true });
    if (!s)
        s = make_file(&k, &fd[1], many, err);
    shuffle(&k);
    if (!s)
        s = make_file(&k, &fd[2], mixed, err);
    keys_release(&k);
    if (json)
        printf("[\n");
    if (!s)
        s = processes(berth, flux, json, err);
    if (!s)
        s = steps("flux-dev", flux, json, true, false, err);
    if (!s)
        s = steps("flux, 10,000", many, json, false, false, err);
    if (!s)
        s = steps("... shuffled", mixed, json, false, true, err);
    if (json)
        printf("]\n");
    for (int i = 0; i < 3; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    return s;
}

int main(int argc, char **argv)
{
    bool json;
    int code = bench_args(
        argc, argv,
        "usage: plan [--json]\n"
        "Time for planning FLUX.1-dev (24 GB) as a whole process and step by step, and a\n"
        "model of 10,000 blocks. Sparse files in $TMPDIR; takes a few seconds.\n",
        &json);
    if (code >= 0)
        return code;
    berth_err err;
    if (run(json, &err)) {
        fprintf(stderr, "plan: %s\n", err.msg);
        return 1;
    }
    return 0;
}
