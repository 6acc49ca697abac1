/* Conditionings: what nodes say about prompts, and what the guide is told. */
#include "support/node_rig.h"
#include "support/oom.h"

#include "node/compute.h"

#include <math.h>

/* One prompt: value i of `tokens` x `width` is start + i; pooled (0: none) likewise. */
static struct value *prompt(size_t tokens, size_t width, size_t pooled, float start)
{
    struct htensor *c = rig_htensor(3, (size_t[]) { 1, tokens, width }, NULL), *p = NULL;
    struct conditioning *x;
    berth_err err = { 0 };
    for (size_t i = 0; i < tokens * width; i++)
        c->data[i] = start + (float)i;
    if (pooled)
        p = rig_htensor(2, (size_t[]) { 1, pooled }, NULL);
    for (size_t i = 0; i < pooled; i++)
        p->data[i] = start + (float)i;
    assert_ok(conditioning_new(c, p, &x, &err), err);
    return value_object(&type_conditioning, x);
}

static const struct conditioning *out(struct node_rig *r, size_t i)
{
    const struct value *v = rig_out(r, i);
    assert_int_equal(v->kind, V_OBJECT);
    assert_ptr_equal(v->object.type, &type_conditioning);
    return v->object.obj;
}

static void combine_keeps_both(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ConditioningCombine");
    rig_set(r, "conditioning_1", prompt(2, 3, 0, 0));
    rig_set(r, "conditioning_2", prompt(4, 3, 2, 100));
    assert_ok(rig_run(r), r->err);
    const struct conditioning *x = out(r, 0);
    assert_int_equal(x->n, 2);
    assert_int_equal(dim(x->at[0].cond, 1), 2);
    assert_int_equal(dim(x->at[1].cond, 1), 4);
    assert_true(x->at[1].pooled->data[1] == 101);
    assert_true(value_bytes(rig_out(r, 0)) >= (6 + 12 + 2) * sizeof(float));
}

/* to * s + from * (1 - s), a shorter `from` continued with zeros, a longer one cut. */
static void average_mixes(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ConditioningAverage");
    rig_set(r, "conditioning_to", prompt(2, 2, 1, 0));   /* 0 1 2 3 | 0 */
    rig_set(r, "conditioning_from", prompt(1, 2, 1, 8)); /* 8 9 | 8 */
    rig_float(r, "conditioning_to_strength", 0.75);
    assert_ok(rig_run(r), r->err);
    const struct cond_entry *e = &out(r, 0)->at[0];
    rig_expect(e->cond, 3, (size_t[]) { 1, 2, 2 }, (float[]) { 2, 3, 1.5f, 2.25f }, 0);
    rig_expect(e->pooled, 2, (size_t[]) { 1, 1 }, (float[]) { 2 }, 0);

    rig_node(r, "ConditioningAverage"); /* no pooled output of its own: that of `from` */
    rig_set(r, "conditioning_to", prompt(1, 2, 0, 0));
    rig_set(r, "conditioning_from", prompt(3, 2, 2, 4));
    rig_float(r, "conditioning_to_strength", 0.5);
    assert_ok(rig_run(r), r->err);
    e = &out(r, 0)->at[0];
    rig_expect(e->cond, 3, (size_t[]) { 1, 1, 2 }, (float[]) { 2, 3 }, 0);
    rig_expect(e->pooled, 2, (size_t[]) { 1, 2 }, (float[]) { 4, 5 }, 0);

    rig_node(r, "ConditioningAverage");
    rig_set(r, "conditioning_to", prompt(1, 2, 0, 0));
    rig_set(r, "conditioning_from", prompt(1, 3, 0, 0));
    assert_int_equal(rig_run(r), BERTH_EINVAL);
    assert_non_null(strstr(r->err.msg, "2 and 3 features"));
}

static void concat_appends_tokens(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ConditioningConcat");
    rig_set(r, "conditioning_to", prompt(1, 2, 1, 0));
    rig_set(r, "conditioning_from", prompt(2, 2, 1, 10));
    assert_ok(rig_run(r), r->err);
    const struct cond_entry *e = &out(r, 0)->at[0];
    rig_expect(e->cond, 3, (size_t[]) { 1, 3, 2 }, (float[]) { 0, 1, 10, 11, 12, 13 }, 0);
    assert_true(e->pooled->data[0] == 0);
}

