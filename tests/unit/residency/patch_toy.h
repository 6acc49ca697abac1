/* patch_toy: an adapter and files made by hand, for tests of patching. */
#ifndef UNIT_RESIDENCY_PATCH_TOY_H
#define UNIT_RESIDENCY_PATCH_TOY_H

#include "support/models.h"
#include "support/terms.h"

#include "merge/merge.h"
#include "op/op.h"
#include "residency/residency_impl.h"

#include <math.h>

/* ---- an adapter made by hand: small factors for weights whose name has `what` in it ---- */

struct toy {
    struct res_adapter base;
    const char *what;
    enum res_term_kind kind; /* rank 2 when nobody says another */
    float size;
    enum { NO_DORA, DORA_ROWS, DORA_COLUMNS } dora;
    float gain; /* with dora: sizes are about this; 0: about 20 */
    bool misfit;
    unsigned freed;
};

static inline bool toy_touches(const struct res_adapter *a, const char *key, size_t n)
{
    const struct toy *t = (const struct toy *)(const void *)a;
    (void)n;
    return strstr(key, t->what) && !strstr(key, "scale");
}

static inline berth_status toy_terms(const struct res_adapter *a, const char *key, size_t n,
                                     const struct shape *shape, float strength, struct arena *tmp,
                                     struct vec *out, berth_err *err)
{
    const struct toy *t = (const struct toy *)(const void *)a;
    uint64_t rows = 0, cols = 0;
    assert_true(toy_touches(a, key, n) && merge_matrix(shape, &rows, &cols));
    struct res_term x = { .kind = t->kind,
                          .rows = rows,
                          .cols = cols,
                          .rank = t->kind == TERM_MIX         ? 8
                                  : t->kind == TERM_BUTTERFLY ? 4
                                                              : 2,
                          .rank2 = t->kind == TERM_BUTTERFLY ? 2 : 3,
                          .kernel = cols % 4 ? 1 : 4,
                          .left_rows = 2,
                          .left_cols = cols % 4 ? 1 : 4,
                          .right_rows = rows / 2,
                          .right_cols = cols % 4 ? cols : cols / 4,
                          .from = 5,
                          .scale = (t->dora ? 1 : strength) * t->size };
    static const float any;
    if (t->dora)
        x.dora = (struct res_dora) { .size = &any,
                                     .columns = t->dora == DORA_COLUMNS,
                                     .before = t->dora == DORA_ROWS,
                                     .kernel = cols % 4 ? 1 : 4,
                                     .strength = strength };
    struct term_array array[TERM_ARRAYS];
    size_t n_arrays = term_arrays(&x, array);
    struct res_term *to = vec_add(out);
    for (size_t k = 0; k < n_arrays; k++) {
        float *f = arena_array(tmp, array[k].n, sizeof *f);
        if (!f || !to)
            return err_set(err, BERTH_ENOMEM, "toy terms");
        for (size_t i = 0; i < array[k].n; i++)
            f[i] = k % 2 ? (float)(int)(i % 5) / 4 - 0.5f : (float)(int)(i % 7) - 3;
        if (array[k].at == &x.dora.size)
            for (size_t i = 0; i < array[k].n; i++)
                f[i] = (t->gain > 0 ? t->gain : 20) + (float)(i % 3);
        *array[k].at = f;
    }
    x.rows += t->misfit;
    *to = x;
    return BERTH_OK;
}

static inline void toy_free(struct res_adapter *a)
{
    ((struct toy *)(void *)a)->freed++;
}

static const struct res_adapter_ops toy_ops = { toy_touches, toy_terms, toy_free };

static inline struct toy toy_of(const char *what, float size, uint64_t id)
{
    struct toy t = { .base = { .ops = &toy_ops, .id = id, .name = "toy" },
                     .what = what,
                     .size = size };
    atomic_init(&t.base.refs, 1);
    return t;
}

/* ---- files ---- */

#define ROWS 24
#define COLS 512 /* whole blocks of every quant */

/* Values a stored type holds well, different in every tensor. */
static inline float value(size_t tensor, uint64_t i)
{
    return (float)(int)((i * 37 + tensor * 11) % 129) / 64 - 1;
}

struct stored {
    enum dtype weight;
    bool scaled; /* a scale beside each weight */
    enum dtype scale_type;
    float scale, size;  /* its value; what weights are multiplied by */
    const char *called; /* the scale; NULL: scale_weight */
};
#define STORED(type, with_scale)                                                                   \
    {                                                                                              \
        type, with_scale, DT_F32, 0.25f, 1, NULL                                                   \
    }

struct filling {
    const struct weights_spec *spec;
    const struct stored *stored;
};

