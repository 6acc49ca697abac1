/* Merged 16-bit weights against ComfyUI's, to the bit: data/, made by tools/golden/lora_merge.py.
 * Those of F32 are counted and not judged: torch adds in another order, which 16 bits do not
 * see. */
#include "cases.h"

struct tally {
    size_t values, off;
};

static void one_case(char *line, FILE *bin, struct tally *of)
{
    float got[MOST], want[MOST]; /* bits of any of the types */
    char name[8];
    int used = 0;
    assert_int_equal(sscanf(line, "%7s %n", name, &used), 1);
    enum dtype type = dtype_by_name(name, strlen(name));
    assert_true(type == DT_F32 || type == DT_F16 || type == DT_BF16);
    const size_t size = dtype_desc(type)->bytes;
    size_t count = merge_line(line + used, 0.1f, type, got);
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
    static const enum dtype types[] = { DT_F32, DT_F16, DT_BF16 };
    struct tally of[DT_COUNT] = { { 0 } };
    FILE *text = fopen(DATA "lora_merge.txt", "r"), *bin = fopen(DATA "lora_merge.bin", "rb");
    assert_true(text && bin);
    while (fgets(line, sizeof line, text))
        if (*line != '#')
            one_case(line, bin, of);
    assert_int_equal(fgetc(bin), EOF);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const struct tally *t = &of[types[i]];
        print_message("%s: %zu of %zu values differ\n", dtype_name(types[i]), t->off, t->values);
        assert_true(t->values > 1000);
    }
    assert_int_equal(of[DT_F16].off, 0);
    assert_int_equal(of[DT_BF16].off, 0);
    fclose(text);
    fclose(bin);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(to_the_bit) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
