/* Patched fp8: scales that are chosen anew, and models that keep what adapters change wide. */
#include "patch_toy.h"

#include "support/oom.h"
#include "support/op_ref.h"

#include "base/hash.h"
#include "base/mt19937.h"

#include <math.h>

static struct res_model *open_file(struct fixture *f, struct stored s, bool high_precision)
{
    struct res_open_args args = { .path = write_file("fp8", s),
                                  .plan.alloc = "#cpu",
                                  .high_precision = high_precision };
    struct res_model *m;
    berth_err err = { 0 };
    assert_ok(res_open(f->r, &args, &m, NULL, &err), err);
    return m;
}

/* sum(got * want) / sum(want^2): 1 when nothing is lost but by chance. */
static double slope(const float *got, const float *want, float scale)
{
    double up = 0, down = 0;
    for (size_t i = 0; i < ROWS * COLS; i++) {
        up += (double)got[i] * (double)scale * (double)want[i];
        down += (double)want[i] * (double)want[i];
    }
    return up / down;
}

/* A scale stored in few bits: the codes are those for the scale that is read back. */
static void codes_fit_the_stored_scale(void **state)
{
    (void)state;
    static const struct {
        enum dtype weight, scale;
    } row[] = { { DT_F8_E4M3, DT_BF16 }, { DT_F8_E5M2, DT_BF16 }, { DT_F8_E4M3, DT_F16 } };
    static float want[ROWS * COLS], got[ROWS * COLS], over[ROWS * COLS];
    static uint8_t codes[ROWS * COLS], raw[ROWS * COLS];
    static uint32_t chance[ROWS * COLS];
    static const char key[] = "diffusion_model.layers.1.weight";
    double off = 0; /* by how much an unrounded scale would be wrong, at most */
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (int size = 1; size <= 6; size++) {
            struct stored s = STORED(row[i].weight, true);
            struct toy toy = toy_of("layers.1.weight", 0.1f * (float)size, 1);
            struct fixture f;
            struct mt19937 g;
            float scale, amax = 0;
            berth_err err = { 0 };
            s.scale_type = row[i].scale;
            fixture_open(&f, "cpu=64m", NULL);
            struct res_model *m = open_file(&f, s, false);
            set(m, &toy, 1);
            model_load(m);
            read_f32(m, 1, 2, &scale);
            read_f32(m, 1, 0, got);
            expected(m, 1, 0, &toy, 1, 0.25f, want);
            for (size_t k = 0; k < ROWS * COLS; k++) {
                amax = fabsf(want[k]) > amax ? fabsf(want[k]) : amax;
                over[k] = want[k] * (1 / scale);
            }
            float exact = amax / merge_fp8_most(row[i].weight);
            off = fmax(off, fabs((double)scale / (double)exact - 1));
            if (fabs(slope(got, want, scale) - 1) > (row[i].weight == DT_F8_E4M3 ? 1e-3 : 3e-3))
                fail_msg("%s, scale %s: %f of what it should be", dtype_name(row[i].weight),
                         dtype_name(row[i].scale), slope(got, want, scale));
            mt19937_init(&g, crc32_of(0, key, strlen(key)));
            mt19937_fill(&g, chance, ROWS * COLS);
            ref_fp8_round(row[i].weight, over, chance, codes, ROWS * COLS);
            assert_ok(res_tensor_read(m, 1, 0, raw, sizeof raw, &err), err);
            assert_memory_equal(raw, codes, sizeof raw);
            res_unref(m);
            fixture_close(&f);
        }
    assert_true(off > 1e-3); /* or this test could not fail */
}

/* Nothing but zeros, values too small or too large for the scale's type, a scale of 0 in the
 * file. */
