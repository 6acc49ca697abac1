/* Names from outside: what is let through has no way out, and prefixes of saved files stay
 * below. */
#include "paths/paths.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct str out = { 0 }, name = { 0 }, back = { 0 };
    berth_err err = { 0 };
    const char *s = (const char *)p;
    if (path_unescape(s, n, true, &name)) {
        if (memchr(str_c(&name), '\0', name.n))
            BUG("a NUL");
        path_escape(str_c(&name), name.n, &out);
        if (!path_unescape(str_c(&out), out.n, false, &back) || back.n != name.n ||
            memcmp(str_c(&back), str_c(&name), name.n) != 0)
            BUG("no round trip");
    }
    if (!path_inside("/", s, n, false, &out, &err) && strstr(str_c(&out), "/../"))
        BUG("%s", str_c(&out));
    path_join("/a/b", str_c(&name), name.n, &out);
    if (str_c(&out)[0] != '/' || strstr(str_c(&out), "/../") || strstr(str_c(&out), "//"))
        BUG("%s", str_c(&out));
    struct annotated a = path_annotated(s, n);
    if (a.n > n)
        BUG("longer");
    (void)path_mime(str_c(&name));
    str_release(&out);
    str_release(&name);
    str_release(&back);
    return 0;
}
