/* unclip: pictures that a model is told of as an encoder sees them: noise is added to them, so that
 * the model takes them less literally (SD2.1 unCLIP; SDXL takes them as its pooled text). */
#include "node/compute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS 1000
#define BETA_MOST 0.999
#define SEED_BEFORE 10 /* the noise has another seed than the latent's */
#define PICTURES_MAX 4096

void unclip_release(struct cond_unclip *x)
{
    while (x && --x->counts == 0) {
        struct cond_unclip *before = x->before;
        htensor_unref(x->embeds);
        free(x);
        x = before;
    }
}

/* ---- the vector ---- */

/* What is left of the signal, in all, after part t of the steps. */
static double signal_left(double t)
{
    const double c = cos((t + 0.008) / 1.008 * M_PI / 2);
    return c * c;
}

/* The product of what every step up to this one leaves. */
static double kept(size_t level)
{
    double product = 1;
    for (size_t i = 0; i <= level; i++) {
        double beta = 1 - signal_left((double)(i + 1) / LEVELS) / signal_left((double)i / LEVELS);
        product *= 1 - (beta < BETA_MOST ? beta : BETA_MOST);
    }
    return product;
}

static berth_status level_embedding(size_t level, uint64_t width, float *out, berth_err *err)
{
    float number = (float)level;
    struct op_timestep a = { 0 };
    const struct shape ts = { 1, { 1 } }, ys = { 2, { 1, width } };
    if (view_init(DT_F32, &ts, &number, sizeof number, &a.t, err) ||
        view_init(DT_F32, &ys, out, (size_t)width * sizeof *out, &a.y, err))
        return err->code;
    return op_timestep(&(struct op_env) { .backend = NULL }, &a, err);
}

/* out [2 * n]: x with the noise of such a part of the steps, and the level of it. */
static berth_status add_noise(const float *x, uint64_t n, double part, struct torch_rng *rng,
                              float *out, berth_err *err)
{
    const size_t level = (size_t)nearbyint((LEVELS - 1) * part); /* halves to even, as Python */
    const double left = kept(level);
    const float signal = (float)sqrt(left), noise = (float)sqrt(1 - left);
    float *drawn = out + n; /* the embedding comes there afterwards */
    torch_randn(rng, drawn, (size_t)n);
    for (size_t i = 0; i < (size_t)n; i++)
        out[i] = signal * x[i] + noise * drawn[i];
    return level_embedding(level, n, out + n, err);
}

static size_t pictures(const struct cond_unclip *list)
{
    size_t n = 0;
    for (; list; list = list->before)
        n += dim(list->embeds, 0);
    return n;
}

/* sum += all pictures of the list from the first on, each with the same noise. */
static berth_status add_all(const struct cond_unclip *x, uint64_t n, struct torch_rng *rng,
                            uint64_t seed, float *one, float *sum, berth_err *err)
{
    if (!x)
        return BERTH_OK;
    if (add_all(x->before, n, rng, seed, one, sum, err))
        return err->code;
    if (x->embeds->shape.ndim != 2 || dim(x->embeds, 1) != n)
        return err_set(err, BERTH_EINVAL,
                       "the model is told of pictures in %llu values, this encoder gave %zu: it is "
                       "another model's",
                       (unsigned long long)n, dim(x->embeds, x->embeds->shape.ndim - 1));
    for (size_t i = 0; i < dim(x->embeds, 0); i++) {
        torch_seed(rng, seed);
        if (add_noise(x->embeds->data + i * n, n, x->noise, rng, one, err))
            return err->code;
        for (size_t k = 0; k < 2 * (size_t)n; k++)
            sum[k] += one[k] * (float)x->strength;
    }
    return BERTH_OK;
}

berth_status unclip_vector(const struct cond_unclip *list, const struct diffusion_info *info,
                           uint64_t seed, struct arena *mem, float **out, berth_err *err)
{
    const size_t n = (size_t)info->unclip;
    float *one = arena_array(mem, 4, n * sizeof *one), *sum = one ? one + 2 * n : NULL;
    struct torch_rng rng;
    if (!one)
        return err_set(err, BERTH_ENOMEM, "what a model is told of pictures");
    memset(sum, 0, 2 * n * sizeof *sum);
    if (add_all(list, n, &rng, seed - SEED_BEFORE, one, sum, err))
        return err->code;
    *out = sum;
    if (pictures(list) == 1)
        return BERTH_OK;
    *out = one; /* several: noise once more, which goes on where the last one's ended */
    return add_noise(sum, n, info->unclip_merge, &rng, one, err);
}

/* ---- unCLIPConditioning ---- */

static berth_status append(struct cond_unclip **list, const struct cond_unclip *what,
                           berth_err *err)
{
    if (pictures(*list) + dim(what->embeds, 0) > PICTURES_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %d pictures in a prompt", PICTURES_MAX);
    struct cond_unclip *x = malloc(sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a picture of a prompt");
    *x = *what;
    x->counts = 1;
    htensor_ref(x->embeds);
    x->before = *list;
    *list = x;
    return BERTH_OK;
}

static berth_status run_unclip(struct node_call *c, berth_err *err)
{
    const struct conditioning *in;
    const struct vision_output *seen;
    struct cond_unclip what = { 0 };
    struct conditioning *x;
    if (in_conditioning(c, "conditioning", &in, err) ||
        in_vision_output(c, "clip_vision_output", &seen, err) ||
        in_finite(c, "strength", &what.strength, err) ||
        in_finite(c, "noise_augmentation", &what.noise, err) || conditioning_copy(in, &x, err))
        return err->code;
    what.embeds = seen->embeds;
    berth_status s = BERTH_OK;
    if (!(what.noise >= 0 && what.noise <= 1))
        s = err_set(err, BERTH_EINVAL, "noise_augmentation is %g, not 0 to 1", what.noise);
    for (size_t i = 0; !s && what.strength != 0 && i < x->n; i++)
        s = append(&x->at[i].unclip, &what, err);
    if (s)
        conditioning_free(x);
    return s ? s : out_conditioning(c, 0, x, err);
}

NODE_CLASS(unCLIPConditioning, .category = "conditioning", .module = "nodes",
           INS(SOCKET("conditioning", "CONDITIONING"),
               SOCKET("clip_vision_output", "CLIP_VISION_OUTPUT"),
               FLOAT_IN("strength", 1.0, -10.0, 10.0, 0.01),
               FLOAT_IN("noise_augmentation", 0.0, 0.0, 1.0, 0.01)),
           OUT_OF("CONDITIONING"), .run = run_unclip);
