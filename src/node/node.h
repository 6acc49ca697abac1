/* node: the nodes of workflows, by the names ComfyUI gave them.
 *
 * Adding     A `const struct node_class node_<Class>` in a file of its family and a line in
 *            nodes.def; /object_info, validation, caching and the all-nodes test follow from it.
 * Order      Inputs stand in ComfyUI's order: saved workflows are positional.
 * Flow       the executor fills a node_call, run() reads in_*() and gives out_*(); ui goes to
 *            clients
 * Errors     run() returns a status; its message becomes exception_message, its code the
 *            exception_type (node_exception()). A node that cannot be computed in this build is
 *            declared all the same and its run() says BERTH_EUNSUPPORTED and why.
 * Env        what nodes may use, handed in: no globals, no argv, no environment.
 * Threads    run(): executor. info, options, changed and validate: any thread, with an env whose
 *            `folders` locks itself; they do not touch res.
 * Files      value.c; registry.c classes by name; dynamic.c inputs made of others; info.c
 *            /object_info, tooltips.c words for it; call.c what nodes call, loading.c models for
 *            them; node_impl.h how families declare, with what they share: lists.c choices,
 *            pixels.c and scale.c pictures, input_file.c and save.c files.
 *            Then one file per family: image_*.c composite.c color_transfer.c painter.c svg.c
 *            mask.c latent*.c primitive.c sigmas.c loader*.c nop.c; what draws shares draw.h
 *            (text_overlay.c bounding_boxes.c), what has layers layers.h (compositor.c). Those that
 *            run networks share compute.h, which lists them: text_encode.c conditioning.c
 *            sampling.c sampler.c noise.c guider.c model_sampling.c vae.c.
 *            Texts, numbers and logic share texts.h, and Python's ways py.h: logic.c number.c
 *            math.c (expr.h) string.c (pyformat.h) regex.c (pyre.h) json_text.c.
 *            Sound and video share clips.h, which lists their files.
 *            video.c wanvideo.c third_party.c later.c declare what cannot be computed yet.
 * Checked    tests/golden/node holds every class that ComfyUI has too to its own definition. */
#pragma once

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"
#include "image/image.h"
#include "node/value.h"
#include "paths/folders.h"

struct node_assets;
struct node_looks;

/* In which numbers networks compute, and whose noise they get: what ComfyUI has flags for. Zeroed:
 * everything in F32; node_numbers_own is what people get who say nothing. */
struct node_numbers {
    enum dtype act_unet; /* of diffusion models, where the device has it; DT_NONE: as they prefer */
    enum dtype act_vae;  /* DT_NONE: BF16, where the device has it */
    /* res_open_args.dtype of diffusion models and of text encoders whose loader names none; NULL:
     * as their files have them. Static. */
    const char *weights_unet, *weights_text; /* text by default "F16", as ComfyUI keeps them */
    bool fp8;            /* products of fp8 weights in fp8, on cards that can: --fast */
    bool exact_guidance; /* diffusion_args */
    bool cpu_noise;      /* samplers draw as on the cpu: the same picture on every device */
};
extern const struct node_numbers node_numbers_own;

struct node_env { /* owner: whoever runs the executor; constant while it runs */
    struct folders *folders;
    struct save_cache *saves;   /* executor thread only; NULL: every save looks into its folder */
    struct residency *res;      /* executor thread only; NULL for validation alone */
    const char *const *devices; /* names in device order: the DEVICES combo */
    size_t devices_n;
    struct tpool *pool;        /* may be NULL */
    const struct clock *clock; /* never NULL */
    const struct log *log;     /* may be NULL */
    /* Folders to look for tokenizers in, in this order (text/tokenizer.h: people bring them): each
     * of them for folders of their usual names, and for the files themselves (assets.c). */
    const char *const *tokenizers;
    size_t tokenizers_n;
    struct node_assets *assets; /* executor thread only; NULL: opened again for every call */
    struct node_looks *looks;   /* any thread; NULL: node_look() reads headers each time */
    /* The program that reads and writes video and sound (media_host.helper); NULL: none, and nodes
     * that need one say so. */
    const char *media_helper;
    bool previews;              /* pictures of sampling steps are made for clients */
    struct node_numbers numbers;
    bool disable_metadata;
    uint64_t temp_seed; /* PreviewImage's random prefix */
    /* Classes by name for graph/; NULL: node_find(). A test brings classes of its own. */
    const struct node_class *(*find)(const char *name);
};

