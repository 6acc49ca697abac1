/* stream: what the streaming engine hides, and what it costs by itself.
 *
 * First, models that stream over a simulated link, on null's virtual clock: blocks of the real
 * sizes, and times as measured on one card (55.4 GB/s pinned; 115 ms a step for FLUX.1-dev, layer
 * by layer). Every byte count is divided by 1024 so that it fits anywhere. In the same run: the
 * step without streaming, and the limit, which is the longer of all layers and all copies. The
 * numbers follow from the order in which things are queued; they are the same on every machine.
 *
 * Then the engine alone, against bare copies of the same bytes. On cpu a copy is a memcpy that
 * happens when it is queued. A pass over blocks in host memory is therefore the reference, a memcpy
 * of each block into the same number of slots, plus the engine: cutting a pass into runs, slots,
 * events that do nothing, statistics. Both sides take turns, the first try warms up, the best of
 * the others counts. */
#include "stream/stream.h"
#include "../tests/support/sparse.h"
#include "base/clock.h"
#include "bench.h"
#include "device/devset.h"
#include "device/null/null.h"
#include "model/arch.h"
#include "plan/plan.h"

#define TRIES 9
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct row {
    const char *name;
    size_t blocks, bytes; /* bytes of each */
    size_t run_bytes;
    enum stream_source source;
};

static const struct row rows[] = {
    { "resident", 2000, 64 * KIB, 16 * MIB, STREAM_RESIDENT },
    { "4 KiB, a run each", 2000, 4 * KIB, 1, STREAM_PINNED },
    { "4 KiB, runs of 256 KiB", 2000, 4 * KIB, 256 * KIB, STREAM_PINNED },
    { "64 KiB, a run each", 1000, 64 * KIB, 1, STREAM_PINNED },
    { "1 MiB, a run each", 128, MIB, 1, STREAM_PINNED },
    { "16 MiB, a run each", 12, 16 * MIB, 1, STREAM_PINNED },
};

struct bench { /* one row */
    const struct row *row;
    struct device *cpu;
    struct dev_owner *owner;
    struct dev_mem src, ring;
    struct stream_item *item;
    struct stream_piece piece;
    struct stream *s;
    struct dev_stream *on;
};

static char *at(uint64_t addr)
{
    return (char *)(uintptr_t)addr;
}

/* Blocks into slots of one block or one run, in a ring of as many as the engine's. */
static void copy_plainly(const struct bench *b)
{
    const struct row *r = b->row;
    size_t per_run = r->run_bytes > r->bytes ? r->run_bytes / r->bytes : 1;
    for (size_t i = 0; i < r->blocks && r->source != STREAM_RESIDENT; i++) {
        size_t slot = i / per_run % STREAM_SLOTS_DEFAULT, in_slot = i % per_run;
        memcpy(at(b->ring.addr) + (slot * per_run + in_slot) * r->bytes, at(b->item[i].addr),
               r->bytes);
    }
}

static berth_status one_pass(struct bench *b, berth_err *err)
{
    if (stream_begin(b->s, b->on, err))
        return err->code;
    for (size_t i = 0; i < b->row->blocks; i++) {
        uint64_t addr;
        if (stream_acquire(b->s, i, &addr, err))
            return err->code;
        __asm__ volatile("" ::"r"(addr) : "memory");
        if (stream_release(b->s, i, err))
            return err->code;
    }
    return stream_end(b->s, err);
}

static double elapsed(uint64_t start, size_t blocks) /* ns of one block */
{
    return (double)(clock_mono_ns(clock_system()) - start) / (double)blocks;
}

static berth_status measure(struct bench *b, double *plain, double *stream, berth_err *err)
{
    for (int t = 0; t <= TRIES; t++) {
        uint64_t start = clock_mono_ns(clock_system());
        copy_plainly(b);
        double ns = elapsed(start, b->row->blocks);
        *plain = t <= 1 || ns < *plain ? ns : *plain;
        start = clock_mono_ns(clock_system());
        if (one_pass(b, err))
            return err->code;
        ns = elapsed(start, b->row->blocks);
        *stream = t <= 1 || ns < *stream ? ns : *stream;
    }
    return BERTH_OK;
}

