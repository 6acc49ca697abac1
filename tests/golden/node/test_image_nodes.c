/* Nodes of pictures, masks and latents against ComfyUI's: image_nodes.json names the cases, what
 * they are given and what they gave, image_nodes.safetensors has the tensors
 * (tools/golden/image_nodes.py says how both are written). */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/node_rig.h"

#include <math.h>

static struct weights *file;
static char about[128]; /* the case, for messages */

static struct htensor *tensor_of(const char *key)
{
    berth_err err = { 0 };
    struct htensor *t;
    size_t n;
    const struct weights_entry *e = weights_find(file, key, strlen(key));
    if (!e)
        fail_msg("%s: no tensor '%s'", about, key);
    assert_ok(htensor_new(&e->shape, &t, &err), err);
    float *x = golden_floats(file, e, &n);
    memcpy(t->data, x, n * sizeof *x);
    free(x);
    return t;
}

static const char *member(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static struct value *latent_of(const json_t *v)
{
    struct latent l = { .samples = tensor_of(member(v, "latent")) };
    const json_t *index = json_object_get(v, "index");
    if (member(v, "mask"))
        l.noise_mask = tensor_of(member(v, "mask"));
    if (index) {
        l.batch_index = calloc(json_array_size(index), sizeof *l.batch_index);
        assert_non_null(l.batch_index);
        for (size_t i = 0; i < json_array_size(index); i++)
            l.batch_index[i] = json_integer_value(json_array_get(index, i));
    }
    return value_latent(&l);
}

static void give_all(struct node_rig *r, json_t *inputs);

/* The first output of another node. */
static struct value *made_by(const json_t *v)
{
    struct node_rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    rig_open(r);
    rig_node(r, member(v, "node"));
    give_all(r, json_object_get(v, "inputs"));
    assert_ok(rig_run(r), r->err);
    struct value *out = value_ref(rig_out(r, 0));
    rig_close(r);
    free(r);
    return out;
}

static void give(struct node_rig *r, const char *name, const json_t *v)
{
    json_t *list = json_object_get(v, "list"), *plain = json_object_get(v, "json");
    if (member(v, "tensor"))
        rig_set(r, name, value_tensor(tensor_of(member(v, "tensor"))));
    else if (member(v, "latent"))
        rig_set(r, name, latent_of(v));
    else if (member(v, "node"))
        rig_set(r, name, made_by(v));
    else if (list)
        for (size_t i = 0; i < json_array_size(list); i++)
            rig_set(r, name, value_tensor(tensor_of(json_string_value(json_array_get(list, i)))));
    else
        rig_set(r, name, value_from_json(plain ? plain : v));
}

static void give_all(struct node_rig *r, json_t *inputs)
{
    for (void *at = json_object_iter(inputs); at; at = json_object_iter_next(inputs, at))
        give(r, json_object_iter_key(at), json_object_iter_value(at));
}

static void same_tensor(const struct htensor *got, const char *key, double eps)
{
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    struct htensor *want = tensor_of(key);
    if (!shape_eq(&got->shape, &want->shape))
        fail_msg("%s: %s is %s, reference %s", about, key, shape_text(&got->shape, a),
                 shape_text(&want->shape, b));
    for (size_t i = 0; i < htensor_count(want); i++)
        if (!(fabs((double)got->data[i] - (double)want->data[i]) <= eps))
            fail_msg("%s: value %zu of %s is %.9g, reference %.9g", about, i, key,
                     (double)got->data[i], (double)want->data[i]);
    htensor_unref(want);
}

static void same_latent(const struct latent *got, const json_t *want, double eps)
{
    const json_t *index = json_object_get(want, "index");
    const char *mask = member(want, "mask");
    same_tensor(got->samples, member(want, "latent"), eps);
    if (!got->noise_mask != !mask)
        fail_msg("%s: a mask is there %d, reference %d", about, !!got->noise_mask, !!mask);
    if (mask)
        same_tensor(got->noise_mask, mask, eps);
    if (!got->batch_index != !index)
        fail_msg("%s: indices are there %d, reference %d", about, !!got->batch_index, !!index);
    for (size_t i = 0; i < json_array_size(index); i++)
        assert_int_equal(got->batch_index[i], json_integer_value(json_array_get(index, i)));
}

static void same_value(const struct value *got, const json_t *want, double eps)
{
    const json_t *plain = json_object_get(want, "json"), *shape = json_object_get(want, "shape");
    double x;
    if (shape) {
        assert_int_equal(got->kind, V_TENSOR);
        assert_int_equal(got->tensor->shape.ndim, json_array_size(shape));
        for (size_t i = 0; i < json_array_size(shape); i++)
            assert_int_equal(got->tensor->shape.dim[i],
                             json_integer_value(json_array_get(shape, i)));
        return;
    }
    if (member(want, "tensor")) {
        assert_int_equal(got->kind, V_TENSOR);
        same_tensor(got->tensor, member(want, "tensor"), eps);
    } else if (member(want, "latent")) {
        assert_int_equal(got->kind, V_LATENT);
        same_latent(&got->latent, want, eps);
    } else if (plain) {
        assert_int_equal(got->kind, V_JSON);
        if (!json_equal(got->json, plain))
            fail_msg("%s: another object", about);
    } else if (json_is_string(want)) {
        assert_int_equal(got->kind, V_STRING);
        assert_string_equal(got->s.p, json_string_value(want));
    } else {
        assert_true(js_get_f64(want, &x));
        assert_true(got->kind == V_INT || got->kind == V_FLOAT);
        assert_true(fabs((got->kind == V_INT ? (double)got->i : got->f) - x) <= eps);
    }
}

static void same_outputs(struct node_rig *r, const json_t *want, double eps)
{
    assert_int_equal(r->call.cls->outs, json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++) {
        const json_t *v = json_array_get(want, i), *list = json_object_get(v, "list");
        if (!list) {
            same_value(rig_out(r, i), v, eps);
            continue;
        }
        if (r->out[i].n != json_array_size(list))
            fail_msg("%s: a list of %zu, reference %zu", about, r->out[i].n, json_array_size(list));
        for (size_t k = 0; k < r->out[i].n; k++)
            same_tensor(r->out[i].at[k]->tensor, json_string_value(json_array_get(list, k)), eps);
    }
}

static void nodes_give_what_comfyuis_do(void **state)
{
    struct node_rig *r = *state;
    json_t *cases;
    file = golden_open("image_nodes.safetensors");
    assert_ok(js_parse_file(golden_path("image_nodes.json"), NULL, &cases, &r->err), r->err);
    assert_true(json_array_size(cases) >= 150);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        double eps = json_number_value(json_object_get(one, "eps"));
        snprintf(about, sizeof about, "case %zu, %s", i, member(one, "class"));
        rig_node(r, member(one, "class"));
        give_all(r, json_object_get(one, "inputs"));
        if (rig_run(r))
            fail_msg("%s: %s", about, r->err.msg);
        same_outputs(r, json_object_get(one, "outputs"), eps);
    }
    print_message("%zu cases\n", json_array_size(cases));
    json_decref(cases);
    weights_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(nodes_give_what_comfyuis_do) };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
