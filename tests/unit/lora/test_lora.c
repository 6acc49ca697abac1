/* Adapter files: every family of names, every kind, what is refused, what is ignored, and whether
 * the terms are the formula of lora.md 5. */
#include "lora_file.h"

#include "support/oom.h"
#include "support/tmp.h"

#define KEY "model.layer.weight"
#define BIAS "model.layer.bias"

static const struct lora_name one_name[] = { { .base = "x", .key = KEY } };
static const struct lora_names one = { one_name, 1 };

static const struct shape W = { 2, { 4, 6 } }; /* the weight most tests patch */

struct opened {
    struct str file;
    struct res_adapter *a;
    struct arena tmp;
    struct vec terms;
    berth_err err;
};

static berth_status open_file(struct opened *o, const struct lora_tensor *t, size_t n,
                              const struct lora_names *names, const struct log *log)
{
    *o = (struct opened) { .terms = { .elem = sizeof(struct res_term) } };
    lora_bytes(t, n, &o->file);
    return lora_from_bytes(&o->file, names, log, &o->a, &o->err);
}

static berth_status terms_of(struct opened *o, const char *key, const struct shape *s,
                             float strength)
{
    return o->a->ops->terms(o->a, key, strlen(key), s, strength, &o->tmp, &o->terms, &o->err);
}

static void close_file(struct opened *o)
{
    res_adapter_unref(o->a);
    vec_release(&o->terms);
    arena_release(&o->tmp);
    str_release(&o->file);
}

static const struct res_term *term(const struct opened *o, size_t i)
{
    return vec_at(&o->terms, i);
}

#define OPEN(o, tensors, names)                                                                    \
    assert_ok(open_file((o), (tensors), ARRAY_LEN(tensors), (names), NULL), (o)->err)

/* ---- pairs ---- */

static void every_family_of_names(void **state)
{
    (void)state;
    static const char *const families[][2] = {
        { "x.lora_up.weight", "x.lora_down.weight" },
        { "x_lora.up.weight", "x_lora.down.weight" },
        { "x.lora_B.weight", "x.lora_A.weight" },
        { "x.lora.up.weight", "x.lora.down.weight" },
        { "x.lora_B", "x.lora_A" },
        { "x.lora_linear_layer.up.weight", "x.lora_linear_layer.down.weight" },
        { "x.lora_B.default.weight", "x.lora_A.default.weight" },
    };
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        const struct lora_tensor t[] = { { families[f][0], { 2, { 4, 2 } }, 1 },
                                         { families[f][1], { 2, { 2, 6 } }, 50 } };
        struct opened o;
        OPEN(&o, t, &one);
        assert_true(o.a->ops->touches(o.a, KEY, strlen(KEY)));
        assert_false(o.a->ops->touches(o.a, BIAS, strlen(BIAS)));
        assert_ok(terms_of(&o, KEY, &W, 0.5f), o.err);
        assert_int_equal(o.terms.n, 1);
        const struct res_term *x = term(&o, 0);
        assert_int_equal(x->kind, TERM_LOWRANK);
        assert_true(x->row == 0 && x->rows == 4 && x->cols == 6 && x->rank == 2);
        assert_true(x->scale == 0.5f); /* no alpha: 1, not 1/r */
        for (size_t i = 0; i < 8; i++)
            assert_true(x->up[i] == lora_value(&t[0], i));
        for (size_t i = 0; i < 12; i++)
            assert_true(x->down[i] == lora_value(&t[1], i));
        assert_int_equal(lora_info(o.a).unknown, 0);
        close_file(&o);
    }
}

static void the_first_family_is_used(void **state)
{
    (void)state;
    const struct lora_tensor t[] = { { "x.lora_B.weight", { 2, { 4, 1 } }, 7 },
                                     { "x.lora_A.weight", { 2, { 1, 6 } }, 7 },
                                     { "x.lora_up.weight", { 2, { 4, 1 } }, 3 },
                                     { "x.lora_down.weight", { 2, { 1, 6 } }, 3 } };
    struct opened o;
    OPEN(&o, t, &one);
    assert_ok(terms_of(&o, KEY, &W, 1), o.err);
    assert_int_equal(o.terms.n, 1);
    assert_true(term(&o, 0)->up[0] == 3);
    close_file(&o);
}

