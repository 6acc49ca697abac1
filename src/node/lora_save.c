/* lora_save: adapters out of the difference of two models (ModelMergeSubtract, CLIPMergeSubtract):
 * for each weight the two thin matrices nearest to it, or the difference as it is. Tensors are
 * computed as the file is written: one is in memory beside the model. */
#include "node/compute.h"

#include "format/layout.h"
#include "merge/factor.h"
#include "tensor/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLAMP 0.99 /* of all values of both matrices so many stay as they are */

/* What is written of a tensor of the model. */
enum what { AS_IS, UP, DOWN };
struct lora_tensor {
    const struct model_ref *ref;
    size_t part, block, tensor;
    enum what what;
    size_t rows, cols, rank; /* UP, DOWN */
};

struct lora_file {
    struct node_call *c;
    struct vec spec, from; /* struct weights_spec, struct lora_tensor */
    struct arena mem;      /* names */
    size_t rank;
    bool whole, biases; /* differences as they are; vectors too */
    const struct res_model *ready;
    const struct weights_entry *at; /* whose factors these are; NULL: nobody's */
    float *up, *down;
};

static void lora_file_release(struct lora_file *f)
{
    vec_release(&f->spec);
    vec_release(&f->from);
    arena_release(&f->mem);
    free(f->up);
    free(f->down);
    f->up = f->down = NULL;
}

/* ---- what is in it ---- */

static berth_status add(struct lora_file *f, const char *base, size_t n, const char *end,
                        const struct shape *shape, struct lora_tensor from, berth_err *err)
{
    size_t len = n + strlen(end) + 1;
    struct weights_spec *s = vec_add(&f->spec);
    char *name = s && vec_push(&f->from, &from) ? arena_array(&f->mem, len, 1) : NULL;
    if (!name)
        return err_set(err, BERTH_ENOMEM, "%zu tensors of an adapter", f->spec.n);
    snprintf(name, len, "%.*s%s", (int)n, base, end);
    *s = (struct weights_spec) { .name = name, .dtype = DT_F16, .shape = *shape };
    return BERTH_OK;
}

/* A weight of two dimensions, or of a convolution, as two. */
static berth_status add_factors(struct lora_file *f, const char *base, size_t n,
                                const struct shape *s, struct lora_tensor from, berth_err *err)
{
    struct shape up = { .ndim = s->ndim, .dim = { s->dim[0], 0, 1, 1 } }, down = *s;
    size_t rank = f->rank;
    rank = rank < s->dim[0] ? rank : (size_t)s->dim[0];
    rank = rank < s->dim[1] ? rank : (size_t)s->dim[1];
    up.dim[1] = down.dim[0] = rank;
    from.rank = rank;
    from.rows = (size_t)s->dim[0];
    from.cols = (size_t)shape_inner(s, 1);
    from.what = UP;
    if (add(f, base, n, ".lora_up.weight", &up, from, err))
        return err->code;
    from.what = DOWN;
    return add(f, base, n, ".lora_down.weight", &down, from, err);
}

static berth_status add_tensor(struct lora_file *f, const char *name, const struct shape *s,
                               struct lora_tensor from, berth_err *err)
{
    size_t n = strlen(name);
    uint64_t count;
    if (!shape_count(s, &count) || !count)
        return BERTH_OK;
    if (str_ends(name, n, ".bias"))
        return f->biases ? add(f, name, n - strlen(".bias"), ".diff_b", s, from, err) : BERTH_OK;
    if (!str_ends(name, n, ".weight"))
        return BERTH_OK;
    n -= strlen(".weight");
    if (f->whole || s->ndim < 2)
        return f->whole || f->biases ? add(f, name, n, ".diff", s, from, err) : BERTH_OK;
    if (s->ndim == 2 || s->ndim == 4)
        return add_factors(f, name, n, s, from, err);
    log_warn(f->c->env->log, "node.lora_save",
             "node=%s tensor=%s why=\"a weight of %d dimensions has no factors: left out\"",
             f->c->id, name, s->ndim);
    return BERTH_OK;
}

