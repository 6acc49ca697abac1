#include "berth/berth.h"

const char *berth_version(void)
{
    return BERTH_VERSION_STRING;
}
