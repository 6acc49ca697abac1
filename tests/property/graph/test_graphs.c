/* Random type-correct workflows of all nodes, with shapes, batches and values that need not fit
 * each other: whatever is asked for, a prompt ends with a result or in words: see graph_world.h.
 *
 * BERTH_GRAPHS: how many (default 200). Number i of seed s is number 0 of seed s + i:
 * BERTH_SEED=<what a death told> BERTH_GRAPHS=1 runs that one again, BERTH_GRAPHS_SHOW=1 prints it,
 * BERTH_GRAPHS_KEEP=<file> keeps its bytes for the corpus. */
#include "support/graph_world.h"
#include "support/rng.h"
#include "support/seed.h"

#define BYTES 384

/* The sanitizers end with abort(), so that the seed is told. */
#define OPTIONS __attribute__((visibility("default"))) const char
OPTIONS *__asan_default_options(void);
OPTIONS *__ubsan_default_options(void);
const char *__asan_default_options(void)
{
    return "abort_on_error=1";
}
const char *__ubsan_default_options(void)
{
    return "abort_on_error=1";
}

static void roll(uint64_t seed)
{
    uint8_t bytes[BYTES];
    struct rng r = { seed };
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)rng_u64(&r);
    const char *keep = getenv("BERTH_GRAPHS_KEEP");
    FILE *f = keep ? fopen(keep, "wb") : NULL;
    if (f) {
        fwrite(bytes, 1, sizeof bytes, f);
        fclose(f);
    }
    world_try(bytes, sizeof bytes);
}

static void every_graph_ends_well(void **state)
{
    const char *many = getenv("BERTH_GRAPHS");
    size_t n = many && *many ? strtoull(many, NULL, 0) : 200;
    uint64_t first = rng_seed();
    (void)state;
    world_open();
    world.show = getenv("BERTH_GRAPHS_SHOW") != NULL;
    for (size_t i = 0; i < n; i++) {
        running = first + i;
        roll(running);
    }
    print_message("%zu graphs from seed %llu: %zu ran, %zu failed in words, %zu interrupted, %zu "
                  "refused; %zu nodes\n",
                  n, (unsigned long long)first, world.ran, world.failed, world.stopped,
                  world.refused, world.nodes);
    assert_true(world.ran + world.failed + world.stopped + world.refused == n);
    assert_true(n < 200 || (world.ran > n / 20 && world.refused < n / 2)); /* it is about runs */
    world_close();
    running = 0;
}

int main(void)
{
    signal(SIGABRT, say_seed_and_die);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_graph_ends_well, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
