/* state_blocks: where every block of a model is, as others may know it. Names never change, so they
 * are written once for a model and shared by everything that is published of it; what changes is a
 * few bytes for each block. */
#include "server/worker_impl.h"

#include <inttypes.h>

struct block_names {
    atomic_uint refs;
    size_t n;
    struct str json; /* each name quoted, behind one another */
    size_t at[];     /* n + 1: where they begin in it */
};

static void names_unref(struct block_names *x)
{
    if (!x || atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) != 1)
        return;
    str_release(&x->json);
    free(x);
}

static struct block_names *names_ref(struct block_names *x)
{
    atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    return x;
}

/* NULL: no memory. */
static struct block_names *names_new(const struct blocks *b)
{
    struct block_names *x = calloc(1, sizeof *x + (b->n + 1) * sizeof x->at[0]);
    if (!x)
        return NULL;
    atomic_init(&x->refs, 1);
    x->n = b->n;
    for (size_t i = 0; i < b->n; i++) {
        js_write_string(b->at[i].name, b->at[i].name_len, &x->json);
        x->at[i + 1] = x->json.n;
    }
    if (!x->json.bad)
        return x;
    names_unref(x);
    return NULL;
}

/* The names that were published of this model before; NULL: none. */
static struct block_names *known_names(const struct worker *w, uint64_t id)
{
    for (size_t i = 0; i < w->models.n; i++) { /* only this thread changes the list */
        const struct model_text *t = vec_at(&w->models, i);
        if (t->id == id)
            return t->blocks.names;
    }
    return NULL;
}

bool model_blocks_make(const struct worker *w, const struct res_model *m, struct model_blocks *out)
{
    const struct blocks *b = res_blocks(m);
    struct block_names *known = known_names(w, res_info(m).id);
    out->names = known ? names_ref(known) : names_new(b);
    out->at = calloc(b->n ? b->n : 1, sizeof *out->at);
    if (!out->names || !out->at) {
        model_blocks_release(out);
        return false;
    }
    for (size_t i = 0; i < b->n; i++) {
        struct res_block_place p = res_block_place(m, i);
        out->at[i] = (struct block_now) { p.bytes, p.device == RES_NO_DEVICE ? -1 : (int)p.device,
                                          (int)p.home };
    }
    return true;
}

void model_blocks_release(struct model_blocks *x)
{
    names_unref(x->names);
    free(x->at);
    *x = (struct model_blocks) { 0 };
}

size_t model_blocks_count(const struct model_blocks *x)
{
    return x->names ? x->names->n : 0;
}

/* A copy that nobody changes; under the lock. False: no memory. */
bool model_blocks_copy(const struct model_blocks *x, struct model_blocks *out)
{
    size_t n = model_blocks_count(x);
    out->at = malloc((n ? n : 1) * sizeof *out->at);
    if (!out->at)
        return false;
    memcpy(out->at, x->at, n * sizeof *out->at);
    out->names = names_ref(x->names);
    return true;
}

void model_blocks_json(const struct worker *w, const struct model_blocks *x, struct jsonout *j)
{
    jo_open(j, "blocks", '[');
    for (size_t i = 0; i < model_blocks_count(x); i++) {
        const struct block_now *b = &x->at[i];
        const struct block_names *names = x->names;
        jo_open(j, NULL, '{');
        jo_raw(j, "name", names->json.p + names->at[i], names->at[i + 1] - names->at[i]);
        jo_u64(j, "bytes", b->bytes);
        jo_str(j, "device",
               b->device < 0 ? NULL : devset_at(w->parts.devices, (size_t)b->device)->name);
        jo_str(j, "planned", devset_at(w->parts.devices, (size_t)b->home)->name);
        jo_close(j, '}');
    }
    jo_close(j, ']');
}
