/* engine: the networks of SD1.5 on the CPU with synthetic weights, against PyTorch eager in the
 * same run.
 *
 *   load    reading the UNet's weights into memory, F16, page cache warm, against memcpy of as many
 *           bytes
 *   unet    one step, 64x64 latent, batch 2 (a cfg step of a 512x512 picture), F32 math; weights
 *           stored as F32, F16 and Q8_0
 *   vae     decoding 64x64 to 512x512
 *
 * The reference is bench/torch_sd15.py under BERTH_TORCH_PYTHON (default python3), where PyTorch is
 * installed, with as many threads. Each number is the best of several tries; ours and PyTorch's
 * take turns by network, not by try. Files are written to a folder of their own under TMPDIR and
 * removed: 8 GB; with BERTH_BENCH_DIR they are kept there for the next time.
 * BERTH_BENCH_ONLY=load|unet|vae: one of them. */
#include "bench.h"

#include "base/file.h"
#include "base/json.h"
#include "berth/ctx.h"
#include "device/cpu/meminfo.h"
#include "model/arch.h"
#include "model/diffusion.h"
#include "model/preset.h"
#include "model/synth.h"
#include "model/vae.h"

#include <berth/berth.h>
#include <math.h>
#include <unistd.h>

#define TRIES 3
#define MIB 1048576.0
#define UNET "model.diffusion_model."
#define VAE "first_stage_model."

struct bench {
    char dir[256];
    struct devset *set;
    struct residency *res;
    struct tpool *pool;
    size_t threads;
    json_t *out;
    bool json, keep;
};

static int failed(const berth_err *err, const char *what)
{
    fprintf(stderr, "engine: %s: %s\n", what, err->msg);
    return 1;
}

static const char *file_of(const struct bench *b, enum dtype t, char path[320])
{
    snprintf(path, 320, "%s/sd15-%s.%s", b->dir, dtype_name(t),
             dtype_is_quant(t) ? "gguf" : "safetensors");
    return path;
}

static berth_status write_model(const struct bench *b, enum dtype t, berth_err *err)
{
    char path[320];
    if (b->keep && !access(file_of(b, t, path), R_OK))
        return BERTH_OK;
    struct keys keys = { 0 };
    struct synth synth = { 0 };
    const struct preset *p = preset_find("sd15");
    const struct weights_writer *format =
        weights_writer_find(dtype_is_quant(t) ? "gguf" : "safetensors");
    struct preset_meta meta;
    berth_status s = preset_keys(p, &keys, err);
    if (!s)
        s = synth_init(&synth, &keys, t, format, p->hiprec, NULL, err);
    if (!s) {
        const struct weights_write_args args = { .format = format->name,
                                                 .path = file_of(b, t, path),
                                                 .spec = synth.spec,
                                                 .count = keys.n,
                                                 .meta = meta.at,
                                                 .meta_count = preset_meta(p, format->mixed, &meta),
                                                 .fill = synth_weights_fill,
                                                 .user = &synth,
                                                 .pool = b->pool };
        s = weights_write(&args, err);
    }
    synth_release(&synth);
    keys_release(&keys);
    return s;
}

static berth_status open_part(const struct bench *b, enum dtype t, const char *part,
                              struct res_model **m, berth_err *err)
{
    char path[320];
    const struct res_open_args args = {
        .path = file_of(b, t, path), .part = part, .arch = arch_blocks, .plan.alloc = "#cpu"
    };
    return res_open(b->res, &args, m, NULL, err);
}

/* What PyTorch needs for the same; NULL: it is not installed. */
static json_t *torch_run(const struct bench *b, const char *what)
{
    const char *python = getenv("BERTH_TORCH_PYTHON");
    char command[512], line[4096] = "";
    snprintf(command, sizeof command,
             "%s %s/bench/torch_sd15.py %s --threads %zu --repeat %d 2>/dev/null",
             python && *python ? python : "python3", BERTH_SOURCE_DIR, what, b->threads, TRIES);
    FILE *f = popen(command, "r");
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f)
        pclose(f);
    json_t *got = NULL;
    berth_err err;
    return n && !js_parse(line, n, NULL, &got, &err) ? got : NULL;
}

static void fill(float *x, size_t n)
{
    uint64_t z = 42;
    for (size_t i = 0; i < n; i++) {
        z = z * UINT64_C(6364136223846793005) + 1442695040888963407u;
        x[i] = (float)(int32_t)(z >> 32) * 0x1p-31f;
    }
}

/* ---- load ---- */

static volatile char sink; /* or the compiler copies nothing */

