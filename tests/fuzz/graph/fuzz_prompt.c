/* Workflows from strangers. The text is read as a prompt and validated against the real registry,
 * and small ones are run without residency; then the same against the classes of the tests, which
 * know lists, lazy inputs and errors, under a cache that the text chooses. What is stored back must
 * be valid again and say the same. */
#include "support/graph_rig.h"
#include "support/tmp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(int ok)
{
    if (!ok)
        abort();
}

/* Nothing in it makes anything large. */
static bool is_tiny(const json_t *v, int depth)
{
    double f;
    const char *key;
    json_t *e, *o = (json_t *)(uintptr_t)v;
    size_t i;
    if (js_get_f64(v, &f))
        return json_is_real(v) ? f <= 1 : f <= 16;
    if (depth > 8)
        return false;
    json_object_foreach(o, key, e) if (!is_tiny(e, depth + 1)) return false;
    json_array_foreach(o, i, e) if (!is_tiny(e, depth + 1)) return false;
    return true;
}

static void run(const struct node_env *env, enum cache_mode mode, json_t *prompt,
                const json_t *outputs)
{
    berth_err err = { 0 };
    struct executor *x = NULL;
    struct node_env own = *env;
    struct executor_config cfg = { .env = &own, .cache = mode, .lru = 3 };
    require(!executor_new(&cfg, &x, &err));
    for (int i = 0; i < 2; i++) {
        struct exec_result r;
        atomic_bool cancel = false;
        struct exec_request q = {
            .prompt_id = "fuzz", .prompt = prompt, .outputs = outputs, .cancel = &cancel
        };
        require(!executor_run(x, &q, &r, &err));
        require(r.last_data && r.outputs && r.meta && r.status);
        require(json_object_size(r.outputs) == json_object_size(r.meta));
        exec_result_release(&r);
    }
    executor_free(x);
}

static void look(const struct node_env *env, enum cache_mode mode, json_t *prompt,
                 const json_t *targets, bool small)
{
    struct validation a, b;
    berth_err err = { 0 };
    require(!graph_validate(env, prompt, targets, &a, &err));
    require(a.ok == !a.error && json_is_object(a.node_errors) && json_is_array(a.outputs));
    require(a.ok == (json_array_size(a.outputs) > 0));
    require(!graph_validate(env, prompt, targets, &b, &err));
    require(a.ok == b.ok && json_equal(a.outputs, b.outputs));
    require(json_object_size(a.node_errors) == json_object_size(b.node_errors));
    struct str text = { 0 }; /* answers can be sent */
    js_write(a.node_errors, 0, &text);
    require(!text.bad);
    str_release(&text);
    if (a.ok && small)
        run(env, mode, prompt, a.outputs);
    validation_release(&a);
    validation_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct folders *folders; /* of the process: made once, its folder goes at exit */
    static const char *const devices[] = { "cpu" };
    const struct js_limits lim = { .max_bytes = 1 << 16, .max_depth = 32, .max_values = 2000 };
    berth_err err = { 0 };
    json_t *v = NULL;
    if (!folders) {
        struct folders_config cfg = { .base = tmp_dir() };
        require(!folders_new(&cfg, &folders, &err));
    }
    if (js_parse((const char *)data, n, &lim, &v, &err))
        return 0;
    /* {"prompt", "partial_execution_targets"} as clients send it, or the prompt alone */
    json_t *prompt = json_object_get(v, "prompt") ? json_object_get(v, "prompt") : v;
    const json_t *targets = json_object_get(v, "partial_execution_targets");
    bool small = json_object_size(prompt) <= 4 && is_tiny(prompt, 0);
    json_t *copy = json_deep_copy(prompt);
    require(copy != NULL);
    rig_init();
    struct node_env real = {
        .folders = folders, .devices = devices, .devices_n = 1, .clock = &rig.clock.base
    };
    look(&real, CACHE_CLASSIC, copy, targets, small);
    json_decref(copy);
    look(&rig.env, (enum cache_mode)(n % 4), prompt, targets, json_object_size(prompt) <= 40);
    str_release(&rig.order);
    free(rig.seen_raw);
    free(rig.seen_prompt);
    free(rig.seen_png);
    json_decref(v);
    return 0;
}
