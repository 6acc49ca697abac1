/* node_impl.h: how the families of this folder declare their nodes in a few lines.
 *
 *     NODE_CLASS(ImageBlur, .category = "image/postprocessing", V3("post_processing"),
 *                INS(SOCKET("image", "IMAGE"), INT_IN("blur_radius", 1, 1, 31, 1),
 *                    FLOAT_IN("sigma", 1, 0.1, 10, 0.1)),
 *                OUT(out_image), .run = blur_run);
 *
 * Trailing arguments are further members of the struct: INT_IN("seed", 0, 0, U64_MAX, 0,
 * .more = CONTROL). Steps of 0 are not in the info, as where ComfyUI gives none. */
#pragma once

#include "base/tpool.h"
#include "node/node.h"

#define NODE(c) extern const struct node_class node_##c;
#include "node/loaders.def"
#include "node/nodes.def"
#undef NODE

#define NODE_CLASS(c, ...) const struct node_class node_##c = { .name = #c, __VA_ARGS__ }
#define IN(array) .in = array, .ins = sizeof(array) / sizeof *(array)
#define OUT(array) .out = array, .outs = sizeof(array) / sizeof *(array)
/* Of ComfyUI's nodes_custom_sampler.py; group: "/guiders". */
#define CUSTOM_SAMPLING(c, group, ...)                                                             \
    NODE_CLASS(c, .category = "sampling/custom_sampling" group, .module = MOD("custom_sampler"),   \
               .flags = NODE_V3, __VA_ARGS__)
/* A prompt for and one against, in and out. */
#define PAIR_IN SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING")
#define PAIR_OUT                                                                                   \
    { .type = "CONDITIONING", .name = "positive" },                                                \
    {                                                                                              \
        .type = "CONDITIONING", .name = "negative"                                                 \
    }
/* Nodes that are declared and cannot be computed yet, all in one statement. */
#define NOT_YET(c, ...) NODE_CLASS(c, .run = node_not_yet, __VA_ARGS__)
#define INS(...) IN(((const struct node_input[]) { __VA_ARGS__ }))
#define OUTS(...) OUT(((const struct node_output[]) { __VA_ARGS__ }))
#define CHOICES(...) ((const char *const[]) { __VA_ARGS__, NULL })
#define MOD(file) "comfy_extras.nodes_" file
#define V3(file) .module = MOD(file), .flags = NODE_V3
#define OUT_OF(t) OUTS({ .type = t })

#define SOCKET(n, t, ...)                                                                          \
    {                                                                                              \
        .name = n, .kind = IN_SOCKET, .type = t, __VA_ARGS__                                       \
    }
#define INT_IN(n, def, lo, hi, by, ...)                                                            \
    {                                                                                              \
        .name = n, .kind = IN_INT, .idef = def, .imin = lo, .imax = hi, .istep = by, __VA_ARGS__   \
    }
#define FLOAT_IN(n, def, lo, hi, by, ...)                                                          \
    {                                                                                              \
        .name = n, .kind = IN_FLOAT, .fdef = def, .fmin = lo, .fmax = hi, .fstep = by, __VA_ARGS__ \
    }
#define TEXT_IN(n, def, ...)                                                                       \
    {                                                                                              \
        .name = n, .kind = IN_STRING, .sdef = def, __VA_ARGS__                                     \
    }
#define BOOL_IN(n, def, ...)                                                                       \
    {                                                                                              \
        .name = n, .kind = IN_BOOLEAN, .bdef = def, __VA_ARGS__                                    \
    }
#define COMBO_IN(n, list, ...)                                                                     \
    {                                                                                              \
        .name = n, .kind = IN_COMBO, .options = list, __VA_ARGS__                                  \
    }
#define FOLDER_IN(n, key, ...)                                                                     \
    {                                                                                              \
        .name = n, .kind = IN_COMBO, .folder = key, __VA_ARGS__                                    \
    }

/* Choices that bring inputs, inputs that grow, and types that follow each other:
 *
 *     DYNCOMBO_IN("mode", WITH(CHOICE("scale", FLOAT_IN("factor", 1, 0.01, 8, 0.01)),
 *                              CHOICE0("fit")))
 *     AUTOGROW_IN("images", "image", 1, 50, SOCKET("image", "IMAGE"))
 *     AUTOGROW_NAMES_IN("values", list_a_to_z, 0, SOCKET("value", "*", .more = ""))
 *     MATCH_IN("input", "kind", "IMAGE,MASK"), and MATCH_OUT("resized", "kind") among the OUTS
 *
 * run() reads in_text(c, "mode", ..), in_f64(c, "mode.factor", ..) and in_member(c, "images", ..).
 * The input that grows gets FORCE_INPUT as its .more where its kind has a widget. */
