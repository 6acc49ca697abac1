/* input_file.c: files people put into the input folder. */
#include "base/file.h"
#include "base/sha256.h"
#include "node/node_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_BYTES_MAX ((size_t)1 << 30)

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
static const char *text_input(const struct node_check *k, const char *input)
{
    const json_t *v = check_input(k, input);
    return v && js_kind(v) == JS_STRING ? json_string_value(v) : NULL;
}

berth_status input_changed(const struct node_check *k, const char *input, struct str *out,
                           berth_err *err)
{
    const char *name = text_input(k, input);
    char *p = NULL, hex[SHA256_HEX];
    size_t n;
    if (!name)
        return err_set(err, BERTH_EINVAL, "'%s' is not known before the node runs", input);
    berth_status s = input_read(k->env, name, &p, &n, err);
    if (s)
        return s;
    sha256_hex(p, n, hex);
    free(p);
    str_adds(out, hex);
    return out->bad ? err_set(err, BERTH_ENOMEM, "hash of '%s'", name) : BERTH_OK;
}

berth_status input_validate(const struct node_check *k, const char *input, const char *what,
                            berth_err *err)
{
    const char *name = text_input(k, input);
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

berth_status input_videos(const struct node_env *env, struct names *out, berth_err *err)
{
    struct names all = { 0 };
    berth_status s = folders_inputs(env->folders, false, &all, err);
    for (size_t i = 0; !s && i < all.n; i++)
        if (!strncmp(path_mime(all.at[i]), "video/", 6) &&
            !names_add(out, all.at[i], strlen(all.at[i])))
            s = err_set(err, BERTH_ENOMEM, "listing videos");
    names_release(&all);
    return s;
}
