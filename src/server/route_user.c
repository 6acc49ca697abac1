/* Users and their settings. A settings file is read, changed and replaced as a whole, on AUX_FILES:
 * readers find the old one or the new one. A file that cannot be read is an error and stays as it
 * is. One that is not a JSON object counts as {}, and is kept as <name>.corrupt. */
#include "base/file.h"
#include "server/routes.h"

#include <errno.h>
#include <sys/stat.h>

#define SETTINGS_MAX ((size_t)16 << 20)
#define USERS_MAX ((size_t)1 << 20) /* read for every request with --multi-user */
#define USERNAME_MAX 200

/* *broken: it is there, but no JSON object; then, and when it is not there, *out is {}. */
static berth_status read_object(const char *path, size_t max, json_t **out, bool *broken,
                                berth_err *err)
{
    char *text = NULL;
    size_t n = 0;
    json_t *v = NULL;
    berth_status st = file_read_all(path, max, &text, &n, err);
    bool there = !st;
    if (!st)
        st = js_parse(text, n, NULL, &v, err);
    free(text);
    *broken = there && (st == BERTH_EFORMAT || (!st && !json_is_object(v)));
    *out = NULL;
    if (!st && !*broken) {
        *out = v;
        return BERTH_OK;
    }
    json_decref(v);
    if (st != BERTH_ENOTFOUND && !*broken)
        return st;
    *out = json_object();
    return *out ? BERTH_OK : err_set(err, BERTH_ENOMEM, "reading '%s'", path);
}

static berth_status set_aside(const struct server *s, const char *path, berth_err *err)
{
    struct str to = { 0 };
    str_addf(&to, "%s.corrupt", path);
    berth_status st = BERTH_OK;
    if (to.bad)
        st = err_set(err, BERTH_ENOMEM, "keeping '%s'", path);
    else if (rename(path, to.p))
        st = err_sys(err, BERTH_EIO, errno, "keeping '%s', which is no JSON, as '%s'", path, to.p);
    else
        log_warn(&s->log, "user.corrupt", "file=%s why=\"no JSON object, kept as it is\"", to.p);
    str_release(&to);
    return st;
}

/* What is written must be readable by read_object(): a value as deep as a body may be is one level
 * deeper in its file. BERTH_EINVAL. */
static berth_status check_readable(const struct str *text, berth_err *err)
{
    json_t *again;
    berth_status st = js_parse(text->p, text->n, NULL, &again, err);
    if (!st)
        json_decref(again);
    if (st && st != BERTH_ENOMEM)
        err->code = BERTH_EINVAL;
    return st ? err->code : BERTH_OK;
}

/* Replaces the file, of which read_object() said `broken`. */
static berth_status write_object(const struct server *s, const char *path, const json_t *v,
                                 size_t max, bool broken, berth_err *err)
{
    struct str text = { 0 };
    js_write(v, 4, &text);
    berth_status st = BERTH_OK;
    if (text.bad)
        st = err_set(err, BERTH_ENOMEM, "writing '%s'", path);
    else if (text.n > max)
        st =
            err_set(err, BERTH_ELIMIT, "'%s' would have %zu bytes, at most %zu", path, text.n, max);
    else
        st = check_readable(&text, err);
    if (!st && broken)
        st = set_aside(s, path, err);
    if (!st)
        st = file_write_all(path, text.p, text.n, err);
    str_release(&text);
    return st;
}

/* ---- users ---- */

static void users_file(const struct server *s, struct str *out)
{
    str_addf(out, "%s/users.json", folders_own(s->cfg.folders, FOLDERS_USER));
}

static berth_status read_users(const struct server *s, json_t **out, bool *broken, berth_err *err)
{
    struct str path = { 0 };
    users_file(s, &path);
    *out = NULL;
    berth_status st = path.bad ? err_set(err, BERTH_ENOMEM, "the users")
                               : read_object(path.p, USERS_MAX, out, broken, err);
    str_release(&path);
    return st;
}

int user_root(const struct server *s, const char *id, struct str *out)
{
    if (!id)
        return 401;
    if (s->cfg.multi_user) {
        json_t *users;
        bool broken;
        berth_err err = { 0 };
        if (strchr(id, '/') || id[0] == '.' || !strncmp(id, "__", 2))
            return 401;
        if (read_users(s, &users, &broken, &err)) {
            log_error(&s->log, "user.list", "why=%s", err.msg);
            return 503;
        }
        bool known = json_object_get(users, id);
        json_decref(users);
        if (!known)
            return 401;
    }
    str_addf(out, "%s/%s", folders_own(s->cfg.folders, FOLDERS_USER), id);
    return out->bad ? 500 : 0;
}

