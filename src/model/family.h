/* family: what a weight file is, in words for people, and whether it can be computed here, told
 * from names and shapes alone. Loaders ask before they read gigabytes; `berth inspect` prints it.
 *
 * Known   For what can be computed the descriptors are asked (families.h, encoder.h, vae.h). What
 *         cannot is in one table (family.c), each with tensors that no other family has. How
 *         weights are stored counts, too (plan/quant.h).
 * Adding  a family that cannot be computed: a row in that table. Once it can be, the row goes.
 * Threads Tables and pure functions: any. */
#pragma once

#include "format/weights.h"

struct family_info {
    const char *name; /* "SDXL", "Wan" */
    const char *role; /* "unet", "clip", "vae", "vision", "style", "upscale"; others: NULL */
    bool runs;        /* can be computed */
    char what[120];   /* "an SDXL checkpoint", "a Wan video model" */
    char why[200];    /* why this one cannot be, though its family can; "" otherwise */
};

/* What the file has of this role (NULL: of any). BERTH_ENOTFOUND: nothing we know, *out is
 * untouched. Fails otherwise with BERTH_ENOMEM only. */
berth_status family_find(const struct weights *w, const char *role, struct family_info *out,
                         berth_err *err);
