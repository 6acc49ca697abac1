/* The names a pickle may use, and what they stand for: tensors, and containers around them. */
#include "format/format_impl.h"
#include "format/pickle_impl.h"

#include "base/sz.h"

#include <inttypes.h>

enum call {
    CALL_NOTHING,   /* a class: named, never called */
    TYPE,           /* of tensors */
    STORAGE,        /* a class of storages */
    CALL_TENSOR,    /* storage, offset, shape, strides; then what does not matter here */
    CALL_TYPED,     /* the same, with the type behind two more */
    CALL_FIRST,     /* its first argument, a tensor or a collection */
    CALL_FROM_TYPE, /* another of these, its class, the arguments for it */
    CALL_DICT,
    CALL_HOLDER, /* a dict whose contents come as the state of a module */
    CALL_LIST,
    CALL_INERT,
};

struct pk_name {
    const char *module, *name;
    enum call call;
    enum dtype dtype; /* TYPE, STORAGE; DT_NONE: of bytes */
};

static const struct pk_name names[] = {
    { "torch._utils", "_rebuild_tensor", CALL_TENSOR, DT_NONE },
    { "torch._utils", "_rebuild_tensor_v2", CALL_TENSOR, DT_NONE },
    { "torch._utils", "_rebuild_tensor_v3", CALL_TYPED, DT_NONE },
    { "torch._utils", "_rebuild_parameter", CALL_FIRST, DT_NONE },
    { "torch._utils", "_rebuild_parameter_with_state", CALL_FIRST, DT_NONE },
    { "torch._tensor", "_rebuild_from_type_v2", CALL_FROM_TYPE, DT_NONE },
    { "torch.nn.parameter", "Parameter", CALL_FIRST, DT_NONE },
    { "torch.nn.modules.container", "ParameterDict", CALL_HOLDER, DT_NONE },
    { "torch", "Tensor", CALL_NOTHING, DT_NONE },
    { "torch", "Size", CALL_FIRST, DT_NONE },
    { "torch", "device", CALL_INERT, DT_NONE },
    { "torch", "DoubleStorage", STORAGE, DT_F64 },
    { "torch", "FloatStorage", STORAGE, DT_F32 },
    { "torch", "HalfStorage", STORAGE, DT_F16 },
    { "torch", "BFloat16Storage", STORAGE, DT_BF16 },
    { "torch", "LongStorage", STORAGE, DT_I64 },
    { "torch", "IntStorage", STORAGE, DT_I32 },
    { "torch", "ShortStorage", STORAGE, DT_I16 },
    { "torch", "CharStorage", STORAGE, DT_I8 },
    { "torch", "ByteStorage", STORAGE, DT_U8 },
    { "torch", "BoolStorage", STORAGE, DT_BOOL },
    { "torch.storage", "UntypedStorage", STORAGE, DT_NONE },
    { "torch", "UntypedStorage", STORAGE, DT_NONE },
    { "torch", "float64", TYPE, DT_F64 },
    { "torch", "float32", TYPE, DT_F32 },
    { "torch", "float16", TYPE, DT_F16 },
    { "torch", "bfloat16", TYPE, DT_BF16 },
    { "torch", "float8_e4m3fn", TYPE, DT_F8_E4M3 },
    { "torch", "float8_e5m2", TYPE, DT_F8_E5M2 },
    { "torch", "float8_e8m0fnu", TYPE, DT_F8_E8M0 },
    { "torch", "int64", TYPE, DT_I64 },
    { "torch", "int32", TYPE, DT_I32 },
    { "torch", "int16", TYPE, DT_I16 },
    { "torch", "int8", TYPE, DT_I8 },
    { "torch", "uint64", TYPE, DT_U64 },
    { "torch", "uint32", TYPE, DT_U32 },
    { "torch", "uint16", TYPE, DT_U16 },
    { "torch", "uint8", TYPE, DT_U8 },
    { "torch", "bool", TYPE, DT_BOOL },
    { "collections", "OrderedDict", CALL_DICT, DT_NONE },
    { "collections", "Counter", CALL_INERT, DT_NONE },
    { "builtins", "set", CALL_LIST, DT_NONE },
    { "__builtin__", "set", CALL_LIST, DT_NONE },
    { "builtins", "bytearray", CALL_INERT, DT_NONE },
    { "__builtin__", "bytearray", CALL_INERT, DT_NONE },
    { "builtins", "complex", CALL_INERT, DT_NONE },
    { "__builtin__", "complex", CALL_INERT, DT_NONE },
    { "_codecs", "encode", CALL_INERT, DT_NONE },
    { "numpy.core.multiarray", "scalar", CALL_INERT, DT_NONE },
    { "numpy._core.multiarray", "scalar", CALL_INERT, DT_NONE },
    { "numpy", "dtype", CALL_INERT, DT_NONE },
    { "numpy.dtypes", "Float64DType", CALL_INERT, DT_NONE },
    /* a key among the leftovers of training in checkpoints of Stable Diffusion 1 */
    { "pytorch_lightning.callbacks.model_checkpoint", "ModelCheckpoint", CALL_INERT, DT_NONE },
};

