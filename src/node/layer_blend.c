/* layer_blend.c: modes of layers, as ComfyUI's compositor has them. i: what is below, l: the
 * layer. */
#include "node/layers.h"

#include <math.h>
#include <string.h>

#define EPS 1e-6f

static float least(float a, float b)
{
    return a < b ? a : b;
}
static float most(float a, float b)
{
    return a > b ? a : b;
}
static float ratio(float a, float b)
{
    return fabsf(b) >= EPS ? a / b : 0.0f;
}

/* ---- each channel for itself ---- */

static float normal(float i, float l)
{
    (void)i;
    return l;
}
static float multiply(float i, float l)
{
    return i * l;
}
static float screen(float i, float l)
{
    return 1 - (1 - i) * (1 - l);
}
static float overlay(float i, float l)
{
    return i < 0.5f ? 2 * i * l : 1 - 2 * (1 - l) * (1 - i);
}
static float dodge(float i, float l)
{
    return i <= 0 ? 0 : 1 - l <= EPS ? 1 : least(ratio(i, 1 - l), 1);
}
static float burn(float i, float l)
{
    return i >= 1 ? 1 : l <= EPS ? 0 : 1 - least(ratio(1 - i, l), 1);
}
static float hard_light(float i, float l)
{
    return least(l > 0.5f ? 1 - (1 - i) * (1 - (l - 0.5f) * 2) : i * (l * 2), 1);
}
static float soft_light(float i, float l)
{
    return (1 - i) * (i * l) + i * (1 - (1 - i) * (1 - l));
}
static float difference(float i, float l)
{
    return fabsf(i - l);
}
static float exclusion(float i, float l)
{
    return 0.5f - 2 * (i - 0.5f) * (l - 0.5f);
}
static float linear_dodge(float i, float l)
{
    return i + l;
}
static float linear_burn(float i, float l)
{
    return i + l - 1;
}
static float vivid_light(float i, float l)
{
    if (l <= 0.5f)
        return i >= 1 ? 1 : 2 * l <= EPS ? 0 : most(1 - ratio(1 - i, 2 * l), 0);
    return i <= 0 ? 0 : 2 * (1 - l) <= EPS ? 1 : least(ratio(i, 2 * (1 - l)), 1);
}
static float pin_light(float i, float l)
{
    return l > 0.5f ? most(i, 2 * (l - 0.5f)) : least(i, 2 * l);
}
static float linear_light(float i, float l)
{
    return i + 2 * l - 1;
}
static float hard_mix(float i, float l)
{
    return i + l < 1 ? 0 : 1;
}
static float subtract(float i, float l)
{
    return most(i - l, 0);
}
static float divide(float i, float l)
{
    return clamp01(i / most(l, EPS));
}
static float grain_extract(float i, float l)
{
    return i - l + 0.5f;
}
static float grain_merge(float i, float l)
{
    return i + l - 0.5f;
}

/* ---- all channels together ---- */

static float max3(const float *p)
{
    return most(p[0], most(p[1], p[2]));
}
static float min3(const float *p)
{
    return least(p[0], least(p[1], p[2]));
}

/* p * by + offset */
static void affine(const float *p, float by, float offset, float *out)
{
    for (int k = 0; k < 3; k++)
        out[k] = p[k] * by + offset;
}

static void hue(const float *i, const float *l, float *out)
{
    float chroma = max3(l) - min3(l), high = max3(i), s = high != 0 ? (high - min3(i)) / high : 0;
    bool grey = chroma <= EPS;
    float by = grey ? 1 : s * high / chroma;
    affine(grey ? i : l, by, grey ? 0 : high - max3(l) * by, out);
}

static void saturation(const float *i, const float *l, float *out)
{
    float high = max3(i), chroma = high - min3(i);
    float s = max3(l) != 0 ? (max3(l) - min3(l)) / max3(l) : 0;
    float by = chroma <= EPS ? 0 : s * high / chroma;
    affine(i, by, (1 - by) * high, out);
}

static void color(const float *i, const float *l, float *out)
{
    float below = (min3(i) + max3(i)) / 2, above = (min3(l) + max3(l)) / 2;
    bool grey = fabsf(above) <= EPS || fabsf(1 - above) <= EPS;
    float dl = least(below, 1 - below), sl = least(above, 1 - above), by = grey ? 0 : dl / sl;
    float offset = (below > 0.5f ? 1 - 2 * dl : 0) + (above > 0.5f ? 2 * dl - by : 0);
    affine(l, by, grey ? below : offset, out);
}

