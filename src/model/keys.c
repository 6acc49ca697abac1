#include "model/keys.h"

#include "base/file.h"
#include "base/json.h"
#include "base/sz.h"

#include <inttypes.h>
#include <stdarg.h>

/* A list of tensors is small text: these bound what a stranger's file may make us hold. */
#define KEYS_FILE_MAX (64u << 20)
#define KEYS_MAX 1000000u
#define KEYS_NAME_MAX 1024u

void keys_release(struct keys *k)
{
    arena_release(&k->mem);
    free(k->at);
    str_release(&k->prefix);
    *k = (struct keys) { 0 };
}

size_t keys_enter(struct keys *k, const char *fmt, ...)
{
    size_t mark = k->prefix.n;
    char part[128];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(part, sizeof part, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof part)
        BUG("prefix part '%s' is too long", fmt);
    str_add(&k->prefix, part, (size_t)n);
    str_addc(&k->prefix, '.');
    k->bad |= k->prefix.bad;
    return mark;
}

void keys_leave(struct keys *k, size_t mark)
{
    if (k->prefix.bad)
        return; /* the list is lost anyway */
    k->prefix.n = mark;
    if (k->prefix.p)
        k->prefix.p[mark] = '\0';
}

/* `name` moves in: it belongs to k->mem. False when memory is exhausted. */
static bool append(struct keys *k, const char *name, size_t len, const struct shape *s,
                   uint64_t count)
{
    if (k->n == k->cap) {
        size_t cap = k->cap ? k->cap * 2 : 256, bytes;
        if (!sz_mul(cap, sizeof *k->at, &bytes))
            return false;
        struct key *at = realloc(k->at, bytes);
        if (!at)
            return false;
        k->at = at;
        k->cap = cap;
    }
    k->at[k->n++] = (struct key) { .name = name, .name_len = len, .shape = *s, .count = count };
    k->params += count;
    return true;
}

/* <prefix><name><suffix> with a shape of our own making. */
static void add(struct keys *k, const char *name, const char *suffix, const struct shape *s)
{
    uint64_t count, params;
    if (!shape_count(s, &count) || __builtin_add_overflow(k->params, count, &params))
        BUG("'%s%s' does not fit", name, suffix);
    if (k->bad)
        return;
    char *full = arena_printf(&k->mem, "%s%s%s", str_c(&k->prefix), name, suffix);
    k->bad = !full || !append(k, full, strlen(full), s, count);
}

void keys_tensor(struct keys *k, const char *name, uint64_t d0, uint64_t d1, uint64_t d2,
                 uint64_t d3)
{
    struct shape s = { .dim = { d0, d1, d2, d3 } };
    while (s.ndim < 4 && s.dim[s.ndim])
        s.ndim++;
    add(k, name, "", &s);
}

void keys_mark(struct keys *k, const char *name)
{
    add(k, name, "", &(struct shape) { .ndim = 1, .dim = { 0 } });
}

static void add_bias(struct keys *k, const char *name, uint64_t n)
{
    add(k, name, ".bias", &(struct shape) { .ndim = 1, .dim = { n } });
}

void keys_linear(struct keys *k, const char *name, uint64_t out, uint64_t in, enum keys_bias bias)
{
    add(k, name, ".weight", &(struct shape) { .ndim = 2, .dim = { out, in } });
    if (bias)
        add_bias(k, name, out);
}

void keys_conv(struct keys *k, const char *name, uint64_t out, uint64_t in, uint64_t side)
{
    add(k, name, ".weight", &(struct shape) { .ndim = 4, .dim = { out, in, side, side } });
    add_bias(k, name, out);
}

void keys_conv3d(struct keys *k, const char *name, uint64_t out, uint64_t in, uint64_t frames,
                 uint64_t side)
{
    add(k, name, ".weight", &(struct shape) { .ndim = 5, .dim = { out, in, frames, side, side } });
    add_bias(k, name, out);
}

void keys_norm(struct keys *k, const char *name, uint64_t n)
{
    add(k, name, ".weight", &(struct shape) { .ndim = 1, .dim = { n } });
    add_bias(k, name, n);
}

void keys_shape(struct keys *k, const char *name, const struct shape *s)
{
    add(k, name, "", s);
}

/* One "name": [dims] of a file. */
static berth_status read_key(struct keys *k, const char *name, size_t len, const json_t *dims,
                             berth_err *err)
{
    if (!len || len > KEYS_NAME_MAX)
        return err_set(err, BERTH_ELIMIT, "a name of %zu bytes; 1 to %u are allowed", len,
                       KEYS_NAME_MAX);
    if (js_kind(dims) != JS_ARRAY || json_array_size(dims) > SHAPE_MAX_DIMS)
        return err_set(err, BERTH_EFORMAT, "'%.80s': a shape is a list of at most %d numbers", name,
                       SHAPE_MAX_DIMS);
    struct shape s = { .ndim = (int)json_array_size(dims) };
    for (int i = 0; i < s.ndim; i++)
        if (!js_get_u64(json_array_get(dims, (size_t)i), &s.dim[i]))
            return err_set(err, BERTH_EFORMAT, "'%.80s': dimension %d is no whole number", name, i);
    uint64_t count, params;
    /* 2^60 elements keep every later size in bytes inside 64 bits. */
    if (!shape_count(&s, &count) || __builtin_add_overflow(k->params, count, &params) ||
        params > UINT64_C(1) << 60)
        return err_set(err, BERTH_ELIMIT, "'%.80s': more than 2^60 elements so far", name);
    char *own = arena_strndup(&k->mem, name, len);
    if (!own || !append(k, own, len, &s, count))
        return err_set(err, BERTH_ENOMEM, "list of %zu tensors", k->n);
    return BERTH_OK;
}

static berth_status read_root(struct keys *k, json_t *root, berth_err *err)
{
    if (js_kind(root) != JS_OBJECT)
        return err_set(err, BERTH_EFORMAT, "not an object of \"name\": [dims]");
    if (json_object_size(root) > KEYS_MAX || !json_object_size(root))
        return err_set(err, BERTH_ELIMIT, "%zu tensors; 1 to %u are allowed",
                       json_object_size(root), KEYS_MAX);
    const char *name;
    json_t *dims;
    json_object_foreach(root, name, dims)
    {
        if (read_key(k, name, strlen(name), dims, err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status keys_parse(const char *text, size_t n, struct keys *k, berth_err *err)
{
    const struct js_limits lim = { .max_bytes = KEYS_FILE_MAX,
                                   .max_depth = 4,
                                   .max_values = (size_t)KEYS_MAX * 6 };
    json_t *root = NULL;
    berth_status s = js_parse(text, n, &lim, &root, err);
    if (!s)
        s = read_root(k, root, err);
    json_decref(root);
    if (s)
        keys_release(k);
    return s;
}

berth_status keys_read(const char *path, struct keys *k, berth_err *err)
{
    char *text;
    size_t n;
    berth_status s = file_read_all(path, KEYS_FILE_MAX, &text, &n, err);
    if (s)
        return s; /* names the file already */
    s = keys_parse(text, n, k, err);
    free(text);
    return s ? err_add(err, "%s", path) : BERTH_OK;
}
