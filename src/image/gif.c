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
const struct image_format image_format_gif = { .name = "gif", .is = is, .read = read };
