/* Cards through the driver API: opening them, what the driver says, losing them, every call
 * failing. */
#include "contract.h"
#include "cuda_rig.h"
#include "support/oom.h"

#include <pthread.h>

/* ---- the contract ---- */

static void with(const char *text, bool no_vmm, void (*check)(struct devset *set))
{
    struct rig r;
    any_rig(&r);
    if (r.fake) {
        r.fake->cards = 2;
        r.fake->peer = true;
        r.fake->no_vmm = r.fake->misaligned = no_vmm;
    }
    struct devset *set = open_devices(text, &r.env);
    check(set);
    close_clean(&r, set);
}

static void keeps_the_contract(void **state)
{
    (void)state;
    with("cuda:0=64m,cpu=64m", false, a_phys_is_sound);
    with("cuda:0=64m,cpu=64m", false, discards_and_restores);
    with("cuda:0=64m,cpu=64m", false, bytes_arrive);
    with("cuda:0=64m,cuda:9@cuda:0=64m", false, bytes_arrive);
    with("cuda:0=64m,cpu=64m", false, copies_stay_in_one_pin);
}

static void keeps_it_without_virtual_memory(void **state)
{
    (void)state;
    FAKE_ONLY();
    with("cuda:1=64m,cuda:0=64m", true, a_phys_is_sound);
    with("cuda:1=64m,cuda:0=64m", true, discards_and_restores);
    with("cuda:1=64m,cuda:0=64m", true, bytes_arrive);
    with("cuda:1=64m,cuda:0=64m", false, bytes_arrive);
}

/* ---- who is there ---- */

static void no_cuda(struct rig *r, bool broken, const char *why)
{
    struct devset *set;
    struct dev_absent a;
    berth_err err = { 0 };
    assert_ok(devset_open(NULL, &r->env, &set, &err), err);
    assert_int_equal(devset_count(set), 1);
    assert_string_equal(devset_at(set, 0)->name, "cpu");
    assert_true(devset_absent(set, 0, &a));
    assert_string_equal(a.kind, "cuda");
    assert_string_equal(a.why, why);
    assert_int_equal(a.broken, broken);
    assert_false(devset_absent(set, 1, &a));
    devset_close(set);
    assert_fails(try_devices("cuda:0=1g", &r->env, &set, &err), err, BERTH_EUNSUPPORTED, why);
}

static void says_why_there_is_none(void **state)
{
    struct rig r;
    (void)state;
    fake_rig(&r);
    r.env.cuda_library = "libno-such-cuda.so.1";
    no_cuda(&r, false,
            "libno-such-cuda.so.1: cannot open shared object file: no NVIDIA driver on this "
            "machine");
    r.env.cuda_library = "libm.so.6";
    no_cuda(&r, true, "libm.so.6 has no cuInit: the NVIDIA driver is too old");
    r.env.cuda_library = BERTH_FAKE_CUDA;
    r.fake->init = CUDA_ERROR_NO_DEVICE;
    no_cuda(&r, true, "cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)");
    r.fake->init = 0;
    r.fake->cards = 0;
    no_cuda(&r, false, "the NVIDIA driver shows no card");
}

static void cards_come_before_the_processor(void **state)
{
    struct rig r;
    struct devset *set;
    struct dev_absent a;
    berth_err err = { 0 };
    (void)state;
    FAKE_ONLY();
    fake_rig(&r);
    r.fake->cards = 2;
    assert_ok(devset_open(NULL, &r.env, &set, &err), err);
    assert_int_equal(devset_count(set), 3);
    assert_string_equal(devset_at(set, 0)->name, "cuda:0");
    assert_string_equal(devset_at(set, 1)->name, "cuda:1");
    assert_string_equal(devset_at(set, 2)->name, "cpu");
    assert_true(devset_at(set, 0)->budget == r.fake->total);
    assert_false(devset_absent(set, 0, &a));
    const struct cuda_phys *p = cuda_of(devset_at(set, 1)->phys);
    assert_string_equal(p->base.model, "Fake 1");
    assert_int_equal(p->sm, 90);
    assert_int_equal(p->multiprocessors, 132);
    assert_int_equal(p->threads_per_mp, 2048);
    assert_int_equal(p->api->driver, 13000);
    close_clean(&r, set);
}

