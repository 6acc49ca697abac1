/* Users and their settings. A settings file is read, changed and replaced as a whole, on the aux thread;
 * whoever reads it finds the old one or the new one. */
#include "base/file.h"
#include "server/routes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SETTINGS_MAX ((size_t)16 << 20)
#define USERS_MAX ((size_t)4 << 20)
#define USERNAME_MAX 200

/* A file's object; {} when it is not there or no JSON object. NULL: no memory. */
static json_t *read_object(const char *path, size_t max)
{
    char *text = NULL;
    size_t n = 0;
    json_t *v = NULL;
    berth_err err = { 0 };
    if (!file_read_all(path, max, &text, &n, &err))
        js_parse(text, n, NULL, &v, &err);
    free(text);
    if (json_is_object(v))
        return v;
    json_decref(v);
    return json_object();
}

static berth_status write_object(const char *path, const json_t *v, berth_err *err)
{
    struct str text = { 0 };
    struct file_new *f = NULL;
    js_write(v, 4, &text);
    berth_status st = text.bad ? err_set(err, BERTH_ENOMEM, "writing '%s'", path)
                               : file_new_open(path, text.n, &f, err);
    if (!st && (st = file_new_write(f, text.p, text.n, err)))
        file_new_abort(f);
    else if (!st)
        st = file_new_commit(f, err);
    str_release(&text);
    return st;
}

/* ---- users ---- */

static void users_file(const struct server *s, struct str *out)
{
    str_addf(out, "%s/users.json", folders_user(s->cfg.folders));
}

static json_t *read_users(const struct server *s)
{
    struct str path = { 0 };
    users_file(s, &path);
    json_t *users = path.bad ? NULL : read_object(path.p, USERS_MAX);
    str_release(&path);
    return users;
}

bool user_root(const struct http_req *r, struct str *out)
{
    const struct server *s = r->server;
    if (!r->user)
        return false;
    if (s->cfg.multi_user) {
        json_t *users = read_users(s);
        bool known = json_object_get(users, r->user);
        json_decref(users);
        if (!known || strchr(r->user, '/') || r->user[0] == '.' || !strncmp(r->user, "__", 2))
            return false;
    }
    str_addf(out, "%s/%s", folders_user(s->cfg.folders), r->user);
    return !out->bad;
}

void route_users_get(struct http_req *r)
{
    struct str root = { 0 };
    struct stat st;
    if (r->server->cfg.multi_user) {
        json_t *users = read_users(r->server);
        http_reply_json(r, 200,
                        users ? json_pack("{s:s,s:o}", "storage", "server", "users", users) : NULL);
        return;
    }
    bool there = user_root(r, &root) && !stat(root.p, &st) && S_ISDIR(st.st_mode);
    str_release(&root);
    http_reply_json(r, 200, json_pack("{s:s,s:b}", "storage", "server", "migrated", there));
}

struct new_user {
    struct later base;
    struct str name; /* stripped */
};

static void new_user_release(struct later *l)
{
    str_release(&((struct new_user *)l)->name);
    free(l);
}

