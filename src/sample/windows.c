/* windows.c: see windows.h. */
#include "sample/windows.h"

#include "base/arena.h"
#include "sample/sigmas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WINDOWS_MAX 65536

void windows_at(struct windows *w, const float *sigmas, size_t n, float sigma)
{
    for (size_t i = 0; i < n; i++)
        if (fabs((double)sigmas[i] - (double)sigma) <= 1e-8 + 1e-4 * fabs((double)sigma)) {
            w->step = i;
            return;
        }
}

/* The bits of a step turned round, as a fraction: 0, 1/2, 1/4, 3/4 ... */
static double halving(size_t step)
{
    double at = 0.5, sum = 0;
    for (uint64_t bits = step; bits; bits >>= 1, at /= 2)
        sum += bits & 1 ? at : 0;
    return sum;
}

/* One more, of n frames. NULL: no room for it. */
static struct window *add(struct vec *out, struct arena *mem, size_t at, size_t n, berth_err *err)
{
    struct window x = { .frame = arena_array(mem, n, sizeof *x.frame), .n = n };
    if (out->n >= WINDOWS_MAX) {
        err_set(err, BERTH_ELIMIT, "more than %d context windows", WINDOWS_MAX);
        return NULL;
    }
    if (!x.frame || !vec_push(out, &x)) {
        err_set(err, BERTH_ENOMEM, "context windows");
        return NULL;
    }
    struct window *list = out->p; /* the new one to its place */
    memmove(list + at + 1, list + at, (out->n - 1 - at) * sizeof *list);
    list[at] = x;
    return &list[at];
}

static berth_status add_run(struct vec *out, struct arena *mem, size_t from, size_t n,
                            berth_err *err)
{
    struct window *x = add(out, mem, out->n, n, err);
    for (size_t i = 0; x && i < n; i++)
        x->frame[i] = from + i;
    return x ? BERTH_OK : err->code;
}

static berth_status make_static(const struct windows *w, size_t frames, struct arena *mem,
                                struct vec *out, berth_err *err)
{
    for (size_t at = 0;; at += w->length - w->overlap) {
        bool last = at + w->length >= frames; /* moved back, so that it ends with the latent */
        if (add_run(out, mem, last ? frames - w->length : at, w->length, err))
            return err->code;
        if (last)
            return BERTH_OK;
    }
}

static berth_status make_batched(const struct windows *w, size_t frames, struct arena *mem,
                                 struct vec *out, berth_err *err)
{
    for (size_t at = 0; at < frames; at += w->length)
        if (add_run(out, mem, at, w->length < frames - at ? w->length : frames - at, err))
            return err->code;
    return BERTH_OK;
}

/* Strided windows, each step's elsewhere, which go on at the front where the latent ends. */
static berth_status make_looped(const struct windows *w, size_t frames, bool closed,
                                struct arena *mem, struct vec *out, berth_err *err)
{
    size_t levels = (size_t)ceil(log2((double)frames / (double)w->length)) + 1;
    double h = halving(w->step);
    levels = w->stride < levels ? w->stride : levels;
    size_t pad = (size_t)nearbyint((double)frames * h), end = frames + pad;
    end -= closed ? 0 : w->overlap < end ? w->overlap : end;
    for (size_t level = 0; level < levels; level++) {
        size_t every = (size_t)1 << level;
        for (size_t at = (size_t)(h * (double)every) + pad; at < end;
             at += w->length * every - w->overlap) {
            struct window *x = add(out, mem, out->n, w->length, err);
            for (size_t i = 0; x && i < w->length; i++)
                x->frame[i] = (at + i * every) % frames;
            if (!x)
                return err->code;
        }
    }
    return BERTH_OK;
}

/* Where it goes on at the front; n: nowhere. */
static size_t rolls_at(const struct window *x)
{
    for (size_t i = 1; i < x->n; i++)
        if (x->frame[i] < x->frame[i - 1])
            return i;
    return x->n;
}

/* The same frames apart, the last one the latent's last. */
static void shift_to_end(struct window *x, size_t frames)
{
    size_t first = x->frame[0];
    for (size_t i = 0; i < x->n; i++)
        x->frame[i] = (x->frame[i] + frames - first) % frames;
    size_t by = frames - 1 - x->frame[x->n - 1];
    for (size_t i = 0; i < x->n; i++)
        x->frame[i] += by;
}

static bool has(const struct window *x, size_t frame)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->frame[i] == frame)
            return true;
    return false;
}

static bool same(const struct window *a, const struct window *b)
{
    return a->n == b->n && memcmp(a->frame, b->frame, a->n * sizeof *a->frame) == 0;
}

/* Looped ones that do not loop: shifted to the end instead, each of them once. */
static berth_status make_uniform(const struct windows *w, size_t frames, struct arena *mem,
                                 struct vec *out, berth_err *err)
{
    if (make_looped(w, frames, false, mem, out, err))
        return err->code;
    for (size_t i = 0; i < out->n; i++) {
        struct window *x = vec_at(out, i);
        size_t roll = rolls_at(x);
        if (roll == x->n)
            continue;
        size_t value = x->frame[roll];
        shift_to_end(x, frames);
        if (has(vec_at(out, (i + 1) % out->n), value))
            continue;
        struct window *more = add(out, mem, i + 1, w->length, err);
        for (size_t k = 0; more && k < w->length; k++)
            more->frame[k] = value + k;
        if (!more)
            return err->code;
    }
    struct window *list = out->p;
    size_t kept = 0;
    for (size_t i = 0; i < out->n; i++) {
        bool twice = false;
        for (size_t k = 0; k < kept && !twice; k++)
            twice = same(&list[k], &list[i]);
        if (!twice)
            list[kept++] = list[i];
    }
    out->n = kept;
    return BERTH_OK;
}

