/* Kinds of adapters against their formulas (lora.md 5), written down plainly here and computed in
 * double: random shapes, weights and strengths, linear and convolutions, rows of a weight, halves
 * that trade places, weights kept the other way round, one adapter or several behind one another.
 * Then what a file may get wrong. */
#include "kinds.h"

#include "support/oom.h"

/* ---- changes, as their formulas say ---- */

struct view { /* the weight as the file sees it: [out, in, kh, kw] or [out, in] */
    uint64_t out, in, kh, kw;
    bool conv;
};

static uint64_t kernel_of(const struct view *v)
{
    return v->kh * v->kw;
}

struct change {
    struct view v;
    double delta[MOST]; /* [out, in, kernel] */
    double scale;
    const float *size; /* of DoRA: [out] or [in]; NULL: none */
    bool by_row;
};

static double alpha_of(struct file *f, uint64_t rank)
{
    if (roll(3) == 0)
        return 1; /* none */
    return (double)add(f, "alpha", (struct shape) { 0, { 0 } })[0] / (double)rank;
}

static void make_pair(struct file *f, struct change *x)
{
    const struct view *v = &x->v;
    uint64_t r = 1 + roll(5), k = kernel_of(v), cols = v->in * k;
    const float *up = add(f, "lora_up.weight", flat(v->out, r));
    const float *down =
        add(f, "lora_down.weight",
            v->conv ? (struct shape) { 4, { r, v->in, v->kh, v->kw } } : flat(r, v->in));
    for (uint64_t o = 0; o < v->out; o++)
        for (uint64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (uint64_t j = 0; j < r; j++)
                sum += (double)up[o * r + j] * (double)down[j * cols + c];
            x->delta[o * cols + c] = sum;
        }
    x->scale = alpha_of(f, r);
}

/* One product of a LoHa; times what is there already. */
static uint64_t make_hada(struct file *f, struct change *x, const char *a, const char *b,
                          const char *t)
{
    const struct view *v = &x->v;
    uint64_t r = 1 + roll(5), k = kernel_of(v), cols = v->in * k;
    const float *wa = add(f, a, t ? flat(r, v->out) : flat(v->out, r));
    const float *wb = add(f, b, t ? flat(r, v->in) : flat(r, cols));
    const float *wt = t ? add(f, t, (struct shape) { 4, { r, r, v->kh, v->kw } }) : NULL;
    for (uint64_t o = 0; o < v->out; o++)
        for (uint64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (uint64_t i = 0; i < r; i++)
                if (!t)
                    sum += (double)wa[o * r + i] * (double)wb[i * cols + c];
                else
                    for (uint64_t j = 0; j < r; j++)
                        sum += (double)wt[(i * r + j) * k + c % k] * (double)wb[j * v->in + c / k] *
                               (double)wa[i * v->out + o];
            x->delta[o * cols + c] *= sum;
        }
    return r;
}

static void make_loha(struct file *f, struct change *x)
{
    bool kernels = x->v.conv && roll(2);
    for (size_t i = 0; i < MOST; i++)
        x->delta[i] = 1;
    uint64_t r = make_hada(f, x, "hada_w1_a", "hada_w1_b", kernels ? "hada_t1" : NULL);
    make_hada(f, x, "hada_w2_a", "hada_w2_b", kernels ? "hada_t2" : NULL);
    x->scale = alpha_of(f, r);
}

/* One matrix of a LoKr, whole or as a product; *rank is the product's. */
static void make_side(struct file *f, const char *which, const struct view *v, bool kernel,
                      double *out, uint64_t *rank)
{
    char name[3][16];
    uint64_t k = kernel_of(v), cols = v->in * k, r = 1 + roll(4);
    snprintf(name[0], sizeof name[0], "lokr_%s", which);
    snprintf(name[1], sizeof name[1], "lokr_%s_a", which);
    snprintf(name[2], sizeof name[2], "lokr_%s_b", which);
    if (!kernel && roll(2)) {
        const float *w = add(f, name[0],
                             v->conv ? (struct shape) { 4, { v->out, v->in, v->kh, v->kw } }
                                     : flat(v->out, cols));
        for (uint64_t i = 0; i < v->out * cols; i++)
            out[i] = (double)w[i];
        return;
    }
    const float *a = add(f, name[1], kernel ? flat(r, v->out) : flat(v->out, r));
    const float *b = add(f, name[2], kernel ? flat(r, v->in) : flat(r, cols));
    const float *t =
        kernel ? add(f, "lokr_t2", (struct shape) { 4, { r, r, v->kh, v->kw } }) : NULL;
    for (uint64_t o = 0; o < v->out; o++)
        for (uint64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (uint64_t i = 0; i < r; i++)
                if (!kernel)
                    sum += (double)a[o * r + i] * (double)b[i * cols + c];
                else
                    for (uint64_t j = 0; j < r; j++)
                        sum += (double)t[(i * r + j) * k + c % k] * (double)b[j * v->in + c / k] *
                               (double)a[i * v->out + o];
            out[o * cols + c] = sum;
        }
    *rank = r;
}