static void scales_are_numbers(void **state)
{
    (void)state;
    static const struct {
        enum dtype type;
        float scale, size, toy, want; /* want 0: any */
    } row[] = {
        { DT_F32, 0.25f, 0, 0, 1 },     { DT_F16, 0.25f, 0, 0, 1 }, { DT_F16, 0.25f, 0, 1e-7f, 0 },
        { DT_F16, 0.25f, 0, 1e12f, 0 }, { DT_F32, 0, 1, 0.5f, 0 },  { DT_BF16, 0, 1, 0, 1 },
        { DT_F32, 0.25f, 1, 1e37f, 0 },
    };
    for (int high = 0; high < 2; high++)
        for (size_t i = 0; i < ARRAY_LEN(row); i++) {
            static float got[ROWS * COLS];
            struct stored s = { DT_F8_E4M3, true, row[i].type, row[i].scale, row[i].size, NULL };
            struct toy toy = toy_of("layers.1.weight", row[i].toy, 1);
            struct fixture f;
            float scale;
            fixture_open(&f, "cpu=64m", NULL);
            struct res_model *m = open_file(&f, s, high);
            set(m, &toy, 1);
            model_load(m);
            read_f32(m, 1, 2, &scale);
            read_f32(m, 1, 0, got);
            if (!(scale > 0) || !isfinite(scale) ||
                (!high && row[i].want > 0 && scale != row[i].want))
                fail_msg("row %zu: scale %g", i, (double)scale);
            for (size_t k = 0; k < ROWS * COLS; k++)
                assert_true(isfinite(got[k]));
            res_unref(m);
            fixture_close(&f);
        }
    static const char *const called[] = { "scale_weight", "weight_scale" };
    for (size_t i = 0; i < ARRAY_LEN(called); i++) {
        struct stored s = STORED(DT_F8_E4M3, true);
        struct toy toy = toy_of("layers.1.weight", 1, 1);
        struct fixture f;
        char said[64];
        berth_err err = { 0 };
        s.scale = INFINITY;
        s.called = called[i];
        snprintf(said, sizeof said, "layers.1.%s' is inf", called[i]);
        fixture_open(&f, "cpu=64m", NULL);
        struct res_model *m = open_file(&f, s, false);
        set(m, &toy, 1);
        assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_EFORMAT, said);
        res_unref(m);
        fixture_close(&f);
    }
}

/* ---- high precision ---- */

static void wide_layer(struct res_model *m, size_t i, const struct toy *t, enum dtype type,
                       bool scaled)
{
    static float want[ROWS * COLS], got[ROWS * COLS];
    float scale = 1;
    if (scaled) {
        read_f32(m, i, 2, &scale);
        assert_true(scale == 0.25f); /* the file's */
    }
    assert_int_equal(res_tensor_at(m, i, 0).dtype, type);
    assert_int_equal(res_tensor_at(m, i, 1).dtype, DT_F32);
    expected(m, i, 0, t, 1, scale, want);
    read_f32(m, i, 0, got);
    for (size_t k = 0; k < ROWS * COLS; k++) {
        double is = (double)got[k] * (double)scale, off = fabs(is - (double)want[k]);
        if (off > fabs((double)want[k]) * (type == DT_F16 ? 0x1p-11 : 0x1p-8) + 0x1p-25)
            fail_msg("element %zu is %g, should be %g", k, is, (double)want[k]);
    }
}

static void high_precision_keeps_what_is_patched_wide(void **state)
{
    (void)state;
    static const struct {
        enum dtype weight;
        bool scaled;
        float size;
        enum dtype want;
        struct toy like;
    } row[] = {
        { DT_F8_E4M3, false, 0.03f, DT_F16, { .dora = NO_DORA } },
        { DT_F8_E5M2, false, 0.03f, DT_F16, { .dora = NO_DORA } },
        { DT_F8_E4M3, true, 0.03f, DT_F16, { .dora = NO_DORA } },
        { DT_F8_E5M2, true, 0.03f, DT_F16, { .dora = NO_DORA } },
        { DT_F8_E4M3, false, 1e5f, DT_BF16, { .dora = NO_DORA } },
        { DT_F8_E5M2, true, 1e5f, DT_BF16, { .dora = NO_DORA } },
        { DT_F8_E4M3, false, 0.03f, DT_F16, { .kind = TERM_HADAMARD } },
        { DT_F8_E5M2, true, 1e5f, DT_BF16, { .kind = TERM_KRON } },
        /* What counts is how large they are in the end. */
        { DT_F8_E4M3, true, 1e5f, DT_F16, { .dora = DORA_COLUMNS } },
        { DT_F8_E4M3, false, 1e5f, DT_BF16, { .dora = DORA_ROWS } },
        { DT_F8_E5M2, false, 0.03f, DT_BF16, { .dora = DORA_COLUMNS, .gain = 1e7f } },
    };
    static const char *const devices[] = { "cpu=64m", "cpu=64m,null:0=64m" };
    static const char *const alloc[] = { "#cpu", "null:0,50%;cpu,50%#null:0" };
    for (size_t i = 0; i < ARRAY_LEN(row) * 2; i++) {
        size_t r = i / 2;
        struct toy toy = toy_of("layers.1.weight", row[r].size, 1);
        struct fixture f;
        berth_err err = { 0 };
        toy.kind = row[r].like.kind;
        toy.dora = row[r].like.dora;
        toy.gain = row[r].like.gain;
        fixture_open(&f, devices[i % 2], NULL);
        struct res_open_args args = { .path = write_file("high", (struct stored)STORED(
                                                                     row[r].weight, row[r].scaled)),
                                      .plan.alloc = alloc[i % 2] };
        struct res_model *low, *m;
        assert_ok(res_open(f.r, &args, &low, NULL, &err), err);
        args.high_precision = true;
        assert_ok(res_open(f.r, &args, &m, NULL, &err), err);
        assert_true(low != m && res_info(low).key != res_info(m).key);
        model_load(low);
        model_load(m);
        uint64_t base = checksum(low);
        assert_int_equal(checksum(m), base); /* nothing is patched: nothing is wider */
        assert_int_equal(res_patched_span(m, 1), m->blocks.at[1].span);
        set(m, &toy, 1);
        uint64_t span = res_patched_span(m, 1);
        set(low, &toy, 1);
        model_load(m);
        model_load(low);
        for (size_t k = 0; k < 4; k++) {
            struct res_block_at at;
            assert_ok(res_block_at(m, k, &at, &err), err);
            assert_int_equal(at.patched, k == 1 ? row[r].want : DT_NONE);
            assert_int_equal(at.bytes, m->blocks.at[k].bytes + (k == 1 ? ROWS * COLS : 0));
            assert_int_equal(at.span, k == 1 ? span : m->blocks.at[k].span);
            assert_ok(res_block_at(low, k, &at, &err), err);
            assert_int_equal(at.bytes, low->blocks.at[k].bytes);
        }
        wide_layer(m, 1, &toy, row[r].want, row[r].scaled);
        fixture_check(&f); /* the ledgers know */
        struct plan_args other = { .alloc = "#cpu", .reserve = UINT64_MAX };
        if (i % 2) { /* it moves as it is, and stays apart from the other one */
            uint64_t sum = checksum(m);
            assert_ok(res_replan(m, &other, NULL, &err), err);
            assert_ok(res_replan(low, &other, NULL, &err), err);
            assert_int_equal(checksum(m), sum);
            fixture_check(&f);
        }
        set(m, NULL, 0);
        model_load(m);
        assert_int_equal(checksum(m), base);
        assert_int_equal(res_info(m).resident, res_info(m).bytes);
        res_unref(m);
        res_unref(low);
        fixture_close(&f);
    }
}

