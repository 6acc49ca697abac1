/* folders: where models, inputs and outputs are; the ComfyUI folder table (comfyui-api.md 11).
 *
 * Words      key      "checkpoints", "loras", ...; in registration order, then those of the YAML
 *                     files. Old names "unet" and "clip" are understood where a key is looked up.
 *            listing  relative names of all matching files under a key's directories, sorted by
 *                     code point, each once; kept until a directory's mtime changes
 *            name     from a workflow; normalised as if rooted, so ".." cannot escape; the first
 *                     directory that holds a regular file wins
 * Extensions as ComfyUI's. unet_gguf and clip_gguf are the keys of ComfyUI-GGUF: the directories of
 *            diffusion_models and text_encoders (and what a YAML file adds), of which only .gguf is
 *            shown; under those two it is not.
 * Walking    Links are followed; a directory that is its own ancestor is not entered again. Beyond
 *            FOLDERS_DEPTH_MAX, FOLDERS_FILES_MAX or FOLDERS_DIRS_MAX nothing is listed, with a
 *            warning; names that are not UTF-8 are left out, as JSON could not carry them.
 * Threads    Any: one lock inside, never held across a callback. Listings are copies.
 * Files      folders.c the table and resolving; listing.c; extra.c
 *            extra_model_paths.yaml, yaml.c as far as such files go; folders.def the keys;
 *            folders_impl.h. */
#pragma once

#include "base/log.h"
#include "paths/paths.h"

#define FOLDERS_DEPTH_MAX 32
#define FOLDERS_FILES_MAX 100000
#define FOLDERS_DIRS_MAX 20000

struct folders;

/* The value of an environment variable (of "HOME" for "~"), borrowed for the call; NULL: not
 * set. */
typedef const char *folders_env_fn(void *user, const char *name);

struct folders_config {
    const char *base;                         /* required: root of models/, custom_nodes/, ... */
    const char *input, *output, *temp, *user; /* NULL: base/<name> */
    const char *models;                       /* NULL: base/models */
    folders_env_fn *env; /* for ~ and $VAR in YAML files; NULL: they stay as they are */
    void *env_user;
    const char *const *yaml; /* extra_model_paths.yaml files, in order */
    size_t yamls;
    const char *checkpoints; /* one more directory of them, behind all others; NULL: none */
    const struct log *log;   /* borrowed; may be NULL */
};
/* Directories need not exist; input, output, temp and user are made when they do not. Everything is
 * absolute afterwards. A YAML file that cannot be read or understood is an error naming file, line
 * and what was expected. */
berth_status folders_new(const struct folders_config *cfg, struct folders **out, berth_err *err);
void folders_free(struct folders *f); /* NULL is fine */

enum folders_own {
    FOLDERS_INPUT,
    FOLDERS_OUTPUT,
    FOLDERS_TEMP,
    FOLDERS_USER,
    FOLDERS_BASE,
    FOLDERS_MODELS,
    FOLDERS_OWN /* so many */
};
const char *folders_own(const struct folders *f, enum folders_own which);
/* "input", "output", "temp"; NULL: no such. */
const char *folders_by_kind(const struct folders *f, const char *kind);

size_t folders_count(const struct folders *f);
const char *folders_key(const struct folders *f, size_t i); /* borrowed */
/* exact: old names are not keys (as /models wants). SIZE_MAX: none. */
size_t folders_find(const struct folders *f, const char *key, bool exact);
size_t folders_dirs(const struct folders *f, size_t key);
const char *folders_dir(const struct folders *f, size_t key, size_t i); /* borrowed, absolute */

/* The endings of its files as ComfyUI tells them, sorted, NULL at the end: "" for none, "folder"
 * where directories are meant; no member: any file. */
const char *const *folders_extensions(const struct folders *f, size_t key);

struct names { /* zeroed: empty. One allocation per name and one table */
    char **at;
    size_t n, cap;
};
WARN_UNUSED bool names_add(struct names *x, const char *s, size_t n);
void names_sort(struct names *x); /* by code point, and each once */
void names_release(struct names *x);

/* BERTH_ENOTFOUND: no such key. Names are added to *out, sorted among themselves. */
berth_status folders_list(struct folders *f, const char *key, struct names *out, berth_err *err);
/* Names of the directories right below a key's that have this file in them: diffusers' models. */
berth_status folders_with(struct folders *f, const char *key, const char *file, struct names *out,
                          berth_err *err);
/* Absolute path of a model. BERTH_ENOTFOUND names the key, the name and the directories looked
 * in. */
berth_status folders_resolve(struct folders *f, const char *key, const char *name, struct str *out,
                             berth_err *err);

/* One file as /experiment/models shows it: of every directory, also those that resolving hides
 * behind another of the same name. */
struct folder_file {
    char *name;
    size_t path_index;
    uint64_t size;
    double modified, created; /* seconds */
};
struct folder_files {
    struct folder_file *at;
    size_t n;
};
berth_status folders_files(struct folders *f, size_t key, struct folder_files *out, berth_err *err);
void folder_files_release(struct folder_files *x);

/* Plain files at the top of the input folder, sorted. A link is one if path_inside() would take
 * it. */
berth_status folders_inputs(struct folders *f, struct names *out, berth_err *err);
/* Folders below the input folder, at any depth, as "a/b"; links are not entered. */
berth_status folders_input_dirs(struct folders *f, struct names *out, berth_err *err);
