/* lora_names: the list, and the names every network has. */
#include "model/lora_names.h"

#include "model/lora_names_impl.h"

#include <stdarg.h>
#include <string.h>

#define WEIGHT ".weight"

/* "<known>" for "<root>" in front of the name. NULL: out of memory. */
static char *key_of(struct lora_table *t, const char *name)
{
    size_t skip = strlen(t->alias->root);
    if (strncmp(name, t->alias->root, skip) != 0)
        BUG("'%s' is not in '%s'", name, t->alias->root);
    return arena_printf(&t->mem, "%s%s", t->alias->known, name + skip);
}

void lora_add(struct lora_table *t, const char *lead, const char *q, bool flat,
              const struct lora_name *m)
{
    if (t->bad)
        return;
    if (!t->at.elem)
        t->at.elem = sizeof(struct lora_name);
    char *base = arena_printf(&t->mem, "%s%s", lead, q);
    char *key = key_of(t, m->key);
    struct lora_name *n = base && key ? vec_add(&t->at) : NULL;
    t->bad = !n;
    if (!n)
        return;
    for (char *c = base + strlen(lead); flat && *c; c++)
        if (*c == '.')
            *c = '_';
    *n = *m;
    n->base = base;
    n->key = key;
}

bool lora_path(const struct weights_entry *e, const char *prefix, char path[LORA_NAME_MAX])
{
    size_t skip = strlen(prefix), tail = strlen(WEIGHT);
    if (!str_starts(e->name, e->name_len, prefix) || !str_ends(e->name, e->name_len, WEIGHT) ||
        e->name_len <= skip + tail || e->name_len - skip - tail >= LORA_NAME_MAX)
        return false;
    size_t n = e->name_len - skip - tail;
    memcpy(path, e->name + skip, n);
    path[n] = '\0';
    return true;
}

const struct weights_entry *lora_find(const struct weights *w, const char *prefix, const char *fmt,
                                      ...)
{
    char name[2 * LORA_NAME_MAX];
    int lead = snprintf(name, sizeof name, "%s", prefix);
    if (lead < 0 || (size_t)lead >= sizeof name)
        return NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(name + lead, sizeof name - (size_t)lead, fmt, ap);
    va_end(ap);
    return n < 0 || (size_t)n >= sizeof name - (size_t)lead
               ? NULL
               : weights_find(w, name, (size_t)(lead + n));
}

void lora_diffusion(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    char path[LORA_NAME_MAX];
    const char *root = net->alias.root;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        struct lora_name all = { .key = e->name };
        if (!str_starts(e->name, e->name_len, root))
            continue;
        if (lora_path(e, root, path)) {
            lora_add(t, "lora_unet_", path, true, &all);
            lora_add(t, "diffusion_model.", path, false, &all);
        } else if (!str_ends(e->name, e->name_len, WEIGHT)) {
            lora_add(t, "diffusion_model.", e->name + strlen(root), false, &all);
        }
    }
}

void lora_text(struct lora_table *t, const char *path, const struct lora_name *m)
{
    char lead[sizeof "text_encoders." + BLOCK_ALIAS_MAX];
    snprintf(lead, sizeof lead, "text_encoders.%s", t->alias->known);
    lora_add(t, lead, path, false, m);
}

void lora_numbered(struct lora_table *t, unsigned te, bool dotted, const char *path,
                   const struct lora_name *m)
{
    static const struct {
        unsigned te;
        const char *flat, *dotted; /* NULL: none */
    } lead[] = {
        { LORA_TE, "lora_te_", "text_encoder." },
        { LORA_TE1, "lora_te1_", NULL },
        { LORA_TE2, "lora_te2_", "text_encoder_2." },
        { LORA_TE3, "lora_te3_", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(lead); i++) {
        if (!(te & lead[i].te))
            continue;
        lora_add(t, lead[i].flat, path, true, m);
        if (dotted && lead[i].dotted)
            lora_add(t, lead[i].dotted, path, false, m);
    }
}

berth_status lora_names_net(struct lora_table *t, const struct weights *w,
                            const struct arch_net *net, berth_err *err)
{
    if (!net->family->lora)
        return err_set(err, BERTH_EUNSUPPORTED, "'%.200s': adapters for %s files are not known",
                       weights_path(w), net->family->base.name);
    t->alias = &net->alias;
    net->family->lora(t, w, net);
    t->alias = NULL;
    return t->bad ? err_set(err, BERTH_ENOMEM, "adapter names of '%.100s'", weights_path(w))
                  : BERTH_OK;
}

berth_status lora_names_file(struct lora_table *t, const struct weights *w, const char *part,
                             berth_err *err)
{
    struct arch_net net[ARCH_NETS_MAX];
    size_t n = arch_nets(w, part, net), named = 0;
    if (!n)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%.200s': no family we know, so adapters cannot name its tensors",
                       weights_path(w));
    for (size_t i = 0; i < n; i++) {
        if (!net[i].family->lora && (named || i + 1 < n))
            continue; /* a VAE beside others; alone it is refused */
        if (lora_names_net(t, w, &net[i], err))
            return err->code;
        named++;
    }
    return BERTH_OK;
}

struct lora_names lora_table_names(const struct lora_table *t)
{
    return (struct lora_names) { .at = t->at.p, .n = t->at.n };
}

void lora_table_release(struct lora_table *t)
{
    arena_release(&t->mem);
    vec_release(&t->at);
    *t = (struct lora_table) { 0 };
}
