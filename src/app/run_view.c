#include "app/run_view.h"

#include <string.h>

#define BAR_WIDTH 20
#define LABEL_COLUMNS 24
#define LEFT_FROM_S 1.0 /* before that nobody can say what is left */

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

static bool count_kinds(struct run_view *v)
{
    const char *id;
    json_t *node;
    json_object_foreach((json_t *)(uintptr_t)v->prompt, id, node)
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
                   const struct clock *clock, const json_t *prompt, bool quiet)
{
    *v = (struct run_view) { .out = out,
                             .term = *term,
                             .clock = clock,
                             .prompt = quiet ? NULL : prompt,
                             .kind = { .elem = sizeof(struct view_kind) },
                             .nodes = json_object_size(prompt),
                             .at = SIZE_MAX };
    if (v->prompt && !count_kinds(v))
        v->prompt = NULL;
}

void run_view_release(struct run_view *v)
{
    run_view_clear(v);
    vec_release(&v->kind);
    v->prompt = NULL;
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
    *left = known && spent >= LEFT_FROM_S ? rest : -1;
    return share > v->share ? share : v->share;
}

/* ---- what is seen of it ---- */

void run_view_clear(struct run_view *v)
{
    if (v->line)
        fputs("\r\033[K", v->out);
    v->line = false;
}

static void add_steps(const struct run_view *v, struct str *s)
{
    char done[STR_BYTES_MAX], all[STR_BYTES_MAX];
    if (v->max <= 1)
        return;
    if (v->max < TERM_BYTES_FROM)
        str_addf(s, " %.0f/%.0f", v->value, v->max);
    else
        str_addf(s, " %s of %s", str_bytes((uint64_t)v->value, done),
                 str_bytes((uint64_t)v->max, all));
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
    add_steps(v, s);
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
    v->at = find_kind(v, e->class_type);
    if (v->at != SIZE_MAX && kind_at(v, v->at)->waiting)
        kind_at(v, v->at)->waiting--;
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
        size_t kind = id ? find_kind(v, class_of(v->prompt, id)) : SIZE_MAX;
        if (kind != SIZE_MAX && kind_at(v, kind)->waiting)
            kind_at(v, kind)->waiting--;
        v->done++;
    }
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
        v->value = e->value;
        v->max = e->max;
        draw(v, e->value >= e->max);
        break;
    case EXEC_NODE_DONE:
        node_ends(v);
        break;
    default:
        break;
    }
}
