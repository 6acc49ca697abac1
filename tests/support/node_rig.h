/* node_rig: one node called by hand: folders in a temporary place, inputs by name, outputs to look
 * at.
 *
 *     struct node_rig r;
 *     rig_open(&r);
 *     rig_node(&r, "ImageInvert");
 *     rig_set(&r, "image", rig_tensor(4, (size_t[]){ 1, 2, 2, 3 }, data));
 *     assert_ok(rig_run(&r), r.err);
 *     struct htensor *t = rig_out(&r, 0)->tensor;
 *     rig_close(&r); */
#ifndef SUPPORT_NODE_RIG_H
#define SUPPORT_NODE_RIG_H

#include "node/node.h"
#include "support/clock_manual.h"
#include "support/test.h"
#include "support/tmp.h"

struct node_rig {
    struct folders *folders;
    struct clock_manual clock;
    struct node_env env;
    struct node_host host;
    atomic_bool cancel;
    struct node_call call;
    struct values in[NODE_INPUTS_MAX], out[NODE_OUTPUTS_MAX];
    /* Of a class with dynamic inputs: what was set, by name; its inputs follow from it. */
    json_t *given;
    struct values set[NODE_INPUTS_MAX]; /* in the order of given */
    struct arena mem;
    char *state;
    berth_err err;
};

static inline void rig_open(struct node_rig *r)
{
    static const char *const devices[] = { "cpu", "cuda:0", NULL };
    memset(r, 0, sizeof *r);
    struct folders_config cfg = { .base = tmp_dir() };
    assert_ok(folders_new(&cfg, &r->folders, &r->err), r->err);
    clock_manual_init(&r->clock, 1, UINT64_C(1700000000000000000));
    r->env = (struct node_env) {
        .folders = r->folders, .devices = devices, .devices_n = 2, .clock = &r->clock.base
    };
    r->host = (struct node_host) { .cancel = &r->cancel };
}

static inline void rig_clear(struct node_rig *r)
{
    for (size_t i = 0; i < NODE_INPUTS_MAX; i++)
        values_release(&r->in[i]);
    for (size_t i = 0; i < NODE_INPUTS_MAX; i++)
        values_release(&r->set[i]);
    for (size_t i = 0; i < NODE_OUTPUTS_MAX; i++)
        values_release(&r->out[i]);
    json_decref(r->given);
    r->given = NULL;
    arena_release(&r->mem);
    json_decref(r->call.ui);
    r->call = (struct node_call) { 0 };
    free(r->state);
    r->state = NULL;
}

static inline void rig_close(struct node_rig *r)
{
    rig_clear(r);
    folders_free(r->folders);
}

/* Begins a call of the class; what the last one left is gone. */
static inline void rig_node(struct node_rig *r, const char *name)
{
    rig_clear(r);
    r->call = (struct node_call) { .env = &r->env,
                                   .cls = node_find(name),
                                   .host = &r->host,
                                   .id = "7",
                                   .in = r->in,
                                   .out = r->out,
                                   .state = &r->state };
    if (!r->call.cls)
        fail_msg("no node '%s'", name);
}

static inline bool rig_is_dynamic(const struct node_rig *r)
{
    for (size_t i = 0; i < r->call.cls->ins; i++)
        if (r->call.cls->in[i].kind >= IN_DYNCOMBO)
            return true;
    return false;
}

/* Its place among those that were set, which are looked at when the node runs. */
static inline size_t rig_place(struct node_rig *r, const char *name, const struct value *v)
{
    if (!r->given)
        r->given = json_object();
    if (!json_object_get(r->given, name))
        json_object_set_new(r->given, name,
                            v->kind == V_STRING ? json_string(v->s.p) : json_true());
    size_t i = 0;
    for (void *at = json_object_iter(r->given); at; at = json_object_iter_next(r->given, at), i++)
        if (!strcmp(json_object_iter_key(at), name))
            break;
    assert_true(i < NODE_INPUTS_MAX);
    return i;
}