static void alpha_over_rank(void **state)
{
    (void)state;
    const struct lora_tensor t[] = { { "x.lora_up.weight", { 2, { 4, 2 } }, 1 },
                                     { "x.lora_down.weight", { 2, { 2, 6 } }, 1 },
                                     { "x.alpha", { 0, { 0 } }, 3 } };
    struct opened o;
    OPEN(&o, t, &one);
    assert_ok(terms_of(&o, KEY, &W, -0.5f), o.err);
    assert_true(term(&o, 0)->scale == -0.75f);
    close_file(&o);
}

static void convolutions(void **state)
{
    (void)state;
    const struct shape conv = { 4, { 4, 3, 3, 3 } };
    const struct lora_tensor t[] = { { "x.lora_up.weight", { 4, { 4, 2, 1, 1 } }, 1 },
                                     { "x.lora_down.weight", { 4, { 2, 3, 3, 3 } }, 1 } };
    struct opened o;
    OPEN(&o, t, &one);
    assert_ok(terms_of(&o, KEY, &conv, 1), o.err);
    assert_true(term(&o, 0)->cols == 27 && term(&o, 0)->rank == 2);
    close_file(&o);
}

static void mid_is_folded_into_down(void **state)
{
    (void)state;
    enum { OUT = 4, R = 2, IN = 3, K = 9 };
    const struct shape conv = { 4, { OUT, IN, 3, 3 } };
    const struct lora_tensor t[] = { { "x.lora_up.weight", { 4, { OUT, R, 1, 1 } }, 1 },
                                     { "x.lora_down.weight", { 4, { R, IN, 1, 1 } }, -2 },
                                     { "x.lora_mid.weight", { 4, { R, R, 3, 3 } }, 0.5f } };
    struct opened o;
    OPEN(&o, t, &one);
    assert_ok(terms_of(&o, KEY, &conv, 1), o.err);
    const struct res_term *x = term(&o, 0);
    assert_true(x->rank == R && x->cols == IN * K);
    for (size_t out = 0; out < OUT; out++)
        for (size_t i = 0; i < IN; i++)
            for (size_t k = 0; k < K; k++) {
                float want = 0, got = 0; /* sums of few exact eighths: exact in any order */
                for (size_t m = 0; m < R; m++)
                    for (size_t n = 0; n < R; n++)
                        want += lora_value(&t[0], out * R + m) *
                                lora_value(&t[2], (m * R + n) * K + k) *
                                lora_value(&t[1], n * IN + i);
                for (size_t m = 0; m < R; m++)
                    got += x->up[out * R + m] * x->down[m * IN * K + i * K + k];
                assert_true(got == want);
            }
    close_file(&o);
}

/* ---- differences ---- */

static void diff_bias_norm_and_set(void **state)
{
    (void)state;
    static const struct lora_name names[] = { { .base = "x", .key = KEY },
                                              { .base = "n", .key = "norm.weight" },
                                              { .base = "s", .key = "set.scale" } };
    const struct lora_tensor t[] = { { "x.diff", { 2, { 4, 6 } }, 1 },
                                     { "x.diff_b", { 1, { 4 } }, 2 },
                                     { "n.w_norm", { 1, { 5 } }, 3 },
                                     { "n.b_norm", { 1, { 5 } }, 4 },
                                     { "s.set_weight", { 1, { 3 } }, 5 } };
    const struct {
        const char *key;
        struct shape shape;
        enum res_term_kind kind;
        float first;
    } want[] = {
        { KEY, { 2, { 4, 6 } }, TERM_ADD, 1 },        { BIAS, { 1, { 4 } }, TERM_ADD, 2 },
        { "norm.weight", { 1, { 5 } }, TERM_ADD, 3 }, { "norm.bias", { 1, { 5 } }, TERM_ADD, 4 },
        { "set.scale", { 1, { 3 } }, TERM_SET, 5 },
    };
    struct opened o;
    OPEN(&o, t, (&(struct lora_names) { names, 3 }));
    assert_int_equal(lora_info(o.a).unknown, 0);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        o.terms.n = 0;
        assert_ok(terms_of(&o, want[i].key, &want[i].shape, 0.25f), o.err);
        assert_int_equal(o.terms.n, 1);
        assert_int_equal(term(&o, 0)->kind, want[i].kind);
        assert_true(term(&o, 0)->dense[0] == want[i].first && term(&o, 0)->scale == 0.25f);
    }
    close_file(&o);
}

