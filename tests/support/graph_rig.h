/* graph_rig: node classes for tests of graph/, an environment that knows only them, and runs whose
 * events are lines of text. Everything is static: a test program includes it once. */
#ifndef SUPPORT_GRAPH_RIG_H
#define SUPPORT_GRAPH_RIG_H

#include "base/map.h"
#include "device/device.h"
#include "graph/graph.h"
#include "support/clock_manual.h"
#include "support/test.h"

#include <stdatomic.h>

struct rig {
    struct node_env env;
    struct clock_manual clock;
    struct executor *x;
    struct str trace; /* events, one a line */
    size_t calls;     /* of run() of all classes */
    int changed;      /* what Changing's IS_CHANGED says; negative: it fails */
    atomic_bool cancel;
    long cancel_at_call;                     /* run() number that sets cancel; -1: none */
    double cancel_at_value;                  /* Slow: progress value that sets cancel; < 0: none */
    struct executor *reset;                  /* Reset's run() resets it */
    uint64_t ram;                            /* ram_free() */
    size_t live, live_max;                   /* V_OBJECT values of Blob */
    struct str order;                        /* ids in the order of run() */
    struct str leads;                        /* ids of Blobs whose output leads to an INT */
    char *seen_raw, *seen_prompt, *seen_png; /* what Look saw, as JSON; owned */
};
static struct rig rig;

/* ---- prompts for rig_quoted(): GRAPH(C("1", "5"), NODE("2", "Save", "'value':['1',0]")) ---- */

#define C(id, v) "'" id "':{'class_type':'Const','inputs':{'value':" v "}}"
#define NODE(id, class, inputs) "'" id "':{'class_type':'" class "','inputs':{" inputs "}}"

#define GRAPH(...) "{" GRAPH_N(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)(__VA_ARGS__) "}"
#define GRAPH_N(a, b, c, d, e, f, g, h, n, ...) GRAPH_##n
#define GRAPH_1(a) a
#define GRAPH_2(a, ...) a "," GRAPH_1(__VA_ARGS__)
#define GRAPH_3(a, ...) a "," GRAPH_2(__VA_ARGS__)
#define GRAPH_4(a, ...) a "," GRAPH_3(__VA_ARGS__)
#define GRAPH_5(a, ...) a "," GRAPH_4(__VA_ARGS__)
#define GRAPH_6(a, ...) a "," GRAPH_5(__VA_ARGS__)
#define GRAPH_7(a, ...) a "," GRAPH_6(__VA_ARGS__)
#define GRAPH_8(a, ...) a "," GRAPH_7(__VA_ARGS__)

/* ---- helpers of the classes ---- */

static inline void rig_called(struct node_call *c)
{
    rig.calls++;
    str_addf(&rig.order, "%s%s", rig.order.n ? " " : "", c->id);
    if (rig.cancel_at_call >= 0 && (long)rig.calls > rig.cancel_at_call)
        atomic_store(&rig.cancel, true);
}

static inline berth_status rig_int(const struct node_call *c, const char *name, int64_t *out,
                                   berth_err *err)
{
    const struct value *v = in_value(c, name);
    if (v && v->kind == V_JSON) { /* "*" sockets take anything */
        *out = 0;
        return BERTH_OK;
    }
    return in_i64(c, name, out, err);
}

/* ---- classes ---- */

/* Const(value) -> INT */
static inline berth_status run_const(struct node_call *c, berth_err *err)
{
    int64_t v;
    rig_called(c);
    berth_status s = in_i64(c, "value", &v, err);
    return s ? s : out_value(c, 0, value_int(v), err);
}
static const struct node_input in_const[] = {
    { .name = "value", .kind = IN_INT, .imin = -1000, .imax = 1000000 },
};
static const struct node_output out_int[] = { { .type = "INT" } };
#define CLASS(n, ...)                                                                              \
    static const struct node_class class_##n = {                                                   \
        .name = #n, .category = "test", .module = "nodes", __VA_ARGS__                             \
    }