/* What nodes open once and keep as long as the executor lives: tokenizers (assets.c). Opened when
 * it is asked for first, and again when its files were replaced. NULL: out of memory. */
struct node_assets *node_assets_new(void);
void node_assets_free(struct node_assets *a); /* NULL is fine */
/* Is there a tokenizer of this kind in the env's folders? Where it looked is appended to *places if
 * not. */
struct tokenizer;
bool node_tokenizer_there(const struct node_env *env, const struct tokenizer *kind,
                          struct str *places);

/* ---- declarations ---- */

typedef __int128 node_int; /* -2^63 .. 2^64-1 */

enum input_kind {
    IN_SOCKET,
    IN_INT,
    IN_FLOAT,
    IN_STRING,
    IN_BOOLEAN,
    IN_COMBO,
    /* Made of other inputs, which prompts name "mode.width", "images.image0". dynamic.c makes plain
     * ones of them, by what a prompt has: no other file of graph/ knows these. */
    IN_DYNCOMBO, /* a choice that brings inputs of its own: COMFY_DYNAMICCOMBO_V3 */
    IN_AUTOGROW, /* as many of one input as are connected: COMFY_AUTOGROW_V3 */
    IN_DYNSLOT,  /* a socket that brings inputs while it is connected: COMFY_DYNAMICSLOT_V3 */
};

struct node_choice { /* of IN_DYNCOMBO */
    const char *key;
    const struct node_input *in; /* what it brings, under names without "mode." */
    size_t ins;
};

/* Adds the choices of a combo. */
typedef berth_status node_options_fn(const struct node_env *env, struct names *out, berth_err *err);

#define NODE_MATCH "COMFY_MATCHTYPE_V3" /* a type that follows another's; anything fits */

struct node_input {
    const char *name;
    enum input_kind kind;
    const char *type; /* IN_SOCKET: "IMAGE", "IMAGE,MASK", "*"; NULL else */
    bool optional, lazy;
    bool unlisted; /* accepted, but not in the info: what frontends add by themselves (image_3..) */
    bool no_default; /* INT, FLOAT, STRING, BOOLEAN: "default" is not in the info */
    bool no_range;   /* INT, FLOAT: neither min nor max */
    node_int idef, imin, imax, istep; /* IN_INT; istep 0: not in the info */
    double fdef, fmin, fmax, fstep;   /* IN_FLOAT */
    const char *round;                /* IN_FLOAT: JSON, "0.01" or "false"; NULL: not there */
    bool bdef;
    const char *sdef; /* IN_STRING, IN_COMBO: NULL: "" / the first choice (not in the info) */
    const char *(*sdef_fn)(const struct node_env *env); /* or this: borrowed; NULL: as sdef NULL */
    const char *const *options;                         /* IN_COMBO: NULL-terminated; or */
    node_options_fn *options_fn;
    const char *folder; /* or a key of folders: its listing; none of the three: the browser knows */
    const char *files;  /* a key of folders whose files are among the choices of options_fn */
    const char *more;   /* further options as JSON members: "\"multiline\":true" ; NULL: none */
    bool multiselect;   /* IN_COMBO: a list of choices may be given */
    const struct node_choice *choice; /* IN_DYNCOMBO */
    size_t choices;
    const struct node_input *sub; /* IN_AUTOGROW: the one that grows; IN_DYNSLOT: what it brings */
    size_t subs;
    const char *prefix;         /* IN_AUTOGROW: members are prefix0 .. prefix<max - 1>; or */
    const char *const *members; /* their names, NULL-terminated; then max is not looked at */
    unsigned min, max;          /* the first `min` are required */
};

struct node_output {
    const char *type, *name; /* name NULL: type */
    bool is_list;
    const char *match; /* of type NODE_MATCH: the template that decides which; NULL: no such */
};

