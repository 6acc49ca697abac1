/* op_device: cases of op_cases.h computed on a device with activations of any type a backend has,
 * and held against the reference on the same numbers, widened to F32.
 *
 * Memory   All tensors of a case lie in one range of the device, each between guards. What is
 *          written is NaN before, unless it is read, too. Afterwards every byte that is no element
 *          of a result must be what it was.
 * Types    Parameters take turns with F32, F16 and BF16, masks and modulations are F32 or of the
 *          activation's type, whatever the activations are.
 * Bits     A second run must give the same; one that is thrifty need not, and has no more scratch.
 * Failures are told one by one with op, case, types, shapes, the first element that is wrong and
 *          how many are; the loop goes on. Each op runs in a process of its own where `apart` says
 *          so: a kernel that takes the card's context with it costs one case, not the rest.
 * Environment, for a run on a card that is to tell everything at once:
 *          BERTH_TEST_BACKEND=cuda  this backend alone, and a card that cannot be opened is an
 *                                   error instead of skipped tests; cpu: only the CPU
 *          BERTH_TEST_OP=linear     this op alone
 *          BERTH_TEST_DEVICE=cuda:1 another card
 *          BERTH_TEST_LARGE=1       the large cases on the host, too; 0: nowhere, for tools that
 *                                   make kernels a hundred times slower
 *          BERTH_TEST_FORK=0        all in one process, for debuggers */
#ifndef UNIT_OP_OP_DEVICE_H
#define UNIT_OP_OP_DEVICE_H

#include "support/devices.h"
#include "unit/op/op_large.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD = 256, TYPES = 3 };
static const enum dtype act_types[TYPES] = { DT_F32, DT_F16, DT_BF16 };

/* How far off a backend may be: on F32, relative to the largest value; with 16 bits one rounding of
 * each value comes on top. Products may round weights and sums on their way (`sums`): there the
 * bound is that of the type alone. */
struct leeway {
    const char *op;
    double f32;
    bool sums;
};
static const struct leeway leeways[] = {
    { "linear", 1e-5, true },    { "matmul", 1e-5, true },      { "conv2d", 1e-5, true },
    { "attention", 1e-5, true }, { "group_norm", 5e-6, false }, { "row_norm", 5e-6, false },
    { "qk_rope", 2e-6, false },  { "gate", 1e-6, false },       { "unary", 1e-6, false },
    { "binary", 1e-6, false },   { "geglu", 1e-6, false },      { "resize2d", 1e-6, false },
    { "channel_norm", 5e-6, false },
    { "timestep", 2e-4, false }, /* an angle of 1000 moves by 6e-5 with the frequency's last bit */
};

static const struct leeway *leeway_of(const char *op)
{
    static const struct leeway exact = { .op = "" }; /* what moves and looks up */
    for (size_t i = 0; i < sizeof leeways / sizeof *leeways; i++)
        if (strcmp(leeways[i].op, op) == 0)
            return &leeways[i];
    return &exact;
}

/* Linear into F32 from operands of 16 bits: less than one rounding to F16 of the largest value. */
#define UNROUNDED 1e-4

/* Half the distance to the next number of the type: one rounding. */
static double one_rounding(enum dtype t, double x)
{
    if (t == DT_F32)
        return 0; /* part of the tolerance */
    double normal = t == DT_F16 ? ldexp(1, -14) : ldexp(1, -126);
    return ldexp(fmax(fabs(x), normal), t == DT_F16 ? -11 : -8);
}

static double allowed(const struct leeway *l, enum dtype t, double want, double most)
{
    if (l->sums && t != DT_F32)
        return (t == DT_F16 ? 2e-3 : 1.6e-2) * most;
    return l->f32 * most + one_rounding(t, want);
}

/* What an op's cases came to; in memory that processes share. */
struct tally {
    size_t cases[TYPES], bad[TYPES];
    double worst[TYPES];         /* of the largest value */
    size_t at;                   /* the present case * TYPES + type */
    bool lost;                   /* the device answers no more */
    char why[sizeof(berth_err)]; /* it could not be opened */
};

