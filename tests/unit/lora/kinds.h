/* kinds: adapter files of random values, and weights to hold against their formulas. */
#ifndef UNIT_LORA_KINDS_H
#define UNIT_LORA_KINDS_H

#include "lora_file.h"

#include "base/mt19937.h"
#include "merge/merge.h"

#include <math.h>

#define KEY "model.layer.weight"
#define MOST 9216 /* elements of a weight */
#define TENSORS 8
#define TOLERANCE 2e-5 /* of a weight's typical value */

static struct mt19937 dice;

static inline uint64_t roll(uint64_t n) /* 0 .. n-1 */
{
    return mt19937_u32(&dice) % n;
}

static inline float chance(void) /* -1 .. 1 */
{
    return (float)roll(2001) / 1000 - 1;
}

static inline struct shape flat(uint64_t rows, uint64_t cols)
{
    return (struct shape) { 2, { rows, cols } };
}

/* ---- files of random values ---- */

struct tensor {
    char name[32];
    struct shape shape;
    float v[MOST];
};

struct file {
    struct tensor t[TENSORS];
    size_t n;
    struct str bytes;
};

static inline const float *add(struct file *f, const char *name, struct shape s)
{
    uint64_t n = 0;
    struct tensor *t = &f->t[f->n++];
    assert_true(f->n <= TENSORS && shape_count(&s, &n) && n <= MOST);
    snprintf(t->name, sizeof t->name, "x.%s", name);
    t->shape = s;
    for (uint64_t i = 0; i < n; i++)
        t->v[i] = chance();
    return t->v;
}

static inline void bytes_of(struct file *f)
{
    struct str head = { 0 };
    size_t at = 0;
    str_adds(&head, "{");
    for (size_t i = 0; i < f->n; i++) {
        char dims[SHAPE_TEXT_MAX];
        uint64_t n = 0;
        assert_true(shape_count(&f->t[i].shape, &n));
        str_addf(&head, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                 i ? "," : "", f->t[i].name, shape_text(&f->t[i].shape, dims), at,
                 at + (size_t)n * 4);
        at += (size_t)n * 4;
    }
    str_adds(&head, "}");
    for (int k = 0; k < 8; k++)
        str_addc(&f->bytes, (char)(head.n >> (8 * k)));
    str_add(&f->bytes, head.p, head.n);
    for (size_t i = 0; i < f->n; i++) {
        uint64_t n = 0;
        assert_true(shape_count(&f->t[i].shape, &n));
        str_add(&f->bytes, (const char *)f->t[i].v, (size_t)n * 4); /* as little as we are */
    }
    assert_false(f->bytes.bad || head.bad);
    str_release(&head);
}

struct weight {
    struct shape shape;
    uint64_t rows, cols;
    float base[MOST], got[MOST];
    double want[MOST];
};

static inline void compare(const struct weight *w, unsigned seed)
{
    uint64_t n = w->rows * w->cols;
    double typical = 0;
    for (uint64_t i = 0; i < n; i++)
        typical += w->want[i] * w->want[i];
    typical = sqrt(typical / (double)n);
    for (uint64_t i = 0; i < n; i++)
        if (!(fabs((double)w->got[i] - w->want[i]) <= TOLERANCE * (typical + fabs(w->want[i]))))
            fail_msg("seed %u: element %u of %u x %u is %.9g, should be %.9g", seed, (unsigned)i,
                     (unsigned)w->rows, (unsigned)w->cols, (double)w->got[i], w->want[i]);
}

/* The terms of all of the adapters in *terms, merged into w->base: w->got. */
static inline void merge_all(struct weight *w, struct vec *terms, struct arena *tmp)
{
    berth_err err = { 0 };
    const struct merge_plain from = merge_numbers(DT_F32, w->base);
    struct merge_plain to = merge_numbers(DT_F32, w->got);
    struct merge m = { .from = &merge_plain,
                       .to = &merge_plain,
                       .base = &from,
                       .result = &to,
                       .rows = w->rows,
                       .cols = w->cols };
    assert_ok(merge_take(&m, terms, 0, tmp, &err), err);
    merge_norms(&m, NULL);
    merge_run(&m, NULL);
}

/* ---- what files get wrong ---- */

static const struct lora_name one_name[] = { { .base = "x", .key = KEY } };
static const struct lora_names only_x = { one_name, 1 };

struct wrong {
    struct lora_tensor t[6];
    struct shape weight;
    berth_status code;
    const char *says;
};

/* Refused when it is opened, or when its terms are asked for: naming the tensor and the numbers. */
static inline void refuse(const struct wrong *c)
{
    struct str bytes = { 0 };
    struct res_adapter *a;
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    berth_err err = { 0 };
    size_t n = 0;
    while (n < ARRAY_LEN(c->t) && c->t[n].name)
        n++;
    lora_bytes(c->t, n, &bytes);
    berth_status s = lora_from_bytes(&bytes, &only_x, NULL, &a, &err);
    if (!s)
        s = a->ops->terms(a, KEY, strlen(KEY), &c->weight, 1, &tmp, &terms, &err);
    assert_fails(s, err, c->code, c->says);
    assert_int_equal(terms.n, 0);
    res_adapter_unref(a);
    vec_release(&terms);
    arena_release(&tmp);
    str_release(&bytes);
}

#define LINEAR                                                                                     \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            4, 6                                                                                   \
        }                                                                                          \
    }
#define CONV                                                                                       \
    {                                                                                              \
        4,                                                                                         \
        {                                                                                          \
            4, 3, 3, 3                                                                             \
        }                                                                                          \
    }

#endif