static void a_diff_of_another_shape_is_ignored(void **state)
{
    (void)state;
    const struct lora_tensor t[] = { { "x.diff", { 2, { 6, 4 } }, 1 } };
    struct opened o;
    OPEN(&o, t, &one);
    assert_ok(terms_of(&o, KEY, &W, 1), o.err);
    assert_int_equal(o.terms.n, 0);
    close_file(&o);
}

/* ---- rows ---- */

static void rows_and_swapped_halves(void **state)
{
    (void)state;
    static const struct lora_name names[] = { { .base = "q", .key = KEY, .row = 0, .rows = 2 },
                                              { .base = "v", .key = KEY, .row = 2, .rows = 2 },
                                              { .base = "swap", .key = "m.weight", .swap = true } };
    const struct lora_tensor t[] = { { "q.lora_up.weight", { 2, { 2, 1 } }, 1 },
                                     { "q.lora_down.weight", { 2, { 1, 6 } }, 1 },
                                     { "v.lora_up.weight", { 2, { 2, 1 } }, 2 },
                                     { "v.lora_down.weight", { 2, { 1, 6 } }, 1 },
                                     { "v.diff_b", { 1, { 2 } }, 9 },
                                     { "swap.lora_up.weight", { 2, { 4, 1 } }, 1 },
                                     { "swap.lora_down.weight", { 2, { 1, 6 } }, 1 } };
    struct opened o;
    OPEN(&o, t, (&(struct lora_names) { names, 3 }));
    assert_int_equal(lora_info(o.a).targets, 4);
    assert_ok(terms_of(&o, KEY, &W, 1), o.err);
    assert_int_equal(o.terms.n, 2);
    assert_true(term(&o, 0)->row == 0 && term(&o, 0)->up[0] == 1);
    assert_true(term(&o, 1)->row == 2 && term(&o, 1)->rows == 2 && term(&o, 1)->up[0] == 2);
    o.terms.n = 0;
    assert_ok(terms_of(&o, BIAS, &(struct shape) { 1, { 4 } }, 1), o.err);
    assert_true(o.terms.n == 1 && term(&o, 0)->row == 2 && term(&o, 0)->rows == 2);
    o.terms.n = 0;
    assert_ok(terms_of(&o, "m.weight", &W, 1), o.err);
    const float *up = term(&o, 0)->up;
    assert_true(up[0] == 1.25f && up[1] == 1.375f && up[2] == 1 && up[3] == 1.125f);
    assert_fails(terms_of(&o, KEY, &(struct shape) { 2, { 3, 6 } }, 1), o.err, BERTH_EFORMAT,
                 "rows 2 + 2");
    close_file(&o);
}

static void the_later_name_wins(void **state)
{
    (void)state;
    static const struct lora_name names[] = { { .base = "b", .key = KEY },
                                              { .base = "a", .key = KEY } };
    const struct lora_tensor t[] = { { "a.diff", { 2, { 4, 6 } }, 1 },
                                     { "b.lora_up.weight", { 2, { 4, 1 } }, 2 },
                                     { "b.lora_down.weight", { 2, { 1, 6 } }, 2 } };
    struct opened o;
    OPEN(&o, t, (&(struct lora_names) { names, 2 }));
    assert_ok(terms_of(&o, KEY, &W, 1), o.err);
    assert_true(o.terms.n == 1 && term(&o, 0)->kind == TERM_ADD);
    close_file(&o);
}

static void two_underscores_are_one(void **state)
{
    (void)state;
    static const struct lora_name names[] = { { .base = "lora_unet_b", .key = KEY } };
    const struct lora_tensor t[] = { { "lora_unet__b.diff", { 2, { 4, 6 } }, 1 } };
    struct opened o;
    OPEN(&o, t, (&(struct lora_names) { names, 1 }));
    assert_true(o.a->ops->touches(o.a, KEY, strlen(KEY)));
    close_file(&o);
}

