/* bounce.c: operands to the host and results back, packed on the way. */
#include "op/bounce.h"

#include "device/device.h"
#include "tensor/convert.h"

/* The views of an operand; 0: it is absent. */
static size_t views_of(const struct op_operand *o, const void *args, const struct view **v)
{
    const char *at = (const char *)args + o->at;
    if (!o->how)
        return 0;
    if (o->how & OP_LIST) {
        memcpy(v, at, sizeof *v);
        size_t n;
        memcpy(&n, (const char *)args + o->count, sizeof n);
        return n;
    }
    *v = (const struct view *)(const void *)at;
    return (*v)->data != NULL;
}

static size_t packed_bytes(enum dtype t, const struct view *v)
{
    uint64_t bytes = 0;
    size_t n = 0;
    return dtype_bytes(t, op_count(v), &bytes) && sz_from_u64(bytes, &n) ? n : SIZE_MAX;
}

/* The reference has F32 alone: floats of 16 bits are widened for it, and its results rounded. */
static bool is_half(const struct view *v)
{
    return v->dtype == DT_F16 || v->dtype == DT_BF16;
}

static enum dtype host_type(const struct view *v)
{
    return is_half(v) ? DT_F32 : v->dtype;
}

/* Adds n bytes at an aligned place, which it returns; *total is SIZE_MAX once it does not fit. */
static size_t place(size_t *total, size_t n)
{
    size_t at = SIZE_MAX;
    if (*total == SIZE_MAX || !sz_align(*total, OP_SCRATCH_ALIGN, &at) || !sz_add(at, n, total))
        *total = SIZE_MAX;
    return at;
}

static size_t bytes_of_call(const struct bounce_call *call, const void *args)
{
    size_t total = 0;
    place(&total, call->scratch);
    place(&total, call->size);
    for (size_t i = 0; i < OP_OPERANDS_MAX; i++) {
        const struct view *v;
        size_t n = views_of(&call->operand[i], args, &v);
        place(&total, op_mul(n, sizeof *v));
        for (size_t k = 0; k < n; k++)
            place(&total, packed_bytes(host_type(&v[k]), &v[k]));
    }
    return total;
}

/* The dimensions of v from the outermost to the innermost one in memory. What is transposed but has
 * no gaps is one copy in this order, where it would be one for each element otherwise. */
static void order_in_memory(const struct view *v, int order[SHAPE_MAX_DIMS])
{
    for (int i = 0; i < v->shape.ndim; i++) {
        int at = i;
        for (; at > 0 && v->shape.dim[i] > 1 && v->stride[i]; at--) {
            int j = order[at - 1]; /* those without a step stay where they are */
            if (v->shape.dim[j] == 1 || !v->stride[j] || v->stride[j] >= v->stride[i])
                break;
            order[at] = j;
        }
        order[at] = i;
    }
}

/* v without gaps at `data`, as the reference takes it. Quants are packed already, and stay as they
 * are. */
static struct view packed_at(const struct view *v, char *data)
{
    struct view p = *v;
    int order[SHAPE_MAX_DIMS];
    p.dtype = host_type(v);
    size_t step = dtype_desc(p.dtype)->bytes;
    p.data = data;
    order_in_memory(v, order);
    for (int i = v->shape.ndim - 1; i >= 0 && !dtype_is_quant(v->dtype); i--) {
        p.stride[order[i]] = step;
        step *= (size_t)v->shape.dim[order[i]];
    }
    return p;
}

/* Queues copies between the elements of v on the device and as many packed bytes on the host. */
static berth_status transfer(struct dev_stream *s, const struct view *v, char *host, bool to_host,
                             berth_err *err)
{
    size_t bytes = packed_bytes(v->dtype, v), chunk = dtype_desc(v->dtype)->bytes;
    int outer = v->shape.ndim; /* dimensions that are not inside of a chunk */
    int order[SHAPE_MAX_DIMS];
    order_in_memory(v, order);
    if (dtype_is_quant(v->dtype)) {
        chunk = bytes;
        outer = 0;
    }
    for (; outer > 0; outer--) {
        int d = order[outer - 1];
        if (v->shape.dim[d] > 1 && v->stride[d] != chunk)
            break;
        chunk *= (size_t)v->shape.dim[d];
    }
    for (size_t i = 0, off = 0; off < bytes; i++, off += chunk) {
        uint64_t addr = (uintptr_t)v->data;
        size_t rest = i;
        for (int k = outer - 1; k >= 0; k--) {
            int d = order[k];
            addr += rest % (size_t)v->shape.dim[d] * v->stride[d];
            rest /= (size_t)v->shape.dim[d];
        }
        if (to_host ? dev_copy_d2h(s, host + off, addr, chunk, err)
                    : dev_copy_h2d(s, addr, host + off, chunk, err))
            return err->code;
    }
    return BERTH_OK;
}

enum { AT_ONCE = 1024 }; /* elements */

/* n of t become F32 at p. They lie at the end of the n F32's, so that none is written over before
 * it is read. */
static berth_status widen(char *p, enum dtype t, size_t n, berth_err *err)
{
    char some[2 * AT_ONCE];
    for (size_t i = 0; i < n; i += AT_ONCE) {
        size_t k = n - i < AT_ONCE ? n - i : AT_ONCE;
        memcpy(some, p + 2 * n + 2 * i, 2 * k);
        if (convert(t, some, DT_F32, p + 4 * i, k, err))
            return err->code;
    }
    return BERTH_OK;
}

