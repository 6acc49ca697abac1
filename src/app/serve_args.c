#include "app/serve_args.h"

enum arity { NONE, ONE, MAYBE, MANY, LIST };

static const struct flag {
    const char *name;
    enum arity arity;
    const char *to;       /* our option; NULL: no meaning here */
    const char *left_out; /* MAYBE, LIST: the value then; NONE: the value */
} flags[] = {
    { "listen", MAYBE, "listen", "0.0.0.0,::" },
    { "enable-cors-header", MAYBE, "enable-cors-header", "*" },
    { "verbose", LIST, "verbose", "DEBUG" }, /* LEVEL,FILE here */
    { "cache-ram", LIST, "cache-ram", "" },
    { "high-ram", NONE, "cache-classic", NULL },
    { "extra-model-paths-config", MANY, "extra-model-paths-config", NULL },
    { "fast", LIST, "fast", "" }, /* several values, one with commas here */
    { "disable-pinned-memory", NONE, "pin-budget", "0" },
#define FLAG(name, arity) { name, arity, NULL, NULL },
#include "app/serve_ignored.def"
#undef FLAG
};

struct rewriter {
    struct serve_args *out;
    int argc, at;
    char **argv;
};

/* The one name that `word` is or begins; NULL: none, or several. */
static const char *whole_name(const struct opts *own, const char *word, size_t n)
{
    const char *found = NULL;
    size_t several = 0;
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        if (str_eq(word, n, flags[i].name))
            return flags[i].name;
        if (!strncmp(flags[i].name, word, n)) {
            several += !found || strcmp(found, flags[i].name);
            found = flags[i].name;
        }
    }
    for (; own; own = own->next)
        for (size_t i = 0; i < own->n; i++) {
            const char *name = own->at[i].name;
            if (str_eq(word, n, name))
                return name;
            if (n >= 3 && !strncmp(name, word, n)) {
                several += !found || strcmp(found, name);
                found = name;
            }
        }
    return n >= 3 && several == 1 ? found : NULL;
}

static bool push(struct rewriter *r, char *word)
{
    if (word)
        r->out->argv[r->out->argc++] = word;
    return word;
}

static bool push_option(struct rewriter *r, const char *name, const char *value)
{
    size_t n = strlen(name) + (value ? strlen(value) : 0) + 4;
    char *word = arena_alloc(&r->out->mem, n);
    if (word)
        snprintf(word, n, "--%s%s%s", name, value ? "=" : "", value ? value : "");
    return push(r, word);
}

static bool next_is_value(const struct rewriter *r)
{
    return r->at + 1 < r->argc && r->argv[r->at + 1][0] != '-';
}

static berth_status take_many(struct rewriter *r, const struct flag *f, char *attached,
                              berth_err *err)
{
    bool ok = true, some = attached;
    if (attached && f->to)
        ok = push_option(r, f->to, attached);
    while (!attached && ok && next_is_value(r)) {
        r->at++;
        some = true;
        if (f->to)
            ok = push_option(r, f->to, r->argv[r->at]);
    }
    if (f->to && !some)
        return err_set(err, BERTH_EINVAL, "--%s wants at least one file", f->name);
    return ok ? BERTH_OK : err_set(err, BERTH_ENOMEM, "options");
}

static berth_status take_list(struct rewriter *r, const struct flag *f, char *attached,
                              berth_err *err)
{
    struct str all = { 0 };
    bool some = attached;
    str_adds(&all, attached ? attached : "");
    while (!attached && next_is_value(r)) {
        r->at++;
        str_addf(&all, "%s%s", some ? "," : "", r->argv[r->at]);
        some = true;
    }
    str_adds(&all, some ? "" : f->left_out);
    bool ok = !all.bad && push_option(r, f->to, str_c(&all));
    str_release(&all);
    return ok ? BERTH_OK : err_set(err, BERTH_ENOMEM, "options");
}