#define INS(a) .in = a, .ins = ARRAY_LEN(a)
#define OUTS(a) .out = a, .outs = ARRAY_LEN(a)
CLASS(Const, INS(in_const), OUTS(out_int), .run = run_const);

/* Add(a, b?) -> INT, and twice that */
static inline berth_status run_add(struct node_call *c, berth_err *err)
{
    int64_t a, b;
    rig_called(c);
    if (in_i64(c, "a", &a, err) || in_i64(c, "b", &b, err))
        return err->code;
    /* Keeps numbers small, however long the chain. */
    int64_t sum = (a * 3 + b * 5 + 1) % 10007;
    if (out_value(c, 0, value_int(sum), err))
        return err->code;
    return out_value(c, 1, value_int(2 * sum), err);
}
static const struct node_input in_add[] = {
    { .name = "a", .kind = IN_INT, .imin = -1000, .imax = 1000000 },
    { .name = "b", .kind = IN_INT, .imin = -1000, .imax = 1000000, .optional = true, .idef = 7 },
};
static const struct node_output out_two[] = { { .type = "INT" },
                                              { .type = "INT", .name = "twice" } };
CLASS(Add, INS(in_add), OUTS(out_two), .run = run_add);

/* Save(value): an output node that shows what it got; Show: one without ui */
static inline berth_status run_save(struct node_call *c, berth_err *err)
{
    rig_called(c);
    return ui_add(c, "got", value_describe(in_value(c, "value")), err);
}
static inline berth_status run_show(struct node_call *c, berth_err *err)
{
    (void)err;
    rig_called(c);
    if (!c->ui)
        c->ui = json_object(); /* an empty one is none */
    return BERTH_OK;
}
static const struct node_input in_any[] = { { .name = "value", .kind = IN_SOCKET, .type = "*" } };
CLASS(Save, INS(in_any), .run = run_save, .flags = NODE_OUTPUT);
CLASS(Show, INS(in_any), .run = run_show, .flags = NODE_OUTPUT);
/* Through(value) -> the same, and it is an output node with a picture of its own */
static inline berth_status run_through(struct node_call *c, berth_err *err)
{
    rig_called(c);
    if (ui_add(c, "seen", json_true(), err))
        return err->code;
    return out_value(c, 0, value_ref(in_value(c, "value")), err);
}
static const struct node_output out_any[] = { { .type = "*" } };
CLASS(Through, INS(in_any), OUTS(out_any), .run = run_through, .flags = NODE_OUTPUT);

/* Many(n) -> list 0..n-1; Count(value): whole lists -> their length */
static inline berth_status run_many(struct node_call *c, berth_err *err)
{
    int64_t n;
    rig_called(c);
    berth_status s = in_i64(c, "n", &n, err);
    for (int64_t i = 0; i < n && !s; i++)
        s = out_value(c, 0, value_int(i), err);
    return s;
}
static const struct node_input in_n[] = { { .name = "n", .kind = IN_INT, .imax = 100 } };
static const struct node_output out_list[] = { { .type = "INT", .is_list = true } };
CLASS(Many, INS(in_n), OUTS(out_list), .run = run_many);
static inline berth_status run_count(struct node_call *c, berth_err *err)
{
    rig_called(c);
    return out_value(c, 0, value_int((int64_t)c->in[0].n), err);
}
CLASS(Count, INS(in_any), OUTS(out_int), .run = run_count, .flags = NODE_INPUT_IS_LIST);

/* Block(value, why) -> value, but blockers for odd ones; why "": silent */
static inline berth_status run_block(struct node_call *c, berth_err *err)
{
    int64_t v;
    const char *why;
    rig_called(c);
    if (in_i64(c, "value", &v, err) || in_text(c, "why", &why, err))
        return err->code;
    return out_value(c, 0, v % 2 ? value_blocker(*why ? why : NULL) : value_int(v), err);
}
static const struct node_input in_block[] = {
    { .name = "value", .kind = IN_INT, .imin = 0, .imax = 1000000 },
    { .name = "why", .kind = IN_STRING },
};
CLASS(Block, INS(in_block), OUTS(out_int), .run = run_block);

