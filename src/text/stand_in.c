/* stand_in.c: a tokenizer that knows letters and no words, for who has none at hand: tours and
 * tests.
 *
 * CLIP's alphabet of byte symbols and the ids they have there, the two specials at their places, no
 * merges: any prompt becomes tokens that an encoder of CLIP's vocabulary takes. Prompts mean little
 * through it. */
#include "base/file.h"
#include "base/str.h"
#include "text/tokenizer.h"

#define START 49406
#define END 49407

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
