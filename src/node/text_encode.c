/* text_encode: prompts to conditionings. */
#include "node/hooks.h"

#include <string.h>

/* ---- embedding:name ---- */

/* Is this listed file what a prompt calls `name`, except for this ending, in any sub-folder? */
static bool is_called(const char *file, const char *name, size_t n, const char *ext)
{
    const char *base = strrchr(file, '/');
    for (const char *at = file; at; at = at == file && base ? base + 1 : NULL)
        if (strncmp(at, name, n) == 0 && strcmp(at + n, ext) == 0)
            return true;
    return false;
}

/* The file that a prompt calls `name`, or NULL; where there are several, ComfyUI's order. */
static const char *file_called(const struct names *list, const char *name, size_t n)
{
    static const char *const ext[] = { "", ".safetensors", ".pt", ".bin" };
    for (size_t k = 0; k < ARRAY_LEN(ext); k++)
        for (size_t i = 0; i < list->n; i++)
            if (is_called(list->at[i], name, n, ext[k]))
                return list->at[i];
    return NULL;
}

static berth_status find_embedding(void *user, const char *name, size_t n, const char *key,
                                   struct arena *mem, const float **vectors, uint32_t *count,
                                   uint32_t *width, berth_err *err)
{
    struct node_call *c = user;
    struct names list = { 0 };
    struct str path = { 0 };
    const char *file = NULL;
    berth_status s = folders_list(c->env->folders, "embeddings", &list, err);
    if (!s && !(file = file_called(&list, name, n)))
        s = err_set(err, BERTH_ENOTFOUND, "no embedding '%.*s'", (int)(n < 80 ? n : 80), name);
    if (!s && (folders_resolve(c->env->folders, "embeddings", file, &path, err) ||
               text_embedding_read(path.p, key, mem, vectors, count, width, err)))
        s = err->code;
    names_release(&list);
    str_release(&path);
    return s;
}

/* ---- encoding ---- */

berth_status in_clip(const struct node_call *c, const struct model_ref **out, berth_err *err)
{
    const struct value *v = in_value(c, "clip");
    if (v && v->kind == V_NULL && v->why)
        return err_set(err, BERTH_EINVAL,
                       "clip input is invalid: None. %s; CLIPLoader opens one from another file.",
                       v->why);
    if (v && v->kind == V_NULL)
        return err_set(err, BERTH_EINVAL,
                       "clip input is invalid: None. If the clip is from a checkpoint loader node "
                       "your checkpoint does not contain a valid clip or text encoder model; "
                       "CLIPLoader opens one from another file.");
    return in_model(c, "clip", out, err);
}

static berth_status to_tensor(const struct shape *s, const float *from, struct htensor **out,
                              berth_err *err)
{
    berth_status st = htensor_new(s, out, err);
    if (!st)
        memcpy((*out)->data, from, htensor_count(*out) * sizeof(float));
    return st;
}

/* A node with several prompts is for one set of encoders; with others ComfyUI finds no tokens for
 * one of them and fails, too. */
static berth_status check_set(const struct text_set *is, const struct text_set *wants,
                              berth_err *err)
{
    struct str theirs = { 0 }, ours = { 0 };
    if (!wants || is == wants)
        return BERTH_OK;
    text_set_encoders(wants, &theirs);
    text_set_encoders(is, &ours);
    err_set(err, BERTH_EINVAL, "two prompts are for %s's text encoders, %s; this is %s's: %s",
            wants->name, str_c(&theirs), is->name, str_c(&ours));
    str_release(&theirs);
    str_release(&ours);
    return err->code;
}

