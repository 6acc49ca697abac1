/* Blocks derived from base weights and terms: every stored type on every kind of place, exact bytes
 * read, and what is left when something fails. */
#define FIXTURE_FAKE_CARDS /* cuda:0 is one of support/fake_cuda.h */
#include "patch_toy.h"

#include "support/oom.h"
#include "support/op_ref.h"

#include "base/hash.h"
#include "base/mt19937.h"

#include <math.h>
#include <unistd.h>

static const struct {
    const char *devices, *alloc;
} places[] = {
    { "cpu=64m", "#cpu" },
    { "cpu=64m,null:0=64m", "#null:0" },
    { "cpu=64m,null:0=64m", "cpu,*#null:0" }, /* pinned host memory */
    { "cpu=64m,null:0=64m,null:1=64m", "null:1,60%;null:0,40%#null:0" },
    { "cpu=64m,null:0=64m", "null:0,*#cpu" },
#ifdef BERTH_FAKE_CUDA /* cards, which run no functions of ours */
    { "cpu=64m,cuda:0=256m", "#cuda:0" },
    { "cpu=64m,cuda:0=256m", "cpu,*#cuda:0" },
    { "cpu=64m,cuda:0=128m,cuda:1@cuda:0=128m", "cuda:1,60%;cuda:0,40%#cuda:0" },
#endif
};

/* ---- every type, every place ---- */

/* What a block with a patched weight of this type becomes, by who computes; DT_NONE: it stays. */
static enum dtype becomes(const struct res_model *m, enum dtype weight)
{
    bool cpu = dev_can(res_compute(m), BERTH_CAP_HOST_VISIBLE);
    return dtype_is_quant(weight)                           ? DT_F16
           : cpu && (weight == DT_F16 || weight == DT_BF16) ? DT_F32
                                                            : DT_NONE;
}

static void check_layer(struct res_model *m, size_t i, const struct toy *t, float strength,
                        const struct stored *s)
{
    static float want[ROWS * COLS], got[ROWS * COLS];
    float scale = 1, new_scale = 1;
    if (s->scaled) {
        scale = 0.25f;
        read_f32(m, i, 2, &new_scale);
    }
    expected(m, i, 0, t, strength, scale, want);
    read_f32(m, i, 0, got);
    struct res_tensor_at at = res_tensor_at(m, i, 0);
    enum dtype wide = becomes(m, s->weight);
    assert_int_equal(at.dtype, wide != DT_NONE ? wide : s->weight);
    float amax = 0;
    for (size_t k = 0; k < ROWS * COLS; k++)
        amax = fabsf(want[k]) > amax ? fabsf(want[k]) : amax;
    if (s->scaled)
        assert_true(new_scale == amax / (s->weight == DT_F8_E4M3 ? 448 : 57344));
    /* One step of the stored type; fp8 may take either neighbour. */
    double step = merge_by_chance(s->weight) ? (s->weight == DT_F8_E4M3 ? 0.125 : 0.25)
                  : at.dtype == DT_BF16      ? 0x1p-8
                  : at.dtype == DT_F16       ? 0x1p-11
                                             : 0;
    double least = merge_by_chance(s->weight) ? 0x1p-9 * (double)new_scale : 0x1p-24;
    for (size_t k = 0; k < ROWS * COLS; k++) {
        double off = fabs((double)got[k] * (double)new_scale - (double)want[k]);
        if (off > step * fabs((double)want[k]) * 1.001 + (step > 0 ? least : 0))
            fail_msg("%s, block %zu: element %zu is %g, should be %g", dtype_name(s->weight), i, k,
                     (double)got[k] * (double)new_scale, (double)want[k]);
    }
}

/* A look at a plan counts bytes as they are stored, wider ones too: the same plan changes
 * nothing. */
static void looks_as_stored(struct res_model *m, const char *alloc, size_t devices)
{
    struct plan_args same = { .alloc = alloc };
    struct res_look look;
    berth_err err = { 0 };
    assert_ok(res_replan_look(m, &same, &look, &err), err);
    assert_int_equal(look.moves, 0);
    for (size_t d = 0; d < devices; d++)
        assert_int_equal(look.after[d], res_bytes_on(m, d));
    plan_release(&look.plan);
}

