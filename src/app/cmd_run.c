/* berth run: one workflow from a file, here or on a server. */
#include "app/device_options.h"
#include "app/numbers.h"
#include "app/run.h"
#include "app/run_view.h"
#include "berth/ctx.h"
#include "engine/engine.h"
#include "media/media.h"

#include <inttypes.h>

#define INFO_SECONDS 10

struct options {
    struct folder_options folders;
    struct client client; /* .url NULL: here */
    struct device_options devices;
    struct number_options numbers;
    bool no_metadata, show;
    struct opt_list set;
};

/* ---- waiting for a server ---- */

struct waiting {
    struct run_view view;
    struct client *client;
    json_t *prompt;
    json_t *left_out; /* owned: node_errors of outputs that the server does not run; NULL: none */
    const char *url;
    bool quiet;
};

static void on_event(void *user, const struct exec_event *e)
{
    run_view_event(&((struct waiting *)user)->view, e);
}

static void on_queued(void *user)
{
    const struct waiting *w = user;
    if (!w->quiet)
        fprintf(stderr, "queued at %s; others run first, or it is paused\n", w->url);
}

/* ---- validation errors for people ---- */

/* A device that is not there was chosen: the choices are the devices. */
static bool chose_device(const struct node_env *env, const struct names *choices)
{
    bool same = choices->n && choices->n == env->devices_n;
    for (size_t i = 0; same && i < choices->n; i++)
        same = !strcmp(choices->at[i], env->devices[i]);
    return same;
}

/* Adds to the details of an error what may help. no_device: its node's validator missed one. *told:
 * devices were spoken of. */
static void hint(const struct node_env *env, const char *class_type, json_t *error, bool no_device,
                 bool *told)
{
    const json_t *extra = json_object_get(error, "extra_info");
    const char *input = json_string_value(json_object_get(extra, "input_name"));
    const char *details = json_string_value(json_object_get(error, "details"));
    const char *type = json_string_value(json_object_get(error, "type"));
    const char *got = json_string_value(json_object_get(extra, "received_value"));
    const struct node_class *c = class_type ? node_find(class_type) : NULL;
    size_t i = c && input ? node_input_index(c, input) : SIZE_MAX;
    bool listed = type && !strcmp(type, "value_not_in_list") && i != SIZE_MAX;
    struct names choices = { 0 };
    struct str text = { 0 };
    berth_err ignore;
    str_adds(&text, details ? details : "");
    if (listed && !node_options(env, &c->in[i], &choices, &ignore) && got) {
        struct nearest near = { .word = got };
        for (size_t k = 0; k < choices.n; k++)
            nearest_try(&near, choices.at[k]);
        if (near.best)
            str_addf(&text, ", did you mean '%s'?", near.best);
    }
    no_device &= type && !strcmp(type, "custom_validation_failed");
    if (!*told && (no_device || chose_device(env, &choices))) {
        *told = true;
        str_adds(&text, "; RAM stands in for a card with --devices NAME@cpu=SIZE,cpu");
    }
    if (!text.bad)
        json_object_set_new(error, "details", json_string(str_c(&text)));
    names_release(&choices);
    str_release(&text);
}

/* {"error", "node_errors"} with hints. The values of `v` stay as the API has them. env NULL: a
 * server's, whose folders and devices are not known here. */
static void explain(const struct node_env *env, const struct validation *v, const char *between,
                    struct str *out)
{
    json_t *nodes = json_deep_copy(v->node_errors), *node, *e;
    const char *id;
    size_t i;
    bool told = false;
    if (env)
        json_object_foreach(nodes, id, node)
            json_array_foreach(json_object_get(node, "errors"), i, e)
                hint(env, json_string_value(json_object_get(node, "class_type")), e,
                     json_object_get(v->no_device, id), &told);
    json_t *answer = json_pack("{s:O*, s:O*}", "error", v->error, "node_errors", nodes);
    client_errors(answer, between, out);
    json_decref(answer);
    json_decref(nodes);
}

