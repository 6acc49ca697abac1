/* Writing a weight file: check, lay out, then fill and write in pieces on all threads.
 *
 * A job is a stretch of the file of about JOB_BYTES: the end of one tensor, some whole ones, the
 * beginning of another, with the padding between them. The jobs are cut before the threads start,
 * so the calls of `fill` and the bytes of the file are the same for any number of threads. */
#include "format/format_impl.h"

#include "base/sz.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

enum { JOB_BYTES = 4 << 20, BUF_BYTES = JOB_BYTES + WRITE_ALIGN_MAX };

struct job { /* where it begins; it ends where the next one begins */
    size_t tensor;
    uint64_t off; /* in the tensor */
};

struct writing {
    const struct weights_write_args *a;
    struct write_plan plan;
    struct arena mem;
    struct vec job; /* struct job, and one behind the last */
    struct file_new *file;
    uint8_t *buf; /* BUF_BYTES for each worker */
    uint64_t data_bytes;
    atomic_bool stop; /* set with `status`, read without the lock: ends the rest early */
    pthread_mutex_t lock;
    berth_status status; /* lock; the first error */
    berth_err *err;      /* lock */
    uint64_t done;       /* lock; data bytes */
};

/* ---- checks, the same for every format ---- */

static berth_status check_spec(const struct weights_spec *s, uint64_t *size, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    uint64_t n;
    size_t len = s->name ? strlen(s->name) : 0;
    if (!s->name || name_check(s->name, len, weights_limits_default.max_name, "tensor name", err))
        return s->name ? err->code : err_set(err, BERTH_EINVAL, "a tensor without a name");
    if ((unsigned)s->dtype >= DT_COUNT || s->shape.ndim < 0 || s->shape.ndim > SHAPE_MAX_DIMS)
        return err_set(err, BERTH_EINVAL, "tensor '%s': no such dtype, or %d dimensions",
                       excerpt(s->name, len).s, s->shape.ndim);
    if (!shape_count(&s->shape, &n) || !dtype_bytes(s->dtype, n, size) || *size > INT64_MAX)
        return err_set(err, BERTH_EINVAL,
                       "tensor '%s': %s of %s is too large or does not make whole blocks",
                       excerpt(s->name, len).s, shape_text(&s->shape, text), dtype_name(s->dtype));
    return BERTH_OK;
}

static berth_status add_unique(struct map *m, const char *s, const char *what, berth_err *err)
{
    berth_status st = name_add(m, s, strlen(s), 0, what, "is given twice", err);
    if (st == BERTH_EFORMAT)
        st = err->code = BERTH_EINVAL; /* the caller's mistake, not a file's */
    return st;
}

/* The message also names the formats that can hold the type. */
static berth_status cannot_hold(const struct weights_writer *f, const struct weights_spec *s,
                                berth_err *err)
{
    struct str can = { 0 };
    const struct weights_writer *o;
    for (size_t i = 0; (o = weights_writer_at(i)); i++)
        if (o->stores(s->dtype))
            str_addf(&can, "; %s can", o->name);
    err_set(err, BERTH_EUNSUPPORTED, "tensor '%s': %s cannot hold %s%s",
            excerpt(s->name, strlen(s->name)).s, f->name, dtype_name(s->dtype), str_c(&can));
    str_release(&can);
    return err->code;
}

/* Sizes of all tensors, and that the sum of them fits with room for any padding. */
static berth_status check_specs(struct writing *w, const struct weights_writer *f,
                                struct map *names, berth_err *err)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < w->a->count; i++) {
        if (check_spec(&w->a->spec[i], &w->plan.size[i], err) ||
            add_unique(names, w->a->spec[i].name, "tensor", err))
            return err->code;
        if (!f->stores(w->a->spec[i].dtype))
            return cannot_hold(f, &w->a->spec[i], err);
        w->data_bytes += w->plan.size[i];
        if (__builtin_add_overflow(sum, w->plan.size[i] + WRITE_ALIGN_MAX, &sum) ||
            sum > INT64_MAX / 2)
            return err_set(err, BERTH_EINVAL, "the tensors together are too large for a file");
    }
    return BERTH_OK;
}

static berth_status check_meta(const struct weights_write_args *a, struct map *keys, berth_err *err)
{
    for (size_t i = 0; i < a->meta_count; i++) {
        const char *key = a->meta[i].key, *value = a->meta[i].value;
        if (name_check(key, strlen(key), weights_limits_default.max_name, "metadata key", err) ||
            add_unique(keys, key, "metadata key", err))
            return err->code;
        if (!str_is_utf8(value, strlen(value)))
            return err_set(err, BERTH_EINVAL, "metadata '%s' is not UTF-8",
                           excerpt(key, strlen(key)).s);
    }
    return BERTH_OK;
}

static berth_status check_args(struct writing *w, const struct weights_writer *f, berth_err *err)
{
    const struct weights_limits *lim = &weights_limits_default;
    const struct weights_write_args *a = w->a;
    /* The address differs from run to run: names cannot aim at collisions. */
    uint64_t seed = (uint64_t)(uintptr_t)w * UINT64_C(0x9e3779b97f4a7c15);
    struct map names = { .seed = seed }, keys = { .seed = seed };
    if (!f)
        return err_set(err, BERTH_EINVAL,
                       "'%s' is no format that can be written; safetensors and "
                       "gguf are",
                       a->format);
    if (a->count > lim->max_tensors || a->meta_count > lim->max_kv)
        return err_set(err, BERTH_ELIMIT,
                       "%zu tensors and %zu metadata entries; the limits are "
                       "%" PRIu64 " and %" PRIu64,
                       a->count, a->meta_count, lim->max_tensors, lim->max_kv);
    w->plan.size = arena_array(&w->mem, a->count, sizeof *w->plan.size);
    w->plan.off = arena_array(&w->mem, a->count, sizeof *w->plan.off);
    if (!w->plan.size || !w->plan.off)
        return err_set(err, BERTH_ENOMEM, "out of memory for %zu tensors", a->count);
    berth_status s = check_specs(w, f, &names, err);
    if (s == BERTH_OK)
        s = check_meta(a, &keys, err);
    map_release(&names);
    map_release(&keys);
    return s;
}

