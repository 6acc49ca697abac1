/* ESRGAN: the networks of Real-ESRGAN. */
#include "model/upscale_rrdb/presets.h"

#include <inttypes.h>

static void dense(struct keys *k, uint64_t filters, uint64_t growth)
{
    char name[16];
    for (uint64_t i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "conv%u", (unsigned)i + 1);
        keys_conv(k, name, i < 4 ? growth : filters, filters + i * growth, 3);
    }
}

void keys_rrdb(struct keys *k, const struct rrdb_config *c)
{
    char name[16];
    keys_conv(k, "conv_first", c->filters, (uint64_t)3 * c->squares * c->squares, 3);
    for (uint32_t i = 0; i < c->blocks; i++)
        for (uint32_t j = 1; j <= 3; j++) {
            size_t mark = keys_enter(k, "body.%" PRIu32 ".rdb%" PRIu32, i, j);
            dense(k, c->filters, c->growth);
            keys_leave(k, mark);
        }
    keys_conv(k, "conv_body", c->filters, c->filters, 3);
    for (uint32_t i = 1; i <= c->ups; i++) {
        snprintf(name, sizeof name, "conv_up%u", i);
        keys_conv(k, name, c->filters, c->filters, 3);
    }
    keys_conv(k, "conv_hr", c->filters, c->filters, 3);
    keys_conv(k, "conv_last", 3, c->filters, 3);
}

static void build(struct keys *k, const void *config)
{
    keys_rrdb(k, config);
}

const struct preset rrdb_presets[] = {
    { .name = "esrgan-tiny",
      .about = "small Real-ESRGAN, makes pictures 4 times as large",
      .build = build,
      .config =
          &(const struct rrdb_config) {
              .filters = 16, .growth = 32, .blocks = 2, .ups = 2, .squares = 1 } },
    { .name = "esrgan-x4",
      .about = "Real-ESRGAN x4plus, full size",
      .build = build,
      .config =
          &(const struct rrdb_config) {
              .filters = 64, .growth = 32, .blocks = 23, .ups = 2, .squares = 1 } },
    { .name = "esrgan-x2",
      .about = "Real-ESRGAN x2plus, full size",
      .build = build,
      .config =
          &(const struct rrdb_config) {
              .filters = 64, .growth = 32, .blocks = 23, .ups = 2, .squares = 2 } },
    { .name = NULL },
};
