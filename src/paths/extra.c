/* extra: extra_model_paths.yaml into the table of folders (comfyui-api.md 11.2). */
#include "base/file.h"
#include "paths/folders_impl.h"
#include "paths/yaml.h"

#include <limits.h>
#include <unistd.h>

struct extra {
    struct folders *folders;
    const struct folders_config *cfg;
    const char *path;
    struct str dir; /* of the file, absolute */
};

static bool is_name(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

/* "$NAME" or "${NAME}" at s: its bytes, 0: none. Names are short; what is longer is no variable. */
static size_t variable(const char *s, char name[64])
{
    bool brace = s[1] == '{';
    size_t from = brace ? 2 : 1, n = 0;
    while (is_name(s[from + n]) && n < 63) {
        name[n] = s[from + n];
        n++;
    }
    name[n] = '\0';
    if (!n || is_name(s[from + n]) || (brace && s[from + n] != '}'))
        return 0;
    return from + n + brace;
}

/* ~ at the beginning and variables; what is not set stays as it is written. */
static void expand(const struct extra *x, const char *s, struct str *out)
{
    const struct folders_config *c = x->cfg;
    const char *home =
        s[0] == '~' && (s[1] == '/' || !s[1]) && c->env ? c->env(c->env_user, "HOME") : NULL;
    if (home && *home) {
        str_adds(out, home);
        s++;
    }
    while (*s) {
        char name[64];
        size_t n = *s == '$' && c->env ? variable(s, name) : 0;
        const char *v = n ? c->env(c->env_user, name) : NULL;
        if (v)
            str_adds(out, v);
        else
            str_add(out, s, n ? n : 1);
        s += n ? n : 1;
    }
}

/* One key's paths, one per line. base: absolute. */
static berth_status add_paths(struct extra *x, const struct yaml_entry *e, const char *base,
                              bool first, berth_err *err)
{
    struct str path = { 0 };
    berth_status s = BERTH_OK;
    for (const char *p = e->value; !s && *p;) {
        size_t n = strcspn(p, "\n");
        if (n) {
            path_join(base, p, n, &path);
            if (path.n > PATH_BYTES_MAX)
                s = err_set(err, BERTH_ELIMIT, "%s: line %u: %s: a path of %zu bytes", x->path,
                            e->line, e->key, path.n);
            else if (path.bad || !folders_add(x->folders, e->key, strlen(e->key), path.p, first))
                s = err_set(err, BERTH_ENOMEM, "%s: line %u", x->path, e->line);
        }
        p += n + (p[n] == '\n');
    }
    str_release(&path);
    return s;
}

/* Entries [from, to) are a section's: first what it says of itself, then its folders. */
static berth_status add_section(struct extra *x, const struct yaml_doc *doc, size_t from, size_t to,
                                berth_err *err)
{
    struct str text = { 0 }, base = { 0 };
    bool first = false;
    berth_status s = BERTH_OK;
    str_add(&base, str_c(&x->dir), x->dir.n);
    for (size_t i = from; !s && i < to; i++) {
        const struct yaml_entry *e = vec_at(&doc->entry, i);
        if (e->list && strcmp(e->key, "base_path") == 0) {
            s = err_set(err, BERTH_EFORMAT, "%s: line %u: base_path: a list, expected one path",
                        x->path, e->line);
        } else if (e->value && strcmp(e->key, "base_path") == 0) {
            str_clear(&text);
            expand(x, e->value, &text);
            path_join(str_c(&x->dir), str_c(&text), text.n, &base);
        } else if (e->value && strcmp(e->key, "is_default") == 0 && !yaml_bool(e->value, &first)) {
            s = err_set(err, BERTH_EFORMAT,
                        "%s: line %u: is_default: '%.40s', expected true or false", x->path,
                        e->line, e->value);
        }
    }
    if (!s && (text.bad || base.bad))
        s = err_set(err, BERTH_ENOMEM, "%s", x->path);
    for (size_t i = from; !s && i < to; i++) {
        const struct yaml_entry *e = vec_at(&doc->entry, i);
        if (e->value && strcmp(e->key, "base_path") != 0 && strcmp(e->key, "is_default") != 0)
            s = add_paths(x, e, base.p, first, err);
    }
    str_release(&text);
    str_release(&base);
    return s;
}

berth_status extra_load(struct folders *f, const struct folders_config *cfg, const char *path,
                        berth_err *err)
{
    struct extra x = { .folders = f, .cfg = cfg, .path = path };
    struct yaml_doc doc = { 0 };
    struct str full = { 0 };
    char cwd[PATH_MAX], *text = NULL;
    size_t n = 0;
    berth_status s = BERTH_OK;
    if (!getcwd(cwd, sizeof cwd))
        memcpy(cwd, "/", 2);
    path_join(cwd, path, strlen(path), &full);
    path_join(str_c(&full), "..", 2, &x.dir);
    if (full.bad || x.dir.bad)
        s = err_set(err, BERTH_ENOMEM, "%s", path);
    if (!s)
        s = file_read_all(path, YAML_BYTES_MAX, &text, &n, err);
    if (!s)
        s = yaml_read(text, n, path, &doc, err);
    free(text);
    for (size_t i = 0, to; !s && i < doc.entry.n; i = to) {
        unsigned section = ((struct yaml_entry *)vec_at(&doc.entry, i))->section;
        for (to = i; to < doc.entry.n; to++)
            if (((struct yaml_entry *)vec_at(&doc.entry, to))->section != section)
                break;
        s = add_section(&x, &doc, i, to, err);
    }
    yaml_release(&doc);
    str_release(&full);
    str_release(&x.dir);
    return s;
}
