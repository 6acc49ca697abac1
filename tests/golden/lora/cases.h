/* cases: lines of lora_kinds.txt, as tools/golden/lora_kinds.py describes them, merged. */
#ifndef GOLDEN_LORA_CASES_H
#define GOLDEN_LORA_CASES_H

#include "unit/lora/lora_file.h"

#include "base/hash.h"
#include "merge/merge.h"

#define DATA BERTH_SOURCE_DIR "/tests/golden/lora/data/"
#define MOST 1024 /* elements of a tensor */
#define TENSORS 12

static inline float value(size_t tensor, size_t i)
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
    float strength, factor; /* factor: of its tensors' values */
    struct str head, data;  /* of a safetensors file */
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
        float v = value(number, i) * a->factor;
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
static size_t read_line(char *line, float factor, struct shape *w, struct adapter *a)
{
    char *rest, *word = strtok_r(line, " \n", &rest);
    size_t n = 0, tensors = 1;
    *w = shape_of(word);
    while ((word = strtok_r(NULL, " \n", &rest))) {
        char *is = strchr(word, '=');
        if (*word == '|') {
            word = strtok_r(NULL, " \n", &rest);
            assert_true(word && n < TENSORS);
            a[n++] = (struct adapter) { .strength = strtof(word, NULL), .factor = factor };
            continue;
        }
        assert_true(is && n);
        *is = 0;
        add_tensor(&a[n - 1], word, is + 1, tensors++);
    }
    return n;
}

/* A weight as ComfyUI's checkpoints have it: of a type, perhaps with a scale beside it. */
struct kept {
    enum dtype type;
    float scale; /* 0: none; afterwards the new one */
};

/* Merges a line's adapters into its weight; every value that goes in is `factor` times what
 * lora_kinds.py says, the weight is kept so before and after. got: MOST elements. Returns how many
 * there are. */
static size_t merge_line(char *line, float factor, struct kept *kept, void *got)
{
    const enum dtype type = kept->type;
    float base[MOST], stored[MOST];
    uint32_t chance[MOST];
    struct adapter a[TENSORS];
    struct res_adapter *open[TENSORS];
    struct str file[TENSORS] = { { 0 } };
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    struct shape w;
    struct merge_plain from = merge_numbers(type, stored), to = merge_numbers(type, got);
    struct merge m = { .from = &merge_plain,
                       .to = kept->scale != 0 ? &merge_fp8_scaled : merge_form_of(type),
                       .base = &from,
                       .result = &to,
                       .seed = crc32_of(0, "w", 1),
                       .chance = chance };
    berth_err err = { 0 };
    from.scale = kept->scale != 0 ? kept->scale : 1;
    size_t n = read_line(line, factor, &w, a);
    assert_true(merge_matrix(&w, &m.rows, &m.cols) && m.rows * m.cols <= MOST);
    size_t count = (size_t)(m.rows * m.cols);
    for (size_t i = 0; i < count; i++)
        base[i] = value(0, i) * factor;
    dtype_desc(type)->from_f32(base, stored, count);
    for (size_t i = 0; i < n; i++)
        add_terms(&a[i], &w, &open[i], &tmp, &terms, &file[i]);
    assert_ok(merge_take(&m, &terms, 0, &tmp, &err), err);
    assert_true(merge_chances(&m) <= MOST);
    merge_norms(&m, NULL);
    merge_look(&m, NULL);
    merge_run(&m, NULL);
    kept->scale = kept->scale != 0 ? to.scale : 0;
    for (size_t i = 0; i < n; i++) {
        res_adapter_unref(open[i]);
        str_release(&file[i]);
    }
    vec_release(&terms);
    arena_release(&tmp);
    return count;
}

#endif
