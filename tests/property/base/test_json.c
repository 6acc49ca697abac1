/* Random trees survive writing and reading; random numbers keep every bit. */
#include "support/rng.h"
#include "support/test.h"

#include "base/json.h"
#include "base/jstok.h"

#include <inttypes.h>
#include <math.h>

static double random_double(struct rng *r)
{
    double v;
    do {
        uint64_t bits = rng_u64(r);
        if (rng_below(r, 4) == 0)
            bits &= UINT64_C(0x800fffffffffffff); /* subnormal */
        memcpy(&v, &bits, sizeof v);
        if (rng_below(r, 3) == 0)
            v = (double)(int64_t)(rng_u64(r) >> rng_below(r, 64)) / 1000;
    } while (!isfinite(v));
    return v;
}

/* A character outside ASCII, of 2 to 4 bytes. */
static size_t random_char(struct rng *r, char *buf)
{
    static const char *const some[] = {
        "\xc2\x80",     "\xc3\xa9",         "\xdf\xbf",         "\xe0\xa0\x80",    "\xe2\x82\xac",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf0\x9f\x8c\x8d", "\xf4\x8f\xbf\xbf"
    };
    const char *c = some[rng_below(r, ARRAY_LEN(some))];
    memcpy(buf, c, strlen(c));
    return strlen(c);
}

static size_t random_text(struct rng *r, char *buf) /* up to 60 bytes, no NUL */
{
    size_t n = 0, count = rng_below(r, 15);
    for (size_t i = 0; i < count; i++)
        switch (rng_below(r, 6)) {
        case 0:
            buf[n++] = (char)(1 + rng_below(r, 0x1f));
            break;
        case 1:
            buf[n++] = "\"\\/\x7f"[rng_below(r, 4)];
            break;
        case 2:
            n += random_char(r, buf + n);
            break;
        default:
            buf[n++] = (char)('a' + rng_below(r, 26));
            break;
        }
    return n;
}

static json_t *random_tree(struct rng *r, unsigned depth);

static json_t *random_object(struct rng *r, unsigned depth)
{
    json_t *o = json_object();
    for (size_t n = rng_below(r, 6); n--;) {
        char key[64];
        key[random_text(r, key)] = '\0';
        assert_int_equal(json_object_set_new_nocheck(o, key, random_tree(r, depth - 1)), 0);
    }
    return o;
}

static json_t *random_tree(struct rng *r, unsigned depth)
{
    char buf[64];
    switch (rng_below(r, depth ? 10 : 7)) {
    case 0:
        return json_null();
    case 1:
        return json_boolean(rng_below(r, 2));
    case 2:
        return json_integer((json_int_t)(rng_u64(r) >> rng_below(r, 64)));
    case 3:
        return js_u64(rng_u64(r));
    case 4:
        return json_real(random_double(r));
    case 5:
    case 6: {
        size_t n = random_text(r, buf);
        return json_stringn_nocheck(buf, n);
    }
    case 7: {
        json_t *a = json_array();
        for (size_t n = rng_below(r, 6); n--;)
            json_array_append_new(a, random_tree(r, depth - 1));
        return a;
    }
    default:
        return random_object(r, depth);
    }
}

/* Equal, kinds and order included: json_equal() would take 1 for 1.0 and ignores key order. */
static bool same(json_t *a, json_t *b)
{
    if (js_kind(a) != js_kind(b))
        return false;
    if (json_is_real(a)) {
        double x = json_real_value(a), y = json_real_value(b);
        return memcmp(&x, &y, sizeof x) == 0;
    }
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b))
            return false;
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!same(json_array_get(a, i), json_array_get(b, i)))
                return false;
        return true;
    }
    if (!json_is_object(a))
        return json_equal(a, b);
    void *x = json_object_iter(a), *y = json_object_iter(b);
    for (; x && y; x = json_object_iter_next(a, x), y = json_object_iter_next(b, y))
        if (strcmp(json_object_iter_key(x), json_object_iter_key(y)) != 0 ||
            !same(json_object_iter_value(x), json_object_iter_value(y)))
            return false;
    return !x && !y;
}

static struct rng start(void)
{
    uint64_t seed = rng_seed();
    print_message("BERTH_SEED=%" PRIu64 "\n", seed);
    return (struct rng) { seed };
}