/* Crop(value) -> value: shows something, and is no output */
CLASS(Crop, INS(in_any), OUTS(out_any), .run = run_through, .flags = NODE_INTERMEDIATE);

/* Mode(mode {one | two: x}, values.v0..2) -> INT: x, or the number of values */
static inline berth_status run_mode(struct node_call *c, berth_err *err)
{
    const char *mode;
    int64_t v = 0;
    rig_called(c);
    if (in_text(c, "mode", &mode, err))
        return err->code;
    if (strcmp(mode, "two") == 0) {
        if (in_i64(c, "mode.x", &v, err))
            return err->code;
    } else {
        for (size_t at = 0; in_member(c, "values", &at, NULL);)
            v++;
    }
    return out_value(c, 0, value_int(v), err);
}
static const struct node_input in_mode_two[] = { { .name = "x", .kind = IN_INT, .imax = 9 } };
static const struct node_choice mode_choices[] = {
    { .key = "one" }, { .key = "two", .in = in_mode_two, .ins = ARRAY_LEN(in_mode_two) }
};
static const struct node_input in_mode[] = {
    { .name = "mode",
      .kind = IN_DYNCOMBO,
      .choice = mode_choices,
      .choices = ARRAY_LEN(mode_choices) },
    { .name = "values",
      .kind = IN_AUTOGROW,
      .sub = (const struct node_input[]) { { .name = "v", .kind = IN_SOCKET, .type = "INT" } },
      .subs = 1,
      .prefix = "v",
      .min = 1,
      .max = 3 },
};
CLASS(Mode, INS(in_mode), OUTS(out_int), .run = run_mode, .flags = NODE_V3);

/* Never(value?) -> INT, one that is declared and cannot be computed */
static const struct node_input in_never[] = {
    { .name = "value", .kind = IN_SOCKET, .type = "*", .optional = true }
};
CLASS(Never, INS(in_never), OUTS(out_int), .run = node_not_yet);

/* Pick(which, a lazy, b lazy) -> INT */
static inline berth_status run_pick(struct node_call *c, berth_err *err)
{
    bool which;
    int64_t v = 0;
    rig_called(c);
    if (in_bool(c, "which", &which, err) || in_i64(c, which ? "a" : "b", &v, err))
        return err->code;
    return out_value(c, 0, value_int(v), err);
}
static inline berth_status lazy_pick(struct node_call *c, bool *need, berth_err *err)
{
    bool which;
    if (in_bool(c, "which", &which, err))
        return err->code;
    need[which ? 1 : 2] = true;
    return BERTH_OK;
}
static const struct node_input in_pick[] = {
    { .name = "which", .kind = IN_BOOLEAN },
    { .name = "a", .kind = IN_INT, .imax = 1000000, .lazy = true },
    { .name = "b", .kind = IN_INT, .imax = 1000000, .lazy = true },
};
CLASS(Pick, INS(in_pick), OUTS(out_int), .run = run_pick, .lazy = lazy_pick);

/* Fail(value, how): "value" | "device" | "full" | "memory" | "cancel" | "nothing" | anything: it
 * works */
