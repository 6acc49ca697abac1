/* Merged weights of 16 bits, of fp8 and of scaled fp8 against ComfyUI's, to the bit: data/, made by
 * tools/golden/lora_merge.py. Those of F32 are counted and not judged: torch adds in another order,
 * which fewer bits do not see. New scales are F32, too. */
#include "cases.h"

#include <math.h>
#include <stdlib.h>

struct tally {
    size_t values, off, scales, off_scales;
};

static void one_case(char *line, FILE *bin, struct tally *of)
{
    float got[MOST], want[MOST]; /* bits of any of the types */
    char name[16];
    int used = 0;
    assert_int_equal(sscanf(line, "%15s %n", name, &used), 1);
    char *times = strchr(name, '*');
    struct kept kept = { dtype_by_name(name, times ? (size_t)(times - name) : strlen(name)), 0 };
    const enum dtype type = kept.type;
    const size_t size = dtype_desc(type)->bytes;
    float scale;
    kept.scale = times ? strtof(times + 1, NULL) : 0;
    size_t count = merge_line(line + used, 0.1f, &kept, got);
    if (times) {
        assert_int_equal(fread(&scale, sizeof scale, 1, bin), 1);
        of[type].scales++;
        of[type].off_scales += memcmp(&scale, &kept.scale, sizeof scale) != 0;
        assert_true(fabsf(scale - kept.scale) <= 2e-6f * scale);
    }
    assert_int_equal(fread(want, size, count, bin), count); /* little-endian, as we are */
    for (size_t i = 0; i < count; i++)
        of[type].off +=
            memcmp((const char *)got + i * size, (const char *)want + i * size, size) != 0;
    of[type].values += count;
}

static void to_the_bit(void **state)
{
    (void)state;
    char line[1024];
    static const enum dtype types[] = { DT_F32, DT_F16, DT_BF16, DT_F8_E4M3, DT_F8_E5M2 };
    struct tally of[DT_COUNT] = { { 0 } };
    FILE *text = fopen(DATA "lora_merge.txt", "r"), *bin = fopen(DATA "lora_merge.bin", "rb");
    assert_true(text && bin);
    while (fgets(line, sizeof line, text))
        if (*line != '#')
            one_case(line, bin, of);
    assert_int_equal(fgetc(bin), EOF);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const struct tally *t = &of[types[i]];
        print_message("%s: %zu of %zu values differ, %zu of %zu scales\n", dtype_name(types[i]),
                      t->off, t->values, t->off_scales, t->scales);
        assert_true(t->values > 1000);
    }
    for (size_t i = 1; i < ARRAY_LEN(types); i++)
        assert_int_equal(of[types[i]].off, 0);
    assert_true(of[DT_F8_E4M3].scales && of[DT_F8_E5M2].scales);
    fclose(text);
    fclose(bin);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(to_the_bit) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
