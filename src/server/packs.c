#include "server/packs.h"

#include "base/file.h"
#include "base/json.h"
#include "server/conn.h"
#include "server/routes.h"
#include "server/web.h"

#include <dirent.h>
#include <sys/stat.h>

#define PACKS_MAX 4096
#define INDEX_MAX (8u << 20) /* bytes of a list of templates */

struct pack {
    char *name;
    char *root; /* its folder */
    char *web;  /* its scripts; NULL: none */
};

/* Packages of which /system_stats tells the version. */
static const struct {
    const char *folder, *name;
} packages[] = {
    { "comfyui_frontend_package", "comfyui-frontend-package" },
    { "comfyui_workflow_templates", "comfyui-workflow-templates" },
    { "comfyui_embedded_docs", "comfyui-embedded-docs" },
};
#define TEMPLATES 1

struct packs {
    struct vec pack;                    /* struct pack */
    struct names templates;             /* folders */
    char *docs;                         /* NULL: none */
    char *version[ARRAY_LEN(packages)]; /* NULL: not there */
};

static bool is_dir(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* ---- looking ---- */

/* A text file of at most `most` bytes, free()d by the caller; NULL: there is none. */
static char *read_text(const char *folder, const char *file, size_t most, size_t *n)
{
    struct str path = { 0 };
    char *text = NULL;
    berth_err err;
    str_addf(&path, "%s/%s", folder, file);
    *n = 0;
    if (!path.bad && file_read_all(path.p, most, &text, n, &err))
        text = NULL;
    str_release(&path);
    return text;
}

/* Takes the texts. */
static bool add_pack(struct packs *p, char *name, char *root, char *web)
{
    struct pack *x = name && root ? vec_add(&p->pack) : NULL;
    if (x) {
        *x = (struct pack) { name, root, web };
        return true;
    }
    free(name);
    free(root);
    free(web);
    return false;
}

/* A folder of a pack; NULL: not inside of it, or not there. */
static char *folder_in(const char *root, const char *rel, size_t n)
{
    struct str path = { 0 };
    berth_err err;
    char *folder = NULL;
    if (!path_inside(root, rel, n, false, &path, &err) && is_dir(str_c(&path)))
        folder = str_take(&path);
    str_release(&path);
    return folder;
}

/* One folder of custom_nodes. */
static bool look_at(struct packs *p, const char *root, const char *name)
{
    struct str web = { 0 }, project = { 0 };
    size_t n;
    char *text = read_text(root, "__init__.py", PACK_TEXT_MAX, &n);
    char *scripts =
        text && pack_web_directory(text, n, &web) ? folder_in(root, str_c(&web), web.n) : NULL;
    bool ok = add_pack(p, strdup(name), strdup(root), scripts);
    free(text);
    str_clear(&web);
    text = read_text(root, "pyproject.toml", PACK_TEXT_MAX, &n);
    if (ok && text && pack_project(text, n, &project, &web) && !strpbrk(str_c(&project), "/\\") &&
        strcmp(str_c(&project), name) && (scripts = folder_in(root, str_c(&web), web.n)))
        ok = add_pack(p, str_take(&project), strdup(root), scripts);
    free(text);
    str_release(&web);
    str_release(&project);
    return ok;
}

static bool look_into(struct packs *p, const char *folder)
{
    DIR *d = opendir(folder);
    bool ok = true;
    for (struct dirent *e; d && ok && p->pack.n < PACKS_MAX && (e = readdir(d));) {
        struct str root = { 0 };
        size_t n = strlen(e->d_name);
        if (e->d_name[0] == '.' || !strcmp(e->d_name, "__pycache__") ||
            str_ends(e->d_name, n, ".disabled"))
            continue;
        str_addf(&root, "%s/%s", folder, e->d_name);
        ok = !root.bad;
        if (ok && is_dir(root.p))
            ok = look_at(p, root.p, e->d_name);
        str_release(&root);
    }
    if (d)
        closedir(d);
    return ok;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct pack *)a)->name, ((const struct pack *)b)->name);
}

