#include "app/run.h"

#include "base/file.h"
#include "engine/engine.h"
#include "image/image.h"
#include "media/media.h"

#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

#define WORKFLOW_MAX ((size_t)64 << 20)
#define NAMES_MAX 200 /* bytes of nodes in a message, roughly */

#define WHAT_IT_IS                                                                                 \
    "a workflow is JSON, as ComfyUI's Workflow > Export (API) writes it, or a PNG, a video or a "  \
    "sound that was saved with one"

static berth_status read_stdin(struct str *all, berth_err *err)
{
    char buf[65536], most[STR_BYTES_MAX];
    for (ssize_t n; (n = read(STDIN_FILENO, buf, sizeof buf)) > 0;) {
        str_add(all, buf, (size_t)n);
        if (all->bad || all->n > WORKFLOW_MAX)
            return err_set(err, BERTH_ELIMIT, "standard input: more than %s",
                           str_bytes(WORKFLOW_MAX, most));
    }
    return BERTH_OK;
}

static berth_status read_all(const char *path, struct str *all, berth_err *err)
{
    char *p = NULL;
    size_t n = 0;
    if (strcmp(path, "-") == 0)
        return read_stdin(all, err);
    berth_status s = file_read_all(path, WORKFLOW_MAX, &p, &n, err);
    if (!s)
        str_add(all, p, n);
    free(p);
    return !s && all->bad ? err_set(err, BERTH_ENOMEM, "'%s'", path) : s;
}

/* What SaveImage writes beside the pixels; those may be cut short. */
static berth_status parse_png(const struct str *all, json_t **out, berth_err *err)
{
    const struct image_limits lim = { .partial = true };
    struct image_file f = { 0 };
    const char *text = NULL;
    berth_status s = image_decode((const uint8_t *)all->p, all->n, &lim, &f, err);
    for (size_t i = 0; !s && i < f.texts; i++)
        if (strcmp(f.text[i].key, "prompt") == 0)
            text = f.text[i].value;
    if (!s && !text)
        s = err_set(err, BERTH_EUNSUPPORTED, "no workflow was saved in this picture");
    if (!s && js_parse(text, strlen(text), NULL, out, err))
        s = err_add(err, "its prompt");
    image_file_release(&f);
    return s;
}

/* MP4, Matroska and WebM, FLAC, MP3, Ogg: by their first bytes. */
static bool is_clip(const char *path)
{
    static const char *const begins[] = { "\x1a\x45\xdf\xa3", "fLaC", "OggS", "ID3" };
    char p[8] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, p, sizeof p);
    if (fd >= 0)
        close(fd);
    bool is = n == sizeof p && memcmp(p + 4, "ftyp", 4) == 0;
    for (size_t i = 0; n == sizeof p && !is && i < ARRAY_LEN(begins); i++)
        is = memcmp(p, begins[i], strlen(begins[i])) == 0;
    return is;
}

/* What SaveVideo and SaveAudio write beside frames and samples. Matroska has names in capitals. */
static berth_status parse_clip(const char *path, json_t **out, berth_err *err)
{
    const struct media_host host = { .helper = MEDIA_SELF };
    struct media_info i;
    const char *text = NULL;
    berth_status s = media_probe(&host, path, &i, err);
    for (size_t k = 0; !s && k < i.texts; k++)
        if (strcasecmp(i.text[k].key, "prompt") == 0)
            text = i.text[k].value;
    if (!s && !text)
        s = err_set(err, BERTH_EUNSUPPORTED, "'%s': no workflow was saved in this file", path);
    if (!s && js_parse(text, strlen(text), NULL, out, err))
        s = err_add(err, "'%s': its prompt", path);
    media_info_release(&i);
    return s;
}

static berth_status parse(const struct str *all, json_t **out, berth_err *err)
{
    static const char png[] = "\x89PNG\r\n\x1a\n";
    const char *text = str_c(all);
    if (all->n >= sizeof png - 1 && memcmp(text, png, sizeof png - 1) == 0)
        return parse_png(all, out, err);
    if (!strchr("{[", text[strspn(text, " \t\r\n")])) /* where it breaks off would tell nothing */
        return err_set(err, BERTH_EFORMAT, "this is none");
    return js_parse(text, all->n, NULL, out, err);
}

