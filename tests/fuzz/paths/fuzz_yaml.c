/* extra_model_paths.yaml: reading ends, says why, and what it gave is whole. */
#include "paths/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct yaml_doc d = { 0 };
    berth_err err = { 0 };
    berth_status s = yaml_read((const char *)p, n, "fuzz.yaml", &d, &err);
    if (s && !err.msg[0])
        BUG("%d without a message", (int)s);
    size_t bytes = 0;
    for (size_t i = 0; !s && i < d.entry.n; i++) {
        const struct yaml_entry *e = vec_at(&d.entry, i);
        bytes += e->value ? strlen(e->value) : 0;
        if (!e->key || !*e->key || !e->line || (e->list && !e->value) || bytes > YAML_BYTES_MAX)
            BUG("entry %zu", i);
    }
    yaml_release(&d);
    return 0;
}
