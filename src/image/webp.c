/* WebP, read: still and animated, through libwebp. */
#include "image/image_impl.h"

#include <webp/decode.h>
#include <webp/demux.h>

static bool is(const uint8_t *p, size_t n)
{
    return n >= 16 && memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBPVP8", 7) == 0;
}

static unsigned orientation_of(const WebPDemuxer *d)
{
    unsigned o = 0;
    WebPChunkIterator it;
    if (WebPDemuxGetChunk(d, "EXIF", 1, &it))
        o = exif_orientation(it.chunk.bytes, it.chunk.size);
    WebPDemuxReleaseChunkIterator(&it);
    if (!o && WebPDemuxGetChunk(d, "XMP ", 1, &it))
        o = xmp_orientation(it.chunk.bytes, it.chunk.size);
    WebPDemuxReleaseChunkIterator(&it);
    return o ? o : 1;
}

static berth_status read_still(const struct image_in *in, unsigned channels, struct image *im,
                               uint32_t w, uint32_t h, berth_err *err)
{
    if (image_init(im, w, h, channels, err))
        return err->code;
    int stride = (int)(w * channels);
    size_t n = (size_t)w * h * channels;
    bool ok = channels == 4 ? WebPDecodeRGBAInto(in->p, in->n, im->px, n, stride)
                            : WebPDecodeRGBInto(in->p, in->n, im->px, n, stride);
    return ok ? BERTH_OK : err_set(err, BERTH_EFORMAT, "the pixels are broken or cut short");
}

/* RGBA as the library composes it -> a frame. */
static berth_status copy_frame(const uint8_t *rgba, unsigned channels, uint32_t w, uint32_t h,
                               struct image *im, berth_err *err)
{
    const struct image seen = { .w = w, .h = h, .channels = 4, .px = (uint8_t *)(uintptr_t)rgba };
    return image_convert(&seen, channels, im, err);
}

/* From the file, not from the decoder's running sum, which hostile numbers overflow. */
static double seconds_of(const WebPDemuxer *d, unsigned frame)
{
    WebPIterator it = { 0 };
    double s = WebPDemuxGetFrame(d, (int)frame + 1, &it) ? it.duration / 1000.0 : 0;
    WebPDemuxReleaseIterator(&it);
    return s;
}

static berth_status read_frames(const struct image_in *in, const WebPDemuxer *demux,
                                unsigned channels, struct image_file *out, berth_err *err)
{
    WebPAnimDecoderOptions opt;
    const WebPData data = { in->p, in->n };
    if (!WebPAnimDecoderOptionsInit(&opt))
        return err_set(err, BERTH_EUNSUPPORTED, "another version of libwebp");
    opt.color_mode = MODE_RGBA;
    WebPAnimDecoder *d = WebPAnimDecoderNew(&data, &opt);
    if (!d)
        return err_set(err, BERTH_ENOMEM, "%u frames of %u x %u", out->frames, out->w, out->h);
    berth_status s = BERTH_OK;
    for (unsigned i = 0; !s && i < out->frames; i++) {
        uint8_t *rgba;
        int end; /* when the frame ends */
        if (!WebPAnimDecoderGetNext(d, &rgba, &end))
            s = err_set(err, BERTH_EFORMAT, "frame %u is broken or cut short", i);
        else
            s = copy_frame(rgba, channels, out->w, out->h, &out->frame[i], err);
        if (!s && out->seconds) /* an animation may have one frame */
            out->seconds[i] = seconds_of(demux, i);
    }
    WebPAnimDecoderDelete(d);
    return s;
}

static berth_status read_demuxed(const WebPDemuxer *d, struct image_in *in, struct image_file *out,
                                 berth_err *err)
{
    uint32_t w = WebPDemuxGetI(d, WEBP_FF_CANVAS_WIDTH),
             h = WebPDemuxGetI(d, WEBP_FF_CANVAS_HEIGHT);
    uint32_t frames = WebPDemuxGetI(d, WEBP_FF_FRAME_COUNT);
    WebPBitstreamFeatures f;
    if (WebPGetFeatures(in->p, in->n, &f) != VP8_STATUS_OK)
        return err_set(err, BERTH_EFORMAT, "a broken header");
    out->alpha = f.has_alpha;
    unsigned channels = out->alpha ? 4 : 3;
    in->orientation = orientation_of(d);
    if (image_file_begin(in, out, w, h, channels, frames, err))
        return err->code;
    if (frames > 1 || f.has_animation)
        return read_frames(in, d, channels, out, err);
    return read_still(in, channels, &out->frame[0], w, h, err);
}

static berth_status read_webp(struct image_in *in, struct image_file *out, berth_err *err)
{
    const WebPData data = { in->p, in->n };
    WebPDemuxer *d = WebPDemux(&data);
    if (!d)
        return err_set(err, BERTH_EFORMAT, "the file is broken or cut short");
    berth_status s = read_demuxed(d, in, out, err);
    WebPDemuxDelete(d);
    return s;
}

const struct image_format image_format_webp = {
    .name = "webp", .ext = "webp ", .is = is, .read = read_webp
};
