#include "support/golden.h"

#include <stdio.h>
#include <stdlib.h>

const char *golden_dir(void)
{
    const char *set = getenv("BERTH_GOLDEN_DIR");
    return set && set[0] ? set : BERTH_SOURCE_DIR "/tests/golden/data";
}

const char *golden_path(const char *name)
{
    static char ring[16][1024];
    static unsigned at;
    char *p = ring[at++ % 16];
    snprintf(p, sizeof ring[0], "%s/%s", golden_dir(), name);
    return p;
}
