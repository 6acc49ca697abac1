#include "image/image_impl.h"

berth_status image_anim_webp(const struct image *frame, size_t n,
                             const struct image_anim_args *args, struct str *out, berth_err *err)
{
    (void)frame, (void)n, (void)args, (void)out;
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}
berth_status image_anim_png(const struct image *frame, size_t n, const struct image_anim_args *args,
                            struct str *out, berth_err *err)
{
    (void)frame, (void)n, (void)args, (void)out;
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}
