/* Model folders and their contents. The folders keep listings until a directory changes. */
#include "server/routes.h"

#include "model/arch.h"
#include "model/diffusion.h"
#include "model/encoder.h"
#include "model/vae.h"

#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define METADATA_MAX ((size_t)1 << 20) /* bytes of a safetensors header that are looked at */

static json_t *json_names(const struct names *x)
{
    json_t *out = json_array();
    for (size_t i = 0; i < x->n; i++)
        json_array_append_new(out, json_string(x->at[i])); /* a name that is no UTF-8 has no text */
    return out;
}

void route_models(struct http_req *r)
{
    const struct folders *f = r->server->cfg.folders;
    json_t *out = json_array();
    for (size_t i = 0; i < folders_count(f); i++)
        json_array_append_new(out, json_string(folders_key(f, i)));
    http_reply_json(r, 200, out);
}

struct listing { /* of a model folder */
    struct later base;
    size_t key; /* of the folder */
    bool stems; /* without extensions */
};

/* As os.path.splitext: ".x" is no extension. */
static void cut_extension(char *name)
{
    char *base = name + (path_base(name) - name), *dot = strrchr(base, '.');
    if (dot && strspn(base, ".") < (size_t)(dot - base) + 1)
        *dot = '\0';
}

static void names_work(struct later *l)
{
    const struct listing *w = (const struct listing *)l;
    struct folders *f = l->server->cfg.folders;
    struct names x = { 0 };
    l->failed = folders_list(f, folders_key(f, w->key), &x, &l->err);
    for (size_t i = 0; w->stems && i < x.n; i++)
        cut_extension(x.at[i]);
    later_json(l, 200, json_names(&x));
    names_release(&x);
}

static void list_folder(struct http_req *r, const char *folder, bool stems, later_fn *work)
{
    size_t key = folders_find(r->server->cfg.folders, folder, true);
    if (key == SIZE_MAX) {
        http_reply_empty(r, 404);
        return;
    }
    struct listing *w = later_new(r, sizeof *w, AUX_LISTS, work);
    if (!w)
        return;
    w->key = key;
    w->stems = stems;
    later_run(&w->base);
}

void route_models_one(struct http_req *r)
{
    list_folder(r, str_c(&r->param[0]), false, names_work);
}

void route_embeddings(struct http_req *r)
{
    list_folder(r, "embeddings", true, names_work);
}

/* ---- the header of a safetensors file ---- */

