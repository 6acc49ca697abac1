/* info.c: node classes as /object_info shows them (comfyui-api.md 7). */
#include "node/node_impl.h"

#include <string.h>

static berth_status no_memory(const struct node_class *c, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "definition of %s", c->name);
}

berth_status node_options(const struct node_env *env, const struct node_input *in,
                          struct names *out, berth_err *err)
{
    if (in->options_fn)
        return in->options_fn(env, out, err);
    if (in->folder)
        return folders_list(env->folders, in->folder, out, err);
    for (const char *const *o = in->options; o && *o; o++)
        if (!names_add(out, *o, strlen(*o)))
            return err_set(err, BERTH_ENOMEM, "choices of '%s'", in->name);
    for (size_t i = 0; i < in->choices; i++)
        if (!names_add(out, in->choice[i].key, strlen(in->choice[i].key)))
            return err_set(err, BERTH_ENOMEM, "choices of '%s'", in->name);
    return BERTH_OK;
}

static json_t *options_array(const struct names *names)
{
    json_t *a = json_array();
    for (size_t i = 0; a && i < names->n; i++) {
        if (!str_is_utf8(names->at[i], strlen(names->at[i])))
            continue; /* a file name that cannot be shown */
        if (json_array_append_new(a, json_string(names->at[i]))) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static json_t *int_json(node_int v)
{
    if (v > (node_int)INT64_MAX)
        return js_u64((uint64_t)v);
    if (v < (node_int)INT64_MIN) /* beyond what JSON readers keep exactly anyway */
        return json_real((double)v);
    return json_integer((json_int_t)v);
}

/* `text`: JSON members, of ours. */
static bool add_members(json_t *o, const char *text)
{
    struct str s = { 0 };
    berth_err err = { 0 };
    json_t *more = NULL;
    str_addf(&s, "{%s}", text);
    berth_status st = s.bad ? BERTH_ENOMEM : js_parse(str_c(&s), s.n, NULL, &more, &err);
    str_release(&s);
    if (st && st != BERTH_ENOMEM)
        BUG("'%s': %s", text, err.msg);
    bool ok = !st && !json_object_update(o, more);
    json_decref(more);
    return ok;
}

static berth_status inputs_object(const struct node_env *env, const struct node_class *c,
                                  const struct node_input *in, size_t n, json_t **out,
                                  berth_err *err);

/* {"key", "inputs"} of each choice. */
static berth_status add_choices(const struct node_env *env, const struct node_class *c,
                                const struct node_input *in, json_t *o, berth_err *err)
{
    json_t *list = json_array();
    if (json_object_set_new(o, "options", list))
        return no_memory(c, err);
    for (size_t i = 0; i < in->choices; i++) {
        const struct node_choice *ch = &in->choice[i];
        json_t *inputs;
        if (inputs_object(env, c, ch->in, ch->ins, &inputs, err))
            return err->code;
        if (json_array_append_new(list, json_pack("{s:s,s:o}", "key", ch->key, "inputs", inputs)))
            return no_memory(c, err);
    }
    return BERTH_OK;
}

/* {"input", "prefix" or "names", "min", "max"} */
static berth_status add_template(const struct node_env *env, const struct node_class *c,
                                 const struct node_input *in, json_t *o, berth_err *err)
{
    json_t *t = json_object(), *inputs = NULL, *names = NULL;
    if (json_object_set_new(o, "template", t))
        return no_memory(c, err);
    if (inputs_object(env, c, in->sub, in->subs, &inputs, err))
        return err->code;
    bool ok = !json_object_set_new(t, "input", inputs);
    if (in->members) {
        names = json_array();
        for (size_t i = 0; in->members[i] && ok; i++)
            ok = !json_array_append_new(names, json_string(in->members[i]));
        ok = !json_object_set_new(t, "names", names) && ok;
    } else {
        ok = ok && !json_object_set_new(t, "prefix", json_string(in->prefix)) &&
             !json_object_set_new(t, "max", json_integer(in->max));
    }
    ok = ok && !json_object_set_new(t, "min", json_integer(in->min));
    return ok ? BERTH_OK : no_memory(c, err);
}

/* What an input made of others says beside its own options. */
static berth_status add_dynamic(const struct node_env *env, const struct node_class *c,
                                const struct node_input *in, json_t *o, berth_err *err)
{
    json_t *inputs;
    switch (in->kind) {
    case IN_DYNCOMBO:
        return add_choices(env, c, in, o, err);
    case IN_AUTOGROW:
        return add_template(env, c, in, o, err);
    case IN_DYNSLOT:
        if (inputs_object(env, c, in->sub, in->subs, &inputs, err))
            return err->code;
        return json_object_set_new(o, "slotType", json_string(in->type)) |
                       json_object_set_new(o, "inputs", inputs)
                   ? no_memory(c, err)
                   : BERTH_OK;
    default:
        return BERTH_OK;
    }
}

/* The options of an input, except for a combo's choices. */
static bool add_options(const struct node_env *env, const struct node_class *c,
                        const struct node_input *in, json_t *o)
{
    const char *sdef = in->sdef_fn ? in->sdef_fn(env) : in->sdef;
    bool ok = true;
    bool v3 = c->flags & NODE_V3;
#define PUT(key, value) ok = ok && !json_object_set_new(o, key, value)
    switch (in->kind) {
    case IN_INT:
        if (!in->no_default)
            PUT("default", int_json(in->idef));
        if (!in->no_range) {
            PUT("min", int_json(in->imin));
            PUT("max", int_json(in->imax));
        }
        if (in->istep)
            PUT("step", int_json(in->istep));
        break;
    case IN_FLOAT:
        if (!in->no_default)
            PUT("default", json_real(in->fdef));
        if (!in->no_range) {
            PUT("min", json_real(in->fmin));
            PUT("max", json_real(in->fmax));
        }
        if (in->fstep != 0)
            PUT("step", json_real(in->fstep));
        break;
    case IN_STRING:
        if (!in->no_default)
            PUT("default", json_string(sdef ? sdef : ""));
        if (v3) /* `more` may say otherwise */
            PUT("multiline", json_false());
        break;
    case IN_BOOLEAN:
        if (!in->no_default)
            PUT("default", json_boolean(in->bdef));
        break;
    case IN_COMBO:
        if (sdef)
            PUT("default", json_string(sdef));
        break;
    case IN_SOCKET:
    case IN_DYNCOMBO:
    case IN_AUTOGROW:
    case IN_DYNSLOT:
        break;
    }
    const char *tip = node_input_tip(c, in);
    if (in->lazy)
        PUT("lazy", json_true());
    if (node_is_folded(c, in))
        PUT("advanced", json_true());
    if (tip)
        PUT("tooltip", json_string(tip));
#undef PUT
    if (ok && in->round) {
        json_t *round = strcmp(in->round, "false") ? NULL : json_false();
        double f;
        json_t *parsed = NULL;
        berth_err err;
        if (!round && !js_parse(in->round, strlen(in->round), NULL, &parsed, &err) &&
            js_get_f64(parsed, &f))
            round = json_real(f);
        json_decref(parsed);
        ok = !json_object_set_new(o, "round", round);
    }
    return ok && (!in->more || add_members(o, in->more));
}

static const char *kind_type(const struct node_input *in)
{
    static const char *const type[] = { [IN_INT] = "INT",
                                        [IN_FLOAT] = "FLOAT",
                                        [IN_STRING] = "STRING",
                                        [IN_BOOLEAN] = "BOOLEAN",
                                        [IN_COMBO] = "COMBO",
                                        [IN_DYNCOMBO] = "COMFY_DYNAMICCOMBO_V3",
                                        [IN_AUTOGROW] = "COMFY_AUTOGROW_V3",
                                        [IN_DYNSLOT] = "COMFY_DYNAMICSLOT_V3" };
    return in->kind == IN_SOCKET ? in->type : type[in->kind];
}

berth_status node_input_spec(const struct node_env *env, const struct node_class *c,
                             const struct node_input *in, json_t **out, berth_err *err)
{
    bool v3 = c->flags & NODE_V3, combo = in->kind == IN_COMBO;
    json_t *o = json_object(), *type = NULL, *choices = NULL;
    *out = NULL;
    if (combo && !in->options && !in->options_fn && !in->folder) { /* the browser knows them */
        combo = false;
    } else if (combo) {
        struct names names = { 0 };
        berth_status s = node_options(env, in, &names, err);
        choices = s ? NULL : options_array(&names);
        names_release(&names);
        if (s) {
            json_decref(o);
            return err_add(err, "%s.%s", c->name, in->name);
        }
    }
    bool ok = o && (!combo || choices);
    if (ok && combo && v3) /* json_object_set() counts a reference of its own */
        ok = !json_object_set_new(o, "multiselect", json_boolean(in->multiselect)) &&
             !json_object_set(o, "options", choices);
    type = combo && !v3 ? json_incref(choices) : json_string(kind_type(in));
    json_decref(choices);
    ok = ok && type && add_options(env, c, in, o);
    berth_status s = ok ? add_dynamic(env, c, in, o, err) : BERTH_OK;
    ok = ok && !s;
    json_t *spec = ok ? json_array() : NULL;
    ok = spec && !json_array_append(spec, type);
    if (ok && (v3 || in->more || json_object_size(o)))
        ok = !json_array_append(spec, o);
    json_decref(type);
    json_decref(o);
    if (!ok) {
        json_decref(spec);
        return s ? s : no_memory(c, err);
    }
    *out = spec;
    return BERTH_OK;
}

/* {"required": {name: spec}, "optional": ...}, the first always. */
static berth_status inputs_object(const struct node_env *env, const struct node_class *c,
                                  const struct node_input *in, size_t n, json_t **out,
                                  berth_err *err)
{
    json_t *root = json_pack("{s:{}}", "required"), *spec;
    *out = NULL;
    berth_status s = root ? BERTH_OK : no_memory(c, err);
    for (size_t i = 0; i < n && !s; i++) {
        const char *group = in[i].optional ? "optional" : "required";
        if (!json_object_get(root, group) && json_object_set_new(root, group, json_object()))
            s = no_memory(c, err);
        if (!s)
            s = node_input_spec(env, c, &in[i], &spec, err);
        if (!s && json_object_set_new(json_object_get(root, group), in[i].name, spec))
            s = no_memory(c, err);
    }
    if (s)
        json_decref(root);
    else
        *out = root;
    return s;
}

/* root[group][name] = taken, and the name at the end of order[group]. */
static bool put_input(json_t *root, json_t *order, const char *group, const char *name,
                      json_t *taken)
{
    json_t *g = json_object_get(root, group), *names = json_object_get(order, group);
    if (!g) {
        g = json_object();
        if (json_object_set_new(root, group, g))
            g = NULL;
    }
    if (!names) {
        names = json_array();
        if (json_object_set_new(order, group, names))
            names = NULL;
    }
    if (!g || !names) {
        json_decref(taken);
        return false;
    }
    return !json_object_set_new(g, name, taken) && !json_array_append_new(names, json_string(name));
}

static bool put_hidden(const struct node_class *c, json_t *root, json_t *order)
{
    static const struct {
        unsigned flag;
        const char *name, *type;
    } hidden[] = {
        { NODE_PROMPT, "prompt", "PROMPT" },
        { NODE_EXTRA_PNGINFO, "extra_pnginfo", "EXTRA_PNGINFO" },
        { NODE_UNIQUE_ID, "unique_id", "UNIQUE_ID" },
        { NODE_DYNPROMPT, "dynprompt", "DYNPROMPT" },
    };
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        if (!(c->flags & hidden[i].flag))
            continue;
        json_t *type =
            c->flags & NODE_V3 ? json_pack("[s]", hidden[i].type) : json_string(hidden[i].type);
        if (!put_input(root, order, "hidden", hidden[i].name, type))
            return false;
    }
    return true;
}

static berth_status put_inputs(const struct node_env *env, const struct node_class *c, json_t *def,
                               berth_err *err)
{
    json_t *root = json_object(), *order = json_object();
    if (json_object_set_new(def, "input", root) | json_object_set_new(def, "input_order", order))
        return no_memory(c, err);
    bool required = c->flags & NODE_V3 || c->ins; /* also without any, and first */
    if (required && (json_object_set_new(root, "required", json_object()) ||
                     json_object_set_new(order, "required", json_array())))
        return no_memory(c, err);
    for (size_t i = 0; i < c->ins; i++) {
        json_t *spec;
        if (c->in[i].unlisted)
            continue;
        berth_status s = node_input_spec(env, c, &c->in[i], &spec, err);
        if (s)
            return s;
        if (!put_input(root, order, c->in[i].optional ? "optional" : "required", c->in[i].name,
                       spec))
            return no_memory(c, err);
    }
    return put_hidden(c, root, order) ? BERTH_OK : no_memory(c, err);
}

/* Which template decides about each output; null where none does. */
static bool put_matches(const struct node_class *c, json_t *def)
{
    json_t *match = json_array();
    bool some = false, ok = true;
    for (size_t i = 0; i < c->outs; i++) {
        const char *id = c->out[i].match;
        some = some || id;
        ok = !json_array_append_new(match, id ? json_string(id) : json_null()) && ok;
    }
    ok = !json_object_set(def, "output_matchtypes", some ? match : json_null()) && ok;
    json_decref(match);
    return ok;
}

static bool put_outputs(const struct node_class *c, json_t *def)
{
    json_t *type = json_array(), *list = json_array(), *name = json_array();
    bool ok = !json_object_set_new(def, "output", type);
    ok = !json_object_set_new(def, "output_is_list", list) && ok;
    ok = !json_object_set_new(def, "output_name", name) && ok;
    for (size_t i = 0; ok && i < c->outs; i++) {
        const struct node_output *o = &c->out[i];
        ok = !json_array_append_new(type, json_string(o->type)) &&
             !json_array_append_new(list, json_boolean(o->is_list)) &&
             !json_array_append_new(name, json_string(o->name ? o->name : o->type));
    }
    bool v3 = c->flags & NODE_V3, told = v3; /* older classes have them where there is something */
    json_t *tips = json_array();
    for (size_t i = 0; i < c->outs; i++) {
        const char *tip = node_output_tip(c, i);
        told = told || tip;
        ok = !json_array_append_new(tips, tip ? json_string(tip) : json_null()) && ok;
    }
    if (told)
        ok = !json_object_set(def, "output_tooltips", tips) && ok;
    json_decref(tips);
    return ok && (!v3 || put_matches(c, def));
}

static bool put_words(const struct node_class *c, json_t *def)
{
    bool v3 = c->flags & NODE_V3, ok = true;
    const struct node_menu menu = node_menu(c);
    const char *display = menu.display ? menu.display : v3 ? NULL : c->name;
#define PUT(key, value) ok = !json_object_set_new(def, key, value) && ok
    PUT("name", json_string(c->name));
    PUT("display_name", display ? json_string(display) : json_null());
    PUT("description", json_string(c->description ? c->description : ""));
    PUT("python_module", json_string(c->module));
    PUT("category", json_string(menu.category));
    PUT("output_node", json_boolean(c->flags & NODE_OUTPUT));
    if (v3 || c->flags & NODE_DEPRECATED)
        PUT("deprecated", json_boolean(c->flags & NODE_DEPRECATED));
    if (v3 || c->flags & NODE_EXPERIMENTAL)
        PUT("experimental", json_boolean(c->flags & NODE_EXPERIMENTAL));
    if (v3 || c->flags & NODE_DEV_ONLY)
        PUT("dev_only", json_boolean(c->flags & NODE_DEV_ONLY));
    if (v3 || menu.essentials)
        PUT("essentials_category", menu.essentials ? json_string(menu.essentials) : json_null());
    PUT("is_input_list", json_boolean(c->flags & NODE_INPUT_IS_LIST));
    PUT("has_intermediate_output", json_boolean(c->flags & NODE_INTERMEDIATE));
    PUT("search_aliases", v3 ? json_null() : json_array()); /* words for people; we have none */
    if (v3) {
        PUT("api_node", json_false());
        PUT("price_badge", json_null());
    }
#undef PUT
    return ok;
}

berth_status node_info(const struct node_env *env, const struct node_class *c, json_t **out,
                       berth_err *err)
{
    json_t *def = json_object();
    *out = NULL;
    if (!def)
        return no_memory(c, err);
    berth_status s = put_inputs(env, c, def, err);
    if (!s && !(put_outputs(c, def) && put_words(c, def)))
        s = no_memory(c, err);
    if (s)
        json_decref(def);
    else
        *out = def;
    return s;
}
