/* style: models that make tokens of a prompt out of what an encoder of pictures saw (vision.h).
 *
 *     style_open(&args, part, &s, &net, err)
 *     style_tokens(net, &s, x, rows, out, err)     [states, rows, in] -> [style_rows(), out]
 *     net_close(net)
 *
 * Threads    Executor; style_find() any.
 * Adding     a model: a folder src/model/<x>/ that exports `const struct style_class style_<x>`,
 *            and the line STYLE(<x>) in styles.def. */
#pragma once

#include "model/arch.h"
#include "net/net.h"

struct style_net { /* what a file's model looks like */
    const struct style_class *is;
    uint64_t in, out; /* widths of a row */
    /* USO: states of the encoder's last layers that it takes one behind the other, rows of each,
     * and how many it makes of each. 0: one, any number, as many. */
    uint64_t states, rows, gives;
};
struct style_pass { /* host memory, borrowed */
    const struct style_net *net;
    const float *x; /* [states, rows, in] */
    uint64_t rows;
    float *out; /* [style_rows(), out] */
};
struct style_class {
    struct arch arch; /* STYLE_ARCH(), .detect, .presets */
    const char *name; /* "Flux Redux": of the family, for people */
    const char *what; /* "a style model (Flux Redux)": likewise */
    /* Fills in all but `is`. Errors say why it cannot be computed. */
    berth_status (*config)(const struct weights *w, const char *root, struct style_net *out,
                           berth_err *err);
    net_forward_fn *forward; /* user: a struct style_pass */
};
#define STYLE(x) extern const struct style_class style_##x;
#include "model/styles.def"
#undef STYLE
#define STYLE_ARCH(name_, about_)                                                                  \
    .base = { .name = name_, .about = about_, .trace = arch_trace, .aliases = arch_aliases },      \
    .role = "style", .trace = style_trace
/* arch.trace of every style model. */
berth_status style_trace(const struct arch *arch, const struct weights *w, const char *root,
                         struct block_trace *out, berth_err *err);

uint64_t style_rows(const struct style_net *s, uint64_t rows); /* that it makes of so many */
/* Which class has its tensors behind part (NULL: all); NULL: none. */
const struct style_class *style_at(const struct weights *w, const char *part);
/* Finds and opens it. a: all but root and names. BERTH_EUNSUPPORTED: it is none. */
berth_status style_open(const struct net_args *a, const char *part, struct style_net *s,
                        struct net **out, berth_err *err);
berth_status style_tokens(struct net *net, const struct style_net *s, const float *x, uint64_t rows,
                          float *out, berth_err *err);
