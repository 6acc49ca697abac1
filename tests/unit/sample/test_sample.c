/* What holds for a run of any sampler: names, callbacks, cancellation, errors, NaN, memory,
 * threads. */
#include "support/oom.h"
#include "support/test.h"

#include "sample/sample.h"

#include <math.h>

#define N 32
#define BIG 50000 /* several chunks of a pool */
static const float levels[] = { 14.6f, 6, 2.5f, 1, 0.4f, 0 };
#define LEVELS (sizeof levels / sizeof *levels)

struct world {
    struct sample_job j;
    struct msampling ms;
    size_t calls, told, fail_at, nan_at, inf_at, cancel_at; /* counted from 1; 0: never */
    size_t last_i, told_calls;                              /* network calls when told last */
    float first;                                            /* the level of the first call */
    float x[BIG];
    berth_err err;
};

static berth_status denoise(void *user, const float *x, float sigma, float *D, float *U,
                            berth_err *err)
{
    struct world *w = user;
    if (++w->calls == w->fail_at)
        return err_set(err, BERTH_EDEVICE, "the network fell over");
    w->first = w->calls == 1 ? sigma : w->first;
    for (size_t i = 0; i < w->j.n; i++) {
        D[i] = x[i] / (1 + sigma * sigma) + 0.1f * tanhf(x[i]);
        if (U)
            U[i] = 0.9f * D[i];
    }
    if (w->calls == w->nan_at)
        D[w->j.n - 1] = NAN;
    if (w->calls == w->inf_at)
        D[0] = INFINITY;
    return BERTH_OK;
}

static berth_status step(void *user, const struct sample_step *s, berth_err *err)
{
    struct world *w = user;
    assert_int_equal(s->total, w->j.sigmas - 1);
    assert_true(s->i < s->total && (w->told == 0 || s->i >= w->last_i));
    w->last_i = s->i;
    w->told_calls = w->calls;
    return ++w->told == w->cancel_at ? err_set(err, BERTH_ECANCELED, "interrupted") : BERTH_OK;
}

static void fill(struct world *w, size_t n)
{
    struct torch_rng g;
    torch_seed(&g, 7);
    torch_randn(&g, w->x, n);
    for (size_t i = 0; i < n; i++)
        w->x[i] *= w->j.sigma[0];
    w->calls = w->told = w->last_i = w->told_calls = 0;
    w->j.n = n;
}

static int open_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    assert_ok(ms_init(&w->ms, &(struct ms_config) { 0 }, &w->err), w->err);
    w->j = (struct sample_job) { .ms = &w->ms,
                                 .sigma = levels,
                                 .sigmas = LEVELS,
                                 .x = w->x,
                                 .seed = 7,
                                 .opt = sample_defaults,
                                 .denoise = denoise,
                                 .step = step,
                                 .user = w };
    *state = w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    ms_release(&w->ms);
    free(w);
    return 0;
}

static berth_status run(struct world *w, const char *name)
{
    fill(w, N);
    return sample_run(sampler_find(name), &w->j, &w->err);
}

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static void names_and_what_they_need(void **state)
{
    (void)state;
    assert_int_equal(sampler_count(), 44);
    assert_string_equal(sampler_at(0)->name, "euler");
    assert_string_equal(sampler_at(43)->name, "uni_pc_bh2");
    assert_null(sampler_find("eule"));
    assert_null(sampler_find(""));
    size_t discard = 0;
    for (size_t i = 0; i < sampler_count(); i++) {
        const struct sampler *s = sampler_at(i);
        assert_ptr_equal(sampler_find(s->name), s);
        assert_non_null(s->step);
        assert_int_equal(!(s->flags & SAMPLER_UNCOND), !ends_in(s->name, "_cfg_pp"));
        assert_int_equal(!(s->flags & SAMPLER_TREE),
                         !(!strncmp(s->name, "dpmpp", 5) && strstr(s->name, "_sde")));
        assert_int_equal(!(s->flags & SAMPLER_MASK_NOISE), strcmp(s->name, "ddim") != 0);
        discard += (s->flags & SAMPLER_DISCARD_PENULTIMATE) != 0;
    }
    assert_int_equal(discard, 4); /* dpm_2, dpm_2_ancestral, uni_pc, uni_pc_bh2 */
    assert_true(sampler_find("dpm_2")->flags & SAMPLER_DISCARD_PENULTIMATE);
    assert_true(sampler_find("uni_pc_bh2")->flags & SAMPLER_DISCARD_PENULTIMATE);
}

