#include "node/value.h"

#include "base/sz.h"
#include "device/cpu/meminfo.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- host tensors ---- */

#define ROOM_FROM ((size_t)64 << 20) /* tensors from here on are worth a look at /proc */
#define ROOM_SLACK ((uint64_t)64 << 20)

berth_status host_room(const char *root, size_t bytes, berth_err *err)
{
    uint64_t total, left;
    berth_err unknown;
    if (bytes < ROOM_FROM || meminfo_read(root, &total, &left, &unknown))
        return BERTH_OK; /* not known: malloc() decides */
    if (left >= ROOM_SLACK && bytes <= left - ROOM_SLACK)
        return BERTH_OK;
    return err_set(err, BERTH_ENOMEM, "%zu bytes wanted, %" PRIu64 " of %" PRIu64 " available",
                   bytes, left, total);
}

/* malloc() promises more than there is; only pages that are touched count as used. */
static void populate(void *p, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)p;
    uintptr_t from = (at + page - 1) & ~(page - 1), end = (at + bytes) & ~(page - 1);
    if (bytes >= ROOM_FROM && end > from)
        madvise((void *)from, end - from, MADV_POPULATE_WRITE); /* an old kernel: as before */
#else
    (void)p, (void)bytes;
#endif
}

static berth_status tensor_new(const struct shape *s, bool zero, struct htensor **out,
                               berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    uint64_t count;
    size_t bytes;
    *out = NULL;
    if (s->ndim < 0 || s->ndim > SHAPE_MAX_DIMS || !shape_count(s, &count) ||
        !sz_from_u64(count, &bytes) || !sz_mul(bytes, sizeof(float), &bytes) || bytes > HTENSOR_MAX)
        return err_set(err, BERTH_ELIMIT, "a tensor of %s float32 is more than %zu bytes",
                       shape_text(s, text), HTENSOR_MAX);
    if (host_room("", bytes, err))
        return err_add(err, "a tensor of %s float32", shape_text(s, text));
    struct htensor *t = calloc(1, sizeof *t);
    if (t)
        t->data = zero ? calloc(1, bytes ? bytes : 1) : malloc(bytes ? bytes : 1);
    if (!t || !t->data) {
        free(t);
        return err_set(err, BERTH_ENOMEM, "a tensor of %s, %zu bytes", shape_text(s, text), bytes);
    }
    populate(t->data, bytes);
    t->refs = 1;
    t->shape = *s;
    *out = t;
    return BERTH_OK;
}

berth_status htensor_new(const struct shape *s, struct htensor **out, berth_err *err)
{
    return tensor_new(s, false, out, err);
}

berth_status htensor_zeros(const struct shape *s, struct htensor **out, berth_err *err)
{
    return tensor_new(s, true, out, err);
}

berth_status htensor_take(const struct shape *s, float *taken, struct htensor **out,
                          berth_err *err)
{
    struct htensor *t = malloc(sizeof *t);
    *out = t;
    if (!t) {
        free(taken);
        return err_set(err, BERTH_ENOMEM, "a tensor");
    }
    *t = (struct htensor) { .refs = 1, .shape = *s, .data = taken };
    return BERTH_OK;
}

struct htensor *htensor_ref(struct htensor *t)
{
    t->refs++;
    return t;
}

void htensor_unref(struct htensor *t)
{
    if (!t || --t->refs)
        return;
    free(t->data);
    free(t);
}

berth_status htensor_made(berth_status s, struct htensor **t)
{
    if (s) {
        htensor_unref(*t);
        *t = NULL;
    }
    return s;
}

berth_status htensor_copy(const struct htensor *t, struct htensor **out, berth_err *err)
{
    if (htensor_new(&t->shape, out, err))
        return err->code;
    memcpy((*out)->data, t->data, htensor_count(t) * sizeof(float));
    return BERTH_OK;
}

size_t htensor_count(const struct htensor *t)
{
    uint64_t n;
    if (!shape_count(&t->shape, &n))
        BUG("a tensor whose shape does not fit");
    return (size_t)n;
}

/* ---- latents and models ---- */

void latent_release(struct latent *l)
{
    htensor_unref(l->samples);
    htensor_unref(l->noise_mask);
    for (size_t i = 0; i < LATENT_MORE; i++) {
        htensor_unref(l->more[i].samples);
        htensor_unref(l->more[i].noise_mask);
    }
    free(l->batch_index);
    *l = (struct latent) { 0 };
}