/* A list joined with itself doubles: it ends with the numbers, long before memory does. */
static void what_doubles_meets_its_limit(void **state)
{
    struct node_rig *r = *state;
    struct value *x = prompt(77, 1, 0, 0);
    for (size_t n = 1; n <= CONDS_MAX; n *= 2) {
        rig_node(r, "ConditioningCombine");
        rig_set(r, "conditioning_1", value_ref(x));
        rig_set(r, "conditioning_2", x);
        if (n == CONDS_MAX)
            break;
        assert_ok(rig_run(r), r->err);
        x = value_ref(rig_out(r, 0));
    }
    assert_int_equal(rig_run(r), BERTH_ELIMIT);
    assert_non_null(strstr(r->err.msg, "8192 prompts, more than 4096"));
    size_t tokens = 77;
    for (x = prompt(tokens, 1, 0, 0);; tokens *= 2) {
        rig_node(r, "ConditioningConcat");
        rig_set(r, "conditioning_to", value_ref(x));
        rig_set(r, "conditioning_from", x);
        if (2 * tokens > COND_TOKENS_MAX)
            break;
        assert_ok(rig_run(r), r->err);
        x = value_ref(rig_out(r, 0));
    }
    assert_int_equal(tokens, COND_TOKENS_MAX);
    assert_int_equal(rig_run(r), BERTH_ELIMIT);
    assert_non_null(strstr(r->err.msg, "630784 tokens, more than 315392"));
}

static void areas_masks_and_ranges(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ConditioningSetArea");
    rig_set(r, "conditioning", prompt(1, 1, 0, 0));
    rig_int(r, "width", 100);
    rig_int(r, "height", 64);
    rig_int(r, "x", 17);
    rig_int(r, "y", 8);
    rig_float(r, "strength", 0.5);
    assert_ok(rig_run(r), r->err);
    const struct cond_entry *e = &out(r, 0)->at[0];
    assert_int_equal(e->area_kind, AREA_PIXELS);
    assert_true(e->area[0] == 64 && e->area[1] == 100 && e->area[2] == 8 && e->area[3] == 17);
    assert_true(e->strength == 0.5);
    struct value *area = value_ref(rig_out(r, 0));

    rig_node(r, "ConditioningSetMask"); /* says more about it; the first stays as it was */
    rig_set(r, "conditioning", value_ref(area));
    rig_set(r, "mask", rig_tensor(3, (size_t[]) { 1, 2, 2 }, NULL));
    rig_float(r, "strength", 2);
    rig_text(r, "set_cond_area", "mask bounds");
    assert_ok(rig_run(r), r->err);
    e = &out(r, 0)->at[0];
    assert_true(e->mask && e->mask_strength == 2 && e->mask_bounds && e->strength == 0.5);
    assert_null(((const struct conditioning *)area->object.obj)->at[0].mask);
    value_unref(area);

    rig_node(r, "ConditioningSetAreaPercentage");
    rig_set(r, "conditioning", prompt(1, 1, 0, 0));
    rig_float(r, "width", 1.5);
    assert_int_equal(rig_run(r), BERTH_EINVAL);

    rig_node(r, "ConditioningSetTimestepRange");
    rig_set(r, "conditioning", prompt(1, 1, 0, 0));
    rig_float(r, "start", 0.25);
    rig_float(r, "end", 0.5);
    assert_ok(rig_run(r), r->err);
    e = &out(r, 0)->at[0];
    assert_true(e->ranged && e->start_percent == 0.25 && e->end_percent == 0.5);
}

static void zero_madezeroes(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ConditioningZeroOut");
    rig_set(r, "conditioning", prompt(1, 2, 2, 5));
    assert_ok(rig_run(r), r->err);
    const struct cond_entry *e = &out(r, 0)->at[0];
    rig_expect(e->cond, 3, (size_t[]) { 1, 1, 2 }, (float[]) { 0, 0 }, 0);
    rig_expect(e->pooled, 2, (size_t[]) { 1, 2 }, (float[]) { 0, 0 }, 0);
}

