/* str_parse_bytes() against schoolbook arithmetic on decimal digits. */
#include "support/rng.h"
#include "support/test.h"

#include "base/str.h"

#include <inttypes.h>
#include <stdbool.h>

enum { DIGITS = 160 };

/* A decimal number: whole digits from the left, then fraction digits. */
struct big {
    unsigned char d[DIGITS]; /* least significant first */
    size_t frac;             /* how many of them lie behind the point */
};

static void big_double(struct big *b)
{
    unsigned carry = 0;
    for (size_t i = 0; i < DIGITS; i++) {
        unsigned v = b->d[i] * 2u + carry;
        b->d[i] = (unsigned char)(v % 10);
        carry = v / 10;
    }
    assert_int_equal(carry, 0);
}

/* The whole part, false when it does not fit. */
static bool big_floor(const struct big *b, uint64_t *out)
{
    unsigned __int128 v = 0;
    for (size_t i = DIGITS; i-- > b->frac;) {
        v = v * 10 + b->d[i];
        if (v > UINT64_MAX)
            return false;
    }
    *out = (uint64_t)v;
    return true;
}

static bool naive(const char *digits, size_t whole, size_t frac, unsigned doublings, uint64_t *out)
{
    struct big b = { .frac = frac };
    size_t n = whole + frac;
    for (size_t i = 0; i < n; i++)
        b.d[n - 1 - i] = (unsigned char)(digits[i] - '0');
    while (doublings--)
        big_double(&b);
    return big_floor(&b, out);
}

static void one_round(struct rng *r)
{
    static const char *const unit[4][6] = { { "", "b", "B", " b", "", "" },
                                            { "k", "K", "kb", "KiB", " kib", " K" },
                                            { "m", "M", "mB", "MIB", " MiB", "mib" },
                                            { "g", "G", "gb", "GiB", " gib", "Gb" } };
    char digits[64], text[96];
    size_t whole = 1 + rng_below(r, rng_below(r, 3) ? 12 : 24);
    size_t frac = rng_below(r, 2) ? rng_below(r, 36) : 0;
    size_t u = rng_below(r, 4);
    for (size_t i = 0; i < whole + frac; i++) /* nines and zeros more often: they round */
        digits[i] = "0123456789999000"[rng_below(r, 16)];
    int n = snprintf(text, sizeof text, "%.*s%s%.*s%s", (int)whole, digits, frac ? "." : "",
                     (int)frac, digits + whole, unit[u][rng_below(r, 6)]);
    uint64_t want = 0, got = 0;
    bool fits = naive(digits, whole, frac, 10 * (unsigned)u, &want);
    bool ok = str_parse_bytes(text, (size_t)n, &got);
    if (ok != fits || (ok && got != want))
        fail_msg("'%s': %d %" PRIu64 ", wanted %d %" PRIu64, text, ok, got, fits, want);
    if (rng_below(r, 4) == 0) { /* any other byte anywhere makes it malformed */
        text[rng_below(r, (size_t)n)] = "-+eEx,_:/\t\n"[rng_below(r, 11)];
        if (str_parse_bytes(text, (size_t)n, &got))
            fail_msg("'%s' was taken", text);
    }
}

static void exact(void **state)
{
    (void)state;
    uint64_t seed = rng_seed();
    print_message("BERTH_SEED=%" PRIu64 "\n", seed);
    struct rng r = { seed };
    for (int i = 0; i < 30000; i++)
        one_round(&r);
}

/* What str_bytes() prints is within half a unit of its last digit. */
static void printing_and_parsing_agree(void **state)
{
    (void)state;
    uint64_t seed = rng_seed();
    print_message("BERTH_SEED=%" PRIu64 "\n", seed);
    struct rng r = { seed };
    for (int i = 0; i < 100000; i++) {
        uint64_t n = rng_u64(&r) >> (25 + rng_below(&r, 39)), back; /* < 512 GiB */
        char buf[STR_BYTES_MAX];
        str_bytes(n, buf);
        if (!str_parse_bytes(buf, strlen(buf), &back))
            fail_msg("%" PRIu64 ": '%s'", n, buf);
        uint64_t off = back > n ? back - n : n - back;
        if (off > n / 200 + 1)
            fail_msg("%" PRIu64 " as '%s'", n, buf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact),
        cmocka_unit_test(printing_and_parsing_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
