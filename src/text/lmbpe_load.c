/* lmbpe_load.c: files of language models' tokenizers, turned into tables. */
#include "text/lmbpe_impl.h"

#include "text/bpe_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "a tokenizer");
}

struct lmbpe *lmbpe_new(const struct lmbpe_kind *kind)
{
    struct lmbpe *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->kind = kind;
    t->unknown = t->start = t->pad = -1;
    for (unsigned b = 0, high = 0; b < 256; b++)
        if (!bpe_byte_is_printable(b))
            t->high[high++] = (uint8_t)b;
    return t;
}

void lmbpe_close(void *tok)
{
    struct lmbpe *t = tok;
    if (!t)
        return;
    vocab_release(&t->vocab);
    vocab_release(&t->extra);
    pairs_release(&t->pairs);
    added_release(&t->raw);
    added_release(&t->normal);
    arena_release(&t->mem);
    free(t->special);
    free(t);
}

/* ---- tables ---- */

static int32_t byte_id(const struct lmbpe *t, unsigned byte)
{
    char text[8];
    size_t n;
    if (t->symbols == SYMBOL_BYTES) {
        n = bpe_byte_symbol(byte, text);
    } else if (t->symbols == SYMBOL_RAW) {
        text[0] = (char)byte;
        n = 1;
    } else {
        n = (size_t)snprintf(text, sizeof text, "<0x%02X>", byte);
    }
    return vocab_find(&t->vocab, text, n);
}

static berth_status set_bytes(struct lmbpe *t, berth_err *err)
{
    bool all = true;
    for (unsigned b = 0; b < 256; b++) {
        t->byte[b] = byte_id(t, b);
        all = all && t->byte[b] >= 0;
    }
    if (t->symbols == SYMBOL_CHARACTERS) {
        t->byte_fallback = t->byte_fallback && all;
        if (!t->byte_fallback && t->unknown < 0)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "neither all bytes nor a token for what is unknown");
    } else if (!all) {
        return err_set(err, BERTH_EFORMAT, "not every byte is in the vocabulary: no %s tokenizer",
                       t->kind->name);
    }
    return BERTH_OK;
}

/* Those that are looked for in normal text are made normal too. */
static berth_status make_normal(const struct lmbpe *t, struct bpe_source *b, berth_err *err)
{
    struct added_token *a = b->added.p;
    for (size_t i = 0; i < b->added.n; i++) {
        struct str text = { 0 };
        if (!a[i].normalized)
            continue;
        berth_status s = lmbpe_normalize(t, a[i].text, a[i].n, &text, err);
        if (!s && text.n == 0)
            s = err_set(err, BERTH_EFORMAT, "an added token that is nothing in normal text");
        if (!s && text.n > BPE_TEXT_MAX)
            s = err_set(err, BERTH_ELIMIT, "an added token of %zu bytes", text.n);
        if (!s && !(a[i].text = arena_strndup(&b->mem, str_c(&text), text.n)))
            s = no_memory(err);
        a[i].n = text.n;
        str_release(&text);
        if (s)
            return s;
    }
    return BERTH_OK;
}

static berth_status set_added(struct lmbpe *t, struct bpe_source *b, berth_err *err)
{
    const struct added_token *a = b->added.p;
    t->ids = bpe_ids(b);
    t->special = calloc(t->ids + 1, 1);
    if (!t->special)
        return no_memory(err);
    for (size_t i = 0; i < b->added.n; i++) {
        switch (vocab_add(&t->extra, a[i].text, a[i].n, (uint64_t)a[i].id)) {
        case VOCAB_OK:
            break;
        case VOCAB_NOMEM:
            return no_memory(err);
        case VOCAB_FULL:
            return err_set(err, BERTH_ELIMIT, "too many added tokens");
        case VOCAB_TEXT_TWICE:
        case VOCAB_ID_TWICE:
            return added_twice(a[i].text, a[i].n, err);
        }
        t->special[a[i].id] = a[i].special;
    }
    if (make_normal(t, b, err) || added_init(&t->raw, &b->added, false, err) ||
        added_init(&t->normal, &b->added, true, err))
        return err->code;
    return BERTH_OK;
}