static uint64_t divisor(uint64_t n)
{
    uint64_t d = 1 + roll(n);
    while (n % d)
        d--;
    return d;
}

static void make_lokr(struct file *f, struct change *x)
{
    static double one[MOST], two[MOST];
    const struct view *v = &x->v;
    struct view left = { .out = divisor(v->out), .in = divisor(v->in), .kh = 1, .kw = 1 };
    struct view right = *v;
    uint64_t k = kernel_of(v), cols = v->in * k, rank = 0;
    right.out /= left.out;
    right.in /= left.in;
    make_side(f, "w1", &left, false, one, &rank);
    right.conv = v->conv && roll(2); /* or its kernel beside its columns */
    make_side(f, "w2", &right, right.conv && roll(2), two, &rank);
    for (uint64_t o = 0; o < v->out; o++)
        for (uint64_t c = 0; c < cols; c++) {
            uint64_t i = c / k, h = c % k;
            x->delta[o * cols + c] = one[o / right.out * left.in + i / right.in] *
                                     two[(o % right.out * right.in + i % right.in) * k + h];
        }
    double scale = alpha_of(f, rank ? rank : 1);
    x->scale = rank ? scale : 1;
}

/* ---- where a change goes ---- */

enum where { WHOLE, ROWS, SWAPPED, TURNED, PART_OF, WHERES };

/* The name, and the weight as the file sees it. */
static struct lora_name name_for(const struct weight *w, enum where where, struct view *v)
{
    struct lora_name n = { .base = "x", .key = KEY };
    *v = (struct view) { .out = w->rows,
                         .in = w->shape.dim[1],
                         .kh = w->shape.ndim == 4 ? w->shape.dim[2] : 1,
                         .kw = w->shape.ndim == 4 ? w->shape.dim[3] : 1,
                         .conv = w->shape.ndim == 4 };
    switch (where) {
    case ROWS:
        n.row = roll(w->rows);
        v->out = n.rows = 1 + roll(w->rows - n.row);
        break;
    case SWAPPED:
        n.swap = true;
        break;
    case TURNED:
        n.transpose = true;
        v->out = w->cols;
        v->in = w->rows;
        break;
    case PART_OF:
        n.from = roll(4);
        v->out = n.of = n.from + w->rows + roll(3);
        break;
    case WHOLE:
    case WHERES:
        break;
    }
    return n;
}

/* Element [row, col] of the weight -> [out, column] of the change; false: not touched. */
static bool place(const struct weight *w, const struct lora_name *n, uint64_t row, uint64_t col,
                  uint64_t *out, uint64_t *at)
{
    *at = n->transpose ? row : col;
    *out = n->transpose ? col : row - n->row + n->from;
    if (n->swap)
        *out = (row + w->rows / 2) % w->rows;
    return !n->rows || (row >= n->row && row < n->row + n->rows);
}

static void apply(struct weight *w, const struct lora_name *n, const struct change *x,
                  double strength)
{
    uint64_t cols = x->v.in * kernel_of(&x->v), o, at;
    for (uint64_t i = 0; i < w->rows * w->cols; i++)
        if (place(w, n, i / w->cols, i % w->cols, &o, &at))
            w->want[i] += strength * x->scale * x->delta[o * cols + at];
}