berth_status run_workflow_read(const char *path, json_t **prompt, json_t **extra, berth_err *err)
{
    json_t *all = NULL;
    struct str text = { 0 };
    *prompt = *extra = NULL;
    bool clip = strcmp(path, "-") != 0 && is_clip(path);
    berth_status s = clip ? parse_clip(path, &all, err) : read_all(path, &text, err);
    if (!s && !clip && (s = parse(&text, &all, err)))
        strcmp(path, "-") ? err_add(err, "'%s'", path) : err_add(err, "standard input");
    str_release(&text);
    if (s == BERTH_EFORMAT || s == BERTH_ELIMIT)
        err_add(err, WHAT_IT_IS);
    if (s)
        return s;
    if ((s = engine_unwrap(all, prompt, extra, err)))
        err_add(err, "%s", path);
    json_decref(all);
    return s;
}

static const char *node_text(const json_t *node, bool title)
{
    const json_t *v = title ? json_object_get(json_object_get(node, "_meta"), "title")
                            : json_object_get(node, "class_type");
    return json_string_value(v);
}

static bool has_input(const json_t *node, const char *input)
{
    const char *cls = node_text(node, false);
    const struct node_class *c = cls ? node_find(cls) : NULL;
    return json_object_get(json_object_get(node, "inputs"), input) ||
           (c && (node_input_index(c, input) != SIZE_MAX || node_input_may_be(c, input) ||
                  (c->flags & NODE_ANY_INPUT)));
}

/* "2 (positive, CLIPTextEncode)" */
static void add_node(struct str *out, const char *id, const json_t *node)
{
    const char *title = node_text(node, true), *cls = node_text(node, false);
    str_addf(out, "%s%s (%s%s%s)", out->n ? ", " : "", id, title ? title : "", title ? ", " : "",
             cls ? cls : "?");
}

/* Those that `name` means by title or by class, into *ids; the one with the input where only one
 * has it, else NULL. */
static json_t *find_called(json_t *prompt, const char *name, bool title, const char *input,
                           struct str *ids)
{
    json_t *node, *any = NULL, *fit = NULL;
    const char *id;
    size_t all = 0, fits = 0;
    json_object_foreach(prompt, id, node)
    {
        const char *t = node_text(node, title);
        if (!t || strcmp(t, name) != 0)
            continue;
        all++;
        any = node;
        if (ids->n < NAMES_MAX)
            add_node(ids, id, node);
        if (has_input(node, input)) {
            fits++;
            fit = node;
        }
    }
    return all == 1 ? any : fits == 1 ? fit : NULL;
}

static void list_nodes(json_t *prompt, struct str *out)
{
    json_t *node;
    const char *id;
    size_t more = 0;
    json_object_foreach(prompt, id, node)
    {
        if (out->n < NAMES_MAX)
            add_node(out, id, node);
        else
            more++;
    }
    if (more)
        str_addf(out, " and %zu more", more);
}

/* The node that `name` means for this input; NULL: none or several, and err says so. */
static json_t *find_node(json_t *prompt, const char *name, const char *input, berth_err *err)
{
    json_t *found = json_object_get(prompt, name);
    struct str ids = { 0 };
    for (int title = 1; title >= 0 && !found && !ids.n; title--)
        found = find_called(prompt, name, title, input, &ids);
    if (!found && ids.n) {
        err_set(err, BERTH_EINVAL, "'%.80s' is several nodes: say which by its id: %s", name,
                str_c(&ids));
    } else if (!found) {
        list_nodes(prompt, &ids);
        err_set(err, BERTH_EINVAL, "no node '%.80s'; there are %s", name, str_c(&ids));
    }
    str_release(&ids);
    return found;
}

static berth_status check_name(const json_t *node, const char *input, berth_err *err)
{
    const char *cls = node_text(node, false);
    const struct node_class *c = cls ? node_find(cls) : NULL;
    if (!c || has_input(node, input))
        return c && json_is_object(json_object_get(node, "inputs"))
                   ? run_dynamic_check(c, json_object_get(node, "inputs"), input, err)
                   : BERTH_OK;
    struct str names = { 0 };
    for (size_t i = 0; i < c->ins; i++)
        str_addf(&names, "%s%s", i ? ", " : "", c->in[i].name);
    err_set(err, BERTH_EINVAL, "%s has no input '%.80s'; it has %s", cls, input, str_c(&names));
    str_release(&names);
    return err->code;
}