static berth_status encode_with(struct node_call *c, const struct model_ref *ref,
                                const struct text_prompt *prompt, size_t prompts,
                                const struct text_set *wants, struct conditioning **out,
                                berth_err *err)
{
    struct ready_text t = { 0 };
    struct arena mem = { 0 };
    struct text_cond got = { 0 };
    struct htensor *cond = NULL, *pooled = NULL, *shown = NULL;
    struct text_embeddings emb = { .find = find_embedding, .user = c, .log = c->env->log };
    *out = NULL;
    if (ready_text(c, ref, &t, err))
        return err->code;
    struct text_args args = ready_text_args(&t);
    args.emb = &emb;
    berth_status s = check_set(t.set, wants, err);
    if (!s)
        s = text_encode(&args, prompt, prompts, &mem, &got, err);
    if (s)
        err_add(err, "'%.80s'", ready_name(ref));
    ready_text_release(&t);
    if (!s)
        s = to_tensor(&(struct shape) { .ndim = 3, .dim = { 1, got.tokens, got.width } }, got.cond,
                      &cond, err);
    if (!s && got.pooled)
        s = to_tensor(&(struct shape) { .ndim = 2, .dim = { 1, got.pooled_n } }, got.pooled,
                      &pooled, err);
    if (!s && got.mask)
        s = to_tensor(&(struct shape) { .ndim = 2, .dim = { 1, got.tokens } }, got.mask, &shown,
                      err);
    arena_release(&mem);
    if (!s && !conditioning_new(cond, pooled, out, err)) {
        (*out)->at[0].shown = shown;
        return BERTH_OK;
    }
    if (s) {
        htensor_unref(cond);
        htensor_unref(pooled);
    }
    htensor_unref(shown);
    return err->code;
}

/* The same with the encoders as hooks leave them in a span. */
static berth_status encode_hooked(struct node_call *c, const struct model_ref *ref,
                                  const struct hooks *h, const struct clip_span *span,
                                  const struct text_prompt *prompt, size_t prompts,
                                  const struct text_set *wants, struct conditioning **out,
                                  berth_err *err)
{
    struct model_ref hooked;
    *out = NULL;
    if (hooks_clip(c, ref, h, span, &hooked, err))
        return err->code;
    berth_status s = encode_with(c, &hooked, prompt, prompts, wants, out, err);
    model_ref_release(&hooked);
    return s;
}

/* A prompt for each span, which counts then. */
static berth_status encode_spans(struct node_call *c, const struct model_ref *ref,
                                 const struct hooks *h, const struct text_prompt *prompt,
                                 size_t prompts, const struct text_set *wants,
                                 struct conditioning **out, berth_err *err)
{
    struct arena mem = { 0 };
    struct vec spans = { 0 };
    *out = NULL;
    berth_status s = hooks_spans(h, &mem, &spans, err);
    for (size_t i = 0; !s && i < spans.n; i++) {
        const struct clip_span *span = vec_at(&spans, i);
        struct conditioning *one = NULL, *all = NULL;
        s = encode_hooked(c, ref, h, span, prompt, prompts, wants, &one, err);
        if (!s) {
            one->at[0].clip_start = span->start;
            one->at[0].clip_end = span->end;
            one->at[0].clip_ranged = true;
            htensor_unref(one->at[0].shown); /* ComfyUI keeps no mask of these */
            one->at[0].shown = NULL;
            s = *out ? conditioning_join(*out, one, &all, err) : conditioning_copy(one, &all, err);
        }
        conditioning_free(one);
        conditioning_free(*out);
        *out = s ? NULL : all;
    }
    vec_release(&spans);
    arena_release(&mem);
    return s;
}

berth_status text_conditioning(struct node_call *c, const struct text_prompt *prompt,
                               size_t prompts, const struct text_set *wants,
                               struct conditioning **out, berth_err *err)
{
    const struct model_ref *ref;
    const struct clip_span whole = { .end = 1 };
    *out = NULL;
    if (in_clip(c, &ref, err))
        return err->code;
    const struct hooks *h = ref->clip_hooks ? ref->clip_hooks->object.obj : NULL;
    berth_status s = !h ? encode_with(c, ref, prompt, prompts, wants, out, err)
                     : !ref->said.clip_scheduled
                         ? encode_hooked(c, ref, h, &whole, prompt, prompts, wants, out, err)
                         : encode_spans(c, ref, h, prompt, prompts, wants, out, err);
    for (size_t i = 0; !s && ref->cond_hooks && i < (*out)->n; i++)
        (*out)->at[i].hooks = hooks_ref(ref->cond_hooks->object.obj);
    return s;
}

static berth_status run_encode(struct node_call *c, berth_err *err)
{
    const char *text;
    struct conditioning *x;
    return in_text(c, "text", &text, err) ||
                   text_conditioning(c, &(struct text_prompt) { .text = text }, 1, NULL, &x, err)
               ? err->code
               : out_conditioning(c, 0, x, err);
}

