#include "support/tokenizer.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Pieces that are merged in this order; longer ones are made of shorter ones before them. */
static const char *const merges[][2] = {
    { "a", "t</w>" },    { "c", "at</w>" },  { "t", "h" },      { "th", "e</w>" },
    { "o", "f</w>" },    { "o", "t" },       { "p", "h" },      { "ph", "ot" },
    { "phot", "o</w>" }, { "i", "n" },       { "in", "g</w>" }, { "r", "e" },
    { "re", "d</w>" },   { "d", "o" },       { "do", "g</w>" }, { "b", "l" },
    { "bl", "u" },       { "blu", "e</w>" },
};

static size_t utf8(unsigned c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

/* CLIP's order: the bytes that print, then the others as U+0100 and up; all of them again with
 * </w>. */
static size_t add_bytes(json_t *vocab)
{
    size_t id = 0;
    for (int end = 0; end < 2; end++)
        for (int round = 0; round < 2; round++)
            for (unsigned b = 0, next = 0x100; b < 256; b++) {
                char text[8] = { 0 };
                bool prints = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
                size_t n = utf8(prints ? b : next, text);
                next += !prints;
                if (prints != (round == 0))
                    continue;
                if (end)
                    memcpy(text + n, "</w>", 4);
                json_object_set_new(vocab, text, json_integer((json_int_t)id++));
            }
    return id;
}

static bool write_text(const char *folder, const char *name, const char *text, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(text, 1, n, f) == n;
    return f && fclose(f) == 0 && ok;
}

static bool write_json(const char *folder, const char *name, const json_t *v)
{
    struct str text = { 0 };
    js_write(v, 0, &text);
    bool ok = !text.bad && write_text(folder, name, text.p, text.n);
    str_release(&text);
    return ok;
}

size_t tiny_tokenizer_write(const char *folder, bool one_file)
{
    json_t *vocab = json_object(), *list = json_array();
    struct str lines = { 0 };
    size_t id = add_bytes(vocab);
    str_adds(&lines, "#version: 0.2\n");
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s %s", merges[i][0], merges[i][1]);
        json_array_append_new(list, json_string(text));
        str_addf(&lines, "%s\n", text);
        snprintf(text, sizeof text, "%s%s", merges[i][0], merges[i][1]);
        json_object_set_new(vocab, text, json_integer((json_int_t)id++));
    }
    json_object_set_new(vocab, "<|startoftext|>", json_integer((json_int_t)id++));
    json_object_set_new(vocab, "<|endoftext|>", json_integer((json_int_t)id++));
    mkdir(folder, 0777);
    json_t *whole =
        json_pack("{s:s, s:[], s:{s:s, s:s, s:O, s:O}}", "version", "1.0", "added_tokens", "model",
                  "type", "BPE", "end_of_word_suffix", "</w>", "vocab", vocab, "merges", list);
    bool ok = one_file ? write_json(folder, "tokenizer.json", whole)
                       : write_json(folder, "vocab.json", vocab) &&
                             write_text(folder, "merges.txt", lines.p, lines.n);
    json_decref(whole);
    json_decref(vocab);
    json_decref(list);
    str_release(&lines);
    return ok ? id : 0;
}

const char *tokenizer_dir(const char *name)
{
    static char path[1024];
    const char *set = getenv("BERTH_TOKENIZERS_DIR");
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", set ? set : BERTH_SOURCE_DIR "/../shared/tokenizers",
             name);
    return stat(path, &st) == 0 ? path : NULL;
}
