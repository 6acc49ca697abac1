/* loader_look: what the files of loaders are, asked of their headers before a prompt is taken. */
#include "node/loader_impl.h"

#include "model/diffusion.h"

#include <pthread.h>

#define LOOKS_MAX 64

struct look { /* what was said of a file */
    struct file_id id;
    const char *role;
    char name[128]; /* as the answer calls it */
    berth_err err;  /* code BERTH_OK: it can be computed */
};
struct node_looks {
    pthread_mutex_t lock; /* all below; a leaf */
    struct look at[LOOKS_MAX];
    size_t n, next; /* the oldest is replaced */
};

struct node_looks *node_looks_new(void)
{
    struct node_looks *l = calloc(1, sizeof *l);
    if (l && pthread_mutex_init(&l->lock, NULL)) {
        free(l);
        return NULL;
    }
    return l;
}

void node_looks_free(struct node_looks *l)
{
    if (!l)
        return;
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static bool recall(struct node_looks *l, const struct look *asked, berth_err *err)
{
    bool found = false;
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->n && !found; i++) {
        const struct look *k = &l->at[i];
        found = memcmp(&k->id, &asked->id, sizeof k->id) == 0 && k->role == asked->role &&
                strcmp(k->name, asked->name) == 0;
        if (found)
            *err = k->err;
    }
    pthread_mutex_unlock(&l->lock);
    return found;
}

static void remember(struct node_looks *l, const struct look *said)
{
    pthread_mutex_lock(&l->lock);
    l->at[l->next] = *said;
    l->next = (l->next + 1) % LOOKS_MAX;
    l->n += l->n < LOOKS_MAX;
    pthread_mutex_unlock(&l->lock);
}

/* A file that is not there or cannot be read is not for us to say: its loader does. */
static berth_status look_into(const struct node_env *env, const char *path, const char *name,
                              const char *role, berth_err *err)
{
    struct look k = { .role = role };
    struct node_looks *l =
        strlen(name) < sizeof k.name && file_id_of(path, &k.id) ? env->looks : NULL;
    struct weights *w = NULL;
    if (l) {
        memcpy(k.name, name, strlen(name) + 1);
        if (recall(l, &k, err))
            return err->code;
    }
    if (weights_open(path, NULL, &w, err))
        return err->code == BERTH_ENOMEM ? BERTH_ENOMEM : BERTH_OK;
    *err = (berth_err) { 0 };
    berth_status s = loader_look(w, name, role, err);
    weights_close(w);
    k.err = *err;
    k.err.code = s;
    if (l && s != BERTH_ENOMEM)
        remember(l, &k);
    return s;
}

/* What a loader takes of a file in this folder; NULL: it is not looked into. */
static const char *role_of(const char *key)
{
    static const char *const role[][2] = {
        { "checkpoints", "unet" },   { "diffusion_models", "unet" }, { "unet_gguf", "unet" },
        { "text_encoders", "clip" }, { "clip_gguf", "clip" },        { "vae", "vae" },
        { "controlnet", "control" },
    };
    for (size_t i = 0; key && i < ARRAY_LEN(role); i++)
        if (strcmp(role[i][0], key) == 0)
            return role[i][1];
    return NULL;
}

berth_status node_look(const struct node_check *k, const char **input, berth_err *err)
{
    for (size_t i = 0; i < k->cls->ins && !node_cannot_run(k->cls); i++) {
        const struct node_input *in = &k->cls->in[i];
        const char *key = in->folder ? in->folder : in->files, *role = role_of(key);
        const json_t *v = role ? check_input(k, in->name) : NULL;
        struct str path = { 0 };
        if (!v || js_kind(v) != JS_STRING)
            continue;
        const char *name = json_string_value(v);
        berth_status s = folders_resolve(k->env->folders, key, name, &path, err);
        if (s)
            s = s == BERTH_ENOMEM ? s : BERTH_OK;
        else
            s = look_into(k->env, path.p, name, role, err);
        str_release(&path);
        *input = in->name;
        if (s)
            return s;
    }
    return BERTH_OK;
}

static const struct node_input *input_of(const struct node_class *c, const char *role)
{
    for (size_t i = 0; i < c->ins; i++) {
        const char *is = role_of(c->in[i].folder ? c->in[i].folder : c->in[i].files);
        if (is && strcmp(is, role) == 0)
            return &c->in[i];
    }
    return NULL;
}

bool node_loads(const struct node_class *c, const char *role)
{
    return input_of(c, role) != NULL;
}

/* The file that a loader names; *out NULL: none, or none that can be read. */
static berth_status open_named(const struct node_check *k, const char *role, struct weights **out,
                               berth_err *err)
{
    const struct node_input *in = input_of(k->cls, role);
    const json_t *v = in ? check_input(k, in->name) : NULL;
    struct str path = { 0 };
    *out = NULL;
    if (!v || js_kind(v) != JS_STRING)
        return BERTH_OK;
    berth_status s = folders_resolve(k->env->folders, in->folder ? in->folder : in->files,
                                     json_string_value(v), &path, err);
    if (!s)
        s = weights_open(path.p, NULL, out, err);
    str_release(&path);
    return s == BERTH_ENOMEM ? s : BERTH_OK;
}

berth_status node_look_both(const struct node_check *model, const struct node_check *control,
                            berth_err *err)
{
    struct weights *m = NULL, *w = NULL;
    struct diffusion_info info;
    struct control_info about;
    berth_err unread = { 0 };
    berth_status s = open_named(model, "unet", &m, err) || open_named(control, "control", &w, err)
                         ? err->code
                         : BERTH_OK;
    if (!s && m && w && !diffusion_look(m, NULL, &info, &unread) &&
        !diffusion_control_info(w, NULL, &about, &unread))
        s = diffusion_control_fits(m, NULL, w, NULL, err);
    weights_close(m);
    weights_close(w);
    return s;
}
