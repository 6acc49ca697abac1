/* What the rest of the program knows of ESRGAN. */
#include "model/upscale_rrdb/presets.h"
#include "model/upscale_rrdb/rrdb.h"

const struct upscaler_family upscaler_rrdb = {
    .arch = { UPSCALER_ARCH("esrgan", "ESRGAN, Real-ESRGAN: makes pictures larger"),
              .detect = rrdb_detect, .presets = rrdb_presets },
    .what = "an ESRGAN upscale model",
    .name = "ESRGAN",
    .config = rrdb_config,
    .names = rrdb_names,
    .forward = rrdb_forward,
};
