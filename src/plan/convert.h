/* convert: a model's weights in another type than its file has (weight_dtype of UNETLoader).
 *
 * Which    What ComfyUI converts when a diffusion model is made in fp8: every float tensor, biases
 *          and norms among them. To F16, as it keeps text encoders: F32 ones alone, which halves
 *          them; what is as small stays.
 * Not      single numbers and markers, which say something about the model and are none of its
 *          weights; layers with a scale beside the weight (scaled fp8): codes and scale belong
 *          together.
 * Refused  GGUF: types were chosen tensor by tensor, its loaders have no such input, and no default
 *          reaches it.
 * Nothing is read or allocated: an entry is told its type, weights_read() does the rest. */
#pragma once

#include "base/str.h"
#include "format/weights.h"

/* The type a word means: "F16", "F8_E4M3", "F8_E5M2"; ComfyUI's "fp8_e4m3fn", "fp8_e5m2", and
 * "fp8_e4m3fn_fast", which says more, but of weights the same; "fp8". In any case. DT_NONE: not one
 * of them. */
enum dtype res_convert_type(const char *word);
/* Tensors whose names begin with `part` (NULL: all) become `dtype`, one of these words; of another
 * one BERTH_EINVAL. pre: nobody else has w. After an error it is to be closed. */
berth_status res_convert(struct weights *w, const char *part, const char *dtype, berth_err *err);
/* The number beside an fp8 weight that its codes are multiplied by, as files call it. Before the
 * name comes that of the layer and a dot, as before "weight". */
static const char *const scale_names[] = { "scale_weight", "weight_scale" };

static inline bool is_scale(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(scale_names); i++) {
        size_t n = strlen(scale_names[i]);
        if (len > n && name[len - n - 1] == '.' && str_ends(name, len, scale_names[i]))
            return true;
    }
    return false;
}
/* Is there a layer with a scale among them? */
bool res_has_scales(const struct weights *w, const char *part);
