/* Random graphs, prompt after prompt: whatever the cache keeps, what an output shows is what a
 * plain recursive evaluation says, no node runs twice in a prompt, and none runs that nobody
 * needs. */
#include "support/graph_rig.h"
#include "support/rng.h"
#include "support/seed.h"

#define NODES 24
#define LIST 3

enum kind { K_CONST, K_ADD, K_MANY, K_COUNT, K_PICK, K_THROUGH, K_OWN, K_CHANGING, K_SAVE, KINDS };
static const char *const kind_class[] = { "Const",   "Add", "Many",     "Count", "Pick",
                                          "Through", "Own", "Changing", "Save" };

struct gnode {
    enum kind kind;
    int id; /* its name */
    int64_t value;
    bool which;
    int from[2], slot[2]; /* -1: the constant below */
    int64_t constant[2];
};
struct graph {
    struct gnode node[NODES];
    int n;
};

/* ---- graphs ---- */

static bool is_int(enum kind k)
{
    return k != K_SAVE && k != K_THROUGH;
}

static void wire(struct rng *r, struct graph *g, int i, int in, bool ints)
{
    struct gnode *n = &g->node[i];
    n->from[in] = -1;
    n->constant[in] = (int64_t)rng_below(r, 3);
    n->slot[in] = 0;
    for (int tries = 0; i > 0 && tries < 4; tries++) {
        int from = (int)rng_below(r, (size_t)i);
        enum kind k = g->node[from].kind;
        if (k == K_SAVE || (ints && !is_int(k)))
            continue;
        n->from[in] = from;
        n->slot[in] = k == K_ADD ? (int)rng_below(r, 2) : 0;
        return;
    }
}

static void fill(struct rng *r, struct graph *g, int i)
{
    struct gnode *n = &g->node[i];
    n->kind = (enum kind)rng_below(r, KINDS);
    n->value = (int64_t)rng_below(r, 3);
    n->which = rng_below(r, 2);
    wire(r, g, i, 0, n->kind == K_ADD || n->kind == K_PICK);
    wire(r, g, i, 1, true);
}

static void make(struct rng *r, struct graph *g)
{
    g->n = 2 + (int)rng_below(r, NODES - 2);
    for (int i = 0; i < g->n; i++) {
        fill(r, g, i);
        g->node[i].id = i;
    }
    g->node[g->n - 1].kind = K_SAVE;
}

/* A little change, as people make them. */
static void change(struct rng *r, struct graph *g)
{
    int i = (int)rng_below(r, (size_t)g->n), k;
    struct gnode t;
    switch (rng_below(r, 4)) {
    case 0:
        g->node[i].value = (int64_t)rng_below(r, 3);
        break;
    case 1:
        g->node[i].which = !g->node[i].which;
        break;
    case 2: /* names change places */
        k = (int)rng_below(r, (size_t)g->n);
        t = g->node[i];
        g->node[i].id = g->node[k].id;
        g->node[k].id = t.id;
        break;
    default:
        if (i + 1 < g->n) {
            bool was_source = g->node[i].kind != K_SAVE;
            t = g->node[i];
            fill(r, g, i);
            g->node[i].id = t.id;
            /* what is linked to it must still fit */
            if (was_source && is_int(t.kind) &&
                (g->node[i].kind == K_SAVE || !is_int(g->node[i].kind) ||
                 (t.kind == K_ADD && g->node[i].kind != K_ADD)))
                g->node[i] = t;
            else if (was_source && (g->node[i].kind == K_SAVE))
                g->node[i] = t;
        }
        break;
    }
}

static void put_input(struct str *s, const struct graph *g, const struct gnode *n, int in,
                      const char *name)
{
    if (n->from[in] < 0)
        str_addf(s, "\"%s\":%lld", name, (long long)n->constant[in]);
    else
        str_addf(s, "\"%s\":[\"%d\",%d]", name, g->node[n->from[in]].id, n->slot[in]);
}

static json_t *prompt_of(const struct graph *g)
{
    struct str s = { 0 };
    for (int i = 0; i < g->n; i++) {
        const struct gnode *n = &g->node[i];
        str_addf(&s, "%s\"%d\":{\"class_type\":\"%s\",\"inputs\":{", i ? "," : "{", n->id,
                 kind_class[n->kind]);
        switch (n->kind) {
        case K_CONST:
        case K_OWN:
        case K_CHANGING:
            str_addf(&s, "\"value\":%lld", (long long)n->value);
            break;
        case K_MANY:
            str_addf(&s, "\"n\":%lld", (long long)n->value + 1);
            break;
        case K_ADD:
            put_input(&s, g, n, 0, "a");
            str_addc(&s, ',');
            put_input(&s, g, n, 1, "b");
            break;
        case K_PICK:
            str_addf(&s, "\"which\":%s,", n->which ? "true" : "false");
            put_input(&s, g, n, 0, "a");
            str_addc(&s, ',');
            put_input(&s, g, n, 1, "b");
            break;
        default:
            put_input(&s, g, n, 0, "value");
            break;
        }
        str_adds(&s, "}}");
    }
    str_addc(&s, '}');
    json_t *v = rig_json(str_c(&s));
    str_release(&s);
    return v;
}

/* ---- the plain evaluation ---- */

struct list {
    int64_t at[LIST];
    int n;
};

static struct list eval(const struct graph *g, int i, int slot, bool *needed);

static struct list input(const struct graph *g, const struct gnode *n, int in, bool *needed)
{
    if (n->from[in] < 0)
        return (struct list) { .at = { n->constant[in] }, .n = 1 };
    return eval(g, n->from[in], n->slot[in], needed);
}

