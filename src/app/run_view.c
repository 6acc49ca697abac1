#include "app/run_view.h"

#define BAR_WIDTH 20
#define LABEL_COLUMNS 24
#define LEFT_FROM_S 1.0 /* before that nobody can say what is left */
#define LEFT_MAX_S 1e6  /* more is no guess */
#define STEPS_MAX 1e15  /* of a node: what counts further is no count */

struct view_kind {
    const char *name;      /* borrowed from the prompt */
    size_t waiting, known; /* nodes that did not begin; those whose time is in `seconds` */
    double seconds;
    bool samples;
};

static double seconds(uint64_t from, uint64_t to)
{
    return (double)(to - from) / 1e9;
}

static struct view_kind *kind_at(const struct run_view *v, size_t i)
{
    return vec_at(&v->kind, i);
}

static size_t find_kind(const struct run_view *v, const char *name)
{
    for (size_t i = 0; name && i < v->kind.n; i++)
        if (strcmp(kind_at(v, i)->name, name) == 0)
            return i;
    return SIZE_MAX;
}

static const char *class_of(const json_t *prompt, const char *id)
{
    return json_string_value(json_object_get(json_object_get(prompt, id), "class_type"));
}

/* It makes a latent with a model: this is what people wait for. */
static bool is_sampler(const char *name)
{
    const struct node_class *c = node_find(name);
    bool model = false, latent = false;
    for (size_t i = 0; c && i < c->ins; i++)
        model |=
            c->in[i].type && (!strcmp(c->in[i].type, "MODEL") || !strcmp(c->in[i].type, "GUIDER"));
    for (size_t i = 0; c && i < c->outs; i++)
        latent |= !strcmp(c->out[i].type, "LATENT");
    return model && latent;
}

/* ---- which nodes will run: the outputs, and what they read ---- */

static json_t *loose(const json_t *v) /* jansson's loops want it so */
{
    return (json_t *)(uintptr_t)v;
}

/* The node that an input reads, [id, slot]; NULL: it is no link. */
static const char *link_of(const json_t *input)
{
    return json_array_size(input) == 2 ? json_string_value(json_array_get(input, 0)) : NULL;
}

/* {id: true} of every node that another one reads. */
static json_t *read_nodes(const json_t *prompt)
{
    json_t *all = json_object(), *node, *input;
    const char *id, *name;
    json_object_foreach(loose(prompt), id, node)
        json_object_foreach(json_object_get(node, "inputs"), name, input) if (link_of(input))
            json_object_set_new(all, link_of(input), json_true());
    return all;
}

/* A class that only a server knows is an output if nobody reads it. */
static bool is_output(const char *name, bool read)
{
    const struct node_class *c = name ? node_find(name) : NULL;
    return c ? c->flags & NODE_OUTPUT : name && !read;
}

static json_t *find_outputs(const json_t *prompt)
{
    json_t *all = json_array(), *read = read_nodes(prompt), *node;
    const char *id;
    json_object_foreach(loose(prompt), id,
                        node) if (is_output(class_of(prompt, id), json_object_get(read, id)))
        json_array_append_new(all, json_string(id));
    json_decref(read);
    return all;
}

/* {id: true} of the nodes `outputs` need; of all, where nothing is an output. */
static json_t *needed(const json_t *prompt, const json_t *outputs)
{
    json_t *found = json_object();
    json_t *todo = outputs ? json_copy(loose(outputs)) : find_outputs(prompt), *input, *node;
    const char *name, *id;
    for (size_t n; (n = json_array_size(todo)) > 0;) {
        json_t *last = json_incref(json_array_get(todo, n - 1));
        json_array_remove(todo, n - 1);
        id = json_string_value(last);
        node = id && !json_object_get(found, id) ? json_object_get(prompt, id) : NULL;
        if (node)
            json_object_set_new(found, id, json_true());
        json_object_foreach(json_object_get(node, "inputs"), name, input) if (link_of(input))
            json_array_append(todo, json_array_get(input, 0));
        json_decref(last);
    }
    json_decref(todo);
    if (json_object_size(found))
        return found;
    json_object_foreach(loose(prompt), id, node) json_object_set_new(found, id, json_true());
    return found;
}

