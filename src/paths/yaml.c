/* yaml: two passes of libyaml over the text. The first looks at events, so that depth, anchors and
 * tags are checked before anything grows; the second loads the document, which is then walked. */
#include "paths/yaml.h"

#include "base/str.h"

#include <strings.h>
#include <yaml.h>

struct reader {
    const char *file, *text;
    size_t n;
    yaml_document_t doc;
    struct yaml_doc *out;
    size_t looked; /* keys and merged nodes so far, as often as merges look at them */
    size_t bytes;  /* of all values so far */
    unsigned sections;
    berth_err *err;
};

static berth_status wrong(struct reader *r, size_t line, const char *what)
{
    return err_set(r->err, BERTH_EFORMAT, "%s: line %zu: %s", r->file, line, what);
}

static berth_status too_many(struct reader *r, size_t line, size_t most, const char *what)
{
    return err_set(r->err, BERTH_ELIMIT, "%s: line %zu: more than %zu %s", r->file, line, most,
                   what);
}

static berth_status no_memory(struct reader *r)
{
    return err_set(r->err, BERTH_ENOMEM, "%s", r->file);
}

/* Whether a tab indents a line: what people with other editors get wrong most. */
static bool has_tab(const struct reader *r, size_t line)
{
    const char *p = r->text, *end = r->text + r->n;
    for (; line > 1 && p < end; p++)
        line -= *p == '\n';
    while (p < end && *p == ' ')
        p++;
    return p < end && *p == '\t';
}

/* What libyaml has to say. Errors of its reader carry a byte offset instead of a line. */
static berth_status parser_error(struct reader *r, const yaml_parser_t *p)
{
    size_t line = p->problem_mark.line + 1;
    if (p->error == YAML_MEMORY_ERROR)
        return no_memory(r);
    if (p->error == YAML_READER_ERROR) {
        line = 1;
        for (size_t i = 0; i < r->n && i < p->problem_offset; i++)
            line += r->text[i] == '\n';
    }
    if (p->error == YAML_SCANNER_ERROR && has_tab(r, line))
        return wrong(r, line, "a tab in the indentation, expected spaces");
    const char *what = p->problem ? p->problem : "not YAML";
    if (!p->context || p->context_mark.line + 1 == line)
        return wrong(r, line, what);
    return err_set(r->err, BERTH_EFORMAT, "%s: line %zu: %s (%s that begins in line %zu)", r->file,
                   line, what, p->context, p->context_mark.line + 1);
}

static bool parser_init(struct reader *r, yaml_parser_t *p)
{
    if (!yaml_parser_initialize(p))
        return false;
    yaml_parser_set_input_string(p, (const unsigned char *)r->text, r->n);
    yaml_parser_set_encoding(p, YAML_UTF8_ENCODING);
    return true;
}

/* ---- the first pass ---- */

struct counts {
    size_t depth, anchors, documents;
};

static berth_status check_event(struct reader *r, const yaml_event_t *e, struct counts *c)
{
    size_t line = e->start_mark.line + 1;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return c->documents++ ? wrong(r, line, "a second document; expected one") : BERTH_OK;
    case YAML_SCALAR_EVENT:
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        c->depth++;
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        c->depth++;
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        c->depth--;
        break;
    default:
        break;
    }
    if (c->depth > YAML_DEPTH_MAX)
        return too_many(r, line, YAML_DEPTH_MAX, "levels");
    if (anchor && ++c->anchors > YAML_ANCHORS_MAX)
        return too_many(r, line, YAML_ANCHORS_MAX, "anchors");
    if (tag && strcmp((const char *)tag, "!") != 0 && strcmp((const char *)tag, YAML_STR_TAG) != 0)
        return err_set(r->err, BERTH_EFORMAT, "%s: line %zu: a tag (%.40s), expected plain text",
                       r->file, line, (const char *)tag);
    return BERTH_OK;
}

static berth_status check_events(struct reader *r)
{
    yaml_parser_t p;
    struct counts c = { 0 };
    berth_status s = BERTH_OK;
    if (!parser_init(r, &p))
        return no_memory(r);
    for (bool more = true; more && !s;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&p, &e)) {
            s = parser_error(r, &p);
            break;
        }
        s = check_event(r, &e, &c);
        more = e.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&p);
    return s;
}

/* ---- the second pass ---- */

struct pair {
    const yaml_node_t *key, *value;
};

static const yaml_node_t *node_at(struct reader *r, int index)
{
    return yaml_document_get_node(&r->doc, index);
}

static size_t line_of(const yaml_node_t *n)
{
    return n->start_mark.line + 1;
}

