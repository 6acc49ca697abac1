/* Any bytes as __init__.py and as pyproject.toml: what is known of them is a text without NUL, and
 * whatever follows PACK_TEXT_MAX bytes changes nothing. */
#include "server/packs.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str web = { 0 }, name = { 0 };
    char *text = malloc(n ? n : 1); /* exactly as long as it is: one byte beyond is seen */
    if (!text)
        return 0;
    memcpy(text, data, n);
    bool known = pack_web_directory(text, n, &web);
    require(known == (web.n > 0) && strlen(str_c(&web)) == web.n);
    str_clear(&web);
    if (pack_project(text, n, &name, &web))
        require(name.n && web.n && strlen(name.p) == name.n && strlen(web.p) == web.n);
    free(text);
    str_release(&web);
    str_release(&name);
    return 0;
}
