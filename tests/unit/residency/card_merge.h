/* card_merge: a weight merged on the device where it lies, against the same merge on the host. */
#ifndef UNIT_RESIDENCY_CARD_MERGE_H
#define UNIT_RESIDENCY_CARD_MERGE_H

#include "patch_toy.h"

enum { CARD_RANK = 7, CARD_PART = 5 }; /* of all rows; of those from a third on */

/* Two products: one for the whole weight, one for some of its rows. */
struct pairs {
    struct res_adapter base;
    float strength_seen;
};

static inline bool pairs_touch(const struct res_adapter *a, const char *key, size_t n)
{
    (void)a, (void)n;
    return strstr(key, "big.weight") != NULL;
}

static inline float card_number(size_t seed, size_t i)
{
    return (float)(int)((i * 2654435761u + seed * 40503u) >> 16 & 255) / 1024 - 0.125f;
}

static inline const float *card_numbers(struct arena *mem, size_t n, size_t seed)
{
    float *f = arena_array(mem, n, sizeof *f);
    for (size_t i = 0; f && i < n; i++)
        f[i] = card_number(seed, i);
    return f;
}

static inline berth_status pairs_terms(const struct res_adapter *a, const char *key, size_t n,
                                       const struct shape *shape, float strength, struct arena *tmp,
                                       struct vec *out, berth_err *err)
{
    (void)a, (void)key, (void)n;
    uint64_t rows = 0, cols = 0;
    assert_true(merge_matrix(shape, &rows, &cols));
    for (int i = 0; i < 2; i++) {
        struct res_term t = { .kind = TERM_LOWRANK, .cols = cols, .scale = strength };
        t.row = i ? rows / 3 : 0;
        t.rows = i ? rows / 2 : rows;
        t.rank = i ? CARD_PART : CARD_RANK;
        t.up = card_numbers(tmp, (size_t)t.rows * t.rank, 1 + (size_t)i);
        t.down = card_numbers(tmp, t.rank * (size_t)cols, 3 + (size_t)i);
        if (!t.up || !t.down || !vec_push(out, &t))
            return err_set(err, BERTH_ENOMEM, "pairs");
    }
    return BERTH_OK;
}

static inline void pairs_free(struct res_adapter *a)
{
    (void)a;
}

static inline void pairs_init(struct pairs *p)
{
    static const struct res_adapter_ops ops = { pairs_touch, pairs_terms, pairs_free };
    *p = (struct pairs) { .base = { .ops = &ops, .id = 7, .name = "pairs" } };
    atomic_init(&p->base.refs, 1);
}

struct card_file {
    enum dtype type;
    uint64_t rows, cols;
};

static inline berth_status card_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                     berth_err *err)
{
    const struct card_file *f = user;
    const struct dtype_desc *d = dtype_desc(i ? DT_F32 : f->type);
    const size_t count = n / d->bytes * d->elems;
    float *v = malloc(count * sizeof *v);
    (void)err;
    assert_non_null(v);
    for (size_t k = 0; k < count; k++)
        v[k] = card_number(9, (size_t)(off / d->bytes * d->elems) + k) * 4;
    d->from_f32(v, dst, count);
    free(v);
    return BERTH_OK;
}

static inline const char *card_write(const struct card_file *f)
{
    const bool gguf = dtype_is_quant(f->type);
    struct weights_spec spec[] = {
        { .name = "big.weight", .dtype = f->type, .shape = { 2, { f->rows, f->cols } } },
        { .name = "big.bias", .dtype = DT_F32, .shape = { 1, { f->rows } } },
    };
    const char *path = tmp_path(gguf ? "card.gguf" : "card.safetensors");
    struct weights_write_args args = { .format = gguf ? "gguf" : "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = card_fill,
                                       .user = (void *)(uintptr_t)f };
    berth_err err = { 0 };
    assert_ok(weights_write(&args, &err), err);
    return path;
}

/* What the host makes of it, as `kept`. */
static inline void card_expect(struct res_model *m, const struct card_file *f, enum dtype kept,
                               const struct res_patch *patch, size_t patches, void *want)
{
    const struct weights_entry *e = weights_find(m->weights, "big.weight", strlen("big.weight"));
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    berth_err err = { 0 };
    const struct merge_plain from = merge_numbers(f->type, weights_data(m->weights, e));
    struct merge_plain to = merge_numbers(kept, want);
    struct merge x = { .from = &merge_plain,
                       .to = &merge_plain,
                       .base = &from,
                       .result = &to,
                       .rows = f->rows,
                       .cols = f->cols };
    for (size_t i = 0; i < patches; i++)
        assert_ok(
            pairs_terms(patch[i].adapter, "", 0, &e->shape, patch[i].strength, &tmp, &terms, &err),
            err);
    assert_ok(merge_take(&x, &terms, 0, &tmp, &err), err);
    merge_run(&x, NULL);
    arena_release(&tmp);
    vec_release(&terms);
}

/* On the one device that is no cpu; every bit. */
static inline void card_check(struct res_model *m, const struct card_file *f,
                              const struct res_patch *patch, size_t patches)
{
    size_t i = 0;
    while (strcmp(m->blocks.at[i].name, "big") != 0)
        i++;
    const struct res_tensor_at at = res_tensor_at(m, i, 0);
    const enum dtype kept = dtype_is_quant(f->type) ? DT_F16 : f->type;
    uint8_t *got = malloc((size_t)at.bytes), *want = malloc((size_t)at.bytes);
    berth_err err = { 0 };
    assert_true(got && want && at.dtype == kept);
    assert_ok(res_tensor_read(m, i, 0, got, (size_t)at.bytes, &err), err);
    card_expect(m, f, kept, patch, patches, want);
    for (size_t k = 0; k < at.bytes; k++)
        if (got[k] != want[k])
            fail_msg("%s, %llu x %llu: byte %zu is %02x, the host has %02x", dtype_name(f->type),
                     (unsigned long long)f->rows, (unsigned long long)f->cols, k, got[k], want[k]);
    free(got);
    free(want);
}

#endif