static bool is_scalar(const yaml_node_t *n, const char *text)
{
    return n->type == YAML_SCALAR_NODE &&
           str_eq((const char *)n->data.scalar.value, n->data.scalar.length, text);
}

static bool is_null(const yaml_node_t *n)
{
    return n->type == YAML_SCALAR_NODE && n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (is_scalar(n, "") || is_scalar(n, "~") || is_scalar(n, "null") || is_scalar(n, "Null") ||
            is_scalar(n, "NULL"));
}

static bool has_key(const struct vec *pairs, size_t n, const yaml_node_t *key)
{
    for (size_t i = 0; i < n; i++) {
        const struct pair *p = vec_at(pairs, i);
        if (is_scalar(p->key, (const char *)key->data.scalar.value))
            return true;
    }
    return false;
}

static berth_status check_key(struct reader *r, const yaml_node_t *key)
{
    if (key->type != YAML_SCALAR_NODE || !key->data.scalar.length)
        return wrong(r, line_of(key), "expected 'name:'");
    for (size_t i = 0; i < key->data.scalar.length; i++)
        if (key->data.scalar.value[i] < 0x20 || key->data.scalar.value[i] == 0x7f)
            return wrong(r, line_of(key), "a control character");
    return BERTH_OK;
}

static berth_status add_pairs(struct reader *r, const yaml_node_t *map, unsigned depth,
                              struct vec *pairs);

/* The value of "<<:": a mapping or a list of them. Keys that are there already win. */
static berth_status add_merged(struct reader *r, const yaml_node_t *v, unsigned depth,
                               struct vec *pairs)
{
    if (depth > YAML_DEPTH_MAX)
        return too_many(r, line_of(v), YAML_DEPTH_MAX, "merges inside one another");
    if (++r->looked > YAML_ENTRIES_MAX) /* lists of lists: each level multiplies the one below */
        return too_many(r, line_of(v), YAML_ENTRIES_MAX, "entries");
    if (v->type == YAML_MAPPING_NODE)
        return add_pairs(r, v, depth, pairs);
    if (v->type != YAML_SEQUENCE_NODE)
        return wrong(r, line_of(v), "'<<' merges mappings; expected an alias of one");
    for (yaml_node_item_t *i = v->data.sequence.items.start; i < v->data.sequence.items.top; i++)
        if (add_merged(r, node_at(r, *i), depth + 1, pairs))
            return r->err->code;
    return BERTH_OK;
}

/* The pairs of a mapping, its own first, then those it merges. */
static berth_status add_pairs(struct reader *r, const yaml_node_t *map, unsigned depth,
                              struct vec *pairs)
{
    yaml_node_pair_t *from = map->data.mapping.pairs.start, *to = map->data.mapping.pairs.top;
    size_t before = pairs->n;
    for (yaml_node_pair_t *i = from; i < to; i++) {
        const yaml_node_t *key = node_at(r, i->key);
        if (++r->looked > YAML_ENTRIES_MAX)
            return too_many(r, line_of(key), YAML_ENTRIES_MAX, "entries");
        if (check_key(r, key))
            return r->err->code;
        if (is_scalar(key, "<<") || (depth && has_key(pairs, before, key)))
            continue;
        struct pair *p = vec_add(pairs);
        if (!p)
            return no_memory(r);
        *p = (struct pair) { key, node_at(r, i->value) };
    }
    for (yaml_node_pair_t *i = from; i < to; i++)
        if (is_scalar(node_at(r, i->key), "<<") &&
            add_merged(r, node_at(r, i->value), depth + 1, pairs))
            return r->err->code;
    return BERTH_OK;
}

static berth_status count_bytes(struct reader *r, const yaml_node_t *n, size_t bytes)
{
    r->bytes += bytes;
    return r->bytes > YAML_BYTES_MAX
               ? too_many(r, line_of(n), YAML_BYTES_MAX, "bytes with what aliases stand for")
               : BERTH_OK;
}

/* A text without trailing line ends: block scalars have one that is not meant. */
static berth_status add_text(struct reader *r, const yaml_node_t *n, struct str *out)
{
    const char *text = (const char *)n->data.scalar.value;
    size_t len = n->data.scalar.length;
    while (len && text[len - 1] == '\n')
        len--;
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)text[i] < 0x20 && text[i] != '\n' && text[i] != '\t') ||
            text[i] == 0x7f)
            return wrong(r, line_of(n), "a control character");
    str_add(out, text, len);
    return out->bad ? no_memory(r) : count_bytes(r, n, len);
}

