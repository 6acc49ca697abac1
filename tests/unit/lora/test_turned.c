/* Adapters whose change depends on the weight (OFT, BOFT, GLoRA), and DoRA as PEFT saves it,
 * against their formulas in double: random shapes, rows of a weight, strengths. Then what a file
 * may get wrong. golden.lora.kinds holds the same to ComfyUI, but for PEFT's DoRA, which it leaves
 * out. */
#include "kinds.h"

#include "support/oom.h"

#define ROUNDS 400

static struct res_adapter *open_one(struct file *f, const struct lora_name *name)
{
    struct res_adapter *a;
    berth_err err = { 0 };
    bytes_of(f);
    assert_ok(lora_from_bytes(&f->bytes, &(struct lora_names) { name, 1 }, NULL, &a, &err), err);
    assert_int_equal(lora_info(a).unknown, 0);
    return a;
}

/* One adapter of random numbers into a weight, which `apply` has changed by the formula. */
static void one_adapter(struct weight *w, struct file *f, const struct lora_name *name,
                        float strength, unsigned seed)
{
    struct res_adapter *a = open_one(f, name);
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    berth_err err = { 0 };
    assert_ok(a->ops->terms(a, KEY, strlen(KEY), &w->shape, strength, &tmp, &terms, &err), err);
    assert_int_equal(terms.n, 1);
    merge_all(w, &terms, &tmp);
    compare(w, seed);
    res_adapter_unref(a);
    str_release(&f->bytes);
    vec_release(&terms);
    arena_release(&tmp);
}

static void random_values(struct weight *w, struct shape s)
{
    w->shape = s;
    assert_true(merge_matrix(&s, &w->rows, &w->cols) && w->rows * w->cols <= MOST);
    for (uint64_t i = 0; i < w->rows * w->cols; i++)
        w->want[i] = (double)(w->base[i] = chance());
}

static float random_strength(void)
{
    static const float strengths[] = { 1, -0.7f, 0.3f };
    return strengths[roll(ARRAY_LEN(strengths))];
}

/* ---- OFT, whose change depends on the weight: (I + Q)(I - Q)^-1, block by block ---- */

#define BLOCK 96

/* m [n, 2n] with the unit matrix on its right becomes the unit matrix and the inverse. */
static void eliminate(double m[BLOCK][2 * BLOCK], size_t n)
{
    for (size_t p = 0; p < n; p++) {
        double by = m[p][p];
        for (size_t j = 0; j < 2 * n; j++)
            m[p][j] /= by;
        for (size_t i = 0; i < n; i++) {
            double f = m[i][p];
            for (size_t j = 0; i != p && j < 2 * n; j++)
                m[i][j] -= f * m[p][j];
        }
    }
}

/* R of one block. */
static void rotation(const float *b, size_t n, double by, double r[BLOCK][BLOCK])
{
    static double m[BLOCK][2 * BLOCK], q[BLOCK][BLOCK];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            q[i][j] = by * ((double)b[i * n + j] - (double)b[j * n + i]);
            m[i][j] = (i == j) - q[i][j];
            m[i][n + j] = i == j;
        }
    eliminate(m, n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            r[i][j] = m[i][n + j];
            for (size_t k = 0; k < n; k++)
                r[i][j] += q[i][k] * m[k][n + j];
        }
}

/* Blocks of the file for rows [from, from + rows) of `of`; by: how much Q is shortened. */
static void apply_oft(struct weight *w, uint64_t row, uint64_t rows, const float *blocks, size_t n,
                      double by, double strength)
{
    static double r[BLOCK][BLOCK], was[MOST];
    memcpy(was, w->want, sizeof was);
    for (uint64_t at = 0; at < rows; at += n) {
        rotation(blocks + at * n, n, by, r);
        for (size_t i = 0; i < n; i++)
            for (uint64_t c = 0; c < w->cols; c++) {
                double sum = -was[(row + at + i) * w->cols + c];
                for (size_t k = 0; k < n; k++)
                    sum += r[k][i] * was[(row + at + k) * w->cols + c];
                w->want[(row + at + i) * w->cols + c] += strength * strength * sum;
            }
    }
}