/* One change of ten rows for two tensors: each takes its part. */
static void parts_of_a_change(void **state)
{
    (void)state;
    static const struct lora_name names[] = {
        { .base = "x", .key = "one", .from = 0, .of = 10 },
        { .base = "x", .key = "two", .from = 6, .of = 10 },
        { .base = "z", .key = "two", .from = 6, .of = 10 },
    };
    const struct lora_tensor t[] = { { "x.lora_up.weight", { 2, { 10, 2 } }, 0 },
                                     { "x.lora_down.weight", { 2, { 2, 6 } }, 50 },
                                     { "z.diff", { 2, { 10, 6 } }, 7 } };
    const struct shape six = { 2, { 6, 6 } }, seven = { 2, { 7, 6 } };
    struct opened o;
    OPEN(&o, t, (&(struct lora_names) { names, 2 }));
    assert_ok(terms_of(&o, "one", &six, 1), o.err);
    assert_ok(terms_of(&o, "two", &W, 1), o.err);
    assert_int_equal(o.terms.n, 2);
    assert_true(term(&o, 0)->rows == 6 && term(&o, 1)->rows == 4);
    assert_true(term(&o, 0)->up[0] == lora_value(&t[0], 0));
    assert_true(term(&o, 1)->up[0] == lora_value(&t[0], 12)); /* row 6 of rank 2 */
    assert_fails(terms_of(&o, "two", &seven, 1), o.err, BERTH_EFORMAT, "a weight of 7 rows");
    close_file(&o);
    OPEN(&o, t, (&(struct lora_names) { names + 2, 1 }));
    assert_ok(terms_of(&o, "two", &W, 1), o.err);
    assert_int_equal(o.terms.n, 1);
    assert_true(term(&o, 0)->dense[0] == lora_value(&t[2], 36));
    close_file(&o);
}

/* ---- Flux's own forms ---- */

#define DOUBLE "diffusion_model.double_blocks.0."
#define SINGLE "diffusion_model.single_blocks.0."

/* BFL's control adapters: bare paths, biases of the second factor, whole scales of norms. */
static void control_adapters(void **state)
{
    (void)state;
    static const struct lora_name names[] = {
        { .base = "diffusion_model.img_in", .key = "img_in.weight" },
        { .base = DOUBLE "img_attn.proj", .key = DOUBLE "img_attn.proj.weight" },
        { .base = SINGLE "norm.key_norm.scale", .key = SINGLE "norm.key_norm.scale" },
    };
    struct lora_tensor t[] = {
        { "img_in.lora_A.weight", { 2, { 2, 6 } }, 1 },
        { "img_in.lora_B.weight", { 2, { 4, 2 } }, 2 },
        { "img_in.lora_B.bias", { 1, { 4 } }, 3 },
        { "double_blocks.0.img_attn.proj.lora_A.weight", { 2, { 2, 6 } }, 4 },
        { "double_blocks.0.img_attn.proj.lora_B.weight", { 2, { 4, 2 } }, 5 },
        { "double_blocks.0.img_attn.proj.lora_B.bias", { 1, { 4 } }, 6 },
        { "single_blocks.0.norm.key_norm.scale", { 1, { 4 } }, 7 }
    };
    const struct shape bias = { 1, { 4 } };
    struct opened o;
    OPEN(&o, t, (&(struct lora_names) { names, ARRAY_LEN(names) }));
    assert_int_equal(lora_info(o.a).unknown, 0);
    assert_ok(terms_of(&o, "img_in.weight", &W, 1), o.err);
    assert_ok(terms_of(&o, "img_in.bias", &bias, 1), o.err);
    assert_ok(terms_of(&o, DOUBLE "img_attn.proj.weight", &W, 1), o.err);
    assert_ok(terms_of(&o, DOUBLE "img_attn.proj.bias", &bias, 1), o.err);
    assert_ok(terms_of(&o, SINGLE "norm.key_norm.scale", &bias, 1), o.err);
    static const enum res_term_kind kind[] = { TERM_LOWRANK, TERM_ADD, TERM_LOWRANK, TERM_ADD,
                                               TERM_SET };
    assert_int_equal(o.terms.n, ARRAY_LEN(kind));
    for (size_t i = 0; i < ARRAY_LEN(kind); i++)
        assert_int_equal(term(&o, i)->kind, kind[i]);
    assert_true(term(&o, 1)->dense[0] == 3 && term(&o, 3)->dense[0] == 6 &&
                term(&o, 4)->dense[0] == 7);
    close_file(&o);
    t[0].shape.dim[1] = 12; /* as they come: for an input that has the control picture beside it */
    OPEN(&o, t, (&(struct lora_names) { names, ARRAY_LEN(names) }));
    assert_int_equal(lora_widens(o.a, "img_in.weight", 13, 6), 12);
    assert_int_equal(lora_widens(o.a, "img_in.weight", 13, 12), 0);
    assert_int_equal(
        lora_widens(o.a, DOUBLE "img_attn.proj.weight", strlen(DOUBLE "img_attn.proj.weight"), 6),
        0);
    assert_int_equal(lora_widens(o.a, "other.weight", 12, 6), 0);
    const struct shape wider = { 2, { 4, 12 } };
    assert_ok(terms_of(&o, "img_in.weight", &wider, 1), o.err);
    assert_fails(terms_of(&o, "img_in.weight", &W, 1), o.err, BERTH_EUNSUPPORTED,
                 "a control LoRA: it gives the picture's input 12 values a token where the model "
                 "has 6");
    close_file(&o);
}