static void other_objects_are_refused(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ConditioningZeroOut");
    rig_int(r, "conditioning", 3);
    assert_int_equal(rig_run(r), BERTH_EINVAL);
    assert_non_null(strstr(r->err.msg, "CONDITIONING"));
}

static void copies_survive_exhaustion(void **state)
{
    struct value *v = prompt(2, 3, 2, 0);
    const struct conditioning *x = v->object.obj;
    berth_status st = BERTH_ENOMEM;
    (void)state;
    for (long k = 0; st; k++) {
        struct conditioning *made = NULL;
        berth_err err = { 0 };
        oom_after(k);
        st = conditioning_join(x, x, &made, &err);
        oom_off();
        assert_true(st == BERTH_OK || (st == BERTH_ENOMEM && !made && err.msg[0]));
        conditioning_free(made);
    }
    assert_int_equal(x->at[0].cond->refs, 1);
    value_unref(v);
}

/* What a cache is told it holds: every tensor of a prompt. */
static void bytes_are_of_all_tensors(void **state)
{
    (void)state;
    struct value *v = prompt(2, 3, 5, 0);
    struct cond_entry *e = ((struct conditioning *)v->object.obj)->at;
    size_t was = value_bytes(v);
    struct htensor **const t[] = { &e->mask, &e->concat_latent, &e->concat_mask };
    assert_true(was >= (2 * 3 + 5) * sizeof(float));
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        *t[i] = rig_htensor(3, (size_t[]) { 1, 7, 10 + i }, NULL);
        was += 7 * (10 + i) * sizeof(float);
        assert_int_equal(value_bytes(v), was);
    }
    value_unref(v);
}

/* ---- what the guide is told ---- */

struct told { /* conditionings resolved against a latent of 1 x 4 x 16 x 24 */
    struct node_rig *r;
    struct arena mem;
    struct msampling ms;
    struct diffusion_info info;
    struct cond_scene scene;
    struct cond_list list[2];
};

static void told_open(struct told *t, struct node_rig *r)
{
    *t = (struct told) { .r = r };
    rig_node(r, "KSampler");
    assert_ok(ms_init(&t->ms, &(struct ms_config) { 0 }, &r->err), r->err);
    t->info =
        (struct diffusion_info) { .in_channels = 4,
                                  .latent = { .channels = 4, .rank = 2, .ratio = 8, .scale = 1 } };
    t->scene = (struct cond_scene) { .info = &t->info,
                                     .ms = &t->ms,
                                     .shape = { .ndim = 4, .dim = { 1, 4, 16, 24 } },
                                     .mem = &t->mem };
}

static void told_close(struct told *t)
{
    vec_release(&t->list[0].at);
    vec_release(&t->list[1].at);
    arena_release(&t->mem);
    ms_release(&t->ms);
}

static const struct guide_cond *told_at(struct told *t, int list, size_t i)
{
    return vec_at(&t->list[list].at, i);
}

static struct conditioning *one_prompt(void)
{
    struct value *v = prompt(1, 1, 0, 0);
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(conditioning_copy(v->object.obj, &x, &err), err);
    value_unref(v);
    return x;
}

static void expect_area(const struct guide_cond *g, unsigned h, unsigned w, unsigned y, unsigned x)
{
    assert_true(g->has_area);
    if (g->area.h != h || g->area.w != w || g->area.y != y || g->area.x != x)
        fail_msg("area %ux%u at %u, %u", g->area.h, g->area.w, g->area.y, g->area.x);
}

/* In latent pixels of 8 x 8 pixels, and a few pixels more, which do not count. */
static void set_area(struct cond_entry *e, const double area[4])
{
    for (int i = 0; i < 4; i++)
        e->area[i] = area[i] * 8 + i;
}

