/* Latents between nodes are the VAE's own; networks were trained on scaled ones. Tables: vae.md 1,
 * sampling.md 10. */
#include "model/latent_format.h"

static const float sd1_rgb[][3] = {
    { 0.3512f, 0.2297f, 0.3227f },
    { 0.3250f, 0.4974f, 0.2350f },
    { -0.2829f, 0.1762f, 0.2721f },
    { -0.2120f, -0.2616f, -0.7177f },
};
const struct latent_format latent_sd1 = {
    .name = "SD1", .channels = 4, .rank = 2, .ratio = 8, .scale = 0.18215, .rgb = sd1_rgb
};

static const float sdxl_rgb[][3] = {
    { 0.3651f, 0.4232f, 0.4341f },
    { -0.2533f, -0.0042f, 0.1068f },
    { 0.1076f, 0.1111f, -0.0362f },
    { -0.3165f, -0.2492f, -0.2188f },
};
static const float sdxl_bias[3] = { 0.1084f, -0.0175f, -0.0011f };
const struct latent_format latent_sdxl = { .name = "SDXL",
                                           .channels = 4,
                                           .rank = 2,
                                           .ratio = 8,
                                           .scale = 0.13025,
                                           .rgb = sdxl_rgb,
                                           .rgb_bias = sdxl_bias };

static const float playground_mean[] = { -1.6574f, 1.886f, -1.383f, 2.5155f };
static const float playground_std[] = { 8.4927f, 5.9022f, 6.5498f, 5.2299f };
static const float playground_rgb[][3] = {
    { 0.3920f, 0.4054f, 0.4549f },
    { -0.2634f, -0.0196f, 0.0653f },
    { 0.0568f, 0.1687f, -0.0755f },
    { -0.3112f, -0.2359f, -0.2076f },
};
const struct latent_format latent_playground = { .name = "SDXL Playground 2.5",
                                                 .channels = 4,
                                                 .rank = 2,
                                                 .ratio = 8,
                                                 .scale = 0.5,
                                                 .mean = playground_mean,
                                                 .std = playground_std,
                                                 .rgb = playground_rgb };

static const float sd3_rgb[][3] = {
    { -0.0922f, -0.0175f, 0.0749f },  { 0.0311f, 0.0633f, 0.0954f },
    { 0.1994f, 0.0927f, 0.0458f },    { 0.0856f, 0.0339f, 0.0902f },
    { 0.0587f, 0.0272f, -0.0496f },   { -0.0006f, 0.1104f, 0.0309f },
    { 0.0978f, 0.0306f, 0.0427f },    { -0.0042f, 0.1038f, 0.1358f },
    { -0.0194f, 0.0020f, 0.0669f },   { -0.0488f, 0.0130f, -0.0268f },
    { 0.0922f, 0.0988f, 0.0951f },    { -0.0278f, 0.0524f, -0.0542f },
    { 0.0332f, 0.0456f, 0.0895f },    { -0.0069f, -0.0030f, -0.0810f },
    { -0.0596f, -0.0465f, -0.0293f }, { -0.1448f, -0.1463f, -0.1189f },
};
static const float sd3_bias[3] = { 0.2394f, 0.2135f, 0.1925f };
const struct latent_format latent_sd3 = { .name = "SD3",
                                          .channels = 16,
                                          .rank = 2,
                                          .ratio = 8,
                                          .scale = 1.5305,
                                          .shift = 0.0609,
                                          .rgb = sd3_rgb,
                                          .rgb_bias = sd3_bias };

static const float flux_rgb[][3] = {
    { -0.0346f, 0.0244f, 0.0681f },   { 0.0034f, 0.0210f, 0.0687f },
    { 0.0275f, -0.0668f, -0.0433f },  { -0.0174f, 0.0160f, 0.0617f },
    { 0.0859f, 0.0721f, 0.0329f },    { 0.0004f, 0.0383f, 0.0115f },
    { 0.0405f, 0.0861f, 0.0915f },    { -0.0236f, -0.0185f, -0.0259f },
    { -0.0245f, 0.0250f, 0.1180f },   { 0.1008f, 0.0755f, -0.0421f },
    { -0.0515f, 0.0201f, 0.0011f },   { 0.0428f, -0.0012f, -0.0036f },
    { 0.0817f, 0.0765f, 0.0749f },    { -0.1264f, -0.0522f, -0.1103f },
    { -0.0280f, -0.0881f, -0.0499f }, { -0.1262f, -0.0982f, -0.0778f },
};
static const float flux_bias[3] = { -0.0329f, -0.0718f, -0.0851f };
const struct latent_format latent_flux = { .name = "Flux",
                                           .channels = 16,
                                           .rank = 2,
                                           .ratio = 8,
                                           .scale = 0.3611,
                                           .shift = 0.1159,
                                           .rgb = flux_rgb,
                                           .rgb_bias = flux_bias };

