/* res_check() notices each invariant of residency.h when it is broken on purpose. */
#include "residency/residency_impl.h"
#include "support/models.h"

struct scene {
    struct fixture f;
    struct res_model *a, *b; /* a: resident, split, pinned blocks too; b: registered */
};

static void open_scene(struct scene *s)
{
    fixture_open(&s->f, "cpu=4m,null:0=1m", NULL);
    const char *path = model_file("a", 4, 64 << 10);
    s->a = model_open(&s->f, path, "null:0,128kb;cpu,*#null:0", RES_AUTO);
    s->b = model_open(&s->f, path, "#cpu", RES_AUTO);
    model_load(s->a);
}

static void close_scene(struct scene *s)
{
    res_unref(s->a);
    res_unref(s->b);
    fixture_close(&s->f);
}

static size_t block_on(const struct res_model *m, size_t device)
{
    size_t i = 0;
    while (m->block[i].device != device)
        i++;
    return i;
}

#define BREAK(s, lvalue, value, text)                                                              \
    do {                                                                                           \
        berth_err err_ = { 0 };                                                                    \
        __typeof__(lvalue) was_ = (lvalue);                                                        \
        (lvalue) = (value);                                                                        \
        assert_fails(res_check((s)->f.r, &err_), err_, BERTH_EDEVICE, text);                       \
        (lvalue) = was_;                                                                           \
        assert_ok(res_check((s)->f.r, &err_), err_);                                               \
    } while (0)

static void every_invariant(void **state)
{
    struct scene s;
    (void)state;
    open_scene(&s);
    struct res_model *a = s.a, *b = s.b;
    struct res_block *card = &a->block[block_on(a, 1)], *host = &a->block[block_on(a, 0)];
    assert_non_null(host->host.ptr);

    BREAK(&s, b->key, a->key, "(1) ");

    BREAK(&s, a->state, RES_EJECTED, "(2) ejected, and 4 of 4");
    BREAK(&s, b->state, RES_RESIDENT, "(2) resident, and 0 of 4");
    BREAK(&s, card->mem.dev, NULL, "(2) block");
    BREAK(&s, card->host.ptr, &s, "(2) block");
    BREAK(&s, card->device, 7, "(2) block");
    BREAK(&s, b->block[0].patch, 1, "(2) block");

    BREAK(&s, a->bytes_on[1], 5, "(3) 131072 bytes on null:0");
    BREAK(&s, card->device, 0, "(3) ");
    BREAK(&s, card->mem.n, 5, "(3) block");
    BREAK(&s, host->host.n, 5, "(3) block");
    BREAK(&s, card->span, card->span + 1, "block");
    BREAK(&s, card->bytes, card->bytes + 1, "block");
    BREAK(&s, s.f.r->pinned, 3, "3 counted");
    BREAK(&s, a->owner[0], 'x', "(3) model x#1 on cpu: pinned");

    BREAK(&s, b->handles, 0, "(4) nobody holds it");
    BREAK(&s, b->uses, 1, "(5) 1 uses, and it is registered");
    BREAK(&s, a->retention, RES_KEEP, "(6) keep with 0 anchors");
    BREAK(&s, a->anchor[RES_ANCHOR_KEEP], 1, "(6) auto with 1 anchors");
    a->anchor[RES_ANCHOR_SURVIVED] = 1;
    BREAK(&s, a->retention, RES_EJECT, "(6) eject with 1 anchors");
    a->anchor[RES_ANCHOR_SURVIVED] = 0;
    BREAK(&s, a->anchor[RES_ANCHOR_MARKED], 1, "(6) auto with 1 anchors");
    BREAK(&s, card->patch, 9, "(7) block");
    BREAK(&s, card->home, 0, "home 0, the plan says 1");
    BREAK(&s, s.f.r->models, 3, "2 models are linked, 3 counted");
    BREAK(&s, s.f.r->last, a, "list of models");
    BREAK(&s, devset_at(s.f.set, 1)->budget, 1, "null:0: held "); /* the device's own truth */
    close_scene(&s);
}

/* (8) Weights in a ledger that no model has; also with more lines than the check expects. */
static void strangers(void **state)
{
    struct scene s;
    berth_err err = { 0 };
    (void)state;
    open_scene(&s);
    struct device *d = devset_at(s.f.set, 0);
    struct dev_owner *o[40], *w = owner_of(d, "nobody", DEV_WEIGHTS);
    struct dev_mem mem[40], alien;
    for (size_t i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "step %zu", i);
        o[i] = owner_of(d, name, DEV_ACTIVATIONS);
        mem[i] = alloc_on(d, o[i], 256);
    }
    assert_ok(res_check(s.f.r, &err), err);
    alien = alloc_on(d, w, 300);
    assert_fails(res_check(s.f.r, &err), err, BERTH_EDEVICE,
                 "(8) cpu: 300 bytes of weights, models have 0");
    dev_free(&alien);
    for (size_t i = 0; i < 40; i++) {
        dev_free(&mem[i]);
        dev_owner_close(o[i]);
    }
    dev_owner_close(w);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_invariant),
        cmocka_unit_test(strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