/* Pixels are those of the model's own latents. */
static void areas_ask_the_format(void **state)
{
    struct told t;
    struct conditioning *p = one_prompt();
    p->at[0].area_kind = AREA_PIXELS;
    memcpy(p->at[0].area, (double[]) { 40, 31, 16, 47 }, sizeof p->at[0].area);
    for (uint32_t ratio = 4; ratio <= 16; ratio *= 2) {
        told_open(&t, *state);
        struct diffusion_info info = *t.scene.info;
        info.latent.ratio = ratio;
        t.scene.info = &info;
        assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err), t.r->err);
        expect_area(told_at(&t, 0, 0), 40 / ratio, 31 / ratio, 16 / ratio, 47 / ratio);
        const struct sampled_cond *c = told_at(&t, 0, 0)->cond;
        assert_int_equal(c->cond.size.width, 24 * ratio);
        told_close(&t);
    }
    conditioning_free(p);
}

/* An area of a positive prompt gets a negative of that area; what is beyond the latent is cut. */
static void areas_are_paired_and_cut(void **state)
{
    struct told t;
    struct conditioning *p = one_prompt(), *n = one_prompt();
    told_open(&t, *state);
    p->at[0].area_kind = AREA_PERCENT;
    p->at[0].area[0] = 0.78; /* of 16: 12.48, from 8 on: cut to 8 */
    p->at[0].area[1] = 1;    /* of 24, from 6 on: cut to 18 */
    p->at[0].area[2] = 0.5;
    p->at[0].area[3] = 0.27; /* 6.48 -> 6 */
    p->at[0].strength = 2;
    assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err), t.r->err);
    assert_ok(conds_resolve(&t.r->call, n, true, &t.scene, &t.list[1], &t.r->err), t.r->err);
    assert_ok(conds_pair(&t.r->call, t.list, 2, &t.scene, &t.r->err), t.r->err);
    assert_int_equal(t.list[0].at.n, 1);
    assert_int_equal(t.list[1].at.n, 2);
    expect_area(told_at(&t, 0, 0), 8, 18, 8, 6);
    assert_false(told_at(&t, 1, 0)->has_area);
    expect_area(told_at(&t, 1, 1), 8, 18, 8, 6);
    assert_ptr_equal(told_at(&t, 1, 1)->cond, told_at(&t, 1, 0)->cond);
    assert_true(told_at(&t, 1, 1)->strength == 2);
    const struct sampled_cond *c = told_at(&t, 1, 0)->cond;
    assert_true(c->cond.negative && c->cond.size.width == 24 * 8 && c->cond.size.height == 16 * 8);
    told_close(&t);

    told_open(&t, *state);
    p->at[0].area_kind = AREA_PIXELS;
    p->at[0].area[0] = p->at[0].area[1] = 8;
    p->at[0].area[2] = 16 * 8; /* below the latent */
    assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err), t.r->err);
    assert_int_equal(conds_pair(&t.r->call, t.list, 2, &t.scene, &t.r->err), BERTH_EINVAL);
    assert_non_null(strstr(t.r->err.msg, "24x16"));
    told_close(&t);
    conditioning_free(p);
    conditioning_free(n);
}

/* Sides and places of 16 x 24 as Python rounds them, halves to even; no side is 0. */
static void percents_are_rounded(void **state)
{
    static const struct {
        double said[4]; /* h, w, y, x */
        unsigned want[4];
    } row[] = {
        { { 0.17, 0.28, 0.3, 0.4 }, { 3, 7, 5, 10 } },             /* 2.72 6.72 4.8 9.6 */
        { { 0.2, 0.3, 0.15, 0.1 }, { 3, 7, 2, 2 } },               /* 3.2 7.2 2.4 2.4 */
        { { 0.15625, 0.4375, 0.21875, 0.3125 }, { 2, 10, 4, 8 } }, /* 2.5 10.5 3.5 7.5 */
        { { 0.01, 0, 0.03125, 0.01 }, { 1, 1, 0, 0 } },            /* 0.16 0 0.5 0.24 */
    };
    struct told t;
    struct conditioning *p = one_prompt();
    told_open(&t, *state);
    p->at[0].area_kind = AREA_PERCENT;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const unsigned *w = row[i].want;
        memcpy(p->at[0].area, row[i].said, sizeof row[i].said);
        assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err), t.r->err);
        expect_area(told_at(&t, 0, i), w[0], w[1], w[2], w[3]);
    }
    told_close(&t);
    conditioning_free(p);
}