static void only_chosen_cards_are_seen(void **state)
{
    static const struct {
        const char *text;
        int n;
        const char *card[3];
        berth_status code;
        const char *why;
    } cases[] = {
        { "1", 1, { "Fake 1" }, BERTH_OK, NULL },
        { "2,0", 2, { "Fake 2", "Fake 0" }, BERTH_OK, NULL },
        { "1,*", 3, { "Fake 1", "Fake 0", "Fake 2" }, BERTH_OK, NULL },
        { "0,0", 1, { "Fake 0" }, BERTH_OK, NULL },
        { "*", 3, { "Fake 0", "Fake 1", "Fake 2" }, BERTH_OK, NULL },
        { "3",
          0,
          { NULL },
          BERTH_EUNSUPPORTED,
          "driver cuda: no card 3: the NVIDIA driver shows 3" },
        { "0,99999999999999999999", 0, { NULL }, BERTH_EUNSUPPORTED, "the NVIDIA driver shows 3" },
        { "", 0, { NULL }, BERTH_EINVAL, "an empty list" },
        { "1,", 0, { NULL }, BERTH_EINVAL, "numbers with commas between" },
        { "-1", 0, { NULL }, BERTH_EINVAL, "numbers with commas between" },
        { "*,1", 0, { NULL }, BERTH_EINVAL, "numbers with commas between" },
        { "1 ", 0, { NULL }, BERTH_EINVAL, "numbers with commas between" },
    };
    struct rig r;
    (void)state;
    fake_rig(&r);
    r.fake->cards = 3;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct devset *set;
        berth_err err = { 0 };
        r.env.cuda_cards = cases[i].text;
        berth_status s = devset_open(NULL, &r.env, &set, &err);
        assert_int_equal(s, cases[i].code);
        if (s) {
            assert_non_null(strstr(err.msg, cases[i].why));
            continue;
        }
        assert_int_equal(devset_count(set), cases[i].n + 1);
        for (int k = 0; k < cases[i].n; k++)
            assert_string_equal(devset_at(set, (size_t)k)->phys->model, cases[i].card[k]);
        close_clean(&r, set);
    }
    r.env.cuda_cards = "0";
    r.env.cuda_library = "libno-such-cuda.so.1";
    struct devset *set;
    berth_err err = { 0 };
    assert_fails(devset_open(NULL, &r.env, &set, &err), err, BERTH_EUNSUPPORTED,
                 "no NVIDIA driver on this machine");
}

static void logical_devices_share_a_card(void **state)
{
    struct rig r;
    (void)state;
    any_rig(&r);
    struct devset *set = open_devices("cuda:0=100m,cuda:7@cuda:0=60m,cpu=1g", &r.env);
    struct device *a = devset_at(set, 0), *b = devset_at(set, 1);
    struct dev_owner *oa = owner_of(a, "a", DEV_WEIGHTS), *ob = owner_of(b, "b", DEV_WEIGHTS);
    struct dev_mem ma = alloc_on(a, oa, 90 * MIB), mb = alloc_on(b, ob, 50 * MIB), none;
    berth_err err = { 0 };
    assert_ptr_equal(a->phys, b->phys);
    assert_true(dev_can_peer(a, b));
    assert_fails(dev_alloc(a, oa, 20 * MIB, &none, &err), err, BERTH_ENODEVMEM, "of budget");
    assert_fails(dev_alloc(b, ob, 20 * MIB, &none, &err), err, BERTH_ENODEVMEM, "of budget");
    struct dev_stream *s = stream_of(b);
    assert_ok(
        dev_copy(s, (struct dev_at) { a, ma.addr }, (struct dev_at) { b, mb.addr }, 50 * MIB, &err),
        err);
    dev_stream_free(s);
    dev_free(&ma);
    dev_free(&mb);
    dev_owner_close(oa);
    dev_owner_close(ob);
    close_clean(&r, set);
    if (r.fake)
        assert_fails(try_devices("cuda:0=200m,cuda:7@cuda:0=60m", &r.env, &set, &err), err,
                     BERTH_ELIMIT, "cuda:0 has 256 MiB");
    assert_clean(&r);
}

/* ---- other threads ---- */

