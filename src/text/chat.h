/* chat: what language models expect around a prompt (llm-encoders.md 3.2). Plain text: a tokenizer
 * finds its special tokens ("<|im_start|>") in it.
 *
 *     struct str whole = { 0 };
 *     chat_fill(&chat_qwen_image, prompt, strlen(prompt), &whole);   then text_chunks(whole...)
 *
 * A template of one family alone is best kept beside that family. Here are those that several
 * share, and what they are made of. */
#pragma once

#include "base/str.h"

struct chat_template {
    const char *before, *after;
    /* A prompt that begins with one of these is used as it is. NULL ends the list; NULL: none. */
    const char *const *unless;
    const char *empty; /* stands for a prompt without a byte; NULL: nothing does */
};
/* Appends the prompt with what stands around it. Memory: out->bad. */
void chat_fill(const struct chat_template *t, const char *prompt, size_t n, struct str *out);

#define CHAT_QWEN_USER "<|im_start|>user\n"
#define CHAT_QWEN_END "<|im_end|>\n<|im_start|>assistant\n"
#define CHAT_QWEN_NO_THOUGHT "<think>\n\n</think>\n\n"
#define CHAT_QWEN_IMAGE "<|vision_start|><|image_pad|><|vision_end|>"

extern const struct chat_template chat_qwen_image; /* T1: Qwen-Image, Krea 2 */
extern const struct chat_template chat_qwen_edit;  /* T2: the same with an image */
extern const struct chat_template chat_qwen;       /* T3: Z-Image, and Qwen3-VL */
extern const struct chat_template chat_qwen_quick; /* T4: Klein: T3 that does not think */
extern const struct chat_template chat_mistral;    /* T5: Flux 2 */
extern const struct chat_template chat_gemma3;     /* T7, where it is asked for */
extern const struct chat_template chat_hunyuan_image, chat_hunyuan_video15; /* T9, T10 */
extern const struct chat_template chat_hunyuan_video;                       /* T11: Llama 3 */
