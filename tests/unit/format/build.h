/* build: small weight files made in memory, to be opened as they are or broken first.
 *
 * Every hostile case is the same valid file with one thing changed. With BERTH_DUMP_DIR set, each
 * case is also written there under its own name: that is how tests/fuzz/corpus/ was made. */
#ifndef UNIT_FORMAT_BUILD_H
#define UNIT_FORMAT_BUILD_H

#include "base/str.h"
#include "format/format_impl.h"
#include "support/oom.h"
#include "support/test.h"

#include <unistd.h>

static inline void put_uint(struct str *f, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(f, (char)(v >> (8 * i)));
}

/* Replaces the first `find` in the NUL-terminated s, which must have one. */
static inline void replace(struct str *s, const char *find, const char *put)
{
    char *at = strstr(s->p, find);
    if (!at)
        fail_msg("'%s' is not in the valid file", find);
    struct str out = { 0 };
    str_add(&out, s->p, (size_t)(at - s->p));
    str_adds(&out, put);
    str_adds(&out, at + strlen(find));
    str_release(s);
    *s = out;
}

/* A whole safetensors file; n: length given in front, normally strlen(header). */
static inline void st_file(struct str *f, const char *header, uint64_t n, size_t data)
{
    put_uint(f, n, 8);
    str_adds(f, header);
    for (size_t i = 0; i < data; i++)
        str_addc(f, (char)(i * 7 + 1));
}

/* Opens f in memory under `name`. The bytes get a heap block of exactly their size, so that ASan
 * sees a read one byte too far; *mem is to be freed after weights_close(). */
static inline berth_status open_bytes(const struct str *f, const char *name, void **mem,
                                      struct weights **out, berth_err *err)
{
    *mem = malloc(f->n ? f->n : 1);
    assert_non_null(*mem);
    if (f->n)
        memcpy(*mem, f->p, f->n);
    struct weights_file file = { .name = name, .data = *mem, .size = f->n };
    return weights_open_memory(&file, 1, NULL, out, err);
}

static inline void dump_case(const char *name, const struct str *f)
{
    const char *dir = getenv("BERTH_DUMP_DIR");
    char path[512];
    if (!dir)
        return;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(f->p, 1, f->n, out), f->n);
    fclose(out);
}

/* Opens files[0] with every allocation failing in turn: clean each time, fine in the end. */
static inline void expect_survives_oom(const struct weights_file *files, size_t count)
{
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    for (; s != BERTH_OK; k++) {
        struct weights *w = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = weights_open_memory(files, count, NULL, &w, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !w && err.msg[0]));
        weights_close(w);
    }
    assert_true(k > 8); /* every allocation had its turn */
}

/* One hostile case, opened: it must fail with `want` and say `text`; names the case when not. */
static inline void expect_refusal(const char *name, const struct str *f, const char *file,
                                  berth_status want, const char *text)
{
    void *mem;
    struct weights *w = NULL;
    berth_err err = { 0 };
    dump_case(name, f);
    berth_status got = open_bytes(f, file, &mem, &w, &err);
    if (got != want || w || !strstr(err.msg, text) || !strstr(err.msg, file))
        fail_msg("%s: got %s '%s', wanted %s with '%s'", name, berth_status_name(got),
                 got ? err.msg : "", berth_status_name(want), text);
    free(mem);
}

#endif
