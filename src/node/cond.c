/* cond: the CONDITIONING value. */
#include "node/hooks.h"

berth_status in_object(const struct node_call *c, const char *name, const struct value_type *type,
                       const void **out, berth_err *err)
{
    const struct value *v = in_value(c, name);
    *out = NULL;
    if (!v)
        return err_set(err, BERTH_EINVAL, "input '%s' is not given", name);
    if (v->kind != V_OBJECT || v->object.type != type)
        return err_set(err, BERTH_EINVAL, "input '%s' wants %s and got something else", name,
                       type->name);
    *out = v->object.obj;
    return BERTH_OK;
}

/* ---- pictures to look at ---- */

void cond_ref_release(struct cond_ref *x)
{
    while (x && --x->counts == 0) {
        struct cond_ref *before = x->before;
        htensor_unref(x->latent);
        free(x);
        x = before;
    }
}

struct cond_ref *cond_ref_share(struct cond_ref *x)
{
    if (x)
        x->counts++;
    return x;
}

static size_t refs_bytes(const struct cond_ref *x)
{
    size_t n = 0;
    for (; x; x = x->before)
        n += htensor_count(x->latent) * sizeof(float);
    return n;
}

berth_status cond_ref_add(struct cond_ref **list, struct htensor *latent, berth_err *err)
{
    struct cond_ref *x = malloc(sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a picture of a prompt");
    *x = (struct cond_ref) { .counts = 1, .latent = htensor_ref(latent), .before = *list };
    *list = x;
    return BERTH_OK;
}

size_t cond_refs(const struct cond_ref *list)
{
    size_t n = 0;
    for (; list; list = list->before)
        n++;
    return n;
}

/* ---- frames at the end of a video ---- */

static void guides_release(struct cond_guide *x)
{
    while (x && --x->counts == 0) {
        struct cond_guide *before = x->before;
        htensor_unref(x->weight);
        free(x);
        x = before;
    }
}

berth_status cond_guide_add(struct cond_guide **list, struct cond_guide guide, berth_err *err)
{
    struct cond_guide *x = malloc(sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a guide of a prompt");
    *x = guide;
    x->counts = 1;
    x->before = *list;
    if (x->weight)
        htensor_ref(x->weight);
    *list = x;
    return BERTH_OK;
}

void cond_guides_drop(struct cond_guide **list)
{
    guides_release(*list);
    *list = NULL;
}

size_t cond_guides(const struct cond_guide *list)
{
    size_t n = 0;
    for (; list; list = list->before)
        n++;
    return n;
}

/* ---- boxes with texts ---- */

static void boxes_release(struct cond_box *x)
{
    while (x && --x->counts == 0) {
        struct cond_box *before = x->before;
        htensor_unref(x->text);
        free(x);
        x = before;
    }
}

berth_status cond_box_add(struct cond_box **list, struct cond_box box, berth_err *err)
{
    struct cond_box *x = malloc(sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a box of a prompt");
    *x = box;
    x->counts = 1;
    x->before = *list;
    htensor_ref(x->text);
    *list = x;
    return BERTH_OK;
}

size_t cond_boxes(const struct cond_box *list)
{
    size_t n = 0;
    for (; list; list = list->before)
        n++;
    return n;
}

/* ---- videos to follow ---- */

static void vace_release(struct cond_vace *x)
{
    while (x && --x->counts == 0) {
        struct cond_vace *before = x->before;
        htensor_unref(x->frames);
        htensor_unref(x->mask);
        free(x);
        x = before;
    }
}

berth_status cond_vace_add(struct cond_vace **list, struct cond_vace vace, berth_err *err)
{
    struct cond_vace *x = malloc(sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a video to follow");
    *x = vace;
    x->counts = 1;
    x->before = *list;
    htensor_ref(x->frames);
    htensor_ref(x->mask);
    *list = x;
    return BERTH_OK;
}

/* ---- life ---- */

static void entry_release(struct cond_entry *e)
{
    htensor_unref(e->cond);
    htensor_unref(e->pooled);
    htensor_unref(e->shown);
    htensor_unref(e->mask);
    htensor_unref(e->concat_latent);
    htensor_unref(e->concat_mask);
    htensor_unref(e->control_text);
    htensor_unref(e->bias);
    for (size_t i = 0; i < EXTRA_KINDS; i++)
        htensor_unref(e->extra[i]);
    cond_ref_release(e->ref);
    cond_ref_release(e->ref_text);
    cond_ref_release(e->ref_seen);
    guides_release(e->guide);
    boxes_release(e->box);
    vace_release(e->vace);
    value_unref(e->gligen);
    unclip_release(e->unclip);
    cond_control_unref(e->control);
    hooks_unref(e->hooks);
    *e = (struct cond_entry) { 0 };
}

static struct htensor *share(struct htensor *t)
{
    return t ? htensor_ref(t) : NULL;
}

static struct cond_entry entry_copy(const struct cond_entry *e)
{
    struct cond_entry out = *e;
    share(e->cond);
    share(e->pooled);
    share(e->shown);
    share(e->mask);
    share(e->concat_latent);
    share(e->concat_mask);
    share(e->bias);
    share(e->control_text);
    for (size_t i = 0; i < EXTRA_KINDS; i++)
        share(e->extra[i]);
    if (e->control)
        e->control->counts++;
    cond_ref_share(e->ref);
    cond_ref_share(e->ref_text);
    cond_ref_share(e->ref_seen);
    if (e->vace)
        e->vace->counts++;
    if (e->guide)
        e->guide->counts++;
    if (e->box)
        e->box->counts++;
    if (e->gligen)
        value_ref(e->gligen);
    if (e->unclip)
        e->unclip->counts++;
    hooks_ref(e->hooks);
    return out;
}

void conditioning_free(struct conditioning *x)
{
    if (!x)
        return;
    for (size_t i = 0; i < x->n; i++)
        entry_release(&x->at[i]);
    free(x->at);
    free(x);
}

static berth_status allocate(size_t n, struct conditioning **out, berth_err *err)
{
    struct conditioning *x = calloc(1, sizeof *x);
    if (x)
        x->at = calloc(n ? n : 1, sizeof *x->at);
    if (!x || !x->at) {
        free(x);
        return err_set(err, BERTH_ENOMEM, "a conditioning of %zu prompts", n);
    }
    *out = x;
    return BERTH_OK;
}

berth_status conditioning_new(struct htensor *cond, struct htensor *pooled,
                              struct conditioning **out, berth_err *err)
{
    *out = NULL;
    if (allocate(1, out, err)) {
        htensor_unref(cond);
        htensor_unref(pooled);
        return err->code;
    }
    (*out)->at[0] = (struct cond_entry) {
        .cond = cond, .pooled = pooled, .strength = 1, .mask_strength = 1, .end_percent = 1
    };
    (*out)->n = 1;
    return BERTH_OK;
}

/* ---- limits ---- */

size_t conditioning_tokens(const struct conditioning *x)
{
    size_t n = 0;
    for (size_t i = 0; x && i < x->n; i++)
        n += dim(x->at[i].cond, 1);
    return n;
}

berth_status conditioning_tokens_fit(size_t tokens, berth_err *err)
{
    return tokens <= COND_TOKENS_MAX
               ? BERTH_OK
               : err_set(err, BERTH_ELIMIT, "a conditioning of %zu tokens, more than %d", tokens,
                         COND_TOKENS_MAX);
}

berth_status conditioning_join(const struct conditioning *a, const struct conditioning *b,
                               struct conditioning **out, berth_err *err)
{
    size_t n = a->n + (b ? b->n : 0);
    *out = NULL;
    if (n > CONDS_MAX)
        return err_set(err, BERTH_ELIMIT, "a conditioning of %zu prompts, more than %d", n,
                       CONDS_MAX);
    if (conditioning_tokens_fit(conditioning_tokens(a) + conditioning_tokens(b), err) ||
        allocate(n, out, err))
        return err->code;
    struct conditioning *x = *out;
    for (size_t i = 0; i < a->n; i++)
        x->at[x->n++] = entry_copy(&a->at[i]);
    for (size_t i = 0; b && i < b->n; i++)
        x->at[x->n++] = entry_copy(&b->at[i]);
    return BERTH_OK;
}

berth_status conditioning_copy(const struct conditioning *x, struct conditioning **out,
                               berth_err *err)
{
    return conditioning_join(x, NULL, out, err);
}

/* ---- the value ---- */

static void free_object(void *obj)
{
    conditioning_free(obj);
}

static size_t tensor_bytes(const struct htensor *t)
{
    return t ? htensor_count(t) * sizeof(float) : 0;
}

static size_t object_bytes(const void *obj)
{
    const struct conditioning *x = obj;
    size_t n = x->n * sizeof *x->at;
    for (size_t i = 0; i < x->n; i++) {
        n += tensor_bytes(x->at[i].cond) + tensor_bytes(x->at[i].pooled) +
             tensor_bytes(x->at[i].shown) + tensor_bytes(x->at[i].mask) +
             tensor_bytes(x->at[i].concat_latent) + tensor_bytes(x->at[i].concat_mask) +
             tensor_bytes(x->at[i].bias) + refs_bytes(x->at[i].ref) +
             refs_bytes(x->at[i].ref_text) + refs_bytes(x->at[i].ref_seen);
        for (size_t k = 0; k < EXTRA_KINDS; k++)
            n += tensor_bytes(x->at[i].extra[k]);
        for (const struct cond_vace *v = x->at[i].vace; v; v = v->before)
            n += tensor_bytes(v->frames) + tensor_bytes(v->mask);
        for (const struct cond_guide *g = x->at[i].guide; g; g = g->before)
            n += tensor_bytes(g->weight);
    }
    return n;
}

const struct value_type type_conditioning = { .name = "CONDITIONING",
                                              .free = free_object,
                                              .bytes = object_bytes };

berth_status in_conditioning(const struct node_call *c, const char *name,
                             const struct conditioning **out, berth_err *err)
{
    const void *obj;
    berth_status s = in_object(c, name, &type_conditioning, &obj, err);
    *out = obj;
    return s;
}

berth_status out_conditioning(struct node_call *c, size_t i, struct conditioning *taken,
                              berth_err *err)
{
    return out_value(c, i, value_object(&type_conditioning, taken), err);
}
