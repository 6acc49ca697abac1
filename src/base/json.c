#include "base/json.h"

#include "base/jstok.h"

#include <float.h>
#include <inttypes.h>

const struct js_limits js_limits_default = {
    .max_bytes = 64u << 20,
    .max_depth = 64,
    .max_values = 4000000,
};

const struct js_limits js_limits_loose = {
    .max_bytes = 64u << 20,
    .max_depth = 64,
    .max_values = 4000000,
    .loose = true,
};

/* ---- reading ---- */

struct reader {
    struct jstok tok;
    json_t *open[JSTOK_DEPTH_MAX]; /* borrowed: every container hangs in its parent already */
    unsigned depth;
    struct str key;  /* of the value that comes next, decoded; in objects */
    struct str text; /* scratch for strings with escapes */
    size_t values;
};

static berth_status no_memory(const struct reader *r, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "reading JSON at byte %zu of %zu", r->tok.tok, r->tok.len);
}

/* The current STRING or KEY, decoded into `to`. */
static berth_status decode(struct reader *r, struct str *to, berth_err *err)
{
    size_t n;
    bool nul;
    str_clear(to);
    str_pad(to, '\0', r->tok.n); /* decoding never needs more */
    str_add(to, "", 0);          /* so that even an empty string has memory */
    if (to->bad)
        return no_memory(r, err);
    if (!jstok_decode(&r->tok, to->p, &n, &nul))
        return jstok_fail(&r->tok, "lone surrogate in a string", err);
    if (nul)
        return jstok_fail(&r->tok, "U+0000 in a string", err);
    to->n = n;
    to->p[n] = '\0';
    return BERTH_OK;
}

static berth_status real(struct reader *r, json_t **out, berth_err *err)
{
    double f;
    if (!jstok_f64(&r->tok, &f)) {
        if (!r->tok.loose)
            return jstok_fail(&r->tok, "number too large for a double", err);
        f = r->tok.s[0] == '-' ? -DBL_MAX : DBL_MAX;
    }
    *out = json_real(f);
    return *out ? BERTH_OK : no_memory(r, err);
}

static berth_status integer(struct reader *r, json_t **out, berth_err *err)
{
    int64_t i;
    uint64_t u;
    if (jstok_i64(&r->tok, &i))
        *out = json_integer(i);
    else if (jstok_u64(&r->tok, &u))
        *out = js_u64(u);
    else if (r->tok.loose)
        return real(r, out, err);
    else
        return jstok_fail(&r->tok, "integer out of range (-2^63 to 2^64-1)", err);
    return *out ? BERTH_OK : no_memory(r, err);
}

static berth_status string(struct reader *r, json_t **out, berth_err *err)
{
    if (!r->tok.has_escape) {
        *out = json_stringn_nocheck(r->tok.s, r->tok.n);
    } else {
        berth_status s = decode(r, &r->text, err);
        if (s)
            return s;
        *out = json_stringn_nocheck(r->text.p, r->text.n);
    }
    return *out ? BERTH_OK : no_memory(r, err);
}

/* The value that starts with the token just read. */
static berth_status make(struct reader *r, enum jstok_type type, json_t **out, berth_err *err)
{
    switch (type) {
    case JSTOK_INT:
        return integer(r, out, err);
    case JSTOK_STRING:
        return string(r, out, err);
    case JSTOK_REAL:
        return real(r, out, err);
    case JSTOK_ARRAY:
        *out = json_array();
        break;
    case JSTOK_OBJECT:
        *out = json_object();
        break;
    case JSTOK_TRUE:
    case JSTOK_FALSE:
        *out = json_boolean(type == JSTOK_TRUE);
        break;
    default:
        *out = json_null();
        break;
    }
    return *out ? BERTH_OK : no_memory(r, err);
}

/* Hangs v (taken) where it belongs. */
static berth_status attach(struct reader *r, json_t *v, json_t **root, berth_err *err)
{
    if (r->depth == 0) {
        *root = v;
        return BERTH_OK;
    }
    json_t *in = r->open[r->depth - 1];
    int bad = json_is_object(in) ? json_object_set_new_nocheck(in, r->key.p, v)
                                 : json_array_append_new(in, v);
    return bad ? no_memory(r, err) : BERTH_OK;
}