/* DoRA: the weight as ComfyUI sees it is [out, in, kernel] of x->v, its rows not swapped. */
static void apply_resized(struct weight *w, const struct lora_name *n, const struct change *x,
                          double strength)
{
    static double c[MOST], norm[MOST];
    uint64_t k = kernel_of(&x->v), cols = x->v.in * k, all = w->rows * w->cols, o, at;
    memcpy(c, w->want, sizeof c);
    for (uint64_t i = 0; i < all; i++)
        if (place(w, n, i / w->cols, i % w->cols, &o, &at))
            c[i] += x->scale * x->delta[o * cols + at];
    memset(norm, 0, sizeof norm);
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t i = 0; i < all; i++) {
            uint64_t row = i / w->cols, col = i % w->cols;
            if (!place(w, n, row, col, &o, &at))
                continue;
            uint64_t mine = n->transpose ? col : row - n->row + n->from;
            uint64_t which = x->by_row ? mine : at / k;
            double v = x->by_row ? w->want[i] : c[i];
            if (pass == 0)
                norm[which] += v * v;
            else
                c[i] *= (double)x->size[which] / (sqrt(norm[which]) + 0x1p-23);
        }
    for (uint64_t i = 0; i < all; i++)
        w->want[i] += strength * (c[i] - w->want[i]);
}

static void add_sizes(struct file *f, struct change *x, enum where where)
{
    const struct view *v = &x->v;
    x->by_row = where == PART_OF || v->out == 1 || roll(2);
    struct shape s = { v->conv ? 4 : 2, { x->by_row ? v->out : 1, x->by_row ? 1 : v->in } };
    if (v->conv)
        s.dim[2] = s.dim[3] = 1;
    add(f, "dora_scale", s);
    float *size = f->t[f->n - 1].v;
    for (uint64_t i = 0; i < (x->by_row ? v->out : v->in); i++)
        size[i] += 2;
    x->size = size;
}

/* ---- the comparison ---- */

typedef void make_fn(struct file *f, struct change *x);

static void random_weight(struct weight *w, enum where where)
{
    static const uint64_t kernels[][2] = { { 1, 1 }, { 3, 3 }, { 1, 3 } };
    uint64_t rows = 1 + roll(40), in = 1 + roll(20), k = roll(3);
    if (where == SWAPPED)
        rows += rows % 2;
    if (where != TURNED && roll(2))
        w->shape = (struct shape) { 4, { rows, in, kernels[k][0], kernels[k][1] } };
    else
        w->shape = (struct shape) { 2, { rows, in } };
    assert_true(merge_matrix(&w->shape, &w->rows, &w->cols));
    for (uint64_t i = 0; i < w->rows * w->cols; i++)
        w->want[i] = (double)(w->base[i] = chance());
}

/* One to three adapters of this kind, or of this kind and pairs, on one weight. */
static void one_round(make_fn *make, bool dora, unsigned seed)
{
    static const float strengths[] = { 1, -0.7f, 0, 0.3f };
    static struct weight w;
    static struct change x;
    static struct file f[3];
    struct res_adapter *a[3];
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    berth_err err = { 0 };
    mt19937_init(&dice, seed);
    enum where where = (enum where)roll(WHERES);
    size_t count = 1 + (size_t)roll(3);
    random_weight(&w, where);
    for (size_t i = 0; i < count; i++) {
        float strength = strengths[roll(ARRAY_LEN(strengths))];
        f[i] = (struct file) { 0 };
        const struct lora_name name = name_for(&w, where, &x.v);
        const struct lora_names names = { &name, 1 };
        (i && roll(2) ? make_pair : make)(&f[i], &x);
        x.size = NULL;
        if (dora && (!i || roll(2)))
            add_sizes(&f[i], &x, where);
        (x.size ? apply_resized : apply)(&w, &name, &x, (double)strength);
        bytes_of(&f[i]);
        assert_ok(lora_from_bytes(&f[i].bytes, &names, NULL, &a[i], &err), err);
        assert_int_equal(lora_info(a[i]).unknown, 0);
        assert_ok(a[i]->ops->terms(a[i], KEY, strlen(KEY), &w.shape, strength, &tmp, &terms, &err),
                  err);
    }
    assert_int_equal(terms.n, count);
    merge_all(&w, &terms, &tmp);
    compare(&w, seed);
    for (size_t i = 0; i < count; i++) {
        res_adapter_unref(a[i]);
        str_release(&f[i].bytes);
    }
    vec_release(&terms);
    arena_release(&tmp);
}

#define ROUNDS 400

static void pairs(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        one_round(make_pair, false, i);
}

static void loha(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        one_round(make_loha, false, i);
}

static void lokr(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        one_round(make_lokr, false, i);
}

static void dora(void **state)
{
    (void)state;
    static make_fn *const kinds[] = { make_pair, make_loha, make_lokr };
    for (unsigned i = 0; i < 3 * ROUNDS; i++)
        one_round(kinds[i % 3], true, i);
}