static float luminance(const float *p)
{
    return p[0] * 0.2224884f + p[1] * 0.71690369f + p[2] * 0.06060791f;
}

static void luminosity(const float *i, const float *l, float *out)
{
    float below = luminance(i), above = luminance(l);
    affine(i, below <= EPS ? 0 : above / below, below <= EPS ? above : 0, out);
}

/* ---- the table ---- */

static const struct mode {
    const char *name;
    bool srgb; /* on values as sRGB has them */
    float (*one)(float i, float l);
    void (*all)(const float *i, const float *l, float *out);
} modes[] = {
    { "normal", false, normal, NULL },
    { "multiply", false, multiply, NULL },
    { "screen", true, screen, NULL },
    { "overlay", true, overlay, NULL },
    { "darken", false, least, NULL },
    { "lighten", false, most, NULL },
    { "color-dodge", true, dodge, NULL },
    { "color-burn", true, burn, NULL },
    { "hard-light", true, hard_light, NULL },
    { "soft-light", true, soft_light, NULL },
    { "difference", true, difference, NULL },
    { "exclusion", true, exclusion, NULL },
    { "linear-dodge", false, linear_dodge, NULL },
    { "linear-burn", true, linear_burn, NULL },
    { "vivid-light", true, vivid_light, NULL },
    { "pin-light", true, pin_light, NULL },
    { "linear-light", true, linear_light, NULL },
    { "hard-mix", true, hard_mix, NULL },
    { "subtract", false, subtract, NULL },
    { "divide", false, divide, NULL },
    { "grain-extract", true, grain_extract, NULL },
    { "grain-merge", true, grain_merge, NULL },
    { "hue", true, NULL, hue },
    { "saturation", true, NULL, saturation },
    { "color", true, NULL, color },
    { "luminosity", false, NULL, luminosity },
};

const char *const layer_modes[] = {
    "normal",        "multiply",     "screen",       "overlay",     "darken",
    "lighten",       "color-dodge",  "color-burn",   "hard-light",  "soft-light",
    "difference",    "exclusion",    "linear-dodge", "linear-burn", "vivid-light",
    "pin-light",     "linear-light", "hard-mix",     "subtract",    "divide",
    "grain-extract", "grain-merge",  "hue",          "saturation",  "color",
    "luminosity",    NULL,
};

size_t layer_mode(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(modes); i++)
        if (!strcmp(modes[i].name, name))
            return i;
    return 0;
}

/* ---- pixels ---- */

float layer_to_linear(float v)
{
    return v <= 0.04045f ? v / 12.92f : (float)pow(((double)v + 0.055) / 1.055, 2.4);
}

float layer_to_srgb(float v)
{
    return v <= 0.0031308f ? 12.92f * v : (float)(1.055 * pow((double)v, 1 / 2.4) - 0.055);
}

/* What the mode makes of both colours, linear. */
static void mixed(const struct mode *m, const float *below, const float *layer, float *out)
{
    float i[3], l[3];
    for (int k = 0; k < 3; k++) {
        i[k] = m->srgb ? layer_to_srgb(below[k]) : below[k];
        l[k] = m->srgb ? layer_to_srgb(layer[k]) : layer[k];
    }
    if (m->all)
        m->all(i, l, out);
    else
        for (int k = 0; k < 3; k++)
            out[k] = m->one(i[k], l[k]);
    for (int k = 0; k < 3; k++)
        out[k] = m->srgb ? layer_to_linear(out[k]) : out[k];
}

static void put_over(const float *layer, float a, const float *mix, float *below)
{
    float b = below[3], alpha = a + (1 - a) * b;
    if (a == 0 || alpha == 0)
        return;
    for (int k = 0; k < 3; k++)
        below[k] = b == 0 ? layer[k]
                          : a / alpha * (b * (mix[k] - layer[k]) + layer[k] - below[k]) + below[k];
    below[3] = alpha;
}

void layer_blend(size_t mode, float opacity, const float *layer, float *below, size_t px)
{
    for (; px--; layer += 4, below += 4) {
        float mix[3], a = layer[3] * opacity;
        mixed(&modes[mode], below, layer, mix);
        if (!mode)
            put_over(layer, a, mix, below);
        else if (below[3] != 0 && a != 0)
            for (int k = 0; k < 3; k++)
                below[k] = mix[k] * a + below[k] * (1 - a);
    }
}
