/* berth ps: what a running server holds, and what it is doing. */
#include "app/client.h"

#include <inttypes.h>

#define SECONDS 10

static uint64_t number(const json_t *o, const char *key)
{
    uint64_t v = 0;
    (void)js_get_u64(json_object_get(o, key), &v);
    return v;
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "-";
}

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

static void print_models(const struct app *a, const json_t *models)
{
    const char *bold = term_style(&a->out, STYLE_BOLD), *off = term_style(&a->out, STYLE_RESET);
    if (!json_array_size(models)) {
        printf("no models\n");
        return;
    }
    printf("%s%4s  %-28s %-8s %-10s %-6s %9s  where%s\n", bold, "id", "model", "role", "state",
           "keep?", "size", off);
    size_t i;
    json_t *m;
    json_array_foreach(models, i, m)
    {
        struct str name = { 0 }, where = { 0 };
        char buf[STR_BYTES_MAX];
        term_safe(&name, text(m, "name"), strlen(text(m, "name")), 28);
        places(m, &where);
        printf("%4" PRIu64 "  %-28s %-8.8s %-10s %-6s %9s  %s\n", number(m, "id"), str_c(&name),
               text(m, "role"), text(m, "state"), text(m, "retention"),
               str_bytes(number(m, "bytes"), buf), str_c(&where));
        str_release(&name);
        str_release(&where);
    }
}

static void print_devices(const json_t *devices)
{
    size_t i;
    json_t *d;
    json_array_foreach(devices, i, d)
    {
        char used[STR_BYTES_MAX], budget[STR_BYTES_MAX], idle[STR_BYTES_MAX];
        printf("%-12s %9s of %s in use, %s idle\n", text(d, "name"),
               str_bytes(number(d, "in_use"), used), str_bytes(number(d, "budget"), budget),
               str_bytes(number(d, "idle"), idle));
    }
}

static void print_queue(const json_t *queue, bool paused)
{
    const json_t *running = json_array_get(json_object_get(queue, "queue_running"), 0);
    size_t waiting = json_array_size(json_object_get(queue, "queue_pending"));
    if (running)
        printf("running  %s", json_string_value(json_array_get(running, 1)));
    else
        printf("idle");
    printf(", %zu waiting%s\n", waiting,
           paused ? "; paused: POST /berth/queue {\"paused\": false} lets it go on" : "");
}

static int run_ps(struct app *a, int argc, char **argv)
{
    struct client c = { 0 };
    bool json = false;
    const struct opt table[] = {
        { .name = "json", .help = "print JSON", .to = &json },
        CLIENT_OPTIONS(&c),
    };
    int n, code;
    if (!app_args(a, &command_ps, table, ARRAY_LEN(table), argc, argv, &n, &code))
        return code;
    if (n)
        return app_usage(a, "'%.80s': ps takes options only", argv[0]);
    a->json = json;
    json_t *models = NULL, *devices = NULL, *queue = NULL, *state = NULL;
    berth_err err;
    if (client_json(&c, "/berth/models", NULL, SECONDS, &models, &err) ||
        client_json(&c, "/berth/devices", NULL, SECONDS, &devices, &err) ||
        client_json(&c, "/queue", NULL, SECONDS, &queue, &err) ||
        client_json(&c, "/berth/queue", NULL, SECONDS, &state, &err)) {
        code = app_fail(a, &err);
    } else if (json) {
        json_t *all =
            json_pack("{s:O*, s:O*, s:O*, s:O*}", "models", json_object_get(models, "models"),
                      "devices", json_object_get(devices, "devices"), "queue", queue, "paused",
                      json_object_get(state, "paused"));
        struct str s = { 0 };
        js_write(all, 2, &s);
        printf("%s\n", str_c(&s));
        str_release(&s);
        json_decref(all);
    } else {
        print_queue(queue, json_is_true(json_object_get(state, "paused")));
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
            "weights; 'where' says how much of them lies on which device right now.\n",
    .run = run_ps,
};
