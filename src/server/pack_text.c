#include "server/packs.h"

#include <string.h>

/* ---- Python, as far as assignments and strings go ---- */

struct py {
    const char *p, *end;
};

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static void skip_comment(struct py *y)
{
    while (y->p < y->end && *y->p != '\n')
        y->p++;
}

/* At a quote: behind the string; its text is appended to *out (NULL: nobody wants it). False: it
 * cannot be known without running it, or does not end. */
static bool read_string(struct py *y, bool format, struct str *out)
{
    char quote = *y->p;
    bool plain = true;
    size_t k = y->end - y->p >= 3 && y->p[1] == quote && y->p[2] == quote ? 3 : 1;
    for (y->p += k; y->p < y->end; y->p++) {
        char c = *y->p;
        if (c == quote &&
            (k == 1 || (y->end - y->p >= 3 && y->p[1] == quote && y->p[2] == quote))) {
            y->p += k;
            return plain;
        }
        if (c == '\n' && k == 1)
            return false;
        if (c == '\\' && y->p + 1 < y->end) {
            y->p++; /* what follows does not end it; and no path of ours has one */
            plain = false;
        } else if (out) {
            str_addc(out, c);
        }
        plain = plain && !(format && (c == '{' || c == '}')) && c != '\0';
    }
    return false;
}

/* A name, a string with its prefix, or one character. Strings are appended to *out, joined with
 * '/'. False: a string that cannot be known. */
static bool read_token(struct py *y, int *depth, struct str *out)
{
    const char *from = y->p;
    while (y->p < y->end && name_char(*y->p))
        y->p++;
    size_t n = (size_t)(y->p - from);
    bool quote = y->p < y->end && (*y->p == '"' || *y->p == '\'');
    if (quote && n <= 2) {
        bool format = memchr(from, 'f', n) || memchr(from, 'F', n);
        bool bytes = memchr(from, 'b', n) || memchr(from, 'B', n);
        if (out && out->n)
            str_addc(out, '/');
        return read_string(y, format, out) && !bytes;
    }
    if (n)
        return true;
    char c = *y->p++;
    if (c == '#')
        skip_comment(y);
    else if (c == '\\' && y->p < y->end && *y->p == '\n')
        y->p++;
    else if (strchr("([{", c) && c)
        ++*depth;
    else if (strchr(")]}", c) && c && *depth > 0)
        --*depth;
    return true;
}

/* To the end of the logical line; false: a string in it cannot be known. */
static bool read_line(struct py *y, struct str *out)
{
    int depth = 0;
    bool known = true;
    while (y->p < y->end && !(depth == 0 && (*y->p == '\n' || *y->p == ';')))
        known &= read_token(y, &depth, out);
    if (y->p < y->end)
        y->p++;
    return known;
}

static void skip_spaces(struct py *y)
{
    while (y->p < y->end && (*y->p == ' ' || *y->p == '\t' || *y->p == '\r' || *y->p == '\f'))
        y->p++;
}

/* Behind "WEB_DIRECTORY =" or "WEB_DIRECTORY: str =", if that is here. */
static bool assigns(struct py *y)
{
    static const char name[] = "WEB_DIRECTORY";
    struct py at = *y;
    if ((size_t)(at.end - at.p) < sizeof name || memcmp(at.p, name, sizeof name - 1) != 0)
        return false;
    at.p += sizeof name - 1;
    skip_spaces(&at);
    if (at.p < at.end && *at.p == ':')
        while (at.p < at.end && *at.p != '=' && *at.p != '\n')
            at.p++;
    if (at.end - at.p < 2 || at.p[0] != '=' || at.p[1] == '=')
        return false;
    at.p++;
    *y = at;
    return true;
}

bool pack_web_directory(const char *python, size_t n, struct str *out)
{
    struct py y = { python, python + (n > PACK_TEXT_MAX ? PACK_TEXT_MAX : n) };
    struct str value = { 0 };
    bool known = false;
    while (y.p < y.end) {
        skip_spaces(&y);
        if (!assigns(&y)) {
            read_line(&y, NULL);
            continue;
        }
        str_clear(&value);
        known = read_line(&y, &value) && value.n;
    }
    known = known && !value.bad;
    if (known)
        str_add(out, value.p, value.n);
    str_release(&value);
    return known && !out->bad;
}

/* ---- TOML, as far as two strings go ---- */

/* `key = "text"` or 'text' on a line of n bytes. */
static bool toml_string(const char *p, size_t n, const char *key, struct str *out)
{
    size_t k = strlen(key), i = k;
    if (n <= k || memcmp(p, key, k) != 0)
        return false;
    while (i < n && (p[i] == ' ' || p[i] == '\t'))
        i++;
    if (i >= n || p[i++] != '=')
        return false;
    while (i < n && (p[i] == ' ' || p[i] == '\t'))
        i++;
    if (i >= n || (p[i] != '"' && p[i] != '\''))
        return false;
    const char *from = p + i + 1, *end = memchr(from, p[i], n - i - 1);
    if (!end || end == from || memchr(from, '\\', (size_t)(end - from)) ||
        memchr(from, '\0', (size_t)(end - from)))
        return false;
    str_clear(out);
    str_add(out, from, (size_t)(end - from));
    return !out->bad;
}

bool pack_project(const char *toml, size_t n, struct str *name, struct str *web)
{
    const char *end = toml + (n > PACK_TEXT_MAX ? PACK_TEXT_MAX : n);
    bool has_name = false, has_web = false, project = false, comfy = false;
    for (const char *p = toml; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop ? stop : end;
        while (p < stop && (*p == ' ' || *p == '\t'))
            p++;
        size_t k = (size_t)(stop - p);
        if (k && *p == '[') {
            project = str_starts(p, k, "[project]");
            comfy = str_starts(p, k, "[tool.comfy]");
        }
        has_name |= project && toml_string(p, k, "name", name);
        has_web |= comfy && toml_string(p, k, "web", web);
        p = stop + 1;
    }
    return has_name && has_web;
}
