/* Entries that are read in another type than their file has. */
#include "support/data_bytes.h"
#include "support/oom.h"
#include "support/rng.h"
#include "support/test.h"
#include "support/tmp.h"

#include "base/hash.h"
#include "format/format_impl.h"
#include "tensor/convert.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const enum dtype sources[] = { DT_F64, DT_F32, DT_F16, DT_BF16, DT_F8_E4M3, DT_F8_E5M2 };
static const enum dtype targets[] = { DT_F8_E4M3, DT_F8_E5M2, DT_F16 };

/* More than one piece of every source, and not a whole number of them. */
#define COUNT ((size_t)(64 << 10) * 2 + 7)

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    const uint8_t *const *bytes = user;
    (void)err;
    memcpy(dst, bytes[i] + off, n);
    return BERTH_OK;
}

/* A file of "x" with COUNT elements of this type, and "y" of three bytes. Returns x's bytes, to be
 * freed: normal numbers of every size, ties and zeros among them. */
static uint8_t *write_file(const char *path, enum dtype type)
{
    const struct weights_spec spec[] = { { "x", type, { 1, { COUNT } } },
                                         { "y", DT_U8, { 1, { 3 } } } };
    size_t each = dtype_desc(type)->bytes;
    uint8_t *bytes = malloc(COUNT * each);
    const uint8_t *const fills[] = { bytes, (const uint8_t *)"abc" };
    struct rng r = { .state = type };
    berth_err err = { 0 };
    assert_non_null(bytes);
    for (size_t i = 0; i < COUNT; i++) {
        float v = (float)(int)rng_below(&r, 33) / 16 - 1;
        v = ldexpf(v, (int)rng_below(&r, 20) - 12);
        assert_ok(convert(DT_F32, &v, type, bytes + i * each, 1, &err), err);
    }
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = 2,
                                       .fill = fill,
                                       .user = (void *)fills };
    assert_ok(weights_write(&args, &err), err);
    return bytes;
}

/* Whole, in every way of cutting it, at its ends and over the edges of pieces, into memory of
 * exactly the size: what convert() makes of the bytes. */
static void read_ranges(const struct weights *w, const struct weights_entry *e, const uint8_t *want)
{
    const size_t end = (size_t)e->size;
    const size_t edge[] = { 0,     1,     3,     8191,  8192,   8193,    16384,
                            32767, 32768, 65535, 65536, 131072, end - 1, end };
    berth_err err = { 0 };
    for (size_t a = 0; a < ARRAY_LEN(edge); a++)
        for (size_t b = a; b < ARRAY_LEN(edge); b++) {
            size_t n = edge[b] - edge[a];
            uint8_t *got = malloc(n + 1);
            assert_non_null(got);
            got[n] = 0xa5;
            oom_after(0); /* nothing is allocated */
            berth_status s = weights_read(w, e, edge[a], got, n, &err);
            oom_off();
            assert_ok(s, err);
            assert_true(!n || memcmp(got, want + edge[a], n) == 0);
            assert_int_equal(got[n], 0xa5);
            free(got);
        }
    uint8_t b;
    assert_fails(weights_read(w, e, end, &b, 1, &err), err, BERTH_EINVAL, "'x'");
    assert_fails(weights_read(w, e, end + 1, &b, 0, &err), err, BERTH_EINVAL, "bytes");
    assert_fails(weights_read(w, e, UINT64_MAX, &b, 2, &err), err, BERTH_EINVAL, "bytes");
}

static void one_pair(enum dtype from, enum dtype to, bool in_memory)
{
    char *file = NULL;
    const char *path = tmp_path("pair.safetensors");
    size_t n = 0, each = dtype_desc(from)->bytes, size = COUNT * dtype_desc(to)->bytes;
    uint8_t *bytes = write_file(path, from), *want = malloc(size);
    struct weights *w = NULL;
    berth_err err = { 0 };
    assert_non_null(want);
    assert_ok(convert(from, bytes, to, want, COUNT, &err), err);
    assert_ok(file_read_all(path, 16 << 20, &file, &n, &err), err);
    struct weights_file at = { "pair.safetensors", file, n };
    assert_ok(in_memory ? weights_open_memory(&at, 1, NULL, &w, &err)
                        : weights_open(path, NULL, &w, &err),
              err);
    const struct weights_entry *e = weights_find(w, "x", 1), *y = weights_find(w, "y", 1);
    assert_int_equal(weights_converted(w), DT_NONE);
    oom_after(0);
    weights_convert(w, (size_t)(e - weights_at(w, 0)), to);
    oom_off();
    weights_verify(w);
    assert_int_equal(weights_converted(w), from == to ? DT_NONE : to);
    assert_int_equal(e->dtype, to);
    assert_int_equal(e->stored, from);
    assert_int_equal(e->size, size);
    assert_int_equal(y->dtype, DT_U8);
    assert_int_equal(data_bytes(w), size + 3);
    assert_memory_equal(weights_stored(w, e), bytes, COUNT * each);
    assert_memory_equal(weights_data(w, y), "abc", 3);
    read_ranges(w, e, want);
    weights_close(w);
    free(file);
    free(bytes);
    free(want);
}

