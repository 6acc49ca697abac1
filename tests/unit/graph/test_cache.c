/* What counts as the same, and what each kind of cache keeps between prompts. */
#include "graph/cache.h"
#include "support/graph_rig.h"

/* ---- keys ---- */

static struct node_key key_of(const char *prompt, const char *id)
{
    static const uint64_t seed[2] = { 1, 2 };
    berth_err err = { 0 };
    struct workflow wf;
    json_t *v = rig_quoted(prompt);
    assert_ok(workflow_load(&rig.env, v, &wf, &err), err);
    struct node_key *key = calloc(wf.n, sizeof *key);
    assert_non_null(key);
    assert_ok(keys_make(&rig.env, &wf, seed, NULL, key, &err), err);
    struct node_key k = key[workflow_find(&wf, id)];
    free(key);
    workflow_release(&wf);
    json_decref(v);
    return k;
}

/* Files are read for keys: that must not hold up an interrupt. */
static void keys_can_be_interrupted(void **state)
{
    (void)state;
    static const uint64_t seed[2] = { 1, 2 };
    berth_err err = { 0 };
    struct workflow wf;
    struct node_key key = { 0 };
    atomic_bool cancel = true;
    json_t *v = rig_quoted(GRAPH(C("1", "1")));
    assert_ok(workflow_load(&rig.env, v, &wf, &err), err);
    assert_fails(keys_make(&rig.env, &wf, seed, &cancel, &key, &err), err, BERTH_ECANCELED,
                 "interrupted");
    assert_false(key.set);
    workflow_release(&wf);
    json_decref(v);
}

static bool equal(const char *a, const char *b)
{
    struct node_key x = key_of(a, "1"), y = key_of(b, "1");
    assert_true(x.set && y.set);
    assert_int_equal(x.h[0] == y.h[0], x.h[1] == y.h[1]);
    return x.h[0] == y.h[0];
}

static void numbers_are_equal_by_value(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } t[] = {
        { "1", "1", true },
        { "1", "1.0", true },
        { "1", "true", true },
        { "0", "false", true },
        { "0", "-0.0", true },
        { "1", "2", false },
        { "1", "'1'", false },
        { "1", "1.5", false },
        { "1.5", "1.5000000000000002", false },
        { "null", "0", false },
        { "null", "''", false },
        { "''", "[]", false },
        { "[]", "{}", false },
        { "[1,[2]]", "[1,[2.0]]", true },
        { "[1,[2]]", "[[1],2]", false },
        { "['ab']", "['a','b']", false },
        { "{'a':1,'b':2}", "{'b':2.0,'a':true}", true },
        { "{'a':1,'b':2}", "{'a':2,'b':1}", false },
        { "18446744073709551615", "18446744073709551614", false },
        { "18446744073709551615", "-1", false },
        { "9223372036854775808", "9223372036854775808.0", true },
        { "-9223372036854775808", "-9223372036854775808.0", true },
        { "9007199254740993", "9007199254740992.0", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        char a[200], b[200];
        snprintf(a, sizeof a, "{'1':{'class_type':'Save','inputs':{'value':{'__value__':%s}}}}",
                 t[i].a);
        snprintf(b, sizeof b, "{'1':{'class_type':'Save','inputs':{'value':{'__value__':%s}}}}",
                 t[i].b);
        if (equal(a, b) != t[i].same)
            fail_msg("%s and %s", t[i].a, t[i].b);
    }
}

static void what_a_key_is_made_of(void **state)
{
    (void)state;
    static const char base[] = GRAPH(NODE("1", "Add", "'a':['2',0],'b':3"), C("2", "4"));
    static const struct {
        const char *other;
        bool same;
    } t[] = {
        { GRAPH(NODE("1", "Add", "'b':3,'a':['x',0]"), C("x", "4.0"), C("y", "9")), true },
        { "{'1':{'class_type':'Add','inputs':{'a':['2',0],'b':3},'_meta':{'title':'t'}}," C(
              "2", "4") "}",
          true },
        { GRAPH(NODE("1", "Add", "'a':['2',0],'b':3"), C("2", "5")), false },
        { GRAPH(NODE("1", "Add", "'b':['2',0],'a':3"), C("2", "4")), false },
        { GRAPH(NODE("1", "Add", "'a':['2',0]"), C("2", "4")), false },
        { GRAPH(NODE("1", "Add", "'a':['2',0],'b':3,'undeclared':0"), C("2", "4")), false },
        { GRAPH(NODE("1", "Add", "'a':['2',0],'b':3"), NODE("2", "Own", "'value':4")), false },
        { GRAPH(NODE("1", "Add", "'a':4,'b':3")), false },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        if (equal(base, t[i].other) != t[i].same)
            fail_msg("%s", t[i].other);
    /* another output of the same node */
    assert_false(equal(GRAPH(NODE("1", "Add", "'a':['2',0]"), NODE("2", "Add", "'a':1")),
                       GRAPH(NODE("1", "Add", "'a':['2',1]"), NODE("2", "Add", "'a':1"))));
    /* the id counts where the class says so */
    static const char *const with_id[] = { "Own", "Fresh" };
    for (size_t i = 0; i < 2; i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "{'1':{'class_type':'%s','inputs':{'value':1}},'2':{'class_type':'%s','inputs':{"
                 "'value':1}}}",
                 with_id[i], with_id[i]);
        struct node_key x = key_of(text, "1"), y = key_of(text, "2");
        assert_true(x.set && y.set && x.h[0] != y.h[0]);
    }
}

