/* save.c: files that nodes leave behind, with the prompt they came from (paths/ names and writes
 * them). */
#include "node/node_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool text_add(struct saved *s, const char *key, const json_t *v)
{
    struct str text = { 0 };
    /* Other tools read workflows back from pictures: the same text that ComfyUI would write. */
    struct jsonout j = { .out = &text, .python = true };
    jo_value(&j, NULL, v);
    struct image_text *at = realloc(s->text, (s->texts + 1) * sizeof *at);
    if (at)
        s->text = at;
    char *k = strdup(key), *value = str_take(&text);
    str_release(&text);
    if (!at || !k || !value) {
        free(k);
        free(value);
        return false;
    }
    s->text[s->texts++] = (struct image_text) { .key = k, .value = value };
    return true;
}

static berth_status add_metadata(struct node_call *c, struct saved *s, berth_err *err)
{
    json_t *extra = (json_t *)(uintptr_t)c->extra_pnginfo; /* iterators want it without const */
    bool ok = !c->prompt || text_add(s, "prompt", c->prompt);
    for (void *i = json_object_iter(extra); ok && i; i = json_object_iter_next(extra, i))
        ok = text_add(s, json_object_iter_key(i), json_object_iter_value(i));
    return ok ? BERTH_OK : err_set(err, BERTH_ENOMEM, "metadata of %s", c->cls->name);
}

berth_status save_begin(struct node_call *c, const char *kind, const char *prefix, size_t w,
                        size_t h, struct saved *out, berth_err *err)
{
    *out = (struct saved) { .kind = kind };
    berth_status s = path_save(c->env->saves, folders_by_kind(c->env->folders, kind), prefix, w, h,
                               c->env->clock, &out->path, err);
    if (!s && !c->env->disable_metadata)
        s = add_metadata(c, out, err);
    if (s)
        save_end(out);
    return s;
}

void save_end(struct saved *s)
{
    for (size_t i = 0; i < s->texts; i++) {
        free(s->text[i].key);
        free(s->text[i].value);
    }
    free(s->text);
    save_path_release(&s->path);
    *s = (struct saved) { 0 };
}

berth_status save_add(struct node_call *c, struct saved *s, size_t batch, const char *ext,
                      const char *key, const struct str *bytes, berth_err *err)
{
    struct str name = { 0 };
    berth_status st =
        path_save_file(c->env->saves, &s->path, batch, ext, str_c(bytes), bytes->n, &name, err);
    if (!st)
        st = ui_add_file(c, key, str_c(&name), str_c(&s->path.subfolder), s->kind, err);
    str_release(&name);
    return st;
}

berth_status save_free_path(struct saved *s, const char *ext, struct str *out, berth_err *err)
{
    do {
        str_clear(out);
        str_addf(out, "%s/%s_%05" PRIu64 "_%s", str_c(&s->path.folder), str_c(&s->path.name),
                 s->path.counter++, ext);
    } while (!out->bad && access(str_c(out), F_OK) == 0);
    return out->bad ? err_set(err, BERTH_ENOMEM, "a path") : BERTH_OK;
}
