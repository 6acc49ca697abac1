/* Which layouts of weights can be computed, told from a file's header and its markers. The names of
 * layouts are those of quantised files. */
#include "support/quant_files.h"
#include "support/tmp.h"

#include "plan/quant.h"

#include <math.h>

static const struct weights_spec tensors[] = {
    { "double_blocks.0.img_attn.qkv.weight", DT_F16, { 2, { 96, 32 } } },
    { "double_blocks.0.img_attn.qkv.bias", DT_F16, { 1, { 96 } } },
    { "single_blocks.0.linear1.weight", DT_F16, { 2, { 32, 32 } } },
    { "shared.weight", DT_F16, { 2, { 64, 32 } } },
    { "position_ids", DT_F16, { 2, { 1, 8 } } },
};

#define LAYER "double_blocks.0.img_attn.qkv"
#define INT8 "{\"format\": \"int8_tensorwise\"}"
#define TURNED(n)                                                                                  \
    "{\"format\": \"int8_tensorwise\", \"convrot\": true, \"convrot_groupsize\": " n "}"
#define META(format) "{\"layers\": {\"" LAYER "\": {\"format\": \"" format "\"}}}"

static const struct {
    struct quant_layer q;
    berth_status want;
    const char *says;
} rows[] = {
#define STORED(t, ...)                                                                             \
    {                                                                                              \
        .layer = LAYER, .dtype = t, __VA_ARGS__                                                    \
    }
#define ONE_SCALE .scale = "weight_scale", .scales = 1, .value = 3
    { STORED(DT_F16, .marker = NULL), BERTH_OK, "" },
    { STORED(DT_F8_E4M3, .marker = NULL), BERTH_OK, "" },
    { STORED(DT_F8_E4M3, .scale = "scale_weight", .scales = 1, .value = 3), BERTH_OK, "" },
    { STORED(DT_F8_E4M3, .marker = "{\"format\": \"float8_e4m3fn\"}", ONE_SCALE), BERTH_OK, "" },
    { STORED(DT_F8_E5M2, .metadata = META("float8_e5m2")), BERTH_OK, "" },
    { STORED(DT_I8, .marker = INT8, ONE_SCALE), BERTH_OK, "" },
    { STORED(DT_U8, .marker = INT8, .scale = "weight_scale", .scales = 96, .value = 1), BERTH_OK,
      "" },
    { STORED(DT_I8, .metadata = META("int8_tensorwise"), ONE_SCALE), BERTH_OK, "" },
    { STORED(DT_F8_E4M3, .scale = "weight_scale", .scales = 96, .value = 1), BERTH_OK, "" },
    { STORED(DT_I8, .marker = TURNED("16"), .scale = "weight_scale", .scales = 96, .value = 1),
      BERTH_OK, "" },
    { STORED(DT_I8, .marker = "{\"format\": \"convrot_w4a4\", \"convrot_groupsize\": 64}",
             .scale = "weight_scale", .scales = 96, .value = 1),
      BERTH_OK, "" },

    /* layouts nobody knows, and what is not all there */
    { STORED(DT_F8_E4M3, .marker = "{\"format\": \"mxfp8\"}"), BERTH_EFORMAT,
      "'" LAYER ".weight' is stored in the layout 'mxfp8' without a 'weight_scale'" },
    { STORED(DT_U8, .marker = "{\"format\": \"nvfp4\"}"), BERTH_EFORMAT,
      "'nvfp4' without a 'weight_scale_2'" },
    { STORED(DT_I8, .marker = INT8), BERTH_EFORMAT, "without a 'weight_scale'" },
    { STORED(DT_I8, .marker = "{\"format\": \"hqq\"}", ONE_SCALE), BERTH_EUNSUPPORTED,
      "'" LAYER ".weight' is stored in the layout 'hqq', which cannot be computed yet" },
    { STORED(DT_I8, .metadata = META("svdquant")), BERTH_EUNSUPPORTED,
      "'" LAYER ".weight' is stored in the layout 'svdquant'" },
    { STORED(DT_F8_E4M3, .marker = "{"), BERTH_EFORMAT, LAYER ".comfy_quant" },
    { STORED(DT_I8, .marker = "7", ONE_SCALE), BERTH_EUNSUPPORTED, "layout '?'" },
    { STORED(DT_I8, .marker = "{\"format\": 8}", ONE_SCALE), BERTH_EUNSUPPORTED, "layout '?'" },
    { STORED(DT_I8, ONE_SCALE), BERTH_EUNSUPPORTED,
      "'" LAYER ".weight' is stored as I8, which cannot" },
    { STORED(DT_U8, .beside = "weight.absmax"), BERTH_EUNSUPPORTED,
      "is stored as U8 by bitsandbytes, which cannot" },

    /* hostile ones */
    { STORED(DT_I8, .marker = INT8, .scale = "weight_scale", .scales = 95, .value = 1),
      BERTH_EFORMAT, "'" LAYER ".weight_scale' is F32 [95, 1], which int8_tensorwise does not" },
    { STORED(DT_F16, .marker = INT8, ONE_SCALE), BERTH_EFORMAT,
      "'" LAYER ".weight' is F16, and stored in the layout 'int8_tensorwise'" },
    { STORED(DT_I8, .marker = INT8, .scale = "weight_scale", .scales = 1, .value = 0),
      BERTH_EFORMAT, "'" LAYER ".weight_scale' is 0 at 0, which is no scale" },
    { STORED(DT_I8, .marker = INT8, .scale = "weight_scale", .scales = 1, .value = NAN),
      BERTH_EFORMAT, "weight_scale' is nan at 0" },
    { STORED(DT_I8, .marker = INT8, .scale = "weight_scale", .scales = 96, .value = INFINITY),
      BERTH_EFORMAT, "weight_scale' is inf at 0" },
    { STORED(DT_F8_E4M3, .scale = "scale_weight", .scales = 1, .value = 0), BERTH_EFORMAT,
      "scale_weight' is 0 at 0" },
    { STORED(DT_F8_E4M3, .scale = "scale_weight", .scales = 7, .value = 1), BERTH_EFORMAT,
      "scale_weight' is F32 [7, 1]" },
    { STORED(DT_I8, .marker = TURNED("48"), ONE_SCALE), BERTH_EFORMAT,
      "32 columns turned in groups of 48" },
    { STORED(DT_I8, .marker = TURNED("64"), ONE_SCALE), BERTH_EFORMAT,
      "32 columns turned in groups of 64" },
    { STORED(DT_I8, .marker = TURNED("-16"), ONE_SCALE), BERTH_EFORMAT, "'convrot_groupsize'" },
    { STORED(DT_I8, .marker = TURNED("0"), ONE_SCALE), BERTH_EFORMAT, "groups of 0" },
};

static void layouts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *path = tmp_path("quant.safetensors");
        struct weights *w;
        berth_err err = { 0 };
        quant_write(path, tensors, ARRAY_LEN(tensors), &rows[i].q);
        assert_ok(weights_open(path, NULL, &w, &err), err);
        assert_fails(quant_check(w, NULL, &err), err, rows[i].want, rows[i].says);
        assert_fails(quant_check(w, "double_", &err), err, rows[i].want, rows[i].says);
        assert_ok(quant_check(w, "single_", &err), err); /* somebody else's layers */
        weights_close(w);
    }
}

/* Tables are looked up by rows, and may have a scale as any weight. */
static void tables_have_scales(void **state)
{
    struct quant_layer q = {
        .layer = "shared", .dtype = DT_F8_E4M3, .scale = "scale_weight", .scales = 1
    };
    const char *path = tmp_path("table.safetensors");
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct weights *w;
        berth_err err = { 0 };
        q.value = k ? 2 : 1;
        quant_write(path, tensors, ARRAY_LEN(tensors), &q);
        assert_ok(weights_open(path, NULL, &w, &err), err);
        assert_ok(quant_check(w, NULL, &err), err);
        weights_close(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts),
        cmocka_unit_test(tables_have_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