void model_ref_release(struct model_ref *m)
{
    for (size_t i = 0; i < m->parts; i++)
        res_unref(m->part[i]);
    for (size_t i = 0; i < VALUE_PARTS; i++)
        if (m->loaded[i])
            res_unref(m->loaded[i]);
    for (size_t i = 0; i < m->patches; i++)
        res_adapter_unref(m->patch[i].adapter);
    for (size_t i = 0; i < m->changes; i++)
        value_unref(m->change[i].with);
    free(m->change);
    free(m->patch);
    value_unref(m->clip_hooks);
    value_unref(m->cond_hooks);
    free(m->clip_type);
    free(m->missing);
    model_control_unref(m->control);
    htensor_unref(m->tokens);
    *m = (struct model_ref) { 0 };
}

struct model_control *model_control_new(void)
{
    struct model_control *k = calloc(1, sizeof *k);
    if (k)
        k->refs = 1;
    return k;
}

void model_control_unref(struct model_control *k)
{
    if (!k || --k->refs)
        return;
    model_control_unref(k->before);
    model_ref_release(&k->net);
    model_ref_release(&k->vae);
    htensor_unref(k->image);
    htensor_unref(k->inpaint);
    htensor_unref(k->mask);
    free(k);
}

berth_status model_ref_copy(const struct model_ref *m, struct model_ref *out, berth_err *err)
{
    *out = (struct model_ref) { .said = m->said, .control = m->control };
    if (out->control)
        out->control->refs++;
    out->tokens = m->tokens ? htensor_ref(m->tokens) : NULL;
    out->clip_hooks = m->clip_hooks ? value_ref(m->clip_hooks) : NULL;
    out->cond_hooks = m->cond_hooks ? value_ref(m->cond_hooks) : NULL;
    if (m->patches) {
        out->patch = calloc(m->patches, sizeof *out->patch);
        if (!out->patch)
            goto fail;
        for (; out->patches < m->patches; out->patches++) {
            out->patch[out->patches] = m->patch[out->patches];
            res_adapter_ref(m->patch[out->patches].adapter);
        }
    }
    if (m->changes) {
        out->change = calloc(m->changes, sizeof *out->change);
        if (!out->change)
            goto fail;
        for (; out->changes < m->changes; out->changes++) {
            out->change[out->changes] = m->change[out->changes];
            if (m->change[out->changes].with)
                value_ref(m->change[out->changes].with);
        }
    }
    if (m->clip_type && !(out->clip_type = strdup(m->clip_type)))
        goto fail;
    for (; out->parts < m->parts; out->parts++) {
        out->part[out->parts] = m->part[out->parts];
        res_ref(out->part[out->parts]);
    }
    for (size_t i = 0; i < VALUE_PARTS; i++)
        if ((out->loaded[i] = m->loaded[i]))
            res_ref(out->loaded[i]);
    return BERTH_OK;
fail:
    model_ref_release(out);
    return err_set(err, BERTH_ENOMEM, "copying a model reference with %zu adapters", m->patches);
}

berth_status model_ref_patch(struct model_ref *m, struct res_adapter *a, double strength,
                             berth_err *err)
{
    struct res_patch *p = realloc(m->patch, (m->patches + 1) * sizeof *p);
    if (!p)
        return err_set(err, BERTH_ENOMEM, "adapter %zu of a model", m->patches + 1);
    m->patch = p;
    res_adapter_ref(a);
    m->patch[m->patches++] = (struct res_patch) { a, (float)strength };
    return BERTH_OK;
}

berth_status model_ref_change(struct model_ref *m, struct model_change c, berth_err *err)
{
    struct model_change *at = NULL;
    if (m->changes == MODEL_CHANGES)
        err_set(err, BERTH_ELIMIT, "a model with more than %d patches", MODEL_CHANGES);
    else if (!(at = realloc(m->change, (m->changes + 1) * sizeof *at)))
        err_set(err, BERTH_ENOMEM, "%zu patches of a model", m->changes + 1);
    if (!at) {
        value_unref(c.with);
        return err->code;
    }
    m->change = at;
    m->change[m->changes++] = c;
    return BERTH_OK;
}

