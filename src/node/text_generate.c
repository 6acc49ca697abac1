/* text_generate: language models that are text encoders, asked for words. */
#include "node/compute.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>

#define TELL_NS (100 * UINT64_C(1000000)) /* the whole text is sent each time: not for each token */

struct writing { /* text as it is written */
    struct node_call *c;
    struct text_decoder decoder;
    struct str text;
    uint32_t tokens, most;
    uint64_t told_ns; /* when clients were sent the text */
    size_t told;      /* bytes of it they have seen; 0: none */
};

static void send_text(struct writing *w)
{
    if (w->text.n > w->told)
        call_text(w->c, w->text.p, w->text.n);
    w->told = w->text.n;
    w->told_ns = clock_mono_ns(w->c->env->clock);
}

/* A token more: clients see the text grow. */
static berth_status on_token(void *user, int32_t id, berth_err *err)
{
    struct writing *w = user;
    text_decode(&w->decoder, id, &w->text);
    if (w->text.bad)
        return err_set(err, BERTH_ENOMEM, "a text of %u tokens", w->tokens);
    if (!w->told || clock_mono_ns(w->c->env->clock) - w->told_ns >= TELL_NS)
        send_text(w);
    return call_progress(w->c, ++w->tokens, w->most, err);
}

/* Without sampling nothing else is looked at. */
static berth_status in_sampling(const struct node_call *c, struct speech_how *how, berth_err *err)
{
    const char *mode;
    uint64_t top_k;
    if (in_text(c, "sampling_mode", &mode, err))
        return err->code;
    how->sample = strcmp(mode, "on") == 0;
    if (!how->sample)
        return BERTH_OK;
    if (in_f64(c, "sampling_mode.temperature", &how->temperature, err) ||
        in_u64(c, "sampling_mode.top_k", &top_k, err) ||
        in_f64(c, "sampling_mode.top_p", &how->top_p, err) ||
        in_f64(c, "sampling_mode.min_p", &how->min_p, err) ||
        in_f64(c, "sampling_mode.repetition_penalty", &how->repetition, err) ||
        in_u64(c, "sampling_mode.seed", &how->seed, err) ||
        in_f64(c, "sampling_mode.presence_penalty", &how->presence, err))
        return err->code;
    how->top_k = top_k < UINT32_MAX ? (uint32_t)top_k : UINT32_MAX;
    return BERTH_OK;
}

/* Each picture of the batch, without more channels than colours; in the arena. */
static berth_status in_pictures(const struct node_call *c, struct arena *mem,
                                struct text_prompt *prompt, berth_err *err)
{
    struct htensor *t;
    if (!in_given(c, "image"))
        return BERTH_OK;
    if (in_image(c, "image", &t, err))
        return err->code;
    const size_t n = dim(t, 0), pixels = dim(t, 1) * dim(t, 2), channels = dim(t, 3);
    struct text_picture *p = arena_array(mem, n, sizeof *p);
    float *rgb = arena_array(mem, n * pixels, 3 * sizeof *rgb); /* t has as many */
    if (channels < 3)
        return err_set(err, BERTH_EINVAL, "image has %zu channels, not 3", channels);
    if (!p || !rgb)
        return err_set(err, BERTH_ENOMEM, "%zu pictures", n);
    for (size_t i = 0; i < n * pixels; i++)
        memcpy(rgb + 3 * i, t->data + channels * i, 3 * sizeof *rgb);
    for (size_t i = 0; i < n; i++)
        p[i] = (struct text_picture) { .rgb = rgb + 3 * i * pixels,
                                       .height = dim(t, 1),
                                       .width = dim(t, 2) };
    prompt->picture = p;
    prompt->pictures = n;
    return BERTH_OK;
}

