/* encoder.c: a prompt through the encoders of a set: tokens, passes, weights against the empty
 * prompt (text-encoders.md 3, 6, 9). */
#include "model/encoder.h"

#include "base/log.h"
#include "base/str.h"
#include "base/sz.h"

#include <inttypes.h>
#include <string.h>

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "the conditioning of a prompt");
}

berth_status text_encoder_init(struct text_encoder *e, const struct weights *w,
                               const struct text_found *found, struct arena *mem, berth_err *err)
{
    *e = (struct text_encoder) { .is = found->is };
    e->config = arena_array(mem, 1, found->is->config_bytes);
    if (!e->config)
        return err_set(err, BERTH_ENOMEM, "a text encoder");
    return found->is->configure(w, found->root, e->config, err);
}

berth_status text_encoder_open(struct text_encoder *e, const char *root, struct net_args args,
                               berth_err *err)
{
    args.root = root;
    args.names = e->is->names;
    args.names_user = e->config;
    if (net_open(&args, &e->net, err))
        return err->code;
    return text_encoder_check(e, err);
}

struct work { /* an encoder of the set, and what it is given and gives */
    struct text_encoder *enc;
    const struct text_prompt *prompt;
    struct chunks in;
    struct text_result r;
};

static struct text_encoder *find_encoder(const struct text_args *a, const struct encoder_class *is)
{
    for (size_t i = 0; i < a->encoders; i++)
        if (a->enc[i].is == is)
            return &a->enc[i];
    return NULL;
}

/* Its own prompt, else the one for all; NULL: neither. */
static const struct text_prompt *prompt_for(const struct encoder_class *is,
                                            const struct text_prompt *prompt, size_t prompts)
{
    const struct text_prompt *for_all = NULL;
    for (size_t i = 0; i < prompts; i++) {
        if (prompt[i].encoder == is)
            return &prompt[i];
        if (!prompt[i].encoder)
            for_all = &prompt[i];
    }
    return for_all;
}

/* The text with what stands around it; NULL: out of memory. */
static const char *put(const struct text_use *use, const struct text_prompt *prompt,
                       struct arena *mem)
{
    const struct text_wording *w = use->wording;
    const struct chat_template *chat = prompt->chat;
    struct str all = { 0 };
    if (!chat && w)
        chat = prompt->pictures && w->chat_seen ? w->chat_seen : w->chat;
    if (!chat)
        return prompt->text;
    chat_fill(chat, prompt->text, strlen(prompt->text), &all);
    char *text = all.bad ? NULL : arena_strndup(mem, str_c(&all), all.n);
    str_release(&all);
    return text;
}

/* Can it be asked? */
static berth_status check_prompt(const struct text_encoder *e, const struct text_prompt *p,
                                 berth_err *err)
{
    const struct encoder_class *is = e->is;
    if (!p || !p->text)
        return err_set(err, BERTH_EINVAL, "no prompt for %s", is->name);
    if (p->pictures && (!is->sight || !is->sight->there(e->config)))
        return err_set(err, BERTH_EUNSUPPORTED, "%s sees no pictures%s", is->name,
                       is->sight ? ": its file has no vision tower" : "");
    return e->tok ? BERTH_OK : err_set(err, BERTH_EINVAL, "no tokenizer for %s", is->name);
}

/* text: the prompt with what stands around it; NULL: out of memory. */
static berth_status tokenize(const struct text_args *a, struct work *k, const char *text,
                             uint32_t min_length, struct arena *mem, berth_err *err)
{
    const struct encoder_class *is = k->enc->is;
    const struct text_use *use = k->r.use;
    struct token_ids ids = is->tokenizer->ids(k->enc->tok);
    struct chunk_rules rules = { .start = ids.start, .end = ids.end, .pad = ids.pad };
    if (is->rules)
        is->rules(k->enc->config, &rules);
    if (min_length)
        rules.min_length = min_length;
    if (is->takes_padding && a->padding.said) {
        rules.min_length = a->padding.min_length;
        rules.min_padding = a->padding.min_padding;
    }
    rules.pad_left = use->pad_left;
    rules.without = k->prompt ? k->prompt->without : 0;
    rules.plain = use->wording && !use->wording->weights;
    if (!text)
        return no_memory(err);
    return text_chunks(text, strlen(text), is->tokenizer->encode, k->enc->tok, &rules, is->key,
                       !use->wording || use->wording->embeddings ? a->emb : NULL, mem, &k->in, err);
}

