/* diffusion_rig: a diffusion model of any family over made-up latents, prompts and pictures to look
 * at, and what every family must keep: the same bits wherever its blocks live, in little memory,
 * and when allocations fail.
 *
 *     static const struct diff_spec spec = { .latent = { 4, { 1, 128, 9, 6 } }, ... };
 *     struct diff_rig r;
 *     diff_open(&r, &spec, "cpu=256m", path, NULL, 2);      two items
 *     float *out = diff_run(&r);                            to be freed
 *     diff_close(&r); */
#ifndef SUPPORT_DIFFUSION_RIG_H
#define SUPPORT_DIFFUSION_RIG_H

#include "support/nets.h"
#include "support/oom.h"
#include "support/sparse.h"

#include "model/diffusion.h"

#define DIFF_MAX 4 /* items, and pictures to look at */

struct diff_spec {
    struct shape latent; /* [1, channels, ..., h, w] */
    struct shape large;  /* the same, of which a thrifty pass needs less than others */
    struct shape ref[DIFF_MAX];
    size_t tokens;
    enum diffusion_ref_method method; /* of thrifty passes */
    enum diffusion_ref_method looks;  /* of diff_refs(), and so of the other tests */
    bool no_refs;                     /* it looks at no pictures */
    void (*keys)(struct keys *k, const void *config); /* of its files, for diff_file() and others */
    const void *config;
    const char *const *hiprec; /* as in struct preset */
};

struct diff_rig {
    struct net_rig g;
    const struct diff_spec *spec;
    struct diffusion *d;
    float *x, *context[DIFF_MAX], *out, t[DIFF_MAX];
    struct diffusion_ref ref[DIFF_MAX];
    struct diffusion_cond cond[DIFF_MAX];
    const struct diffusion_cond *list[DIFF_MAX];
    struct diffusion_in in;
    size_t each; /* values of a latent */
};

static inline size_t diff_values(const struct shape *s)
{
    uint64_t n = 0;
    assert_true(shape_count(s, &n));
    return (size_t)n;
}

/* ---- its files ---- */

static inline const char *diff_typed_file(const struct diff_spec *spec, const void *config,
                                          const char *name, enum dtype dtype, const char *format)
{
    struct keys k = { 0 };
    spec->keys(&k, config);
    assert_false(k.bad);
    const char *path = keys_file(&k, name, dtype, format, spec->hiprec);
    keys_release(&k);
    return path;
}

static inline const char *diff_file_of(const struct diff_spec *spec, const void *config,
                                       const char *name)
{
    return diff_typed_file(spec, config, name, DT_F32, "safetensors");
}

static inline const char *diff_file(const struct diff_spec *spec, const char *name)
{
    return diff_file_of(spec, spec->config, name);
}

/* A file of nothing but a header: its tensors behind root, and one more unless that is NULL. */
static inline struct weights *diff_header(const struct diff_spec *spec, const void *config,
                                          const char *root, const char *more)
{
    const char *path = tmp_path("config.safetensors");
    struct keys k = { 0 };
    struct weights *w;
    berth_err err = { 0 };
    size_t mark = *root ? keys_enter(&k, "%.*s", (int)strlen(root) - 1, root) : 0;
    spec->keys(&k, config);
    if (more)
        keys_tensor(&k, more, 8, 0, 0, 0);
    if (*root)
        keys_leave(&k, mark);
    assert_false(k.bad);
    assert_ok(sparse_keys(path, &k, DT_F16, &err), err);
    keys_release(&k);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    return w;
}

/* ---- passes ---- */

static inline void diff_open(struct diff_rig *r, const struct diff_spec *spec, const char *devices,
                             const char *path, const char *alloc, size_t n)
{
    berth_err err = { 0 };
    *r = (struct diff_rig) { .spec = spec, .each = diff_values(&spec->latent) };
    net_rig_open(&r->g, devices, path, NULL, alloc);
    struct diffusion_args args = { .res = r->g.f.r, .m = r->g.m };
    assert_ok(diffusion_open(&args, &r->d, &err), err);
    size_t width = (size_t)diffusion_info(r->d)->context_dim;
    r->x = noise_floats(1, DIFF_MAX * r->each);
    r->out = calloc(DIFF_MAX * r->each, sizeof *r->out);
    for (size_t k = 0; k < DIFF_MAX; k++) {
        r->ref[k] =
            (struct diffusion_ref) { .shape = spec->ref[k],
                                     .x = noise_floats(20 + k, diff_values(&spec->ref[k])) };
        r->t[k] = 0.9f - 0.2f * (float)k;
        r->context[k] = noise_floats(3 + k, spec->tokens * width);
        r->cond[k] = (struct diffusion_cond) {
            .context = r->context[k], .tokens = spec->tokens, .width = width, .ref = r->ref
        };
        r->list[k] = &r->cond[k];
    }
    r->in = (struct diffusion_in) {
        .shape = spec->latent, .x = r->x, .t = r->t, .cond = r->list, .out = r->out
    };
    r->in.shape.dim[0] = n;
}

