/* Annotations, escapes, MIME types. */
#include "paths/paths.h"
#include "support/test.h"

static void annotations(void **state)
{
    static const struct {
        const char *text, *name, *kind;
    } row[] = {
        { "x.png [input]", "x.png", "input" },
        { "sub/x.png [output]", "sub/x.png", "output" },
        { "x.png [temp]", "x.png", "temp" },
        { "x.png[temp]", "x.png", "temp" },
        { "x.png  [temp]", "x.png ", "temp" },
        { "x.png", "x.png", NULL },
        { "x [other]", "x [other]", NULL },
        { "x [input].png", "x [input].png", NULL },
        { "x input]", "x input]", NULL },
        { "[input]", "", "input" },
        { "", "", NULL },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct annotated a = path_annotated(row[i].text, strlen(row[i].text));
        assert_int_equal(a.n, strlen(row[i].name));
        assert_memory_equal(a.name, row[i].name, a.n);
        if (row[i].kind)
            assert_string_equal(a.kind, row[i].kind);
        else
            assert_null(a.kind);
    }
}

static void escapes(void **state)
{
    struct str out = { 0 };
    (void)state;
    assert_true(path_unescape("a%20b%2Fc%C3%a9+d", 17, false, &out));
    assert_string_equal(str_c(&out), "a b/c\xc3\xa9+d");
    str_clear(&out);
    assert_true(path_unescape("a+b", 3, true, &out));
    assert_string_equal(str_c(&out), "a b");
    static const char *const bad[] = { "%", "%2", "a%zz", "%00", "x%0", "%%20" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        str_clear(&out);
        assert_false(path_unescape(bad[i], strlen(bad[i]), false, &out));
    }
    str_clear(&out);
    assert_true(path_unescape("%252e", 5, false, &out)); /* once */
    assert_string_equal(str_c(&out), "%2e");
    str_clear(&out);
    path_escape("A-z_0.~ /\xc3\xa9%", 11, &out);
    assert_string_equal(str_c(&out), "A-z_0.~%20%2F%C3%A9");
    str_release(&out);
}

static void mime_types(void **state)
{
    static const char *const row[][2] = {
        { "a.png", "image/png" },
        { "a.b.JPG", "image/jpeg" },
        { "x/y.webp", "image/webp" },
        { "v.mp4", "video/mp4" },
        { "a.safetensors", "application/octet-stream" },
        { "png", "application/octet-stream" },
        { ".png", "application/octet-stream" },
        { "a.png/b", "application/octet-stream" },
        { "i.html", "text/html" },
        { "m.js", "text/javascript" },
        { "", "application/octet-stream" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        assert_string_equal(path_mime(row[i][0]), row[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(annotations),
        cmocka_unit_test(escapes),
        cmocka_unit_test(mime_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
