/* The doors of format/: real files, and files that are something else or change under us. */
#include "unit/format/build.h"

#include "support/data_bytes.h"
#include "support/oom.h"
#include "support/tmp.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* A U8 tensor of `data` bytes: large enough to reach over several pages. */
static const char *write_st(const char *name, size_t data)
{
    char header[128];
    struct str f = { 0 };
    int n =
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", data, data);
    st_file(&f, header, (uint64_t)n, data);
    const char *path = tmp_write(name, f.p, f.n);
    str_release(&f);
    return path;
}

/* Opening must fail with `want`, and the message name the file and say `words`. */
static void refuse(const char *path, berth_status want, const char *words)
{
    struct weights *w = NULL;
    berth_err err = { 0 };
    berth_status got = weights_open(path, NULL, &w, &err);
    const char *slash = strrchr(path, '/');
    if (got != want || w || !strstr(err.msg, words) || !strstr(err.msg, slash ? slash + 1 : path))
        fail_msg("%s: got %s '%s', wanted %s with '%s'", path, berth_status_name(got),
                 got ? err.msg : "", berth_status_name(want), words);
}

static void refuse_bytes(const char *name, const char *p, size_t n, berth_status want,
                         const char *words)
{
    refuse(tmp_write(name, p, n), want, words);
}
#define REFUSE(name, bytes, want, words)                                                           \
    refuse_bytes(name, bytes, sizeof bytes - 1, BERTH_##want, words)

static void what_is_no_file(void **state)
{
    (void)state;
    refuse(tmp_path("nothing.safetensors"), BERTH_ENOTFOUND, "No such file");
    assert_int_equal(mkdir(tmp_path("folder.safetensors"), 0700), 0);
    refuse(tmp_path("folder.safetensors"), BERTH_EINVAL, "is a directory");
    assert_int_equal(mkfifo(tmp_path("fifo.gguf"), 0600), 0);
    refuse(tmp_path("fifo.gguf"), BERTH_EINVAL, "FIFO");
    REFUSE("zero.safetensors", "", EFORMAT, "is empty");
    REFUSE("zero.gguf", "", EFORMAT, "is empty");
    const char *path = write_st("secret.safetensors", 1);
    uid_t me = geteuid();
    assert_int_equal(chmod(path, 0), 0);
    if (me == 0 && seteuid(65534)) /* root may read everything: be somebody else for a moment */
        return;
    refuse(path, BERTH_EIO, "Permission denied");
    assert_int_equal(seteuid(me), 0);
}

static void content_decides_not_the_name(void **state)
{
    (void)state;
    struct weights *w;
    berth_err err;
    assert_ok(weights_open(write_st("really.ckpt", 5), NULL, &w, &err), err);
    assert_string_equal(weights_format(w), "safetensors");
    weights_close(w);
    assert_ok(weights_open(write_st("really.gguf", 5), NULL, &w, &err), err);
    weights_close(w);
    refuse_bytes("really.safetensors", "GGUF\1\0\0\0", 8, BERTH_EUNSUPPORTED, "GGUF version 1");
}

/* What they may hold is in test_pickle.c. */
static void pickles_are_known_by_their_bytes(void **state)
{
    (void)state;
    static const char legacy[] = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.";
    static const char dict[] = "\x80\x04}q\x01.";
    refuse_bytes("sd.safetensors", "PK\3\4", 4, BERTH_EFORMAT, "without its directory");
    refuse_bytes("sd.pt", legacy, sizeof legacy - 1, BERTH_EFORMAT, "cut short");
    refuse_bytes("emb.bin", dict, sizeof dict - 1, BERTH_EUNSUPPORTED, "a Python pickle, but");
    REFUSE("sd.pth", "something", EUNSUPPORTED, "named like a PyTorch pickle");
    REFUSE("sd.ckpt", "<!DOCTYPE html><html>", EUNSUPPORTED, "a web page");
}

static void other_content_is_described(void **state)
{
    (void)state;
    REFUSE("page.safetensors", "<!DOCTYPE html><html>...</html>", EUNSUPPORTED, "a web page");
    REFUSE("page", "<html>", EUNSUPPORTED, "a web page");
    REFUSE("ptr.safetensors", "version https://git-lfs.github.com/spec/v1\n", EUNSUPPORTED,
           "git lfs pull");
    REFUSE("zeros.gguf", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", EUNSUPPORTED, "unfinished download");
    REFUSE("zeros.safetensors", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", EUNSUPPORTED,
           "unfinished download");
    REFUSE("old.gguf", "tjgg\1\0\0\0", EUNSUPPORTED, "from before GGUF");
    REFUSE("swapped.gguf", "FUGG\0\0\0\3", EUNSUPPORTED, "byte-swapped");
    REFUSE("notes.txt", "hello\033[2J", EUNSUPPORTED, "bytes 68 65 6c 6c 6f 1b");
    REFUSE("notes2.txt", "hello", EUNSUPPORTED, "text: 'hello'");
    REFUSE("x.png", "\x89PNG\r\n\x1a\n", EUNSUPPORTED, "a PNG image");
    REFUSE("x.tif", "II*\0\10\0\0\0", EUNSUPPORTED, "a TIFF image");
    REFUSE("y.tif", "MM\0*\0\0\0\10", EUNSUPPORTED, "a TIFF image");
    REFUSE("z.tif", "II+\0\10\0\0\0", EUNSUPPORTED, "a TIFF image");
    REFUSE("no.tif", "II*\1\10\0\0\0", EUNSUPPORTED, "bytes 49 49 2a 01"); /* beyond the NUL */
    REFUSE("workflow.json", "{\"1\": {\"class_type\": \"SaveImage\", \"inputs\": {}}}", EFORMAT,
           "a workflow, which holds no weights: berth run takes it");
    REFUSE("odd.gguf", "ABCD\1\2\3\4", EFORMAT, "not a gguf file (bytes 41 42 43 44 01");
    REFUSE("short.safetensors", "abc", EFORMAT, "cut short: 3 bytes");
    REFUSE("noise", "\x01\x02\x03\xfe", EUNSUPPORTED, "Accepted are safetensors, GGUF");
    REFUSE("some.json", "{\"a\":1}", EFORMAT, "without a 'weight_map'");
}

/* A valid file cut at every length from 1 to its own: clear errors, and never a success. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    const char *path = write_st("cut.safetensors", 20);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (off_t n = st.st_size - 1; n > 0; n--) {
        struct weights *w = NULL;
        berth_err err = { 0 };
        assert_int_equal(truncate(path, n), 0);
        berth_status s = weights_open(path, NULL, &w, &err);
        assert_true(s == BERTH_EFORMAT || s == BERTH_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, "cut.safetensors"));
    }
}

enum { BIG = 3 << 20 };

static void file_shrinks_under_an_open_index(void **state)
{
    (void)state;
    const char *path = write_st("shrink.safetensors", BIG);
    struct weights *w;
    berth_err err;
    uint8_t *buf = malloc(BIG);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    const struct weights_entry *e = weights_find(w, "x", 1);
    assert_ok(weights_read(w, e, 0, buf, BIG, &err), err);
    assert_int_equal(buf[10], 71);
    assert_int_equal(truncate(path, 1 << 20), 0);
    assert_fails(weights_read(w, e, 0, buf, BIG, &err), err, BERTH_EIO, "shrank");
    assert_non_null(strstr(err.msg, "shrink.safetensors"));
    assert_fails(weights_check(w, &err), err, BERTH_EIO, "1048576 now");
    unsigned sum = 0; /* touching the lost bytes directly is survived too */
    for (size_t i = 0; i < BIG; i += 4096)
        sum += weights_data(w, e)[i];
    assert_true(sum > 0);
    assert_int_equal(truncate(path, 0), 0);
    assert_fails(weights_read(w, e, 0, buf, 1, &err), err, BERTH_EIO, "shrank");
    weights_close(w);
    free(buf);
}

static void file_grows_or_changes_under_an_open_index(void **state)
{
    (void)state;
    const char *path = write_st("grow.safetensors", 100);
    struct weights *w;
    berth_err err;
    uint8_t b;
    assert_ok(weights_open(path, NULL, &w, &err), err);
    FILE *f = fopen(path, "ab");
    fputs("more", f);
    fclose(f);
    assert_fails(weights_read(w, weights_at(w, 0), 0, &b, 1, &err), err, BERTH_EIO, "grew");
    weights_close(w);
    refuse(path, BERTH_EFORMAT, "cover 100 bytes of data, the file has 104");

    path = write_st("touch.safetensors", 100);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    const struct timespec then[2] = { { 1, 0 }, { 1, 0 } };
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    assert_fails(weights_check(w, &err), err, BERTH_EIO, "touch.safetensors");
    weights_close(w);
}

/* Replacing by rename, as downloads do, leaves the old file to those who have it open. */
static void replaced_file_stays_readable(void **state)
{
    (void)state;
    const char *path = write_st("replace.safetensors", 100);
    struct weights *w;
    berth_err err;
    uint8_t b;
    assert_ok(weights_open(path, NULL, &w, &err), err);
    assert_int_equal(rename(write_st("new.safetensors", 7), path), 0);
    assert_ok(weights_read(w, weights_at(w, 0), 99, &b, 1, &err), err);
    assert_int_equal(b, (uint8_t)(99 * 7 + 1));
    weights_close(w);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    assert_int_equal(data_bytes(w), 7);
    weights_close(w);
}

/* ---- somebody writes into the header while we read it ---- */

struct scribbler {
    int fd;
    atomic_bool stop;
    const char *a, *b; /* the two texts it puts at `at` in turn */
    off_t at;
};

static void *scribble(void *user)
{
    struct scribbler *s = user;
    while (!atomic_load(&s->stop)) {
        assert_int_equal(pwrite(s->fd, s->a, strlen(s->a), s->at), (ssize_t)strlen(s->a));
        assert_int_equal(pwrite(s->fd, s->b, strlen(s->b), s->at), (ssize_t)strlen(s->b));
    }
    return NULL;
}

/* Opens again and again while the bytes flip. Any answer is fine but a crash, a broken invariant
 * (weights_verify) or a success that says nonsense. */
static void race(const char *header, const char *find, const char *a, const char *b, size_t data)
{
    struct str f = { 0 };
    st_file(&f, header, strlen(header), data);
    const char *path = tmp_write("race.safetensors", f.p, f.n);
    struct scribbler s = { .fd = open(path, O_WRONLY), .a = a, .b = b };
    s.at = strstr(header, find) - header + 8;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, scribble, &s), 0);
    for (int i = 0; i < 1500; i++) {
        struct weights *w = NULL;
        berth_err err;
        if (weights_open(path, NULL, &w, &err) == BERTH_OK)
            weights_verify(w);
        weights_close(w);
    }
    atomic_store(&s.stop, true);
    pthread_join(thread, NULL);
    close(s.fd);
    str_release(&f);
}

