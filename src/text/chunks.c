/* chunks.c: a prompt to what an encoder takes at a time (text-encoders.md 2 and 3). */
#include "base/log.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <math.h>
#include <string.h>

#define REFERENCE "embedding:"
#define REFERENCE_LEN (sizeof REFERENCE - 1)
#define PLAIN_LENGTH 77 /* of a chunk, for the limit of those that have none */
#define WORD_MAX 8      /* tokens; a group of as many may be cut, a smaller one stays together */

struct known {        /* an embedding that was asked for, also one that is not there */
    const char *name; /* in the prompt's parts */
    size_t n;
    bool found;
    const char *copy; /* of a found one, in the arena, ends with NUL */
    const float *v;
    uint32_t count, width;
};

struct reading { /* one prompt */
    text_encode_fn *encode;
    const void *tok;
    const char *key;
    const struct text_embeddings *emb;
    struct arena *mem;
    struct vec token; /* struct token, of all groups */
    struct vec group; /* size_t, number of tokens up to its end */
    struct vec ids;   /* int32_t, scratch */
    struct vec known; /* struct known: a file is read once, however often it is referred to */
    size_t most;      /* tokens of TEXT_CHUNKS_MAX full chunks */
};

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "the tokens of a prompt");
}

static berth_status too_long(berth_err *err)
{
    return err_set(err, BERTH_ELIMIT, "a prompt of more than %d chunks", TEXT_CHUNKS_MAX);
}

static berth_status end_group(struct reading *r, berth_err *err)
{
    return vec_push(&r->group, &r->token.n) ? BERTH_OK : no_memory(err);
}

static berth_status add_text(struct reading *r, const char *s, size_t n, double weight,
                             berth_err *err)
{
    r->ids.n = 0;
    if (r->encode(r->tok, s, n, &r->ids, err))
        return err->code;
    if (r->ids.n > r->most - r->token.n)
        return too_long(err);
    for (size_t i = 0; i < r->ids.n; i++) {
        const struct token t = { .id = *(int32_t *)vec_at(&r->ids, i), .weight = weight };
        if (!vec_push(&r->token, &t))
            return no_memory(err);
    }
    return end_group(r, err);
}

/* ---- embedding:name ---- */

/* The embedding of that name. A missing file gives a warning and nothing else, as in ComfyUI; one
 * that cannot be read is an error, because without it the picture would be another one. */
static berth_status look_up(struct reading *r, const char *name, size_t n, struct known *out,
                            berth_err *err)
{
    for (size_t i = 0; i < r->known.n; i++) {
        const struct known *k = vec_at(&r->known, i);
        if (k->n == n && memcmp(k->name, name, n) == 0) {
            *out = *k;
            return BERTH_OK;
        }
    }
    *out = (struct known) { .name = name, .n = n };
    berth_status s = n ? r->emb->find(r->emb->user, name, n, r->key, r->mem, &out->v, &out->count,
                                      &out->width, err)
                       : err_set(err, BERTH_ENOTFOUND, "no name");
    if (s && s != BERTH_ENOTFOUND)
        return s;
    out->found = s == BERTH_OK;
    if (out->found && !(out->copy = arena_strndup(r->mem, name, n)))
        return no_memory(err);
    return vec_push(&r->known, out) ? BERTH_OK : no_memory(err);
}

static berth_status add_vectors(struct reading *r, const char *name, size_t n, double weight,
                                bool *found, berth_err *err)
{
    struct known k;
    *found = false;
    if (look_up(r, name, n, &k, err))
        return err->code;
    if (!k.found)
        return BERTH_OK;
    *found = true;
    if (k.count > r->most - r->token.n)
        return too_long(err);
    for (uint32_t i = 0; i < k.count; i++) {
        const struct token t = { .id = -1,
                                 .weight = weight,
                                 .vector = k.v + (size_t)i * k.width,
                                 .width = k.width,
                                 .embedding = k.copy };
        if (!vec_push(&r->token, &t))
            return no_memory(err);
    }
    return end_group(r, err);
}

/* Bytes of the space, as str.split() sees it, at s; 0: none there. */
static size_t space_at(const char *s, size_t n)
{
    size_t len;
    uint32_t c = uc_point(s, n, &len);
    return len && uc_isspace(c) ? len : 0;
}

static size_t word_at(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && !space_at(s + i, n - i))
        i++;
    return i;
}

/* Appends the words of s with single blanks between them. Returns the new end. */
static char *join_words(char *to, const char *s, size_t n)
{
    bool first = true;
    for (size_t i = 0, len; i < n;) {
        if ((len = space_at(s + i, n - i))) {
            i += len;
            continue;
        }
        len = word_at(s + i, n - i);
        if (!first)
            *to++ = ' ';
        first = false;
        memcpy(to, s + i, len);
        to += len;
        i += len;
    }
    return to;
}

/* Bytes of a name: a word, up to where a token ("<|im_end|>", "[/INST]") may stand behind it. */
static size_t name_at(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] != '<' && s[i] != '[' && !space_at(s + i, n - i))
        i++;
    return i;
}