/* ---- jobs ---- */

/* Zeros between tensor t and what follows. */
static uint64_t padding(const struct writing *w, size_t t)
{
    const struct write_plan *p = &w->plan;
    uint64_t next = t + 1 < w->a->count ? p->off[t + 1] : p->total;
    return next - p->off[t] - p->size[t];
}

/* Cuts a tensor only between blocks. */
static WARN_UNUSED bool cut_jobs(struct writing *w)
{
    uint64_t used = JOB_BYTES; /* of the job being cut: full, so that the first one begins */
    for (size_t t = 0; t < w->a->count; t++) {
        uint64_t size = w->plan.size[t], unit = dtype_desc(w->a->spec[t].dtype)->bytes;
        for (uint64_t off = 0; off < size;) {
            uint64_t room = used < JOB_BYTES ? (JOB_BYTES - used) / unit * unit : 0;
            if (room == 0) {
                if (!vec_push(&w->job, &(struct job) { .tensor = t, .off = off }))
                    return false;
                used = 0;
                continue;
            }
            uint64_t n = size - off < room ? size - off : room;
            off += n;
            used += n;
        }
        if (size)
            used += padding(w, t);
    }
    return vec_push(&w->job, &(struct job) { .tensor = w->a->count });
}

static void fail(struct writing *w, const berth_err *e)
{
    pthread_mutex_lock(&w->lock);
    if (w->status == BERTH_OK) {
        w->status = e->code;
        *w->err = *e;
    }
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->stop, true);
}

/* Fills buf with the bytes of job i, padding included; *used of them. */
static berth_status fill_job(const struct writing *w, const struct job *j, uint8_t *buf,
                             size_t *used, uint64_t *data, berth_err *err)
{
    const struct job *end = j + 1;
    size_t t = j->tensor, at = 0;
    uint64_t off = j->off;
    *data = 0;
    for (; t <= end->tensor && t < w->a->count; t++, off = 0) {
        size_t n = (size_t)((t == end->tensor ? end->off : w->plan.size[t]) - off);
        if (n && w->a->fill(w->a->user, t, off, buf + at, n, err))
            return err_add(err, "tensor '%s'",
                           excerpt(w->a->spec[t].name, strlen(w->a->spec[t].name)).s);
        at += n;
        *data += n;
        if (t == end->tensor)
            break;
        size_t pad = (size_t)padding(w, t);
        memset(buf + at, 0, pad);
        at += pad;
    }
    *used = at;
    return BERTH_OK;
}

static void run_job(void *user, size_t i, size_t worker)
{
    struct writing *w = user;
    const struct job *j = vec_at(&w->job, i);
    uint8_t *buf = w->buf + worker * BUF_BYTES;
    berth_err e = { 0 };
    size_t used = 0;
    uint64_t data = 0;
    if (atomic_load(&w->stop))
        return;
    if (fill_job(w, j, buf, &used, &data, &e) ||
        file_new_write_at(w->file, w->plan.off[j->tensor] + j->off, buf, used, &e)) {
        fail(w, &e);
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->done += data;
    if (w->a->progress)
        w->a->progress(w->a->progress_user, w->done, w->data_bytes);
    pthread_mutex_unlock(&w->lock);
}

static berth_status write_data(struct writing *w, berth_err *err)
{
    size_t workers = w->a->pool ? tpool_size(w->a->pool) : 1, bytes;
    if (!cut_jobs(w) || !sz_mul(workers, BUF_BYTES, &bytes) || !(w->buf = malloc(bytes)))
        return err_set(err, BERTH_ENOMEM, "out of memory for %zu buffers of %d bytes", workers,
                       BUF_BYTES);
    size_t jobs = w->job.n - 1;
    w->err = err;
    if (w->a->pool)
        tpool_for(w->a->pool, jobs, run_job, w);
    else
        for (size_t i = 0; i < jobs; i++)
            run_job(w, i, 0);
    return w->status;
}

/* ---- the door ---- */

static berth_status write_file(struct writing *w, berth_err *err)
{
    if (file_new_open(w->a->path, w->plan.total, &w->file, err))
        return err->code;
    const struct str *h = &w->plan.header;
    if (file_new_write_at(w->file, 0, h->p, h->n, err) || write_data(w, err)) {
        file_new_abort(w->file);
        return err->code;
    }
    return file_new_commit(w->file, err);
}

berth_status weights_write(const struct weights_write_args *a, berth_err *err)
{
    struct writing w = {
        .a = a,
        .job = { .elem = sizeof(struct job) },
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    const struct weights_writer *f = weights_writer_find(a->format);
    if (check_args(&w, f, err) == BERTH_OK && f->plan(a, &w.plan, err) == BERTH_OK)
        w.status = write_file(&w, err);
    else
        w.status = err->code;
    free(w.buf);
    vec_release(&w.job);
    str_release(&w.plan.header);
    arena_release(&w.mem);
    pthread_mutex_destroy(&w.lock);
    if (w.status && !err_names(err, a->path)) /* base/file.h names it by itself */
        err_add(err, "writing '%s'", a->path);
    return w.status;
}