static const float flux2_rgb[][3] = {
    { 0.0058f, 0.0113f, 0.0073f },    { 0.0495f, 0.0443f, 0.0836f },
    { -0.0099f, 0.0096f, 0.0644f },   { 0.2144f, 0.3009f, 0.3652f },
    { 0.0166f, -0.0039f, -0.0054f },  { 0.0157f, 0.0103f, -0.0160f },
    { -0.0398f, 0.0902f, -0.0235f },  { -0.0052f, 0.0095f, 0.0109f },
    { -0.3527f, -0.2712f, -0.1666f }, { -0.0301f, -0.0356f, -0.0180f },
    { -0.0107f, 0.0078f, 0.0013f },   { 0.0746f, 0.0090f, -0.0941f },
    { 0.0156f, 0.0169f, 0.0070f },    { -0.0034f, -0.0040f, -0.0114f },
    { 0.0032f, 0.0181f, 0.0080f },    { -0.0939f, -0.0008f, 0.0186f },
    { 0.0018f, 0.0043f, 0.0104f },    { 0.0284f, 0.0056f, -0.0127f },
    { -0.0024f, -0.0022f, -0.0030f }, { 0.1207f, -0.0026f, 0.0065f },
    { 0.0128f, 0.0101f, 0.0142f },    { 0.0137f, -0.0072f, -0.0007f },
    { 0.0095f, 0.0092f, -0.0059f },   { 0.0000f, -0.0077f, -0.0049f },
    { -0.0465f, -0.0204f, -0.0312f }, { 0.0095f, 0.0012f, -0.0066f },
    { 0.0290f, -0.0034f, 0.0025f },   { 0.0220f, 0.0169f, -0.0048f },
    { -0.0332f, -0.0457f, -0.0468f }, { -0.0085f, 0.0389f, 0.0609f },
    { -0.0076f, 0.0003f, -0.0043f },  { -0.0111f, -0.0460f, -0.0614f },
};
const struct latent_format latent_flux2 = { .name = "Flux.2",
                                            .channels = 128,
                                            .rank = 2,
                                            .ratio = 16,
                                            .scale = 1.0,
                                            .packed = 2,
                                            .rgb = flux2_rgb,
                                            .rgb_bias = flux_bias };

static const float wan21_mean[] = { -0.7571f, -0.7089f, -0.9113f, 0.1075f,  -0.1745f, 0.9653f,
                                    -0.1517f, 1.5508f,  0.4134f,  -0.0715f, 0.5517f,  -0.3632f,
                                    -0.1922f, -0.9497f, 0.2503f,  -0.2921f };
static const float wan21_std[] = { 2.8184f, 1.4541f, 2.3275f, 2.6558f, 1.2196f, 1.7708f,
                                   2.6052f, 2.0743f, 3.2687f, 2.1526f, 2.8652f, 1.5579f,
                                   1.6382f, 1.1253f, 2.8251f, 1.9160f };
