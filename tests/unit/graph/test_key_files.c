/* A file that was replaced or written again changes the keys of the nodes that name it: for every
 * class that can run, and for embeddings in texts. */
#include "graph/cache.h"
#include "support/names_has.h"
#include "support/test.h"
#include "support/tmp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct node_env env;

static int setup(void **state)
{
    static struct folders *f;
    berth_err err = { 0 };
    (void)state;
    assert_ok(folders_new(&(struct folders_config) { .base = tmp_dir() }, &f, &err), err);
    env.folders = f;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folders_free(env.folders);
    return 0;
}

/* Another file under the same name, of the same size. */
static void replace(const char *path)
{
    char next[1200];
    snprintf(next, sizeof next, "%s.next", path);
    FILE *f = fopen(next, "w");
    assert_non_null(f);
    fputs("weights", f);
    fclose(f);
    assert_int_equal(rename(next, path), 0);
}

static void path_of(const char *folder, const char *name, char *out, size_t cap)
{
    berth_err err = { 0 };
    const char *dir = folders_dir(env.folders, folders_find(env.folders, folder, false), 0);
    assert_ok(path_make_dirs(dir, &err), err);
    snprintf(out, cap, "%s/%s", dir, name);
}

static char *key_of(const struct node_class *cls, const char *input, const char *text)
{
    struct str out = { 0 };
    json_t *inputs = json_pack("{s:s}", input, text);
    key_files(&env, &(struct wf_node) { .in = cls->in, .ins = cls->ins, .inputs = inputs }, &out);
    json_decref(inputs);
    char *hex = calloc(out.n * 2 + 1, 1);
    for (size_t i = 0; i < out.n; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)out.p[i]);
    str_release(&out);
    return hex;
}

static void expect_change(const struct node_class *cls, const char *input, const char *text,
                          const char *path)
{
    char *before = key_of(cls, input, text), *same = key_of(cls, input, text), *after, *touched;
    assert_string_equal(before, same);
    replace(path);
    after = key_of(cls, input, text);
    assert_string_not_equal(before, after);
    const struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1, .tv_nsec = 1 } };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0); /* written in place */
    touched = key_of(cls, input, text);
    assert_string_not_equal(after, touched);
    free(before);
    free(same);
    free(after);
    free(touched);
}

/* Does a class that can run list files of model folders without saying which? */
static void check_choices(const struct node_class *cls, const struct node_input *in)
{
    struct names list = { 0 };
    berth_err err = { 0 };
    if (!in->options_fn || in->folder || in->files || in->options_fn(&env, &list, &err))
        return;
    names_sort(&list);
    if (names_has(&list, "zz.safetensors"))
        fail_msg("%s lists files for '%s' and does not say of which folder", cls->name, in->name);
    names_release(&list);
}

static void every_loader(void **state)
{
    size_t loaders = 0;
    char path[1024];
    (void)state;
    for (size_t i = 0; i < folders_count(env.folders); i++) {
        path_of(folders_key(env.folders, i), "zz.safetensors", path, sizeof path);
        replace(path);
    }
    for (size_t i = 0; i < node_count(); i++)
        for (size_t k = 0; k < node_at(i)->ins && !node_cannot_run(node_at(i)); k++) {
            const struct node_input *in = &node_at(i)->in[k];
            const char *folder = in->folder ? in->folder : in->files;
            check_choices(node_at(i), in);
            if (!folder)
                continue;
            path_of(folder, "m.safetensors", path, sizeof path);
            replace(path);
            expect_change(node_at(i), in->name, "m.safetensors", path);
            loaders++;
        }
    assert_true(loaders > 30);
}

static void embeddings(void **state)
{
    const struct node_class *cls = node_find("CLIPTextEncode");
    char cat[1024], other[1024];
    (void)state;
    path_of("embeddings", "cat.safetensors", cat, sizeof cat);
    path_of("embeddings", "dog.pt", other, sizeof other);
    replace(cat);
    replace(other);
    expect_change(cls, "text", "a (embedding:cat:1.2), b", cat);
    expect_change(cls, "text", "embedding:cat.safetensors embedding:dog", other);
    expect_change(node_find("PrimitiveString"), "value", "embedding:cat",
                  cat); /* linked from there */
    char *before = key_of(cls, "text", "embedding:cat"), *plain = key_of(cls, "text", "a cat");
    replace(other);
    char *after = key_of(cls, "text", "embedding:cat");
    assert_string_equal(before, after); /* of others nothing */
    assert_string_equal(plain, "");
    free(before);
    free(after);
    free(plain);
}

static void what_is_not_there(void **state)
{
    const struct node_class *cls = node_find("CheckpointLoaderSimple");
    char *gone = key_of(cls, "ckpt_name", "none.safetensors");
    struct node_env nothing = { 0 };
    struct str out = { 0 };
    (void)state;
    assert_string_equal(gone, ""); /* the loader will say it */
    free(gone);
    key_files(&nothing, &(struct wf_node) { .in = cls->in, .ins = cls->ins }, &out);
    assert_int_equal(out.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_loader),
        cmocka_unit_test(embeddings),
        cmocka_unit_test(what_is_not_there),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