/* Behind the message, which has a limit. */
static void advise(const struct node_env *env, const struct folder_options *o, json_t *prompt,
                   const struct validation *v)
{
    struct str lines = { 0 };
    run_hints_whole(v->error, prompt, &lines);
    run_hints(env, o, prompt, v->node_errors, &lines);
    fputs(str_c(&lines), stderr);
    str_release(&lines);
}

/* A line for each node: an error of the API is one line, and has a limit. */
static int refuse(struct app *a, const struct node_env *env, const struct folder_options *o,
                  json_t *prompt, const struct validation *v)
{
    struct str msg = { 0 };
    explain(env, v, a->json ? "; " : "\n  ", &msg);
    if (a->json) {
        berth_err err;
        err_set(&err, BERTH_EINVAL, "%s", msg.n ? str_c(&msg) : "the workflow is not valid");
        app_fail(a, &err);
    } else
        fprintf(stderr, "berth run: %s\n", msg.n ? str_c(&msg) : "the workflow is not valid");
    str_release(&msg);
    advise(env, o, prompt, v);
    return APP_FAILED;
}

/* Outputs that will not run although others do: said, and the exit code tells too. */
static void complain_partly(const struct node_env *env, const struct folder_options *o,
                            json_t *prompt, const struct validation *v)
{
    struct str msg = { 0 };
    explain(env, v, "\n  ", &msg);
    if (msg.n)
        fprintf(stderr, "berth run: some outputs cannot run%s\n", str_c(&msg));
    advise(env, o, prompt, v);
    str_release(&msg);
}

/* ---- the run ---- */

struct parts {
    struct app_folders folders;
    berth_ctx *ctx;
    struct engine *engine;
    json_t *prompt, *extra;
    struct validation checked;
};

/* What a run here or at a server made; 0: all went well. node_errors: of outputs left out. */
static int report(const struct app *a, const struct options *o, const struct run_place *at,
                  json_t *outputs, json_t *status, json_t *node_errors, enum exec_outcome outcome,
                  const json_t *failure)
{
    if (a->json)
        run_outputs_json(at, outputs, status, node_errors);
    else
        run_outputs_print(a, at, o->show, outputs);
    if (!a->json && !a->quiet)
        run_tiles_print(a, status);
    if (outcome == EXEC_OK)
        return APP_OK;
    if (outcome == EXEC_STOPPED)
        fprintf(stderr, "berth run: stopped\n");
    else
        run_failure_print(a, failure);
    return APP_FAILED;
}

static int execute(struct app *a, const struct options *o, struct parts *p)
{
    berth_err err;
    struct run_view view;
    const struct engine_events events = { .user = &view, .event = run_view_event };
    const struct exec_request q = { .prompt_id = "run",
                                    .prompt = p->prompt,
                                    .extra_data = p->extra,
                                    .outputs = p->checked.outputs,
                                    .cancel = signals_watch() };
    struct exec_result r;
    run_view_init(&view, stderr, &a->err, a->clock, p->prompt, p->checked.outputs,
                  a->quiet || a->json);
    berth_status s = engine_run(p->engine, &q, &events, &r, &err);
    run_view_release(&view);
    const struct run_place here = { .folders = p->folders.folders };
    int code = s ? app_fail(a, &err)
                 : report(a, o, &here, r.outputs, r.status, p->checked.node_errors, r.outcome,
                          r.last_data);
    if (!s && r.outcome == EXEC_STOPPED && signals_caught())
        code = APP_SIGNAL + signals_caught();
    exec_result_release(&r);
    return code;
}

