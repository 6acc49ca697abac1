/* words: the names of the lists in residency.h. */
#include "residency/residency.h"

const char *res_retention_name(enum res_retention x)
{
    static const char *const name[] = {
#define NAME(id, text) [RES_##id] = text,
        RES_RETENTION_MAP(NAME)
#undef NAME
    };
    return name[x];
}

bool res_retention_parse(const char *s, size_t n, enum res_retention *out)
{
#define PARSE(id, text)                                                                            \
    if (str_eq(s, n, text)) {                                                                      \
        *out = RES_##id;                                                                           \
        return true;                                                                               \
    }
    RES_RETENTION_MAP(PARSE)
#undef PARSE
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
