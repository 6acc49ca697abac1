/* The doors: opening a file of any format, and looking into the index. */
#include "format/weights.h"

#include "format/format_impl.h"
#include "tensor/convert.h"

#include <inttypes.h>
#include <strings.h>

const struct weights_limits weights_limits_default = {
    .max_header = 100000000,
    .max_tensors = 1000000,
    .max_name = 1024,
    .max_kv = 65536,
    .max_nesting = 4,
    .max_shards = 1024,
};

static const struct format *const all[] = {
#define FORMAT(x) &format_##x,
#include "format/formats.def"
#undef FORMAT
};

/* A copy of the head, so that every probe sees the same bytes. */
static size_t take_head(const struct shard *f, uint8_t head[FORMAT_HEAD])
{
    size_t n = f->size < FORMAT_HEAD ? f->size : FORMAT_HEAD;
    if (n)
        memcpy(head, f->data, n);
    return n;
}

const struct format *format_probe(const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i]->probe(data, n < FORMAT_HEAD ? n : FORMAT_HEAD))
            return all[i];
    return NULL;
}

static bool has_ending(const char *ext, const char *path)
{
    size_t path_len = strlen(path);
    for (const char *e = ext; *e;) {
        size_t n = strcspn(e, " ");
        if (path_len > n && strncasecmp(path + path_len - n, e, n) == 0)
            return true;
        e += n + (e[n] == ' ');
    }
    return false;
}

static const struct format *format_by_ending(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (has_ending(all[i]->ext, path))
            return all[i];
    return NULL;
}

const struct weights_writer *weights_writer_at(size_t i)
{
    for (size_t at = 0; at < ARRAY_LEN(all); at++)
        if (all[at]->writer && i-- == 0)
            return all[at]->writer;
    return NULL;
}

const struct weights_writer *weights_writer_find(const char *name)
{
    const struct weights_writer *w;
    for (size_t i = 0; (w = weights_writer_at(i)); i++)
        if (strcmp(w->name, name) == 0)
            return w;
    return NULL;
}

const struct weights_writer *weights_writer_by_path(const char *path)
{
    const struct weights_writer *w;
    for (size_t i = 0; (w = weights_writer_at(i)); i++)
        if (has_ending(w->ext, path))
            return w;
    return NULL;
}

/* Nobody claims the content. When it is nothing we know by sight, the format that the name points
 * to may say what exactly is wrong. */
static berth_status open_unknown(struct opening *o, const uint8_t *head, size_t n, berth_err *err)
{
    const struct format *f = format_by_ending(open_shard_at(o, 0)->path);
    const char *known = sniff(head, n);
    char raw[SNIFF_MAX];
    if (!f || known)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "not a weight file: it looks like %s. Accepted are safetensors, GGUF, the "
                       "*.safetensors.index.json of a sharded model, and what torch.save() writes",
                       known ? known : sniff_raw(head, n, raw));
    o->w->format = f;
    if (f->open(o, 0, err) == BERTH_OK) /* the bytes changed since they were probed */
        return BERTH_OK;
    if (err->code == BERTH_ENOMEM)
        return err->code;
    return err_add(err, "not a %s file (%s)", f->name, sniff_raw(head, n, raw));
}

/* ---- opening ---- */

static berth_status open_content(struct opening *o, berth_err *err)
{
    uint8_t head[FORMAT_HEAD];
    size_t n = take_head(open_shard_at(o, 0), head);
    o->w->format = format_probe(head, n);
    return o->w->format ? o->w->format->open(o, 0, err) : open_unknown(o, head, n, err);
}

/* The end of a path tells files apart; leaves room in a message for what is wrong. */
static const char *path_end(const char *path)
{
    enum { KEEP = 160 };
    size_t n = strlen(path);
    return n <= KEEP ? path : path + (n - KEEP);
}

/* Opens path into o->w, all but the last word about the file itself. */
static berth_status open_into(struct opening *o, const char *path, berth_err *err)
{
    if (open_shard(o, path, err))
        return err->code; /* names the path */
    o->w->path = open_shard_at(o, 0)->path;
    if (open_content(o, err) || index_finish(o, err) || layouts_attach(o->w, err)) {
        /* If the file shrank meanwhile, report that, not the zeros we read. */
        berth_err change;
        if (err->code != BERTH_ENOMEM && weights_check(o->w, &change)) {
            *err = change;
            return err->code;
        }
        return err_add(err, "'%s'", path_end(path));
    }
    return weights_check(o->w, err);
}