static void trees_round_trip(void **state)
{
    (void)state;
    struct rng r = start();
    for (int i = 0; i < 3000; i++) {
        json_t *v = random_tree(&r, 5), *back = NULL;
        struct str text = { 0 }, again = { 0 };
        berth_err err = { 0 };
        int indent = (int)rng_below(&r, 4);
        js_write(v, indent, &text);
        assert_false(text.bad);
        assert_ok(js_parse(text.p, text.n, NULL, &back, &err), err);
        if (!same(v, back))
            fail_msg("%s", text.p);
        js_write(back, indent, &again);
        assert_string_equal(text.p, again.p);
        str_release(&again);
        str_release(&text);
        json_decref(back);
        json_decref(v);
    }
}

static void integers_are_exact(void **state)
{
    (void)state;
    struct rng r = start();
    for (int i = 0; i < 20000; i++) {
        char text[32], want[32];
        uint64_t u = rng_u64(&r) >> rng_below(&r, 64);
        bool negative = rng_below(&r, 2) && u <= UINT64_C(1) << 63;
        snprintf(text, sizeof text, "%s%" PRIu64, negative && u ? "-" : "", u);
        memcpy(want, text, sizeof want);
        json_t *v = NULL;
        berth_err err = { 0 };
        assert_ok(js_parse(text, strlen(text), NULL, &v, &err), err);
        struct str out = { 0 };
        js_write(v, 0, &out);
        assert_string_equal(out.p, want);
        str_release(&out);
        json_decref(v);
    }
}

/* strtod() of the C locale is the reference: glibc rounds correctly. */
static void assert_like_strtod(const char *text)
{
    struct jstok t;
    double got = 0, want = strtod(text, NULL);
    jstok_init(&t, text, strlen(text), 1);
    enum jstok_type type = jstok_next(&t);
    assert_true(type == JSTOK_INT || type == JSTOK_REAL);
    bool ok = jstok_f64(&t, &got);
    if (ok != (isfinite(want) != 0) || (ok && memcmp(&got, &want, sizeof got) != 0))
        fail_msg("%s: %.17g, wanted %.17g", text, got, want);
}

static void doubles_are_exact(void **state)
{
    (void)state;
    struct rng r = start();
    for (int i = 0; i < 100000; i++) {
        char text[256];
        switch (rng_below(&r, 4)) {
        case 0:
            snprintf(text, sizeof text, "%.*e", (int)rng_below(&r, 25), random_double(&r));
            break;
        case 1: /* digits anywhere, small exponents: the fast path and its edges */
            snprintf(text, sizeof text, "%" PRIu64 ".%" PRIu64 "e%d",
                     rng_u64(&r) >> rng_below(&r, 64), rng_u64(&r) >> rng_below(&r, 64),
                     (int)rng_below(&r, 60) - 30);
            break;
        case 2: { /* halfway between two neighbours, and a little beside it */
            double a = random_double(&r);
            if (a == 0)
                a = 1;
            snprintf(text, sizeof text, "%.*e", 15 + (int)rng_below(&r, 5), nextafter(a, 0));
            break;
        }
        default:
            snprintf(text, sizeof text, "0.%0*" PRIu64 "e%d", (int)rng_below(&r, 100) + 1,
                     rng_u64(&r), (int)rng_below(&r, 700) - 350);
            break;
        }
        assert_like_strtod(text);
    }
}

/* Exact ties have up to 767 digits; print them in full and disturb the last one. */
static void ties_are_exact(void **state)
{
    (void)state;
    struct rng r = start();
    for (int i = 0; i < 2000; i++) {
        char text[1400];
        double a = fabs(random_double(&r)), b = nextafter(a, INFINITY);
        if (!isfinite(b))
            continue;
        long double mid = ((long double)a + (long double)b) / 2; /* exact in 64 bits of mantissa */
        int n = snprintf(text, sizeof text, "%.1100Lf", mid);
        if (n >= (int)sizeof text || !strchr(text, '.'))
            continue; /* too large to print in full */
        assert_like_strtod(text);
        text[n - 1] = '1';
        assert_like_strtod(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_round_trip),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(doubles_are_exact),
        cmocka_unit_test(ties_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
