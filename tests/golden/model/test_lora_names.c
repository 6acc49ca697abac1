/* What ComfyUI calls the tensors of each family in adapter files, made by
 * tools/golden/lora_names.py: every name has to be known here, for the same rows of the same
 * tensor. */
#include "support/golden.h"
#include "support/presets.h"

#include "base/map.h"
#include "base/str.h"
#include "model/lora_names.h"

#include <inttypes.h>

struct known {
    struct lora_table table;
    struct map at; /* base name -> index; the last one counts */
};

static void learn(struct known *k, char *presets)
{
    berth_err err = { 0 };
    char *rest, *preset = strtok_r(presets, "+\n", &rest);
    for (; preset; preset = strtok_r(NULL, "+\n", &rest)) {
        struct weights *w;
        assert_ok(weights_open(preset_file(preset, DT_F8_E4M3), NULL, &w, &err), err);
        assert_ok(lora_names_file(&k->table, w, NULL, &err), err);
        weights_close(w);
    }
    const struct lora_names names = lora_table_names(&k->table);
    for (size_t i = names.n; i--;)
        assert_true(map_add(&k->at, names.at[i].base, strlen(names.at[i].base), i) != MAP_NOMEM);
}

static void forget(struct known *k)
{
    lora_table_release(&k->table);
    map_release(&k->at);
    *k = (struct known) { 0 };
}

struct want {
    char key[256];
    uint64_t row, rows;
    bool swap;
};

static void read_want(const char *line, struct want *w)
{
    char how[8] = "";
    *w = (struct want) { .key = "" };
    if (sscanf(line, "%255s %" SCNu64 " %" SCNu64, w->key, &w->row, &w->rows) != 3)
        assert_true(sscanf(line, "%255s %7s", w->key, how) >= 1);
    w->swap = strcmp(how, "swap") == 0;
}

/* Languages' and CLIP's keys begin with the name of the set's encoder, which differs by set. */
static bool same_key(const char *ours, const char *theirs)
{
    const char *a = strstr(ours, ".transformer."), *b = strstr(theirs, ".transformer.");
    return strcmp(ours, theirs) == 0 || (a && b && strcmp(a, b) == 0);
}

static bool is_known(const struct known *k, const char *name, const struct want *w)
{
    const struct lora_names names = lora_table_names(&k->table);
    uint64_t at;
    if (!map_get(&k->at, name, strlen(name), &at))
        return false;
    const struct lora_name *n = &names.at[at];
    return same_key(n->key, w->key) && n->row == w->row && n->rows == w->rows && n->swap == w->swap;
}

static void every_name_is_known(void **state)
{
    (void)state;
    char line[512], model[128] = "";
    struct known k = { 0 };
    struct want want = { .key = "" };
    size_t names = 0, models = 0, missing = 0;
    FILE *f = fopen(golden_path("lora_names.txt"), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (*line == '=') {
            forget(&k);
            snprintf(model, sizeof model, "%.100s", line + 2);
            learn(&k, line + 2);
            models++;
        } else if (*line != ' ' && *line != '#') {
            read_want(line, &want);
        } else if (*line == ' ') {
            names++;
            if (!is_known(&k, line + 2, &want) && missing++ < 4000)
                print_message("%s: '%s' is not %s, rows %" PRIu64 " + %" PRIu64 "%s\n", model,
                              line + 2, want.key, want.row, want.rows,
                              want.swap ? ", swapped" : "");
        }
    }
    fclose(f);
    forget(&k);
    print_message("%zu names of %zu models, %zu of them unknown\n", names, models, missing);
    assert_true(models > 10 && names > 1000);
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_name_is_known) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
