/* tokenizer_byt5.c: ByT5, as a tokenizer: bytes are tokens (llm-encoders.md 3.4). It has no files,
 * so that every model file brings it. */
#include "base/utf8.h"
#include "text/tokenizer.h"

#include <string.h>

enum { PAD, END, UNKNOWN, BYTES, EXTRA = BYTES + 256, EXTRAS = 125 };

static const char nothing; /* what an opened one is */

static berth_status open_path(const char *path, void **out, berth_err *err)
{
    (void)path;
    (void)err;
    *out = (void *)(uintptr_t)&nothing;
    return BERTH_OK;
}

static berth_status carried(const struct weights *w, void **out, berth_err *err)
{
    (void)w;
    return open_path("", out, err);
}

static void close_it(void *tok)
{
    (void)tok;
}

static struct token_ids ids(const void *tok)
{
    (void)tok;
    return (struct token_ids) { .start = -1, .end = END, .pad = PAD };
}

/* "<extra_id_7>" and the others, where s begins with one: its bytes; 0: it does not. */
static size_t special_at(const char *s, size_t n, int32_t *id)
{
    static const char *const first[] = { "<pad>", "</s>", "<unk>" };
    static const char extra[] = "<extra_id_";
    for (size_t i = 0; i < ARRAY_LEN(first); i++)
        if (str_starts(s, n, first[i])) {
            *id = (int32_t)i;
            return strlen(first[i]);
        }
    size_t at = sizeof extra - 1, digits = at;
    if (!str_starts(s, n, extra))
        return 0;
    uint64_t number;
    while (at < n && at - digits < 4 && s[at] >= '0' && s[at] <= '9')
        at++;
    if (at == n || s[at] != '>' || !str_parse_u64(s + digits, at - digits, &number) ||
        number >= EXTRAS || (s[digits] == '0' && at - digits > 1))
        return 0;
    *id = EXTRA + (int32_t)number;
    return at + 1;
}

static berth_status encode(const void *tok, const char *s, size_t n, struct vec *out,
                           berth_err *err)
{
    static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
    (void)tok;
    if (n > TEXT_PROMPT_MAX)
        return err_set(err, BERTH_ELIMIT, "text of %zu bytes, more than %u", n, TEXT_PROMPT_MAX);
    size_t first = out->n;
    bool ok = true;
    for (size_t i = 0, len; ok && i < n; i += len) {
        int32_t id;
        if (s[i] == '<' && (len = special_at(s + i, n - i, &id))) {
            ok = vec_push(out, &id);
            continue;
        }
        len = utf8_step(s + i, n - i);
        const char *bytes = len ? s + i : replacement;
        size_t count = len ? len : sizeof replacement - 1;
        len = len ? len : 1;
        for (size_t k = 0; ok && k < count; k++) {
            id = BYTES + (uint8_t)bytes[k];
            ok = vec_push(out, &id);
        }
    }
    if (!ok)
        return err_set(err, BERTH_ENOMEM, "tokens of %zu bytes of text", n);
    /* "</s>" at the end of a text counts as the end token, of which there is one */
    if (out->n > first && *(int32_t *)vec_at(out, out->n - 1) == END)
        vec_pop(out);
    return BERTH_OK;
}

const struct tokenizer tokenizer_byt5 = {
    .name = "ByT5",
    .files = "none",
    .folders = (const char *const[]) { NULL },
    .any_of = (const char *const[][2]) { { NULL } },
    .open = open_path,
    .carried = carried,
    .close = close_it,
    .ids = ids,
    .encode = encode,
};
