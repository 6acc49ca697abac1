/* key_files: files that a node's constants name, as part of its key: one that was replaced or
 * written again is read again by the next prompt. Files are identified as models are in the
 * registry: by device, inode, size and time. Images and latents are identified by their contents
 * (IS_CHANGED). */
#include "base/file.h"
#include "graph/cache.h"

#define EMBEDDING "embedding:" /* what a text refers to embedding files by */

/* Adds nothing for a missing file: its loader reports that. */
static void put_file(const struct node_env *env, const char *folder, const char *name,
                     struct str *out)
{
    struct str path = { 0 };
    struct file_id id;
    berth_err none;
    if (!folders_resolve(env->folders, folder, name, &path, &none) && file_id_of(str_c(&path), &id))
        str_add(out, (const char *)&id, sizeof id);
    str_release(&path);
}

/* Is the file's name, without folder and ending, in the text? More than what the prompt's reader
 * takes for a name, never less. */
static bool is_named(const char *text, const char *file)
{
    const char *base = strrchr(file, '/');
    base = base ? base + 1 : file;
    const char *dot = strrchr(base, '.');
    size_t n = dot && dot > base ? (size_t)(dot - base) : strlen(base);
    return memmem(text, strlen(text), base, n) != NULL;
}

static void put_embeddings(const struct node_env *env, const char *text, struct str *out)
{
    struct names list = { 0 };
    berth_err none;
    if (!folders_list(env->folders, "embeddings", &list, &none))
        for (size_t i = 0; i < list.n; i++)
            if (is_named(text, list.at[i])) {
                str_adds(out, list.at[i]);
                put_file(env, "embeddings", list.at[i], out);
            }
    names_release(&list);
}

void key_files(const struct node_env *env, const struct wf_node *n, struct str *out)
{
    if (!env->folders)
        return;
    for (size_t i = 0; i < n->ins; i++) {
        const struct node_input *in = &n->in[i];
        const char *text = json_string_value(json_object_get(n->inputs, in->name));
        const char *folder = in->folder ? in->folder : in->files;
        if (text && folder)
            put_file(env, folder, text, out);
        else if (text && strstr(text, EMBEDDING))
            put_embeddings(env, text, out);
    }
}
