/* Stochastic rounding to fp8: against the reference loop for every F16 value and against codes that
 * PyTorch made. */
#include "support/op_ref.h"
#include "support/rng.h"
#include "support/test.h"

#include "base/hash.h"
#include "base/mt19937.h"
#include "op/op.h"

static const enum dtype types[] = { DT_F8_E4M3, DT_F8_E5M2 };

static void every_half_equals_the_reference(void **state)
{
    (void)state;
    enum { N = 65536 };
    struct rng r = { .state = rng_seed() };
    uint16_t *half = malloc(N * sizeof *half);
    float *x = malloc(N * sizeof *x);
    uint32_t *chance = malloc(N * sizeof *chance);
    uint8_t *want = malloc(N), *got = malloc(N);
    assert_true(half && x && chance && want && got);
    for (int i = 0; i < N; i++)
        half[i] = (uint16_t)i;
    dtype_desc(DT_F16)->to_f32(half, x, N);
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < N; i++)
            chance[i] = round == 0 ? 0 : round == 1 ? 0xff : (uint32_t)rng_u64(&r);
        for (size_t t = 0; t < ARRAY_LEN(types); t++) {
            ref_fp8_round(types[t], x, chance, want, N);
            for (int level = 0; level <= (int)cpu_level(); level++) {
                op_fp8_round_at((enum cpu_level)level, types[t], x, chance, got, N);
                for (int i = 0; i < N; i++)
                    if (got[i] != want[i])
                        fail_msg("%s %s: %a with chance %u is %02x, reference %02x",
                                 dtype_name(types[t]), cpu_level_name((enum cpu_level)level),
                                 (double)x[i], chance[i] & 0xff, got[i], want[i]);
            }
        }
    }
    free(half), free(x), free(chance), free(want), free(got);
}

/* ComfyUI's function in PyTorch (CPU), fed the draws of generator.manual_seed(crc32(key)). */
static void equals_pytorch(void **state)
{
    (void)state;
    static const uint8_t e4m3[48] = { 0x82, 0x03, 0x03, 0x02, 0x87, 0x98, 0xa5, 0x2e, 0x31, 0x30,
                                      0xa0, 0xc3, 0xd2, 0x82, 0x03, 0x04, 0x02, 0x85, 0x96, 0xa4,
                                      0x2f, 0x32, 0x32, 0x1d, 0xc1, 0xd1, 0x82, 0x04, 0x04, 0x03,
                                      0x83, 0x94, 0xa3, 0x2f, 0x33, 0x35, 0x2b, 0xbe, 0xd1, 0x82,
                                      0x03, 0x04, 0x04, 0x81, 0x93, 0xa2, 0xaf, 0x33 };
    static const uint8_t e5m2[48] = { 0x9c, 0x1e, 0x1e, 0x1a, 0xa3, 0xac, 0xb2, 0x37, 0x38, 0x38,
                                      0xb0, 0xc2, 0xc9, 0x9c, 0x1e, 0x20, 0x1c, 0xa1, 0xab, 0xb2,
                                      0x37, 0x39, 0x39, 0x2e, 0xc1, 0xc8, 0x9b, 0x1f, 0x20, 0x1e,
                                      0x9e, 0xaa, 0xb2, 0x37, 0x39, 0x3a, 0x35, 0xbf, 0xc8, 0x9a,
                                      0x1e, 0x20, 0x20, 0x99, 0xaa, 0xb1, 0xb7, 0x39 };
    const char key[] = "diffusion_model.double_blocks.0.img_attn.qkv.weight";
    float x[48];
    uint32_t chance[48];
    uint8_t got[48];
    for (int i = 0; i < 48; i++)
        x[i] = (float)(i * 7919 % 1009 - 504) / 512 * (float)(1 << i % 13) / 256;
    struct mt19937 g;
    mt19937_init(&g, crc32_of(0, key, strlen(key)));
    mt19937_fill(&g, chance, 48);
    op_fp8_round(DT_F8_E4M3, x, chance, got, 48);
    assert_memory_equal(got, e4m3, 48);
    op_fp8_round(DT_F8_E5M2, x, chance, got, 48);
    assert_memory_equal(got, e5m2, 48);
}

/* The mean over many draws is the value itself: that is what it is for. */
static void is_right_on_average(void **state)
{
    (void)state;
    enum { N = 4096 };
    const float values[] = { 0.3f, -1.07f, 0.0021f, 100.3f, -0.013f };
    float x[N], back[N];
    uint32_t chance[N];
    uint8_t code[N];
    for (size_t v = 0; v < ARRAY_LEN(values); v++)
        for (size_t t = 0; t < ARRAY_LEN(types); t++) {
            double sum = 0;
            for (uint32_t i = 0; i < N; i++) {
                x[i] = values[v];
                chance[i] = i * 2654435761u >> 16;
            }
            op_fp8_round(types[t], x, chance, code, N);
            dtype_desc(types[t])->to_f32(code, back, N);
            for (int i = 0; i < N; i++)
                sum += (double)back[i] / N;
            double off = sum / (double)values[v] - 1;
            if (off > 0.005 || off < -0.005)
                fail_msg("%s: mean of %g is %g", dtype_name(types[t]), (double)values[v], sum);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_equals_the_reference),
        cmocka_unit_test(equals_pytorch),
        cmocka_unit_test(is_right_on_average),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
