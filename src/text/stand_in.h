/* stand_in: tokenizers that know letters and no words, written into a folder: for tours and tests
 * on machines that have no others. Prompts mean little through them. */
#pragma once

#include "base/err.h"

/* CLIP's vocab.json and merges.txt, T5's tokenizer.json; a folder of its own below this one for
 * umT5's (umt5) and each language model's (qwen25, qwen35, llama3, tekken, gemma2, gemma3,
 * gemma4), with the ids that tokens have there. The folder must be there. */
berth_status stand_ins_write(const char *dir, berth_err *err);
