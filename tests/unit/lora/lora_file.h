/* lora_file: small adapter files made in memory: tensors given as name, shape and a first value. */
#ifndef UNIT_LORA_LORA_FILE_H
#define UNIT_LORA_LORA_FILE_H

#include "base/str.h"
#include "format/format_impl.h"
#include "lora/lora_impl.h"
#include "support/test.h"

struct lora_tensor {
    const char *name;
    struct shape shape;
    float first; /* element i is first + i / 8, exact in F32 */
};

static inline float lora_value(const struct lora_tensor *t, size_t i)
{
    return t->first + (float)i / 8;
}

static inline size_t lora_count(const struct lora_tensor *t)
{
    uint64_t n;
    assert_true(shape_count(&t->shape, &n));
    return (size_t)n;
}

/* A whole safetensors file of F32 tensors in *f (str_release()). */
static inline void lora_bytes(const struct lora_tensor *t, size_t n, struct str *f)
{
    struct str head = { 0 };
    size_t at = 0;
    str_adds(&head, "{");
    for (size_t i = 0; i < n; i++) {
        char dims[SHAPE_TEXT_MAX];
        size_t bytes = lora_count(&t[i]) * sizeof(float);
        str_addf(&head, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                 i ? "," : "", t[i].name, shape_text(&t[i].shape, dims), at, at + bytes);
        at += bytes;
    }
    str_adds(&head, "}");
    for (int k = 0; k < 8; k++)
        str_addc(f, (char)(head.n >> (8 * k)));
    str_add(f, head.p, head.n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < lora_count(&t[i]); k++) {
            float v = lora_value(&t[i], k);
            char raw[sizeof v];
            memcpy(raw, &v, sizeof v);
            str_add(f, raw, sizeof raw);
        }
    assert_false(f->bad || head.bad);
    str_release(&head);
}

static inline berth_status lora_from_bytes(const struct str *f, const struct lora_names *names,
                                           const struct log *log, struct res_adapter **out,
                                           berth_err *err)
{
    struct weights_file file = { .name = "dir/test.safetensors", .data = f->p, .size = f->n };
    struct weights *w;
    *out = NULL;
    if (weights_open_memory(&file, 1, NULL, &w, err))
        return err->code;
    return lora_open_weights(w, names, log, out, err);
}

#endif