static berth_status open_row(struct bench *b, berth_err *err)
{
    const struct row *r = b->row;
    size_t slot = r->run_bytes > r->bytes ? r->run_bytes : r->bytes;
    b->item = calloc(r->blocks, sizeof *b->item);
    if (!b->item)
        return err_set(err, BERTH_ENOMEM, "%zu blocks", r->blocks);
    if (dev_alloc(b->cpu, b->owner, r->blocks * r->bytes, &b->src, err) ||
        dev_alloc(b->cpu, b->owner, STREAM_SLOTS_DEFAULT * slot, &b->ring, err) ||
        dev_stream_new(b->cpu, &b->on, err))
        return err->code;
    memset(at(b->src.addr), 1, b->src.n);
    b->piece = (struct stream_piece) { 0, r->bytes };
    for (size_t i = 0; i < r->blocks; i++)
        b->item[i] = (struct stream_item) { .source = r->source,
                                            .dev = b->cpu,
                                            .addr = b->src.addr + i * r->bytes,
                                            .span = r->bytes,
                                            .piece = &b->piece,
                                            .pieces = 1 };
    struct stream_args a = { .name = r->name,
                             .compute = b->cpu,
                             .item = b->item,
                             .n = r->blocks,
                             .owner = b->owner,
                             .cfg.run_bytes = r->run_bytes };
    return stream_open(&a, &b->s, err);
}

static void close_row(struct bench *b)
{
    stream_close(b->s);
    dev_stream_free(b->on);
    dev_free(&b->src);
    dev_free(&b->ring);
    free(b->item);
}

/* ---- the simulation ---- */

#define SCALE 1024
#define LINK_BYTES_PER_S 55400000000
#define WARM_PASSES 2
#define PASSES 60 /* that count: in each of them some runs are timed */

struct sim_block { /* a layer */
    const char *name;
    uint64_t bytes;
    unsigned launches; /* its time */
};

/* Flux layers as they were timed on an H200 (bf16, 4096 picture and 512 text tokens), 10 us a
 * launch. Attention and the norms, gates and rotations around it count at the layers they are
 * launched with. One unit: 3072 x 3072 weights of two bytes. */
#define UNIT (UINT64_C(3072) * 3072 * 2)
#define DOUBLE "double_blocks.0."
#define SINGLE "single_blocks.0."
static const struct sim_block flux_double[] = {
    { DOUBLE "img_mod.lin", 6 * UNIT, 4 },    { DOUBLE "txt_mod.lin", 6 * UNIT, 4 },
    { DOUBLE "img_attn.qkv", 3 * UNIT, 36 },  { DOUBLE "txt_attn.qkv", 3 * UNIT, 5 },
    { DOUBLE "img_attn.proj", 1 * UNIT, 56 }, { DOUBLE "img_mlp.0", 4 * UNIT, 47 },
    { DOUBLE "img_mlp.2", 4 * UNIT, 44 },     { DOUBLE "txt_attn.proj", 1 * UNIT, 3 },
    { DOUBLE "txt_mlp.0", 4 * UNIT, 6 },      { DOUBLE "txt_mlp.2", 4 * UNIT, 6 },
};
static const struct sim_block flux_single[] = {
    { SINGLE "modulation.lin", 3 * UNIT, 2 },
    { SINGLE "linear1", 7 * UNIT, 86 },
    { SINGLE "linear2", 5 * UNIT, 109 },
};
/* What comes before and behind them: small, and without time worth counting. */
static const struct sim_block flux_in[] = {
    { "img_in", UINT64_C(393216), 1 },    { "time_in.in_layer", UINT64_C(1572864), 1 },
    { "time_in.out_layer", UNIT, 1 },     { "guidance_in.in_layer", UINT64_C(1572864), 1 },
    { "guidance_in.out_layer", UNIT, 1 }, { "vector_in.in_layer", UINT64_C(4718592), 1 },
    { "vector_in.out_layer", UNIT, 1 },   { "txt_in", UINT64_C(25165824), 2 },
};
static const struct sim_block flux_out[] = {
    { "final_layer.adaLN_modulation.1", 2 * UNIT, 1 },
    { "final_layer.linear", UINT64_C(393216), 1 },
};
static const struct sim_block small[] = { { "block", UINT64_C(2) << 20, 1 } };

