/* folders: where models, inputs and outputs are; the ComfyUI folder table (comfyui-api.md 11).
 *
 * Words      key      "checkpoints", "loras", ...; in registration order, then those of the YAML
 *                     files. Old names "unet" and "clip" are understood where a key is looked up.
 *            listing  relative names of all matching files under a key's directories, sorted by
 *                     code point, each once; kept until a directory's mtime changes
 *            name     from a workflow; normalised as if rooted, so ".." cannot escape; the first
 *                     directory that holds a regular file wins
 * Threads    Any: one lock inside, never held across a callback. Listings are copies.
 * Files      folders.c the table and resolving; listing.c; yaml.c the subset of YAML that
 *            extra_model_paths.yaml uses, with limits; folders.def the keys. */
#ifndef PATHS_FOLDERS_H
#define PATHS_FOLDERS_H

#include "base/log.h"
#include "paths/paths.h"

struct folders;

struct folders_config {
    const char *base;                         /* required: root of models/, custom_nodes/, ... */
    const char *input, *output, *temp, *user; /* NULL: base/<name> */
    const char *const *yaml;                  /* extra_model_paths.yaml files, in order */
    size_t yamls;
    const struct log *log; /* borrowed; may be NULL */
};
/* Directories need not exist; input, output, temp and user are made when they do not. Everything is
 * absolute afterwards. A YAML file that cannot be read or understood is an error naming file, line
 * and what was expected. */
berth_status folders_new(const struct folders_config *cfg, struct folders **out, berth_err *err);
void folders_free(struct folders *f); /* NULL is fine */

const char *folders_base(const struct folders *f);
const char *folders_input(const struct folders *f);
const char *folders_output(const struct folders *f);
const char *folders_temp(const struct folders *f);
const char *folders_user(const struct folders *f);
const char *folders_by_kind(const struct folders *f,
                            const char *kind); /* "input"..; NULL: no such */

size_t folders_count(const struct folders *f);
const char *folders_key(const struct folders *f, size_t i); /* borrowed */
/* exact: old names are not keys (as /models wants). SIZE_MAX: none. */
size_t folders_find(const struct folders *f, const char *key, bool exact);
size_t folders_dirs(const struct folders *f, size_t key);
const char *folders_dir(const struct folders *f, size_t key, size_t i); /* borrowed, absolute */

struct names { /* zeroed: empty. One allocation per name and one table */
    char **at;
    size_t n, cap;
};
WARN_UNUSED bool names_add(struct names *x, const char *s, size_t n);
void names_sort(struct names *x);
void names_release(struct names *x);

/* BERTH_ENOTFOUND: no such key. Names are added to *out. */
berth_status folders_list(struct folders *f, const char *key, struct names *out, berth_err *err);
/* Absolute path of a model. BERTH_ENOTFOUND names the key, the name and the directories looked in. */
berth_status folders_resolve(struct folders *f, const char *key, const char *name, struct str *out,
                             berth_err *err);

/* One file as /experiment/models shows it. */
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

/* Plain files at the top of the input folder, sorted; images: only those with an image MIME type. */
berth_status folders_inputs(struct folders *f, bool images, struct names *out, berth_err *err);

#endif