/* What only Gemma 4 takes, others pass over, as in ComfyUI. */
static void warn_unheard(const struct node_call *c)
{
    static const char *const name[] = { "video", "audio" };
    for (size_t i = 0; i < ARRAY_LEN(name); i++)
        if (in_given(c, name[i]))
            log_warn(c->env->log, "text.ignored", "node=%s input=%s", c->id ? c->id : "", name[i]);
}

static berth_status answer(struct node_call *c, const struct text_prompt *prompt,
                           struct text_ask *ask, struct writing *w, berth_err *err)
{
    const struct model_ref *ref;
    struct ready_text t = { 0 };
    struct vec ids = { .elem = sizeof(int32_t) };
    if (in_clip(c, &ref, err) || ready_text(c, ref, &t, err))
        return err->code;
    const struct text_args args = ready_text_args(&t);
    w->decoder = (struct text_decoder) { .is = t.enc[0].is->tokenizer, .tok = t.enc[0].tok };
    berth_status s = text_answer(&args, prompt, ask, &ids, err);
    if (s)
        err_add(err, "'%.80s'", ready_name(ref));
    else
        text_decode_end(&w->decoder, &w->text);
    vec_release(&ids);
    ready_text_release(&t);
    return s;
}

static berth_status run_generate(struct node_call *c, berth_err *err)
{
    struct text_prompt prompt = { 0 };
    struct text_ask ask = { 0 };
    struct arena mem = { 0 };
    uint64_t most;
    bool template;
    if (in_text(c, "prompt", &prompt.text, err) || in_u64(c, "max_length", &most, err) ||
        in_bool(c, "thinking", &ask.thinking, err) ||
        in_bool(c, "use_default_template", &template, err) || in_sampling(c, &ask.how, err))
        return err->code;
    if (most > UINT32_MAX)
        return err_set(err, BERTH_EINVAL, "max_length is beyond 2^32");
    struct writing w = { .c = c, .most = (uint32_t)most };
    ask.bare = !template;
    ask.how.most = (uint32_t)most;
    ask.how.said = on_token;
    ask.how.user = &w;
    warn_unheard(c);
    berth_status s = in_pictures(c, &mem, &prompt, err);
    if (!s)
        s = answer(c, &prompt, &ask, &w, err);
    if (!s && w.text.bad)
        s = err_set(err, BERTH_ENOMEM, "a text of %u tokens", w.tokens);
    if (!s)
        send_text(&w);
    if (!s)
        s = out_value(c, 0, value_string(str_c(&w.text), w.text.n), err);
    str_release(&w.text);
    arena_release(&mem);
    return s;
}

NODE_CLASS(
    TextGenerate, .display = "Generate Text", .category = "text", V3("textgen"),
    INS(SOCKET("clip", "CLIP"), TEXT_IN("prompt", "", .more = PROMPT_TEXT),
        OPTIONAL("image", "IMAGE"), OPTIONAL("video", "IMAGE"), OPTIONAL("audio", "AUDIO"),
        INT_IN("max_length", 512, 1, 32768, 0),
        DYNCOMBO_IN(
            "sampling_mode",
            WITH(CHOICE("on", FLOAT_IN("temperature", 0.7, 0.01, 2.0, 0.000001),
                        INT_IN("top_k", 64, 0, 1000, 0), FLOAT_IN("top_p", 0.95, 0.0, 1.0, 0.01),
                        FLOAT_IN("min_p", 0.05, 0.0, 1.0, 0.01),
                        FLOAT_IN("repetition_penalty", 1.05, 0.0, 5.0, 0.01),
                        INT_IN("seed", 0, 0, U64_MAX, 0),
                        FLOAT_IN("presence_penalty", 0.0, 0.0, 5.0, 0.01, .optional = true)),
                 CHOICE0("off")),
            .more = "\"display_name\":\"Sampling Mode\""),
        BOOL_IN("thinking", false, .optional = true),
        BOOL_IN("use_default_template", true, .optional = true, .more = "\"advanced\":true")),
    OUTS({ .type = "STRING", .name = "generated_text" }), .run = run_generate);