static void every_step_is_told(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < sampler_count(); i++) {
        const char *name = sampler_at(i)->name;
        assert_ok(run(w, name), w->err);
        if (!strcmp(name, "dpm_adaptive"))
            assert_true(w->told >= LEVELS - 1); /* as many as it likes */
        else if (!strcmp(name, "dpm_fast"))
            assert_int_equal(w->told, (LEVELS - 1) / 3 + 1); /* several calls in one */
        else
            assert_int_equal(w->told, LEVELS - 1);
    }
}

static void cancelled_in_mid_run(void **state)
{
    struct world *w = *state;
    w->cancel_at = 2;
    for (size_t i = 0; i < sampler_count(); i++) {
        assert_fails(run(w, sampler_at(i)->name), w->err, BERTH_ECANCELED, "interrupted");
        assert_int_equal(w->told, 2);
        assert_int_equal(w->calls, w->told_calls); /* and the network was left alone */
    }
    w->cancel_at = 0;
    assert_ok(run(w, "euler"), w->err); /* the job is good for another run */
}

static void errors_of_the_network_pass(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < sampler_count(); i++)
        for (w->fail_at = 1;; w->fail_at++) {
            berth_status s = run(w, sampler_at(i)->name);
            if (!s)
                break;
            assert_int_equal(s, BERTH_EDEVICE);
            assert_int_equal(w->calls, w->fail_at);
            assert_non_null(strstr(w->err.msg, "the network fell over"));
            assert_non_null(strstr(w->err.msg, sampler_at(i)->name));
        }
    assert_true(w->fail_at > LEVELS - 1);
}

static berth_status same_always(void *user, const float *x, float sigma, float *D, float *U,
                                berth_err *err)
{
    struct world *w = user;
    (void)x, (void)sigma, (void)err;
    for (size_t i = 0; i < w->j.n; i++)
        D[i] = 0.5f;
    for (size_t i = 0; U && i < w->j.n; i++)
        U[i] = 0.5f;
    return BERTH_OK;
}

/* A level twice: res_multistep divides by 0, and infinities count as the largest numbers, which
 * here cancel out. */
static void infinite_weights_are_clamped(void **state)
{
    static const float twice[] = { 5, 5, 2, 0 };
    struct world *w = *state;
    w->j.sigma = twice;
    w->j.sigmas = 4;
    w->j.denoise = same_always;
    assert_ok(run(w, "res_multistep"), w->err);
    assert_ok(run(w, "res_multistep_cfg_pp"), w->err);
    for (size_t i = 0; i < N; i++)
        assert_true(w->x[i] == 0.5f);
}

static void errors_of_the_network_say_when(void **state)
{
    struct world *w = *state;
    w->fail_at = 3;
    assert_fails(run(w, "euler"), w->err, BERTH_EDEVICE,
                 "euler: step 3 of 5, sigma 2.5: the network fell over");
    assert_fails(run(w, "heun"), w->err, BERTH_EDEVICE, "heun: step 2 of 5, sigma 6: ");
    assert_fails(run(w, "dpm_fast"), w->err, BERTH_EDEVICE, "dpm_fast: step 1 of 5, sigma ");
}

static void nan_is_found_and_named(void **state)
{
    struct world *w = *state;
    w->nan_at = 3;
    assert_fails(run(w, "euler"), w->err, BERTH_EINVAL,
                 "euler: NaN in the latent after step 3 of 5 (sigma 2.5)");
    assert_int_equal(w->calls, 3);
    for (size_t i = 0; i < sampler_count(); i++)
        assert_fails(run(w, sampler_at(i)->name), w->err, BERTH_EINVAL, "NaN in the latent after");
    w->nan_at = 0;
    w->inf_at = 1;
    assert_fails(run(w, "ddim"), w->err, BERTH_EINVAL, "in the latent after step 1 of 5");
}