/* A prompt with an area gets what the other list says in its smallest area around that one; where
 * two are as small, in the first; where none is around it, everywhere. */
static void the_smallest_area_stands_against(void **state)
{
    static const struct {
        double other[4][4]; /* h, w, y, x; h 0: everywhere */
        size_t n;
        int want; /* which of them; -1: none is made */
    } row[] = {
        /* against 4x4 at 4, 4 */
        { { { 0 }, { 12, 12, 0, 0 }, { 8, 8, 2, 2 }, { 10, 10, 1, 1 } }, 4, 2 },
        { { { 8, 8, 2, 2 }, { 12, 12, 0, 0 }, { 0 } }, 3, 0 },
        { { { 8, 8, 2, 2 }, { 4, 16, 4, 0 } }, 2, 0 },              /* 64 and 64 */
        { { { 12, 5, 0, 4 }, { 7, 8, 2, 2 } }, 2, 1 },              /* 60 and 56 */
        { { { 2, 2, 4, 4 }, { 0 }, { 4, 4, 5, 4 }, { 0 } }, 4, 1 }, /* none is around it */
        { { { 4, 4, 4, 5 }, { 4, 3, 4, 4 }, { 3, 4, 4, 4 } }, 3, -1 },
        { { { 8, 8, 2, 2 }, { 4, 4, 4, 4 } }, 2, -1 }, /* it has that area itself */
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct told t;
        struct conditioning *p = one_prompt();
        told_open(&t, *state);
        p->at[0].area_kind = AREA_PIXELS;
        set_area(&p->at[0], (const double[]) { 4, 4, 4, 4 });
        assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err), t.r->err);
        for (size_t k = 0; k < row[i].n; k++) {
            p->at[0].area_kind = row[i].other[k][0] > 0 ? AREA_PIXELS : AREA_NONE;
            set_area(&p->at[0], row[i].other[k]);
            assert_ok(conds_resolve(&t.r->call, p, true, &t.scene, &t.list[1], &t.r->err),
                      t.r->err);
        }
        assert_ok(conds_pair(&t.r->call, t.list, 2, &t.scene, &t.r->err), t.r->err);
        if (t.list[1].at.n != row[i].n + (row[i].want >= 0))
            fail_msg("row %zu: %zu prompts", i, t.list[1].at.n);
        if (row[i].want >= 0) {
            const struct guide_cond *made = told_at(&t, 1, row[i].n);
            expect_area(made, 4, 4, 4, 4);
            if (made->cond != told_at(&t, 1, (size_t)row[i].want)->cond)
                fail_msg("row %zu: says what another one says", i);
        }
        told_close(&t);
        conditioning_free(p);
    }
}

/* Long lists end soon after an interrupt. */
static void lists_are_interrupted(void **state)
{
    struct told t;
    struct conditioning *p = one_prompt();
    atomic_bool cancel = true;
    struct node_host host = { .cancel = &cancel };
    told_open(&t, *state);
    assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err), t.r->err);
    const struct node_host *was = t.r->call.host;
    t.r->call.host = &host;
    assert_int_equal(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[1], &t.r->err),
                     BERTH_ECANCELED);
    assert_int_equal(conds_pair(&t.r->call, t.list, 1, &t.scene, &t.r->err), BERTH_ECANCELED);
    t.r->call.host = was;
    told_close(&t);
    conditioning_free(p);
}

/* A mask of another size is resized; its box is at least 8 x 8; percents become noise levels. */
static void masks_are_sized(void **state)
{
    struct told t;
    struct conditioning *p = one_prompt();
    told_open(&t, *state);
    struct htensor *mask = rig_htensor(3, (size_t[]) { 1, 32, 48 }, NULL);
    memset(mask->data, 0, htensor_count(mask) * sizeof(float));
    for (size_t y = 8; y < 28; y++) /* 4 to 14 of the latent */
        for (size_t x = 40; x < 48; x++)
            mask->data[y * 48 + x] = 1;
    p->at[0].mask = mask;
    p->at[0].mask_bounds = true;
    p->at[0].ranged = true;
    p->at[0].start_percent = 0;
    p->at[0].end_percent = 0.5;
    assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err), t.r->err);
    assert_ok(conds_pair(&t.r->call, t.list, 1, &t.scene, &t.r->err), t.r->err);
    const struct guide_cond *g = told_at(&t, 0, 0);
    expect_area(g, 10, 4, 4, 20); /* 8 wide, cut at the edge */
    assert_int_equal(g->mask_n, 1);
    assert_true(g->mask[4 * 24 + 20] == 1 && g->mask[3 * 24 + 20] == 0);
    assert_true(g->sigma_start > 1e6);
    assert_true(fabs(g->sigma_end - ms_percent(&t.ms, 0.5)) < 1e-9);
    told_close(&t);
    conditioning_free(p);
}