/* n F32 at p become as many of t, from p on. */
static berth_status narrow(char *p, enum dtype t, size_t n, berth_err *err)
{
    char some[2 * AT_ONCE];
    for (size_t i = 0; i < n; i += AT_ONCE) {
        size_t k = n - i < AT_ONCE ? n - i : AT_ONCE;
        if (convert(DT_F32, p + 4 * i, t, some, k, err))
            return err->code;
        memcpy(p + 2 * i, some, 2 * k);
    }
    return BERTH_OK;
}

static berth_status copy_in(struct bounce *b, const struct bounce_call *call, berth_err *err)
{
    size_t at = 0;
    place(&at, call->scratch);
    b->host = memcpy(b->memory + place(&at, call->size), b->args, call->size);
    for (size_t i = 0; i < OP_OPERANDS_MAX; i++) {
        const struct op_operand *o = &b->operand[i];
        const struct view *v;
        size_t n = views_of(o, b->args, &v);
        char *list = b->memory + place(&at, op_mul(n, sizeof *v));
        char *field = (char *)b->host + o->at;
        if (o->how & OP_LIST)
            memcpy(field, &list, sizeof list);
        for (size_t k = 0; k < n; k++) {
            char *data = b->memory + place(&at, packed_bytes(host_type(&v[k]), &v[k]));
            struct view p = packed_at(&v[k], data);
            memcpy(o->how & OP_LIST ? list + k * sizeof p : field, &p, sizeof p);
            if (is_half(&v[k]))
                data += 2 * op_count(&v[k]);
            if (o->how & OP_READ && transfer(b->stream, &v[k], data, true, err))
                return err->code;
        }
    }
    return BERTH_OK;
}

/* What was copied in, for the reference. pre: the copies are done. */
static berth_status widen_all(struct bounce *b, berth_err *err)
{
    for (size_t i = 0; i < OP_OPERANDS_MAX; i++) {
        const struct view *v, *p;
        size_t n = b->operand[i].how & OP_READ ? views_of(&b->operand[i], b->args, &v) : 0;
        if (n)
            views_of(&b->operand[i], b->host, &p);
        for (size_t k = 0; k < n; k++)
            if (is_half(&v[k]) && widen(p[k].data, v[k].dtype, op_count(&v[k]), err))
                return err->code;
    }
    return BERTH_OK;
}

static berth_status copy_out(struct bounce *b, berth_err *err)
{
    for (size_t i = 0; i < OP_OPERANDS_MAX; i++) {
        const struct view *v, *p;
        if (!(b->operand[i].how & OP_WRITE) || !views_of(&b->operand[i], b->args, &v) ||
            !views_of(&b->operand[i], b->host, &p))
            continue;
        if ((is_half(v) && narrow(p->data, v->dtype, op_count(v), err)) ||
            transfer(b->stream, v, p->data, false, err))
            return err->code;
    }
    return BERTH_OK;
}

static void say_once(const struct op_env *env, const struct bounce_call *call)
{
    struct phys *p = env->stream->phys;
    uint64_t bit = UINT64_C(1) << call->index;
    if (!env->log || p->noted & bit)
        return;
    p->noted |= bit;
    log_warn(env->log, "op.bounce",
             "op=%s dev=%s why=\"%s has no kernel for it: computed on the host, slowly\"", call->op,
             p->name, env->backend->name);
}

/* Copies that were queued touch the memory until the stream has been waited for. */
static berth_status release(struct bounce *b, berth_status s, berth_err *err)
{
    berth_err late;
    /* A failed wait may be repeated. If that fails, too, the device may still write to the memory,
     * so it is never freed. */
    if (dev_stream_sync(b->stream, &late) && dev_stream_sync(b->stream, &late)) {
        log_warn(b->env.log, "op.kept", "dev=%s bytes=%zu why=\"%s\"", b->stream->phys->name,
                 b->bytes, late.msg);
        if (!s)
            *err = late;
        return err->code;
    }
    dev_host_gone(b->stream->phys, b->memory, b->bytes);
    free(b->memory);
    return s;
}

berth_status bounce_in(struct bounce *b, const struct op_env *env, const struct bounce_call *call,
                       const void *args, berth_err *err)
{
    *b = (struct bounce) { .operand = call->operand, .stream = env->stream, .args = args };
    b->bytes = bytes_of_call(call, args);
    if (b->bytes != SIZE_MAX && sz_align(b->bytes, OP_SCRATCH_ALIGN, &b->bytes))
        b->memory = aligned_alloc(OP_SCRATCH_ALIGN, b->bytes);
    if (!b->memory)
        return err_set(err, BERTH_ENOMEM, "%s: %zu bytes for copies of its operands on the host",
                       call->op, b->bytes);
    say_once(env, call);
    b->env = (struct op_env) { .cancel = env->cancel, .log = env->log };
    b->env.scratch = b->memory;
    b->env.scratch_bytes = call->scratch;
    berth_status s = copy_in(b, call, err);
    if (!s)
        s = dev_stream_sync(b->stream, err);
    if (!s)
        s = widen_all(b, err);
    return s ? release(b, s, err) : BERTH_OK;
}

berth_status bounce_out(struct bounce *b, berth_status computed, berth_err *err)
{
    return release(b, computed ? computed : copy_out(b, err), err);
}
