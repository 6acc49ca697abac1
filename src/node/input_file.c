/* input_file.c: files people put into the input folder. */
#include "base/file.h"
#include "base/sha256.h"
#include "node/node_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_BYTES_MAX ((size_t)1 << 30)
#define HASH_PIECE ((size_t)1 << 20)

berth_status input_path(const struct node_env *env, const char *name, struct str *out,
                        berth_err *err)
{
    struct annotated a = path_annotated(name, strlen(name));
    const char *root = folders_by_kind(env->folders, a.kind ? a.kind : "input");
    return path_inside(root, a.name, a.n, false, out, err);
}

berth_status input_read(const struct node_env *env, const char *name, char **out, size_t *n,
                        berth_err *err)
{
    struct str path = { 0 };
    *out = NULL;
    berth_status s = input_path(env, name, &path, err);
    if (!s)
        s = file_read_all(str_c(&path), INPUT_BYTES_MAX, out, n, err);
    str_release(&path);
    return s;
}

/* NULL: a link, which a check does not see, or no text. */
static const char *text_input(const struct node_check *k)
{
    const json_t *v = check_input(k, k->cls->validates);
    return v && js_kind(v) == JS_STRING ? json_string_value(v) : NULL;
}

void file_hashes_release(struct file_hashes *h)
{
    map_release(&h->by_file);
    arena_release(&h->ids);
    vec_release(&h->hex);
    *h = (struct file_hashes) { 0 };
}

/* A file's bytes, piece by piece: a large one must not hold up an interrupt. */
static berth_status hash_pieces(const struct file_map *m, const atomic_bool *cancel,
                                char hex[SHA256_HEX], berth_err *err)
{
    struct sha256 sum;
    size_t n = m->size;
    if (n > INPUT_BYTES_MAX)
        return err_set(err, BERTH_ELIMIT, "'%s': %zu bytes, at most %zu are read", m->path, n,
                       INPUT_BYTES_MAX);
    sha256_init(&sum);
    for (size_t at = 0, len; at < n; at += len) {
        len = n - at < HASH_PIECE ? n - at : HASH_PIECE;
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
            return err_set(err, BERTH_ECANCELED, "interrupted");
        sha256_add(&sum, m->data + at, len);
    }
    sha256_end(&sum, hex);
    return file_map_check(m, err);
}

static berth_status remember(struct file_hashes *h, const struct file_id *id,
                             const char hex[SHA256_HEX], berth_err *err)
{
    h->hex.elem = SHA256_HEX;
    char *to = vec_add(&h->hex);
    struct file_id *key = arena_alloc(&h->ids, sizeof *key);
    if (key)
        *key = *id;
    if (!to || !key ||
        map_add(&h->by_file, (const char *)key, sizeof *key, h->hex.n - 1) == MAP_NOMEM)
        return err_set(err, BERTH_ENOMEM, "hashes of files");
    memcpy(to, hex, SHA256_HEX);
    return BERTH_OK;
}

/* Within a prompt a file that has its size and time is not read twice. Between prompts it is: a
 * file may be written twice within a tick of the clock that its time is from. */
static berth_status hash_file(const struct node_check *k, const char *path, char hex[SHA256_HEX],
                              berth_err *err)
{
    struct file_map *m;
    uint64_t i;
    if (file_map_open(path, &m, err))
        return err->code;
    struct file_id id = m->id;
    berth_status s = BERTH_OK;
    if (k->hashes && map_get(&k->hashes->by_file, (const char *)&id, sizeof id, &i)) {
        memcpy(hex, vec_at(&k->hashes->hex, (size_t)i), SHA256_HEX);
    } else {
        s = hash_pieces(m, k->cancel, hex, err);
        if (!s && k->hashes)
            s = remember(k->hashes, &id, hex, err);
    }
    file_map_close(m);
    return s;
}

berth_status input_changed(const struct node_check *k, struct str *out, berth_err *err)
{
    const char *name = text_input(k);
    struct str path = { 0 };
    char hex[SHA256_HEX];
    if (!name)
        return err_set(err, BERTH_EINVAL, "'%s' is not known before the node runs",
                       k->cls->validates);
    berth_status s = input_path(k->env, name, &path, err);
    if (!s)
        s = hash_file(k, str_c(&path), hex, err);
    str_release(&path);
    if (s)
        return s;
    str_adds(out, hex);
    return out->bad ? err_set(err, BERTH_ENOMEM, "hash of '%s'", name) : BERTH_OK;
}

berth_status input_there(const struct node_check *k, const char *what, berth_err *err)
{
    const char *name = text_input(k);
    struct str path = { 0 };
    struct stat st;
    berth_err inner;
    if (!name)
        return BERTH_OK;
    berth_status s = input_path(k->env, name, &path, &inner);
    bool there = !s && !stat(str_c(&path), &st) && S_ISREG(st.st_mode);
    str_release(&path);
    if (s == BERTH_ENOMEM)
        return err_set(err, s, "looking for '%s'", name);
    return there ? BERTH_OK : err_set(err, BERTH_EINVAL, "Invalid %s file: %s", what, name);
}

berth_status input_validate(const struct node_check *k, berth_err *err)
{
    return input_there(k, k->cls->validates, err);
}

berth_status input_list(const struct node_env *env, bool (*wanted)(const char *name),
                        struct names *out, berth_err *err)
{
    struct names all = { 0 };
    berth_status s = folders_inputs(env->folders, &all, err);
    for (size_t i = 0; !s && i < all.n; i++)
        if (wanted(all.at[i]) && !names_add(out, all.at[i], strlen(all.at[i])))
            s = err_set(err, BERTH_ENOMEM, "listing files");
    names_release(&all);
    return s;
}

static bool is_video(const char *name)
{
    return !strncmp(path_mime(name), "video/", 6);
}

berth_status input_videos(const struct node_env *env, struct names *out, berth_err *err)
{
    return input_list(env, is_video, out, err);
}
