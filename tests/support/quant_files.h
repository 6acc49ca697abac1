/* quant_files: a file of zeros with one layer stored in a layout of its own, as quantised files
 * have it. */
#ifndef SUPPORT_QUANT_FILES_H
#define SUPPORT_QUANT_FILES_H

#include "support/test.h"

#include "base/str.h"
#include "format/weights.h"

struct quant_layer {
    const char *layer;    /* "x_embedder" */
    enum dtype dtype;     /* of its weight */
    const char *marker;   /* text of <layer>.comfy_quant; NULL: none */
    const char *scale;    /* what its scale is called ("weight_scale"); NULL: none */
    uint64_t scales;      /* how many numbers that is */
    float value;          /* of each */
    const char *beside;   /* an empty tensor "<layer>.<beside>"; NULL: none */
    const char *metadata; /* _quantization_metadata; NULL: none */
};

static inline berth_status quant_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                      berth_err *err)
{
    void *const *u = user;
    const struct quant_layer *q = u[0];
    const struct weights_spec *spec = u[1];
    size_t len = strlen(spec[i].name);
    (void)err;
    memset(dst, 0, n);
    if (str_ends(spec[i].name, len, ".comfy_quant"))
        memcpy(dst, q->marker + off, n);
    else if (q->scale && str_ends(spec[i].name, len, q->scale))
        for (size_t k = 0; k < n / sizeof q->value; k++)
            memcpy((char *)dst + k * sizeof q->value, &q->value, sizeof q->value);
    return BERTH_OK;
}

/* base: the tensors; they are F16 but for the weight of q->layer. */
static inline void quant_write(const char *path, const struct weights_spec *base, size_t count,
                               const struct quant_layer *q)
{
    berth_err err = { 0 };
    char weight[256], more[3][256];
    size_t n = 0, layers = 0;
    struct weights_spec *spec = calloc(count + 3, sizeof *spec);
    assert_non_null(spec);
    snprintf(weight, sizeof weight, "%s.weight", q->layer);
    for (size_t i = 0; i < count; i++) {
        bool it = !strcmp(base[i].name, weight);
        layers += it;
        spec[n++] = (struct weights_spec) { base[i].name, it ? q->dtype : DT_F16, base[i].shape };
    }
    if (layers != 1)
        fail_msg("'%s' is not there", weight);
    if (q->marker) {
        snprintf(more[0], sizeof more[0], "%s.comfy_quant", q->layer);
        spec[n++] = (struct weights_spec) { more[0], DT_U8, { 1, { strlen(q->marker) } } };
    }
    if (q->scale) {
        snprintf(more[1], sizeof more[1], "%s.%s", q->layer, q->scale);
        spec[n++] = (struct weights_spec) { more[1], DT_F32, { 2, { q->scales, 1 } } };
    }
    if (q->beside) {
        snprintf(more[2], sizeof more[2], "%s.%s", q->layer, q->beside);
        spec[n++] = (struct weights_spec) { more[2], DT_F32, { 1, { 1 } } };
    }
    const struct weights_meta_spec meta = { "_quantization_metadata", q->metadata };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = n,
                                       .meta = &meta,
                                       .meta_count = q->metadata ? 1 : 0,
                                       .fill = quant_fill,
                                       .user = (void *[]) { (void *)(uintptr_t)q, spec } };
    assert_ok(weights_write(&args, &err), err);
    free(spec);
}

#endif
