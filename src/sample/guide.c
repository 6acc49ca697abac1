#include "sample/guide.h"

berth_status guide_denoise(void *guide, const float *x, float sigma, float *denoised, float *uncond,
                           berth_err *err)
{
    (void)guide, (void)x, (void)sigma, (void)denoised, (void)uncond;
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}
