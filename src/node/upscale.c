/* upscale: pictures made larger by networks. */
#include "node/compute.h"

#include "model/upscaler.h"

struct work { /* stays where it is: the net looks at `up`, the job's user is this */
    struct node_call *c;
    struct res_model *m;
    struct upscaler_net up;
    struct net *net;
    struct upscaler_job job;
    size_t told; /* the side of tiles that was told */
};

/* Under the node, while it works, behind its first step: what comes before is about loading. */
static void tell_tiles(struct work *k)
{
    char text[80];
    int n = snprintf(text, sizeof text, "in tiles of %zu pixels for want of memory", k->job.tile);
    k->told = k->job.tile;
    if (n > 0)
        call_text(k->c, text, (size_t)n);
}

static berth_status tell_tile(void *user, size_t done, size_t total, berth_err *err)
{
    struct work *k = user;
    berth_status s = call_progress(k->c, (double)done, (double)total, err);
    if (!s && k->job.rungs && k->told != k->job.tile)
        tell_tiles(k);
    return s;
}

/* Loads and opens it. ComfyUI computes these in float32, whatever the file has. */
static berth_status work_open(struct work *k, struct node_call *c, const struct model_ref *ref,
                              berth_err *err)
{
    *k = (struct work) { .c = c };
    if (!ref->parts)
        return err_set(err, BERTH_EUNSUPPORTED, "this UPSCALE_MODEL has no weights");
    if (ready_load(c, ref, 0, err))
        return err->code;
    k->m = ref->part[0];
    const struct net_args args = { .res = c->env->res,
                                   .m = k->m,
                                   .pool = c->env->pool,
                                   .cancel = cancel_of(c),
                                   .log = c->env->log };
    if (upscaler_open(&args, res_info(k->m).part, &k->up, &k->net, err))
        return err->code;
    k->job = (struct upscaler_job) {
        .net = k->net, .up = &k->up, .log = c->env->log, .step = tell_tile, .user = k
    };
    return BERTH_OK;
}

static void work_close(struct work *k)
{
    if (k->net) {
        struct net_report r = net_report(k->net);
        r.rungs += k->job.rungs;
        log_info(k->c->env->log, "node.upscale",
                 "node=%s device=%s predicted=%llu peak=%llu passes=%llu rungs=%llu tile=%zu",
                 k->c->id, r.device, (unsigned long long)r.largest_predicted,
                 (unsigned long long)r.largest, (unsigned long long)r.passes,
                 (unsigned long long)r.rungs, k->job.tile);
        ready_done(k->c, k->m, "upscale", &r);
    }
    net_close(k->net);
}

/* A pass that cannot be says so itself. */
static void tell_peak(struct work *k, const struct shape *s)
{
    uint64_t peak;
    berth_err unread = { 0 };
    if (!upscaler_predict(&k->job, s, &peak, &unread))
        ready_tell_peak(k->c, k->m, "upscale", (size_t)s->dim[0], peak);
}

static berth_status upscale(struct work *k, const struct htensor *image, struct htensor **out,
                            berth_err *err)
{
    const size_t h = dim(image, 1), w = dim(image, 2), scale = k->up.scale;
    if (dim(image, 3) != UPSCALE_COLOURS)
        return err_set(err, BERTH_EINVAL,
                       "a picture of %zu channels; upscale models take %d: SplitImageWithAlpha "
                       "takes the others off",
                       dim(image, 3), UPSCALE_COLOURS);
    if (h > SIDE_MAX / scale || w > SIDE_MAX / scale)
        return err_set(err, BERTH_ELIMIT, "a picture of %zux%zu, made %zu times as large", w, h,
                       scale);
    if (image_tensor(dim(image, 0), h * scale, w * scale, UPSCALE_COLOURS, out, err))
        return err->code;
    tell_peak(k, &image->shape);
    return upscaler_image(&k->job, image->data, &image->shape, (*out)->data, err);
}

static berth_status run(struct node_call *c, berth_err *err)
{
    const struct model_ref *ref;
    struct htensor *image, *out = NULL;
    struct work k;
    if (in_model(c, "upscale_model", &ref, err) || in_image(c, "image", &image, err))
        return err->code;
    berth_status s = work_open(&k, c, ref, err);
    if (!s)
        s = upscale(&k, image, &out, err);
    work_close(&k);
    if (!s)
        return out_tensor(c, 0, out, err);
    htensor_unref(out);
    return err_add(err, "upscaling with '%.80s'", ready_name(ref));
}

NODE_CLASS(ImageUpscaleWithModel, .display = "Upscale Image (using Model)",
           .category = "image/upscaling", .module = "comfy_extras.nodes_upscale_model",
           .flags = NODE_V3,
           INS(SOCKET("upscale_model", "UPSCALE_MODEL"), SOCKET("image", "IMAGE")), OUT_OF("IMAGE"),
           .run = run);