static void *ask(void *user)
{
    struct device *d = user;
    struct dev_info info;
    berth_err err = { 0 };
    for (int i = 0; i < 100; i++)
        if (dev_info(d, &info, &err) || info.free > info.total)
            return d;
    return NULL;
}

static void any_thread_asks_for_memory(void **state)
{
    struct rig r;
    pthread_t t[2];
    void *failed[2];
    (void)state;
    any_rig(&r);
    struct devset *set = open_devices("cuda:0=64m", &r.env);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "x", DEV_WEIGHTS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, ask, d), 0);
    for (int i = 0; i < 20; i++) {
        struct dev_mem m = alloc_on(d, o, 10 * MIB);
        dev_free(&m);
        dev_trim(d);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], &failed[i]);
        assert_null(failed[i]);
    }
    dev_owner_close(o);
    close_clean(&r, set);
}

/* ---- losing a card ---- */

static void a_lost_card_says_so(void **state)
{
    static const char why[] = "cuda:0 is lost: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (an "
                              "illegal memory access was encountered)";
    struct rig r;
    struct dev_mem none;
    struct dev_info info;
    struct dev_host h, more;
    struct dev_stream *sick;
    char byte = 1;
    bool done;
    int64_t ns;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    r.fake->cards = 2;
    r.fake->peer = true;
    struct devset *set = open_devices("cuda:0=64m,cuda:1=64m", &r.env);
    struct device *d = devset_at(set, 0), *well = devset_at(set, 1);
    struct dev_owner *o = owner_of(d, "x", DEV_WEIGHTS), *po = owner_of(d, "p", DEV_PINNED);
    struct dev_owner *wo = owner_of(well, "w", DEV_WEIGHTS);
    struct dev_mem m = alloc_on(d, o, 4 * MIB), wm = alloc_on(well, wo, 4 * MIB);
    struct dev_stream *s = stream_of(d), *ws = stream_of(well);
    struct dev_event *e = event_of(d);
    assert_ok(dev_host_alloc(d, po, MIB, &h, &err), err);
    assert_ok(dev_event_record(e, s, &err), err);
    r.lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_fails(dev_stream_sync(s, &err), err, BERTH_EDEVICE, why);
    assert_int_equal(err.native, CUDA_ERROR_ILLEGAL_ADDRESS);
    long calls = r.fake->calls; /* from now on nobody asks the driver */
    assert_fails(dev_copy_h2d(s, m.addr, &byte, 1, &err), err, BERTH_EDEVICE, why);
    assert_fails(dev_copy_d2h(s, &byte, m.addr, 1, &err), err, BERTH_EDEVICE, why);
    assert_fails(
        dev_copy(s, (struct dev_at) { d, m.addr }, (struct dev_at) { d, m.addr + 2 }, 1, &err), err,
        BERTH_EDEVICE, why);
    assert_fails(dev_stream_new(d, &sick, &err), err, BERTH_EDEVICE, why);
    assert_fails(dev_event_sync(e, &err), err, BERTH_EDEVICE, why);
    assert_fails(dev_event_query(e, &done, &err), err, BERTH_EDEVICE, why);
    assert_fails(dev_event_elapsed(e, e, &done, &ns, &err), err, BERTH_EDEVICE, why);
    assert_fails(dev_event_record(e, s, &err), err, BERTH_EDEVICE, why);
    assert_fails(dev_alloc(d, o, 20 * MIB, &none, &err), err, BERTH_EDEVICE, why);
    assert_fails(dev_host_alloc(d, po, MIB, &more, &err), err, BERTH_EDEVICE, why);
    assert_fails(dev_info(d, &info, &err), err, BERTH_EDEVICE, why);
    assert_int_equal(r.fake->calls, calls);
    /* The other card goes on, but for copies between the two. */
    assert_ok(dev_copy_h2d(ws, wm.addr, &byte, 1, &err), err);
    assert_fails(
        dev_copy(ws, (struct dev_at) { well, wm.addr }, (struct dev_at) { d, m.addr }, 1, &err),
        err, BERTH_EDEVICE, why);
    assert_ok(dev_stream_sync(ws, &err), err);
    dev_host_free(&h);
    dev_stream_free(s);
    dev_stream_free(ws);
    dev_event_free(e);
    dev_free(&m);
    dev_free(&wm);
    dev_owner_close(o);
    dev_owner_close(po);
    dev_owner_close(wo);
    devset_close(set);
    assert_clean(&r);
    set = open_devices("cuda:0=64m", &r.env);
    close_clean(&r, set);
}