static berth_status opening_init(struct opening *o, const struct weights_limits *lim,
                                 const char *path, berth_err *err)
{
    *o = (struct opening) { .w = calloc(1, sizeof *o->w),
                            .lim = lim ? *lim : weights_limits_default,
                            .entry = { .elem = sizeof(struct weights_entry) },
                            .meta = { .elem = sizeof(struct weights_meta) } };
    if (!o->w)
        return err_set(err, BERTH_ENOMEM, "'%s': out of memory", path_end(path));
    o->w->shard.elem = sizeof(struct shard);
    o->w->converted = DT_NONE;
    /* The address differs from run to run: a file cannot aim at collisions. */
    o->meta_key.seed = (uint64_t)(uintptr_t)o->w * UINT64_C(0x9e3779b97f4a7c15);
    return BERTH_OK;
}

/* Hands the index out, or closes it if s is an error. */
static berth_status opening_end(struct opening *o, berth_status s, struct weights **out)
{
    vec_release(&o->entry);
    vec_release(&o->meta);
    map_release(&o->meta_key);
    if (s) {
        weights_close(o->w);
        return s;
    }
#ifdef BERTH_CHECKS
    weights_verify(o->w);
#endif
    *out = o->w;
    return BERTH_OK;
}

static berth_status open_any(const char *path, const struct weights_file *files, size_t count,
                             const struct weights_limits *lim, struct weights **out, berth_err *err)
{
    struct opening o;
    *out = NULL;
    if (opening_init(&o, lim, path, err))
        return err->code;
    o.files = files;
    o.file_count = count;
    return opening_end(&o, open_into(&o, path, err), out);
}

berth_status weights_open(const char *path, const struct weights_limits *lim, struct weights **out,
                          berth_err *err)
{
    return open_any(path, NULL, 0, lim, out, err);
}

berth_status weights_open_memory(const struct weights_file *files, size_t count,
                                 const struct weights_limits *lim, struct weights **out,
                                 berth_err *err)
{
    return open_any(files[0].name, files, count, lim, out, err);
}

static berth_status declare_one(struct opening *o, const struct weights_spec *spec,
                                struct shard *file, berth_err *err)
{
    struct weights_entry *e = open_entry(o, 0, err);
    size_t n = strlen(spec->name);
    if (!e || name_check(spec->name, n, o->lim.max_name, "tensor name", err))
        return err->code;
    e->name = open_text(o, spec->name, n);
    if (!e->name)
        return err_set(err, BERTH_ENOMEM, "the name of tensor %zu", o->entry.n);
    e->name_len = (uint32_t)n;
    e->dtype = spec->dtype;
    e->shape = spec->shape;
    e->off = file->size;
    if (entry_measure(e, err))
        return err->code;
    if (e->size > SIZE_MAX - file->size)
        return err_set(err, BERTH_ELIMIT, "tensor '%s' is too large", excerpt(spec->name, n).s);
    file->size += e->size;
    return BERTH_OK;
}

berth_status weights_declare(const char *name, const struct weights_spec *spec, size_t count,
                             struct weights **out, berth_err *err)
{
    struct opening o;
    *out = NULL;
    if (opening_init(&o, NULL, name, err))
        return err->code;
    struct shard *file = vec_add(&o.w->shard);
    o.w->format = &format_safetensors;
    o.w->path = file ? open_text(&o, name, strlen(name)) : NULL;
    berth_status s = o.w->path ? BERTH_OK : err_set(err, BERTH_ENOMEM, "'%s'", path_end(name));
    if (!s)
        file->path = o.w->path;
    for (size_t i = 0; !s && i < count; i++)
        s = declare_one(&o, &spec[i], file, err);
    return opening_end(&o, s ? s : index_finish(&o, err), out);
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->shard.n; i++)
        file_map_close(((struct shard *)vec_at(&w->shard, i))->map);
    vec_release(&w->shard);
    arena_release(&w->mem);
    free(w);
}

/* ---- looking ---- */

static const struct shard *shard_at(const struct weights *w, size_t i)
{
    if (i >= w->shard.n)
        BUG("shard %zu of %zu", i, w->shard.n);
    return vec_at(&w->shard, i);
}

const char *weights_path(const struct weights *w)
{
    return w->path;
}

const char *weights_format(const struct weights *w)
{
    return w->format->name;
}

enum dtype weights_converted(const struct weights *w)
{
    return w->converted;
}

size_t weights_heap_bytes(const struct weights *w)
{
    return sizeof *w + w->mem.total + w->shard.cap * w->shard.elem;
}

size_t weights_count(const struct weights *w)
{
    return w->count;
}

const struct weights_entry *weights_at(const struct weights *w, size_t i)
{
    if (i >= w->count)
        BUG("tensor %zu of %zu", i, w->count);
    return &w->entry[i];
}

