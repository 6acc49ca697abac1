/* pool: what one allocation costs at the door to device memory, against malloc and free of the very
 * same sequence in the same run.
 *
 * A sequence is drawn once from a fixed seed and played on each side in turn, several times; the
 * first time only warms up, so the pool and malloc are both in their steady state, and the best of
 * the others counts. Nobody touches the bytes. The pool's time includes the ledger and its lock,
 * about 4 ns of each step; what malloc spends on trimming its own heap is part of its price too. */
#include "base/clock.h"
#include "bench.h"
#include "device/devset.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define TRIES 9

enum order { LIFO, FIFO, RANDOM };

struct pattern {
    const char *name;
    enum order order;
    size_t slots; /* ranges alive at most */
    size_t min, max;
    size_t ops; /* allocations in the sequence; as many frees */
    bool mixed; /* 90 % small, 9 % medium, 1 % large instead of min .. max */
};

static const struct pattern patterns[] = {
    { "small, last in first out", LIFO, 1000, 1, 64 * KIB, 20000, false },
    { "small, first in first out", FIFO, 1000, 1, 64 * KIB, 20000, false },
    { "small, random", RANDOM, 1000, 1, 64 * KIB, 20000, false },
    { "one size, random", RANDOM, 1000, 4096, 4096, 20000, false },
    { "medium, random", RANDOM, 64, MIB, 16 * MIB, 5000, false },
    { "large, random", RANDOM, 16, 16 * MIB, 64 * MIB, 2000, false },
    { "mixed, random", RANDOM, 250, 1, 64 * MIB, 20000, true },
};

/* One step: slot is filled with n bytes, or emptied when n is 0. */
struct step {
    size_t slot, n;
};

struct sequence {
    struct step *step;
    size_t n;
};

struct side { /* one thing under test */
    const char *name;
    struct device *dev; /* NULL: malloc */
    struct dev_owner *owner;
    void **ptr;          /* by slot */
    struct dev_mem *mem; /* by slot */
};

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t draw_size(const struct pattern *p, uint64_t *rng)
{
    size_t lo = p->min, hi = p->max;
    if (p->mixed) {
        uint64_t kind = draw(rng) % 100;
        lo = kind < 90 ? 1 : kind < 99 ? MIB : 16 * MIB;
        hi = kind < 90 ? 64 * KIB : kind < 99 ? 16 * MIB : 64 * MIB;
    }
    return lo + (size_t)(draw(rng) % (hi - lo + 1));
}

/* Ends with every slot empty, so that it can be played again. */
static bool make_sequence(const struct pattern *p, struct sequence *s)
{
    uint64_t rng = 1;
    bool *full = calloc(p->slots, sizeof *full);
    s->step = calloc(2 * p->ops, sizeof *s->step);
    s->n = 0;
    for (size_t made = 0; full && s->step && made < p->ops;) {
        if (p->order == RANDOM) {
            size_t slot = (size_t)(draw(&rng) % p->slots);
            s->step[s->n++] = (struct step) { slot, full[slot] ? 0 : draw_size(p, &rng) };
            made += !full[slot];
            full[slot] = !full[slot];
            continue;
        }
        size_t batch = p->ops - made < p->slots ? p->ops - made : p->slots;
        for (size_t i = 0; i < batch; i++)
            s->step[s->n++] = (struct step) { i, draw_size(p, &rng) };
        for (size_t i = 0; i < batch; i++)
            s->step[s->n++] = (struct step) { p->order == LIFO ? batch - 1 - i : i, 0 };
        made += batch;
    }
    for (size_t i = 0; full && s->step && i < p->slots; i++)
        if (full[i])
            s->step[s->n++] = (struct step) { i, 0 };
    bool ok = full && s->step;
    free(full);
    return ok;
}

