/* graph_dice: type-correct workflows of all nodes out of bytes, whatever the bytes are.
 *
 *     struct graph g;
 *     graph_roll(&g, env, bytes, n);      g.text is the prompt as JSON
 *     graph_release(&g);
 *
 * Links fit by type and by nothing else: shapes, batches and values are what the bytes say.
 * Constants lie within what is declared, extremes included, so that validation lets them pass;
 * numbers beyond it come over links, as they can from clients. A sink hangs on every node nobody
 * asks, so that all run. Where the bytes end everything is 0, the first choice. */
#ifndef SUPPORT_GRAPH_DICE_H
#define SUPPORT_GRAPH_DICE_H

#include "node/node.h"
#include "support/test.h"

#define GRAPH_NODES 24
#define GRAPH_DEPTH 4 /* from there on nodes come from graph_plain[] */

struct graph_node {
    const struct node_class *cls;
    bool asked; /* a link leads away from it */
};

struct graph {
    struct str text;
    struct graph_node node[GRAPH_NODES + GRAPH_NODES]; /* and a sink for each */
    size_t n;
    const struct node_env *env;
    const uint8_t *p; /* bytes that are left */
    size_t left;
};

/* Ends of the way: what gives a type without asking for much. */
static const char *const graph_plain[] = {
    "EmptyImage",
    "LoadImage",
    "SolidMask",
    "EmptyLatentImage",
    "CLIPTextEncode",
    "VAELoader",
    "KSamplerSelect",
    "RandomNoise",
    "BasicGuider",
    "KarrasScheduler",
    "PrimitiveInt",
    "PrimitiveFloat",
    "PrimitiveString",
    "PrimitiveBoolean",
    "INTConstant",
    "LoadImageMask",
    "CheckpointLoaderSimple",
    "ImageToMask",
    "EmptyAudio",
    "LoadVideo",
};

/* What takes a picture, a latent, anything. */
static const char *const graph_sinks[] = {
    "PreviewAny", "PreviewImage", "SaveImage",    "SaveAnimatedPNG", "SaveAnimatedWEBP",
    "SaveLatent", "PreviewAny",   "SaveVideo",    "PreviewAudio",    "SaveAudioAdvanced",
    "SaveWEBM",   "SaveVideo",    "PreviewAudio", "PreviewAny",      "SaveImageWebsocket"
};

static inline size_t graph_die(struct graph *g, size_t sides)
{
    size_t v = 0;
    for (size_t most = 1; most < sides && g->left; most <<= 8, g->left--)
        v = v << 8 | *g->p++;
    return sides ? v % sides : 0;
}

static inline bool graph_type_in(const char *types, const char *type)
{
    if (!types || !type)
        return false;
    for (size_t n = strlen(type); *types; types += strcspn(types, ","), types += *types == ',')
        if (!strncmp(types, "*", 1) || (!strncmp(types, type, n) && (types[n] == ',' || !types[n])))
            return true;
    return false;
}

static inline const char *graph_types(const struct node_input *in)
{
    switch (in->kind) {
    case IN_INT:
        return "INT";
    case IN_FLOAT:
        return "FLOAT";
    case IN_STRING:
        return "STRING";
    case IN_BOOLEAN:
        return "BOOLEAN";
    default:
        return in->type && !strcmp(in->type, NODE_MATCH) ? "*" : in->type;
    }
}

/* What no node gives, but prompts have: number `which` of them, over and over; NULL: no such
 * type. */
static inline const char *graph_literal(const char *type, size_t which)
{
    static const char *const some[][2] = {
        { "ARRAY", "{\"__value__\": [1, {\"a\": [\"b\"]}]}" },
        { "COLORS", "{\"__value__\": [\"#ff00aa\", \"\"]}" },
        { "COLOR", "\"#12ab34ff\"" },
        { "COLOR", "\"#80ff20\"" },
        { "BOUNDING_BOX", "{\"x\": 1, \"y\": 2, \"width\": 9, \"height\": 5}" },
        { "BOUNDING_BOX", "{\"x\": 9000, \"y\": \"a\"}" },
        { "IMAGECOMPARE", "{}" },
        { "CURVE", "{\"points\": [[0, 0], [1, 1]], \"interpolation\": \"linear\"}" },
        { "CURVE", "{\"points\": [[0.5]]}" },
        { "WEBCAM", "\"0.png\"" },
        { "WEBCAM", "\"../x\"" },
        { "AUDIO_RECORD", "\"clip.mp4\"" },
        { "AUDIO_RECORD", "\"broken.mp4\"" },
        { "BOUNDING_BOXES",
          "{\"__value__\": [{\"x\": 9, \"y\": -3, \"width\": 50, \"height\": 3}]}" },
        { "BOUNDING_BOXES", "{\"__value__\": [{\"x\": \"a\"}, 7]}" },
        { "COMPOSITOR", "{}" },
        { "COMPOSITOR", "{\"inputs\": 3}" },
        { "DICT", "{\"a\": 1, \"b\": [2.5]}" },
    };
    size_t n = 0, at = 0;
    for (size_t i = 0; type && i < ARRAY_LEN(some); i++)
        n += !strcmp(type, some[i][0]);
    for (size_t i = 0; n && i < ARRAY_LEN(some); i++)
        if (!strcmp(type, some[i][0]) && at++ == which % n)
            return some[i][1];
    return NULL;
}

