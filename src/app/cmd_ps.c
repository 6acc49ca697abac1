/* berth ps: what a running server holds, and what it is doing. */
#include "app/client.h"

#include <inttypes.h>

#define SECONDS 10

/* "cpu 1.2 GiB, null:0 300 MiB" */
static void places(const json_t *model, struct str *out)
{
    const char *dev;
    json_t *v, *on = json_object_get(model, "devices");
    json_object_foreach(on, dev, v)
    {
        uint64_t n = 0;
        char buf[STR_BYTES_MAX];
        if (!js_get_u64(v, &n) || !n)
            continue;
        str_addf(out, "%s", out->n ? ", " : "");
        term_safe(out, dev, strlen(dev), 24);
        str_addf(out, " %s", str_bytes(n, buf));
    }
}

#define NAME_MAX_ 48 /* columns; longer ones are cut */

/* The same file twice, perhaps: " as F8_E4M3". */
static const char *converted(const json_t *m, char as[16])
{
    as[0] = '\0';
    if (json_is_string(json_object_get(m, "converted")))
        snprintf(as, 16, " as %.11s", client_text(m, "converted"));
    return as;
}

static size_t longest_name(const json_t *list, const char *heading)
{
    size_t i, most = strlen(heading);
    json_t *x;
    json_array_foreach(list, i, x)
    {
        char as[16];
        struct str name = { 0 };
        term_safe(&name, client_text(x, "name"), strlen(client_text(x, "name")), 0);
        size_t n = term_width_of(str_c(&name)) + strlen(converted(x, as));
        most = n > most ? n : most;
        str_release(&name);
    }
    return most < NAME_MAX_ ? most : NAME_MAX_;
}

static void add_cell(struct str *out, const char *text, size_t width)
{
    term_cell(out, text, strlen(text), width);
}

/* Name and type in `width` columns: what the model was made into is never cut. */
static void add_name(struct str *out, const json_t *m, size_t width)
{
    struct str name = { 0 };
    char as[16];
    const char *text = client_text(m, "name");
    size_t room = width - strlen(converted(m, as));
    term_safe(&name, text, strlen(text), 0);
    if (term_width_of(str_c(&name)) > room) {
        str_clear(&name);
        term_safe(&name, text, strlen(text), room - 3);
    }
    str_adds(&name, as);
    for (size_t used = term_width_of(str_c(&name)); used < width; used++)
        str_addc(&name, ' ');
    str_adds(out, str_c(&name));
    str_release(&name);
}

static void print_model(const json_t *m, size_t width)
{
    struct str line = { 0 }, where = { 0 };
    char buf[STR_BYTES_MAX];
    str_addf(&line, "%4" PRIu64 "  ", client_u64(m, "id"));
    add_name(&line, m, width);
    str_addc(&line, ' ');
    add_cell(&line, client_text(m, "role"), 8);
    str_addc(&line, ' ');
    add_cell(&line, client_text(m, "state"), 10);
    str_addc(&line, ' ');
    add_cell(&line, client_text(m, "retention"), 6);
    places(m, &where);
    printf("%s %9s  %s\n", str_c(&line), str_bytes(client_u64(m, "bytes"), buf), str_c(&where));
    str_release(&line);
    str_release(&where);
}

static void print_models(const struct app *a, const json_t *models)
{
    const char *bold = term_style(&a->out, STYLE_BOLD), *off = term_style(&a->out, STYLE_RESET);
    size_t i, width = longest_name(models, "model");
    json_t *m;
    if (!json_array_size(models)) {
        printf("no models\n");
        return;
    }
    printf("%s%4s  %-*s %-8s %-10s %-6s %9s  where%s\n", bold, "id", (int)width, "model", "role",
           "state", "keep?", "size", off);
    json_array_foreach(models, i, m) print_model(m, width);
}