static void broken_nodes_have_no_key(void **state)
{
    (void)state;
    assert_false(key_of(GRAPH(NODE("1", "Add", "'a':['9',0]")), "1").set);
    assert_false(
        key_of(GRAPH(NODE("1", "Add", "'a':['2',0]"), NODE("2", "Add", "'a':['9',0]")), "1").set);
    assert_false(key_of("{'1':{'class_type':'Add'}}", "1").set);
    assert_false(key_of(GRAPH(NODE("1", "Nope", "")), "1").set);
    assert_false(key_of(GRAPH(NODE("1", "Add", "'a':['1',0]")), "1").set);
    static const char cycle[] =
        GRAPH(NODE("1", "Add", "'a':['2',0]"), NODE("2", "Add", "'a':['3',0]"),
              NODE("3", "Add", "'a':['1',0]"), NODE("4", "Save", "'value':['3',0]"), C("5", "1"));
    for (const char *id = "1234"; *id; id++)
        assert_false(key_of(cycle, (char[]) { *id, 0 }).set);
    assert_true(key_of(cycle, "5").set);
}

/* ---- IS_CHANGED ---- */

static void is_changed_decides(void **state)
{
    (void)state;
    static const char prompt[] =
        GRAPH(NODE("1", "Changing", "'value':1"), NODE("2", "Save", "'value':['1',0]"),
              NODE("3", "Save", "'value':['4',0]"), C("4", "2"));
    rig_open(CACHE_CLASSIC, 0, 0);
    struct exec_result r;
    static const struct {
        int changed;
        size_t executed;
    } t[] = { { 1, 4 }, { 1, 0 }, { 2, 2 }, { 2, 0 }, { -1, 2 }, { -1, 2 }, { 2, 2 } };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        rig.changed = t[i].changed;
        rig_run(rig_quoted(prompt), &r);
        assert_int_equal(r.outcome, EXEC_OK);
        assert_int_equal(r.executed, t[i].executed);
        exec_result_release(&r);
    }
    /* What the prompt says is believed. */
    static const char said[] =
        "{'1':{'class_type':'Changing','inputs':{'value':1},'is_changed':['v2'"
        "]}," NODE("2", "Save", "'value':['1',0]") "}";
    rig.changed = 3;
    rig_run(rig_quoted(said), &r);
    assert_int_equal(r.executed, 0);
    exec_result_release(&r);
    rig_close();
}

/* ---- what survives ---- */

static size_t executed(const char *value)
{
    char text[300];
    struct exec_result r;
    snprintf(text, sizeof text,
             "{'1':{'class_type':'Blob','inputs':{'tag':%s}},'2':{'class_type':'Blob','inputs':{"
             "'value':['1',0]}},'3':{'class_type':'Show','inputs':{'value':['2',0]}}}",
             value);
    rig_run(rig_quoted(text), &r);
    assert_int_equal(r.outcome, EXEC_OK);
    size_t n = r.executed;
    exec_result_release(&r);
    return n;
}

static void classic_keeps_what_the_prompt_has(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    assert_int_equal(executed("1"), 3);
    assert_int_equal(executed("1"), 0);
    assert_int_equal(executed("2"), 3);
    assert_int_equal(executed("1"), 3); /* taking turns runs both again */
    assert_int_equal(executor_info(rig.x).entries, 3);
    /* Disconnected nodes count for keeping. */
    struct exec_result r;
    rig_run(rig_quoted(GRAPH(NODE("1", "Blob", "'tag':1"), C("a", "1"),
                             NODE("b", "Show", "'value':['a',0]"))),
            &r);
    assert_string_equal(str_c(&rig.trace),
                        "start\ncached 1\nbegin a\ndone a\nbegin b\ndone b\nsuccess\n");
    exec_result_release(&r);
    rig_close();
}

