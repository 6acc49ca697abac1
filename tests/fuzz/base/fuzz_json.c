/* js_parse -> js_write -> js_parse gives the same tree and the same text; an error has a
 * message. */
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    json_t *v = (void *)1, *back = NULL;
    berth_err err = { 0 };
    const struct js_limits lim = { .max_bytes = 1 << 20, .max_depth = 64, .max_values = 10000 };
    if (js_parse((const char *)data, n, &lim, &v, &err)) {
        require(!v && err.code != BERTH_OK && err.msg[0]);
        require(str_is_utf8(err.msg, strlen(err.msg)));
        return 0;
    }
    struct str text = { 0 }, again = { 0 };
    js_write(v, (int)(n % 3), &text);
    require(!text.bad && !js_parse(text.p, text.n, NULL, &back, &err) && json_equal(v, back));
    js_write(back, (int)(n % 3), &again);
    require(again.n == text.n && memcmp(again.p, text.p, text.n) == 0);
    str_release(&again);
    str_release(&text);
    json_decref(back);
    json_decref(v);
    return 0;
}