/* Texts and choices are taken as they stand, everything else as JSON where it is JSON. */
static json_t *read_value(const json_t *node, const char *input, const char *text)
{
    const char *cls = node_text(node, false);
    const struct node_class *c = cls ? node_find(cls) : NULL;
    enum input_kind kind =
        c ? run_dynamic_kind(c, json_object_get(node, "inputs"), input) : IN_SOCKET;
    json_t *value = NULL;
    berth_err no_json;
    if (kind == IN_STRING || kind == IN_COMBO || kind == IN_DYNCOMBO)
        return json_string(text);
    return js_parse(text, strlen(text), NULL, &value, &no_json) ? json_string(text) : value;
}

/* A choice that brings inputs: those it requires get their defaults. */
static berth_status fill_choice(const json_t *node, const char *input, berth_err *err)
{
    const char *cls = node_text(node, false);
    const struct node_class *c = cls ? node_find(cls) : NULL;
    json_t *inputs = json_object_get(node, "inputs");
    return c && run_dynamic_kind(c, inputs, input) == IN_DYNCOMBO
               ? run_dynamic_fill(c, inputs, input, err)
               : BERTH_OK;
}

/* What `steps=3` may have meant: the nodes with that input. */
static berth_status no_node(json_t *prompt, const char *assignment, berth_err *err)
{
    char input[80] = "";
    const char *id, *cls = NULL;
    json_t *node;
    size_t n = 0, len = strcspn(assignment, "=");
    struct str ids = { 0 };
    if (assignment[len] && len < sizeof input)
        memcpy(input, assignment, len);
    json_object_foreach(prompt, id, node) if (input[0] && has_input(node, input))
    {
        cls = node_text(node, false);
        if (n++ < 4)
            add_node(&ids, id, node);
    }
    if (n == 1 && cls)
        err_set(err, BERTH_EINVAL,
                "--set wants NODE.INPUT=VALUE, not '%.80s'; did you mean --set %s.%.80s?",
                assignment, cls, assignment);
    else if (n)
        err_set(err, BERTH_EINVAL, "--set wants NODE.INPUT=VALUE, not '%.80s'; NODE may be %s%s",
                assignment, str_c(&ids), n > 4 ? ", ..." : "");
    else
        err_set(err, BERTH_EINVAL,
                "--set wants NODE.INPUT=VALUE, as in KSampler.steps=3, not '%.80s'", assignment);
    str_release(&ids);
    return err->code;
}

/* Where the name of the node ends. Names of nodes may have dots in them, and so have inputs that
 * others bring ("2.values.a"): the last dot behind which there is one of the node's, else the last
 * of all. NULL: no dot. */
static const char *end_of_name(json_t *prompt, const char *assignment, const char *eq)
{
    const char *last = NULL;
    for (const char *p = eq; p-- > assignment;) {
        berth_err ignored;
        if (*p != '.')
            continue;
        last = last ? last : p;
        char *name = strndup(assignment, (size_t)(p - assignment));
        char *input = strndup(p + 1, (size_t)(eq - p) - 1);
        json_t *node = name && input ? find_node(prompt, name, input, &ignored) : NULL;
        bool fits = node && has_input(node, input);
        free(name);
        free(input);
        if (fits)
            return p;
    }
    return last;
}

berth_status run_workflow_set(json_t *prompt, const char *assignment, berth_err *err)
{
    const char *eq = strchr(assignment, '=');
    const char *dot = eq ? end_of_name(prompt, assignment, eq) : NULL;
    if (!dot || dot == assignment || dot + 1 == eq)
        return no_node(prompt, assignment, err);
    char *name = strndup(assignment, (size_t)(dot - assignment));
    char *input = strndup(dot + 1, (size_t)(eq - dot) - 1);
    json_t *node = NULL;
    berth_status s = name && input ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a node's name");
    if (!s && !(node = find_node(prompt, name, input, err)))
        s = err->code;
    if (!s)
        s = check_name(node, input, err);
    if (!s && !json_is_object(json_object_get(node, "inputs")))
        s = err_set(err, BERTH_EINVAL, "node '%.80s' has no inputs", name);
    if (!s && json_object_set_new(json_object_get(node, "inputs"), input,
                                  read_value(node, input, eq + 1)))
        s = err_set(err, BERTH_EINVAL, "the value is no UTF-8");
    if (!s)
        s = fill_choice(node, input, err);
    if (s)
        err_add(err, "--set %.80s.%.80s", name ? name : "", input ? input : "");
    free(name);
    free(input);
    return s;
}