static void every_type(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        for (size_t k = 0; k < ARRAY_LEN(targets); k++)
            for (int in_memory = 0; in_memory < 2; in_memory++)
                one_pair(sources[i], targets[k], in_memory);
}

/* Every 16-bit number, held to PyTorch 2.15:
 *   x = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
 *   zlib.crc32(x.to(torch.float8_e4m3fn).view(torch.uint8).numpy().tobytes())
 * e4m3fn: all of them, saturated ones and NaN too. e5m2: below 61440, the others counted as 0:
 * beyond it PyTorch has infinities, and we the largest number. */
static void every_number_as_pytorch_rounds_it(void **state)
{
    static const struct {
        enum dtype from, to;
        uint32_t crc;
    } row[] = { { DT_BF16, DT_F8_E4M3, 0xb4ca6f38 },
                { DT_BF16, DT_F8_E5M2, 0x7294dd61 },
                { DT_F16, DT_F8_E4M3, 0x5067a7ac },
                { DT_F16, DT_F8_E5M2, 0xdc370d06 } };
    (void)state;
    static uint16_t x[65536];
    static uint8_t got[65536];
    static float v[65536];
    for (size_t i = 0; i < ARRAY_LEN(x); i++)
        x[i] = (uint16_t)i;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const struct weights_spec spec = { "x", row[i].from, { 1, { 65536 } } };
        const uint8_t *const fills[] = { (const uint8_t *)x };
        struct weights_write_args args = { .format = "safetensors",
                                           .path = tmp_path("all.safetensors"),
                                           .spec = &spec,
                                           .count = 1,
                                           .fill = fill,
                                           .user = (void *)fills };
        struct weights *w;
        berth_err err = { 0 };
        assert_ok(weights_write(&args, &err), err);
        assert_ok(weights_open(args.path, NULL, &w, &err), err);
        weights_convert(w, 0, row[i].to);
        assert_ok(weights_read(w, weights_at(w, 0), 0, got, sizeof got, &err), err);
        assert_ok(convert(row[i].from, x, DT_F32, v, 65536, &err), err);
        for (size_t k = 0; row[i].to == DT_F8_E5M2 && k < ARRAY_LEN(got); k++)
            if (!(fabsf(v[k]) < 61440))
                got[k] = 0;
        assert_int_equal(crc32_of(0, got, sizeof got), row[i].crc);
        weights_close(w);
    }
}

/* Another type later, and the file's own again. */
static void changing_ones_mind(void **state)
{
    (void)state;
    const char *path = tmp_path("mind.safetensors");
    uint8_t *bytes = write_file(path, DT_F8_E5M2), *got = malloc(COUNT);
    struct weights *w;
    berth_err err = { 0 };
    assert_non_null(got);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    size_t i = (size_t)(weights_find(w, "x", 1) - weights_at(w, 0));
    weights_convert(w, i, DT_F8_E4M3);
    weights_convert(w, i, DT_F8_E5M2);
    weights_verify(w);
    assert_memory_equal(weights_data(w, weights_at(w, i)), bytes, COUNT);
    assert_ok(weights_read(w, weights_at(w, i), 0, got, COUNT, &err), err);
    assert_memory_equal(got, bytes, COUNT);
    weights_close(w);
    free(bytes);
    free(got);
}

static void a_file_that_shrinks(void **state)
{
    (void)state;
    const char *path = tmp_path("shrink.safetensors");
    uint8_t *bytes = write_file(path, DT_BF16), *got = malloc(COUNT);
    struct weights *w;
    berth_err err = { 0 };
    assert_non_null(got);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    const struct weights_entry *e = weights_find(w, "x", 1);
    weights_convert(w, (size_t)(e - weights_at(w, 0)), DT_F8_E4M3);
    assert_int_equal(truncate(path, 100 << 10), 0);
    assert_fails(weights_read(w, e, 0, got, COUNT, &err), err, BERTH_EIO, "tensor 'x'");
    assert_non_null(strstr(err.msg, "shrank"));
    assert_fails(weights_read(w, e, COUNT - 1, got, 1, &err), err, BERTH_EIO, "shrank");
    weights_close(w);
    free(bytes);
    free(got);
}

/* Nobody gets the file's bytes for those of the type that the entry says. */
static void no_pointer_to_what_is_nowhere(void **state)
{
    (void)state;
    const char *path = tmp_path("nowhere.safetensors");
    uint8_t *bytes = write_file(path, DT_BF16);
    struct weights *w;
    berth_err err = { 0 };
    int status;
    assert_ok(weights_open(path, NULL, &w, &err), err);
    const struct weights_entry *e = weights_find(w, "x", 1);
    weights_convert(w, (size_t)(e - weights_at(w, 0)), DT_F8_E4M3);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        close(2);
        (void)weights_data(w, e);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    weights_close(w);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
        cmocka_unit_test(every_number_as_pytorch_rounds_it),
        cmocka_unit_test(changing_ones_mind),
        cmocka_unit_test(a_file_that_shrinks),
        cmocka_unit_test(no_pointer_to_what_is_nowhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