/* Any other file may say it, too: <base>.reshape_weight. */
static void reshaping_adapters(void **state)
{
    (void)state;
    static const struct lora_name names[] = { { .base = "x", .key = "x.weight" } };
    struct lora_tensor t[] = { { "x.lora_down.weight", { 2, { 2, 12 } }, 1 },
                               { "x.lora_up.weight", { 2, { 4, 2 } }, 2 },
                               { "x.reshape_weight", { 1, { 2 } }, 12 } };
    struct opened o;
    OPEN(&o, t, (&(struct lora_names) { names, ARRAY_LEN(names) }));
    assert_int_equal(lora_info(o.a).unknown, 0);
    assert_int_equal(lora_widens(o.a, "x.weight", 8, 6), 12);
    close_file(&o);
    struct lora_tensor plain[] = { t[0], t[1] };
    OPEN(&o, plain, (&(struct lora_names) { names, ARRAY_LEN(names) }));
    assert_int_equal(lora_widens(o.a, "x.weight", 8, 6), 0);
    close_file(&o);
}

/* XLabs and USO: adapters called after processors of attention. */
static void processors(void **state)
{
    (void)state;
    static const struct {
        const char *theirs, *base;
    } row[] = {
        { "double_blocks.0.processor.qkv_lora1", DOUBLE "img_attn.qkv" },
        { "double_blocks.0.processor.qkv_lora2", DOUBLE "txt_attn.qkv" },
        { "double_blocks.0.processor.proj_lora1", DOUBLE "img_attn.proj" },
        { "double_blocks.0.processor.proj_lora2", DOUBLE "txt_attn.proj" },
        { "single_blocks.0.processor.qkv_lora", SINGLE "linear1_qkv" },
        { "single_blocks.0.processor.proj_lora", SINGLE "linear2" },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char up[96], down[96];
        const struct lora_name name = { .base = row[i].base, .key = KEY };
        snprintf(up, sizeof up, "%s.up.weight", row[i].theirs);
        snprintf(down, sizeof down, "%s.down.weight", row[i].theirs);
        const struct lora_tensor t[] = { { up, { 2, { 4, 2 } }, 1 }, { down, { 2, { 2, 6 } }, 2 } };
        struct opened o;
        OPEN(&o, t, (&(struct lora_names) { &name, 1 }));
        assert_int_equal(lora_info(o.a).unknown, 0);
        assert_ok(terms_of(&o, KEY, &W, 1), o.err);
        assert_int_equal(o.terms.n, 1);
        assert_true(term(&o, 0)->up[0] == 1 && term(&o, 0)->down[0] == 2);
        close_file(&o);
    }
}

/* ---- what is refused, and what is ignored ---- */

static void other_kinds_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const kinds[][2] = { { "x.oft_diag", "OFT in diagonal form" } };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const struct lora_tensor t[] = { { kinds[i][0], { 1, { 4 } }, 1 } };
        struct opened o;
        assert_fails(open_file(&o, t, 1, &one, NULL), o.err, BERTH_EUNSUPPORTED, kinds[i][1]);
        assert_non_null(strstr(o.err.msg, kinds[i][0]));
        assert_non_null(strstr(o.err.msg, "test.safetensors"));
        assert_null(o.a);
        close_file(&o);
        /* Nobody asks for it: then it is only unknown. */
        assert_ok(open_file(&o, t, 1, &(struct lora_names) { NULL, 0 }, NULL), o.err);
        assert_int_equal(lora_info(o.a).unknown, 1);
        close_file(&o);
    }
}