static void levels_that_are_no_numbers(void **state)
{
    struct world *w = *state;
    const float bad[] = { NAN, 1, 0 }, zero[] = { 0, 0 };
    w->j.sigma = bad;
    w->j.sigmas = 3;
    for (size_t i = 0; i < sampler_count(); i++)
        assert_int_equal(run(w, sampler_at(i)->name), BERTH_EINVAL);
    w->j.sigma = zero;
    w->j.sigmas = 2;
    assert_fails(run(w, "dpm_fast"), w->err, BERTH_EINVAL, "must be above 0");
    assert_fails(run(w, "dpm_adaptive"), w->err, BERTH_EINVAL, "must be above 0");
}

static void no_levels_no_work(void **state)
{
    struct world *w = *state;
    float before[N];
    for (w->j.sigmas = 0; w->j.sigmas < 2; w->j.sigmas++)
        for (size_t i = 0; i < sampler_count(); i++) {
            fill(w, N);
            memcpy(before, w->x, sizeof before);
            assert_ok(sample_run(sampler_at(i), &w->j, &w->err), w->err);
            assert_memory_equal(before, w->x, sizeof before);
            assert_int_equal(w->calls, 0);
        }
}

static void where_it_ends(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < sampler_count(); i++) {
        const char *name = sampler_at(i)->name;
        assert_ok(run(w, name), w->err);
        float end = strncmp(name, "uni_pc", 6) != 0 ? 0 : 0.001f;
        assert_float_equal(w->j.last, end, 0);
        w->j.sigmas = LEVELS - 1;
        assert_ok(run(w, name), w->err);
        assert_float_equal(w->j.last, levels[LEVELS - 2], 0);
        w->j.sigmas = LEVELS;
    }
}

/* The level rises by s_churn / steps of it, and by no more than to sqrt(2) times it. */
static void churn_has_a_cap(void **state)
{
    static const struct {
        double churn, times;
    } row[] = { { 0, 1 }, { 1, 1.2 }, { 2, 1.4 }, { 2.2, 1.4142135 }, { 100, 1.4142135 } };
    struct world *w = *state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        w->j.opt.s_churn = row[i].churn;
        assert_ok(run(w, "euler"), w->err);
        if (fabs((double)w->first / (double)levels[0] - row[i].times) > 1e-6)
            fail_msg("s_churn %g: %g times", row[i].churn, (double)(w->first / levels[0]));
    }
}

static void a_tree_needs_room(void **state)
{
    struct world *w = *state;
    const float same[] = { 2, 2, 0 };
    w->j.sigma = same;
    w->j.sigmas = 3;
    assert_fails(run(w, "dpmpp_2m_sde"), w->err, BERTH_EINVAL, "two different sigmas");
    const float once[] = { 2, 0 };
    w->j.sigma = once;
    w->j.sigmas = 2;
    assert_ok(run(w, "dpmpp_2m_sde"), w->err); /* one step draws nothing */
}

static void orders_meet_their_limits(void **state)
{
    struct world *w = *state;
    w->j.opt.order = SAMPLE_MAX_ORDER + 1;
    assert_fails(run(w, "lms"), w->err, BERTH_EINVAL, "order 101 is not 1..100");
    w->j.opt.order = -1;
    assert_fails(run(w, "lms"), w->err, BERTH_EINVAL, "order -1");
    assert_fails(run(w, "dpm_adaptive"), w->err, BERTH_EINVAL, "neither 2 nor 3");
    w->j.opt.order = SAMPLE_MAX_ORDER;
    assert_ok(run(w, "lms"), w->err);
}

/* Polynomials of the level are what lms integrates exactly, however many steps it remembers. */
static berth_status polynomial(void *user, const float *x, float sigma, float *D, float *U,
                               berth_err *err)
{
    struct world *w = user;
    (void)U, (void)err;
    for (size_t i = 0; i < w->j.n; i++)
        D[i] = x[i] - sigma * (3 * sigma * sigma - 2 * sigma + 0.5f); /* the slope is the bracket */
    return BERTH_OK;
}