/* "comfyui_embedded_docs-0.5.15.dist-info" says which version of it is there. */
static bool see_version(struct packs *p, const char *name)
{
    static const char end[] = ".dist-info";
    const char *dash = strrchr(name, '-');
    while (dash && dash > name && str_starts(dash, strlen(dash), "-info"))
        dash = memrchr(name, '-', (size_t)(dash - name));
    size_t n = strlen(name);
    if (!dash || !str_ends(name, n, end))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(packages); i++) {
        if (p->version[i] || !str_eq(name, (size_t)(dash - name), packages[i].folder))
            continue;
        p->version[i] = strndup(dash + 1, n - (size_t)(dash + 1 - name) - (sizeof end - 1));
        return p->version[i];
    }
    return true;
}

/* What pip put into one folder. */
static bool look_for_packages(struct packs *p, const char *folder)
{
    static const char templates[] = "comfyui_workflow_templates";
    struct str path = { 0 };
    DIR *d = opendir(folder);
    bool ok = true;
    for (struct dirent *e; d && ok && (e = readdir(d));) {
        ok = see_version(p, e->d_name);
        if (strncmp(e->d_name, templates, sizeof templates - 1) != 0)
            continue;
        str_clear(&path);
        str_addf(&path, "%s/%s/templates", folder, e->d_name);
        if (ok && is_dir(str_c(&path)))
            ok = names_add(&p->templates, path.p, path.n);
    }
    if (d)
        closedir(d);
    names_sort(&p->templates);
    str_clear(&path);
    str_addf(&path, "%s/comfyui_embedded_docs/docs", folder);
    if (is_dir(str_c(&path)))
        p->docs = str_take(&path);
    ok = ok && !path.bad;
    str_release(&path);
    return ok;
}

bool packs_open(struct server *s)
{
    struct packs *p = s->packs = calloc(1, sizeof *p);
    struct folders *f = s->cfg.folders;
    if (!p)
        return false;
    p->pack.elem = sizeof(struct pack);
    size_t key = f ? folders_find(f, "custom_nodes", true) : SIZE_MAX;
    for (size_t i = 0; key != SIZE_MAX && i < folders_dirs(f, key); i++)
        if (!look_into(p, folders_dir(f, key, i)))
            return false;
    if (p->pack.n)
        qsort(p->pack.p, p->pack.n, p->pack.elem, by_name);
    return !s->cfg.packages || look_for_packages(p, s->cfg.packages);
}

void packs_close(struct server *s)
{
    struct packs *p = s->packs;
    if (!p)
        return;
    for (size_t i = 0; i < p->pack.n; i++) {
        const struct pack *x = vec_at(&p->pack, i);
        free(x->name);
        free(x->root);
        free(x->web);
    }
    vec_release(&p->pack);
    names_release(&p->templates);
    free(p->docs);
    for (size_t i = 0; i < ARRAY_LEN(packages); i++)
        free(p->version[i]);
    free(p);
    s->packs = NULL;
}

bool packs_at(const struct packs *p, size_t i, const char **name, const char **root)
{
    if (i >= p->pack.n)
        return false;
    const struct pack *x = vec_at(&p->pack, i);
    *name = x->name;
    *root = x->root;
    return true;
}

void packs_versions_json(const struct server *s, struct jsonout *j)
{
    const struct packs *p = s->packs;
    jo_str(j, "installed_templates_version", p ? p->version[TEMPLATES] : NULL);
    jo_str(j, "required_templates_version", NULL);
    jo_open(j, "comfy_package_versions", '[');
    for (size_t i = 0; i < ARRAY_LEN(packages); i++) {
        jo_open(j, NULL, '{');
        jo_str(j, "name", packages[i].name);
        jo_str(j, "installed", p ? p->version[i] : NULL);
        jo_str(j, "required", NULL);
        jo_close(j, '}');
    }
    jo_close(j, ']');
}

/* ---- files ---- */

