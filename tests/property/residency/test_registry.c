/* Random operation sequences against a naive model (support/res_world.h): open, load, cancel, plan
 * change, patch, retention, anchors, uses, free variants, prompts, other people's memory, failing
 * devices, failing allocations; res_check() and a comparison of everything after each.
 *
 * A sequence that fails is made shorter before it is shown: records are taken out as long as it
 * still fails, each try in a process of its own, because a broken invariant stops the process.
 * BERTH_SEED=n runs that one sequence, BERTH_SEQUENCES=n that many. */
#include "support/models.h"
#include "support/res_world.h"
#include "support/rng.h"
#include "support/seed.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
#define SEQUENCES 1000 /* each takes twenty times as long, and few of them have threads */
#else
#define SEQUENCES 10000
#endif

/* True: the sequence runs to its end. Its own process, quiet. */
static bool passes(const uint8_t *data, size_t n)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct str report = { 0 };
        signal(SIGABRT, SIG_DFL);
        int quiet = open("/dev/null", O_WRONLY);
        if (quiet >= 0)
            dup2(quiet, STDERR_FILENO);
        alarm(20);
        _exit(world_run(data, n, &report) ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static size_t shorten(uint8_t *data, size_t n)
{
    uint8_t next[WORLD_RANDOM_MAX];
    for (size_t chunk = n / WORLD_RECORD / 2; chunk; chunk /= 2)
        for (size_t at = WORLD_RECORD; at + chunk * WORLD_RECORD <= n;) {
            size_t cut = chunk * WORLD_RECORD;
            memcpy(next, data, at);
            memcpy(next + at, data + at + cut, n - at - cut);
            if (passes(next, n - cut)) {
                at += cut;
            } else {
                n -= cut;
                memcpy(data, next, n);
            }
        }
    return n;
}

static void show(uint64_t seed)
{
    uint8_t data[WORLD_RANDOM_MAX];
    size_t n = shorten(data, world_random(seed, data));
    const char *save = getenv("BERTH_SAVE"); /* for the corpus of fuzz_registry */
    FILE *f = save ? fopen(save, "wb") : NULL;
    if (f) {
        fwrite(data, 1, n, f);
        fclose(f);
    }
    struct str report = { 0 };
    print_message("seed %llu, shortened to %zu operations:\n", (unsigned long long)seed,
                  n / WORLD_RECORD - 1);
    world_run(data, n, &report); /* if it stops the process, the handler shows the steps */
    fail_msg("%s", str_c(&report));
}

static void one_sequence(uint64_t seed)
{
    uint8_t data[WORLD_RANDOM_MAX];
    size_t n = world_random(seed, data);
    static struct str report;
    running = seed;
    if (!world_run(data, n, &report))
        show(seed);
}

static void random_sequences(void **state)
{
    uint64_t seed = rng_seed();
    const char *one = getenv("BERTH_SEED"), *many = getenv("BERTH_SEQUENCES");
    uint64_t count = many ? strtoull(many, NULL, 0) : SEQUENCES;
    uint8_t data[WORLD_RANDOM_MAX];
    (void)state;
    world_prepare();
    if (one && *one && !passes(data, world_random(seed, data)))
        show(running = seed);
    if (one && *one && !many)
        count = 1;
    for (uint64_t i = 0; i < count; i++)
        one_sequence(seed + i);
    running = 0;
}

/* ---- what they found, one test each ---- */

static void free_all(struct fixture *f, struct res_free_args args)
{
    struct res_receipt x;
    berth_err err = { 0 };
    assert_ok(res_free(f->r, &args, &x, &err), err);
    res_receipt_release(&x);
    fixture_check(f);
}

/* The flag was never taken back: every load after an ejection sent the others away again. */
static void eject_others_once(void **state)
{
    struct fixture f;
    struct res_model *a, *b;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=8m,null:0=8m", NULL);
    struct res_open_args args = { .path = model_file("a", 4, 32 << 10),
                                  .plan.alloc = "null:0,*#null:0",
                                  .eject_others = true };
    assert_ok(res_open(f.r, &args, &a, NULL, &err), err);
    b = model_open(&f, model_file("b", 4, 32 << 10), "null:0,*#null:0", RES_EJECT);
    model_load(b);
    model_load(a);
    assert_int_equal(res_info(b).state, RES_EJECTED);
    assert_ok(res_eject(a, &err), err);
    model_load(b);
    model_load(a);
    assert_int_equal(res_info(b).state, RES_RESIDENT);
    res_unref(a);
    res_unref(b);
    fixture_close(&f);
}

/* An auto model that a free had anchored and that then made room was known for ever: what an anchor
 * retains is bytes. */
static void evicted_survivor_is_forgotten(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=8m", NULL);
    struct res_model *e = model_open(&f, model_file("e", 2, 32 << 10), NULL, RES_EJECT);
    struct res_model *a = model_open(&f, model_file("a", 2, 32 << 10), NULL, RES_AUTO);
    model_load(e);
    model_load(a);
    free_all(&f, (struct res_free_args) { .unload_models = true });
    assert_int_equal(res_info(a).anchor[RES_ANCHOR_SURVIVED], 1);
    assert_ok(res_eject(a, &err), err);
    res_unref(e);
    assert_int_equal(res_model_count(f.r), 1); /* its handle holds it */
    res_unref(a);
    assert_int_equal(res_model_count(f.r), 0);
    fixture_close(&f);
}

/* A cleanup after a prompt that found nothing to eject anchored all the others. */
static void cleanup_of_nothing_anchors_nobody(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "cpu=8m", NULL);
    struct res_model *a = model_open(&f, model_file("a", 2, 32 << 10), NULL, RES_AUTO);
    model_load(a);
    free_all(&f, (struct res_free_args) { .automatic = true });
    assert_int_equal(res_info(a).anchors, 0);
    res_unref(a);
    assert_int_equal(res_model_count(f.r), 0);
    fixture_close(&f);
}

/* A free that wanted a busy model gone gave it an anchor instead. */
static void busy_model_goes_with_its_use(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=8m", NULL);
    struct res_model *a = model_open(&f, model_file("a", 2, 32 << 10), NULL, RES_AUTO);
    model_load(a);
    assert_ok(res_use_begin(a, &err), err);
    res_unref(a);
    free_all(&f, (struct res_free_args) { .unload_models = true });
    model_intact(a);
    res_use_end(a);
    assert_int_equal(res_model_count(f.r), 0);
    fixture_close(&f);
}

static void say_steps_and_die(int signal_number)
{
    const char *steps = world_trace();
    (void)!write(STDERR_FILENO, steps, strlen(steps));
    (void)!write(STDERR_FILENO, "\n", 1);
    say_seed_and_die(signal_number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eject_others_once),
        cmocka_unit_test(evicted_survivor_is_forgotten),
        cmocka_unit_test(cleanup_of_nothing_anchors_nobody),
        cmocka_unit_test(busy_model_goes_with_its_use),
        cmocka_unit_test_teardown(random_sequences, say_seed),
    };
    signal(SIGABRT, say_steps_and_die); /* validators stop the process */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