static const float wan21_rgb[][3] = {
    { -0.1299f, -0.1692f, 0.2932f },  { 0.0671f, 0.0406f, 0.0442f },
    { 0.3568f, 0.2548f, 0.1747f },    { 0.0372f, 0.2344f, 0.1420f },
    { 0.0313f, 0.0189f, -0.0328f },   { 0.0296f, -0.0956f, -0.0665f },
    { -0.3477f, -0.4059f, -0.2925f }, { 0.0166f, 0.1902f, 0.1975f },
    { -0.0412f, 0.0267f, -0.1364f },  { -0.1293f, 0.0740f, 0.1636f },
    { 0.0680f, 0.3019f, 0.1128f },    { 0.0032f, 0.0581f, 0.0639f },
    { -0.1251f, 0.0927f, 0.1699f },   { 0.0060f, -0.0633f, 0.0005f },
    { 0.3477f, 0.2275f, 0.2950f },    { 0.1984f, 0.0913f, 0.1861f },
};
static const float wan21_bias[3] = { -0.1835f, -0.0868f, -0.3360f };
/* Of Wan 2.1 and of Qwen-Image, whose pictures are videos of one frame. */
const struct latent_format latent_wan21 = { .name = "Wan 2.1",
                                            .channels = 16,
                                            .rank = 3,
                                            .ratio = 8,
                                            .time_ratio = 4,
                                            .scale = 1.0,
                                            .mean = wan21_mean,
                                            .std = wan21_std,
                                            .rgb = wan21_rgb,
                                            .rgb_bias = wan21_bias };

static const float wan22_mean[] = {
    -0.2289f, -0.0052f, -0.1323f, -0.2339f, -0.2799f, 0.0174f,  0.1838f,  0.1557f,
    -0.1382f, 0.0542f,  0.2813f,  0.0891f,  0.1570f,  -0.0098f, 0.0375f,  -0.1825f,
    -0.2246f, -0.1207f, -0.0698f, 0.5109f,  0.2665f,  -0.2108f, -0.2158f, 0.2502f,
    -0.2055f, -0.0322f, 0.1109f,  0.1567f,  -0.0729f, 0.0899f,  -0.2799f, -0.1230f,
    -0.0313f, -0.1649f, 0.0117f,  0.0723f,  -0.2839f, -0.2083f, -0.0520f, 0.3748f,
    0.0152f,  0.1957f,  0.1433f,  -0.2944f, 0.3573f,  -0.0548f, -0.1681f, -0.0667f,
};
static const float wan22_std[] = {
    0.4765f, 1.0364f, 0.4514f, 1.1677f, 0.5313f, 0.4990f, 0.4818f, 0.5013f, 0.8158f, 1.0344f,
    0.5894f, 1.0901f, 0.6885f, 0.6165f, 0.8454f, 0.4978f, 0.5759f, 0.3523f, 0.7135f, 0.6804f,
    0.5833f, 1.4146f, 0.8986f, 0.5659f, 0.7069f, 0.5338f, 0.4889f, 0.4917f, 0.4069f, 0.4999f,
    0.6866f, 0.4093f, 0.5709f, 0.6065f, 0.6415f, 0.4944f, 0.5726f, 1.2042f, 0.5458f, 1.6887f,
    0.3971f, 1.0600f, 0.3943f, 0.5537f, 0.5444f, 0.4089f, 0.7468f, 0.7744f,
};
static const float wan22_rgb[][3] = {
    { 0.0119f, 0.0103f, 0.0046f },    { -0.1062f, -0.0504f, 0.0165f },
    { 0.0140f, 0.0409f, 0.0491f },    { -0.0813f, -0.0677f, 0.0607f },
    { 0.0656f, 0.0851f, 0.0808f },    { 0.0264f, 0.0463f, 0.0912f },
    { 0.0295f, 0.0326f, 0.0590f },    { -0.0244f, -0.0270f, 0.0025f },
    { 0.0443f, -0.0102f, 0.0288f },   { -0.0465f, -0.0090f, -0.0205f },
    { 0.0359f, 0.0236f, 0.0082f },    { -0.0776f, 0.0854f, 0.1048f },
    { 0.0564f, 0.0264f, 0.0561f },    { 0.0006f, 0.0594f, 0.0418f },
    { -0.0319f, -0.0542f, -0.0637f }, { -0.0268f, 0.0024f, 0.0260f },
    { 0.0539f, 0.0265f, 0.0358f },    { -0.0359f, -0.0312f, -0.0287f },
    { -0.0285f, -0.1032f, -0.1237f }, { 0.1041f, 0.0537f, 0.0622f },
    { -0.0086f, -0.0374f, -0.0051f }, { 0.0390f, 0.0670f, 0.2863f },
    { 0.0069f, 0.0144f, 0.0082f },    { 0.0006f, -0.0167f, 0.0079f },
    { 0.0313f, -0.0574f, -0.0232f },  { -0.1454f, -0.0902f, -0.0481f },
    { 0.0714f, 0.0827f, 0.0447f },    { -0.0304f, -0.0574f, -0.0196f },
    { 0.0401f, 0.0384f, 0.0204f },    { -0.0758f, -0.0297f, -0.0014f },
    { 0.0568f, 0.1307f, 0.1372f },    { -0.0055f, -0.0310f, -0.0380f },
    { 0.0239f, -0.0305f, 0.0325f },   { -0.0663f, -0.0673f, -0.0140f },
    { -0.0416f, -0.0047f, -0.0023f }, { 0.0166f, 0.0112f, -0.0093f },
    { -0.0211f, 0.0011f, 0.0331f },   { 0.1833f, 0.1466f, 0.2250f },
    { -0.0368f, 0.0370f, 0.0295f },   { -0.3441f, -0.3543f, -0.2008f },
    { -0.0479f, -0.0489f, -0.0420f }, { -0.0660f, -0.0153f, 0.0800f },
    { -0.0101f, 0.0068f, 0.0156f },   { -0.0690f, -0.0452f, -0.0927f },
    { -0.0145f, 0.0041f, 0.0015f },   { 0.0421f, 0.0451f, 0.0373f },
    { 0.0504f, -0.0483f, -0.0356f },  { -0.0837f, 0.0168f, 0.0055f },
};
static const float wan22_bias[3] = { 0.0317f, -0.0878f, -0.1388f };
const struct latent_format latent_wan22 = { .name = "Wan 2.2",
                                            .channels = 48,
                                            .rank = 3,
                                            .ratio = 16,
                                            .time_ratio = 4,
                                            .scale = 1.0,
                                            .mean = wan22_mean,
                                            .std = wan22_std,
                                            .rgb = wan22_rgb,
                                            .rgb_bias = wan22_bias };