/* ---- values ---- */

/* A counted copy; NULL: no memory. */
static struct value *value_of(struct value v)
{
    struct value *at = malloc(sizeof *at);
    if (at)
        *at = v;
    if (at)
        at->refs = 1;
    return at;
}

struct value *value_null(void)
{
    return value_of((struct value) { .kind = V_NULL });
}

struct value *value_none(char *taken_why)
{
    struct value *v = value_of((struct value) { .kind = V_NULL, .why = taken_why });
    if (!v)
        free(taken_why);
    return v;
}

struct value *value_int(int64_t i)
{
    return value_of((struct value) { .kind = V_INT, .i = i });
}

struct value *value_uint(uint64_t u)
{
    return u <= INT64_MAX ? value_int((int64_t)u)
                          : value_of((struct value) { .kind = V_UINT, .u = u });
}

struct value *value_float(double f)
{
    return value_of((struct value) { .kind = V_FLOAT, .f = f });
}

struct value *value_bool(bool b)
{
    return value_of((struct value) { .kind = V_BOOL, .b = b });
}

struct value *value_string(const char *p, size_t n)
{
    char *copy = malloc(n + 1);
    struct value *v = copy ? value_of((struct value) { .kind = V_STRING, .s = { copy, n } }) : NULL;
    if (!v) {
        free(copy);
        return NULL;
    }
    if (n)
        memcpy(copy, p, n);
    copy[n] = '\0';
    return v;
}

struct value *value_json(json_t *taken)
{
    struct value *v = taken ? value_of((struct value) { .kind = V_JSON, .json = taken }) : NULL;
    if (!v)
        json_decref(taken);
    return v;
}

struct value *value_tensor(struct htensor *taken)
{
    struct value *v = taken ? value_of((struct value) { .kind = V_TENSOR, .tensor = taken }) : NULL;
    if (!v)
        htensor_unref(taken);
    return v;
}

struct value *value_latent(struct latent *taken)
{
    struct value *v = value_of((struct value) { .kind = V_LATENT, .latent = *taken });
    if (!v)
        latent_release(taken);
    *taken = (struct latent) { 0 };
    return v;
}

struct value *value_model(struct model_ref *taken)
{
    struct value *v = value_of((struct value) { .kind = V_MODEL, .model = *taken });
    if (!v)
        model_ref_release(taken);
    *taken = (struct model_ref) { 0 };
    return v;
}

struct value *value_object(const struct value_type *type, void *taken)
{
    struct value *v =
        taken ? value_of((struct value) { .kind = V_OBJECT, .object = { type, taken } }) : NULL;
    if (!v && taken && type->free)
        type->free(taken);
    return v;
}

struct value *value_from_json(const json_t *j)
{
    int64_t i;
    uint64_t u;
    double f;
    switch (js_kind(j)) {
    case JS_NULL:
        return value_null();
    case JS_BOOL:
        return value_bool(json_is_true(j));
    case JS_I64:
        return js_get_i64(j, &i) ? value_int(i) : NULL;
    case JS_U64:
        return js_get_u64(j, &u) ? value_uint(u) : NULL;
    case JS_F64:
        return js_get_f64(j, &f) ? value_float(f) : NULL;
    case JS_STRING:
        return value_string(json_string_value(j), json_string_length(j));
    case JS_ARRAY:
    case JS_OBJECT:
        break;
    }
    return value_json(json_deep_copy(j)); /* a copy: the prompt may change under a cached value */
}

struct value *value_ref(struct value *v)
{
    v->refs++;
    return v;
}

void value_unref(struct value *v)
{
    if (!v || --v->refs)
        return;
    switch (v->kind) {
    case V_NULL:
        free(v->why);
        break;
    case V_STRING:
        free(v->s.p);
        break;
    case V_JSON:
        json_decref(v->json);
        break;
    case V_TENSOR:
        htensor_unref(v->tensor);
        break;
    case V_LATENT:
        latent_release(&v->latent);
        break;
    case V_MODEL:
        model_ref_release(&v->model);
        break;
    case V_OBJECT:
        if (v->object.type->free)
            v->object.type->free(v->object.obj);
        break;
    case V_INT:
    case V_UINT:
    case V_FLOAT:
    case V_BOOL:
        break;
    }
    free(v);
}

