/* Redux: two layers, three times as wide between them as a token of the prompt. */
#include "model/redux/presets.h"

struct redux_config {
    uint64_t in, out;
};

static void build(struct keys *k, const void *config)
{
    const struct redux_config *c = config;
    keys_linear(k, "redux_up", 3 * c->out, c->in, KEYS_BIAS);
    keys_linear(k, "redux_down", c->out, 3 * c->out, KEYS_BIAS);
}

const struct preset redux_presets[] = {
    { .name = "flux-redux-tiny",
      .about = "Redux model from siglip-tiny to flux-tiny",
      .build = build,
      .config = &(const struct redux_config) { .in = 64, .out = 64 } },
    { .name = "flux-redux",
      .about = "FLUX.1-Redux-dev, full size",
      .build = build,
      .config = &(const struct redux_config) { .in = 1152, .out = 4096 } },
    { .name = NULL },
};