static void on_every_place(const struct stored *types, size_t n, struct toy like,
                           struct tpool *pool)
{
    for (size_t t = 0; t < n; t++) {
        const char *path = write_file("typed", types[t]);
        uint64_t sum[ARRAY_LEN(places)], base[ARRAY_LEN(places)];
        size_t first[DT_COUNT + 1] = { 0 }; /* place whose weights became the type, plus one */
        for (size_t p = 0; p < ARRAY_LEN(places); p++) {
            struct fixture f;
            struct toy toy = toy_of("layers.1.", 0.125f, 1);
            toy.kind = like.kind;
            toy.dora = like.dora;
            const struct res_config cfg = { .pool = p == 0 ? NULL : pool };
            fixture_open(&f, places[p].devices, &cfg);
            struct res_model *m = model_open(&f, path, places[p].alloc, RES_AUTO);
            set(m, &toy, 0.5f);
            assert_int_equal(model_load(m).read, res_info(m).bytes);
            for (size_t i = 0; i < 4; i++) {
                bool mine = strstr(m->blocks.at[i].name, "layers.1");
                struct res_block_at at;
                berth_err err = { 0 };
                assert_ok(res_block_at(m, i, &at, &err), err);
                enum dtype wide = mine ? becomes(m, types[t].weight) : DT_NONE;
                assert_int_equal(at.patched, wide);
                assert_int_equal(at.bytes > m->blocks.at[i].bytes, wide != DT_NONE);
                if (mine)
                    check_layer(m, i, &toy, 0.5f, &types[t]);
            }
            sum[p] = checksum(m);
            looks_as_stored(m, places[p].alloc, devset_count(f.set));
            fixture_check(&f);
            set(m, NULL, 0);
            model_load(m);
            base[p] = checksum(m);
            assert_true(base[p] != sum[p]);
            size_t *same = &first[becomes(m, types[t].weight)];
            *same = *same ? *same : p + 1;
            assert_true(sum[p] == sum[*same - 1] && base[p] == base[0]);
            assert_int_equal(res_bytes_on(m, 0) +
                                 (devset_count(f.set) > 1 ? res_bytes_on(m, 1) : 0) +
                                 (devset_count(f.set) > 2 ? res_bytes_on(m, 2) : 0),
                             res_info(m).bytes);
            res_unref(m);
            assert_int_equal(toy.freed, 0);
            fixture_close(&f);
        }
    }
}

static void every_type_on_every_place(void **state)
{
    (void)state;
    static const struct stored types[] = {
        STORED(DT_F32, false),     STORED(DT_F16, false),     STORED(DT_BF16, false),
        STORED(DT_F8_E4M3, false), STORED(DT_F8_E5M2, false), STORED(DT_F8_E4M3, true),
        STORED(DT_Q8_0, false),    STORED(DT_Q4_0, false),    STORED(DT_F8_E5M2, true),
    };
    struct tpool *pool;
    berth_err err = { 0 };
    assert_ok(tpool_new(3, &pool, &err), err);
    on_every_place(types, ARRAY_LEN(types), (struct toy) { 0 }, pool);
    tpool_free(pool);
}

static void every_kind_on_every_place(void **state)
{
    (void)state;
    static const struct stored types[] = { STORED(DT_F32, false), STORED(DT_F8_E4M3, true),
                                           STORED(DT_Q4_0, false) };
    static const struct toy kinds[] = {
        { .kind = TERM_HADAMARD },
        { .kind = TERM_KRON },
        { .kind = TERM_ADD },
        { .kind = TERM_SET },
        { .kind = TERM_LOWRANK, .dora = DORA_ROWS },
        { .kind = TERM_HADAMARD, .dora = DORA_COLUMNS },
        { .kind = TERM_KRON, .dora = DORA_ROWS },
        { .kind = TERM_LOWRANK, .dora = DORA_COLUMNS },
        { .kind = TERM_MIX },
        { .kind = TERM_MIX, .dora = DORA_ROWS },
        { .kind = TERM_MIX, .dora = DORA_COLUMNS },
        { .kind = TERM_BUTTERFLY },
        { .kind = TERM_BUTTERFLY, .dora = DORA_COLUMNS },
        { .kind = TERM_INPUTS },
        { .kind = TERM_INPUTS, .dora = DORA_ROWS },
        { .kind = TERM_INPUTS, .dora = DORA_COLUMNS },
    };
    struct tpool *pool;
    berth_err err = { 0 };
    assert_ok(tpool_new(3, &pool, &err), err);
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
        on_every_place(types, ARRAY_LEN(types), kinds[k], pool);
    tpool_free(pool);
}

/* ---- what is read when ---- */

