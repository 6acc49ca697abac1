/* carried.c: where the tensor is. */
#include "text/carried.h"

#include "format/weights.h"

#include <stdio.h>
#include <string.h>

berth_status carried_find(const struct weights *w, const char *name, struct carried *out,
                          berth_err *err)
{
    static const char *const lead[] = { "", "text_encoders." };
    for (size_t i = 0; i < ARRAY_LEN(lead); i++) {
        char key[128];
        snprintf(key, sizeof key, "%s%s", lead[i], name);
        const struct weights_entry *e = weights_find(w, key, strlen(key));
        if (!e)
            continue;
        *out = (struct carried) { .bytes = (const char *)weights_data(w, e), .n = (size_t)e->size };
        snprintf(out->what, sizeof out->what, "%s of %.300s", key, weights_path(w));
        return BERTH_OK;
    }
    return err_set(err, BERTH_ENOTFOUND, "'%s' has no %s", weights_path(w), name);
}
