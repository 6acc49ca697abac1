/* hooks.c: the values, what nodes make of them, and what a run does with them (hooks.h). */
#include "node/hooks.h"

#include "node/loader_impl.h"
#include "node/weight_mix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HOOKS_MAX 256
#define KEYFRAMES_MAX 4096

/* ---- keyframes ---- */

static berth_status frames_copy(const struct keyframes *from, size_t more, struct keyframes *out,
                                berth_err *err)
{
    *out = (struct keyframes) { 0 };
    if (more > KEYFRAMES_MAX || from->n + more > KEYFRAMES_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu keyframes, more than %d", from->n + more,
                       KEYFRAMES_MAX);
    out->at = calloc(from->n + more + 1, sizeof *out->at);
    if (!out->at)
        return err_set(err, BERTH_ENOMEM, "%zu keyframes", from->n + more);
    out->n = from->n;
    if (from->n)
        memcpy(out->at, from->at, from->n * sizeof *out->at);
    return BERTH_OK;
}

/* There is room for it. Those of one percent stay in the order they came. */
static void frames_add(struct keyframes *k, struct keyframe f)
{
    size_t i = k->n++;
    for (; i && k->at[i - 1].percent > f.percent; i--)
        k->at[i] = k->at[i - 1];
    k->at[i] = f;
}

static void free_frames(void *obj)
{
    free(((struct keyframes *)obj)->at);
    free(obj);
}

const struct value_type type_keyframes = { .name = "HOOK_KEYFRAMES", .free = free_frames };

/* The input's, with room for more of them; none is given: empty. */
static berth_status in_frames(const struct node_call *c, const char *input, size_t more,
                              struct keyframes *out, berth_err *err)
{
    static const struct keyframes none;
    const void *obj = &none;
    if (in_given(c, input) && in_object(c, input, &type_keyframes, &obj, err))
        return err->code;
    return frames_copy(obj, more, out, err);
}

static berth_status give_frames(struct node_call *c, struct keyframes k, berth_err *err)
{
    struct keyframes *x = malloc(sizeof *x);
    if (!x) {
        free(k.at);
        return err_set(err, BERTH_ENOMEM, "keyframes");
    }
    *x = k;
    return out_value(c, 0, value_object(&type_keyframes, x), err);
}

/* ---- hooks ---- */

static void hook_release(struct hook *h)
{
    free(h->path);
    free(h->name);
    free(h->frames.at);
    value_unref(h->as_model);
    value_unref(h->as_clip);
    if (h->mark && --*h->mark == 0)
        free(h->mark);
    *h = (struct hook) { 0 };
}

static berth_status hook_copy(const struct hook *h, const struct keyframes *frames,
                              struct hook *out, berth_err *err)
{
    *out = (struct hook) { .path = h->path ? strdup(h->path) : NULL,
                           .name = strdup(h->name),
                           .as_model = h->as_model ? value_ref(h->as_model) : NULL,
                           .as_clip = h->as_clip ? value_ref(h->as_clip) : NULL,
                           .model = h->model,
                           .clip = h->clip,
                           .mark = h->mark ? h->mark : calloc(1, sizeof *out->mark) };
    if (out->mark)
        ++*out->mark;
    if ((h->path && !out->path) || !out->name || !out->mark)
        return err_set(err, BERTH_ENOMEM, "a hook");
    return frames_copy(frames ? frames : &h->frames, 0, &out->frames, err);
}

struct hooks *hooks_ref(struct hooks *h)
{
    if (h)
        h->refs++;
    return h;
}

void hooks_unref(struct hooks *h)
{
    if (!h || --h->refs)
        return;
    for (size_t i = 0; i < h->n; i++)
        hook_release(&h->at[i]);
    free(h->at);
    free(h);
}

static void free_hooks(void *obj)
{
    hooks_unref(obj);
}

const struct value_type type_hooks = { .name = "HOOKS", .free = free_hooks };