/* Around all masks of a prompt, whatever their signs; at least 8 x 8, also around nothing. */
static void boxes_of_masks(void **state)
{
    static const struct {
        size_t
            at[2]; /* pixels y * 24 + x that are not 0, in the first and the second mask; 0: none */
        unsigned want[4];
    } row[] = {
        { { 3 * 24 + 5, 3 * 24 + 5 }, { 8, 8, 3, 5 } },
        { { 2 * 24 + 3, 8 * 24 + 9 }, { 8, 8, 2, 3 } },   /* 7 x 7 */
        { { 2 * 24 + 3, 10 * 24 + 11 }, { 9, 9, 2, 3 } }, /* 9 x 9 */
        { { 9 * 24 + 2, 4 * 24 + 13 }, { 8, 12, 4, 2 } }, /* 6 x 12 */
        { { 0, 0 }, { 8, 8, 0, 0 } },
    };
    struct told t;
    struct conditioning *p = one_prompt();
    told_open(&t, *state);
    t.scene.shape.dim[0] = 2;
    p->at[0].mask = rig_htensor(3, (size_t[]) { 2, 16, 24 }, NULL);
    p->at[0].mask_bounds = true;
    float *m = p->at[0].mask->data;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const unsigned *w = row[i].want;
        memset(m, 0, htensor_count(p->at[0].mask) * sizeof *m);
        if (row[i].at[0]) {
            m[row[i].at[0]] = 0.25f;
            m[16 * 24 + row[i].at[1]] = -1;
        }
        assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err), t.r->err);
        expect_area(told_at(&t, 0, i), w[0], w[1], w[2], w[3]);
    }
    told_close(&t);
    conditioning_free(p);
}

/* n masks for a batch of 4: mask k is k everywhere. */
static void masks_for_a_batch(void **state)
{
    static const struct {
        size_t masks, told; /* told 0: refused */
        float want[4];
    } row[] = { { 1, 1, { 0 } },
                { 2, 4, { 0, 1, 0, 1 } },
                { 3, 0, { 0 } },
                { 4, 4, { 0, 1, 2, 3 } },
                { 6, 4, { 0, 1, 2, 3 } } };
    const size_t hw = 16 * 24;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct told t;
        struct conditioning *p = one_prompt();
        told_open(&t, *state);
        t.scene.shape.dim[0] = 4;
        p->at[0].mask = rig_htensor(3, (size_t[]) { row[i].masks, 16, 24 }, NULL);
        for (size_t k = 0; k < row[i].masks * hw; k++)
            p->at[0].mask->data[k] = (float)(k / hw);
        berth_status s = conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err);
        assert_int_equal(s, row[i].told ? BERTH_OK : BERTH_EINVAL);
        assert_true(!s || strstr(t.r->err.msg, "3 masks for a batch of 4"));
        const struct guide_cond *g = told_at(&t, 0, 0);
        assert_true(s || g->mask_n == row[i].told);
        for (size_t k = 0; k < row[i].told; k++)
            if (g->mask[k * hw] != row[i].want[k] || g->mask[k * hw + hw - 1] != row[i].want[k])
                fail_msg("%zu masks: %g for item %zu", row[i].masks, (double)g->mask[k * hw], k);
        told_close(&t);
        conditioning_free(p);
    }
}

/* Masks are frames there: one for all of them, or one for each; every video of a batch has the
 * same. */
