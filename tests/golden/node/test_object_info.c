/* Every class that ComfyUI has too, as its own /object_info describes it
 * (tools/golden/object_info.py): the same inputs in the same order with the same types, ranges,
 * defaults and flags. Texts for people are our own; choices that come from folders depend on the
 * machine. */
#include "support/json_file.h"
#include "support/node_rig.h"

#define DATA BERTH_SOURCE_DIR "/tests/golden/node/data/object_info.json"

static bool same(const json_t *a, const json_t *b);

static bool same_object(const json_t *a, const json_t *b)
{
    if (json_object_size(a) != json_object_size(b))
        return false;
    json_t *o = (json_t *)(uintptr_t)a;
    for (void *i = json_object_iter(o); i; i = json_object_iter_next(o, i))
        if (!same(json_object_iter_value(i), json_object_get(b, json_object_iter_key(i))))
            return false;
    return true;
}

/* Numbers by value: 1 and 1.0 are the same to a browser. */
static bool same(const json_t *a, const json_t *b)
{
    double x, y;
    if (!a || !b)
        return false;
    if (js_get_f64(a, &x) && js_get_f64(b, &y))
        return x == y;
    if (js_kind(a) != js_kind(b))
        return false;
    if (json_is_object(a))
        return same_object(a, b);
    if (!json_is_array(a))
        return json_equal(a, b);
    bool ok = json_array_size(a) == json_array_size(b);
    for (size_t i = 0; ok && i < json_array_size(a); i++)
        ok = same(json_array_get(a, i), json_array_get(b, i));
    return ok;
}

/* Tooltips are our own, at any depth. */
static void drop_tips(json_t *v)
{
    json_t *x;
    size_t i;
    const char *key;
    json_object_del(v, "tooltip");
    json_object_foreach(v, key, x) drop_tips(x);
    json_array_foreach(v, i, x) drop_tips(x);
}

/* Folder listings are no part of the comparison. */
static void drop_choices(json_t *info, const struct node_class *c)
{
    for (size_t i = 0; i < c->ins; i++) {
        const struct node_input *in = &c->in[i];
        if (!in->options_fn && !in->folder)
            continue;
        json_t *group =
            json_object_get(json_object_get(info, "input"), in->optional ? "optional" : "required");
        json_t *spec = json_object_get(group, in->name);
        if (json_is_array(json_array_get(spec, 0)))
            json_array_set_new(spec, 0, json_array());
        else
            json_object_del(json_array_get(spec, 1), "options");
    }
}

/* Words for people are our own; an older class has no options where there is nothing else. */
static void drop_words(json_t *info, const struct node_class *c)
{
    static const char *const group[] = { "required", "optional" };
    const char *name;
    json_t *spec;
    for (size_t i = 0; i < ARRAY_LEN(group); i++)
        json_object_foreach(json_object_get(json_object_get(info, "input"), group[i]), name, spec)
        {
            json_t *options = json_array_get(spec, 1);
            drop_tips(json_object_get(options, "options"));
            if (!json_object_del(options, "tooltip") && !json_object_size(options) &&
                !(c->flags & NODE_V3))
                json_array_remove(spec, 1);
        }
}

static unsigned compare(const char *name, json_t *ours, json_t *theirs)
{
    static const char *const flags[] = { "deprecated", "experimental", "api_node" };
    unsigned bad = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags;
         i++) /* older classes: only where it is set */
        if (!json_object_get(theirs, flags[i]) && json_is_true(json_object_get(ours, flags[i]))) {
            print_message("%s is %s\n", name, flags[i]);
            bad++;
        }
    for (void *i = json_object_iter(theirs); i; i = json_object_iter_next(theirs, i)) {
        const char *key = json_object_iter_key(i);
        json_t *a = json_object_get(ours, key), *b = json_object_iter_value(i);
        if (same(a, b))
            continue;
        struct str x = { 0 }, y = { 0 };
        if (a)
            js_write(a, 0, &x);
        js_write(b, 0, &y);
        fprintf(stderr, "%s.%s\n  is     %s\n  wanted %s\n", name, key, str_c(&x), str_c(&y));
        str_release(&x);
        str_release(&y);
        bad++;
    }
    return bad;
}

static void classes_are_as_comfyui_has_them(void **state)
{
    struct node_rig *r = *state;
    json_t *all;
    unsigned bad = 0;
    assert_ok(js_parse_file(DATA, NULL, &all, &r->err), r->err);
    assert_true(json_object_size(all) > 150);
    for (void *i = json_object_iter(all); i; i = json_object_iter_next(all, i)) {
        const struct node_class *c = node_find(json_object_iter_key(i));
        json_t *ours;
        if (!c)
            fail_msg("no node '%s'", json_object_iter_key(i));
        assert_ok(node_info(&r->env, c, &ours, &r->err), r->err);
        drop_choices(ours, c);
        drop_words(ours, c);
        drop_choices(json_object_iter_value(i), c);
        bad += compare(c->name, ours, json_object_iter_value(i));
        json_decref(ours);
    }
    json_decref(all);
    assert_int_equal(bad, 0);
}

static int setup(void **state)
{
    static struct node_rig r;
    rig_open(&r);
    *state = &r;
    return 0;
}

static int teardown(void **state)
{
    rig_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_as_comfyui_has_them),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