/* n chunks, those behind the prompt's own being the empty prompt's. */
static berth_status extend(struct chunks *c, size_t n, struct arena *mem, berth_err *err)
{
    struct token **chunk = arena_array(mem, n, sizeof *chunk), *empty;
    size_t *len = arena_array(mem, n, sizeof *len);
    if (!chunk || !len)
        return no_memory(err);
    if (text_empty_chunk(&c->rules, c->len[0], mem, &empty, err))
        return err->code;
    memcpy(chunk, c->chunk, c->n * sizeof *chunk);
    for (size_t i = 0; i < n; i++) {
        len[i] = c->len[0];
        if (i >= c->n)
            chunk[i] = empty;
    }
    *c = (struct chunks) { .chunk = chunk, .len = len, .n = n, .rules = c->rules };
    return BERTH_OK;
}

static bool has_weights(const struct chunks *c)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->len[i]; k++)
            if (c->chunk[i][k].weight != 1.0)
                return true;
    return false;
}

/* z = (z - empty) * weight + empty, where a weight is not 1. */
static void apply_weights(const struct work *k, const float *empty)
{
    size_t len = k->in.len[0], width = k->r.width;
    for (size_t i = 0; i < k->in.n; i++)
        for (size_t t = 0; t < len; t++) {
            double weight = k->in.chunk[i][t].weight;
            float w = (float)weight, *z = k->r.z + (i * len + t) * width;
            const float *e = empty + t * width;
            for (size_t x = 0; weight != 1.0 && x < width; x++)
                z[x] = (z[x] - e[x]) * w + e[x];
        }
}

static void warn_one(const struct log *log, const struct work *k, const struct token *t, size_t n)
{
    if (t)
        log_warn(log, "text.embedding",
                 "what=width name=\"%.200s\" ignored=%zu has=%" PRIu32 " width=%zu encoder=%s",
                 t->embedding, n, t->width, k->r.width, k->enc->is->name);
}

/* Embeddings of another width are left out, as in ComfyUI: a warning for each time one is named. */
static void warn_ignored(const struct log *log, const struct work *w)
{
    const struct token *last = NULL;
    size_t n = 0;
    for (size_t i = 0; i < w->in.n; i++)
        for (size_t k = 0; k < w->in.len[i]; k++) {
            const struct token *t = &w->in.chunk[i][k];
            if (!t->vector || t->width == w->r.width)
                continue;
            if (last && last->embedding == t->embedding) {
                n++;
                continue;
            }
            warn_one(log, w, last, n);
            last = t;
            n = 1;
        }
    warn_one(log, w, last, n);
}

/* NULL where all is text. */
static berth_status make_mask(struct text_result *r, const uint8_t *shown, struct arena *mem,
                              berth_err *err)
{
    if (!memchr(shown, 0, r->rows))
        return BERTH_OK;
    if (!(r->mask = arena_array(mem, r->rows, sizeof *r->mask)))
        return no_memory(err);
    for (size_t i = 0; i < r->rows; i++)
        r->mask[i] = shown[i];
    return BERTH_OK;
}

/* Leaves out the rows in front of what the set wants to keep. */
static void cut(struct work *k)
{
    struct text_result *r = &k->r;
    size_t first = r->use->cut && r->z ? r->use->cut(k->in.chunk[0], k->in.len[0]) : 0;
    if (!first)
        return;
    if (first >= r->rows)
        BUG("row %zu of %zu", first, r->rows);
    size_t kept = r->rows - first;
    for (size_t t = 0; t < r->taps; t++)
        memmove(r->z + t * kept * r->width, r->z + (t * r->rows + first) * r->width,
                kept * r->width * sizeof *r->z);
    r->rows = kept;
    r->mask = r->mask ? r->mask + first : NULL;
}

/* ---- passes ---- */