/* The history's entry for people: which files there are on the server, or what went wrong. */
static int report_remote(const struct app *a, const struct options *o, const struct client *c,
                         const json_t *item, json_t *node_errors)
{
    const struct run_place at = { .client = c };
    json_t *status = json_object_get(item, "status");
    const json_t *messages = json_object_get(status, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *word = json_string_value(json_object_get(status, "status_str"));
    const char *kind = json_string_value(json_array_get(last, 0));
    enum exec_outcome outcome = word && !strcmp(word, "success")                 ? EXEC_OK
                                : kind && !strcmp(kind, "execution_interrupted") ? EXEC_STOPPED
                                                                                 : EXEC_FAILED;
    return report(a, o, &at, json_object_get(item, "outputs"), status, node_errors, outcome,
                  json_array_get(last, 1));
}

/* Like ComfyUI, a server leaves long lists out of its errors: they are fetched here. */
static void fetch_choices(struct client *c, const json_t *class_type, json_t *error)
{
    json_t *extra = json_object_get(error, "extra_info"), *info = NULL;
    const char *cls = json_string_value(class_type), *group;
    const char *type = json_string_value(json_object_get(error, "type"));
    const char *input = json_string_value(json_object_get(extra, "input_name"));
    struct str path = { 0 };
    berth_err ignore;
    json_t *of;
    if (!cls || !node_find(cls) || !type || strcmp(type, "value_not_in_list") != 0 || !input ||
        !json_is_null(json_object_get(extra, "input_config")))
        return;
    str_addf(&path, "/object_info/%s", cls); /* one of ours: nothing in it wants escaping */
    if (!path.bad)
        (void)client_json(c, str_c(&path), NULL, INFO_SECONDS, &info, &ignore);
    json_object_foreach(json_object_get(json_object_get(info, cls), "input"), group, of)
    {
        if (json_object_get(of, input))
            json_object_set(extra, "input_config", json_object_get(of, input));
    }
    json_decref(info);
    str_release(&path);
}

static void fetch_all_choices(struct client *c, json_t *node_errors)
{
    const char *id;
    json_t *node, *e;
    size_t i;
    json_object_foreach(node_errors, id, node)
        json_array_foreach(json_object_get(node, "errors"), i, e)
            fetch_choices(c, json_object_get(node, "class_type"), e);
}

/* Names those of `table` that were given and that a server decides; false: none. */
static bool list_server_options(const struct opt *table, size_t n, struct str *out)
{
    static const char *const ours[] = {
        "set", "server", "token", "cacert", "proxy", "show", "json"
    };
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < ARRAY_LEN(ours) && strcmp(ours[k], table[i].name) != 0)
            k++;
        if (k < ARRAY_LEN(ours))
            continue;
        if (table[i].kind == OPT_FLAG ? *(bool *)table[i].to : *(const char **)table[i].to != NULL)
            str_addf(out, "%s--%s", out->n ? ", " : "", table[i].name);
    }
    return out->n;
}

/* A prompt that the server refused, or did not get. */
static int report_refusal(struct app *a, struct client *c, json_t *prompt, const json_t *refusal,
                          const berth_err *err)
{
    const struct validation v = { .error = json_object_get(refusal, "error"),
                                  .node_errors = json_object_get(refusal, "node_errors") };
    fetch_all_choices(c, v.node_errors);
    if (json_object_size(v.node_errors))
        return refuse(a, NULL, NULL, prompt, &v);
    int failed = app_fail(a, err);
    advise(NULL, NULL, prompt, &v);
    return failed;
}

static void on_left_out(void *user, json_t *node_errors)
{
    struct waiting *w = user;
    const struct validation v = { .node_errors = node_errors };
    w->left_out = json_incref(node_errors);
    fetch_all_choices(w->client, node_errors);
    complain_partly(NULL, NULL, w->prompt, &v);
}

