#include "base/sha256.h"
#include "support/test.h"

/* The vectors of FIPS 180-4 and the lengths around a block's end. */
static void knows_the_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } v[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
          "lmno"
          "pqrsmnopqrstnopqrstu",
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    };
    char hex[SHA256_HEX];
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        sha256_hex(v[i].text, strlen(v[i].text), hex);
        assert_string_equal(hex, v[i].hex);
    }
}

static void a_million_letters(void **state)
{
    (void)state;
    char *a = malloc(1000000), hex[SHA256_HEX];
    assert_non_null(a);
    memset(a, 'a', 1000000);
    sha256_hex(a, 1000000, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    sha256_hex(a, 55, hex); /* the last length that fits one block */
    assert_string_equal(hex, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    sha256_hex(a, 64, hex);
    assert_string_equal(hex, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    free(a);
}

static void pieces_are_the_whole(void **state)
{
    (void)state;
    char text[200], whole[SHA256_HEX], hex[SHA256_HEX];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7);
    for (size_t n = 0; n <= sizeof text; n++) {
        sha256_hex(text, n, whole);
        for (size_t cut = 0; cut <= n; cut += 3) {
            struct sha256 s;
            sha256_init(&s);
            sha256_add(&s, text, cut / 2);
            sha256_add(&s, text + cut / 2, cut - cut / 2);
            sha256_add(&s, text + cut, n - cut);
            sha256_end(&s, hex);
            assert_string_equal(hex, whole);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_the_vectors),
        cmocka_unit_test(a_million_letters),
        cmocka_unit_test(pieces_are_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