static inline berth_status run_fail(struct node_call *c, berth_err *err)
{
    const char *how;
    rig_called(c);
    if (in_text(c, "how", &how, err))
        return err->code;
    if (strcmp(how, "value") == 0)
        return err_set(err, BERTH_EINVAL, "no good");
    if (strcmp(how, "device") == 0)
        return err_set(err, BERTH_ENODEVMEM, "12 bytes on null:0");
    if (strcmp(how, "full") == 0) {
        err_set(err, BERTH_ENODEVMEM, "null:0 is full: needs 1 B");
        err_on_device(err, "null:0", 1);
        return err_add(err, "step 1: a pass on null:0");
    }
    if (strcmp(how, "memory") == 0)
        return err_set(err, BERTH_ENOMEM, "12 bytes");
    if (strcmp(how, "cancel") == 0)
        return err_set(err, BERTH_ECANCELED, "stopped");
    if (strcmp(how, "nothing") == 0)
        return BERTH_OK;
    return out_value(c, 0, value_ref(in_value(c, "value")), err);
}
static const struct node_input in_fail[] = {
    { .name = "value", .kind = IN_SOCKET, .type = "*" },
    { .name = "how", .kind = IN_STRING, .sdef = "" },
};
CLASS(Fail, INS(in_fail), OUTS(out_any), .run = run_fail);

/* Slow(steps, value?) -> INT: tells its progress */
static inline berth_status run_slow(struct node_call *c, berth_err *err)
{
    int64_t n;
    rig_called(c);
    berth_status s = in_i64(c, "steps", &n, err);
    for (int64_t i = 1; i <= n && !s; i++) {
        if (rig.cancel_at_value >= 0 && (double)i >= rig.cancel_at_value)
            atomic_store(&rig.cancel, true);
        s = call_progress(c, (double)i, (double)n, err);
    }
    return s ? s : out_value(c, 0, value_int(n), err);
}
static const struct node_input in_slow[] = {
    { .name = "steps", .kind = IN_INT, .imax = 100 },
    { .name = "value", .kind = IN_SOCKET, .type = "*", .optional = true },
};
CLASS(Slow, INS(in_slow), OUTS(out_int), .run = run_slow);

/* Peek(steps) -> INT: a look and a word after each step */
static inline berth_status run_peek(struct node_call *c, berth_err *err)
{
    struct image im = { 0 };
    rig_called(c);
    if (call_step(c, &(struct node_step) { 1, 2, &im, true }, err))
        return err->code;
    c->host->text(c->host->user, "word", 4);
    return out_value(c, 0, value_int(1), err);
}
CLASS(Peek, INS(in_slow), OUTS(out_int), .run = run_peek);

/* Own(value): UNIQUE_ID; Fresh(value): not idempotent; Changing(value): IS_CHANGED */
CLASS(Own, INS(in_const), OUTS(out_int), .run = run_const, .flags = NODE_UNIQUE_ID);
CLASS(Fresh, INS(in_const), OUTS(out_int), .run = run_const, .flags = NODE_NOT_IDEMPOTENT);
static inline berth_status changing(const struct node_check *k, struct str *out, berth_err *err)
{
    (void)k;
    if (rig.changed < 0)
        return err_set(err, BERTH_EIO, "cannot be read");
    str_addf(out, "v%d", rig.changed);
    return BERTH_OK;
}
CLASS(Changing, INS(in_const), OUTS(out_int), .run = run_const, .changed = changing);

/* State(value) -> how often this node was called while it kept its state */
static inline berth_status run_state(struct node_call *c, berth_err *err)
{
    rig_called(c);
    size_t n = *c->state ? strlen(*c->state) + 1 : 1;
    char *longer = calloc(1, n + 1);
    if (!longer)
        return err_set(err, BERTH_ENOMEM, "state");
    memset(longer, 'x', n);
    free(*c->state);
    *c->state = longer;
    return out_value(c, 0, value_int((int64_t)n), err);
}
CLASS(State, INS(in_const), OUTS(out_int), .run = run_state);

/* Look: hidden inputs and undeclared ones */
static inline char *rig_text(const json_t *v)
{
    struct str s = { 0 };
    if (v)
        js_write(v, 0, &s);
    else
        str_adds(&s, "-");
    return str_take(&s);
}
static inline berth_status run_look(struct node_call *c, berth_err *err)
{
    (void)err;
    rig_called(c);
    free(rig.seen_raw);
    free(rig.seen_prompt);
    free(rig.seen_png);
    rig.seen_raw = rig_text(c->raw);
    rig.seen_prompt = rig_text(c->prompt);
    rig.seen_png = rig_text(c->extra_pnginfo);
    return BERTH_OK;
}
static const struct node_input in_opt[] = {
    { .name = "value", .kind = IN_SOCKET, .type = "*", .optional = true },
};
CLASS(Look, INS(in_opt), .run = run_look,
      .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO | NODE_ANY_INPUT);