struct stand {
    const struct op_backend *backend;
    struct devset *set;
    struct device *dev;
    struct dev_owner *owner;
    struct dev_stream *stream;
    struct dev_mem operands, scratch; /* as large as any case wanted them so far */
    struct tally *tally;
    bool large; /* the cases of op_large.h, too */
    bool quiet;
    unsigned again;             /* runs after the first; 0: one */
    void (*turn)(unsigned run); /* told before each, from 0 on; NULL: nobody is */
};

static void stand_close(struct stand *s)
{
    dev_free(&s->operands);
    dev_free(&s->scratch);
    dev_stream_free(s->stream);
    dev_owner_close(s->owner);
    devset_close(s->set);
    *s = (struct stand) { 0 };
}

/* backend NULL: the device's own. */
static berth_status stand_open_in(struct stand *s, const struct dev_env *env, const char *device,
                                  const struct op_backend *backend, struct tally *tally,
                                  berth_err *err)
{
    *s = (struct stand) { .tally = tally };
    if (try_devices(device, env, &s->set, err))
        return err->code;
    s->dev = devset_at(s->set, 0);
    s->backend = backend ? backend : op_backend_for(s->dev);
    const char *asked = getenv("BERTH_TEST_LARGE");
    s->large = asked && *asked ? strcmp(asked, "0") != 0 : !dev_can(s->dev, BERTH_CAP_HOST_VISIBLE);
    if (!s->backend)
        err_set(err, BERTH_EUNSUPPORTED, "%s has no kernels", device);
    else if (!dev_owner_open(s->dev, "test", DEV_ACTIVATIONS, &s->owner, err) &&
             !dev_stream_new(s->dev, &s->stream, err))
        return BERTH_OK;
    berth_status why = err->code;
    stand_close(s);
    return why;
}

static inline berth_status stand_open(struct stand *s, const char *device,
                                      const struct op_backend *backend, struct tally *tally,
                                      berth_err *err)
{
    static const struct dev_env none;
    return stand_open_in(s, &none, device, backend, tally, err);
}

/* Room of n bytes, NaN where it is new. */
static berth_status grow(struct stand *s, struct dev_mem *m, size_t n, berth_err *err)
{
    if (m->n >= n)
        return BERTH_OK;
    dev_free(m);
    if (dev_alloc(s->dev, s->owner, n + n / 2, m, err))
        return err->code;
    char *nan = malloc(m->n);
    assert_non_null(nan);
    memset(nan, 0xff, m->n);
    if (!dev_copy_h2d(s->stream, m->addr, nan, m->n, err))
        (void)dev_stream_sync(s->stream, err);
    free(nan);
    return err->code;
}

/* One case in one type. */
struct trial {
    struct stand *s;
    struct rig rig;
    enum dtype type, param, side;
    bool fp8;
    size_t at[64];    /* of each store in the image */
    char *image;      /* what is copied to the device, guards included */
    char *back;       /* and from there */
    size_t bytes;     /* of each */
    union any a;      /* the call's operands, on the device */
    struct view x[8]; /* of concat */
    float *want;
    double most; /* the largest of them */
};