/* n hooks, none of them filled in. */
static berth_status hooks_new(size_t n, struct hooks **out, berth_err *err)
{
    *out = NULL;
    if (n > HOOKS_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu hooks, more than %d", n, HOOKS_MAX);
    struct hooks *h = calloc(1, sizeof *h);
    if (h)
        h->at = calloc(n + 1, sizeof *h->at);
    *out = h && h->at ? h : NULL;
    if (*out) {
        h->refs = 1;
        return BERTH_OK;
    }
    free(h);
    return err_set(err, BERTH_ENOMEM, "%zu hooks", n);
}

static berth_status hooks_add(struct hooks *to, const struct hooks *from,
                              const struct keyframes *frames, berth_err *err)
{
    for (size_t i = 0; from && i < from->n; i++) {
        bool there = false;
        for (size_t k = 0; k < to->n; k++)
            there = there || to->at[k].mark == from->at[i].mark;
        if (!there && hook_copy(&from->at[i], frames, &to->at[to->n++], err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status hooks_with(const struct hooks *before, const struct hook *one, struct hooks **out,
                        berth_err *err)
{
    if (hooks_new((before ? before->n : 0) + 1, out, err))
        return err->code;
    if (!hooks_add(*out, before, NULL, err) && !hook_copy(one, NULL, &(*out)->at[(*out)->n++], err))
        return BERTH_OK;
    hooks_unref(*out);
    *out = NULL;
    return err->code;
}

berth_status hooks_join(const struct hooks *a, const struct hooks *b, struct hooks **out,
                        berth_err *err)
{
    *out = NULL;
    if (!a && !b)
        return BERTH_OK;
    if (hooks_new((a ? a->n : 0) + (b ? b->n : 0), out, err))
        return err->code;
    if (hooks_add(*out, a, NULL, err) || hooks_add(*out, b, NULL, err)) {
        hooks_unref(*out);
        *out = NULL;
        return err->code;
    }
    return BERTH_OK;
}

berth_status in_hooks(const struct node_call *c, const char *input, const struct hooks **out,
                      berth_err *err)
{
    const void *obj = NULL;
    berth_status s = in_given(c, input) ? in_object(c, input, &type_hooks, &obj, err) : BERTH_OK;
    *out = obj;
    return s;
}

berth_status give_hooks(struct node_call *c, struct hooks *taken, berth_err *err)
{
    if (!taken && hooks_new(0, &taken, err))
        return err->code;
    return out_value(c, 0, value_object(&type_hooks, taken), err);
}

/* ---- nodes that make them ---- */

static berth_status run_create(struct node_call *c, berth_err *err)
{
    const struct hooks *before;
    struct hooks *h = NULL;
    struct str path = { 0 };
    struct hook one = { 0 };
    const char *name;
    if (in_hooks(c, "prev_hooks", &before, err) || in_text(c, "lora_name", &name, err) ||
        in_finite(c, "strength_model", &one.model, err) ||
        (node_input_index(c->cls, "strength_clip") != SIZE_MAX &&
         in_finite(c, "strength_clip", &one.clip, err)))
        return err->code;
    berth_status s = BERTH_OK;
    if (one.model == 0 && one.clip == 0) /* says nothing, and the file is not looked at */
        s = hooks_join(before, NULL, &h, err);
    else if (!(s = folders_resolve(c->env->folders, "loras", name, &path, err))) {
        one.path = path.p;
        one.name = (char *)(uintptr_t)name;
        s = hooks_with(before, &one, &h, err);
    }
    str_release(&path);
    return s ? s : give_hooks(c, h, err);
}

/* A part of a checkpoint, opened and not loaded; *out NULL: it has none such. */
static berth_status open_part(struct node_call *c, const char *name, const char *role,
                              struct value **out, berth_err *err)
{
    const struct placement p = { .retention = RES_AUTO, .unloaded = true };
    struct opened o = { 0 };
    bool found;
    *out = NULL;
    berth_status s = loader_open(c, "checkpoints", name, role, &p, &o, &found, err);
    if (!s && found && !(*out = value_model(&o.ref)))
        s = err_set(err, BERTH_ENOMEM, "a hook");
    opened_release(&o, s);
    return s;
}

static berth_status run_create_model(struct node_call *c, berth_err *err)
{
    const struct hooks *before;
    struct hooks *h = NULL;
    struct hook one = { 0 };
    const char *name;
    bool clip = node_input_index(c->cls, "strength_clip") != SIZE_MAX;
    if (in_hooks(c, "prev_hooks", &before, err) || in_text(c, "ckpt_name", &name, err) ||
        in_finite(c, "strength_model", &one.model, err) ||
        (clip && in_finite(c, "strength_clip", &one.clip, err)))
        return err->code;
    one.name = (char *)(uintptr_t)name;
    berth_status s = open_part(c, name, "unet", &one.as_model, err);
    if (!s && clip)
        s = open_part(c, name, "clip", &one.as_clip, err);
    if (!s)
        s = hooks_with(before, &one, &h, err);
    value_unref(one.as_model);
    value_unref(one.as_clip);
    return s ? s : give_hooks(c, h, err);
}

#define HOOKS(c, title, group, ...)                                                                \
    NODE_CLASS(c, .display = title, .category = "advanced/hooks" group, .module = MOD("hooks"),    \
               .flags = NODE_EXPERIMENTAL, __VA_ARGS__)
#define STRENGTH_IN(n) FLOAT_IN(n, 1.0, -20.0, 20.0, 0.01)

HOOKS(CreateHookLora, "Create Hook LoRA", "/create",
      INS(FOLDER_IN("lora_name", "loras"), STRENGTH_IN("strength_model"),
          STRENGTH_IN("strength_clip"), OPTIONAL("prev_hooks", "HOOKS")),
      OUT_OF("HOOKS"), .run = run_create);
HOOKS(CreateHookLoraModelOnly, "Create Hook LoRA (MO)", "/create",
      INS(FOLDER_IN("lora_name", "loras"), STRENGTH_IN("strength_model"),
          OPTIONAL("prev_hooks", "HOOKS")),
      OUT_OF("HOOKS"), .run = run_create);

HOOKS(CreateHookModelAsLora, "Create Hook Model as LoRA", "/create",
      INS(FOLDER_IN("ckpt_name", "checkpoints"), STRENGTH_IN("strength_model"),
          STRENGTH_IN("strength_clip"), OPTIONAL("prev_hooks", "HOOKS")),
      OUT_OF("HOOKS"), .run = run_create_model);
HOOKS(CreateHookModelAsLoraModelOnly, "Create Hook Model as LoRA (MO)", "/create",
      INS(FOLDER_IN("ckpt_name", "checkpoints"), STRENGTH_IN("strength_model"),
          OPTIONAL("prev_hooks", "HOOKS")),
      OUT_OF("HOOKS"), .run = run_create_model);

static berth_status run_combine(struct node_call *c, berth_err *err)
{
    struct hooks *all = NULL;
    for (size_t i = 0; i < c->cls->ins; i++) {
        const struct hooks *h;
        struct hooks *more;
        if (in_hooks(c, c->cls->in[i].name, &h, err) || hooks_join(all, h, &more, err)) {
            hooks_unref(all);
            return err->code;
        }
        hooks_unref(all);
        all = more;
    }
    return give_hooks(c, all, err);
}

#define H(n) OPTIONAL("hooks_" n, "HOOKS")
HOOKS(CombineHooks2, "Combine Hooks [2]", "/combine", INS(H("A"), H("B")), OUT_OF("HOOKS"),
      .run = run_combine);
HOOKS(CombineHooks4, "Combine Hooks [4]", "/combine", INS(H("A"), H("B"), H("C"), H("D")),
      OUT_OF("HOOKS"), .run = run_combine);
HOOKS(CombineHooks8, "Combine Hooks [8]", "/combine",
      INS(H("A"), H("B"), H("C"), H("D"), H("E"), H("F"), H("G"), H("H")), OUT_OF("HOOKS"),
      .run = run_combine);

/* ---- nodes about when ---- */

static berth_status run_set_frames(struct node_call *c, berth_err *err)
{
    const struct hooks *h;
    const void *frames = NULL;
    struct hooks *out;
    if (in_hooks(c, "hooks", &h, err) ||
        (in_given(c, "hook_kf") && in_object(c, "hook_kf", &type_keyframes, &frames, err)) ||
        hooks_new(h ? h->n : 0, &out, err))
        return err->code;
    if (!hooks_add(out, h, frames, err))
        return give_hooks(c, out, err);
    hooks_unref(out);
    return err->code;
}

HOOKS(SetHookKeyframes, "Set Hook Keyframes", "/scheduling",
      INS(SOCKET("hooks", "HOOKS"), OPTIONAL("hook_kf", "HOOK_KEYFRAMES")), OUT_OF("HOOKS"),
      .run = run_set_frames);

#define FRAMES_OUT OUTS({ .type = "HOOK_KEYFRAMES", .name = "HOOK_KF" })
#define FRAMES_BEFORE OPTIONAL("prev_hook_kf", "HOOK_KEYFRAMES")
#define PERCENT_IN(n, def) FLOAT_IN(n, def, 0.0, 1.0, 0.001)

static berth_status run_keyframe(struct node_call *c, berth_err *err)
{
    struct keyframe f = { .guaranteed = 1 };
    struct keyframes k;
    if (in_finite(c, "strength_mult", &f.strength, err) ||
        in_finite(c, "start_percent", &f.percent, err) || in_frames(c, "prev_hook_kf", 1, &k, err))
        return err->code;
    frames_add(&k, f);
    return give_frames(c, k, err);
}

HOOKS(CreateHookKeyframe, "Create Hook Keyframe", "/scheduling",
      INS(STRENGTH_IN("strength_mult"), PERCENT_IN("start_percent", 0.0), FRAMES_BEFORE),
      FRAMES_OUT, .run = run_keyframe);

/* n frames from one percent to another, the first one for one step at least. */
static void spread(struct keyframes *k, double from, double to, const double *strength, size_t n)
{
    for (size_t i = 0; i < n; i++)
        frames_add(k, (struct keyframe) { .strength = strength[i],
                                          .percent = (double)sigmas_linspace(from, to, n, i),
                                          .guaranteed = i == 0 });
}

static double eased(const char *how, double x)
{
    return strcmp(how, "ease_in") == 0       ? x * x
           : strcmp(how, "ease_out") == 0    ? 1 - (1 - x) * (1 - x)
           : strcmp(how, "ease_in_out") == 0 ? (1 - cos(x * 3.14159265358979323846)) / 2
                                             : x;
}

static berth_status run_interpolated(struct node_call *c, berth_err *err)
{
    double from, to, start, end, strength[100];
    const char *how;
    int64_t n;
    struct keyframes k;
    if (in_finite(c, "strength_start", &from, err) || in_finite(c, "strength_end", &to, err) ||
        in_text(c, "interpolation", &how, err) || in_finite(c, "start_percent", &start, err) ||
        in_finite(c, "end_percent", &end, err) || in_i64(c, "keyframes_count", &n, err))
        return err->code;
    if (n < 2 || n > 100)
        return err_set(err, BERTH_EINVAL, "%lld keyframes, not 2 to 100", (long long)n);
    if (in_frames(c, "prev_hook_kf", (size_t)n, &k, err))
        return err->code;
    for (size_t i = 0; i < (size_t)n; i++)
        strength[i] = (to - from) * eased(how, (double)i / (double)(n - 1)) + from;
    spread(&k, start, end, strength, (size_t)n);
    return give_frames(c, k, err);
}

HOOKS(CreateHookKeyframesInterpolated, "Create Hook Keyframes Interp.", "/scheduling",
      INS(FLOAT_IN("strength_start", 1.0, 0.0, 10.0, 0.001),
          FLOAT_IN("strength_end", 1.0, 0.0, 10.0, 0.001),
          COMBO_IN("interpolation", CHOICES("linear", "ease_in", "ease_out", "ease_in_out")),
          PERCENT_IN("start_percent", 0.0), PERCENT_IN("end_percent", 1.0),
          INT_IN("keyframes_count", 5, 2, 100, 1),
          BOOL_IN("print_keyframes", false, .more = ADVANCED), FRAMES_BEFORE),
      FRAMES_OUT, .run = run_interpolated);

/* Numbers of a list, or one alone. */
static berth_status in_floats(const struct node_call *c, const char *input, struct vec *out,
                              berth_err *err)
{
    const struct value *v = in_value(c, input);
    bool list = v && v->kind == V_JSON && json_is_array(v->json);
    size_t n = list ? json_array_size(v->json) : 1;
    for (size_t i = 0; i < n; i++) {
        double x = 0;
        bool ok = list                 ? js_get_f64(json_array_get(v->json, i), &x)
                  : !v                 ? false
                  : v->kind == V_FLOAT ? (x = v->f, true)
                  : v->kind == V_INT   ? (x = (double)v->i, true)
                                       : false;
        if (!ok || !isfinite(x))
            return err_set(err, BERTH_EINVAL, "input '%s' must be numbers", input);
        if (!vec_push(out, &x))
            return err_set(err, BERTH_ENOMEM, "%zu numbers", n);
    }
    return BERTH_OK;
}

static berth_status run_from_floats(struct node_call *c, berth_err *err)
{
    struct vec strength = { .elem = sizeof(double) };
    struct keyframes k;
    double start, end;
    berth_status s = in_floats(c, "floats_strength", &strength, err);
    if (!s &&
        (in_finite(c, "start_percent", &start, err) || in_finite(c, "end_percent", &end, err) ||
         in_frames(c, "prev_hook_kf", strength.n, &k, err)))
        s = err->code;
    if (!s)
        spread(&k, start, end, strength.p, strength.n);
    vec_release(&strength);
    return s ? s : give_frames(c, k, err);
}

HOOKS(CreateHookKeyframesFromFloats, "Create Hook Keyframes From Floats", "/scheduling",
      INS(SOCKET("floats_strength", "FLOATS",
                 .more = "\"default\":-1,\"min\":-1,\"step\":0.001,\"forceInput\":true"),
          PERCENT_IN("start_percent", 0.0), PERCENT_IN("end_percent", 1.0),
          BOOL_IN("print_keyframes", false, .more = ADVANCED), FRAMES_BEFORE),
      FRAMES_OUT, .run = run_from_floats);

/* ---- nodes that put them on prompts ---- */

struct span { /* TIMESTEPS_RANGE */
    double start, end;
};
static void free_span(void *obj)
{
    free(obj);
}
static const struct value_type type_span = { .name = "TIMESTEPS_RANGE", .free = free_span };

static berth_status run_span(struct node_call *c, berth_err *err)
{
    double start, end;
    if (in_finite(c, "start_percent", &start, err) || in_finite(c, "end_percent", &end, err))
        return err->code;
    const struct span given[3] = { { start, end }, { 0, start }, { end, 1 } };
    for (size_t i = 0; i < ARRAY_LEN(given); i++) {
        struct span *x = malloc(sizeof *x);
        if (!x)
            return err_set(err, BERTH_ENOMEM, "a range");
        *x = given[i];
        if (out_value(c, i, value_object(&type_span, x), err))
            return err->code;
    }
    return BERTH_OK;
}

HOOKS(ConditioningTimestepsRange, "Timesteps Range", "",
      INS(PERCENT_IN("start_percent", 0.0), PERCENT_IN("end_percent", 1.0)),
      OUTS({ .type = "TIMESTEPS_RANGE" }, { .type = "TIMESTEPS_RANGE", .name = "BEFORE_RANGE" },
           { .type = "TIMESTEPS_RANGE", .name = "AFTER_RANGE" }),
      .run = run_span);

static berth_status add_hooks(struct cond_entry *e, const struct hooks *hooks, berth_err *err)
{
    struct hooks *all = NULL;
    if (!hooks || hooks_join(e->hooks, hooks, &all, err))
        return hooks ? err->code : BERTH_OK;
    hooks_unref(e->hooks);
    e->hooks = all;
    return BERTH_OK;
}

static berth_status set_otherwise(struct node_call *c, struct conditioning *x, berth_err *err)
{
    const struct hooks *hooks;
    if (in_hooks(c, "hooks", &hooks, err))
        return err->code;
    for (size_t i = 0; i < x->n; i++) {
        x->at[i].otherwise = true;
        if (add_hooks(&x->at[i], hooks, err))
            return err->code;
    }
    return BERTH_OK;
}

/* What a node says of prompts: mask, hooks, range, each if it is given. */
static berth_status set_props(struct node_call *c, struct conditioning *x, berth_err *err)
{
    const struct hooks *hooks = NULL;
    const void *span = NULL;
    struct htensor *mask = NULL;
    double strength = 1;
    const char *bounds = "default";
    if (in_hooks(c, "hooks", &hooks, err) ||
        (in_given(c, "timesteps") && in_object(c, "timesteps", &type_span, &span, err)) ||
        (in_given(c, "mask") && in_mask(c, "mask", &mask, err)) ||
        in_finite(c, "strength", &strength, err) || in_text(c, "set_cond_area", &bounds, err))
        return err->code;
    for (size_t i = 0; i < x->n; i++) {
        struct cond_entry *e = &x->at[i];
        if (add_hooks(e, hooks, err))
            return err->code;
        if (mask) {
            htensor_unref(e->mask);
            e->mask = htensor_ref(mask);
            e->mask_strength = strength;
            e->mask_bounds = strcmp(bounds, "default") != 0;
        }
        if (span) {
            e->start_percent = ((const struct span *)span)->start;
            e->end_percent = ((const struct span *)span)->end;
            e->ranged = true;
        }
    }
    return BERTH_OK;
}

/* Inputs of an output, in its order: those that are there already (NULL: none) and new ones. */
struct props {
    bool plain;     /* nothing is said of them */
    bool otherwise; /* hooks alone are said of the new ones, and that they are the default */
    struct {
        const char *before, *new;
    } out[2];
};

static berth_status run_props(struct node_call *c, berth_err *err)
{
    const struct props *p = c->cls->own;
    for (size_t i = 0; i < c->cls->outs; i++) {
        const struct conditioning *before = NULL, *new;
        struct conditioning *x, *both;
        if ((p->out[i].before && in_conditioning(c, p->out[i].before, &before, err)) ||
            in_conditioning(c, p->out[i].new, &new, err) || conditioning_copy(new, &x, err))
            return err->code;
        berth_status s = p->plain       ? BERTH_OK
                         : p->otherwise ? set_otherwise(c, x, err)
                                        : set_props(c, x, err);
        if (!s && before) {
            s = conditioning_join(before, x, &both, err);
            conditioning_free(x);
            x = s ? NULL : both;
        }
        if (!s)
            s = out_conditioning(c, i, x, err);
        else
            conditioning_free(x);
        if (s)
            return s;
    }
    return BERTH_OK;
}

#define PROPS_IN                                                                                   \
    FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01),                                                    \
        COMBO_IN("set_cond_area", CHOICES("default", "mask bounds")), OPTIONAL("mask", "MASK"),    \
        OPTIONAL("hooks", "HOOKS"), OPTIONAL("timesteps", "TIMESTEPS_RANGE")
#define C(n) SOCKET(n, "CONDITIONING")
#define ONE_OUT OUT_OF("CONDITIONING"), .run = run_props
#define TWO_OUT OUTS(PAIR_OUT), .run = run_props
#define SAYS(...)                                                                                  \
    .own = &(const struct props)                                                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

HOOKS(ConditioningSetProperties, "Cond Set Props", "/cond single", INS(C("cond_NEW"), PROPS_IN),
      ONE_OUT, SAYS(.out = { { NULL, "cond_NEW" } }));
HOOKS(ConditioningSetPropertiesAndCombine, "Cond Set Props Combine", "/cond single",
      INS(C("cond"), C("cond_NEW"), PROPS_IN), ONE_OUT, SAYS(.out = { { "cond", "cond_NEW" } }));
HOOKS(PairConditioningSetProperties, "Cond Pair Set Props", "/cond pair",
      INS(C("positive_NEW"), C("negative_NEW"), PROPS_IN), TWO_OUT,
      SAYS(.out = { { NULL, "positive_NEW" }, { NULL, "negative_NEW" } }));
HOOKS(PairConditioningSetPropertiesAndCombine, "Cond Pair Set Props Combine", "/cond pair",
      INS(C("positive"), C("negative"), C("positive_NEW"), C("negative_NEW"), PROPS_IN), TWO_OUT,
      SAYS(.out = { { "positive", "positive_NEW" }, { "negative", "negative_NEW" } }));
HOOKS(PairConditioningCombine, "Cond Pair Combine", "/cond pair",
      INS(C("positive_A"), C("negative_A"), C("positive_B"), C("negative_B")), TWO_OUT,
      SAYS(.out = { { "positive_A", "positive_B" }, { "negative_A", "negative_B" } },
           .plain = true));

/* ---- prompts for where others do not count ---- */

HOOKS(ConditioningSetDefaultCombine, "Cond Set Default Combine", "/cond single",
      INS(C("cond"), C("cond_DEFAULT"), OPTIONAL("hooks", "HOOKS")), ONE_OUT,
      SAYS(.out = { { "cond", "cond_DEFAULT" } }, .otherwise = true));
HOOKS(PairConditioningSetDefaultCombine, "Cond Pair Set Default Combine", "/cond pair",
      INS(C("positive"), C("negative"), C("positive_DEFAULT"), C("negative_DEFAULT"),
          OPTIONAL("hooks", "HOOKS")),
      TWO_OUT,
      SAYS(.out = { { "positive", "positive_DEFAULT" }, { "negative", "negative_DEFAULT" } },
           .otherwise = true));

/* ---- a run ---- */

struct frame_state { /* where a hook's keyframes are */
    const struct hook *of;
    size_t at, used;
    float sigma;
    bool begun;
};
struct hooked { /* a model with hooks of some strengths */
    const struct model_ref *base;
    const struct hooks *hooks;
    double *strength; /* [hooks->n] */
    struct model_ref ref;
};
struct opened_hook { /* a LoRA for a model */
    const struct hook *of;
    struct res_model *model;
    struct res_adapter *adapter;
};
struct hooks_run {
    struct vec states, models, adapters; /* the first and the last by value, struct hooked * */
};

void hooks_run_free(struct hooks_run *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->models.n; i++) {
        struct hooked *m = *(struct hooked **)vec_at(&r->models, i);
        model_ref_release(&m->ref);
        free(m->strength);
        free(m);
    }
    for (size_t i = 0; i < r->adapters.n; i++)
        res_adapter_unref(((struct opened_hook *)vec_at(&r->adapters, i))->adapter);
    vec_release(&r->states);
    vec_release(&r->models);
    vec_release(&r->adapters);
    free(r);
}

static unsigned guaranteed(const struct keyframe *f, const struct msampling *ms, float max_sigma)
{
    return ms_percent(ms, f->percent) > (double)max_sigma ? 0 : f->guaranteed;
}

/* How strong a hook is at a level; called once for each level. The last keyframe that has begun
 * counts, but each for as many steps as it is guaranteed. */
static double strength_at(struct frame_state *s, const struct msampling *ms, float sigma,
                          float max_sigma)
{
    const struct keyframes *k = &s->of->frames;
    if (!k->n)
        return 1;
    if (!s->begun || sigma != s->sigma) {
        bool may = s->used >= guaranteed(&k->at[s->at], ms, max_sigma);
        for (size_t i = s->at + 1; may && i < k->n; i++) {
            if (!(ms_percent(ms, k->at[i].percent) >= (double)sigma))
                break;
            s->at = i;
            s->used = 0;
            if (guaranteed(&k->at[i], ms, max_sigma))
                break;
        }
        s->used++;
        s->sigma = sigma;
        s->begun = true;
    }
    return k->at[s->at].strength;
}

static struct frame_state *state_of(struct hooks_run *r, const struct hook *h)
{
    for (size_t i = 0; i < r->states.n; i++) {
        struct frame_state *s = vec_at(&r->states, i);
        if (s->of == h)
            return s;
    }
    struct frame_state *s = vec_add(&r->states);
    if (s)
        s->of = h;
    return s;
}

berth_status hook_adapter(struct node_call *c, const struct hook *h, const struct model_ref *base,
                          bool clip, struct res_adapter **out, berth_err *err)
{
    const struct value *as = clip ? h->as_clip : h->as_model;
    const struct mix_args a = { .kind = MIX_TOWARDS,
                                .other = as ? &as->model : NULL,
                                .base = base,
                                .otherwise = 1,
                                .name = h->name };
    berth_status s = h->path ? lora_for(c, h->path, base, out, err)
                     : as    ? weight_mix_new(&a, out, err)
                             : err_set(err, BERTH_EINVAL, "the checkpoint has no %s",
                                    clip ? "text encoder" : "diffusion model");
    return s ? err_add(err, "hook '%.100s'", h->name) : BERTH_OK;
}

static berth_status adapter_for(struct hooks_run *r, struct node_call *c, const struct hook *h,
                                const struct model_ref *base, struct res_adapter **out,
                                berth_err *err)
{
    for (size_t i = 0; i < r->adapters.n; i++) {
        const struct opened_hook *o = vec_at(&r->adapters, i);
        if (o->of == h && o->model == base->part[0]) {
            *out = o->adapter;
            return BERTH_OK;
        }
    }
    struct opened_hook o = { .of = h, .model = base->part[0] };
    if (hook_adapter(c, h, base, false, &o.adapter, err))
        return err->code;
    if (!vec_push(&r->adapters, &o)) {
        res_adapter_unref(o.adapter);
        return err_set(err, BERTH_ENOMEM, "a hook");
    }
    *out = o.adapter;
    return BERTH_OK;
}

static berth_status make_model(struct hooks_run *r, struct node_call *c, struct hooked *m,
                               berth_err *err)
{
    if (model_ref_copy(m->base, &m->ref, err))
        return err->code;
    for (size_t i = 0; i < m->hooks->n; i++) {
        struct res_adapter *a = NULL;
        if (m->strength[i] == 0)
            continue;
        if (adapter_for(r, c, &m->hooks->at[i], m->base, &a, err) ||
            model_ref_patch(&m->ref, a, m->strength[i], err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status hooks_model(struct hooks_run **run, struct node_call *c, const struct model_ref *base,
                         const struct hooks *h, const struct msampling *ms, float sigma,
                         float max_sigma, const struct model_ref **out, berth_err *err)
{
    struct hooks_run *r = *run ? *run : calloc(1, sizeof *r);
    double *strength = calloc(h->n + 1, sizeof *strength);
    struct hooked *m = NULL;
    if (r && !*run) {
        r->states.elem = sizeof(struct frame_state);
        r->models.elem = sizeof(struct hooked *);
        r->adapters.elem = sizeof(struct opened_hook);
    }
    *run = r;
    berth_status s = r && strength ? BERTH_OK : err_set(err, BERTH_ENOMEM, "hooks");
    for (size_t i = 0; !s && i < h->n; i++) {
        struct frame_state *f = state_of(r, &h->at[i]);
        if (!f)
            s = err_set(err, BERTH_ENOMEM, "hooks");
        else
            strength[i] = h->at[i].model * strength_at(f, ms, sigma, max_sigma);
    }
    for (size_t i = 0; !s && !m && i < r->models.n; i++) {
        struct hooked *x = *(struct hooked **)vec_at(&r->models, i);
        if (x->base == base && x->hooks == h &&
            memcmp(x->strength, strength, h->n * sizeof *strength) == 0)
            m = x;
    }
    if (s || m) {
        free(strength);
        *out = m ? &m->ref : NULL;
        return s;
    }
    m = calloc(1, sizeof *m);
    if (!m || !vec_push(&r->models, &m)) {
        free(m);
        free(strength);
        return err_set(err, BERTH_ENOMEM, "hooks");
    }
    *m = (struct hooked) { .base = base, .hooks = h, .strength = strength };
    *out = &m->ref;
    return make_model(r, c, m, err);
}
