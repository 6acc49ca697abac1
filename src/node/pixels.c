/* pixels.c: float pictures and what becomes of them. */
#include "node/node_impl.h"

#include <string.h>

berth_status image_tensor(size_t n, size_t h, size_t w, size_t c, struct htensor **out,
                          berth_err *err)
{
    return htensor_new(&(struct shape) { .ndim = 4, .dim = { n, h, w, c } }, out, err);
}

berth_status mask_tensor(size_t n, size_t h, size_t w, struct htensor **out, berth_err *err)
{
    return htensor_new(&(struct shape) { .ndim = 3, .dim = { n, h, w } }, out, err);
}

berth_status give_tensor(struct node_call *c, berth_status s, struct htensor *taken, berth_err *err)
{
    if (!s)
        return out_tensor(c, 0, taken, err);
    htensor_unref(taken);
    return s;
}

berth_status give_tensors(struct node_call *c, struct htensor *first, struct htensor *second,
                          berth_err *err)
{
    if (!out_tensor(c, 0, first, err))
        return out_tensor(c, 1, second, err);
    htensor_unref(second);
    return err->code;
}

void copy_part(const float *from, size_t ih, size_t iw, size_t c, size_t n, struct part p,
               float *to)
{
    for (size_t i = 0; i < n * p.h; i++)
        memcpy(to + i * p.w * c, from + ((i / p.h * ih + p.y + i % p.h) * iw + p.x) * c,
               p.w * c * sizeof *to);
}

berth_status image_8bit(const struct htensor *t, size_t i, struct image *out, berth_err *err)
{
    size_t h = dim(t, 1), w = dim(t, 2), c = dim(t, 3);
    *out = (struct image) { 0 };
    if ((c != 1 && c != 3 && c != 4) || w > UINT32_MAX || h > UINT32_MAX)
        return err_set(err, BERTH_EINVAL, "a picture of %zux%zu with %zu channels cannot be shown",
                       w, h, c);
    if (image_init(out, (uint32_t)w, (uint32_t)h, (unsigned)c, err))
        return err->code;
    size_t n = w * h * c;
    const float *x = t->data + i * n;
    for (size_t k = 0; k < n; k++) {
        float v = 255.0f * x[k];
        out->px[k] = v > 0.0f ? (v < 255.0f ? (uint8_t)v : 255) : 0;
    }
    return BERTH_OK;
}

struct rows {
    const atomic_bool *cancel;
    tpool_fn *fn;
    void *user;
};

static void row(void *user, size_t i, size_t worker)
{
    const struct rows *r = user;
    if (!r->cancel || !atomic_load_explicit(r->cancel, memory_order_relaxed))
        r->fn(r->user, i, worker);
}

berth_status call_rows(struct node_call *c, size_t n, tpool_fn *fn, void *user, berth_err *err)
{
    struct rows r = { cancel_of(c), fn, user };
    if (c->env->pool)
        tpool_for(c->env->pool, n, row, &r);
    for (size_t i = 0; !c->env->pool && i < n; i++)
        row(&r, i, 0);
    return call_check(c, err);
}
