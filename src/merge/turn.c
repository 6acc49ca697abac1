/* turn: terms whose weights become mixtures of each other: blocks of rows (OFT), rows through
 * stages of a butterfly (BOFT), inputs (GLoRA). */
#include "merge/term_impl.h"

#include <inttypes.h>

/* w [rows, cols] += scale * up [rows, rank] . down [rank, cols], all without gaps. */
static void add_product(float *w, size_t rows, size_t cols, const float *up, size_t rank,
                        const float *down, float scale)
{
    op_lowrank_tile(&(struct op_lowrank) { .w = w,
                                           .rows = rows,
                                           .cols = cols,
                                           .ld_w = cols,
                                           .up = up,
                                           .down = down,
                                           .rank = rank,
                                           .ld_up = rank,
                                           .ld_down = cols,
                                           .scale = scale });
}

static void mix(const struct res_term *x, const struct part *p, const float *was)
{
    const size_t n = x->rank;
    for (size_t r = 0; r < p->rows; r += n)
        add_product(p->w + r * p->cols, n, p->cols, x->up + r * n, n, was + r * p->cols, x->scale);
}

/* ---- butterflies ---- */

/* Where a row stands that a stage puts at place `at`. */
static size_t place(size_t at, size_t k)
{
    return at / (2 * k) * (2 * k) + at % 2 * k + at % (2 * k) / 2;
}

/* One stage: now -> mixed, both [rows, cols]; ordered: room for as much. */
static void stage(const float *blocks, size_t n, size_t k, const struct part *p, const float *now,
                  float *ordered, float *mixed)
{
    const size_t row = p->cols * sizeof *now;
    for (size_t i = 0; i < p->rows; i++)
        memcpy(ordered + i * p->cols, now + place(i, k) * p->cols, row);
    memset(p->w, 0, p->rows * row);
    for (size_t r = 0; r < p->rows; r += n)
        add_product(p->w + r * p->cols, n, p->cols, blocks + r * n, n, ordered + r * p->cols, 1);
    for (size_t i = 0; i < p->rows; i++)
        memcpy(mixed + place(i, k) * p->cols, p->w + i * p->cols, row);
}

static void butterfly(const struct res_term *x, const struct part *p, const float *was)
{
    float now[MERGE_TILE_ELEMS], ordered[MERGE_TILE_ELEMS];
    const size_t all = p->rows * p->cols;
    memcpy(now, was, all * sizeof *now);
    for (uint32_t s = 0; s < x->rank2; s++)
        stage(x->up + s * x->rows * x->rank, x->rank, (size_t)(x->rank / 2) << s, p, now, ordered,
              now);
    for (size_t i = 0; i < all; i++) {
        float c = x->down ? now[i] * x->down[i / p->cols] : now[i];
        p->w[i] = was[i] + x->scale * (c - was[i]);
    }
}

/* ---- inputs ---- */

/* Inputs at one place of the kernel: out of was into `in`, and what they become into delta. */
static void turn_place(const struct res_term *x, size_t rows, size_t at, const float *was,
                       float *delta)
{
    float in[MERGE_TILE_ELEMS], thin[TERM_PIECE] = { 0 };
    const size_t kernel = (size_t)x->kernel, width = (size_t)x->cols, n = width / kernel;
    for (size_t i = 0; i < rows * n; i++)
        in[i] = was[i * kernel + at];
    add_product(thin, rows, x->rank, in, n, x->up, 1);
    memset(in, 0, rows * n * sizeof *in);
    add_product(in, rows, n, thin, x->rank, x->down, 1);
    for (size_t i = 0; i < rows * n; i++)
        delta[i * kernel + at] = in[i];
}

static void turn_inputs(const struct res_term *x, const struct part *p, const float *was)
{
    float delta[MERGE_TILE_ELEMS];
    const size_t most = x->rank > 1 ? TERM_PIECE / x->rank : TERM_PIECE;
    for (size_t r = 0, rows; r < p->rows; r += rows) {
        rows = p->rows - r < most ? p->rows - r : most;
        for (size_t at = 0; at < x->kernel; at++)
            turn_place(x, rows, at, was + r * p->cols, delta);
        add_product(delta, rows, p->cols, x->up2 + (p->first + r) * x->rank2, x->rank2, x->down2,
                    1);
        for (size_t i = 0; i < rows * p->cols; i++)
            p->w[r * p->cols + i] += x->scale * delta[i];
    }
}

void term_turn(const struct res_term *x, const struct part *p, const float *was)
{
    if (x->kind == TERM_INPUTS ? p->cols != x->cols : p->rows != x->rows)
        BUG("%zu x %zu of %" PRIu64 " x %" PRIu64 " weights to be mixed", p->rows, p->cols, x->rows,
            x->cols);
    if (x->kind == TERM_MIX)
        mix(x, p, was);
    else if (x->kind == TERM_BUTTERFLY)
        butterfly(x, p, was);
    else
        turn_inputs(x, p, was);
}
