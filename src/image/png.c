#include "image/image_impl.h"

static bool is(const uint8_t *p, size_t n)
{
    (void)p, (void)n;
    return false;
}
static berth_status read(struct image_in *in, struct image_file *out, berth_err *err)
{
    (void)in, (void)out;
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}
const struct image_format image_format_png = { .name = "png", .is = is, .read = read };
berth_status image_png(const struct image *im, const struct image_png_args *args, struct str *out,
                       berth_err *err)
{
    (void)im, (void)args, (void)out;
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}
