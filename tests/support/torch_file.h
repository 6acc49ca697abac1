/* torch_file: files as torch.save() writes them, put together without torch: an archive of stored
 * members, and a pickle of a state dict in front of its storages. */
#ifndef SUPPORT_TORCH_FILE_H
#define SUPPORT_TORCH_FILE_H

#include "support/test.h"

#include "base/hash.h"
#include "base/str.h"
#include "format/weights.h"

struct member {
    const char *name;
    const char *data;
    size_t n;
};

static inline void zip_uint(struct str *f, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(f, (char)(i < 8 ? v >> (8 * i) : 0));
}

enum { LATER = 8 }; /* flag: sizes are not in the header in front, as in torch's files */

static inline void zip_add(struct str *f, struct str *dir, const struct member *m, unsigned flags)
{
    uint64_t at = f->n, len = strlen(m->name), crc = crc32_of(0, m->data, m->n);
    bool later = flags & LATER;
    str_adds(f, "PK\3\4");
    zip_uint(f, 0, 2);
    zip_uint(f, flags, 2);
    zip_uint(f, 0, 2 + 4);
    zip_uint(f, later ? 0 : crc, 4);
    zip_uint(f, later ? 0 : m->n, 4);
    zip_uint(f, later ? 0 : m->n, 4);
    zip_uint(f, len, 2);
    zip_uint(f, 0, 2);
    str_adds(f, m->name);
    str_add(f, m->data, m->n);
    str_adds(dir, "PK\1\2");
    zip_uint(dir, 0, 4);
    zip_uint(dir, flags, 2);
    zip_uint(dir, 0, 2 + 4);
    zip_uint(dir, later ? 0 : crc, 4); /* 0: not computed; lets the fuzzer change the pickle */
    zip_uint(dir, m->n, 4);
    zip_uint(dir, m->n, 4);
    zip_uint(dir, len, 2);
    zip_uint(dir, 0, 2 + 2 + 8);
    zip_uint(dir, at, 4);
    str_adds(dir, m->name);
}

static inline void zip_end(struct str *f, const struct str *dir, size_t members)
{
    uint64_t at = f->n;
    str_add(f, dir->p, dir->n);
    str_adds(f, "PK\5\6");
    zip_uint(f, 0, 4);
    zip_uint(f, members, 2);
    zip_uint(f, members, 2);
    zip_uint(f, dir->n, 4);
    zip_uint(f, at, 4);
    zip_uint(f, 0, 2);
}

static inline void torch_text(struct str *p, const char *s)
{
    str_addc(p, 'X');
    zip_uint(p, strlen(s), 4);
    str_adds(p, s);
}

static inline void torch_int(struct str *p, uint64_t v)
{
    str_add(p, "\x8a\10", 2);
    zip_uint(p, v, 8);
}

/* Entry number i in the storage of that name; its strides are those of torch order. */
static inline void torch_tensor(struct str *p, const struct weights_entry *e, size_t i)
{
    char key[24];
    uint64_t count, stride[SHAPE_MAX_DIMS], step = 1;
    assert_true(e->dtype == DT_F16 || e->dtype == DT_F32);
    assert_true(shape_count(&e->shape, &count));
    snprintf(key, sizeof key, "%zu", i);
    str_adds(p, "ctorch._utils\n_rebuild_tensor_v2\n((");
    torch_text(p, "storage");
    str_addf(p, "ctorch\n%sStorage\n", e->dtype == DT_F16 ? "Half" : "Float");
    torch_text(p, key);
    torch_text(p, "cpu");
    torch_int(p, count);
    str_adds(p, "tQ");
    torch_int(p, 0);
    for (int k = e->shape.ndim; k-- > 0; step *= e->shape.dim[k])
        stride[k] = step;
    str_addc(p, '(');
    for (int k = 0; k < e->shape.ndim; k++)
        torch_int(p, e->shape.dim[k]);
    str_adds(p, "t(");
    for (int k = 0; k < e->shape.ndim; k++)
        torch_int(p, stride[k]);
    str_adds(p, "t\x89"
                "ccollections\nOrderedDict\n)RtR");
}

/* The tensors of `from` (F16 or F32) again as {"global_step": 0, "state_dict": {...}}. */
static inline void torch_save(const char *from, const char *path)
{
    struct str f = { 0 }, dir = { 0 }, p = { 0 };
    struct weights *w;
    berth_err err = { 0 };
    char name[48];
    assert_ok(weights_open(from, NULL, &w, &err), err);
    str_adds(&p, "\x80\2}(");
    torch_text(&p, "global_step");
    torch_int(&p, 0);
    torch_text(&p, "state_dict");
    str_adds(&p, "}(");
    for (size_t i = 0; i < weights_count(w); i++) {
        torch_text(&p, weights_at(w, i)->name);
        torch_tensor(&p, weights_at(w, i), i);
    }
    str_adds(&p, "uu.");
    zip_add(&f, &dir, &(struct member) { "archive/data.pkl", p.p, p.n }, LATER);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        snprintf(name, sizeof name, "archive/data/%zu", i);
        const struct member m = { name, (const char *)weights_data(w, e), (size_t)e->size };
        zip_add(&f, &dir, &m, LATER);
    }
    zip_end(&f, &dir, weights_count(w) + 1);
    assert_false(f.bad || dir.bad || p.bad);
    assert_ok(file_write_all(path, f.p, f.n, &err), err);
    weights_close(w);
    str_release(&f);
    str_release(&dir);
    str_release(&p);
}

#endif
