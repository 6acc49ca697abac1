/* places: where networks stand in weight files. The one table of it: detection, loaders, text
 * encoders and adapters all ask here.
 *
 * Words   part: one network of a file that holds several, told by the prefix of its tensors;
 *         lead: what may stand between that prefix and the network's own names;
 *         root: prefix and lead, exactly what stands in front of the names.
 * Adding  a line in places.def; a file that holds one network under a prefix of its own: a word in
 *         places.c.
 * Threads Tables: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define PLACE_ROOT_MAX 128 /* bytes of a root, NUL included */

enum place_part_id {
#define PART(id, prefix, role) PLACE_PART_##id,
#define PLACE(part, lead, word, ask)
#include "format/places.def"
#undef PART
#undef PLACE
    PLACE_PARTS
};

struct place_part {
    const char *prefix; /* of tensor names, ends with a dot */
    const char *role;   /* "clip", "vision", "unet", "vae" */
};
extern const struct place_part place_parts[PLACE_PARTS]; /* in the order a picture needs them */

struct net_place {
    enum place_part_id part;
    const char *lead;
    const char *word; /* places.def */
    bool ask;
};
size_t place_count(void);
const struct net_place *place_at(size_t i); /* in the order of their parts */
/* Prefix and lead. */
const char *place_root(const struct net_place *p, char root[PLACE_ROOT_MAX]);

/* Prefixes that a network of this role may have in a file of its own, or behind a part's prefix;
 * "" is the first, NULL the end. role NULL: of networks without one (ControlNets). */
const char *const *place_leads(const char *role);
/* "<part><lead>"; NULL: longer than any name's front. */
const char *place_join(const char *part, const char *lead, char root[PLACE_ROOT_MAX]);
