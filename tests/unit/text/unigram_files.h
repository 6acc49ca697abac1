/* unigram_files: small files of T5's kind of tokenizer, made here: character maps, ModelProtos,
 * GGUF metadata. */
#ifndef UNIT_TEXT_UNIGRAM_FILES_H
#define UNIT_TEXT_UNIGRAM_FILES_H

#include "support/test.h"

#include "base/str.h"
#include "text/unigram.h"

#include <stdlib.h>

/* ---- character maps: a double array in which every node has 256 units of its own ---- */

struct rule {
    const char *from, *to;
};
#define MAP_NODES 64

static inline void put_u32(struct str *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        str_addc(out, (char)(v >> (8 * i) & 0xff));
}

static inline void put_u64(struct str *out, uint64_t v)
{
    put_u32(out, (uint32_t)v);
    put_u32(out, (uint32_t)(v >> 32));
}

/* Unit of the child at `at` whose own units begin at block * 256. */
static inline uint32_t map_unit(uint32_t at, uint32_t block, uint8_t label)
{
    return (at ^ block * 256) << 10 | label;
}

static inline void make_charsmap(const struct rule *rule, size_t n, struct str *out)
{
    static uint32_t unit[MAP_NODES * 256];
    uint32_t block_of[MAP_NODES * 256] = { 0 }, blocks = 2;
    struct str text = { 0 };
    memset(unit, 0, sizeof unit);
    unit[0] = map_unit(0, 1, 0);
    for (size_t i = 0; i < n; i++) {
        uint32_t block = 1, at = 0;
        for (const char *s = rule[i].from; *s; s++) {
            at = block * 256 ^ (uint8_t)*s;
            if (!block_of[at]) {
                assert_true(blocks < MAP_NODES);
                block_of[at] = blocks++;
                unit[at] = map_unit(at, block_of[at], (uint8_t)*s);
            }
            block = block_of[at];
        }
        unit[at] |= 1u << 8;
        unit[block * 256] = 1u << 31 | (uint32_t)text.n;
        str_add(&text, rule[i].to, strlen(rule[i].to) + 1);
    }
    put_u32(out, blocks * 256 * 4);
    for (uint32_t i = 0; i < blocks * 256; i++)
        put_u32(out, unit[i]);
    str_add(out, text.p, text.n);
    str_release(&text);
    assert_false(out->bad);
}

static inline void add_base64(struct str *out, const struct str *in)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < in->n; i += 3) {
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < in->n ? (uint8_t)in->p[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            str_addc(out, i + k > in->n ? '=' : digit[v >> (18 - 6 * k) & 63]);
    }
}

/* ---- ModelProto ---- */

struct proto_piece {
    const char *text;
    float score;
    unsigned type; /* 0: not written, a normal one */
};

static inline void put_varint(struct str *out, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        str_addc(out, (char)((v & 0x7f) | 0x80));
    str_addc(out, (char)v);
}

static inline void put_bytes(struct str *out, unsigned field, const char *p, size_t n)
{
    put_varint(out, field << 3 | 2);
    put_varint(out, n);
    str_add(out, p, n);
}

static inline void put_number(struct str *out, unsigned field, uint64_t v)
{
    put_varint(out, field << 3);
    put_varint(out, v);
}

static inline void put_float(struct str *out, float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    put_u32(out, u);
}

static inline void put_pieces(struct str *out, const struct proto_piece *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct str one = { 0 };
        put_bytes(&one, 1, p[i].text, strlen(p[i].text));
        put_varint(&one, 2 << 3 | 5);
        put_float(&one, p[i].score);
        if (p[i].type)
            put_number(&one, 3, p[i].type);
        put_bytes(out, 1, one.p, one.n);
        str_release(&one);
    }
}

/* ---- GGUF metadata ---- */

static inline void put_text(struct str *out, const char *s)
{
    put_u64(out, strlen(s));
    str_adds(out, s);
}

static inline void put_key(struct str *out, const char *key, uint32_t type)
{
    put_text(out, key);
    put_u32(out, type);
}

static inline void put_array(struct str *out, const char *key, uint32_t type, uint64_t n)
{
    put_key(out, key, 9);
    put_u32(out, type);
    put_u64(out, n);
}

#endif
