/* cache.c: see cache.h. */
#include "sample/cache.h"

#include "base/sz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EVERY 8 /* pixels of both axes */

struct step_kept {
    const void *key;
    float *diff; /* [each]: answer - question */
};

void step_cache_release(struct step_cache *c)
{
    for (size_t i = 0; i < c->kept.n; i++)
        free(((struct step_kept *)vec_at(&c->kept, i))->diff);
    vec_release(&c->kept);
    free(c->x);
    free(c->out);
    c->x = c->out = NULL;
}

static struct step_kept *find(struct step_cache *c, const void *key)
{
    for (size_t i = 0; i < c->kept.n; i++) {
        struct step_kept *k = vec_at(&c->kept, i);
        if (k->key == key)
            return k;
    }
    return NULL;
}

/* All of the parts have a difference. */
static bool has_all(struct step_cache *c, const struct step_cache_call *k)
{
    for (size_t i = 0; i < k->parts; i++)
        if (!find(c, k->key[i]))
            return false;
    return true;
}

/* Index of the watched part; k->parts: it is not in the call. */
static size_t watched(const struct step_cache *c, const struct step_cache_call *k)
{
    size_t i = 0;
    while (i < k->parts && k->key[i] != c->watched)
        i++;
    return c->watched ? i : k->parts;
}

/* The values that are looked at, of part [.., h, w]. Returns their number; out may be NULL. */
static size_t sampled(const struct step_cache_call *k, const float *part, float *out)
{
    size_t n = 0;
    for (size_t plane = 0; plane < k->each; plane += k->h * k->w)
        for (size_t y = 0; y < k->h; y += EVERY)
            for (size_t x = 0; x < k->w; x += EVERY, n++)
                if (out)
                    out[n] = part[plane + y * k->w + x];
    return n;
}

/* Mean |a - b| of what is looked at. */
static double change(const struct step_cache_call *k, const float *part, const float *before)
{
    double sum = 0;
    size_t n = 0;
    for (size_t plane = 0; plane < k->each; plane += k->h * k->w)
        for (size_t y = 0; y < k->h; y += EVERY)
            for (size_t x = 0; x < k->w; x += EVERY, n++)
                sum += fabs((double)(part[plane + y * k->w + x] - before[n]));
    return sum / (double)n;
}

static void add_kept(struct step_cache *c, const struct step_cache_call *k)
{
    for (size_t p = 0; p < k->parts; p++) {
        const float *diff = find(c, k->key[p])->diff, *x = k->x + p * k->each;
        for (size_t i = 0; i < k->each; i++)
            k->out[p * k->each + i] = x[i] + diff[i];
    }
}

/* Latents of another size: nothing that is known holds. */
static void begin_anew(struct step_cache *c)
{
    step_cache_release(c);
    c->watched = NULL;
    c->known = c->skipping = false;
    c->rate = c->sum = 0;
    c->rated = true; /* as the reference leaves it: a rate of 0 */
    c->n = 0;
}

berth_status step_cache_begin(struct step_cache *c, const struct step_cache_call *k, bool *skip,
                              berth_err *err)
{
    (void)err;
    *skip = false;
    if (k->first)
        c->skipping = false;
    if (!((double)k->sigma > c->to))
        return BERTH_OK;
    if (c->whole && !c->watched)
        c->watched = k->key[0];
    if (!((double)k->sigma <= c->from))
        return BERTH_OK;
    if (c->each && c->each != k->each)
        begin_anew(c);
    c->each = k->each;
    bool all = has_all(c, k);
    if (c->skipping && all) {
        add_kept(c, k);
        *skip = true;
        return BERTH_OK;
    }
    if (!c->watched)
        c->watched = k->key[0];
    size_t at = watched(c, k);
    if (at == k->parts || !c->known || !c->rated || !c->x)
        return BERTH_OK;
    c->sum += c->rate * change(k, k->x + at * k->each, c->x) / c->norm;
    if (!(c->sum < c->threshold && all)) {
        c->sum = 0;
        return BERTH_OK;
    }
    c->skipping = *skip = true;
    c->skipped++;
    add_kept(c, k);
    return BERTH_OK;
}

static berth_status keep(struct step_cache *c, const struct step_cache_call *k, size_t p,
                         berth_err *err)
{
    struct step_kept *to = find(c, k->key[p]);
    c->kept.elem = sizeof *to;
    if (!to && (to = vec_add(&c->kept)))
        *to = (struct step_kept) { k->key[p], malloc(k->each * sizeof *to->diff) };
    if (!to || !to->diff) {
        if (to)
            c->kept.n--;
        return err_set(err, BERTH_ENOMEM, "%zu values of a step", k->each);
    }
    const float *x = k->x + p * k->each, *y = k->out + p * k->each;
    for (size_t i = 0; i < k->each; i++)
        to->diff[i] = y[i] - x[i];
    return BERTH_OK;
}

/* What the next steps are compared with. */
static berth_status remember(struct step_cache *c, const struct step_cache_call *k, size_t at,
                             berth_err *err)
{
    const float *x = k->x + at * k->each, *y = k->out + at * k->each;
    size_t n = sampled(k, x, NULL);
    if (n != c->n || !c->x || !c->out) {
        free(c->x);
        free(c->out);
        c->x = malloc(n * sizeof *c->x);
        c->out = malloc(n * sizeof *c->out);
        c->n = n;
        if (!c->x || !c->out)
            return err_set(err, BERTH_ENOMEM, "%zu values of a step", n);
    }
    sampled(k, x, c->x);
    sampled(k, y, c->out);
    double sum = 0;
    for (size_t i = 0; i < k->parts * k->each; i++)
        sum += fabs((double)k->out[i]);
    c->norm = sum / (double)(k->parts * k->each);
    c->known = true;
    return BERTH_OK;
}

berth_status step_cache_end(struct step_cache *c, const struct step_cache_call *k, berth_err *err)
{
    if (!((double)k->sigma > c->to))
        return BERTH_OK;
    size_t at = watched(c, k);
    bool used = (double)k->sigma <= c->from;
    if (at < k->parts && c->known && used && c->x) {
        c->rate = change(k, k->out + at * k->each, c->out) / change(k, k->x + at * k->each, c->x);
        c->rated = true;
    }
    for (size_t p = 0; p < k->parts; p++)
        if (keep(c, k, p, err))
            return err->code;
    return at < k->parts ? remember(c, k, at, err) : BERTH_OK;
}
