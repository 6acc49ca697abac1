/* value: what travels along the links of a workflow.
 *
 * Words      value   immutable once it left the node that made it, counted; nodes that change
 *                    something make a new one (tensors inside are counted themselves and shared)
 *            values  a list of values: everything travels as a list (comfyui-api.md 5)
 * Kinds      IMAGE, MASK, SIGMAS: V_TENSOR, float32 on the host (IMAGE [n,h,w,c] 0..1, MASK
 *            [n,h,w]). LATENT: V_LATENT. MODEL, CLIP, VAE, ...: V_MODEL. CONDITIONING, GUIDER,
 *            NOISE, SAMPLER: V_OBJECT, each with a type of its own (compute.h). AUDIO, VIDEO:
 *            likewise (clips.h).
 * Threads    Executor only; counts are plain. */
#pragma once

#include "base/json.h"
#include "model/latent_format.h"
#include "model/patch.h"
#include "residency/residency.h"
#include "sample/guide.h"
#include "tensor/shape.h"

/* ---- host tensors ---- */
struct htensor { /* float32, contiguous, row-major */
    unsigned refs;
    struct shape shape;
    float *data;
};
/* Not zeroed. BERTH_ELIMIT beyond HTENSOR_MAX bytes, BERTH_ENOMEM without room, naming the
 * shape. */
berth_status htensor_new(const struct shape *s, struct htensor **out, berth_err *err);
berth_status htensor_zeros(const struct shape *s, struct htensor **out, berth_err *err);
struct htensor *htensor_ref(struct htensor *t);
void htensor_unref(struct htensor *t); /* NULL is fine */
/* Of data that malloc() gave; takes it, also on failure. */
berth_status htensor_take(const struct shape *s, float *taken, struct htensor **out,
                          berth_err *err);
/* What was made and ended with s, which comes back: after an error it is gone and *t is NULL. */
berth_status htensor_made(berth_status s, struct htensor **t);
/* A new one with the same values. */
berth_status htensor_copy(const struct htensor *t, struct htensor **out, berth_err *err);
size_t htensor_count(const struct htensor *t);
#define HTENSOR_MAX ((size_t)16 << 30)
/* Is there memory for so many bytes more? An error in numbers instead of the kernel's, which ends
 * the process. Small sizes always pass. root: of meminfo_read(), "" but in tests. */
berth_status host_room(const char *root, size_t bytes, berth_err *err);

/* ---- values ---- */
enum value_kind {
    V_NULL,
    V_INT,
    V_UINT,
    V_FLOAT,
    V_BOOL,
    V_STRING,
    V_JSON,
    V_TENSOR,
    V_LATENT,
    V_MODEL,
    V_OBJECT
};

struct latent {
    struct htensor *samples;    /* [n,c,h,w] or [n,c,t,h,w] */
    struct htensor *noise_mask; /* NULL: none */
    int64_t *batch_index;       /* NULL: none; samples' n of them */
    struct latent_more {        /* what is sampled with it: the sound of a video; NULL: no more */
        struct htensor *samples, *noise_mask;
    } more[LATENT_MORE];
};

struct model_change {         /* what a node did to a model */
    struct guide_patch guide; /* to its predictions; guide.is NULL: nothing */
    /* To its network; net.is NULL: nothing. With a guide that has passes of its own it is for these
     * alone (guide_patch.how). */
    struct net_patch net;
    struct model_cache { /* EasyCache, LazyCache */
        bool said, whole;
        double threshold, start, end; /* the last two: percents */
    } cache;
    struct windows windows; /* context windows; length 0: none */
    struct value *with;     /* a CONDITIONING for the guide, a reference; NULL: none */
};

