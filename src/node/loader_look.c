/* loader_look: what the files of loaders are, asked of their headers before a prompt is taken. */
#include "node/loader_impl.h"

#include "model/arch.h"
#include "model/diffusion.h"
#include "model/encoder.h"
#include "model/family.h"
#include "model/upscaler.h"
#include "model/vae.h"

#include <pthread.h>

#define LOOKS_MAX 64

struct look { /* what was said of a file */
    struct file_id id;
    const char *role;
    char name[128]; /* as the answer calls it */
    bool latents;   /* asked what its latents are; else whether it can be computed */
    berth_err err;  /* code BERTH_OK: it can be computed, or its latents are known */
    struct node_latents of;
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

/* Fills in the answer of one that was asked before. */
static bool recall(struct node_looks *l, struct look *asked)
{
    bool found = false;
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->n && !found; i++) {
        const struct look *k = &l->at[i];
        found = memcmp(&k->id, &asked->id, sizeof k->id) == 0 && k->role == asked->role &&
                k->latents == asked->latents && strcmp(k->name, asked->name) == 0;
        if (found)
            *asked = *k;
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

static berth_status model_latents(const struct weights *w, struct node_latents *out, berth_err *err)
{
    struct diffusion_info d;
    berth_status s = diffusion_look(w, NULL, &d, err);
    if (!s && d.more[0])
        s = err_set(err, BERTH_EUNSUPPORTED, "latents of several kinds");
    if (s)
        return s;
    snprintf(out->is, sizeof out->is, "%s", d.family);
    out->channels = d.latent.channels;
    out->rank = d.latent.rank;
    return BERTH_OK;
}

static berth_status vae_latents(const struct weights *w, struct node_latents *out, berth_err *err)
{
    struct vae_net v;
    char root[ARCH_ROOT_MAX];
    const char *part = arch_part_with(w, arch_detect(w, NULL), "vae");
    if (vae_find(w, part, root, &v, err))
        return err->code;
    snprintf(out->is, sizeof out->is, "%s", v.latent.name);
    out->channels = v.latent.channels;
    out->rank = v.latent.rank;
    return BERTH_OK;
}

static berth_status ask(const struct weights *w, struct look *k, berth_err *err)
{
    if (!k->latents)
        return loader_look(w, k->name, k->role, err);
    snprintf(k->of.file, sizeof k->of.file, "%s", k->name);
    return strcmp(k->role, "vae") == 0 ? vae_latents(w, &k->of, err)
                                       : model_latents(w, &k->of, err);
}

/* A file that is not there or cannot be read is not for us to say: its loader does. *k: what is
 * asked, but for id; it gets the answer. */
static berth_status look_into(const struct node_env *env, const char *path, const char *name,
                              struct look *k, berth_err *err)
{
    bool whole = strlen(name) < sizeof k->name;
    struct node_looks *l = whole && file_id_of(path, &k->id) ? env->looks : NULL;
    struct weights *w = NULL;
    snprintf(k->name, sizeof k->name, "%s", name);
    if (l && recall(l, k)) {
        *err = k->err;
        return err->code;
    }
    if (weights_open(path, NULL, &w, err)) {
        k->err = *err;
        return err->code == BERTH_ENOMEM ? BERTH_ENOMEM : BERTH_OK;
    }
    *err = (berth_err) { 0 };
    berth_status s = ask(w, k, err);
    weights_close(w);
    k->err = *err;
    k->err.code = s;
    if (l && s != BERTH_ENOMEM)
        remember(l, k);
    return s;
}

/* What a loader takes of a file in this folder; NULL: it is not looked into. */
static const char *role_of(const char *key)
{
    static const char *const role[][2] = {
        { "checkpoints", "unet" },
        { "diffusion_models", "unet" },
        { "unet_gguf", "unet" },
        { "text_encoders", "clip" },
        { "clip_gguf", "clip" },
        { "vae", "vae" },
        { "upscale_models", UPSCALER_ROLE },
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
            s = look_into(k->env, path.p, name, &(struct look) { .role = role }, err);
        str_release(&path);
        *input = in->name;
        if (s)
            return s;
    }
    return BERTH_OK;
}

/* Does a loader of this folder's files give what `role` is? A checkpoint gives all there is. */
static const char *role_in(const char *key, const char *role)
{
    const char *own = role_of(key);
    return own && (strcmp(own, role) == 0 || strcmp(key, "checkpoints") == 0) ? role : NULL;
}

bool node_latents(const struct node_check *k, const char *role, struct node_latents *out)
{
    for (size_t i = 0; i < k->cls->ins; i++) {
        const struct node_input *in = &k->cls->in[i];
        const char *key = in->folder ? in->folder : in->files;
        const json_t *v = role_in(key, role) ? check_input(k, in->name) : NULL;
        struct look look = { .role = role, .latents = true };
        struct str path = { 0 };
        berth_err unread = { 0 };
        if (!v || js_kind(v) != JS_STRING)
            continue;
        bool known = !folders_resolve(k->env->folders, key, json_string_value(v), &path, &unread) &&
                     !look_into(k->env, path.p, json_string_value(v), &look, &unread) &&
                     !look.err.code;
        str_release(&path);
        *out = look.of;
        return known;
    }
    return false;
}

/* Would the encoders of this file be taken, alone, with the type that the node has? Where several
 * files are put together nobody knows yet. */
static berth_status check_encoders(const struct node_check *k, const char *input,
                                   const struct weights *w, berth_err *err)
{
    struct text_found found[TEXT_ENCODERS_MAX];
    const struct text_set *unread;
    const json_t *type = check_input(k, "type");
    size_t n = text_find(w, NULL, found);
    if (!n || !type || js_kind(type) != JS_STRING || strcmp(input, "clip_name") != 0)
        return BERTH_OK;
    return text_set_find(found, n, json_string_value(type), &unread, err);
}

static berth_status check_file(const struct node_check *k, const char *input, const char *path,
                               const char *name, const char *role, berth_err *err)
{
    struct weights *w = NULL;
    struct family_info f;
    berth_status s = weights_open(path, NULL, &w, err);
    if (!s)
        s = loader_look(w, name, role, err);
    if (!s && family_find(w, role, &f, err) == BERTH_ENOTFOUND)
        s = family_find(w, NULL, &f, err)
                ? err_set(err, BERTH_EUNSUPPORTED, "'%.100s' is of no family that is known", name)
                : err_set(err, BERTH_EINVAL, "'%.100s' is %s", name, f.what);
    if (!s && strcmp(role, "clip") == 0)
        s = check_encoders(k, input, w, err);
    weights_close(w);
    return s;
}

berth_status node_file_fits(const struct node_check *k, const char *input, berth_err *err)
{
    size_t i = node_input_index(k->cls, input);
    const struct node_input *in = i == SIZE_MAX ? NULL : &k->cls->in[i];
    const char *key = !in ? NULL : in->folder ? in->folder : in->files, *role = role_of(key);
    const json_t *v = role ? check_input(k, input) : NULL;
    struct str path = { 0 };
    if (!v || js_kind(v) != JS_STRING)
        return BERTH_OK;
    const char *name = json_string_value(v);
    berth_status s = folders_resolve(k->env->folders, key, name, &path, err);
    if (!s)
        s = check_file(k, input, path.p, name, role, err);
    str_release(&path);
    return s;
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