static struct list eval(const struct graph *g, int i, int slot, bool *needed)
{
    const struct gnode *n = &g->node[i];
    struct list a, b, out = { .n = 1 };
    needed[i] = true;
    switch (n->kind) {
    case K_CONST:
    case K_OWN:
    case K_CHANGING:
        out.at[0] = n->value;
        return out;
    case K_MANY:
        out.n = (int)n->value + 1;
        for (int k = 0; k < out.n; k++)
            out.at[k] = k;
        return out;
    case K_COUNT:
        out.at[0] = input(g, n, 0, needed).n;
        return out;
    case K_ADD:
        a = input(g, n, 0, needed);
        b = input(g, n, 1, needed);
        out.n = a.n > b.n ? a.n : b.n;
        for (int k = 0; k < out.n; k++) {
            int64_t sum =
                (a.at[k < a.n ? k : a.n - 1] * 3 + b.at[k < b.n ? k : b.n - 1] * 5 + 1) % 10007;
            out.at[k] = slot ? 2 * sum : sum;
        }
        return out;
    case K_PICK: {
        /* A constant is there without being asked for; it is one value, and changes nothing. */
        return input(g, n, n->which ? 0 : 1, needed);
    }
    default:
        return input(g, n, 0, needed);
    }
}

static bool is_output(enum kind k)
{
    return k == K_SAVE || k == K_THROUGH;
}

/* ---- the comparison ---- */

static void compare(const struct graph *g, const struct exec_result *r, bool *needed)
{
    for (int i = 0; i < g->n; i++) {
        const struct gnode *n = &g->node[i];
        char id[16];
        if (!is_output(n->kind))
            continue;
        struct list want = eval(g, i, 0, needed);
        snprintf(id, sizeof id, "%d", n->id);
        const json_t *ui = json_object_get(r->outputs, id);
        const json_t *got = json_object_get(ui, n->kind == K_SAVE ? "got" : "seen");
        assert_int_equal(json_array_size(got), want.n);
        for (int k = 0; n->kind == K_SAVE && k < want.n; k++)
            assert_int_equal(json_integer_value(json_array_get(got, (size_t)k)), want.at[k]);
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(r->meta, id), "node_id")), id);
    }
}

/* How often the trace says that node `id` was done. */
static void count_done(const char *trace, int *done)
{
    memset(done, 0, NODES * sizeof *done);
    for (const char *p = trace; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (strncmp(p, "done ", 5) == 0)
            done[strtol(p + 5, NULL, 10)]++;
}

/* Ids of run() calls: a node's calls stand together, and it comes once. */
static void check_calls(const struct graph *g, const bool *needed, enum cache_mode mode, bool ended)
{
    bool ran[NODES] = { false };
    int last = -1;
    const char *p = str_c(&rig.order);
    while (*p) {
        char *end;
        int id = (int)strtol(p, &end, 10);
        if (id != last && ran[id])
            fail_msg("node %d ran twice: %s", id, str_c(&rig.order));
        ran[id] = true;
        last = id;
        p = *end == ' ' ? end + 1 : end;
    }
    for (int i = 0; ended && i < g->n; i++) {
        if (ran[g->node[i].id] && !needed[i])
            fail_msg("node %d ran for nobody", g->node[i].id);
        if (mode == CACHE_NONE && needed[i] && !ran[g->node[i].id])
            fail_msg("node %d did not run", g->node[i].id);
    }
}

static void program(uint64_t seed, enum cache_mode mode)
{
    struct rng r = { seed };
    struct graph g;
    rig_open(mode, rng_below(&r, 40), 1);
    make(&r, &g);
    for (int prompt = 0; prompt < 12; prompt++) {
        struct exec_result out;
        bool needed[NODES] = { false };
        int done[NODES];
        size_t what = rng_below(&r, 10);
        if (what == 0)
            make(&r, &g);
        else if (what < 7)
            change(&r, &g);
        else if (what == 7)
            executor_reset(rig.x);
        rig.changed = (int)rng_below(&r, 4) - 1;
        rig.ram = rng_below(&r, 3) ? UINT64_MAX : UINT64_C(1) << 29; /* short of 1 GiB */
        rig.cancel_at_call = rng_below(&r, 6) ? -1 : (long)rng_below(&r, 10);
        rig_run(prompt_of(&g), &out);
        assert_int_not_equal(out.outcome, EXEC_FAILED);
        if (out.outcome == EXEC_OK)
            compare(&g, &out, needed);
        check_calls(&g, needed, mode, out.outcome == EXEC_OK);
        count_done(str_c(&rig.trace), done);
        for (int i = 0; i < g.n; i++) {
            assert_in_range(done[g.node[i].id], 0, 1);
            if (out.outcome == EXEC_OK && is_output(g.node[i].kind))
                assert_int_equal(done[g.node[i].id], 1);
        }
        if (mode == CACHE_NONE)
            assert_int_equal(executor_info(rig.x).entries, 0);
        if (mode == CACHE_CLASSIC)
            assert_in_range(executor_info(rig.x).entries, 0, (size_t)g.n);
        exec_result_release(&out);
    }
    rig_close();
}

static void every_cache_gives_the_same(void **state)
{
    (void)state;
    uint64_t first = rng_seed();
    for (uint64_t i = 0; i < 1500; i++) {
        running = first + i;
        program(running, (enum cache_mode)(running % 4));
    }
    running = 0;
}

int main(void)
{
    signal(SIGABRT, say_seed_and_die);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_cache_gives_the_same, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
