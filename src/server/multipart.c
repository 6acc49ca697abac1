/* Bytes arrive in pieces of any size, and where they were cut must not matter. The delimiter is
 * "\r\n--boundary", and a boundary contains no CR: after a mismatch only the current byte can begin
 * a new match. So the number of bytes matched so far is all the scanner has to remember. */
#include "server/multipart.h"

#include "paths/paths.h"

#include <strings.h>

#define HEAD_MAX 8192   /* bytes of one part's head */
#define PARTS_MAX 64    /* parts of one body */
#define BOUNDARY_MAX 70 /* RFC 2046 */

enum state {
    PREAMBLE, /* before the first delimiter: skipped */
    DELIM,    /* behind a delimiter: "--", or spaces and CRLF */
    DASH,     /* "-" behind a delimiter */
    DELIM_LF, /* CR behind a delimiter */
    HEAD,     /* fields of a part, up to the empty line */
    DATA,
    DONE, /* the rest is an epilogue */
    FAILED
};

struct multipart {
    struct multipart_events ev;
    char delim[4 + BOUNDARY_MAX + 1]; /* "\r\n--boundary" */
    size_t delim_n, matched;
    enum state state;
    berth_status failed; /* FAILED: what feed() returned */
    size_t parts;
    struct str head; /* HEAD: the fields so far */
};

/* ---- "value; name=value; name=\"quoted\"" ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* From after the opening quote to after the closing one. A backslash escapes quotes and itself;
 * before anything else it is an ordinary character (browsers send Windows paths that way). */
static bool quoted(const char **p, struct str *out)
{
    for (const char *s = *p; *s; s++) {
        if (*s == '"') {
            *p = s + 1;
            return true;
        }
        if (*s == '\\' && (s[1] == '"' || s[1] == '\\'))
            s++;
        str_addc(out, *s);
    }
    return false; /* never closed */
}

/* The next parameter behind *p; *got false: there is none. False: malformed. */
static bool next_param(const char **p, struct str *name, struct str *value, bool *got)
{
    const char *s = *p;
    str_clear(name);
    str_clear(value);
    *got = false;
    while (is_space(*s) || *s == ';')
        s++;
    if (!*s)
        return true;
    while (*s && *s != '=' && *s != ';' && !is_space(*s))
        str_addc(name, *s++);
    while (is_space(*s))
        s++;
    if (*s == '=') {
        s++;
        while (is_space(*s))
            s++;
        if (*s == '"') {
            s++;
            if (!quoted(&s, value))
                return false;
        } else {
            while (*s && *s != ';' && !is_space(*s))
                str_addc(value, *s++);
        }
        while (is_space(*s))
            s++;
    }
    if (*s && *s != ';')
        return false;
    *p = s;
    *got = true;
    return !name->bad && !value->bad;
}

/* ---- opening ---- */

static bool usable_boundary(const char *s, size_t n)
{
    if (n == 0 || n > BOUNDARY_MAX || s[n - 1] == ' ')
        return false;
    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x20 || s[i] > 0x7e)
            return false;
    return true;
}

static berth_status find_boundary(const char *content_type, struct str *out, berth_err *err)
{
    static const char want[] = "multipart/form-data";
    size_t n = sizeof want - 1;
    const char *p = content_type ? content_type : "";
    if (strncasecmp(p, want, n) != 0 || (p[n] && p[n] != ';' && !is_space(p[n])))
        return err_set(err, BERTH_EFORMAT, "the body is no multipart/form-data");
    p += n;
    struct str name = { 0 };
    bool got = true, ok = true, found = false;
    while (!found && (ok = next_param(&p, &name, out, &got)) && got)
        found = strcasecmp(str_c(&name), "boundary") == 0;
    bool bad = name.bad || out->bad;
    str_release(&name);
    if (bad)
        return err_set(err, BERTH_ENOMEM, "reading a content type");
    if (!ok || !found || !usable_boundary(str_c(out), out->n))
        return err_set(err, BERTH_EFORMAT, "multipart/form-data without a usable boundary");
    return BERTH_OK;
}

berth_status multipart_new(const char *content_type, const struct multipart_events *ev,
                           struct multipart **out, berth_err *err)
{
    *out = NULL;
    struct str b = { 0 };
    berth_status st = find_boundary(content_type, &b, err);
    if (st) {
        str_release(&b);
        return st;
    }
    struct multipart *m = calloc(1, sizeof *m);
    if (!m) {
        str_release(&b);
        return err_set(err, BERTH_ENOMEM, "a multipart reader");
    }
    m->ev = *ev;
    memcpy(m->delim, "\r\n--", 4);
    memcpy(m->delim + 4, b.p, b.n);
    m->delim_n = 4 + b.n;
    m->matched = 2; /* the first delimiter may do without its line break */
    m->state = PREAMBLE;
    str_release(&b);
    *out = m;
    return BERTH_OK;
}