static void only_touched_blocks_are_read_again(void **state)
{
    (void)state;
    const char *path = write_file("counted", (struct stored)STORED(DT_F16, false));
    for (size_t p = 0; p < ARRAY_LEN(places); p++) {
        struct fixture f;
        berth_err err = { 0 };
        struct toy a = toy_of("layers.1.weight", 0.1f, 1), b = toy_of("layers.2.bias", 0.3f, 2);
        fixture_open(&f, places[p].devices, NULL);
        struct res_model *m = model_open(&f, path, places[p].alloc, RES_AUTO);
        const uint64_t block = ROWS * COLS * 2 + ROWS * 4;
        model_load(m);
        uint64_t base = checksum(m);
        struct res_patch both[] = { { &a.base, 1 }, { &b.base, 0.5f } };
        assert_ok(res_set_patches(m, both, 2, &err), err);
        assert_int_equal(model_load(m).read, 2 * block);
        uint64_t first = checksum(m);
        both[1].strength = 0; /* as if it were not there */
        assert_ok(res_set_patches(m, both, 2, &err), err);
        assert_int_equal(model_load(m).read, block);
        for (size_t i = 0; i < m->blocks.n; i++)
            assert_int_equal(m->block[i].patch != 0, !strcmp(m->blocks.at[i].name, "layers.1"));
        both[0].strength = 0.75f;
        assert_ok(res_set_patches(m, both, 2, &err), err);
        assert_int_equal(model_load(m).read, block);
        both[0].strength = 1;
        assert_ok(res_set_patches(m, both, 2, &err), err);
        assert_int_equal(model_load(m).read, block);
        both[1].strength = 0.5f;
        assert_ok(res_set_patches(m, both, 2, &err), err);
        assert_int_equal(model_load(m).read, block);
        assert_true(checksum(m) == first);
        struct res_load_result got = model_load(m);
        assert_int_equal(got.read + got.moved, 0);
        assert_ok(res_set_patches(m, both, 1, &err), err);
        assert_int_equal(model_load(m).read, block);
        assert_ok(res_set_patches(m, NULL, 0, &err), err);
        assert_int_equal(model_load(m).read, block);
        assert_true(checksum(m) == base);
        res_unref(m);
        fixture_close(&f);
    }
}

#define BLOCKS_MOST 8

struct lying { /* where blocks lie */
    uint64_t addr[BLOCKS_MOST];
    size_t device[BLOCKS_MOST];
};

static struct lying look_where(const struct res_model *m)
{
    struct lying l;
    assert_true(m->blocks.n <= BLOCKS_MOST);
    for (size_t i = 0; i < m->blocks.n; i++) {
        l.addr[i] = m->block[i].mem.addr;
        l.device[i] = m->block[i].device;
    }
    return l;
}

/* A change of one of two adapters on layers of their own: what the other touches, and what nobody
 * does, lies where it lay, and no byte is read or moved for it. */
static void the_others_stay_where_they_are(void **state)
{
    (void)state;
    const char *path = write_file("stay", (struct stored)STORED(DT_F16, false));
    for (size_t p = 0; p < ARRAY_LEN(places); p++) {
        struct fixture f;
        berth_err err = { 0 };
        struct toy a = toy_of("layers.1.weight", 0.1f, 1), b = toy_of("layers.2.weight", 0.3f, 2);
        struct res_patch both[] = { { &a.base, 1 }, { &b.base, 0.5f } };
        static const float strengths[][2] = { { 1, 0.75f }, { 0.5f, 0.75f }, { 0.5f, 0 },
                                              { 0.25f, 0 }, { 0.25f, 1 },    { 0.25f, 1 } };
        fixture_open(&f, places[p].devices, NULL);
        struct res_model *m = model_open(&f, path, places[p].alloc, RES_AUTO);
        assert_ok(res_set_patches(m, both, 2, &err), err);
        model_load(m);
        for (size_t i = 0; i < ARRAY_LEN(strengths); i++) {
            const struct lying was = look_where(m);
            const struct res_patch old[] = { both[0], both[1] };
            uint64_t read = 0, most = 0;
            both[0].strength = strengths[i][0];
            both[1].strength = strengths[i][1];
            assert_ok(res_set_patches(m, both, 2, &err), err);
            struct res_load_result got = model_load(m);
            const struct lying is = look_where(m);
            for (size_t k = 0; k < m->blocks.n; k++) {
                const bool mine = both[0].strength != old[0].strength &&
                                  strcmp(m->blocks.at[k].name, "layers.1") == 0,
                           other = both[1].strength != old[1].strength &&
                                   strcmp(m->blocks.at[k].name, "layers.2") == 0;
                read += mine || other ? m->blocks.at[k].bytes : 0;
                most += mine || other ? m->block[k].bytes : 0;
                if (!mine && !other && (is.addr[k] != was.addr[k] || is.device[k] != was.device[k]))
                    fail_msg("%s, change %zu: %s has moved", places[p].alloc, i,
                             m->blocks.at[k].name);
            }
            assert_int_equal(got.read, read);
            assert_true(got.moved <= most);
        }
        res_unref(m);
        fixture_close(&f);
    }
}

