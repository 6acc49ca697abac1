/* What a pass of LTX-Video takes from the host: tokens, positions as angles, noise levels, and how
 * much guides are looked at (ltxv.md 3, 4). */
#include "model/ltxv/ltxv.h"

#include "model/families.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPACE 32 /* pixels of a latent one, a side */
#define TIME 8   /* frames of a latent one, but for the first */
#define CACHE_PAIRS 3

/* More runs of tokens than this an item are not worth calls of their own: every token then has a
 * modulation for itself. */
#define PIECES_MAX 16
#define LOOK_ROWS 256 /* queries of a guide whose masks differ, at a time */

/* ---- which tokens ---- */

/* Is there a token? Of a dilated guide the empty cells are none. mask: of one item; NULL: none. */
static bool is_token(const struct family_batch *b, uint64_t i)
{
    return !b->guides || !b->mask || !(b->mask[i] < 0);
}

static uint64_t guide_tokens(const struct diffusion_guide *g)
{
    return g->frames * g->rows * g->columns;
}

static berth_status check_guides(const struct family_batch *b, uint64_t *tokens, berth_err *err)
{
    const uint64_t *d = b->shape.dim;
    uint64_t frames = 0;
    if (b->guides > LTXV_GUIDES_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu guides, more than %d", b->guides, LTXV_GUIDES_MAX);
    for (size_t i = 0; i < b->guides; i++) {
        const struct diffusion_guide *g = &b->guide[i];
        if (g->rows != d[3] || g->columns != d[4] || !g->frames || g->frames > d[2])
            return err_set(err, BERTH_EINVAL,
                           "a guide of %llu latent frames of %llu x %llu for latents of %llu "
                           "frames of %llu x %llu: LTXVCropGuides takes guides off before latents "
                           "change their size",
                           (unsigned long long)g->frames, (unsigned long long)g->columns,
                           (unsigned long long)g->rows, (unsigned long long)d[2],
                           (unsigned long long)d[4], (unsigned long long)d[3]);
        frames += g->frames;
    }
    if (frames >= d[2] && b->guides)
        return err_set(err, BERTH_EINVAL,
                       "guides of %llu latent frames, and the latent has %llu with them",
                       (unsigned long long)frames, (unsigned long long)d[2]);
    *tokens = frames * d[3] * d[4];
    return BERTH_OK;
}

berth_status ltxv_sizes(const struct family_batch *b, struct ltxv_sizes *out, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    uint64_t guided = 0;
    if (!tokens_moderate(&b->shape) || b->tokens > UINT32_MAX)
        return err_set(err, BERTH_ELIMIT, "latents %s with %zu tokens", shape_text(&b->shape, text),
                       b->tokens);
    if (check_guides(b, &guided, err))
        return err->code;
    *out = (struct ltxv_sizes) { .all = shape_inner(&b->shape, 2), .text = b->tokens };
    for (size_t i = 0; b->hidden && i < b->tokens; i++)
        out->text -= b->hidden[i];
    if (!out->text)
        return err_set(err, BERTH_EINVAL, "a text of which nothing is to be seen");
    for (uint64_t i = 0; i < out->all; i++) {
        const bool is = is_token(b, i);
        out->tokens += is;
        out->guides += is && i >= out->all - guided;
    }
    for (size_t i = 0; i < b->guides; i++)
        out->weighed = out->weighed || b->guide[i].strength != 1.0f || b->guide[i].weight;
    out->weighed = out->weighed && out->guides;
    if (out->tokens == out->guides)
        return err_set(err, BERTH_EINVAL, "a latent of which guides are all there is");
    return BERTH_OK;
}

/* ---- positions ---- */

/* Frequency k of n, in the order of the reference's float32 arithmetic. */
static float frequency(const struct ltxv_net *f, uint64_t k, uint64_t n)
{
    if (f->precise)
        return (float)(pow(f->theta, n > 1 ? (double)k / (double)(n - 1) : 0) * (M_PI / 2));
    const float step = n > 1 ? 1.0f / (float)(n - 1) : 0;
    const float at = k < n / 2 ? step * (float)k : 1.0f - step * (float)(n - 1 - k);
    return (float)pow(f->theta, (double)(n > 1 ? at : 0)) * (float)(M_PI / 2);
}

/* Cosines and sines of one coordinate, [n, 2]. */
static void turn(const struct ltxv_net *f, size_t axis, float at, uint64_t n, float *out)
{
    const float part = at / (float)f->most[axis], wide = part * 2.0f - 1.0f;
    for (uint64_t k = 0; k < n; k++) {
        const double angle = (double)(frequency(f, k, n) * wide);
        out[2 * k] = (float)cos(angle);
        out[2 * k + 1] = (float)sin(angle);
    }
}

struct grid { /* of tokens behind each other */
    uint64_t frames, rows, columns;
    double at;     /* frame that the first one begins with */
    bool first;    /* whose first latent frame is a single one */
    double beyond; /* pixels that tokens end behind their own side */
};

/* Where token i of an axis is: its corner, or its middle. */
static float corner(const struct ltxv_net *f, const struct grid *g, size_t axis, uint64_t i,
                    double rate)
{
    double begin, end;
    if (axis) {
        begin = SPACE * (double)i;
        end = begin + SPACE + g->beyond;
    } else {
        begin = TIME * (double)i;
        end = begin + TIME;
        if (g->first) {
            begin = fmax(0, begin + 1 - TIME);
            end = fmax(0, end + 1 - TIME);
        }
        begin += g->at;
        end += g->at;
    }
    const float by = axis ? 1.0f : (float)(1.0 / rate);
    const float from = axis ? (float)begin : (float)begin * by;
    const float to = axis ? (float)end : (float)end * by;
    return f->middle ? (from + to) / 2.0f : from;
}

struct placing { /* of all tokens of a latent */
    const struct ltxv_net *f;
    const struct family_batch *b;
    struct ltxv_host *host;
    uint64_t n; /* pairs of an axis */
    uint64_t at;
    float *out;
};

/* The tokens of a grid; each axis looks at one number alone, so their angles are made once. */
static berth_status place(struct placing *p, const struct grid *g, berth_err *err)
{
    const uint64_t many[] = { g->frames, g->rows, g->columns };
    const uint64_t pad = p->f->hidden / 2 - TOKENS_AXES * p->n;
    const double rate = p->b->frame_rate > 0 ? p->b->frame_rate : LTXV_RATE;
    float *axis[TOKENS_AXES];
    if (!tokens_room(&p->host->axes, g->frames + g->rows + g->columns, p->n, 2))
        return err_set(err, BERTH_ENOMEM, "positions of a latent");
    float *to = p->host->axes.p;
    for (size_t a = 0; a < TOKENS_AXES; a++) {
        axis[a] = to;
        for (uint64_t i = 0; i < many[a]; i++, to += 2 * p->n)
            turn(p->f, a, corner(p->f, g, a, i, rate), p->n, to);
    }
    for (uint64_t i = 0; i < g->frames * g->rows * g->columns; i++, p->at++) {
        const uint64_t part[] = { i / (g->rows * g->columns), i / g->columns % g->rows,
                                  i % g->columns };
        if (!is_token(p->b, p->at))
            continue;
        for (uint64_t k = 0; k < pad; k++) { /* the rest is not turned */
            *p->out++ = 1;
            *p->out++ = 0;
        }
        for (uint64_t k = 0; k < p->n; k++)
            for (size_t a = 0; a < TOKENS_AXES; a++, p->out += 2)
                memcpy(p->out, axis[a] + 2 * (part[a] * p->n + k), 2 * sizeof *p->out);
    }
    return BERTH_OK;
}

static berth_status fill_table(struct ltxv_host *host, const struct ltxv_net *f,
                               const struct family_batch *b, berth_err *err)
{
    const uint64_t *d = b->shape.dim;
    struct placing p = { f, b, host, f->hidden / (2 * TOKENS_AXES), 0, host->table.p };
    struct grid own = { d[2], d[3], d[4], 0, f->causal, 0 };
    for (size_t i = 0; i < b->guides; i++)
        own.frames -= b->guide[i].frames;
    berth_status s = place(&p, &own, err);
    for (size_t i = 0; i < b->guides && !s; i++) {
        const struct diffusion_guide *g = &b->guide[i];
        s = place(&p,
                  &(struct grid) { g->frames, g->rows, g->columns, (double)g->at, g->first,
                                   SPACE * ((double)g->spread - 1) },
                  err);
    }
    return s;
}

/* ---- noise levels ---- */

static bool more_pieces(struct ltxv_host *host, size_t n)
{
    if (n <= host->piece_cap)
        return true;
    struct ltxv_piece *p = realloc(host->piece, n * sizeof *p);
    if (!p)
        return false;
    host->piece = p;
    host->piece_cap = n;
    return true;
}

static float level(const struct ltxv_net *f, const struct family_batch *b, uint64_t item,
                   uint64_t all, uint64_t i)
{
    const float t = b->mask ? b->mask[item * all + i] * b->t[item] : b->t[item];
    return t * (float)f->times;
}

/* Every token its own: one piece of items of one token. */
static void each_token(struct ltxv_host *host, const struct ltxv_net *f,
                       const struct family_batch *b, const struct ltxv_sizes *s)
{
    const uint64_t B = b->shape.dim[0];
    host->rows = 0;
    for (uint64_t k = 0; k < B; k++)
        for (uint64_t i = 0; i < s->all; i++)
            if (is_token(b, i))
                host->time.p[host->rows++] = level(f, b, k, s->all, i);
    host->piece[0] = (struct ltxv_piece) { .items = B * s->tokens, .tokens = 1 };
    host->pieces = 1;
}

/* Runs of tokens with one level. False: there are too many. */
static bool runs(struct ltxv_host *host, const struct ltxv_net *f, const struct family_batch *b,
                 const struct ltxv_sizes *s)
{
    const uint64_t B = b->shape.dim[0], most = PIECES_MAX * B;
    uint64_t at = 0;
    host->rows = host->pieces = 0;
    for (uint64_t k = 0; k < B; k++) {
        bool begun = false;
        for (uint64_t i = 0; i < s->all; i++) {
            const float now = level(f, b, k, s->all, i);
            if (!is_token(b, i))
                continue;
            if (!begun || host->time.p[host->rows - 1] != now) {
                if (host->pieces == most)
                    return false;
                host->piece[host->pieces++] =
                    (struct ltxv_piece) { .items = 1, .at = at, .row = host->rows };
                host->time.p[host->rows++] = now;
            }
            begun = true;
            host->piece[host->pieces - 1].tokens++;
            at++;
        }
    }
    return true;
}

static berth_status fill_times(struct ltxv_host *host, const struct ltxv_net *f,
                               const struct family_batch *b, const struct ltxv_sizes *s,
                               berth_err *err)
{
    const uint64_t B = b->shape.dim[0];
    if (!tokens_room(&host->time, B, b->mask ? s->tokens : 1, 1) ||
        !more_pieces(host, (size_t)(b->mask ? PIECES_MAX * B : 1)))
        return err_set(err, BERTH_ENOMEM, "noise levels of %llu latents", (unsigned long long)B);
    if (b->mask) {
        if (!runs(host, f, b, s))
            each_token(host, f, b, s);
        return BERTH_OK;
    }
    for (uint64_t k = 0; k < B; k++)
        host->time.p[k] = level(f, b, k, s->all, 0);
    host->rows = B;
    host->piece[0] = (struct ltxv_piece) { .items = B, .tokens = s->tokens };
    host->pieces = 1;
    return BERTH_OK;
}

/* ---- how much guides are looked at ---- */

/* Of each token of all guides, as it is added to scores. */
static void fill_weights(const struct family_batch *b, const struct ltxv_sizes *s, float *out)
{
    uint64_t at = s->all;
    for (size_t i = 0; i < b->guides; i++)
        at -= guide_tokens(&b->guide[i]);
    for (size_t i = 0; i < b->guides; i++) {
        const struct diffusion_guide *g = &b->guide[i];
        uint64_t k = 0;
        for (uint64_t n = 0; n < guide_tokens(g); n++, at++) {
            if (!is_token(b, at))
                continue;
            const float w = (g->weight && k < g->weights ? g->weight[k] : 1.0f) * g->strength;
            *out++ = w > 0 ? logf(w) : -INFINITY;
            k++;
        }
    }
}

static bool more_looks(struct ltxv_host *host, size_t n)
{
    if (n <= host->look_cap)
        return true;
    struct ltxv_look *p = realloc(host->look, n * sizeof *p);
    if (!p)
        return false;
    host->look = p;
    host->look_cap = n;
    return true;
}

/* Queries of guides, in runs: those with one weight share a row, others have one each. What a guide
 * must not see at all it sees nothing of but guides. */
static berth_status fill_looks(struct ltxv_host *host, const struct ltxv_sizes *s, berth_err *err)
{
    const uint64_t T = s->tokens, rest = T - s->guides;
    const float *weight = host->noisy.p + rest;
    uint64_t rows = 0;
    host->look_n = 0;
    if (!more_looks(host, (size_t)s->guides))
        return err_set(err, BERTH_ENOMEM, "guides of %llu tokens", (unsigned long long)s->guides);
    for (uint64_t i = 0, n; i < s->guides; i += n) {
        for (n = 1; i + n < s->guides && weight[i + n] == weight[i];)
            n++;
        struct ltxv_look *last = host->look_n ? &host->look[host->look_n - 1] : NULL;
        if (n < LOOK_ROWS && last && last->rows == last->n && last->n + n <= LOOK_ROWS) {
            last->n += n;
            last->rows += n;
            rows += n;
            continue;
        }
        host->look[host->look_n++] = (struct ltxv_look) {
            .at = rest + i, .n = n, .rows = n < LOOK_ROWS ? n : 1, .from = rows * T
        };
        rows += n < LOOK_ROWS ? n : 1;
    }
    if (!tokens_room(&host->looks, rows, T, 1))
        return err_set(err, BERTH_ENOMEM, "what %llu tokens of guides look at",
                       (unsigned long long)s->guides);
    for (size_t k = 0; k < host->look_n; k++)
        for (uint64_t r = 0; r < host->look[k].rows; r++) {
            float *row = host->looks.p + host->look[k].from + r * T;
            const float w = weight[host->look[k].at - rest + r];
            for (uint64_t j = 0; j < T; j++)
                row[j] = j < rest ? w : 0;
        }
    return BERTH_OK;
}

static berth_status fill_guides(struct ltxv_host *host, const struct family_batch *b,
                                const struct ltxv_sizes *s, berth_err *err)
{
    host->look_n = 0;
    if (!s->weighed)
        return BERTH_OK;
    if (!tokens_room(&host->noisy, s->tokens, 1, 1))
        return err_set(err, BERTH_ENOMEM, "guides of %llu tokens", (unsigned long long)s->guides);
    memset(host->noisy.p, 0, (size_t)(s->tokens - s->guides) * sizeof(float));
    fill_weights(b, s, host->noisy.p + (s->tokens - s->guides));
    return fill_looks(host, s, err);
}

/* ---- tokens, text ---- */

static void fill_tokens(const struct family_batch *b, const struct ltxv_sizes *s, float *out)
{
    const uint64_t B = b->shape.dim[0], C = b->shape.dim[1];
    for (uint64_t k = 0; k < B; k++) {
        const float *x = b->x + k * C * s->all;
        for (uint64_t i = 0; i < s->all; i++)
            for (uint64_t c = 0; c < C && is_token(b, i); c++)
                *out++ = x[c * s->all + i];
    }
}

void ltxv_host_give(const struct ltxv_host *host, const struct family_batch *b,
                    const struct ltxv_sizes *s)
{
    const uint64_t B = b->shape.dim[0], C = b->shape.dim[1];
    const float *from = host->result.p;
    for (uint64_t k = 0; k < B; k++) {
        float *x = b->out + k * C * s->all;
        for (uint64_t i = 0; i < s->all; i++) {
            const bool is = is_token(b, i);
            for (uint64_t c = 0; c < C; c++)
                x[c * s->all + i] = is ? *from++ : 0;
        }
    }
}

static void fill_context(const struct ltxv_net *f, const struct family_batch *b, float *out)
{
    const size_t wide = (size_t)f->context_dim, n = (size_t)b->shape.dim[0] * b->tokens;
    for (size_t i = 0; i < n; i++) {
        if (b->hidden && b->hidden[i % b->tokens])
            continue;
        memcpy(out, b->context + i * wide, wide * sizeof *out);
        out += wide;
    }
}

/* ---- buffers ---- */

void ltxv_host_release(struct ltxv_host *host)
{
    free(host->table.p);
    free(host->axes.p);
    free(host->tokens.p);
    free(host->result.p);
    free(host->context.p);
    free(host->time.p);
    free(host->noisy.p);
    free(host->looks.p);
    free(host->piece);
    free(host->look);
    *host = (struct ltxv_host) { .pieces = 0 };
}

berth_status ltxv_host_fill(struct ltxv_host *host, const struct ltxv_net *f,
                            const struct family_batch *b, const struct ltxv_sizes *s,
                            berth_err *err)
{
    const uint64_t B = b->shape.dim[0];
    char text[SHAPE_TEXT_MAX];
    if (!tokens_room(&host->table, s->tokens, f->hidden, 1) ||
        !tokens_room(&host->tokens, B, s->tokens, f->channels) ||
        !tokens_room(&host->result, B, s->tokens, f->channels) ||
        !tokens_room(&host->context, B, s->text, f->context_dim))
        return err_set(err, BERTH_ENOMEM, "tokens of latents %s", shape_text(&b->shape, text));
    fill_tokens(b, s, host->tokens.p);
    fill_context(f, b, host->context.p);
    if (fill_times(host, f, b, s, err) || fill_guides(host, b, s, err))
        return err->code;
    return fill_table(host, f, b, err);
}