struct sim_model {
    const char *name;
    const char *preset; /* that says what plans know of it; NULL: layouts go by bytes */
    /* Its layers. None: those of the preset, each as long as the trace says of all `launches`. */
    struct {
        const struct sim_block *block;
        size_t blocks, times;
    } part[4];
    const char *prefix; /* of its tensors in the preset's file; NULL: they are all */
    unsigned launches;
    uint64_t launch_ns;
    /* Launches' time between two steps in which there are no layers: the result goes to the host, a
     * sampler runs there, the next step's first layers are queued. The link need not rest then. */
    unsigned turn;
};
static const struct sim_model flux = { "FLUX.1-dev",
                                       "flux-dev",
                                       { { flux_in, ARRAY_LEN(flux_in), 1 },
                                         { flux_double, ARRAY_LEN(flux_double), 19 },
                                         { flux_single, ARRAY_LEN(flux_single), 38 },
                                         { flux_out, ARRAY_LEN(flux_out), 1 } },
                                       NULL,
                                       0,
                                       10000,
                                       300 };
/* UNets as they were timed there, 8.8 and 22.3 ms a step: few bytes where pictures are large, and
 * most of the bytes where they are small. */
static const struct sim_model sd15 = { .name = "SD1.5",
                                       .preset = "sd15",
                                       .prefix = "model.diffusion_model.",
                                       .launches = 8800,
                                       .launch_ns = 1000,
                                       .turn = 300 };
static const struct sim_model sdxl = { .name = "SDXL",
                                       .preset = "sdxl",
                                       .prefix = "model.diffusion_model.",
                                       .launches = 22300,
                                       .launch_ns = 1000,
                                       .turn = 300 };
static const struct sim_model many = {
    "800 x 2 MiB", NULL, { { small, 1, 800 } }, NULL, 0, 60000, 0
};

static const struct sim_row {
    const struct sim_model *model;
    const char *share, *alloc;
    enum plan_layout layout;
} sim_rows[] = {
    { &flux, "0 %", "null:0,*#null:0", PLAN_SPREAD },
    { &flux, "20 %", "null:0,80%;cpu,20%#null:0", PLAN_SPREAD },
    { &flux, "20 %", "null:0,80%;cpu,20%#null:0", PLAN_TAIL },
    { &flux, "50 %", "null:0,50%;cpu,50%#null:0", PLAN_SPREAD },
    { &flux, "50 %", "null:0,50%;cpu,50%#null:0", PLAN_TAIL },
    { &flux, "100 %", "cpu,*#null:0", PLAN_SPREAD },
    { &sd15, "20 %", "null:0,80%;cpu,20%#null:0", PLAN_SPREAD },
    { &sd15, "50 %", "null:0,50%;cpu,50%#null:0", PLAN_SPREAD },
    { &sd15, "100 %", "cpu,*#null:0", PLAN_SPREAD },
    { &sdxl, "20 %", "null:0,80%;cpu,20%#null:0", PLAN_SPREAD },
    { &sdxl, "50 %", "null:0,50%;cpu,50%#null:0", PLAN_SPREAD },
    { &sdxl, "100 %", "cpu,*#null:0", PLAN_SPREAD },
    { &many, "100 %", "cpu,*#null:0", PLAN_SPREAD },
    { &many, "100 %, two donors", "null:1,50%;cpu,50%#null:0", PLAN_SPREAD },
    { &many, "100 %, three donors", "null:1,34%;null:2,33%;cpu,33%#null:0", PLAN_SPREAD },
};

struct sim { /* one row */
    const struct sim_row *row;
    struct devset *set;
    struct device *dev[4]; /* null:0 computes, null:1, null:2, cpu */
    struct dev_owner *ring, *of[4];
    struct dev_host host;
    struct dev_mem mem[3];
    struct blocks traced; /* of the preset; names of blocks may be its */
    struct block *block;
    unsigned *launches;
    size_t n;
    struct stream_item *item;
    struct stream_piece *piece;
    struct dev_stream *on;
    struct dev_event *start, *end;
    struct stream *s;
    uint64_t step_ns;        /* of the last pass */
    struct stream_stats got; /* of a pass: timed, copy_ns, exposed_ns, runs */
};

/* What plans know of the preset's layers: a trace's estimates, not the times. */
static berth_status sim_trace(const struct sim_model *x, struct blocks *out, berth_err *err)
{
    const char *dir = getenv("TMPDIR");
    char path[512];
    struct keys k = { 0 };
    struct weights *w = NULL;
    snprintf(path, sizeof path, "%s/berth-stream-XXXXXX", dir && dir[0] ? dir : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0)
        return err_sys(err, BERTH_EIO, errno, "'%s'", path);
    close(fd);
    berth_status s = preset_keys(preset_find(x->preset), &k, err);
    if (!s)
        s = sparse_keys(path, &k, DT_BF16, err);
    if (!s)
        s = weights_open(path, NULL, &w, err);
    if (!s)
        s = blocks_from_weights(w, x->prefix, arch_blocks(w, x->prefix), out, err);
    weights_close(w);
    keys_release(&k);
    unlink(path);
    return s;
}

