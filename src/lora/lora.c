/* lora: opening an adapter file, and which tensors of the model it touches. */
#include "lora/lora_impl.h"

#include "base/hash.h"
#include "base/str.h"

#include <string.h>

#define WEIGHT ".weight"
#define SHOWN 3 /* unknown tensors that a warning names */

static const struct lora *lora_of(const struct res_adapter *a)
{
    return (const struct lora *)(const void *)a; /* base is the first member */
}

static bool lora_touches(const struct res_adapter *a, const char *key, size_t n)
{
    return map_get(&lora_of(a)->first, key, n, NULL);
}

static void lora_free(struct res_adapter *a)
{
    struct lora *l = (struct lora *)(void *)a;
    weights_close(l->weights);
    map_release(&l->first);
    vec_release(&l->target);
    arena_release(&l->mem);
    free(l->name);
    free(l);
}

static const struct res_adapter_ops ops = { .touches = lora_touches,
                                            .terms = lora_terms,
                                            .free = lora_free };

/* ---- targets ---- */

static bool same_place(const struct lora_target *a, const struct lora_target *b)
{
    return a->row == b->row && a->rows == b->rows && a->from == b->from && a->of == b->of &&
           a->swap == b->swap && a->transpose == b->transpose;
}

/* Adds t, whose key is borrowed, or puts it in the place of an earlier one for the same rows.
 * False: out of memory. */
static bool set_target(struct lora *l, struct lora_target t)
{
    uint64_t first;
    struct lora_target *last = NULL;
    if (map_get(&l->first, t.key, t.key_len, &first)) {
        for (size_t i = (size_t)first + 1; i; i = last->next) {
            last = vec_at(&l->target, i - 1);
            if (same_place(last, &t)) {
                t.key = last->key;
                t.next = last->next;
                *last = t;
                return true;
            }
        }
        t.key = last->key;
    } else if (!(t.key = arena_strndup(&l->mem, t.key, t.key_len)) ||
               map_add(&l->first, t.key, t.key_len, l->target.n) != MAP_ADDED) {
        return false;
    }
    size_t before = last ? (size_t)(last - (struct lora_target *)l->target.p) : 0;
    if (!vec_push(&l->target, &t))
        return false;
    if (last)
        ((struct lora_target *)vec_at(&l->target, before))->next = l->target.n;
    return true;
}

static bool set_dense(struct lora *l, const struct lora_target *to, enum lora_kind kind,
                      const struct weights_entry *dense)
{
    if (!dense)
        return true;
    struct lora_target t = *to;
    t.kind = kind;
    t.dense = dense;
    return set_target(l, t);
}

/* The bias beside a weight; false: the key is no weight's, or out of memory (*ok). */
static bool bias_of(struct lora *l, const struct lora_target *weight, struct lora_target *out,
                    bool *ok)
{
    *out = *weight;
    if (!str_ends(weight->key, weight->key_len, WEIGHT))
        return false;
    char *key =
        arena_printf(&l->mem, "%.*s.bias", (int)(weight->key_len - strlen(WEIGHT)), weight->key);
    *ok = key != NULL;
    out->key = key;
    out->key_len = key ? strlen(key) : 0;
    return key != NULL;
}

/* The first of parts [from, to) that the file has under this name; `to`: none. */
static enum lora_part first_part(const struct lora_base *b, enum lora_part from, enum lora_part to)
{
    while (from < to && !b->part[from])
        from++;
    return from;
}

/* Tensors of each kind that is made of factors; the first of them is always there except for
 * LoKr. */
static const struct {
    enum lora_part from, to;
} parts[] = { [LORA_PAIR] = { PAIR_UP, HADA_W1_A },
              [LORA_LOHA] = { HADA_W1_A, LOKR_W1 },
              [LORA_LOKR] = { LOKR_W1, GLORA_A1 },
              [LORA_GLORA] = { GLORA_A1, OFT_BLOCKS },
              [LORA_OFT] = { OFT_BLOCKS, LORA_PARTS } };

static bool set_targets(struct lora *l, const struct lora_name *n, const struct lora_base *b)
{
    struct lora_target to = { .key = n->key,
                              .key_len = strlen(n->key),
                              .row = n->row,
                              .rows = n->rows,
                              .from = n->from,
                              .of = n->of,
                              .swap = n->swap,
                              .transpose = n->transpose,
                              .widens = b->widens };
    struct lora_target bias, made = to;
    bool ok = true;
    made.alpha = b->alpha;
    made.peft = !b->dora && b->peft_dora;
    made.dora = made.peft ? b->peft_dora : b->dora;
    memcpy(made.part, b->part, sizeof made.part);
    for (made.kind = LORA_PAIR; ok && made.kind <= LORA_OFT; made.kind++)
        if (first_part(b, parts[made.kind].from, parts[made.kind].to) < parts[made.kind].to)
            ok = set_target(l, made);
    ok = ok && set_dense(l, &to, LORA_DIFF, b->w_norm) && set_dense(l, &to, LORA_DIFF, b->diff) &&
         set_dense(l, &to, LORA_SET, b->set);
    if (ok && (b->diff_b || b->b_norm) && bias_of(l, &to, &bias, &ok))
        ok = set_dense(l, &bias, LORA_DIFF, b->b_norm) && set_dense(l, &bias, LORA_DIFF, b->diff_b);
    return ok;
}