/* What is merged for the cpu is exact, for a card it has 16 bits: who computes is part of what a
 * block is, wherever it lies, and after a plan with another one the next load derives it again. */
static void who_computes_decides(void **state)
{
    (void)state;
    static const struct stored types[] = { STORED(DT_F16, false), STORED(DT_BF16, false) };
    static const char *const plans[] = { "#cpu", "#null:0", "null:0,*#cpu", "cpu,*#null:0",
                                         "#cpu" };
    const uint64_t base = 4 * (ROWS * COLS * 2 + ROWS * 4), wider = 4 * ROWS * COLS * 2;
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        struct fixture f;
        berth_err err = { 0 };
        struct toy toy = toy_of("layers.", 0.125f, 1);
        uint64_t sum[2] = { 0 };
        fixture_open(&f, "cpu=64m,null:0=64m", NULL);
        struct res_model *m = model_open(&f, write_file("who", types[t]), "cpu,*#null:0", RES_AUTO);
        set(m, &toy, 0.5f);
        model_load(m);
        for (size_t p = 0; p < ARRAY_LEN(plans); p++) {
            const struct plan_args plan = { .alloc = plans[p] };
            bool card = strstr(plans[p], "#null") != NULL;
            uint64_t all = base + (card ? 0 : wider);
            assert_ok(res_replan(m, &plan, NULL, &err), err);
            fixture_check(&f);
            assert_int_equal(res_use_begin(m, &err), BERTH_EINVAL);
            assert_int_equal(model_load(m).read, base);
            assert_ok(res_use_begin(m, &err), err);
            res_use_end(m);
            assert_int_equal(res_bytes_on(m, 0) + res_bytes_on(m, 1), all);
            looks_as_stored(m, plans[p], 2);
            uint64_t now = checksum(m);
            assert_true(!sum[card] || sum[card] == now);
            sum[card] = now;
            fixture_check(&f);
        }
        assert_true(sum[0] != sum[1]);
        res_unref(m);
        fixture_close(&f);
    }
}

static void stacked_adapters_apply_in_order(void **state)
{
    (void)state;
    static float one[ROWS * COLS], two[ROWS * COLS];
    const char *path = write_file("stacked", (struct stored)STORED(DT_F32, false));
    struct fixture f;
    berth_err err = { 0 };
    struct toy a = toy_of("layers.0.weight", 0.1f, 1), b = toy_of("layers.0.weight", 0.7f, 2);
    const struct res_patch both[] = { { &a.base, 1 }, { &b.base, -1 } };
    fixture_open(&f, "cpu=64m", NULL);
    struct res_model *m = model_open(&f, path, "#cpu", RES_AUTO);
    assert_ok(res_set_patches(m, both, 2, &err), err);
    model_load(m);
    size_t i = 0;
    while (strcmp(m->blocks.at[i].name, "layers.0") != 0)
        i++;
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    const struct weights_entry *e = m->blocks.tensor[m->blocks.at[i].first].entry;
    expected(m, i, 0, &a, 1, 1, one);
    assert_ok(toy_terms(&b.base, e->name, e->name_len, &e->shape, -1, &tmp, &terms, &err), err);
    const struct res_term *x = vec_at(&terms, 0);
    toy_apply(x, one);
    read_f32(m, i, 0, two);
    assert_memory_equal(one, two, sizeof one);
    vec_release(&terms);
    arena_release(&tmp);
    res_unref(m);
    fixture_close(&f);
}

