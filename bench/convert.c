/* convert: how fast elements change type on one thread, against memcpy of as many bytes in the same
 * run. GB/s count bytes written. Once with everything in the second-level cache, once with far more
 * than any cache holds; each number is the best of several tries, conversion and memcpy taking
 * turns. "plain" is the portable version of the same conversion, in cache.
 *
 * Quantisers spend their time searching, so only the cached size is tried. */
#include "tensor/convert.h"
#include "base/clock.h"
#include "base/err.h"
#include "tensor/convert_impl.h"

#define CACHED ((size_t)256 << 10) /* bytes written */
#define LARGE ((size_t)256 << 20)
#define MOST_SOURCE (4 * LARGE) /* F32 to one byte */

struct job {
    enum dtype from, to;
    to_f32_fn *to_f32;     /* one level instead of convert(); NULL: convert() */
    from_f32_fn *from_f32; /* likewise */
};

struct speed {
    double convert, copy; /* GB/s; 0: not measured */
};

struct row {
    char name[32];
    struct speed cached, large;
    double plain; /* GB/s; 0: there is one version only */
};

struct bench {
    uint8_t *bits; /* MOST_SOURCE of random bits */
    float *values; /* the same many bytes of numbers between -1 and 1 */
    uint8_t *dst;  /* LARGE */
    bool json;
};

static uint64_t now_ns(void)
{
    return clock_mono_ns(clock_system());
}

static void do_job(const struct bench *b, const struct job *j, size_t n)
{
    const void *src = j->from == DT_F32 ? (const void *)b->values : b->bits;
    berth_err err;
    if (j->to_f32)
        j->to_f32(src, (float *)(void *)b->dst, n);
    else if (j->from_f32)
        j->from_f32(src, b->dst, n);
    else if (convert(j->from, src, j->to, b->dst, n, &err))
        BUG("%s", err.msg);
}

static double best(double a, double b)
{
    return a > b ? a : b;
}

/* Elements whose conversion writes about `bytes` bytes, a multiple of both blocks. */
static size_t elements(const struct job *j, size_t bytes)
{
    const struct dtype_desc *to = dtype_desc(j->to);
    return bytes / to->bytes * to->elems & ~(size_t)255;
}

static struct speed measure(const struct bench *b, const struct job *j, size_t bytes)
{
    size_t n = elements(j, bytes);
    size_t written = n / dtype_desc(j->to)->elems * dtype_desc(j->to)->bytes;
    bool slow = dtype_is_quant(j->to);
    int tries = bytes > CACHED ? 5 : 9, repeats = bytes > CACHED ? 1 : slow ? 4 : 100;
    struct speed s = { 0, 0 };
    for (int t = 0; t < tries; t++) {
        uint64_t t0 = now_ns();
        for (int r = 0; r < repeats; r++)
            do_job(b, j, n);
        uint64_t t1 = now_ns();
        for (int r = 0; r < repeats; r++) {
            memcpy(b->dst, b->bits, written);
            __asm__ volatile("" ::"r"(b->dst) : "memory"); /* the copy is wanted */
        }
        uint64_t t2 = now_ns();
        double total = (double)written * repeats;
        s.convert = best(s.convert, total / (double)(t1 - t0));
        s.copy = best(s.copy, total / (double)(t2 - t1));
    }
    return s;
}

static struct row measure_row(const struct bench *b, enum dtype from, enum dtype to)
{
    const struct dtype_desc *f = dtype_desc(from), *t = dtype_desc(to);
    struct job j = { from, to, NULL, NULL };
    struct row r = { .name = "" };
    snprintf(r.name, sizeof r.name, "%s -> %s", f->name, t->name);
    r.cached = measure(b, &j, CACHED);
    if (t->elems == 1)
        r.large = measure(b, &j, LARGE);
    if (to == DT_F32 && f->to_f32_levels)
        j.to_f32 = f->to_f32_levels[CPU_PLAIN];
    if (from == DT_F32 && t->from_f32_levels)
        j.from_f32 = t->from_f32_levels[CPU_PLAIN];
    if (j.to_f32 || j.from_f32)
        r.plain = measure(b, &j, CACHED).convert;
    return r;
}