/* ---- constants ---- */

static inline void graph_int(struct graph *g, const struct node_input *in, struct str *out)
{
    static const int64_t odd[] = { -1,         0,         1,           2,
                                   7,          63,        65536,       INT32_MAX,
                                   4294967296, INT64_MAX, -4294967296, INT64_MIN,
                                   1 << 20,    3,         16384,       -8 };
    static const int side[] = { 16, 24, 32, 8, 17, 40, 16, 33, 64, 9, 24, 31, 2, 1, 0, 7 };
    static const int some[] = { 1, 2, 3, 1, 4, 2, 1, 3, 2, 5, 1, 8, 0, 2, 6, 4 };
    const int *small = in->imax == 16384 ? side : some; /* of pictures; of batches and steps */
    bool wide = in->imax > INT32_MAX, count = in->imax >= 1024;
    node_int v = in->idef;
    size_t how = graph_die(g, 64);
    if (how < 42 || (how < 56 && !wide)) /* sizes and counts that are computed quickly */
        v = count || how < 12 ? small[graph_die(g, 16)] : v;
    else if (how < 61)
        v = wide ? odd[graph_die(g, 16)] : (node_int)graph_die(g, 256);
    else
        v = how == 61 ? in->imin : how == 62 ? in->imax : in->imax - 1;
    v = v < in->imin ? in->imin : v > in->imax ? in->imax : v;
    v = v > (node_int)UINT64_MAX ? (node_int)UINT64_MAX : v < INT64_MIN ? INT64_MIN : v;
    if (v < 0)
        str_addf(out, "%lld", (long long)v);
    else
        str_addf(out, "%llu", (unsigned long long)v);
}

static inline void graph_float(struct graph *g, const struct node_input *in, struct str *out)
{
    static const double some[] = { 1,    0.5, 0,     2,    0.01, 1.5,  0.99,  8,
                                   1e-6, -1,  14.61, 0.03, 1e9,  1e38, -1e38, 1e300 };
    size_t how = graph_die(g, 24);
    double v = how < 8     ? in->fdef
               : how < 22  ? some[graph_die(g, 16)]
               : how == 22 ? in->fmin
                           : in->fmax;
    v = v < in->fmin ? in->fmin : v > in->fmax ? in->fmax : v;
    str_addf(out, "%.17g", v);
}

static inline void graph_string(struct graph *g, const struct node_input *in, struct str *out)
{
    static const char *const some[] = {
        "",
        "a cat",
        "the dog",
        "photo of the cat",
        "(cat:1.3) [dog] ((the))",
        "255, 0, 0",
        "14.6, 7.1, 2.5, 0.3, 0",
        "1, 1, 1, 1, 1",
        "sub/%width%x%height%_%batch_num%",
        "%date:yyyy-MM-dd%_%KSampler.seed%",
        "../out",
        "embedding:x (embedding:y:0.5)",
        "\\u4e00\\u53ea\\u732b \\ud83d\\ude00 \\u200b\\u0007",
        "cuda:0,5%;cpu,*",
        "#cuda:0;3mb;cpu",
        "-1e999, nan, 12",
        "a / (b - 1) if a > b else max(values)",
        "{a:>{b}} {c!r} {a[0]}",
        "(\\\\w+) (?P<x>the|a)?",
        "{\\\"k\\\": [1, null]}",
    };
    bool own = in->sdef && graph_die(g, 3); /* few texts mean anything to a node that has one */
    str_addf(out, "\"%s\"", own ? in->sdef : some[graph_die(g, ARRAY_LEN(some))]);
}

static inline void graph_combo(struct graph *g, const struct node_input *in, struct str *out)
{
    struct names all = { 0 };
    berth_err err = { 0 };
    assert_ok(node_options(g->env, in, &all, &err), err);
    bool first = all.n > 12 && graph_die(g, 2); /* the kind of text encoder that most files are */
    str_addf(out, "\"%s\"", all.n ? all.at[first ? 0 : graph_die(g, all.n)] : "");
    names_release(&all);
}