static uint64_t sim_work(const struct blocks *b, const char *name)
{
    for (size_t i = 0; i < b->n; i++)
        if (strcmp(b->at[i].name, name) == 0)
            return b->at[i].work;
    return 0;
}

static void sim_block(struct sim *m, const char *name, uint64_t bytes, uint64_t work,
                      unsigned launches)
{
    m->block[m->n] = (struct block) { .name = name,
                                      .name_len = (uint32_t)strlen(name),
                                      .bytes = bytes,
                                      .span = bytes,
                                      .work = work };
    m->launches[m->n++] = launches;
}

static berth_status sim_blocks(struct sim *m, berth_err *err)
{
    const struct sim_model *x = m->row->model;
    struct blocks *traced = &m->traced;
    uint64_t work = 0;
    if (x->preset && sim_trace(x, traced, err))
        return err->code;
    size_t n = x->launches ? traced->n : 0;
    for (size_t p = 0; p < ARRAY_LEN(x->part); p++)
        n += x->part[p].blocks * x->part[p].times;
    m->block = calloc(n, sizeof *m->block);
    m->launches = calloc(n, sizeof *m->launches);
    m->item = calloc(n, sizeof *m->item);
    m->piece = calloc(n, sizeof *m->piece);
    if (!m->block || !m->launches || !m->item || !m->piece)
        return err_set(err, BERTH_ENOMEM, "%zu blocks", n);
    for (size_t p = 0; p < ARRAY_LEN(x->part); p++)
        for (size_t i = 0; i < x->part[p].blocks * x->part[p].times; i++) {
            const struct sim_block *b = &x->part[p].block[i % x->part[p].blocks];
            sim_block(m, b->name, b->bytes, sim_work(traced, b->name), b->launches);
        }
    for (size_t i = 0; i < traced->n; i++)
        work += traced->at[i].work;
    for (size_t i = 0; x->launches && i < traced->n; i++) {
        const struct block *b = &traced->at[i];
        sim_block(m, b->name, b->bytes, b->work, (unsigned)(b->work * x->launches / work));
    }
    return BERTH_OK;
}

/* Where each block lies, as a plan says; memory in the order of the blocks, one range a device. */
static berth_status sim_place(struct sim *m, const struct plan *plan, berth_err *err)
{
    uint64_t at[4] = { 0 };
    for (size_t i = 0; i < m->n; i++) {
        struct stream_item *it = &m->item[i];
        size_t d = plan->device[i];
        it->dev = m->dev[d];
        it->source = d == 0 ? STREAM_RESIDENT : d == 3 ? STREAM_PINNED : STREAM_DEVICE;
        it->addr = at[d];
        it->span = m->block[i].bytes / SCALE;
        it->name = m->block[i].name;
        m->piece[i] = (struct stream_piece) { 0, it->span };
        it->piece = &m->piece[i];
        it->pieces = 1;
        at[d] += (it->span + DEV_ALIGN_MIN - 1) / DEV_ALIGN_MIN * DEV_ALIGN_MIN;
    }
    for (size_t d = 0; d < 3; d++)
        if (at[d] && dev_alloc(m->dev[d], m->of[d], at[d], &m->mem[d], err))
            return err->code;
    if (at[3] && dev_host_alloc(m->dev[0], m->of[3], at[3], &m->host, err))
        return err->code;
    for (size_t i = 0; i < m->n; i++)
        m->item[i].addr +=
            plan->device[i] == 3 ? (uint64_t)(uintptr_t)m->host.ptr : m->mem[plan->device[i]].addr;
    return BERTH_OK;
}

static berth_status sim_plan(struct sim *m, berth_err *err)
{
    static const char devices[] = "null:0=80g,null:1=80g,null:2=80g,cpu=256g";
    struct blocks b = { .at = m->block, .n = m->n };
    struct plan_devices d;
    struct plan plan = { 0 };
    struct plan_args args = { .alloc = m->row->alloc, .layout = m->row->layout };
    for (size_t i = 0; i < m->n; i++)
        b.bytes += m->block[i].bytes;
    berth_status s = plan_devices_parse(devices, sizeof devices - 1, &d, err);
    s = s ? s : plan_from_args(&b, &d, &args, &plan, err);
    s = s ? s : sim_place(m, &plan, err);
    plan_release(&plan);
    return s;
}