static int bench_load(struct bench *b)
{
    double best = 0, copy = 0;
    uint64_t bytes = 0;
    berth_err err;
    for (int i = 0; i < TRIES + 1; i++) { /* the first one warms the page cache */
        struct res_model *m;
        struct res_load_result got;
        if (open_part(b, DT_F16, NULL, &m, &err))
            return failed(&err, "opening");
        double t = bench_now_ms();
        if (res_load(m, NULL, &got, &err))
            return failed(&err, "loading");
        t = bench_now_ms() - t;
        bytes = got.read;
        double gbps = (double)bytes / t / 1e6;
        best = i && gbps > best ? gbps : best;
        res_unref(m);
        struct res_receipt r;
        if (res_free(b->res, &(struct res_free_args) { .force = true }, &r, &err))
            return failed(&err, "free");
        res_receipt_release(&r);
    }
    for (int i = 0; i < TRIES; i++) {
        char *from = malloc(bytes), *to = malloc(bytes);
        if (!from || !to)
            return 1;
        memset(from, 1, bytes);
        double t = bench_now_ms();
        memcpy(to, from, bytes); /* fresh pages, as a load has them */
        t = bench_now_ms() - t;
        copy = fmax(copy, (double)bytes / t / 1e6);
        sink = to[bytes - 1];
        free(from);
        free(to);
    }
    json_object_set_new(b->out, "load_gbps", json_real(best));
    json_object_set_new(b->out, "memcpy_gbps", json_real(copy));
    if (!b->json)
        printf("load    sd15 F16, %.2f GiB: %.2f GB/s (bar 2, or memcpy on one thread into fresh "
               "pages: %.2f)\n",
               (double)bytes / MIB / 1024, best, copy);
    return 0;
}

/* ---- unet ---- */

static int bench_unet(struct bench *b, enum dtype t, double *best, struct net_report *report,
                      uint64_t *resident)
{
    struct res_model *m;
    struct diffusion *d = NULL;
    berth_err err;
    if (open_part(b, t, UNET, &m, &err) || res_load(m, NULL, NULL, &err))
        return failed(&err, dtype_name(t));
    const struct diffusion_args args = { .res = b->res, .m = m, .part = UNET, .pool = b->pool };
    if (diffusion_open(&args, &d, &err))
        return failed(&err, dtype_name(t));
    enum { N = 2, H = 64, W = 64, T = 77, C = 768 };
    float *x = malloc(sizeof *x * N * 4 * H * W), *out = malloc(sizeof *x * N * 4 * H * W),
          *ctx = malloc(sizeof *x * N * T * C);
    if (!x || !out || !ctx)
        return 1;
    fill(x, N * 4 * H * W);
    fill(ctx, N * T * C);
    const struct diffusion_cond cond[N] = { { .context = ctx, .tokens = T, .width = C },
                                            { .context = ctx + T * C, .tokens = T, .width = C } };
    const struct diffusion_cond *const conds[N] = { &cond[0], &cond[1] };
    const float step[N] = { 500, 500 };
    const struct diffusion_in in = {
        .shape = { 4, { N, 4, H, W } }, .x = x, .t = step, .cond = conds, .out = out
    };
    *best = HUGE_VAL;
    for (int i = 0; i < TRIES; i++) {
        double start = bench_now_ms();
        if (diffusion_forward(d, &in, &err))
            return failed(&err, "unet");
        *best = fmin(*best, (bench_now_ms() - start) / 1e3);
    }
    *report = diffusion_report(d);
    *resident = res_info(m).resident;
    diffusion_close(d);
    res_unref(m);
    free(x);
    free(out);
    free(ctx);
    return 0;
}

static void versus(struct bench *b, const char *what, double ours, const struct net_report *r,
                   json_t *ref)
{
    double theirs = json_number_value(json_object_get(ref, "best"));
    double peak = json_number_value(json_object_get(ref, "peak"));
    char key[64];
    snprintf(key, sizeof key, "%s_seconds", what);
    json_object_set_new(b->out, key, json_real(ours));
    snprintf(key, sizeof key, "%s_peak_bytes", what);
    json_object_set_new(b->out, key, json_integer((json_int_t)r->largest));
    if (ref) {
        snprintf(key, sizeof key, "%s_ratio", what);
        json_object_set_new(b->out, key, json_real(ours / theirs));
        snprintf(key, sizeof key, "%s_peak_ratio", what);
        json_object_set_new(b->out, key, json_real((double)r->largest / peak));
    }
    if (b->json)
        return;
    printf("%-7s %7.2f s, activations peak %.0f MiB", what, ours, (double)r->largest / MIB);
    if (ref)
        printf("; PyTorch %s: %.2f s, %.0f MiB: ratio %.2f (bar 1.0), memory %.2f\n",
               json_string_value(json_object_get(ref, "torch")), theirs, peak / MIB, ours / theirs,
               (double)r->largest / peak);
    else
        puts("; no reference: PyTorch is not installed (BERTH_TORCH_PYTHON)");
}

