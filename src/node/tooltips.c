/* tooltips: what frontends show over inputs and outputs, where ComfyUI shows something there too.
 * The words are our own. */
#include "node/node_impl.h"

#include <string.h>

static const struct tip {
    const char *cls, *in; /* in NULL: of output `out` */
    size_t out;
    const char *text;
} tips[] = {
    { "CLIPTextEncode", "text", 0, "What the picture shall show." },
    { "CLIPTextEncode", "clip", 0, "The text encoder that reads it." },
    { "CLIPTextEncode", NULL, 0, "The text as a diffusion model reads it." },
    { "CheckpointLoaderSimple", "ckpt_name", 0, "A file in models/checkpoints." },
    { "CheckpointLoaderSimple", NULL, 0, "The diffusion model, for samplers." },
    { "CheckpointLoaderSimple", NULL, 1, "The text encoder, for prompts." },
    { "CheckpointLoaderSimple", NULL, 2, "Turns pictures into latents and back." },
    { "CreateVideo", "images", 0, "Its frames." },
    { "CreateVideo", "audio", 0, "Its sound." },
    { "EmptyLatentImage", "width", 0, "Of the picture, in pixels." },
    { "EmptyLatentImage", "height", 0, "Of the picture, in pixels." },
    { "EmptyLatentImage", "batch_size", 0, "So many pictures at once." },
    { "EmptyLatentImage", NULL, 0, "Latents of nothing, to be drawn on." },
    { "GetVideoComponents", "video", 0, "What is taken apart." },
    { "InpaintModelConditioning", "noise_mask", 0,
      "Only what the mask covers is drawn. How much that helps depends on the model." },
    { "KSampler", "model", 0, "The diffusion model that draws." },
    { "KSampler", "seed", 0, "Where the noise comes from: the same number, the same picture." },
    { "KSampler", "steps", 0, "How often the model is asked; each step takes the same time." },
    { "KSampler", "cfg", 0,
      "How closely to follow the prompt. At 1 the negative one is not used, and a step takes half "
      "the time." },
    { "KSampler", "sampler_name", 0, "How the answers of the model become steps." },
    { "KSampler", "scheduler", 0, "How much noise each step takes away." },
    { "KSampler", "positive", 0, "What is wanted." },
    { "KSampler", "negative", 0, "What is not." },
    { "KSampler", "latent_image", 0, "Where it begins: an empty latent, or a picture's." },
    { "KSampler", "denoise", 0,
      "How much of the latent is drawn anew: 1 is all of it, less keeps more of what is there." },
    { "KSampler", NULL, 0, "The picture as a latent: VAEDecode makes pixels of it." },
    { "LTXVAddGuide", "image", 0, "Frames that the video shall have; 8 n + 1 of them." },
    { "LTXVAddGuide", "frame_idx", 0, "Where they begin; negative numbers count from the end." },
    { "LTXVPreprocess", "img_compression", 0, "How hard the picture is compressed: 0 leaves it." },
    { "LTXVScheduler", "stretch", 0, "The noise levels end at `terminal`." },
    { "LTXVScheduler", "terminal", 0, "The last noise level above 0, if they are stretched." },
    { "LoraLoader", "model", 0, "The diffusion model that it changes." },
    { "LoraLoader", "clip", 0, "The text encoder that it changes." },
    { "LoraLoader", "lora_name", 0, "A file in models/loras." },
    { "LoraLoader", "strength_model", 0,
      "How much of it, for the diffusion model; may be below 0." },
    { "LoraLoader", "strength_clip", 0, "How much of it, for the text encoder; may be below 0." },
    { "LoraLoader", NULL, 0, "The diffusion model with it." },
    { "LoraLoader", NULL, 1, "The text encoder with it." },
    { "LoraLoaderModelOnly", NULL, 0, "The diffusion model with it." },
    { "SaveImage", "images", 0, "What is written, a PNG each." },
    { "SaveImage", "filename_prefix", 0, "How the files begin; folders may be in it." },
    { "SaveVideo", "video", 0, "What is written." },
    { "SaveVideo", "filename_prefix", 0, "How the file begins; folders may be in it." },
    { "SaveVideo", "format", 0, "The kind of file; auto: what fits the video." },
    { "SaveVideo", "codec", 0, "How its frames are packed; auto: what fits the file." },
    { "SaveWEBM", "images", 0, "Its frames; of vp9 they may have an alpha channel." },
    { "SaveWEBM", "crf", 0, "Higher: smaller files and less detail." },
    { "VAEDecode", "samples", 0, "The latents." },
    { "VAEDecode", "vae", 0, "What turns them into pixels; the checkpoint's own, as a rule." },
    { "VAEDecode", NULL, 0, "The pictures." },
    { "VAEDecodeTiled", "temporal_size", 0, "Of videos: so many frames at a time." },
    { "VAEDecodeTiled", "temporal_overlap", 0, "Of videos: so many of them twice." },
    { "VAEEncodeTiled", "temporal_size", 0, "Of videos: so many frames at a time." },
    { "VAEEncodeTiled", "temporal_overlap", 0, "Of videos: so many of them twice." },
};

const char *node_input_tip(const struct node_class *c, const struct node_input *in)
{
    for (size_t i = 0; i < ARRAY_LEN(tips); i++)
        if (tips[i].in && !strcmp(tips[i].in, in->name) && !strcmp(tips[i].cls, c->name))
            return tips[i].text;
    return NULL;
}

const char *node_output_tip(const struct node_class *c, size_t out)
{
    for (size_t i = 0; i < ARRAY_LEN(tips); i++)
        if (!tips[i].in && tips[i].out == out && !strcmp(tips[i].cls, c->name))
            return tips[i].text;
    return NULL;
}

size_t node_tips(void)
{
    return ARRAY_LEN(tips);
}
