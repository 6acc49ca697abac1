/* hooks_text: hooks on text encoders. SetClipHooks says which; prompts are then encoded with them,
 * once for each span of keyframes where it is scheduled. */
#include "node/hooks.h"

#include <math.h>
#include <stdlib.h>

/* ---- spans ---- */

struct piece { /* of one hook's schedule */
    double start, end, strength;
};

static bool is_close(double a, double b) /* Python's math.isclose() */
{
    return a == b || fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* A hook's keyframes as pieces: at most one for each. Returns how many. */
static size_t pieces_of(const struct keyframes *k, struct piece *out)
{
    size_t n = 0;
    if (!k->n) {
        out[0] = (struct piece) { 0, 1, 1 };
        return 1;
    }
    const struct keyframe *last = &k->at[0];
    for (size_t i = 0; i < k->n; i++) {
        const struct keyframe *f = &k->at[i];
        if (f->percent > last->percent && !is_close(f->strength, last->strength)) {
            out[n++] = (struct piece) { last->percent, f->percent, last->strength };
            last = f;
        } else if (f->percent == last->percent) {
            last = f;
        }
    }
    if (!is_close(last->percent, 1))
        out[n++] = (struct piece) { last->percent, 1, last->strength };
    return n;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* How strong a hook is between two ends: 1 where it says nothing. */
static double strength_in(const struct piece *p, size_t n, double start, double end)
{
    for (size_t i = 0; i < n; i++)
        if (p[i].start < end && p[i].end > start)
            return p[i].strength;
    return 1;
}

struct schedule {
    struct piece **piece; /* [hooks] */
    size_t *pieces;
    double *end; /* ends of all pieces, in order, each once */
    size_t ends;
};

static berth_status make_schedule(const struct hooks *h, struct arena *mem, struct schedule *out,
                                  berth_err *err)
{
    size_t all = 1;
    for (size_t i = 0; i < h->n; i++)
        all += 2 * (h->at[i].frames.n + 1);
    out->piece = arena_array(mem, h->n + 1, sizeof(struct piece *));
    out->pieces = arena_array(mem, h->n + 1, sizeof *out->pieces);
    out->end = arena_array(mem, all, sizeof *out->end); /* zeroed: 0 is one of them */
    if (!out->piece || !out->pieces || !out->end)
        return err_set(err, BERTH_ENOMEM, "%zu hooks", h->n);
    size_t n = 1, kept = 0;
    for (size_t i = 0; i < h->n; i++) {
        out->piece[i] = arena_array(mem, h->at[i].frames.n + 1, sizeof(struct piece));
        if (!out->piece[i])
            return err_set(err, BERTH_ENOMEM, "%zu keyframes", h->at[i].frames.n);
        out->pieces[i] = pieces_of(&h->at[i].frames, out->piece[i]);
        for (size_t k = 0; k < out->pieces[i]; k++) {
            out->end[n++] = out->piece[i][k].start;
            out->end[n++] = out->piece[i][k].end;
        }
    }
    qsort(out->end, n, sizeof *out->end, by_size);
    for (size_t i = 0; i < n; i++)
        if (!i || out->end[i] != out->end[kept - 1])
            out->end[kept++] = out->end[i];
    out->ends = kept;
    return BERTH_OK;
}

berth_status hooks_spans(const struct hooks *h, struct arena *mem, struct vec *out, berth_err *err)
{
    struct schedule s = { 0 };
    out->elem = sizeof(struct clip_span);
    if (make_schedule(h, mem, &s, err))
        return err->code;
    if (s.ends < 2) /* ComfyUI encodes nothing then, and samples without a prompt */
        return err_set(err, BERTH_EINVAL,
                       "schedule_clip: none of the %zu hooks acts before the end of the run, so "
                       "there is no part of it to encode a prompt for",
                       h->n);
    for (size_t i = 0; i + 1 < s.ends; i++) {
        struct clip_span span = { s.end[i], s.end[i + 1],
                                  arena_array(mem, h->n + 1, sizeof(double)) };
        if (!span.strength)
            return err_set(err, BERTH_ENOMEM, "%zu hooks", h->n);
        for (size_t k = 0; k < h->n; k++)
            span.strength[k] = strength_in(s.piece[k], s.pieces[k], span.start, span.end);
        if (!vec_push(out, &span))
            return err_set(err, BERTH_ENOMEM, "spans of hooks");
    }
    return BERTH_OK;
}

berth_status hooks_clip(struct node_call *c, const struct model_ref *base, const struct hooks *h,
                        const struct clip_span *s, struct model_ref *out, berth_err *err)
{
    berth_status st = model_ref_copy(base, out, err);
    for (size_t i = 0; !st && i < h->n; i++) {
        double strength = h->at[i].clip * (s->strength ? s->strength[i] : 1);
        struct res_adapter *a = NULL;
        if (strength == 0)
            continue;
        st = hook_adapter(c, &h->at[i], base, true, &a, err);
        if (!st)
            st = model_ref_patch(out, a, strength, err);
        res_adapter_unref(a);
    }
    if (st)
        model_ref_release(out);
    return st;
}

/* ---- the node ---- */

static void set_value(struct value **to, struct value *v)
{
    value_unref(*to);
    *to = value_ref(v);
}

static berth_status run_set(struct node_call *c, berth_err *err)
{
    const struct hooks *h;
    struct model_ref m;
    bool conds, scheduled;
    if (in_hooks(c, "hooks", &h, err) || in_bool(c, "apply_to_conds", &conds, err) ||
        in_bool(c, "schedule_clip", &scheduled, err) || in_model_copy(c, "clip", &m, err))
        return err->code;
    if (h) {
        if (conds)
            set_value(&m.cond_hooks, in_value(c, "hooks"));
        set_value(&m.clip_hooks, in_value(c, "hooks"));
        m.said.clip_scheduled = scheduled;
    }
    return out_value(c, 0, value_model(&m), err);
}

NODE_CLASS(SetClipHooks, .display = "Set CLIP Hooks", .category = "advanced/hooks/clip",
           .module = MOD("hooks"), .flags = NODE_EXPERIMENTAL,
           INS(SOCKET("clip", "CLIP"), BOOL_IN("apply_to_conds", true, .more = ADVANCED),
               BOOL_IN("schedule_clip", false, .more = ADVANCED), OPTIONAL("hooks", "HOOKS")),
           OUT_OF("CLIP"), .run = run_set);