/* s: what follows "embedding:". A name with commas around it is also tried without them; the rest
 * of the piece is text. */
static berth_status add_reference(struct reading *r, const char *s, size_t n, double weight,
                                  berth_err *err)
{
    size_t skip = 0, len;
    while (skip < n && (len = space_at(s + skip, n - skip)))
        skip += len;
    s += skip, n -= skip;
    size_t name = name_at(s, n);
    bool found;
    if (add_vectors(r, s, name, weight, &found, err))
        return err->code;
    char *left = arena_alloc(r->mem, n + 2), *to = left; /* commas, a blank, words */
    if (!left)
        return no_memory(err);
    if (!found) {
        size_t from = 0, end = name;
        while (from < end && s[from] == ',')
            from++;
        while (end > from && s[end - 1] == ',')
            end--;
        size_t bare = end - from;
        if (bare < name) {
            if (add_vectors(r, s + from, bare, weight, &found, err))
                return err->code;
            memcpy(to, s + bare, name - bare); /* the reference cuts by length alone, too */
            to += name - bare;
            *to++ = ' ';
        }
    }
    if (!found)
        log_warn(r->emb->log, "text.embedding", "what=missing name=\"%.*s\"",
                 (int)(name < 200 ? name : 200), s);
    to = join_words(to, s + name, n - name);
    return to > left ? add_text(r, left, (size_t)(to - left), weight, err) : BERTH_OK;
}

static berth_status add_piece(struct reading *r, const char *s, size_t n, double weight,
                              berth_err *err)
{
    if (n == 0)
        return BERTH_OK;
    if (r->emb && n >= REFERENCE_LEN && memcmp(s, REFERENCE, REFERENCE_LEN) == 0)
        return add_reference(r, s + REFERENCE_LEN, n - REFERENCE_LEN, weight, err);
    return add_text(r, s, n, weight, err);
}

/* Cut in front of every reference that white space announces, which stays where it is. */
static berth_status add_part(struct reading *r, const struct text_part *p, berth_err *err)
{
    size_t from = 0;
    for (size_t i = 0, len; i + 1 + REFERENCE_LEN <= p->n; i += len ? len : 1) {
        len = space_at(p->text + i, p->n - i);
        size_t next = i + len;
        if (!len || p->n - next < REFERENCE_LEN ||
            memcmp(p->text + next, REFERENCE, REFERENCE_LEN) != 0)
            continue;
        if (add_piece(r, p->text + from, next - from, p->weight, err))
            return err->code;
        from = next;
    }
    return add_piece(r, p->text + from, p->n - from, p->weight, err);
}

/* ---- cutting ---- */

struct cutting {
    const struct chunk_rules *rules;
    struct arena *mem;
    struct vec open;   /* struct token: the chunk being filled */
    struct vec chunk;  /* struct token *, finished ones */
    struct vec length; /* size_t, theirs */
};

static bool add_tokens(struct vec *v, const struct token *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!vec_push(v, &t[i]))
            return false;
    return true;
}

static bool add_special(struct vec *v, int32_t id, size_t times)
{
    struct token t = { .id = id, .weight = 1.0 };
    for (size_t i = 0; id >= 0 && i < times; i++)
        if (!vec_push(v, &t))
            return false;
    return true;
}

/* Padding of the open chunk, on the side where the rules want it. */
static bool add_padding(struct cutting *c, size_t times)
{
    size_t n = c->open.n;
    if (!add_special(&c->open, c->rules->pad, times))
        return false;
    struct token *t = c->open.p;
    if (!c->rules->pad_left || times == 0 || n == 0)
        return true;
    const struct token pad = t[n];
    memmove(t + times, t, n * sizeof *t);
    for (size_t i = 0; i < times; i++)
        t[i] = pad;
    return true;
}

static berth_status close_chunk(struct cutting *c, berth_err *err)
{
    if (c->chunk.n >= TEXT_CHUNKS_MAX)
        return too_long(err);
    struct token *t = arena_array(c->mem, c->open.n, sizeof *t);
    if (!t || !vec_push(&c->chunk, &t) || !vec_push(&c->length, &c->open.n))
        return no_memory(err);
    memcpy(t, c->open.p, c->open.n * sizeof *t);
    c->open.n = 0;
    return add_special(&c->open, c->rules->start, 1) ? BERTH_OK : no_memory(err);
}

static berth_status add_group(struct cutting *c, const struct token *t, size_t n, berth_err *err)
{
    const struct chunk_rules *r = c->rules;
    size_t room = r->max_length ? r->max_length - (r->end >= 0) : SIZE_MAX;
    bool large = n >= WORD_MAX;
    while (n > 0 && c->open.n + n > room) {
        size_t left = room - c->open.n, now = large ? left : 0;
        if (!add_tokens(&c->open, t, now) || !add_special(&c->open, r->end, 1) ||
            (!large && r->pad_to_max && !add_padding(c, left)))
            return no_memory(err);
        t += now;
        n -= now;
        if (close_chunk(c, err))
            return err->code;
    }
    return add_tokens(&c->open, t, n) ? BERTH_OK : no_memory(err);
}

