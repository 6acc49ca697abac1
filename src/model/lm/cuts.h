/* cuts: which rows of a language model's result are kept: the prompt's, without the template
 * around it (llm-encoders.md 3.1). For text_use.cut. */
#pragma once

#include "text/tokenizer.h"

/* Llama 3 as HunyuanVideo has it: from behind the user's header on. */
size_t lm_cut_llama(const struct token *token, size_t n);
/* Qwen: from behind the second "<|im_start|>user\n" on. */
size_t lm_cut_qwen(const struct token *token, size_t n);
