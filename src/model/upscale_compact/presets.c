/* Real-ESRGAN's compact networks. */
#include "model/upscale_compact/presets.h"

void keys_compact(struct keys *k, const struct compact_config *c)
{
    for (uint32_t i = 0; i <= c->convs + 1; i++) {
        char name[32];
        const uint64_t made = i <= c->convs ? c->filters : (uint64_t)3 * c->scale * c->scale;
        snprintf(name, sizeof name, "body.%u", 2 * i);
        keys_conv(k, name, made, i ? c->filters : 3, 3);
        snprintf(name, sizeof name, "body.%u.weight", 2 * i + 1);
        if (i <= c->convs)
            keys_tensor(k, name, c->filters, 0, 0, 0);
    }
}

static void build(struct keys *k, const void *config)
{
    keys_compact(k, config);
}

const struct preset compact_presets[] = {
    { .name = "esrgan-compact-tiny",
      .about = "small compact Real-ESRGAN, makes pictures 4 times as large",
      .build = build,
      .config = &(const struct compact_config) { .filters = 16, .convs = 3, .scale = 4 } },
    { .name = "esrgan-compact-x4",
      .about = "realesr-general-x4v3, full size",
      .build = build,
      .config = &(const struct compact_config) { .filters = 64, .convs = 32, .scale = 4 } },
    { .name = NULL },
};