/* Says what is wrong, with everything about the case in front of it. */
__attribute__((format(printf, 2, 3))) static void complain(const struct trial *t, const char *f,
                                                           ...)
{
    if (t->s->quiet)
        return;
    printf("FAILED %s: %s case %zu, %s (parameters %s, masks %s):", t->s->backend->name,
           t->rig.op->name, t->rig.i, dtype_name(t->type), dtype_name(t->param),
           dtype_name(t->side));
    for (const struct operand *o = t->rig.op->operand; o->name; o++) {
        const struct view *v = operand(&t->rig.a, o);
        char shape[SHAPE_TEXT_MAX];
        if (v->data)
            printf(" %s %s%s%s%s,", o->name, shape_text(&v->shape, shape),
                   view_contiguous(v) ? "" : " strided", v->dtype == DT_F32 ? "" : " ",
                   v->dtype == DT_F32 ? "" : dtype_name(v->dtype));
    }
    va_list args;
    va_start(args, f);
    putchar(' ');
    vprintf(f, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

static size_t store_of(const struct bag *b, const void *p)
{
    for (size_t i = 0; i < b->n; i++)
        if ((const char *)p >= b->store[i].at &&
            (const char *)p < b->store[i].at + b->store[i].bytes)
            return i;
    BUG("an operand lies in no store");
}

static enum dtype type_there(const struct trial *t, const struct store *s)
{
    return s->held == HELD_ACT     ? t->type
           : s->held == HELD_PARAM ? t->param
           : s->held == HELD_SIDE  ? t->side
                                   : s->dtype;
}

/* Numbers the type has: the reference and the device start from the same. */
static void round_store(const struct store *s, enum dtype t)
{
    size_t n = s->bytes / sizeof(float);
    uint16_t *narrow = malloc(s->bytes + 1);
    berth_err err;
    assert_non_null(narrow);
    assert_ok(convert(DT_F32, s->at, t, narrow, n, &err), err);
    assert_ok(convert(t, narrow, DT_F32, s->at, n, &err), err);
    free(narrow);
}

/* Results are NaN before they are computed, unless somebody reads that memory. */
static void poison(const struct trial *t)
{
    const struct rig *r = &t->rig;
    for (const struct operand *o = r->op->operand; o->name; o++) {
        struct view *v = operand(&r->a, o);
        bool read = !(o->how & WRITTEN) || o->how & IN_PLACE || op_count(v) == 0;
        for (const struct operand *p = r->op->operand; p->name && !read; p++) {
            const struct view *w = operand(&r->a, p);
            read = p != o && w->data && store_of(&r->bag, w->data) == store_of(&r->bag, v->data);
        }
        for (size_t e = 0; !read && e < op_count(v); e++)
            memset(element(v, e), 0xff, sizeof(float));
    }
}

/* Every store in the type it has there, between guards. */
static void make_image(struct trial *t)
{
    const struct bag *b = &t->rig.bag;
    for (size_t i = 0; i < b->n; i++) {
        t->at[i] = t->bytes + GUARD;
        t->bytes = (t->at[i] + b->store[i].bytes + GUARD + 255) & ~(size_t)255;
    }
    t->image = malloc(t->bytes);
    t->back = malloc(t->bytes);
    assert_true(t->image && t->back);
    memset(t->image, 0xa5, t->bytes);
    for (size_t i = 0; i < b->n; i++) {
        const struct store *s = &b->store[i];
        enum dtype to = type_there(t, s);
        berth_err err;
        if (to == s->dtype)
            memcpy(t->image + t->at[i], s->at, s->bytes);
        else
            assert_ok(
                convert(DT_F32, s->at, to, t->image + t->at[i], s->bytes / sizeof(float), &err),
                err);
    }
}

/* A view of the host's where it lies there. */
static struct view there(const struct trial *t, struct view v, char *base)
{
    size_t i = store_of(&t->rig.bag, v.data);
    const struct store *s = &t->rig.bag.store[i];
    enum dtype to = type_there(t, s);
    size_t was = dtype_desc(s->dtype)->bytes, is = dtype_desc(to)->bytes;
    size_t at = (size_t)((const char *)v.data - s->at);
    if (to != s->dtype) {
        at = at / was * is;
        for (int d = 0; d < v.shape.ndim; d++)
            v.stride[d] = v.stride[d] / was * is;
    }
    v.dtype = to;
    v.data = base + t->at[i] + at;
    return v;
}

static void map_operands(struct trial *t, char *base)
{
    const struct rig *r = &t->rig;
    t->a = r->a;
    for (const struct operand *o = r->op->operand; o->name; o++)
        if (operand(&r->a, o)->data)
            *operand(&t->a, o) = there(t, *operand(&r->a, o), base);
    if (r->op->make != make_concat)
        return;
    assert_true(r->a.concat.n <= sizeof t->x / sizeof *t->x);
    for (size_t i = 0; i < r->a.concat.n; i++)
        t->x[i] = there(t, r->a.concat.x[i], base);
    t->a.concat.x = t->x;
}

/* The image to the device, the op there, and all of it back. */
static berth_status compute_there(struct trial *t, bool thrifty, size_t *scratch, berth_err *err)
{
    struct stand *s = t->s;
    char guard[GUARD], left[GUARD] = { 0 };
    memset(guard, 0x5a, sizeof guard);
    struct op_env env = { .backend = s->backend,
                          .stream = dev_can(s->dev, BERTH_CAP_HOST_VISIBLE) ? NULL : s->stream,
                          .thrifty = thrifty,
                          .fp8 = t->fp8 };
    if (grow(s, &s->operands, t->bytes, err))
        return err->code;
    map_operands(t, (char *)(uintptr_t)s->operands.addr);
    env.scratch_bytes = *scratch = t->rig.op->scratch(&env, &t->a);
    if (env.scratch_bytes > (size_t)4 << 30)
        return err_set(err, BERTH_ELIMIT, "wants %zu bytes of scratch", env.scratch_bytes);
    if (grow(s, &s->scratch, env.scratch_bytes + GUARD, err))
        return err->code;
    env.scratch = (void *)(uintptr_t)s->scratch.addr;
    uint64_t behind = s->scratch.addr + env.scratch_bytes;
    if (dev_copy_h2d(s->stream, behind, guard, GUARD, err) ||
        dev_copy_h2d(s->stream, s->operands.addr, t->image, t->bytes, err) ||
        dev_stream_sync(s->stream, err) || t->rig.op->call(&env, &t->a, err) ||
        dev_stream_sync(s->stream, err) ||
        dev_copy_d2h(s->stream, t->back, s->operands.addr, t->bytes, err) ||
        dev_copy_d2h(s->stream, left, behind, GUARD, err) || dev_stream_sync(s->stream, err))
        return err->code;
    if (memcmp(guard, left, GUARD) != 0)
        return err_set(err, BERTH_EDEVICE, "writes behind its %zu bytes of scratch", *scratch);
    return BERTH_OK;
}

/* One result against the reference's values; false: something is wrong with it. */
static bool compare_values(const struct trial *t, const char *how, const char *name,
                           const struct view *v, const float *want)
{
    const struct rig *r = &t->rig;
    struct leeway l = *leeway_of(r->op->name);
    l.f32 = fmax(l.f32, r->tol);
    size_t wrong = 0, first = 0, n = op_count(v), ti = t->s->tally->at % TYPES;
    float *got = malloc(n * sizeof *got + 1), *rounded = malloc(n * sizeof *rounded + 1);
    uint32_t *narrow = malloc(n * sizeof *narrow + 1);
    double worst = 0;
    berth_err err;
    assert_true(got && rounded && narrow);
    values_of(v, got);
    enum dtype type = l.sums ? t->type : v->dtype; /* weights may be rounded, whatever y is */
    if (type != v->dtype && r->op->make == make_linear && r->a.linear.w.dtype == type) {
        /* but are not: it is a sum in F32 */
        l.f32 = UNROUNDED;
        type = DT_F32;
    }
    assert_ok(convert(DT_F32, want, type, narrow, n, &err), err);
    assert_ok(convert(type, narrow, DT_F32, rounded, n, &err), err);
    for (size_t e = 0; e < n; e++) {
        double off = fabs((double)got[e] - (double)want[e]);
        bool good =
            l.f32 == 0 ? got[e] == rounded[e] : off <= allowed(&l, type, (double)want[e], t->most);
        if (!good && !wrong++)
            first = e;
        if (!(off <= worst))
            worst = isnan(off) ? (double)INFINITY : off;
    }
    if (worst / t->most > t->s->tally->worst[ti])
        t->s->tally->worst[ti] = worst / t->most;
    if (wrong)
        complain(t,
                 "%s%s has %zu of %zu wrong, the first at %zu: got %.9g, want %.9g; the worst is "
                 "off by %g, the largest value is %g",
                 how, name, wrong, n, first, (double)got[first], (double)want[first], worst,
                 t->most);
    free(got), free(rounded), free(narrow);
    return !wrong;
}

/* Results against the reference, then the rest against what it was. */
static bool compare_results(struct trial *t, const char *how)
{
    const struct rig *r = &t->rig;
    const float *want = t->want;
    bool fine = true;
    map_operands(t, t->back);
    for (const struct operand *o = r->op->operand; o->name; o++)
        if (o->how & WRITTEN) {
            fine = compare_values(t, how, o->name, operand(&t->a, o), want) && fine;
            want += op_count(operand(&t->a, o));
        }
    for (const struct operand *o = r->op->operand; o->name; o++) { /* count as before */
        const struct view *v = operand(&t->a, o);
        size_t n = o->how & WRITTEN ? op_count(v) : 0, run = n ? run_of(v) : 1;
        for (size_t e = 0; e < n; e += run) {
            char *at = element(v, e);
            memcpy(at, t->image + (at - t->back), run * dtype_desc(v->dtype)->bytes);
        }
    }
    if (memcmp(t->back, t->image, t->bytes) == 0)
        return fine;
    size_t i = 0, k = 0;
    while (t->back[i] == t->image[i])
        i++;
    while (k + 1 < r->bag.n && t->at[k + 1] <= i + GUARD)
        k++;
    complain(t, "%swrites outside of its results, byte %td of store %zu (%s)", how,
             (ptrdiff_t)i - (ptrdiff_t)t->at[k], k, dtype_name(type_there(t, &r->bag.store[k])));
    return false;
}

/* Runs it; an error of the call is a failure, of the device the end. */
static bool run_there(struct trial *t, bool thrifty, const char *how, size_t *scratch)
{
    berth_err err = { 0 };
    if (!compute_there(t, thrifty, scratch, &err))
        return true;
    complain(t, "%s%s: %s", how, berth_status_name(err.code), err.msg);
    berth_err sync = { 0 };
    if (dev_stream_sync(t->s->stream, &sync)) {
        complain(t, "%sthe device is lost: %s", how, sync.msg);
        t->s->tally->lost = true;
    }
    return false;
}

static void tell(const struct stand *s, unsigned run)
{
    if (s->turn)
        s->turn(run);
}

/* Again, for the same bits. */
static bool run_again(struct trial *t, const char *first)
{
    size_t scratch;
    if (!run_there(t, false, "again: ", &scratch))
        return false;
    if (memcmp(first, t->back, t->bytes) == 0)
        return true;
    complain(t, "another run gives other bits");
    return false;
}

static bool try_all(struct trial *t)
{
    size_t usual, little;
    tell(t->s, 0);
    if (!run_there(t, false, "", &usual))
        return false;
    char *first = malloc(t->bytes);
    assert_non_null(first);
    memcpy(first, t->back, t->bytes);
    bool fine = compare_results(t, "");
    for (unsigned run = 1; run <= (t->s->again ? t->s->again : 1) && !t->s->tally->lost; run++) {
        tell(t->s, run);
        fine = run_again(t, first) && fine;
    }
    free(first);
    if (!fine || t->s->tally->lost || usual == 0)
        return fine;
    tell(t->s, 0);
    if (!run_there(t, true, "thrifty: ", &little))
        return false;
    if (little > usual) {
        complain(t, "thrifty, it wants %zu bytes of scratch, else %zu", little, usual);
        fine = false;
    }
    return compare_results(t, "thrifty: ") && fine;
}

/* Operands as they were made, in numbers of their types, results poisoned. */
static void prepare(struct trial *t)
{
    rig_restore(&t->rig);
    for (size_t k = 0; k < t->rig.bag.n; k++)
        if (t->rig.bag.store[k].held >= HELD_ACT)
            round_store(&t->rig.bag.store[k], type_there(t, &t->rig.bag.store[k]));
    poison(t);
}

static void ask_reference(struct trial *t)
{
    berth_err err = { 0 };
    assert_ok(run_on_host(t->rig.op, &t->rig.a, (struct op_env) { 0 }, &err), err);
    free(t->want);
    t->want = result(&t->rig);
    t->most = 1e-30;
    for (size_t e = 0, n = result_count(t->rig.op, &t->rig.a); e < n; e++)
        t->most = fmax(t->most, fabs((double)t->want[e]));
}

/* Products of fp8, where a device has them, round x as well; where not, it is the usual product. */
static bool try_fp8(struct trial *t)
{
    if (t->rig.op->make != make_linear || t->rig.a.linear.w.dtype != DT_F8_E4M3 ||
        t->type == DT_F32 || t->s->tally->lost)
        return true;
    size_t scratch, ti = t->s->tally->at % TYPES;
    t->fp8 = true;
    if (!run_there(t, false, "fp8: ", &scratch))
        return false;
    char *back = malloc(t->bytes);
    assert_non_null(back);
    memcpy(back, t->back, t->bytes);
    double worst = t->s->tally->worst[ti];
    bool quiet = t->s->quiet;
    t->s->quiet = true;
    bool fine = compare_results(t, "");
    t->s->quiet = quiet;
    t->s->tally->worst[ti] = worst;
    if (!fine) {
        memcpy(t->back, back, t->bytes);
        prepare(t);
        round_store(&t->rig.bag.store[store_of(&t->rig.bag, t->rig.a.linear.x.data)], DT_F8_E4M3);
        ask_reference(t);
        fine = compare_results(t, "fp8: ");
    }
    free(back);
    return fine;
}

/* Case i of an op with activations of type `ti`; false: there is none. */
static bool try_case(struct stand *s, const struct op_case *op, size_t i, size_t ti)
{
    struct trial t = { .s = s, .type = act_types[ti] };
    if (i < LARGE ? !rig_make(&t.rig, op, i) : !rig_make_large(&t.rig, op, i - LARGE))
        return false;
    enum dtype p = act_types[(i + ti) % TYPES];
    t.param = s->backend->params & OP_TYPE(p) ? p : DT_F32;
    t.side = i % 2 ? DT_F32 : t.type;
    prepare(&t);
    make_image(&t);
    ask_reference(&t);
    bool fine = try_all(&t) && try_fp8(&t); /* may end the process: then its parent counts */
    s->tally->cases[ti]++;
    s->tally->bad[ti] += !fine;
    free(t.want);
    free(t.image);
    free(t.back);
    rig_free(&t.rig);
    return true;
}

/* Cases from case * TYPES + type on, every `step`th, until there are no more or the device is
 * lost. */
static void try_op(struct stand *s, const struct op_case *op, size_t from, size_t step)
{
    struct tally *y = s->tally;
    for (y->at = from; !y->lost; y->at += step) {
        enum dtype t = act_types[y->at % TYPES];
        if (t != DT_F32 && !(s->backend->acts & OP_TYPE(t)))
            continue;
        if (try_case(s, op, y->at / TYPES, y->at % TYPES))
            continue;
        if (!s->large || y->at / TYPES >= LARGE)
            return;
        y->at = LARGE * TYPES - step; /* the small ones are done */
    }
}

static size_t tally_bad(const struct tally *t)
{
    return t->bad[0] + t->bad[1] + t->bad[2];
}

static bool wanted(const char *variable, const char *name)
{
    const char *only = getenv(variable);
    return !only || !*only || strcmp(only, name) == 0;
}

/* ---- all ops of a device, each in a process of its own ---- */

enum { CHILD_DONE = 0, CHILD_NO_DEVICE = 77, CHILD_LOST = 78, CHILDREN = 24 };

/* Which device, with whose kernels; NULL: its own. */
struct post {
    const char *device;
    const struct op_backend *backend;
};

/* op NULL: only opens the device. */
static int child(const struct post *p, const struct op_case *op, size_t from, struct tally *t)
{
    struct stand s;
    berth_err err = { 0 };
    t->lost = false;
    if (stand_open(&s, p->device, p->backend, t, &err)) {
        snprintf(t->why, sizeof t->why, "%s", err.msg);
        return CHILD_NO_DEVICE;
    }
    if (op)
        try_op(&s, op, from, 1);
    if (t->lost) /* nothing can be freed there any more */
        return CHILD_LOST;
    stand_close(&s);
    return CHILD_DONE;
}

static inline int apart(const struct post *p, const struct op_case *op, size_t from,
                        struct tally *t)
{
    if (!wanted("BERTH_TEST_FORK", "1"))
        return child(p, op, from, t);
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int rc = child(p, op, from, t);
        fflush(stdout);
        _exit(rc);
    }
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

/* An op to its end, over as many processes as it takes. False: there is no device any more. */
static inline bool op_apart(const struct post *p, const struct op_case *op, struct tally *t)
{
    size_t from = 0;
    for (int n = 0; n < CHILDREN; n++) {
        int rc = apart(p, op, from, t);
        if (rc == CHILD_DONE || rc == CHILD_NO_DEVICE)
            return rc == CHILD_DONE;
        printf("FAILED %s: case %zu with %s ended its process (%s %d)\n", op->name, t->at / TYPES,
               dtype_name(act_types[t->at % TYPES]), rc > 128 ? "signal" : "code",
               rc > 128 ? rc - 128 : rc);
        if (rc != CHILD_LOST) { /* which had counted it */
            t->cases[t->at % TYPES]++;
            t->bad[t->at % TYPES]++;
        }
        from = t->at + 1;
    }
    printf("FAILED %s: given up after %d processes\n", op->name, CHILDREN);
    t->bad[0]++;
    return true;
}

static inline struct tally *shared_tally(void)
{
    const int how = MAP_SHARED | MAP_ANONYMOUS;
    struct tally *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, how, -1, 0);
    assert_true(t != MAP_FAILED);
    return t;
}

static inline void sum_up(const char *device, const char *op, const struct tally *t)
{
    printf("%-8s %-10s", device, op);
    for (size_t i = 0; i < TYPES; i++)
        if (t->cases[i])
            printf("  %s %zu/%zu (worst %.2g)", dtype_name(act_types[i]), t->cases[i] - t->bad[i],
                   t->cases[i], t->worst[i]);
    printf("\n");
}

/* The loop. Skips the test when there is no such device and nobody asked for it. */
static inline void every_op_on(const char *backend, const char *fallback)
{
    const char *only = getenv("BERTH_TEST_BACKEND"), *named = getenv("BERTH_TEST_DEVICE");
    bool other = named && strncmp(named, backend, strlen(backend)) == 0;
    const char *device = other ? named : fallback;
    const struct post p = { .device = device };
    if (!wanted("BERTH_TEST_BACKEND", backend)) {
        print_message("skipped: BERTH_TEST_BACKEND is %s\n", only);
        skip();
    }
    struct tally *t = shared_tally();
    char why[sizeof t->why] = "";
    bool there_is = apart(&p, NULL, 0, t) == CHILD_DONE;
    memcpy(why, t->why, sizeof why);
    size_t bad = 0, all = 0;
    for (size_t o = 0; o < OPS && there_is; o++) {
        if (!wanted("BERTH_TEST_OP", ops[o].name))
            continue;
        memset(t, 0, sizeof *t);
        if (!op_apart(&p, &ops[o], t)) {
            printf("FAILED %s: the device does not open any more: %s\n", ops[o].name, t->why);
            t->bad[0]++;
        }
        sum_up(device, ops[o].name, t);
        bad += tally_bad(t);
        all += t->cases[0] + t->cases[1] + t->cases[2];
    }
    munmap(t, sizeof *t);
    if (!there_is && only && *only)
        fail_msg("%s does not open: %s", device, why);
    if (!there_is) {
        print_message("skipped: ops on %s: %s\n", device, why);
        skip();
    }
    print_message("%s: %zu of %zu right\n", device, all - bad, all);
    if (bad || !all)
        fail_msg("%zu cases of %s are wrong, of %zu", bad, device, all);
}

#endif