enum {                              /* flags */
       NODE_OUTPUT = 1 << 0,        /* an output node */
       NODE_V3 = 1 << 1,            /* its info has the newer shape (comfyui-api.md 7.1) */
       NODE_INPUT_IS_LIST = 1 << 2, /* run() gets whole lists */
       NODE_NOT_IDEMPOTENT = 1 << 3,
       NODE_DEPRECATED = 1 << 4,
       NODE_EXPERIMENTAL = 1 << 5,
       NODE_PROMPT = 1 << 6, /* hidden inputs */
       NODE_EXTRA_PNGINFO = 1 << 7,
       NODE_UNIQUE_ID = 1 << 8,
       NODE_DYNPROMPT = 1 << 9,
       NODE_ANY_INPUT = 1 << 10,    /* undeclared inputs reach it, by name */
       NODE_CHECKS_TYPES = 1 << 11, /* its validator takes over type checks of links */
       NODE_INTERMEDIATE = 1 << 12, /* no output, yet what it shows is sent again when cached */
       NODE_DEV_ONLY = 1 << 13,     /* frontends hide it */
       NODE_MEDIA = 1 << 14,        /* reads or writes video or sound: media/media.h */
};

struct node_call;
struct node_check;

struct node_class {
    /* display NULL: legacy nodes show name, v3 ones null. The three that follow it, and it, are
     * what menu.def says where that has the class. */
    const char *name, *display;
    const char *category, *description; /* description NULL: "" */
    const char *essentials; /* the short list of a frontend it is in: "Basics"; NULL: none */
    const char *module; /* "nodes", "comfy_extras.nodes_mask", "custom_nodes.ComfyUI-MultiGPU" */
    unsigned flags;
    const struct node_input *in;
    size_t ins;
    const struct node_output *out;
    size_t outs;
    berth_status (*run)(struct node_call *c, berth_err *err);
    const void *own; /* what classes that share a run() differ in; its type is run()'s to know */
    /* The IS_CHANGED value from constant inputs, appended to `out`; NULL: constant. An error: never
     * cached. */
    berth_status (*changed)(const struct node_check *k, struct str *out, berth_err *err);
    /* Custom validator: BERTH_OK, or BERTH_EINVAL whose message is the text behind "x - ". It is
     * about the input named `validates`, whose range and choices are then not checked (NULL:
     * several, see node_check.refused). */
    berth_status (*validate)(const struct node_check *k, berth_err *err);
    const char *validates;
    /* Lazy inputs: sets need[i] for those declared lazy that must be computed now; in_*() sees what
     * is there already. NULL: all lazy inputs are needed. */
    berth_status (*lazy)(struct node_call *c, bool *need, berth_err *err);
};

#define NODE_INPUTS_MAX 72 /* of a class, dynamic ones counted as one */
#define NODE_OUTPUTS_MAX 10

/* The inputs of one node: those of its class, where the dynamic ones are replaced by plain inputs
 * with dotted names, as its own "inputs" (NULL: none) in the prompt call for:
 *     IN_DYNCOMBO  itself and the inputs of its choice; without a value nothing, as ComfyUI does
 *     IN_AUTOGROW  the members that are required or given, in the order of the template
 *     IN_DYNSLOT   itself, and what it brings when it is given
 * `in` is the class's own where nothing is dynamic, else of mem. There are at most as many as the
 * prompt has inputs, and the required ones. BERTH_ENOMEM. */
struct node_inputs {
    const struct node_input *in;
    size_t n;
};
berth_status node_live_inputs(const struct node_class *c, const json_t *inputs, struct arena *mem,
                              struct node_inputs *out, berth_err *err);

/* Hashes of files that the nodes of a prompt name: each is read once. Zeroed: none. */
struct file_hashes {
    struct map by_file; /* struct file_id -> index of its hash */
    struct arena ids;   /* the map's keys, which it borrows */
    struct vec hex;     /* char[SHA256_HEX] */
};
void file_hashes_release(struct file_hashes *h);

/* Constants of a node in a prompt, before it runs: links are absent. */
struct node_check {
    const struct node_env *env;
    const struct node_class *cls;
    const char *id;
    const json_t *inputs; /* the node's "inputs" object, converted */
    const char **refused; /* validate(): one about several inputs says which it was; may be NULL */
    /* changed() alone, both may be NULL: set by any thread, it ends with BERTH_ECANCELED; what
     * other nodes of the prompt have read. */
    const atomic_bool *cancel;
    struct file_hashes *hashes;
};
const json_t *check_input(const struct node_check *k,
                          const char *name); /* NULL: link, or not there */

/* ---- a call ---- */

struct node_step { /* value of max is done; borrowed for the call */
    double value, max;
    const struct image *picture; /* 8-bit, a look at this step for clients; NULL: none */
    bool png; /* it goes out whole, as PNG; else as JPEG of at most --preview-size */
};

