/* added.c: added tokens in a text. */
#include "text/added.h"

#include "base/utf8.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "a tokenizer");
}

berth_status added_twice(const char *token, size_t len, berth_err *err)
{
    char text[48];
    size_t n = len < sizeof text ? len : sizeof text;
    memcpy(text, token, n);
    utf8_sanitize(text, n);
    return err_set(err, BERTH_EFORMAT, "the added token '%.*s' appears twice", (int)n, text);
}

berth_status added_init(struct added *a, const struct vec *tokens, bool normalized, berth_err *err)
{
    *a = (struct added) { 0 };
    size_t n = 0, at = 0;
    const struct added_token *all = tokens->p;
    for (size_t i = 0; i < tokens->n; i++)
        n += all[i].normalized == normalized;
    if (n == 0)
        return BERTH_OK;
    struct trie_key *key = calloc(n, sizeof *key);
    a->token = calloc(n, sizeof *a->token);
    berth_status s = key && a->token ? BERTH_OK : no_memory(err);
    for (size_t i = 0; !s && i < tokens->n; i++) {
        if (all[i].normalized != normalized)
            continue;
        key[a->tokens] = (struct trie_key) { .s = all[i].text,
                                             .n = (uint32_t)all[i].n,
                                             .id = (int32_t)a->tokens };
        a->token[a->tokens++] = all[i];
    }
    if (!s)
        switch (trie_build(&a->trie, key, n, &at)) {
        case TRIE_OK:
            break;
        case TRIE_NOMEM:
            s = no_memory(err);
            break;
        case TRIE_TWICE:
            s = added_twice(key[at].s, key[at].n, err);
            break;
        }
    for (size_t i = 0; i < a->tokens; i++)
        a->token[i].text = NULL;
    free(key);
    if (s)
        added_release(a);
    return s;
}

void added_release(struct added *a)
{
    trie_release(&a->trie);
    free(a->token);
    *a = (struct added) { 0 };
}

/* ---- looking ---- */

/* Start of the character that ends at `end`, which is not 0. */
static size_t before(const char *s, size_t end)
{
    size_t i = end - 1;
    while (i > 0 && end - i < 4 && ((uint8_t)s[i] & 0xc0) == 0x80)
        i--;
    return i + utf8_step(s + i, end - i) == end ? i : end - 1;
}

static bool is_space(const char *s, size_t n)
{
    size_t len;
    uint32_t c = uc_point(s, n, &len);
    return len && uc_class(c) == UC_SPACE;
}

/* \w, as far as it is letters, numbers, marks and the underscore. */
static bool is_word(const char *s, size_t n)
{
    size_t len;
    uint32_t c = uc_point(s, n, &len);
    return len && (c == '_' || uc_class(c) == UC_LETTER || uc_class(c) == UC_NUMBER || uc_joins(c));
}

static bool stands_alone(const char *s, size_t n, size_t from, size_t to)
{
    if (from > 0) {
        size_t at = before(s, from);
        if (is_word(s + at, from - at))
            return false;
    }
    return to == n || !is_word(s + to, n - to);
}

bool added_find(const struct added *a, const char *s, size_t n, size_t from, struct added_hit *out)
{
    size_t len = 0;
    for (size_t i = from; a->tokens && i < n; i += len ? len : 1) {
        int32_t at = 0;
        len = trie_longest(&a->trie, s + i, n - i, &at);
        const struct added_token *t = &a->token[at];
        if (!len || (t->single_word && !stands_alone(s, n, i, i + len)))
            continue;
        *out = (struct added_hit) { .from = i, .to = i + len, .id = t->id };
        while (t->lstrip && out->from > from) {
            size_t space = before(s, out->from);
            if (space < from || !is_space(s + space, out->from - space))
                break;
            out->from = space;
        }
        while (t->rstrip && out->to < n && is_space(s + out->to, n - out->to))
            out->to += utf8_step(s + out->to, n - out->to);
        return true;
    }
    return false;
}
