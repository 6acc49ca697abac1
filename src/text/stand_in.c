/* stand_in.c: tokenizers that know letters and no words, for who has none at hand: tours and
 * tests. Prompts mean little through them.
 *
 * CLIP's: its alphabet of byte symbols and the ids they have there, the two specials at their
 * places, no merges: any prompt becomes tokens that an encoder of CLIP's vocabulary takes.
 * T5's: its first four pieces and the extra ids at their places, a piece for each letter of a few
 * alphabets, no character map. */
#include "base/file.h"
#include "base/str.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/unicode.h"
#include "text/unigram.h"

#include <stdio.h>

#define START 49406
#define END 49407
#define EXTRA_IDS 100
#define EXTRA_LAST 32099 /* id of <extra_id_0> */

/* Printable bytes are their own character, the others come behind U+00FF in order. */
static uint32_t symbol(unsigned byte)
{
    uint32_t next = 256;
    for (unsigned b = 0; b <= byte; b++) {
        bool own = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (b == byte)
            return own ? b : next;
        next += !own;
    }
    return 0;
}

static void add_symbols(struct str *out, const char *ending, unsigned *id)
{
    for (int own = 1; own >= 0; own--) /* those that are their own character have the first ids */
        for (unsigned b = 0; b < 256; b++) {
            uint32_t c = symbol(b);
            if ((c < 256) != own)
                continue;
            str_addf(out, "%s\"%s", *id ? "," : "", c == '"' || c == '\\' ? "\\" : "");
            if (c < 0x80)
                str_addc(out, (char)c);
            else /* two bytes are enough below U+0800 */
                str_addf(out, "%c%c", (char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)));
            str_addf(out, "%s\":%u", ending, *id);
            ++*id;
        }
}

static berth_status write_text(const char *dir, const char *name, const struct str *text,
                               berth_err *err)
{
    struct str path = { 0 };
    str_addf(&path, "%s/%s", dir, name);
    berth_status s = path.bad || text->bad ? err_set(err, BERTH_ENOMEM, "writing '%s'", name)
                                           : file_write_all(str_c(&path), text->p, text->n, err);
    str_release(&path);
    return s;
}

berth_status bpe_write_stand_in(const char *dir, berth_err *err)
{
    struct str vocab = { 0 }, merges = { 0 };
    unsigned id = 0;
    str_adds(&vocab, "{");
    add_symbols(&vocab, "", &id);
    add_symbols(&vocab, "</w>", &id);
    str_addf(&vocab, ",\"<|startoftext|>\":%d,\"<|endoftext|>\":%d}\n", START, END);
    str_adds(&merges, "#version: 0.2\n");
    berth_status s = write_text(dir, "vocab.json", &vocab, err);
    if (!s)
        s = write_text(dir, "merges.txt", &merges, err);
    str_release(&vocab);
    str_release(&merges);
    return s;
}

/* Pieces of one character each; a quote and a backslash are escaped. */
static void add_letters(struct str *out, uint32_t from, uint32_t to)
{
    for (uint32_t c = from; c <= to; c++) {
        char utf8[4];
        size_t n = utf8_put(c, utf8);
        str_addf(out, ",[\"%s%.*s\",-8.0]", c == '"' || c == '\\' ? "\\" : "", (int)n, utf8);
    }
}

static void add_token(struct str *out, int id, const char *text)
{
    str_addf(out, "%s{\"id\":%d,\"content\":\"%s\",\"lstrip\":false,\"rstrip\":false}",
             id ? "," : "", id, text);
}

berth_status unigram_write_stand_in(const char *dir, berth_err *err)
{
    static const char *const first[] = { "<pad>", "</s>", "<unk>" };
    struct str text = { 0 };
    str_adds(&text, "{\"added_tokens\":[");
    for (int i = 0; i < 3; i++)
        add_token(&text, i, first[i]);
    for (int i = EXTRA_IDS - 1; i >= 0; i--) {
        char name[24];
        snprintf(name, sizeof name, "<extra_id_%d>", i);
        add_token(&text, EXTRA_LAST - i, name);
    }
    str_adds(&text, "],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 3; i++) /* what T5's character map does to them */
        str_addf(&text,
                 "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\\%c\"},\"content\":\" \"},",
                 "ntr"[i]);
    str_adds(&text, "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},"
                    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}]},"
                    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\","
                    "\"prepend_scheme\":\"first\"},"
                    "\"model\":{\"type\":\"Unigram\",\"unk_id\":2,\"vocab\":[[\"<pad>\",0.0],"
                    "[\"</s>\",0.0],[\"<unk>\",0.0],[\"\\u2581\",-2.0]");
    add_letters(&text, '!', '~');
    add_letters(&text, 0xa1, 0x17f);    /* Latin */
    add_letters(&text, 0x391, 0x3c9);   /* Greek */
    add_letters(&text, 0x400, 0x45f);   /* Cyrillic */
    add_letters(&text, 0x3041, 0x30fe); /* kana */
    str_adds(&text, "]}}\n");
    berth_status s = write_text(dir, "tokenizer.json", &text, err);
    str_release(&text);
    return s;
}