void later_users_get(struct later *l)
{
    const struct server *s = l->server;
    struct str root = { 0 };
    struct stat st;
    berth_err err = { 0 };
    if (s->cfg.multi_user) {
        json_t *users;
        bool broken;
        if (read_users(s, &users, &broken, &err))
            later_err(l, 503, &err);
        else
            later_json(l, 200, json_pack("{s:s,s:o}", "storage", "server", "users", users));
        return;
    }
    bool there = !user_root(s, "default", &root) && !stat(root.p, &st) && S_ISDIR(st.st_mode);
    str_release(&root);
    later_json(l, 200, json_pack("{s:s,s:b}", "storage", "server", "migrated", there));
}

struct new_user {
    struct later base;
    struct str name; /* stripped */
};

static void new_user_release(struct later *l)
{
    str_release(&((struct new_user *)l)->name);
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
    json_t *users, *v;
    const char *k;
    bool taken = false, broken;
    if (read_users(l->server, &users, &broken, &err)) {
        later_err(l, 503, &err);
        return;
    }
    /* without --multi-user ComfyUI has this one and still takes others */
    if (!l->server->cfg.multi_user && !json_object_get(users, "default"))
        json_object_set_new(users, "default", json_string("default"));
    json_object_foreach(users, k, v)
    {
        taken = taken || (json_is_string(v) && !strcmp(json_string_value(v), str_c(&u->name)));
    }
    user_id(&u->name, &id);
    users_file(l->server, &path);
    if (taken)
        later_json(l, 400, error_json("Duplicate username."));
    else if (u->name.bad || id.bad || path.bad ||
             json_object_set_new(users, id.p, json_stringn(u->name.p, u->name.n)))
        later_json(l, 500, NULL);
    else if (write_object(l->server, path.p, users, USERS_MAX, broken, &err))
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
    if (n == 0 || n > USERNAME_MAX || strncmp(p, "__", 2) == 0)
        reply_wrong(r, "username not provided, or not usable");
    else if ((u = later_new(r, sizeof *u, AUX_FILES, new_user_work))) {
        str_add(&u->name, p, n);
        u->base.release = new_user_release;
        later_run(&u->base);
    }
    json_decref(body);
}

/* ---- settings ---- */

/* Of the request's user, read (GET) or changed (POST); id: of one setting, NULL: all of them. */

/* *out NULL: the setting goes, since JavaScript's undefined is an empty body. False: replied. */
static bool read_value(struct later *l, const char *id, json_t **out)
{
    berth_err err = { 0 };
    *out = NULL;
    const struct str *body = &l->r->body;
    if (id && !body->n)
        return true;
    if (http_body_json(body, NULL, out, &err)) {
        later_err_json(l, err.code == BERTH_ENOMEM ? 503 : 400, &err);
        return false;
    }
    if (id || json_is_object(*out))
        return true;
    later_text(l, 400, "settings are a JSON object");
    json_decref(*out);
    *out = NULL;
    return false;
}

/* Into the object; false: replied. */
static bool apply(struct later *l, const char *id, json_t *all, json_t *value)
{
    if (id && !value) {
        json_object_del(all, id);
        return true;
    }
    if (!(id ? json_object_set(all, id, value) : json_object_update(all, value)))
        return true;
    if (id && !str_is_utf8(id, strlen(id)))
        later_json(l, 400, error_json("the id of a setting is UTF-8 text"));
    else
        later_json(l, 500, NULL);
    return false;
}

static void settings_of(struct later *l, const char *id, const char *root, const char *path)
{
    json_t *all = NULL, *value = NULL;
    bool broken, change = l->r->method == HTTP_POST;
    berth_err err = { 0 };
    if (change && !read_value(l, id, &value))
        return;
    if (read_object(path, SETTINGS_MAX, &all, &broken, &err)) {
        later_err(l, 503, &err); /* nothing is changed that was not read */
    } else if (!change) {
        json_t *v = id ? json_object_get(all, id) : all;
        later_json(l, 200, v ? json_incref(v) : json_null());
    } else if (apply(l, id, all, value)) {
        l->failed = path_make_dirs(root, &l->err);
        if (!l->failed)
            l->failed = write_object(l->server, path, all, SETTINGS_MAX, broken, &l->err);
    }
    json_decref(all);
    json_decref(value);
}

void later_settings(struct later *l)
{
    struct str root = { 0 }, path = { 0 };
    const char *id = l->r->params ? str_c(&l->r->param[0]) : NULL;
    int status = user_root(l->server, l->r->user, &root);
    str_addf(&path, "%s/comfy.settings.json", str_c(&root));
    if (status)
        later_text(l, status, status == 401 ? "unknown user" : "the users cannot be read");
    else if (path.bad)
        later_json(l, 500, NULL);
    else
        settings_of(l, id, root.p, path.p);
    str_release(&root);
    str_release(&path);
}