static void halves_of_a_product_are_refused(void **state)
{
    (void)state;
    static const char *const halves[] = { "x.lora_up.weight", "x.lora_down.weight", "x.lora_A" };
    for (size_t i = 0; i < ARRAY_LEN(halves); i++) {
        const struct lora_tensor t[] = { { halves[i], { 2, { 4, 4 } }, 1 } };
        struct opened o;
        assert_fails(open_file(&o, t, 1, &one, NULL), o.err, BERTH_EFORMAT, halves[i]);
        assert_null(o.a);
        close_file(&o);
    }
}

static void note(void *user, enum log_level level, uint64_t ns, const char *event, const char *text)
{
    (void)level, (void)ns;
    str_addf(user, "%s %s\n", event, text);
}

/* Any file with tensors could be given: one that has nothing of an adapter says so. */
static void other_files_are_no_adapters(void **state)
{
    (void)state;
    const struct lora_tensor t[] = { { "model.a.weight", { 1, { 1 } }, 1 },
                                     { "model.b.bias", { 1, { 1 } }, 1 } };
    struct opened o;
    assert_fails(open_file(&o, t, ARRAY_LEN(t), &one, NULL), o.err, BERTH_EINVAL,
                 "is no adapter: none of its 2 tensors");
    assert_null(o.a);
    close_file(&o);
}

static void unknown_tensors_are_one_warning(void **state)
{
    (void)state;
    const struct lora_tensor t[] = { { "x.diff", { 2, { 4, 6 } }, 1 },
                                     { "y.diff", { 1, { 1 } }, 1 },
                                     { "z.lora_up.weight", { 1, { 1 } }, 1 },
                                     { "z.lora_down.weight", { 1, { 1 } }, 1 },
                                     { "what is this", { 1, { 1 } }, 1 } };
    struct str said = { 0 };
    const struct log log = { .level = LOG_WARN, .write = note, .user = &said };
    struct opened o;
    assert_ok(open_file(&o, t, ARRAY_LEN(t), &one, &log), o.err);
    assert_int_equal(lora_info(o.a).unknown, 4);
    assert_string_equal(str_c(&said), "lora.unknown file=\"test.safetensors\" unknown=4 of=5 "
                                      "such_as=\"y, z\"\n");
    close_file(&o);
    str_release(&said);
}

static void factors_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        struct lora_tensor t[4];
        const char *says;
    } cases[] = {
        { { { "x.lora_up.weight", { 2, { 5, 2 } }, 1 },
            { "x.lora_down.weight", { 2, { 2, 6 } }, 1 } },
          "'x.lora_up.weight' [5, 2] does not fit a weight of shape [4, 6]" },
        { { { "x.lora_up.weight", { 2, { 4, 2 } }, 1 },
            { "x.lora_down.weight", { 2, { 2, 7 } }, 1 } },
          "'x.lora_down.weight' [2, 7] does not fit a weight of shape [4, 6]" },
        { { { "x.lora_up.weight", { 2, { 4, 3 } }, 1 },
            { "x.lora_down.weight", { 2, { 2, 6 } }, 1 } },
          "[4, 3] does not fit" },
        { { { "x.lora_up.weight", { 0, { 0 } }, 1 }, { "x.lora_down.weight", { 2, { 2, 6 } }, 1 } },
          "does not fit" },
        { { { "x.lora_up.weight", { 2, { 4, 0 } }, 1 },
            { "x.lora_down.weight", { 2, { 0, 6 } }, 1 } },
          "does not fit" },
        { { { "x.lora_up.weight", { 2, { 4, 2 } }, 1 },
            { "x.lora_down.weight", { 2, { 2, 6 } }, 1 },
            { "x.alpha", { 1, { 2 } }, 1 } },
          "'x.alpha' is no single number" },
        { { { "x.lora_up.weight", { 2, { 4, 2 } }, 1 },
            { "x.lora_down.weight", { 2, { 2, 6 } }, 1 },
            { "x.lora_mid.weight", { 4, { 2, 3, 1, 1 } }, 1 } },
          "'x.lora_mid.weight' is no [2, 2, kh, kw]" },
        { { { "x.lora_up.weight", { 2, { 4, 2 } }, 1 },
            { "x.lora_down.weight", { 2, { 2, 6 } }, 1 },
            { "x.lora_mid.weight", { 4, { 2, 2, 0, 1 } }, 1 } },
          "does not fit" },
        { { { "x.set_weight", { 2, { 4, 5 } }, 1 } },
          "'x.set_weight' [4, 5] does not fit a weight of shape [4, 6]" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct opened o;
        size_t n = 0;
        while (n < 4 && cases[i].t[n].name)
            n++;
        assert_ok(open_file(&o, cases[i].t, n, &one, NULL), o.err);
        assert_fails(terms_of(&o, KEY, &W, 1), o.err, BERTH_EFORMAT, cases[i].says);
        assert_int_equal(o.terms.n, 0);
        close_file(&o);
    }
}