static inline berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                berth_err *err)
{
    const struct filling *x = user;
    const struct weights_spec *spec = x->spec;
    const struct dtype_desc *d = dtype_desc(spec[i].dtype);
    uint64_t first = off / d->bytes * d->elems;
    size_t count = n / d->bytes * d->elems;
    float *v = malloc(count * sizeof *v);
    (void)err;
    assert_non_null(v);
    for (size_t k = 0; k < count; k++)
        v[k] = strstr(spec[i].name, "scale") ? x->stored->scale
                                             : x->stored->size * value(i, first + k);
    d->from_f32(v, dst, count);
    free(v);
    return BERTH_OK;
}

/* Four layers: weight of the type, bias in F32, perhaps a scale. */
static inline const char *write_file(const char *name, struct stored s)
{
    struct weights_spec spec[12];
    char text[12][64];
    size_t n = 0;
    berth_err err = { 0 };
    bool gguf = dtype_is_quant(s.weight);
    for (int layer = 0; layer < 4; layer++) {
        const char *const parts[] = { "weight", "bias", s.called ? s.called : "scale_weight" };
        for (int p = 0; p < (s.scaled ? 3 : 2); p++, n++) {
            snprintf(text[n], sizeof text[n], "layers.%d.%s", layer, parts[p]);
            spec[n] = (struct weights_spec) { .name = text[n],
                                              .dtype = p == 0   ? s.weight
                                                       : p == 1 ? DT_F32
                                                                : s.scale_type };
            spec[n].shape = p == 0   ? (struct shape) { 2, { ROWS, COLS } }
                            : p == 1 ? (struct shape) { 1, { ROWS } }
                                     : (struct shape) { 0, { 0 } };
        }
    }
    char file[64];
    snprintf(file, sizeof file, "%s.%s", name, gguf ? "gguf" : "safetensors");
    const char *path = tmp_path(file);
    struct filling x = { spec, &s };
    struct weights_write_args args = { .format = gguf ? "gguf" : "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = n,
                                       .fill = fill,
                                       .user = &x };
    assert_ok(weights_write(&args, &err), err);
    return path;
}

static inline void set(struct res_model *m, struct toy *t, float strength)
{
    const struct res_patch p = { .adapter = t ? &t->base : NULL, .strength = strength };
    berth_err err = { 0 };
    assert_ok(res_set_patches(m, &p, t ? 1 : 0, &err), err);
}

static inline uint64_t checksum(struct res_model *m)
{
    uint64_t sum;
    berth_err err = { 0 };
    assert_ok(res_checksum(m, &sum, &err), err);
    return sum;
}

/* Tensor k of block i as F32. */
static inline void read_f32(struct res_model *m, size_t i, size_t k, float *out)
{
    struct res_tensor_at at = res_tensor_at(m, i, k);
    uint8_t raw[ROWS * COLS * 4];
    berth_err err = { 0 };
    assert_ok(res_tensor_read(m, i, k, raw, (size_t)at.bytes, &err), err);
    const struct dtype_desc *d = dtype_desc(at.dtype);
    d->to_f32(raw, out, (size_t)at.bytes / d->bytes * d->elems);
}

static inline float toy_sum(const float *up, const float *down, const struct res_term *x,
                            uint32_t rank, uint64_t i)
{
    float sum = 0;
    for (uint32_t k = 0; k < rank; k++)
        sum += up[i / x->cols * rank + k] * down[k * x->cols + i % x->cols];
    return sum;
}

static inline float toy_kron(const struct res_term *x, uint64_t i, uint64_t c)
{
    return x->up[i / x->right_rows * x->left_cols + c / x->right_cols] *
           x->down[i % x->right_rows * x->right_cols + c % x->right_cols];
}

static inline void toy_sums(const struct res_term *x, const float *w, double *sum)
{
    memset(sum, 0, (x->dora.columns ? x->cols : x->rows) * sizeof *sum);
    for (uint64_t i = 0; i < x->rows * x->cols; i++)
        sum[x->dora.columns ? i % x->cols : i / x->cols] += (double)w[i] * (double)w[i];
}

static inline void toy_change(const struct res_term *x, float *w);

/* All of merge/adapter.h's formulas, over whole matrices. */
static inline void toy_apply(const struct res_term *x, float *w)
{
    const struct res_dora *d = &x->dora;
    uint64_t n = x->rows * x->cols;
    float *was = malloc(n * sizeof *was);
    double *sum = malloc((x->rows + x->cols) * sizeof *sum);
    assert_true(was && sum);
    memcpy(was, w, n * sizeof *w);
    toy_change(x, w);
    if (d->size)
        toy_sums(x, d->before ? was : w, sum);
    for (uint64_t i = 0; d->size && i < n; i++) {
        uint64_t each = d->columns ? d->kernel : 1;
        uint64_t at = d->columns ? i % x->cols / each : i / x->cols;
        double all = 0;
        for (uint64_t k = 0; k < each; k++)
            all += sum[at * each + k];
        w[i] *= d->size[at] / ((float)sqrt(all) + 1.1920929e-7f);
        if (d->strength != 1)
            w[i] = was[i] + d->strength * (w[i] - was[i]);
    }
    free(was);
    free(sum);
}

