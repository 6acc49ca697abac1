#include "model/picture_tokens.h"

#include "base/sz.h"
#include "model/families.h"
#include "model/rope_table.h"

#include <stdlib.h>
#include <string.h>

#define PATCH TOKENS_PATCH

uint64_t tokens_side(uint64_t n)
{
    return (n + PATCH - 1) / PATCH;
}

uint64_t tokens_count(const struct shape *s)
{
    return s->dim[2] * tokens_side(s->dim[3]) * tokens_side(s->dim[4]);
}

bool tokens_moderate(const struct shape *s)
{
    uint64_t n;
    return shape_count(s, &n) && n <= UINT32_MAX && s->dim[3] <= INT32_MAX &&
           s->dim[4] <= INT32_MAX;
}

float *tokens_from(const float *x, const struct shape *s, float *out)
{
    const size_t channels = (size_t)s->dim[1], frames = (size_t)s->dim[2];
    const size_t h = (size_t)s->dim[3], w = (size_t)s->dim[4];
    for (size_t t = 0; t < frames; t++)
        for (size_t i = 0; i < h; i += PATCH)
            for (size_t j = 0; j < w; j += PATCH)
                for (size_t c = 0; c < channels; c++) {
                    const float *from = x + (c * frames + t) * h * w;
                    for (size_t p = i; p < i + PATCH; p++)
                        for (size_t q = j; q < j + PATCH; q++)
                            *out++ = from[p % h * w + q % w];
                }
    return out;
}

const float *tokens_to(const float *tokens, const struct shape *s, float *out)
{
    const size_t channels = (size_t)s->dim[1], frames = (size_t)s->dim[2];
    const size_t h = (size_t)s->dim[3], w = (size_t)s->dim[4];
    for (size_t t = 0; t < frames; t++)
        for (size_t i = 0; i < h; i += PATCH)
            for (size_t j = 0; j < w; j += PATCH)
                for (size_t c = 0; c < channels; c++) {
                    float *to = out + (c * frames + t) * h * w;
                    for (size_t p = i; p < i + PATCH; p++)
                        for (size_t q = j; q < j + PATCH; q++, tokens++)
                            if (p < h && q < w)
                                to[p * w + q] = *tokens;
                }
    return tokens;
}

void tokens_from_batch(const struct family_batch *b, size_t refs, float *out)
{
    const size_t n = (size_t)b->shape.dim[0], each = (size_t)shape_inner(&b->shape, 1);
    for (size_t i = 0; i < n; i++) {
        out = tokens_from(b->x + i * each, &b->shape, out);
        for (size_t k = 0; k < refs; k++)
            out = tokens_from(b->ref[i * b->refs + k].x, &b->ref[i * b->refs + k].shape, out);
    }
}

void tokens_to_batch(const float *tokens, uint64_t channels, const struct family_batch *b)
{
    struct shape s = b->shape;
    s.dim[1] = channels;
    const size_t each = (size_t)shape_inner(&s, 1);
    for (size_t i = 0; i < (size_t)s.dim[0]; i++)
        tokens = tokens_to(tokens, &s, b->out + i * each);
}

/* Each axis looks at one number only, so the first row and the first column of a frame have all
 * angles there are. */
float *tokens_angles(double theta, const uint32_t axis[TOKENS_AXES], const struct shape *s,
                     struct tokens_place at, float *out)
{
    const size_t rows = (size_t)tokens_side(s->dim[3]), cols = (size_t)tokens_side(s->dim[4]);
    const size_t a0 = axis[0], a1 = axis[1], a2 = axis[2], wide = a0 + a1 + a2;
    for (size_t t = 0; t < (size_t)s->dim[2]; t++) {
        float *first = out;
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++, out += wide) {
                if (!i && !j)
                    rope_angles(theta, s->dim[2] > 1 ? (double)t : at.layer, axis[0], out);
                else
                    memcpy(out, first, a0 * sizeof *out);
                if (j)
                    memcpy(out + a0, first + i * cols * wide + a0, a1 * sizeof *out);
                else
                    rope_angles(theta, at.row + (double)i, axis[1], out + a0);
                if (i)
                    memcpy(out + a0 + a1, first + j * wide + a0 + a1, a2 * sizeof *out);
                else
                    rope_angles(theta, at.column + (double)j, axis[2], out + a0 + a1);
            }
    }
    return out;
}

bool tokens_room(struct tokens_room *to, uint64_t a, uint64_t b, uint64_t c)
{
    size_t n, bytes;
    if (!sz_mul((size_t)a, (size_t)b, &n) || !sz_mul(n, (size_t)c, &n) ||
        !sz_mul(n, sizeof(float), &bytes))
        return false;
    if (n <= to->cap)
        return true;
    free(to->p);
    to->cap = 0;
    to->p = malloc(bytes);
    if (to->p)
        to->cap = n;
    return to->p != NULL;
}