static void oft_round(unsigned seed)
{
    static const float strengths[] = { 1, -0.7f, 0.3f };
    static struct weight w;
    static struct file f[2];
    struct res_adapter *a[2];
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    berth_err err = { 0 };
    mt19937_init(&dice, seed);
    const size_t n = 1 + (size_t)roll(seed % 5 ? 12 : BLOCK),
                 count = 1 + (size_t)roll(n > 12 ? 1 : 6);
    const bool part = roll(2);
    const uint64_t rows = n * count, above = part ? roll(3) : 0, below = part ? roll(3) : 0;
    w.shape = (struct shape) { 2, { above + rows + below, 1 + roll(40) } };
    if (above + rows + below > MOST / w.shape.dim[1])
        w.shape.dim[1] = MOST / (above + rows + below);
    assert_true(merge_matrix(&w.shape, &w.rows, &w.cols));
    for (uint64_t i = 0; i < w.rows * w.cols; i++)
        w.want[i] = (double)(w.base[i] = chance());
    for (size_t k = 0; k < 2; k++) {
        const float strength = strengths[roll(ARRAY_LEN(strengths))];
        const uint64_t from = part && n <= 12 ? n * roll(2) : 0, of = from ? from + rows : 0;
        const struct lora_name name = {
            .base = "x", .key = KEY, .row = above, .rows = part ? rows : 0, .from = from, .of = of
        };
        const struct lora_names names = { &name, 1 };
        f[k] = (struct file) { 0 };
        const float *b = add(&f[k], "oft_blocks", (struct shape) { 3, { count + from / n, n, n } });
        double sum = 0, by = 1;
        for (size_t i = 0; i < (count + from / n) * n * n; i++) {
            const float v = b[i] - b[i / (n * n) * n * n + i % n * n + i / n % n];
            sum += (double)v * (double)v;
        }
        if (roll(2)) {
            const double most = 3 * (double)add(&f[k], "alpha", (struct shape) { 0, { 0 } })[0];
            f[k].t[1].v[0] *= 3;
            by = most > 0 && sqrt(sum) > most ? most / sqrt(sum) : 1;
        }
        if (roll(2))
            add(&f[k], "rescale", (struct shape) { 2, { rows, 1 } }); /* plays no part */
        apply_oft(&w, above, rows, b + from * n, n, by, (double)strength);
        bytes_of(&f[k]);
        assert_ok(lora_from_bytes(&f[k].bytes, &names, NULL, &a[k], &err), err);
        assert_int_equal(lora_info(a[k]).unknown, 0);
        assert_ok(a[k]->ops->terms(a[k], KEY, strlen(KEY), &w.shape, strength, &tmp, &terms, &err),
                  err);
    }
    merge_all(&w, &terms, &tmp);
    compare(&w, seed);
    for (size_t k = 0; k < 2; k++) {
        res_adapter_unref(a[k]);
        str_release(&f[k].bytes);
    }
    vec_release(&terms);
    arena_release(&tmp);
}

static void oft(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        oft_round(i);
}

/* ---- BOFT: stages of blocks over rows in another order ---- */

/* Rows [row, row + rows) of w, one stage: each block becomes soft . itself. */
static void apply_stage(struct weight *w, uint64_t row, uint64_t rows, const float *blocks,
                        size_t n, uint64_t k, double by, double strength)
{
    static double r[BLOCK][BLOCK], was[MOST];
    uint64_t order[MOST], at = 0;
    memcpy(was, w->want, sizeof was);
    for (uint64_t a = 0; a < rows; a += 2 * k)
        for (uint64_t x = 0; x < k; x++)
            for (uint64_t g = 0; g < 2; g++)
                order[at++] = row + a + g * k + x;
    for (at = 0; at < rows; at += n) {
        rotation(blocks + at * n, n, by, r);
        for (size_t i = 0; i < n; i++)
            for (uint64_t c = 0; c < w->cols; c++) {
                double sum = (1 - strength) * was[order[at + i] * w->cols + c];
                for (size_t j = 0; j < n; j++)
                    sum += strength * r[i][j] * was[order[at + j] * w->cols + c];
                w->want[order[at + i] * w->cols + c] = sum;
            }
    }
}