static inline void graph_constant(struct graph *g, const struct node_input *in, struct str *out)
{
    switch (in->kind) {
    case IN_INT:
        graph_int(g, in, out);
        break;
    case IN_FLOAT:
        graph_float(g, in, out);
        break;
    case IN_STRING:
        graph_string(g, in, out);
        break;
    case IN_BOOLEAN:
        str_adds(out, graph_die(g, 2) ? "true" : "false");
        break;
    case IN_COMBO:
    case IN_DYNCOMBO:
        graph_combo(g, in, out);
        break;
    case IN_SOCKET:
        if (graph_literal(in->type, 0))
            str_adds(out, graph_literal(in->type, graph_die(g, 4)));
        break;
    case IN_AUTOGROW:
    case IN_DYNSLOT:
        break;
    }
}

/* ---- nodes and links ---- */

static inline size_t graph_add(struct graph *g, const struct node_class *cls, size_t depth);

/* Output of a class that fits; SIZE_MAX: none. */
static inline size_t graph_slot(const struct node_class *c, const char *types, size_t from)
{
    for (size_t i = 0; i < c->outs; i++)
        if (graph_type_in(types, c->out[(i + from) % c->outs].type))
            return (i + from) % c->outs;
    return SIZE_MAX;
}

/* A class that gives one of these types; NULL: there is none. */
static inline const struct node_class *graph_maker(struct graph *g, const char *types, bool plain)
{
    size_t n = plain ? ARRAY_LEN(graph_plain) : node_count(), from = graph_die(g, n);
    for (size_t i = 0; i < n; i++) {
        size_t at = (from + i) % n;
        const struct node_class *c = plain ? node_find(graph_plain[at]) : node_at(at);
        assert_non_null(c);
        if (!node_cannot_run(c) && graph_slot(c, types, 0) != SIZE_MAX)
            return c;
    }
    return NULL;
}

/* The node that an input of these types shall link to: one that is there, or a new one. SIZE_MAX:
 * none. */
static inline size_t graph_source(struct graph *g, const char *types, size_t depth)
{
    size_t from = g->n ? graph_die(g, g->n) : 0;
    if (graph_die(g, 4) || depth >= GRAPH_DEPTH)
        for (size_t i = 0; i < g->n; i++)
            if (graph_slot(g->node[(from + i) % g->n].cls, types, 0) != SIZE_MAX)
                return (from + i) % g->n;
    const struct node_class *c = graph_maker(g, types, depth >= 2 || graph_die(g, 4));
    if (!c)
        c = graph_maker(g, types, false);
    return c ? graph_add(g, c, depth + 1) : SIZE_MAX;
}

static inline bool graph_link(struct graph *g, const char *types, size_t depth, struct str *out)
{
    size_t i = graph_source(g, types, depth);
    if (i == SIZE_MAX)
        return false;
    size_t slot = graph_slot(g->node[i].cls, types, graph_die(g, 4));
    g->node[i].asked = true;
    str_addf(out, "[\"%zu\", %zu]", i + 1, slot);
    return true;
}

/* The input under its whole name, "mode.width". False: one that has to be there cannot be had. */
static inline bool graph_plain_input(struct graph *g, const struct node_input *in, const char *name,
                                     size_t depth, struct str *out)
{
    struct str v = { 0 };
    bool socket = in->kind == IN_SOCKET, ok = true;
    if (in->optional && graph_die(g, 3) == 0)
        return true;
    if (socket && graph_literal(in->type, 0) && graph_die(g, 2))
        graph_constant(g, in, &v);
    else if (socket || (in->kind != IN_COMBO && depth < GRAPH_DEPTH && graph_die(g, 12) == 11))
        ok = graph_link(g, graph_types(in), depth, &v);
    if (!ok || !v.n)
        graph_constant(g, in, &v);
    ok = ok || v.n;
    if (v.n)
        str_addf(out, "%s\"%s\": %s", out->n ? ", " : "", name, str_c(&v));
    str_release(&v);
    return ok || !socket || in->optional;
}

static inline bool graph_input(struct graph *g, const struct node_input *in, const char *prefix,
                               size_t depth, struct str *out);

