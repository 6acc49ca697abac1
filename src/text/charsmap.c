/* charsmap.c: lookups in a double array that came with a file. */
#include "text/charsmap.h"

#include "base/rd.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 64   /* bytes; nmt_nfkc's longest has 12 */
#define TEXT_MAX 512 /* bytes; U+FDFA becomes 33 */

berth_status charsmap_init(struct charsmap *m, const void *bytes, size_t n, berth_err *err)
{
    struct rd r = rd_init(bytes, n);
    *m = (struct charsmap) { 0 };
    if (n == 0)
        return BERTH_OK;
    if (n > CHARSMAP_BYTES_MAX)
        return err_set(err, BERTH_ELIMIT, "a character map of %zu bytes, more than %u", n,
                       CHARSMAP_BYTES_MAX);
    uint32_t size = rd_u32le(&r);
    if (r.bad || size > rd_left(&r) || size == 0 || size % 4)
        return err_set(err, BERTH_EFORMAT,
                       "a character map of %zu bytes says its trie has %" PRIu32, n, size);
    m->units = size / 4;
    m->unit = calloc(m->units, sizeof *m->unit);
    m->text_n = rd_left(&r) - size;
    m->text = calloc(m->text_n + 1, 1);
    if (!m->unit || !m->text) {
        charsmap_release(m);
        return err_set(err, BERTH_ENOMEM, "a character map of %zu bytes", n);
    }
    for (size_t i = 0; i < m->units; i++)
        m->unit[i] = rd_u32le(&r);
    if (m->text_n)
        memcpy(m->text, r.p, m->text_n);
    return BERTH_OK;
}

void charsmap_release(struct charsmap *m)
{
    free(m->unit);
    free(m->text);
    *m = (struct charsmap) { 0 };
}

static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* The text that the leaf at `at` stands for. */
static bool take_leaf(const struct charsmap *m, uint32_t at, size_t len, struct charsmap_hit *out)
{
    if (at >= m->units)
        return false;
    size_t from = m->unit[at] & 0x7fffffffu;
    if (from > m->text_n)
        return false;
    const char *end = memchr(m->text + from, 0, m->text_n + 1 - from);
    *out = (struct charsmap_hit) { .len = len, .to = m->text + from };
    out->n = (size_t)(end - out->to);
    return out->n <= TEXT_MAX;
}

bool charsmap_find(const struct charsmap *m, const char *s, size_t n, bool longest,
                   struct charsmap_hit *out)
{
    bool found = false;
    if (m->units == 0)
        return false;
    uint32_t at = offset_of(m->unit[0]);
    for (size_t i = 0; i < n && i < KEY_MAX && s[i]; i++) {
        uint8_t byte = (uint8_t)s[i];
        at ^= byte;
        if (at >= m->units || (m->unit[at] & (1u << 31 | 0xff)) != byte)
            break;
        bool leaf = m->unit[at] >> 8 & 1;
        at ^= offset_of(m->unit[at]);
        struct charsmap_hit hit;
        if (!leaf || !take_leaf(m, at, i + 1, &hit))
            continue;
        *out = hit;
        found = true;
        if (!longest)
            break;
    }
    return found;
}