static void loha_that_does_not_fit(void **state)
{
    (void)state;
    static const struct wrong cases[] = {
        { { { "x.hada_w1_a", { 2, { 4, 2 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.hada_w1_a' is there and no .hada_w1_b beside it: the adapter is incomplete" },
        { { { "x.hada_w1_a", { 2, { 4, 2 } }, 1 },
            { "x.hada_w1_b", { 2, { 2, 6 } }, 1 },
            { "x.hada_w2_b", { 2, { 2, 6 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "no .hada_w2_a" },
        { { { "x.hada_t2", { 4, { 2, 2, 3, 3 } }, 1 } }, CONV, BERTH_EFORMAT, "'x.hada_t2'" },
        { { { "x.hada_w1_a", { 2, { 2, 4 } }, 1 },
            { "x.hada_w1_b", { 2, { 2, 3 } }, 1 },
            { "x.hada_w2_a", { 2, { 2, 4 } }, 1 },
            { "x.hada_w2_b", { 2, { 2, 3 } }, 1 },
            { "x.hada_t1", { 4, { 2, 2, 3, 3 } }, 1 } },
          CONV,
          BERTH_EFORMAT,
          "'x.hada_t1' is there and no .hada_t2" },
        { { { "x.hada_w1_a", { 2, { 4, 2 } }, 1 },
            { "x.hada_w1_b", { 2, { 2, 6 } }, 1 },
            { "x.hada_w2_a", { 2, { 5, 2 } }, 1 },
            { "x.hada_w2_b", { 2, { 2, 6 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.hada_w2_a' [5, 2] does not fit a weight of shape [4, 6]" },
        { { { "x.hada_w1_a", { 2, { 4, 0 } }, 1 },
            { "x.hada_w1_b", { 2, { 0, 6 } }, 1 },
            { "x.hada_w2_a", { 2, { 4, 2 } }, 1 },
            { "x.hada_w2_b", { 2, { 2, 6 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.hada_w1_b' [0, 6] does not fit" },
        { { { "x.hada_w1_a", { 2, { 2, 4 } }, 1 },
            { "x.hada_w1_b", { 2, { 2, 3 } }, 1 },
            { "x.hada_w2_a", { 2, { 2, 4 } }, 1 },
            { "x.hada_w2_b", { 2, { 2, 3 } }, 1 },
            { "x.hada_t1", { 4, { 2, 1, 3, 3 } }, 1 },
            { "x.hada_t2", { 4, { 2, 2, 3, 3 } }, 1 } },
          CONV,
          BERTH_EFORMAT,
          "'x.hada_t1' is no [2, 2, kh, kw]" },
        { { { "x.hada_w1_a", { 2, { 2, 4 } }, 1 },
            { "x.hada_w1_b", { 2, { 2, 3 } }, 1 },
            { "x.hada_w2_a", { 2, { 2, 4 } }, 1 },
            { "x.hada_w2_b", { 2, { 2, 3 } }, 1 },
            { "x.hada_t1", { 4, { 2, 2, 3, 3 } }, 1 },
            { "x.hada_t2", { 4, { 2, 2, 1, 3 } }, 1 } },
          CONV,
          BERTH_EFORMAT,
          "'x.hada_w2_b' [2, 3] does not fit a weight of shape [4, 3, 3, 3]" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refuse(&cases[i]);
}

static void lokr_that_does_not_fit(void **state)
{
    (void)state;
    static const struct wrong cases[] = {
        { { { "x.lokr_w1_a", { 2, { 2, 1 } }, 1 }, { "x.lokr_w2", { 2, { 2, 2 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.lokr_w2' is there and no .lokr_w1_b beside it: the adapter is incomplete" },
        { { { "x.lokr_w1", { 2, { 2, 3 } }, 1 } }, LINEAR, BERTH_EFORMAT, "no .lokr_w2_a" },
        { { { "x.lokr_t2", { 4, { 2, 2, 3, 3 } }, 1 } }, CONV, BERTH_EFORMAT, "no .lokr_w1_a" },
        { { { "x.lokr_w1", { 2, { 2, 3 } }, 1 }, { "x.lokr_w2", { 2, { 3, 2 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.lokr_w1': 2 x 3 times 3 x 2 does not make 4 rows of a weight of shape [4, 6]" },
        { { { "x.lokr_w1", { 2, { 2, 4 } }, 1 }, { "x.lokr_w2", { 2, { 2, 2 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "2 x 4 times 2 x 2 does not make" },
        { { { "x.lokr_w1", { 2, { 0, 3 } }, 1 }, { "x.lokr_w2", { 2, { 2, 2 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.lokr_w1' [0, 3] does not fit" },
        { { { "x.lokr_w1", { 2, { 2, 1 } }, 1 }, { "x.lokr_w2", { 3, { 2, 3, 9 } }, 1 } },
          CONV,
          BERTH_EFORMAT,
          "'x.lokr_w2' [2, 3, 9] does not fit a weight of shape [4, 3, 3, 3]" },
        { { { "x.lokr_w1_a", { 2, { 2, 3 } }, 1 },
            { "x.lokr_w1_b", { 2, { 2, 3 } }, 1 },
            { "x.lokr_w2", { 2, { 2, 2 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.lokr_w1_a' [2, 3] cannot be multiplied with the [2, 3] beside it" },
        { { { "x.lokr_w1", { 2, { 2, 1 } }, 1 },
            { "x.lokr_w2_a", { 2, { 2, 2 } }, 1 },
            { "x.lokr_w2_b", { 2, { 2, 3 } }, 1 },
            { "x.lokr_t2", { 4, { 2, 2, 0, 3 } }, 1 } },
          CONV,
          BERTH_EFORMAT,
          "'x.lokr_t2' [2, 2, 0, 3] does not fit" },
        { { { "x.lokr_w1", { 2, { 2, 1 } }, 1 },
            { "x.lokr_w2_a", { 2, { 2, 2 } }, 1 },
            { "x.lokr_w2_b", { 2, { 2, 27 } }, 1 },
            { "x.lokr_t2", { 2, { 2, 2 } }, 1 } },
          CONV,
          BERTH_EFORMAT,
          "'x.lokr_t2' is no [2, 2, kh, kw]" },
        { { { "x.lokr_w1_a", { 2, { 2, 1 } }, 1 },
            { "x.lokr_w1_b", { 2, { 1, 3 } }, 1 },
            { "x.lokr_w2", { 2, { 2, 2 } }, 1 },
            { "x.alpha", { 1, { 2 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.alpha' is no single number" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refuse(&cases[i]);
}

static void dora_that_does_not_fit(void **state)
{
    (void)state;
#define UP                                                                                         \
    {                                                                                              \
        "x.lora_up.weight", { 2, { 4, 2 } }, 1                                                     \
    }
#define DOWN                                                                                       \
    {                                                                                              \
        "x.lora_down.weight", { 2, { 2, 6 } }, 1                                                   \
    }
    static const struct wrong cases[] = {
        { { { "x.dora_scale", { 2, { 4, 1 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.dora_scale' is there and no factors beside it: the adapter is incomplete" },
        { { UP, DOWN, { "x.dora_scale", { 2, { 5, 1 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.dora_scale' [5, 1] does not fit a weight of shape [4, 6]" },
        { { UP, DOWN, { "x.dora_scale", { 1, { 4 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "[4] does not" },
        { { UP, DOWN, { "x.dora_scale", { 0, { 0 } }, 1 } }, LINEAR, BERTH_EFORMAT, "[] does not" },
        { { UP, DOWN, { "x.dora_scale", { 2, { 4, 6 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "[4, 6] does" },
        { { UP, DOWN, { "x.dora_scale", { 2, { 2, 3 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "[2, 3] does" },
        { { UP, DOWN, { "x.dora_scale", { 2, { 1, 0 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "[1, 0] does" },
        { { { "x.lora_up.weight", { 2, { 4, 2 } }, 1 },
            { "x.lora_down.weight", { 4, { 2, 3, 3, 3 } }, 1 },
            { "x.dora_scale", { 2, { 1, 27 } }, 1 } },
          CONV,
          BERTH_EFORMAT,
          "'x.dora_scale' [1, 27] does not fit a weight of shape [4, 3, 3, 3]" },
        { { { "x.lora_up.weight", { 2, { 4, 2 } }, 1 },
            { "x.lora_down.weight", { 2, { 2, 1 } }, 1 },
            { "x.dora_scale", { 2, { 4, 1 } }, 1 } },
          { 1, { 4 } },
          BERTH_EFORMAT,
          "does not fit a weight of shape [4]" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refuse(&cases[i]);
}

/* A file's one change for several tensors of ours: norms of columns would need them all. */
static void dora_of_a_part(void **state)
{
    (void)state;
    static const struct lora_name name = { .base = "x", .key = KEY, .from = 2, .of = 6 };
    const struct lora_tensor t[] = { { "x.lora_up.weight", { 2, { 6, 2 } }, 1 },
                                     DOWN,
                                     { "x.dora_scale", { 2, { 1, 6 } }, 1 } };
    struct str bytes = { 0 };
    struct res_adapter *a;
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    const struct shape w = LINEAR;
    berth_err err = { 0 };
    lora_bytes(t, ARRAY_LEN(t), &bytes);
    assert_ok(lora_from_bytes(&bytes, &(struct lora_names) { &name, 1 }, NULL, &a, &err), err);
    assert_fails(
        a->ops->terms(a, KEY, strlen(KEY), &w, 1, &tmp, &terms, &err), err, BERTH_EUNSUPPORTED,
        "'x.dora_scale' [1, 6] has a size for every input of a weight that is several here");
    res_adapter_unref(a);
    vec_release(&terms);
    arena_release(&tmp);
    str_release(&bytes);
}

static void terms_survive_oom(void **state)
{
    (void)state;
    static const struct lora_name names[] = { { .base = "x", .key = KEY },
                                              { .base = "t", .key = "t", .transpose = true } };
    static const struct {
        struct lora_tensor t[7];
        struct shape weight;
        const char *key;
    } files[] = {
        { { { "x.hada_w1_a", { 2, { 2, 4 } }, 1 },
            { "x.hada_w1_b", { 2, { 2, 3 } }, 1 },
            { "x.hada_w2_a", { 2, { 2, 4 } }, 1 },
            { "x.hada_w2_b", { 2, { 2, 3 } }, 1 },
            { "x.hada_t1", { 4, { 2, 2, 3, 3 } }, 1 },
            { "x.hada_t2", { 4, { 2, 2, 3, 3 } }, 1 },
            { "x.dora_scale", { 4, { 4, 1, 1, 1 } }, 1 } },
          CONV,
          KEY },
        { { { "x.lokr_w1", { 2, { 2, 1 } }, 1 },
            { "x.lokr_w2_a", { 2, { 2, 2 } }, 1 },
            { "x.lokr_w2_b", { 2, { 2, 3 } }, 1 },
            { "x.lokr_t2", { 4, { 2, 2, 3, 3 } }, 1 },
            { "x.dora_scale", { 4, { 1, 3, 1, 1 } }, 1 } },
          CONV,
          KEY },
        { { { "t.lokr_w1_a", { 2, { 3, 1 } }, 1 },
            { "t.lokr_w1_b", { 2, { 1, 2 } }, 1 },
            { "t.lokr_w2", { 2, { 2, 2 } }, 1 } },
          LINEAR,
          "t" },
        { { { "x.oft_blocks", { 3, { 2, 2, 2 } }, 1 }, { "x.dora_scale", { 2, { 4, 1 } }, 1 } },
          LINEAR,
          KEY },
    };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct str bytes = { 0 };
        struct res_adapter *a;
        berth_err err = { 0 };
        berth_status s = BERTH_ENOMEM;
        size_t n = 0;
        while (n < ARRAY_LEN(files[i].t) && files[i].t[n].name)
            n++;
        lora_bytes(files[i].t, n, &bytes);
        assert_ok(lora_from_bytes(&bytes, &(struct lora_names) { names, 2 }, NULL, &a, &err), err);
        for (long k = 0; s != BERTH_OK; k++) {
            struct arena tmp = { 0 };
            struct vec terms = { .elem = sizeof(struct res_term) };
            oom_after(k);
            s = a->ops->terms(a, files[i].key, strlen(files[i].key), &files[i].weight, 1, &tmp,
                              &terms, &err);
            struct merge m = { 0 };
            if (!s && merge_matrix(&files[i].weight, &m.rows, &m.cols))
                s = merge_take(&m, &terms, 0, &tmp, &err);
            oom_off();
            if (s && (s != BERTH_ENOMEM || !err.msg[0]))
                fail_msg("file %zu, allocation %ld: %s", i, k, err.msg);
            vec_release(&terms);
            arena_release(&tmp);
        }
        res_adapter_unref(a);
        str_release(&bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs),
        cmocka_unit_test(loha),
        cmocka_unit_test(lokr),
        cmocka_unit_test(dora),
        cmocka_unit_test(loha_that_does_not_fit),
        cmocka_unit_test(lokr_that_does_not_fit),
        cmocka_unit_test(dora_that_does_not_fit),
        cmocka_unit_test(dora_of_a_part),
        cmocka_unit_test(terms_survive_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