static void print_head(const struct bench *b)
{
    if (b->json)
        printf("{\"level\": \"%s\", \"cached_bytes\": %zu, \"large_bytes\": %zu, \"rows\": [",
               cpu_level_name(cpu_level()), CACHED, LARGE);
    else
        printf("GB/s of bytes written, one thread, level %s; share of memcpy in the same run\n\n"
               "%-19s | %22s | %21s | %7s\n%-19s | %8s %7s %6s | %7s %7s %6s | %7s\n",
               cpu_level_name(cpu_level()), "", "in cache, 256 KiB", "256 MiB", "plain", "",
               "convert", "memcpy", "share", "convert", "memcpy", "share", "cached");
}

static void print_row(const struct bench *b, const struct row *r, bool first)
{
    const struct speed *c = &r->cached, *l = &r->large;
    if (b->json) {
        printf("%s\n  {\"name\": \"%s\", \"cached\": %.3f, \"cached_memcpy\": %.3f",
               first ? "" : ",", r->name, c->convert, c->copy);
        if (l->copy > 0)
            printf(", \"large\": %.3f, \"large_memcpy\": %.3f", l->convert, l->copy);
        if (r->plain > 0)
            printf(", \"plain\": %.3f", r->plain);
        printf("}");
        return;
    }
    printf("%-19s | %8.2f %7.2f %5.0f%% |", r->name, c->convert, c->copy,
           100 * c->convert / c->copy);
    if (l->copy > 0)
        printf(" %7.2f %7.2f %5.0f%% |", l->convert, l->copy, 100 * l->convert / l->copy);
    else
        printf(" %7s %7s %6s |", "-", "-", "-");
    if (r->plain > 0)
        printf(" %7.2f", r->plain);
    printf("\n");
    fflush(stdout);
}

static void run(const struct bench *b)
{
    print_head(b);
    bool first = true;
    for (int pass = 0; pass < 2; pass++) /* everything to F32, then F32 to everything it can */
        for (int t = 0; t < DT_COUNT; t++) {
            enum dtype from = pass ? DT_F32 : (enum dtype)t, to = pass ? (enum dtype)t : DT_F32;
            const struct dtype_desc *d = dtype_desc((enum dtype)t);
            bool wanted = (d->is_float && t != DT_F32) || d->elems > 1;
            if (!wanted || !convert_possible(from, to))
                continue;
            struct row r = measure_row(b, from, to);
            print_row(b, &r, first);
            first = false;
        }
    static const enum dtype pairs[][2] = { { DT_F16, DT_BF16 },
                                           { DT_BF16, DT_F16 },
                                           { DT_F8_E4M3, DT_BF16 },
                                           { DT_Q8_0, DT_BF16 },
                                           { DT_Q4_K, DT_F16 } };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        struct row r = measure_row(b, pairs[i][0], pairs[i][1]);
        print_row(b, &r, false);
    }
    printf("%s", b->json ? "\n]}\n" : "");
}

static bool make_data(struct bench *b)
{
    b->bits = malloc(MOST_SOURCE);
    b->values = malloc(MOST_SOURCE);
    b->dst = malloc(LARGE);
    if (!b->bits || !b->values || !b->dst)
        return false;
    uint64_t z = 1;
    for (size_t i = 0; i < MOST_SOURCE / 4; i++) {
        z = z * UINT64_C(6364136223846793005) + 1;
        st_u32(b->bits, i, (uint32_t)(z >> 32));
        b->values[i] = (float)(int32_t)(z >> 32) * 0x1p-31f;
    }
    memset(b->dst, 0, LARGE);
    return true;
}

int main(int argc, char **argv)
{
    struct bench b = { 0 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            b.json = true;
        } else {
            bool help = strcmp(argv[i], "--help") == 0;
            fprintf(
                help ? stdout : stderr,
                "usage: convert [--json]\n"
                "Speed of conversions between element types against memcpy. Takes about half a\n"
                "minute and 2.3 GiB of memory.\n");
            return help ? 0 : 2;
        }
    }
    if (make_data(&b))
        run(&b);
    else
        fprintf(stderr, "convert: no memory for %zu bytes\n", 2 * MOST_SOURCE + LARGE);
    bool ok = b.dst != NULL;
    free(b.bits);
    free(b.values);
    free(b.dst);
    return ok ? 0 : 1;
}
