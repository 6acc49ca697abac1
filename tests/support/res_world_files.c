/* The world's weight files and adapters. All values are small whole numbers: exact in F32, F16,
 * BF16, Q8_0 with a scale of 1 and, up to 16, in F8_E4M3; so what a patch makes of them is known by
 * head. */
#include "support/res_world_impl.h"
#include "support/tmp.h"
#include "tensor/convert.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct file_fact files[FILES];

static berth_status trace(const struct block_arch *arch, const struct weights *w, const char *part,
                          struct block_trace *out, berth_err *err)
{
    (void)arch, (void)err;
    for (size_t i = 0; i < weights_count(w); i++) {
        const char *name = weights_at(w, i)->name + strlen(part);
        out->use[i].lookup = str_starts(name, strlen(name), "embed.");
    }
    return BERTH_OK;
}
static const struct block_arch *with_embedding(const struct weights *w, const char *part)
{
    static const struct block_arch toy = { .name = "toy", .trace = trace };
    (void)w, (void)part;
    return &toy;
}

const struct identity identities[] = {
    { .file = 0, .name = "a" },
    { .file = 0, .options = "cfg=1", .name = "a2" },
    { .file = 1, .part = "unet.", .name = "b-unet" },
    { .file = 1, .part = "vae.", .name = "b-vae" },
    { .file = 2, .name = "c" },
    { .file = 3, .arch = with_embedding, .name = "d" },
    { .file = 0, .name = "a8", .dtype = "F8_E4M3" },
    { .file = 1, .part = "unet.", .name = "b-unet8", .dtype = "F8_E4M3" },
    { .file = 3, .arch = with_embedding, .name = "d8", .dtype = "F8_E4M3" },
};
const size_t identities_n = ARRAY_LEN(identities);

enum dtype held_as(const struct identity *id, const struct tensor_fact *t)
{
    return id->dtype && dtype_desc(t->dtype)->is_float && t->count > 1 ? DT_F8_E4M3 : t->dtype;
}

static void must(bool so, const char *what)
{
    if (so)
        return;
    fprintf(stderr, "tests/support/res_world: %s\n", what);
    abort();
}

const struct file_fact *file_fact(size_t file)
{
    return &files[file];
}

void file_touch(size_t file)
{
    struct stat st; /* one second on: also after a child process did the same */
    must(!stat(files[file].path, &st), "a weight file");
    struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, st.st_mtim };
    t[1].tv_sec++;
    must(!utimensat(AT_FDCWD, files[file].path, t, 0), "a time stamp");
}

const struct tensor_fact *tensor_fact(size_t file, const char *name, size_t n)
{
    for (size_t i = 0; i < files[file].n; i++)
        if (str_eq(name, n, files[file].tensor[i].name))
            return &files[file].tensor[i];
    return NULL;
}

/* i < 0: the name is `prefix` alone. */
static void add(struct file_fact *f, enum dtype t, struct shape s, const char *prefix, int i,
                const char *suffix)
{
    must(f->n < FILE_TENSORS_MAX, "too many tensors");
    struct tensor_fact *x = &f->tensor[f->n++];
    if (i < 0)
        snprintf(x->name, sizeof x->name, "%s", prefix);
    else
        snprintf(x->name, sizeof x->name, "%s%d.%s", prefix, i, suffix);
    x->dtype = t;
    x->shape = s;
    must(shape_count(&s, &x->count) && dtype_bytes(t, x->count, &x->bytes), "a shape");
    x->base = calloc(x->count + 1, sizeof *x->base);
    must(x->base, "memory");
    for (uint64_t k = 0; k < x->count; k++)
        x->base[k] = (float)((k * 7 + f->n * 5) % 13) - 6;
}

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    const struct tensor_fact *t = &((const struct file_fact *)user)->tensor[i];
    const struct dtype_desc *d = dtype_desc(t->dtype);
    size_t first = (size_t)off / d->bytes * d->elems, count = n / d->bytes * d->elems;
    if (t->dtype != DT_Q8_0)
        return convert(DT_F32, t->base + first, t->dtype, dst, count, err);
    uint8_t *p = dst; /* the quantiser's scale would be max/127: ours is 1 */
    for (size_t k = 0; k < count; k += d->elems, p += d->bytes) {
        p[0] = 0x00, p[1] = 0x3c;
        for (size_t j = 0; j < d->elems; j++)
            p[2 + j] = (uint8_t)(int8_t)t->base[first + k + j];
    }
    return BERTH_OK;
}

