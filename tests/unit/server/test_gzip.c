/* gzip: who accepts it, and a round trip through zlib. */
#include "server/gzip.h"
#include "support/oom.h"
#include "support/rng.h"
#include "support/test.h"

#include <zlib.h>

static void accepted(void **state)
{
    static const struct {
        const char *header;
        bool yes;
    } row[] = {
        { NULL, false },          { "", false },
        { "gzip", true },         { "GZIP", true },
        { "x-gzip", true },       { "deflate, gzip;q=1.0, *;q=0.5", true },
        { "gzip;q=0", false },    { "gzip;q=0.000", false },
        { "gzip;q=0.001", true }, { "gzip ; q=0.5", true },
        { "gzip;q=0, *", false }, { "*", true },
        { "*;q=0", false },       { "br, *;q=0.1", true },
        { "identity", false },    { "identity, gzip", true },
        { "gzipped", false },     { "br;q=1.0,gzip;q=0.8", true },
        { "gzip;q=high", false }, { "gzip;q=", false },
        { "gzip;Q=0", false },    { "gzip;x=1;q=0", false },
        { ",,gzip,,", true },     { ";q=1", false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        if (gzip_accepted(row[i].header) != row[i].yes)
            fail_msg("'%s'", row[i].header);
}

static void unpacked(const struct str *packed, const char *want, size_t n)
{
    z_stream z = { 0 };
    char *got = malloc(n + 1);
    assert_non_null(got);
    assert_int_equal(inflateInit2(&z, 31), Z_OK);
    z.next_in = (unsigned char *)packed->p;
    z.avail_in = (unsigned)packed->n;
    z.next_out = (unsigned char *)got;
    z.avail_out = (unsigned)n + 1;
    assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(z.total_out, n);
    assert_int_equal(z.avail_in, 0);
    assert_memory_equal(got, want, n);
    inflateEnd(&z);
    free(got);
}

static void round_trip(void **state)
{
    static const size_t size[] = { 0, 1, 100, 32767, 32768, 32769, 1000000 };
    struct rng rng = { 7 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(size); i++)
        for (int noise = 0; noise < 2; noise++) {
            char *p = malloc(size[i] + 1);
            struct str out = { 0 };
            berth_err err = { 0 };
            assert_non_null(p);
            for (size_t k = 0; k < size[i]; k++)
                p[k] = noise ? (char)rng_u64(&rng) : "{\"name\": 1}"[k % 11];
            assert_ok(gzip_pack(p, size[i], &out, &err), err);
            if (!noise && size[i] > 1000)
                assert_true(out.n < size[i] / 10);
            unpacked(&out, p, size[i]);
            str_release(&out);
            free(p);
        }
}

static void survives_oom(void **state)
{
    berth_status s = BERTH_ENOMEM;
    (void)state;
    for (long k = 0; s != BERTH_OK; k++) {
        struct str out = { 0 };
        berth_err err = { 0 };
        oom_after(k);
        s = gzip_pack("text", 4, &out, &err);
        oom_off();
        assert_true(s == BERTH_OK || s == BERTH_ENOMEM);
        str_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