/* A convolution's shape as it is, rows where only some are meant, and long names without their
 * middle: both ends of a name say something. */
static void what_does_not_fit_is_named_whole(void **state)
{
    (void)state;
    char name[256], up[300], down[300], says[400];
    memset(name, 'm', sizeof name - 1);
    memcpy(name, "lora_unet_input_blocks", 22);
    snprintf(name + 200, sizeof name - 200, "_end_of_it");
    snprintf(up, sizeof up, "%s.lora_up.weight", name);
    snprintf(down, sizeof down, "%s.lora_down.weight", name);
    const struct lora_name names[] = { { .base = name, .key = KEY },
                                       { .base = "r", .key = BIAS, .row = 2, .rows = 2 } };
    const struct lora_tensor t[] = { { up, { 4, { 5, 2, 1, 1 } }, 1 },
                                     { down, { 4, { 2, 6, 3, 3 } }, 1 },
                                     { "r.set_weight", { 1, { 3 } }, 1 } };
    struct opened o;
    OPEN(&o, t, (&(struct lora_names) { names, 2 }));
    snprintf(says, sizeof says,
             "%.*s...%s' [5, 2, 1, 1] does not fit a weight of shape [4, 6, 3, 3]", 48, up,
             up + strlen(up) - 72);
    assert_fails(terms_of(&o, KEY, &(struct shape) { 4, { 4, 6, 3, 3 } }, 1), o.err, BERTH_EFORMAT,
                 says);
    assert_fails(terms_of(&o, BIAS, &(struct shape) { 1, { 4 } }, 1), o.err, BERTH_EFORMAT,
                 "'r.set_weight' [3] does not fit rows 2 to 3 of a weight of shape [4]");
    close_file(&o);
}

/* Weights that the file keeps the other way round get the change the other way round. */
static void transposed_weights(void **state)
{
    (void)state;
    static const struct lora_name names[] = { { .base = "x", .key = KEY, .transpose = true },
                                              { .base = "d", .key = BIAS, .transpose = true } };
    const struct lora_tensor t[] = { { "x.lora_up.weight", { 2, { 6, 2 } }, 1 },
                                     { "x.lora_down.weight", { 2, { 2, 4 } }, 3 },
                                     { "d.diff", { 2, { 6, 4 } }, 5 } };
    struct opened o;
    OPEN(&o, t, (&(struct lora_names) { names, 2 }));
    assert_ok(terms_of(&o, KEY, &W, 1), o.err);
    assert_ok(terms_of(&o, BIAS, &W, 1), o.err);
    const struct res_term *x = term(&o, 0), *d = term(&o, 1);
    assert_true(x->rows == 4 && x->cols == 6 && x->rank == 2 && d->rows == 4 && d->cols == 6);
    for (size_t r = 0; r < 4; r++)
        for (size_t c = 0; c < 6; c++) {
            float got = 0, want = 0; /* delta[c, r] */
            for (size_t k = 0; k < 2; k++) {
                got += x->up[r * 2 + k] * x->down[k * 6 + c];
                want += lora_value(&t[0], c * 2 + k) * lora_value(&t[1], k * 4 + r);
            }
            assert_true(got == want && d->dense[r * 6 + c] == lora_value(&t[2], c * 4 + r));
        }
    assert_fails(terms_of(&o, KEY, &(struct shape) { 2, { 6, 4 } }, 1), o.err, BERTH_EFORMAT,
                 "[6, 2] does not fit a weight of shape [6, 4]");
    close_file(&o);
}