CLASS(Blind, INS(in_opt), .run = run_look, .flags = NODE_OUTPUT);

/* Blob(value?) -> an object that is counted while it lives; Reset resets the executor */
static inline void blob_free(void *p)
{
    rig.live--;
    free(p);
}
static inline size_t blob_bytes(const void *p)
{
    (void)p;
    return 1 << 20;
}
static const struct value_type type_blob = { .name = "BLOB",
                                             .free = blob_free,
                                             .bytes = blob_bytes };
static inline berth_status run_blob(struct node_call *c, berth_err *err)
{
    rig_called(c);
    if (c->host->leads_to(c->host->user, 0, "INT"))
        str_addf(&rig.leads, "%s ", c->id);
    char *p = malloc(8);
    if (!p)
        return err_set(err, BERTH_ENOMEM, "blob");
    if (++rig.live > rig.live_max)
        rig.live_max = rig.live;
    return out_value(c, 0, value_object(&type_blob, p), err);
}
static const struct node_input in_blob[] = {
    { .name = "value", .kind = IN_SOCKET, .type = "BLOB", .optional = true },
    { .name = "tag", .kind = IN_INT, .imax = 1000000, .optional = true },
};
static const struct node_output out_blob[] = { { .type = "BLOB" } };
CLASS(Blob, INS(in_blob), OUTS(out_blob), .run = run_blob);
static inline berth_status run_reset(struct node_call *c, berth_err *err)
{
    executor_reset(rig.reset);
    return run_const(c, err);
}
CLASS(Reset, INS(in_const), OUTS(out_int), .run = run_reset);

/* ---- classes of validation ---- */

static const char *const few[] = { "a", "b'c", NULL };
static const char *const lots[] = { "0",  "1",  "2",  "3",  "4",  "5",  "6",  "7",
                                    "8",  "9",  "10", "11", "12", "13", "14", "15",
                                    "16", "17", "18", "19", "20", NULL };