/* The draws are those of ComfyUI's key: its prefix, and the name without the file's. */
static void fp8_is_seeded_by_the_key(void **state)
{
    (void)state;
    static const char key[] = "diffusion_model.layers.0.weight";
    static const char *const prefixes[] = { "", "model.diffusion_model.", "diffusion_model.",
                                            "other.prefix." };
    static float w[ROWS * COLS];
    static uint32_t chance[ROWS * COLS];
    static uint8_t want[ROWS * COLS], got[ROWS * COLS];
    for (size_t p = 0; p < ARRAY_LEN(prefixes); p++)
        for (int whole = 0; whole < 2; whole++) { /* the file as one model, or its part */
            char name[80];
            struct fixture f;
            berth_err err = { 0 };
            struct toy toy = toy_of("layers.0.weight", 0.3f, 1);
            snprintf(name, sizeof name, "%slayers.0.weight", prefixes[p]);
            struct weights_spec spec = { name, DT_F8_E4M3, { 2, { ROWS, COLS } } };
            struct filling x = { &spec, &(struct stored)STORED(DT_F8_E4M3, false) };
            struct weights_write_args file = { .format = "safetensors",
                                               .path = tmp_path("seed.safetensors"),
                                               .spec = &spec,
                                               .count = 1,
                                               .fill = fill,
                                               .user = &x };
            assert_ok(weights_write(&file, &err), err);
            fixture_open(&f, "cpu=64m", NULL);
            struct res_open_args args = { .path = file.path,
                                          .plan.alloc = "#cpu",
                                          .part = whole ? NULL : prefixes[p] };
            struct res_model *m;
            assert_ok(res_open(f.r, &args, &m, NULL, &err), err);
            set(m, &toy, 1);
            model_load(m);
            expected(m, 0, 0, &toy, 1, 1, w);
            struct mt19937 g;
            bool unknown = whole && p == 3; /* nobody said that it is a prefix */
            mt19937_init(&g, unknown
                                 ? crc32_of(crc32_of(0, "diffusion_model.", 16), name, strlen(name))
                                 : crc32_of(0, key, strlen(key)));
            mt19937_fill(&g, chance, ROWS * COLS);
            ref_fp8_round(DT_F8_E4M3, w, chance, want, ROWS * COLS);
            assert_ok(res_tensor_read(m, 0, 0, got, sizeof got, &err), err);
            assert_memory_equal(got, want, sizeof got);
            res_unref(m);
            fixture_close(&f);
        }
}

/* Quants whose rows end inside a block, and draws that begin again every 2^20 elements. */
static void odd_shapes_merge_like_whole_ones(void **state)
{
    (void)state;
    static const struct {
        enum dtype from, to;
        uint64_t rows, cols;
    } cases[] = { { DT_Q4_0, DT_F16, 64, 1025 },     { DT_Q6_K, DT_F32, 256, 1027 },
                  { DT_F16, DT_F8_E4M3, 700, 1601 }, { DT_F32, DT_F8_E5M2, 1, 1200000 },
                  { DT_F32, DT_BF16, 2100, 1 },      { DT_F16, DT_F16, 37, 2050 } };
    struct tpool *pool;
    berth_err err = { 0 };
    assert_ok(tpool_new(3, &pool, &err), err);
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        const enum dtype type = cases[c].from, kept = cases[c].to;
        struct merge m = { .from = &merge_plain,
                           .to = merge_form_of(kept),
                           .rows = cases[c].rows,
                           .cols = cases[c].cols,
                           .seed = 7 };
        size_t n = (size_t)(m.rows * m.cols), in = n / dtype_desc(type)->elems;
        uint8_t *src = malloc(in * dtype_desc(type)->bytes);
        float *flat = malloc(n * sizeof *flat), *up = malloc((size_t)m.rows * sizeof *up);
        float *down = malloc((size_t)m.cols * sizeof *down);
        uint8_t *got = malloc(n * 4), *want = malloc(n * 4);
        uint64_t chances = merge_chances(&m);
        m.chance = malloc((chances + 1) * sizeof *m.chance);
        assert_true(src && flat && up && down && got && want && m.chance);
        for (size_t i = 0; i < in * dtype_desc(type)->bytes; i++)
            src[i] = (uint8_t)(i * 7 & 0x3b); /* small finite values in every type */
        for (size_t i = 0; i < m.rows; i++)
            up[i] = (float)(int)(i % 9) / 8;
        for (size_t i = 0; i < m.cols; i++)
            down[i] = (float)(int)(i % 11) / 16;
        struct res_term term = { .kind = TERM_LOWRANK,
                                 .row = m.rows / 3,
                                 .rows = m.rows - m.rows / 3,
                                 .cols = m.cols,
                                 .rank = 1,
                                 .scale = 0.5f,
                                 .up = up,
                                 .down = down };
        const struct merge_plain from = merge_numbers(type, src);
        struct merge_plain to = merge_numbers(kept, got);
        m.base = &from, m.result = &to, m.term = &term, m.terms = 1;
        dtype_desc(type)->to_f32(src, flat, n);
        ref_lowrank_add(flat + term.row * m.cols, term.rows, m.cols, up, down, 1, 0.5f);
        if (chances) {
            uint32_t *all = malloc(n * sizeof *all);
            struct mt19937 g;
            assert_non_null(all);
            mt19937_init(&g, 7);
            mt19937_fill(&g, all, n);
            ref_fp8_round(kept, flat, all, want, n);
            free(all);
        } else {
            dtype_desc(kept)->from_f32(flat, want, n);
        }
        for (int threads = 0; threads < 2; threads++) {
            merge_run(&m, threads ? pool : NULL);
            if (memcmp(got, want, n * dtype_desc(kept)->bytes) != 0)
                fail_msg("case %zu, %s to %s", c, dtype_name(type), dtype_name(kept));
        }
        free(src), free(flat), free(up), free(down), free(got), free(want), free(m.chance);
    }
    tpool_free(pool);
}

