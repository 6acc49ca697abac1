/* open: how long it takes to index a weight file, and what the index costs.
 *
 * The files are sparse: a real header in front of a hole as large as the tensors would be. Opening
 * reads nothing but the header, so a hole is as good as 24 GB of weights. They are unlinked as soon
 * as they are made and opened through /proc/self/fd, so nothing stays behind, whatever happens.
 *
 * In the same run, for comparison: read() of the header's bytes alone, and for safetensors read()
 * followed by jansson building a tree of them, which is what a plain reader would do first. */
#include "base/clock.h"
#include "base/str.h"
#include "bench.h"
#include "format/format_impl.h"
#include "model/preset.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <malloc.h>
#include <unistd.h>

enum { MANY = 100000, TRIES = 31 };

struct file { /* one file under test */
    const char *what, *format;
    double bar_ms;
    double bar_mb; /* 0: none */
    int fd;
    char path[64];
    size_t header; /* bytes */
    uint64_t size;
};

struct result { /* medians in ms; -1: not measured */
    size_t tensors;
    double open, read, tree, find_ns;
    size_t heap;      /* malloc's own count, while the index is open */
    size_t heap_said; /* weights_heap_bytes() */
};

static size_t heap_now(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* ---- the files ---- */

/* Any file will do that has room for holes. */
static berth_status make_sparse(struct file *f, const struct write_plan *p, berth_err *err)
{
    const char *dir = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/berth-open-XXXXXX", dir && dir[0] ? dir : "/tmp");
    f->fd = mkostemp(path, O_CLOEXEC);
    if (f->fd < 0)
        return err_sys(err, BERTH_EIO, errno, "'%s'", path);
    unlink(path);
    f->header = p->header.n;
    f->size = p->total;
    snprintf(f->path, sizeof f->path, "/proc/self/fd/%d", f->fd);
    if (write(f->fd, p->header.p, p->header.n) != (ssize_t)p->header.n ||
        ftruncate(f->fd, (off_t)p->total))
        return err_sys(err, BERTH_EIO, errno, "'%s': %" PRIu64 " sparse bytes", path, p->total);
    return BERTH_OK;
}

static berth_status make_file(struct file *f, const struct weights_spec *spec, size_t count,
                              berth_err *err)
{
    struct weights_write_args a = { .format = f->format, .spec = spec, .count = count };
    struct write_plan p = { .size = calloc(count, sizeof *p.size),
                            .off = calloc(count, sizeof *p.off) };
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < count && s == BERTH_OK; i++) {
        uint64_t n;
        if (!p.size || !p.off || !shape_count(&spec[i].shape, &n) ||
            !dtype_bytes(spec[i].dtype, n, &p.size[i]))
            s = err_set(err, BERTH_ENOMEM, "no room to lay out %zu tensors", count);
    }
    if (s == BERTH_OK)
        s = weights_writer_find(f->format)->plan(&a, &p, err);
    if (s == BERTH_OK)
        s = make_sparse(f, &p, err);
    str_release(&p.header);
    free(p.size);
    free(p.off);
    return s;
}

/* FLUX.1-dev as it is published: 780 tensors, bf16. */
static berth_status make_flux(struct file *f, berth_err *err)
{
    struct keys k = { 0 };
    const struct preset *p = preset_find("flux-dev");
    if (!p)
        return err_set(err, BERTH_ENOTFOUND, "no preset flux-dev");
    if (preset_keys(p, &k, err))
        return err->code;
    struct weights_spec *spec = calloc(k.n, sizeof *spec);
    for (size_t i = 0; spec && i < k.n; i++)
        spec[i] = (struct weights_spec) { .name = k.at[i].name,
                                          .dtype = DT_BF16,
                                          .shape = k.at[i].shape };
    berth_status s =
        spec ? make_file(f, spec, k.n, err) : err_set(err, BERTH_ENOMEM, "%zu tensors", k.n);
    free(spec);
    keys_release(&k);
    return s;
}

static berth_status make_many(struct file *f, berth_err *err)
{
    struct arena mem = { 0 };
    struct weights_spec *spec = arena_array(&mem, MANY, sizeof *spec);
    bool ok = spec;
    for (size_t i = 0; ok && i < MANY; i++) {
        spec[i] = (struct weights_spec) { .dtype = DT_F16, .shape = { 2, { 1024, 64 + i % 64 } } };
        spec[i].name = arena_printf(&mem, "model.diffusion_model.blocks.%zu.attn.to_%c.weight",
                                    i / 4, "qkvo"[i % 4]);
        ok = spec[i].name;
    }
    berth_status s =
        ok ? make_file(f, spec, MANY, err) : err_set(err, BERTH_ENOMEM, "%d tensors", MANY);
    arena_release(&mem);
    return s;
}

/* ---- measuring ---- */

static berth_status measure_open(const struct file *f, struct result *r, berth_err *err)
{
    double ms[TRIES];
    for (int i = 0; i < TRIES; i++) {
        struct weights *w;
        size_t before = heap_now();
        double t = bench_now_ms();
        if (weights_open(f->path, NULL, &w, err))
            return err->code;
        ms[i] = bench_now_ms() - t;
        r->heap = heap_now() - before;
        r->heap_said = weights_heap_bytes(w);
        r->tensors = weights_count(w);
        t = bench_now_ms();
        for (size_t k = 0; k < r->tensors; k++) {
            const struct weights_entry *e = weights_at(w, k * 7919 % r->tensors);
            if (!weights_find(w, e->name, e->name_len))
                BUG("'%s' is not found", e->name);
        }
        r->find_ns = (bench_now_ms() - t) * 1e6 / (double)r->tensors;
        weights_close(w);
    }
    r->open = bench_median(ms, TRIES);
    return BERTH_OK;
}