static const char *const schedule_name[] = { [WINDOWS_STATIC] = "standard_static",
                                             [WINDOWS_UNIFORM] = "standard_uniform",
                                             [WINDOWS_LOOPED] = "looped_uniform",
                                             [WINDOWS_BATCHED] = "batched" };

/* Every frame is in a window: one that is in none would have no prediction. */
static berth_status check_frames(const struct windows *w, const struct vec *list, size_t frames,
                                 berth_err *err)
{
    const char *name = schedule_name[w->schedule];
    bool *seen = calloc(frames, sizeof *seen);
    berth_status s = seen ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%zu frames", frames);
    for (size_t i = 0; !s && i < list->n; i++) {
        const struct window *x = vec_at(list, i);
        for (size_t k = 0; !s && k < x->n; k++)
            if (x->frame[k] < frames)
                seen[x->frame[k]] = true;
            else
                s = err_set(err, BERTH_EINVAL,
                            "a context window of the %s schedule reaches beyond %zu frames: choose "
                            "another schedule",
                            name, frames);
    }
    for (size_t i = 0; !s && i < frames; i++)
        if (!seen[i])
            s = err_set(err, BERTH_EINVAL,
                        "no context window of the %s schedule has frame %zu of %zu at step %zu: "
                        "choose another schedule, a smaller stride or a larger overlap",
                        name, i, frames, w->step);
    free(seen);
    return s;
}

berth_status windows_make(const struct windows *w, size_t frames, struct arena *mem,
                          struct vec *out, berth_err *err)
{
    berth_status s = BERTH_OK;
    if (!w->length || w->overlap >= w->length || frames <= w->length)
        return err_set(err, BERTH_EINVAL,
                       "context windows of %zu frames that overlap by %zu, for %zu frames",
                       w->length, w->overlap, frames);
    switch (w->schedule) {
    case WINDOWS_STATIC:
        s = make_static(w, frames, mem, out, err);
        break;
    case WINDOWS_UNIFORM:
        s = make_uniform(w, frames, mem, out, err);
        break;
    case WINDOWS_LOOPED:
        s = make_looped(w, frames, w->closed, mem, out, err);
        break;
    case WINDOWS_BATCHED:
        s = make_batched(w, frames, mem, out, err);
        break;
    }
    return s ? s : check_frames(w, out, frames, err);
}

static void ends_of(const struct window *x, size_t *low, size_t *high)
{
    *low = *high = x->frame[0];
    for (size_t i = 0; i < x->n; i++) {
        *low = x->frame[i] < *low ? x->frame[i] : *low;
        *high = x->frame[i] > *high ? x->frame[i] : *high;
    }
}

void windows_weights(const struct windows *w, const struct window *x, size_t frames, float *out)
{
    size_t n = x->n, low, high, ramp = w->overlap < n ? w->overlap : n;
    ends_of(x, &low, &high);
    for (size_t i = 0; i < n; i++) {
        size_t edge = (i < n - 1 - i ? i : n - 1 - i) + 1;
        out[i] = w->fuse == FUSE_PYRAMID ? (float)edge : 1;
    }
    for (size_t i = 0; w->fuse == FUSE_OVERLAP && low > 0 && i < ramp; i++)
        out[i] = sigmas_linspace(1e-37, 1, ramp, i);
    for (size_t i = 0; w->fuse == FUSE_OVERLAP && high + 1 < frames && i < ramp; i++)
        out[n - ramp + i] = sigmas_linspace(1, 1e-37, ramp, i);
}

double windows_bias(const struct window *x, size_t i)
{
    double first = (double)x->frame[0], last = (double)x->frame[x->n - 1];
    double bias = 1 - fabs((double)x->frame[i] - (first + last) / 2) / ((last - first + 1e-2) / 2);
    return bias > 1e-2 ? bias : 1e-2;
}

berth_status windows_noise(const struct windows *w, uint64_t seed, const struct shape *s,
                           float *noise, berth_err *err)
{
    size_t frames = (size_t)s->dim[w->dim], inner = (size_t)shape_inner(s, w->dim + 1);
    size_t outer = (size_t)shape_inner(s, 0) / (frames * inner), delta = w->length - w->overlap;
    struct torch_rng rng;
    size_t *order = malloc(delta * sizeof *order);
    float *from = malloc(delta * inner * sizeof *from);
    berth_status st =
        order && from ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%zu frames of noise", delta);
    torch_seed(&rng, seed);
    for (size_t start = 0; !st && start + w->length < frames; start += delta) {
        size_t to = start + w->length, n = delta < frames - to ? delta : frames - to;
        for (size_t i = 0; i < n; i++)
            order[i] = i;
        for (size_t i = 0; i + 1 < n; i++) { /* torch.randperm() */
            size_t k = i + mt19937_u32(&rng.mt) % (n - i), swap = order[i];
            order[i] = order[k];
            order[k] = swap;
        }
        for (size_t o = 0; o < outer; o++) {
            float *at = noise + o * frames * inner;
            for (size_t i = 0; i < n; i++)
                memcpy(from + i * inner, at + (start + order[i]) * inner, inner * sizeof *from);
            memcpy(at + to * inner, from, n * inner * sizeof *from);
        }
    }
    free(order);
    free(from);
    return st;
}
