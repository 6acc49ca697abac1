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
    char *path, *name; /* of the LoRA; owned */
    double model, clip;
    struct keyframes frames; /* owned; none: always 1 */
};
struct hooks { /* counted, constant */
    unsigned refs;
    struct hook *at;
    size_t n;
};
extern const struct value_type type_hooks, type_keyframes;
struct hooks *hooks_ref(struct hooks *h); /* NULL is fine */
void hooks_unref(struct hooks *h);        /* NULL is fine */
/* a's, then b's; either may be NULL. *out NULL: both are. */
berth_status hooks_join(const struct hooks *a, const struct hooks *b, struct hooks **out,
                        berth_err *err);

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