berth_status pk_find_name(struct pk_vm *m, const char *module, size_t mlen, const char *name,
                          size_t nlen, struct pk **out, berth_err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(name, nlen, names[i].name) && str_eq(module, mlen, names[i].module)) {
            if ((*out = pk_new(m, PK_NAME, err)))
                (*out)->name = &names[i];
            return *out ? BERTH_OK : err->code;
        }
    return err_set(err, BERTH_EUNSUPPORTED,
                   "wants %s.%s, which Berth does not run: of a pickle it reads tensors, and calls "
                   "nothing",
                   excerpt(module, mlen).s, excerpt(name, nlen).s);
}

/* ---- storages ---- */

static berth_status out_of_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "out of memory for the tensors of a pickle");
}

static berth_status storage_new(struct pk_vm *m, const struct pk_storage *is,
                                struct pk_storage **out, berth_err *err)
{
    struct pk_storage *s = arena_alloc(&m->mem, sizeof *s), **slot = vec_add(&m->store);
    if (!s || !slot || map_add(&m->by_key, is->key, is->len, m->store.n - 1) != MAP_ADDED)
        return out_of_memory(err);
    *s = *is;
    *out = *slot = s;
    return BERTH_OK;
}

berth_status pk_persistent(struct pk_vm *m, const struct pk *id, struct pk **out, berth_err *err)
{
    /* a class, with its source beside it, in files from before 2020 */
    if (id->kind == PK_TUPLE && id->n == 4 && pk_is_text(id->at[0], "module") &&
        id->at[1]->kind == PK_NAME) {
        *out = id->at[1];
        return BERTH_OK;
    }
    if (id->kind != PK_TUPLE || id->n < 5 || !pk_is_text(id->at[0], "storage") ||
        id->at[1]->kind != PK_NAME || id->at[1]->name->call != STORAGE ||
        id->at[2]->kind != PK_TEXT || id->at[4]->kind != PK_INT || id->at[4]->i < 0)
        return err_set(err, BERTH_EFORMAT,
                       "the pickle refers to something outside of it that is no storage");
    if (id->n > 5 && id->at[5]->kind != PK_NONE)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a storage inside another one, as PyTorch before 0.4 wrote them");
    struct pk_storage is = { .key = id->at[2]->s,
                             .len = id->at[2]->len,
                             .dtype = id->at[1]->name->dtype,
                             .count = (uint64_t)id->at[4]->i };
    if (!dtype_bytes(is.dtype == DT_NONE ? DT_U8 : is.dtype, is.count, &is.bytes) ||
        is.bytes > INT64_MAX)
        return err_set(err, BERTH_EFORMAT, "storage '%s' of %" PRIu64 " elements is too large",
                       excerpt(is.key, is.len).s, is.count);
    uint64_t at;
    struct pk_storage *s = NULL;
    if (map_get(&m->by_key, is.key, is.len, &at)) {
        s = *(struct pk_storage **)vec_at(&m->store, (size_t)at);
        if (s->dtype != is.dtype || s->count != is.count)
            return err_set(err, BERTH_EFORMAT, "storage '%s' is described in two ways",
                           excerpt(is.key, is.len).s);
    } else if (storage_new(m, &is, &s, err)) {
        return err->code;
    }
    if ((*out = pk_new(m, PK_STORAGE, err)))
        (*out)->storage = s;
    return *out ? BERTH_OK : err->code;
}

/* ---- tensors ---- */

static berth_status read_numbers(const struct pk *v, uint64_t to[SHAPE_MAX_DIMS], berth_err *err)
{
    if ((v->kind != PK_TUPLE && v->kind != PK_LIST) || v->n > SHAPE_MAX_DIMS)
        return err_set(err, BERTH_EUNSUPPORTED, "a tensor of the pickle has %s of %zu as its shape",
                       pk_kind_text(v), v->kind == PK_TUPLE || v->kind == PK_LIST ? v->n : 0);
    for (size_t i = 0; i < v->n; i++) {
        if (v->at[i]->kind != PK_INT || v->at[i]->i < 0)
            return err_set(err, BERTH_EFORMAT,
                           "a tensor of the pickle has a size or stride below zero, or none");
        to[i] = (uint64_t)v->at[i]->i;
    }
    return BERTH_OK;
}