static berth_status sim_open(struct sim *m, berth_err *err)
{
    static const char text[] = "null:0=64m,null:1=64m,null:2=64m,cpu=256m";
    struct null_config null = { .lazy = true,
                                .copy_bytes_per_s = LINK_BYTES_PER_S / SCALE,
                                .launch_ns = m->row->model->launch_ns };
    struct dev_env env = { .null = &null };
    struct spec spec;
    if (sim_blocks(m, err) || spec_parse(text, sizeof text - 1, false, &spec, err) ||
        devset_open(&spec, &env, &m->set, err))
        return err->code;
    for (size_t d = 0; d < 4; d++) {
        m->dev[d] = devset_at(m->set, d);
        if (dev_owner_open(m->dev[d], "bench", d == 3 ? DEV_PINNED : DEV_WEIGHTS, &m->of[d], err))
            return err->code;
    }
    if (dev_owner_open(m->dev[0], "ring", DEV_STAGING, &m->ring, err) || sim_plan(m, err) ||
        dev_stream_new(m->dev[0], &m->on, err) || dev_event_new(m->dev[0], &m->start, err) ||
        dev_event_new(m->dev[0], &m->end, err))
        return err->code;
    struct stream_args a = { .name = m->row->model->name,
                             .compute = m->dev[0],
                             .item = m->item,
                             .n = m->n,
                             .owner = m->ring,
                             .cfg.run_bytes = STREAM_RUN_DEFAULT / SCALE };
    return stream_open(&a, &m->s, err);
}

static void sim_close(struct sim *m)
{
    stream_close(m->s);
    dev_event_free(m->start);
    dev_event_free(m->end);
    dev_stream_free(m->on);
    for (size_t d = 0; d < 3; d++)
        dev_free(&m->mem[d]);
    dev_host_free(&m->host);
    dev_owner_close(m->ring);
    for (size_t d = 0; d < 4; d++)
        dev_owner_close(m->of[d]);
    devset_close(m->set);
    blocks_release(&m->traced);
    free(m->block);
    free(m->launches);
    free(m->item);
    free(m->piece);
}

static void sim_layer(void *user, void *const *ptr)
{
    (void)user, (void)ptr;
}

static berth_status sim_pass(struct sim *m, berth_err *err)
{
    if (stream_begin(m->s, m->on, err) || dev_event_record(m->start, m->on, err))
        return err->code;
    for (unsigned k = 0; k < m->row->model->turn; k++)
        if (dev_launch(m->on, sim_layer, NULL, NULL, 0, err))
            return err->code;
    for (size_t i = 0; i < m->n; i++) {
        uint64_t addr;
        if (stream_acquire(m->s, i, &addr, err))
            return err->code;
        for (unsigned k = 0; k < m->launches[i]; k++)
            if (dev_launch(m->on, sim_layer, NULL, NULL, 0, err))
                return err->code;
        if (stream_release(m->s, i, err))
            return err->code;
    }
    if (dev_event_record(m->end, m->on, err) || dev_stream_sync(m->on, err))
        return err->code;
    return stream_end(m->s, err);
}

static berth_status sim_run(struct sim *m, berth_err *err)
{
    bool done;
    int64_t ns;
    struct stream_stats a = { 0 };
    for (int k = 0; k < WARM_PASSES + PASSES; k++) {
        if (k == WARM_PASSES)
            a = stream_stats(m->s);
        if (sim_pass(m, err))
            return err->code;
    }
    m->got = stream_stats(m->s);
    m->got.timed = (m->got.timed - a.timed) / PASSES;
    m->got.runs = (m->got.runs - a.runs) / PASSES;
    m->got.copy_ns = (m->got.copy_ns - a.copy_ns) / PASSES;
    m->got.exposed_ns = (m->got.exposed_ns - a.exposed_ns) / PASSES;
    if (dev_event_elapsed(m->start, m->end, &done, &ns, err))
        return err->code;
    m->step_ns = (uint64_t)ns;
    return BERTH_OK;
}