static void print_devices(const json_t *devices)
{
    size_t i, width = longest_name(devices, "");
    json_t *d;
    json_array_foreach(devices, i, d)
    {
        char used[STR_BYTES_MAX], budget[STR_BYTES_MAX], idle[STR_BYTES_MAX];
        struct str name = { 0 };
        add_cell(&name, client_text(d, "name"), width > 12 ? width : 12);
        printf("%s %9s of %s in use, %s idle\n", str_c(&name),
               str_bytes(client_u64(d, "in_use"), used), str_bytes(client_u64(d, "budget"), budget),
               str_bytes(client_u64(d, "idle"), idle));
        str_release(&name);
    }
}

/* ", node 5 (KSampler), 3 of 20": where the prompt is; nothing when it has moved on meanwhile. */
static void print_node(const json_t *running, const json_t *executing)
{
    const char *id = json_string_value(json_array_get(running, 1));
    const char *node = json_string_value(json_object_get(executing, "node"));
    const json_t *of = node ? json_object_get(json_array_get(running, 2), node) : NULL;
    uint64_t max = client_u64(executing, "max"), value = client_u64(executing, "value");
    struct str s = { 0 };
    if (!node || !id || strcmp(id, client_text(executing, "prompt_id")) != 0)
        return;
    str_adds(&s, ", node ");
    term_safe(&s, node, strlen(node), 40);
    if (of) {
        str_adds(&s, " (");
        term_safe(&s, client_text(of, "class_type"), strlen(client_text(of, "class_type")), 60);
        str_addc(&s, ')');
    }
    if (max > 1)
        str_addf(&s, ", %" PRIu64 " of %" PRIu64, value, max);
    fputs(str_c(&s), stdout);
    str_release(&s);
}

static void print_queue(const json_t *queue, const json_t *state)
{
    const json_t *running = json_array_get(json_object_get(queue, "queue_running"), 0);
    size_t waiting = json_array_size(json_object_get(queue, "queue_pending"));
    bool paused = json_is_true(json_object_get(state, "paused"));
    if (running)
        printf("running  %s", json_string_value(json_array_get(running, 1)));
    else
        printf("idle");
    print_node(running, json_object_get(state, "executing"));
    printf(", %zu waiting%s\n", waiting,
           paused
               ? "; paused: Resume on the dashboard (/berth) lets it go on, or POST /berth/queue "
                 "{\"paused\": false}"
               : "");
}

static int run_ps(struct app *a, int argc, char **argv)
{
    struct client c = { 0 };
    const struct opt table[] = {
        opt_flag("json", "print JSON", &a->json),
        CLIENT_OPTIONS(&c),
    };
    int n, code;
    if (!app_args(a, &command_ps, table, ARRAY_LEN(table), argc, argv, &n, &code))
        return code;
    if (n)
        return app_usage(a, "'%.80s': ps takes options only", argv[0]);
    c.quiet = a->quiet;
    json_t *models = NULL, *devices = NULL, *queue = NULL, *state = NULL;
    berth_err err;
    if (client_json(&c, "/berth/models", NULL, SECONDS, &models, &err) ||
        client_json(&c, "/berth/devices", NULL, SECONDS, &devices, &err) ||
        client_json(&c, "/queue", NULL, SECONDS, &queue, &err) ||
        client_json(&c, "/berth/queue", NULL, SECONDS, &state, &err)) {
        code = app_fail(a, &err);
    } else if (a->json) {
        json_t *all = json_pack(
            "{s:O*, s:O*, s:O*, s:O*, s:O*}", "models", json_object_get(models, "models"),
            "devices", json_object_get(devices, "devices"), "queue", queue, "paused",
            json_object_get(state, "paused"), "executing", json_object_get(state, "executing"));
        client_print(all);
        json_decref(all);
    } else {
        print_queue(queue, state);
        print_devices(json_object_get(devices, "devices"));
        print_models(a, json_object_get(models, "models"));
    }
    json_decref(models);
    json_decref(devices);
    json_decref(queue);
    json_decref(state);
    return code;
}

const struct command command_ps = {
    .name = "ps",
    .about = "show models, memory and queue of a running server",
    .usage = "[--server URL] [--json]",
    .more = "keep?: what a free may do with the model (auto, keep, eject). Sizes are of the\n"
            "weights; 'where' says how much of them is on which device right now.\n",
    .run = run_ps,
};
