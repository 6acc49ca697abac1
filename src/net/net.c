/* net: opening a net, and what its weights are called in the file. */
#include "net/net_impl.h"

#include "base/sz.h"
#include "format/layout.h"
#include "plan/convert.h"
#include "tensor/convert.h"

#include <inttypes.h>

/* ---- names ---- */

#define FILE_NAME_MAX 1100 /* root and name; files have names of at most 1024 bytes */

static berth_status index_tensors(struct net *n, berth_err *err)
{
    const struct blocks *b = res_blocks(n->m);
    n->tensors.seed = (uint64_t)(uintptr_t)n;
    n->used = calloc(b->tensors ? b->tensors : 1, sizeof *n->used);
    if (!n->used || !map_reserve(&n->tensors, b->tensors))
        return err_set(err, BERTH_ENOMEM, "names of %zu tensors", b->tensors);
    for (size_t i = 0; i < b->n; i++)
        for (uint32_t k = 0; k < b->at[i].n; k++) {
            const struct weights_entry *e = b->tensor[b->at[i].first + k].entry;
            if (e && map_add(&n->tensors, e->name, e->name_len, (uint64_t)i << 32 | k) == MAP_NOMEM)
                return err_set(err, BERTH_ENOMEM, "names of %zu tensors", b->tensors);
        }
    return BERTH_OK;
}

/* By its full name in the file. */
static const struct weights_entry *find(const struct net *n, const char *name, size_t *block,
                                        size_t *tensor)
{
    uint64_t at;
    *block = *tensor = 0;
    if (n->trace)
        return weights_find(n->w, name, strlen(name));
    const struct blocks *b = res_blocks(n->m);
    if (!map_get(&n->tensors, name, strlen(name), &at))
        return NULL;
    *block = (size_t)(at >> 32);
    *tensor = (size_t)(at & UINT32_MAX);
    return b->tensor[b->at[*block].first + *tensor].entry;
}

static uint64_t row_elements(const struct shape *s)
{
    uint64_t count = 0;
    struct shape row = { .ndim = s->ndim - 1 };
    for (int i = 1; i < s->ndim; i++)
        row.dim[i - 1] = s->dim[i];
    return shape_count(&row, &count) ? count : 0;
}

/* Cuts t down to the rows that `from` means. */
static bool take_rows(struct net_tensor *t, const struct net_source *from)
{
    uint64_t row_bytes;
    if (!from->rows)
        return true;
    if (t->stored.ndim < 1 || from->row > t->stored.dim[0] ||
        from->rows > t->stored.dim[0] - from->row ||
        !dtype_bytes(t->dtype, row_elements(&t->stored), &row_bytes))
        return false;
    t->row = from->row;
    t->off += from->row * row_bytes; /* inside of the tensor: all of it fits */
    t->bytes = from->rows * row_bytes;
    t->stored.dim[0] = from->rows;
    return true;
}

static bool take_shape(struct net_tensor *t, const struct net_source *from)
{
    uint64_t have, want;
    t->shape = t->stored;
    t->transpose = from->transpose;
    if (from->transpose && t->stored.ndim != 2)
        return false;
    if (from->transpose) {
        t->shape.dim[0] = t->stored.dim[1];
        t->shape.dim[1] = t->stored.dim[0];
    }
    if (from->flat) { /* fits: the file's index saw to it */
        t->shape = (struct shape) { .ndim = 1, .dim = { 1 } };
        for (int i = 0; i < t->stored.ndim; i++)
            t->shape.dim[0] *= t->stored.dim[i];
    }
    if (!from->as.ndim)
        return true;
    if (!shape_count(&t->shape, &have) || !shape_count(&from->as, &want) || have != want)
        return false;
    t->shape = from->as;
    return true;
}

/* What the canonical name means. A tensor that is not there is no error: t->there is false. file
 * (may be NULL) gets its name in the file. */