static void masks_for_video(void **state)
{
    const size_t hw = 16 * 24;
    for (size_t masks = 1; masks <= 4; masks++) {
        struct told t;
        struct conditioning *p = one_prompt();
        told_open(&t, *state);
        t.info.latent.rank = 3;
        t.scene.shape = (struct shape) { 5, { 2, 4, 3, 16, 24 } };
        p->at[0].mask = rig_htensor(3, (size_t[]) { masks, 16, 24 }, NULL);
        for (size_t k = 0; k < masks * hw; k++)
            p->at[0].mask->data[k] = (float)(k / hw + 1);
        berth_status s = conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err);
        assert_int_equal(s, masks % 2 ? BERTH_OK : BERTH_EINVAL);
        assert_true(!s || strstr(t.r->err.msg, "masks for a video of 3 latent frames"));
        const struct guide_cond *g = told_at(&t, 0, 0);
        assert_true(s || g->mask_n == 1);
        for (size_t k = 0; !s && k < 3 * hw; k++)
            assert_true(g->mask[k] == (masks == 1 ? 1.0f : (float)(k / hw + 1)));
        told_close(&t);
        conditioning_free(p);
    }
}

/* A picture is video of one frame for models of video, and only for them; channels of an empty one
 * are the model's. */
static void latents_fit_the_format(void **state)
{
    static const struct {
        int rank;
        struct shape is, want; /* ndim 0: refused */
    } row[] = {
        { 2, { 4, { 2, 4, 3, 5 } }, { 4, { 2, 4, 3, 5 } } },
        { 2, { 4, { 2, 16, 3, 5 } }, { 4, { 2, 4, 3, 5 } } },
        { 2, { 5, { 2, 4, 1, 3, 5 } }, { 0 } },
        { 3, { 4, { 2, 4, 3, 5 } }, { 5, { 2, 4, 1, 3, 5 } } },
        { 3, { 4, { 2, 16, 3, 5 } }, { 5, { 2, 4, 1, 3, 5 } } },
        { 3, { 5, { 2, 4, 7, 3, 5 } }, { 5, { 2, 4, 7, 3, 5 } } },
        { 3, { 3, { 2, 4, 3 } }, { 0 } },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct diffusion_info info = { .family = "this one",
                                       .latent = { .channels = 4, .rank = row[i].rank } };
        struct latent l = { 0 };
        struct htensor *fit;
        berth_err err = { 0 };
        assert_ok(htensor_zeros(&row[i].is, &l.samples, &err), err);
        if (row[i].is.dim[1] == 4)
            l.samples->data[17] = 3; /* not empty: it is all there afterwards */
        berth_status s = latent_fit(&l, &info, &fit, &err);
        assert_int_equal(s, row[i].want.ndim ? BERTH_OK : BERTH_EINVAL);
        assert_true(!s || strstr(err.msg, row[i].rank == 3 ? "[n, 4, t, h, w]" : "[n, 4, h, w]"));
        assert_true(s || shape_eq(&fit->shape, &row[i].want));
        assert_true(s || fit->data[17] == l.samples->data[17]);
        htensor_unref(fit);
        latent_release(&l);
    }
}

/* Pictures and masks to paint into are spread over a batch as resize_to_batch_size() does: picture
 * k is k, and so is its mask. */