static inline void diff_close(struct diff_rig *r)
{
    diffusion_close(r->d);
    net_rig_close(&r->g);
    for (size_t k = 0; k < DIFF_MAX; k++) {
        free(r->context[k]);
        free((float *)(uintptr_t)r->ref[k].x);
    }
    free(r->x), free(r->out);
}

static inline void diff_refs(struct diff_rig *r, size_t refs)
{
    for (size_t k = 0; k < DIFF_MAX; k++)
        r->cond[k].refs = r->spec->no_refs ? 0 : refs, r->cond[k].ref_method = r->spec->looks;
}

/* What it gives for all items; to be freed. */
static inline float *diff_run(struct diff_rig *r)
{
    berth_err err = { 0 };
    float *out = calloc(DIFF_MAX * r->each, sizeof *out);
    uint64_t peak;
    assert_non_null(out);
    assert_ok(diffusion_predict(r->d, &r->in, &peak, &err), err);
    r->in.out = out;
    assert_ok(diffusion_forward(r->d, &r->in, &err), err);
    r->in.out = r->out;
    return out;
}

static inline float *diff_run_file(const struct diff_spec *spec, const char *devices,
                                   const char *path, const char *alloc, size_t n, size_t refs)
{
    struct diff_rig r;
    diff_open(&r, spec, devices, path, alloc, n);
    diff_refs(&r, refs);
    float *out = diff_run(&r);
    assert_int_equal(diffusion_report(r.d).peak, diffusion_report(r.d).predicted);
    diff_close(&r);
    return out;
}

/* ---- what every family must keep ---- */

/* Items of a batch that look at pictures of the same sizes go in one pass, each as if alone. */
static inline void diff_items_are_as_if_alone(const struct diff_spec *spec, const char *path,
                                              enum diffusion_ref_method method)
{
    struct diff_rig r;
    berth_err err = { 0 };
    diff_open(&r, spec, "cpu=256m", path, NULL, 3);
    for (size_t k = 0; k < 3; k++)
        r.cond[k].refs = spec->no_refs ? 0 : 3, r.cond[k].ref_method = method;
    float *all = diff_run(&r);
    assert_int_equal(diffusion_report(r.d).passes, 1);
    for (size_t k = 0; k < 3; k++) {
        struct diffusion_in in = r.in;
        in.shape.dim[0] = 1;
        in.x += k * r.each;
        in.t += k;
        in.cond += k;
        in.item = &k; /* pictures may have items of their own */
        assert_ok(diffusion_forward(r.d, &in, &err), err);
        assert_memory_equal(all + k * r.each, r.out, r.each * sizeof *all);
    }
    uint64_t before = diffusion_report(r.d).passes;
    r.cond[1].refs = spec->no_refs ? 0 : 2;
    r.cond[2].ref_method = REF_INDEX;
    free(diff_run(&r));
    assert_int_equal(diffusion_report(r.d).passes - before, spec->no_refs ? 1 : 3);
    diff_close(&r);
    free(all);
}

/* Everything on a donor, through a ring with room for two blocks: each of them comes once a pass,
 * in the order that the forward asks. */
static inline void diff_streams_in_order(const struct diff_spec *spec, const char *path,
                                         const char *devices)
{
    for (size_t n = 1; n <= 2; n++) {
        struct diff_rig r;
        float *want = diff_run_file(spec, "cpu=256m", path, NULL, n, 2);
        diff_open(&r, spec, devices, path, "null:0,*#cpu", n);
        diff_refs(&r, 2);
        for (uint64_t pass = 1; pass <= 3; pass++) {
            float *got = diff_run(&r);
            assert_memory_equal(want, got, n * r.each * sizeof *want);
            free(got);
            struct net_report rep = diffusion_report(r.d);
            assert_int_equal(rep.stream.slots, 2);
            assert_int_equal(rep.stream.out_of_order + rep.stream.dropped, 0);
            assert_int_equal(rep.stream.bytes - rep.stream.ahead, pass * rep.stream.donor_bytes);
        }
        diff_close(&r);
        free(want);
    }
}

