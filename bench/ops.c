/* ops: attention, norms, functions and copies at the sizes of an SD1.5 UNet (64x64 latent, batch
 * 2), its text encoder and its VAE, and what a block of Flux does beside its products (512x512:
 * 1024 tokens and 512 of text). GFLOP/s of the two products of attention; the others in GB/s read
 * and written once, beside memcpy of as many bytes in the same run. Every core; each number is the
 * best of several tries. Products have a program of their own. */
#include "base/tpool.h"
#include "bench.h"
#include "op/cpu/cpu_impl.h"
#include "op/ops_impl.h"

#define TRIES 7
#define MOST ((size_t)128 << 18) /* floats of the largest operand: 128 channels of 512 x 512 */

extern const struct op_backend op_cpu;

struct bench {
    struct op_env env;
    float *x, *y, *w; /* MOST each */
    bool json;
    size_t rows; /* printed */
};

static struct view view_of(float *data, struct shape s)
{
    struct view v;
    berth_err err;
    if (view_init(DT_F32, &s, data, MOST * sizeof(float), &v, &err))
        BUG("%s", err.msg);
    return v;
}

#define S1(a) ((struct shape) { 1, { a } })
#define S2(a, b) ((struct shape) { 2, { a, b } })
#define S3(a, b, c) ((struct shape) { 3, { a, b, c } })
#define S4(a, b, c, d) ((struct shape) { 4, { a, b, c, d } })

