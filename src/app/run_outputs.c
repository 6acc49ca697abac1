#include "app/run.h"

#include "base/file.h"
#include "engine/engine.h"
#include "image/image.h"

#define SHOW_SECONDS 60

/* Outside text, with a line end if it has none. A terminal would obey control characters: there
 * they are escaped, line by line; a file or a pipe gets the bytes. */
static void print_text(FILE *out, const struct term *t, const char *text)
{
    struct str s = { 0 };
    do {
        size_t n = strcspn(text, "\n");
        if (t->tty)
            term_safe(&s, text, n, 0);
        else
            str_add(&s, text, n);
        str_addc(&s, '\n');
        text += n + (text[n] == '\n');
    } while (*text);
    fputs(str_c(&s), out);
    str_release(&s);
}

static void each_file(const struct run_place *at, const json_t *item, struct str *out)
{
    str_clear(out);
    if (at->folders) {
        engine_file_path(at->folders, item, out);
        return;
    }
    const char *name = json_string_value(json_object_get(item, "filename"));
    const char *sub = json_string_value(json_object_get(item, "subfolder"));
    const char *kind = json_string_value(json_object_get(item, "type"));
    if (name && kind)
        client_view_url(at->client, name, sub, kind, out);
}

static berth_status read_picture(const struct run_place *at, const json_t *item, const char *path,
                                 struct str *out, berth_err *err)
{
    char *bytes = NULL;
    size_t n;
    berth_status s;
    if (at->client) {
        struct str view = { 0 };
        struct client c = *at->client;
        client_view_path(json_string_value(json_object_get(item, "filename")),
                         json_string_value(json_object_get(item, "subfolder")),
                         json_string_value(json_object_get(item, "type")), &view);
        s = client_bytes(&c, str_c(&view), SHOW_SECONDS, out, err);
        str_release(&view);
        return s;
    }
    s = file_read_all(path, SHOW_BYTES_MAX, &bytes, &n, err);
    if (!s)
        str_add(out, bytes, n);
    free(bytes);
    return s;
}

/* --show. What cannot be shown is in its file all the same: no failure. */
static void show_file(const struct app *a, const struct run_place *at, const json_t *item,
                      const char *path)
{
    struct str bytes = { 0 }, lines = { 0 };
    berth_err err;
    const char *name = json_string_value(json_object_get(item, "filename"));
    if (!name || !image_reads(name))
        return;
    if (read_picture(at, item, path, &bytes, &err) ||
        show_picture(str_c(&bytes), bytes.n, a->out.width - 1, &lines, &err))
        log_warn(&a->log, "run.show", "file=\"%s\" error=\"%s\"", path, err.msg);
    else
        fputs(str_c(&lines), stdout);
    str_release(&bytes);
    str_release(&lines);
}

void run_outputs_print(const struct app *a, const struct run_place *at, bool show,
                       const json_t *outputs)
{
    show &= a->out.photos;
    const char *id, *key;
    json_t *ui, *list, *item;
    size_t i;
    struct str s = { 0 };
    json_object_foreach((json_t *)(uintptr_t)outputs, id, ui) json_object_foreach(ui, key, list)
        json_array_foreach(list, i, item)
    {
        each_file(at, item, &s);
        if (s.n && show)
            show_file(a, at, item, str_c(&s));
        if (s.n)
            print_text(stdout, &a->out, str_c(&s));
        else if (json_is_string(item))
            print_text(stdout, &a->out, json_string_value(item));
    }
    str_release(&s);
}

void run_outputs_json(const struct run_place *at, json_t *outputs, json_t *status,
                      json_t *node_errors)
{
    json_t *files = json_array(), *all;
    const char *id, *key;
    json_t *ui, *list, *item;
    size_t i;
    struct str s = { 0 };
    json_object_foreach(outputs, id, ui) json_object_foreach(ui, key, list)
        json_array_foreach(list, i, item)
    {
        each_file(at, item, &s);
        if (s.n)
            json_array_append_new(files, json_string(str_c(&s)));
    }
    all = json_pack("{s:o, s:O*, s:O*, s:O*}", "files", files, "outputs", outputs, "status", status,
                    "node_errors", node_errors);
    str_release(&s);
    client_print(all);
    json_decref(all);
}

void run_tiles_print(const struct app *a, const json_t *status)
{
    const json_t *networks = json_object_get(json_object_get(status, "berth"), "networks"), *n;
    const char *before = NULL; /* a list of pictures has an entry for each */
    size_t i;
    json_array_foreach(networks, i, n)
    {
        const char *node = json_string_value(json_object_get(n, "node"));
        const char *device = json_string_value(json_object_get(n, "device"));
        const char *what = json_string_value(json_object_get(n, "what"));
        json_int_t tiles = json_integer_value(json_object_get(n, "tiles"));
        if (tiles <= 0 || !node || !device || !what || (before && !strcmp(before, node)))
            continue;
        struct str s = { 0 };
        str_addf(&s,
                 "node %s %sd in %" JSON_INTEGER_FORMAT " tiles: %s was full; the picture may "
                 "differ from one %sd whole (docs/images.md)",
                 node, what, tiles, device, what);
        print_text(stderr, &a->err, str_c(&s));
        str_release(&s);
        before = node;
    }
}

void run_failure_print(const struct app *a, const json_t *data)
{
    const char *what = json_string_value(json_object_get(data, "exception_message"));
    const char *node = json_string_value(json_object_get(data, "node_id"));
    const char *cls = json_string_value(json_object_get(data, "node_type"));
    struct str s = { 0 };
    str_adds(&s, "berth run: ");
    if (node && *node)
        str_addf(&s, "node %s (%s): ", node, cls ? cls : "?");
    str_adds(&s, what && *what ? what : "failed");
    print_text(stderr, &a->err, str_c(&s));
    str_release(&s);
}
