#include "app/run_remote.h"

#include <unistd.h>

#define SECONDS 60
#define LOOK_EVERY_US 50000

static berth_status ask(const struct client *c, const char *path, json_t *body, json_t **out,
                        berth_err *err)
{
    struct str text = { 0 };
    js_write(body, -1, &text);
    berth_status s = body && !text.bad ? client_json(c, path, str_c(&text), SECONDS, out, err)
                                       : err_set(err, BERTH_ENOMEM, "the request");
    str_release(&text);
    json_decref(body);
    return s;
}

static berth_status look(const struct client *c, const char *id, json_t **item, berth_err *err)
{
    char path[128];
    json_t *history = NULL;
    snprintf(path, sizeof path, "/history/%.64s", id);
    berth_status s = client_json(c, path, NULL, SECONDS, &history, err);
    *item = json_incref(json_object_get(history, id));
    json_decref(history);
    return s;
}

berth_status run_remote(const struct client *c, const json_t *prompt, const json_t *extra,
                        const atomic_bool *stop, json_t **item, berth_err *err)
{
    json_t *answer = NULL, *ignored = NULL;
    *item = NULL;
    json_t *body = json_pack("{s:O, s:O*}", "prompt", prompt, "extra_data", extra);
    berth_status s = ask(c, "/prompt", body, &answer, err);
    const char *id = json_string_value(json_object_get(answer, "prompt_id"));
    if (!s && !id)
        s = err_set(err, BERTH_EFORMAT, "the server's answer has no prompt_id");
    while (!s && !*item && !atomic_load(stop)) {
        s = look(c, id, item, err);
        if (!s && !*item)
            usleep(LOOK_EVERY_US);
    }
    if (!s &&
        !*item) { /* Ctrl-C: it shall not go on. Out of the queue first: it cannot start then */
        s = ask(c, "/queue", json_pack("{s:[s]}", "delete", id), &ignored, err);
        json_decref(ignored);
        ignored = NULL;
        if (!s)
            s = ask(c, "/interrupt", json_pack("{s:s}", "prompt_id", id), &ignored, err);
        json_decref(ignored);
    }
    json_decref(answer);
    return s;
}
