/* lmbpe_files: small files of language models' tokenizers, made here: all bytes, a few merges. */
#ifndef UNIT_TEXT_LMBPE_FILES_H
#define UNIT_TEXT_LMBPE_FILES_H

#include "support/test.h"
#include "unigram_files.h"

#include "base/utf8.h"
#include "text/bpe_impl.h"
#include "text/lmbpe_impl.h"

/* Ids: 0 to 255 are the bytes, in order; then these. Merges are in this order, too. */
static const char *const merged[][2] = {
    { "a", "b" },       /* 256 */
    { "ab", "c" },      /* 257 */
    { "b", "c" },       /* 258 */
    { " ", "a" },       /* 259 */
    { " a", "b" },      /* 260 */
    { "1", "2" },       /* 261 */
    { "\xc3", "\xa9" }, /* 262: e with an acute */
    { "\n", "\n" },     /* 263 */
};
#define MERGED(i) (256 + (i))
#define IM_START 300 /* ids of added tokens */
#define IM_END 301
#define THINK 302
#define PAD 303

static const struct lmbpe_kind any_kind = {
    .name = "any",
    .split = &split_qwen2,
    .nfc = true,
    .must = (const char *const[]) { "<|start|>", NULL },
    .start = "<|start|>",
    .pad = "<pad>",
    .gguf = (const char *const[]) { "qwen2", NULL },
};

/* Bytes as characters that stand for them, as JSON text. */
static inline void put_symbols(struct str *out, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        size_t len = bpe_byte_symbol((unsigned char)bytes[i], utf8);
        if (utf8[0] == '"' || utf8[0] == '\\')
            str_addc(out, '\\');
        str_add(out, utf8, len);
    }
}

static inline void put_vocab(struct str *out)
{
    str_addc(out, '{');
    for (unsigned b = 0; b < 256; b++) {
        str_adds(out, b ? ",\"" : "\"");
        put_symbols(out, (const char[]) { (char)b }, 1);
        str_addf(out, "\":%u", b);
    }
    for (size_t i = 0; i < ARRAY_LEN(merged); i++) {
        str_adds(out, ",\"");
        put_symbols(out, merged[i][0], strlen(merged[i][0]));
        put_symbols(out, merged[i][1], strlen(merged[i][1]));
        str_addf(out, "\":%zu", MERGED(i));
    }
    str_addc(out, '}');
}

/* In front of each, between, behind. */
static inline void put_merges(struct str *out, const char *open, const char *gap, const char *end)
{
    for (size_t i = 0; i < ARRAY_LEN(merged); i++) {
        str_adds(out, i && *open == '"' ? "," : "");
        str_adds(out, open);
        put_symbols(out, merged[i][0], strlen(merged[i][0]));
        str_adds(out, gap);
        put_symbols(out, merged[i][1], strlen(merged[i][1]));
        str_adds(out, end);
    }
}

#define TOKEN(id, text, special)                                                                   \
    "{\"id\":" #id ",\"content\":\"" text                                                          \
    "\",\"lstrip\":false,\"normalized\":false,\"special\":" #special "}"
#define TOKENS_JSON                                                                                \
    "[" TOKEN(300, "<|start|>", true) "," TOKEN(301, "<|end|>", true) "," TOKEN(                   \
        302, "<think>", false) "," TOKEN(303, "<pad>", true) "]"
#define QWEN_REGEX                                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "              \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN_WORDS                                                                                 \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"        \
    "\"" QWEN_REGEX "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","     \
    "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}"

/* pairs: merges as lists. */
static inline void put_tokenizer(struct str *out, const char *normal, const char *words, bool pairs)
{
    str_addf(out, "{\"added_tokens\":" TOKENS_JSON ",\"normalizer\":%s,\"pre_tokenizer\":%s,",
             normal, words);
    str_adds(out, "\"model\":{\"type\":\"BPE\",\"merges\":[");
    put_merges(out, pairs ? "[\"" : "\"", pairs ? "\",\"" : " ", pairs ? "\"]," : "\"");
    if (pairs)
        out->p[--out->n] = 0; /* the last comma */
    str_adds(out, "],\"vocab\":");
    put_vocab(out);
    str_adds(out, "}}");
}