static bool count_kinds(struct run_view *v)
{
    const char *id;
    json_t *yes;
    json_object_foreach(v->needed, id, yes)
    {
        const char *name = class_of(v->prompt, id);
        size_t i = find_kind(v, name);
        if (!name)
            continue;
        if (i == SIZE_MAX) {
            struct view_kind *k = vec_add(&v->kind);
            if (!k)
                return false;
            *k = (struct view_kind) { .name = name, .samples = is_sampler(name) };
            i = v->kind.n - 1;
        }
        kind_at(v, i)->waiting++;
    }
    return true;
}

void run_view_init(struct run_view *v, FILE *out, const struct term *term,
                   const struct clock *clock, const json_t *prompt, const json_t *outputs,
                   bool quiet)
{
    *v = (struct run_view) { .out = out,
                             .term = *term,
                             .clock = clock,
                             .prompt = quiet ? NULL : prompt,
                             .kind = { .elem = sizeof(struct view_kind) },
                             .needed = quiet ? NULL : needed(prompt, outputs),
                             .at = SIZE_MAX };
    v->nodes = json_object_size(v->needed);
    if (v->prompt && !count_kinds(v))
        v->prompt = NULL;
}

void run_view_release(struct run_view *v)
{
    run_view_clear(v);
    vec_release(&v->kind);
    json_decref(v->needed);
    v->prompt = v->needed = NULL;
}

/* ---- how much of it is done ---- */

/* What a node of this class takes; -1: none has shown it yet. */
static double guess(const struct run_view *v, size_t i, uint64_t now)
{
    const struct view_kind *k = kind_at(v, i);
    if (k->known)
        return k->seconds / (double)k->known;
    return i == v->at && v->max > 1 && v->value > 0 ? seconds(v->node_ns, now) * v->max / v->value
                                                    : -1;
}

/* What the node that runs still needs, if one of its class takes `one`. */
static double rest_of_node(const struct run_view *v, double one, uint64_t now)
{
    double gone = seconds(v->node_ns, now);
    if (v->max > 1 && v->value > 0) /* its own steps know best */
        return gone * (v->max - v->value) / v->value;
    return one > gone ? one - gone : 0;
}

double run_view_share(const struct run_view *v, double *left)
{
    uint64_t now = clock_mono_ns(v->clock);
    double spent = v->start_ns ? seconds(v->start_ns, now) : 0, rest = 0, mean = 0;
    size_t seen = 0, unseen = 0;
    bool samplers = false, known = true;
    for (size_t i = 0; i < v->kind.n; i++) {
        const struct view_kind *k = kind_at(v, i);
        double one = guess(v, i, now);
        samplers |= k->samples;
        if (one < 0) {
            unseen += k->waiting;
            known &= !k->samples || (!k->waiting && i != v->at);
            continue;
        }
        seen++;
        mean += one;
        rest += one * (double)k->waiting + (i == v->at ? rest_of_node(v, one, now) : 0);
    }
    known &= seen > 0;
    if (known && !samplers)
        rest += mean / (double)seen * (double)unseen;
    double share = known && spent + rest > 0 ? spent / (spent + rest) : 0;
    *left = known && spent >= LEFT_FROM_S && rest < LEFT_MAX_S ? rest : -1;
    return share > v->share ? share : v->share;
}

/* ---- what is seen of it ---- */

void run_view_clear(struct run_view *v)
{
    if (v->line)
        fputs("\r\033[K", v->out);
    v->line = false;
}

static void add_left(struct str *s, double left)
{
    if (left >= 60)
        str_addf(s, ", %d:%02d left", (int)(left / 60), (int)left % 60);
    else if (left >= 0)
        str_addf(s, ", %.0f s left", left);
}

/* The node's number, what people call it, its steps, the time. */
static void add_text(const struct run_view *v, struct str *s, double left)
{
    str_addf(s, "%zu/%zu %s", v->done + 1 < v->nodes ? v->done + 1 : v->nodes, v->nodes, v->label);
    if (v->max > 1)
        str_addf(s, " %.0f/%.0f", v->value, v->max);
    add_left(s, left);
}

