/* cuda: kernels of one card at the shapes of a FLUX.1-dev step (1024x1024, 512 tokens) and of a
 * VAE, each against a ceiling measured in the same run: products and attention against one large
 * product, everything that only moves bytes against a copy within the card. Says which library
 * computes attention.
 *
 * A time is the median of some, each between two events of the stream, after a warm-up; operands
 * are random and larger together than the caches. */
#include "bench.h"
#include "device/devset.h"
#include "op/ops.h"

#ifdef BERTH_CUDA
#include "op/cuda/cuda_op.h"
#include "op/cuda/dnn.h"

#define TRIES 11
#define SCRATCH ((size_t)1 << 30)
#define POOL ((size_t)3 << 30)

struct rig {
    struct devset *set;
    struct device *d;
    struct dev_stream *s;
    struct dev_owner *owner;
    struct dev_event *from, *to;
    struct dev_mem mem, scratch;
    size_t at; /* in mem: operands of a row lie behind one another */
    struct op_env env;
    double product, copy; /* ceilings: TFLOP/s, GB/s */
};

static void die(const char *what, const berth_err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->msg);
    exit(1);
}

static struct view operand(struct rig *r, enum dtype t, struct shape s)
{
    struct view v;
    uint64_t n, bytes;
    berth_err err;
    if (!shape_count(&s, &n) || !dtype_bytes(t, n, &bytes) || r->at + bytes > r->mem.n) {
        fprintf(stderr, "operands do not fit\n");
        exit(1);
    }
    if (view_init(t, &s, (void *)(uintptr_t)(r->mem.addr + r->at), (size_t)bytes, &v, &err))
        die("operand", &err);
    r->at += ((size_t)bytes + 4095) & ~(size_t)4095;
    return v;
}

#define S1(a) ((struct shape) { 1, { a } })
#define S2(a, b) ((struct shape) { 2, { a, b } })
#define S3(a, b, c) ((struct shape) { 3, { a, b, c } })
#define S4(a, b, c, d) ((struct shape) { 4, { a, b, c, d } })