/* Bytes up to the end of the last element that a tensor reaches; false: not to be counted. */
static bool reach(const struct pk_tensor *t, uint64_t *bytes)
{
    uint64_t last = t->offset, count, step;
    if (!shape_count(&t->shape, &count))
        return false;
    if (count == 0) {
        *bytes = 0;
        return true;
    }
    for (int i = 0; i < t->shape.ndim; i++)
        if (__builtin_mul_overflow(t->shape.dim[i] - 1, t->stride[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    return last < INT64_MAX && dtype_bytes(t->dtype, last + 1, bytes);
}

/* args: storage, offset, shape, strides ... */
static berth_status rebuild(struct pk_vm *m, const struct pk *args, enum dtype dtype,
                            struct pk **out, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    uint64_t bytes;
    struct pk_tensor *t = arena_alloc(&m->mem, sizeof *t);
    if (!t)
        return out_of_memory(err);
    t->storage = args->at[0]->storage;
    t->dtype = dtype;
    t->offset = (uint64_t)args->at[1]->i;
    if (read_numbers(args->at[2], t->shape.dim, err) || read_numbers(args->at[3], t->stride, err))
        return err->code;
    t->shape.ndim = (int)args->at[2]->n;
    if (args->at[2]->n != args->at[3]->n)
        return err_set(err, BERTH_EFORMAT, "a tensor of shape %s in the pickle has %zu strides",
                       shape_text(&t->shape, text), args->at[3]->n);
    if (!reach(t, &bytes) || bytes > t->storage->bytes)
        return err_set(err, BERTH_EFORMAT,
                       "a tensor of shape %s reaches beyond its storage '%s' of %" PRIu64 " bytes",
                       shape_text(&t->shape, text), excerpt(t->storage->key, t->storage->len).s,
                       t->storage->bytes);
    if (!(*out = pk_new(m, PK_TENSOR, err)))
        return err->code;
    (*out)->tensor = t;
    m->tensors++;
    return BERTH_OK;
}

static berth_status bad_arguments(const struct pk *f, berth_err *err)
{
    return err_set(err, BERTH_EFORMAT, "%s.%s in the pickle has arguments it cannot have",
                   f->name->module, f->name->name);
}

static berth_status call_tensor(struct pk_vm *m, const struct pk *f, const struct pk *args,
                                struct pk **out, berth_err *err)
{
    bool typed = f->name->call == CALL_TYPED;
    if (args->n < (typed ? 7 : 4) || args->at[0]->kind != PK_STORAGE ||
        args->at[1]->kind != PK_INT || args->at[1]->i < 0)
        return bad_arguments(f, err);
    enum dtype dtype = args->at[0]->storage->dtype;
    if (typed && (args->at[6]->kind != PK_NAME || args->at[6]->name->call == STORAGE))
        return bad_arguments(f, err);
    if (typed)
        dtype = args->at[6]->name->dtype;
    return dtype == DT_NONE ? bad_arguments(f, err) : rebuild(m, args, dtype, out, err);
}

/* ---- containers ---- */

/* OrderedDict(), or of a list of pairs, as Python 2 wrote them. */
static berth_status call_dict(struct pk_vm *m, const struct pk *f, const struct pk *args,
                              struct pk **out, berth_err *err)
{
    if (args->n > 1 || (args->n && args->at[0]->kind != PK_LIST))
        return bad_arguments(f, err);
    if (!(*out = pk_new(m, PK_DICT, err)))
        return err->code;
    for (size_t i = 0; args->n && i < args->at[0]->n; i++) {
        const struct pk *pair = args->at[0]->at[i];
        if ((pair->kind != PK_LIST && pair->kind != PK_TUPLE) || pair->n != 2)
            return bad_arguments(f, err);
        if (pk_push(m, *out, pair->at[0], err) || pk_push(m, *out, pair->at[1], err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status call_from_type(struct pk_vm *m, const struct pk *f, const struct pk *args,
                                   struct pk **out, berth_err *err)
{
    if (args->n < 3 || args->at[0]->kind != PK_NAME || args->at[2]->kind != PK_TUPLE ||
        args->at[0]->name->call == CALL_FROM_TYPE)
        return bad_arguments(f, err);
    return pk_call(m, args->at[0], args->at[2], out, err);
}

berth_status pk_call(struct pk_vm *m, const struct pk *f, const struct pk *args, struct pk **out,
                     berth_err *err)
{
    switch (f->name->call) {
    case CALL_TENSOR:
    case CALL_TYPED:
        return call_tensor(m, f, args, out, err);
    case CALL_FROM_TYPE:
        return call_from_type(m, f, args, out, err);
    case CALL_DICT:
        return call_dict(m, f, args, out, err);
    case CALL_FIRST:
        if (!args->n || (args->at[0]->kind != PK_TENSOR && args->at[0]->kind != PK_TUPLE &&
                         args->at[0]->kind != PK_LIST))
            return bad_arguments(f, err);
        *out = args->at[0];
        return BERTH_OK;
    case CALL_LIST:
        if (args->n == 1 && args->at[0]->kind == PK_LIST) {
            *out = args->at[0];
            return BERTH_OK;
        }
        *out = args->n ? NULL : pk_new(m, PK_LIST, err);
        return *out ? BERTH_OK : args->n ? bad_arguments(f, err) : err->code;
    case CALL_HOLDER:
        if ((*out = pk_new(m, PK_DICT, err)))
            (*out)->holder = true;
        return *out ? BERTH_OK : err->code;
    case CALL_INERT:
        *out = pk_new(m, PK_INERT, err);
        return *out ? BERTH_OK : err->code;
    case CALL_NOTHING:
    case TYPE:
    case STORAGE:
        break;
    }
    return err_set(err, BERTH_EUNSUPPORTED, "calls %s.%s, which Berth does not run",
                   f->name->module, f->name->name);
}
