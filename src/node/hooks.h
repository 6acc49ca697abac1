/* hooks: LoRAs that count for some prompts only, and more or less of them from step to step.
 *
 * Words      hook      a LoRA file with its strengths
 *            keyframe  from some percent of the steps on, strengths are multiplied by this
 * HOOKS and HOOK_KEYFRAMES are values; a prompt carries its hooks (cond_entry.hooks). While
 * sampling, prompts with different hooks are computed one after the other, the model patched for
 * each: a run asks hooks_model() which model that is at a noise level. */
#pragma once

#include "node/compute.h"

struct keyframe {
    double strength, percent;
    unsigned guaranteed; /* steps it counts for at least */
};
struct keyframes { /* in the order of their percents */
    struct keyframe *at;
    size_t n;
};
struct hook {
    char *path, *name; /* of the LoRA; owned; path NULL: it is `as` */
    /* MODEL and CLIP of a checkpoint whose weights it leads to; references or NULL. */
    struct value *as_model, *as_clip;
    double model, clip;
    struct keyframes frames; /* owned; none: always 1 */
    /* What copies of a hook have in common: of two that have it, a list keeps the first. Counts
     * them; owned by all. */
    unsigned *mark;
};
struct hooks { /* counted, constant */
    unsigned refs;
    struct hook *at;
    size_t n;
};
extern const struct value_type type_hooks, type_keyframes;
struct hooks *hooks_ref(struct hooks *h); /* NULL is fine */
void hooks_unref(struct hooks *h);        /* NULL is fine */
/* a's, then those of b that a has not; either may be NULL. *out NULL: both are. */
berth_status hooks_join(const struct hooks *a, const struct hooks *b, struct hooks **out,
                        berth_err *err);

/* `before` (NULL: none) and a copy of one more, with a mark of its own. */
berth_status hooks_with(const struct hooks *before, const struct hook *one, struct hooks **out,
                        berth_err *err);
berth_status in_hooks(const struct node_call *c, const char *input, const struct hooks **out,
                      berth_err *err); /* not given: NULL */
/* Output 0; takes them. */
berth_status give_hooks(struct node_call *c, struct hooks *taken, berth_err *err);
/* What a hook does to a model, or to text encoders; res_adapter_unref() it. */
berth_status hook_adapter(struct node_call *c, const struct hook *h, const struct model_ref *base,
                          bool clip, struct res_adapter **out, berth_err *err);

/* ---- text encoders (hooks_text.c) ---- */

struct clip_span { /* of a run, in percents, and what hooks are then */
    double start, end;
    double *strength; /* [hooks] of keyframes; NULL: 1 each */
};
/* Spans over which all keyframes stay as they are; struct clip_span, whose strengths are of mem.
 * BERTH_EINVAL: there is none. */
berth_status hooks_spans(const struct hooks *h, struct arena *mem, struct vec *out, berth_err *err);
/* base with its hooks in such a span; model_ref_release() it. */
berth_status hooks_clip(struct node_call *c, const struct model_ref *base, const struct hooks *h,
                        const struct clip_span *s, struct model_ref *out, berth_err *err);

/* ---- a run ---- */
struct hooks_run; /* what it knows of its hooks; hooks_run_free() */
/* `base` with the hooks as strong as they are at sigma: borrowed until hooks_run_free(), the same
 * one for the same strengths. */
berth_status hooks_model(struct hooks_run **run, struct node_call *c, const struct model_ref *base,
                         const struct hooks *h, const struct msampling *ms, float sigma,
                         float max_sigma, const struct model_ref **out, berth_err *err);
void hooks_run_free(struct hooks_run *r); /* NULL is fine */

/* loader_lora.c: the adapter of a file for a model. */
berth_status lora_for(struct node_call *c, const char *path, const struct model_ref *ref,
                      struct res_adapter **out, berth_err *err);