/* F32 as it is, for terms to be set. */
static struct merge plain_merge(const float *src, float *dst, size_t rows, size_t cols)
{
    static struct merge_plain from, to;
    from = merge_numbers(DT_F32, src);
    to = merge_numbers(DT_F32, dst);
    return (struct merge) { .from = &merge_plain,
                            .to = &merge_plain,
                            .base = &from,
                            .result = &to,
                            .rows = rows,
                            .cols = cols };
}

/* Norms over more than one tile, in rows of which only some are meant, behind another term; threads
 * change no bit. */
static void norms_of_rows_and_columns(void **state)
{
    (void)state;
    enum { R = 300, C = 2304, K = 9 };
    static float base[R * C], want[R * C], got[R * C], up[R], down[C], size[C];
    struct tpool *pool;
    berth_err err = { 0 };
    assert_ok(tpool_new(3, &pool, &err), err);
    for (size_t i = 0; i < R * C; i++)
        base[i] = (float)(int)(i * 37 % 129) / 64 - 1;
    for (size_t i = 0; i < C; i++) {
        down[i] = (float)(int)(i % 11) / 16;
        size[i] = 1 + (float)(i % 7);
        up[i % R] = (float)(int)(i % 9) / 8;
    }
    for (int columns = 0; columns < 2; columns++)
        for (int before = 0; before < 2; before++) {
            struct arena tmp = { 0 };
            struct res_term term[2] = { { .rows = R, .cols = C, .rank = 1, .scale = 0.5f } };
            term[0].up = up;
            term[0].down = down;
            term[1] = term[0];
            term[1].row = 33;
            term[1].rows = 200;
            term[1].dora = (struct res_dora) {
                .size = size, .columns = columns, .before = before, .kernel = K, .strength = -0.7f
            };
            struct merge m = plain_merge(base, got, R, C);
            struct vec terms = { .p = term, .n = 2, .elem = sizeof *term };
            assert_ok(merge_take(&m, &terms, 0, &tmp, &err), err);
            memcpy(want, base, sizeof want);
            toy_apply(&term[0], want);
            toy_apply(&term[1], want + 33 * C);
            for (int threads = 0; threads < 2; threads++) {
                merge_norms(&m, threads ? pool : NULL);
                merge_run(&m, threads ? pool : NULL);
                assert_memory_equal(got, want, sizeof got);
            }
            arena_release(&tmp);
        }
    struct res_term bad = { .rows = R, .cols = C, .rank = 1, .up = up, .down = down };
    bad.dora = (struct res_dora) { .size = size, .kernel = 5 };
    struct merge m = plain_merge(base, got, R, C);
    struct vec terms = { .p = &bad, .n = 1, .elem = sizeof bad };
    assert_fails(merge_take(&m, &terms, 0, NULL, &err), err, BERTH_EFORMAT, "2304");
    tpool_free(pool);
}

/* Every kind of term in rows wider than a tile, with and without norms. Where a tile begins, a row
 * of a Kronecker product's right matrix does not. */
static void every_kind_beyond_a_tile(void **state)
{
    (void)state;
    enum { R = 240, ROW = 33, N = 200, C = 2304, RIGHT = C / 4 };
    _Static_assert(C > 2 * MERGE_TILE_COLS && MERGE_TILE_COLS % RIGHT &&
                       2 * MERGE_TILE_COLS % RIGHT,
                   "two tiles begin inside a row of the right matrix");
    static float base[R * C], want[R * C], got[R * C];
    for (size_t i = 0; i < R * C; i++)
        base[i] = value(0, i);
    for (int kind = 0; kind <= TERM_SET; kind++)
        for (int dora = NO_DORA; dora <= (kind < TERM_ADD ? DORA_COLUMNS : NO_DORA); dora++) {
            struct toy toy = toy_of("wide", 0.5f, 1);
            toy.kind = (enum res_term_kind)kind;
            toy.dora = dora;
            struct arena tmp = { 0 };
            struct vec terms = { .elem = sizeof(struct res_term) };
            berth_err err = { 0 };
            const struct shape shape = { 2, { N, C } };
            assert_ok(toy_terms(&toy.base, "wide", 4, &shape, 0.7f, &tmp, &terms, &err), err);
            struct res_term *x = vec_at(&terms, 0);
            assert_int_equal(x->right_cols, RIGHT);
            x->row = ROW;
            struct merge m = plain_merge(base, got, R, C);
            assert_ok(merge_take(&m, &terms, 0, &tmp, &err), err);
            memcpy(want, base, sizeof want);
            toy_apply(x, want + ROW * C);
            merge_norms(&m, NULL);
            merge_run(&m, NULL);
            for (size_t i = 0; i < R * C; i++)
                if (got[i] != want[i])
                    fail_msg("kind %d, dora %d: row %zu, column %zu is %g, should be %g", kind,
                             dora, i / C, i % C, (double)got[i], (double)want[i]);
            vec_release(&terms);
            arena_release(&tmp);
        }
}