bool latent_is(const struct latent_format *f, const struct shape *s)
{
    uint64_t n;
    return s->ndim == 2 + f->rank && s->dim[1] == f->channels && shape_count(s, &n) && n;
}

size_t latent_frames(const struct latent_format *f, size_t t)
{
    return f->rank == 3 ? (t - 1) * f->time_ratio + 1 : 1;
}

/* Scalars meet F32 tensors as F32, one operation after the other, as the reference has it. */
void latent_in(const struct latent_format *f, float *z, const struct shape *s)
{
    const float scale = (float)f->scale, shift = (float)f->shift;
    size_t c = (size_t)s->dim[1], n = (size_t)s->dim[0] * c, each = (size_t)shape_inner(s, 2);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < each; k++) {
            float *v = &z[i * each + k];
            if (f->mean && i % c < f->channels)
                *v = (*v - f->mean[i % c]) * scale / f->std[i % c];
            else
                *v = (*v - shift) * scale;
        }
}

void latent_out(const struct latent_format *f, float *z, const struct shape *s)
{
    const float scale = (float)f->scale, shift = (float)f->shift;
    size_t c = (size_t)s->dim[1], n = (size_t)s->dim[0] * c, each = (size_t)shape_inner(s, 2);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < each; k++) {
            float *v = &z[i * each + k];
            if (f->mean && i % c < f->channels)
                *v = *v * f->std[i % c] / scale + f->mean[i % c];
            else
                *v = *v / scale + shift;
        }
}

bool latent_preview(const struct latent_format *f, const float *z, const struct shape *s,
                    uint8_t *rgb)
{
    const size_t each = (size_t)shape_inner(s, 2), packed = f->packed ? f->packed : 1;
    const size_t w = (size_t)shape_last(s, 1) * packed, h = (size_t)shape_last(s, 2) * packed;
    if (!f->rgb)
        return false;
    for (size_t i = 0; i < h * w; i++)
        for (size_t k = 0; k < 3; k++) {
            const size_t y = i / w, x = i % w, part = y % packed * packed + x % packed;
            const float *from = z + part * each + y / packed * (w / packed) + x / packed;
            float v = f->rgb_bias ? f->rgb_bias[k] : 0.0f;
            for (size_t c = 0; c < f->channels / (packed * packed); c++)
                v += from[c * packed * packed * each] * f->rgb[c][k];
            v = (v + 1.0f) / 2.0f;
            /* a NaN is black */
            rgb[3 * i + k] = v >= 1.0f ? 255 : v > 0.0f ? (uint8_t)(v * 255.0f) : 0;
        }
    return true;
}