static void draw_line(struct run_view *v, double left)
{
    struct str s = { 0 }, text = { 0 };
    int columns = term_columns(v->out);
    columns = (columns > 0 ? columns : v->term.width) - 1; /* the last one would wrap */
    bool bar = columns >= BAR_WIDTH + 40;
    if (bar) {
        term_bar(&s, &v->term, v->share, BAR_WIDTH);
        str_addc(&s, ' ');
    }
    str_addf(&s, "%3.0f %% ", v->share * 100);
    add_text(v, &text, left);
    int room = columns - (bar ? BAR_WIDTH + 1 : 0) - 6;
    run_view_clear(v);
    fprintf(v->out, "%s%s%s", term_color(&v->term, 0), str_c(&s),
            term_style(&v->term, STYLE_RESET));
    str_clear(&s);
    term_safe(&s, str_c(&text), text.n, room > 4 ? (size_t)room - 3 : 1);
    fputs(str_c(&s), v->out);
    fflush(v->out);
    v->line = true;
    str_release(&s);
    str_release(&text);
}

/* at_once: do not wait for the next frame. */
static void draw(struct run_view *v, bool at_once)
{
    uint64_t now = clock_mono_ns(v->clock);
    bool first = !v->drawn_ns;
    double left;
    v->share = run_view_share(v, &left);
    if (v->term.tty ? !at_once && !first && now - v->drawn_ns < PROGRESS_EVERY_NS
                    : !first && now - v->drawn_ns < VIEW_LOG_NS)
        return;
    v->drawn_ns = now;
    if (v->term.tty) {
        draw_line(v, left);
        return;
    }
    struct str text = { 0 };
    add_text(v, &text, left);
    fprintf(v->out, "%s\n", str_c(&text));
    str_release(&text);
}

/* ---- events ---- */

/* A node of that class waits no more. One that another brought in was never counted. */
static size_t stop_waiting(const struct run_view *v, const char *id, const char *class_type)
{
    size_t kind = find_kind(v, class_type);
    if (kind != SIZE_MAX && json_object_get(v->needed, id) && kind_at(v, kind)->waiting)
        kind_at(v, kind)->waiting--;
    return kind;
}

static void node_begins(struct run_view *v, const struct exec_event *e)
{
    const json_t *meta = json_object_get(json_object_get(v->prompt, e->node), "_meta");
    const char *title = json_string_value(json_object_get(meta, "title"));
    const char *name = title ? title : e->class_type ? e->class_type : e->node;
    struct str label = { 0 };
    v->value = v->max = 0;
    v->node_ns = clock_mono_ns(v->clock);
    if (!v->start_ns)
        v->start_ns = v->node_ns;
    v->at = stop_waiting(v, e->node, e->class_type);
    term_safe(&label, name, strlen(name), LABEL_COLUMNS);
    snprintf(v->label, sizeof v->label, "%s", str_c(&label));
    str_release(&label);
    draw(v, true);
}

static void node_ends(struct run_view *v)
{
    v->done++;
    if (v->at == SIZE_MAX)
        return;
    struct view_kind *k = kind_at(v, v->at);
    k->seconds += seconds(v->node_ns, clock_mono_ns(v->clock));
    k->known++;
    v->at = SIZE_MAX;
}

/* They take no time and wait no more. */
static void nodes_cached(struct run_view *v, const json_t *nodes)
{
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const char *id = json_string_value(json_array_get(nodes, i));
        if (!id || !json_object_get(v->needed, id))
            continue;
        stop_waiting(v, id, class_of(v->prompt, id));
        v->done++;
    }
}

/* A server may say anything: 250 %, 1e300 steps. */
static void set_steps(struct run_view *v, double value, double max)
{
    v->max = max > 0 && max < STEPS_MAX ? max : 0;
    v->value = value > 0 ? value < v->max ? value : v->max : 0;
}

void run_view_event(void *view, const struct exec_event *e)
{
    struct run_view *v = view;
    if (!v->prompt)
        return;
    switch (e->kind) {
    case EXEC_CACHED:
        nodes_cached(v, json_object_get(e->data, "nodes"));
        break;
    case EXEC_NODE_START:
        node_begins(v, e);
        break;
    case EXEC_PROGRESS:
        set_steps(v, e->value, e->max);
        draw(v, v->value >= v->max);
        break;
    case EXEC_NODE_DONE:
        node_ends(v);
        break;
    default:
        break;
    }
}