void multipart_free(struct multipart *m)
{
    if (!m)
        return;
    str_release(&m->head);
    free(m);
}

bool multipart_done(const struct multipart *m)
{
    return m->state == DONE;
}

/* ---- the head of a part ---- */

struct part_head {
    struct str name, filename;
    bool has_name, has_filename, extended; /* extended: filename* was there and wins */
};

static void head_release(struct part_head *h)
{
    str_release(&h->name);
    str_release(&h->filename);
}

/* Browsers write a quote in a name as %22 and leave every other percent sign alone. */
static void add_unquoted(struct str *out, const char *s)
{
    str_clear(out);
    for (; *s; s++)
        if (strncmp(s, "%22", 3) == 0) {
            str_addc(out, '"');
            s += 2;
        } else {
            str_addc(out, *s);
        }
}

/* RFC 5987: UTF-8'language'percent-encoded. False: malformed, another character set. */
static bool add_extended(struct str *out, const char *s)
{
    str_clear(out);
    if (strncasecmp(s, "utf-8'", 6) != 0)
        return false;
    s = strchr(s + 6, '\'');
    if (!s)
        return false;
    return path_unescape(s + 1, strlen(s + 1), false, out) || out->bad;
}

static bool disposition(struct part_head *h, const char *v)
{
    static const char want[] = "form-data";
    size_t n = sizeof want - 1;
    if (strncasecmp(v, want, n) != 0 || (v[n] && v[n] != ';' && !is_space(v[n])))
        return false;
    v += n;
    struct str name = { 0 }, value = { 0 };
    bool got = true, ok = true;
    while (ok && (ok = next_param(&v, &name, &value, &got)) && got) {
        if (strcasecmp(str_c(&name), "name") == 0) {
            add_unquoted(&h->name, str_c(&value));
            h->has_name = true;
        } else if (strcasecmp(str_c(&name), "filename*") == 0) {
            ok = add_extended(&h->filename, str_c(&value));
            h->has_filename = h->extended = true;
        } else if (strcasecmp(str_c(&name), "filename") == 0 && !h->extended) {
            add_unquoted(&h->filename, str_c(&value));
            h->has_filename = true;
        }
    }
    h->name.bad = h->name.bad || name.bad || value.bad; /* the reader of the name reports it */
    str_release(&name);
    str_release(&value);
    return ok;
}

/* One "name: value" line without its line break; NUL-ended for the call. */
static berth_status field(struct part_head *h, char *line, size_t n, berth_err *err)
{
    char *colon = memchr(line, ':', n);
    if (!colon || colon == line)
        return err_set(err, BERTH_EFORMAT, "a part's head has a line without a name");
    *colon = '\0';
    char *v = colon + 1;
    while (is_space(*v))
        v++;
    if (strcasecmp(line, "content-disposition") == 0) {
        if (!disposition(h, v) && !h->name.bad)
            return err_set(err, BERTH_EFORMAT, "a part's Content-Disposition is malformed");
    } else if (strcasecmp(line, "content-transfer-encoding") == 0) {
        if (strcasecmp(v, "binary") != 0 && strcasecmp(v, "8bit") != 0 &&
            strcasecmp(v, "7bit") != 0)
            return err_set(err, BERTH_EFORMAT, "a part is encoded as '%.40s'", v);
    }
    return BERTH_OK;
}

/* m->head holds whole lines, each ending in CRLF, without the empty one. */
static berth_status read_head(struct multipart *m, struct part_head *h, berth_err *err)
{
    char *p = m->head.p, *end = p + m->head.n;
    while (p < end) {
        char *lf = memchr(p, '\n', (size_t)(end - p));
        lf[-1] = '\0';
        berth_status st = field(h, p, (size_t)(lf - 1 - p), err);
        if (st)
            return st;
        p = lf + 1;
    }
    if (h->name.bad || h->filename.bad)
        return err_set(err, BERTH_ENOMEM, "a part's head");
    if (!h->has_name)
        return err_set(err, BERTH_EFORMAT, "a part without a name");
    if (!str_is_utf8(str_c(&h->name), h->name.n) ||
        !str_is_utf8(str_c(&h->filename), h->filename.n))
        return err_set(err, BERTH_EFORMAT, "a part's name is not UTF-8");
    return BERTH_OK;
}