/* The header's bytes into memory, and a tree of them where they are JSON. */
static berth_status measure_reference(const struct file *f, struct result *r, berth_err *err)
{
    double read_ms[TRIES], tree_ms[TRIES];
    bool json = f->format[0] == 's';
    char *buf = malloc(f->header);
    for (int i = 0; buf && i < TRIES; i++) {
        double t = bench_now_ms();
        int fd = open(f->path, O_RDONLY | O_CLOEXEC);
        ssize_t n = read(fd, buf, f->header);
        close(fd);
        read_ms[i] = bench_now_ms() - t;
        if (n != (ssize_t)f->header)
            break;
        json_t *v = json ? json_loadb(buf + 8, f->header - 8, JSON_REJECT_DUPLICATES, NULL) : NULL;
        tree_ms[i] = bench_now_ms() - t;
        if (json && !v)
            BUG("jansson does not read our header");
        json_decref(v);
    }
    if (!buf)
        return err_set(err, BERTH_ENOMEM, "%zu bytes", f->header);
    free(buf);
    r->read = bench_median(read_ms, TRIES);
    r->tree = json ? bench_median(tree_ms, TRIES) : -1;
    return BERTH_OK;
}

/* ---- output ---- */

static void print_json(const struct file *f, const struct result *r, bool first)
{
    printf("%s  {\"file\": \"%s\", \"format\": \"%s\", \"tensors\": %zu, \"header_bytes\": %zu, "
           "\"file_bytes\": %" PRIu64 ", \"open_ms\": %.3f, \"read_ms\": %.3f, ",
           first ? "" : ",\n", f->what, f->format, r->tensors, f->header, f->size, r->open,
           r->read);
    if (r->tree >= 0)
        printf("\"jansson_ms\": %.3f, ", r->tree);
    printf("\"heap_bytes\": %zu, \"index_bytes\": %zu, \"find_ns\": %.0f, \"bar_ms\": %.0f}",
           r->heap, r->heap_said, r->find_ns, f->bar_ms);
}

static void print_text(const struct file *f, const struct result *r, bool first)
{
    char tree[32] = "-", heap[STR_BYTES_MAX], head[STR_BYTES_MAX];
    if (first)
        printf("%-9s %-12s %8s %9s %9s %9s %9s %9s %9s %8s  %s\n", "file", "format", "tensors",
               "header", "open ms", "read ms", "jansson", "heap", "B/tensor", "find ns", "bar");
    if (r->tree >= 0)
        snprintf(tree, sizeof tree, "%.3f", r->tree);
    bool ok = r->open < f->bar_ms && (f->bar_mb == 0 || (double)r->heap < f->bar_mb * 1e6);
    printf("%-9s %-12s %8zu %9s %9.3f %9.3f %9s %9s %9.0f %8.0f  < %.0f ms%s: %s\n", f->what,
           f->format, r->tensors, str_bytes(f->header, head), r->open, r->read, tree,
           str_bytes(r->heap, heap), (double)r->heap / (double)r->tensors, r->find_ns, f->bar_ms,
           f->bar_mb > 0 ? ", < 4.8 MiB" : "", ok ? "met" : "MISSED");
}

static berth_status run(struct file *f, bool json, bool first, berth_err *err)
{
    struct result r = { 0 };
    berth_status s = strcmp(f->what, "flux-dev") == 0 ? make_flux(f, err) : make_many(f, err);
    if (s == BERTH_OK)
        s = measure_open(f, &r, err);
    if (s == BERTH_OK)
        s = measure_reference(f, &r, err);
    if (f->fd >= 0)
        close(f->fd);
    if (s == BERTH_OK)
        (json ? print_json : print_text)(f, &r, first);
    return s;
}

int main(int argc, char **argv)
{
    bool json;
    int code = bench_args(
        argc, argv,
        "usage: open [--json]\n"
        "Time and memory for indexing weight files: FLUX.1-dev (24 GB) and one with 100,000\n"
        "tensors, as safetensors and GGUF. Sparse files in $TMPDIR; takes a few seconds.\n",
        &json);
    if (code >= 0)
        return code;
    struct file files[] = {
        { .what = "flux-dev", .format = "safetensors", .bar_ms = 10, .bar_mb = 5, .fd = -1 },
        { .what = "flux-dev", .format = "gguf", .bar_ms = 10, .bar_mb = 5, .fd = -1 },
        { .what = "100000", .format = "safetensors", .bar_ms = 250, .fd = -1 },
        { .what = "100000", .format = "gguf", .bar_ms = 250, .fd = -1 },
    };
    if (json)
        printf("[\n");
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        berth_err err;
        if (run(&files[i], json, i == 0, &err)) {
            fprintf(stderr, "open: %s %s: %s\n", files[i].what, files[i].format, err.msg);
            return 1;
        }
    }
    if (json)
        printf("\n]\n");
    return 0;
}