static void sim_print(const struct sim *m, bool json, bool first)
{
    const struct stream_stats *x = &m->got;
    const char *layout = plan_layout_name(m->row->layout);
    double layers = m->row->model->turn * (double)m->row->model->launch_ns / 1e6;
    double gb = (double)x->donor_bytes * SCALE / 1e9;
    for (size_t i = 0; i < m->n; i++)
        layers += m->launches[i] * (double)m->row->model->launch_ns / 1e6;
    double copies = gb * 1e12 / (double)LINK_BYTES_PER_S, limit = copies > layers ? copies : layers;
    double step = (double)m->step_ns / 1e6, exposed = (double)x->exposed_ns / 1e6;
    if (json)
        printf("%s\n  {\"model\": \"%s\", \"offloaded\": \"%s\", \"layout\": \"%s\", \"gb\": %.2f, "
               "\"runs\": %d, \"gb_per_s\": %.1f, \"exposed_ms\": %.1f, \"step_ms\": %.1f, "
               "\"layers_ms\": %.1f, \"limit_ms\": %.1f}",
               first ? "" : ",", m->row->model->name, m->row->share, layout, gb, (int)x->runs,
               stream_gbps(x) * SCALE, exposed, step, layers, limit);
    else
        printf("%-11s | %-19s | %-6s | %6.2f | %4d | %6.1f | %7.1f | %7.1f %% | %7.1f | %7.1f | "
               "%7.1f\n",
               m->row->model->name, m->row->share, layout, gb, (int)x->runs, stream_gbps(x) * SCALE,
               exposed, 100 * stream_exposed(x), step, layers, limit);
}

static berth_status simulate(bool json, berth_err *err)
{
    if (json)
        printf("{\"simulated\": [");
    else
        printf("a step over a simulated link, ms of virtual time\n\n"
               "%-11s | %-19s | %-6s | %6s | %4s | %6s | %7s | %9s | %7s | %7s | %7s\n",
               "", "offloaded", "layout", "GB", "runs", "GB/s", "exposed", "of copies", "step",
               "layers", "limit");
    for (size_t i = 0; i < ARRAY_LEN(sim_rows); i++) {
        struct sim m = { .row = &sim_rows[i] };
        berth_status s = sim_open(&m, err);
        s = s ? s : sim_run(&m, err);
        if (!s)
            sim_print(&m, json, i == 0);
        sim_close(&m);
        if (s)
            return err_add(err, "%s, %s", sim_rows[i].model->name, sim_rows[i].share);
    }
    printf("%s", json ? "\n]," : "\n");
    return BERTH_OK;
}

/* ---- the engine alone ---- */

static berth_status run(struct device *cpu, struct dev_owner *owner, bool json, berth_err *err)
{
    if (json)
        printf(" \"rows\": [");
    else
        printf("ns for one block: bare copies, a pass of the engine, what it adds\n\n"
               "%-24s | %12s | %12s | %10s | %7s\n",
               "", "memcpy", "stream", "engine", "ratio");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct bench b = { .row = &rows[i], .cpu = cpu, .owner = owner };
        double plain = 0, stream = 0;
        berth_status s = open_row(&b, err);
        s = s ? s : measure(&b, &plain, &stream, err);
        close_row(&b);
        if (s)
            return err_add(err, "%s", rows[i].name);
        if (json)
            printf("%s\n  {\"row\": \"%s\", \"memcpy_ns\": %.1f, \"stream_ns\": %.1f}",
                   i ? "," : "", rows[i].name, plain, stream);
        else
            printf("%-24s | %12.1f | %12.1f | %10.1f | %7.3f\n", rows[i].name, plain, stream,
                   stream - plain, plain > 1 ? stream / plain : 0);
        fflush(stdout);
    }
    printf("%s", json ? "\n]}\n" : "");
    return BERTH_OK;
}

static berth_status open_and_run(bool json, berth_err *err)
{
    struct dev_env env = { 0 };
    struct devset *set = NULL;
    struct dev_owner *owner = NULL;
    struct spec spec;
    berth_status s = spec_parse("cpu", 3, false, &spec, err);
    s = s ? s : devset_open(&spec, &env, &set, err);
    s = s ? s : dev_owner_open(devset_at(set, 0), "bench", DEV_STAGING, &owner, err);
    s = s ? s : run(devset_at(set, 0), owner, json, err);
    dev_owner_close(owner);
    devset_close(set);
    return s;
}

int main(int argc, char **argv)
{
    bool json;
    int code =
        bench_args(argc, argv,
                   "usage: stream [--json]\n"
                   "What streaming hides over a simulated link, and what the engine costs per\n"
                   "block, against bare copies. Takes a few seconds and 0.5 GB.\n",
                   &json);
    if (code >= 0)
        return code;
    berth_err err = { 0 };
    if (simulate(json, &err) || open_and_run(json, &err)) {
        fprintf(stderr, "stream: %s\n", err.msg);
        return 1;
    }
    return 0;
}