/* All chunks, and the empty prompt's behind them where there are weights. Its net is open. */
static berth_status run(const struct text_args *a, struct work *k, struct arena *mem,
                        berth_err *err)
{
    struct text_result *r = &k->r;
    struct encoder_size size = k->enc->is->size(k->enc->config);
    struct encoder_job job = { .want = r->use->want, .hides_pads = r->use->hides_pads };
    bool weighted = r->use->cond && has_weights(&k->in);
    if (text_encoder_see(k->enc, k->prompt->picture, k->prompt->pictures, &k->in, &job, mem, err))
        return err->code;
    struct chunks all = k->in;
    size_t n, len = k->in.len[0];
    if (a->skip)
        job.want.layer = a->skip;
    r->rows = k->in.n * len;
    r->taps = encoder_taps(&job.want, &size);
    if (weighted && extend(&all, k->in.n + 1, mem, err))
        return err->code;
    if (!sz_mul(all.n * len, r->width, &n) || !sz_mul(n, r->taps, &n) ||
        (r->use->mask && !(job.shown = arena_alloc(mem, all.n * len))) ||
        (r->use->cond && !(r->z = arena_array(mem, n, sizeof *r->z))) ||
        (r->use->pooled && !(r->pooled = arena_array(mem, r->width, sizeof *r->pooled))))
        return no_memory(err);
    job.in = &all;
    job.z = r->z;
    job.pooled = r->pooled;
    if (text_encoder_do(k->enc, &job, err))
        return err->code;
    if (job.dropped && a->emb)
        warn_ignored(a->emb->log, k);
    if (weighted)
        apply_weights(k, r->z + r->rows * r->width);
    return job.shown ? make_mask(r, job.shown, mem, err) : BERTH_OK;
}

static berth_status encode(const struct text_args *a, struct work *k, struct arena *mem,
                           berth_err *err)
{
    if (a->begin && a->begin(a->user, k->enc, err))
        return err->code;
    berth_status s = run(a, k, mem, err);
    if (a->end)
        a->end(a->user, k->enc);
    if (s)
        return err_add(err, "%s", k->enc->is->name);
    cut(k);
    return BERTH_OK;
}

berth_status text_join_columns(const struct text_result *r, size_t n, struct arena *mem,
                               struct text_cond *out, berth_err *err)
{
    *out = (struct text_cond) { .tokens = SIZE_MAX };
    size_t columns = 0, all, at = 0;
    for (size_t i = 0; i < n; i++) {
        if (r[i].pooled) {
            out->pooled = r[i].pooled;
            out->pooled_n = r[i].width;
        }
        if (!r[i].z)
            continue;
        out->tokens = r[i].rows < out->tokens ? r[i].rows : out->tokens;
        out->width += r[i].width;
        out->cond = r[i].z;
        out->mask = r[i].mask;
        columns++;
    }
    if (columns == 1)
        return BERTH_OK;
    if (!sz_mul(out->tokens, out->width, &all) ||
        !(out->cond = arena_array(mem, all, sizeof *out->cond)))
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        for (size_t row = 0; r[i].z && row < out->tokens; row++)
            memcpy(out->cond + row * out->width + at, r[i].z + row * r[i].width,
                   r[i].width * sizeof *out->cond);
        at += r[i].z ? r[i].width : 0;
    }
    return BERTH_OK;
}

berth_status text_join_taps(const struct text_result *r, size_t n, struct arena *mem,
                            struct text_cond *out, berth_err *err)
{
    size_t all, width = r->width;
    if (n != 1 || !r->z)
        BUG("taps of %zu encoders", n);
    *out = (struct text_cond) { .tokens = r->rows, .width = r->taps * width, .mask = r->mask };
    if (!sz_mul(out->tokens, out->width, &all) ||
        !(out->cond = arena_array(mem, all, sizeof *out->cond)))
        return no_memory(err);
    for (size_t row = 0; row < r->rows; row++)
        for (size_t t = 0; t < r->taps; t++)
            memcpy(out->cond + row * out->width + t * width, r->z + (t * r->rows + row) * width,
                   width * sizeof *out->cond);
    return BERTH_OK;
}