/* A model as nodes hand it on: residency handles, what to patch them with, what else was said. */
#define VALUE_PARTS 4 /* QuadrupleCLIPLoader */
struct model_ref {
    struct res_model *part[VALUE_PARTS]; /* handles, owned */
    size_t parts;
    /* Select...Device put the parts elsewhere: those that the loader opened, handles, owned; NULL:
     * the parts are these. */
    struct res_model *loaded[VALUE_PARTS];
    struct res_patch
        *patch; /* adapters with strengths, owned references; applied when it computes */
    size_t patches;
    struct model_change *change; /* what nodes did to it, in their order; owned */
    size_t changes;
    /* SetClipHooks: HOOKS that change the text encoders, and such that prompts they encode get;
     * references or NULL. */
    struct value *clip_hooks, *cond_hooks;
    char *clip_type;               /* CLIP: "stable_diffusion", ... ; owned or NULL */
    char *missing;                 /* no parts: why, as a sentence; owned or NULL */
    struct model_control *control; /* the last network that steers it; a reference or NULL */
    struct htensor *tokens; /* MODEL: [1, n, width] in front of the text's; a reference or NULL */
    struct model_said {     /* what nodes said about it; zero: nothing */
        bool sampled;       /* ModelSampling*: sampling instead of what the file says */
        struct ms_config sampling;
        bool playground; /* latents are Playground's */
        bool differs;    /* DifferentialDiffusion, with this strength */
        double differential;
        bool clip_scheduled; /* clip_hooks follow their keyframes: a prompt for each of them */
        bool padded;         /* T5TokenizerOptions: the next two count */
        uint32_t min_padding, min_length;
        int clip_skip;   /* stop_at_clip_layer; 0: none */
        enum dtype act;  /* ModelComputeDtype: of activations; DT_NONE: nothing */
        bool fp8;        /* weight_dtype fp8_e4m3fn_fast: products in fp8 */
        int picture;     /* CONTROL_NET: 1 + the type of pictures a union net gets; 0: not given */
        bool no_network; /* VAE: taesd or pixel_space, which cannot be computed yet */
    } said;
};

/* A network that steers a diffusion model, and what it looks at; counted, and shared once made. */
struct model_control {
    unsigned refs;
    struct model_control *before; /* one that was there before it; a reference or NULL */
    struct model_ref net, vae;
    struct htensor *image, *inpaint; /* references; NULL: none */
    struct htensor *mask;            /* 1 is what stays; likewise */
    double strength;
};
struct model_control *model_control_new(void);     /* zeroed, one reference; NULL: out of memory */
void model_control_unref(struct model_control *k); /* NULL is fine */

struct value_type {   /* V_OBJECT */
    const char *name; /* "CONDITIONING" */
    void (*free)(void *obj);
    size_t (*bytes)(const void *obj); /* for --cache-ram; NULL: unknown, counts as 0 */
};

struct value {
    unsigned refs;
    enum value_kind kind;
    union {
        int64_t i;
        uint64_t u; /* V_UINT: above INT64_MAX only */
        double f;
        bool b;
        char *why; /* V_NULL: why there is nothing, as a sentence; NULL: not given */
        struct {
            char *p;
            size_t n;
        } s;
        json_t *json;
        struct htensor *tensor;
        struct latent latent;
        struct model_ref model;
        struct {
            const struct value_type *type;
            void *obj;
        } object;
    };
};

/* NULL: out of memory. Those that take ownership take it also then. */
struct value *value_null(void);
struct value *value_none(char *taken_why); /* V_NULL in place of what a file does not have */
struct value *value_int(int64_t i);
struct value *value_uint(uint64_t u);
struct value *value_float(double f);
struct value *value_bool(bool b);
struct value *value_string(const char *p, size_t n);
struct value *value_json(json_t *taken);
struct value *value_tensor(struct htensor *taken);
struct value *value_latent(struct latent *taken);   /* *taken is zeroed */
struct value *value_model(struct model_ref *taken); /* *taken is zeroed */
struct value *value_object(const struct value_type *type, void *taken);
struct value *value_from_json(const json_t *v); /* scalars as themselves, the rest V_JSON */
/* In place of an output: nodes that get it are not called, and hand on such ones themselves. The
 * first of them tells clients the message; NULL: nobody is told. */
struct value *value_blocker(const char *message);
bool value_is_blocker(const struct value *v, const char **message); /* message may be NULL */
struct value *value_ref(struct value *v);
void value_unref(struct value *v);         /* NULL is fine */
size_t value_bytes(const struct value *v); /* host memory it holds, roughly; weights not included */
/* For execution_error's current_inputs and PreviewAny: scalars as they are, others described
 * ("tensor [1, 64, 64, 3]"). */
json_t *value_describe(const struct value *v);

void latent_release(struct latent *l);
void model_ref_release(struct model_ref *m);
/* A copy that shares handles and adapters. */
berth_status model_ref_copy(const struct model_ref *m, struct model_ref *out, berth_err *err);
/* One adapter more, of which it takes a reference. */
berth_status model_ref_patch(struct model_ref *m, struct res_adapter *a, double strength,
                             berth_err *err);
/* One change more. Takes c.with, also on failure. BERTH_ELIMIT: more than MODEL_CHANGES. */
berth_status model_ref_change(struct model_ref *m, struct model_change c, berth_err *err);
#define MODEL_CHANGES 256

struct values {
    struct value **at; /* owned references */
    size_t n, cap;
};
/* Takes the reference, also on failure (BERTH_ENOMEM; v NULL counts as such). */
berth_status values_add(struct values *x, struct value *taken, berth_err *err);
void values_release(struct values *x); /* empty again */
