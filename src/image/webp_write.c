/* WebP, written: still and animated, through libwebp, with the settings that Pillow gives it. */
#include "image/image_impl.h"

#include <webp/encode.h>
#include <webp/mux.h>

#define METHOD_DEFAULT 4
#define SIDE_MAX 16383 /* WEBP_MAX_DIMENSION */

struct settings {
    int quality, method; /* 0..100, 0..6 */
    bool lossless;
    const atomic_bool *cancel; /* may be NULL */
};

static berth_status failed(int code, const struct image *im, berth_err *err)
{
    bool memory = code == VP8_ENC_ERROR_OUT_OF_MEMORY || code == VP8_ENC_ERROR_BAD_WRITE ||
                  code == VP8_ENC_ERROR_BITSTREAM_OUT_OF_MEMORY;
    return err_set_at(err, __FILE__, __LINE__, memory ? BERTH_ENOMEM : BERTH_EINVAL, code,
                      "a WebP of %u x %u: libwebp error %d", im->w, im->h, code);
}

static berth_status config(const struct image *im, const struct settings *a, WebPConfig *c,
                           berth_err *err)
{
    if (im->w > SIDE_MAX || im->h > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "%u x %u: a side of a WebP has at most %d pixels", im->w,
                       im->h, SIDE_MAX);
    if (!WebPConfigInit(c))
        return err_set(err, BERTH_EUNSUPPORTED, "another version of libwebp");
    c->lossless = a->lossless;
    c->quality = (float)a->quality;
    c->method = a->method;
    if (!WebPValidateConfig(c))
        return err_set(err, BERTH_EINVAL, "quality %d, method %d", a->quality, a->method);
    return BERTH_OK;
}

/* pic: initialised; to be released with WebPPictureFree(), also after an error. */
static berth_status import(const struct image *im, WebPPicture *pic, berth_err *err)
{
    struct image rgb = { 0 };
    pic->use_argb = 1;
    pic->width = (int)im->w;
    pic->height = (int)im->h;
    if (im->channels == 1) { /* WebP has no grey */
        berth_status s = image_convert(im, 3, &rgb, err);
        if (s)
            return s;
        im = &rgb;
    }
    int stride = (int)(im->w * im->channels);
    bool ok = im->channels == 4 ? WebPPictureImportRGBA(pic, im->px, stride)
                                : WebPPictureImportRGB(pic, im->px, stride);
    berth_status s = ok ? BERTH_OK : failed((int)pic->error_code, im, err);
    image_release(&rgb);
    return s;
}

static int on_write(const uint8_t *p, size_t n, const WebPPicture *pic)
{
    struct str *out = pic->custom_ptr;
    str_add(out, (const char *)p, n);
    return !out->bad;
}

static int on_progress(int percent, const WebPPicture *pic)
{
    berth_err err;
    (void)percent;
    return !image_check(pic->user_data, &err);
}

static berth_status still(const struct image *im, const struct settings *a, struct str *out,
                          berth_err *err)
{
    WebPConfig c;
    WebPPicture pic;
    berth_status s = config(im, a, &c, err);
    if (s)
        return s;
    if (!WebPPictureInit(&pic))
        return err_set(err, BERTH_EUNSUPPORTED, "another version of libwebp");
    pic.writer = on_write;
    pic.custom_ptr = out;
    pic.progress_hook = on_progress;
    pic.user_data = (void *)(uintptr_t)a->cancel;
    s = import(im, &pic, err);
    if (!s && !WebPEncode(&c, &pic)) { /* a writer that stops leaves no code in some versions */
        s = image_check(a->cancel, err);
        if (!s)
            s = failed(out->bad ? VP8_ENC_ERROR_BAD_WRITE : (int)pic.error_code, im, err);
    }
    WebPPictureFree(&pic);
    return s;
}

berth_status image_webp(const struct image *im, int quality, bool lossless, struct str *out,
                        berth_err *err)
{
    size_t had = out->n;
    const struct settings a = { quality, METHOD_DEFAULT, lossless, NULL };
    return image_finish(still(im, &a, out, err), out, had, err);
}

