/* The order of a family that goes by words is a total preorder, whatever the names are: sorting by it means something.
 *
 * For a list of names that are sorted by it, count the steps where it says "before": if every pair
 * of the list is ordered as its counts are, the relation is the one of those numbers, and so
 * transitive in both its halves. */
#include "support/rng.h"
#include "support/seed.h"
#include "support/test.h"

#include "model/arch.h"
#include "model/preset.h"

static const struct arch *sorting; /* what by_order() asks; qsort() has no room for it */

struct name {
    const char *p;
    size_t n;
};

static int sign(int x)
{
    return (x > 0) - (x < 0);
}

static int by_order(const void *va, const void *vb)
{
    const struct name *a = va, *b = vb;
    uint64_t x[600], y[600];
    size_t n = arch_key(sorting, a->p, a->n, x, ARRAY_LEN(x));
    size_t m = arch_key(sorting, b->p, b->n, y, ARRAY_LEN(y));
    assert_true(n <= ARRAY_LEN(x) && m <= ARRAY_LEN(y));
    for (size_t i = 0; i < n && i < m; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return (n > m) - (n < m);
}

static void assert_preorder(const struct arch *arch, struct name *name, size_t n)
{
    sorting = arch;
    qsort(name, n, sizeof *name, by_order);
    size_t *step = calloc(n, sizeof *step);
    assert_non_null(step);
    for (size_t i = 1; i < n; i++)
        step[i] = step[i - 1] + (by_order(&name[i - 1], &name[i]) != 0);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            int want = (step[i] > step[k]) - (step[i] < step[k]);
            if (sign(by_order(&name[i], &name[k])) != want)
                fail_msg("%s: '%.*s' and '%.*s'", arch->base.name, (int)name[i].n, name[i].p,
                         (int)name[k].n, name[k].p);
        }
    free(step);
}

/* Of a preset's blocks, to every family: foreign names too. */
static void of_every_preset(void **state)
{
    (void)state;
    for (size_t p = 0; p < preset_count(); p++) {
        struct keys k = { 0 };
        berth_err err;
        assert_ok(preset_keys(preset_at(p), &k, &err), err);
        struct name *name = calloc(k.n, sizeof *name);
        assert_non_null(name);
        size_t n = 0;
        for (size_t i = 0; i < k.n; i++) {
            const char *dot = strrchr(k.at[i].name, '.');
            size_t len = dot ? (size_t)(dot - k.at[i].name) : k.at[i].name_len;
            if (!n || name[n - 1].n != len || memcmp(name[n - 1].p, k.at[i].name, len) != 0)
                name[n++] = (struct name) { k.at[i].name, len };
        }
        for (size_t a = 0; a < arch_count(); a++)
            if (arch_at(a)->words)
                assert_preorder(arch_at(a), name, n);
        free(name);
        keys_release(&k);
    }
}

/* Parts of names from everywhere, put together at random. */
static void of_random_names(void **state)
{
    (void)state;
    static const char *const part[] = {
        "double_blocks",
        "img_attn",
        "qkv",
        "proj",
        "up",
        "decoder",
        "encoder",
        "block",
        "0",
        "1",
        "2",
        "10",
        "007",
        "18446744073709551616",
        "transformer",
        "resblocks",
        "model",
        "shared",
        "x",
        "zebra",
        "",
        "img_attn.qkv",
        "norm",
        "attn",
        "layers",
        "mid",
        "down",
        "1a",
        "cond_stage_model",
        "first_stage_model",
        "model.diffusion_model",
        "vae",
        "attn_q",
    };
    struct rng r = { rng_seed() };
    running = r.state;
    for (int round = 0; round < 20; round++) {
        char text[200][192]; /* five parts always fit */
        struct name name[200];
        for (size_t i = 0; i < ARRAY_LEN(name); i++) {
            size_t n = 0;
            for (size_t k = rng_below(&r, 6); k; k--)
                n += (size_t)snprintf(text[i] + n, sizeof text[i] - n, "%s%s",
                                      part[rng_below(&r, ARRAY_LEN(part))], k > 1 ? "." : "");
            name[i] = (struct name) { text[i], n };
        }
        for (size_t a = 0; a < arch_count(); a++)
            if (arch_at(a)->words)
                assert_preorder(arch_at(a), name, ARRAY_LEN(name));
    }
    running = 0;
}

int main(void)
{
    signal(SIGABRT, say_seed_and_die);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_every_preset),
        cmocka_unit_test_teardown(of_random_names, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
