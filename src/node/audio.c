/* audio.c: what is done to sound. Where there is none, there is none behind the node either. */
#include "node/clips.h"

#include <math.h>
#include <string.h>

#define AUDIO_NODE(c, ...) NODE_CLASS(c, .category = "audio", V3("audio"), __VA_ARGS__)

/* Python's int(round(x)), for counts of samples. */
static double samples_of(double seconds, uint32_t rate)
{
    return nearbyint(seconds * rate);
}

static size_t clamp_to(double x, size_t most)
{
    return !(x > 0) ? 0 : x >= (double)most ? most : (size_t)x;
}

static berth_status pass(struct node_call *c, const char *name, berth_err *err)
{
    const struct value *v = in_value(c, name);
    return v && v->kind != V_NULL ? out_input(c, 0, name, err) : out_no_audio(c, 0, err);
}

static berth_status empty_run(struct node_call *c, berth_err *err)
{
    struct htensor *w = NULL;
    double seconds;
    uint64_t rate, channels;
    if (in_f64(c, "duration", &seconds, err) || in_u64(c, "sample_rate", &rate, err) ||
        in_u64(c, "channels", &channels, err))
        return err->code;
    if (!rate || rate > 192000 || !channels || channels > 2)
        return err_set(err, BERTH_EINVAL, "%llu channels of %llu samples a second",
                       (unsigned long long)channels, (unsigned long long)rate);
    double n = samples_of(seconds, (uint32_t)rate);
    if (!(n >= 0 && n <= (double)(HTENSOR_MAX / sizeof(float))))
        return err_set(err, BERTH_ELIMIT, "%g seconds of sound", seconds);
    berth_status s = wave_new(1, (size_t)channels, (size_t)n, &w, err);
    return out_audio(c, 0, s, w, (uint32_t)rate, err);
}

AUDIO_NODE(EmptyAudio,
           INS(FLOAT_IN("duration", 60.0, 0.0, 18446744073709551615.0, 0.01),
               INT_IN("sample_rate", 44100, 1, 192000, 0, .more = ADVANCED),
               INT_IN("channels", 2, 1, 2, 0, .more = ADVANCED)),
           OUT_OF("AUDIO"), .run = empty_run);

static berth_status trim_run(struct node_call *c, berth_err *err)
{
    const struct audio *a;
    struct htensor *part = NULL;
    double start, seconds;
    if (in_audio(c, "audio", &a, err) || in_f64(c, "start_index", &start, err) ||
        in_f64(c, "duration", &seconds, err))
        return err->code;
    if (!a || !dim(a->wave, 2))
        return pass(c, "audio", err);
    size_t all = dim(a->wave, 2);
    double from = samples_of(start, a->rate) + (start < 0 ? (double)all : 0);
    size_t first = clamp_to(from, all);
    size_t end = clamp_to((double)first + samples_of(seconds, a->rate), all);
    if (first >= end)
        return err_set(
            err, BERTH_EINVAL,
            "TrimAudioDuration: %g seconds from %g on are no part of %g seconds of sound", seconds,
            start, (double)all / a->rate);
    berth_status s = wave_part(a->wave, first, end - first, &part, err);
    return out_audio(c, 0, s, part, a->rate, err);
}

AUDIO_NODE(TrimAudioDuration, .description = "Cuts a part out of a sound.",
           INS(SOCKET("audio", "AUDIO"),
               FLOAT_IN("start_index", 0.0, -18446744073709551615.0, 18446744073709551615.0, 0.01),
               FLOAT_IN("duration", 60.0, 0, 0, 0.01, .no_range = true, .more = "\"min\":0.0")),
           OUT_OF("AUDIO"), .run = trim_run);

/* ---- channels ---- */

static berth_status one_channel(struct node_call *c, size_t k, const struct audio *a,
                                berth_err *err)
{
    size_t n = dim(a->wave, 2), all = dim(a->wave, 1);
    struct htensor *o = NULL;
    berth_status s = wave_new(dim(a->wave, 0), 1, n, &o, err);
    for (size_t i = 0; !s && n && i < dim(a->wave, 0); i++)
        memcpy(o->data + i * n, a->wave->data + (i * all + k) * n, n * sizeof(float));
    return out_audio(c, k, s, o, a->rate, err);
}

static berth_status split_run(struct node_call *c, berth_err *err)
{
    const struct audio *a;
    if (in_audio(c, "audio", &a, err))
        return err->code;
    if (!a)
        return out_no_audio(c, 0, err) ? err->code : out_no_audio(c, 1, err);
    if (dim(a->wave, 1) != 2)
        return err_set(err, BERTH_EINVAL,
                       "AudioSplit: Input audio must be stereo (2 channels), got %zu channel(s).",
                       dim(a->wave, 1));
    return one_channel(c, 0, a, err) ? err->code : one_channel(c, 1, a, err);
}

