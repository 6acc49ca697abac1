/* route_plan: POST /berth/plan: where every block of a model would live. Loads and moves nothing.
 *
 *   {"model": 7}   one that is open, by its id: what PATCH /berth/models/7 with the same members
 *   would do, and without any of them its own plan. The worker answers, between the steps of a
 *   running prompt; it measures no links then, and says if that may make a difference. Or a file:
 *   {"folder": "checkpoints", "name": "sd15.safetensors"}  or  {"path": "/abs/in/a/model/folder"}
 *   "part"       prefix of the tensors; the whole file without it
 *   "weight_dtype" as UNETLoader has it: in the sizes of that type
 *   "allocation" an allocation string, or "virtual_vram_gb" (number) with "donor_device" ("cpu");
 *                neither: automatic (of a file)
 *   "compute", "layout" ("spread", "tail"), "devices" ("cuda:0=24g,cpu=64g": a machine that is not
 *   here)
 * The answer is what `berth plan --json` prints. Indexing a file and planning take a while:
 * AUX_PICTURES. */
#include "server/body.h"
#include "server/routes.h"

#include "model/arch.h"
#include "plan/convert.h"
#include "plan/plan.h"

struct planning { /* base.json: the body */
    struct later base;
    struct plan_devices devices;
    struct alloc alloc;
    struct quotas quotas;
};

/* ---- the file ---- */

/* An absolute path must begin with a model folder; the rest is resolved inside it. */
static berth_status find_path(struct folders *f, const char *path, struct str *out, berth_err *err)
{
    size_t n = strlen(path);
    for (size_t k = 0; k < folders_count(f); k++) {
        if (strcmp(folders_key(f, k), "custom_nodes") == 0)
            continue;
        for (size_t i = 0; i < folders_dirs(f, k); i++) {
            const char *dir = folders_dir(f, k, i);
            size_t len = strlen(dir);
            if (n > len + 1 && memcmp(path, dir, len) == 0 && path[len] == '/')
                return path_inside(dir, path + len + 1, n - len - 1, true, out, err);
        }
    }
    return err_set(err, BERTH_EINVAL, "path: '%.200s' is in no model folder", path);
}

static berth_status find_file(struct planning *p, struct str *out, berth_err *err)
{
    const char *folder, *name, *path;
    struct folders *f = p->base.server->cfg.folders;
    if (body_text(p->base.json, "folder", &folder, err) ||
        body_text(p->base.json, "name", &name, err) || body_text(p->base.json, "path", &path, err))
        return err->code;
    if (path[0] && (folder[0] || name[0]))
        return err_set(err, BERTH_EINVAL, "path beside folder and name: which one?");
    if (path[0])
        return find_path(f, path, out, err);
    if (!folder[0] || !name[0])
        return err_set(err, BERTH_EINVAL,
                       "which one? Say model (of a loaded one), or folder and name, or path");
    berth_status st = folders_resolve(f, folder, name, out, err);
    if (st == BERTH_ENOTFOUND && folders_find(f, folder, false) != SIZE_MAX)
        st = err_set(err, st, "%s '%.80s' is not there; GET /models/%s lists what is", folder, name,
                     folder);
    return st;
}

/* ---- the plan ---- */

static berth_status read_devices(struct planning *p, berth_err *err)
{
    const char *text;
    if (body_text(p->base.json, "devices", &text, err))
        return err->code;
    if (!text[0])
        return BERTH_OK;
    if (plan_devices_parse(text, strlen(text), &p->devices, err))
        return err_add(err, "devices");
    return BERTH_OK;
}

