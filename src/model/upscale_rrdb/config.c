/* What a file's ESRGAN looks like, from the names and shapes of its tensors. */
#include "model/upscale_rrdb/rrdb.h"

#include "model/canonical.h"

/* What tells the names apart, and the list of their blocks. */
static const struct {
    const char *first, *dense, *blocks;
} style[] = {
    [RRDB_NEW] = { "conv_first.weight", "body.0.rdb1.conv1.weight", "body" },
    [RRDB_TRUNK] = { "conv_first.weight", "RRDB_trunk.0.RDB1.conv1.weight", "RRDB_trunk" },
    [RRDB_OLD] = { "model.0.weight", "model.1.sub.0.RDB1.conv1.0.weight", "model.1.sub" },
};

static bool find_style(const struct weights *w, const char *root, enum rrdb_names *out)
{
    for (size_t i = 0; i < ARRAY_LEN(style); i++)
        if (arch_find(w, root, style[i].first) && arch_find(w, root, style[i].dense)) {
            *out = (enum rrdb_names)i;
            return true;
        }
    return false;
}

bool rrdb_detect(const struct weights *w, const char *root)
{
    enum rrdb_names any;
    return find_style(w, root, &any);
}

static berth_status count(const struct weights *w, const char *root, struct rrdb *c, berth_err *err)
{
    c->blocks = arch_layers(w, root, style[c->style].blocks);
    if (c->style == RRDB_OLD) { /* the last convolution is the end of their list */
        uint32_t layers = arch_layers(w, root, "model");
        c->blocks--;
        if (layers < 5 || (layers - 5) % 3)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "an ESRGAN of %u layers: it does not double the sides", layers);
        c->ups = (layers - 5) / 3;
    } else {
        char name[32];
        while (c->ups <= RRDB_UPS_MAX) {
            snprintf(name, sizeof name, "%s%u.weight", c->style == RRDB_NEW ? "conv_up" : "upconv",
                     c->ups + 1);
            if (!arch_find(w, root, name))
                break;
            c->ups++;
        }
    }
    if (!c->blocks || c->blocks > RRDB_BLOCKS_MAX || c->ups > RRDB_UPS_MAX)
        return err_set(err, BERTH_ELIMIT, "an ESRGAN of %u blocks that doubles %u times", c->blocks,
                       c->ups);
    return BERTH_OK;
}

/* 3 channels, or those of squares that are one pixel. */
static uint32_t squares_of(uint32_t channels)
{
    for (uint32_t s = 1; s <= 4; s *= 2)
        if (channels == UPSCALE_COLOURS * s * s)
            return s;
    return 0;
}

berth_status rrdb_config(const struct weights *w, const char *root, struct upscaler_net *out,
                         berth_err *err)
{
    struct rrdb *c = rrdb_of(out);
    uint32_t in, colours;
    if (!find_style(w, root, &c->style))
        return err_set(err, BERTH_EUNSUPPORTED, "no ESRGAN behind '%s'", root);
    if (count(w, root, c, err))
        return err->code;
    const struct canonical k = { .w = w, .root = root, .names = rrdb_names(out), .user = out };
    c->plus = canonical_find(&k, "body.0.rdb1.conv1x1.weight") != NULL;
    if (upscaler_dim(canonical_find(&k, "conv_first.weight"), "conv_first", 0, &c->filters, err) ||
        upscaler_dim(canonical_find(&k, "conv_first.weight"), "conv_first", 1, &in, err) ||
        upscaler_dim(canonical_find(&k, "body.0.rdb1.conv1.weight"), "body.0.rdb1.conv1", 0,
                     &c->growth, err) ||
        upscaler_dim(canonical_find(&k, "conv_last.weight"), "conv_last", 0, &colours, err))
        return err->code;
    c->squares = squares_of(in);
    if (!c->squares || colours != UPSCALE_COLOURS || (1u << c->ups) < c->squares)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "an ESRGAN of %u channels in and %u out that doubles the sides %u times", in,
                       colours, c->ups);
    out->scale = (1u << c->ups) / c->squares;
    out->least = 2;
    out->multiple = c->squares > 1 ? 4 : 1;
    return BERTH_OK;
}