/* A card that nobody knows is lost has part in a call of its peer: the peer goes on. */
static void a_lost_card_does_not_take_its_peers_along(void **state)
{
    static const char why[] = "cuda:0 is lost: ";
    enum { ALLOC, WAIT, COPY, WAYS };
    (void)state;
    for (int way = ALLOC; way < WAYS; way++) {
        struct rig r;
        struct dev_mem more = { 0 };
        berth_err err = { 0 };
        char byte = 1;
        fake_rig(&r);
        r.fake->cards = 2;
        r.fake->peer = true;
        struct devset *set = open_devices("cuda:0=64m,cuda:1=64m", &r.env);
        struct device *sick = devset_at(set, 0), *well = devset_at(set, 1);
        struct dev_owner *so = owner_of(sick, "x", DEV_WEIGHTS);
        struct dev_owner *wo = owner_of(well, "x", DEV_WEIGHTS);
        struct dev_mem sm = alloc_on(sick, so, MIB), wm = alloc_on(well, wo, MIB);
        struct dev_stream *ss = stream_of(sick), *ws = stream_of(well);
        struct dev_event *e = event_of(sick);
        assert_ok(dev_event_record(e, ss, &err), err);
        r.lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
        struct dev_at here = { well, wm.addr }, there = { sick, sm.addr };
        if (way == WAIT)
            assert_fails(dev_stream_wait(ws, e, &err), err, BERTH_EDEVICE, why);
        else if (way == COPY)
            assert_fails(dev_copy(ws, here, there, MIB, &err), err, BERTH_EDEVICE, why);
        assert_ok(dev_alloc(well, wo, 32 * MIB, &more, &err), err);
        assert_int_not_equal(atomic_load(&cuda_of(sick->phys)->lost), 0);
        assert_int_equal(atomic_load(&cuda_of(well->phys)->lost), 0);
        assert_ok(dev_copy_h2d(ws, more.addr, &byte, 1, &err), err);
        assert_ok(dev_stream_sync(ws, &err), err);
        assert_fails(dev_stream_wait(ws, e, &err), err, BERTH_EDEVICE, why);
        dev_free(&sm);
        dev_free(&wm);
        dev_free(&more);
        dev_event_free(e);
        dev_stream_free(ss);
        dev_stream_free(ws);
        dev_owner_close(so);
        dev_owner_close(wo);
        close_clean(&r, set);
    }
}

