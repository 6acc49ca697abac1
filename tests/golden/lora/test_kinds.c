/* Merged weights against ComfyUI's: data/, made by tools/golden/lora_kinds.py, which says what a
 * line is. */
#include "cases.h"

#include <math.h>

#define TOLERANCE 2e-6 /* of the largest weight: torch adds in another order */

static void one_case(char *line, FILE *bin)
{
    float got[MOST], want[MOST], most = 0;
    char text[400];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
    size_t count = merge_line(line, 1, &(struct kept) { DT_F32, 0 }, got);
    assert_int_equal(fread(want, sizeof *want, count, bin), count); /* little-endian, as we are */
    for (size_t i = 0; i < count; i++)
        most = fabsf(want[i]) > most ? fabsf(want[i]) : most;
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - want[i]) <= (float)TOLERANCE * most))
            fail_msg("%s: element %zu is %.9g, ComfyUI has %.9g", text, i, (double)got[i],
                     (double)want[i]);
}

static void as_comfyui_merges(void **state)
{
    (void)state;
    char line[1024];
    size_t cases = 0;
    FILE *text = fopen(DATA "lora_kinds.txt", "r"), *bin = fopen(DATA "lora_kinds.bin", "rb");
    assert_true(text && bin);
    for (; fgets(line, sizeof line, text); cases++)
        one_case(line, bin);
    assert_int_equal(fgetc(bin), EOF);
    assert_true(cases > 20);
    fclose(text);
    fclose(bin);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(as_comfyui_merges) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