/* What the executor does for a running node. Functions may be NULL in tests. */
struct node_host {
    void *user;
    /* BERTH_ECANCELED: interrupted; the node returns it. */
    berth_status (*progress)(void *user, const struct node_step *s, berth_err *err);
    void (*text)(void *user, const char *s, size_t n); /* progress text under the node */
    /* What a network did for this node, for the prompt's history (ready_done()). Takes it. */
    void (*network)(void *user, json_t *taken);
    /* Does output i go, perhaps through nodes that only change it (a LoRA on a CLIP), to one of
     * this prompt that gives `type`? For what would fail there and can be told now. False:
     * perhaps. */
    bool (*leads_to)(void *user, size_t i, const char *type);
    const atomic_bool *cancel; /* never NULL in the executor; long work without steps looks at it */
};

struct node_call { /* executor; filled for one call */
    const struct node_env *env;
    const struct node_class *cls;
    const struct node_host *host;
    const char *id;          /* node id */
    struct values *in;       /* one per input; n 0: not given. One value, but INPUT_IS_LIST */
    struct node_inputs live; /* those inputs; .in NULL: the class has no dynamic ones, cls->in */
    const json_t *raw;    /* the node's "inputs" as converted: undeclared names (NODE_ANY_INPUT) */
    const json_t *prompt; /* hidden PROMPT; NULL unless asked for */
    const json_t *extra_pnginfo; /* NULL: none */
    struct values *out;          /* cls->outs of them, filled by out_*() */
    json_t *ui;                  /* object of arrays, made by ui_add(); NULL: none */
    const char *raised; /* exception_type of the error that run() returns; NULL: by its code */
    char **state;       /* kept per (node id, class) while the id stays in prompts; NULL at first,
                                free()d by the executor (PreviewImage's prefix) */
};

/* Inputs by name; BUG() for a name the class does not declare. Values were validated or checked by
 * type when linked; a link may still bring another kind ("*"): then BERTH_EINVAL naming both. */
bool in_given(const struct node_call *c, const char *name);
/* Dynamic inputs: in_text(c, "mode", ..) is the choice, in_i64(c, "mode.width", ..) an input that
 * it brings. One that the choice does not bring, or of a mode that was not given, is not given and
 * has no default. Members of an IN_AUTOGROW that are given, in order: *at begins at 0; NULL: no
 * more.
 *     for (size_t at = 0; (v = in_member(c, "images", &at, &name));)   name: "image0" */
const struct values *in_member(const struct node_call *c, const char *group, size_t *at,
                               const char **name);
struct value *in_value(const struct node_call *c, const char *name); /* borrowed; NULL: not given */
/* Not given: the declared default. */
berth_status in_i64(const struct node_call *c, const char *name, int64_t *out, berth_err *err);
berth_status in_u64(const struct node_call *c, const char *name, uint64_t *out, berth_err *err);
berth_status in_f64(const struct node_call *c, const char *name, double *out, berth_err *err);
berth_status in_bool(const struct node_call *c, const char *name, bool *out, berth_err *err);
berth_status in_text(const struct node_call *c, const char *name, const char **out, berth_err *err);
/* Borrowed. Images have ndim 4, masks ndim 3, and no dimension is 0. */
berth_status in_image(const struct node_call *c, const char *name, struct htensor **out,
                      berth_err *err);
berth_status in_mask(const struct node_call *c, const char *name, struct htensor **out,
                     berth_err *err);
/* One latent; in_latents(): also several that are sampled together. */
berth_status in_latent(const struct node_call *c, const char *name, const struct latent **out,
                       berth_err *err);
berth_status in_latents(const struct node_call *c, const char *name, const struct latent **out,
                        berth_err *err);
/* BERTH_EINVAL: the input has several latents. */
berth_status latent_single(const char *name, const struct latent *l, berth_err *err);
berth_status in_model(const struct node_call *c, const char *name, const struct model_ref **out,
                      berth_err *err);

/* Outputs by index; take ownership, also on failure. */
berth_status out_value(struct node_call *c, size_t i, struct value *taken, berth_err *err);
berth_status out_tensor(struct node_call *c, size_t i, struct htensor *taken, berth_err *err);
/* What an input has, handed on: nodes that save something. Not given: None. */
berth_status out_input(struct node_call *c, size_t i, const char *name, berth_err *err);
/* ui[key] gets one more element. Takes it. */
berth_status ui_add(struct node_call *c, const char *key, json_t *taken, berth_err *err);
/* {"filename","subfolder","type"} */
berth_status ui_add_file(struct node_call *c, const char *key, const char *name,
                         const char *subfolder, const char *type, berth_err *err);