static berth_status finish(struct cutting *c, struct chunks *out, berth_err *err)
{
    const struct chunk_rules *r = c->rules;
    if (!add_special(&c->open, r->end, 1) || (r->min_padding && !add_padding(c, r->min_padding)))
        return no_memory(err);
    size_t want = r->pad_to_max && r->max_length > r->min_length ? r->max_length : r->min_length;
    if (c->open.n < want && !add_padding(c, want - c->open.n))
        return no_memory(err);
    if (close_chunk(c, err))
        return err->code;
    size_t n = c->chunk.n;
    *out = (struct chunks) { .chunk = arena_array(c->mem, n, sizeof *out->chunk),
                             .len = arena_array(c->mem, n, sizeof *out->len),
                             .n = n,
                             .rules = *r };
    if (!out->chunk || !out->len)
        return no_memory(err);
    memcpy(out->chunk, c->chunk.p, n * sizeof *out->chunk);
    memcpy(out->len, c->length.p, n * sizeof *out->len);
    return BERTH_OK;
}

static berth_status cut(const struct reading *r, const struct chunk_rules *rules,
                        struct chunks *out, berth_err *err)
{
    struct cutting c = { .rules = rules,
                         .mem = r->mem,
                         .open.elem = sizeof(struct token),
                         .chunk.elem = sizeof(struct token *),
                         .length.elem = sizeof(size_t) };
    berth_status s = add_special(&c.open, rules->start, 1) ? BERTH_OK : no_memory(err);
    size_t from = 0;
    for (size_t i = 0; !s && i < r->group.n; i++) {
        size_t end = *(size_t *)vec_at(&r->group, i);
        if (end > from && i + 1 != rules->without)
            s = add_group(&c, vec_at(&r->token, from), end - from, err);
        from = end;
    }
    if (!s)
        s = finish(&c, out, err);
    vec_release(&c.open);
    vec_release(&c.chunk);
    vec_release(&c.length);
    return s;
}

/* ---- public ---- */

/* A chunk must have room for a group that is not cut (7 tokens, start and end), or that group would
 * never fit. */
static berth_status check_rules(const struct chunk_rules *r, berth_err *err)
{
    if (r->pad < 0 || (r->max_length && r->max_length < WORD_MAX + 1))
        return err_set(err, BERTH_EINVAL, "chunks of %u tokens padded with %d", r->max_length,
                       (int)r->pad);
    return BERTH_OK;
}

/* float() takes inf and nan; in an encoder they would turn the whole prompt into NaN. */
static berth_status check_weights(const struct vec *parts, berth_err *err)
{
    for (size_t i = 0; i < parts->n; i++) {
        const struct text_part *p = vec_at(parts, i);
        if (!isfinite((float)p->weight))
            return err_set(err, BERTH_EINVAL,
                           "'(%.40s:%g)' in a prompt: a weight that is no number", p->text,
                           p->weight);
    }
    return BERTH_OK;
}

berth_status text_chunks(const char *prompt, size_t n, text_encode_fn *encode, const void *tok,
                         const struct chunk_rules *rules, const char *key,
                         const struct text_embeddings *emb, struct arena *mem, struct chunks *out,
                         berth_err *err)
{
    if (check_rules(rules, err))
        return err->code;
    struct vec parts = { .elem = sizeof(struct text_part) };
    struct reading r = { .encode = encode,
                         .tok = tok,
                         .key = key,
                         .emb = emb,
                         .mem = mem,
                         .token.elem = sizeof(struct token),
                         .group.elem = sizeof(size_t),
                         .ids.elem = sizeof(int32_t),
                         .known.elem = sizeof(struct known),
                         .most = (size_t)TEXT_CHUNKS_MAX *
                                 (rules->max_length ? rules->max_length : PLAIN_LENGTH) };
    berth_status s = rules->plain ? text_whole(prompt, n, mem, &parts, err)
                                  : text_parts(prompt, n, mem, &parts, err);
    if (!s)
        s = check_weights(&parts, err);
    for (size_t i = 0; !s && i < parts.n; i++)
        s = add_part(&r, vec_at(&parts, i), err);
    if (!s)
        s = cut(&r, rules, out, err);
    vec_release(&parts);
    vec_release(&r.token);
    vec_release(&r.group);
    vec_release(&r.ids);
    vec_release(&r.known);
    return s;
}

berth_status text_empty_chunk(const struct chunk_rules *rules, size_t length, struct arena *mem,
                              struct token **out, berth_err *err)
{
    struct token *t = arena_array(mem, length, sizeof *t);
    if (!t)
        return no_memory(err);
    size_t n = 0;
    if (rules->start >= 0 && n < length)
        t[n++] = (struct token) { .id = rules->start, .weight = 1.0 };
    if (rules->end >= 0 && n < length)
        t[n++] = (struct token) { .id = rules->end, .weight = 1.0 };
    while (n < length)
        t[n++] = (struct token) { .id = rules->pad, .weight = 1.0 };
    *out = t;
    return BERTH_OK;
}
