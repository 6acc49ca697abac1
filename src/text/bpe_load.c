/* bpe_load.c: CLIP's tables out of vocab.json with merges.txt, or of tokenizer.json; from files of
 * their own, or out of a model's metadata. */
#include "base/str.h"
#include "base/utf8.h"
#include "format/weights.h"
#include "text/bpe_impl.h"
#include "text/bpe_source.h"
#include "text/clean.h"

#include <stdlib.h>
#include <string.h>

void bpe_close(struct bpe *t)
{
    if (!t)
        return;
    pairs_release(&t->pairs);
    free(t);
}

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "a tokenizer");
}

/* ---- tables ---- */

bool bpe_byte_is_printable(unsigned byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

size_t bpe_byte_symbol(unsigned byte, char out[4])
{
    uint32_t next = 0x100;
    for (unsigned b = 0; b < byte; b++)
        next += !bpe_byte_is_printable(b);
    return utf8_put(bpe_byte_is_printable(byte) ? byte : next, out);
}

static berth_status set_symbols(struct bpe *t, const struct bpe_source *b, berth_err *err)
{
    size_t ends = 0;
    for (unsigned i = 0; i < 256; i++) {
        char text[8];
        size_t n = bpe_byte_symbol(i, text);
        t->byte[i] = bpe_id_of(b, text, n);
        memcpy(text + n, "</w>", 4);
        t->byte_end[i] = bpe_id_of(b, text, n + 4);
        ends += t->byte_end[i] >= 0;
    }
    t->vocab = bpe_ids(b);
    t->start = bpe_id_of(b, WORD_START_TEXT, strlen(WORD_START_TEXT));
    t->end = bpe_id_of(b, WORD_END_TEXT, strlen(WORD_END_TEXT));
    if (t->start < 0 || t->end < 0)
        return err_set(err, BERTH_EFORMAT, "no %s in the vocabulary: this is no tokenizer of CLIP",
                       t->start < 0 ? WORD_START_TEXT : WORD_END_TEXT);
    if (ends == 0)
        return err_set(err, BERTH_EFORMAT,
                       "no byte with </w> in the vocabulary: this is no tokenizer of CLIP");
    return BERTH_OK;
}

/* A tokenizer.json says what it is; vocab.json does not. */
static berth_status check_kind(const struct bpe_source *b, berth_err *err)
{
    if (b->type && strcmp(b->type, "BPE") != 0)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "type is not \"BPE\": this is no tokenizer of CLIP");
    if (b->suffix && strcmp(b->suffix, "</w>") != 0)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "end_of_word_suffix is not \"</w>\": this is no tokenizer of CLIP");
    return BERTH_OK;
}

/* ---- public ---- */

static berth_status read_folder(struct bpe_source *b, const char *path, berth_err *err)
{
    berth_status s = bpe_read_in(b, path, "vocab.json", bpe_read_vocab, err);
    if (!s)
        return bpe_read_in(b, path, "merges.txt", bpe_read_merges, err);
    if (s == BERTH_ENOTFOUND) {
        s = bpe_read_in(b, path, "tokenizer.json", bpe_read_tokenizer, err);
        if (s == BERTH_ENOTFOUND)
            s = err_set(err, BERTH_ENOTFOUND,
                        "'%s' has neither vocab.json and merges.txt nor tokenizer.json", path);
    }
    return s;
}

/* Makes the tables when s is BERTH_OK; releases what was read. */
static berth_status finish(struct bpe_source *b, berth_status s, struct bpe **out, berth_err *err)
{
    struct bpe *t = NULL;
    if (!s)
        s = check_kind(b, err);
    if (!s && !(t = calloc(1, sizeof *t)))
        s = no_memory(err);
    if (!s)
        s = set_symbols(t, b, err);
    if (!s) {
        t->pairs = b->pairs;
        b->pairs = (struct pairs) { 0 };
    }
    bpe_source_release(b);
    if (s)
        bpe_close(t);
    *out = s ? NULL : t;
    return s;
}

berth_status bpe_from_text(const char *vocab, size_t n, const char *merges, size_t m,
                           struct bpe **out, berth_err *err)
{
    struct bpe_source b = { 0 };
    berth_status s =
        merges ? bpe_read_vocab(&b, vocab, n, err) : bpe_read_tokenizer(&b, vocab, n, err);
    if (!s && merges)
        s = bpe_read_merges(&b, merges, m, err);
    return finish(&b, s, out, err);
}

berth_status bpe_open(const char *path, struct bpe **out, berth_err *err)
{
    struct bpe_source b = { 0 };
    berth_status s = bpe_read_file(&b, path, bpe_read_tokenizer, err);
    if (s == BERTH_EINVAL)
        s = read_folder(&b, path, err);
    s = finish(&b, s, out, err);
    return s ? err_add(err, "tokenizer '%s'", path) : BERTH_OK;
}

berth_status bpe_from_weights(const struct weights *w, struct bpe **out, berth_err *err)
{
    const struct weights_meta *m = weights_meta_find(w, BPE_METADATA);
    berth_status s;
    *out = NULL;
    if (!m)
        return err_set(err, BERTH_ENOTFOUND, "'%s' has no tokenizer in it", weights_path(w));
    if (m->kind != META_STRING)
        s = err_set(err, BERTH_EFORMAT, "it is no text");
    else if (m->str_len > BPE_FILE_MAX)
        s = err_set(err, BERTH_ELIMIT, "%zu bytes are more than %u", m->str_len, BPE_FILE_MAX);
    else
        s = bpe_from_text(m->str, m->str_len, NULL, 0, out, err);
    return s ? err_add(err, "tokenizer (%s) in '%s'", BPE_METADATA, weights_path(w)) : BERTH_OK;
}
