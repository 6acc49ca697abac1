#include "tensor/shape.h"

#include "base/err.h"

static void check_ndim(const struct shape *s)
{
    if (s->ndim < 0 || s->ndim > SHAPE_MAX_DIMS)
        BUG("shape with %d dimensions", s->ndim);
}

bool shape_count(const struct shape *s, uint64_t *out)
{
    check_ndim(s);
    uint64_t n = 1;
    bool empty = false;
    for (int i = 0; i < s->ndim; i++) {
        if (s->dim[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(n, s->dim[i], &n))
            return false;
    }
    *out = empty ? 0 : n;
    return true;
}

uint64_t shape_inner(const struct shape *s, int from)
{
    uint64_t n = 1;
    for (int i = from; i < s->ndim; i++)
        n *= s->dim[i];
    return n;
}

bool shape_eq(const struct shape *a, const struct shape *b)
{
    check_ndim(a);
    check_ndim(b);
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

const char *shape_text(const struct shape *s, char buf[SHAPE_TEXT_MAX])
{
    check_ndim(s);
    char *p = buf;
    *p++ = '[';
    for (int i = 0; i < s->ndim; i++) {
        if (i) {
            *p++ = ',';
            *p++ = ' ';
        }
        char digit[20]; /* 2^64-1 has twenty */
        int n = 0;
        uint64_t v = s->dim[i];
        do
            digit[n++] = (char)('0' + v % 10);
        while (v /= 10);
        while (n)
            *p++ = digit[--n];
    }
    *p++ = ']';
    *p = '\0';
    return buf;
}