/* Room is asked for what the blocks will be, not for what they are in the file: wide they can never
 * fit here, so nobody has to leave to find that out. */
static void wide_blocks_that_cannot_fit_push_nobody(void **state)
{
    (void)state;
    struct toy toy = toy_of("weight", 0.03f, 1);
    struct fixture f;
    struct res_model *tenant, *m;
    berth_err err = { 0 };
    fixture_open(&f, "cpu=64m,null:0=90k", NULL);
    struct res_open_args args = { .path = write_file("tenant",
                                                     (struct stored)STORED(DT_F8_E4M3, false)),
                                  .plan.alloc = "#null:0" };
    assert_ok(res_open(f.r, &args, &tenant, NULL, &err), err);
    model_load(tenant);
    args.path = write_file("wide", (struct stored)STORED(DT_F8_E4M3, false));
    args.high_precision = true;
    assert_ok(res_open(f.r, &args, &m, NULL, &err), err);
    set(m, &toy, 1);
    assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_ENODEVMEM, "null:0");
    assert_int_equal(res_bytes_on(tenant, 1), res_info(tenant).bytes);
    set(m, NULL, 0);
    model_load(m); /* as in the file it fits, and the tenant makes room */
    assert_int_equal(res_bytes_on(m, 1), res_info(m).bytes);
    assert_true(res_bytes_on(tenant, 1) < res_info(tenant).bytes);
    res_unref(m);
    res_unref(tenant);
    fixture_close(&f);
}

/* The wider block needs memory of its own, and factors are looked at twice. */
static void high_precision_survives_oom(void **state)
{
    (void)state;
    struct fixture f;
    struct toy toy = toy_of("layers.1.weight", 0.03f, 1);
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    fixture_open(&f, "cpu=64m", NULL);
    struct res_model *m = open_file(&f, (struct stored)STORED(DT_F8_E4M3, true), true);
    model_load(m);
    uint64_t base = checksum(m);
    set(m, &toy, 1);
    for (; s != BERTH_OK; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = res_load(m, NULL, NULL, &err);
        oom_off();
        assert_true(s == BERTH_OK || ((s == BERTH_ENOMEM || s == BERTH_ENODEVMEM) && err.msg[0]));
        fixture_check(&f);
        if (s)
            assert_int_equal(checksum(m), base);
    }
    assert_true(k > 4);
    wide_layer(m, 1, &toy, DT_F16, true);
    res_unref(m);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_fit_the_stored_scale),
        cmocka_unit_test(scales_are_numbers),
        cmocka_unit_test(high_precision_keeps_what_is_patched_wide),
        cmocka_unit_test(wide_blocks_that_cannot_fit_push_nobody),
        cmocka_unit_test(high_precision_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