#define WITH(...)                                                                                  \
    .choice = (const struct node_choice[]) { __VA_ARGS__ },                                        \
    .choices = sizeof((const struct node_choice[]) { __VA_ARGS__ }) / sizeof(struct node_choice)
#define CHOICE(k, ...)                                                                             \
    {                                                                                              \
        .key = k, .in = (const struct node_input[]) { __VA_ARGS__ },                               \
        .ins = sizeof((const struct node_input[]) { __VA_ARGS__ }) / sizeof(struct node_input)     \
    }
#define CHOICE0(k)                                                                                 \
    {                                                                                              \
        .key = k                                                                                   \
    }
#define DYNCOMBO_IN(n, ...)                                                                        \
    {                                                                                              \
        .name = n, .kind = IN_DYNCOMBO, __VA_ARGS__                                                \
    }
#define AUTOGROW_IN(n, pre, least, most, item, ...)                                                \
    {                                                                                              \
        .name = n, .kind = IN_AUTOGROW, .prefix = pre, .min = least, .max = most,                  \
        .sub = (const struct node_input[]) { item }, .subs = 1, __VA_ARGS__                        \
    }
#define AUTOGROW_NAMES_IN(n, list, least, item, ...)                                               \
    {                                                                                              \
        .name = n, .kind = IN_AUTOGROW, .members = list, .min = least,                             \
        .sub = (const struct node_input[]) { item }, .subs = 1, __VA_ARGS__                        \
    }
#define MATCH_TEMPLATE(id, allowed)                                                                \
    "\"template\":{\"template_id\":\"" id "\",\"allowed_types\":\"" allowed "\"}"
#define MATCH_IN(n, id, allowed, ...)                                                              \
    SOCKET(n, NODE_MATCH, .more = MATCH_TEMPLATE(id, allowed), __VA_ARGS__)
#define MATCH_OUT(n, id)                                                                           \
    {                                                                                              \
        .type = NODE_MATCH, .name = n, .match = id                                                 \
    }
#define FORCE_INPUT "\"forceInput\":true"

#define COLOR_IN(n, def) SOCKET(n, "COLOR", .more = "\"default\":\"" def "\"," SOCKETLESS)
#define OPTIONAL(n, t) SOCKET(n, t, .optional = true)
#define SIZE_IN(w, h, lo, by)                                                                      \
    INT_IN("width", w, lo, MAX_SIDE, by), INT_IN("height", h, lo, MAX_SIDE, by)
#define BATCH_IN INT_IN("batch_size", 1, 1, 4096, 0)

#define MAX_SIDE 16384 /* ComfyUI's MAX_RESOLUTION */
/* Pixels per latent pixel where a node has no model to ask: what ComfyUI takes for any. */
#define USUAL_RATIO 8
#define U64_MAX ((node_int)UINT64_MAX)
#define CONTROL "\"control_after_generate\":true"
#define ADVANCED "\"advanced\":true" /* shown when people ask for more */
#define SOCKETLESS "\"socketless\":true" /* a widget without a place for a link */
#define MULTILINE "\"multiline\":true"
#define PROMPT_TEXT "\"multiline\":true,\"dynamicPrompts\":true"

/* Lists that several families choose from (lists.c). */
extern const char *const list_samplers[];
extern const char *const list_schedulers[];
extern const char *const list_resize_image[];  /* without bislerp */
extern const char *const list_resize_latent[]; /* without lanczos */
extern const char *const list_crop[];
extern const char *const list_a_to_z[]; /* names of values that grow */

/* pixels.c: tensors of pictures. */
berth_status image_tensor(size_t n, size_t h, size_t w, size_t c, struct htensor **out,
                          berth_err *err); /* [n,h,w,c], not zeroed */
berth_status mask_tensor(size_t n, size_t h, size_t w, struct htensor **out, berth_err *err);
/* Picture i of [n,h,w,c] as 8 bits: clip(255 * x, 0, 255), fractions cut; NaN is 0. c: 1, 3, 4. */
berth_status image_8bit(const struct htensor *t, size_t i, struct image *out, berth_err *err);
/* Output 0 of what ended with s: if that is an error, it goes. give_tensors(): outputs 0 and 1. */
berth_status give_tensor(struct node_call *c, berth_status s, struct htensor *taken,
                         berth_err *err);