/* ---- animated ---- */

static berth_status add_frame(WebPAnimEncoder *e, const struct image *im, int ms,
                              const WebPConfig *c, berth_err *err)
{
    WebPPicture pic;
    if (!WebPPictureInit(&pic))
        return err_set(err, BERTH_EUNSUPPORTED, "another version of libwebp");
    berth_status s = import(im, &pic, err);
    if (!s && !WebPAnimEncoderAdd(e, &pic, ms, c))
        s = failed((int)pic.error_code, im, err);
    WebPPictureFree(&pic);
    return s;
}

static berth_status frames(const struct image *frame, size_t n, const struct settings *a,
                           unsigned ms, WebPData *out, berth_err *err)
{
    WebPConfig c;
    WebPAnimEncoderOptions opt;
    berth_status s = config(frame, a, &c, err);
    if (s)
        return s;
    if (!WebPAnimEncoderOptionsInit(&opt))
        return err_set(err, BERTH_EUNSUPPORTED, "another version of libwebp");
    opt.anim_params.bgcolor = 0;
    opt.kmin = a->lossless ? 9 : 3; /* how far apart key frames lie */
    opt.kmax = a->lossless ? 17 : 5;
    WebPAnimEncoder *e = WebPAnimEncoderNew((int)frame->w, (int)frame->h, &opt);
    if (!e)
        return err_set(err, BERTH_ENOMEM, "an animation of %u x %u", frame->w, frame->h);
    for (size_t i = 0; !s && i < n; i++) {
        s = image_check(a->cancel, err);
        if (!s)
            s = add_frame(e, &frame[i], (int)(i * ms), &c, err);
    }
    if (!s &&
        (!WebPAnimEncoderAdd(e, NULL, (int)(n * ms), NULL) || !WebPAnimEncoderAssemble(e, out)))
        s = err_set(err, BERTH_ENOMEM, "%zu frames: %.120s", n, WebPAnimEncoderGetError(e));
    WebPAnimEncoderDelete(e);
    return s;
}

/* The file `webp` with EXIF beside its pictures. */
static berth_status with_exif(const WebPData *webp, const struct str *exif, struct str *out,
                              berth_err *err)
{
    const WebPData data = { (const uint8_t *)exif->p, exif->n };
    WebPData all = { 0 };
    WebPMux *m = WebPMuxCreate(webp, 0);
    bool ok = m && WebPMuxSetChunk(m, "EXIF", &data, 0) == WEBP_MUX_OK &&
              WebPMuxAssemble(m, &all) == WEBP_MUX_OK;
    if (ok)
        str_add(out, (const char *)all.bytes, all.size);
    WebPDataClear(&all);
    WebPMuxDelete(m);
    return ok && !out->bad ? BERTH_OK : err_set(err, BERTH_ENOMEM, "EXIF of %zu bytes", exif->n);
}

berth_status image_anim_webp(const struct image *frame, size_t n,
                             const struct image_anim_args *args, struct str *out, berth_err *err)
{
    const struct settings a = { args->quality, args->method, args->lossless, args->cancel };
    unsigned ms;
    struct str one = { 0 }, exif = { 0 };
    WebPData many = { 0 };
    size_t had = out->n;
    berth_status s = image_anim_check(frame, n, args, &ms, err);
    if (!s && args->texts)
        s = exif_write(args->text, args->texts, &exif, err);
    if (!s)
        s = n == 1 ? still(frame, &a, &one, err) : frames(frame, n, &a, ms, &many, err);
    const WebPData webp = { n == 1 ? (const uint8_t *)one.p : many.bytes,
                            n == 1 ? one.n : many.size };
    if (!s && args->texts)
        s = with_exif(&webp, &exif, out, err);
    else if (!s)
        str_add(out, (const char *)webp.bytes, webp.size);
    s = image_finish(s, out, had, err);
    WebPDataClear(&many);
    str_release(&one);
    str_release(&exif);
    return s;
}
