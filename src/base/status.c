/* The public names of a status live here, at the bottom, because every test prints them. */
#include "base/attr.h"
#include "berth/berth.h"

static const struct {
    const char *name, *text;
} status[] = {
#define STATUS_ROW(name, text) { #name, text },
    BERTH_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};

const char *berth_status_name(berth_status s)
{
    return (size_t)s < ARRAY_LEN(status) ? status[s].name : "?";
}

const char *berth_status_text(berth_status s)
{
    return (size_t)s < ARRAY_LEN(status) ? status[s].text : "unknown status";
}
