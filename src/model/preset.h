/* preset: models whose shapes we know by heart, and how files of them are written.
 *
 * Adding  a row in the list of the network's folder (struct arch.presets). */
#pragma once

#include "format/weights.h"
#include "model/keys.h"

struct preset {
    const char *name;  /* what --preset takes */
    const char *about; /* one line for people */
    const char *arch;  /* general.architecture in GGUF files; NULL: left out */
    /* Names that are never quantised, by how they begin or, with a dot in front, how they end;
     * NULL-terminated; or NULL. */
    const char *const *hiprec;
    /* Of its text encoders, where it is not width / 64; no tensor says so, the file's metadata does
     * ("berth.heads"). 0: left out. */
    unsigned heads;
    /* Adds every tensor; failures stay in k->bad. */
    void (*build)(struct keys *k, const void *config);
    const void *config; /* for build() */
};

size_t preset_count(void);
const struct preset *preset_at(size_t i);           /* in the order of families */
const struct preset *preset_find(const char *name); /* NULL: no such preset */

/* What goes into the file beside its tensors; returns how many. mixed: weights_writer.mixed. */
#define PRESET_META_MAX 2
struct preset_meta {
    struct weights_meta_spec at[PRESET_META_MAX];
    char heads[16];
};
size_t preset_meta(const struct preset *p, bool mixed, struct preset_meta *out);

/* Fills *k, which must be empty; it is empty again after a failure. */
berth_status preset_keys(const struct preset *p, struct keys *k, berth_err *err);
