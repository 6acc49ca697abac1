/* Merged weights against ComfyUI's: data/, made by tools/golden/lora_kinds.py, which says what a line
 * is. */
#include "unit/lora/lora_file.h"

#include "residency/patch_impl.h"

#include <math.h>

#define DATA BERTH_SOURCE_DIR "/tests/golden/lora/data/"
#define MOST 1024 /* elements of a tensor */
#define TENSORS 12
#define TOLERANCE 2e-6 /* of the largest weight: torch adds in another order */

static float value(size_t tensor, size_t i)
{
    uint32_t x = (uint32_t)((1009 * tensor + i) * 2654435761u);
    return (float)(x >> 8) / (float)(1 << 23) - 1;
}

static struct shape shape_of(const char *text) /* "8x6"; "": a scalar */
{
    struct shape s = { 0 };
    for (; *text; text += *text == 'x') {
        char *end;
        assert_true(s.ndim < SHAPE_MAX_DIMS);
        s.dim[s.ndim++] = strtoull(text, &end, 10);
        assert_ptr_not_equal(end, text);
        text = end;
    }
    return s;
}

struct adapter {
    float strength;
    struct str head, data; /* of a safetensors file */
};

static void add_tensor(struct adapter *a, const char *name, const char *shape, size_t number)
{
    struct shape s = shape_of(shape);
    char dims[SHAPE_TEXT_MAX];
    uint64_t n = 0;
    assert_true(shape_count(&s, &n) && n <= MOST);
    str_addf(&a->head, "%s\"x.%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
             a->head.n ? "," : "{", name, shape_text(&s, dims), a->data.n,
             a->data.n + (size_t)n * 4);
    for (size_t i = 0; i < n; i++) {
        float v = value(number, i);
        str_add(&a->data, (const char *)&v, sizeof v);
    }
}

static void add_terms(struct adapter *a, const struct shape *w, struct res_adapter **out,
                      struct arena *tmp, struct vec *terms, struct str *file)
{
    static const struct lora_name name[] = { { .base = "x", .key = "w" } };
    static const struct lora_names names = { name, 1 };
    berth_err err = { 0 };
    str_adds(&a->head, "}");
    for (int k = 0; k < 8; k++)
        str_addc(file, (char)(a->head.n >> (8 * k)));
    str_add(file, a->head.p, a->head.n);
    str_add(file, a->data.p, a->data.n);
    assert_ok(lora_from_bytes(file, &names, NULL, out, &err), err);
    assert_int_equal(lora_info(*out).unknown, 0);
    assert_ok((*out)->ops->terms(*out, "w", 1, w, a->strength, tmp, terms, &err), err);
    str_release(&a->head);
    str_release(&a->data);
}

/* Reads the line into adapters; returns how many. */
static size_t read_line(char *line, struct shape *w, struct adapter *a)
{
    char *rest, *word = strtok_r(line, " \n", &rest);
    size_t n = 0, tensors = 1;
    *w = shape_of(word);
    while ((word = strtok_r(NULL, " \n", &rest))) {
        char *is = strchr(word, '=');
        if (*word == '|') {
            word = strtok_r(NULL, " \n", &rest);
            assert_true(word && n < TENSORS);
            a[n++] = (struct adapter) { .strength = strtof(word, NULL) };
            continue;
        }
        assert_true(is && n);
        *is = 0;
        add_tensor(&a[n - 1], word, is + 1, tensors++);
    }
    return n;
}

static void one_case(char *line, FILE *bin)
{
    float base[MOST], got[MOST], want[MOST], most = 0;
    struct adapter a[TENSORS];
    struct res_adapter *open[TENSORS];
    struct str file[TENSORS] = { { 0 } };
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    struct shape w;
    char text[400];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
    struct merge m = { .from = DT_F32, .to = DT_F32, .src = base, .dst = got };
    size_t n = read_line(line, &w, a);
    m.src_scale = m.dst_scale = 1;
    assert_true(merge_matrix(&w, &m.rows, &m.cols) && m.rows * m.cols <= MOST);
    size_t count = (size_t)(m.rows * m.cols);
    for (size_t i = 0; i < count; i++)
        base[i] = value(0, i);
    for (size_t i = 0; i < n; i++)
        add_terms(&a[i], &w, &open[i], &tmp, &terms, &file[i]);
    for (size_t i = 0; i < terms.n; i++)
        assert_true(term_scratch(vec_at(&terms, i), &tmp));
    m.term = terms.p;
    m.terms = terms.n;
    merge_norms(&m, NULL);
    merge_run(&m, NULL);
    assert_int_equal(fread(want, sizeof *want, count, bin), count); /* little-endian, as we are */
    for (size_t i = 0; i < count; i++)
        most = fabsf(want[i]) > most ? fabsf(want[i]) : most;
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - want[i]) <= (float)TOLERANCE * most))
            fail_msg("%s: element %zu is %.9g, ComfyUI has %.9g", text, i, (double)got[i],
                     (double)want[i]);
    for (size_t i = 0; i < n; i++) {
        res_adapter_unref(open[i]);
        str_release(&file[i]);
    }
    vec_release(&terms);
    arena_release(&tmp);
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
