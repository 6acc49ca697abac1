/* The doors of encoders of pictures; pixels and patches on the host. */
#include "model/vision.h"

#include "base/arena.h"
#include "op/resize.h"

#include <math.h>
#include <string.h>

#define COLOURS 3

static const struct vision_class *const all[] = {
#define VISION(x) &vision_##x,
#include "model/visions.def"
#undef VISION
};

const struct vision_class *vision_at(const struct weights *w, const char *part)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i]->arch.detect(w, part ? part : ""))
            return all[i];
    return NULL;
}

static berth_status configure(const struct vision_class *is, const struct weights *w,
                              const char *root, struct vision_net *out, berth_err *err)
{
    *out = (struct vision_net) { .is = is };
    return is->config(w, root, out, err);
}

berth_status vision_find(const struct weights *w, const char *part, struct vision_net *out,
                         berth_err *err)
{
    const struct vision_class *is = vision_at(w, part);
    if (!is)
        return err_set(err, BERTH_EUNSUPPORTED, "'%.120s' holds no encoder of pictures",
                       weights_path(w));
    return configure(is, w, part ? part : "", out, err) ? err_add(err, "'%.120s'", weights_path(w))
                                                        : BERTH_OK;
}

berth_status vision_trace(const struct arch *arch, const struct weights *w, const char *root,
                          struct block_trace *out, berth_err *err)
{
    const struct vision_class *is = (const struct vision_class *)arch; /* its first member */
    struct vision_net v;
    struct vision_pass pass = { .net = &v };
    struct net *net;
    uint64_t peak;
    if (configure(is, w, root, &v, err))
        return err->code;
    const struct net_trace_args args = {
        .w = w, .root = root, .names = is->names, .names_user = &v, .out = out
    };
    if (net_trace_open(&args, &net, err))
        return err->code;
    berth_status s = net_predict(net, is->forward, &pass, &peak, err);
    net_close(net);
    return s;
}

/* A dry run says what is missing before anything is computed. */
berth_status vision_open(const struct net_args *a, const char *part, struct vision_net *v,
                         struct net **out, berth_err *err)
{
    struct net_args args = *a;
    struct vision_pass pass = { .net = v };
    const char *first;
    uint64_t peak;
    *out = NULL;
    if (vision_find(res_weights(a->m), part, v, err))
        return err->code;
    args.root = part ? part : "";
    args.names = v->is->names;
    args.names_user = v;
    if (net_open(&args, out, err))
        return err->code;
    if (net_predict(*out, v->is->forward, &pass, &peak, err)) {
        net_close(*out);
        *out = NULL;
        return err->code;
    }
    net_unused(*out, &first);
    return BERTH_OK;
}

/* ---- pixels ---- */

struct target { /* what a picture is resized to, and where the square begins in it */
    size_t h, w, y, x;
};

/* Halves to even, as Python rounds. */
static struct target target_of(const struct vision_net *v, const struct vision_job *j)
{
    const size_t side = v->side, least = j->h < j->w ? j->h : j->w;
    const double scale = (double)side / (double)least;
    struct target t = { .h = side, .w = side };
    if (j->crop) {
        t.h = (size_t)nearbyint(scale * (double)j->h);
        t.w = (size_t)nearbyint(scale * (double)j->w);
    }
    t.y = (t.h - side) / 2;
    t.x = (t.w - side) / 2;
    return t;
}

/* Picture i, its first three channels side by side. */
static const float *colours_of(const struct vision_job *j, size_t i, struct arena *mem)
{
    const size_t n = j->h * j->w;
    const float *from = j->image + i * n * j->c;
    float *to = j->c == COLOURS ? NULL : arena_array(mem, n, COLOURS * sizeof *to);
    for (size_t k = 0; to && k < n * COLOURS; k++)
        to[k] = from[k / COLOURS * j->c + k % COLOURS];
    return j->c == COLOURS ? from : to;
}