/* Half of a pair: the file was cut off, or a tool went wrong. NULL: there is none. */
static const struct weights_entry *lone_half(const struct lora_base *b)
{
    for (int f = 0; f < LORA_FAMILIES; f++)
        if (!b->up[f] != !b->down[f])
            return b->up[f] ? b->up[f] : b->down[f];
    return NULL;
}

/* The pair of the first family that the file has one of; mid comes with the first alone. */
static void choose_pair(struct lora_base *b)
{
    for (int f = LORA_FAMILIES - 1; f >= 0; f--)
        if (b->up[f]) {
            b->part[PAIR_UP] = b->up[f];
            b->part[PAIR_DOWN] = b->down[f];
            b->part[PAIR_MID] = f == 0 ? b->mid : NULL;
        }
}

static berth_status incomplete(const struct lora_base *b, enum lora_part has, enum lora_part lacks,
                               berth_err *err)
{
    return err_set(err, BERTH_EFORMAT,
                   "'%.100s' is there and no %s beside it: the adapter is incomplete",
                   b->part[has]->name, lora_part_suffix(lacks));
}

static berth_status check_loha(const struct lora_base *b, berth_err *err)
{
    enum lora_part has = first_part(b, HADA_W1_A, HADA_T2 + 1);
    if (has > HADA_T2)
        return BERTH_OK;
    for (enum lora_part k = HADA_W1_A; k <= HADA_W2_B; k++)
        if (!b->part[k])
            return incomplete(b, has, k, err);
    if (!b->part[HADA_T1] != !b->part[HADA_T2])
        return b->part[HADA_T1] ? incomplete(b, HADA_T1, HADA_T2, err)
                                : incomplete(b, HADA_T2, HADA_T1, err);
    return BERTH_OK;
}

/* Each of the two matrices whole, or both of its factors. */
static berth_status check_lokr(const struct lora_base *b, berth_err *err)
{
    enum lora_part has = first_part(b, LOKR_W1, GLORA_A1);
    if (has == GLORA_A1)
        return BERTH_OK;
    for (enum lora_part k = LOKR_W1_A; k <= LOKR_W2_B; k++) {
        enum lora_part whole = k < LOKR_W2_A ? LOKR_W1 : LOKR_W2;
        if (!b->part[whole] && !b->part[k])
            return incomplete(b, has, k, err);
    }
    return BERTH_OK;
}

static berth_status check_oft(const struct lora_base *b, berth_err *err)
{
    return b->part[OFT_RESCALE] && !b->part[OFT_BLOCKS]
               ? incomplete(b, OFT_RESCALE, OFT_BLOCKS, err)
               : BERTH_OK;
}

static berth_status check_glora(const struct lora_base *b, berth_err *err)
{
    enum lora_part has = first_part(b, GLORA_A1, OFT_BLOCKS);
    for (enum lora_part k = GLORA_A1; has < OFT_BLOCKS && k < OFT_BLOCKS; k++)
        if (!b->part[k])
            return incomplete(b, has, k, err);
    return BERTH_OK;
}

/* DoRA's sizes mean something only beside a change. Like ComfyUI, we ignore them beside a
 * difference. */
static berth_status check_dora(const struct lora_base *b, berth_err *err)
{
    bool changed = b->diff || b->w_norm || b->set || first_part(b, 0, LORA_PARTS) < LORA_PARTS;
    const struct weights_entry *sizes = b->dora ? b->dora : b->peft_dora;
    if (!sizes || changed)
        return BERTH_OK;
    return err_set(err, BERTH_EFORMAT,
                   "'%.100s' is there and no factors beside it: the adapter is incomplete",
                   sizes->name);
}

static berth_status find_targets(struct lora *l, struct lora_bases *b,
                                 const struct lora_names *names, berth_err *err)
{
    for (size_t i = 0; i < names->n; i++) {
        const struct lora_name *n = &names->at[i];
        uint64_t at;
        if (!map_get(&b->find, n->base, strlen(n->base), &at))
            continue;
        struct lora_base *x = vec_at(&b->at, (size_t)at);
        const struct weights_entry *half = lone_half(x);
        if (half)
            return err_set(err, BERTH_EFORMAT, "'%.100s' has no partner: up and down come in pairs",
                           half->name);
        if (x->refused)
            return err_set(err, BERTH_EUNSUPPORTED, "'%.100s' is of kind %s, which is not merged",
                           x->refused_by->name, x->refused);
        choose_pair(x);
        if (check_loha(x, err) || check_lokr(x, err) || check_glora(x, err) || check_oft(x, err) ||
            check_dora(x, err))
            return err->code;
        x->used = true;
        if (!set_targets(l, n, x))
            return err_set(err, BERTH_ENOMEM, "%zu targets", l->target.n);
    }
    return BERTH_OK;
}

