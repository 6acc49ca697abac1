/* dit_passes: passes of a transformer over latents of pictures that may look at others, made as
 * small as a test likes: how to run one, and what holds for every family of them.
 *
 *     struct dit r;
 *     dit_open(&r, "cpu=256m", path, NULL, 2);
 *     r.cond[0].refs = 1;
 *     float *got = dit_run(&r);
 *     dit_close(&r); */
#ifndef SUPPORT_DIT_PASSES_H
#define SUPPORT_DIT_PASSES_H

#include "support/nets.h"
#include "support/oom.h"
#include "support/presets.h"

#include "model/diffusion.h"

#define DIT_H 9
#define DIT_W 6
#define DIT_C 16
#define DIT_EACH (DIT_C * DIT_H * DIT_W)
#define DIT_N_MAX 4
#define DIT_LARGE 96
#define DIT_TOKENS 7

struct dit {
    struct net_rig g;
    struct diffusion *d;
    float *x, *context[DIT_N_MAX], *out, t[DIT_N_MAX];
    struct diffusion_ref ref[DIT_N_MAX];
    struct diffusion_cond cond[DIT_N_MAX];
    const struct diffusion_cond *list[DIT_N_MAX];
    struct diffusion_in in;
};

static inline void dit_open(struct dit *r, const char *devices, const char *path, const char *alloc,
                            size_t n)
{
    static const struct shape refs[DIT_N_MAX] = { { 5, { 1, DIT_C, 1, 6, 7 } },
                                                  { 5, { 1, DIT_C, 1, 4, 10 } },
                                                  { 5, { 2, DIT_C, 1, 8, 4 } },
                                                  { 5, { 1, DIT_C, 3, 5, 8 } } }; /* frames */
    berth_err err = { 0 };
    *r = (struct dit) { .d = NULL };
    net_rig_open(&r->g, devices, path, NULL, alloc);
    struct diffusion_args args = { .res = r->g.f.r, .m = r->g.m };
    assert_ok(diffusion_open(&args, &r->d, &err), err);
    size_t width = (size_t)diffusion_info(r->d)->context_dim;
    r->x = noise_floats(1, (size_t)DIT_N_MAX * DIT_EACH);
    r->out = calloc((size_t)DIT_N_MAX * DIT_EACH, sizeof *r->out);
    for (size_t k = 0; k < DIT_N_MAX; k++) {
        r->ref[k] = (struct diffusion_ref) { .shape = refs[k], .x = noise_floats(20 + k, 4096) };
        r->t[k] = 0.9f - 0.2f * (float)k;
        r->context[k] = noise_floats(3 + k, DIT_TOKENS * width);
        r->cond[k] = (struct diffusion_cond) {
            .context = r->context[k], .tokens = DIT_TOKENS, .width = width, .ref = r->ref
        };
        r->list[k] = &r->cond[k];
    }
    r->in = (struct diffusion_in) { .shape = { 5, { n, DIT_C, 1, DIT_H, DIT_W } },
                                    .x = r->x,
                                    .t = r->t,
                                    .cond = r->list,
                                    .out = r->out };
}

static inline void dit_close(struct dit *r)
{
    diffusion_close(r->d);
    net_rig_close(&r->g);
    for (size_t k = 0; k < DIT_N_MAX; k++) {
        free(r->context[k]);
        free((float *)(uintptr_t)r->ref[k].x);
    }
    free(r->x), free(r->out);
}

/* What it gives for all n; to be freed. */
static inline float *dit_run(struct dit *r)
{
    berth_err err = { 0 };
    float *out = calloc((size_t)DIT_N_MAX * DIT_EACH, sizeof *out);
    uint64_t peak;
    assert_non_null(out);
    assert_ok(diffusion_predict(r->d, &r->in, &peak, &err), err);
    r->in.out = out;
    assert_ok(diffusion_forward(r->d, &r->in, &err), err);
    return out;
}