NODE_CLASS(CLIPTextEncode, .display = "CLIP Text Encode (Prompt)", .category = "conditioning",
           .module = "nodes",
           INS(TEXT_IN("text", NULL, .no_default = true, .more = PROMPT_TEXT),
               SOCKET("clip", "CLIP")),
           OUT_OF("CONDITIONING"), .run = run_encode);

/* ---- SDXL: two prompts and what the picture is to be ---- */

static berth_status in_side(const struct node_call *c, const char *name, uint32_t *out,
                            berth_err *err)
{
    uint64_t v;
    berth_status s = in_u64(c, name, &v, err);
    if (!s && v > UINT32_MAX)
        s = err_set(err, BERTH_EINVAL, "input '%s' is beyond 2^32", name);
    *out = s ? 0 : (uint32_t)v;
    return s;
}

static berth_status run_sdxl(struct node_call *c, berth_err *err)
{
    struct diffusion_size z = { .said = true };
    const char *g, *l;
    struct conditioning *x;
    if (in_side(c, "width", &z.width, err) || in_side(c, "height", &z.height, err) ||
        in_side(c, "crop_w", &z.crop_w, err) || in_side(c, "crop_h", &z.crop_h, err) ||
        in_side(c, "target_width", &z.target_width, err) ||
        in_side(c, "target_height", &z.target_height, err) || in_text(c, "text_g", &g, err) ||
        in_text(c, "text_l", &l, err))
        return err->code;
    const struct text_prompt prompt[] = { { .text = g, .encoder = &encoder_clip_g },
                                          { .text = l, .encoder = &encoder_clip_l } };
    if (text_conditioning(c, prompt, 2, &text_set_sdxl, &x, err))
        return err->code;
    x->at[0].size = z;
    return out_conditioning(c, 0, x, err);
}

NODE_CLASS(CLIPTextEncodeSDXL, .category = "advanced/conditioning", V3("clip_sdxl"),
           INS(SOCKET("clip", "CLIP"), SIZE_IN(1024, 1024, 0, 0),
               INT_IN("crop_w", 0, 0, MAX_SIDE, 0), INT_IN("crop_h", 0, 0, MAX_SIDE, 0),
               INT_IN("target_width", 1024, 0, MAX_SIDE, 0),
               INT_IN("target_height", 1024, 0, MAX_SIDE, 0),
               TEXT_IN("text_g", NULL, .no_default = true, .more = PROMPT_TEXT),
               TEXT_IN("text_l", NULL, .no_default = true, .more = PROMPT_TEXT)),
           OUT_OF("CONDITIONING"), .run = run_sdxl);

static berth_status run_refiner(struct node_call *c, berth_err *err)
{
    struct diffusion_size z = { .said = true };
    const char *text;
    double score;
    struct conditioning *x;
    if (in_f64(c, "ascore", &score, err) || in_side(c, "width", &z.width, err) ||
        in_side(c, "height", &z.height, err) || in_text(c, "text", &text, err) ||
        text_conditioning(c, &(struct text_prompt) { .text = text }, 1, NULL, &x, err))
        return err->code;
    z.target_width = z.width;
    z.target_height = z.height;
    z.scored = true;
    z.aesthetic = (float)score;
    x->at[0].size = z;
    return out_conditioning(c, 0, x, err);
}

NODE_CLASS(CLIPTextEncodeSDXLRefiner, .category = "advanced/conditioning", V3("clip_sdxl"),
           INS(FLOAT_IN("ascore", 6.0, 0.0, 1000.0, 0.01), SIZE_IN(1024, 1024, 0, 0),
               TEXT_IN("text", NULL, .no_default = true, .more = PROMPT_TEXT),
               SOCKET("clip", "CLIP")),
           OUT_OF("CONDITIONING"), .run = run_refiner);

/* ---- PixArt Alpha: a prompt with the picture's size ---- */

static berth_status run_pixart(struct node_call *c, berth_err *err)
{
    struct diffusion_size z = { .said = true };
    const char *text;
    struct conditioning *x;
    if (in_side(c, "width", &z.width, err) || in_side(c, "height", &z.height, err) ||
        in_text(c, "text", &text, err) ||
        text_conditioning(c, &(struct text_prompt) { .text = text }, 1, NULL, &x, err))
        return err->code;
    z.target_width = z.width;
    z.target_height = z.height;
    x->at[0].size = z;
    return out_conditioning(c, 0, x, err);
}