static int run_on_server(struct app *a, const struct options *o, const struct parts *p)
{
    berth_err err;
    json_t *item;
    struct client client = o->client;
    json_t *refusal = NULL;
    client.refusal = &refusal;
    client.quiet = a->quiet || a->json;
    struct waiting waiting = {
        .client = &client, .prompt = p->prompt, .url = client.url, .quiet = client.quiet
    };
    run_view_init(&waiting.view, stderr, &a->err, a->clock, p->prompt, NULL, client.quiet);
    const struct remote_run r = { .client = &client,
                                  .prompt = p->prompt,
                                  .extra = p->extra,
                                  .stop = signals_watch(),
                                  .event = on_event,
                                  .queued = on_queued,
                                  .partly = on_left_out,
                                  .user = &waiting };
    berth_status s = run_remote(&r, &item, &err);
    run_view_release(&waiting.view);
    client.refusal = NULL;
    int code = s      ? report_refusal(a, &client, p->prompt, refusal, &err)
               : item ? report_remote(a, o, &client, item, waiting.left_out)
                      : APP_SIGNAL + signals_caught();
    if (!s && !item)
        fprintf(stderr, "berth run: stopped\n");
    if (!code && waiting.left_out)
        code = APP_FAILED; /* not all that was asked for is there */
    json_decref(waiting.left_out);
    json_decref(refusal);
    json_decref(item);
    return code;
}

static int open_engine(struct app *a, const struct options *o, struct parts *p)
{
    const struct ctx_parts parts = ctx_parts(p->ctx);
    struct engine_config cfg = { .res = parts.res,
                                 .devices = parts.devices,
                                 .pool = parts.pool,
                                 .folders = p->folders.folders,
                                 .tokenizers = (const char *const *)p->folders.tokenizers.at,
                                 .tokenizers_n = p->folders.tokenizers.n,
                                 .media_helper = MEDIA_SELF,
                                 .clock = a->clock,
                                 .log = &a->log,
                                 .disable_metadata = o->no_metadata,
                                 .alone = true };
    berth_err err;
    int code = app_numbers(a, &o->numbers, &cfg.numbers);
    if (!code && engine_new(&cfg, &p->engine, &err))
        code = app_fail(a, &err);
    return code;
}

static int with_parts(struct app *a, const struct options *o, const char *path, struct parts *p)
{
    struct app_ctx_args ctx = { 0 };
    berth_err err;
    int code;
    if (run_workflow_read(path, &p->prompt, &p->extra, &err))
        return app_fail(a, &err);
    for (size_t i = 0; i < o->set.n; i++)
        if (run_workflow_set(p->prompt, o->set.at[i], &err))
            return app_usage(a, "%s", err.msg);
    if (o->client.url)
        return run_on_server(a, o, p);
    if ((code = app_devices(a, &o->devices, &ctx)) ||
        (code = app_folders_open(a, &o->folders, &p->folders)))
        return code;
    if (app_ctx_new(a, &ctx, &p->ctx, &err))
        return app_fail_devices(a, &err);
    app_log_absent(a, &ctx, p->ctx);
    app_limit_memory(a, p->ctx);
    if ((code = open_engine(a, o, p)))
        return code;
    const struct node_env *env = engine_env(p->engine);
    if (engine_check(p->engine, p->prompt, NULL, &p->checked, &err))
        return app_fail(a, &err);
    if (!p->checked.ok)
        return refuse(a, env, &o->folders, p->prompt, &p->checked);
    bool partly = json_object_size(p->checked.node_errors);
    if (partly)
        complain_partly(env, &o->folders, p->prompt, &p->checked);
    code = execute(a, o, p);
    return code || !partly ? code : APP_FAILED; /* not all that was asked for is there */
}

/* --fast without a value, as ComfyUI has it, in front of a workflow: names of features have neither
 * dots nor slashes. */
static void spell_fast(int argc, char **argv)
{
    static char bare[] = "--fast=";
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "-";
        if (!strcmp(argv[i], "--fast") && (next[0] == '-' || strpbrk(next, "./")))
            argv[i] = bare;
    }
}