/* A file without a single tensor named as parts of adapters are is some other kind of file. */
static berth_status is_adapter(const struct weights *w, const struct lora_bases *b, berth_err *err)
{
    if (b->at.n || !weights_count(w))
        return BERTH_OK;
    return err_set(
        err, BERTH_EINVAL,
        "is no adapter: none of its %zu tensors is called as a part of one (the first is "
        "'%.80s')",
        weights_count(w), weights_at(w, 0)->name);
}

/* ---- opening ---- */

static void warn_unknown(struct lora *l, const struct lora_bases *b)
{
    char some[SHOWN * 80 + 8] = "";
    size_t n = 0, shown = 0;
    l->info.unknown = b->strays;
    for (size_t i = 0; i < b->at.n; i++) {
        const struct lora_base *x = vec_at(&b->at, i);
        if (x->used)
            continue;
        l->info.unknown += x->tensors;
        if (shown++ < SHOWN)
            n += (size_t)snprintf(some + n, sizeof some - n, "%s%.*s", n ? ", " : "",
                                  x->len > 70 ? 70 : (int)x->len, x->name);
    }
    if (l->info.unknown)
        log_warn(l->log, "lora.unknown", "file=\"%s\" unknown=%zu of=%zu such_as=\"%s\"",
                 l->base.name, l->info.unknown, l->info.tensors, some);
}

static uint64_t chain(uint64_t sum, const void *p, size_t n)
{
    return hash_xxh64(p, n, sum);
}

/* A tensor that says which ones a target has: the rest follow from its name. */
static const struct weights_entry *name_giver(const struct lora_target *t)
{
    if (t->dense)
        return t->dense;
    enum lora_part k = parts[t->kind].from;
    while (!t->part[k])
        k++;
    return t->part[k];
}

/* Equal for equal effect: the files, and what was made of them. */
static uint64_t identity(const struct lora *l)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < weights_shards(l->weights); i++) {
        const struct file_map *map = weights_shard(l->weights, i);
        struct file_id id = map ? map->id : (struct file_id) { 0 };
        sum = chain(sum, &id, sizeof id);
    }
    sum = chain(sum, l->base.name, strlen(l->base.name));
    for (size_t i = 0; i < l->target.n; i++) {
        const struct lora_target *t = vec_at(&l->target, i);
        const struct weights_entry *e = name_giver(t);
        const uint64_t where[] = { t->row,  t->rows,      t->from,          t->of,
                                   t->swap, t->transpose, (uint64_t)t->kind };
        sum = chain(chain(sum, t->key, t->key_len), where, sizeof where);
        sum = chain(sum, e->name, e->name_len);
    }
    return sum;
}

berth_status lora_open_weights(struct weights *w, const struct lora_names *names,
                               const struct log *log, struct res_adapter **out, berth_err *err)
{
    struct lora_bases bases = { 0 };
    struct lora *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) {
        weights_close(w);
        return err_set(err, BERTH_ENOMEM, "an adapter");
    }
    l->base.ops = &ops;
    atomic_init(&l->base.refs, 1);
    l->weights = w;
    l->log = log;
    l->target.elem = sizeof(struct lora_target);
    l->first.seed = (uintptr_t)l;
    l->info.tensors = weights_count(w);
    berth_status s = BERTH_OK;
    const char *slash = strrchr(weights_path(w), '/');
    if (!(l->name = strdup(slash ? slash + 1 : weights_path(w))))
        s = err_set(err, BERTH_ENOMEM, "an adapter's name");
    l->base.name = l->name;
    if (!s)
        s = lora_bases_init(&bases, w, err);
    if (!s)
        s = is_adapter(w, &bases, err);
    if (!s)
        s = find_targets(l, &bases, names, err);
    if (s) {
        err_add(err, "adapter '%.150s'", weights_path(w));
        lora_free(&l->base);
    } else {
        l->info.targets = l->target.n;
        l->base.id = identity(l);
        warn_unknown(l, &bases);
        *out = &l->base;
    }
    lora_bases_release(&bases);
    return s;
}

berth_status lora_open(const char *path, const struct lora_names *names, const struct log *log,
                       struct res_adapter **out, berth_err *err)
{
    struct weights *w;
    *out = NULL;
    if (weights_open(path, NULL, &w, err))
        return err->code; /* names the file */
    return lora_open_weights(w, names, log, out, err);
}

uint64_t lora_widens(const struct res_adapter *a, const char *key, size_t n, uint64_t cols)
{
    const struct lora *l = lora_of(a);
    uint64_t first;
    if (!map_get(&l->first, key, n, &first))
        return 0;
    for (size_t i = (size_t)first + 1; i;) {
        const struct lora_target *t = vec_at(&l->target, i - 1);
        const struct weights_entry *down = t->kind == LORA_PAIR ? t->part[PAIR_DOWN] : NULL;
        if (t->widens && down && down->shape.ndim == 2 && down->shape.dim[1] > cols)
            return down->shape.dim[1];
        i = t->next;
    }
    return 0;
}

struct lora_info lora_info(const struct res_adapter *a)
{
    return lora_of(a)->info;
}
