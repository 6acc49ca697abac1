/* audio_resample.c: other sample rates, as torchaudio's resample() makes them: a windowed sinc
 * (Hann, six zero crossings on each side, cut off at 0.99 of the lower rate), one set of weights
 * for each phase of the ratio. Weights are float32, as there. */
#include "node/clips.h"

#include "base/sz.h"

#include <math.h>
#include <stdlib.h>

#define CROSSINGS 6
#define ROLLOFF 0.99
#define PI_F 3.14159265358979323846f
#define WEIGHTS_MAX ((size_t)1 << 26)

struct ratio {
    size_t o, n;  /* rates, divided by what they share */
    size_t width; /* input samples on each side */
    float base;
};

static size_t shared(size_t a, size_t b)
{
    while (b) {
        size_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static float weight(const struct ratio *r, size_t phase, size_t k)
{
    float t = -(float)phase / (float)r->n + ((float)k - (float)r->width) / (float)r->o;
    t *= r->base;
    t = t < -CROSSINGS ? -CROSSINGS : t > CROSSINGS ? CROSSINGS : t;
    float w = cosf(t * PI_F / CROSSINGS / 2);
    t *= PI_F;
    return (t == 0 ? 1.0f : sinf(t) / t) * (w * w * (r->base / (float)r->o));
}

static void channel(const struct ratio *r, const float *h, const float *from, size_t n, float *to,
                    size_t made)
{
    size_t taps = 2 * r->width + r->o;
    for (size_t i = 0; i < made; i++) {
        size_t at = i / r->n * r->o; /* of the window, in samples behind the padding */
        const float *w = h + i % r->n * taps;
        size_t first = at < r->width ? r->width - at : 0;
        size_t last = n + r->width > at ? n + r->width - at : 0;
        double sum = 0;
        for (size_t k = first; k < taps && k < last; k++)
            sum += (double)w[k] * (double)from[at + k - r->width];
        to[i] = (float)sum;
    }
}

berth_status wave_resample(struct htensor *w, uint32_t from, uint32_t to, struct htensor **out,
                           berth_err *err)
{
    size_t weights, most, rows = dim(w, 0) * dim(w, 1), n = dim(w, 2);
    if (from == to) {
        *out = htensor_ref(w);
        return BERTH_OK;
    }
    if (!from || !to)
        return err_set(err, BERTH_EINVAL, "sound of 0 samples a second");
    struct ratio r = { .o = from / shared(from, to), .n = to / shared(from, to) };
    double base = (double)(r.o < r.n ? r.o : r.n) * ROLLOFF;
    r.base = (float)base;
    r.width = (size_t)ceil(CROSSINGS * (double)r.o / base);
    size_t taps = 2 * r.width + r.o;
    if (!sz_mul(taps, r.n, &weights) || weights > WEIGHTS_MAX || !sz_mul(r.n, n, &most))
        return err_set(err, BERTH_ELIMIT, "%u to %u samples a second: %zu phases of %zu weights",
                       from, to, r.n, taps);
    size_t made = most / r.o + (most % r.o != 0);
    if (wave_new(dim(w, 0), dim(w, 1), made, out, err))
        return err->code;
    float *h = malloc(weights * sizeof *h);
    if (!h) {
        htensor_unref(*out);
        *out = NULL;
        return err_set(err, BERTH_ENOMEM, "%zu weights", weights);
    }
    for (size_t i = 0; i < weights; i++)
        h[i] = weight(&r, i / taps, i % taps);
    for (size_t i = 0; i < rows; i++)
        channel(&r, h, w->data + i * n, n, (*out)->data + i * made, made);
    free(h);
    return BERTH_OK;
}