/* The file `rel` of a folder. False: it is not there, and nothing was said. */
static bool reply_from(struct http_req *r, const char *root, const char *rel, size_t n)
{
    struct str path = { 0 };
    struct stat st;
    berth_err err;
    bool there = n && rel[n - 1] != '/' && !path_inside(root, rel, n, false, &path, &err) &&
                 !stat(str_c(&path), &st) && S_ISREG(st.st_mode);
    if (there)
        http_reply_file(r, &(struct http_file) { .path = str_c(&path) });
    str_release(&path);
    return there;
}

static bool reply_of_pack(struct http_req *r, const char *rel, size_t n)
{
    const struct packs *p = r->server->packs;
    size_t k = strcspn(rel, "/");
    for (size_t i = 0; i < p->pack.n; i++) {
        const struct pack *x = vec_at(&p->pack, i);
        if (!x->web || !str_eq(rel, k, x->name))
            continue;
        if (k >= n || !reply_from(r, x->web, rel + k + 1, n - k - 1))
            http_status(r, 404);
        return true;
    }
    return false;
}

/* ---- templates ---- */

/* index.json, or that of a language: index.fr.json, index.zh-TW.json, index.pt-BR.json. */
static bool is_index(const char *name, size_t n)
{
    if (str_eq(name, n, "index.json"))
        return true;
    return (n == strlen("index.fr.json") || (n == strlen("index.zh-TW.json") && name[8] == '-')) &&
           str_starts(name, n, "index.") && str_ends(name, n, ".json");
}

/* Ours: an array without its brackets. */
static bool own_templates(const char **text, size_t *n)
{
    const struct web_file *f = web_files;
    while (f->name && strcmp(f->name, "templates/index.json"))
        f++;
    const char *from = f->name ? memchr(f->begin, '[', (size_t)(f->end - f->begin)) : NULL;
    const char *end = from ? memrchr(from, ']', (size_t)(f->end - from)) : NULL;
    *text = from ? from + 1 : NULL;
    *n = end ? (size_t)(end - from) - 1 : 0;
    return end;
}

/* The packages' list with ours before it, where the model is there that ours is for: nobody would
 * find it among hundreds. */
static bool reply_index(struct http_req *r, const char *folder, const char *name, size_t n)
{
    struct str model = { 0 }, out = { 0 };
    const char *ours = NULL;
    size_t k = 0, m = 0;
    berth_err err;
    bool both = is_index(name, n) && own_templates(&ours, &k) && r->server->cfg.folders &&
                !folders_resolve(r->server->cfg.folders, "checkpoints", "berth-demo.safetensors",
                                 &model, &err);
    char *theirs = both ? read_text(folder, name, INDEX_MAX, &m) : NULL;
    both = m > 1 && theirs[0] == '[';
    if (both) {
        bool none = theirs[1 + strspn(theirs + 1, " \t\r\n")] == ']';
        str_addc(&out, '[');
        str_add(&out, ours, k);
        str_adds(&out, none ? "" : ",");
        str_add(&out, theirs + 1, m - 1);
        http_reply_take(r, 200, "application/json", &out);
    }
    str_release(&model);
    free(theirs);
    return both;
}

static bool reply_template(struct http_req *r, const char *name, size_t n)
{
    const struct names *from = &r->server->packs->templates;
    for (size_t i = 0; i < from->n; i++)
        if (reply_index(r, from->at[i], name, n) || reply_from(r, from->at[i], name, n))
            return true;
    return false;
}

bool packs_reply(struct http_req *r, const char *rel, size_t n)
{
    static const char extensions[] = "extensions/", docs[] = "docs/", templates[] = "templates/";
    const struct packs *p = r->server->packs;
    if (!p || memchr(rel, '\0', n))
        return false;
    if (str_starts(rel, n, extensions))
        return reply_of_pack(r, rel + sizeof extensions - 1, n - (sizeof extensions - 1));
    if (str_starts(rel, n, docs) && p->docs)
        return reply_from(r, p->docs, rel + sizeof docs - 1, n - (sizeof docs - 1));
    return str_starts(rel, n, templates) &&
           reply_template(r, rel + sizeof templates - 1, n - (sizeof templates - 1));
}

