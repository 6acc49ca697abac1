/* tokenizer_qwen35.c: Qwen 3.5, as a tokenizer: the vocabulary is its own, all else as in Qwen 2.5.
 * Its files have another expression for words, with marks among the letters, which ComfyUI's class
 * does not look at. */
#include "text/lmbpe.h"

static const struct lmbpe_kind kind = {
    .name = "Qwen 3.5",
    .split = &split_qwen2,
    .nfc = true,
    .must = (const char *const[]) { "<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL },
    .pad = "<|endoftext|>",
    .pad_id = 248044,
    .gguf = (const char *const[]) { "qwen35", NULL },
};

LMBPE_OPEN(kind)
LMBPE_SPARE(kind)

const struct tokenizer tokenizer_qwen35 = {
    .name = "Qwen 3.5",
    .files = "vocab.json, merges.txt and tokenizer_config.json, or tokenizer.json",
    .folders = (const char *const[]) { "/qwen35", "/qwen3.5", "/qwen35_tokenizer",
                                       "/text_encoders/qwen35_tokenizer", "/tokenizer", "", NULL },
    .own = 4,
    .beside = true,
    .any_of =
        (const char *const[][2]) { { "vocab.json", "merges.txt" }, { "tokenizer.json" }, { NULL } },
    .open = open_path,
    .spare = spare,
    LMBPE_CALLS,
};
