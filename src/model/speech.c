#include "model/speech.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

berth_status speech_init(struct speech *s, const struct speech_how *how, size_t vocab,
                         berth_err *err)
{
    *s = (struct speech) { .how = how, .vocab = vocab };
    s->list = vocab ? calloc(vocab, sizeof *s->list) : NULL;
    if (!s->list)
        return err_set(err, BERTH_ENOMEM, "%zu candidates", vocab);
    mt19937_init(&s->dice, (uint32_t)how->seed);
    return BERTH_OK;
}

void speech_release(struct speech *s)
{
    free(s->list);
    *s = (struct speech) { 0 };
}

static int32_t likeliest(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* Each token that was said before counts less, once however often it was. */
static void penalise(const struct speech *s, float *logits, const struct vec *said)
{
    const float repetition = (float)s->how->repetition, presence = (float)s->how->presence;
    if (s->how->repetition == 1 && s->how->presence == 0)
        return;
    for (size_t i = 0; i < said->n; i++)
        s->list[*(const int32_t *)vec_at(said, i)].out = false;
    for (size_t i = 0; i < said->n; i++) {
        struct candidate *c = &s->list[*(const int32_t *)vec_at(said, i)];
        float *z = &logits[*(const int32_t *)vec_at(said, i)];
        if (c->out)
            continue;
        c->out = true; /* done */
        if (s->how->repetition != 1)
            *z = *z < 0 ? *z * repetition : *z / repetition;
        if (s->how->presence != 0)
            *z -= presence;
    }
}

static bool is_larger(const struct candidate *a, const struct candidate *b)
{
    return a->z != b->z ? a->z > b->z : a->id < b->id;
}

/* Down from i to where none below is smaller: the smallest of all is the first. */
static void sink(struct candidate *c, size_t n, size_t i)
{
    for (size_t below; (below = 2 * i + 1) < n; i = below) {
        if (below + 1 < n && is_larger(&c[below], &c[below + 1]))
            below++;
        if (!is_larger(&c[i], &c[below]))
            return;
        const struct candidate swap = c[i];
        c[i] = c[below];
        c[below] = swap;
    }
}

/* The k largest of n come first, in any order. */
static void keep_largest(struct candidate *c, size_t n, size_t k)
{
    for (size_t i = k / 2; i-- > 0;)
        sink(c, k, i);
    for (size_t i = k; i < n; i++)
        if (is_larger(&c[i], &c[0])) {
            c[0] = c[i];
            sink(c, k, 0);
        }
}

static int larger_first(const void *a, const void *b)
{
    return is_larger(b, a) - is_larger(a, b);
}

/* p of the first n, whatever their order. */
static void softmax(struct candidate *c, size_t n)
{
    float most = -INFINITY;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        most = c[i].z > most ? c[i].z : most;
    for (size_t i = 0; i < n; i++)
        sum += (double)(c[i].p = expf(c[i].z - most));
    for (size_t i = 0; i < n; i++)
        c[i].p /= (float)sum;
}

static void leave_out(struct candidate *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c[i].out)
            c[i].z = -FLT_MAX;
}

static void least_share(struct candidate *c, size_t n, double min_p)
{
    float most = 0;
    softmax(c, n);
    for (size_t i = 0; i < n; i++)
        most = c[i].p > most ? c[i].p : most;
    for (size_t i = 0; i < n; i++)
        c[i].out = c[i].p < (float)min_p * most;
    leave_out(c, n);
}

static int by_id(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The likeliest that make up top_p together; the one that crosses the line is not among them, the
 * first always is. sorted: they are, and stay so; else they go back to the order of ids. */
static void largest_share(struct candidate *c, size_t n, double top_p, bool sorted)
{
    double sum = 0;
    if (!sorted)
        qsort(c, n, sizeof *c, larger_first);
    softmax(c, n);
    for (size_t i = 0; i < n; i++) {
        sum += (double)c[i].p;
        c[i].out = i > 0 && (float)sum > (float)top_p;
    }
    leave_out(c, n);
    if (!sorted)
        qsort(c, n, sizeof *c, by_id);
}

/* -log(1 - u), u of 53 bits. */
static float exponential(struct mt19937 *dice)
{
    uint64_t high = mt19937_u32(dice), low = mt19937_u32(dice);
    uint64_t bits = (high << 32 | low) & ((UINT64_C(1) << 53) - 1);
    return (float)-log1p(-(double)bits * 0x1p-53);
}

int32_t speech_next(struct speech *s, float *logits, const struct vec *said)
{
    const struct speech_how *how = s->how;
    struct candidate *c = s->list;
    size_t n = s->vocab;
    if (!how->sample || how->temperature == 0)
        return likeliest(logits, n);
    penalise(s, logits, said);
    for (size_t i = 0; i < n; i++) {
        float z = how->temperature == 1 ? logits[i] : logits[i] / (float)how->temperature;
        c[i] = (struct candidate) { .z = z, .id = (int32_t)i };
    }
    if (how->top_k) {
        size_t k = how->top_k < n ? how->top_k : n;
        keep_largest(c, n, k);
        n = k;
        qsort(c, n, sizeof *c, larger_first);
    }
    if (how->min_p > 0)
        least_share(c, n, how->min_p);
    if (how->top_p < 1)
        largest_share(c, n, how->top_p, how->top_k);
    softmax(c, n);
    size_t best = 0;
    float most = -1;
    for (size_t i = 0; i < n; i++) { /* a draw for each, also for those that cannot be said */
        float value = c[i].p / exponential(&s->dice);
        if (value > most) {
            most = value;
            best = i;
        }
    }
    return c[best].id;
}