static berth_status make(struct planning *p, const struct blocks *b, struct plan *out,
                         berth_err *err)
{
    const char *layout_text, *compute;
    bool given;
    enum plan_layout layout = PLAN_SPREAD;
    struct str text = { 0 };
    berth_status st = read_devices(p, err);
    st = st ? st : body_text(p->base.json, "layout", &layout_text, err);
    st = st ? st : body_text(p->base.json, "compute", &compute, err);
    if (!st && layout_text[0] && !plan_layout_parse(layout_text, strlen(layout_text), &layout))
        st = err_set(err, BERTH_EINVAL, "layout '%.40s' is neither spread nor tail", layout_text);
    st = st ? st : body_allocation(p->base.json, &text, &given, err);
    const char *on = !st && compute[0] ? compute : NULL;
    if (!st && text.n) {
        st = alloc_parse(text.p, text.n, &p->alloc, err);
        st = st ? st : alloc_resolve(&p->alloc, &p->devices, on, b->bytes, &p->quotas, err);
    } else if (!st) {
        st = plan_auto(b, &p->devices, on, UINT64_MAX, &p->quotas, err);
    }
    str_release(&text);
    return st ? st : plan_make(b, &p->devices, &p->quotas, layout, out, err);
}

static berth_status plan_file(struct planning *p, struct str *out, berth_err *err)
{
    struct weights *w = NULL;
    struct blocks b = { 0 };
    struct plan plan = { 0 };
    struct str path = { 0 };
    const char *part, *dtype;
    berth_status st = body_text(p->base.json, "part", &part, err);
    st = st ? st : body_text(p->base.json, "weight_dtype", &dtype, err);
    st = st ? st : find_file(p, &path, err);
    st = st ? st : weights_open(str_c(&path), NULL, &w, err);
    if (!st && dtype[0] && strcmp(dtype, "default") != 0)
        st = res_convert(w, part, dtype, err);
    if (!st)
        st = blocks_from_weights(w, part, arch_blocks(w, part), &b, err);
    st = st ? st : make(p, &b, &plan, err);
    if (!st) {
        struct jsonout j = { .out = out, .indent = 2 };
        jo_open(&j, NULL, '{');
        plan_as_json(&plan, &b, weights_converted(w), &j);
        jo_close(&j, '}');
    }
    plan_release(&plan);
    blocks_release(&b);
    weights_close(w);
    str_release(&path);
    return st;
}

static void plan_work(struct later *l)
{
    struct planning *p = (struct planning *)l;
    berth_err err = { 0 };
    if (plan_file(p, &l->body, &err))
        later_err_json(l, err.code == BERTH_ELIMIT ? 400 : 0, &err);
}

/* Takes the body. */
static void plan_of_model(struct http_req *r, json_t *body)
{
    static const char *const known[] = { "model", "layout", BODY_ALLOCATION, NULL };
    struct worker_change c = { .look = true, .left = &r->left };
    berth_err err = { 0 };
    berth_status st = read_change(body, known, &c, &err);
    if (!st && !js_get_u64(json_object_get(body, "model"), &c.model))
        st = err_set(&err, BERTH_EINVAL, "model: not the id of one");
    if (st)
        http_reply_err(r, err.code == BERTH_ELIMIT ? 400 : 0, &err);
    else
        worker_post_change(r->server, &c, reply_worker, http_hold(r));
    worker_change_release(&c);
    json_decref(body);
}

void route_berth_plan(struct http_req *r)
{
    static const char *const known[] = { "folder",  "name",          "path",
                                         "part",    "weight_dtype",  "layout",
                                         "devices", BODY_ALLOCATION, NULL };
    json_t *body;
    berth_err err = { 0 };
    if (!http_json(r, NULL, &body))
        return;
    if (json_object_get(body, "model")) {
        plan_of_model(r, body);
        return;
    }
    if (body_check(body, known, &err)) {
        http_reply_err(r, 0, &err);
        json_decref(body);
        return;
    }
    struct planning *p = later_new_json(r, sizeof *p, AUX_PICTURES, plan_work, body);
    if (!p)
        return;
    worker_plan_devices(r->server, &p->devices);
    later_run(&p->base);
}
