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

size_t from_turned_90(size_t y, size_t x, size_t h, size_t w)
{
    return (h - 1 - x) * w + y;
}
size_t from_turned_180(size_t y, size_t x, size_t h, size_t w)
{
    return (h - 1 - y) * w + (w - 1 - x);
}
size_t from_turned_270(size_t y, size_t x, size_t h, size_t w)
{
    (void)h;
    return x * w + (w - 1 - y);
}
size_t from_flipped_rows(size_t y, size_t x, size_t h, size_t w)
{
    return (h - 1 - y) * w + x;
}
size_t from_flipped_columns(size_t y, size_t x, size_t h, size_t w)
{
    (void)h;
    return y * w + (w - 1 - x);
}

void move_pixels(const float *src, size_t n, size_t h, size_t w, size_t c, bool swap,
                 pixel_from_fn *from, float *dst)
{
    size_t oh = swap ? w : h, ow = swap ? h : w;
    for (size_t i = 0; i < n; i++, src += h * w * c)
        for (size_t y = 0; y < oh; y++)
            for (size_t x = 0; x < ow; x++, dst += c)
                memcpy(dst, src + from(y, x, h, w) * c, c * sizeof *dst);
}

berth_status widen_image(struct htensor *t, size_t channels, float fill, struct htensor **out,
                         berth_err *err)
{
    size_t c = dim(t, 3);
    if (c >= channels) {
        *out = htensor_ref(t);
        return BERTH_OK;
    }
    berth_status s = image_tensor(dim(t, 0), dim(t, 1), dim(t, 2), channels, out, err);
    size_t px = s ? 0 : htensor_count(t) / c;
    for (size_t i = 0; i < px; i++) {
        memcpy((*out)->data + i * channels, t->data + i * c, c * sizeof(float));
        for (size_t k = c; k < channels; k++)
            (*out)->data[i * channels + k] = fill;
    }
    return s;
}

berth_status in_images(const struct node_call *c, const char *name, struct image_list *out,
                       berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    *out = (struct image_list) { .all = &c->in[node_input_index(c->cls, name)] };
    for (size_t i = 0; i < out->all->n; i++) {
        const struct value *v = out->all->at[i];
        if (v->kind != V_TENSOR || v->tensor->shape.ndim != 4 || !htensor_count(v->tensor))
            return err_set(err, BERTH_EINVAL, "input '%s': number %zu of the list is no IMAGE%s%s",
                           name, i, v->kind == V_TENSOR ? " but a tensor " : "",
                           v->kind == V_TENSOR ? shape_text(&v->tensor->shape, text) : "");
        out->n += dim(v->tensor, 0);
    }
    return BERTH_OK;
}

const struct htensor *image_list_at(const struct image_list *l, size_t i, size_t *at)
{
    size_t k = 0;
    while (i >= dim(l->all->at[k]->tensor, 0))
        i -= dim(l->all->at[k++]->tensor, 0);
    *at = i;
    return l->all->at[k]->tensor;
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