AUDIO_NODE(SplitAudioChannels, .description = "The left and the right channel, each by itself.",
           INS(SOCKET("audio", "AUDIO")),
           OUTS({ .type = "AUDIO", .name = "left" }, { .type = "AUDIO", .name = "right" }),
           .run = split_run);

/* Both at the higher rate; new references. */
struct two {
    struct htensor *a, *b;
    uint32_t rate;
};

static void two_release(struct two *t)
{
    htensor_unref(t->a);
    htensor_unref(t->b);
    *t = (struct two) { 0 };
}

static berth_status match_rates(const struct audio *a, const struct audio *b, struct two *t,
                                berth_err *err)
{
    *t = (struct two) { .rate = a->rate > b->rate ? a->rate : b->rate };
    if (wave_resample(a->wave, a->rate, t->rate, &t->a, err) ||
        wave_resample(b->wave, b->rate, t->rate, &t->b, err)) {
        two_release(t);
        return err->code;
    }
    return BERTH_OK;
}

static berth_status same_batch(const struct two *t, berth_err *err)
{
    size_t a = dim(t->a, 0), b = dim(t->b, 0);
    return a == b ? BERTH_OK : err_set(err, BERTH_EINVAL, "batches of %zu and %zu sounds", a, b);
}

/* The inputs; false: the node is done, since one of them is None. */
static bool both(struct node_call *c, const char *first, const char *second, const struct audio **a,
                 const struct audio **b, berth_status *s, berth_err *err)
{
    if (in_audio(c, first, a, err) || in_audio(c, second, b, err)) {
        *s = err->code;
        return false;
    }
    if (*a && *b)
        return true;
    *s = pass(c, *a ? first : second, err);
    return false;
}

static berth_status join_run(struct node_call *c, berth_err *err)
{
    const struct audio *l, *r;
    struct two t;
    struct htensor *o = NULL;
    berth_status s = BERTH_OK;
    if (!both(c, "audio_left", "audio_right", &l, &r, &s, err))
        return s;
    if (dim(l->wave, 1) != 1 || dim(r->wave, 1) != 1)
        return err_set(err, BERTH_EINVAL,
                       "AudioJoin: Both input audios must be mono, and they have %zu and %zu "
                       "channels.",
                       dim(l->wave, 1), dim(r->wave, 1));
    if (match_rates(l, r, &t, err))
        return err->code;
    size_t na = dim(t.a, 2), nb = dim(t.b, 2), n = na < nb ? na : nb, items = dim(t.a, 0);
    s = same_batch(&t, err);
    if (!s)
        s = wave_new(items, 2, n, &o, err);
    for (size_t i = 0; !s && n && i < items; i++) {
        memcpy(o->data + 2 * i * n, t.a->data + i * na, n * sizeof(float));
        memcpy(o->data + (2 * i + 1) * n, t.b->data + i * nb, n * sizeof(float));
    }
    uint32_t rate = t.rate;
    two_release(&t);
    return out_audio(c, 0, s, o, rate, err);
}

AUDIO_NODE(JoinAudioChannels, .description = "Two sounds of one channel as one of two.",
           INS(SOCKET("audio_left", "AUDIO"), SOCKET("audio_right", "AUDIO")),
           OUTS({ .type = "AUDIO", .name = "audio" }), .run = join_run);

/* ---- two sounds ---- */

/* One channel becomes two that are the same. */
static berth_status widen(struct htensor **w, berth_err *err)
{
    struct htensor *o;
    size_t n = dim(*w, 2);
    if (dim(*w, 1) != 1)
        return BERTH_OK;
    if (wave_new(dim(*w, 0), 2, n, &o, err))
        return err->code;
    for (size_t i = 0; n && i < 2 * dim(*w, 0); i++)
        memcpy(o->data + i * n, (*w)->data + i / 2 * n, n * sizeof(float));
    htensor_unref(*w);
    *w = o;
    return BERTH_OK;
}

