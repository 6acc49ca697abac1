/* vae: between pictures and latents. */
#include "node/compute.h"

#include <math.h>
#include <string.h>

/* ---- both ways ---- */

struct tiling { /* 0: whole */
    size_t tile, overlap;
    size_t frames, overlap_t; /* of video: latent ones */
};

struct work { /* stays where it is: the job's user */
    struct node_call *c;
    struct vae_job job;
    bool told; /* that tiles nobody asked for are used */
};

/* Under the node, while it works, behind its first step: what comes before that is about loading.
 * Afterwards the history says so. */
static void tell_tiles(struct work *k)
{
    char text[80];
    int n = snprintf(text, sizeof text, "in %zu tiles for want of memory", k->job.tiles);
    k->told = true;
    if (n > 0)
        call_text(k->c, text, (size_t)n);
}

static berth_status tell_piece(void *user, size_t done, size_t total, berth_err *err)
{
    struct work *k = user;
    berth_status s = call_progress(k->c, (double)done, (double)total, err);
    if (!s && k->job.tiled && !k->told)
        tell_tiles(k);
    return s;
}

static void work_init(struct work *k, struct node_call *c, struct ready_vae *v, struct tiling t)
{
    *k = (struct work) { .c = c,
                         .job = { .net = v->net,
                                  .vae = &v->vae,
                                  .log = c->env->log,
                                  .step = tell_piece,
                                  .user = k,
                                  .tile_x = t.tile,
                                  .tile_y = t.tile,
                                  .overlap = t.overlap,
                                  .tile_t = t.frames,
                                  .overlap_t = t.overlap_t } };
}

/* What the run took: for the history, and for those who look into the log. */
static void report(struct node_call *c, struct ready_vae *v, const char *what,
                   const struct vae_job *j)
{
    struct net_report r = net_report(v->net);
    v->what = what;
    v->tiles = j->tiled ? j->tiles : v->tiles;
    r.rungs += v->rungs;
    log_info(c->env->log, "node.vae",
             "node=%s device=%s predicted=%llu peak=%llu passes=%llu rungs=%llu tiled=%s", c->id,
             r.device, (unsigned long long)r.largest_predicted, (unsigned long long)r.largest,
             (unsigned long long)r.passes, (unsigned long long)r.rungs,
             j->tiled    ? "for want of memory"
             : j->tile_x ? "as asked"
                         : "no");
}

/* What one pass will take; told before it begins, as sampling does. A pass that cannot be says so
 * itself. */
static void tell_peak(struct node_call *c, struct ready_vae *v, struct vae_job *j, bool decodes,
                      const struct shape *s)
{
    uint64_t peak;
    berth_err unread = { 0 };
    if (!vae_predict(j, decodes, s, &peak, &unread))
        ready_tell_peak(c, v->m, decodes ? "decode" : "encode", (size_t)s->dim[0], peak);
}

/* Pictures [n, h, w, 3] of latents, of the first of several; of video all frames, one video after
 * the other. */
static berth_status decode(struct node_call *c, struct ready_vae *v, const struct latent *l,
                           struct tiling t, struct htensor **out, berth_err *err)
{
    const struct htensor *z = l->samples;
    char text[SHAPE_TEXT_MAX];
    const struct latent_format *f = &v->vae.latent;
    if (!latent_is(f, &z->shape))
        return err_set(err, BERTH_EINVAL,
                       "a latent %s; '%.80s' is a VAE of %s and decodes [n, %u, %sh, w]",
                       shape_text(&z->shape, text), res_info(v->m).name, f->name, f->channels,
                       f->rank == 3 ? "t, " : "");
    size_t h = (size_t)shape_last(&z->shape, 2), w = (size_t)shape_last(&z->shape, 1);
    if (h > SIDE_MAX || w > SIDE_MAX)
        return err_set(err, BERTH_ELIMIT, "a latent of %zux%zu", w, h);
    const struct shape made = vae_decoded(&v->vae, &z->shape);
    size_t frames = (size_t)(made.dim[0] * (f->rank == 3 ? made.dim[2] : 1));
    berth_status s = image_tensor(frames, h * f->ratio, w * f->ratio, v->vae.colours, out, err);
    struct work k;
    work_init(&k, c, v, t);
    if (!s)
        tell_peak(c, v, &k.job, true, &z->shape);
    if (!s)
        s = vae_decode_image(&k.job, z->data, &z->shape, (*out)->data, err);
    v->rungs += k.job.rungs;
    if (s)
        return err_add(err, "decoding with '%.80s'", res_info(v->m).name);
    report(c, v, "decode", &k.job);
    return BERTH_OK;
}

