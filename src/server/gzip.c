/* gzip: see gzip.h. */
#include "server/gzip.h"

#include <limits.h>
#include <strings.h>
#include <zlib.h>

#define LEVEL 5        /* beyond it time grows faster than JSON shrinks */
#define GZIP_WINDOW 31 /* 15 bits, and 16 for the gzip wrapping */
#define CHUNK 32768

/* member: "gzip;q=0.5" without spaces. Is q above 0? 1 if missing, 0 if it is not a number. */
static bool wanted(const char *member)
{
    const char *q = strcasestr(member, ";q=");
    size_t n = q ? strcspn(q += 3, ";") : 0;
    if (!q)
        return true;
    if (!n || !strspn(q, "01") || (n > 1 && (q[1] != '.' || strspn(q + 2, "0123456789") != n - 2)))
        return false;
    return strcspn(q, "123456789") < n;
}

bool gzip_accepted(const char *accept_encoding)
{
    int gzip = -1, any = -1; /* -1: not mentioned */
    for (const char *s = accept_encoding ? accept_encoding : ""; *s;) {
        char member[64] = ""; /* a longer one is nothing that we know */
        size_t n = strcspn(s, ","), k = 0;
        for (size_t i = 0; i < n && k + 1 < sizeof member; i++)
            if (s[i] != ' ' && s[i] != '\t')
                member[k++] = s[i];
        size_t name = strcspn(member, ";");
        if ((name == 4 && !strncasecmp(member, "gzip", 4)) ||
            (name == 6 && !strncasecmp(member, "x-gzip", 6)))
            gzip = gzip == 1 ? 1 : wanted(member);
        else if (name == 1 && member[0] == '*')
            any = wanted(member);
        s += n + (s[n] == ',');
    }
    return gzip >= 0 ? gzip : any == 1;
}

berth_status gzip_pack(const char *p, size_t n, struct str *out, berth_err *err)
{
    z_stream z = { 0 };
    unsigned char buf[CHUNK];
    if (deflateInit2(&z, LEVEL, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return err_set(err, BERTH_ENOMEM, "packing %zu bytes", n);
    int r = Z_OK;
    z.next_in = (z_const unsigned char *)(uintptr_t)p;
    while (r != Z_STREAM_END && !out->bad) {
        if (!z.avail_in && n) {
            z.avail_in = n > UINT_MAX / 2 ? UINT_MAX / 2 : (unsigned)n;
            n -= z.avail_in;
        }
        z.next_out = buf;
        z.avail_out = sizeof buf;
        r = deflate(&z, n ? Z_NO_FLUSH : Z_FINISH);
        if (r == Z_STREAM_ERROR)
            BUG("deflate: %s", z.msg ? z.msg : "stream error");
        str_add(out, (const char *)buf, sizeof buf - z.avail_out);
    }
    deflateEnd(&z);
    return out->bad ? err_set(err, BERTH_ENOMEM, "packing for a client") : BERTH_OK;
}
