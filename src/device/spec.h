/* spec: the text that says which devices there are.
 *
 *     --devices "cpu=16g,null:0=24g,cuda:1@cuda:0=40g"
 *
 *   spec      entry { "," entry }
 *   entry     name [ "@" physical ] [ "=" budget ]
 *   name      kind [ ":" N ]                  physical: the same; without it the name itself
 *   kind      1..12 letters: cpu, cuda, null, or any other     N: 0..255, no leading zero
 *   budget    number [unit] as str_parse_bytes() reads it ("2.5g", "512 MiB", "1073741824"), or
 *             "*", which is what the other devices on the same phys leave; absent means "*"
 *
 * Spaces and tabs around every part are skipped, letters may be upper case. An error names the
 * entry by number and text. Refused: empty text or entries, names of another shape, a missing or
 * extra index where the driver or custom says (cuda, cpu:0), a name given twice, a budget of zero,
 * "@" on a device that is itself logical, two "*" on one phys, more than SPEC_MAX devices, more
 * than SPEC_TEXT_MAX bytes.
 *
 * What a spec cannot know, whether the machine has such a device and that much memory, is asked by
 * devset_open(), which also says what there is instead. A hypothetical spec is never opened: every
 * entry must then state its budget, and the memory of each phys is what its entries add up to
 * (spec_shares()). */
#pragma once

#include "base/str.h"
#include "device/driver.h"

#define SPEC_MAX 64
#define SPEC_TEXT_MAX 4096
#define SPEC_REST UINT64_MAX /* budget "*" */
#define SPEC_KIND_MAX 12     /* letters; with ":", any unsigned and NUL that is DEV_NAME_MAX */

struct spec_name {
    char text[DEV_NAME_MAX]; /* "cuda:1" */
    char kind[DEV_NAME_MAX]; /* "cuda" */
    bool indexed;
    unsigned index; /* 0 when not indexed */
};

struct spec_entry {
    struct spec_name name, phys;
    uint64_t budget; /* bytes, > 0; SPEC_REST */
};

struct spec {
    struct spec_entry entry[SPEC_MAX];
    size_t n;
};

/* No allocation. BERTH_EINVAL, or BERTH_ELIMIT for too much text, too many entries or, if
 * hypothetical, budgets beyond 64 bits, leave out->n 0. */
berth_status spec_parse(const char *text, size_t n, bool hypothetical, struct spec *out,
                        berth_err *err);
/* A device name alone, as in "cuda:0"; the same rules. */
berth_status spec_parse_name(const char *text, size_t n, struct spec_name *out, berth_err *err);

struct spec_shares { /* of the entries on one phys */
    uint64_t stated; /* sum of the budgets that were given; of a hypothetical phys: its memory */
    bool rest;       /* one takes what is left; never so in a hypothetical spec */
};
/* BERTH_ELIMIT: the sum does not fit in 64 bits; cannot happen in a hypothetical spec. */
berth_status spec_shares(const struct spec *s, const char *phys, struct spec_shares *out,
                         berth_err *err);

/* "cuda:1@cuda:0=40g": the shortest text that parses to the same entry, in buf. */
#define SPEC_ENTRY_TEXT_MAX 80
const char *spec_entry_text(const struct spec_entry *e, char buf[SPEC_ENTRY_TEXT_MAX]);
void spec_name_text(struct spec_name *n); /* sets text from the rest */