static berth_status resolve(const struct net *n, const char *canonical, struct net_tensor *t,
                            char file[FILE_NAME_MAX], berth_err *err)
{
    struct net_source from = { .row = 0 };
    char text[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX], own[FILE_NAME_MAX], *name = file ? file : own;
    bool other = n->names && n->names(n->names_user, canonical, &from);
    size_t block, k;
    *t = (struct net_tensor) { .there = false };
    int len = snprintf(name, FILE_NAME_MAX, "%s%s", n->root, other ? from.name : canonical);
    if (len < 0 || len >= FILE_NAME_MAX)
        return err_set(err, BERTH_ELIMIT, "name of %d bytes", len);
    const struct weights_entry *e = find(n, name, &block, &k);
    if (!e)
        return BERTH_OK;
    if (!other)
        from = (struct net_source) { .row = 0 };
    if (n->trace) { /* shapes alone count: whatever it is stored as, and wherever */
        *t = (struct net_tensor) { .index = (size_t)(e - weights_at(n->w, 0)), .dtype = DT_F32 };
    } else {
        struct res_tensor_at at = res_tensor_at(n->m, block, k);
        *t = (struct net_tensor) { .block = (uint32_t)block,
                                   .index = res_blocks(n->m)->at[block].first + k,
                                   .dtype = at.dtype,
                                   .off = at.off,
                                   .bytes = at.bytes };
    }
    t->stored = e->shape;
    if (!take_rows(t, &from))
        return err_set(
            err, BERTH_EFORMAT, "'%.120s' is %s %s: no rows %" PRIu64 " to %" PRIu64 " in it", name,
            dtype_name(t->dtype), shape_text(&e->shape, text), from.row, from.row + from.rows);
    if (!take_shape(t, &from))
        return err_set(err, BERTH_EFORMAT, "'%.120s' is %s %s: %s %s", name, dtype_name(t->dtype),
                       shape_text(&e->shape, text),
                       from.as.ndim ? "not as many numbers as" : "no matrix to be transposed",
                       from.as.ndim ? shape_text(&from.as, want) : "");
    t->there = true;
    return BERTH_OK;
}

/* ---- how weights are stored ---- */

/* As it is now, kept as a number of the host: a device's memory would have to be waited for at
 * every use. Adapters that were merged in chose another than the file's. */
static berth_status read_scale(const struct net *n, size_t block, const struct weights_entry *e,
                               float *out, berth_err *err)
{
    if (res_scale_at(n->m, block, out))
        return BERTH_OK;
    unsigned char raw[sizeof(double)];
    if (e->size > sizeof raw || !convert_possible(e->dtype, DT_F32))
        return err_set(err, BERTH_EUNSUPPORTED, "'%.120s' is %s", e->name, dtype_name(e->dtype));
    if (weights_read(n->w, e, 0, raw, (size_t)e->size, err))
        return err->code;
    return convert(e->dtype, raw, DT_F32, out, 1, err);
}

/* The scale that lies beside a weight called `file`, for ops that multiply by one. */
static berth_status find_scale(const struct net *n, const char *file, struct net_layer *out,
                               berth_err *err)
{
    char name[FILE_NAME_MAX];
    size_t len = strlen(file), stem = len - strlen("weight"), block, k;
    const struct weights_entry *weight = find(n, file, &block, &k);
    if (!str_ends(file, len, ".weight") || (weight->layout && !layout_is_plain(weight->layout)))
        return BERTH_OK;
    for (size_t i = 0; i < ARRAY_LEN(scale_names); i++) {
        snprintf(name, sizeof name, "%.*s%s", (int)stem, file, scale_names[i]);
        const struct weights_entry *e = find(n, name, &block, &k);
        uint64_t count;
        if (!e)
            continue;
        if (!shape_count(&e->shape, &count) || count != 1 || !dtype_desc(e->dtype)->is_float)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "'%.120s' is no single number: weights with such scales are not known",
                           name);
        out->scale =
            (struct net_tensor) { .there = true, .index = res_blocks(n->m)->at[block].first + k };
        return read_scale(n, block, e, &out->scale_value, err);
    }
    return BERTH_OK;
}

