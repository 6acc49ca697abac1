/* decode.c: ids to text, whole characters at a time. */
#include "base/utf8.h"
#include "text/tokenizer.h"

#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

int text_byte_piece(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    int a = str_hex(s[3]), b = str_hex(s[4]);
    return a < 0 || b < 0 ? -1 : a * 16 + b;
}

/* Bytes at s that a character could begin with, which is not whole: 0 if the first is none. */
static size_t beginning(const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    size_t want = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4, i = 1;
    uint8_t low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    for (; i < n && i < want && p[i] >= low && p[i] <= high; i++) {
        low = 0x80;
        high = 0xbf;
    }
    return i;
}

/* Whole characters of s, U+FFFD for what is none. Returns the bytes taken: less than n where the
 * last character may become whole, unless this is the end. */
static size_t add_whole(const struct text_decoder *d, const char *s, size_t n, bool end,
                        struct str *out)
{
    size_t i = 0;
    while (i < n) {
        size_t len = utf8_step(s + i, n - i);
        if (len) {
            str_add(out, s + i, len);
            i += len;
            continue;
        }
        len = beginning(s + i, n - i);
        if (len && i + len == n && !end)
            break;
        str_adds(out, REPLACEMENT);
        i += len && !d->is->each_byte ? len : 1;
    }
    return i;
}

static void take(struct text_decoder *d, const char *s, size_t n, bool end, struct str *out)
{
    size_t done = add_whole(d, s, n, end, out);
    d->held_n = n - done;
    memcpy(d->held, s + done, d->held_n);
}

void text_decode(struct text_decoder *d, int32_t id, struct str *out)
{
    struct str bytes = { 0 };
    str_add(&bytes, d->held, d->held_n);
    unsigned how = (d->special ? TEXT_SPECIAL : 0) | (d->begun ? 0 : TEXT_FIRST);
    d->begun |= d->is->bytes(d->tok, id, how, &bytes);
    take(d, str_c(&bytes), bytes.n, false, out);
    out->bad |= bytes.bad;
    str_release(&bytes);
}

void text_decode_end(struct text_decoder *d, struct str *out)
{
    char held[sizeof d->held];
    memcpy(held, d->held, sizeof held);
    take(d, held, d->held_n, true, out);
}