/* ---- failures ---- */

static void refusals_name_what_they_refuse(void **state)
{
    (void)state;
    struct fixture f;
    berth_err err = { 0 };
    struct toy toy = toy_of("layers.", 1, 1);
    fixture_open(&f, "cpu=64m", NULL);
    struct res_model *m = model_open(&f, model_file("bytes", 2, 4096), "#cpu", RES_AUTO);
    model_load(m);
    uint64_t base = checksum(m);
    set(m, &toy, 1); /* U8 tensors */
    assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_EUNSUPPORTED, "type U8");
    assert_true(strstr(err.msg, "layers.0") && checksum(m) == base);
    res_unref(m);
    m = model_open(&f, write_file("misfit", (struct stored)STORED(DT_F32, false)), "#cpu",
                   RES_AUTO);
    model_load(m);
    base = checksum(m);
    toy.misfit = true;
    set(m, &toy, 1);
    assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_EFORMAT, "do not fit 24 x 512");
    assert_true(strstr(err.msg, "toy") && checksum(m) == base);
    res_unref(m);
    fixture_close(&f);
}

/* The base weights are gone: what is in memory stays, patched or not. */
static void a_file_that_changed_leaves_the_model(void **state)
{
    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(places); p++) {
        struct fixture f;
        berth_err err = { 0 };
        struct toy toy = toy_of("layers.", 1, 1);
        char path[512];
        snprintf(path, sizeof path, "%s", write_file("cut", (struct stored)STORED(DT_F16, false)));
        fixture_open(&f, places[p].devices, NULL);
        struct res_model *m = model_open(&f, path, places[p].alloc, RES_AUTO);
        model_load(m);
        uint64_t base = checksum(m);
        assert_int_equal(truncate(path, 4096), 0);
        set(m, &toy, 1);
        assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_EIO, "cut.safetensors");
        assert_true(checksum(m) == base);
        fixture_check(&f);
        res_unref(m);
        fixture_close(&f);
    }
}

static void cancel_leaves_the_model(void **state)
{
    (void)state;
    struct fixture f;
    berth_err err = { 0 };
    struct toy toy = toy_of("layers.", 1, 1);
    atomic_bool stop;
    atomic_init(&stop, true);
    fixture_open(&f, "cpu=64m,null:0=64m", NULL);
    struct res_model *m = model_open(&f, write_file("cancel", (struct stored)STORED(DT_F32, false)),
                                     "null:0,50%;cpu,50%#null:0", RES_AUTO);
    model_load(m);
    uint64_t base = checksum(m);
    set(m, &toy, 1);
    assert_fails(res_load(m, &(struct res_load_args) { .cancel = &stop }, NULL, &err), err,
                 BERTH_ECANCELED, "");
    assert_true(checksum(m) == base);
    res_unref(m);
    fixture_close(&f);
}

/* While a block of a load travels the next one is merged: the device is waited for once at the end
 * of the base weights and once at that of the patched ones, not for every tensor. */
static void patched_blocks_travel_meanwhile(void **state)
{
    (void)state;
    struct fixture f;
    struct toy toy = toy_of("weight", 0.01f, 1);
    fixture_open(&f, "cpu=64m,null:0=64m", NULL);
    struct device *d = device_named(f.set, "null:0");
    struct res_model *m = model_open(
        &f, write_file("meanwhile", (struct stored)STORED(DT_F16, false)), "#null:0", RES_AUTO);
    set(m, &toy, 1);
    uint64_t before = null_calls(d, NULL_STREAM_SYNC);
    model_load(m);
    assert_true(m->blocks.n > 2);
    assert_in_range(null_calls(d, NULL_STREAM_SYNC) - before, 1, 2);
    res_unref(m);
    fixture_close(&f);
}

/* Every call of the device fails once, while loading patched and while changing the patch. The
 * model is then gone or has whole blocks, each of one of the two patch sets. */