/* us, median. */
#define TIMED(r, x, a, us)                                                                         \
    do {                                                                                           \
        double took_[TRIES];                                                                       \
        berth_err err_;                                                                            \
        for (int i_ = -3; i_ < TRIES; i_++) {                                                      \
            int64_t ns_ = 0;                                                                       \
            bool done_;                                                                            \
            (r)->env.scratch_bytes = op_##x##_scratch(&(r)->env, (a));                             \
            if ((r)->env.scratch_bytes > SCRATCH || dev_event_record((r)->from, (r)->s, &err_) ||  \
                op_##x(&(r)->env, (a), &err_) || dev_event_record((r)->to, (r)->s, &err_) ||       \
                dev_event_sync((r)->to, &err_) ||                                                  \
                dev_event_elapsed((r)->from, (r)->to, &done_, &ns_, &err_))                        \
                die(#x, &err_);                                                                    \
            if (i_ >= 0)                                                                           \
                took_[i_] = (double)ns_ / 1e3;                                                     \
        }                                                                                          \
        (us) = bench_median(took_, TRIES);                                                         \
    } while (0)

static void told(const struct rig *r, const char *name, double us, double flops, double bytes)
{
    if (flops > 0)
        printf("%-34s %9.1f us %7.1f TFLOP/s %5.2f of the ceiling\n", name, us, flops / us / 1e6,
               r->product > 0 ? flops / us / 1e6 / r->product : 1);
    else
        printf("%-34s %9.1f us %7.1f GB/s    %5.2f of the ceiling\n", name, us, bytes / us / 1e3,
               r->copy > 0 ? bytes / us / 1e3 / r->copy : 1);
    fflush(stdout);
}

static double linear(struct rig *r, const char *name, uint64_t m, uint64_t k, uint64_t n,
                     enum dtype w, enum op_after after)
{
    double us;
    r->at = 0;
    struct op_linear a = { .x = operand(r, DT_BF16, S2(m, k)),
                           .w = operand(r, w, S2(n, k)),
                           .bias = operand(r, DT_BF16, S1(n)),
                           .y = operand(r, DT_BF16, S2(m, n)),
                           .after = after };
    TIMED(r, linear, &a, us);
    uint64_t bytes;
    if (!dtype_bytes(w, n * k, &bytes))
        bytes = 0;
    told(r, name, us, m > 8 ? 2.0 * (double)m * (double)k * (double)n : 0, (double)bytes);
    return 2.0 * (double)m * (double)k * (double)n / us / 1e6;
}

static void attention(struct rig *r, const char *name, uint64_t t, uint64_t h, uint64_t d)
{
    double us;
    berth_err err;
    r->at = 0;
    struct view all = operand(r, DT_BF16, S4(1, t, 3 * h, d)), part[3];
    for (int i = 0; i < 3; i++)
        if (view_slice(&all, 2, (uint64_t)i * h, (uint64_t)(i + 1) * h, &part[i], &err))
            die("slice", &err);
    struct op_attention a = { .q = part[0], .k = part[1], .v = part[2] };
    a.y = operand(r, DT_BF16, S4(1, t, h, d));
    TIMED(r, attention, &a, us);
    told(r, name, us, 4.0 * (double)t * (double)t * (double)(h * d), 0);
}

static void moves(struct rig *r)
{
    double us, n = 4608.0 * 3072 * 2;
    r->at = 0;
    struct view x = operand(r, DT_BF16, S3(1, 4608, 3072)),
                y = operand(r, DT_BF16, S3(1, 4608, 3072));
    struct view z = operand(r, DT_BF16, S3(1, 4608, 3072)), g = operand(r, DT_BF16, S2(1, 3072));
    TIMED(r, row_norm,
          (&(struct op_row_norm) { .x = x, .y = y, .scale = g, .shift = g, .eps = 1e-6f }), us);
    told(r, "norm and modulation, 4608 x 3072", us, 0, 2 * n);
    TIMED(r, gate, (&(struct op_gate) { .x = x, .gate = g, .z = z, .y = x }), us);
    told(r, "gate, 4608 x 3072", us, 0, 3 * n);
    r->at = 0;
    berth_err err;
    struct view all = operand(r, DT_BF16, S4(1, 4608, 72, 128)), q, k;
    if (view_slice(&all, 2, 0, 24, &q, &err) || view_slice(&all, 2, 24, 48, &k, &err))
        die("slice", &err);
    struct op_qk_rope a = { .q = q,
                            .k = k,
                            .wq = operand(r, DT_BF16, S1(128)),
                            .wk = operand(r, DT_BF16, S1(128)),
                            .table = operand(r, DT_F32, S3(4608, 64, 2)),
                            .eps = 1e-6f };
    TIMED(r, qk_rope, &a, us);
    told(r, "heads: norm and rotation, 4608", us, 0, 4 * n);
    static const enum dtype stored[] = { DT_F8_E4M3, DT_Q8_0, DT_Q4_0, DT_Q4_K, DT_Q5_K, DT_Q6_K };
    for (size_t i = 0; i < ARRAY_LEN(stored); i++) {
        char name[64];
        uint64_t count = 21504ull * 3072, bytes;
        r->at = 0;
        struct op_copy c = { .x = operand(r, stored[i], S1(count)),
                             .y = operand(r, DT_BF16, S1(count)) };
        if (!dtype_bytes(stored[i], count, &bytes))
            bytes = 0;
        TIMED(r, copy, &c, us);
        snprintf(name, sizeof name, "%s -> BF16, 66 M", dtype_name(stored[i]));
        told(r, name, us, 0, (double)bytes + 2.0 * (double)count);
    }
}

static void pictures(struct rig *r)
{
    static const struct {
        const char *name;
        uint64_t ic, oc, side, k;
    } conv[] = { { "conv 512 -> 512, 128 x 128", 512, 512, 128, 3 },
                 { "conv 256 -> 256, 512 x 512", 256, 256, 512, 3 },
                 { "conv 128 -> 128, 1024 x 1024", 128, 128, 1024, 3 },
                 { "conv 320 -> 320, 128 x 128", 320, 320, 128, 3 } };
    double us;
    for (size_t i = 0; i < ARRAY_LEN(conv); i++) {
        uint64_t ic = conv[i].ic, oc = conv[i].oc, side = conv[i].side, k = conv[i].k;
        r->at = 0;
        struct op_conv2d a = { .x = operand(r, DT_BF16, S4(1, ic, side, side)),
                               .w = operand(r, DT_BF16, S4(oc, ic, k, k)),
                               .bias = operand(r, DT_BF16, S1(oc)),
                               .y = operand(r, DT_BF16, S4(1, oc, side, side)),
                               .top = 1,
                               .left = 1,
                               .bottom = 1,
                               .right = 1 };
        TIMED(r, conv2d, &a, us);
        told(r, conv[i].name, us, 2.0 * (double)(ic * oc * k * k * side * side), 0);
    }
    r->at = 0;
    struct view x = operand(r, DT_BF16, S4(1, 128, 1024, 1024)), w = operand(r, DT_BF16, S1(128));
    TIMED(r, group_norm,
          (&(struct op_group_norm) {
              .x = x, .y = x, .w = w, .b = w, .groups = 32, .eps = 1e-6f, .silu = true }),
          us);
    told(r, "group norm, 128 x 1024 x 1024", us, 0, 2.0 * 128 * 1024 * 1024 * 2);
    attention(r, "attention of a VAE, 1 x 512, 16384", 16384, 1, 512);
}

/* Random numbers of tame size in every type: bytes below 64 are small floats and scales. */
static void fill(struct rig *r)
{
    size_t n = (size_t)64 << 20;
    uint8_t *p = malloc(n);
    berth_err err;
    uint64_t z = 1;
    for (size_t i = 0; p && i < n; i++) {
        z = z * 6364136223846793005u + 1442695040888963407u;
        p[i] = (uint8_t)((z >> 58) | (i % 2 ? (z >> 33 & 0x80) : 0)); /* BF16 of either sign */
    }
    for (size_t at = 0; p && at < r->mem.n; at += n)
        if (dev_copy_h2d(r->s, r->mem.addr + at, p, r->mem.n - at < n ? r->mem.n - at : n, &err))
            die("fill", &err);
    if (!p || dev_stream_sync(r->s, &err))
        die("fill", &err);
    free(p);
}

int main(int argc, char **argv)
{
    struct rig r = { 0 };
    struct spec spec;
    berth_err err;
    bool json;
    struct cuda_card *card;
    int code = bench_args(argc, argv, "usage: cuda\n", &json);
    if (code >= 0)
        return code;
    if (spec_parse("cuda:0,cpu", 10, false, &spec, &err) ||
        devset_open(&spec, &(struct dev_env) { 0 }, &r.set, &err)) {
        printf("skipped: %s\n", err.msg);
        return 0;
    }
    r.d = devset_at(r.set, 0);
    if (dev_stream_new(r.d, &r.s, &err) || dev_event_new(r.d, &r.from, &err) ||
        dev_event_new(r.d, &r.to, &err) ||
        dev_owner_open(r.d, "bench", DEV_ACTIVATIONS, &r.owner, &err) ||
        dev_alloc(r.d, r.owner, POOL, &r.mem, &err) ||
        dev_alloc(r.d, r.owner, SCRATCH, &r.scratch, &err))
        die("opening", &err);
    r.env = (struct op_env) { .backend = op_backend_for(r.d),
                              .stream = r.s,
                              .scratch = (void *)(uintptr_t)r.scratch.addr };
    if (cuda_card(&r.env, &card, &err))
        die("card", &err);
    fill(&r);
    double us;
    r.at = 0;
    struct op_copy big = { .x = operand(&r, DT_BF16, S1(500000000)),
                           .y = operand(&r, DT_BF16, S1(500000000)) };
    TIMED(&r, copy, &big, us);
    told(&r, "ceiling: a copy of 1 GB", us, 0, 2e9);
    r.copy = 2e9 / us / 1e3;
    r.product = linear(&r, "ceiling: 8192 x 8192 x 8192", 8192, 8192, 8192, DT_BF16, OP_AFTER_NONE);
    enum { D = 3072 };
    linear(&r, "qkv, picture", 4096, D, 3 * D, DT_BF16, OP_AFTER_NONE);
    linear(&r, "qkv, text", 512, D, 3 * D, DT_BF16, OP_AFTER_NONE);
    linear(&r, "proj, picture", 4096, D, D, DT_BF16, OP_AFTER_NONE);
    linear(&r, "proj, text", 512, D, D, DT_BF16, OP_AFTER_NONE);
    linear(&r, "mlp up, GELU, picture", 4096, D, 4 * D, DT_BF16, OP_AFTER_GELU_TANH);
    linear(&r, "mlp down, picture", 4096, 4 * D, D, DT_BF16, OP_AFTER_NONE);
    linear(&r, "single qkv", 4608, D, 3 * D, DT_BF16, OP_AFTER_NONE);
    linear(&r, "single up, GELU", 4608, D, 4 * D, DT_BF16, OP_AFTER_GELU_TANH);
    linear(&r, "single down", 4608, 5 * D, D, DT_BF16, OP_AFTER_NONE);
    linear(&r, "modulation, one row", 1, D, 6 * D, DT_BF16, OP_AFTER_NONE);
    linear(&r, "modulation, one row, Q8_0", 1, D, 6 * D, DT_Q8_0, OP_AFTER_NONE);
    linear(&r, "modulation, one row, F8_E4M3", 1, D, 6 * D, DT_F8_E4M3, OP_AFTER_NONE);
    linear(&r, "modulation, one row, Q4_K", 1, D, 6 * D, DT_Q4_K, OP_AFTER_NONE);
    linear(&r, "single up, Q8_0", 4608, D, 4 * D, DT_Q8_0, OP_AFTER_GELU_TANH);
    linear(&r, "single up, F8_E4M3", 4608, D, 4 * D, DT_F8_E4M3, OP_AFTER_GELU_TANH);
    r.env.fp8 = true;
    linear(&r, "single up, F8_E4M3 products", 4608, D, 4 * D, DT_F8_E4M3, OP_AFTER_GELU_TANH);
    r.env.fp8 = false;
    attention(&r, "attention, 24 x 128, 4608", 4608, 24, 128);
    attention(&r, "attention, 8 x 40, 4096", 4096, 8, 40);
    attention(&r, "attention, 10 x 64, 4096", 4096, 10, 64);
    moves(&r);
    pictures(&r);
    struct dnn *dnn = NULL;
    if (dnn_of(card, &dnn, &err))
        printf("attention: own kernels: %s\n", err.msg);
    else
        printf("attention: cuDNN %zu\n", dnn->version);
    dev_free(&r.mem);
    dev_free(&r.scratch);
    dev_owner_close(r.owner);
    dev_event_free(r.from);
    dev_event_free(r.to);
    dev_stream_free(r.s);
    devset_close(r.set);
    return 0;
}
#else
int main(void)
{
    puts("skipped: this build has no CUDA");
    return 0;
}
#endif