static void write_file(struct file_fact *f, const char *name, const char *format)
{
    struct weights_spec spec[FILE_TENSORS_MAX];
    berth_err err = { 0 };
    snprintf(f->path, sizeof f->path, "%s", tmp_path(name));
    for (size_t i = 0; i < f->n; i++)
        spec[i] = (struct weights_spec) { .name = f->tensor[i].name,
                                          .dtype = f->tensor[i].dtype,
                                          .shape = f->tensor[i].shape };
    struct weights_write_args a = {
        .format = format, .path = f->path, .spec = spec, .count = f->n, .fill = fill, .user = f
    };
    must(!weights_write(&a, &err), err.msg);
}

/* A /proc for the cpu device: the same on every machine, and a short way for the many who ask. */
const char *fake_root(void)
{
    static const char meminfo[] = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n";
    static char root[512];
    if (!root[0]) {
        snprintf(root, sizeof root, "%s", tmp_path("root"));
        must(!mkdir(root, 0700) && !mkdir(tmp_path("root/proc"), 0700), "a folder");
        tmp_write("root/proc/meminfo", meminfo, sizeof meminfo - 1);
    }
    return root;
}

void files_make(void)
{
    if (files[0].n)
        return;
    for (int i = 0; i < 6; i++) { /* 73 KiB, all alike */
        add(&files[0], DT_F32, (struct shape) { 2, { 48, 64 } }, "blk", i, "weight");
        add(&files[0], DT_F32, (struct shape) { 1, { 48 } }, "blk", i, "bias");
    }
    for (int i = 0; i < 8; i++) { /* unet: 60 KiB, types take turns */
        add(&files[1], i % 2 ? DT_F8_E4M3 : DT_BF16, (struct shape) { 2, { 64, 96 } }, "unet.blk",
            i, "weight");
        if (i % 3 == 0)
            add(&files[1], DT_BF16, (struct shape) { 1, { 64 } }, "unet.blk", i, "bias");
    }
    for (int i = 0; i < 3; i++) { /* vae: 28 KiB, convolutions and a norm */
        add(&files[1], DT_F16, (struct shape) { 4, { 16, 32, 3, 3 } }, "vae.blk", i, "weight");
        add(&files[1], DT_F16, (struct shape) { 1, { 16 } }, "vae.norm", i, "weight");
    }
    for (int i = 0; i < 5; i++) { /* 22 KiB quantised, 41 KiB once all are patched */
        add(&files[2], DT_Q8_0, (struct shape) { 2, { 32, 128 } }, "blk", i, "weight");
        add(&files[2], DT_F32, (struct shape) { 1, { 32 } }, "blk", i, "bias");
    }
    add(&files[3], DT_F16, (struct shape) { 2, { 100, 64 } }, "embed.weight", -1, NULL);
    for (int i = 0; i < 7; i++) /* 162 KiB from 1 to 64 KiB */
        add(&files[3], DT_F16, (struct shape) { 2, { (uint64_t)16 << i, 32 } }, "blk", i, "weight");
    add(&files[3], DT_F32, (struct shape) { 2, { 0, 4 } }, "void.weight", -1,
        NULL); /* no bytes at all */
    add(&files[3], DT_I32, (struct shape) { 0, { 0 } }, "position", -1,
        NULL); /* no dot, a scalar */
    write_file(&files[0], "a.safetensors", "safetensors");
    write_file(&files[1], "b.safetensors", "safetensors");
    write_file(&files[2], "c.gguf", "gguf");
    write_file(&files[3], "d.safetensors", "safetensors");
}

/* ---- adapters ----
 *   0  every weight of a blk     += 1 * strength       (dense)
 *   1  weights of odd blks       += 2 * strength       (dense)
 *   2  the weight of blk1        =  5                  (set)
 *   3  upper half of the rows of the weights of blk0 and blk3
 *                                += 1 * strength       (rank 2) */

static int blk_of(const char *key, size_t n, bool *weight)
{
    *weight = str_ends(key, n, ".weight");
    for (size_t i = 0; i + 4 < n; i++)
        if (memcmp(key + i, "blk", 3) == 0)
            return key[i + 3] - '0';
    return -1;
}

bool adapter_touches(unsigned kind, const char *key, size_t n)
{
    bool weight;
    int blk = blk_of(key, n, &weight);
    switch (kind) {
    case 0:
        return blk >= 0 && weight;
    case 1:
        return blk >= 0 && blk % 2 == 1 && weight;
    case 2:
        return blk == 1 && weight;
    default:
        return (blk == 0 || blk == 3) && weight;
    }
}