/* Best milliseconds of an op. */
#define TIME(b, ms, op, a)                                                                         \
    do {                                                                                           \
        berth_err err_;                                                                            \
        ms = 1e30;                                                                                 \
        if (op_##op##_scratch(&(b)->env, a) > (b)->env.scratch_bytes)                              \
            BUG("scratch of " #op);                                                                \
        for (int t_ = 0; t_ < TRIES; t_++) {                                                       \
            double t0_ = bench_now_ms();                                                           \
            if (op_##op(&(b)->env, a, &err_))                                                      \
                BUG("%s", err_.msg);                                                               \
            t0_ = bench_now_ms() - t0_;                                                            \
            ms = t0_ < ms ? t0_ : ms;                                                              \
        }                                                                                          \
    } while (0)

static void attention(struct bench *b)
{
    static const struct {
        const char *name;
        uint64_t B, H, Tq, Tk, D;
        bool causal;
    } at[] = {
        { "attention 64x64, 8 heads of 40", 2, 8, 4096, 4096, 40, false },
        { "attention 64x64 to text", 2, 8, 4096, 77, 40, false },
        { "attention 32x32, 8 heads of 80", 2, 8, 1024, 1024, 80, false },
        { "attention 32x32 to text", 2, 8, 1024, 77, 80, false },
        { "attention 16x16, 8 heads of 160", 2, 8, 256, 256, 160, false },
        { "attention 8x8, 8 heads of 160", 2, 8, 64, 64, 160, false },
        { "attention SDXL 64x64, 10 of 64", 2, 10, 4096, 4096, 64, false },
        { "attention VAE 64x64, 1 of 512", 1, 1, 4096, 4096, 512, false },
        { "attention Flux 512x512, 24 of 128", 1, 24, 1536, 1536, 128, false },
        { "attention CLIP-L, causal", 2, 12, 77, 77, 64, true },
    };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct shape q = S4(at[i].B, at[i].Tq, at[i].H, at[i].D), k = q;
        k.dim[1] = at[i].Tk;
        struct op_attention a = { .q = view_of(b->x, q),
                                  .k = view_of(b->w, k),
                                  .v = view_of(b->w + MOST / 2, k),
                                  .y = view_of(b->y, q),
                                  .causal = at[i].causal };
        double ms, flop = 4.0 * (double)(at[i].B * at[i].H * at[i].Tq * at[i].Tk * at[i].D);
        TIME(b, ms, attention, &a);
        if (b->json)
            printf("%s\n{\"name\": \"%s\", \"ms\": %.3f, \"gflops\": %.1f}", b->rows++ ? "," : "",
                   at[i].name, ms, flop / ms / 1e6);
        else
            printf("%-34s %9.3f ms %8.1f GFLOP/s\n", at[i].name, ms, flop / ms / 1e6);
        fflush(stdout);
    }
}

/* One line: `floats` of them were read or written. */
static void moved(struct bench *b, const char *name, double ms, size_t floats)
{
    double copy = 1e30, bytes = (double)floats * sizeof(float);
    for (int t = 0; t < TRIES; t++) { /* reads and writes half of it each */
        double t0 = bench_now_ms();
        memcpy(b->y, b->x, floats / 2 * sizeof(float));
        __asm__ volatile("" ::"r"(b->y) : "memory");
        t0 = bench_now_ms() - t0;
        copy = t0 < copy ? t0 : copy;
    }
    if (b->json)
        printf("%s\n{\"name\": \"%s\", \"ms\": %.3f, \"gbps\": %.2f, \"memcpy_gbps\": %.2f}",
               b->rows++ ? "," : "", name, ms, bytes / ms / 1e6, bytes / copy / 1e6);
    else
        printf("%-34s %9.3f ms %8.2f GB/s, memcpy on one thread %8.2f\n", name, ms,
               bytes / ms / 1e6, bytes / copy / 1e6);
    fflush(stdout);
}

static void norms(struct bench *b)
{
    double ms;
    struct shape unet = S4(2, 320, 64, 64), vae = S4(1, 128, 512, 512), rows = S3(2, 4096, 320);
    struct op_group_norm g = { .x = view_of(b->x, unet),
                               .y = view_of(b->y, unet),
                               .w = view_of(b->w, S1(320)),
                               .b = view_of(b->w, S1(320)),
                               .groups = 32,
                               .eps = 1e-5f };
    TIME(b, ms, group_norm, &g);
    moved(b, "group norm 320 at 64x64", ms, 2 * op_count(&g.x));
    g.silu = true;
    TIME(b, ms, group_norm, &g);
    moved(b, "group norm + silu 320 at 64x64", ms, 2 * op_count(&g.x));
    g.x = view_of(b->x, vae), g.y = view_of(b->y, vae);
    g.w = g.b = view_of(b->w, S1(128));
    TIME(b, ms, group_norm, &g);
    moved(b, "group norm + silu 128 at 512x512", ms, 2 * op_count(&g.x));
    struct op_channel_norm c = { .x = g.x,
                                 .y = g.y,
                                 .w = view_of(b->w, S1(128)),
                                 .eps = 1e-12f,
                                 .silu = true };
    TIME(b, ms, channel_norm, &c);
    moved(b, "channel norm + silu 128 at 512x512", ms, 2 * op_count(&c.x));
    struct op_row_norm r = { .x = view_of(b->x, rows),
                             .y = view_of(b->y, rows),
                             .w = view_of(b->w, S1(320)),
                             .b = view_of(b->w, S1(320)),
                             .eps = 1e-5f };
    TIME(b, ms, row_norm, &r);
    moved(b, "layer norm 8192 x 320", ms, 2 * op_count(&r.x));
}

static void values(struct bench *b)
{
    double ms;
    struct shape s = S3(2, 4096, 1280), wide = S3(2, 4096, 2560), picture = S4(2, 320, 64, 64);
    static const struct {
        const char *name;
        enum op_unary_kind kind;
    } at[] = { { "silu 10.5M", OP_SILU },
               { "gelu 10.5M", OP_GELU },
               { "gelu tanh 10.5M", OP_GELU_TANH },
               { "quick gelu 10.5M", OP_QUICK_GELU } };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct op_unary u = { at[i].kind, view_of(b->x, s), view_of(b->y, s) };
        TIME(b, ms, unary, &u);
        moved(b, at[i].name, ms, 2 * op_count(&u.x));
    }
    struct op_geglu g = { .x = view_of(b->x, wide), .y = view_of(b->y, s) };
    TIME(b, ms, geglu, &g);
    moved(b, "geglu 8192 x 2560", ms, 3 * op_count(&g.y));
    struct op_binary e = { .kind = OP_ADD,
                           .a = view_of(b->y, picture),
                           .b = view_of(b->w, S4(2, 320, 1, 1)),
                           .y = view_of(b->y, picture) };
    TIME(b, ms, binary, &e);
    moved(b, "add [2, 320, 1, 1] in place", ms, 2 * op_count(&e.a));
}

/* Of one block of Flux: 24 heads of 128, q k v in one buffer. */
static void flux(struct bench *b)
{
    double ms;
    berth_err err;
    enum { T = 1536, H = 24, D = 128, C = H * D };
    struct shape tokens = S3(1, T, C);
    struct view vec = view_of(b->w, S2(1, 6 * C)), shift, scale;
    struct view qkv = view_of(b->x, S4(1, T, 3 * H, D)), q, k;
    if (view_slice(&vec, 1, 0, C, &shift, &err) || view_slice(&vec, 1, C, 2 * C, &scale, &err) ||
        view_slice(&qkv, 2, 0, H, &q, &err) || view_slice(&qkv, 2, H, 2 * H, &k, &err))
        BUG("%s", err.msg);
    struct op_row_norm r = { .x = view_of(b->x, tokens),
                             .y = view_of(b->y, tokens),
                             .scale = scale,
                             .shift = shift,
                             .eps = 1e-6f };
    TIME(b, ms, row_norm, &r);
    moved(b, "modulated norm 1536 x 3072", ms, 2 * op_count(&r.x));
    struct op_gate g = { .x = r.y, .z = r.x, .gate = scale, .y = r.y };
    TIME(b, ms, gate, &g);
    moved(b, "gate 1536 x 3072 in place", ms, 3 * op_count(&g.x));
    struct op_qk_rope o = { .q = q,
                            .k = k,
                            .wq = view_of(b->w, S1(D)),
                            .wk = view_of(b->w + D, S1(D)),
                            .table = view_of(b->w + 2 * D, S3(T, D / 2, 2)),
                            .eps = 1e-6f };
    TIME(b, ms, qk_rope, &o);
    moved(b, "qk norm + rope 1536 x 24 x 128", ms, 4 * op_count(&q));
}

static void copies(struct bench *b)
{
    double ms;
    berth_err err;
    struct shape picture = S4(2, 320, 64, 64), twice = S4(2, 320, 128, 128);
    struct op_copy c = { .x = view_of(b->x, picture), .y = view_of(b->y, S4(2, 64, 64, 320)) };
    if (view_permute(&c.x, (int[]) { 0, 2, 3, 1 }, &c.x, &err))
        BUG("%s", err.msg);
    TIME(b, ms, copy, &c);
    moved(b, "channels last, 320 at 64x64", ms, 2 * op_count(&c.x));
    c = (struct op_copy) { .x = view_of(b->x, S4(2, 64, 64, 320)), .y = view_of(b->y, picture) };
    if (view_permute(&c.x, (int[]) { 0, 3, 1, 2 }, &c.x, &err))
        BUG("%s", err.msg);
    TIME(b, ms, copy, &c);
    moved(b, "channels first, 320 at 64x64", ms, 2 * op_count(&c.x));
    struct view parts[] = { view_of(b->x, picture), view_of(b->w, picture) };
    struct op_concat j = { .x = parts, .n = 2, .axis = 1, .y = view_of(b->y, S4(2, 640, 64, 64)) };
    TIME(b, ms, concat, &j);
    moved(b, "concat 320 + 320 at 64x64", ms, 2 * op_count(&j.y));
    struct op_resize2d r = { .x = view_of(b->x, picture), .y = view_of(b->y, twice) };
    TIME(b, ms, resize2d, &r);
    moved(b, "nearest 64x64 to 128x128", ms, 5 * op_count(&r.x));
}

int main(int argc, char **argv)
{
    struct bench b = { .env = { .backend = &op_cpu, .scratch_bytes = (size_t)64 << 20 } };
    int rc = bench_args(argc, argv, "ops [--json]: attention, norms, functions, copies\n", &b.json);
    if (rc >= 0)
        return rc;
    berth_err err;
    float **data[] = { &b.x, &b.y, &b.w };
    bool ok = tpool_new(0, &b.env.pool, &err) == BERTH_OK;
    for (size_t i = 0; ok && i < 3; i++) {
        ok = (*data[i] = aligned_alloc(64, MOST * sizeof(float))) != NULL;
        uint32_t r = 1;
        for (size_t k = 0; ok && k < MOST; k++, r = r * 1664525u + 1013904223u)
            (*data[i])[k] = (float)(r >> 8) / 8388608.0f - 1;
    }
    b.env.scratch = aligned_alloc(OP_SCRATCH_ALIGN, b.env.scratch_bytes);
    if (!ok || !b.env.scratch) {
        fprintf(stderr, "ops: no memory or threads\n");
        return 1;
    }
    if (b.json)
        printf("{\"threads\": %zu, \"level\": \"%s\", \"rows\": [", tpool_size(b.env.pool),
               cpu_level_name(cpu_kernels(&b.env)));
    else
        printf("%zu threads, level %s\n\n", tpool_size(b.env.pool),
               cpu_level_name(cpu_kernels(&b.env)));
    attention(&b);
    norms(&b);
    values(&b);
    flux(&b);
    copies(&b);
    if (b.json)
        printf("\n]}\n");
    tpool_free(b.env.pool);
    free(b.x), free(b.y), free(b.w), free(b.env.scratch);
    return 0;
}