static berth_status check_kind(const struct lmbpe *t, berth_err *err)
{
    for (const char *const *must = t->kind->must; *must; must++)
        if (lmbpe_find(t, *must) < 0)
            return err_set(err, BERTH_EFORMAT, "no %s among its tokens: no %s tokenizer", *must,
                           t->kind->name);
    if (t->kind->pad_id && lmbpe_find(t, t->kind->pad) != t->kind->pad_id)
        return err_set(err, BERTH_EFORMAT, "%s is token %d: in a %s tokenizer it is %d",
                       t->kind->pad, lmbpe_find(t, t->kind->pad), t->kind->name, t->kind->pad_id);
    return BERTH_OK;
}

berth_status lmbpe_take(struct lmbpe *t, struct bpe_source *b, berth_err *err)
{
    t->vocab = b->vocab;
    t->pairs = b->pairs;
    b->pairs = (struct pairs) { 0 };
    berth_status s = set_added(t, b, err); /* asks for the highest id of the source */
    b->vocab = (struct vocab) { 0 };
    if (!s && b->unknown)
        t->unknown = lmbpe_find(t, b->unknown);
    t->byte_fallback = b->byte_fallback;
    t->fuse_unknown = b->fuse_unknown;
    if (!s)
        s = set_bytes(t, err);
    if (t->kind->start && t->start < 0)
        t->start = lmbpe_find(t, t->kind->start);
    if (t->pad < 0)
        t->pad = lmbpe_find(t, t->kind->pad);
    return s ? s : check_kind(t, err);
}

/* ---- tokenizer.json ---- */

static berth_status refuse(const struct lmbpe *t, const char *what, const char *which,
                           berth_err *err)
{
    return err_set(err, BERTH_EUNSUPPORTED, "a %s '%.100s', which no %s tokenizer has", what, which,
                   t->kind->name);
}

