/* The walk, skipping and decoding agree with each other on any text. */
#include "base/jstok.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(int ok)
{
    if (!ok)
        abort();
}

static void look_at_string(const struct jstok *t)
{
    char *buf = malloc(t->n ? t->n : 1); /* exactly what jstok_decode() may use */
    size_t n;
    bool nul;
    if (!buf)
        return;
    require(str_is_utf8(t->s, t->n));
    if (jstok_decode(t, buf, &n, &nul)) {
        require(n <= t->n && str_is_utf8(buf, n));
        require(nul == (n && memchr(buf, 0, n) != NULL));
        require(t->has_escape || (n == t->n && memcmp(buf, t->s, n) == 0));
    } else {
        require(t->has_escape);
    }
    free(buf);
}

static void look_at_number(const struct jstok *t, bool integer)
{
    int64_t i;
    uint64_t u;
    double f;
    char text[64];
    bool signed_ok = jstok_i64(t, &i), unsigned_ok = jstok_u64(t, &u), real_ok = jstok_f64(t, &f);
    require(integer || (!signed_ok && !unsigned_ok));
    require(!signed_ok || !unsigned_ok || (i >= 0 && (uint64_t)i == u));
    if (signed_ok)
        require(real_ok && f == (double)i);
    else if (unsigned_ok)
        require(real_ok && f == (double)u);
    if (real_ok && t->n < sizeof text) { /* the fuzzer runs in the C locale */
        memcpy(text, t->s, t->n);
        text[t->n] = '\0';
        double want = strtod(text, NULL);
        require(memcmp(&f, &want, sizeof f) == 0);
    }
}

/* Walks to the end; counts the values directly inside the outermost container. */
static bool walk(const char *s, size_t n, size_t *members)
{
    struct jstok t;
    unsigned depth = 0;
    jstok_init(&t, s, n, 32);
    *members = 0;
    for (enum jstok_type type; (type = jstok_next(&t)) != JSTOK_END;) {
        require(t.s >= s || n == 0);
        require(t.tok <= n);
        if (type == JSTOK_ERROR) {
            berth_err err = { 0 };
            require(jstok_next(&t) == JSTOK_ERROR && !jstok_skip(&t));
            require(jstok_fail(&t, "x", &err) == BERTH_EFORMAT && err.msg[0]);
            require(str_is_utf8(err.msg, strlen(err.msg)));
            return false;
        }
        if (type == JSTOK_ARRAY_END || type == JSTOK_OBJECT_END)
            depth--;
        else if (type != JSTOK_KEY && depth == 1)
            ++*members;
        if (type == JSTOK_ARRAY || type == JSTOK_OBJECT)
            depth++;
        if (type == JSTOK_STRING || type == JSTOK_KEY)
            look_at_string(&t);
        if (type == JSTOK_INT || type == JSTOK_REAL)
            look_at_number(&t, type == JSTOK_INT);
    }
    require(depth == 0);
    return true;
}

/* The same count by skipping members. True: reached the end without error. */
static bool skim(const char *s, size_t n, size_t *members)
{
    struct jstok t;
    jstok_init(&t, s, n, 32);
    *members = 0;
    enum jstok_type type = jstok_next(&t);
    if (type == JSTOK_OBJECT)
        for (; (type = jstok_next(&t)) == JSTOK_KEY && jstok_skip(&t);)
            ++*members;
    return type != JSTOK_ERROR && type != JSTOK_KEY;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *s = (const char *)data;
    size_t members, skimmed;
    struct jstok t;
    bool ok = walk(s, n, &members);
    jstok_init(&t, s, n, 32);
    require((jstok_skip(&t) && jstok_next(&t) == JSTOK_END) ==
            ok); /* skip takes what the walk takes */
    bool object = false;
    for (size_t i = 0; i < n && !object; i++) {
        object = s[i] == '{';
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\n' && s[i] != '\r')
            break;
    }
    if (ok && object)
        require(skim(s, n, &skimmed) && skimmed == members);
    return 0;
}