berth_status give_tensors(struct node_call *c, struct htensor *first, struct htensor *second,
                          berth_err *err);
/* n parts of h x w at (y, x) of planes or pictures [ih, iw, c]. */
struct part {
    size_t y, x, h, w;
};
void copy_part(const float *from, size_t ih, size_t iw, size_t c, size_t n, struct part p,
               float *to);
static inline size_t dim(const struct htensor *t, int i)
{
    return (size_t)t->shape.dim[i];
}
static inline float clamp01(float v) /* NaN: 0 */
{
    return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f;
}
/* Pixel (y, x) of what is turned or flipped comes from this index of a plane h x w. */
typedef size_t pixel_from_fn(size_t y, size_t x, size_t h, size_t w);
pixel_from_fn from_turned_90, from_turned_180, from_turned_270; /* clockwise */
pixel_from_fn from_flipped_rows, from_flipped_columns;
/* n pictures [h, w, c] into dst; swap: that one is [w, h, c]. */
void move_pixels(const float *src, size_t n, size_t h, size_t w, size_t c, bool swap,
                 pixel_from_fn *from, float *dst);
/* t with further channels of `fill`; a reference to t when it has enough. */
berth_status widen_image(struct htensor *t, size_t channels, float fill, struct htensor **out,
                         berth_err *err);
/* Item i of every value of an INPUT_IS_LIST input of pictures, one after the other. */
struct image_list {
    const struct values *all;
    size_t n; /* pictures in all */
};
berth_status in_images(const struct node_call *c, const char *name, struct image_list *out,
                       berth_err *err);
/* Picture i: its tensor, and its number in there. pre: i < l->n */
const struct htensor *image_list_at(const struct image_list *l, size_t i, size_t *at);
/* image_filter.c: n pictures [h, w, c] blurred by a kernel that reaches from -1 to 1 over
 * 2 * radius + 1 pixels, mirrored at the edges. BERTH_EINVAL: radius 0 or over 31, a side not
 * longer than it. */
struct blur_shape {
    size_t n, h, w, c;
    uint64_t radius;
    double sigma;
};
berth_status blur_pixels(struct node_call *c, const struct blur_shape *b, const float *src,
                         float *dst, berth_err *err);

/* Inputs "sigmas", a list of noise levels, and "steps". Links bring what no validation saw. */
berth_status in_sigmas(const struct node_call *c, struct htensor **out, berth_err *err);
berth_status in_steps(const struct node_call *c, uint64_t *out, berth_err *err);
#define STEPS_MAX 10000

/* fn for every row in [0, n), over the pool; BERTH_ECANCELED within a row of an interrupt. */
berth_status call_rows(struct node_call *c, size_t n, tpool_fn *fn, void *user, berth_err *err);
/* For what takes long below this layer; NULL in tests. */
static inline const atomic_bool *cancel_of(const struct node_call *c)
{
    return c->host ? c->host->cancel : NULL;
}

/* scale.c: ComfyUI's common_upscale(). method: a name of enum resize; center: cut to the new aspect
 * first. A side of 0, and beyond SIDE_MAX, is BERTH_EINVAL. *out is new. */
berth_status scale_image(struct node_call *c, const struct htensor *t, size_t w, size_t h,
                         const char *method, bool center, struct htensor **out, berth_err *err);
/* The same for [..., h, w]: masks and latents; bislerp: over dimension 1, the channels. */
berth_status scale_planes(struct node_call *c, const struct htensor *t, size_t w, size_t h,
                          const char *method, bool center, struct htensor **out, berth_err *err);
/* round(x) of Python for sizes: halves to even. BERTH_EINVAL: not within 0 .. SIDE_MAX. */
berth_status round_side(double x, size_t *out, berth_err *err);
#define SIDE_MAX ((size_t)1 << 20)

/* image_morphology.c: t [n,h,w,c] with the largest, or the smallest, value of a square of k around
 * each; *out is new. */
berth_status spread_pixels(struct node_call *c, const struct htensor *t, size_t k, bool largest,
                           struct htensor **out, berth_err *err);

/* image_color.c: "RRGGBB" or "RRGGBBAA", `bytes` of them; false: something else. */
bool parse_hex_color(const char *text, size_t bytes, uint8_t *out);

/* latent.c */
berth_status latent_like(const struct latent *l, struct latent *out,
                         berth_err *err); /* masks and batch_index of l, samples NULL */
