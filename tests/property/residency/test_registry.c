/* Random operation sequences against a naive model (support/res_world.h): open, load, cancel, plan
 * change, patch, retention, anchors, uses, free variants, prompts, other people's memory, failing
 * devices, failing allocations; res_check() and a comparison of everything after each.
 *
 * A sequence that fails is made shorter before it is shown: records are taken out as long as it
 * still fails, each try in a process of its own, because a broken invariant stops the process.
 * BERTH_SEED=n runs that one sequence, BERTH_SEQUENCES=n that many. */
#include "support/res_world.h"
#include "support/rng.h"
#include "support/seed.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEQUENCES 10000

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
        cmocka_unit_test_teardown(random_sequences, say_seed),
    };
    signal(SIGABRT, say_steps_and_die); /* validators stop the process */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
