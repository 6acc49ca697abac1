/* context_windows: nodes that have long latents predicted in windows (sample/windows.h). */
#include "node/compute.h"

#include <ctype.h>
#include <string.h>

/* What the classes differ in. */
struct windowed {
    size_t ratio;    /* frames of the video to one of the latent; 0: inputs count latent frames */
    bool own_dim;    /* has inputs for the dimension, the lists and the anchor */
    bool the_latent; /* what is retained is the latent's, too */
};

static berth_status in_count(const struct node_call *c, const char *name, size_t least, size_t *out,
                             berth_err *err)
{
    int64_t v;
    if (in_i64(c, name, &v, err))
        return err->code;
    if (v < (int64_t)least || v > 1000000)
        return err_set(err, BERTH_EINVAL, "%s is %lld, not %zu to 1000000", name, (long long)v,
                       least);
    *out = (size_t)v;
    return BERTH_OK;
}

/* The index of a choice. */
static berth_status in_choice(const struct node_call *c, const char *name,
                              const char *const *choices, size_t n, size_t *out, berth_err *err)
{
    const char *text;
    if (in_text(c, name, &text, err))
        return err->code;
    for (*out = 0; *out < n; ++*out)
        if (strcmp(text, choices[*out]) == 0)
            return BERTH_OK;
    return err_set(err, BERTH_EINVAL, "%s: '%.60s' is not known", name, text);
}

/* "0, 3, 7" */
static berth_status in_frames(const struct node_call *c, const char *name, size_t *out, size_t *n,
                              berth_err *err)
{
    const char *text;
    if (in_text(c, name, &text, err))
        return err->code;
    for (*n = 0; *text;) {
        size_t v = 0;
        if (!isdigit((unsigned char)*text)) {
            if (!strchr(", ", *text))
                return err_set(err, BERTH_EINVAL, "%s: '%.60s' is no list of numbers", name, text);
            text++;
            continue;
        }
        while (isdigit((unsigned char)*text) && v < 1000000)
            v = v * 10 + (size_t)(*text++ - '0');
        if (*n == WINDOWS_RETAINED)
            return err_set(err, BERTH_ELIMIT, "%s: more than %d frames", name, WINDOWS_RETAINED);
        out[(*n)++] = v;
    }
    return BERTH_OK;
}

/* Inputs that only ContextWindowsManual has. */
static berth_status in_manual(const struct node_call *c, struct windows *w, berth_err *err)
{
    size_t dim;
    if (in_count(c, "dim", 0, &dim, err) ||
        in_frames(c, "cond_retain_index_list", w->retain_cond, &w->retain_conds, err) ||
        in_frames(c, "latent_retain_index_list", w->retain_latent, &w->retain_latents, err) ||
        in_bool(c, "causal_window_fix", &w->causal, err))
        return err->code;
    w->dim = dim < SHAPE_MAX_DIMS ? (int)dim : SHAPE_MAX_DIMS;
    return BERTH_OK;
}

static berth_status in_video(const struct node_call *c, const struct windowed *how,
                             struct windows *w, berth_err *err)
{
    bool first;
    if (in_bool(c, "retain_first_frame", &first, err))
        return err->code;
    w->dim = 2;
    w->causal = true;
    w->length = (w->length - 1) / how->ratio + 1;
    w->overlap /= how->ratio;
    w->retain_conds = first; /* frame 0 */
    w->retain_latents = first && how->the_latent;
    return BERTH_OK;
}

