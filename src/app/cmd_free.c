/* berth free: ask a running server to free memory, and print what it did. */
#include "app/client.h"

#include <inttypes.h>

#define SECONDS 86400 /* a free waits for the running prompt */

struct options {
    struct client client;
    const char *device;
    bool force, dry_run, models_only;
};

static berth_status request(const struct options *o, char **models, int n, struct str *out,
                            berth_err *err)
{
    json_t *body =
        json_pack("{s:b, s:b, s:b, s:b, s:b}", "wait", 1, "unload_models", 1, "free_memory",
                  !o->models_only, "force", o->force, "dry_run", o->dry_run);
    bool ok = body;
    if (ok && n) {
        json_t *list = json_array();
        ok = !json_object_set_new(body, "models", list);
        for (int i = 0; ok && i < n; i++)
            ok = !json_array_append_new(list, json_string(models[i]));
    }
    if (ok && o->device) {
        json_t *list = json_array();
        ok = !json_object_set_new(body, "devices", list);
        for (const char *at = o->device; ok && *at;) {
            size_t len = strcspn(at, ",");
            ok = !json_array_append_new(list, json_stringn(at, len));
            at += len + (at[len] == ',');
        }
    }
    if (ok)
        js_write(body, -1, out);
    json_decref(body);
    return ok && !out->bad ? BERTH_OK
                           : err_set(err, BERTH_EINVAL, "names must be UTF-8, or memory ran out");
}

/* "name#id", "name#id as F8_E4M3" */
static void model_name(const json_t *m, struct str *out)
{
    term_safe(out, client_text(m, "name"), strlen(client_text(m, "name")), 40);
    str_addf(out, "#%" PRIu64, client_u64(m, "id"));
    if (json_is_string(json_object_get(m, "converted"))) /* the same file twice, perhaps */
        str_addf(out, " as %.11s", client_text(m, "converted"));
}

static void print_models(const json_t *models)
{
    struct str name = { 0 };
    size_t i;
    int width = 0;
    json_t *m;
    json_array_foreach(models, i, m)
    {
        str_clear(&name);
        model_name(m, &name);
        width = (int)name.n > width ? (int)name.n : width;
    }
    json_array_foreach(models, i, m)
    {
        char buf[STR_BYTES_MAX];
        str_clear(&name);
        model_name(m, &name);
        printf("%-8s %-*s  %-8.8s %9s  (%s)\n", client_text(m, "verdict"), width, str_c(&name),
               client_text(m, "role"), str_bytes(client_u64(m, "bytes"), buf),
               client_text(m, "why"));
    }
    if (!i)
        printf("no models\n");
    str_release(&name);
}

static uint64_t sum(const json_t *tiers)
{
    uint64_t total = 0, v;
    const char *key;
    json_t *x;
    json_object_foreach((json_t *)(uintptr_t)tiers, key, x) if (js_get_u64(x, &v)) total += v;
    return total;
}

static void print_devices(const json_t *devices)
{
    size_t i;
    json_t *d;
    json_array_foreach(devices, i, d)
    {
        char before[STR_BYTES_MAX], after[STR_BYTES_MAX], released[STR_BYTES_MAX];
        printf("%-12s %9s -> %-9s  %s given back\n", client_text(d, "device"),
               str_bytes(sum(json_object_get(d, "before")), before),
               str_bytes(sum(json_object_get(d, "after")), after),
               str_bytes(client_u64(d, "released"), released));
    }
}

/* Models that were named and stayed: the free did not do what was asked. */
static size_t count_stayed(const json_t *models)
{
    size_t i, n = 0;
    json_t *m;
    json_array_foreach(models, i, m) n += strcmp(client_text(m, "verdict"), "ejected") != 0;
    return n;
}

static int print_receipt(const struct app *a, const struct options *o, const json_t *receipt,
                         int named)
{
    if (a->json) {
        client_print(receipt);
    } else {
        if (o->dry_run)
            printf("nothing was done; this would happen:\n");
        print_models(json_object_get(receipt, "models"));
        print_devices(json_object_get(receipt, "devices"));
    }
    if (json_array_size(json_object_get(receipt, "violations")))
        return APP_FAILED;
    if (named && !o->force && !o->dry_run && count_stayed(json_object_get(receipt, "models"))) {
        fprintf(stderr,
                "berth free: models that are kept or in use stay; --force takes kept ones\n");
        return APP_FAILED;
    }
    return APP_OK;
}

static int run_free(struct app *a, int argc, char **argv)
{
    struct options o = { 0 };
    const struct opt table[] = {
        opt_flag("force", "free kept models too", &o.force),
        opt_letter('n', opt_flag("dry-run", "say what would go, do nothing", &o.dry_run)),
        opt_flag("models-only", "unload models, but keep cached results of nodes", &o.models_only),
        opt_text("devices", "DEVICE,...",
                 "only models with bytes there, and only these devices are trimmed", &o.device),
        opt_flag("json", "print the receipt as JSON", &a->json),
        CLIENT_OPTIONS(&o.client),
    };
    int n, code;
    if (!app_args(a, &command_free, table, ARRAY_LEN(table), argc, argv, &n, &code))
        return code;
    o.client.quiet = a->quiet;
    struct str body = { 0 };
    json_t *receipt = NULL;
    berth_err err;
    if (request(&o, argv, n, &body, &err) ||
        client_json(&o.client, "/free", str_c(&body), SECONDS, &receipt, &err))
        code = app_fail(a, &err);
    else
        code = print_receipt(a, &o, receipt, n);
    json_decref(receipt);
    str_release(&body);
    return code;
}

static const struct opt_guess guesses[] = {
    { "model|models|name|id",
      "models are named without an option: berth free NAME#ID, as `berth ps` shows them" },
    { 0 }
};

const struct command command_free = {
    .name = "free",
    .about = "free memory of a running server; prints the receipt",
    .usage = "[OPTIONS] [MODEL ...]",
    .args = "MODEL",
    .guesses = guesses,
    .more = "Without MODEL: what ComfyUI-Manager's \"Free model and node cache\" does. Models\n"
            "marked eject go, the others stay; with none marked, auto models go and keep\n"
            "models stay. MODEL is an id, a name or name#id as `berth ps` shows them; a name\n"
            "means every model that has it, whatever its role and type. A free waits for the\n"
            "running prompt to end. If the models named all stay, kept or in use, nothing is\n"
            "freed at all.\n",
    .run = run_free,
};