static void lru_drops_the_oldest_prompts(void **state)
{
    (void)state;
    rig_open(CACHE_LRU, 6, 0);
    assert_int_equal(executed("1"), 3);
    assert_int_equal(executed("2"), 3);
    assert_int_equal(executed("1"), 0);
    assert_int_equal(executed("2"), 0);
    assert_int_equal(executed("3"), 3); /* nine entries now: they go when the next prompt starts */
    assert_int_equal(executor_info(rig.x).entries, 9);
    assert_int_equal(executed("2"), 0);
    assert_int_equal(executor_info(rig.x).entries, 6);
    assert_int_equal(executed("1"), 3); /* that one was the oldest */
    rig_close();
}

static void none_keeps_nothing(void **state)
{
    (void)state;
    rig_open(CACHE_NONE, 0, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(executed("1"), 3);
        assert_string_equal(str_c(&rig.trace),
                            "start\ncached\nbegin 1\ndone 1\nbegin 2\ndone 2\nbegin 3\ndone 3\n"
                            "success\n");
        assert_int_equal(executor_info(rig.x).entries, 0);
        assert_int_equal(rig.live, 0);
    }
    rig_close();
}

/* Every Blob weighs 1 MiB: free RAM is what they leave of a fixed amount. */
static uint64_t ram_beside_blobs(void *user)
{
    (void)user;
    return rig.ram - ((uint64_t)rig.live << 20);
}

static void ram_evicts_under_pressure(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    executor_free(rig.x);
    berth_err err = { 0 };
    struct executor_config cfg = { .env = &rig.env,
                                   .cache = CACHE_RAM,
                                   .ram_gb = 1,
                                   .ram_free = ram_beside_blobs,
                                   .event = rig_event,
                                   .event_user = &rig.trace };
    assert_ok(executor_new(&cfg, &rig.x, &err), err);
    rig.ram = UINT64_C(8) << 30;
    assert_int_equal(executed("1"), 3);
    assert_int_equal(executed("2"), 3);
    assert_int_equal(executed("3"), 3);
    assert_int_equal(executed("1"), 0); /* nothing presses: all is kept */
    assert_int_equal(rig.live, 6);
    /* After the next blob there are 5 MiB above the limit, then 4, ... and 1.1 x asks for 103 more
     * than there are: everything that nobody holds goes. */
    rig.ram = (UINT64_C(1) << 30) + (UINT64_C(7) << 20);
    assert_int_equal(executed("4"), 3);
    assert_in_range(rig.live, 0, 2);
    assert_int_equal(executed("1"), 3);
    rig_close();
}

static struct node_key test_key(uint64_t i)
{
    return (struct node_key) { .h = { i, i }, .set = true };
}

/* An entry of `blobs` MiB in the cache; the reference is the caller's. */
static struct entry *put(struct cache *c, uint64_t key, size_t blobs)
{
    berth_err err = { 0 };
    struct entry *e = entry_new(1);
    assert_non_null(e);
    for (size_t i = 0; i < blobs; i++) {
        rig.live++;
        assert_ok(values_add(&e->out[0], value_object(&type_blob, malloc(8)), &err), err);
    }
    cache_put(c, e, &(struct node_key) { .h = { key, key }, .set = true });
    return e;
}

static void new_prompt(struct cache *c)
{
    cache_begin(c, &(struct workflow) { 0 }, NULL);
}

static const struct executor_config ram_config = { .cache = CACHE_RAM,
                                                   .ram_gb = 0.01,
                                                   .ram_free = ram_beside_blobs };

/* The oldest go first, and no more than it takes. */
static void ram_evicts_by_age_and_stops(void **state)
{
    (void)state;
    rig_init();
    struct cache c;
    struct entry *in_use = NULL;
    cache_init(&c, &ram_config);
    for (uint64_t i = 0; i < 6; i++) {
        new_prompt(&c);
        struct entry *e = put(&c, i, 1);
        if (i == 1)
            in_use = e;
        else
            entry_unref(e);
    }
    /* Limit 10.24 MiB, enough is 11.264: with 9 MiB free three have to go. */
    rig.ram = UINT64_C(15) << 20;
    cache_relieve(&c);
    assert_int_equal(c.entries.item.n, 3);
    static const bool stays[] = { false, true, false, false, true, true };
    for (uint64_t i = 0; i < 6; i++) {
        struct node_key key = test_key(i);
        assert_true((cache_get(&c, &key) != NULL) == stays[i]);
    }
    cache_relieve(&c); /* 12 MiB free: nothing to do */
    assert_int_equal(c.entries.item.n, 3);
    entry_unref(in_use);
    cache_release(&c);
    assert_int_equal(rig.live, 0);
}

