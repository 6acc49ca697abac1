/* stream: what the streaming engine costs by itself, against the bare copies of the same bytes in
 * the same run.
 *
 * On cpu a copy is a memcpy that happens when it is queued, so a pass over blocks in host memory is
 * the reference, a memcpy of each block into the same number of slots, plus the engine: cutting a
 * pass into runs, slots, events that do nothing, statistics. Both sides take turns, the first try
 * warms up, the best of the others counts. Links and overlap are a matter of real cards; null's
 * simulation costs more than the engine and says nothing about time, so it is not measured. */
#include "residency/stream.h"
#include "base/clock.h"
#include "device/devset.h"

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

static berth_status run(struct device *cpu, struct dev_owner *owner, bool json, berth_err *err)
{
    if (json)
        printf("{\"rows\": [");
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
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else {
            bool help = strcmp(argv[i], "--help") == 0;
            fprintf(help ? stdout : stderr,
                    "usage: stream [--json]\n"
                    "What the streaming engine costs per block, against bare copies. Takes a few\n"
                    "seconds and 0.5 GB.\n");
            return help ? 0 : 2;
        }
    }
    berth_err err = { 0 };
    if (open_and_run(json, &err)) {
        fprintf(stderr, "stream: %s\n", err.msg);
        return 1;
    }
    return 0;
}