static int bench_unets(struct bench *b)
{
    static const enum dtype types[] = { DT_F32, DT_F16, DT_Q8_0 };
    double f32 = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct net_report r;
        double best = 0;
        uint64_t bytes = 0;
        char key[64];
        if (bench_unet(b, types[i], &best, &r, &bytes))
            return 1;
        if (!i) {
            f32 = best;
            json_t *ref = torch_run(b, "unet");
            versus(b, "unet", best, &r, ref);
            json_decref(ref);
            continue;
        }
        snprintf(key, sizeof key, "unet_%s_to_f32", dtype_name(types[i]));
        json_object_set_new(b->out, key, json_real(best / f32));
        if (!b->json)
            printf("        %s weights (%.2f GiB resident, as stored): %.2f s, %.2f x of F32 (bar "
                   "1.15)\n",
                   dtype_name(types[i]), (double)bytes / MIB / 1024, best, best / f32);
    }
    return 0;
}

/* ---- vae ---- */

static int bench_vae(struct bench *b)
{
    struct res_model *m;
    struct net *net;
    struct vae_net vae;
    berth_err err;
    if (open_part(b, DT_F32, VAE, &m, &err) || res_load(m, NULL, NULL, &err) ||
        vae_detect(res_weights(m), VAE, &vae, &err) ||
        net_open(&(struct net_args) { .res = b->res, .m = m, .root = VAE, .pool = b->pool }, &net,
                 &err))
        return failed(&err, "vae");
    enum { H = 64, W = 64 };
    float *z = malloc(sizeof *z * 4 * H * W), *out = malloc(sizeof *z * 3 * 64 * H * W);
    if (!z || !out)
        return 1;
    fill(z, 4 * H * W);
    double best = HUGE_VAL;
    for (int i = 0; i < TRIES; i++) {
        struct vae_job j = { .net = net, .vae = &vae };
        double start = bench_now_ms();
        if (vae_decode(&j, z, &(struct shape) { 4, { 1, 4, H, W } }, out, &err))
            return failed(&err, "vae");
        best = fmin(best, (bench_now_ms() - start) / 1e3);
    }
    struct net_report r = net_report(net);
    net_close(net);
    res_unref(m);
    free(z);
    free(out);
    json_t *ref = torch_run(b, "vae");
    versus(b, "vae", best, &r, ref);
    json_decref(ref);
    return 0;
}

static void remove_files(const struct bench *b)
{
    static const enum dtype types[] = { DT_F32, DT_F16, DT_Q8_0 };
    char path[320];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        unlink(file_of(b, types[i], path));
    rmdir(b->dir);
}

static int run(struct bench *b)
{
    static const enum dtype types[] = { DT_F32, DT_F16, DT_Q8_0 };
    berth_err err;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (write_model(b, types[i], &err))
            return failed(&err, "writing");
    const char *only = getenv("BERTH_BENCH_ONLY");
    only = only && *only ? only : NULL;
    return ((!only || !strcmp(only, "load")) && bench_load(b)) ||
           ((!only || !strcmp(only, "unet")) && bench_unets(b)) ||
           ((!only || !strcmp(only, "vae")) && bench_vae(b));
}

int main(int argc, char **argv)
{
    struct bench b = { .out = json_object() };
    const char *tmp = getenv("TMPDIR"), *threads = getenv("BERTH_BENCH_THREADS");
    berth_ctx *ctx;
    berth_err err;
    int code =
        bench_args(argc, argv,
                   "Usage: engine [--json]   (BERTH_BENCH_THREADS, BERTH_TORCH_PYTHON)\n", &b.json);
    if (code >= 0)
        return code;
    const char *dir = getenv("BERTH_BENCH_DIR");
    b.keep = dir && *dir;
    snprintf(b.dir, sizeof b.dir, b.keep ? "%s" : "%s/berth-bench-XXXXXX",
             b.keep        ? dir
             : tmp && *tmp ? tmp
                           : "/tmp");
    if (!b.keep && !mkdtemp(b.dir)) {
        perror(b.dir);
        return 1;
    }
    if (berth_ctx_new(
            &(berth_config) { .size = sizeof(berth_config),
                              .devices = "cpu",
                              .threads = threads ? (unsigned)strtoul(threads, NULL, 10) : 0 },
            &ctx, &err))
        return failed(&err, "context");
    const struct ctx_parts parts = ctx_parts(ctx);
    b.res = parts.res;
    b.set = parts.devices;
    b.pool = parts.pool;
    b.threads = b.pool ? tpool_size(b.pool) : 1;
    code = run(&b);
    if (!b.keep)
        remove_files(&b);
    berth_ctx_free(ctx);
    if (!code && b.json) {
        char *text = json_dumps(b.out, JSON_SORT_KEYS);
        puts(text);
        free(text);
    }
    json_decref(b.out);
    return code;
}