/* __metadata__, or NULL: whatever is wrong with the file, there is none to show. */
static json_t *read_metadata(const char *path)
{
    uint8_t head[8];
    json_t *all = NULL, *out = NULL;
    berth_err err = { 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    uint64_t n = 0;
    if (pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head)
        for (int i = 7; i >= 0; i--)
            n = n << 8 | head[i];
    char *text = n && n <= METADATA_MAX ? malloc((size_t)n) : NULL;
    if (text && pread(fd, text, (size_t)n, sizeof head) == (ssize_t)n &&
        !js_parse(text, (size_t)n, NULL, &all, &err))
        out = json_incref(json_object_get(all, "__metadata__"));
    json_decref(all);
    free(text);
    close(fd);
    return out;
}

static void add_text_kinds(const struct weights *w, json_t *out)
{
    struct text_found found[TEXT_ENCODERS_MAX];
    size_t n = text_find(w, NULL, found);
    json_t *kinds = n ? json_array() : NULL;
    for (size_t i = 0; kinds && i < n; i++)
        json_array_append_new(kinds, json_string(found[i].is->name));
    if (kinds)
        json_object_set_new(out, "text", kinds);
}

/* What it is, and what a loader of its text encoders is told. */
static json_t *diffusion_json(const struct diffusion_info *info)
{
    const struct text_set *set = info->text;
    json_t *encoders = json_array();
    for (const struct text_use *u = set->use; u->encoder; u++)
        json_array_append_new(encoders, json_string(u->encoder->name));
    return json_pack("{s:s,s:b,s:b,s:s,s:o,s:I,s:i}", "family", info->family, "guidance",
                     info->guidance, "inpaint", info->inpaint, "type",
                     set->types[0] ? set->types[0] : "stable_diffusion", "encoders", encoders,
                     "channels", (json_int_t)info->latent.channels, "rank", info->latent.rank);
}

/* Which networks a file holds, for clients that choose loaders and settings by it; api.md has the
 * members. {}: none that Berth runs, whatever the reason. */
static json_t *networks_in(const char *path)
{
    struct weights *w = NULL;
    struct diffusion_info info;
    struct vae_net vae;
    berth_err err = { 0 };
    char root[ARCH_ROOT_MAX];
    json_t *out = json_object();
    if (!out || weights_open(path, NULL, &w, &err))
        return out;
    const struct arch *arch = arch_detect(w, NULL);
    if (arch && !diffusion_detect(w, arch_part_with(w, arch, "unet"), &info, &err))
        json_object_set_new(out, "diffusion", diffusion_json(&info));
    add_text_kinds(w, out);
    if (arch && !arch->holds_parts && !vae_find(w, NULL, root, &vae, &err))
        json_object_set_new(out, "vae",
                            json_pack("{s:I,s:i}", "channels", (json_int_t)vae.latent.channels,
                                      "rank", vae.latent.rank));
    weights_close(w);
    return out;
}

/* berth=1, of the dashboard, which asks about every model it shows: one without metadata is {}, as
 * a browser complains of each 404; a tokenizer that travels in it, of no use there, stays out; and
 * what the file holds is added. */
struct metadata {
    struct later base;
    char *path;
    bool ours;
};

static void metadata_release(struct later *l)
{
    free(((struct metadata *)l)->path);
}

static void metadata_work(struct later *l)
{
    const struct metadata *m = (struct metadata *)l;
    json_t *v = read_metadata(m->path);
    if (m->ours && !json_is_object(v)) {
        json_decref(v);
        v = json_object();
    }
    if (m->ours) {
        json_object_del(v, "berth.tokenizer");
        json_object_set_new(v, "berth.networks", networks_in(m->path));
    }
    if (v)
        later_json(l, 200, v);
    else
        l->status = 404;
}

void route_view_metadata(struct http_req *r)
{
    struct folders *f = r->server->cfg.folders;
    struct str name = { 0 }, path = { 0 };
    berth_err err = { 0 };
    struct metadata *m = NULL;
    bool ours = query_is(r, "berth", "1");
    bool found = folders_find(f, str_c(&r->param[0]), false) != SIZE_MAX &&
                 http_query(r, "filename", &name) &&
                 (ours || str_ends(str_c(&name), name.n, ".safetensors")) &&
                 !folders_resolve(f, str_c(&r->param[0]), str_c(&name), &path, &err);
    if (!found) {
        http_reply_empty(r, 404);
    } else if ((m = later_new(r, sizeof *m, AUX_LISTS, metadata_work))) {
        m->base.release = metadata_release;
        m->path = str_take(&path);
        m->ours = ours;
        later_run(&m->base);
    }
    str_release(&name);
    str_release(&path);
}

/* ---- the model sidebar ---- */

static json_t *json_dirs(const struct folders *f, size_t key)
{
    json_t *out = json_array();
    for (size_t i = 0; i < folders_dirs(f, key); i++)
        json_array_append_new(out, json_string(folders_dir(f, key, i)));
    return out;
}

static json_t *json_extensions(const struct folders *f, size_t key)
{
    json_t *out = json_array();
    for (const char *const *e = folders_extensions(f, key); *e; e++)
        json_array_append_new(out, json_string(*e));
    return out;
}

void route_experiment_models(struct http_req *r)
{
    const struct folders *f = r->server->cfg.folders;
    json_t *out = json_array();
    for (size_t i = 0; i < folders_count(f); i++) {
        const char *key = folders_key(f, i);
        if (strcmp(key, "configs") && strcmp(key, "custom_nodes"))
            json_array_append_new(out,
                                  json_pack("{s:s,s:o,s:o}", "name", key, "folders",
                                            json_dirs(f, i), "extensions", json_extensions(f, i)));
    }
    http_reply_json(r, 200, out);
}

/* The sidebar shows models, whatever else its folder may hold, and nothing that is hidden. */
static bool is_shown(const char *name)
{
    static const char *const ends[] = { ".ckpt",        ".pt",  ".pt2", ".bin",  ".pth",
                                        ".safetensors", ".pkl", ".sft", ".gguf", NULL };
    return name[0] != '.' && !strstr(name, "/.") && http_ends_with(name, strlen(name), ends);
}

static void files_work(struct later *l)
{
    struct folder_files x = { 0 };
    l->failed = folders_files(l->server->cfg.folders, ((struct listing *)l)->key, &x, &l->err);
    json_t *out = json_array();
    for (size_t i = 0; i < x.n; i++) {
        const struct folder_file *f = &x.at[i];
        if (is_shown(f->name))
            json_array_append_new(out,
                                  json_pack("{s:s,s:I,s:f,s:f,s:I}", "name", f->name, "pathIndex",
                                            (json_int_t)f->path_index, "modified", f->modified,
                                            "created", f->created, "size", (json_int_t)f->size));
    }
    folder_files_release(&x);
    later_json(l, 200, out);
}

void route_experiment_models_one(struct http_req *r)
{
    list_folder(r, str_c(&r->param[0]), false, files_work);
}

/* A picture beside the model: x.safetensors -> x.png, x.preview.png, ... as WebP. */
struct model_picture {
    struct later base;
    struct str stem; /* absolute, without the extension */
};

static void picture_release(struct later *l)
{
    str_release(&((struct model_picture *)l)->stem);
}

static bool picture_webp(const char *path, struct str *out)
{
    struct image_file im = { 0 };
    berth_err err = { 0 };
    bool ok = !picture_read(path, &im, &err) && !image_webp(&im.frame[0], 80, false, out, &err);
    image_file_release(&im);
    return ok;
}

static void picture_work(struct later *l)
{
    static const char *const ends[] = { ".png",          ".jpg",         ".jpeg",
                                        ".webp",         ".preview.png", ".preview.jpg",
                                        ".preview.jpeg", ".preview.webp" };
    struct model_picture *p = (struct model_picture *)l;
    size_t n = p->stem.n;
    l->status = 404;
    for (size_t i = 0; i < ARRAY_LEN(ends) && l->status == 404; i++) {
        p->stem.n = n;
        str_adds(&p->stem, ends[i]);
        if (!p->stem.bad && picture_webp(p->stem.p, &l->body)) {
            l->status = 200;
            l->type = "image/webp";
        } else {
            str_clear(&l->body);
        }
    }
}

/* The model that is meant: 0, or the status that says why not. */
static int find_model(const struct http_req *r, struct str *path)
{
    const struct folders *f = r->server->cfg.folders;
    size_t key = folders_find(f, str_c(&r->param[0]), true);
    int64_t index = -1;
    berth_err err = { 0 };
    if (!r->param[2].n)
        return 400;
    if (key == SIZE_MAX)
        return 404;
    if (!py_int(str_c(&r->param[1]), r->param[1].n, &index))
        return 400;
    if (index < 0 || (uint64_t)index >= folders_dirs(f, key))
        return 404;
    if (path_inside(folders_dir(f, key, (size_t)index), str_c(&r->param[2]), r->param[2].n, true,
                    path, &err))
        return err.code == BERTH_EINVAL ? 403 : 404;
    return 0;
}

void route_model_preview(struct http_req *r)
{
    struct str path = { 0 };
    struct model_picture *p = NULL;
    int status = find_model(r, &path);
    if (status) {
        http_reply_empty(r, status);
    } else if ((p = later_new(r, sizeof *p, AUX_PICTURES, picture_work))) {
        const char *dot = strrchr(path_base(path.p), '.');
        str_add(&p->stem, path.p, dot ? (size_t)(dot - path.p) : path.n);
        p->base.release = picture_release;
        later_run(&p->base);
    }
    str_release(&path);
}

/* ---- plain folders ---- */

static int newest_first(const void *a, const void *b)
{
    const struct tree_entry *x = a, *y = b;
    if (x->modified != y->modified)
        return x->modified > y->modified ? -1 : 1;
    return strcmp(x->rel, y->rel);
}

static void top_files_work(struct later *l)
{
    struct vec t = { 0 };
    berth_err err = { 0 };
    const struct tree_args top = { 0 };
    const char *root = folder_of_type(l->server, str_c(&l->r->param[0]));
    if (tree_list(root, &top, &t, &err) && err.code != BERTH_ENOTFOUND) {
        later_err(l, 0, &err);
    } else {
        json_t *out = json_array();
        if (t.n)
            qsort(t.p, t.n, t.elem, newest_first);
        for (size_t i = 0; i < t.n; i++)
            json_array_append_new(out,
                                  json_sprintf("%s [%s]", ((struct tree_entry *)vec_at(&t, i))->rel,
                                               str_c(&l->r->param[0])));
        later_json(l, 200, out);
    }
    tree_release(&t);
}

void route_internal_files(struct http_req *r)
{
    if (folder_of_type(r->server, str_c(&r->param[0])))
        later_start(r, AUX_LISTS, top_files_work);
    else
        reply_wrong(r, "Invalid directory type");
}

void route_internal_folder_paths(struct http_req *r)
{
    const struct folders *f = r->server->cfg.folders;
    json_t *out = json_object();
    for (size_t i = 0; i < folders_count(f); i++)
        json_object_set_new(out, folders_key(f, i), json_dirs(f, i));
    http_reply_json(r, 200, out);
}
