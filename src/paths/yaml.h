/* yaml: extra_model_paths.yaml as libyaml reads it, flattened.
 *
 *     section:                    # a mapping of sections; one that is null has no entries
 *       key: text                 # any scalar; ~ and null mean "not given"
 *       key: [text, text]         # a list of texts, joined with line ends
 *       <<: *other                # a merge: keys of another section that this one does not have
 *
 * Anything of another shape (a third level of mappings, lists of lists, tags other than !!str, a
 * second document) is an error that names file and line. A section or key given twice adds to the
 * first: YAML forbids it, and ComfyUI silently forgets one of them.
 * Limits   Bytes of the file, depth, anchors, entries, and bytes of all values, so that a few
 *          aliases cannot stand for gigabytes.
 * Threads  Any; no state. */
#pragma once

#include "base/err.h"
#include "base/vec.h"

#define YAML_BYTES_MAX ((size_t)1 << 20) /* of a file, and of all values after aliases */
#define YAML_ENTRIES_MAX 10000
#define YAML_DEPTH_MAX 8
#define YAML_ANCHORS_MAX 1000

struct yaml_entry {
    unsigned section;  /* 0.. in file order */
    unsigned line;     /* 1.. */
    bool list;         /* value: its items, one a line */
    char *key, *value; /* value NULL: not given */
};
struct yaml_doc {     /* yaml_release() */
    struct vec entry; /* of struct yaml_entry */
};

/* file: for messages. *out is zeroed before; yaml_release() it, also after an error. */
berth_status yaml_read(const char *text, size_t n, const char *file, struct yaml_doc *out,
                       berth_err *err);
void yaml_release(struct yaml_doc *d);
/* y, yes, true, on; n, no, false, off; any case; and whole numbers, of which 0 is false. false:
 * neither. */
WARN_UNUSED bool yaml_bool(const char *s, bool *out);
