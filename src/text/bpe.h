/* bpe: CLIP's tokenizer, byte pairs merged by rank (text-encoders.md 4).
 *
 * Data       vocab.json + merges.txt, or tokenizer.json: a folder with either, the file itself, or
 *            its text in a model file.
 * Limits     BPE_VOCAB_MAX ids and as many merges, BPE_FILE_MAX bytes a file: BERTH_ELIMIT.
 * Files      bpe.c merges; bpe_load.c its files; clean.c what happens to text before, and its
 *            words */
#pragma once

#include "text/tokenizer.h"

#define BPE_VOCAB_MAX (1u << 20)
#define BPE_FILE_MAX (64u << 20)

struct bpe;
/* path: a folder (vocab.json and merges.txt, else tokenizer.json), or a tokenizer.json. */
berth_status bpe_open(const char *path, struct bpe **out, berth_err *err);
/* The one that a model file brings: metadata BPE_METADATA is the text of a tokenizer.json.
 * BERTH_ENOTFOUND: it has none. Errors name the file. */
#define BPE_METADATA "berth.tokenizer"
berth_status bpe_from_weights(const struct weights *w, struct bpe **out, berth_err *err);
void bpe_close(struct bpe *t); /* NULL is fine */
/* Appends int32_t ids of plain text (no emphasis, no start or end). Any bytes: what is not UTF-8 is
 * replaced. */
berth_status bpe_encode(const struct bpe *t, const char *text, size_t n, struct vec *out,
                        berth_err *err);

/* Writes vocab.json and merges.txt of a tokenizer that knows letters and no words, with CLIP's ids:
 * for tours and tests on machines that have no other. The folder must be there. */
berth_status bpe_write_stand_in(const char *dir, berth_err *err);
