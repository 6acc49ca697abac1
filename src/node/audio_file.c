/* audio_file.c: sound from files and into files. */
#include "node/clips.h"

#include <stdlib.h>
#include <string.h>

/* ---- loading ---- */

static berth_status load_run(struct node_call *c, berth_err *err)
{
    const struct media_sound_args args = { .first = true };
    struct str path = { 0 };
    struct value *a = NULL;
    const char *name;
    if (in_text(c, "audio", &name, err))
        return err->code;
    berth_status s = input_path(c->env, name, &path, err);
    if (!s)
        s = clip_sound(c, str_c(&path), &args, &a, err);
    if (!s && !a)
        s = err_set(err, BERTH_EFORMAT, "No audio stream found in the file '%s'.", name);
    str_release(&path);
    return s ? s : out_value(c, 0, a, err);
}

static bool is_sound(const char *name)
{
    const char *mime = path_mime(name);
    return !strncmp(mime, "audio/", 6) || !strncmp(mime, "video/", 6);
}

static berth_status list_sounds(const struct node_env *env, struct names *out, berth_err *err)
{
    return input_list(env, is_sound, out, err);
}

NODE_CLASS(LoadAudio, .display = "Load Audio", .category = "audio", .module = MOD("audio"),
           .flags = NODE_V3 | NODE_MEDIA,
           INS(COMBO_IN("audio", NULL, .options_fn = list_sounds, .more = "\"audio_upload\":true")),
           OUT_OF("AUDIO"), .run = load_run, INPUT_FILE("audio"));

/* The browser has put the file there. */
NODE_CLASS(RecordAudio, .display = "Record Audio", .category = "audio", .module = MOD("audio"),
           .flags = NODE_V3 | NODE_MEDIA, INS(SOCKET("audio", "AUDIO_RECORD")), OUT_OF("AUDIO"),
           .run = load_run, INPUT_FILE("audio"));

/* ---- saving ---- */

struct sound_as {
    const char *format;  /* "flac", "mp3", "opus" */
    const char *quality; /* "V0", "128k" */
    const char *kind, *prefix;
    bool plain;
};

/* What Opus has; the next higher where it has not, and the highest for more. */
static uint32_t opus_rate(uint32_t rate)
{
    static const uint32_t has[] = { 8000, 12000, 16000, 24000 };
    for (size_t i = 0; i < ARRAY_LEN(has); i++)
        if (rate <= has[i])
            return has[i];
    return 48000;
}

static berth_status save_item(struct node_call *c, const struct audio *a, size_t i,
                              const struct sound_as *as, struct saved *to, berth_err *err)
{
    char ext[8];
    bool mp3 = !strcmp(as->format, "mp3"), opus = !strcmp(as->format, "opus");
    struct clip_out f = { .args = { .container = as->format },
                          .sound = a,
                          .item = i,
                          .samples = SIZE_MAX,
                          .ext = ext,
                          .key = "audio",
                          .batch = i,
                          .plain = as->plain };
    uint64_t kilo = 0;
    snprintf(ext, sizeof ext, ".%s", as->format);
    f.args.audio = (struct media_write_audio) { .encoder = mp3    ? "libmp3lame"
                                                           : opus ? "libopus"
                                                                  : "flac",
                                                .rate = a->rate,
                                                .channels = (uint32_t)dim(a->wave, 1),
                                                .quality = mp3 && !strcmp(as->quality, "V0") };
    if (str_parse_u64(as->quality, strcspn(as->quality, "k"), &kilo) && kilo <= 512)
        f.args.audio.bit_rate = (uint32_t)kilo * 1000;
    return clip_save(c, to, &f, err);
}

static berth_status save_sound(struct node_call *c, const struct audio *given,
                               const struct sound_as *as, berth_err *err)
{
    struct audio a = { NULL, !strcmp(as->format, "opus") ? opus_rate(given->rate) : given->rate };
    struct saved to = { 0 };
    if (!dim(given->wave, 2))
        return err_set(err, BERTH_EINVAL, "%s: the sound has no samples", c->cls->name);
    if (wave_resample(given->wave, given->rate, a.rate, &a.wave, err))
        return err->code;
    berth_status s = save_begin(c, as->kind, as->prefix, 0, 0, &to, err);
    to.path.bare = true; /* "_00001.flac" */
    for (size_t i = 0; !s && i < dim(a.wave, 0); i++) {
        s = save_item(c, &a, i, as, &to, err);
        if (!s)
            s = call_check(c, err);
    }
    save_end(&to);
    htensor_unref(a.wave);
    return s;
}

