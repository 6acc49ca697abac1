/* jsonget FILE [PATH]: checks that FILE is strict JSON and prints the value at PATH, a string bare,
 * everything else as JSON. PATH: steps with '/' between them: "0/tensors"; "#" is the size of a
 * list or object. Exit 1 when the file or the path is no good. */
#include "base/json.h"
#include "support/json_file.h"

static json_t *step(json_t *v, const char *name)
{
    if (js_kind(v) == JS_OBJECT)
        return json_object_get(v, name);
    uint64_t i;
    if (js_kind(v) == JS_ARRAY && str_parse_u64(name, strlen(name), &i))
        return json_array_get(v, (size_t)i);
    return NULL;
}

static int print(const json_t *v)
{
    struct str s = { 0 };
    if (js_kind(v) == JS_STRING)
        str_add(&s, json_string_value(v), json_string_length(v));
    else
        js_write(v, 0, &s);
    bool ok = !s.bad && puts(str_c(&s)) >= 0;
    str_release(&s);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    json_t *root;
    berth_err err;
    if (argc < 2 || js_parse_file(argv[1], NULL, &root, &err)) {
        fprintf(stderr, "jsonget: %s\n", argc < 2 ? "which file?" : err.msg);
        return 1;
    }
    json_t *v = root;
    char *rest = argc > 2 ? argv[2] : NULL;
    for (char *name; rest && v && (name = strsep(&rest, "/"));) {
        if (!strcmp(name, "#")) {
            printf("%zu\n", js_kind(v) == JS_OBJECT ? json_object_size(v) : json_array_size(v));
            json_decref(root);
            return 0;
        }
        v = step(v, name);
    }
    int code = v ? argc > 2 ? print(v) : 0 : 1;
    if (!v)
        fprintf(stderr, "jsonget: nothing there\n");
    json_decref(root);
    return code;
}