static size_t tensor_bytes(const struct htensor *t)
{
    return t ? sizeof *t + htensor_count(t) * sizeof(float) : 0;
}

size_t value_bytes(const struct value *v)
{
    size_t n = sizeof *v;
    switch (v->kind) {
    case V_STRING:
        return n + v->s.n + 1;
    case V_TENSOR:
        return n + tensor_bytes(v->tensor);
    case V_LATENT:
        for (size_t i = 0; i < LATENT_MORE; i++)
            n += tensor_bytes(v->latent.more[i].samples) +
                 tensor_bytes(v->latent.more[i].noise_mask);
        return n + tensor_bytes(v->latent.samples) + tensor_bytes(v->latent.noise_mask) +
               (v->latent.batch_index ? v->latent.samples->shape.dim[0] * sizeof(int64_t) : 0);
    case V_OBJECT:
        return n + (v->object.type->bytes ? v->object.type->bytes(v->object.obj) : 0);
    case V_MODEL:
        return n + v->model.patches * sizeof *v->model.patch;
    case V_JSON: /* unknown, and small */
    case V_NULL:
    case V_INT:
    case V_UINT:
    case V_FLOAT:
    case V_BOOL:
        break;
    }
    return n;
}

static json_t *describe_model(const struct model_ref *m)
{
    struct str s = { 0 };
    str_adds(&s, "model");
    for (size_t i = 0; i < m->parts; i++)
        str_addf(&s, "%s %s", i ? " +" : "", res_info(m->part[i]).name);
    if (m->patches)
        str_addf(&s, " with %zu adapter%s", m->patches, m->patches == 1 ? "" : "s");
    json_t *j = s.bad ? NULL : json_stringn(str_c(&s), s.n);
    str_release(&s);
    return j;
}

json_t *value_describe(const struct value *v)
{
    char text[SHAPE_TEXT_MAX];
    switch (v->kind) {
    case V_NULL:
        return json_null();
    case V_INT:
        return json_integer(v->i);
    case V_UINT:
        return js_u64(v->u);
    case V_FLOAT: { /* JSON has no words for infinities and NaN */
        json_t *j = json_real(v->f);
        return j ? j : json_null();
    }
    case V_BOOL:
        return json_boolean(v->b);
    case V_STRING:
        return json_stringn(v->s.p, v->s.n);
    case V_JSON:
        return json_deep_copy(v->json);
    case V_TENSOR:
        return json_sprintf("tensor %s", shape_text(&v->tensor->shape, text));
    case V_LATENT:
        return json_sprintf("latent %s%s%s", shape_text(&v->latent.samples->shape, text),
                            v->latent.noise_mask ? " with a noise mask" : "",
                            v->latent.more[0].samples ? ", and others with it" : "");
    case V_MODEL:
        return describe_model(&v->model);
    case V_OBJECT:
        return json_string(v->object.type->name);
    }
    return json_null();
}

/* ---- blockers ---- */

static const struct value_type type_blocker = { .name = "ExecutionBlocker", .free = free };

struct value *value_blocker(const char *message)
{
    char *copy = strdup(message ? message : ""); /* "" is none */
    return copy ? value_object(&type_blocker, copy) : NULL;
}

bool value_is_blocker(const struct value *v, const char **message)
{
    bool is = v->kind == V_OBJECT && v->object.type == &type_blocker;
    const char *text = is ? v->object.obj : "";
    if (is && message)
        *message = *text ? text : NULL;
    return is;
}

/* ---- lists ---- */

berth_status values_add(struct values *x, struct value *taken, berth_err *err)
{
    if (taken && x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 1; /* most lists hold one value for ever */
        struct value **at = realloc(x->at, cap * sizeof *at);
        if (at) {
            x->at = at;
            x->cap = cap;
        }
    }
    if (!taken || x->n == x->cap) {
        value_unref(taken);
        return err_set(err, BERTH_ENOMEM, "a value for a list of %zu", x->n);
    }
    x->at[x->n++] = taken;
    return BERTH_OK;
}

void values_release(struct values *x)
{
    for (size_t i = 0; i < x->n; i++)
        value_unref(x->at[i]);
    free(x->at);
    *x = (struct values) { 0 };
}
