/* Textual inversion files: which tensor is meant, and what is refused. */
#include "support/test.h"
#include "support/tmp.h"

#include "format/weights.h"
#include "text/tokenizer.h"

struct tensor {
    const char *name;
    enum dtype dtype;
    struct shape shape;
};

/* Values count up through the file: 0, 1, 2, ... */
static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    const struct weights_spec *spec = user;
    uint64_t first = 0, count;
    (void)err;
    for (size_t k = 0; k < i; k++)
        if (shape_count(&spec[k].shape, &count))
            first += count;
    const struct dtype_desc *d = dtype_desc(spec[i].dtype);
    for (size_t k = 0; k < n / d->bytes; k++) {
        float v = (float)(first + off / d->bytes + k);
        if (d->from_f32)
            d->from_f32(&v, (char *)dst + k * d->bytes, 1);
    }
    return BERTH_OK;
}

static const char *file(const struct tensor *t, size_t n)
{
    struct weights_spec spec[8];
    berth_err err = { 0 };
    const char *path = tmp_path("e.safetensors");
    for (size_t i = 0; i < n; i++)
        spec[i] = (struct weights_spec) { t[i].name, t[i].dtype, t[i].shape };
    struct weights_write_args a = {
        .format = "safetensors", .path = path, .spec = spec, .count = n, .fill = fill, .user = spec
    };
    assert_ok(weights_write(&a, &err), err);
    return path;
}

static void read_is(const struct tensor *t, size_t n, const char *key, uint32_t rows,
                    uint32_t columns, float first)
{
    struct arena mem = { 0 };
    const float *v;
    uint32_t count, have;
    berth_err err = { 0 };
    assert_ok(text_embedding_read(file(t, n), key, &mem, &v, &count, &have, &err), err);
    assert_int_equal(count, rows);
    assert_int_equal(have, columns);
    assert_true(v[0] == first);
    arena_release(&mem);
}
#define FILE_OF(...)                                                                               \
    ((const struct tensor[]) { __VA_ARGS__ }),                                                     \
        sizeof((const struct tensor[]) { __VA_ARGS__ }) / sizeof(struct tensor)

static void which_tensor(void **state)
{
    (void)state;
    const struct tensor emb = { "emb_params", DT_F32, { 2, { 3, 4 } } },
                        l = { "clip_l", DT_F16, { 2, { 2, 4 } } },
                        g = { "clip_g", DT_F32, { 2, { 2, 6 } } },
                        one = { "x", DT_BF16, { 1, { 4 } } },
                        b1 = { "bundle_emb.a.string_to_param.*", DT_F32, { 2, { 1, 4 } } },
                        b2 = { "bundle_emb.b.string_to_param.*", DT_F32, { 2, { 2, 4 } } },
                        bg = { "bundle_emb.a.clip_g", DT_F32, { 2, { 5, 6 } } };
    read_is(FILE_OF(emb), "clip_l", 3, 4, 0);
    read_is(FILE_OF(one), "clip_l", 1, 4, 0);  /* a vector alone */
    read_is(FILE_OF(l, g), "clip_g", 2, 6, 8); /* its own name */
    read_is(FILE_OF(g, l), "clip_l", 2, 4, 12);
    read_is(FILE_OF(emb, b1, b2), "clip_l", 3, 4, 12); /* a bundle, rows behind each other */
    read_is(FILE_OF(emb, bg), "clip_g", 5, 6, 12);
    read_is(FILE_OF(g, emb), "t5xxl", 2, 6, 0); /* the first there is */
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        struct tensor t;
        const char *text;
    } bad[] = {
        { { "a", DT_F32, { 3, { 1, 2, 4 } } }, "[1, 2, 4]" },
        { { "a", DT_F32, { 2, { 0, 4 } } }, "not vectors" },
        { { "a", DT_F32, { 1, { 0 } } }, "not vectors" },
        { { "a", DT_F32, { 1, { 70000 } } }, "70000" },
    };
    struct arena mem = { 0 };
    const float *v;
    uint32_t count, width;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        berth_err err = { 0 };
        assert_fails(
            text_embedding_read(file(&bad[i].t, 1), "clip_l", &mem, &v, &count, &width, &err), err,
            BERTH_EFORMAT, bad[i].text);
        assert_non_null(strstr(err.msg, "e.safetensors"));
    }
    berth_err err = { 0 };
    const struct tensor odd[] = { { "bundle_emb.a.clip_l", DT_F32, { 2, { 1, 4 } } },
                                  { "bundle_emb.b.clip_l", DT_F32, { 2, { 1, 5 } } } };
    assert_fails(text_embedding_read(file(odd, 2), "clip_l", &mem, &v, &count, &width, &err), err,
                 BERTH_EFORMAT, "bundle_emb.b"); /* rows of two widths */
    static const char pickle[] = "\x80\x02"
                                 "cos\nsystem\n.";
    assert_fails(text_embedding_read(tmp_write("e.pt", pickle, sizeof pickle), "clip_l", &mem, &v,
                                     &count, &width, &err),
                 err, BERTH_EUNSUPPORTED, "wants os.system, which Berth does not run");
    assert_fails(text_embedding_read(tmp_path("none"), "clip_l", &mem, &v, &count, &width, &err),
                 err, BERTH_ENOTFOUND, "none");
    arena_release(&mem);
}

/* Files of torch.save(), as tools/pickle_files.py made them: the vectors count up from -1 by
 * 0.375. */
static void pickles(void **state)
{
    static const struct {
        const char *file, *key;
        uint32_t rows, columns;
    } c[] = {
        { "inversion.pt", "clip_l", 2, 8 },
        { "inversion_stream.pt", "clip_l", 2, 8 },
        { "inversion_first.pt", "clip_l", 2, 8 }, /* as the paper's program saved it */
        { "inversion_first_stream.pt", "clip_l", 2, 8 },
        { "concept.bin", "clip_l", 1, 8 },
        { "emb_params.pt", "clip_l", 2, 8 },
        { "alone.pt", "clip_l", 2, 8 },
        { "list.pt", "clip_l", 3, 8 },
        { "pair.pt", "clip_l", 1, 8 },
        { "pair.pt", "clip_g", 1, 10 },
        { "pair_stream.pt", "t5xxl", 1, 10 }, /* the first in the dict, whatever the file's order */
    };
    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char path[512];
        struct arena mem = { 0 };
        const float *v;
        uint32_t count, width;
        berth_err err = { 0 };
        snprintf(path, sizeof path, BERTH_SOURCE_DIR "/tests/unit/format/pickles/%s", c[i].file);
        assert_ok(text_embedding_read(path, c[i].key, &mem, &v, &count, &width, &err), err);
        assert_int_equal(count, c[i].rows);
        assert_int_equal(width, c[i].columns);
        assert_true(v[0] == -1 && v[1] == -0.625f &&
                    v[width - 1] == 0.375f * (float)(width - 1) - 1);
        arena_release(&mem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(which_tensor), cmocka_unit_test(refused),
                                        cmocka_unit_test(pickles) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