static berth_status save_as(struct node_call *c, struct sound_as as, berth_err *err)
{
    const struct audio *a;
    as.kind = "output";
    if (in_some_audio(c, "audio", &a, err) || in_text(c, "filename_prefix", &as.prefix, err) ||
        save_sound(c, a, &as, err))
        return err->code;
    return out_input(c, 0, "audio", err);
}

static berth_status save_run(struct node_call *c, berth_err *err)
{
    struct sound_as as = { .format = c->cls->own, .quality = "" };
    if (strcmp(as.format, "flac") && in_text(c, "quality", &as.quality, err))
        return err->code;
    return save_as(c, as, err);
}

static berth_status advanced_run(struct node_call *c, berth_err *err)
{
    struct sound_as as = { .quality = "" };
    if (in_text(c, "format", &as.format, err))
        return err->code;
    if (in_given(c, "format.quality") && in_text(c, "format.quality", &as.quality, err))
        return err->code;
    if (!*as.quality && !strcmp(as.format, "opus"))
        as.quality = "128k";
    return save_as(c, as, err);
}

#define SAVES (NODE_V3 | NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO | NODE_MEDIA)
#define SAVE_IN SOCKET("audio", "AUDIO"), TEXT_IN("filename_prefix", "audio/ComfyUI")
#define MP3_IN COMBO_IN("quality", CHOICES("V0", "128k", "320k"), .sdef = "V0")
#define OPUS_IN COMBO_IN("quality", CHOICES("64k", "96k", "128k", "192k", "320k"), .sdef = "128k")
#define SAVE_OUT OUTS({ .type = "AUDIO", .name = "audio" })

NODE_CLASS(SaveAudio, .category = "audio", .module = MOD("audio"), .flags = SAVES | NODE_DEPRECATED,
           INS(SAVE_IN), SAVE_OUT, .run = save_run, .own = "flac");
NODE_CLASS(SaveAudioMP3, .category = "audio", .module = MOD("audio"),
           .flags = SAVES | NODE_DEPRECATED, INS(SAVE_IN, MP3_IN), SAVE_OUT, .run = save_run,
           .own = "mp3");
NODE_CLASS(SaveAudioOpus, .category = "audio", .module = MOD("audio"),
           .flags = SAVES | NODE_DEPRECATED, INS(SAVE_IN, OPUS_IN), SAVE_OUT, .run = save_run,
           .own = "opus");
NODE_CLASS(SaveAudioAdvanced, .category = "audio", .module = MOD("audio"), .flags = SAVES,
           .description = "Saves sound as a file in the output folder.",
           INS(SAVE_IN, DYNCOMBO_IN("format", WITH(CHOICE0("flac"), CHOICE("mp3", MP3_IN),
                                                   CHOICE("opus", OPUS_IN)))),
           SAVE_OUT, .run = advanced_run);

static berth_status preview_run(struct node_call *c, berth_err *err)
{
    const struct audio *a;
    struct str prefix = { 0 };
    struct sound_as as = { .format = "flac", .quality = "", .kind = "temp" };
    berth_status s = in_some_audio(c, "audio", &a, err);
    if (!s)
        s = preview_prefix(c, "ComfyUI", &prefix, err);
    as.prefix = str_c(&prefix);
    if (!s)
        s = save_sound(c, a, &as, err);
    str_release(&prefix);
    return s ? s : out_input(c, 0, "audio", err);
}

NODE_CLASS(PreviewAudio, .category = "audio", .module = MOD("audio"), .flags = SAVES,
           .description = "Plays the sound; the file goes when the server stops.",
           INS(SOCKET("audio", "AUDIO")), SAVE_OUT, .run = preview_run);
