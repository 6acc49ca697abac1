/* berth keep, berth eject: mark models of a running server, so that a free knows what to take. */
#include "app/client.h"

#include <inttypes.h>

#define SECONDS 600 /* a mark is set between two steps of the running prompt */

struct options {
    struct client client;
    const char *retention; /* the mark to set */
};

/* "name#id", unambiguous even when a file is loaded twice. */
static void add_name(const json_t *model, struct str *out)
{
    str_addf(out, "%s#%" PRIu64, client_text(model, "name"), client_u64(model, "id"));
}

/* An id, a name, or name#id: as `berth free` takes them. */
static bool is_called(const json_t *model, const char *word)
{
    struct str full = { 0 };
    uint64_t id;
    add_name(model, &full);
    bool yes = !strcmp(client_text(model, "name"), word) || !strcmp(str_c(&full), word) ||
               (str_parse_u64(word, strlen(word), &id) && id == client_u64(model, "id"));
    str_release(&full);
    return yes;
}

static berth_status nobody_is_called(const json_t *models, const char *word, berth_err *err)
{
    struct str names = { 0 };
    size_t i;
    json_t *m;
    json_array_foreach(models, i, m)
    {
        str_adds(&names, i ? ", " : "");
        add_name(m, &names);
    }
    err_set(err, BERTH_ENOTFOUND, "no model is called '%.100s'; there are: %.300s", word,
            names.n && !names.bad ? str_c(&names) : "none");
    str_release(&names);
    return err->code;
}

/* Every word must name a model: nothing is marked when one does not. */
static berth_status check_words(const json_t *models, char **word, int n, berth_err *err)
{
    for (int i = 0; i < n; i++) {
        size_t k = 0;
        while (k < json_array_size(models) && !is_called(json_array_get(models, k), word[i]))
            k++;
        if (k == json_array_size(models))
            return nobody_is_called(models, word[i], err);
    }
    return BERTH_OK;
}

static berth_status mark_one(struct options *o, const json_t *model, json_t *done, berth_err *err)
{
    char path[64], body[48];
    json_t *answer = NULL;
    snprintf(path, sizeof path, "/berth/models/%" PRIu64, client_u64(model, "id"));
    snprintf(body, sizeof body, "{\"retention\": \"%s\"}", o->retention);
    berth_status s = client_json(&o->client, path, body, SECONDS, &answer, err);
    if (!s && json_array_append_new(done, answer))
        s = err_set(err, BERTH_ENOMEM, "the models that were marked");
    return s;
}

static berth_status mark_all(struct options *o, char **word, int n, json_t *done, berth_err *err)
{
    json_t *all = NULL, *m;
    size_t i;
    berth_status s = client_json(&o->client, "/berth/models", NULL, SECONDS, &all, err);
    const json_t *models = json_object_get(all, "models");
    s = s ? s : check_words(models, word, n, err);
    json_array_foreach(models, i, m)
    {
        bool meant = false;
        for (int k = 0; k < n && !meant; k++)
            meant = is_called(m, word[k]);
        if (!s && meant)
            s = mark_one(o, m, done, err);
    }
    json_decref(all);
    return s;
}

static void print_text(const json_t *done)
{
    size_t i;
    json_t *m;
    json_array_foreach(done, i, m)
    {
        struct str full = { 0 }, name = { 0 };
        char size[STR_BYTES_MAX];
        bool gone = !strcmp(client_text(m, "state"), "gone");
        add_name(m, &full);
        term_safe(&name, str_c(&full), full.n, 60);
        if (gone) /* only a mark held it */
            printf("%-6s %s\n", "gone", str_c(&name));
        else
            printf("%-6s %s  %.8s  %s\n", client_text(m, "retention"), str_c(&name),
                   client_text(m, "role"), str_bytes(client_u64(m, "bytes"), size));
        str_release(&full);
        str_release(&name);
    }
}

static void print_json(json_t *done)
{
    json_t *all = json_pack("{s:O}", "models", done);
    client_print(all);
    json_decref(all);
}

static int mark(struct app *a, int argc, char **argv)
{
    const struct command *c = strcmp(a->cmd, "keep") ? &command_eject : &command_keep;
    struct options o = { 0 };
    bool undo = false;
    const struct opt table[] = {
        opt_flag("undo", "take the mark off again: back to auto", &undo),
        opt_flag("json", "print the models as JSON", &a->json),
        CLIENT_OPTIONS(&o.client),
    };
    int n, code;
    if (!app_args(a, c, table, ARRAY_LEN(table), argc, argv, &n, &code))
        return code;
    if (!n)
        return app_usage(a, "which model? `berth ps` shows them");
    o.client.quiet = a->quiet;
    o.retention = undo ? "auto" : c->name;
    json_t *done = json_array();
    berth_err err;
    berth_status s = mark_all(&o, argv, n, done, &err);
    if (!s && a->json)
        print_json(done);
    else if (!a->json) /* also the ones before a failure */
        print_text(done);
    code = s ? app_fail(a, &err) : APP_OK;
    json_decref(done);
    return code;
}

#define NAMES                                                                                      \
    "MODEL is an id, a name or name#id as `berth ps` shows them; a name means every\n"             \
    "model that has it. A running prompt need not end first. JSON: models, each as\n"              \
    "GET /berth/models has it.\n"

const struct command command_keep = {
    .name = "keep",
    .about = "mark models of a running server: a free leaves them alone",
    .usage = "[OPTIONS] MODEL ...",
    .args = "MODEL",
    .more = "A kept model stays in memory, at the same addresses, until a free with --force\n"
            "or another mark.\n" NAMES,
    .run = mark,
};

const struct command command_eject = {
    .name = "eject",
    .about = "mark models of a running server: the next free takes them",
    .usage = "[OPTIONS] MODEL ...",
    .args = "MODEL",
    .more = "A free takes marked models and no others. A mark alone moves nothing: the model\n"
            "goes with the next free, at the end of a prompt that computed with it, or first\n"
            "when room is needed. `berth free MODEL` frees it now.\n" NAMES,
    .run = mark,
};