/* Of w as it is altogether. */
static inline void toy_mix(const struct res_term *x, float *w)
{
    const uint64_t n = x->rows * x->cols;
    float *was = malloc(n * sizeof *was);
    assert_non_null(was);
    memcpy(was, w, n * sizeof *w);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t row = i / x->cols, first = row / x->rank * x->rank;
        float sum = 0;
        for (uint64_t k = 0; k < x->rank; k++)
            sum += x->up[row * x->rank + k] * was[(first + k) * x->cols + i % x->cols];
        w[i] += x->scale * sum;
    }
    free(was);
}

static inline void toy_butterfly(const struct res_term *x, float *w)
{
    const uint64_t rows = x->rows, cols = x->cols, n = x->rank;
    float *now = malloc(rows * cols * sizeof *now), *next = malloc(rows * cols * sizeof *next);
    assert_true(now && next);
    memcpy(now, w, rows * cols * sizeof *w);
    for (uint32_t s = 0; s < x->rank2; s++) {
        const uint64_t k = n / 2 << s;
        uint64_t *row_at = malloc(rows * sizeof *row_at), at = 0; /* new order -> row */
        assert_non_null(row_at);
        for (uint64_t a = 0; a < rows; a += 2 * k)
            for (uint64_t i = 0; i < k; i++)
                for (uint64_t g = 0; g < 2; g++)
                    row_at[at++] = a + g * k + i;
        for (uint64_t i = 0; i < rows; i++)
            for (uint64_t c = 0; c < cols; c++) {
                float sum = 0;
                for (uint64_t j = 0; j < n; j++)
                    sum += x->up[(s * rows + i) * n + j] * now[row_at[i / n * n + j] * cols + c];
                next[row_at[i] * cols + c] = sum;
            }
        memcpy(now, next, rows * cols * sizeof *now);
        free(row_at);
    }
    for (uint64_t i = 0; i < rows * cols; i++)
        w[i] += x->scale * ((x->down ? now[i] * x->down[i / cols] : now[i]) - w[i]);
    free(now);
    free(next);
}

static inline void toy_inputs(const struct res_term *x, float *w)
{
    const uint64_t kernel = x->kernel, in = x->cols / kernel;
    float *was = malloc(x->cols * sizeof *was);
    assert_non_null(was);
    for (uint64_t r = 0; r < x->rows; r++) {
        memcpy(was, w + r * x->cols, x->cols * sizeof *was);
        for (uint64_t c = 0; c < x->cols; c++) {
            float delta = 0;
            for (uint32_t k = 0; k < x->rank; k++) {
                float thin = 0;
                for (uint64_t i = 0; i < in; i++)
                    thin += was[i * kernel + c % kernel] * x->up[i * x->rank + k];
                delta += thin * x->down[k * in + c / kernel];
            }
            delta += toy_sum(x->up2, x->down2, x, x->rank2, r * x->cols + c);
            w[r * x->cols + c] += x->scale * delta;
        }
    }
    free(was);
}

/* Element by element, without dora. */
static inline void toy_change(const struct res_term *x, float *w)
{
    void (*const all[])(const struct res_term *, float *) = {
        [TERM_MIX] = toy_mix, [TERM_BUTTERFLY] = toy_butterfly, [TERM_INPUTS] = toy_inputs
    };
    if (x->kind < ARRAY_LEN(all) && all[x->kind]) {
        all[x->kind](x, w);
        return;
    }
    for (uint64_t i = 0; i < x->rows * x->cols; i++)
        if (x->kind == TERM_LOWRANK)
            w[i] += x->scale * toy_sum(x->up, x->down, x, x->rank, i);
        else if (x->kind == TERM_HADAMARD)
            w[i] += x->scale * (toy_sum(x->up, x->down, x, x->rank, i) *
                                toy_sum(x->up2, x->down2, x, x->rank2, i));
        else if (x->kind == TERM_KRON)
            w[i] += x->scale * toy_kron(x, (i / x->cols + x->from) % x->rows, i % x->cols);
        else
            w[i] = x->kind == TERM_SET ? x->dense[i] : w[i] + x->scale * x->dense[i];
}

/* What the weight of block i ought to be, before it is stored. */
static inline void expected(struct res_model *m, size_t i, size_t k, const struct toy *t,
                            float strength, float scale, float *w)
{
    const struct weights_entry *e = m->blocks.tensor[m->blocks.at[i].first + k].entry;
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    berth_err err = { 0 };
    uint64_t n;
    assert_true(shape_count(&e->shape, &n));
    dtype_desc(e->dtype)->to_f32(weights_data(m->weights, e), w, (size_t)n);
    for (uint64_t x = 0; x < n; x++)
        w[x] *= scale;
    assert_ok(toy_terms(&t->base, e->name, e->name_len, &e->shape, strength, &tmp, &terms, &err),
              err);
    toy_apply(vec_at(&terms, 0), w);
    vec_release(&terms);
    arena_release(&tmp);
}

#endif
