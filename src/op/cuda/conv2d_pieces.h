/* conv2d_pieces: cutting a convolution into pieces of pictures and rows, as conv2d.c computes it.
 * Arithmetic alone, so that it is tested without a card.
 *
 * A piece has all channels and columns of some pictures, or of some rows of one. Rows of the result
 * need the rows of x that filters reach over; what lies outside of x is padding of the piece. */
#pragma once

#include "op/ops_impl.h"

struct conv_cut { /* of the result, in a piece; the last ones may have less */
    uint64_t pictures, rows;
};

/* Pictures [n0, n0 + n), rows [o0, o0 + o) of the result from rows [i0, i0 + i) of x. */
struct conv_piece {
    uint64_t n0, n, o0, o, i0, i;
    int64_t top, bottom; /* padding */
};

/* The most rows of x that `rows` rows of the result need. */
static inline uint64_t conv_rows_in(const struct op_conv2d *a, uint64_t rows)
{
    uint64_t high = a->x.shape.dim[2];
    uint64_t in = (rows - 1) * op_or_one(a->stride) + a->w.shape.dim[2];
    return rows == a->y.shape.dim[2] || in > high ? high : in;
}

/* Pieces of at most `most` bytes of x and y where that can be: several pictures, one, or bands of
 * rows of about the same size. in, out: bytes of a pixel of x and of y. There are bands only where
 * each has rows of x in it. pre: products of these fit into 64 bits, nothing is empty. */
static inline struct conv_cut conv_cut_of(const struct op_conv2d *a, uint64_t in, uint64_t out,
                                          uint64_t most)
{
    uint64_t N = a->x.shape.dim[0], rows = a->y.shape.dim[2], kh = a->w.shape.dim[2];
    uint64_t line_in = a->x.shape.dim[3] * in, line_out = a->y.shape.dim[3] * out;
    uint64_t whole = conv_rows_in(a, rows) * line_in + rows * line_out;
    if (whole <= most)
        return (struct conv_cut) { .pictures = N < most / whole ? N : most / whole, .rows = rows };
    if (a->top >= kh || a->bottom >= kh)
        return (struct conv_cut) { .pictures = 1, .rows = rows };
    uint64_t low = 1, high = rows; /* low fits, or is the least there is; high does not */
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (conv_rows_in(a, mid) * line_in + mid * line_out <= most)
            low = mid;
        else
            high = mid;
    }
    uint64_t bands = (rows + low - 1) / low;
    return (struct conv_cut) { .pictures = 1, .rows = (rows + bands - 1) / bands };
}

static inline struct conv_piece conv_piece_at(const struct op_conv2d *a, const struct conv_cut *cut,
                                              uint64_t n0, uint64_t o0)
{
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim;
    struct conv_piece p = { .n0 = n0, .o0 = o0 };
    p.n = x[0] - n0 < cut->pictures ? x[0] - n0 : cut->pictures;
    p.o = y[2] - o0 < cut->rows ? y[2] - o0 : cut->rows;
    if (p.o == y[2]) { /* all rows: as the op has it */
        p.i = x[2];
        p.top = a->top;
        p.bottom = a->bottom;
        return p;
    }
    int64_t stride = op_or_one(a->stride), high = (int64_t)x[2];
    int64_t from = (int64_t)o0 * stride - (int64_t)a->top;
    int64_t to = from + ((int64_t)p.o - 1) * stride + (int64_t)a->w.shape.dim[2];
    int64_t first = from < 0 ? 0 : from, end = to > high ? high : to;
    p.i0 = (uint64_t)first;
    p.i = (uint64_t)(end - first);
    p.top = first - from;
    p.bottom = to - end;
    return p;
}
