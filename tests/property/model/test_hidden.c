/* What layout spread is for: copies hide behind layers.
 *
 * FLUX.1-dev as a file, plans for every share of it in RAM, and a link that is simulated: a ring of
 * bytes filled in order, a copy begins when the one before it is done and the ring has room, a
 * layer when the one before it is done and its block is there. Layers take what they were measured
 * to take on an H200 (bf16, 1024x1024), which is not what the plan goes by: that is an estimate.
 * Then the same with other times, each kind of layer up to a fifth off, on links from a third of
 * that card's to twice as fast. Passes follow one another; the first one is not counted. */
#include "model/arch.h"
#include "support/plans.h"
#include "support/rng.h"
#include "support/seed.h"
#include "support/sparse.h"
#include "support/tmp.h"

#define BLOCKS_MAX 600
#define RING (3 * 132.2e6) /* three times the largest layer */
#define LINK 55400         /* bytes in a microsecond */
#define PASSES 4

/* With attention, norms and gates at the layers they are launched with. */
static const struct kind {
    const char *name; /* how the block's ends */
    double us;
} kinds[] = {
    { ".img_mod.lin", 40 },  { ".txt_mod.lin", 40 },    { ".img_attn.qkv", 360 },
    { ".txt_attn.qkv", 50 }, { ".img_attn.proj", 560 }, { ".img_mlp.0", 470 },
    { ".img_mlp.2", 440 },   { ".txt_attn.proj", 30 },  { ".txt_mlp.0", 60 },
    { ".txt_mlp.2", 60 },    { ".modulation.lin", 20 }, { ".linear1", 860 },
    { ".linear2", 1090 },
};

struct flux {
    struct weights *w;
    struct blocks b;
    double us[BLOCKS_MAX]; /* of each block's layer */
    double step;           /* of all */
};

static int open_flux(void **state)
{
    static struct flux f;
    berth_err err = { 0 };
    const char *path = tmp_path("flux.safetensors");
    assert_ok(sparse_preset(path, "flux-dev", DT_BF16, &err), err);
    assert_ok(weights_open(path, NULL, &f.w, &err), err);
    assert_ok(blocks_from_weights(f.w, NULL, arch_blocks(f.w, NULL), &f.b, &err), err);
    assert_true(f.b.n <= BLOCKS_MAX);
    *state = &f;
    return 0;
}

static int close_flux(void **state)
{
    struct flux *f = *state;
    blocks_release(&f->b);
    weights_close(f->w);
    return say_seed(state);
}

/* r: NULL: as measured. */
static void set_times(struct flux *f, struct rng *r)
{
    double off[ARRAY_LEN(kinds)];
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
        off[k] = r ? 0.8 + 0.4 * (double)rng_below(r, 1001) / 1000 : 1;
    f->step = 0;
    for (size_t i = 0; i < f->b.n; i++) {
        f->us[i] = 0;
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
            if (str_ends(f->b.at[i].name, f->b.at[i].name_len, kinds[k].name))
                f->us[i] = kinds[k].us * off[k];
        f->step += f->us[i];
    }
}

/* Time of a step, the least of those that count. */
static double run(const struct flux *f, const struct plan *p, double ring, double link)
{
    double released[BLOCKS_MAX * PASSES], now = 0, copied = 0, held = 0, best = 0;
    size_t block[BLOCKS_MAX * PASSES], in = 0, out = 0; /* in the ring, in order */
    for (int pass = 0; pass < PASSES; pass++) {
        double begin = now;
        for (size_t i = 0; i < f->b.n; i++) {
            double bytes = (double)f->b.at[i].bytes;
            bool donor = p->device[i] != CUDA0;
            if (donor) {
                for (; held + bytes > ring; out++) {
                    copied = released[out] > copied ? released[out] : copied;
                    held -= (double)f->b.at[block[out]].bytes;
                }
                held += bytes;
                copied += bytes / link;
                now = copied > now ? copied : now;
            }
            now += f->us[i];
            if (donor) {
                block[in] = i;
                released[in++] = now;
            }
        }
        if (pass == 1 || (pass > 1 && now - begin < best))
            best = now - begin;
    }
    return best;
}

/* percent in RAM; star: who takes the orphans */
static struct plan plan_of(const struct flux *f, unsigned percent, bool star)
{
    char text[96];
    struct plan p;
    berth_err err = { 0 };
    unsigned long long here = f->b.bytes * (100 - percent) / 100;
    if (star || percent == 100)
        snprintf(text, sizeof text, "cuda:0,%llub;cpu,*", here);
    else
        snprintf(text, sizeof text, "cuda:0,%u%%;cpu,%u%%#cuda:0", 100 - percent, percent);
    struct plan_args args = { .alloc = text };
    assert_ok(plan_from_args(&f->b, &machine, &args, &p, &err), err);
    return p;
}

/* How much longer a step takes than layers and copies do, whichever is longer. */
static double over(const struct flux *f, const struct plan *p, double ring, double link)
{
    double copies = (double)p->share[CPU].bytes / link;
    return run(f, p, ring, link) / (copies > f->step ? copies : f->step) - 1;
}

static void nothing_shows_as_measured(void **state)
{
    struct flux *f = *state;
    set_times(f, NULL);
    for (unsigned percent = 1; percent <= 100; percent++)
        for (int star = 0; star < 2; star++) {
            struct plan p = plan_of(f, percent, star);
            double share = (double)p.share[CPU].bytes / (double)f->b.bytes * 100;
            if (share < percent - 0.8 || share > percent + 0.8) /* a block is 0.6 % */
                fail_msg("%u %% asked, %.2f %% in RAM", percent, share);
            double late = over(f, &p, RING, LINK);
            if (late > (percent <= 25 ? 1e-9 : 0.01))
                fail_msg("%u %%: a step takes %.2f %% longer", percent, 100 * late);
            plan_release(&p);
        }
}

/* An estimate that is off costs little, whatever the share and the link. Of 200,000 rounds 869 took
 * more than 1 % longer and the worst one 5.4 %: the bounds leave room, as every run draws anew. */
static void little_shows_when_times_are_off(void **state)
{
    struct flux *f = *state;
    uint64_t first = rng_seed();
    size_t rounds = getenv("BERTH_SEED") ? 1 : 1500, seen = 0;
    for (size_t i = 0; i < rounds; i++) {
        struct rng r = { running = first + i };
        set_times(f, &r);
        unsigned percent = 1 + (unsigned)rng_below(&r, 100);
        double link = LINK * (0.3 + 1.7 * (double)rng_below(&r, 1000) / 1000);
        struct plan p = plan_of(f, percent, rng_below(&r, 2));
        double late = over(f, &p, RING, link);
        if (late > 0.08)
            fail_msg("%u %%, %.1f GB/s: a step takes %.2f %% longer", percent, link / 1000,
                     100 * late);
        seen += late > 0.01;
        plan_release(&p);
    }
    running = first;
    if (seen > 1 + rounds / 50)
        fail_msg("%zu of %zu steps take more than 1 %% longer", seen, rounds);
    running = 0;
}

int main(void)
{
    signal(SIGABRT, say_seed_and_die);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_shows_as_measured, open_flux, close_flux),
        cmocka_unit_test_setup_teardown(little_shows_when_times_are_off, open_flux, close_flux),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
