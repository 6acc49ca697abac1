/* tokenizer_llama3.c: Llama 3 and 3.1, as a tokenizer.
 *
 * Its tokenizer.json says "ignore_merges": a word that is a token is that token, whatever merges
 * would make of it. ComfyUI does not look at it, and so prompts are merged here as well. */
#include "text/lmbpe.h"

static const struct lmbpe_kind kind = {
    .name = "Llama 3",
    .split = &split_llama3,
    .must = (const char *const[]) { "<|begin_of_text|>", "<|eot_id|>", NULL },
    .start = "<|begin_of_text|>",
    .pad = "<|eot_id|>",
    .gguf = (const char *const[]) { "llama-bpe", "llama3", NULL },
};

LMBPE_OPEN(kind)
LMBPE_SPARE(kind)

const struct tokenizer tokenizer_llama3 = {
    .name = "Llama 3",
    .files = "tokenizer.json",
    .folders = (const char *const[]) { "/llama3", "/llama", "/llama_tokenizer",
                                       "/text_encoders/llama_tokenizer", "/tokenizer", "", NULL },
    .own = 4,
    .beside = true,
    .any_of = (const char *const[][2]) { { "tokenizer.json" }, { NULL } },
    .open = open_path,
    .spare = spare,
    LMBPE_CALLS,
};
