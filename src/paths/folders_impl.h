/* folders_impl: the table behind folders.h, for this folder alone. */
#pragma once

#include "base/vec.h"
#include "paths/folders.h"

#include <pthread.h>
#include <sys/types.h>

enum folder_ext {
    EXT_ANY,
    EXT_MODELS,
    EXT_GGUF,
    EXT_YAML,
    EXT_NONE,   /* files without a suffix */
    EXT_NOTHING /* no file: directories are meant */
};
bool ext_matches(enum folder_ext ext, const char *name);

/* A directory that a listing went through. */
struct walked {
    char *path;    /* absolute */
    char *rel;     /* below its root, "" for the root itself */
    size_t parent; /* index, SIZE_MAX: a root */
    bool there;    /* it could be read */
    dev_t dev;
    ino_t ino;
    struct timespec mtime;
};

struct listing {
    struct vec dir; /* of struct walked */
    struct names names;
    bool valid;
    bool racy; /* a directory changed so shortly before that its mtime proves nothing */
};

struct folder {
    char *key;
    enum folder_ext ext;
    size_t like; /* index of the key whose directories come first; SIZE_MAX: none */
    struct names dirs;
    struct listing listing;
};

struct folders {
    char *own[FOLDERS_OWN];
    struct vec folder; /* of struct folder; constant after folders_new() except for the listings */
    const struct log *log;
    pthread_mutex_t lock; /* guards the listings */
    bool locked;          /* the mutex is there */
};

struct folder *folder_at(const struct folders *f, size_t i);

/* Adds a directory to a key, made if it is new; known already: moved to the front if `first`.
 * false: out of memory. path: absolute, normalised. */
WARN_UNUSED bool folders_add(struct folders *f, const char *key, size_t n, const char *path,
                             bool first);

/* listing.c. Under the lock: f's listing of key i, made anew if a directory changed. */
berth_status listing_get(struct folders *f, size_t i, const struct listing **out, berth_err *err);
void listing_release(struct listing *x);

/* extra.c. Reads one extra_model_paths.yaml into the table. */
berth_status extra_load(struct folders *f, const struct folders_config *cfg, const char *path,
                        berth_err *err);