static void lms_integrates_polynomials(void **state)
{
    struct world *w = *state;
    float even[40], x0;
    for (size_t i = 0; i < 40; i++)
        even[i] = 2 - 0.04f * (float)i;
    w->j.sigma = even;
    w->j.denoise = polynomial;
    for (w->j.opt.order = 3; w->j.opt.order < 8; w->j.opt.order++) {
        fill(w, N);
        w->j.sigmas = 3; /* two steps of order 1 and 2, then exact ones only */
        assert_ok(sample_run(sampler_find("lms"), &w->j, &w->err), w->err);
        x0 = w->x[0];
        fill(w, N);
        w->j.sigmas = 40;
        assert_ok(sample_run(sampler_find("lms"), &w->j, &w->err), w->err);
        double a = (double)even[2], b = (double)even[39];
        double want = b * b * b - b * b + 0.5 * b - (a * a * a - a * a + 0.5 * a);
        assert_float_equal((double)(w->x[0] - x0), want, 5e-5);
    }
}

/* Two items are two latents: nothing leaks from one to the other, but for dpm_adaptive's one error
 * of both. */
static void a_batch_is_its_items(void **state)
{
    struct world *w = *state;
    float both[N], a[16], b[16];
    size_t compared = 0;
    for (size_t i = 0; i < sampler_count(); i++) {
        const struct sampler *s = sampler_at(i);
        struct torch_rng fresh;
        assert_ok(run(w, s->name), w->err);
        memcpy(both, w->x, sizeof both);
        torch_seed(&fresh, w->j.seed + 1);
        torch_randn(&fresh, a, 16);
        torch_randn(&w->j.rng, b, 16);
        if ((s->flags & SAMPLER_TREE) || memcmp(a, b, sizeof a) || !strcmp(s->name, "dpm_adaptive"))
            continue; /* its noise is drawn for the whole batch */
        for (size_t item = 0; item < 2; item++) {
            fill(w, N);
            memmove(w->x, w->x + item * N / 2, N / 2 * sizeof *w->x);
            w->j.n = N / 2;
            assert_ok(sample_run(s, &w->j, &w->err), w->err);
            assert_memory_equal(w->x, both + item * N / 2, N / 2 * sizeof *both);
            compared++;
        }
    }
    assert_true(compared >= 2 * 15);
}

static void threads_change_no_number(void **state)
{
    struct world *w = *state;
    struct tpool *pool;
    float *alone = malloc(BIG * sizeof *alone);
    assert_non_null(alone);
    assert_ok(tpool_new(3, &pool, &w->err), w->err);
    w->j.sigmas = 4;
    for (size_t i = 0; i < sampler_count(); i++) {
        w->j.pool = NULL;
        fill(w, BIG);
        assert_ok(sample_run(sampler_at(i), &w->j, &w->err), w->err);
        memcpy(alone, w->x, BIG * sizeof *alone);
        w->j.pool = pool;
        fill(w, BIG);
        assert_ok(sample_run(sampler_at(i), &w->j, &w->err), w->err);
        assert_memory_equal(alone, w->x, BIG * sizeof *alone);
    }
    fill(w, BIG);
    assert_ok(sample_run(sampler_find("euler"), &w->j, &w->err), w->err);
    memcpy(alone, w->x, BIG * sizeof *alone);
    for (size_t at = 0; at < BIG; at += 1000) { /* and what threads share out is all of it */
        fill(w, BIG);
        memmove(w->x, w->x + at, 1000 * sizeof *w->x);
        w->j.n = 1000;
        assert_ok(sample_run(sampler_find("euler"), &w->j, &w->err), w->err);
        assert_memory_equal(alone + at, w->x, 1000 * sizeof *alone);
    }
    tpool_free(pool);
    free(alone);
}

/* Where ComfyUI would have the latent on a card: noise is the card's, the seed as it is; trees stay
 * on the host but for the `_gpu` samplers; what draws nothing does not notice. */
