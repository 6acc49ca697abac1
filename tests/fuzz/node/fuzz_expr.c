/* Math expressions from strangers: whatever the text is, reading it ends with a value or an error
 * in words, and a number that comes out can be printed. */
#include "node/expr.h"
#include "support/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct ev all[] = { { .kind = EV_INT, .i = 7 },
                                     { .kind = EV_FLOAT, .f = -2.5 },
                                     { .kind = EV_BOOL, .b = true },
                                     { .kind = EV_TEXT, .s = { "h\xc3\xa9", 3 } } };
    const struct expr_name name[] = { { "a", all[0] },
                                      { "b", all[1] },
                                      { "c", all[2] },
                                      { "s", all[3] },
                                      { "values", { .kind = EV_LIST, .list = { all, 4 } } } };
    char *text = malloc(n + 1);
    if (!text)
        return 0;
    memcpy(text, data, n);
    text[n] = 0;
    struct expr x = { .text = text, .n = n, .name = name, .names = ARRAY_LEN(name) };
    struct ev v;
    berth_err err = { 0 };
    berth_status s = expr_parse(&x, &err);
    if (!s)
        s = expr_eval(&x, &v, &err);
    if (s && (!err.msg[0] || (s == BERTH_EINVAL && !x.raised)))
        abort();
    struct str shown = { 0 };
    if (!s)
        ev_repr(&v, &shown);
    if (!s && !shown.n)
        abort();
    str_release(&shown);
    expr_release(&x);
    free(text);
    return 0;
}