/* Opening a card tries whether it reaches the others: that it dies of it is not a success. */
static void a_card_lost_while_opening_is_not_opened(void **state)
{
    struct rig r;
    void *library;
    struct phys *a, *b;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    r.fake->cards = 2;
    r.fake->peer = true;
    assert_ok(driver_cuda.library_open(&r.env, &library, &err), err);
    assert_ok(driver_cuda.open(library, &r.env, 0, 0, &a, &err), err);
    r.fake->fail_name = "cuMemcpyPeerAsync";
    r.fake->fail_at = 1;
    r.fake->fail_with = CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_fails(driver_cuda.open(library, &r.env, 1, 0, &b, &err), err, BERTH_EDEVICE,
                 "cuda:1 is lost: cuMemcpyPeerAsync: CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_null(b);
    driver_cuda.close(a);
    driver_cuda.library_close(library);
    assert_clean(&r);
}

/* Every error after which NVIDIA wants the process relaunched; and one that is just a refusal. */
static void what_makes_a_card_unusable(void **state)
{
    static const int with[] = {
        CUDA_ERROR_ECC_UNCORRECTABLE,
        CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_LAUNCH_FAILED,
        CUDA_ERROR_MPS_RPC_FAILURE,
        CUDA_ERROR_UNKNOWN,
        CUDA_ERROR_MPS_CLIENT_TERMINATED,
#if CUDA_VERSION >= 12080
        CUDA_ERROR_CONTAINED,
        CUDA_ERROR_TENSOR_MEMORY_LEAK,
#endif
        CUDA_ERROR_NOT_PERMITTED,
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(with); i++) {
        struct rig r;
        berth_err err = { 0 };
        fake_rig(&r);
        struct devset *set = open_devices("cuda:0=64m", &r.env);
        struct device *d = devset_at(set, 0);
        struct dev_stream *s = stream_of(d);
        r.fake->fail_name = "cuStreamSynchronize";
        r.fake->fail_at = 1;
        r.fake->fail_with = with[i];
        assert_int_equal(dev_stream_sync(s, &err), BERTH_EDEVICE);
        assert_int_equal(atomic_load(&cuda_of(d->phys)->lost),
                         with[i] == CUDA_ERROR_NOT_PERMITTED ? 0 : with[i]);
        dev_stream_free(s);
        close_clean(&r, set);
    }
}

/* ---- every call fails once ---- */

static berth_status work(struct devset *set, berth_err *err)
{
    struct device *d = devset_at(set, 0), *b = devset_at(set, 1);
    struct dev_owner *o = owner_of(d, "x", DEV_WEIGHTS), *p = owner_of(d, "p", DEV_PINNED);
    struct dev_owner *ob = owner_of(b, "x", DEV_WEIGHTS);
    struct dev_mem m[4] = { { 0 } };
    struct dev_host h = { 0 };
    struct dev_stream *s = NULL, *t = NULL;
    struct dev_event *e = NULL;
    bool done;
    int64_t ns;
    berth_status st = dev_alloc(d, o, 6 * MIB, &m[0], err);
    st = st ? st : dev_alloc(d, o, 6 * MIB, &m[1], err);
    st = st ? st : dev_alloc(d, o, 20 * MIB, &m[2], err);
    st = st ? st : dev_alloc(b, ob, 6 * MIB, &m[3], err);
    dev_free(&m[0]);
    dev_trim(d);                                         /* discards */
    st = st ? st : dev_alloc(d, o, 6 * MIB, &m[0], err); /* restores */
    st = st ? st : dev_host_alloc(d, p, MIB, &h, err);
    st = st ? st : dev_stream_new(d, &s, err);
    st = st ? st : dev_stream_new(b, &t, err);
    st = st ? st : dev_event_new(d, &e, err);
    st = st ? st : dev_copy_h2d(s, m[0].addr, h.ptr, h.n, err);
    st = st ? st
            : dev_copy(s, (struct dev_at) { d, m[1].addr }, (struct dev_at) { d, m[0].addr }, MIB,
                       err);
    st = st ? st
            : dev_copy(s, (struct dev_at) { b, m[3].addr }, (struct dev_at) { d, m[0].addr }, MIB,
                       err);
    st = st ? st : dev_event_record(e, s, err);
    st = st ? st : dev_stream_wait(t, e, err);
    st = st ? st : dev_event_sync(e, err);
    st = st ? st : dev_event_query(e, &done, err);
    st = st ? st : dev_event_elapsed(e, e, &done, &ns, err);
    st = st ? st : dev_copy_d2h(s, h.ptr, m[1].addr, h.n, err);
    st = st ? st : dev_stream_sync(s, err);
    dev_stream_free(s); /* waits, whatever happened */
    dev_stream_free(t);
    dev_event_free(e);
    dev_host_free(&h);
    for (int i = 0; i < 4; i++)
        dev_free(&m[i]);
    assert_sound(d);
    dev_owner_close(o);
    dev_owner_close(p);
    dev_owner_close(ob);
    return st;
}

static bool gives_up(const char *name) /* a call that frees: when it fails, something stays */
{
    return strstr(name, "Destroy") || strstr(name, "Free") || strstr(name, "Release") ||
           strstr(name, "Unmap") || strstr(name, "SetCurrent") || strstr(name, "PopCurrent");
}

static void every_call_fails(CUresult with_what)
{
    struct rig r;
    bool over = false;
    long k = 0;
    while (!over) {
        struct devset *set = NULL;
        berth_err err = { 0 };
        fake_rig(&r);
        r.fake->cards = 2;
        r.fake->peer = true;
        r.fake->fail_at = ++k;
        r.fake->fail_with = (int)with_what;
        berth_status s = try_devices("cuda:0=64m,cuda:1=64m,cpu=64m", &r.env, &set, &err);
        if (!s)
            s = work(set, &err);
        assert_true(!s || err.msg[0]);
        devset_close(set);
        over = r.fake->fail_at > 0; /* it was never reached */
        if (over || !gives_up(r.fake->failed))
            assert_clean(&r);
        if (over)
            assert_int_equal(s, BERTH_OK);
    }
    assert_true(k > 100);
}

static void survives_every_failing_call(void **state)
{
    (void)state;
    every_call_fails(CUDA_ERROR_INVALID_VALUE);
    every_call_fails(CUDA_ERROR_OUT_OF_MEMORY);
}

/* A card lost at each of its calls: clean-up goes on and ends. */
static void survives_loss_at_every_call(void **state)
{
    (void)state;
    every_call_fails(CUDA_ERROR_NOT_PERMITTED);
    every_call_fails(CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void opening_survives_exhaustion(void **state)
{
    struct rig r;
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    (void)state;
    fake_rig(&r);
    r.fake->cards = 2;
    for (; s != BERTH_OK; k++) {
        struct devset *set;
        berth_err err = { 0 };
        oom_after(k);
        s = try_devices("cuda:0=64m,cuda:1=64m", &r.env, &set, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !set && err.msg[0]));
        devset_close(set);
        assert_clean(&r);
    }
    assert_true(k > 8);
}

static void working_survives_exhaustion(void **state)
{
    struct rig r;
    berth_status s = BERTH_ENOMEM;
    (void)state;
    fake_rig(&r);
    r.fake->cards = 2;
    r.fake->peer = true;
    for (long k = 0; s != BERTH_OK; k++) {
        berth_err err = { 0 };
        struct devset *set = open_devices("cuda:0=64m,cuda:1=64m", &r.env);
        struct device *d = devset_at(set, 0);
        struct dev_owner *o = owner_of(d, "x", DEV_WEIGHTS), *p = owner_of(d, "p", DEV_PINNED);
        struct dev_mem m = { 0 };
        struct dev_host h = { 0 };
        struct dev_stream *t = NULL;
        struct dev_event *e = NULL;
        oom_after(k);
        s = dev_alloc(d, o, 20 * MIB, &m, &err);
        s = s ? s : dev_host_alloc(d, p, MIB, &h, &err);
        s = s ? s : dev_stream_new(d, &t, &err);
        s = s ? s : dev_event_new(d, &e, &err);
        s = s ? s : dev_event_record(e, t, &err);
        oom_off();
        assert_true(s == BERTH_OK || s == BERTH_ENOMEM);
        dev_stream_free(t);
        dev_event_free(e);
        dev_host_free(&h);
        dev_free(&m);
        dev_owner_close(o);
        dev_owner_close(p);
        close_clean(&r, set);
    }
}

/* What its users forgot goes with the phys. */
static void closing_frees_what_is_left(void **state)
{
    struct rig r;
    uint64_t addr;
    void *host;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    struct devset *set = open_devices("cuda:0=64m", &r.env);
    struct device *d = devset_at(set, 0);
    struct dev_stream *s = stream_of(d);
    assert_ok(dev_event_record(event_of(d), s, &err), err);
    assert_ok(d->phys->driver->alloc(d->phys, 10 * MIB, &addr, &err), err);
    assert_true(d->phys->driver->discard(d->phys, addr + 2 * MIB, 4 * MIB));
    assert_ok(d->phys->driver->host_alloc(d->phys, MIB, &host, &err), err);
    assert_ok(dev_copy_h2d(s, addr, host, MIB, &err), err);
    close_clean(&r, set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_contract),
        cmocka_unit_test(keeps_it_without_virtual_memory),
        cmocka_unit_test(says_why_there_is_none),
        cmocka_unit_test(cards_come_before_the_processor),
        cmocka_unit_test(only_chosen_cards_are_seen),
        cmocka_unit_test(logical_devices_share_a_card),
        cmocka_unit_test(any_thread_asks_for_memory),
        cmocka_unit_test(a_lost_card_says_so),
        cmocka_unit_test(a_lost_card_does_not_take_its_peers_along),
        cmocka_unit_test(a_card_lost_while_opening_is_not_opened),
        cmocka_unit_test(what_makes_a_card_unusable),
        cmocka_unit_test(survives_every_failing_call),
        cmocka_unit_test(survives_loss_at_every_call),
        cmocka_unit_test(opening_survives_exhaustion),
        cmocka_unit_test(working_survives_exhaustion),
        cmocka_unit_test(closing_frees_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