static berth_status play_pool(struct side *t, const struct sequence *s, berth_err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        struct dev_mem *m = &t->mem[s->step[i].slot];
        if (!s->step[i].n)
            dev_free(m);
        else if (dev_alloc(t->dev, t->owner, s->step[i].n, m, err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status play_malloc(struct side *t, const struct sequence *s, berth_err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        void **p = &t->ptr[s->step[i].slot];
        if (!s->step[i].n) {
            free(*p);
            *p = NULL;
        } else if (!(*p = malloc(s->step[i].n))) {
            return err_set(err, BERTH_ENOMEM, "malloc of %zu bytes", s->step[i].n);
        }
        __asm__ volatile("" ::"r"(*p) : "memory"); /* or the compiler drops the pair */
    }
    return BERTH_OK;
}

/* Best time of one step in ns, for every side; they take turns. */
static berth_status measure(struct side *side, size_t sides, const struct sequence *s, double *ns,
                            berth_err *err)
{
    for (int t = 0; t <= TRIES; t++)
        for (size_t i = 0; i < sides; i++) {
            uint64_t start = clock_mono_ns(clock_system());
            if ((side[i].dev ? play_pool : play_malloc)(&side[i], s, err))
                return err_add(err, "%s", side[i].name);
            double one = (double)(clock_mono_ns(clock_system()) - start) / (double)s->n;
            if (t == 1 || (t > 1 && one < ns[i]))
                ns[i] = one;
        }
    return BERTH_OK;
}

static void print_row(const struct pattern *p, const double *ns, const struct dev_stats *st,
                      bool json, bool first)
{
    double hits = st->allocs ? 100.0 * (double)st->hits / (double)st->allocs : 0;
    if (json)
        printf(
            "%s\n  {\"pattern\": \"%s\", \"malloc_ns\": %.1f, \"cpu_ns\": %.1f, \"null_ns\": %.1f, "
            "\"cpu_ratio\": %.3f, \"null_ratio\": %.3f, \"hit_percent\": %.2f}",
            first ? "" : ",", p->name, ns[0], ns[1], ns[2], ns[1] / ns[0], ns[2] / ns[0], hits);
    else
        printf("%-26s | %8.1f | %8.1f %6.2f | %8.1f %6.2f | %6.2f\n", p->name, ns[0], ns[1],
               ns[1] / ns[0], ns[2], ns[2] / ns[0], hits);
    fflush(stdout);
}

static berth_status run(struct side *side, bool json, berth_err *err)
{
    if (json)
        printf("{\"rows\": [");
    else
        printf("ns for one allocation or free; ratio to malloc and free of the same sequence\n\n"
               "%-26s | %8s | %8s %6s | %8s %6s | %6s\n",
               "", "malloc", "cpu", "ratio", "null", "ratio", "hits %");
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        struct sequence s;
        double ns[3] = { 0 };
        struct dev_info before, after;
        if (!make_sequence(&patterns[i], &s)) {
            free(s.step);
            return err_set(err, BERTH_ENOMEM, "a sequence");
        }
        berth_status st = dev_info(side[1].dev, &before, err);
        st = st ? st : measure(side, 3, &s, ns, err);
        st = st ? st : dev_info(side[1].dev, &after, err);
        free(s.step);
        if (st)
            return err_add(err, "%s", patterns[i].name);
        struct dev_stats d = { .allocs = after.stats.allocs - before.stats.allocs,
                               .hits = after.stats.hits - before.stats.hits };
        print_row(&patterns[i], ns, &d, json, i == 0);
        dev_trim(side[1].dev);
        dev_trim(side[2].dev);
    }
    printf("%s", json ? "\n]}\n" : "");
    return BERTH_OK;
}

/* Each device in a set of its own: a null device beside it would watch the cpu's memory. */
static berth_status open_side(struct side *t, const char *text, struct devset **set, berth_err *err)
{
    struct dev_env env = { 0 };
    struct spec spec;
    if (spec_parse(text, strlen(text), false, &spec, err) || devset_open(&spec, &env, set, err))
        return err->code;
    t->dev = devset_at(*set, 0);
    return dev_owner_open(t->dev, "bench", DEV_ACTIVATIONS, &t->owner, err);
}

static berth_status open_and_run(bool json, berth_err *err)
{
    static struct dev_mem mem[3][1000];
    static void *ptr[1000];
    struct devset *cpu = NULL, *null = NULL;
    struct side side[3] = { { .name = "malloc", .ptr = ptr },
                            { .name = "cpu", .mem = mem[1] },
                            { .name = "null", .mem = mem[2] } };
    berth_status s = open_side(&side[1], "cpu", &cpu, err);
    s = s ? s : open_side(&side[2], "null:0=64g", &null, err);
    s = s ? s : run(side, json, err);
    dev_owner_close(side[1].owner);
    dev_owner_close(side[2].owner);
    devset_close(cpu);
    devset_close(null);
    return s;
}

int main(int argc, char **argv)
{
    bool json;
    int code =
        bench_args(argc, argv,
                   "usage: pool [--json]\n"
                   "Cost of allocations from the device memory pool against malloc. Takes a few\n"
                   "seconds; memory is reserved, not touched.\n",
                   &json);
    if (code >= 0)
        return code;
    berth_err err = { 0 };
    if (open_and_run(json, &err)) {
        fprintf(stderr, "pool: %s\n", err.msg);
        return 1;
    }
    return 0;
}
