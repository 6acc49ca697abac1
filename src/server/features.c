/* The server's feature flags: what clients may count on, and what --feature-flag adds to it. */
#include "server/hub.h"
#include "server/server_impl.h"

#include <strings.h>

/* Those that --feature-flag gives a meaning in frontends. All of them are true or false. */
static const struct known {
    const char *name, *what;
} known[] = {
    { "show_signin_button", "Show the sign-in button in the frontend even when not signed in" },
    { "enable_telemetry", "Signal the frontend that telemetry collection is enabled" },
};

/* The server's own. */
static const char *const fixed[] = { "supports_preview_metadata", "supports_model_type_tags",
                                     "max_upload_size",           "extension",
                                     "node_replacements",         "assets" };

void server_flags_json(struct str *out)
{
    struct jsonout j = { .out = out, .spaced = true };
    jo_open(&j, NULL, '{');
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        jo_open(&j, known[i].name, '{');
        jo_str(&j, "type", "bool");
        jo_bool(&j, "default", false);
        jo_str(&j, "description", known[i].what);
        jo_close(&j, '}');
    }
    jo_close(&j, '}');
}

struct flag { /* points into a "KEY=VALUE" */
    const char *key, *value;
    size_t key_n, value_n;
    bool is_bool, on;
};

static void strip(const char **s, size_t *n)
{
    while (*n && **s == ' ')
        ++*s, --*n;
    while (*n && (*s)[*n - 1] == ' ')
        --*n;
}

/* NULL: it is one; otherwise why not. */
static const char *read_flag(const char *text, struct flag *f)
{
    const char *eq = strchr(text, '=');
    *f = (struct flag) { .key = text, .key_n = eq ? (size_t)(eq - text) : strlen(text) };
    f->value = eq ? eq + 1 : "true";
    f->value_n = strlen(f->value);
    strip(&f->key, &f->key_n);
    strip(&f->value, &f->value_n);
    if (!f->key_n)
        return "it has no name";
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        if (str_eq(f->key, f->key_n, fixed[i]))
            return "that one is the server's own";
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        f->is_bool |= str_eq(f->key, f->key_n, known[i].name);
    f->on = f->value_n == 4 && !strncasecmp(f->value, "true", 4);
    if (f->is_bool && !f->on && (f->value_n != 5 || strncasecmp(f->value, "false", 5)))
        return "it is true or false";
    return NULL;
}

const char *server_flag_wrong(const char *text)
{
    struct flag f;
    return read_flag(text, &f);
}

/* The last of several with one name counts. */
static bool is_last(const struct server *s, size_t at, const struct flag *f)
{
    struct flag later;
    for (size_t i = at + 1; i < s->cfg.flags_n; i++)
        if (!read_flag(s->cfg.flags[i], &later) && later.key_n == f->key_n &&
            !memcmp(later.key, f->key, f->key_n))
            return false;
    return true;
}

static void add_given(const struct server *s, struct jsonout *j)
{
    for (size_t i = 0; i < s->cfg.flags_n; i++) {
        struct flag f;
        struct str key = { 0 };
        if (read_flag(s->cfg.flags[i], &f) || !is_last(s, i, &f))
            continue;
        str_add(&key, f.key, f.key_n);
        if (f.is_bool)
            jo_bool(j, str_c(&key), f.on);
        else
            jo_text(j, str_c(&key), f.value, f.value_n);
        j->out->bad |= key.bad;
        str_release(&key);
    }
}

void hub_features(const struct server *s, const char *key, struct jsonout *j)
{
    jo_open(j, key, '{');
    jo_bool(j, "supports_preview_metadata", true);
    jo_bool(j, "supports_model_type_tags", true);
    jo_u64(j, "max_upload_size", s->cfg.max_upload);
    jo_open(j, "extension", '{');
    jo_open(j, "manager", '{');
    jo_bool(j, "supports_v4", true);
    jo_close(j, '}');
    jo_close(j, '}');
    jo_bool(j, "node_replacements", true);
    jo_bool(j, "assets", false);
    add_given(s, j);
    jo_close(j, '}');
}