static void noise_of_a_card(void **state)
{
    static const char *const for_nothing[] = { "dpm_fast", "dpm_adaptive", "res_multistep",
                                               "res_multistep_cfg_pp" }; /* times 0 */
    struct world *w = *state;
    float host[N];
    for (size_t i = 0; i < sampler_count(); i++) {
        const struct sampler *s = sampler_at(i);
        bool tree = s->flags & SAMPLER_TREE, gpu = ends_in(s->name, "_gpu");
        w->j.cuda = 0;
        assert_ok(run(w, s->name), w->err);
        memcpy(host, w->x, sizeof host);
        w->j.cuda = 256;
        assert_ok(run(w, s->name), w->err);
        bool same = !memcmp(host, w->x, sizeof host);
        assert_true(!gpu || tree);
        bool drawn = w->j.card.offset != 0;
        for (size_t k = 0; k < ARRAY_LEN(for_nothing); k++)
            drawn &= strcmp(s->name, for_nothing[k]) != 0;
        if (same != !(gpu || drawn))
            fail_msg("%s: %s, %llu drawn", s->name, same ? "the same" : "different",
                     (unsigned long long)w->j.card.offset);
        assert_true(!tree || !w->j.card.offset);
    }
}

static berth_status zeros(void *user, const float *x, float sigma, float *D, float *U,
                          berth_err *err)
{
    struct world *w = user;
    (void)x, (void)sigma, (void)U, (void)err;
    memset(D, 0, w->j.n * sizeof *D);
    return BERTH_OK;
}

/* lcm from 2 to 1 leaves nothing of a latent but its first draw. */
static void the_first_draw(void **state)
{
    struct world *w = *state;
    static const float two_one[] = { 2, 1 };
    struct philox_rng card;
    struct torch_rng host;
    float want[N];
    w->j.sigma = two_one;
    w->j.sigmas = 2;
    w->j.denoise = zeros;
    assert_ok(run(w, "lcm"), w->err);
    torch_seed(&host, w->j.seed + 1);
    torch_randn(&host, want, N);
    assert_memory_equal(w->x, want, sizeof want);
    w->j.cuda = 256;
    assert_ok(run(w, "lcm"), w->err);
    philox_seed(&card, w->j.seed, 256);
    philox_randn(&card, want, N);
    assert_memory_equal(w->x, want, sizeof want);
    /* churn: of a generator that only was seeded */
    w->j.opt.s_churn = 1;
    assert_ok(run(w, "euler"), w->err);
    fill(w, N);
    float up = sqrtf(2 * (sqrtf(2)) * 2 * sqrtf(2) - 4);
    for (size_t i = 0; i < N; i++)
        want[i] = (w->x[i] + want[i] * up) / (2 * sqrtf(2));
    assert_ok(run(w, "euler"), w->err);
    for (size_t i = 0; i < N; i++)
        assert_float_equal(w->x[i], want[i], 1e-4f);
}

static void survives_exhaustion(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < sampler_count(); i++) {
        berth_status s = BERTH_ENOMEM;
        for (int k = 0; s != BERTH_OK; k++) {
            memset(&w->err, 0, sizeof w->err);
            fill(w, N);
            oom_after(k);
            s = sample_run(sampler_at(i), &w->j, &w->err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && w->err.msg[0]));
            if (s && !(sampler_at(i)->flags & SAMPLER_TREE))
                assert_int_equal(w->calls, 0); /* memory is there before the first step */
        }
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, open_world, close_world)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(names_and_what_they_need),
        T(every_step_is_told),
        T(cancelled_in_mid_run),
        T(errors_of_the_network_pass),
        T(nan_is_found_and_named),
        T(levels_that_are_no_numbers),
        T(infinite_weights_are_clamped),
        T(levels_that_are_no_numbers),
        T(errors_of_the_network_say_when),
        T(levels_that_are_no_numbers),
        T(no_levels_no_work),
        T(where_it_ends),
        T(churn_has_a_cap),
        T(a_tree_needs_room),
        T(orders_meet_their_limits),
        T(lms_integrates_polynomials),
        T(a_batch_is_its_items),
        T(threads_change_no_number),
        T(noise_of_a_card),
        T(the_first_draw),
        T(survives_exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