/* A latent of each picture; a VAE of video takes all of them for the frames of one. */
static berth_status encode(struct node_call *c, struct ready_vae *v, const struct htensor *image,
                           struct tiling t, struct htensor **out, berth_err *err)
{
    size_t n = dim(image, 0), h = dim(image, 1), w = dim(image, 2), ch = dim(image, 3);
    const struct shape video = { 5, { 1, n, h, w, ch } };
    const struct shape *from = v->vae.latent.rank == 3 ? &video : &image->shape;
    const struct shape pictures = vae_pictures(&v->vae, from);
    const struct shape latents = vae_encoded(&v->vae, &pictures);
    if (ch < 3)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels; a VAE encodes 3", ch);
    if (!shape_last(&latents, 2) || !shape_last(&latents, 1))
        return err_set(err, BERTH_EINVAL, "a picture of %zux%zu is smaller than a latent pixel", w,
                       h);
    berth_status st = htensor_new(&latents, out, err);
    struct work k;
    work_init(&k, c, v, t);
    if (!st)
        tell_peak(c, v, &k.job, false, &pictures);
    if (!st)
        st = vae_encode_image(&k.job, image->data, from, (*out)->data, err);
    v->rungs += k.job.rungs;
    if (st)
        return err_add(err, "encoding with '%.80s'", res_info(v->m).name);
    report(c, v, "encode", &k.job);
    return BERTH_OK;
}

static berth_status in_vae(struct node_call *c, struct ready_vae *out, berth_err *err)
{
    const struct model_ref *ref;
    return in_model(c, "vae", &ref, err) ? err->code : ready_vae(c, ref, out, err);
}

berth_status encode_picture(struct node_call *c, const struct model_ref *vae,
                            const struct htensor *image, struct htensor **out, berth_err *err)
{
    struct ready_vae v = { 0 };
    *out = NULL;
    if (ready_vae(c, vae, &v, err))
        return err->code;
    berth_status s = encode(c, &v, image, (struct tiling) { 0 }, out, err);
    ready_vae_release(&v);
    return htensor_made(s, out);
}

/* ---- latents to pictures ---- */

/* t: in pixels, and in frames of pixels. */
static berth_status give_decoded(struct node_call *c, struct tiling t, berth_err *err)
{
    const struct latent *l;
    struct ready_vae v = { 0 };
    struct htensor *image = NULL;
    if (in_latents(c, "samples", &l, err) || in_vae(c, &v, err))
        return err->code;
    const size_t by = v.vae.latent.time_ratio;
    t.tile /= v.vae.latent.ratio;
    t.overlap /= v.vae.latent.ratio;
    if (t.frames && by) {
        t.frames = t.frames / by > 2 ? t.frames / by : 2;
        t.overlap_t = t.overlap_t / by < t.frames / 2 ? t.overlap_t / by : t.frames / 2;
        t.overlap_t = t.overlap_t ? t.overlap_t : 1;
    }
    berth_status s = decode(c, &v, l, t, &image, err);
    ready_vae_release(&v);
    if (!s)
        return out_tensor(c, 0, image, err);
    htensor_unref(image);
    return s;
}

static berth_status run_decode(struct node_call *c, berth_err *err)
{
    return give_decoded(c, (struct tiling) { 0 }, err);
}

NODE_CLASS(VAEDecode, .display = "VAE Decode", .category = "latent", .module = "nodes",
           INS(SOCKET("samples", "LATENT"), SOCKET("vae", "VAE")), OUT_OF("IMAGE"),
           .run = run_decode);

/* A link may bring what validation would have refused. */
static berth_status in_tiles(struct node_call *c, uint64_t *tile, uint64_t *overlap, berth_err *err)
{
    berth_status s = in_u64(c, "tile_size", tile, err);
    if (!s)
        s = in_u64(c, "overlap", overlap, err);
    if (!s && (*tile < 64 || *tile > 4096 || *overlap > 4096))
        s = err_set(err, BERTH_EINVAL, "tiles of %llu pixels that overlap by %llu",
                    (unsigned long long)*tile, (unsigned long long)*overlap);
    return s;
}