static inline berth_status listing(const struct node_env *env, struct names *out, berth_err *err)
{
    (void)env;
    static const char *const file[] = { "x.safetensors", "sub/y.safetensors" };
    for (size_t i = 0; i < ARRAY_LEN(file); i++)
        if (!names_add(out, file[i], strlen(file[i])))
            return err_set(err, BERTH_ENOMEM, "listing");
    return BERTH_OK;
}
static inline berth_status no_listing(const struct node_env *env, struct names *out, berth_err *err)
{
    (void)env;
    (void)out;
    return err_set(err, BERTH_EIO, "folder is gone");
}
static const struct node_input in_rules[] = {
    { .name = "i", .kind = IN_INT, .idef = 20, .imin = 16, .imax = 64, .optional = true },
    { .name = "big", .kind = IN_INT, .imax = UINT64_MAX, .optional = true },
    { .name = "free", .kind = IN_INT, .no_range = true, .optional = true },
    { .name = "f", .kind = IN_FLOAT, .fdef = 1, .fmin = 0, .fmax = 2.5, .optional = true },
    { .name = "ff", .kind = IN_FLOAT, .no_range = true, .optional = true },
    { .name = "s", .kind = IN_STRING, .optional = true },
    { .name = "b", .kind = IN_BOOLEAN, .optional = true },
    { .name = "c", .kind = IN_COMBO, .options = few, .optional = true },
    { .name = "lots", .kind = IN_COMBO, .options = lots, .optional = true },
    { .name = "file", .kind = IN_COMBO, .options_fn = listing, .optional = true },
    { .name = "gone", .kind = IN_COMBO, .options_fn = no_listing, .optional = true },
    { .name = "im", .kind = IN_SOCKET, .type = "IMAGE", .optional = true },
    { .name = "two", .kind = IN_SOCKET, .type = "IMAGE, MASK", .optional = true },
    { .name = "any", .kind = IN_SOCKET, .type = "*", .optional = true },
};
CLASS(Rules, INS(in_rules), OUTS(out_int), .run = run_show);
CLASS(RulesV3, INS(in_rules), OUTS(out_int), .run = run_show, .flags = NODE_V3);
CLASS(Sink, INS(in_rules), .run = run_show, .flags = NODE_OUTPUT);
static const struct node_input in_needy[] = {
    { .name = "im", .kind = IN_SOCKET, .type = "IMAGE" },
    { .name = "group.x", .kind = IN_INT, .imax = 9 },
};
CLASS(Needy, INS(in_needy), .run = run_show, .flags = NODE_OUTPUT);
CLASS(NeedyV3, INS(in_needy), .run = run_show, .flags = NODE_OUTPUT | NODE_V3);
static const struct node_output out_many[] = {
    { .type = "IMAGE" }, { .type = "MASK" }, { .type = "LATENT" }, { .type = "COMBO" }
};
CLASS(Source, OUTS(out_many), .run = run_show);
CLASS(SourceV3, OUTS(out_many), .run = run_show, .flags = NODE_V3);
static inline berth_status valid_picture(const struct node_check *k, berth_err *err)
{
    const char *name = json_string_value(check_input(k, "image"));
    if (name && strcmp(name, "there.png") == 0)
        return BERTH_OK;
    if (name && strcmp(name, "mute.png") == 0) {
        err_set(err, BERTH_EINVAL, "%s", "");
        return BERTH_EINVAL;
    }
    return err_set(err, BERTH_EINVAL, "Invalid image file: %s", name ? name : "?");
}
static const struct node_input in_picture[] = {
    { .name = "image", .kind = IN_COMBO, .options = few },
    { .name = "i", .kind = IN_INT, .imax = 9, .optional = true },
    { .name = "im", .kind = IN_SOCKET, .type = "IMAGE", .optional = true },
};
CLASS(Picture, INS(in_picture), .run = run_show, .flags = NODE_OUTPUT | NODE_CHECKS_TYPES,
      .validate = valid_picture, .validates = "image");