berth_status call_progress(struct node_call *c, double value, double max, berth_err *err);
/* The same with a picture: clients get the two in the order their protocol wants. */
berth_status call_step(struct node_call *c, const struct node_step *s, berth_err *err);
/* A text under the node while it runs, for clients that show such; " " takes it away. */
void call_text(struct node_call *c, const char *s, size_t n);
/* res_load() with the node's cancel flag. steps: the node counts percent, as a loader that has no
 * steps of its own. Else clients that show texts read how far it is, and nothing of it stays. */
berth_status call_load(struct node_call *c, struct res_model *m, bool steps, berth_err *err);
/* BERTH_ECANCELED when somebody interrupted. For loops that have no steps to report. */
berth_status call_check(struct node_call *c, berth_err *err);

/* run() of nodes that this build cannot compute: "KSampler cannot be computed yet". */
berth_status node_not_yet(struct node_call *c, berth_err *err);
/* Why its run() is such a one, behind the name of the class; NULL: it can be computed. */
const char *node_cannot_run(const struct node_class *c);

/* What a loader's files are, by their headers: an error is a sentence about a file of a family that
 * cannot be computed, and *input the one that names it. Files that cannot be read are fine: the
 * loader says so. */
berth_status node_look(const struct node_check *k, const char **input, berth_err *err);
/* Could the file that this input names be used there? Unlike node_look() it also refuses what
 * cannot be read, what holds nothing for the loader, and text encoders that its `type` cannot use.
 * An input that names no model: yes. For advice. */
berth_status node_file_fits(const struct node_check *k, const char *input, berth_err *err);
/* What the latents of a loader's file are: those that its diffusion model samples (role "unet") or
 * that its VAE decodes (role "vae"). False: its class has no such file, or that does not tell. */
struct node_latents {
    char file[128], is[120]; /* "a.safetensors", "a Flux diffusion model" */
    uint32_t channels;
    int rank; /* latent_format.rank */
};
bool node_latents(const struct node_check *k, const char *role, struct node_latents *out);
/* Has a loader a file of this role ("unet", "control")? Can the control net of one steer the
 * diffusion model of the other? Errors are as above; files that cannot be read, and others that
 * somebody else refuses, are fine. */
bool node_loads(const struct node_class *c, const char *role);
berth_status node_look_both(const struct node_check *model, const struct node_check *control,
                            berth_err *err);
/* What was found is kept by the files' identities: no prompt waits for a header twice. NULL: out of
 * memory. */
struct node_looks *node_looks_new(void);
void node_looks_free(struct node_looks *l); /* NULL is fine */

/* "ValueError", "FileNotFoundError", "torch.OutOfMemoryError", ... by status. */
const char *node_exception(berth_status s);

/* ---- the registry ---- */
size_t node_count(void);
const struct node_class *node_at(size_t i);                            /* in nodes.def order */
const struct node_class *node_find(const char *name);                  /* NULL: none */
size_t node_input_index(const struct node_class *c, const char *name); /* SIZE_MAX: none */
/* Is it one that a dynamic input may bring: "mode.width", "images.image0"? Or such an input. */
bool node_input_may_be(const struct node_class *c, const char *name);

/* Where a frontend lists the class (menu.c). */
struct node_menu {
    const char *category;
    const char *display;    /* NULL: as node_class.display */
    const char *essentials; /* NULL: not there */
};
struct node_menu node_menu(const struct node_class *c);
/* Is it one for experts? Frontends show those on demand. */
bool node_is_folded(const struct node_class *c, const struct node_input *in);

/* What a frontend shows over an input or an output; NULL: nothing. */
const char *node_input_tip(const struct node_class *c, const struct node_input *in);
const char *node_output_tip(const struct node_class *c, size_t out);
size_t node_tips(void); /* how many there are */

/* Choices of a combo, whatever their source. */
berth_status node_options(const struct node_env *env, const struct node_input *in,
                          struct names *out, berth_err *err);
/* [type, options] as /object_info and validation errors show it. */
berth_status node_input_spec(const struct node_env *env, const struct node_class *c,
                             const struct node_input *in, json_t **out, berth_err *err);
/* One definition. A class whose choices cannot be listed is an error; the caller leaves it out. */
berth_status node_info(const struct node_env *env, const struct node_class *c, json_t **out,
                       berth_err *err);
