/* family: what a weight file is, in words for people, and whether it can be computed here; from
 * names and shapes alone. Loaders ask before they read gigabytes, `berth inspect` prints it.
 *
 * Known   What can be computed is asked where it is known: diffusion_look(), vae_detect(), arch.h.
 *         What cannot stands in one table (family.c), each with tensors that no other family has.
 * Adding  a family that cannot be computed: a line in that table; one that can: its line goes.
 * Threads Tables and pure functions: any. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "format/weights.h"

struct family_info {
    const char *name; /* "SDXL", "Wan" */
    const char *role; /* "unet", "clip", "vae"; others are not a loader's: NULL */
    bool runs;        /* can be computed */
    char what[120];   /* "an SDXL checkpoint", "a Wan video model" */
    char why[200];    /* of a family that can be computed, why this one cannot; "": not so */
};

/* What of this role is in the file (NULL: whatever it is). BERTH_ENOTFOUND: nothing that we know,
 * and *out is untouched; else only BERTH_ENOMEM. */
berth_status family_find(const struct weights *w, const char *role, struct family_info *out,
                         berth_err *err);

#endif
