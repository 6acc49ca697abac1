/* delta: layers of Qwen3.5 that remember by a matrix of fixed size instead of by keys and values.
 *
 * Of every head there is a memory, keys x values. A token first fades it, then asks it by its own
 * key what it would have answered, and writes the difference to its value there, as far as it
 * likes; its query reads. Before that a convolution mixes each channel of queries, keys and values
 * with those of the tokens before.
 *
 * Host       All but the products is computed there, token by token (net_host()): on a card, it
 *            waits meanwhile. What a text leaves behind stays on the host, too.
 * Again      A pass reads one memory and writes another, so that it may be run again. */
#pragma once

#include "model/lm/lm.h"

struct lm_delta { /* a layer in a pass; stays until that is through */
    const struct lm_net *net;
    size_t n, len;     /* texts of the pass, tokens of each */
    const float *from; /* lm_delta_floats() of what was before; NULL: nothing was */
    float *to;         /* and behind it; of the last text of several */
    float *row;        /* lm_delta_row() of scratch */
};

bool lm_is_delta(const struct lm_net *c, uint32_t layer);
size_t lm_delta_floats(const struct lm_net *c); /* of a layer's memory */
size_t lm_delta_row(const struct lm_net *c);
/* What layer i makes of h [n, len, width]; net_enter() stands at the layer. Host NULL: sizes alone
 * are asked for. */
struct act lm_delta_layer(struct net_run *r, const struct lm_net *c, const struct lm_delta *d,
                          size_t n, size_t len, struct act h);
