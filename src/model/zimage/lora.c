/* What adapters call the tensors of Z-Image and Lumina2 (z-image.md 10): diffusers' names with
 * several leads, and our own.
 *
 * Diffusers keeps q, k and v apart; here they are rows of one tensor. In files of diffusers' names
 * it is the other way round: an adapter's stacked change has rows for each of three tensors. */
#include "model/lora_names_impl.h"
#include "model/zimage/zimage.h"

#include <string.h>

struct table {
    struct lora_table *t;
    const struct weights *w;
    const char *root;
    struct zimage_net f;
};

/* What diffusers calls it, behind the leads that no other network has. */
static void add_theirs(const struct table *k, const char *q, const struct lora_name *m)
{
    lora_add(k->t, "transformer.", q, false, m);
    lora_add(k->t, "lycoris_", q, true, m);
    lora_add(k->t, "", q, false, m);
}

/* A list of layers behind `block` ("layers.3."), which files of ours and of diffusers call
 * differently: the names that the file's own are not. */
static void add_list(const struct table *k, const char *block, const struct zimage_name *n)
{
    char q[LORA_NAME_MAX];
    for (; n->layer; n++) {
        const char *ours = n->in ? n->in : n->layer;
        const struct weights_entry *e =
            lora_find(k->w, k->root, "%s%s.weight", block, k->f.diffusers ? n->theirs : ours);
        struct lora_name m = { .key = e ? e->name : NULL };
        uint64_t row = 0, rows = 0;
        if (!e)
            continue;
        if (n->in)
            zimage_rows(&k->f, n->part, &row, &rows);
        if (k->f.diffusers) {
            uint64_t all = 0, last = 0;
            zimage_rows(&k->f, ZIMAGE_V, &all, &last);
            m.from = n->in ? row : 0;
            m.of = n->in ? all + last : 0;
            snprintf(q, sizeof q, "%s%s", block, ours);
            lora_add(k->t, "lora_unet_", q, true, &m);
            lora_add(k->t, "diffusion_model.", q, false, &m);
            continue;
        }
        m.row = row;
        m.rows = rows;
        snprintf(q, sizeof q, "%s%s", block, n->theirs);
        lora_add(k->t, "diffusion_model.", q, false, &m);
        add_theirs(k, q, &m);
    }
}

/* Has diffusers another name for it? path: a layer, in our names. */
static bool renamed(const char *path)
{
    size_t len = strlen(path);
    for (const struct zimage_name *n = zimage_once_names; n->layer; n++)
        if (!strcmp(path, n->layer))
            return true;
    for (const struct zimage_name *n = zimage_block_names; n->layer; n++)
        if (str_ends(path, len, n->in ? n->in : n->layer))
            return true;
    return false;
}

void zimage_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    struct table k = { .t = t, .w = w, .root = net->alias.root };
    char path[LORA_NAME_MAX];
    berth_err err = { 0 };
    lora_diffusion(t, w, net);
    if (zimage_detect(w, k.root, &k.f, &err))
        return;
    for (const char *const *list = zimage_lists; *list; list++)
        for (uint32_t i = 0, n = arch_layers(w, k.root, *list); i < n; i++) {
            snprintf(path, sizeof path, "%s.%u.", *list, i);
            add_list(&k, path, zimage_block_names);
        }
    add_list(&k, "", zimage_once_names);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (lora_path(e, k.root, path) && (k.f.diffusers || !renamed(path)))
            add_theirs(&k, path, &(struct lora_name) { .key = e->name });
    }
}
