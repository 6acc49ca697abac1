#include "base/vec.h"

#include "base/err.h"
#include "base/sz.h"

bool vec_reserve(struct vec *v, size_t total)
{
    size_t bytes;
    if (v->elem == 0)
        BUG("vec without element size");
    if (total <= v->cap)
        return true;
    if (!sz_mul(total, v->elem, &bytes))
        return false;
    void *p = realloc(v->p, bytes);
    if (!p)
        return false;
    v->p = p;
    v->cap = total;
    return true;
}

void *vec_add(struct vec *v)
{
    if (v->n == v->cap) {
        size_t half = v->cap / 2, cap;
        if (!sz_add(v->cap, half < 8 ? 8 : half, &cap) || !vec_reserve(v, cap))
            return NULL;
    }
    void *e = (char *)v->p + v->n++ * v->elem;
    return memset(e, 0, v->elem);
}

bool vec_push(struct vec *v, const void *elem)
{
    void *e = vec_add(v);
    if (e)
        memcpy(e, elem, v->elem);
    return e;
}

void *vec_at(const struct vec *v, size_t i)
{
    if (i >= v->n)
        BUG("vec index %zu of %zu", i, v->n);
    return (char *)v->p + i * v->elem;
}

void vec_pop(struct vec *v)
{
    if (v->n == 0)
        BUG("pop of an empty vec");
    v->n--;
}

void vec_release(struct vec *v)
{
    free(v->p);
    *v = (struct vec) { .elem = v->elem };
}
