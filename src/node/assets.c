/* assets: tokenizers, which models or people bring (--tokenizers), found, opened and kept.
 *
 * Sources    asked in this order, as far as the kind has them (text/tokenizer.h): what the model's
 *            file carries; the env's folders; the folder of the model's file; its GGUF metadata.
 * Kept       The env keeps the one of each kind that was opened last, by the name of its source and
 *            the identities of its files: a workflow uses one. What a model carries is kept only
 *            where opening it is slow (CLIP's 49,408 words take about 40 ms).
 * Folders    that are given may be the tokenizer's own, or hold several under their usual names.
 *            tokenizer.json may be CLIP's or T5's: where a folder's name does not tell, one of
 *            another kind is passed over; in a folder named after the kind it is an error. */
#include "node/compute.h"

#include "base/file.h"
#include "base/hash.h"

#include <string.h>
#include <unistd.h>

struct node_assets { /* owner: the executor's thread */
    size_t n;
    struct asset *kept[]; /* [n]: of each kind; NULL: none yet */
};

struct node_assets *node_assets_new(void)
{
    size_t n = 0;
    while (tokenizer_list[n])
        n++;
    struct node_assets *a = calloc(1, sizeof *a + n * sizeof *a->kept);
    if (a)
        a->n = n;
    return a;
}

void node_assets_free(struct node_assets *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->n; i++)
        asset_unref(a->kept[i]);
    free(a);
}

void asset_unref(struct asset *a)
{
    if (!a || --a->refs)
        return;
    a->kind->close(a->tok);
    free(a->from);
    free(a);
}

/* Where the env keeps this kind; NULL: nowhere. */
static struct asset **slot_of(const struct node_env *env, const struct tokenizer *kind)
{
    for (size_t i = 0; env->assets && i < env->assets->n; i++)
        if (tokenizer_list[i] == kind)
            return &env->assets->kept[i];
    return NULL;
}

/* ---- folders ---- */

static bool has_file(const char *dir, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0;
}

/* Goes on with the identity of a file: another one under the same name is another tokenizer. */
static uint64_t stamp_file(uint64_t stamp, const char *dir, const char *name)
{
    char path[4096];
    struct file_id id;
    int n = snprintf(path, sizeof path, "%s%s%s", dir, *dir ? "/" : "", name);
    bool there = n > 0 && (size_t)n < sizeof path && file_id_of(path, &id);
    return there ? hash_xxh64(&id, sizeof id, stamp) : stamp;
}

static bool has_files(const struct tokenizer *kind, const char *dir)
{
    for (const char *const(*any)[2] = kind->any_of; (*any)[0]; any++)
        if (has_file(dir, (*any)[0]) && (!(*any)[1] || has_file(dir, (*any)[1])))
            return true;
    return false;
}

struct search { /* search_release() */
    const struct node_env *env;
    const struct tokenizer *kind;
    const struct weights *w; /* the model's file; NULL: folders alone */
    size_t folder, below;    /* the next place: below folder `folder` of the env */
    bool any;                /* the place may hold one of another kind */
    struct str from;         /* name of the source: a folder, or what of which file */
    uint64_t stamp;          /* of its files */
    struct str places;       /* that had none */
    struct asset *found;     /* a reference */
};

static void search_release(struct search *s)
{
    str_release(&s->from);
    str_release(&s->places);
}

static void add_place(struct search *s, const char *note)
{
    str_addf(&s->places, "%s%s%s", s->places.n ? ", " : "", str_c(&s->from), note);
}

/* On to the next folder that has such files; those without are noted. */
static bool next_folder(struct search *s)
{
    for (; s->folder < s->env->tokenizers_n; s->folder++, s->below = 0)
        while (s->kind->folders[s->below]) {
            str_clear(&s->from);
            str_addf(&s->from, "%s%s", s->env->tokenizers[s->folder], s->kind->folders[s->below]);
            s->any = s->below++ >= s->kind->own;
            s->places.bad |= s->from.bad;
            if (!s->from.bad && has_files(s->kind, str_c(&s->from)))
                return true;
            add_place(s, "");
        }
    return false;
}

bool node_tokenizer_there(const struct node_env *env, const struct tokenizer *kind,
                          struct str *places)
{
    struct search s = { .env = env, .kind = kind };
    bool there = next_folder(&s);
    if (!there)
        str_add(places, str_c(&s.places), s.places.n);
    search_release(&s);
    return there;
}

/* ---- sources ---- */

/* Is it the one that is open already? Then nothing is opened. */
static bool is_kept(struct search *s)
{
    struct asset **slot = slot_of(s->env, s->kind);
    if (!slot || !*slot || s->from.bad || strcmp((*slot)->from, str_c(&s->from)) != 0 ||
        (*slot)->stamp != s->stamp)
        return false;
    s->found = *slot;
    s->found->refs++;
    return true;
}