static berth_status concat_run(struct node_call *c, berth_err *err)
{
    const struct audio *a, *b;
    const char *direction;
    struct two t;
    struct htensor *o = NULL;
    berth_status s = in_text(c, "direction", &direction, err);
    if (s || !both(c, "audio1", "audio2", &a, &b, &s, err))
        return s;
    if (match_rates(a, b, &t, err))
        return err->code;
    if (same_batch(&t, err) || widen(&t.a, err) || widen(&t.b, err))
        s = err->code;
    else if (dim(t.a, 1) != dim(t.b, 1))
        s = err_set(err, BERTH_EINVAL, "sounds of %zu and %zu channels", dim(t.a, 1), dim(t.b, 1));
    bool before = !strcmp(direction, "before");
    const struct htensor *x = before ? t.b : t.a, *y = before ? t.a : t.b;
    size_t nx = dim(x, 2), ny = dim(y, 2), rows = dim(x, 0) * dim(x, 1);
    if (!s)
        s = wave_new(dim(x, 0), dim(x, 1), nx + ny, &o, err);
    for (size_t i = 0; !s && i < rows; i++) {
        if (nx)
            memcpy(o->data + i * (nx + ny), x->data + i * nx, nx * sizeof(float));
        if (ny)
            memcpy(o->data + i * (nx + ny) + nx, y->data + i * ny, ny * sizeof(float));
    }
    uint32_t rate = t.rate;
    two_release(&t);
    return out_audio(c, 0, s, o, rate, err);
}

AUDIO_NODE(AudioConcat, .description = "One sound behind the other, or before it.",
           INS(SOCKET("audio1", "AUDIO"), SOCKET("audio2", "AUDIO"),
               COMBO_IN("direction", CHOICES("after", "before"), .sdef = "after")),
           OUT_OF("AUDIO"), .run = concat_run);

static float merged(float x, float y, char how)
{
    return how == 'a' ? x + y : how == 's' ? x - y : how == 'u' ? x * y : (x + y) / 2;
}

/* One item counts for each of a batch, one channel for each of several. What is above 1 makes
 * everything softer. */
static void merge(const struct htensor *x, const struct htensor *y, char how, struct htensor *o)
{
    size_t c = dim(o, 1), n = dim(o, 2), m = dim(y, 2);
    float most = 0;
    for (size_t i = 0; i < dim(o, 0) * c; i++) {
        size_t item = i / c, k = i % c;
        const float *from = x->data + (item % dim(x, 0) * dim(x, 1) + k % dim(x, 1)) * n;
        const float *other = y->data + (item % dim(y, 0) * dim(y, 1) + k % dim(y, 1)) * m;
        for (size_t at = 0; at < n; at++) {
            float v = merged(from[at], at < m ? other[at] : 0, how);
            o->data[i * n + at] = v;
            most = fabsf(v) > most ? fabsf(v) : most;
        }
    }
    for (size_t i = 0; most > 1 && i < htensor_count(o); i++)
        o->data[i] /= most;
}

/* The longer of two that are the same, or of which one is 1; 0: they do not fit. */
static size_t together(size_t a, size_t b)
{
    return a == b || b == 1 ? a : a == 1 ? b : 0;
}

static berth_status merge_run(struct node_call *c, berth_err *err)
{
    const struct audio *a, *b;
    const char *method;
    struct two t;
    struct htensor *o = NULL;
    berth_status s = in_text(c, "merge_method", &method, err);
    if (s || !both(c, "audio1", "audio2", &a, &b, &s, err))
        return s;
    if (match_rates(a, b, &t, err))
        return err->code;
    size_t n = dim(t.a, 2), items = together(dim(t.a, 0), dim(t.b, 0));
    size_t channels = together(dim(t.a, 1), dim(t.b, 1));
    uint32_t rate = t.rate;
    if (!n || !dim(t.b, 2)) {
        o = htensor_ref(t.a);
    } else if (!channels) {
        s = err_set(err, BERTH_EINVAL, "sounds of %zu and %zu channels", dim(t.a, 1), dim(t.b, 1));
    } else if (!items) {
        s = same_batch(&t, err);
    } else if (!(s = wave_new(items, channels, n, &o, err))) {
        merge(t.a, t.b, !strcmp(method, "multiply") ? 'u' : *method, o);
    }
    two_release(&t);
    return out_audio(c, 0, s, o, rate, err);
}

AUDIO_NODE(AudioMerge, .description = "Two sounds at once.",
           INS(SOCKET("audio1", "AUDIO"), SOCKET("audio2", "AUDIO"),
               COMBO_IN("merge_method", CHOICES("add", "mean", "subtract", "multiply"))),
           OUT_OF("AUDIO"), .run = merge_run);

static berth_status volume_run(struct node_call *c, berth_err *err)
{
    const struct audio *a;
    struct htensor *o = NULL;
    int64_t db;
    if (in_audio(c, "audio", &a, err) || in_i64(c, "volume", &db, err))
        return err->code;
    if (!a || !db)
        return pass(c, "audio", err);
    float gain = (float)pow(10, (double)db / 20);
    berth_status s = htensor_copy(a->wave, &o, err);
    for (size_t i = 0; !s && i < htensor_count(o); i++)
        o->data[i] *= gain;
    return out_audio(c, 0, s, o, a->rate, err);
}