static void header_changes_while_it_is_read(void **state)
{
    (void)state;
    race("{\"x\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]}}", "9],\"data", "9", "1",
         9);
    race("{\"n\\u0061me\\u0062\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]}}",
         "\\u0062", "\\u0062", "xxxx\\u", 9);
    race("{\"name\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]}}", "me\"",
         "me\":", "\"\":{\"", 9);
}

/* The moment between the walk over a string and its decoding, made to last. */
static void string_changes_between_walk_and_decoding(void **state)
{
    (void)state;
    static const char *const later[] = { "abcdef\\u", "abcdefg\\", "a\\zbcdef", "a\\u00zzb",
                                         "\\ud800ab", "abc\"defg", "abc\ndefg", "abc\xff\"xyz" };
    for (size_t i = 0; i < ARRAY_LEN(later); i++) {
        char *text = malloc(10), scratch[10], out[8]; /* ends with the string: ASan watches */
        struct jstok t;
        size_t n;
        memcpy(text, "\"ab\\u0041\"", 10);
        jstok_init(&t, text, 10, 1);
        assert_int_equal(jstok_next(&t), JSTOK_STRING);
        assert_true(t.has_escape && t.n == 8);
        assert_true(token_decode(&t, scratch, out, &n));
        assert_int_equal(n, 3);
        assert_memory_equal(out, "abA", 3);
        memcpy(text + 1, later[i], 8);
        assert_false(token_decode(&t, scratch, out, &n));
        free(text);
    }
}