static berth_status stopped(berth_err *err)
{
    return err_set(err, BERTH_ECANCELED, "the body is not wanted any more");
}

static berth_status open_part(struct multipart *m, berth_err *err)
{
    if (++m->parts > PARTS_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %d parts", PARTS_MAX);
    struct part_head h = { 0 };
    berth_status st = read_head(m, &h, err);
    if (!st && !m->ev.part(m->ev.user, str_c(&h.name), h.has_filename ? str_c(&h.filename) : NULL))
        st = stopped(err);
    head_release(&h);
    str_clear(&m->head);
    m->state = DATA;
    m->matched = 0;
    return st;
}

/* ---- the scanner ---- */

static berth_status emit(struct multipart *m, const char *p, size_t n, berth_err *err)
{
    if (m->state != DATA || n == 0)
        return BERTH_OK; /* the preamble is nobody's */
    return m->ev.data(m->ev.user, p, n) ? BERTH_OK : stopped(err);
}

/* PREAMBLE and DATA: takes bytes up to a whole delimiter or the end of the piece. */
static berth_status scan(struct multipart *m, const char *p, size_t n, size_t *used, berth_err *err)
{
    size_t at = 0, from = 0; /* [from, at): data that is sure */
    berth_status st = BERTH_OK;
    while (at < n) {
        if (m->matched == 0) {
            const char *cr = memchr(p + at, '\r', n - at);
            at = cr ? (size_t)(cr - p) : n;
            if (!cr)
                break;
            if ((st = emit(m, p + from, at - from, err)))
                return st;
            m->matched = 1;
            from = ++at;
        } else if (p[at] == m->delim[m->matched]) {
            from = ++at;
            if (++m->matched == m->delim_n) {
                *used = at;
                m->state = DELIM;
                m->matched = 0;
                return BERTH_OK;
            }
        } else { /* what looked like a delimiter was data */
            if ((st = emit(m, m->delim, m->matched, err)))
                return st;
            m->matched = 0;
            from = at; /* looked at again: it may be a CR */
        }
    }
    *used = n;
    return emit(m, p + from, at - from, err);
}

static berth_status delim_byte(struct multipart *m, char c, berth_err *err)
{
    if (m->state == DASH && c == '-')
        m->state = DONE;
    else if (m->state == DELIM && c == '-')
        m->state = DASH;
    else if (m->state == DELIM && c == '\r')
        m->state = DELIM_LF;
    else if (m->state == DELIM_LF && c == '\n')
        m->state = HEAD;
    else if (m->state != DELIM || !is_space(c))
        return err_set(err, BERTH_EFORMAT, "a boundary is followed by byte %d", (unsigned char)c);
    return BERTH_OK;
}

static berth_status head_byte(struct multipart *m, char c, berth_err *err)
{
    struct str *h = &m->head;
    char last = h->n ? h->p[h->n - 1] : '\0';
    if (c == '\0' || (c == '\n') != (last == '\r'))
        return err_set(err, BERTH_EFORMAT, "a part's head has a stray byte %d", (unsigned char)c);
    str_addc(h, c);
    if (h->bad)
        return err_set(err, BERTH_ENOMEM, "a part's head");
    if (c == '\n' && (h->n == 2 || h->p[h->n - 3] == '\n')) { /* the empty line */
        h->n -= 2;
        return open_part(m, err);
    }
    if (h->n >= HEAD_MAX)
        return err_set(err, BERTH_ELIMIT, "a part's head is longer than %d bytes", HEAD_MAX);
    return BERTH_OK;
}

berth_status multipart_feed(struct multipart *m, const char *p, size_t n, berth_err *err)
{
    berth_status st = BERTH_OK;
    for (size_t at = 0; !st && at < n;) {
        size_t used = 1;
        switch (m->state) {
        case PREAMBLE:
        case DATA:
            st = scan(m, p + at, n - at, &used, err);
            break;
        case DELIM:
        case DASH:
        case DELIM_LF:
            st = delim_byte(m, p[at], err);
            break;
        case HEAD:
            st = head_byte(m, p[at], err);
            break;
        case DONE:
            return BERTH_OK;
        case FAILED:
            return err_set(err, m->failed, "the body was given up before");
        }
        at += used;
    }
    if (st) {
        m->state = FAILED;
        m->failed = st;
    }
    return st;
}