static int run_run(struct app *a, int argc, char **argv)
{
    struct options o = { 0 };
    const struct opt table[] = {
        opt_list("set", "NODE.INPUT=VALUE",
                 "change an input; NODE is an id, a title or a class; may be repeated", &o.set),
        FOLDER_OPTIONS(&o.folders),
        opt_text("server", "URL", "run it on this server; prints the addresses of its outputs",
                 &o.client.url),
        opt_text("token", "TEXT", "default $BERTH_TOKEN; for --server", &o.client.token),
        CLIENT_WAY_OPTIONS(&o.client),
        DEVICE_OPTIONS(&o.devices),
        opt_flag("disable-metadata", "no prompt and workflow in saved files", &o.no_metadata),
        NUMBER_OPTIONS(&o.numbers),
        opt_flag("show", "also show pictures in the terminal, if it has 24-bit colour", &o.show),
        opt_flag("json", "print files, outputs and status as JSON", &a->json),
    };
    int n, code = APP_OK;
    spell_fast(argc, argv);
    if (!app_args(a, &command_run, table, ARRAY_LEN(table), argc, argv, &n, &code))
        return code;
    if (n != 1)
        return app_usage(a, n ? "one workflow at a time" : "which workflow?");
    struct str given = { 0 };
    if (o.client.url && list_server_options(table, ARRAY_LEN(table), &given))
        code = app_usage(a,
                         "with --server folders, devices and how it computes and saves are the "
                         "server's: leave %s away",
                         str_c(&given));
    str_release(&given);
    if (code)
        return code;
    struct parts p = { 0 };
    code = with_parts(a, &o, argv[0], &p);
    engine_free(p.engine);
    berth_ctx_free(p.ctx);
    app_folders_release(&p.folders);
    validation_release(&p.checked);
    json_decref(p.prompt);
    json_decref(p.extra);
    return code;
}

#define BY_SET(example) "inputs of nodes are set with --set NODE.INPUT=VALUE: --set " example

static const struct opt_guess guesses[] = {
    { "prompt|positive|text",
      BY_SET("positive.text=\"a cat\", where that is the node's id or title") },
    { "negative|negative-prompt",
      BY_SET("negative.text=\"blurry\", where that is the node's id or title") },
    { "seed", BY_SET("KSampler.seed=5") },
    { "steps", BY_SET("KSampler.steps=3") },
    { "cfg", BY_SET("KSampler.cfg=7") },
    { "sampler|sampler-name", BY_SET("KSampler.sampler_name=euler") },
    { "scheduler", BY_SET("KSampler.scheduler=karras") },
    { "denoise", BY_SET("KSampler.denoise=0.7") },
    { "width|size", BY_SET("EmptyLatentImage.width=512") },
    { "height", BY_SET("EmptyLatentImage.height=512") },
    { "batch-size", BY_SET("EmptyLatentImage.batch_size=2") },
    { "model|ckpt|checkpoint", BY_SET("CheckpointLoaderSimple.ckpt_name=FILE") },
    { "lora", BY_SET("LoraLoader.lora_name=FILE") },
    { "weight-dtype|weight_dtype|dtype", BY_SET("UNETLoader.weight_dtype=fp8_e4m3fn") },
    FP8_GUESS,
    { "cpu", "--devices cpu computes on the processor" },
    { "reserve-vram",
      "a flag of `berth serve`; here a budget leaves room: --devices cuda:0=10g,cpu" },
#define FLAG(name, arity)                                                                          \
    { name, "a flag of ComfyUI's that only `berth serve` takes, without effect" },
#include "app/serve_ignored.def"
#undef FLAG
    { 0 }
};

const struct command command_run = {
    .name = "run",
    .about = "run a workflow file, here or on a server",
    .usage = "[OPTIONS] WORKFLOW.json",
    .args = "WORKFLOW.json",
    .guesses = guesses,
    .more =
        "WORKFLOW.json is what ComfyUI's Workflow > Export (API) writes, or a PNG, a\n"
        "video or a sound that was saved with one; - reads standard input.\n"
        "Prints the files it wrote, one per line; with --server their addresses.\n"
        "VALUE is read as JSON if it is JSON (3, true, \"3\"), otherwise as text.\n" TOKENIZERS_HELP
        "\n"
        "  berth run cat.json --set KSampler.seed=7 --set 6.text=\"a cat in the sun\"\n",
    .run = run_run,
};