static berth_status take_flag(struct rewriter *r, const struct flag *f, char *attached,
                              berth_err *err)
{
    if (!f->to)
        str_addf(&r->out->ignored, "%s--%s", r->out->ignored.n ? ", " : "", f->name);
    if (f->arity == MANY)
        return take_many(r, f, attached, err);
    if (f->arity == LIST)
        return take_list(r, f, attached, err);
    const char *value = attached && f->arity != NONE ? attached : f->left_out;
    if (f->arity == ONE && !attached) {
        if (r->at + 1 >= r->argc)
            return err_set(err, BERTH_EINVAL, "--%s wants a value", f->name);
        r->at++;
    } else if (f->arity == MAYBE && !attached && next_is_value(r)) {
        value = r->argv[++r->at];
    }
    if (f->to && !push_option(r, f->to, value))
        return err_set(err, BERTH_ENOMEM, "options");
    return BERTH_OK;
}

/* A slip in a flag of ComfyUI's, which args_parse() would not know; false: nearer to one of
 * ours. */
static bool is_slip(const struct opts *own, const char *word, size_t n, berth_err *err)
{
    char name[64] = "";
    if (n < sizeof name)
        memcpy(name, word, n);
    struct nearest ours = { .word = name }, theirs = { .word = name };
    for (; own; own = own->next)
        for (size_t i = 0; i < own->n; i++)
            nearest_try(&ours, own->at[i].name);
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        nearest_try(&theirs, flags[i].name);
    if (!theirs.best || (ours.best && ours.distance <= theirs.distance))
        return false;
    err_set(err, BERTH_EINVAL, "unknown option '--%s', did you mean '--%s'?", name, theirs.best);
    return true;
}

static berth_status take_word(struct rewriter *r, const struct opts *own, berth_err *err)
{
    char *word = r->argv[r->at];
    if (strncmp(word, "--", 2) != 0 || !word[2])
        return push(r, word) ? BERTH_OK : err_set(err, BERTH_ENOMEM, "options");
    char *eq = strchr(word, '=');
    size_t n = eq ? (size_t)(eq - word) - 2 : strlen(word + 2);
    const char *name = whole_name(own, word + 2, n);
    if (!name && is_slip(own, word + 2, n, err))
        return err->code;
    for (size_t i = 0; name && i < ARRAY_LEN(flags); i++)
        if (!strcmp(flags[i].name, name))
            return take_flag(r, &flags[i], eq ? eq + 1 : NULL, err);
    if (name ? push_option(r, name, eq ? eq + 1 : NULL) : push(r, word))
        return BERTH_OK;
    return err_set(err, BERTH_ENOMEM, "options");
}

berth_status serve_args_rewrite(const struct opts *own, int argc, char **argv,
                                struct serve_args *out, berth_err *err)
{
    *out = (struct serve_args) { 0 };
    size_t room = (size_t)argc + 1; /* a word makes at most one */
    out->argv = arena_array(&out->mem, room, sizeof *out->argv);
    berth_status s = out->argv ? BERTH_OK : err_set(err, BERTH_ENOMEM, "options");
    struct rewriter r = { .out = out, .argc = argc, .argv = argv };
    for (; !s && r.at < argc; r.at++)
        s = take_word(&r, own, err);
    if (!s)
        out->argv[out->argc] = NULL;
    if (s)
        serve_args_release(out);
    return s;
}

void serve_args_release(struct serve_args *x)
{
    str_release(&x->ignored);
    arena_release(&x->mem);
    *x = (struct serve_args) { 0 };
}

void serve_args_help(struct str *out)
{
    str_adds(out, "\nAccepted for the sake of ComfyUI's launch scripts, without effect:\n");
    size_t column = 0;
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        if (flags[i].to)
            continue;
        size_t n = strlen(flags[i].name) + 4;
        if (column && column + n > 78) {
            str_addc(out, '\n');
            column = 0;
        }
        str_addf(out, "  --%s", flags[i].name);
        column += n;
    }
    str_addc(out, '\n');
}