static void boft_round(unsigned seed)
{
    static struct weight w;
    static struct file f;
    static double was[MOST];
    mt19937_init(&dice, seed);
    f = (struct file) { 0 };
    const size_t n = 2 + 2 * (size_t)roll(4), stages = 1 + (size_t)roll(3);
    const uint64_t rows = (n << stages) / 2 * (1 + roll(2)), k = rows / n;
    const bool part = roll(2);
    const uint64_t above = part ? roll(3) : 0, below = part ? roll(3) : 0;
    const float strength = random_strength();
    if (rows % n) /* of one block a half */
        return;
    random_values(&w, (struct shape) { 2, { above + rows + below, 1 + roll(20) } });
    const float *b = add(&f, "oft_blocks", (struct shape) { 4, { stages, k, n, n } });
    double sum = 0, by = 1;
    for (size_t i = 0; i < stages * rows * n; i++) {
        const float v = b[i] - b[i / (n * n) * n * n + i % n * n + i / n % n];
        sum += (double)v * (double)v;
    }
    if (roll(2)) {
        const double most = (double)add(&f, "alpha", (struct shape) { 0, { 0 } })[0];
        by = most > 0 && sqrt(sum) > most ? most / sqrt(sum) : 1;
    }
    const float *rescale = roll(2) ? add(&f, "rescale", (struct shape) { 2, { rows, 1 } }) : NULL;
    memcpy(was, w.want, sizeof was);
    for (size_t s = 0; s < stages; s++)
        apply_stage(&w, above, rows, b + s * rows * n, n, (uint64_t)(n / 2) << s, by,
                    (double)strength);
    for (uint64_t i = above * w.cols; i < (above + rows) * w.cols; i++) {
        double c = w.want[i] * (rescale ? (double)rescale[i / w.cols - above] : 1);
        w.want[i] = was[i] + (double)strength * (c - was[i]);
    }
    const struct lora_name name = {
        .base = "x", .key = KEY, .row = above, .rows = part ? rows : 0
    };
    one_adapter(&w, &f, &name, strength, seed);
}

static void boft(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        boft_round(i);
}

/* ---- GLoRA: W . A + B ---- */

/* m [rows, cols] = a [rows, n] . b [n, cols] */
static void times(const float *a, const float *b, uint64_t rows, uint64_t n, uint64_t cols,
                  double *m)
{
    for (uint64_t i = 0; i < rows * cols; i++) {
        m[i] = 0;
        for (uint64_t k = 0; k < n; k++)
            m[i] += (double)a[i / cols * n + k] * (double)b[k * cols + i % cols];
    }
}

static void glora_round(unsigned seed)
{
    static struct weight w;
    static struct file f;
    static double turn[MOST], more[MOST], was[MOST];
    mt19937_init(&dice, seed);
    f = (struct file) { 0 };
    const uint64_t kernel = roll(2) ? 1 : 9, in = 2 + roll(kernel == 1 ? 20 : 8),
                   r = 1 + roll(in - 1);
    const uint64_t above = roll(3), rows = 1 + roll(20), cols = in * kernel;
    const bool old = roll(2), of = roll(2);
    const uint64_t from = of ? 1 + roll(3) : 0, all = from + rows; /* of the change */
    const uint64_t width = old ? cols : in;                        /* of what W is multiplied by */
    const struct lora_name name = {
        .base = "x", .key = KEY, .row = above, .rows = rows, .from = from, .of = of ? all : 0
    };
    const float strength = random_strength();
    random_values(&w, kernel == 1 ? flat(above + rows + 1, in)
                                  : (struct shape) { 4, { above + rows + 1, in, 3, 3 } });
    const float *a1 = add(&f, "a1.weight", old ? flat(r, width) : flat(width, r));
    const float *a2 = add(&f, "a2.weight", old ? flat(width, r) : flat(r, width));
    const float *b1 = add(&f, "b1.weight", old ? flat(r, cols) : flat(all, r));
    const float *b2 = add(&f, "b2.weight", old ? flat(all, r) : flat(r, cols));
    double scale =
        roll(2) ? (double)add(&f, "alpha", (struct shape) { 0, { 0 } })[0] / (double)r : 1;
    if (old && r == all && width == all) /* read as the new form */
        return;
    times(old ? a2 : a1, old ? a1 : a2, width, r, width, turn);
    times(old ? b2 : b1, old ? b1 : b2, all, r, cols, more);
    memcpy(was, w.want, sizeof was);
    for (uint64_t i = above * cols; i < (above + rows) * cols; i++) {
        const uint64_t each = cols / width, at = i % cols;
        double sum = more[(i / cols - above + from) * cols + at];
        for (uint64_t k = 0; k < width; k++)
            sum += was[i / cols * cols + k * each + at % each] * turn[k * width + at / each];
        w.want[i] += (double)strength * scale * sum;
    }
    one_adapter(&w, &f, &name, strength, seed);
}

