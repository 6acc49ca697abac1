/* weight_mix.c: see weight_mix.h. */
#include "node/weight_mix.h"

#include "base/hash.h"
#include "base/map.h"
#include "format/layout.h"
#include "merge/merge.h"
#include "plan/convert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct source { /* a part of the other model */
    struct weights *w;
    struct map tensors;      /* key -> its entry in w, as a number */
    struct res_patch *patch; /* its own adapters */
    size_t patches;
};

struct weight_mix {
    struct res_adapter base;
    enum mix_kind kind;
    struct source source[VALUE_PARTS], base_source[VALUE_PARTS]; /* the other's, MIX_TOWARDS */
    size_t sources, base_sources;
    struct mix_rule *rule;
    size_t rules;
    bool endings;
    size_t front;
    double otherwise;
    struct arena mem; /* keys, rules, the name */
};

static const struct weight_mix *mix_of(const struct res_adapter *a)
{
    return (const struct weight_mix *)(const void *)a;
}

/* ---- which ---- */

/* The ratio for a key; false: it is left alone. */
static bool ratio_of(const struct weight_mix *x, const char *key, size_t n, double *out)
{
    size_t best = 0;
    *out = x->otherwise;
    for (size_t i = 0; i < x->rules; i++) {
        const char *text = x->rule[i].text;
        size_t len = strlen(text), front = x->front < n ? x->front : n;
        bool fits = x->endings ? str_ends(key, n, text) : str_starts(key + front, n - front, text);
        if (fits && len > best) {
            best = len;
            *out = x->rule[i].ratio;
        }
    }
    return best || x->kind != MIX_SCALE;
}

/* What counts at a merge, not as weights. */
static bool is_beside(const char *key, size_t n)
{
    return str_ends(key, n, ".position_ids") || str_ends(key, n, ".logit_scale");
}

static const struct weights_entry *find_in(const struct source *s, size_t sources, const char *key,
                                           size_t n, const struct source **from)
{
    uint64_t at;
    for (size_t i = 0; i < sources; i++)
        if (map_get(&s[i].tensors, key, n, &at)) {
            *from = &s[i];
            return (const struct weights_entry *)(uintptr_t)at;
        }
    return NULL;
}

/* The other's tensor; NULL: it has none of this name. */
static const struct weights_entry *find(const struct weight_mix *x, const char *key, size_t n,
                                        const struct source **from)
{
    return find_in(x->source, x->sources, key, n, from);
}

static bool mix_touches(const struct res_adapter *a, const char *key, size_t n)
{
    const struct weight_mix *x = mix_of(a);
    const struct source *from;
    double ratio;
    if (is_beside(key, n) || !ratio_of(x, key, n, &ratio))
        return false;
    return x->kind == MIX_SCALE ? ratio != 1 : find(x, key, n, &from) != NULL;
}

/* ---- how ---- */

/* The other's tensor as F32, with its own adapters. */
static berth_status read_other(const struct source *from, const struct weights_entry *e,
                               const char *key, size_t n, struct res_term *t, struct arena *tmp,
                               berth_err *err)
{
    struct merge m = { .from = &merge_plain, .to = &merge_plain };
    struct vec terms = { .elem = sizeof(struct res_term) };
    const bool scaled = e->layout; /* its numbers are not its values */
    float *dense = NULL;
    void *raw = NULL;
    if (merge_matrix(&e->shape, &m.rows, &m.cols)) {
        const size_t all = (size_t)(m.rows * m.cols);
        raw = scaled ? arena_array(tmp, all, sizeof *dense) : arena_array(tmp, (size_t)e->size, 1);
        dense = arena_array(tmp, all, sizeof *dense);
    }
    if (!dense || !raw || !dtype_desc(e->dtype)->to_f32)
        return err_set(err, dense && raw ? BERTH_EUNSUPPORTED : BERTH_ENOMEM,
                       "'%.80s' of %" PRIu64 " bytes and type %s", e->name, e->size,
                       dtype_name(e->dtype));
    berth_status s = scaled ? layout_values(from->w, e, raw, err)
                            : weights_read(from->w, e, 0, raw, (size_t)e->size, err);
    for (size_t i = 0; !s && i < from->patches; i++) {
        const struct res_adapter *a = from->patch[i].adapter;
        if (from->patch[i].strength != 0 && a->ops->touches(a, key, n))
            s = a->ops->terms(a, key, n, &e->shape, from->patch[i].strength, tmp, &terms, err);
    }
    if (!s && merge_take(&m, &terms, 0, tmp, err))
        s = err_add(err, "'%.80s'", e->name);
    const struct merge_plain stored = merge_numbers(scaled ? DT_F32 : e->dtype, raw);
    struct merge_plain plain = merge_numbers(DT_F32, dense);
    m.base = &stored;
    m.result = &plain;
    if (!s) {
        merge_norms(&m, NULL);
        merge_run(&m, NULL);
    }
    vec_release(&terms);
    t->dense = dense;
    return s;
}