const struct weights_entry *weights_first(const struct weights *w)
{
    if (w->first)
        return weights_find(w, w->first, strlen(w->first));
    return w->count ? &w->entry[0] : NULL;
}

size_t weights_meta_count(const struct weights *w)
{
    return w->metas;
}

const struct weights_meta *weights_meta_at(const struct weights *w, size_t i)
{
    if (i >= w->metas)
        BUG("metadata %zu of %zu", i, w->metas);
    return &w->meta[i];
}

size_t weights_shards(const struct weights *w)
{
    return w->shard.n - (w->copies ? 1 : 0);
}

const struct file_map *weights_shard(const struct weights *w, size_t i)
{
    return shard_at(w, i)->map;
}

/* ---- bytes ---- */

/* Bytes of a file at a time: from this many on file_map_read() spares the page faults. */
#define CONVERT_PIECE ((size_t)64 << 10)
#define CONVERTED_MAX 2 /* bytes of an element that was converted */

void weights_convert(struct weights *w, size_t i, enum dtype to)
{
    if (i >= w->count)
        BUG("tensor %zu of %zu", i, w->count);
    struct weights_entry *e = &w->entry[i];
    const struct dtype_desc *d = dtype_desc(to), *from = dtype_desc(e->stored);
    if (d->bytes > CONVERTED_MAX || dtype_is_quant(to) || !d->is_float || !from->is_float)
        BUG("'%s' from %s to %s", e->name, from->name, d->name);
    if (e->dtype == to)
        return;
    uint64_t n;
    if (!shape_count(&e->shape, &n) || !dtype_bytes(to, n, &e->size))
        BUG("'%s' fits its file as %s and memory not as %s", e->name, from->name, d->name);
    e->dtype = to;
    w->converted = to;
}

berth_status weights_widen(struct weights *w, size_t i, uint64_t cols, berth_err *err)
{
    if (i >= w->count)
        BUG("tensor %zu of %zu", i, w->count);
    struct weights_entry *e = &w->entry[i];
    struct shape to = e->shape;
    uint64_t row, wide, n, bytes, size;
    to.dim[1] = cols;
    if (e->shape.ndim != 2 || e->layout || cols < e->shape.dim[1] ||
        !dtype_bytes(e->stored, e->shape.dim[1], &row) || !dtype_bytes(e->stored, cols, &wide) ||
        !shape_count(&to, &n) || !dtype_bytes(e->stored, n, &bytes) ||
        !dtype_bytes(e->dtype, n, &size) || bytes > SIZE_MAX)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "tensor '%s' of type %s cannot be given %" PRIu64 " columns",
                       excerpt(e->name, e->name_len).s, dtype_name(e->stored), cols);
    uint8_t *copy = arena_alloc(&w->mem, (size_t)bytes);
    if (!copy)
        return err_set(err, BERTH_ENOMEM, "tensor '%s' of %" PRIu64 " columns",
                       excerpt(e->name, e->name_len).s, cols);
    memset(copy, 0, (size_t)bytes); /* 0 in every type */
    struct weights_entry as_stored = *e;
    as_stored.dtype = e->stored;
    as_stored.size = e->shape.dim[0] * row;
    for (uint64_t r = 0; r < e->shape.dim[0]; r++)
        if (weights_read(w, &as_stored, r * row, copy + r * wide, (size_t)row, err))
            return err->code;
    e->narrow = e->copy ? e->narrow : e->shape.dim[1];
    e->shape = to;
    e->size = size;
    e->copy = copy;
    return BERTH_OK;
}

/* Elements [at, at+n) of a converted entry. */
static berth_status read_elements(const struct shard *f, const struct weights_entry *e, uint64_t at,
                                  uint8_t *dst, size_t n, berth_err *err)
{
    uint8_t raw[CONVERT_PIECE];
    size_t each = dtype_desc(e->stored)->bytes, to = dtype_desc(e->dtype)->bytes;
    if (!f->map)
        return convert(e->stored, f->data + e->off + at * each, e->dtype, dst, n, err);
    for (size_t now; n; at += now, dst += now * to, n -= now) {
        now = n < sizeof raw / each ? n : sizeof raw / each;
        if (file_map_read(f->map, e->off + at * each, raw, now * each, err) ||
            convert(e->stored, raw, e->dtype, dst, now, err))
            return err->code;
    }
    return BERTH_OK;
}

/* Bytes [off, off+n) of a converted entry. Goes element by element where the range does not cover
 * whole elements, or dst is not aligned for them. */