static inline void add_base64_of(struct str *out, const char *s, size_t n)
{
    struct str in = { 0 };
    str_add(&in, s, n);
    add_base64(out, &in);
    str_release(&in);
}

#define TEKKEN_SPECIAL                                                                             \
    "\"special_tokens\":[{\"rank\":0,\"token_str\":\"<unk>\"},{\"rank\":1,\"token_str\":"          \
    "\"<|start|>\",\"is_control\":true},{\"rank\":2,\"token_bytes\":\"PHBhZD4=\"},{\"rank\":3,"    \
    "\"token_str\":\"abc\"}]"
#define TEKKEN_CONFIG                                                                              \
    "\"config\":{\"pattern\":\"x\",\"default_vocab_size\":268,\"default_num_special_tokens\":4}"

/* Ids: 4 special tokens, bytes behind them, then `merged`. */
static inline void put_tekken_vocab(struct str *out)
{
    str_adds(out, "\"vocab\":[");
    for (unsigned i = 0; i < 256 + ARRAY_LEN(merged) + 1; i++) {
        const char byte = (char)i;
        struct str text = { 0 };
        if (i < 256) {
            str_add(&text, &byte, 1);
        } else if (i < 256 + ARRAY_LEN(merged)) {
            str_adds(&text, merged[i - 256][0]);
            str_adds(&text, merged[i - 256][1]);
        } else {
            str_adds(&text, "beyond");
        }
        str_addf(out, "%s{\"rank\":%u,\"token_bytes\":\"", i ? "," : "", i);
        add_base64_of(out, text.p, text.n);
        str_adds(out, "\",\"token_str\":null}");
        str_release(&text);
    }
    str_adds(out, "]");
}

/* A GGUF file with these as its metadata. */
static inline void put_gguf(struct str *g, const char *model, const char *pre, bool merges)
{
    static const char *const more[] = { "<|start|>", "<|end|>", "<think>", "<pad>", "[PAD]" };
    static const uint32_t type[] = { 3, 3, 4, 3, 5 };
    size_t n = 256 + ARRAY_LEN(merged), all = IM_START + ARRAY_LEN(more);
    str_adds(g, "GGUF");
    put_u32(g, 3);
    put_u64(g, 0);
    put_u64(g, 4 + merges);
    put_key(g, "tokenizer.ggml.model", 8);
    put_text(g, model);
    put_key(g, "tokenizer.ggml.pre", 8);
    put_text(g, pre);
    put_array(g, "tokenizer.ggml.tokens", 8, all);
    for (size_t i = 0; i < all; i++) {
        struct str text = { 0 };
        const char byte = (char)i;
        if (i < 256) {
            put_symbols(&text, &byte, 1);
            if (text.p[0] == '\\') /* no JSON here */
                memmove(text.p, text.p + 1, text.n--);
        } else if (i < n) {
            put_symbols(&text, merged[i - 256][0], strlen(merged[i - 256][0]));
            put_symbols(&text, merged[i - 256][1], strlen(merged[i - 256][1]));
        } else if (i < IM_START) {
            str_addf(&text, "unused%zu", i);
        } else {
            str_adds(&text, more[i - IM_START]);
        }
        put_text(g, text.p);
        str_release(&text);
    }
    put_array(g, "tokenizer.ggml.token_type", 5, all);
    for (size_t i = 0; i < all; i++)
        put_u32(g, i < n ? 1 : i < IM_START ? 5 : type[i - IM_START]);
    if (merges) {
        put_array(g, "tokenizer.ggml.merges", 8, ARRAY_LEN(merged));
        for (size_t i = 0; i < ARRAY_LEN(merged); i++) {
            struct str text = { 0 };
            put_symbols(&text, merged[i][0], strlen(merged[i][0]));
            str_addc(&text, ' ');
            put_symbols(&text, merged[i][1], strlen(merged[i][1]));
            put_text(g, text.p);
            str_release(&text);
        }
    }
    str_pad(g, 0, (g->n + 31) / 32 * 32);
}

/* A safetensors file with one tensor of bytes. */
static inline void put_safetensors(struct str *out, const char *name, const char *bytes, size_t n)
{
    struct str head = { 0 };
    str_addf(&head, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", name, n,
             n);
    put_u64(out, head.n);
    str_add(out, head.p, head.n);
    str_add(out, bytes, n);
    str_release(&head);
}

#endif