static berth_status add_term(struct vec *out, struct res_term t, berth_err *err)
{
    return vec_push(out, &t) ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a term");
}

/* dense -= the tensor as the base's file has it. */
static berth_status less_base(const struct weight_mix *x, const char *key, size_t n,
                              const struct shape *shape, struct res_term *t, struct arena *tmp,
                              berth_err *err)
{
    struct res_term mine = { 0 };
    const struct source *from;
    const struct weights_entry *e = find_in(x->base_source, x->base_sources, key, n, &from);
    if (!e || !shape_eq(&e->shape, shape))
        return err_set(err, BERTH_EFORMAT, "'%.80s' is not in the model's file as it was", key);
    if (read_other(from, e, key, n, &mine, tmp, err))
        return err->code;
    float *diff = arena_array(tmp, (size_t)(t->rows * t->cols), sizeof *diff);
    if (!diff)
        return err_set(err, BERTH_ENOMEM, "'%.80s' of two models", key);
    for (size_t i = 0; i < t->rows * t->cols; i++)
        diff[i] = t->dense[i] - mine.dense[i];
    t->dense = diff;
    return BERTH_OK;
}

static berth_status mix_terms(const struct res_adapter *a, const char *key, size_t n,
                              const struct shape *shape, float strength, struct arena *tmp,
                              struct vec *out, berth_err *err)
{
    const struct weight_mix *x = mix_of(a);
    char mine[SHAPE_TEXT_MAX], theirs[SHAPE_TEXT_MAX];
    struct res_term t = { .kind = TERM_SCALE };
    const struct source *from = NULL;
    double r;
    if (!ratio_of(x, key, n, &r) || !merge_matrix(shape, &t.rows, &t.cols))
        return BERTH_OK;
    /* Strength is 1 except for MIX_TOWARDS. */
    t.scale = x->kind == MIX_ADD || x->kind == MIX_TOWARDS ? 1 : (float)r;
    if (t.scale != 1 && add_term(out, t, err))
        return err->code;
    const struct weights_entry *e = x->kind == MIX_SCALE ? NULL : find(x, key, n, &from);
    if (!e)
        return BERTH_OK;
    if (!shape_eq(&e->shape, shape))
        return err_set(err, BERTH_EFORMAT, "'%.80s' is %s here and %s there: no merge of such two",
                       key, shape_text(shape, mine), shape_text(&e->shape, theirs));
    t.kind = TERM_ADD;
    t.scale = x->kind == MIX_ADD        ? 1
              : x->kind == MIX_TOWARDS  ? strength
              : x->kind == MIX_SUBTRACT ? (float)-r
                                        : (float)(1 - r);
    if (t.scale == 0)
        return BERTH_OK;
    if (read_other(from, e, key, n, &t, tmp, err) ||
        (x->kind == MIX_TOWARDS && less_base(x, key, n, shape, &t, tmp, err)))
        return err->code;
    return add_term(out, t, err);
}

static void sources_free(struct source *s, size_t sources)
{
    for (size_t i = 0; i < sources; i++) {
        weights_close(s[i].w);
        map_release(&s[i].tensors);
        for (size_t k = 0; k < s[i].patches; k++)
            res_adapter_unref(s[i].patch[k].adapter);
    }
}

static void mix_free(struct res_adapter *a)
{
    struct weight_mix *x = (struct weight_mix *)(void *)a;
    sources_free(x->source, x->sources);
    sources_free(x->base_source, x->base_sources);
    arena_release(&x->mem);
    free(x);
}

static const struct res_adapter_ops ops = { .touches = mix_touches,
                                            .terms = mix_terms,
                                            .free = mix_free };

/* ---- making one ---- */

/* Tensors of a part, which may be one of several in its file, under the names everybody calls
 * them. */
static berth_status add_tensors(struct weight_mix *x, struct source *to, struct res_model *m,
                                berth_err *err)
{
    const struct blocks *b = res_blocks(m);
    for (size_t i = 0; i < b->tensors; i++) {
        const struct weights_entry *own = b->tensor[i].entry;
        const struct weights_entry *e = weights_find(to->w, own->name, own->name_len);
        char key[RES_KEY_MAX];
        size_t n = res_tensor_key(m, own, key);
        const char *copy = e ? arena_strndup(&x->mem, key, n) : NULL;
        if (e && (!copy || map_add(&to->tensors, copy, n, (uintptr_t)e) == MAP_NOMEM))
            return err_set(err, BERTH_ENOMEM, "%zu names of tensors", b->tensors);
    }
    return BERTH_OK;
}

