/* yaml: the subset of YAML that extra_model_paths.yaml files are written in.
 *
 *     section:                # a mapping of sections, any number; null ones have no entries
 *       key: plain text       # comments; "quoted", 'quoted'; ~ and null are nothing
 *       key: |                # block scalars | and > with indentation and chomping indicators
 *         one line
 *     section: {key: text, key: "text"}     # on one line
 *
 * Plain text may go on in deeper lines, which are joined with a space. Everything else of YAML
 * (lists, other flow collections, anchors, tags, quoted text over several lines, a third level) is an
 * error that names the line. A section or key that comes twice adds to the first: YAML does not allow it,
 * the reference silently forgets one.
 * Trust      Files are people's own, but they are read with limits all the same.
 * Threads    Any; no state. */
#ifndef PATHS_YAML_H
#define PATHS_YAML_H

#include "base/err.h"
#include "base/vec.h"

#define YAML_BYTES_MAX ((size_t)1 << 20)
#define YAML_ENTRIES_MAX 10000

struct yaml_entry {
    unsigned section;  /* 0.. in file order */
    unsigned line;     /* 1.. */
    char *key, *value; /* value NULL: nothing was said */
};
struct yaml_doc {     /* yaml_release() */
    struct vec entry; /* of struct yaml_entry */
};

/* file: for messages. *out is zeroed before; yaml_release() it, also after an error. */
berth_status yaml_parse(const char *text, size_t n, const char *file, struct yaml_doc *out,
                        berth_err *err);
void yaml_release(struct yaml_doc *d);
/* y, yes, true, on; n, no, false, off; any case; and whole numbers, of which 0 is false. false:
 * neither. */
WARN_UNUSED bool yaml_bool(const char *s, bool *out);

#endif