static berth_status add_list(struct reader *r, const yaml_node_t *list, struct str *out)
{
    yaml_node_item_t *from = list->data.sequence.items.start, *to = list->data.sequence.items.top;
    for (yaml_node_item_t *i = from; i < to; i++) {
        const yaml_node_t *n = node_at(r, *i);
        if (n->type != YAML_SCALAR_NODE)
            return wrong(r, line_of(n), "a list or mapping inside a list; expected text");
        if (out->n)
            str_addc(out, '\n');
        if (count_bytes(r, n, 1) || (!is_null(n) && add_text(r, n, out)))
            return r->err->code;
    }
    return BERTH_OK;
}

static berth_status add_entry(struct reader *r, const struct pair *p)
{
    const yaml_node_t *v = p->value;
    struct str key = { 0 }, value = { 0 };
    berth_status s = add_text(r, p->key, &key);
    if (s || is_null(v))
        ;
    else if (v->type == YAML_MAPPING_NODE)
        s = wrong(r, line_of(v), "a mapping inside a section's entry; expected text or a list");
    else if (v->type == YAML_SEQUENCE_NODE)
        s = add_list(r, v, &value);
    else
        s = add_text(r, v, &value);
    if (!is_null(v) && !value.n) /* "": given, and empty */
        str_adds(&value, "");
    struct yaml_entry *e = s || key.bad || value.bad ? NULL : vec_add(&r->out->entry);
    if (!s && !e)
        s = no_memory(r);
    if (!s)
        *e = (struct yaml_entry) { r->sections, (unsigned)line_of(p->key),
                                   v->type == YAML_SEQUENCE_NODE, str_take(&key),
                                   is_null(v) ? NULL : str_take(&value) };
    str_release(&key);
    str_release(&value);
    return s;
}

static berth_status add_section(struct reader *r, const yaml_node_t *v)
{
    struct vec pairs = { .elem = sizeof(struct pair) };
    if (is_null(v))
        return BERTH_OK;
    if (v->type != YAML_MAPPING_NODE)
        return wrong(r, line_of(v), "a section without entries; expected 'name: path' below it");
    berth_status s = add_pairs(r, v, 0, &pairs);
    for (size_t i = 0; !s && i < pairs.n; i++)
        s = add_entry(r, vec_at(&pairs, i));
    vec_release(&pairs);
    return s;
}

static berth_status add_sections(struct reader *r)
{
    const yaml_node_t *root = yaml_document_get_root_node(&r->doc);
    struct vec pairs = { .elem = sizeof(struct pair) };
    if (!root || is_null(root))
        return BERTH_OK;
    if (root->type != YAML_MAPPING_NODE)
        return wrong(r, line_of(root), "expected sections, each a 'name:' with entries below it");
    berth_status s = add_pairs(r, root, 0, &pairs);
    for (size_t i = 0; !s && i < pairs.n; i++, r->sections++)
        s = add_section(r, ((const struct pair *)vec_at(&pairs, i))->value);
    vec_release(&pairs);
    return s;
}

berth_status yaml_read(const char *text, size_t n, const char *file, struct yaml_doc *out,
                       berth_err *err)
{
    bool mark = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0; /* Windows editors leave it */
    struct reader r = {
        .file = file, .text = text + 3 * mark, .n = n - 3 * mark, .out = out, .err = err
    };
    yaml_parser_t p;
    out->entry.elem = sizeof(struct yaml_entry);
    if (n > YAML_BYTES_MAX)
        return err_set(err, BERTH_ELIMIT, "%s: %zu bytes, at most %zu", file, n, YAML_BYTES_MAX);
    if (check_events(&r))
        return err->code;
    if (!parser_init(&r, &p))
        return no_memory(&r);
    berth_status s = BERTH_OK;
    if (!yaml_parser_load(&p, &r.doc)) {
        s = parser_error(&r, &p);
    } else {
        s = add_sections(&r);
        yaml_document_delete(&r.doc);
    }
    yaml_parser_delete(&p);
    return s;
}

void yaml_release(struct yaml_doc *d)
{
    for (size_t i = 0; i < d->entry.n; i++) {
        struct yaml_entry *e = vec_at(&d->entry, i);
        free(e->key);
        free(e->value);
    }
    vec_release(&d->entry);
}

bool yaml_bool(const char *s, bool *out)
{
    static const char *const word[2][4] = { { "n", "no", "false", "off" },
                                            { "y", "yes", "true", "on" } };
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < 4; i++)
            if (strcasecmp(s, word[v][i]) == 0) {
                *out = v;
                return true;
            }
    size_t digits = strspn(s, "0123456789"); /* Python takes what is not 0 for true */
    if (!digits || s[digits])
        return false;
    *out = strspn(s, "0") != digits;
    return true;
}