static berth_status run_decode_tiled(struct node_call *c, berth_err *err)
{
    uint64_t tile, overlap, frames, shared;
    berth_status s = in_tiles(c, &tile, &overlap, err);
    if (!s)
        s = in_u64(c, "temporal_size", &frames, err);
    if (!s)
        s = in_u64(c, "temporal_overlap", &shared, err);
    if (!s && (frames < 8 || frames > 4096 || shared < 4 || shared > 4096))
        s = err_set(err, BERTH_EINVAL, "tiles of %llu frames that overlap by %llu",
                    (unsigned long long)frames, (unsigned long long)shared);
    if (!s && tile < overlap * 4)
        overlap = tile / 4;
    if (!s && frames < shared * 2)
        shared /= 2;
    return s ? s : give_decoded(c, (struct tiling) { tile, overlap, frames, shared }, err);
}

NODE_CLASS(VAEDecodeTiled, .display = "VAE Decode (Tiled)", .category = "_for_testing",
           .module = "nodes",
           INS(SOCKET("samples", "LATENT"), SOCKET("vae", "VAE"),
               INT_IN("tile_size", 512, 64, 4096, 32), INT_IN("overlap", 64, 0, 4096, 32),
               INT_IN("temporal_size", 64, 8, 4096, 4), INT_IN("temporal_overlap", 8, 4, 4096, 4)),
           OUT_OF("IMAGE"), .run = run_decode_tiled);

/* ---- pictures to latents ---- */

static berth_status give_encoded(struct node_call *c, struct tiling t, berth_err *err)
{
    struct htensor *image;
    struct ready_vae v = { 0 };
    struct latent out = { 0 };
    if (in_image(c, "pixels", &image, err) || in_vae(c, &v, err))
        return err->code;
    berth_status s = encode(c, &v, image, t, &out.samples, err);
    ready_vae_release(&v);
    return give_or_release(c, s, &out, err);
}

static berth_status run_vae_encode(struct node_call *c, berth_err *err)
{
    return give_encoded(c, (struct tiling) { 0 }, err);
}

NODE_CLASS(VAEEncode, .display = "VAE Encode", .category = "latent", .module = "nodes",
           INS(SOCKET("pixels", "IMAGE"), SOCKET("vae", "VAE")), OUT_OF("LATENT"),
           .run = run_vae_encode);

static berth_status run_encode_tiled(struct node_call *c, berth_err *err)
{
    uint64_t tile, overlap;
    berth_status s = in_tiles(c, &tile, &overlap, err);
    if (!s && overlap >= tile)
        s = err_set(err, BERTH_EINVAL, "tiles of %llu pixels cannot overlap by %llu",
                    (unsigned long long)tile, (unsigned long long)overlap);
    return s ? s : give_encoded(c, (struct tiling) { .tile = tile, .overlap = overlap }, err);
}

NODE_CLASS(VAEEncodeTiled, .display = "VAE Encode (Tiled)", .category = "_for_testing",
           .module = "nodes",
           INS(SOCKET("pixels", "IMAGE"), SOCKET("vae", "VAE"),
               INT_IN("tile_size", 512, 64, 4096, 64), INT_IN("overlap", 64, 0, 4096, 32),
               INT_IN("temporal_size", 64, 8, 4096, 4), INT_IN("temporal_overlap", 8, 4, 4096, 4)),
           OUT_OF("LATENT"), .run = run_encode_tiled);

/* ---- inpainting ---- */

/* Items [n, h, w] or [n, h, w, c] cut to the multiples of r in the middle. A new reference. */
static berth_status crop_to(struct htensor *t, size_t r, struct htensor **out, berth_err *err)
{
    size_t h = dim(t, 1), w = dim(t, 2), c = t->shape.ndim == 4 ? dim(t, 3) : 1;
    size_t y = h % r / 2, x = w % r / 2, oh = h / r * r, ow = w / r * r;
    struct shape s = t->shape;
    if (oh == h && ow == w) {
        *out = htensor_ref(t);
        return BERTH_OK;
    }
    s.dim[1] = oh;
    s.dim[2] = ow;
    berth_status st = htensor_new(&s, out, err);
    if (!st)
        copy_part(t->data, h, w, c, dim(t, 0), (struct part) { y, x, oh, ow }, (*out)->data);
    return st;
}

/* The pictures without what the mask will have painted: 0.5 where it rounds to 1. Both of one
 * size. */