static void glora(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        glora_round(i);
}

/* ---- DoRA as PEFT saves it: sizes of rows, and norms after the change ---- */

static void peft_round(unsigned seed)
{
    static const char *const suffix[] = { "lora_magnitude_vector", "lora_magnitude_vector.weight",
                                          "lora_magnitude_vector.default",
                                          "lora_magnitude_vector.default.weight" };
    static struct weight w;
    static struct file f;
    mt19937_init(&dice, seed);
    f = (struct file) { 0 };
    const uint64_t rows = 1 + roll(20), in = 1 + roll(20), r = 1 + roll(4), above = roll(3);
    const uint64_t kernel = roll(2) ? 1 : 9, cols = in * kernel, from = roll(3);
    const struct lora_name name = { .base = "x",
                                    .key = KEY,
                                    .row = above,
                                    .rows = rows,
                                    .from = from,
                                    .of = from ? from + rows : 0 };
    const float strength = random_strength();
    random_values(&w, kernel == 1 ? flat(above + rows + 1, in)
                                  : (struct shape) { 4, { above + rows + 1, in, 3, 3 } });
    const float *up = add(&f, "lora_B.weight", flat(from + rows, r));
    const float *down = add(&f, "lora_A.weight", flat(r, cols));
    const float *size = add(&f, suffix[roll(4)],
                            kernel == 1 ? (struct shape) { 1, { from + rows } }
                                        : (struct shape) { 4, { 1, from + rows, 1, 1 } });
    for (uint64_t o = 0; o < rows; o++) {
        double c[256], norm = 0;
        for (uint64_t i = 0; i < cols; i++) {
            c[i] = w.want[(above + o) * cols + i];
            for (uint64_t k = 0; k < r; k++)
                c[i] += (double)up[(from + o) * r + k] * (double)down[k * cols + i];
            norm += c[i] * c[i];
        }
        for (uint64_t i = 0; i < cols; i++) {
            double *to = &w.want[(above + o) * cols + i];
            *to += (double)strength * (c[i] * (double)size[from + o] / sqrt(norm) - *to);
        }
    }
    one_adapter(&w, &f, &name, strength, seed);
}

static void peft_dora(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        peft_round(i);
}

/* ---- what files get wrong ---- */

