/* USO's projector: three times two layers and a norm. */
#include "model/uso/presets.h"

struct uso_config {
    uint64_t rows, in, gives, out;
};

static void build(struct keys *k, const void *config)
{
    static const char *const name[] = { "high", "mid", "low" };
    const struct uso_config *c = config;
    size_t mark = keys_enter(k, "feature_embedder");
    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        char full[48];
        snprintf(full, sizeof full, "%s_embedding_linear.0", name[i]);
        keys_linear(k, full, c->gives, c->rows, KEYS_BIAS);
        snprintf(full, sizeof full, "%s_layer_norm", name[i]);
        keys_norm(k, full, c->in);
        snprintf(full, sizeof full, "%s_projection", name[i]);
        keys_linear(k, full, c->out, c->in, KEYS_BIAS);
    }
    keys_leave(k, mark);
}

const struct preset uso_presets[] = {
    { .name = "flux-uso-tiny",
      .about = "USO projector from siglip-deep-tiny to flux-tiny",
      .build = build,
      .config = &(const struct uso_config) { .rows = 16, .in = 64, .gives = 4, .out = 256 } },
    { .name = "flux-uso",
      .about = "USO projector of FLUX.1-dev, full size",
      .build = build,
      .config = &(const struct uso_config) { .rows = 729, .in = 1152, .gives = 64, .out = 3072 } },
    { .name = NULL },
};