/* The node's inputs from what was set. */
static inline void rig_expand(struct node_rig *r)
{
    size_t i = 0;
    for (size_t k = 0; k < NODE_INPUTS_MAX; k++)
        values_release(&r->in[k]);
    assert_ok(node_live_inputs(r->call.cls, r->given, &r->mem, &r->call.live, &r->err), r->err);
    assert_true(r->call.live.n <= NODE_INPUTS_MAX);
    for (void *at = r->given ? json_object_iter(r->given) : NULL; at;
         at = json_object_iter_next(r->given, at), i++) {
        size_t k = 0;
        while (k < r->call.live.n && strcmp(r->call.live.in[k].name, json_object_iter_key(at)))
            k++;
        for (size_t n = 0; k < r->call.live.n && n < r->set[i].n; n++)
            assert_ok(values_add(&r->in[k], value_ref(r->set[i].at[n]), &r->err), r->err);
    }
}

/* One more value of an input; takes it. */
static inline void rig_set(struct node_rig *r, const char *name, struct value *v)
{
    if (rig_is_dynamic(r)) {
        assert_ok(values_add(&r->set[rig_place(r, name, v)], v, &r->err), r->err);
        return;
    }
    size_t i = node_input_index(r->call.cls, name);
    if (i == SIZE_MAX)
        fail_msg("%s has no input '%s'", r->call.cls->name, name);
    assert_ok(values_add(&r->in[i], v, &r->err), r->err);
}
static inline void rig_int(struct node_rig *r, const char *name, int64_t v)
{
    rig_set(r, name, value_int(v));
}
static inline void rig_float(struct node_rig *r, const char *name, double v)
{
    rig_set(r, name, value_float(v));
}
static inline void rig_text(struct node_rig *r, const char *name, const char *v)
{
    rig_set(r, name, value_string(v, strlen(v)));
}
static inline void rig_bool(struct node_rig *r, const char *name, bool v)
{
    rig_set(r, name, value_bool(v));
}

static inline berth_status rig_run(struct node_rig *r)
{
    for (size_t i = 0; i < NODE_OUTPUTS_MAX; i++)
        values_release(&r->out[i]);
    if (rig_is_dynamic(r))
        rig_expand(r);
    return r->call.cls->run(&r->call, &r->err);
}

static inline struct value *rig_out(struct node_rig *r, size_t i)
{
    assert_true(i < r->call.cls->outs && r->out[i].n == 1);
    return r->out[i].at[0];
}

/* data NULL: 0, 1, 2, ... by 1/64. */
static inline struct htensor *rig_htensor(int ndim, const size_t *dim, const float *data)
{
    struct shape s = { .ndim = ndim };
    struct htensor *t;
    berth_err err;
    for (int i = 0; i < ndim; i++)
        s.dim[i] = dim[i];
    assert_ok(htensor_new(&s, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = data ? data[i] : (float)i / 64.0f;
    return t;
}
static inline struct value *rig_tensor(int ndim, const size_t *dim, const float *data)
{
    return value_tensor(rig_htensor(ndim, dim, data));
}
static inline struct value *rig_latent(int ndim, const size_t *dim, const float *data)
{
    struct latent l = { .samples = rig_htensor(ndim, dim, data) };
    return value_latent(&l);
}

/* t is [dims...] and its values are `want` within `eps`. */
static inline void rig_expect(const struct htensor *t, int ndim, const size_t *dim,
                              const float *want, float eps)
{
    char text[SHAPE_TEXT_MAX];
    bool same = t->shape.ndim == ndim;
    for (int i = 0; same && i < ndim; i++)
        same = t->shape.dim[i] == dim[i];
    if (!same)
        fail_msg("shape %s", shape_text(&t->shape, text));
    for (size_t i = 0; i < htensor_count(t); i++)
        if (!(t->data[i] >= want[i] - eps && t->data[i] <= want[i] + eps))
            fail_msg("[%zu] is %g, wanted %g", i, (double)t->data[i], (double)want[i]);
}

/* For cmocka_run_group_tests(): one rig for all tests of a program. */
static inline int rig_setup(void **state)
{
    static struct node_rig r;
    rig_open(&r);
    *state = &r;
    return 0;
}

static inline int rig_teardown(void **state)
{
    rig_close(*state);
    return 0;
}

#endif