/* patched: with what adapters make of it. */
static berth_status add_source(struct weight_mix *x, const struct model_ref *ref, size_t part,
                               bool patched, struct source *to, size_t *count, berth_err *err)
{
    struct res_model *m = ref->part[part];
    struct source *s = &to[*count];
    struct res_model_info info = res_info(m);
    const char *type = info.converted != DT_NONE ? dtype_name(info.converted) : NULL;
    if (type && res_convert_type(type) != info.converted)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%.80s' was converted to %s as it was loaded: it cannot be merged",
                       info.name, type);
    if (weights_open(info.path, NULL, &s->w, err))
        return err->code;
    ++*count;
    if (type && res_convert(s->w, info.part, type, err))
        return err->code;
    s->patch = arena_array(&x->mem, ref->patches + 1, sizeof *s->patch);
    if (!s->patch)
        return err_set(err, BERTH_ENOMEM, "%zu adapters", ref->patches);
    for (; patched && s->patches < ref->patches; s->patches++) {
        s->patch[s->patches] = ref->patch[s->patches];
        res_adapter_ref(s->patch[s->patches].adapter);
    }
    return add_tensors(x, s, m, err);
}

static uint64_t hashed(uint64_t sum, const void *p, size_t n)
{
    return hash_xxh64(p, n, sum);
}

/* Its length too, so that two texts are not one longer text. */
static uint64_t hashed_text(uint64_t sum, const char *text)
{
    const size_t n = strlen(text);
    return hashed(hashed(sum, &n, sizeof n), text, n);
}

/* Equal ids mean equal effect. */
static uint64_t id_of(const struct mix_args *a)
{
    uint64_t sum = hashed(0, &a->kind, sizeof a->kind);
    sum = hashed(sum, &a->otherwise, sizeof a->otherwise);
    sum = hashed(sum, &a->endings, sizeof a->endings);
    sum = hashed_text(sum, a->front ? a->front : "");
    sum = hashed(sum, &a->rules, sizeof a->rules);
    for (size_t i = 0; i < a->rules; i++) {
        sum = hashed_text(sum, a->rule[i].text);
        sum = hashed(sum, &a->rule[i].ratio, sizeof a->rule[i].ratio);
    }
    for (size_t i = 0; a->other && i < a->other->parts; i++) {
        struct res_model_info info = res_info(a->other->part[i]);
        sum = hashed(sum, &info.key, sizeof info.key);
    }
    for (size_t i = 0; a->base && i < a->base->parts; i++) {
        struct res_model_info info = res_info(a->base->part[i]);
        sum = hashed(sum, &info.key, sizeof info.key);
    }
    for (size_t i = 0; a->other && i < a->other->patches; i++) {
        const struct res_patch *p = &a->other->patch[i];
        sum = hashed(sum, &p->adapter->id, sizeof p->adapter->id);
        sum = hashed(sum, &p->strength, sizeof p->strength);
    }
    return sum;
}

berth_status weight_mix_new(const struct mix_args *a, struct res_adapter **out, berth_err *err)
{
    struct weight_mix *x = calloc(1, sizeof *x);
    *out = NULL;
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a merge");
    *x = (struct weight_mix) { .base = { .ops = &ops, .refs = 1, .id = id_of(a) },
                               .kind = a->kind,
                               .rules = a->rules,
                               .endings = a->endings,
                               .front = a->front ? strlen(a->front) : 0,
                               .otherwise = a->otherwise };
    char *name = arena_strndup(&x->mem, a->name, strlen(a->name));
    x->rule = arena_array(&x->mem, a->rules + 1, sizeof *x->rule);
    berth_status s = name && x->rule ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a merge");
    x->base.name = name;
    for (size_t i = 0; !s && i < a->rules; i++) {
        x->rule[i] =
            (struct mix_rule) { arena_strndup(&x->mem, a->rule[i].text, strlen(a->rule[i].text)),
                                a->rule[i].ratio };
        if (!x->rule[i].text)
            s = err_set(err, BERTH_ENOMEM, "a merge");
    }
    for (size_t i = 0; !s && a->other && i < a->other->parts; i++)
        s = add_source(x, a->other, i, true, x->source, &x->sources, err);
    for (size_t i = 0; !s && a->base && i < a->base->parts; i++)
        s = add_source(x, a->base, i, false, x->base_source, &x->base_sources, err);
    if (s)
        mix_free(&x->base);
    else
        *out = &x->base;
    return s;
}