static bool is(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static const char *keep(struct lmbpe *t, const char *text)
{
    return text ? arena_strndup(&t->mem, text, strlen(text)) : NULL;
}

static berth_status set_normal(struct lmbpe *t, const struct bpe_source *b, berth_err *err)
{
    for (size_t i = 0; i < b->normals; i++) {
        const struct bpe_step *p = &b->normal[i];
        if (is(p->type, "NFC") && t->steps == 0) {
            t->nfc = true;
            continue;
        }
        bool replaces = is(p->type, "Replace") && p->pattern && *p->pattern && !p->regex && p->to;
        bool prepends = is(p->type, "Prepend") && p->to && !p->pattern;
        if (!replaces && !prepends)
            return refuse(t, "normalizer", p->type, err);
        struct bpe_step *to = &t->step[t->steps++];
        *to = (struct bpe_step) { .pattern = keep(t, p->pattern), .to = keep(t, p->to) };
        if ((replaces && !to->pattern) || !to->to)
            return no_memory(err);
        t->blank_in_front |= prepends && (is(p->to, METASPACE) || is(p->to, " "));
    }
    return BERTH_OK;
}

/* Are blanks replaced before words are cut at them? */
static bool no_blanks_left(const struct lmbpe *t)
{
    for (size_t i = 0; i < t->steps; i++)
        if (is(t->step[i].pattern, " ") && !strchr(t->step[i].to, ' '))
            return true;
    return false;
}

static berth_status set_words(struct lmbpe *t, const struct bpe_source *b, berth_err *err)
{
    const struct split_rule *rule = NULL;
    bool cut = false, bytes = false;
    for (size_t i = 0; i < b->cuts; i++) {
        const struct bpe_step *p = &b->words[i];
        if (bytes)
            return refuse(t, "pre-tokenizer behind ByteLevel", p->type, err);
        if (is(p->type, "ByteLevel")) {
            bytes = true;
            if (p->prefix_space || (cut && !p->keep_words))
                return refuse(t, "pre-tokenizer", "ByteLevel with a blank in front", err);
            rule = cut ? rule : p->keep_words ? NULL : &split_gpt2;
            continue;
        }
        if (!is(p->type, "Split") || !p->pattern || p->invert || cut)
            return refuse(t, "pre-tokenizer", p->type, err);
        cut = true;
        if (!p->regex && is(p->pattern, " ") && no_blanks_left(t))
            continue; /* never cuts anything */
        rule = p->regex ? split_of_regex(p->pattern, strlen(p->pattern)) : NULL;
        if (!rule || !is(p->behavior, "Isolated"))
            return refuse(t, "way to cut words", p->pattern, err);
    }
    t->split = rule ? *rule : (struct split_rule) { .whole = true };
    t->symbols = bytes ? SYMBOL_BYTES : SYMBOL_CHARACTERS;
    return BERTH_OK;
}

static berth_status take_json(struct lmbpe *t, struct bpe_source *b, berth_err *err)
{
    if (!is(b->type, "BPE"))
        return refuse(t, "model", b->type ? b->type : "of no type", err);
    if (b->suffix && *b->suffix)
        return refuse(t, "end_of_word_suffix", b->suffix, err);
    if (set_normal(t, b, err) || set_words(t, b, err))
        return err->code;
    return lmbpe_take(t, b, err);
}

berth_status lmbpe_take_plain(struct lmbpe *t, struct bpe_source *b, berth_err *err)
{
    t->symbols = SYMBOL_BYTES;
    t->split = *t->kind->split;
    t->nfc = t->kind->nfc;
    return lmbpe_take(t, b, err);
}

/* ---- public ---- */

typedef berth_status take_fn(struct lmbpe *t, struct bpe_source *b, berth_err *err);

/* Makes the tables when s is BERTH_OK; releases what was read. */
static berth_status finish(struct bpe_source *b, berth_status s, take_fn *take,
                           const struct lmbpe_kind *kind, struct lmbpe **out, berth_err *err)
{
    struct lmbpe *t = s ? NULL : lmbpe_new(kind);
    if (!s)
        s = t ? take(t, b, err) : no_memory(err);
    bpe_source_release(b);
    if (s)
        lmbpe_close(t);
    *out = s ? NULL : t;
    return s;
}

static berth_status read_files(struct bpe_source *b, const char *path, berth_err *err)
{
    berth_status s = bpe_read_in(b, path, "vocab.json", bpe_read_vocab, err);
    if (!s)
        s = bpe_read_in(b, path, "merges.txt", bpe_read_merges, err);
    return s ? s : bpe_read_in(b, path, "tokenizer_config.json", bpe_read_config, err);
}

static berth_status open_folder(const char *path, const struct lmbpe_kind *kind, struct lmbpe **out,
                                berth_err *err)
{
    struct bpe_source b = { 0 };
    berth_status s = kind->split ? read_files(&b, path, err) : BERTH_ENOTFOUND;
    if (s != BERTH_ENOTFOUND)
        return finish(&b, s, lmbpe_take_plain, kind, out, err);
    bool some = vocab_ids(&b.vocab) > 0;
    bpe_source_release(&b);
    b = (struct bpe_source) { 0 };
    s = bpe_read_in(&b, path, "tokenizer.json", bpe_read_tokenizer, err);
    if (s == BERTH_ENOTFOUND)
        s = err_set(err, some ? BERTH_EFORMAT : s,
                    "'%s' has neither all of vocab.json, merges.txt and tokenizer_config.json nor "
                    "tokenizer.json",
                    path);
    return finish(&b, s, take_json, kind, out, err);
}

berth_status lmbpe_open(const char *path, const struct lmbpe_kind *kind, struct lmbpe **out,
                        berth_err *err)
{
    struct bpe_source b = { 0 };
    berth_status s = bpe_read_file(&b, path, bpe_read_tokenizer, err);
    if (s == BERTH_EINVAL) {
        bpe_source_release(&b);
        s = open_folder(path, kind, out, err);
    } else {
        s = finish(&b, s, take_json, kind, out, err);
    }
    return s ? err_add(err, "tokenizer '%s'", path) : BERTH_OK;
}

berth_status lmbpe_from_json(const char *text, size_t n, const char *what,
                             const struct lmbpe_kind *kind, struct lmbpe **out, berth_err *err)
{
    struct bpe_source b = { 0 };
    berth_status s = bpe_read_tokenizer(&b, text, n, err);
    s = finish(&b, s, take_json, kind, out, err);
    return s ? err_add(err, "tokenizer '%s'", what) : BERTH_OK;
}