static berth_status run_windows(struct node_call *c, berth_err *err)
{
    static const char *const schedule[] = { "standard_static", "standard_uniform", "looped_uniform",
                                            "batched" };
    static const char *const fuse[] = { "pyramid", "relative", "flat", "overlap-linear" };
    const struct windowed *how = c->cls->own;
    struct model_change change = { 0 };
    struct windows *w = &change.windows;
    size_t s, f;
    if (in_count(c, "context_length", 1, &w->length, err) ||
        in_count(c, "context_overlap", 0, &w->overlap, err) ||
        in_count(c, "context_stride", 1, &w->stride, err) ||
        in_choice(c, "context_schedule", schedule, ARRAY_LEN(schedule), &s, err) ||
        in_choice(c, "fuse_method", fuse, ARRAY_LEN(fuse), &f, err) ||
        in_bool(c, "closed_loop", &w->closed, err) ||
        in_bool(c, "freenoise", &w->free_noise, err) ||
        in_bool(c, "split_conds_to_windows", &w->split, err) ||
        (how->own_dim ? in_manual(c, w, err) : in_video(c, how, w, err)))
        return err->code;
    w->schedule = (enum windows_schedule)s;
    w->fuse = (enum windows_fuse)f;
    if (w->overlap >= w->length)
        return err_set(err, BERTH_EINVAL,
                       "context_overlap is not less than context_length: %zu of %zu latent frames",
                       w->overlap, w->length);
    return give_changed(c, change, err);
}

#define FROM(n, def, least, by, ...)                                                               \
    INT_IN(n, def, 0, 0, by, .no_range = true, .more = "\"min\":" least __VA_ARGS__)
#define MORE_TOO ",\"advanced\":true"
#define SCHEDULES CHOICES("standard_static", "standard_uniform", "looped_uniform", "batched")
#define FUSES CHOICES("pyramid", "relative", "flat", "overlap-linear")

NODE_CLASS(ContextWindowsManual, .display = "Context Windows (Manual)", .category = "model/patch",
           .module = MOD("context_windows"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"), FROM("context_length", 16, "1", 0),
               FROM("context_overlap", 4, "0", 0),
               COMBO_IN("context_schedule", SCHEDULES, .sdef = "standard_static"),
               FROM("context_stride", 1, "1", 0), BOOL_IN("closed_loop", false),
               COMBO_IN("fuse_method", FUSES, .sdef = "pyramid"), INT_IN("dim", 0, 0, 5, 0),
               BOOL_IN("freenoise", false),
               TEXT_IN("cond_retain_index_list", "", .more = "\"multiline\":false"),
               BOOL_IN("split_conds_to_windows", false),
               TEXT_IN("latent_retain_index_list", "", .more = "\"multiline\":false"),
               BOOL_IN("causal_window_fix", true)),
           OUT_OF("MODEL"), .run = run_windows,
           .own = &(const struct windowed) { .own_dim = true });

#define VIDEO_WINDOWS(length, overlap, by, overlap_by)                                             \
    INS(SOCKET("model", "MODEL"), INT_IN("context_length", length, 1, MAX_SIDE, by),               \
        FROM("context_overlap", overlap, "0", overlap_by),                                         \
        COMBO_IN("context_schedule", SCHEDULES, .sdef = "standard_uniform"),                       \
        FROM("context_stride", 1, "1", 0, MORE_TOO),                                               \
        BOOL_IN("closed_loop", false, .more = ADVANCED),                                           \
        COMBO_IN("fuse_method", FUSES, .sdef = "pyramid"),                                         \
        BOOL_IN("freenoise", true, .more = ADVANCED), BOOL_IN("retain_first_frame", false),        \
        BOOL_IN("split_conds_to_windows", false, .more = ADVANCED))

NODE_CLASS(WanContextWindowsManual, .display = "Wan Context Windows", .category = "model/patch/wan",
           .module = MOD("context_windows"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           VIDEO_WINDOWS(81, 30, 4, 0), OUT_OF("MODEL"), .run = run_windows,
           .own = &(const struct windowed) { .ratio = 4 });
NODE_CLASS(LTXVContextWindows, .display = "LTXV Context Windows", .category = "model/patch",
           .module = MOD("context_windows"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           VIDEO_WINDOWS(145, 40, 8, 8), OUT_OF("MODEL"), .run = run_windows,
           .own = &(const struct windowed) { .ratio = 8, .the_latent = true });