static bool touches(const struct res_adapter *a, const char *key, size_t n)
{
    return adapter_touches(((const struct world_adapter *)a)->kind, key, n);
}

static berth_status terms(const struct res_adapter *base, const char *key, size_t n,
                          const struct shape *shape, float strength, struct arena *tmp,
                          struct vec *out, berth_err *err)
{
    const struct world_adapter *a = (const struct world_adapter *)base;
    uint64_t rows = shape->dim[0], count, cols;
    if (!adapter_touches(a->kind, key, n))
        return BERTH_OK;
    if (!shape_count(shape, &count))
        return err_set(err, BERTH_EFORMAT, "shape of %.*s", (int)n, key);
    cols = count / rows;
    if (*a->fail && --*a->fail == 0)
        return err_set(err, BERTH_EFORMAT, "%s does not fit %.*s", base->name, (int)n, key);
    struct res_term *t = vec_add(out);
    if (!t)
        return err_set(err, BERTH_ENOMEM, "terms of %s", base->name);
    *t = (struct res_term) {
        .kind = a->kind == 2 ? TERM_SET : TERM_ADD, .rows = rows, .cols = cols, .scale = strength
    };
    if (a->kind == 3) {
        t->kind = TERM_LOWRANK;
        t->rank = 2;
        t->rows = rows / 2;
        float *up = arena_array(tmp, t->rows * 2, sizeof *up);
        float *down = arena_array(tmp, cols * 2, sizeof *down);
        if (!up || !down)
            return err_set(err, BERTH_ENOMEM, "factors of %s", base->name);
        for (uint64_t i = 0; i < t->rows * 2; i++)
            up[i] = 0.5f;
        for (uint64_t i = 0; i < cols * 2; i++)
            down[i] = 1;
        t->up = up, t->down = down;
        return BERTH_OK;
    }
    float *dense = arena_array(tmp, count, sizeof *dense);
    if (!dense)
        return err_set(err, BERTH_ENOMEM, "terms of %s", base->name);
    for (uint64_t i = 0; i < count; i++)
        dense[i] = a->kind == 2 ? 5 : a->kind == 1 ? 2 : 1;
    t->dense = dense;
    return BERTH_OK;
}

static void adapter_free(struct res_adapter *a)
{
    ++*((struct world_adapter *)a)->freed;
}

static const struct res_adapter_ops ops = { touches, terms, adapter_free };

void adapters_make(struct world_adapter a[ADAPTERS], unsigned *fail, unsigned *freed)
{
    static const char *const names[ADAPTERS] = { "everywhere", "odd", "set", "half" };
    for (unsigned i = 0; i < ADAPTERS; i++) {
        a[i] = (struct world_adapter) { .base = { .ops = &ops, .id = 100 + i, .name = names[i] },
                                        .kind = i,
                                        .fail = fail,
                                        .freed = freed };
        atomic_init(&a[i].base.refs, 1);
    }
}

bool patches_touch(const struct patch_list *p, const char *key, size_t n)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].strength && adapter_touches(p->at[i].adapter, key, n))
            return true;
    return false;
}

void patched_values(const struct tensor_fact *t, const struct patch_list *p, float *want)
{
    size_t len = strlen(t->name);
    uint64_t rows = t->shape.ndim ? t->shape.dim[0] : 1, cols = rows ? t->count / rows : 0;
    memcpy(want, t->base, t->count * sizeof *want);
    for (size_t i = 0; i < p->n; i++) {
        unsigned kind = p->at[i].adapter;
        float s = p->at[i].strength;
        if (s == 0 || !adapter_touches(kind, t->name, len))
            continue;
        uint64_t end = kind == 3 ? rows / 2 * cols : t->count;
        for (uint64_t k = 0; k < end; k++)
            want[k] = kind == 2 ? 5 : want[k] + (kind == 1 ? 2 * s : s);
    }
}

bool patches_same(const struct patch_list *a, const struct patch_list *b, const char *key, size_t n)
{
    size_t i = 0, j = 0;
    for (;; i++, j++) {
        while (i < a->n && !(a->at[i].strength && adapter_touches(a->at[i].adapter, key, n)))
            i++;
        while (j < b->n && !(b->at[j].strength && adapter_touches(b->at[j].adapter, key, n)))
            j++;
        if (i == a->n || j == b->n)
            return i == a->n && j == b->n;
        if (a->at[i].adapter != b->at[j].adapter || a->at[i].strength != b->at[j].strength)
            return false;
    }
}
