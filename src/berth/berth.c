/* berth: version and the words for status codes. */
#include "base/err.h"

const char *berth_version(void)
{
    return BERTH_VERSION_STRING;
}

const char *berth_status_name(berth_status s)
{
    switch (s) {
#define CASE(name, text)                                                                           \
    case BERTH_##name:                                                                             \
        return #name;
        BERTH_STATUS_MAP(CASE)
#undef CASE
    }
    return "?";
}

const char *berth_status_text(berth_status s)
{
    switch (s) {
#define CASE(name, text)                                                                           \
    case BERTH_##name:                                                                             \
        return text;
        BERTH_STATUS_MAP(CASE)
#undef CASE
    }
    return "unknown status";
}