NODE_CLASS(CLIPTextEncodePixArtAlpha, .display = "CLIP Text Encode (PixArt Alpha)",
           .category = "model/conditioning/pixart", V3("pixart"),
           .description = "Encodes text and sets the resolution conditioning for PixArt Alpha. "
                          "Does not apply to PixArt Sigma.",
           INS(SIZE_IN(1024, 1024, 0, 0),
               TEXT_IN("text", NULL, .no_default = true, .more = PROMPT_TEXT),
               SOCKET("clip", "CLIP")),
           OUT_OF("CONDITIONING"), .run = run_pixart);

/* ---- Flux: two prompts, and how closely they are followed ---- */

static berth_status run_flux(struct node_call *c, berth_err *err)
{
    const char *l, *t5;
    double guidance;
    struct conditioning *x;
    if (in_text(c, "clip_l", &l, err) || in_text(c, "t5xxl", &t5, err) ||
        in_f64(c, "guidance", &guidance, err))
        return err->code;
    const struct text_prompt prompt[] = { { .text = t5, .encoder = &encoder_t5 },
                                          { .text = l, .encoder = &encoder_clip_l } };
    if (text_conditioning(c, prompt, 2, &text_set_flux, &x, err))
        return err->code;
    x->at[0].guided = 1;
    x->at[0].guidance = guidance;
    return out_conditioning(c, 0, x, err);
}

NODE_CLASS(CLIPTextEncodeFlux, .category = "advanced/conditioning/flux", V3("flux"),
           INS(SOCKET("clip", "CLIP"),
               TEXT_IN("clip_l", NULL, .no_default = true, .more = PROMPT_TEXT),
               TEXT_IN("t5xxl", NULL, .no_default = true, .more = PROMPT_TEXT),
               FLOAT_IN("guidance", 3.5, 0.0, 100.0, 0.1)),
           OUT_OF("CONDITIONING"), .run = run_flux);

/* ---- clip skip ---- */

static berth_status run_last_layer(struct node_call *c, berth_err *err)
{
    int64_t layer;
    struct model_ref m;
    berth_status s = in_i64(c, "stop_at_clip_layer", &layer, err);
    if (!s && (layer < -24 || layer > -1))
        s = err_set(err, BERTH_EINVAL, "stop_at_clip_layer is %d, not -24 to -1", (int)layer);
    if (s || in_model_copy(c, "clip", &m, err))
        return err->code;
    m.said.clip_skip = (int)layer;
    return out_value(c, 0, value_model(&m), err);
}

NODE_CLASS(CLIPSetLastLayer, .display = "CLIP Set Last Layer", .category = "conditioning",
           .module = "nodes",
           INS(SOCKET("clip", "CLIP"), INT_IN("stop_at_clip_layer", -1, -24, -1, 1)),
           OUT_OF("CLIP"), .run = run_last_layer);

/* ---- how prompts of T5 are padded ---- */

#define PADDING_MAX 10000

static berth_status in_padding(const struct node_call *c, const char *input, uint32_t *out,
                               berth_err *err)
{
    int64_t n;
    if (in_i64(c, input, &n, err))
        return err->code;
    if (n < 0 || n > PADDING_MAX)
        return err_set(err, BERTH_EINVAL, "%s is %lld, not 0 to %d", input, (long long)n,
                       PADDING_MAX);
    *out = (uint32_t)n;
    return BERTH_OK;
}

static berth_status run_padding(struct node_call *c, berth_err *err)
{
    struct model_ref m;
    uint32_t padding, length;
    if (in_padding(c, "min_padding", &padding, err) || in_padding(c, "min_length", &length, err) ||
        in_model_copy(c, "clip", &m, err))
        return err->code;
    m.said.padded = true;
    m.said.min_padding = padding;
    m.said.min_length = length;
    return out_value(c, 0, value_model(&m), err);
}

NODE_CLASS(T5TokenizerOptions, .display = "T5 Tokenizer Options", .category = "model/conditioning",
           .module = MOD("cond"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("clip", "CLIP"), INT_IN("min_padding", 0, 0, PADDING_MAX, 1),
               INT_IN("min_length", 0, 0, PADDING_MAX, 1)),
           OUT_OF("CLIP"), .run = run_padding);