berth_status give_latent(struct node_call *c, struct latent *taken, berth_err *err); /* output 0 */
/* The same for one whose making ended with s: if that is an error, it goes. */
berth_status give_or_release(struct node_call *c, berth_status s, struct latent *taken,
                             berth_err *err);
/* The input's mask and indices with other samples (taken) as the output. Indices that do not fit
 * their number are left out. */
berth_status give_samples(struct node_call *c, const struct latent *in, struct htensor *samples,
                          berth_err *err);
/* b in the sides and the number of a, as ComfyUI brings latents together: bilinear, cut to the
 * aspect. A new reference or tensor of a's shape; BERTH_EINVAL where other dimensions differ. */
berth_status latent_match(struct node_call *c, const struct htensor *a, struct htensor *b,
                        struct htensor **out, berth_err *err);
/* Samples of n items repeated or cut to `count`; a new reference or tensor. */
berth_status tensor_repeat(struct htensor *t, size_t count, struct htensor **out, berth_err *err);
/* Inputs "batch_index", from the end where it is negative, and "length": which of `all` items they
 * mean, at least one. */
berth_status in_batch_part(struct node_call *c, size_t all, size_t *at, size_t *n, berth_err *err);
/* Items [from, from + n) of dimension 0, copied. */
berth_status tensor_slice(const struct htensor *t, size_t from, size_t n, struct htensor **out,
                          berth_err *err);

/* input_file.c: files people put into the input folder, or named with [output], [temp]. */
berth_status input_path(const struct node_env *env, const char *name, struct str *out,
                        berth_err *err);
berth_status input_read(const struct node_env *env, const char *name, char **out, size_t *n,
                        berth_err *err); /* free() it */
/* changed() and validate() of nodes whose file is the input `validates`: image, latent, video. */
berth_status input_changed(const struct node_check *k, struct str *out, berth_err *err);
berth_status input_validate(const struct node_check *k, berth_err *err);
/* The same where the input's name does not say what it is. */
berth_status input_there(const struct node_check *k, const char *what, berth_err *err);
#define INPUT_FILE(n) .changed = input_changed, .validate = input_validate, .validates = n
/* Files of the input folder that are wanted. */
berth_status input_list(const struct node_env *env, bool (*wanted)(const char *name),
                        struct names *out, berth_err *err);
node_options_fn input_videos; /* by their MIME type */

/* save.c: files that nodes leave behind: whole, numbered, never in place of another, and not waited
 * for on the disk (paths/paths.h). */
struct saved { /* between save_begin() and save_end(); zeroed is fine */
    struct save_path path;
    struct image_text *text; /* prompt and extra_pnginfo, for pictures */
    size_t texts;
    const char *kind; /* "output", "temp" */
};
/* Where files of `prefix` go. w, h: for %width% and %height%. Metadata is made unless disabled. */
berth_status save_begin(struct node_call *c, const char *kind, const char *prefix, size_t w,
                        size_t h, struct saved *out, berth_err *err);
/* Writes bytes as <name>_<counter>_<ext> and tells the ui. batch: the number for %batch_num%. */
berth_status save_add(struct node_call *c, struct saved *s, size_t batch, const char *ext,
                      const char *key, const struct str *bytes, berth_err *err);
void save_end(struct saved *s);
/* Where a file that is written piece by piece goes: <name>_<counter>_<ext>, which is not there
 * yet. */
berth_status save_free_path(struct saved *s, const char *ext, struct str *out, berth_err *err);

/* image_load.c: a picture of the input folder; as_stored: orientation is not applied.
 * image_file_release() it. */
berth_status load_picture(struct node_call *c, const char *name, bool as_stored,
                          struct image_file *f, berth_err *err);
/* A frame as RGB into the picture `at` of t. */
berth_status put_rgb(const struct image *im, struct htensor *t, size_t at, berth_err *err);

/* image_save.c: "<base>_temp_" and five letters that stay with the node while its id stays in
 * prompts. */
berth_status preview_prefix(struct node_call *c, const char *base, struct str *out,
                            berth_err *err);
/* Pictures of the temp folder below the node, without the prompt in them. */
berth_status show_images(struct node_call *c, const struct htensor *t, berth_err *err);
/* The files alone, under another key of the ui. */
berth_status show_images_as(struct node_call *c, const struct htensor *t, const char *key,
                            berth_err *err);

extern const struct node_output out_image[1], out_mask[1], out_latent[1], out_image_mask[2];