/* A choice and what it brings. */
static inline bool graph_choice(struct graph *g, const struct node_input *in, const char *name,
                                size_t depth, struct str *out)
{
    const struct node_choice *c = &in->choice[graph_die(g, in->choices)];
    bool ok = true;
    str_addf(out, "%s\"%s\": \"%s\"", out->n ? ", " : "", name, c->key);
    for (size_t i = 0; i < c->ins && ok; i++)
        ok = graph_input(g, &c->in[i], name, depth, out);
    return ok;
}

/* Some members; gaps between them now and then. */
static inline bool graph_members(struct graph *g, const struct node_input *in, const char *group,
                                 size_t depth, struct str *out)
{
    size_t n = in->min + graph_die(g, 3), gap = graph_die(g, 8) == 7;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        char name[160];
        size_t k = i < in->min ? i : i + gap;
        if (in->members)
            snprintf(name, sizeof name, "%s.%s", group, in->members[k]);
        else
            snprintf(name, sizeof name, "%s.%s%zu", group, in->prefix, k);
        ok = graph_plain_input(g, in->sub, name, depth, out);
    }
    return ok;
}

static inline bool graph_input(struct graph *g, const struct node_input *in, const char *prefix,
                               size_t depth, struct str *out)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s%s", prefix ? prefix : "", prefix ? "." : "", in->name);
    return in->kind == IN_DYNCOMBO   ? graph_choice(g, in, name, depth, out)
           : in->kind == IN_AUTOGROW ? graph_members(g, in, name, depth, out)
                                     : graph_plain_input(g, in, name, depth, out);
}

static inline void graph_put(struct graph *g, const struct node_class *cls, const char *inputs)
{
    str_addf(&g->text, "%s\"%zu\": {\"class_type\": \"%s\", \"inputs\": {%s}}", g->n ? ", " : "{",
             g->n + 1, cls->name, inputs);
    g->node[g->n++] = (struct graph_node) { .cls = cls };
}

/* Its number; SIZE_MAX: it cannot be had. */
static inline size_t graph_add(struct graph *g, const struct node_class *cls, size_t depth)
{
    struct str inputs = { 0 };
    bool ok = depth < 2 * GRAPH_DEPTH;
    for (size_t i = 0; ok && i < cls->ins; i++)
        ok = graph_input(g, &cls->in[i], NULL, depth, &inputs);
    ok = ok && g->n < GRAPH_NODES;
    if (ok)
        graph_put(g, cls, str_c(&inputs));
    str_release(&inputs);
    return ok ? g->n - 1 : SIZE_MAX;
}

static inline void graph_sink(struct graph *g, size_t node)
{
    const struct node_class *c = g->node[node].cls,
                            *sink = node_find(graph_sinks[graph_die(g, ARRAY_LEN(graph_sinks))]);
    size_t slot = graph_die(g, c->outs);
    struct str inputs = { 0 };
    if (!graph_type_in(sink->in[0].type, c->out[slot].type))
        sink = node_find("PreviewAny");
    str_addf(&inputs, "\"%s\": [\"%zu\", %zu]", sink->in[0].name, node + 1, slot);
    for (size_t i = 1; i < sink->ins; i++)
        graph_input(g, &sink->in[i], NULL, 2 * GRAPH_DEPTH, &inputs);
    graph_put(g, sink, str_c(&inputs));
    str_release(&inputs);
}

/* Rather one of those that bring several things together, which need not fit, than one that changes
 * one thing; loaders, the last third of the list, are much alike. */
static inline const struct node_class *graph_root(struct graph *g)
{
    const struct node_class *c = NULL;
    for (size_t tries = 0, sockets = 0; tries < 3 && sockets < 2; tries++) {
        c = node_at(graph_die(g, graph_die(g, 4) ? node_count() * 2 / 3 : node_count()));
        sockets = 0;
        for (size_t i = 0; i < c->ins; i++)
            sockets += c->in[i].kind == IN_SOCKET && !node_cannot_run(c);
    }
    return c;
}

static inline void graph_roll(struct graph *g, const struct node_env *env, const uint8_t *p,
                              size_t n)
{
    *g = (struct graph) { .env = env, .p = p, .left = n };
    for (size_t wanted = 1 + graph_die(g, 6), tries = 0; wanted && tries < 24; tries++) {
        const struct node_class *c = graph_root(g);
        wanted -= !node_cannot_run(c) && graph_add(g, c, 0) != SIZE_MAX;
    }
    for (size_t i = 0, made = g->n; i < made; i++)
        if (!g->node[i].asked && g->node[i].cls->outs)
            graph_sink(g, i);
    str_adds(&g->text, g->n ? "}" : "{}");
    assert_false(g->text.bad);
}

static inline void graph_release(struct graph *g)
{
    str_release(&g->text);
    *g = (struct graph) { 0 };
}

#endif