static inline float *dit_run_file(const char *devices, const char *path, const char *alloc,
                                  size_t n, size_t refs, enum diffusion_ref_method method)
{
    struct dit r;
    dit_open(&r, devices, path, alloc, n);
    for (size_t k = 0; k < DIT_N_MAX; k++)
        r.cond[k].refs = refs, r.cond[k].ref_method = method;
    float *out = dit_run(&r);
    assert_int_equal(diffusion_report(r.d).peak, diffusion_report(r.d).predicted);
    dit_close(&r);
    return out;
}

/* Of one size and method, items that look at pictures are as if alone; others are apart. */
static inline void dit_items_are_as_if_alone(const char *path)
{
    struct dit r;
    berth_err err = { 0 };
    dit_open(&r, "cpu=256m", path, NULL, 3);
    for (size_t k = 0; k < 3; k++)
        r.cond[k].refs = 3, r.cond[k].ref_method = REF_INDEX_TIMESTEP_ZERO;
    float *all = dit_run(&r);
    assert_int_equal(diffusion_report(r.d).passes, 1);
    for (size_t k = 0; k < 3; k++) {
        struct diffusion_in in = r.in;
        in.shape.dim[0] = 1;
        in.x += k * DIT_EACH;
        in.t += k;
        in.cond += k;
        in.item = &k; /* the third picture has two items, which differ */
        in.out = r.out;
        assert_ok(diffusion_forward(r.d, &in, &err), err);
        assert_memory_equal(all + k * DIT_EACH, r.out, DIT_EACH * sizeof *all);
    }
    uint64_t before = diffusion_report(r.d).passes;
    r.cond[1].refs = 2;
    r.cond[2].ref_method = REF_INDEX;
    free(dit_run(&r));
    assert_int_equal(diffusion_report(r.d).passes - before, 3);
    dit_close(&r);
    free(all);
}

/* Everything on a donor, through a ring with room for two blocks: each of them comes once a pass,
 * in the order that the forward asks. */
static inline void dit_blocks_stream_in_order(const char *path, enum diffusion_ref_method method)
{
    for (size_t n = 1; n <= 2; n++) {
        struct dit r;
        float *want = dit_run_file("cpu=256m", path, NULL, n, 2, method);
        dit_open(&r, "cpu=16m,null:0=128m", path, "null:0,*#cpu", n);
        for (size_t k = 0; k < DIT_N_MAX; k++)
            r.cond[k].refs = 2, r.cond[k].ref_method = method;
        for (uint64_t pass = 1; pass <= 3; pass++) {
            float *got = dit_run(&r);
            assert_memory_equal(want, got, n * DIT_EACH * sizeof *want);
            free(got);
            struct net_report rep = diffusion_report(r.d);
            assert_int_equal(rep.stream.slots, 2);
            assert_int_equal(rep.stream.out_of_order + rep.stream.dropped, 0);
            assert_int_equal(rep.stream.bytes - rep.stream.ahead, pass * rep.stream.donor_bytes);
        }
        dit_close(&r);
        free(want);
    }
}

/* Rung 2: feed-forwards in halves, in less memory, with the same bits. */
static inline void dit_thrifty_passes_give_the_same_bits(const char *path)
{
    const size_t each = (size_t)DIT_C * DIT_LARGE * DIT_LARGE;
    float *x = noise_floats(5, each), *want = calloc(each, sizeof *want),
          *got = calloc(each, sizeof *got);
    assert_true(want && got);
    for (size_t refs = 0; refs <= 2; refs += 2) {
        struct dit r;
        struct net_report rep = { 0 };
        char devices[64] = "cpu=256m";
        for (int less = 0; less < 2; less++) {
            berth_err err = { 0 };
            dit_open(&r, devices, path, NULL, 1);
            r.in.shape = (struct shape) { 5, { 1, DIT_C, 1, DIT_LARGE, DIT_LARGE } };
            r.in.x = x;
            r.in.out = less ? got : want;
            r.cond[0].refs = refs;
            r.cond[0].ref_method = REF_INDEX_TIMESTEP_ZERO;
            assert_ok(diffusion_forward(r.d, &r.in, &err), err);
            struct net_report now = diffusion_report(r.d);
            assert_int_equal(now.thrifty, less);
            assert_true(!less || now.peak < rep.peak);
            if (!less)
                snprintf(
                    devices, sizeof devices, "cpu=%llu",
                    (unsigned long long)(res_info(r.g.m).bytes * 33 / 32 + now.peak * 15 / 16));
            rep = now;
            dit_close(&r);
        }
        assert_memory_equal(want, got, each * sizeof *want);
    }
    free(x), free(want), free(got);
}