/* Whatever is not a letter, digit, '-' or '_' becomes one '-' per run; a uuid makes it unique. */
static void user_id(const struct str *name, struct str *out)
{
    bool in_run = false;
    for (size_t i = 0; i < name->n; i++) {
        char c = name->p[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_';
        if (plain || !in_run)
            str_addc(out, plain ? c : '-');
        in_run = !plain;
    }
    char uuid[UUID_TEXT];
    uuid4_text(uuid);
    str_addf(out, "_%s", uuid);
}

static json_t *error_json(const char *text)
{
    return json_pack("{s:s}", "error", text);
}

static void new_user_work(struct later *l)
{
    struct new_user *u = (struct new_user *)l;
    struct str id = { 0 }, path = { 0 };
    berth_err err = { 0 };
    json_t *users = read_users(l->server), *v;
    const char *k;
    bool taken = false;
    json_object_foreach(users, k, v)
    {
        taken = taken || (json_is_string(v) && !strcmp(json_string_value(v), u->name.p));
    }
    user_id(&u->name, &id);
    users_file(l->server, &path);
    if (taken)
        later_json(l, 400, error_json("Duplicate username."));
    else if (id.bad || path.bad ||
             json_object_set_new(users, id.p, json_stringn(u->name.p, u->name.n)))
        later_json(l, 500, NULL);
    else if (write_object(path.p, users, &err))
        later_err(l, 0, &err);
    else
        later_json(l, 200, json_stringn(id.p, id.n));
    json_decref(users);
    str_release(&id);
    str_release(&path);
}

void route_users_post(struct http_req *r)
{
    json_t *body;
    if (!http_json(r, NULL, &body))
        return;
    const json_t *given = json_object_get(body, "username");
    const char *p = given && js_kind(given) == JS_STRING ? json_string_value(given) : "";
    size_t n = strlen(p);
    while (n && strchr(" \t\r\n", p[0]))
        p++, n--;
    while (n && strchr(" \t\r\n", p[n - 1]))
        n--;
    struct new_user *u = NULL;
    if (!r->server->cfg.multi_user)
        http_reply_json(r, 400, error_json("this server has one user, see --multi-user"));
    else if (n == 0 || n > USERNAME_MAX || strncmp(p, "__", 2) == 0)
        http_reply_json(r, 400, error_json("username not provided, or not usable"));
    else if (!(u = calloc(1, sizeof *u)))
        http_reply_json(r, 500, NULL);
    if (u) {
        str_add(&u->name, p, n);
        u->base.work = new_user_work;
        u->base.release = new_user_release;
        if (u->name.bad) {
            new_user_release(&u->base);
            http_reply_json(r, 500, NULL);
        } else {
            later_run(r, &u->base);
        }
    }
    json_decref(body);
}

/* ---- settings ---- */

/* False: replied, 401. */
static bool settings_root(struct http_req *r, struct str *root)
{
    if (user_root(r, root))
        return true;
    http_reply_text(r, 401, "unknown user");
    return false;
}

static json_t *read_settings(const char *root)
{
    struct str path = { 0 };
    str_addf(&path, "%s/comfy.settings.json", root);
    json_t *v = path.bad ? NULL : read_object(path.p, SETTINGS_MAX);
    str_release(&path);
    return v;
}

void route_settings_get(struct http_req *r)
{
    struct str root = { 0 };
    if (settings_root(r, &root))
        http_reply_json(r, 200, read_settings(root.p));
    str_release(&root);
}

void route_setting_get(struct http_req *r)
{
    struct str root = { 0 };
    if (settings_root(r, &root)) {
        json_t *all = read_settings(root.p), *v = json_object_get(all, str_c(&r->param[0]));
        http_reply_json(r, 200, v ? json_incref(v) : all ? json_null() : NULL);
        json_decref(all);
    }
    str_release(&root);
}

struct change { /* of settings */
    struct later base;
    struct str root;
    json_t *values; /* merged in; a member of no value ("gone") is taken out */
    char *gone;     /* NULL: none */
};

static void change_release(struct later *l)
{
    struct change *c = (struct change *)l;
    str_release(&c->root);
    json_decref(c->values);
    free(c->gone);
    free(c);
}

static void change_work(struct later *l)
{
    struct change *c = (struct change *)l;
    struct str path = { 0 };
    berth_err err = { 0 };
    json_t *all = read_settings(c->root.p);
    if (c->gone)
        json_object_del(all, c->gone);
    str_addf(&path, "%s/comfy.settings.json", c->root.p);
    if (!all || path.bad || (c->values && json_object_update(all, c->values)))
        later_json(l, 500, NULL);
    else if (path_make_dirs(c->root.p, &err) || write_object(path.p, all, &err))
        later_err(l, 0, &err);
    else
        l->status = 200;
    json_decref(all);
    str_release(&path);
}

/* Takes root, values and gone. */
static void change_run(struct http_req *r, struct str *root, json_t *values, char *gone)
{
    struct change *c = calloc(1, sizeof *c);
    if (!c) {
        str_release(root);
        json_decref(values);
        free(gone);
        http_reply_json(r, 500, NULL);
        return;
    }
    c->base.work = change_work;
    c->base.release = change_release;
    c->root = *root;
    c->values = values;
    c->gone = gone;
    *root = (struct str) { 0 };
    later_run(r, &c->base);
}

void route_settings_post(struct http_req *r)
{
    struct str root = { 0 };
    json_t *body = NULL;
    if (settings_root(r, &root) && http_json(r, NULL, &body)) {
        if (json_is_object(body)) {
            change_run(r, &root, body, NULL);
            body = NULL;
        } else {
            http_reply_text(r, 400, "settings are a JSON object");
        }
    }
    json_decref(body);
    str_release(&root);
}

/* An empty body takes the setting out: that is how "undefined" arrives. */
void route_setting_post(struct http_req *r)
{
    struct str root = { 0 };
    json_t *v = NULL, *values = NULL;
    const char *id = str_c(&r->param[0]);
    char *gone = NULL;
    if (!settings_root(r, &root))
        return;
    if (r->body.n == 0) {
        if ((gone = strdup(id)))
            change_run(r, &root, NULL, gone);
        else
            http_reply_json(r, 500, NULL);
    } else if (http_json(r, NULL, &v)) {
        values = json_object();
        if (json_object_set_new(values, id, v)) {
            json_decref(values);
            http_reply_json(r, 400, error_json("the id of a setting is UTF-8 text"));
        } else {
            change_run(r, &root, values, NULL);
        }
    }
    str_release(&root);
}