static berth_status read_converted(const struct shard *f, const struct weights_entry *e,
                                   uint64_t off, uint8_t *dst, size_t n, berth_err *err)
{
    const size_t to = dtype_desc(e->dtype)->bytes;
    for (size_t now; n; off += now, dst += now, n -= now) {
        uint16_t one;
        size_t skip = (size_t)(off % to);
        bool whole = !skip && n >= to && (uintptr_t)dst % to == 0;
        if (read_elements(f, e, off / to, whole ? dst : (uint8_t *)&one, whole ? n / to : 1, err))
            return err->code;
        now = whole ? n / to * to : n < to - skip ? n : to - skip;
        if (!whole)
            memcpy(dst, (const uint8_t *)&one + skip, now);
    }
    return BERTH_OK;
}

berth_status weights_read(const struct weights *w, const struct weights_entry *e, uint64_t off,
                          void *dst, size_t n, berth_err *err)
{
    const struct shard in_memory = { .path = w->path, .data = e->copy };
    const struct shard *f = e->copy ? &in_memory : shard_at(w, e->shard);
    struct weights_entry whole = *e;
    bool as_is = e->dtype == e->stored;
    if (e->copy) {
        whole.off = 0;
        e = &whole;
    }
    if (off > e->size || n > e->size - off)
        return err_set(err, BERTH_EINVAL,
                       "tensor '%s': bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64 " in '%s'",
                       excerpt(e->name, e->name_len).s, off, off + n, e->size, path_end(f->path));
    if (!f->map && !f->data && n)
        return err_set(err, BERTH_EUNSUPPORTED, "tensor '%s' of '%s' was declared: it has no bytes",
                       excerpt(e->name, e->name_len).s, path_end(f->path));
    if (!as_is || f->map) {
        if (as_is ? file_map_read(f->map, e->off + off, dst, n, err)
                  : read_converted(f, e, off, dst, n, err))
            return err_add(err, "tensor '%s'", excerpt(e->name, e->name_len).s);
    } else if (n) {
        memcpy(dst, f->data + e->off + off, n);
    }
    return BERTH_OK;
}

const uint8_t *weights_stored(const struct weights *w, const struct weights_entry *e)
{
    return e->copy ? e->copy : shard_at(w, e->shard)->data + e->off;
}

const uint8_t *weights_data(const struct weights *w, const struct weights_entry *e)
{
    if (e->dtype != e->stored)
        BUG("'%s' is %s in its file, not %s", e->name, dtype_name(e->stored), dtype_name(e->dtype));
    return weights_stored(w, e);
}

berth_status weights_check(const struct weights *w, berth_err *err)
{
    for (size_t i = 0; i < w->shard.n; i++) {
        const struct shard *f = vec_at(&w->shard, i);
        if (f->map && file_map_check(f->map, err))
            return err->code;
    }
    return BERTH_OK;
}

void weights_drop(const struct weights *w)
{
    for (size_t i = 0; i < w->shard.n; i++) {
        const struct shard *f = vec_at(&w->shard, i);
        if (f->map)
            file_map_drop(f->map);
    }
}

/* ---- the invariants of weights.h ---- */

static uint64_t stored_bytes(const struct weights_entry *e)
{
    uint64_t n, bytes;
    if (!shape_count(&e->shape, &n) || !dtype_bytes(e->stored, n, &bytes))
        BUG("'%s' does not fit its file", e->name);
    return bytes;
}

static void verify_entry(const struct weights *w, size_t i)
{
    const struct weights_entry *e = &w->entry[i];
    const struct shard *f = shard_at(w, e->shard);
    uint64_t n, bytes;
    if (e->off > f->size || (!e->copy && stored_bytes(e) > f->size - e->off))
        BUG("'%s' lies outside its file", e->name);
    if (!shape_count(&e->shape, &n) || !dtype_bytes(e->dtype, n, &bytes) || bytes != e->size)
        BUG("'%s': %" PRIu64 " bytes do not fit its shape", e->name, e->size);
    if (strlen(e->name) != e->name_len || weights_find(w, e->name, e->name_len) != e)
        BUG("'%s' is not found by its name", e->name);
    if (i == 0 || w->entry[i - 1].shard < e->shard)
        return;
    if (w->entry[i - 1].shard > e->shard || w->entry[i - 1].off > e->off)
        BUG("'%s' is out of order", e->name);
}

void weights_verify(const struct weights *w)
{
    uint64_t end = 0;
    for (size_t i = 0; i < w->count; i++) {
        const struct weights_entry *e = &w->entry[i];
        verify_entry(w, i);
        if (i && e->shard != w->entry[i - 1].shard)
            end = 0;
        if (e->size && e->off < end && !w->format->shares)
            BUG("'%s' overlaps the tensor before", e->name);
        if (e->size)
            end = e->off + (e->copy ? 0 : stored_bytes(e));
    }
}