/* ---- lists ---- */

/* Scripts below a folder, as /extensions/NAME/...; name NULL: those of the frontend itself. */
static void add_scripts(struct server *s, const char *folder, const char *name, struct jsonout *j)
{
    struct vec t = { 0 };
    berth_err err = { 0 };
    const struct tree_args all = { .recurse = true };
    if (tree_list(folder, &all, &t, &err) && err.code != BERTH_ENOTFOUND)
        log_warn(&s->log, "frontend.extensions", "why=%s", err.msg);
    for (size_t i = 0; i < t.n; i++) {
        const char *rel = ((struct tree_entry *)vec_at(&t, i))->rel;
        struct str url = { 0 };
        if (!str_ends(rel, strlen(rel), ".js"))
            continue;
        str_adds(&url, "/extensions/");
        if (name) {
            path_escape(name, strlen(name), &url);
            str_addc(&url, '/');
        }
        str_adds(&url, rel);
        jo_text(j, NULL, str_c(&url), url.n);
        j->out->bad |= url.bad;
        str_release(&url);
    }
    tree_release(&t);
}

void later_extensions(struct later *l)
{
    const struct packs *p = l->server->packs;
    struct str root = { 0 };
    struct jsonout j = { .out = &l->body };
    jo_open(&j, NULL, '[');
    if (l->server->cfg.frontend) {
        str_addf(&root, "%s/extensions", l->server->cfg.frontend);
        add_scripts(l->server, str_c(&root), NULL, &j);
    }
    for (size_t i = 0; p && i < p->pack.n; i++) {
        const struct pack *x = vec_at(&p->pack, i);
        if (x->web)
            add_scripts(l->server, x->web, x->name, &j);
    }
    jo_close(&j, ']');
    str_release(&root);
}

static const char *const examples[] = { "example_workflows", "example", "examples", "workflow",
                                        "workflows" };

/* Names of a pack's example workflows, without their ".json". */
static json_t *examples_of(const struct pack *x)
{
    json_t *list = json_array();
    const struct tree_args flat = { 0 };
    for (size_t k = 0; k < ARRAY_LEN(examples); k++) {
        struct vec t = { 0 };
        berth_err err;
        char *folder = folder_in(x->root, examples[k], strlen(examples[k]));
        if (folder && !tree_list(folder, &flat, &t, &err))
            for (size_t i = 0; i < t.n; i++) {
                const char *rel = ((struct tree_entry *)vec_at(&t, i))->rel;
                size_t n = strlen(rel);
                if (str_ends(rel, n, ".json"))
                    json_array_append_new(list, json_stringn(rel, n - strlen(".json")));
            }
        tree_release(&t);
        free(folder);
    }
    return list;
}

void later_workflow_templates(struct later *l)
{
    const struct packs *p = l->server->packs;
    json_t *all = json_object();
    for (size_t i = 0; p && i < p->pack.n; i++) {
        const struct pack *x = vec_at(&p->pack, i);
        if (strcmp(path_base(x->root), x->name)) /* its other name */
            continue;
        json_t *list = examples_of(x);
        if (json_array_size(list))
            json_object_set(all, x->name, list);
        json_decref(list);
    }
    later_json(l, 200, all);
}

void route_workflow_template(struct http_req *r)
{
    const struct packs *p = r->server->packs;
    const char *pack = str_c(&r->param[0]), *file = str_c(&r->param[1]);
    for (size_t i = 0; p && i < p->pack.n; i++) {
        const struct pack *x = vec_at(&p->pack, i);
        if (strcmp(x->name, pack))
            continue;
        for (size_t k = 0; k < ARRAY_LEN(examples); k++) {
            char *folder = folder_in(x->root, examples[k], strlen(examples[k]));
            bool there = folder && reply_from(r, folder, file, r->param[1].n);
            free(folder);
            if (there)
                return;
        }
    }
    http_status(r, 404);
}
