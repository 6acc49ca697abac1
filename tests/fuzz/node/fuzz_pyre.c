/* Regular expressions from strangers: the first line is the pattern, the rest is a text and the
 * replacement. Whatever they are, every search ends; what is found lies within the text, and one
 * match behind the other. */
#include "node/pyre.h"
#include "support/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void search(const struct pyre *re, const char *text, size_t n)
{
    struct pyre_scan s;
    struct pyre_template t = { 0 };
    struct str out = { 0 };
    berth_err err = { 0 };
    bool found = true;
    size_t last = 0;
    berth_status st = pyre_open(&s, re, text, n, &err);
    bool replaces = !pyre_template(&t, re, text, n < 64 ? n : 64, &err);
    while (!st && found && out.n < 100000) {
        st = pyre_next(&s, &found, &err);
        if (st || !found)
            break;
        require(s.mark[0] >= last && s.mark[0] <= s.mark[1] && s.mark[1] <= s.n);
        last = s.mark[1];
        for (unsigned g = 1; g <= re->groups; g++)
            require(s.mark[2 * g + 1] == SIZE_MAX || s.mark[2 * g + 1] <= s.n);
        if (replaces)
            pyre_expand(&t, &s, 100000, &out);
    }
    require(!st || err.msg[0]);
    str_release(&out);
    pyre_template_release(&t);
    pyre_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *p = (const char *)data, *line = n ? memchr(p, '\n', n) : NULL;
    size_t pattern = line ? (size_t)(line - p) : n;
    for (unsigned flags = 0; flags < 32; flags += 5) {
        struct pyre re;
        berth_err err = { 0 };
        berth_status s = pyre_compile(&re, p, pattern, flags, &err);
        require(!s || err.msg[0]);
        if (!s)
            search(&re, line ? line + 1 : "abc", line ? n - pattern - 1 : 3);
        pyre_release(&re);
    }
    return 0;
}