/* Rung 2: feed-forwards by rows, in less memory, with the same bits. */
static inline void diff_thrifty_gives_the_same_bits(const struct diff_spec *spec, const char *path)
{
    const size_t each = diff_values(&spec->large);
    float *x = noise_floats(5, each), *want = calloc(each, sizeof *want),
          *got = calloc(each, sizeof *got);
    assert_true(want && got);
    for (size_t refs = 0; refs <= (spec->no_refs ? 0 : 2); refs += 2) {
        struct diff_rig r;
        struct net_report rep = { 0 };
        char devices[64] = "cpu=256m";
        for (int less = 0; less < 2; less++) {
            berth_err err = { 0 };
            diff_open(&r, spec, devices, path, NULL, 1);
            r.in.shape = spec->large;
            r.in.x = x;
            r.in.out = less ? got : want;
            r.cond[0].refs = refs;
            r.cond[0].ref_method = spec->method;
            assert_ok(diffusion_forward(r.d, &r.in, &err), err);
            struct net_report now = diffusion_report(r.d);
            assert_int_equal(now.thrifty, less);
            assert_true(!less || now.peak < rep.peak);
            if (!less)
                snprintf(
                    devices, sizeof devices, "cpu=%llu",
                    (unsigned long long)(res_info(r.g.m).bytes * 33 / 32 + now.peak * 15 / 16));
            rep = now;
            diff_close(&r);
        }
        assert_memory_equal(want, got, each * sizeof *want);
    }
    free(x), free(want), free(got);
}

/* Files of every type against one in F32, and the same bits over three devices. file: one of this
 * type and format, made by the test; NULL: the spec's. */
typedef const char *diff_file_fn(enum dtype dtype, const char *format);
static inline void diff_every_stored_type_computes(const struct diff_spec *spec, diff_file_fn *file)
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
    const size_t each = diff_values(&spec->latent);
    const char *path = file ? file(DT_F32, "safetensors") : diff_file(spec, "F32");
    float *exact = diff_run_file(spec, "cpu=256m", path, NULL, 1, 1);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const char *name = dtype_name(list[i].dtype), *format = list[i].format;
        path = file ? file(list[i].dtype, format)
                    : diff_typed_file(spec, spec->config, name, list[i].dtype, format);
        float *got = diff_run_file(spec, "cpu=256m", path, NULL, 1, 1);
        float *spread = diff_run_file(spec, "cuda:0@cpu=8m,cpu=64m,null:0=8m", path,
                                      "cuda:0,20%;null:0,50%;cpu,30%#cuda:0", 1, 1);
        assert_near(name, got, exact, each, list[i].limit);
        assert_memory_equal(got, spread, each * sizeof *got);
        free(got), free(spread);
    }
    free(exact);
}

static inline bool diff_leave_out(const void *user, const struct key *key, char *name, size_t cap,
                                  struct shape *s)
{
    (void)name, (void)cap, (void)s;
    return strcmp(key->name, user) != 0;
}

/* Without any of its tensors the model is refused, naming it; without one of `marks` (NULL ends
 * them) it is nothing that is known. */
static inline void diff_missing_is_said(const struct keys *k, const char *const *marks)
{
    for (size_t i = 0; i < k->n; i++) {
        const char *name = k->at[i].name;
        struct net_rig g;
        struct diffusion *d;
        berth_err err = { 0 };
        net_rig_open(&g, "cpu=64m", keys_file_changed(k, "without", diff_leave_out, name), NULL,
                     NULL);
        struct diffusion_args args = { .res = g.f.r, .m = g.m };
        berth_status s = diffusion_open(&args, &d, &err);
        bool mark = false;
        for (size_t m = 0; marks[m]; m++)
            mark |= !strcmp(name, marks[m]);
        if (s == BERTH_OK || !strstr(err.msg, mark ? "no diffusion model" : name))
            fail_msg("without '%s': %s", name, s ? err.msg : "it runs");
        diffusion_close(d);
        net_rig_close(&g);
    }
}

/* Opens the rig's model anew and runs it, with allocations that fail. */
static inline void diff_no_memory_is_survived(struct diff_rig *r)
{
    berth_status s = BERTH_ENOMEM;
    const size_t n = (size_t)r->in.shape.dim[0];
    float *want = diff_run(r);
    for (long k = 0; s != BERTH_OK; k++) {
        struct diffusion_args args = { .res = r->g.f.r, .m = r->g.m };
        struct diffusion *d = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = diffusion_open(&args, &d, &err);
        if (!s)
            s = diffusion_forward(d, &r->in, &err);
        oom_off();
        diffusion_close(d);
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
    }
    assert_memory_equal(want, r->out, n * r->each * sizeof *want);
    free(want);
}

/* The same of two items whose third token nobody is to see. */
static inline void diff_no_memory_is_survived_with_hidden(const struct diff_spec *spec)
{
    bool *hidden = calloc(spec->tokens, sizeof *hidden);
    struct diff_rig r;
    assert_true(hidden && spec->tokens > 2);
    hidden[2] = true;
    diff_open(&r, spec, "cpu=64m", diff_file(spec, "oom"), NULL, 2);
    for (size_t k = 0; k < 2; k++)
        r.cond[k].hidden = hidden;
    diff_no_memory_is_survived(&r);
    diff_close(&r);
    free(hidden);
}

#endif
