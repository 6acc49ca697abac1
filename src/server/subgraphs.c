/* /global_subgraphs: blueprints that the frontend offers beside its nodes. Those of a ComfyUI's own
 * folder, blueprints/, and of its node packs, subgraphs/. They are read when somebody asks. */
#include "base/file.h"
#include "base/sha256.h"
#include "server/packs.h"
#include "server/routes.h"

#include <sys/stat.h>

#define SUBGRAPH_MAX ((size_t)64 << 20) /* bytes of a file */

struct found { /* one blueprint */
    const char *source, *folder, *file;
    struct str pack;
    char id[SHA256_HEX]; /* of its source and path, as ComfyUI names them */
};
/* False: enough. */
typedef bool found_fn(void *user, const struct found *f);

static bool each_in(const char *source, const char *pack, const char *folder, found_fn *see,
                    void *user)
{
    struct vec t = { 0 };
    berth_err err = { 0 };
    const struct tree_args flat = { 0 };
    struct found f = { .source = source, .folder = folder };
    struct str path = { 0 };
    bool go = true;
    str_adds(&f.pack, pack);
    if (tree_list(folder, &flat, &t, &err)) /* nothing there is nothing wrong */
        t.n = 0;
    for (size_t i = 0; go && i < t.n; i++) {
        f.file = ((struct tree_entry *)vec_at(&t, i))->rel;
        if (!str_ends(f.file, strlen(f.file), ".json"))
            continue;
        str_clear(&path);
        str_addf(&path, "%s%s/%s", source, folder, f.file);
        sha256_hex(str_c(&path), path.n, f.id);
        go = see(user, &f);
    }
    tree_release(&t);
    str_release(&path);
    str_release(&f.pack);
    return go;
}

static bool each_of_packs(const struct packs *p, found_fn *see, void *user)
{
    const char *name, *root;
    bool go = true;
    for (size_t i = 0; go && p && packs_at(p, i, &name, &root); i++) {
        struct str folder = { 0 }, pack = { 0 };
        berth_err err = { 0 };
        str_addf(&pack, "custom_nodes.%s", name);
        if (!strcmp(path_base(root), name) && /* and not its other name */
            !path_inside(root, "subgraphs", strlen("subgraphs"), false, &folder, &err))
            go = each_in("custom_node", str_c(&pack), str_c(&folder), see, user);
        str_release(&folder);
        str_release(&pack);
    }
    return go;
}

static void each_subgraph(const struct server *s, found_fn *see, void *user)
{
    struct str folder = { 0 };
    if (!each_of_packs(s->packs, see, user) || !s->cfg.comfyui)
        return;
    str_addf(&folder, "%s/blueprints", s->cfg.comfyui);
    each_in("templates", "comfyui", str_c(&folder), see, user);
    str_release(&folder);
}

/* What is told of one. */
static json_t *entry(const struct found *f)
{
    size_t n = strlen(f->file) - strlen(".json");
    return json_pack("{s:s,s:s%,s:{s:s}}", "source", f->source, "name", f->file, n, "info",
                     "node_pack", str_c(&f->pack));
}

static bool add_entry(void *user, const struct found *f)
{
    json_object_set_new(user, f->id, entry(f));
    return true;
}

void later_subgraphs(struct later *l)
{
    json_t *all = json_object();
    each_subgraph(l->server, add_entry, all);
    later_json(l, 200, all);
}

struct wanted {
    struct later *l;
    json_t *made;
};

static bool read_entry(void *user, const struct found *f)
{
    struct wanted *w = user;
    struct str path = { 0 };
    char *text = NULL;
    size_t n = 0;
    if (strcmp(f->id, str_c(&w->l->r->param[0])))
        return true;
    /* a link out of the folder is not followed */
    w->l->failed = path_inside(f->folder, f->file, strlen(f->file), false, &path, &w->l->err);
    if (!w->l->failed)
        w->l->failed = file_read_all(str_c(&path), SUBGRAPH_MAX, &text, &n, &w->l->err);
    if (!w->l->failed && (w->made = entry(f)))
        json_object_set_new(w->made, "data", json_stringn(text, n));
    free(text);
    str_release(&path);
    return false;
}

void later_subgraph(struct later *l)
{
    struct wanted w = { .l = l };
    each_subgraph(l->server, read_entry, &w);
    if (!l->failed)
        later_json(l, 200, w.made ? w.made : json_null());
}
