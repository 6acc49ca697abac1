/* stand_in_lm.c: language models' tokenizers that know bytes, or letters, and no words.
 *
 * Special tokens have the ids that models know them by. Bytes have those of the real vocabularies
 * (Qwen, Llama 3, Mistral), or any (Gemma). */
#include "text/stand_in.h"

#include "base/file.h"
#include "base/str.h"
#include "base/utf8.h"
#include "text/bpe_impl.h"
#include "text/unigram.h"

#include <stdio.h>
#include <string.h>

struct named {
    const char *text;
    int id;
    bool shown; /* in a decoded text */
};

/* ---- pairs of bytes ---- */

/* Every byte in the order of their ids: those that print come first. */
static unsigned next_byte(unsigned i)
{
    unsigned n = 0;
    for (int printable = 1; printable >= 0; printable--)
        for (unsigned b = 0; b < 256; b++)
            if (bpe_byte_is_printable(b) == (bool)printable && n++ == i)
                return b;
    return 0;
}

static void add_tokens(struct str *out, const struct named *t)
{
    str_adds(out, "\"added_tokens\":[");
    for (size_t i = 0; t[i].text; i++)
        str_addf(out,
                 "%s{\"id\":%d,\"content\":\"%s\",\"lstrip\":false,\"rstrip\":false,"
                 "\"single_word\":false,\"normalized\":false,\"special\":%s}",
                 i ? "," : "", t[i].id, t[i].text, t[i].shown ? "false" : "true");
    str_adds(out, "]");
}

static void put_bytes(struct str *out, const struct named *t, const char *normal,
                      const char *numbers)
{
    str_adds(out, "{");
    add_tokens(out, t);
    str_addf(
        out,
        ",\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
        "\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n"
        "\\\\p{L}\\\\p{N}]?\\\\p{L}+|%s| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r"
        "\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\""
        ":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},\"model\":{\"type\":"
        "\"BPE\",\"vocab\":{",
        normal, numbers);
    for (unsigned i = 0; i < 256; i++) {
        char utf8[4];
        size_t n = bpe_byte_symbol(next_byte(i), utf8);
        bool escape = utf8[0] == '"' || utf8[0] == '\\';
        str_addf(out, "%s\"%s%.*s\":%u", i ? "," : "", escape ? "\\" : "", (int)n, utf8, i);
    }
    str_adds(out, "},\"merges\":[]}}\n");
}

static void qwen25(struct str *out)
{
    static const struct named token[] = {
        { "<|endoftext|>", 151643, false },
        { "<|im_start|>", 151644, false },
        { "<|im_end|>", 151645, false },
        { "<|vision_start|>", 151652, false },
        { "<|vision_end|>", 151653, false },
        { "<|vision_pad|>", 151654, false },
        { "<|image_pad|>", 151655, false },
        { "<|video_pad|>", 151656, false },
        { "<tool_call>", 151657, true },
        { "</tool_call>", 151658, true },
        { "<think>", 151667, true },
        { "</think>", 151668, true },
        { NULL, 0, false },
    };
    put_bytes(out, token, "{\"type\":\"NFC\"}", "\\\\p{N}");
}

static void qwen35(struct str *out)
{
    static const struct named token[] = {
        { "<|endoftext|>", 248044, false },
        { "<|im_start|>", 248045, false },
        { "<|im_end|>", 248046, false },
        { "<|vision_start|>", 248053, false },
        { "<|vision_end|>", 248054, false },
        { "<|vision_pad|>", 248055, false },
        { "<|image_pad|>", 248056, false },
        { "<|video_pad|>", 248057, false },
        { "<tool_call>", 248058, true },
        { "</tool_call>", 248059, true },
        { "<think>", 248068, true },
        { "</think>", 248069, true },
        { NULL, 0, false },
    };
    put_bytes(out, token, "{\"type\":\"NFC\"}", "\\\\p{N}");
}

static void llama3(struct str *out)
{
    static const struct named token[] = {
        { "<|begin_of_text|>", 128000, false },
        { "<|end_of_text|>", 128001, false },
        { "<|start_header_id|>", 128006, false },
        { "<|end_header_id|>", 128007, false },
        { "<|eot_id|>", 128009, false },
        { "<image>", 128257, false },
        { "<pad>", 128258, false },
        { NULL, 0, false },
    };
    put_bytes(out, token, "null", "\\\\p{N}{1,3}");
}

static void add_base64(struct str *out, unsigned byte)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    str_addf(out, "%c%c==", digit[byte >> 2], digit[(byte & 3) << 4]);
}

static void tekken(struct str *out)
{
    static const struct named token[] = {
        { "<unk>", 0, false },
        { "<s>", 1, false },
        { "</s>", 2, false },
        { "[INST]", 3, false },
        { "[/INST]", 4, false },
        { "[IMG]", 10, false },
        { "<pad>", 11, false },
        { "[SYSTEM_PROMPT]", 17, false },
        { "[/SYSTEM_PROMPT]", 18, false },
        { NULL, 0, false },
    };
    str_adds(out, "{\"config\":{\"default_vocab_size\":131072,\"default_num_special_tokens\":1000},"
                  "\"vocab\":[");
    for (unsigned b = 0; b < 256; b++) {
        str_addf(out, "%s{\"rank\":%u,\"token_bytes\":\"", b ? "," : "", b);
        add_base64(out, b);
        str_adds(out, "\"}");
    }
    str_adds(out, "],\"special_tokens\":[");
    for (size_t i = 0; token[i].text; i++)
        str_addf(out, "%s{\"rank\":%d,\"token_str\":\"%s\"}", i ? "," : "", token[i].id,
                 token[i].text);
    str_adds(out, "]}\n");
}

