/* gzip: see gzip.h. */
#include "server/gzip.h"

#include <limits.h>
#include <strings.h>
#include <zlib.h>

#define LEVEL 5        /* beyond it time grows faster than JSON shrinks */
#define GZIP_WINDOW 31 /* 15 bits, and 16 for the gzip wrapping */
#define CHUNK 32768

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static void trim(const char **s, size_t *n)
{
    while (*n && is_space((*s)[0]))
        (*s)++, (*n)--;
    while (*n && is_space((*s)[*n - 1]))
        (*n)--;
}

static bool word(const char *s, size_t n, const char *z)
{
    return n == strlen(z) && strncasecmp(s, z, n) == 0;
}

/* "0", "0.", "0.000": nothing wanted. What is no number counts as that. */
static bool q_above_0(const char *s, size_t n)
{
    trim(&s, &n);
    if (!n || (s[0] != '0' && s[0] != '1') || (n > 1 && s[1] != '.'))
        return false;
    bool above = s[0] == '1';
    for (size_t i = 2; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        above |= s[i] != '0';
    }
    return above;
}

/* q of "coding;q=0.5": true when above 0 or not given. */
static bool wanted(const char *s, size_t n)
{
    while (n) {
        const char *semi = memchr(s, ';', n);
        size_t len = semi ? (size_t)(semi - s) : n;
        const char *p = s;
        size_t k = len;
        trim(&p, &k);
        if (k >= 2 && (p[0] == 'q' || p[0] == 'Q') && p[1] == '=')
            return q_above_0(p + 2, k - 2);
        s += len + (semi != NULL);
        n -= len + (semi != NULL);
    }
    return true;
}

bool gzip_accepted(const char *accept_encoding)
{
    int gzip = -1, any = -1; /* -1: not mentioned */
    for (const char *s = accept_encoding ? accept_encoding : ""; *s;) {
        size_t n = strcspn(s, ",");
        size_t name = 0;
        while (name < n && s[name] != ';')
            name++;
        const char *p = s;
        size_t k = name;
        trim(&p, &k);
        int yes = name == n || wanted(s + name + 1, n - name - 1);
        if (word(p, k, "gzip") || word(p, k, "x-gzip"))
            gzip = gzip == 1 ? 1 : yes;
        else if (word(p, k, "*"))
            any = yes;
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