static berth_status without_masked(const struct htensor *image, const struct htensor *mask,
                                   struct htensor **out, berth_err *err)
{
    size_t n = dim(image, 0), hw = dim(image, 1) * dim(image, 2), ch = dim(image, 3);
    if (dim(mask, 0) != 1 && dim(mask, 0) != n)
        return err_set(err, BERTH_EINVAL, "%zu masks for %zu pictures", dim(mask, 0), n);
    if (htensor_new(&image->shape, out, err))
        return err->code;
    for (size_t i = 0; i < n * hw; i++) {
        size_t item = dim(mask, 0) == 1 ? 0 : i / hw;
        float keep = 1.0f - nearbyintf(mask->data[item * hw + i % hw]);
        const float *p = image->data + i * ch;
        float *o = (*out)->data + i * ch;
        for (size_t k = 0; k < ch; k++)
            o[k] = k < 3 ? (p[k] - 0.5f) * keep + 0.5f : p[k];
    }
    return BERTH_OK;
}

/* Sums of g neighbours along one direction, from p before; `step` floats apart. In place over a row
 * copied to tmp. */
static void grow_line(float *at, size_t n, size_t step, size_t g, size_t p, float *tmp)
{
    for (size_t i = 0; i < n; i++)
        tmp[i] = at[i * step];
    for (size_t i = 0; i < n; i++) {
        size_t from = i > p ? i - p : 0, to = i + g - p < n ? i + g - p : n;
        float sum = 0;
        for (size_t k = from; k < to; k++)
            sum += tmp[k];
        at[i * step] = sum;
    }
}

/* The mask rounded, and grown by a square of g pixels; g 0: rounded alone. [n, 1, h, w]. */
static berth_status grow_mask(const struct htensor *mask, size_t g, struct htensor **out,
                              berth_err *err)
{
    size_t n = dim(mask, 0), h = dim(mask, 1), w = dim(mask, 2), p = g / 2; /* ceil((g - 1) / 2) */
    struct shape s = { .ndim = 4, .dim = { n, 1, h, w } };
    float *tmp = malloc((h > w ? h : w) * sizeof *tmp);
    berth_status st =
        tmp ? htensor_new(&s, out, err) : err_set(err, BERTH_ENOMEM, "a mask of %zux%zu", w, h);
    for (size_t i = 0; !st && i < n; i++) {
        float *plane = (*out)->data + i * h * w;
        for (size_t k = 0; k < h * w; k++)
            plane[k] = nearbyintf(mask->data[i * h * w + k]);
        for (size_t y = 0; g && y < h; y++)
            grow_line(plane + y * w, w, 1, g, p, tmp);
        for (size_t x = 0; g && x < w; x++)
            grow_line(plane + x, h, w, g, p, tmp);
        for (size_t k = 0; g && k < h * w; k++)
            plane[k] = plane[k] < 0 ? 0 : plane[k] > 1 ? 1 : plane[k];
    }
    free(tmp);
    return st;
}

struct inpaint { /* inputs pixels and mask, cut to what a latent covers; inpaint_release() */
    struct htensor *mask;   /* [n, h, w] */
    struct htensor *pixels; /* [n, h, w, c], masked */
};

static void inpaint_release(struct inpaint *x)
{
    htensor_unref(x->mask);
    htensor_unref(x->pixels);
    *x = (struct inpaint) { 0 };
}

static berth_status in_inpaint(struct node_call *c, size_t ratio, struct inpaint *out,
                               berth_err *err)
{
    struct htensor *image, *mask, *sized = NULL, *cut = NULL;
    *out = (struct inpaint) { 0 };
    if (in_image(c, "pixels", &image, err) || in_mask(c, "mask", &mask, err))
        return err->code;
    if (dim(image, 1) < ratio || dim(image, 2) < ratio)
        return err_set(err, BERTH_EINVAL, "a picture of %zux%zu is smaller than a latent pixel",
                       dim(image, 2), dim(image, 1));
    berth_status s =
        scale_planes(c, mask, dim(image, 2), dim(image, 1), "bilinear", false, &sized, err);
    if (!s && (crop_to(sized, ratio, &out->mask, err) || crop_to(image, ratio, &cut, err) ||
               without_masked(cut, out->mask, &out->pixels, err)))
        s = err->code;
    htensor_unref(sized);
    htensor_unref(cut);
    if (s)
        inpaint_release(out);
    return s;
}