/* front: in front of what ComfyUI calls the tensors. */
static berth_status add_model(struct lora_file *f, const struct model_ref *ref, const char *front,
                              berth_err *err)
{
    for (size_t p = 0; p < ref->parts; p++) {
        struct res_model *m = ref->part[p];
        const struct blocks *b = res_blocks(m);
        for (size_t i = 0; i < b->n; i++)
            for (size_t k = 0; k < b->at[i].n; k++) {
                const struct weights_entry *e = b->tensor[b->at[i].first + k].entry;
                char key[RES_KEY_MAX], name[RES_KEY_MAX + 32];
                struct lora_tensor from = { .ref = ref, .part = p, .block = i, .tensor = k };
                res_tensor_key(m, e, key);
                snprintf(name, sizeof name, "%s%s", front, key);
                if (add_tensor(f, name, &e->shape, from, err))
                    return err->code;
            }
    }
    return ref->parts ? BERTH_OK : err_set(err, BERTH_EUNSUPPORTED, "a model without weights");
}

/* ---- writing ---- */

/* A tensor of a loaded model as F32; free() it. */
static berth_status read_tensor(struct lora_file *f, const struct lora_tensor *from,
                                const struct weights_spec *s, size_t count, float **out,
                                berth_err *err)
{
    struct res_model *m = from->ref->part[from->part];
    *out = NULL;
    if (call_check(f->c, err))
        return err->code;
    if (m != f->ready) {
        f->ready = NULL;
        if (ready_load(f->c, from->ref, from->part, err))
            return err->code;
        f->ready = m;
    }
    struct res_tensor_at at = res_tensor_at(m, from->block, from->tensor);
    void *raw = malloc((size_t)at.bytes + 1);
    float *to = malloc((count + 1) * sizeof *to);
    berth_status st = raw && to ? BERTH_OK : err_set(err, BERTH_ENOMEM, "'%.80s'", s->name);
    const struct blocks *b = res_blocks(m);
    const struct weights_entry *e = b->tensor[b->at[from->block].first + from->tensor].entry;
    if (!st && e->layout && !layout_is_plain(e->layout) && at.dtype == e->dtype)
        st = layout_values(res_weights(m), e, to, err);
    else if (!st &&
             !(st = res_tensor_read(m, from->block, from->tensor, raw, (size_t)at.bytes, err)))
        st = convert(at.dtype, raw, DT_F32, to, count, err);
    free(raw);
    if (st)
        free(to);
    *out = st ? NULL : to;
    return st;
}

/* Few values are much larger than the rest: those are cut off. */
static berth_status clamp(const struct lora_tensor *from, float *up, float *down, berth_err *err)
{
    size_t n = from->rows * from->rank, m = from->rank * from->cols;
    float *all = malloc((n + m) * sizeof *all);
    if (!all)
        return err_set(err, BERTH_ENOMEM, "%zu values of factors", n + m);
    memcpy(all, up, n * sizeof *all);
    memcpy(all + n, down, m * sizeof *all);
    float high = factor_quantile(all, n + m, CLAMP);
    free(all);
    for (size_t i = 0; i < n; i++) /* as torch.clamp(): a high below the low wins */
        up[i] = fminf(fmaxf(up[i], -high), high);
    for (size_t i = 0; i < m; i++)
        down[i] = fminf(fmaxf(down[i], -high), high);
    return BERTH_OK;
}

static berth_status find_factors(struct lora_file *f, const struct lora_tensor *from,
                                 const struct weights_spec *s, berth_err *err)
{
    const struct blocks *b = res_blocks(from->ref->part[from->part]);
    const struct weights_entry *e = b->tensor[b->at[from->block].first + from->tensor].entry;
    float *a;
    if (f->at == e)
        return BERTH_OK;
    f->at = NULL;
    free(f->up);
    free(f->down);
    f->up = malloc(from->rows * from->rank * sizeof *f->up);
    f->down = malloc(from->rank * from->cols * sizeof *f->down);
    if (!f->up || !f->down)
        return err_set(err, BERTH_ENOMEM, "'%.80s'", s->name);
    if (read_tensor(f, from, s, from->rows * from->cols, &a, err))
        return err->code;
    const struct factor_args x = { .a = a,
                                   .rows = from->rows,
                                   .cols = from->cols,
                                   .rank = from->rank,
                                   .pool = f->c->env->pool,
                                   .cancel = cancel_of(f->c) };
    berth_status st = factor(&x, f->up, f->down, err);
    free(a);
    if (!st)
        st = clamp(from, f->up, f->down, err);
    if (st)
        return err_add(err, "'%.80s'", s->name);
    f->at = e;
    return BERTH_OK;
}

