/* stand_in.c: tokenizers that know letters and no words, for people who have none at hand, and for
 * tests. Prompts mean little through them.
 *
 * CLIP's: its alphabet of byte symbols and the ids they have there, the two specials at their
 * places, no merges: any prompt becomes tokens that an encoder of CLIP's vocabulary takes.
 * T5's: its first four pieces and the extra ids at their places, a piece for each letter of a few
 * alphabets, no character map. */
#include "base/file.h"
#include "base/str.h"
#include "base/utf8.h"
#include "text/bpe_impl.h"
#include "text/unigram.h"

#include <stdio.h>

#define START 49406
#define END 49407
#define EXTRA_IDS 100
#define EXTRA_LAST 32099 /* id of <extra_id_0> */

/* A character between quotes, which ends with `ending`; a quote and a backslash are escaped. */
static void add_quoted(struct str *out, const char *utf8, size_t n, const char *ending)
{
    bool special = *utf8 == '"' || *utf8 == '\\';
    str_addf(out, "\"%s%.*s%s\"", special ? "\\" : "", (int)n, utf8, ending);
}

/* Bytes that are their own character have the first ids. */
static void add_symbols(struct str *out, const char *ending, unsigned *id)
{
    for (int printable = 1; printable >= 0; printable--)
        for (unsigned b = 0; b < 256; b++) {
            char utf8[4];
            if (bpe_byte_is_printable(b) != printable)
                continue;
            str_adds(out, *id ? "," : "");
            add_quoted(out, utf8, bpe_byte_symbol(b, utf8), ending);
            str_addf(out, ":%u", (*id)++);
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

/* Pieces of one character each. */
static void add_letters(struct str *out, uint32_t from, uint32_t to)
{
    for (uint32_t c = from; c <= to; c++) {
        char utf8[4];
        str_adds(out, ",[");
        add_quoted(out, utf8, utf8_put(c, utf8), "");
        str_adds(out, ",-8.0]");
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