/* Takes tok, also on failure. */
static berth_status wrap(struct search *s, void *tok, bool keep, berth_err *err)
{
    struct asset *a = calloc(1, sizeof *a), **slot = keep ? slot_of(s->env, s->kind) : NULL;
    char *from = s->from.bad ? NULL : strdup(str_c(&s->from));
    if (!a || !from) {
        s->kind->close(tok);
        free(a);
        free(from);
        return err_set(err, BERTH_ENOMEM, "a tokenizer");
    }
    *a = (struct asset) { .kind = s->kind, .tok = tok, .from = from, .stamp = s->stamp, .refs = 1 };
    if (slot) {
        asset_unref(*slot);
        *slot = a;
        a->refs++;
    }
    s->found = a;
    return BERTH_OK;
}

typedef berth_status from_file_fn(const struct weights *w, void **out, berth_err *err);

static berth_status from_file(struct search *s, from_file_fn *open, const char *what, bool keep,
                              berth_err *err)
{
    void *tok;
    if (!s->w || !open)
        return BERTH_ENOTFOUND;
    str_clear(&s->from);
    str_addf(&s->from, "%s of %s", what, weights_path(s->w));
    s->stamp = stamp_file(0, "", weights_path(s->w));
    if (keep && is_kept(s))
        return BERTH_OK;
    berth_status st = open(s->w, &tok, err);
    return st ? st : wrap(s, tok, keep, err);
}

static berth_status from_carried(struct search *s, berth_err *err)
{
    return from_file(s, s->kind->carried, "what is", s->kind->keep_carried, err);
}

static berth_status from_spare(struct search *s, berth_err *err)
{
    return from_file(s, s->kind->spare, "metadata", true, err);
}

/* The folder s->from. *another: it holds a tokenizer of another kind. */
static berth_status from_folder(struct search *s, bool *another, berth_err *err)
{
    void *tok;
    *another = false;
    s->stamp = 0;
    for (const char *const(*any)[2] = s->kind->any_of; (*any)[0]; any++)
        for (int i = 0; i < 2 && (*any)[i]; i++)
            s->stamp = stamp_file(s->stamp, str_c(&s->from), (*any)[i]);
    if (is_kept(s))
        return BERTH_OK;
    berth_status st = s->kind->open(str_c(&s->from), &tok, err);
    *another = st == BERTH_EFORMAT || st == BERTH_EUNSUPPORTED || st == BERTH_EINVAL;
    return st ? st : wrap(s, tok, true, err);
}

static berth_status from_folders(struct search *s, berth_err *err)
{
    bool another;
    while (next_folder(s)) {
        berth_status st = from_folder(s, &another, err);
        if (!another || !s->any)
            return st;
        char note[64];
        snprintf(note, sizeof note, " (none of %.40s's)", s->kind->name);
        add_place(s, note);
    }
    return BERTH_ENOTFOUND;
}

/* In the model's own folder: people download them side by side. */
static berth_status from_beside(struct search *s, berth_err *err)
{
    bool another;
    if (!s->w || !s->kind->beside)
        return BERTH_ENOTFOUND;
    const char *path = weights_path(s->w), *slash = strrchr(path, '/');
    str_clear(&s->from);
    str_add(&s->from, slash ? path : ".", slash ? (size_t)(slash - path) : 1);
    if (s->from.bad)
        return err_set(err, BERTH_ENOMEM, "a folder's name");
    if (has_files(s->kind, str_c(&s->from))) {
        berth_status st = from_folder(s, &another, err);
        if (!another)
            return st;
    }
    add_place(s, "");
    return BERTH_ENOTFOUND;
}

static berth_status not_found(const struct search *s, berth_err *err)
{
    if (s->from.bad || s->places.bad)
        return err_set(err, BERTH_ENOMEM, "looking for a tokenizer");
    return err_set(err, BERTH_ENOTFOUND,
                   "no %s tokenizer (%s): give its folder with --tokenizers or --comfyui-dir%s; "
                   "`berth synth --tokenizer DIR` writes a stand-in to try things out. Looked in: "
                   "%s",
                   s->kind->name, s->kind->files,
                   s->kind->beside ? ", or put the file beside the model" : "",
                   s->places.n ? str_c(&s->places) : "nothing, no folder was given");
}

berth_status asset_tokenizer(const struct node_env *env, const struct tokenizer *kind,
                             const struct weights *w, struct asset **out, berth_err *err)
{
    berth_status (*const from[])(struct search *, berth_err *) = { from_carried, from_folders,
                                                                   from_beside, from_spare };
    struct search s = { .env = env, .kind = kind, .w = w };
    berth_status st = BERTH_ENOTFOUND;
    str_adds(&s.places, w ? "the model file" : "");
    for (size_t i = 0; i < ARRAY_LEN(from) && st == BERTH_ENOTFOUND; i++)
        st = from[i](&s, err);
    if (st == BERTH_ENOTFOUND)
        st = not_found(&s, err);
    *out = s.found;
    search_release(&s);
    return st;
}
