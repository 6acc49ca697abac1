/* lumina: prompts as Lumina2 was taught to read them. */
#include "base/str.h"
#include "node/compute.h"

#include <string.h>

/* What stands in front of a prompt (z-image.md 12). */
static const char *const system_prompt[][2] = {
    { "superior", "You are an assistant designed to generate superior images with the superior "
                  "degree of image-text alignment based on textual prompts or user prompts." },
    { "alignment", "You are an assistant designed to generate high-quality images with the "
                   "highest degree of image-text alignment based on textual prompts." },
};

static berth_status run_lumina(struct node_call *c, berth_err *err)
{
    const char *kind, *user;
    struct str text = { 0 };
    struct conditioning *x = NULL;
    size_t i = 0;
    if (in_text(c, "system_prompt", &kind, err) || in_text(c, "user_prompt", &user, err))
        return err->code;
    while (i < ARRAY_LEN(system_prompt) && strcmp(system_prompt[i][0], kind) != 0)
        i++;
    if (i == ARRAY_LEN(system_prompt))
        return err_set(err, BERTH_EINVAL, "system_prompt '%.40s' is neither superior nor alignment",
                       kind);
    str_addf(&text, "%s <Prompt Start> %s", system_prompt[i][1], user);
    berth_status s = text.bad ? err_set(err, BERTH_ENOMEM, "a prompt")
                              : text_conditioning(c, &(struct text_prompt) { .text = str_c(&text) },
                                                  1, NULL, &x, err);
    str_release(&text);
    return s ? s : out_conditioning(c, 0, x, err);
}

NODE_CLASS(CLIPTextEncodeLumina2, .display = "CLIP Text Encode (Lumina 2)",
           .category = "model/conditioning/lumina", V3("lumina2"),
           INS(COMBO_IN("system_prompt", CHOICES("superior", "alignment")),
               TEXT_IN("user_prompt", NULL, .no_default = true, .more = PROMPT_TEXT),
               SOCKET("clip", "CLIP")),
           OUT_OF("CONDITIONING"), .run = run_lumina);