AUDIO_NODE(AudioAdjustVolume, .description = "Louder or softer, in decibels.",
           INS(SOCKET("audio", "AUDIO"), INT_IN("volume", 1, -100, 100, 0)), OUT_OF("AUDIO"),
           .run = volume_run);

/* ---- AudioEqualizer3Band ---- */

struct biquad { /* as torchaudio computes it: in float32, which the lowest tones show */
    float b[3], a[3];
};

static void filter(const struct biquad *q, struct htensor *t)
{
    size_t n = dim(t, 2);
    float b[3], a[3];
    for (int i = 0; i < 3; i++) {
        b[i] = q->b[i] / q->a[0];
        a[i] = q->a[i] / q->a[0];
    }
    for (size_t r = 0; r < dim(t, 0) * dim(t, 1); r++) {
        float *x = t->data + r * n, x1 = 0, x2 = 0, y1 = 0, y2 = 0;
        for (size_t i = 0; i < n; i++) {
            float v = b[2] * x2 + b[1] * x1 + b[0] * x[i];
            v -= a[2] * y2;
            v -= a[1] * y1;
            x2 = x1;
            x1 = x[i];
            y2 = y1;
            y1 = v;
            x[i] = v < -1 ? -1 : v > 1 ? 1 : v;
        }
    }
}

/* The audio equaliser cookbook's filters; high: 1, low: -1. */
static struct biquad shelf(double gain, double freq, double rate, float high)
{
    float w = (float)(2 * M_PI) * (float)freq / (float)rate;
    float A = expf((float)gain / 40 * (float)log(10)), alpha = sinf(w) / 2 / 0.707f;
    float t = 2 * sqrtf(A) * alpha, less = (A - 1) * cosf(w), more = (A + 1) * cosf(w);
    return (struct biquad) {
        { A * ((A + 1) + high * less + t), -2 * high * A * ((A - 1) + high * more),
          A * ((A + 1) + high * less - t) },
        { (A + 1) - high * less + t, 2 * high * ((A - 1) - high * more), (A + 1) - high * less - t }
    };
}

static struct biquad peak(double gain, double freq, double rate, double q)
{
    float w = (float)(2 * M_PI) * (float)freq / (float)rate;
    float A = expf((float)gain / 40 * (float)log(10)), alpha = sinf(w) / 2 / (float)q;
    return (struct biquad) { { 1 + alpha * A, -2 * cosf(w), 1 - alpha * A },
                             { 1 + alpha / A, -2 * cosf(w), 1 - alpha / A } };
}

static berth_status equalizer_run(struct node_call *c, berth_err *err)
{
    const struct audio *a;
    struct htensor *o = NULL;
    double low, mid, high, q;
    int64_t low_freq, mid_freq, high_freq;
    if (in_audio(c, "audio", &a, err) || in_f64(c, "low_gain_dB", &low, err) ||
        in_i64(c, "low_freq", &low_freq, err) || in_f64(c, "mid_gain_dB", &mid, err) ||
        in_i64(c, "mid_freq", &mid_freq, err) || in_f64(c, "mid_q", &q, err) ||
        in_f64(c, "high_gain_dB", &high, err) || in_i64(c, "high_freq", &high_freq, err))
        return err->code;
    if (!a || !dim(a->wave, 2))
        return pass(c, "audio", err);
    if (q == 0)
        return err_set(err, BERTH_EINVAL, "a band of quality 0");
    const struct biquad band[] = { shelf(low, (double)low_freq, a->rate, -1),
                                   peak(mid, (double)mid_freq, a->rate, q),
                                   shelf(high, (double)high_freq, a->rate, 1) };
    berth_status s = htensor_copy(a->wave, &o, err);
    for (int i = 0; !s && i < 3; i++)
        if ((double[]) { low, mid, high }[i] != 0)
            filter(&band[i], o);
    return out_audio(c, 0, s, o, a->rate, err);
}

NODE_CLASS(AudioEqualizer3Band, .category = "audio", .module = MOD("audio"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("audio", "AUDIO"), FLOAT_IN("low_gain_dB", 0.0, -24.0, 24.0, 0.1),
               INT_IN("low_freq", 100, 20, 500, 0), FLOAT_IN("mid_gain_dB", 0.0, -24.0, 24.0, 0.1),
               INT_IN("mid_freq", 1000, 200, 4000, 0), FLOAT_IN("mid_q", 0.707, 0.1, 10.0, 0.1),
               FLOAT_IN("high_gain_dB", 0.0, -24.0, 24.0, 0.1),
               INT_IN("high_freq", 5000, 1000, 15000, 0)),
           OUT_OF("AUDIO"), .run = equalizer_run);
