/* lora_bases: what the tensors of an adapter file are called, and what that makes them. */
#include "lora/lora_impl.h"

#include "base/str.h"

#include <string.h>

enum slot { UP, DOWN, MID, ALPHA, DIFF, DIFF_B, W_NORM, B_NORM, SET, DORA, PART, REFUSED };

struct suffix {
    const char *text;
    enum slot slot;
    int which;        /* the family of UP and DOWN, the lora_part of PART */
    const char *kind; /* of REFUSED */
};

/* No text is the end of another one, so that the order does not matter. */
static const struct suffix suffixes[] = {
    { ".lora_up.weight", UP, 0, NULL },
    { ".lora_down.weight", DOWN, 0, NULL },
    { ".lora_mid.weight", MID, 0, NULL },
    { "_lora.up.weight", UP, 1, NULL },
    { "_lora.down.weight", DOWN, 1, NULL },
    { ".lora_B.weight", UP, 2, NULL },
    { ".lora_A.weight", DOWN, 2, NULL },
    { ".lora.up.weight", UP, 3, NULL },
    { ".lora.down.weight", DOWN, 3, NULL },
    { ".lora_B", UP, 4, NULL },
    { ".lora_A", DOWN, 4, NULL },
    { ".lora_linear_layer.up.weight", UP, 5, NULL },
    { ".lora_linear_layer.down.weight", DOWN, 5, NULL },
    { ".lora_B.default.weight", UP, 6, NULL },
    { ".lora_A.default.weight", DOWN, 6, NULL },
    { ".alpha", ALPHA, 0, NULL },
    { ".diff", DIFF, 0, NULL },
    { ".diff_b", DIFF_B, 0, NULL },
    { ".w_norm", W_NORM, 0, NULL },
    { ".b_norm", B_NORM, 0, NULL },
    { ".set_weight", SET, 0, NULL },
    { ".dora_scale", DORA, 0, NULL },
    { ".lora_magnitude_vector", REFUSED, 0, "DoRA as PEFT saves it" },
    { ".lora_magnitude_vector.weight", REFUSED, 0, "DoRA as PEFT saves it" },
    { ".reshape_weight", REFUSED, 0, "reshape_weight" },
    { ".hada_w1_a", PART, HADA_W1_A, NULL },
    { ".hada_w1_b", PART, HADA_W1_B, NULL },
    { ".hada_w2_a", PART, HADA_W2_A, NULL },
    { ".hada_w2_b", PART, HADA_W2_B, NULL },
    { ".hada_t1", PART, HADA_T1, NULL },
    { ".hada_t2", PART, HADA_T2, NULL },
    { ".lokr_w1", PART, LOKR_W1, NULL },
    { ".lokr_w2", PART, LOKR_W2, NULL },
    { ".lokr_w1_a", PART, LOKR_W1_A, NULL },
    { ".lokr_w1_b", PART, LOKR_W1_B, NULL },
    { ".lokr_w2_a", PART, LOKR_W2_A, NULL },
    { ".lokr_w2_b", PART, LOKR_W2_B, NULL },
    { ".lokr_t2", PART, LOKR_T2, NULL },
    { ".a1.weight", REFUSED, 0, "GLoRA" },
    { ".a2.weight", REFUSED, 0, "GLoRA" },
    { ".b1.weight", REFUSED, 0, "GLoRA" },
    { ".b2.weight", REFUSED, 0, "GLoRA" },
    { ".oft_blocks", PART, OFT_BLOCKS, NULL },
    { ".rescale", PART, OFT_RESCALE, NULL },
    { ".oft_diag", REFUSED, 0, "OFT in diagonal form" },
};

static const struct suffix *suffix_of(const char *name, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++)
        if (n > strlen(suffixes[i].text) && str_ends(name, n, suffixes[i].text))
            return &suffixes[i];
    return NULL;
}

const char *lora_part_suffix(enum lora_part part)
{
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++)
        if (suffixes[i].slot == PART && suffixes[i].which == (int)part)
            return suffixes[i].text;
    BUG("part %d has no suffix", (int)part);
}

/* The base under this name, made when it is new. NULL: out of memory. */
static struct lora_base *base_of(struct lora_bases *b, const char *name, size_t len)
{
    static const char twice[] = "lora_unet__"; /* some trainers of Wan write it so */
    if (str_starts(name, len, twice)) {
        char *once = arena_strndup(&b->mem, name + 1, len - 1);
        if (!once)
            return NULL;
        memcpy(once, "lora_unet_", strlen("lora_unet_"));
        name = once;
        len--;
    }
    uint64_t at;
    if (map_get(&b->find, name, len, &at))
        return vec_at(&b->at, (size_t)at);
    struct lora_base *x = vec_add(&b->at);
    if (!x || map_add(&b->find, name, len, b->at.n - 1) != MAP_ADDED)
        return NULL;
    x->name = name;
    x->len = len;
    return x;
}

static void put(struct lora_base *x, const struct suffix *s, const struct weights_entry *e)
{
    x->tensors++;
    switch (s->slot) {
    case UP:
        x->up[s->which] = e;
        break;
    case DOWN:
        x->down[s->which] = e;
        break;
    case MID:
        x->mid = e;
        break;
    case ALPHA:
        x->alpha = e;
        break;
    case DIFF:
        x->diff = e;
        break;
    case DIFF_B:
        x->diff_b = e;
        break;
    case W_NORM:
        x->w_norm = e;
        break;
    case B_NORM:
        x->b_norm = e;
        break;
    case SET:
        x->set = e;
        break;
    case DORA:
        x->dora = e;
        break;
    case PART:
        x->part[s->which] = e;
        break;
    case REFUSED:
        x->refused = s->kind;
        x->refused_by = e;
        break;
    }
}

berth_status lora_bases_init(struct lora_bases *b, const struct weights *w, berth_err *err)
{
    *b = (struct lora_bases) { .at = { .elem = sizeof(struct lora_base) },
                               .find = { .seed = (uintptr_t)w } };
    enum lora_form form = lora_form(w);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        const char *name = lora_form_name(form, e->name, &b->mem);
        size_t n = name ? strlen(name) : 0;
        const struct suffix *s = suffix_of(name, n);
        if (name && !s) {
            b->strays++;
            continue;
        }
        struct lora_base *x = name ? base_of(b, name, n - strlen(s->text)) : NULL;
        if (!x)
            return err_set(err, BERTH_ENOMEM, "names of %zu tensors", weights_count(w));
        put(x, s, e);
        x->widens = form == LORA_CONTROL;
    }
    return BERTH_OK;
}

void lora_bases_release(struct lora_bases *b)
{
    map_release(&b->find);
    vec_release(&b->at);
    arena_release(&b->mem);
}