static berth_status resolve_layer(struct net *n, const char *name, struct net_layer *l,
                                  berth_err *err)
{
    char canonical[NET_NAME_MAX + 8], file[FILE_NAME_MAX];
    snprintf(canonical, sizeof canonical, "%s.weight", name);
    if (resolve(n, canonical, &l->weight, file, err))
        return err->code;
    if (l->weight.there && !n->trace && find_scale(n, file, l, err))
        return err->code;
    snprintf(canonical, sizeof canonical, "%s.bias", name);
    if (resolve(n, canonical, &l->bias, NULL, err))
        return err->code;
    size_t block, k;
    if (l->weight.there && net_find_codes(n, find(n, file, &block, &k), l, err))
        return err->code;
    const struct net_tensor *const both[] = { &l->weight, &l->bias };
    for (size_t i = 0; i < ARRAY_LEN(both); i++)
        if (both[i]->there && !both[i]->coded && !dtype_desc(both[i]->dtype)->is_float &&
            !dtype_is_quant(both[i]->dtype))
            return err_set(err, BERTH_EUNSUPPORTED, "stored as %s: a layout that is not known",
                           dtype_name(both[i]->dtype));
    return BERTH_OK;
}

const struct net_layer *net_layer_get(struct net *n, const char *name, berth_err *err)
{
    uint64_t at;
    size_t len = strlen(name);
    if (map_get(&n->layers, name, len, &at))
        return (const struct net_layer *)(uintptr_t)at;
    struct net_layer *l = arena_alloc(&n->mem, sizeof *l);
    char *key = arena_strndup(&n->mem, name, len);
    if (!l || !key) {
        err_set(err, BERTH_ENOMEM, "a layer's names");
        return NULL;
    }
    if (resolve_layer(n, name, l, err))
        return NULL;
    if (map_add(&n->layers, key, len, (uintptr_t)l) == MAP_NOMEM) {
        err_set(err, BERTH_ENOMEM, "a layer's names");
        return NULL;
    }
    return l;
}

berth_status net_missing(const struct net *n, const char *layer, const char *what, berth_err *err)
{
    char canonical[NET_NAME_MAX + 8], file[FILE_NAME_MAX];
    struct net_tensor t;
    snprintf(canonical, sizeof canonical, "%s.%s", layer, what);
    if (resolve(n, canonical, &t, file, err))
        return err->code;
    return err_set(err, BERTH_ENOTFOUND, "no such weight '%.160s' in '%.200s'", file,
                   weights_path(n->w));
}

/* What files carry along that no network computes with: buffers, training's own, markers that
 * configs are read from (those without values need no name here), scales of activations. ComfyUI
 * ignores them, too. name: without root. */
static bool carried_along(const char *name, size_t len)
{
    static const char *const begin[] = { "loss.",   "model_ema.",         "vision_model.",
                                         "visual.", "visual_projection.", "edm_" };
    static const char *const whole[] = { "logit_scale",
                                         "v_pred",
                                         "ztsnr",
                                         "scaled_fp8",
                                         "alphas_cumprod",
                                         "spiece_model",
                                         "encoder.embed_tokens.weight" };
    static const char *const end[] = { "position_ids", ".input_scale", ".scale_input",
                                       ".comfy_quant", "attn_mask", "num_batches_tracked",
                                       /* beside quantised weights: taken with them */
                                       ".weight_scale_2", ".weight_s_rel", ".weight_s_channel",
                                       ".weight_codebook", ".pre_quant_scale" };
    for (size_t i = 0; i < ARRAY_LEN(begin); i++)
        if (str_starts(name, len, begin[i]))
            return true;
    for (size_t i = 0; i < ARRAY_LEN(whole); i++)
        if (strcmp(name, whole[i]) == 0)
            return true;
    for (size_t i = 0; i < ARRAY_LEN(end); i++)
        if (str_ends(name, len, end[i]))
            return true;
    return is_scale(name, len);
}

size_t net_unused(const struct net *n, const char **first)
{
    const struct blocks *b = res_blocks(n->m);
    size_t root = strlen(n->root), count = 0;
    *first = NULL;
    for (size_t i = 0; i < b->tensors; i++) {
        const struct weights_entry *e = b->tensor[i].entry;
        if (!e || !e->size || n->used[i] || !str_starts(e->name, e->name_len, n->root) ||
            carried_along(e->name + root, e->name_len - root))
            continue;
        if (!count++)
            *first = e->name;
    }
    if (count)
        log_warn(n->log, "net.unused", "model=%s tensors=%zu first=\"%.160s\" file=\"%.200s\"",
                 res_info(n->m).name, count, *first, weights_path(n->w));
    return count;
}

/* ---- life ---- */

