/* tokenizer_qwen25.c: Qwen 2, 2.5, 2.5-VL, 3 and 3-VL, as a tokenizer: they have one vocabulary. */
#include "text/lmbpe.h"

static const struct lmbpe_kind kind = {
    .name = "Qwen",
    .split = &split_qwen2,
    .nfc = true,
    .must = (const char *const[]) { "<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL },
    .pad = "<|endoftext|>",
    .gguf = (const char *const[]) { "qwen2", NULL },
};

LMBPE_OPEN(kind)
LMBPE_SPARE(kind)

const struct tokenizer tokenizer_qwen25 = {
    .name = "Qwen",
    .files = "vocab.json, merges.txt and tokenizer_config.json, or tokenizer.json",
    /* ComfyUI's own is in comfy/text_encoders; repositories of diffusers call it "tokenizer" */
    .folders = (const char *const[]) { "/qwen25", "/qwen", "/qwen25_tokenizer",
                                       "/text_encoders/qwen25_tokenizer", "/tokenizer", "", NULL },
    .own = 4,
    .beside = true,
    .any_of =
        (const char *const[][2]) { { "vocab.json", "merges.txt" }, { "tokenizer.json" }, { NULL } },
    .open = open_path,
    .spare = spare,
    LMBPE_CALLS,
};