/* ---- SentencePiece ---- */

enum { NORMAL = 1, UNKNOWN, CONTROL, OF_USERS, BYTE = 6 }; /* types of pieces */

static void add_piece(struct str *out, const char *text, size_t n, unsigned type)
{
    static const char no_score[] = "\x15\0\0\0\0";
    str_addc(out, 0x0a); /* a piece: its bytes, below 128 */
    str_addc(out, (char)(n + 2 + 5 + 2));
    str_addc(out, 0x0a);
    str_addc(out, (char)n);
    str_add(out, text, n);
    str_add(out, no_score, 5);
    str_addc(out, 0x18);
    str_addc(out, (char)type);
}

/* Gemma 2 and 3 differ in where their turns begin and end. */
static void gemma(struct str *out, unsigned turn)
{
    static const char *const first[] = { "<pad>", "<eos>", "<bos>" };
    static const char trainer[] = "\x12\x05\x18\x02\x98\x02\x01"; /* BPE, bytes */
    static const char normal[] = "\x1a\x04\x18\0\x20\0";          /* no prefix, blanks stay */
    char text[24];
    for (size_t i = 0; i < 3; i++)
        add_piece(out, first[i], strlen(first[i]), CONTROL);
    add_piece(out, "<unk>", 5, UNKNOWN);
    for (unsigned i = 4; i < turn; i++)
        add_piece(out, text, (size_t)snprintf(text, sizeof text, "<unused%u>", i), OF_USERS);
    add_piece(out, "<start_of_turn>", 15, OF_USERS);
    add_piece(out, "<end_of_turn>", 13, OF_USERS);
    for (unsigned b = 0; b < 256; b++)
        add_piece(out, text, (size_t)snprintf(text, sizeof text, "<0x%02X>", b), BYTE);
    add_piece(out, "\xe2\x96\x81", 3, NORMAL);
    for (char c = '!'; c <= '~'; c++)
        add_piece(out, &c, 1, NORMAL);
    str_add(out, trainer, sizeof trainer - 1);
    str_add(out, normal, sizeof normal - 1);
}

static void gemma2(struct str *out)
{
    gemma(out, 106);
}

static void gemma3(struct str *out)
{
    gemma(out, 105);
}

static void gemma4(struct str *out)
{
    static const struct named token[] = {
        { "<pad>", 0, false },
        { "<eos>", 1, false },
        { "<bos>", 2, false },
        { "<unk>", 3, false },
        { "<|think|>", 98, false },
        { "<|channel>", 100, false },
        { "<channel|>", 101, false },
        { "<|turn>", 105, false },
        { "<turn|>", 106, false },
        { "<|image|>", 258880, false },
        { "<|audio|>", 258881, false },
        { "<|video|>", 258884, false },
        { NULL, 0, false },
    };
    str_adds(out, "{");
    add_tokens(out, token);
    str_adds(out,
             ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
             "\"\\u2581\"},\"pre_tokenizer\":null,\"model\":{\"type\":\"BPE\",\"unk_token\":"
             "\"<unk>\",\"byte_fallback\":true,\"fuse_unk\":true,\"merges\":[],\"vocab\":{"
             "\"<unk>\":3,\"\\u2581\":236743");
    for (unsigned b = 0; b < 256; b++)
        str_addf(out, ",\"<0x%02X>\":%u", b, 238 + b);
    for (char c = '!'; c <= '~'; c++)
        str_addf(out, ",\"%s%c\":%d", c == '"' || c == '\\' ? "\\" : "", c, 236744 + c);
    str_adds(out, "}}}\n");
}

/* ---- public ---- */

static const struct {
    const char *folder, *file;
    void (*put)(struct str *out);
} kind[] = {
    { "qwen25", "tokenizer.json", qwen25 },  { "qwen35", "tokenizer.json", qwen35 },
    { "llama3", "tokenizer.json", llama3 },  { "tekken", "tekken.json", tekken },
    { "gemma2", "tokenizer.model", gemma2 }, { "gemma3", "tokenizer.model", gemma3 },
    { "gemma4", "tokenizer.json", gemma4 },
};

static berth_status write_one(const char *dir, size_t which, berth_err *err)
{
    struct str path = { 0 }, text = { 0 };
    str_addf(&path, "%s/%s", dir, kind[which].folder);
    kind[which].put(&text);
    berth_status s =
        path.bad || text.bad ? err_set(err, BERTH_ENOMEM, "writing a tokenizer") : BERTH_OK;
    if (!s)
        s = file_make_dirs(path.p, err);
    str_addf(&path, "/%s", kind[which].file);
    if (!s)
        s = path.bad ? err_set(err, BERTH_ENOMEM, "writing a tokenizer")
                     : file_write_all(path.p, text.p, text.n, err);
    str_release(&path);
    str_release(&text);
    return s;
}

/* umT5's is written as T5's: its first pieces have the same ids. */
static berth_status write_umt5(const char *dir, berth_err *err)
{
    struct str path = { 0 };
    str_addf(&path, "%s/umt5", dir);
    berth_status s =
        path.bad ? err_set(err, BERTH_ENOMEM, "writing a tokenizer") : file_make_dirs(path.p, err);
    if (!s)
        s = unigram_write_stand_in(path.p, err);
    str_release(&path);
    return s;
}

berth_status stand_ins_write(const char *dir, berth_err *err)
{
    if (bpe_write_stand_in(dir, err) || unigram_write_stand_in(dir, err) || write_umt5(dir, err))
        return err->code;
    for (size_t i = 0; i < ARRAY_LEN(kind); i++)
        if (write_one(dir, i, err))
            return err->code;
    return BERTH_OK;
}