static void oft_that_does_not_fit(void **state)
{
    (void)state;
    static const struct wrong cases[] = {
        { { { "x.oft_blocks", { 3, { 2, 3, 3 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.oft_blocks' [2, 3, 3] does not fit a weight of shape [4, 6]" },
        { { { "x.oft_blocks", { 3, { 2, 2, 3 } }, 1 } }, LINEAR, BERTH_EFORMAT, "does not fit" },
        { { { "x.oft_blocks", { 3, { 4, 0, 0 } }, 1 } }, LINEAR, BERTH_EFORMAT, "does not fit" },
        { { { "x.oft_blocks", { 2, { 4, 4 } }, 1 } }, LINEAR, BERTH_EFORMAT, "does not fit" },
        { { { "x.oft_diag", { 2, { 4, 4 } }, 1 } }, LINEAR, BERTH_EUNSUPPORTED, "is of kind OFT" },
        { { { "x.rescale", { 2, { 4, 1 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.rescale' is there and no .oft_blocks beside it" },
        { { { "x.oft_blocks", { 3, { 2, 2, 2 } }, 1 }, { "x.alpha", { 1, { 2 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.alpha' is no single number" },
        { { { "x.oft_blocks", { 3, { 32769, 1, 1 } }, 1 } },
          { 2, { 32769, 1 } },
          BERTH_EUNSUPPORTED,
          "more than 32768 rows" },
        { { { "x.oft_blocks", { 4, { 1, 2, 3, 3 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.oft_blocks' [1, 2, 3, 3] does not fit a weight of shape [4, 6]" },
        { { { "x.oft_blocks", { 4, { 3, 2, 2, 2 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "[3, 2, 2, 2] does not fit" }, /* the third stage exchanges rows four apart */
        { { { "x.oft_blocks", { 4, { 0, 2, 2, 2 } }, 1 } }, LINEAR, BERTH_EFORMAT, "does not fit" },
        { { { "x.oft_blocks", { 4, { 1, 4, 1, 1 } }, 1 } }, LINEAR, BERTH_EFORMAT, "does not fit" },
        { { { "x.oft_blocks", { 4, { 1, 2, 2, 2 } }, 1 }, { "x.rescale", { 2, { 1, 6 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.rescale' [1, 6] does not fit" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refuse(&cases[i]);
}

#define GLORA(a1, a2, b1, b2)                                                                      \
    {                                                                                              \
        { "x.a1.weight", a1, 1 }, { "x.a2.weight", a2, 1 }, { "x.b1.weight", b1, 1 },              \
            { "x.b2.weight", b2, 1 },                                                              \
    }
#define M(r, c)                                                                                    \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            r, c                                                                                   \
        }                                                                                          \
    }

static void glora_that_does_not_fit(void **state)
{
    (void)state;
    static const struct wrong cases[] = {
        { { { "x.a1.weight", M(6, 2), 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.a1.weight' is there and no .a2.weight beside it: the adapter is incomplete" },
        { GLORA(M(6, 2), M(3, 6), M(4, 2), M(2, 6)), LINEAR, BERTH_EFORMAT,
          "'x.a1.weight' [6, 2] does not fit a weight of shape [4, 6]" },
        { GLORA(M(5, 2), M(2, 6), M(4, 2), M(2, 6)), LINEAR, BERTH_EFORMAT,
          "'x.a1.weight' [5, 2]" },
        { GLORA(M(6, 2), M(2, 5), M(4, 2), M(2, 6)), LINEAR, BERTH_EFORMAT,
          "'x.a2.weight' [2, 5]" },
        { GLORA(M(6, 2), M(2, 6), M(5, 2), M(2, 6)), LINEAR, BERTH_EFORMAT,
          "'x.b1.weight' [5, 2]" },
        { GLORA(M(6, 2), M(2, 6), M(4, 2), M(2, 7)), LINEAR, BERTH_EFORMAT,
          "'x.b2.weight' [2, 7]" },
        { GLORA(M(2, 6), M(6, 2), M(2, 6), M(5, 2)), LINEAR, BERTH_EFORMAT,
          "'x.b2.weight' [5, 2]" },
        { GLORA(M(6, 0), M(0, 6), M(4, 0), M(0, 6)), LINEAR, BERTH_EFORMAT, "does not fit" },
        { GLORA(M(1, 2), M(2, 1), M(4, 2), M(2, 1)),
          { 1, { 4 } },
          BERTH_EFORMAT,
          "does not fit a weight of shape [4]" },
        { GLORA(M(32769, 1), M(1, 32769), M(1, 1), M(1, 32769)),
          { 2, { 1, 32769 } },
          BERTH_EUNSUPPORTED,
          "'x.a1.weight' [32769, 1]: GLoRA of more than 32768 columns" },
        { GLORA(M(2, 8193), M(8193, 2), M(1, 8193), M(8193, 2)),
          { 2, { 1, 2 } },
          BERTH_EUNSUPPORTED,
          "a rank above 8192" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refuse(&cases[i]);
}

static void peft_dora_that_does_not_fit(void **state)
{
    (void)state;
    static const struct wrong cases[] = {
        { { { "x.lora_magnitude_vector", { 1, { 4 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.lora_magnitude_vector' is there and no factors beside it" },
        { { { "x.lora_B.weight", M(4, 2), 1 },
            { "x.lora_A.weight", M(2, 6), 1 },
            { "x.lora_magnitude_vector", { 1, { 6 } }, 1 } },
          LINEAR,
          BERTH_EFORMAT,
          "'x.lora_magnitude_vector' [6] does not fit a weight of shape [4, 6]" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refuse(&cases[i]);
}

/* Rows of a block that are not all there, or not in their order, cannot be mixed. */
static void oft_of_rows_kept_otherwise(void **state)
{
    (void)state;
    static const struct {
        struct lora_name name;
        struct shape blocks;
    } cases[] = {
        { { .base = "x", .key = KEY, .transpose = true }, { 3, { 3, 2, 2 } } },
        { { .base = "x", .key = KEY, .swap = true }, { 3, { 2, 2, 2 } } },
        { { .base = "x", .key = KEY, .from = 1, .of = 6 }, { 3, { 3, 2, 2 } } },
        { { .base = "x", .key = KEY, .from = 3, .of = 9 }, { 3, { 3, 3, 3 } } },
        { { .base = "x", .key = KEY, .swap = true }, { 4, { 1, 2, 2, 2 } } },
        { { .base = "x", .key = KEY, .of = 8 }, { 4, { 1, 4, 2, 2 } } },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct lora_tensor t = { "x.oft_blocks", cases[i].blocks, 1 };
        struct str bytes = { 0 };
        struct res_adapter *a;
        struct arena tmp = { 0 };
        struct vec terms = { .elem = sizeof(struct res_term) };
        const struct shape w = LINEAR;
        berth_err err = { 0 };
        lora_bytes(&t, 1, &bytes);
        assert_ok(
            lora_from_bytes(&bytes, &(struct lora_names) { &cases[i].name, 1 }, NULL, &a, &err),
            err);
        assert_fails(a->ops->terms(a, KEY, strlen(KEY), &w, 1, &tmp, &terms, &err), err,
                     BERTH_EUNSUPPORTED, "OFT of rows that the model keeps otherwise");
        res_adapter_unref(a);
        vec_release(&terms);
        arena_release(&tmp);
        str_release(&bytes);
    }
}

/* No tile has all rows and all columns. */
static void rows_and_columns_are_not_mixed_together(void **state)
{
    (void)state;
    static const struct lora_name name[] = { { .base = "x", .key = KEY },
                                             { .base = "y", .key = KEY, .rows = 2 } };
    const struct lora_tensor t[] = {
        { "x.oft_blocks", { 3, { 2, 2, 2 } }, 1 },
        { "y.a1.weight", M(6, 1), 1 },
        { "y.a2.weight", M(1, 6), 1 },
        { "y.b1.weight", M(2, 1), 1 },
        { "y.b2.weight", M(1, 6), 1 },
    };
    struct str bytes = { 0 };
    struct res_adapter *a;
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    struct merge m = { .rows = 4, .cols = 6 };
    const struct shape w = LINEAR;
    berth_err err = { 0 };
    lora_bytes(t, ARRAY_LEN(t), &bytes);
    assert_ok(lora_from_bytes(&bytes, &(struct lora_names) { name, 2 }, NULL, &a, &err), err);
    assert_ok(a->ops->terms(a, KEY, strlen(KEY), &w, 1, &tmp, &terms, &err), err);
    assert_int_equal(terms.n, 2);
    assert_fails(merge_take(&m, &terms, 0, &tmp, &err), err, BERTH_EUNSUPPORTED,
                 "rows (OFT, BOFT) and another its columns (GLoRA)");
    res_adapter_unref(a);
    vec_release(&terms);
    arena_release(&tmp);
    str_release(&bytes);
}

static void terms_survive_oom(void **state)
{
    (void)state;
    static const struct wrong files[] = {
        { GLORA(M(6, 2), M(2, 6), M(4, 2), M(2, 6)), LINEAR, BERTH_OK, "" },
        { { { "x.oft_blocks", { 4, { 1, 2, 2, 2 } }, 1 },
            { "x.rescale", { 2, { 4, 1 } }, 1 },
            { "x.dora_scale", { 2, { 1, 6 } }, 1 } },
          LINEAR,
          BERTH_OK,
          "" },
        { { { "x.lora_B.weight", M(4, 2), 1 },
            { "x.lora_A.weight", M(2, 6), 1 },
            { "x.lora_magnitude_vector", { 1, { 4 } }, 1 } },
          LINEAR,
          BERTH_OK,
          "" },
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
        assert_ok(lora_from_bytes(&bytes, &only_x, NULL, &a, &err), err);
        for (long k = 0; s != BERTH_OK; k++) {
            struct arena tmp = { 0 };
            struct vec terms = { .elem = sizeof(struct res_term) };
            struct merge m = { .rows = 4, .cols = 6 };
            oom_after(k);
            s = a->ops->terms(a, KEY, strlen(KEY), &files[i].weight, 1, &tmp, &terms, &err);
            if (!s)
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
        cmocka_unit_test(oft),
        cmocka_unit_test(boft),
        cmocka_unit_test(glora),
        cmocka_unit_test(peft_dora),
        cmocka_unit_test(oft_that_does_not_fit),
        cmocka_unit_test(oft_of_rows_kept_otherwise),
        cmocka_unit_test(glora_that_does_not_fit),
        cmocka_unit_test(peft_dora_that_does_not_fit),
        cmocka_unit_test(rows_and_columns_are_not_mixed_together),
        cmocka_unit_test(terms_survive_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
