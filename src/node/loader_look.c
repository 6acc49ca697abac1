/* loader_look: what the files of loaders are, asked of their headers before a prompt is taken. */
#include "node/loader_impl.h"

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

static const struct {
    loader_run_fn *run; /* of the classes it is about */
    const char *input, *key, *role;
} files[] = {
    { run_checkpoint, "ckpt_name", "checkpoints", "unet" },
    { run_advanced, "ckpt_name", "checkpoints", "unet" },
    { run_unet, "unet_name", "diffusion_models", "unet" },
    { run_unet_gguf, "unet_name", "unet_gguf", "unet" },
    { run_vae, "vae_name", "vae", "vae" },
    { run_clip, "clip_name", "text_encoders", "clip" },
    { run_clip, "clip_name1", "text_encoders", "clip" },
    { run_clip, "clip_name2", "text_encoders", "clip" },
    { run_clip, "clip_name3", "text_encoders", "clip" },
    { run_clip, "clip_name4", "text_encoders", "clip" },
    { run_clip_gguf, "clip_name", "clip_gguf", "clip" },
    { run_clip_gguf, "clip_name1", "clip_gguf", "clip" },
    { run_clip_gguf, "clip_name2", "clip_gguf", "clip" },
    { run_clip_gguf, "clip_name3", "clip_gguf", "clip" },
    { run_clip_gguf, "clip_name4", "clip_gguf", "clip" },
};

berth_status node_look(const struct node_check *k, const char **input, berth_err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        const json_t *v = k->cls->run == files[i].run ? check_input(k, files[i].input) : NULL;
        struct str path = { 0 };
        if (!v || js_kind(v) != JS_STRING)
            continue;
        const char *name = json_string_value(v);
        berth_status s = folders_resolve(k->env->folders, files[i].key, name, &path, err);
        if (s)
            s = s == BERTH_ENOMEM ? s : BERTH_OK;
        else
            s = look_into(k->env, path.p, name, files[i].role, err);
        str_release(&path);
        *input = files[i].input;
        if (s)
            return s;
    }
    return BERTH_OK;
}