static berth_status run_encode_inpaint(struct node_call *c, berth_err *err)
{
    uint64_t grow;
    struct ready_vae v = { 0 };
    struct inpaint x = { 0 };
    struct latent out = { 0 };
    berth_status s = in_u64(c, "grow_mask_by", &grow, err);
    if (!s && grow > 64)
        s = err_set(err, BERTH_EINVAL, "grow_mask_by is %llu, not 0 to 64",
                    (unsigned long long)grow);
    if (!s)
        s = in_vae(c, &v, err);
    if (s)
        return s;
    s = in_inpaint(c, v.vae.latent.ratio, &x, err);
    if (!s)
        s = encode(c, &v, x.pixels, (struct tiling) { 0 }, &out.samples, err);
    ready_vae_release(&v);
    if (!s)
        s = grow_mask(x.mask, grow, &out.noise_mask, err);
    inpaint_release(&x);
    return give_or_release(c, s, &out, err);
}

NODE_CLASS(VAEEncodeForInpaint, .display = "VAE Encode (for Inpainting)",
           .category = "latent/inpaint", .module = "nodes",
           INS(SOCKET("pixels", "IMAGE"), SOCKET("vae", "VAE"), SOCKET("mask", "MASK"),
               INT_IN("grow_mask_by", 6, 0, 64, 1)),
           OUT_OF("LATENT"), .run = run_encode_inpaint);

/* The conditioning of an input, with a picture to look at, as output i. mask NULL: none. */
static berth_status give_concat(struct node_call *c, const char *input, size_t i,
                                struct htensor *latent, struct htensor *mask, berth_err *err)
{
    const struct conditioning *in;
    struct conditioning *x;
    if (in_conditioning(c, input, &in, err) || conditioning_copy(in, &x, err))
        return err->code;
    for (size_t k = 0; k < x->n; k++) {
        struct cond_entry *e = &x->at[k];
        htensor_unref(e->concat_latent);
        htensor_unref(e->concat_mask);
        e->concat_latent = htensor_ref(latent);
        e->concat_mask = mask ? htensor_ref(mask) : NULL;
    }
    return out_conditioning(c, i, x, err);
}

static berth_status run_inpaint_model(struct node_call *c, berth_err *err)
{
    struct ready_vae v = { 0 };
    struct inpaint x = { 0 };
    struct htensor *image, *masked = NULL;
    struct latent out = { 0 };
    bool noise_mask;
    if (in_bool(c, "noise_mask", &noise_mask, err) || in_image(c, "pixels", &image, err) ||
        in_vae(c, &v, err))
        return err->code;
    berth_status s = in_inpaint(c, v.vae.latent.ratio, &x, err);
    if (!s && (encode(c, &v, x.pixels, (struct tiling) { 0 }, &masked, err) ||
               encode(c, &v, image, (struct tiling) { 0 }, &out.samples, err)))
        s = err->code;
    ready_vae_release(&v);
    if (!s && (give_concat(c, "positive", 0, masked, x.mask, err) ||
               give_concat(c, "negative", 1, masked, x.mask, err)))
        s = err->code;
    if (!s && noise_mask)
        out.noise_mask = htensor_ref(x.mask);
    if (!s)
        s = out_value(c, 2, value_latent(&out), err);
    latent_release(&out);
    htensor_unref(masked);
    inpaint_release(&x);
    return s;
}

NODE_CLASS(InpaintModelConditioning, .category = "conditioning/inpaint", .module = "nodes",
           INS(PAIR_IN, SOCKET("vae", "VAE"), SOCKET("pixels", "IMAGE"), SOCKET("mask", "MASK"),
               BOOL_IN("noise_mask", true)),
           OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" }), .run = run_inpaint_model);

/* ---- editing by instruction ---- */

static berth_status run_ip2p(struct node_call *c, berth_err *err)
{
    struct ready_vae v = { 0 };
    struct htensor *image, *seen = NULL;
    struct latent out = { 0 };
    if (in_image(c, "pixels", &image, err) || in_vae(c, &v, err))
        return err->code;
    berth_status s = encode(c, &v, image, (struct tiling) { 0 }, &seen, err);
    ready_vae_release(&v);
    if (!s && (give_concat(c, "positive", 0, seen, NULL, err) ||
               give_concat(c, "negative", 1, seen, NULL, err) ||
               htensor_zeros(&seen->shape, &out.samples, err) ||
               out_value(c, 2, value_latent(&out), err)))
        s = err->code;
    latent_release(&out);
    htensor_unref(seen);
    return s;
}

NODE_CLASS(InstructPixToPixConditioning, .category = "conditioning/instructpix2pix", V3("ip2p"),
           INS(PAIR_IN, SOCKET("vae", "VAE"), SOCKET("pixels", "IMAGE")),
           OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" }), .run = run_ip2p);