static void pictures_are_spread_over_a_batch(void **state)
{
    static const struct {
        size_t have, batch;
        float want[5];
    } row[] = {
        { 4, 3, { 0, 2, 3 } }, /* 1.5 */
        { 6, 3, { 0, 2, 5 } }, /* 2.5: halves to even */
        { 5, 4, { 0, 1, 3, 4 } },
        { 2, 3, { 0, 1, 1 } },
        { 3, 5, { 0, 0, 1, 2, 2 } }, /* 0.3 0.9 1.5 2.1 2.7 */
        { 3, 1, { 0 } },
    };
    const size_t hw = 16 * 24;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct told t;
        struct conditioning *p = one_prompt();
        told_open(&t, *state);
        t.info.in_channels = 9;
        t.info.inpaint = true;
        t.scene.shape.dim[0] = row[i].batch;
        p->at[0].concat_latent = rig_htensor(4, (size_t[]) { row[i].have, 4, 16, 24 }, NULL);
        p->at[0].concat_mask = rig_htensor(3, (size_t[]) { row[i].have, 16, 24 }, NULL);
        for (size_t k = 0; k < row[i].have * hw; k++)
            p->at[0].concat_mask->data[k] = (float)(k / hw);
        for (size_t k = 0; k < row[i].have * 4 * hw; k++)
            p->at[0].concat_latent->data[k] = (float)(k / (4 * hw));
        assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err), t.r->err);
        const float *c = ((const struct sampled_cond *)told_at(&t, 0, 0)->cond)->concat;
        for (size_t k = 0; k < row[i].batch; k++, c += 5 * hw)
            if (c[0] != row[i].want[k] || c[hw] != row[i].want[k] ||
                c[5 * hw - 1] != row[i].want[k])
                fail_msg("%zu for %zu: item %zu is %g and %g", row[i].have, row[i].batch, k,
                         (double)c[0], (double)c[hw]);
        told_close(&t);
        conditioning_free(p);
    }
}

/* What a network for inpainting sees beside the latent: the rounded mask, then the masked
 * picture. */
static void inpainting_sees_mask_and_picture(void **state)
{
    struct told t;
    struct conditioning *p = one_prompt();
    static float mask[2 * 16 * 24], latent[2 * 4 * 16 * 24];
    size_t hw = 16 * 24;
    told_open(&t, *state);
    t.info.in_channels = 9;
    t.info.inpaint = true;
    t.info.latent.scale = 0.5;
    t.scene.shape.dim[0] = 2;
    assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[0], &t.r->err), t.r->err);
    assert_null(((const struct sampled_cond *)told_at(&t, 0, 0)->cond)->concat);

    for (size_t i = 0; i < 2 * hw; i++)
        mask[i] = i < hw ? 0.6f : 0.4f;
    for (size_t i = 0; i < 8 * hw; i++)
        latent[i] = (float)(i / hw);
    t.scene.mask = mask;
    t.scene.latent = latent;
    assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[1], &t.r->err), t.r->err);
    const float *c = ((const struct sampled_cond *)told_at(&t, 1, 0)->cond)->concat;
    assert_non_null(c);
    assert_true(c[0] == 1 && c[hw] == 0 && c[4 * hw] == 3 && c[5 * hw] == 0 && c[6 * hw] == 4);

    p->at[0].concat_latent = rig_htensor(4, (size_t[]) { 1, 4, 16, 24 }, latent);
    p->at[0].concat_mask = rig_htensor(3, (size_t[]) { 1, 16, 24 }, mask + hw);
    assert_ok(conds_resolve(&t.r->call, p, false, &t.scene, &t.list[1], &t.r->err), t.r->err);
    c = ((const struct sampled_cond *)told_at(&t, 1, 1)->cond)->concat;
    assert_true(c[0] == 0 && c[4 * hw] == 1.5f && c[9 * hw] == 1.5f);
    told_close(&t);
    conditioning_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(combine_keeps_both),
        cmocka_unit_test(average_mixes),
        cmocka_unit_test(concat_appends_tokens),
        cmocka_unit_test(what_doubles_meets_its_limit),
        cmocka_unit_test(areas_masks_and_ranges),
        cmocka_unit_test(zero_madezeroes),
        cmocka_unit_test(other_objects_are_refused),
        cmocka_unit_test(copies_survive_exhaustion),
        cmocka_unit_test(bytes_are_of_all_tensors),
        cmocka_unit_test(areas_ask_the_format),
        cmocka_unit_test(areas_are_paired_and_cut),
        cmocka_unit_test(percents_are_rounded),
        cmocka_unit_test(the_smallest_area_stands_against),
        cmocka_unit_test(lists_are_interrupted),
        cmocka_unit_test(masks_are_sized),
        cmocka_unit_test(boxes_of_masks),
        cmocka_unit_test(masks_for_a_batch),
        cmocka_unit_test(masks_for_video),
        cmocka_unit_test(latents_fit_the_format),
        cmocka_unit_test(pictures_are_spread_over_a_batch),
        cmocka_unit_test(inpainting_sees_mask_and_picture),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
