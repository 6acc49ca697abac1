/* hunyuan_video.c: Llama 3's last layer but two, from the user's words on; pooled is CLIP-L's
 * (hunyuan-video.md 7). */
#include "model/encoder.h"
#include "model/lm/cuts.h"

static const struct text_wording wording = { .chat = &chat_hunyuan_video,
                                             .weights = true,
                                             .embeddings = true };

const struct text_set text_set_hunyuan_video = {
    .name = "HunyuanVideo",
    .types = { "hunyuan_video" },
    .use = { { &encoder_llama,
               { .layer = -3 },
               .cond = true,
               .min_length = 1,
               .wording = &wording,
               .cut = lm_cut_llama },
             { &encoder_clip_l, { .norm_hidden = true }, .pooled = true } },
    .join = text_join_columns,
};