berth_status text_encode(const struct text_args *a, const struct text_prompt *prompt,
                         size_t prompts, struct arena *mem, struct text_cond *out, berth_err *err)
{
    const struct text_set *set = a->set;
    struct work work[TEXT_ENCODERS_MAX] = { 0 };
    struct text_result result[TEXT_ENCODERS_MAX];
    size_t n = 0, most = 0;
    *out = (struct text_cond) { 0 };
    for (const struct text_use *use = set->use; use->encoder; use++) {
        struct work *k = &work[n++];
        k->enc = find_encoder(a, use->encoder);
        if (!k->enc)
            return err_set(err, BERTH_EINVAL, "%s needs %s, which is not among its text encoders",
                           set->name, use->encoder->name);
        k->r = (struct text_result) { .use = use,
                                      .width = (size_t)use->encoder->size(k->enc->config).width };
        k->prompt = prompt_for(use->encoder, prompt, prompts);
        if (check_prompt(k->enc, k->prompt, err) ||
            tokenize(a, k, put(use, k->prompt, mem), use->min_length, mem, err))
            return err->code;
        most = k->in.n > most ? k->in.n : most;
    }
    for (size_t i = 0; i < n; i++) {
        struct work *k = &work[i];
        if (prompts > 1 && set->fill_up && k->in.n < most && extend(&k->in, most, mem, err))
            return err->code;
        if (encode(a, k, mem, err))
            return err->code;
        result[i] = k->r;
    }
    return set->join(result, n, mem, out, err);
}

/* ---- answers ---- */

static bool is_whole(const struct text_speech *s, const struct text_ask *ask, const char *text)
{
    for (const char *const *begin = s->unless; begin && *begin; begin++)
        if (str_starts(text, strlen(text), *begin))
            return true;
    return ask->bare && !s->always;
}

/* The text as a turn of a conversation; NULL: out of memory. */
static const char *put_question(const struct text_speech *s, const struct text_ask *ask,
                                const struct text_prompt *p, struct arena *mem)
{
    struct str all = { 0 };
    if (is_whole(s, ask, p->text))
        return p->text;
    str_adds(&all, p->pictures && s->seen ? s->seen : s->before);
    for (size_t i = 0; i < p->pictures; i++)
        str_adds(&all, s->picture);
    str_adds(&all, p->text);
    str_adds(&all, ask->thinking && s->after_thinking ? s->after_thinking : s->after);
    char *text = all.bad ? NULL : arena_strndup(mem, str_c(&all), all.n);
    str_release(&all);
    return text;
}

/* Its net is open. */
static berth_status answer(struct work *k, const struct text_ask *ask, struct arena *mem,
                           struct vec *ids, berth_err *err)
{
    struct encoder_job job = { .in = &k->in };
    return text_encoder_see(k->enc, k->prompt->picture, k->prompt->pictures, &k->in, &job, mem, err)
               ? err->code
               : k->enc->is->speech->speak(k->enc, &job, &ask->how, ids, err);
}

berth_status text_answer(const struct text_args *a, const struct text_prompt *prompt,
                         const struct text_ask *ask, struct vec *ids, berth_err *err)
{
    const struct text_set *set = a->set;
    struct arena mem = { 0 };
    struct text_prompt p = *prompt;
    struct work k = { .enc = find_encoder(a, set->use[0].encoder), .prompt = &p };
    if (!k.enc || !set->speech || !k.enc->is->speech || !k.enc->is->speech->there(k.enc->config))
        return err_set(err, BERTH_EUNSUPPORTED, "%s writes no text",
                       k.enc ? k.enc->is->name : set->name);
    k.r.use = &set->use[0];
    if (!set->speech->picture)
        p.pictures = 0; /* not looked at, as in the reference */
    uint32_t least = set->speech->min_length ? set->speech->min_length : 1;
    berth_status s = check_prompt(k.enc, &p, err);
    if (!s)
        s = tokenize(a, &k, put_question(set->speech, ask, &p, &mem), least, &mem, err);
    if (!s && !(a->begin && (s = a->begin(a->user, k.enc, err)))) {
        s = answer(&k, ask, &mem, ids, err);
        if (a->end)
            a->end(a->user, k.enc);
    }
    if (s)
        err_add(err, "%s", k.enc->is->name);
    arena_release(&mem);
    return s;
}
