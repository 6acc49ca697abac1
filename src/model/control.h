/* control: networks that prompts bring along to steer a diffusion model by a picture (CONTROL_NET).
 *
 * Before each pass of the model such a network looks at the same latents and at the picture, or at
 * the picture alone. What it makes of them is added inside the model: to what its input blocks
 * give, to its middle, to what waits for its output blocks. That travels through host memory, so
 * either may compute anywhere. Networks that a MODEL brings along are families.h's
 * (control_class).
 *
 * Words      kind    control nets of one build: a descriptor, as families have one
 *            turn    one pass of a control net
 * Threads    Executor; tables any.
 * Adding     a kind: a `const struct control_kind control_<x>` beside the network that it is made
 *            of, and a line in controls.def.
 * Files      control.c; kinds: unet/control.c, unet/adapter.c, qwen_image/instantx.c,
 *            flux/control.c */
#pragma once

#include "model/families.h"

#define CONTROL_BLOCKS 64 /* of a network, on its way in or out */

struct control_value {  /* for one block */
    struct shape shape; /* ndim 0: nothing */
    float *x;
};
enum control_at { CONTROL_INPUT, CONTROL_MIDDLE, CONTROL_OUTPUT, CONTROL_ATS };
struct control_out { /* what a turn gave */
    struct control_value at[CONTROL_ATS][CONTROL_BLOCKS];
    bool around; /* control_kind */
    float *mem;  /* where its values are */
    size_t cap;
    /* Which turn it has room for: */
    const struct net *net;
    struct shape latents, hint;
    const float *looked_at; /* whose picture it was made of, at which strength */
    float strength;
};
void control_out_free(struct control_out *o); /* NULL is fine */

struct control_turn {
    void *own;                    /* as config() read it */
    const struct family_batch *b; /* x: latents alone; context: what control nets are told */
    const float *hint;
    struct shape hint_shape; /* [1 or n, control_info.channels, ..., h, w] */
    const float *strength;
    const float *types; /* [types]: 1 for what the picture is, else 0 */
    int type;           /* which; -1: not given */
    struct control_out *out;
};
/* Hands y over to a block of the model, times the strength; takes y. */
void control_give(struct net_run *r, const struct control_turn *t, enum control_at at,
                  uint32_t block, struct act y);
/* For forwards: adds what this batch was given for a block to h, in its place. blocks 0: what was
 * given for that one; else of how many it is one, which share what there is. */
void control_add(struct net_run *r, const struct family_batch *b, enum control_at at,
                 uint32_t block, uint32_t blocks, struct act *h);

struct control_kind {
    struct arch arch; /* CONTROL_ARCH(), .detect, .presets */
    const struct family *family;
    size_t bytes; /* of own */
    bool still;   /* what it gives follows from the picture alone */
    bool around;  /* blocks that share its values take them in turn, not each some in a row */
    /* Reads own from shapes. Errors say why it cannot be computed. */
    berth_status (*config)(const struct weights *w, const char *root, void *own, berth_err *err);
    /* Is it for this network of its family? Errors have the widths of both. */
    berth_status (*fits)(const void *own, const struct family_config *cfg, berth_err *err);
    void (*describe)(const void *own, struct control_info *out);
    net_names_fn *names;     /* names_user: own; NULL: the file has our names */
    net_forward_fn *forward; /* user: a struct control_turn */
    /* In its place, where there is something to prepare; peak: as family.forward. */
    berth_status (*turn)(struct net *net, struct control_turn *t, uint64_t *peak, berth_err *err);
    void (*release)(void *own); /* what own refers to; NULL: nothing */
};
#define CONTROL(x) extern const struct control_kind control_##x;
#include "model/controls.def"
#undef CONTROL

#define CONTROL_ARCH(name_, about_)                                                                \
    .base = { .name = name_, .about = about_, .trace = arch_trace, .aliases = arch_aliases },      \
    .role = "control", .trace = control_trace
/* arch.trace of every kind. */
berth_status control_trace(const struct arch *arch, const struct weights *w, const char *root,
                           struct block_trace *out, berth_err *err);

/* ---- for diffusion.c ---- */

struct control; /* one that is loaded and open */
struct control_args {
    const struct net_args *like; /* of the model's net */
    const struct family *family; /* of the model */
    const struct family_config *cfg;
    const char *family_name;
    struct res_model *m; /* loaded */
    const char *part;
};
berth_status control_open(const struct control_args *a, struct control **out, berth_err *err);
void control_close(struct control *c); /* NULL is fine */
struct net_report control_report(const struct control *c);
const struct res_model *control_model(const struct control *c);
/* One turn for the batch; item: [n] of the whole latent, which share out several pictures. */
berth_status control_run(struct control *c, const struct diffusion_steer *s,
                         const struct family_batch *b, const size_t *item, struct control_out *out,
                         berth_err *err);
/* Is there one in the file, and is it for that model? Messages begin with the file. */
berth_status control_check(const struct weights *w, const char *part, const struct family *family,
                           const struct family_config *cfg, const char *family_name,
                           berth_err *err);
