/* words: the names of the lists in residency.h. */
#include "residency/residency.h"

#include <string.h>

const char *res_retention_name(enum res_retention x)
{
    static const char *const name[] = {
#define NAME(id, text) [RES_##id] = text,
        RES_RETENTION_MAP(NAME)
#undef NAME
    };
    return name[x];
}

bool res_retention_parse(const char *text, enum res_retention *out)
{
#define SAME(id, word)                                                                             \
    if (strcmp(text, word) == 0) {                                                                 \
        *out = RES_##id;                                                                           \
        return true;                                                                               \
    }
    RES_RETENTION_MAP(SAME)
#undef SAME
    return false;
}

const char *res_state_name(enum res_state s)
{
    static const char *const name[] = {
#define NAME(id, text) [RES_##id] = text,
        RES_STATE_MAP(NAME)
#undef NAME
    };
    return name[s];
}

const char *res_anchor_text(enum res_anchor a)
{
    static const char *const name[] = {
#define NAME(id, text) [RES_ANCHOR_##id] = text,
        RES_ANCHOR_MAP(NAME)
#undef NAME
    };
    return name[a];
}
