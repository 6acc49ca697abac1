#include "app/serve_folders.h"

#include <limits.h>
#include <unistd.h>

/* Is the model in `dir`? If not, it is noted where it was looked for. */
static bool holds_model(const struct str *dir, struct str *places)
{
    struct str file = { 0 };
    str_addf(&file, "%s/" DEMO_MODEL, str_c(dir));
    bool there = !file.bad && access(str_c(&file), R_OK) == 0;
    if (!there)
        str_addf(places, "%s%s", places->n ? ", " : "", str_c(dir));
    str_release(&file);
    return there;
}

/* The path without its last `parts` names. */
static void add_parent(struct str *out, const char *path, int parts)
{
    size_t n = strlen(path);
    for (; parts > 0 && n; parts--)
        while (n && path[--n] != '/')
            ;
    str_add(out, path, n);
}

berth_status demo_find(struct str *out, berth_err *err)
{
    static const struct {
        int up; /* from the binary itself */
        const char *below;
    } place[] = { { 2, "/share/berth/demo" }, { 3, "/assets/demo" } };
    const char *data = getenv("BERTH_DATA_DIR");
    char self[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    struct str places = { 0 };
    bool found = false;
    str_clear(out);
    if (data && *data) {
        str_addf(out, "%s/demo", data);
        found = holds_model(out, &places);
    }
    for (size_t i = 0; n > 0 && !found && i < ARRAY_LEN(place); i++) {
        str_clear(out);
        add_parent(out, self, place[i].up);
        str_adds(out, place[i].below);
        found = holds_model(out, &places);
    }
    berth_status s = BERTH_OK;
    if (out->bad || places.bad)
        s = err_set(err, BERTH_ENOMEM, "looking for the demo model");
    else if (!found)
        s = err_set(err, BERTH_ENOTFOUND,
                    "--demo: " DEMO_MODEL " is in none of: %s; $BERTH_DATA_DIR/demo may name "
                    "another place",
                    places.n ? str_c(&places) : "nothing was looked at");
    str_release(&places);
    return s;
}