static void a_fault_at_every_call(void **state)
{
    (void)state;
    const char *path = write_file("fault", (struct stored)STORED(DT_F8_E4M3, true));
    char own[512];
    snprintf(own, sizeof own, "%s", path);
    for (int resident = 0; resident < 2; resident++) {
        uint64_t k = 1, want = 0, failed = 0;
        for (bool more = true; more; k++) {
            struct fixture f;
            berth_err err = { 0 };
            struct toy toy = toy_of("layers.", 0.01f, 1);
            fixture_open(&f, "cpu=64m,null:0=64m,null:1=64m", NULL);
            struct device *d = device_named(f.set, "null:0");
            struct res_model *m =
                model_open(&f, own, "null:0,30%;null:1,40%;cpu,30%#null:0", RES_AUTO);
            if (resident)
                model_load(m);
            set(m, &toy, 1);
            uint64_t calls = null_calls(d, NULL_ANY);
            null_fail(d, NULL_ANY, k);
            berth_status s = res_load(m, NULL, NULL, &err);
            null_fail(d, NULL_ANY, 0);
            more = null_calls(d, NULL_ANY) - calls >= k; /* else it came to its end unharmed */
            failed += s != BERTH_OK;
            if (s && (!strstr(err.msg, "layers.") || !strstr(err.msg, "null:")))
                fail_msg("call %llu: '%s'", (unsigned long long)k, err.msg);
            fixture_check(&f);
            model_load(m); /* goes on from there */
            uint64_t sum = checksum(m);
            want = want ? want : sum;
            assert_true(sum == want);
            res_unref(m);
            fixture_close(&f);
        }
        print_message("%llu calls, %llu of them cannot fail without notice\n",
                      (unsigned long long)(k - 2), (unsigned long long)failed);
        assert_true(failed > 10);
    }
}

static void survives_oom(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", write_file("oom", (struct stored)STORED(DT_F8_E4M3, false)));
    static const char *const texts[] = { "#cpu", "null:0,50%;cpu,50%#null:0" };
    for (size_t p = 0; p < ARRAY_LEN(texts); p++) {
        struct fixture f;
        struct toy toy = toy_of("layers.2", 0.01f, 1);
        toy.dora = DORA_ROWS;
        fixture_open(&f, "cpu=64m,null:0=64m", NULL);
        struct res_model *m = model_open(&f, path, texts[p], RES_AUTO);
        model_load(m);
        set(m, &toy, 1);
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s != BERTH_OK; k++) {
            berth_err err = { 0 };
            oom_after(k);
            s = res_load(m, NULL, NULL, &err);
            oom_off();
            if (s && s != BERTH_ENOMEM && s != BERTH_ENODEVMEM)
                fail_msg("allocation %ld: %s '%s'", k, berth_status_name(s), err.msg);
            fixture_check(&f);
        }
        res_unref(m);
        fixture_close(&f);
    }
}

/* A device that is full still patches: the second copy of a block pushes others out, or it says so
 * and everything stays. */
static void no_room_leaves_the_old_block(void **state)
{
    (void)state;
    struct fixture f;
    berth_err err = { 0 };
    struct toy toy = toy_of("layers.3", 1, 1);
    char path[512];
    snprintf(path, sizeof path, "%s", write_file("tight", (struct stored)STORED(DT_F32, false)));
    fixture_open(&f, "cpu=64m,null:0=256k", NULL);
    struct res_model *m = model_open(&f, path, "null:0,200kb;cpu,*#null:0", RES_AUTO);
    model_load(m);
    uint64_t base = checksum(m);
    set(m, &toy, 1);
    berth_status s = res_load(m, NULL, NULL, &err);
    assert_true(s == BERTH_OK || (s == BERTH_ENODEVMEM && checksum(m) == base));
    fixture_check(&f);
    res_unref(m);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_on_every_place),
        cmocka_unit_test(every_kind_on_every_place),
        cmocka_unit_test(only_touched_blocks_are_read_again),
        cmocka_unit_test(the_others_stay_where_they_are),
        cmocka_unit_test(who_computes_decides),
        cmocka_unit_test(stacked_adapters_apply_in_order),
        cmocka_unit_test(fp8_is_seeded_by_the_key),
        cmocka_unit_test(odd_shapes_merge_like_whole_ones),
        cmocka_unit_test(norms_of_rows_and_columns),
        cmocka_unit_test(every_kind_beyond_a_tile),
        cmocka_unit_test(refusals_name_what_they_refuse),
        cmocka_unit_test(a_file_that_changed_leaves_the_model),
        cmocka_unit_test(cancel_leaves_the_model),
        cmocka_unit_test(patched_blocks_travel_meanwhile),
        cmocka_unit_test(a_fault_at_every_call),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(no_room_leaves_the_old_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
