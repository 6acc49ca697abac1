#include "op/resize.h"

bool resize_parse(const char *name, enum resize *out)
{
    static const char *const names[] = {
#define NAME(x, text) text,
        RESIZE_MAP(NAME)
#undef NAME
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum resize)i;
            return true;
        }
    return false;
}

berth_status op_resize(enum resize method, const struct resize_shape *s, const float *src,
                       float *dst, struct tpool *pool, berth_err *err)
{
    (void)method, (void)s, (void)src, (void)dst, (void)pool;
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}

berth_status op_bislerp(const struct resize_shape *s, const float *src, float *dst,
                        struct tpool *pool, berth_err *err)
{
    (void)s, (void)src, (void)dst, (void)pool;
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}

struct resize_crop resize_center(size_t w, size_t h, size_t ow, size_t oh)
{
    (void)ow, (void)oh;
    return (struct resize_crop) { 0, 0, w, h };
}