/* Size counts as much: 3 MiB outweigh three prompts of age, not six. */
static void ram_weighs_size_against_age(void **state)
{
    (void)state;
    for (int prompts = 3; prompts <= 6; prompts += 3) {
        rig_init();
        struct cache c;
        cache_init(&c, &ram_config);
        entry_unref(put(&c, 1, 1));
        entry_unref(put(&c, 2, 1)); /* as old, used later */
        for (int i = 0; i < prompts; i++)
            new_prompt(&c);
        entry_unref(put(&c, 3, 3));
        struct node_key key = test_key(prompts == 3 ? 3 : 1), other = test_key(2);
        rig.ram = (UINT64_C(5) << 20) + 10 * (UINT64_C(1) << 20) + (1 << 18); /* 10.25 free: fine */
        cache_relieve(&c);
        assert_int_equal(c.entries.item.n, 3);
        rig.ram -= 1 << 20; /* 9.25: one of 3 MiB is enough, of 1 MiB it takes all three */
        rig.ram += prompts == 6 ? (UINT64_C(1) << 20) - (1 << 16) : 0; /* 10.19: two of 1 MiB */
        cache_relieve(&c);
        assert_null(cache_get(&c, &key));
        if (prompts == 3)
            assert_non_null(cache_get(&c, &other));
        cache_release(&c);
        assert_int_equal(rig.live, 0);
    }
}

/* Of equal ones the longest unused goes. */
static void ram_breaks_ties_by_use(void **state)
{
    (void)state;
    rig_init();
    struct cache c;
    cache_init(&c, &ram_config);
    for (uint64_t i = 0; i < 4; i++)
        entry_unref(put(&c, i, 1));
    struct node_key first = test_key(0), second = test_key(1);
    assert_non_null(cache_get(&c, &first));
    rig.ram = (UINT64_C(4) << 20) + 10 * (UINT64_C(1) << 20) + (1 << 17); /* 10.125: needs 11.264 */
    cache_relieve(&c);
    assert_int_equal(c.entries.item.n, 2);
    assert_null(cache_get(&c, &second));
    assert_non_null(cache_get(&c, &first));
    cache_release(&c);
}

/* ---- states ---- */

static int64_t state_says(const char *prompt)
{
    struct exec_result r;
    rig_run(rig_quoted(prompt), &r);
    assert_int_equal(r.outcome, EXEC_OK);
    int64_t n = -1;
    js_get_i64(json_array_get(json_object_get(json_object_get(r.outputs, "s"), "got"), 0), &n);
    exec_result_release(&r);
    return n;
}

static void states_stay_while_the_id_does(void **state)
{
    (void)state;
    static const enum cache_mode modes[] = { CACHE_CLASSIC, CACHE_LRU, CACHE_RAM, CACHE_NONE };
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        rig_open(modes[i], 100, 0);
        static const char one[] =
            GRAPH(NODE("1", "State", "'value':1"), NODE("s", "Save", "'value':['1',0]"));
        static const char two[] =
            GRAPH(NODE("1", "State", "'value':2"), NODE("s", "Save", "'value':['1',0]"));
        static const char three[] =
            GRAPH(NODE("1", "State", "'value':3"), NODE("s", "Save", "'value':['1',0]"));
        static const char gone[] =
            GRAPH(NODE("1", "Const", "'value':3"), NODE("s", "Save", "'value':['1',0]"));
        assert_int_equal(state_says(one), 1);
        assert_int_equal(state_says(two), 2);
        assert_int_equal(state_says(three), 3);
        assert_int_equal(executor_info(rig.x).states, 2);
        state_says(gone); /* the id is there, with another class */
        assert_int_equal(state_says(GRAPH(NODE("1", "State", "'value':4"),
                                          NODE("s", "Save", "'value':['1',0]"))),
                         1);
        executor_reset(rig.x);
        assert_int_equal(executor_info(rig.x).states, 0);
        assert_int_equal(state_says(two), 1);
        rig_close();
    }
}

static int setup(void **state)
{
    (void)state;
    rig_init();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(keys_can_be_interrupted, setup),
        cmocka_unit_test_setup(numbers_are_equal_by_value, setup),
        cmocka_unit_test_setup(what_a_key_is_made_of, setup),
        cmocka_unit_test_setup(broken_nodes_have_no_key, setup),
        cmocka_unit_test(is_changed_decides),
        cmocka_unit_test(classic_keeps_what_the_prompt_has),
        cmocka_unit_test(lru_drops_the_oldest_prompts),
        cmocka_unit_test(none_keeps_nothing),
        cmocka_unit_test(ram_evicts_under_pressure),
        cmocka_unit_test(ram_evicts_by_age_and_stops),
        cmocka_unit_test(ram_weighs_size_against_age),
        cmocka_unit_test(ram_breaks_ties_by_use),
        cmocka_unit_test(states_stay_while_the_id_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
