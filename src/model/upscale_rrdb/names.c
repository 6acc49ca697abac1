/* Where an ESRGAN's tensors are in its file. */
#include "model/upscale_rrdb/rrdb.h"

#include "model/canonical.h"

#include <string.h>

/* "rdb2.conv4.weight" of block n. */
static bool block_name(const struct rrdb *c, unsigned n, const char *in, char *q, size_t cap)
{
    if (strncmp(in, "rdb", 3) != 0 || !in[3] || in[4] != '.')
        return false;
    const char dense = in[3], *layer = in + 5, *dot = strchr(layer, '.');
    if (!dot)
        return false;
    if (c->style == RRDB_TRUNK)
        return name_print(q, cap, "RRDB_trunk.%u.RDB%c.%s", n, dense, layer);
    const bool plus = !strncmp(layer, "conv1x1.", 8); /* it has no activation behind it */
    return name_print(q, cap, "model.1.sub.%u.RDB%c.%.*s%s%s", n, dense, (int)(dot - layer), layer,
                      plus ? "" : ".0", dot);
}

static bool trunk_name(const char *in, char *q, size_t cap)
{
    static const char *const word[][2] = { { "conv_body.", "trunk_conv." },
                                           { "conv_up", "upconv" },
                                           { "conv_hr.", "HRconv." },
                                           { NULL } };
    const char *const *pair = name_pair(word, 0, &in);
    return pair && name_print(q, cap, "%s%s", pair[1], in);
}

/* The first files number all layers of the sequence, activations and resizing included. */
static bool old_name(const struct rrdb *c, const char *in, char *q, size_t cap)
{
    static const char *const word[][2] = {
        { "conv_first.", "" }, { "conv_body.", "" }, { "conv_hr.", "" },
        { "conv_last.", "" },  { "conv_up", "" },    { NULL },
    };
    const char *const *pair = name_pair(word, 0, &in);
    if (!pair)
        return false;
    const size_t which = (size_t)(pair - word[0]) / 2;
    if (which == 1)
        return name_print(q, cap, "model.1.sub.%u.%s", c->blocks, in);
    if (which == 4) /* "1.weight" */
        return *in && in[1] == '.' &&
               name_print(q, cap, "model.%u.%s", 3 * (unsigned)(*in - '0'), in + 2);
    const unsigned at[] = { 0, 0, 3 * c->ups + 2, 3 * c->ups + 4 };
    return name_print(q, cap, "model.%u.%s", at[which], in);
}

static bool names(const void *user, const char *canonical, struct net_source *out)
{
    const struct rrdb *c = rrdb_in(user);
    const char *in = canonical;
    unsigned n;
    *out = (struct net_source) { .rows = 0 };
    if (name_numbered(&in, "body", RRDB_BLOCKS_MAX, &n))
        return block_name(c, n, in, out->name, sizeof out->name);
    return c->style == RRDB_TRUNK ? trunk_name(canonical, out->name, sizeof out->name)
                                  : old_name(c, canonical, out->name, sizeof out->name);
}

net_names_fn *rrdb_names(const struct upscaler_net *u)
{
    return rrdb_in(u)->style == RRDB_NEW ? NULL : names;
}