static berth_status take_key(struct reader *r, berth_err *err)
{
    berth_status s = decode(r, &r->key, err);
    if (s)
        return s;
    if (!json_object_get(r->open[r->depth - 1], r->key.p))
        return BERTH_OK;
    jstok_fail(&r->tok, "duplicate key", err);
    return err_add(err, "key '%.64s' appears twice", r->key.p);
}

static berth_status build(struct reader *r, const struct js_limits *lim, json_t **root,
                          berth_err *err)
{
    for (;;) {
        enum jstok_type type = jstok_next(&r->tok);
        berth_status s = BERTH_OK;
        json_t *v = NULL;
        switch (type) {
        case JSTOK_END:
            return BERTH_OK;
        case JSTOK_ERROR:
            s = jstok_fail(&r->tok, NULL, err);
            if (r->tok.too_deep)
                s = err->code = BERTH_ELIMIT;
            return s;
        case JSTOK_ARRAY_END:
        case JSTOK_OBJECT_END:
            r->depth--;
            break;
        case JSTOK_KEY:
            s = take_key(r, err);
            break;
        default:
            if (++r->values > lim->max_values)
                return err_set(err, BERTH_ELIMIT, "more than %zu JSON values", lim->max_values);
            s = make(r, type, &v, err);
            if (s == BERTH_OK)
                s = attach(r, v, root, err);
            if (s == BERTH_OK && (type == JSTOK_ARRAY || type == JSTOK_OBJECT))
                r->open[r->depth++] = v;
            break;
        }
        if (s)
            return s;
    }
}

berth_status js_parse(const char *text, size_t n, const struct js_limits *lim, json_t **out,
                      berth_err *err)
{
    *out = NULL;
    if (!lim)
        lim = &js_limits_default;
    if (n > lim->max_bytes)
        return err_set(err, BERTH_ELIMIT, "%zu bytes of JSON, at most %zu are read", n,
                       lim->max_bytes);
    struct reader r;
    jstok_init(&r.tok, text, n, lim->max_depth);
    r.tok.loose = lim->loose;
    r.depth = 0;
    r.values = 0;
    r.key = r.text = (struct str) { 0 };
    json_t *root = NULL;
    berth_status s = build(&r, lim, &root, err);
    if (s)
        json_decref(root);
    else
        *out = root;
    str_release(&r.key);
    str_release(&r.text);
    return s;
}

/* ---- kinds of number ---- */

/* Above INT64_MAX: a NUL and the decimal digits. */
static bool is_tagged(const json_t *v)
{
    return json_is_string(v) && json_string_length(v) > 1 && json_string_value(v)[0] == '\0';
}

enum js_kind js_kind(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return JS_OBJECT;
    case JSON_ARRAY:
        return JS_ARRAY;
    case JSON_STRING:
        return is_tagged(v) ? JS_U64 : JS_STRING;
    case JSON_INTEGER:
        return JS_I64;
    case JSON_REAL:
        return JS_F64;
    case JSON_TRUE:
    case JSON_FALSE:
        return JS_BOOL;
    case JSON_NULL:
        break;
    }
    return JS_NULL;
}

json_t *js_u64(uint64_t v)
{
    if (v <= INT64_MAX)
        return json_integer((json_int_t)v);
    char buf[24] = { 0 };
    int n = snprintf(buf + 1, sizeof buf - 1, "%" PRIu64, v);
    return json_stringn_nocheck(buf, (size_t)n + 1);
}

bool js_get_i64(const json_t *v, int64_t *out)
{
    if (!json_is_integer(v))
        return false;
    *out = json_integer_value(v);
    return true;
}

bool js_get_u64(const json_t *v, uint64_t *out)
{
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *out = (uint64_t)json_integer_value(v);
        return true;
    }
    return is_tagged(v) && str_parse_u64(json_string_value(v) + 1, json_string_length(v) - 1, out);
}

bool js_get_f64(const json_t *v, double *out)
{
    uint64_t u;
    if (json_is_number(v))
        *out = json_number_value(v);
    else if (js_get_u64(v, &u))
        *out = (double)u;
    else
        return false;
    return true;
}