/* ---- identity, files, memory ---- */

static void equal_means_equal_effect(void **state)
{
    (void)state;
    static const struct lora_name rows[] = { { .base = "x", .key = KEY, .rows = 2 } };
    const struct lora_tensor t[] = { { "x.diff", { 2, { 4, 6 } }, 1 } };
    struct opened a, b, c;
    OPEN(&a, t, &one);
    OPEN(&b, t, &one);
    OPEN(&c, t, (&(struct lora_names) { rows, 1 }));
    assert_true(a.a->id == b.a->id && a.a->id != c.a->id);
    close_file(&a), close_file(&b), close_file(&c);
}

static void from_disk(void **state)
{
    (void)state;
    const struct lora_tensor t[] = { { "x.diff", { 2, { 4, 6 } }, 1 } };
    struct str f = { 0 };
    struct res_adapter *a;
    berth_err err = { 0 };
    lora_bytes(t, 1, &f);
    const char *path = tmp_write("a.safetensors", f.p, f.n);
    assert_ok(lora_open(path, &one, NULL, &a, &err), err);
    assert_string_equal(a->name, "a.safetensors");
    res_adapter_unref(a);
    assert_fails(lora_open(tmp_path("none.safetensors"), &one, NULL, &a, &err), err,
                 BERTH_ENOTFOUND, "none.safetensors");
    assert_null(a);
    str_release(&f);
}

static void opening_survives_oom(void **state)
{
    (void)state;
    static const struct lora_name names[] = { { .base = "x", .key = KEY },
                                              { .base = "lora_unet_y", .key = "y.weight" },
                                              { .base = "x", .key = KEY, .rows = 2 } };
    const struct lora_tensor t[] = { { "x.lora_up.weight", { 2, { 4, 2 } }, 1 },
                                     { "x.lora_down.weight", { 2, { 2, 6 } }, 1 },
                                     { "lora_unet__y.diff", { 1, { 3 } }, 1 },
                                     { "x.diff_b", { 1, { 4 } }, 1 } };
    struct str f = { 0 };
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    lora_bytes(t, ARRAY_LEN(t), &f);
    for (; s != BERTH_OK; k++) {
        struct opened o = { .terms = { .elem = sizeof(struct res_term) } };
        oom_after(k);
        s = lora_from_bytes(&f, &(struct lora_names) { names, 3 }, NULL, &o.a, &o.err);
        bool opened = !s;
        if (opened)
            s = terms_of(&o, "y.weight", &(struct shape) { 1, { 3 } }, 1);
        oom_off();
        if (s != BERTH_OK && (s != BERTH_ENOMEM || !o.err.msg[0]))
            fail_msg("allocation %ld: %s '%s'", k, berth_status_name(s), o.err.msg);
        assert_true(opened == (o.a != NULL));
        close_file(&o);
    }
    assert_true(k > 8);
    str_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_of_names),
        cmocka_unit_test(the_first_family_is_used),
        cmocka_unit_test(alpha_over_rank),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(mid_is_folded_into_down),
        cmocka_unit_test(diff_bias_norm_and_set),
        cmocka_unit_test(a_diff_of_another_shape_is_ignored),
        cmocka_unit_test(rows_and_swapped_halves),
        cmocka_unit_test(the_later_name_wins),
        cmocka_unit_test(two_underscores_are_one),
        cmocka_unit_test(parts_of_a_change),
        cmocka_unit_test(control_adapters),
        cmocka_unit_test(reshaping_adapters),
        cmocka_unit_test(processors),
        cmocka_unit_test(other_kinds_are_refused_by_name),
        cmocka_unit_test(halves_of_a_product_are_refused),
        cmocka_unit_test(other_files_are_no_adapters),
        cmocka_unit_test(unknown_tensors_are_one_warning),
        cmocka_unit_test(factors_that_do_not_fit),
        cmocka_unit_test(what_does_not_fit_is_named_whole),
        cmocka_unit_test(transposed_weights),
        cmocka_unit_test(equal_means_equal_effect),
        cmocka_unit_test(from_disk),
        cmocka_unit_test(opening_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