static void normalise(const struct vision_net *v, const float *from, const struct target *t,
                      float *out)
{
    const size_t side = v->side;
    for (size_t c = 0; c < COLOURS; c++)
        for (size_t y = 0; y < side; y++)
            for (size_t x = 0; x < side; x++) {
                float p = 255.0f * from[((t->y + y) * t->w + t->x + x) * COLOURS + c];
                p = nearbyintf(p < 0 ? 0 : p > 255 ? 255 : p) / 255.0f;
                *out++ = (p - v->mean[c]) / v->std[c];
            }
}

berth_status vision_pixels(const struct vision_net *v, const struct vision_job *j, size_t i,
                           float *out, berth_err *err)
{
    struct arena mem = { 0 };
    struct target t = { .h = v->side, .w = v->side };
    if (!j->h || !j->w || j->c < COLOURS)
        return err_set(err, BERTH_EINVAL, "a picture of %zu x %zu with %zu channels", j->w, j->h,
                       j->c);
    const float *from = colours_of(j, i, &mem);
    berth_status s = from ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a picture");
    if (!s && (j->h != v->side || j->w != v->side)) {
        t = target_of(v, j);
        const struct resize_shape shape = { 1, j->h, j->w, COLOURS, t.h, t.w };
        float *to = t.h <= SIZE_MAX / sizeof *to / COLOURS / t.w
                        ? arena_array(&mem, t.h * t.w, COLOURS * sizeof *to)
                        : NULL;
        s = to ? op_resize(RESIZE_ANTIALIAS, &shape, from, to, j->pool, j->cancel, err)
               : err_set(err, BERTH_ENOMEM, "a picture of %zu x %zu", t.w, t.h);
        from = to;
    }
    if (!s)
        normalise(v, from, &t, out);
    arena_release(&mem);
    return s;
}

/* ---- passes ---- */

/* [patches, 3 * patch * patch] of pixels [3, side, side]; what fills no patch is left out. */
static void cut(const struct vision_net *v, const float *pixels, float *out)
{
    const size_t side = v->side, p = v->patch, n = side / p;
    for (size_t i = 0; i < n * n; i++)
        for (size_t c = 0; c < COLOURS; c++)
            for (size_t y = 0; y < p; y++, out += p)
                memcpy(out, pixels + (c * side + i / n * p + y) * side + i % n * p,
                       p * sizeof *out);
}

static float *item(float *of, size_t i, uint64_t rows, uint64_t width)
{
    return of ? of + i * (size_t)(rows * width) : NULL;
}

berth_status vision_see(struct net *net, const struct vision_net *v, const struct vision_job *j,
                        berth_err *err)
{
    struct arena mem = { 0 };
    const size_t square = COLOURS * (size_t)v->side * v->side;
    float *pixels = arena_array(&mem, square, sizeof *pixels);
    float *patches = arena_array(&mem, square, sizeof *patches);
    int32_t *number = arena_array(&mem, (size_t)v->tokens, sizeof *number);
    berth_status s = pixels && patches && number
                         ? BERTH_OK
                         : err_set(err, BERTH_ENOMEM, "a square of %u pixels", v->side);
    for (size_t i = 0; !s && i < (size_t)v->tokens; i++)
        number[i] = (int32_t)i;
    for (size_t i = 0; !s && i < j->n; i++) {
        struct vision_pass pass = { .net = v,
                                    .patches = patches,
                                    .number = number,
                                    .last = item(j->last, i, v->tokens, v->width),
                                    .penultimate = item(j->penultimate, i, v->tokens, v->width),
                                    .mid = item(j->mid, i, v->tokens, v->width),
                                    .low = item(j->low, i, v->tokens, v->width),
                                    .embeds = item(j->embeds, i, v->embeds_rows, v->embeds_width),
                                    .projected = item(j->projected, i, v->projected_rows,
                                                      v->projected_width) };
        if ((s = vision_pixels(v, j, i, pixels, err)))
            break;
        cut(v, pixels, patches);
        s = net_forward(net, v->is->forward, &pass, err);
    }
    arena_release(&mem);
    return s;
}