berth_status net_stream_open(struct net *n, berth_err *err)
{
    static const struct stream_config ring[NET_RINGS] = { { .slots = 0 },
                                                          { .slots = 2, .run_bytes = 1 },
                                                          { .slots = 1, .run_bytes = 1 } };
    struct stream_config cfg = ring[n->ring];
    cfg.ring_least = n->tight && !cfg.slots; /* 1: no more than it needs */
    berth_status s = res_stream_open(n->m, &cfg, &n->stream, err);
    while (s == BERTH_ENODEVMEM && n->ring < NET_RINGS - 1) {
        s = res_stream_open(n->m, &ring[++n->ring], &n->stream, err);
        n->rep.rungs++;
        log_info(n->log, "net.rung", "model=%s dev=%s rung=ring slots=%u", res_info(n->m).name,
                 n->compute->name, ring[n->ring].slots);
    }
    return s;
}

/* The devices that can compute, for messages. */
static void who_computes(const struct residency *r, char *buf, size_t cap)
{
    const struct devset *all = res_devices(r);
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; i < devset_count(all) && at < cap; i++) {
        const struct device *d = devset_at(all, i);
        if (dev_can(d, BERTH_CAP_HOST_VISIBLE) || op_backend_for(d))
            at += (size_t)snprintf(buf + at, cap - at, "%s%s", at ? ", " : "", d->name);
    }
}

enum dtype net_act_on(const struct device *d, const struct net_args *a)
{
    const enum dtype wish[] = { a->act, a->act_else };
    const uint64_t made_for = op_acts(d) | OP_TYPE(DT_F32);
    for (size_t i = 0; i < ARRAY_LEN(wish); i++)
        if (wish[i] != DT_NONE && made_for & OP_TYPE(wish[i]))
            return wish[i];
    return DT_F32;
}

static berth_status find_device(struct net *n, const struct net_args *a, berth_err *err)
{
    char text[128];
    n->compute = res_compute(n->m);
    n->backend = op_backend_for(n->compute);
    n->host = dev_can(n->compute, BERTH_CAP_HOST_VISIBLE);
    n->act = net_act_on(n->compute, a);
    if (n->act != a->act && a->act != DT_NONE && n->backend && n->backend->acts & OP_TYPE(a->act))
        log_info(n->log, "net.act", "model=%s dev=%s wanted=%s computes=%s why=\"no units for it\"",
                 res_info(n->m).name, n->compute->name, dtype_name(a->act), dtype_name(n->act));
    if (n->host || n->backend)
        return BERTH_OK;
    who_computes(n->res, text, sizeof text);
    return err_set(err, BERTH_EUNSUPPORTED,
                   "%s cannot compute, this build has no kernels for devices of driver %s; "
                   "%s can",
                   n->compute->name, n->compute->phys->driver->name,
                   text[0] ? text : "none of these devices");
}

/* Makes what ops need on the device before the ring is made, and before anyone counts on free
 * memory. If that fails, the first dry run tries again and reports it, or has the ladder make
 * room. */
static void open_ops(struct net *n)
{
    struct op_env env = {
        .backend = n->backend, .pool = n->pool, .stream = n->host ? NULL : n->queue, .log = n->log
    };
    berth_err err;
    (void)op_open(&env, &err);
}

berth_status net_open(const struct net_args *a, struct net **out, berth_err *err)
{
    *out = NULL;
    struct net *n = calloc(1, sizeof *n);
    if (!n)
        return err_set(err, BERTH_ENOMEM, "a net");
    n->res = a->res;
    n->m = a->m;
    n->w = res_weights(n->m);
    n->names = a->names;
    n->names_user = a->names_user;
    n->pool = a->pool;
    n->cancel = a->cancel;
    n->log = a->log;
    n->fp8 = a->fp8;
    n->int8 = a->int8;
    n->times = a->times;
    res_ref(n->m);
    struct res_model_info info = res_info(n->m);
    char owner[DEV_OWNER_MAX];
    snprintf(owner, sizeof owner, "%.200s#%" PRIu64 " activations", info.name, info.id);
    const char *root = a->root ? a->root : "";
    n->root = arena_strndup(&n->mem, root, strlen(root));
    berth_status s = n->root ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a net");
    if (!s && info.state != RES_RESIDENT)
        s = err_set(err, BERTH_EINVAL, "it is %s", res_state_name(info.state));
    if (s || (s = find_device(n, a, err)) || (s = index_tensors(n, err)) ||
        (s = layouts_check(n->w, n->root, false, err)) ||
        (s = dev_stream_new(n->compute, &n->queue, err)) ||
        (s = dev_owner_open(n->compute, owner, DEV_ACTIVATIONS, &n->owner, err)))
        goto fail;
    open_ops(n);
    if ((s = net_stream_open(n, err)))
        goto fail;
    snprintf(n->rep.device, sizeof n->rep.device, "%s", n->compute->name);
    *out = n;
    return BERTH_OK;
fail:
    err_add(err, "running model %.80s", info.name);
    net_close(n);
    return s;
}

