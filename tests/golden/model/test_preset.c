/* Presets against the key lists of the real models (*_keys.json), whichever the folder holds.
 *
 * A list belongs to the first preset that has all of its tensors in their shapes, and every tensor
 * of a preset that owns a list must be in one of its lists. Presets without any list are the
 * full-size ones. */
#include "support/golden.h"
#include "support/json_file.h"
#include "support/test.h"

#include "base/json.h"
#include "model/preset.h"

#include <dirent.h>

#define LISTS_MAX 256

static json_t *lists[LISTS_MAX];
static char *list_name[LISTS_MAX];
static size_t list_count;

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

static int load_lists(void **state)
{
    (void)state;
    DIR *d = opendir(golden_dir());
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));)
        if (ends_with(e->d_name, "_keys.json") && list_count < LISTS_MAX) {
            berth_err err;
            if (js_parse_file(golden_path(e->d_name), NULL, &lists[list_count], &err)) {
                print_message("%s\n", err.msg);
                closedir(d);
                return -1;
            }
            list_name[list_count++] = strdup(e->d_name);
        }
    closedir(d);
    return 0;
}

static int drop_lists(void **state)
{
    (void)state;
    for (size_t i = 0; i < list_count; i++) {
        json_decref(lists[i]);
        free(list_name[i]);
    }
    return 0;
}

static size_t find(const struct keys *k, const char *name)
{
    for (size_t i = 0; i < k->n; i++)
        if (!strcmp(k->at[i].name, name))
            return i;
    return SIZE_MAX;
}

static bool same_shape(const struct shape *s, const json_t *dims)
{
    bool same = json_array_size(dims) == (size_t)s->ndim;
    for (int i = 0; same && i < s->ndim; i++)
        same = json_integer_value(json_array_get(dims, (size_t)i)) == (json_int_t)s->dim[i];
    return same;
}

static void compare_shape(const char *list, const struct key *key, const json_t *dims)
{
    char text[SHAPE_TEXT_MAX];
    if (!same_shape(&key->shape, dims))
        fail_msg("%s: '%s' has another shape than %s", list, key->name,
                 shape_text(&key->shape, text));
}

/* The list as one stretch of the preset from `at` on. */
static void compare_list(const char *list, const json_t *l, const struct keys *k, size_t at)
{
    const char *name;
    json_t *dims;
    json_object_foreach((json_t *)(uintptr_t)l, name, dims)
    {
        if (at == k->n || strcmp(k->at[at].name, name))
            fail_msg("%s: wants '%s', the preset has '%s' there", list, name,
                     at < k->n ? k->at[at].name : "nothing");
        compare_shape(list, &k->at[at++], dims);
    }
}

/* Has the preset all of the list's tensors, in these shapes? */
static bool has_all(const struct keys *k, const json_t *list)
{
    const char *name;
    json_t *dims;
    json_object_foreach((json_t *)(uintptr_t)list, name, dims)
    {
        size_t at = find(k, name);
        if (at == SIZE_MAX || !same_shape(&k->at[at].shape, dims))
            return false;
    }
    return true;
}

/* Lists of networks that no preset makes: control networks, and language models and those of video,
 * whose presets have other sizes than the goldens; of upscale models all but those that presets
 * make. */
static bool without_preset(const char *list)
{
    static const char *const begin[] = {
        "gemma",    "gligen",  "kontext",  "krea2_narrow", "llama",       "ltxv",
        "mistral",  "mochi",   "newbie",   "photomaker",   "qwen25",      "qwen3",
        "umt5",     "upscale", "uso",      "vae_ltxv",     "vae_mochi",   "wan22_i2v",
        "wan22_ti", "wan_",    "zcontrol", "zimage_look",  "zimage_omni", "zimage_steered",
    };
    for (size_t i = 0; i < ARRAY_LEN(begin); i++)
        if (strncmp(list, begin[i], strlen(begin[i])) == 0)
            return true;
    return ends_with(list, "_control_keys.json");
}

/* Lists of networks in sizes of their makers', some of which are a preset's by chance: all of it,
 * or none. */
static bool whole_or_none(const char *list)
{
    static const char *const begin[] = { "clip_vision", "controlnet", "hunyuan_video", "inpaint",
                                         "unclip" };
    for (size_t i = 0; i < ARRAY_LEN(begin); i++)
        if (strncmp(list, begin[i], strlen(begin[i])) == 0)
            return true;
    return ends_with(list, "_tool_keys.json");
}

static void presets_equal_the_key_lists(void **state)
{
    (void)state;
    assert_true(list_count > 0);
    bool used[LISTS_MAX] = { false };
    for (size_t p = 0; p < preset_count(); p++) {
        struct keys k = { 0 };
        berth_err err;
        size_t covered = 0, owned = 0;
        assert_ok(preset_keys(preset_at(p), &k, &err), err);
        for (size_t i = 0; i < list_count; i++) {
            /* flux-tiny and flux-dev share their names; the shapes tell whose list it is */
            if (used[i] || !has_all(&k, lists[i]) ||
                (whole_or_none(list_name[i]) && json_object_size(lists[i]) != k.n))
                continue;
            if (covered < k.n) /* makers of goldens may list the same network twice */
                covered += json_object_size(lists[i]);
            owned++;
            used[i] = true;
        }
        if (owned && covered != k.n)
            fail_msg("%s: %zu tensors, %zu of them in key lists", preset_at(p)->name, k.n, covered);
        print_message("%-14s %5zu tensors, %zu key lists\n", preset_at(p)->name, k.n, owned);
        keys_release(&k);
    }
    for (size_t i = 0; i < list_count; i++)
        if (!used[i] && !without_preset(list_name[i]) && !whole_or_none(list_name[i]))
            fail_msg("%s: no preset has these tensors", list_name[i]);
}

/* --keys reads the same files: what it makes of them is what the list says. */
static void key_lists_can_be_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < list_count; i++) {
        struct keys k = { 0 };
        berth_err err;
        assert_ok(keys_read(golden_path(list_name[i]), &k, &err), err);
        assert_int_equal(k.n, json_object_size(lists[i]));
        compare_list(list_name[i], lists[i], &k, 0);
        keys_release(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_equal_the_key_lists),
        cmocka_unit_test(key_lists_can_be_read),
    };
    return cmocka_run_group_tests(tests, load_lists, drop_lists);
}