static inline const struct node_class *rig_find(const char *name)
{
    static const struct node_class *const all[] = {
        &class_Const,   &class_Add,   &class_Save,     &class_Show,   &class_Through,
        &class_Many,    &class_Count, &class_Pick,     &class_Fail,   &class_Slow,
        &class_Own,     &class_Fresh, &class_State,    &class_Look,   &class_Blind,
        &class_Blob,    &class_Reset, &class_Changing, &class_Rules,  &class_RulesV3,
        &class_Sink,    &class_Needy, &class_NeedyV3,  &class_Source, &class_SourceV3,
        &class_Picture, &class_Peek,  &class_Never,    &class_Block,  &class_Crop,
        &class_Mode,
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

/* ---- the rig ---- */

static inline json_t *rig_json(const char *text)
{
    json_t *v = NULL;
    berth_err err = { 0 };
    assert_ok(js_parse(text, strlen(text), NULL, &v, &err), err);
    return v;
}

static inline void rig_init(void)
{
    rig = (struct rig) { .cancel_at_call = -1, .cancel_at_value = -1 };
    clock_manual_init(&rig.clock, 1, UINT64_C(1700000000123) * 1000000);
    rig.env = (struct node_env) { .clock = &rig.clock.base, .find = rig_find };
}

static inline uint64_t rig_ram(void *user)
{
    (void)user;
    return rig.ram;
}

static inline void rig_event(void *user, const struct exec_event *e)
{
    static const char *const name[] = {
        [EXEC_START] = "start",      [EXEC_CACHED] = "cached",
        [EXEC_NODE_START] = "begin", [EXEC_PROGRESS] = "progress",
        [EXEC_TEXT] = "text",        [EXEC_EXECUTED] = "executed",
        [EXEC_NODE_DONE] = "done",   [EXEC_SUCCESS] = "success",
        [EXEC_ERROR] = "error",      [EXEC_INTERRUPTED] = "interrupted",
    };
    struct str *t = user;
    str_adds(t, name[e->kind]);
    if (e->kind == EXEC_CACHED) {
        const json_t *nodes = json_object_get(e->data, "nodes");
        for (size_t i = 0; i < json_array_size(nodes); i++)
            str_addf(t, " %s", json_string_value(json_array_get(nodes, i)));
    }
    if (e->node)
        str_addf(t, " %s", e->node);
    if (e->kind == EXEC_PROGRESS)
        str_addf(t, " %g/%g%s", e->value, e->max, e->picture && e->png ? " png" : "");
    if (e->kind == EXEC_TEXT)
        str_addf(t, " %.*s", (int)e->text_n, e->text);
    if (e->kind == EXEC_EXECUTED) {
        str_addc(t, ' ');
        if (e->output)
            js_write(e->output, 0, t);
        else
            str_adds(t, "null");
    }
    if (e->kind == EXEC_ERROR || e->kind == EXEC_INTERRUPTED)
        str_addf(t, " %s", json_string_value(json_object_get(e->data, "node_id")));
    str_addc(t, '\n');
}

static inline void rig_open(enum cache_mode mode, size_t lru, double ram_gb)
{
    berth_err err = { 0 };
    rig_init();
    struct executor_config cfg = {
        .env = &rig.env,
        .cache = mode,
        .lru = lru,
        .ram_gb = ram_gb,
        .ram_free = rig_ram,
        .event = rig_event,
        .event_user = &rig.trace,
    };
    rig.ram = UINT64_MAX;
    assert_ok(executor_new(&cfg, &rig.x, &err), err);
    rig.reset = rig.x;
}

static inline void rig_close(void)
{
    executor_free(rig.x);
    str_release(&rig.trace);
    str_release(&rig.order);
    str_release(&rig.leads);
    free(rig.seen_raw);
    free(rig.seen_prompt);
    free(rig.seen_png);
    rig.seen_raw = rig.seen_prompt = rig.seen_png = NULL;
    rig.x = NULL;
}

/* Validates and runs `prompt` (taken); the result is the caller's. The trace starts anew and ends
 * with the last event. */
static inline void rig_run(json_t *prompt, struct exec_result *out)
{
    struct validation v;
    berth_err err = { 0 };
    assert_ok(graph_validate(&rig.env, prompt, NULL, &v, &err), err);
    if (!v.ok || json_object_size(v.node_errors)) {
        char *text = rig_text(v.node_errors);
        fail_msg("not valid: %s", text);
    }
    str_clear(&rig.trace);
    str_clear(&rig.order);
    str_clear(&rig.leads);
    rig.calls = 0;
    atomic_store(&rig.cancel, false);
    json_t *extra = json_pack("{s:{s:s}}", "extra_pnginfo", "workflow", "w");
    struct exec_request q = { .prompt_id = "p",
                              .prompt = prompt,
                              .extra_data = extra,
                              .outputs = v.outputs,
                              .cancel = &rig.cancel };
    assert_ok(executor_run(rig.x, &q, out, &err), err);
    rig_event(&rig.trace, &out->last);
    validation_release(&v);
    json_decref(extra);
    json_decref(prompt);
}

/* ... and only its trace counts. Single quotes in `text` stand for double ones. */
static inline json_t *rig_quoted(const char *text)
{
    char *s = strdup(text);
    assert_non_null(s);
    for (char *p = s; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *v = rig_json(s);
    free(s);
    return v;
}
static inline void rig_trace(const char *prompt, const char *want)
{
    struct exec_result r;
    rig_run(rig_quoted(prompt), &r);
    assert_string_equal(str_c(&rig.trace), want);
    exec_result_release(&r);
}

#endif
