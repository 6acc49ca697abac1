/* chat.c: templates, and filling them in. */
#include "text/chat.h"

#define DESCRIBE                                                                                   \
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "        \
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"

static const char *const qwen_begins[] = { "<|im_start|>", "<|start_header_id|>", NULL };

const struct chat_template chat_qwen_image = {
    .before = DESCRIBE CHAT_QWEN_USER,
    .after = CHAT_QWEN_END,
    .unless = qwen_begins,
};
const struct chat_template chat_qwen_edit = {
    .before = "<|im_start|>system\nDescribe the key features of the input image (color, shape, "
              "size, texture, objects, background), then explain how the user's text instruction "
              "should alter or modify the image. Generate a new image that meets the user's "
              "requirements while maintaining consistency with the original input where "
              "appropriate.<|im_end|>\n" CHAT_QWEN_USER CHAT_QWEN_IMAGE,
    .after = CHAT_QWEN_END,
    .unless = qwen_begins,
};
const struct chat_template chat_qwen = { .before = CHAT_QWEN_USER, .after = CHAT_QWEN_END };
const struct chat_template chat_qwen_quick = {
    .before = CHAT_QWEN_USER,
    .after = CHAT_QWEN_END CHAT_QWEN_NO_THOUGHT,
};
const struct chat_template chat_mistral = {
    .before = "[SYSTEM_PROMPT]You are an AI that reasons about image descriptions. You give "
              "structured responses focusing on object relationships, object\nattribution and "
              "actions without speculation.[/SYSTEM_PROMPT][INST]",
    .after = "[/INST]",
};
const struct chat_template chat_gemma3 = {
    .before = "<start_of_turn>system\nYou are a helpful assistant.<end_of_turn>\n"
              "<start_of_turn>user\n",
    .after = "<end_of_turn>\n<start_of_turn>model\n",
    .unless = (const char *const[]) { "<start_of_turn>", NULL },
};
const struct chat_template chat_hunyuan_image = {
    .before = DESCRIBE CHAT_QWEN_USER,
    .after = "<|im_end|>",
    .unless = qwen_begins,
};
const struct chat_template chat_hunyuan_video15 = {
    .before = "<|im_start|>system\nYou are a helpful assistant. Describe the video by detailing "
              "the following aspects:\n1. The main content and theme of the video.\n2. The color, "
              "shape, size, texture, quantity, text, and spatial relationships of the objects.\n"
              "3. Actions, events, behaviors temporal relationships, physical movement changes of "
              "the objects.\n4. background environment, light, style and atmosphere.\n5. camera "
              "angles, movements, and transitions used in the video.<|im_end|>\n" CHAT_QWEN_USER,
    .after = CHAT_QWEN_END,
    .unless = qwen_begins,
    .empty = " ",
};
const struct chat_template chat_hunyuan_video = {
    .before = "<|start_header_id|>system<|end_header_id|>\n\nDescribe the video by detailing the "
              "following aspects: 1. The main content and theme of the video.2. The color, shape, "
              "size, texture, quantity, text, and spatial relationships of the objects.3. "
              "Actions, events, behaviors temporal relationships, physical movement changes of "
              "the objects.4. background environment, light, style and atmosphere.5. camera "
              "angles, movements, and transitions used in the video:<|eot_id|><|start_header_id|>"
              "user<|end_header_id|>\n\n",
    .after = "<|eot_id|>",
};

static bool is_whole(const struct chat_template *t, const char *prompt, size_t n)
{
    for (const char *const *begin = t->unless; begin && *begin; begin++)
        if (str_starts(prompt, n, *begin))
            return true;
    return false;
}

void chat_fill(const struct chat_template *t, const char *prompt, size_t n, struct str *out)
{
    bool whole = is_whole(t, prompt, n);
    str_adds(out, whole ? "" : t->before);
    str_add(out, prompt, n);
    if (n == 0 && t->empty)
        str_adds(out, t->empty);
    str_adds(out, whole ? "" : t->after);
}