/* file: one of this type and format, made by the test. */
typedef const char *dit_file_fn(enum dtype dtype, const char *format);
static inline void dit_every_stored_type_computes(dit_file_fn *file,
                                                  enum diffusion_ref_method method)
{
    static const struct {
        enum dtype dtype;
        const char *format;
        double limit;
    } list[] = { { DT_F16, "safetensors", 5e-3 },
                 { DT_BF16, "safetensors", 4e-2 },
                 { DT_F8_E4M3, "safetensors", 0.5 },
                 { DT_Q8_0, "gguf", 6e-2 },
                 { DT_Q4_0, "gguf", 0.8 } };
    float *exact = dit_run_file("cpu=256m", file(DT_F32, "safetensors"), NULL, 1, 1, method);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const char *path = file(list[i].dtype, list[i].format);
        float *got = dit_run_file("cpu=256m", path, NULL, 1, 1, method);
        float *spread = dit_run_file("cuda:0@cpu=8m,cpu=64m,null:0=8m", path,
                                     "cuda:0,20%;null:0,50%;cpu,30%#cuda:0", 1, 1, method);
        assert_near(dtype_name(list[i].dtype), got, exact, DIT_EACH, list[i].limit);
        assert_memory_equal(got, spread, DIT_EACH * sizeof *got);
        free(got), free(spread);
    }
    free(exact);
}

static inline bool dit_leave_out(const void *user, const struct key *key, char *name, size_t cap,
                                 struct shape *s)
{
    (void)name, (void)cap, (void)s;
    return strcmp(key->name, user) != 0;
}

/* Without one of k; marks: those without which it is nothing that is known. */
static inline void dit_what_is_missing_is_said(const struct keys *k, const char *const *marks,
                                               size_t n)
{
    for (size_t i = 0; i < k->n; i++) {
        const char *name = k->at[i].name;
        struct net_rig g;
        struct diffusion *d;
        berth_err err = { 0 };
        net_rig_open(&g, "cpu=64m", keys_file_changed(k, "without", dit_leave_out, name), NULL,
                     NULL);
        struct diffusion_args args = { .res = g.f.r, .m = g.m };
        berth_status s = diffusion_open(&args, &d, &err);
        bool mark = false; /* without one it is nothing that is known */
        for (size_t m = 0; m < n; m++)
            mark |= !strcmp(name, marks[m]);
        if (s == BERTH_OK || !strstr(err.msg, mark ? "no diffusion model" : name))
            fail_msg("without '%s': %s", name, s ? err.msg : "it runs");
        diffusion_close(d);
        net_rig_close(&g);
    }
}

static inline void dit_no_memory_is_survived(const char *path, enum diffusion_ref_method method)
{
    static const bool hidden[DIT_TOKENS] = { [2] = true };
    struct dit r;
    berth_status s = BERTH_ENOMEM;
    dit_open(&r, "cpu=64m", path, NULL, 2);
    for (size_t k = 0; k < 2; k++)
        r.cond[k].refs = 1, r.cond[k].ref_method = method, r.cond[k].hidden = hidden;
    float *want = dit_run(&r);
    r.in.out = r.out;
    for (long k = 0; s != BERTH_OK; k++) {
        struct diffusion_args args = { .res = r.g.f.r, .m = r.g.m };
        struct diffusion *d = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = diffusion_open(&args, &d, &err);
        if (!s)
            s = diffusion_forward(d, &r.in, &err);
        oom_off();
        diffusion_close(d);
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
    }
    assert_memory_equal(want, r.out, 2 * DIT_EACH * sizeof *want);
    free(want);
    dit_close(&r);
}

#endif