/* The same bytes written over and over: nothing but the time of change tells. Opening must notice
 * when that moves between its first look at the file and its last. */
static void file_is_written_while_it_is_opened(void **state)
{
    (void)state;
    const char *path = write_st("busy.safetensors", 10);
    struct scribbler s = { .fd = open(path, O_WRONLY), .a = "{", .b = "{", .at = 8 };
    pthread_t thread;
    berth_status got = BERTH_OK;
    berth_err err = { 0 };
    assert_int_equal(pthread_create(&thread, NULL, scribble, &s), 0);
    for (long i = 0; got == BERTH_OK && i < 2000000; i++) {
        struct weights *w;
        got = weights_open(path, NULL, &w, &err);
        weights_close(w);
    }
    atomic_store(&s.stop, true);
    pthread_join(thread, NULL);
    close(s.fd);
    assert_fails(got, err, BERTH_EIO, "busy.safetensors");
}

static void assert_open_survives_oom(const char *path)
{
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    for (; s != BERTH_OK; k++) {
        struct weights *w = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = weights_open(path, NULL, &w, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !w && err.msg[0]));
        weights_close(w);
    }
    assert_true(k > 3); /* something was there to fail */
}

static berth_status fill_zero(void *user, size_t i, uint64_t off, void *dst, size_t n,
                              berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

static void open_survives_oom(void **state)
{
    (void)state;
    assert_open_survives_oom(write_st("oom-1.safetensors", 10));

    const struct weights_spec spec = { "a.weight", DT_Q8_0, { .ndim = 4, .dim = { 32, 4, 3, 3 } } };
    const struct weights_meta_spec meta = { "general.architecture", "sd1" };
    const struct weights_write_args args = { .format = "gguf",
                                             .path = tmp_path("oom.gguf"),
                                             .spec = &spec,
                                             .count = 1,
                                             .meta = &meta,
                                             .meta_count = 1,
                                             .fill = fill_zero };
    berth_err err = { 0 };
    assert_ok(weights_write(&args, &err), err);
    assert_open_survives_oom(args.path);

    struct weights *w = NULL;
    assert_ok(weights_open(tmp_path("oom-1.safetensors"), NULL, &w, &err), err);
    struct str index = { 0 };
    str_adds(&index, "{\"weight_map\":{");
    for (size_t i = 0; i < weights_count(w); i++)
        str_addf(&index, "%s\"%s\":\"oom-1.safetensors\"", i ? "," : "", weights_at(w, i)->name);
    str_adds(&index, "}}");
    weights_close(w);
    assert_false(index.bad);
    assert_open_survives_oom(tmp_write("oom.safetensors.index.json", index.p, index.n));
    str_release(&index);
}

/* Two indexes of one file at once, closed in either order: there is no hidden state. */
static void two_indexes_of_one_file(void **state)
{
    (void)state;
    const char *path = write_st("two.safetensors", 10);
    struct weights *a, *b;
    berth_err err;
    uint8_t x;
    assert_ok(weights_open(path, NULL, &a, &err), err);
    assert_ok(weights_open(path, NULL, &b, &err), err);
    weights_close(a);
    assert_ok(weights_read(b, weights_at(b, 0), 0, &x, 1, &err), err);
    weights_close(b);
    weights_close(NULL);
}

/* ---- tensors that exist nowhere ---- */

static const struct weights_spec declared[] = {
    { "a.weight", DT_F16, { 2, { 3, 5 } } },
    { "a.bias", DT_F32, { 1, { 3 } } },
    { "none", DT_F32, { 1, { 0 } } },
    { "q", DT_Q8_0, { 2, { 2, 32 } } },
};

static void a_declared_index_has_all_but_bytes(void **state)
{
    struct weights *w;
    berth_err err = { 0 };
    uint8_t byte[2];
    (void)state;
    assert_ok(weights_declare("made up", declared, ARRAY_LEN(declared), &w, &err), err);
    assert_string_equal(weights_path(w), "made up");
    assert_int_equal(weights_count(w), ARRAY_LEN(declared));
    assert_int_equal(data_bytes(w), 30 + 12 + 68);
    for (size_t i = 0; i < ARRAY_LEN(declared); i++) {
        const struct weights_spec *s = &declared[i];
        const struct weights_entry *e = weights_find(w, s->name, strlen(s->name));
        assert_non_null(e);
        assert_ptr_equal(e, weights_at(w, i));
        assert_true(e->dtype == s->dtype && !memcmp(&e->shape, &s->shape, sizeof e->shape));
        assert_fails(weights_read(w, e, 0, byte, e->size ? 2 : 3, &err), err,
                     e->size ? BERTH_EUNSUPPORTED : BERTH_EINVAL, s->name);
    }
    weights_convert(w, 0, DT_F8_E4M3); /* as a plan in fp8 does */
    assert_int_equal(data_bytes(w), 15 + 12 + 68);
    assert_fails(weights_read(w, weights_at(w, 0), 0, byte, 2, &err), err, BERTH_EUNSUPPORTED, "");
    weights_close(w);
}

static void what_cannot_be_declared(void **state)
{
    const struct weights_spec twice[] = { declared[0], declared[0] };
    const struct weights_spec odd[] = { { "q", DT_Q8_0, { 1, { 31 } } } };
    const struct weights_spec huge[] = { { "x", DT_F32, { 1, { UINT64_MAX / 2 } } } };
    const struct weights_spec bad[] = { { "a\nb", DT_F32, { 1, { 1 } } } };
    struct weights *w;
    berth_err err = { 0 };
    (void)state;
    assert_fails(weights_declare("m", twice, 2, &w, &err), err, BERTH_EFORMAT, "twice");
    assert_fails(weights_declare("m", odd, 1, &w, &err), err, BERTH_EFORMAT, "whole blocks");
    assert_fails(weights_declare("m", huge, 1, &w, &err), err, BERTH_EFORMAT, "'x'");
    assert_fails(weights_declare("m", bad, 1, &w, &err), err, BERTH_EFORMAT, "control character");
    assert_null(w);
    for (long k = 0;; k++) {
        oom_after(k);
        berth_status s = weights_declare("m", declared, ARRAY_LEN(declared), &w, &err);
        oom_off();
        if (!s)
            break;
        assert_int_equal(s, BERTH_ENOMEM);
        assert_null(w);
    }
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_declared_index_has_all_but_bytes),
        cmocka_unit_test(what_cannot_be_declared),
        cmocka_unit_test(what_is_no_file),
        cmocka_unit_test(content_decides_not_the_name),
        cmocka_unit_test(pickles_are_known_by_their_bytes),
        cmocka_unit_test(other_content_is_described),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(file_shrinks_under_an_open_index),
        cmocka_unit_test(file_grows_or_changes_under_an_open_index),
        cmocka_unit_test(replaced_file_stays_readable),
        cmocka_unit_test(header_changes_while_it_is_read),
        cmocka_unit_test(string_changes_between_walk_and_decoding),
        cmocka_unit_test(file_is_written_while_it_is_opened),
        cmocka_unit_test(open_survives_oom),
        cmocka_unit_test(two_indexes_of_one_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
