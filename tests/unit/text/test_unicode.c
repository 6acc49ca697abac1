/* Every code point against what Hugging Face's tokenizers and Python's unicodedata say, by digest;
 * and what digests of single points cannot show. */
#include "support/test.h"

#include "text/unicode.h"

static uint64_t fnv(uint64_t h, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        h = (h ^ (v >> (8 * i) & 0xff)) * 0x100000001b3u;
    return h;
}

static uint64_t fnv_all(uint64_t h, const struct vec *v)
{
    for (size_t i = 0; i < v->n; i++)
        h = fnv(h, *(uint32_t *)vec_at(v, i));
    return h;
}

#define FNV 0xcbf29ce484222325u
#define EACH(c)                                                                                    \
    for (uint32_t c = 0; c <= 0x10ffff; c++)                                                       \
        if (c < 0xd800 || c > 0xdfff)

static void put(struct vec *v, const uint32_t *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *(uint32_t *)vec_add(v) = c[i];
}

/* The numbers are what `tools/unicode_tables.py --digest` says; the tables and they change
 * together. */
static void every_point(void **state)
{
    (void)state;
    uint64_t classes = FNV, lower = FNV, nfc = FNV, mix = FNV, joins = FNV;
    struct vec v = { .elem = sizeof(uint32_t) };
    EACH(c)
    {
        classes = fnv(classes, (uint32_t)uc_class(c));
        joins = fnv(joins, uc_joins(c));
        v.n = 0;
        assert_true(uc_lower(&c, 1, &v));
        lower = fnv_all(lower, &v);
        v.n = 0;
        put(&v, &c, 1);
        assert_true(uc_nfc(&v));
        nfc = fnv_all(nfc, &v);
        v.n = 0;
        put(&v, (uint32_t[]) { 'a', 0x315, c, 0x316, 0x301, 'e', c, 0x323 }, 8);
        assert_true(uc_nfc(&v));
        mix = fnv_all(mix, &v);
    }
    vec_release(&v);
    assert_int_equal(classes, 0x92c851f9bd684897u);
    assert_int_equal(lower, 0xbb33d729258b6448u);
    assert_int_equal(nfc, 0x5c8652749b5aaa10u);
    assert_int_equal(mix, 0x3c3975632ef0eb12u);
    assert_int_equal(joins, 0xd7f9491962c425b5u);
}

static void lower_is(const char *from, const char *to)
{
    struct vec a = { .elem = sizeof(uint32_t) }, b = a, want = a;
    assert_true(uc_decode(from, strlen(from), &a) && uc_lower(a.p, a.n, &b) &&
                uc_decode(to, strlen(to), &want));
    assert_int_equal(b.n, want.n);
    assert_memory_equal(b.p, want.p, b.n * sizeof(uint32_t));
    vec_release(&a), vec_release(&b), vec_release(&want);
}

static void lower_case(void **state)
{
    (void)state;
    lower_is("ΟΔΟΣ ΣΑΣ", "οδοσ σασ"); /* each point by itself: no sigma is final */
    lower_is("İSTANBUL", "i̇stanbul");
    lower_is("ǅ ẞ Ⅷ", "ǆ ß ⅷ");
}

static void nfc_is(const uint32_t *from, size_t n, const uint32_t *to, size_t m)
{
    struct vec v = { .elem = sizeof(uint32_t) };
    put(&v, from, n);
    assert_true(uc_nfc(&v));
    assert_int_equal(v.n, m);
    assert_memory_equal(v.p, to, m * sizeof *to);
    vec_release(&v);
}
#define P(...) ((uint32_t[]) { __VA_ARGS__ }), sizeof((uint32_t[]) { __VA_ARGS__ }) / 4

static void compositions(void **state)
{
    (void)state;
    nfc_is(P('e', 0x301), P(0xe9));
    nfc_is(P('a', 0x323, 0x302), P(0x1ead));
    nfc_is(P('a', 0x302, 0x323), P(0x1ead)); /* reordered first */
    nfc_is(P('a', 0x301, 0x301),
           P(0xe1, 0x301)); /* the second is blocked by nothing, and has no pair */
    nfc_is(P('a', 0x5ae, 0x301), P(0xe1, 0x5ae)); /* a lower class between them does not block */
    nfc_is(P(0x1100, 0x1161, 0x11a8), P(0xac01)); /* Hangul */
    nfc_is(P(0xac00, 0x11a7), P(0xac00, 0x11a7)); /* T_BASE itself is no trailing consonant */
    nfc_is(P(0x212b), P(0xc5));                   /* singleton */
    nfc_is(P(0x958), P(0x915, 0x93c));            /* composition exclusion */
    nfc_is(P(0x301, 'e', 0x301), P(0x301, 0xe9)); /* a mark in front */
    nfc_is(P(0x9c7, 0x9be), P(0x9cb));            /* two starters */
    nfc_is(P(0x9c7, 0x301, 0x9be), P(0x9c7, 0x301, 0x9be)); /* parted by a mark: not */
}

/* As many marks as fit are sorted by counting, not by the square. */
static void many_marks(void **state)
{
    (void)state;
    struct vec v = { .elem = sizeof(uint32_t) };
    put(&v, P('q'));
    for (size_t i = 0; i < 300000; i++)
        put(&v, P(i % 2 ? 0x316 : 0x315));
    assert_true(uc_nfc(&v));
    assert_int_equal(v.n, 300001);
    for (size_t i = 1; i < v.n; i++)
        assert_int_equal(*(uint32_t *)vec_at(&v, i), i <= 150000 ? 0x316 : 0x315);
    vec_release(&v);
}

static void spaces_and_digits(void **state)
{
    (void)state;
    size_t spaces = 0, digits = 0;
    EACH(c)
    {
        spaces += uc_isspace(c);
        digits += uc_decimal(c) >= 0;
    }
    assert_int_equal(spaces, 29); /* str.isspace() */
    assert_int_equal(digits, 660);
    assert_int_equal(uc_decimal('7'), 7);
    assert_int_equal(uc_decimal(0x663), 3);
    assert_int_equal(uc_decimal(0xb2), -1); /* superscript two is no decimal digit */
    assert_true(uc_isspace(0x85) && uc_isspace(0x3000) && !uc_isspace(0x200b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_point),       cmocka_unit_test(lower_case),
        cmocka_unit_test(compositions),      cmocka_unit_test(many_marks),
        cmocka_unit_test(spaces_and_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