/* off and n in bytes of F16. */
static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    struct lora_file *f = user;
    const struct lora_tensor *from = vec_at(&f->from, i);
    const struct weights_spec *s = vec_at(&f->spec, i);
    float *own = NULL;
    uint64_t count;
    if (!shape_count(&s->shape, &count))
        return err_set(err, BERTH_EFORMAT, "'%.80s': its shape does not fit", s->name);
    berth_status st = from->what == AS_IS ? read_tensor(f, from, s, (size_t)count, &own, err)
                                          : find_factors(f, from, s, err);
    const float *of = from->what == AS_IS ? own : from->what == UP ? f->up : f->down;
    if (!st)
        st = convert(DT_F32, of + off / 2, DT_F16, dst, n / 2, err);
    free(own);
    return st;
}

static void on_progress(void *user, uint64_t done, uint64_t total)
{
    struct lora_file *f = user;
    berth_err unread = { 0 }; /* an interrupt ends the next tensor */
    call_progress(f->c, (double)done, total ? (double)total : 1, &unread);
}

static berth_status write_file(struct lora_file *f, const char *prefix, berth_err *err)
{
    struct saved to = { 0 };
    struct str path = { 0 };
    berth_status s = save_begin(f->c, "output", prefix, 0, 0, &to, err);
    if (!s)
        s = save_free_path(&to, ".safetensors", &path, err);
    struct weights_write_args a = { .format = "safetensors",
                                    .path = str_c(&path),
                                    .spec = f->spec.p,
                                    .count = f->spec.n,
                                    .fill = fill,
                                    .user = f,
                                    .progress = on_progress,
                                    .progress_user = f };
    if (!s)
        s = weights_write(&a, err);
    if (!s)
        log_info(f->c->env->log, "node.saved", "node=%s tensors=%zu path=%s", f->c->id, f->spec.n,
                 str_c(&path));
    save_end(&to);
    str_release(&path);
    return s;
}

static berth_status run_lora_save(struct node_call *c, berth_err *err)
{
    struct lora_file f = { .c = c,
                           .spec = { .elem = sizeof(struct weights_spec) },
                           .from = { .elem = sizeof(struct lora_tensor) } };
    const struct model_ref *model = NULL, *clip = NULL;
    const char *prefix, *type;
    int64_t rank;
    if (in_text(c, "filename_prefix", &prefix, err) || in_i64(c, "rank", &rank, err) ||
        in_text(c, "lora_type", &type, err) || in_bool(c, "bias_diff", &f.biases, err) ||
        (in_given(c, "model_diff") && in_model(c, "model_diff", &model, err)) ||
        (in_given(c, "text_encoder_diff") && in_model(c, "text_encoder_diff", &clip, err)))
        return err->code;
    if (rank < 1 || rank > 4096)
        return err_set(err, BERTH_EINVAL, "a rank of %lld, not 1 to 4096", (long long)rank);
    if (!model && !clip)
        return BERTH_OK;
    f.rank = (size_t)rank;
    f.whole = strcmp(type, "full_diff") == 0;
    berth_status s = model ? add_model(&f, model, "", err) : BERTH_OK;
    if (!s && clip)
        s = add_model(&f, clip, "text_encoders.", err);
    if (!s)
        s = write_file(&f, prefix, err);
    lora_file_release(&f);
    return s;
}

NODE_CLASS(LoraSave, .display = "Extract and Save Lora", .category = "experimental",
           .module = MOD("lora_extract"),
           .flags = NODE_V3 | NODE_OUTPUT | NODE_EXPERIMENTAL | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(TEXT_IN("filename_prefix", "loras/ComfyUI_extracted_lora",
                       .more = "\"multiline\":false"),
               INT_IN("rank", 8, 1, 4096, 1, .more = ADVANCED),
               COMBO_IN("lora_type", CHOICES("standard", "full_diff"), .more = ADVANCED),
               BOOL_IN("bias_diff", true, .more = ADVANCED),
               SOCKET("model_diff", "MODEL", .optional = true),
               SOCKET("text_encoder_diff", "CLIP", .optional = true)),
           .run = run_lora_save);
