/* lora_bases: what the tensors of an adapter file are called, and what that makes them. */
#include "lora/lora_impl.h"

#include "base/str.h"

#include <stddef.h>
#include <string.h>

struct suffix {
    const char *text;
    size_t at;           /* of struct lora_base: where the tensor goes */
    const char *refused; /* the kind, of one we do not merge; else NULL */
};
#define AT(member) offsetof(struct lora_base, member)

/* No text is the end of another one, so that the order does not matter. */
static const struct suffix suffixes[] = {
    { ".lora_up.weight", AT(up[0]), NULL },
    { ".lora_down.weight", AT(down[0]), NULL },
    { ".lora_mid.weight", AT(mid), NULL },
    { "_lora.up.weight", AT(up[1]), NULL },
    { "_lora.down.weight", AT(down[1]), NULL },
    { ".lora_B.weight", AT(up[2]), NULL },
    { ".lora_A.weight", AT(down[2]), NULL },
    { ".lora.up.weight", AT(up[3]), NULL },
    { ".lora.down.weight", AT(down[3]), NULL },
    { ".lora_B", AT(up[4]), NULL },
    { ".lora_A", AT(down[4]), NULL },
    { ".lora_linear_layer.up.weight", AT(up[5]), NULL },
    { ".lora_linear_layer.down.weight", AT(down[5]), NULL },
    { ".lora_B.default.weight", AT(up[6]), NULL },
    { ".lora_A.default.weight", AT(down[6]), NULL },
    { ".alpha", AT(alpha), NULL },
    { ".diff", AT(diff), NULL },
    { ".diff_b", AT(diff_b), NULL },
    { ".w_norm", AT(w_norm), NULL },
    { ".b_norm", AT(b_norm), NULL },
    { ".set_weight", AT(set), NULL },
    { ".dora_scale", AT(dora), NULL },
    { ".lora_magnitude_vector", AT(peft_dora), NULL },
    { ".lora_magnitude_vector.weight", AT(peft_dora), NULL },
    { ".lora_magnitude_vector.default", AT(peft_dora), NULL },
    { ".lora_magnitude_vector.default.weight", AT(peft_dora), NULL },
    { ".reshape_weight", AT(reshape), NULL }, /* rows, columns; those of the factors say the same */
    { ".hada_w1_a", AT(part[HADA_W1_A]), NULL },
    { ".hada_w1_b", AT(part[HADA_W1_B]), NULL },
    { ".hada_w2_a", AT(part[HADA_W2_A]), NULL },
    { ".hada_w2_b", AT(part[HADA_W2_B]), NULL },
    { ".hada_t1", AT(part[HADA_T1]), NULL },
    { ".hada_t2", AT(part[HADA_T2]), NULL },
    { ".lokr_w1", AT(part[LOKR_W1]), NULL },
    { ".lokr_w2", AT(part[LOKR_W2]), NULL },
    { ".lokr_w1_a", AT(part[LOKR_W1_A]), NULL },
    { ".lokr_w1_b", AT(part[LOKR_W1_B]), NULL },
    { ".lokr_w2_a", AT(part[LOKR_W2_A]), NULL },
    { ".lokr_w2_b", AT(part[LOKR_W2_B]), NULL },
    { ".lokr_t2", AT(part[LOKR_T2]), NULL },
    { ".a1.weight", AT(part[GLORA_A1]), NULL },
    { ".a2.weight", AT(part[GLORA_A2]), NULL },
    { ".b1.weight", AT(part[GLORA_B1]), NULL },
    { ".b2.weight", AT(part[GLORA_B2]), NULL },
    { ".oft_blocks", AT(part[OFT_BLOCKS]), NULL },
    { ".rescale", AT(part[OFT_RESCALE]), NULL },
    { ".oft_diag", AT(refused_by), "OFT in diagonal form" },
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
        if (suffixes[i].at == AT(part[part]))
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
    x->refused = s->refused ? s->refused : x->refused;
    *(const struct weights_entry **)(void *)((char *)x + s->at) = e;
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
        x->widens |= form == LORA_CONTROL || x->reshape;
    }
    return BERTH_OK;
}

void lora_bases_release(struct lora_bases *b)
{
    map_release(&b->find);
    vec_release(&b->at);
    arena_release(&b->mem);
}