berth_status net_keep(struct net *n, uint64_t bytes, berth_err *err)
{
    size_t size;
    dev_free(&n->kept);
    n->kept_bytes = 0;
    if (!sz_from_u64(bytes, &size))
        return err_set(err, BERTH_ELIMIT, "%" PRIu64 " bytes to be kept", bytes);
    if (res_alloc(n->res, &(struct res_alloc_args) { n->compute, n->owner, size, n->m }, &n->kept,
                  err))
        return err->code;
    n->kept_bytes = bytes;
    return BERTH_OK;
}

berth_status net_keep_more(struct net *n, uint64_t pieces, uint64_t from, uint64_t to,
                           berth_err *err)
{
    struct dev_mem more = { 0 };
    uint64_t bytes;
    size_t size;
    berth_err end = { 0 };
    if (from > to || __builtin_mul_overflow(pieces, to, &bytes) || !sz_from_u64(bytes, &size) ||
        pieces * from > n->kept_bytes)
        return err_set(err, BERTH_ELIMIT,
                       "%" PRIu64 " pieces of %" PRIu64 " bytes to be kept as %" PRIu64, pieces,
                       from, to);
    if (res_alloc(n->res, &(struct res_alloc_args) { n->compute, n->owner, size, n->m }, &more,
                  err))
        return err->code;
    berth_status s = BERTH_OK;
    for (uint64_t i = 0; !s && i < pieces; i++)
        s = dev_copy(n->queue, (struct dev_at) { n->compute, more.addr + i * to },
                     (struct dev_at) { n->compute, n->kept.addr + i * from }, (size_t)from, err);
    if (dev_stream_sync(n->queue, &end) && dev_stream_sync(n->queue, &end)) {
        log_error(n->log, "net.kept", "model=%s dev=%s bytes=%" PRIu64 " why=\"%s\"",
                  res_info(n->m).name, n->compute->name, bytes, end.msg);
        more = (struct dev_mem) { 0 }; /* nobody's any more: work may still write there */
        if (!s)
            *err = end;
        s = err->code;
    }
    if (s) {
        dev_free(&more);
        return s;
    }
    dev_free(&n->kept);
    n->kept = more;
    n->kept_bytes = bytes;
    return BERTH_OK;
}

static void log_memory(struct net *n)
{
    struct net_report x = net_report(n);
    log_info(n->log, "net.memory",
             "model=%s dev=%s predicted=%" PRIu64 " peak=%" PRIu64 " weights=%" PRIu64
             " ring=%" PRIu64 " passes=%" PRIu64 " replayed=%" PRIu64 " rungs=%" PRIu64,
             res_info(n->m).name, x.device, x.largest_predicted, x.largest, x.weights,
             x.stream.ring_bytes, x.passes, x.replayed, x.rungs);
}

void net_close(struct net *n)
{
    if (!n)
        return;
    if (n->rep.passes)
        log_memory(n);
    stream_close(n->stream);
    replay_close(&n->replay);
    dev_stream_free(n->queue);
    dev_free(&n->kept);
    dev_owner_close(n->owner);
    slab_release(&n->slab);
    free(n->seen.at);
    free(n->used);
    map_release(&n->tensors);
    map_release(&n->layers);
    arena_release(&n->mem);
    if (n->m)
        res_unref(n->m); /* may be its end */
    free(n);
}

enum dtype net_act(const struct net *n)
{
    return n->act;
}

struct net_report net_report(struct net *n)
{
    struct net_report x = n->rep;
    x.weights = res_bytes_on(n->m, res_plan(n->m)->quotas.compute);
    x.thrifty = n->thrifty;
    if (n->stream)
        x.stream = stream_stats(n->stream);
    return x;
}
