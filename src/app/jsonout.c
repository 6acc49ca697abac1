#include "app/jsonout.h"

#include "base/err.h"
#include "base/json.h"

#include <inttypes.h>
#include <math.h>

static void put_string(struct jsonout *j, const char *s, size_t n)
{
    str_clear(&j->text);
    js_write_string(s, n, &j->text);
    j->nomem |= j->text.bad;
    if (j->text.bad)
        fputs("\"\"", j->out);
    else
        fwrite(j->text.p, 1, j->text.n, j->out);
}

static void newline(struct jsonout *j)
{
    if (j->flat && j->depth >= j->flat)
        return;
    fputc('\n', j->out);
    for (int i = 0; i < j->depth; i++)
        fputs("  ", j->out);
}

/* What stands in front of every value: comma, line break, key. */
static void before(struct jsonout *j, const char *key)
{
    if (j->depth) {
        bool flat = j->flat && j->depth >= j->flat;
        if (j->some[j->depth])
            fputs(flat ? ", " : ",", j->out);
        newline(j);
        j->some[j->depth] = true;
    }
    if (key) {
        put_string(j, key, strlen(key));
        fputs(": ", j->out);
    }
}

void jsonout_open(struct jsonout *j, const char *key, char bracket)
{
    before(j, key);
    if (++j->depth == JSONOUT_DEPTH)
        BUG("JSON deeper than %d", JSONOUT_DEPTH);
    j->some[j->depth] = false;
    fputc(bracket, j->out);
}

void jsonout_open_flat(struct jsonout *j, const char *key, char bracket)
{
    jsonout_open(j, key, bracket);
    if (!j->flat)
        j->flat = j->depth;
}

void jsonout_close(struct jsonout *j, char bracket)
{
    bool some = j->some[j->depth], flat = j->flat && j->depth >= j->flat;
    if (j->flat == j->depth)
        j->flat = 0;
    j->depth--;
    if (some && !flat)
        newline(j);
    fputc(bracket, j->out);
}

void jsonout_text(struct jsonout *j, const char *key, const char *s, size_t n)
{
    before(j, key);
    put_string(j, s, n);
}

void jsonout_str(struct jsonout *j, const char *key, const char *z)
{
    before(j, key);
    if (z)
        put_string(j, z, strlen(z));
    else
        fputs("null", j->out);
}

void jsonout_u64(struct jsonout *j, const char *key, uint64_t v)
{
    before(j, key);
    fprintf(j->out, "%" PRIu64, v);
}

void jsonout_i64(struct jsonout *j, const char *key, int64_t v)
{
    before(j, key);
    fprintf(j->out, "%" PRId64, v);
}

void jsonout_f64(struct jsonout *j, const char *key, double v)
{
    if (!isfinite(v)) {
        jsonout_str(j, key, isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity");
        return;
    }
    before(j, key);
    json_t *value = json_real(v);
    str_clear(&j->text);
    if (value)
        js_write(value, 0, &j->text);
    j->nomem |= !value || j->text.bad;
    fputs(j->nomem ? "null" : str_c(&j->text), j->out);
    json_decref(value);
}

void jsonout_bool(struct jsonout *j, const char *key, bool v)
{
    before(j, key);
    fputs(v ? "true" : "false", j->out);
}

bool jsonout_end(struct jsonout *j)
{
    fputc('\n', j->out);
    str_release(&j->text);
    return !j->nomem;
}
