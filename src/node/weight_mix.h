/* weight_mix: an adapter that is another model: W = mine * W + theirs * W of the other, tensor by
 * tensor, with ratios that names of tensors choose. Without another model it only scales.
 *
 * Merging needs no second copy of a model: residency asks for the terms of one tensor when it
 * derives the block (merge/adapter.h), and only then that tensor of the other file is read, with
 * the other's own adapters merged into it. The adapter opens the other's files by itself, so that a
 * model can be merged with itself. */
#pragma once

#include "node/value.h"

enum mix_kind {
    MIX_RATIO,    /* r W + (1 - r) other */
    MIX_SUBTRACT, /* r (W - other) */
    MIX_ADD,      /* W + other */
    MIX_SCALE,    /* r W */
    MIX_TOWARDS,  /* W + strength (other - W of the file), whatever adapters made of W before */
};
struct mix_rule { /* the ratio of names that begin, or end, with this */
    const char *text;
    double ratio;
};
struct mix_args { /* all borrowed */
    enum mix_kind kind;
    const struct model_ref *other; /* NULL: MIX_SCALE */
    const struct model_ref *base;  /* MIX_TOWARDS: the model it is for; NULL else */
    const struct mix_rule *rule;   /* the longest that fits counts */
    size_t rules;
    bool endings;      /* rules are about the ends of names */
    const char *front; /* in front of names, not looked at: "diffusion_model." */
    double otherwise;  /* where none fits; MIX_SCALE: such tensors are left alone */
    const char *name;  /* for messages */
};
/* res_adapter_unref() it. BERTH_EUNSUPPORTED: the other's weights were
 * converted to a type that has no word. */
berth_status weight_mix_new(const struct mix_args *a, struct res_adapter **out, berth_err *err);
