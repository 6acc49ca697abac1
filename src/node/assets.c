/* assets: what nodes open once: tokenizers, which models or people bring (--tokenizers).
 *
 * The one in a model file is that model's and nobody else's: it is opened for each use and never
 * kept, so that two models cannot get each other's. With a vocabulary of CLIP's size (49,408 words)
 * that costs about 40 ms a CLIPTextEncode.
 * A folder that is given may be the tokenizer's own or one with several in folders of usual names.
 * tokenizer.json is what both CLIP's and T5's file may be called: where it is not clear whose a
 * folder is, one of the other kind is passed over; in a folder called after the kind it is an error. */
#include "node/compute.h"

#include <string.h>
#include <unistd.h>

struct node_assets {  /* owner: the executor's thread */
    struct bpe *clip; /* the folders' */
    struct unigram *t5;
    char *t5_from; /* where it came from; NULL: there is none */
};

struct node_assets *node_assets_new(void)
{
    return calloc(1, sizeof(struct node_assets));
}

static void drop_t5(struct node_assets *a)
{
    unigram_close(a->t5);
    free(a->t5_from);
    a->t5 = NULL;
    a->t5_from = NULL;
}

void node_assets_free(struct node_assets *a)
{
    if (!a)
        return;
    bpe_close(a->clip);
    drop_t5(a);
    free(a);
}

/* ---- where they are ---- */

static bool has_file(const struct str *dir, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", str_c(dir), name);
    return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0;
}

/* What text/tokenizer.h reads. */
static bool has_bpe(const struct str *dir)
{
    return (has_file(dir, "vocab.json") && has_file(dir, "merges.txt")) ||
           has_file(dir, "tokenizer.json");
}

static bool has_unigram(const struct str *dir)
{
    return has_file(dir, "tokenizer.json") || has_file(dir, "spiece.model");
}

#define BELOW_MAX 8
static const struct kind {
    const char *below[BELOW_MAX]; /* in this order */
    size_t own; /* so many of them are called after the kind; the others may hold any */
    size_t n;
    bool (*has)(const struct str *dir);
} kinds[] = {
    [NODE_CLIP_TOKENIZER] = { { "/clip", "/sd1_tokenizer", "" }, 2, 3, has_bpe },
    /* ComfyUI's own is in comfy/text_encoders; diffusers' Flux calls it the second; stand-ins of
     * both kinds (berth synth --tokenizer) are in one folder */
    [NODE_T5_TOKENIZER] = { { "/t5", "/t5xxl", "/t5_tokenizer", "/text_encoders/t5_tokenizer",
                              "/tokenizer_2", "", "/clip" },
                            5,
                            7,
                            has_unigram },
};

struct search { /* search_release() */
    const struct node_env *env;
    const struct kind *kind;
    size_t next;    /* of env->tokenizers_n * kind->n places */
    bool any;       /* dir may hold one of another kind */
    struct str dir; /* has files of the right names */
    struct str places;
};

/* On to the next folder that has such files; those that have none are noted. */
static bool search_next(struct search *s)
{
    while (s->next < s->env->tokenizers_n * s->kind->n) {
        size_t i = s->next / s->kind->n, k = s->next % s->kind->n;
        s->next++;
        s->any = k >= s->kind->own;
        str_clear(&s->dir);
        str_addf(&s->dir, "%s%s", s->env->tokenizers[i], s->kind->below[k]);
        if (!s->dir.bad && s->kind->has(&s->dir))
            return true;
        str_addf(&s->places, "%s%s", s->places.n ? ", " : "", str_c(&s->dir));
    }
    return false;
}

/* Nothing was found: for want of memory, or because there is nothing. */
static berth_status search_failed(const struct search *s, berth_err *err)
{
    return s->dir.bad || s->places.bad ? err_set(err, BERTH_ENOMEM, "looking for a tokenizer")
                                       : BERTH_ENOTFOUND;
}

static void search_release(struct search *s)
{
    str_release(&s->dir);
    str_release(&s->places);
}

bool node_tokenizer_there(const struct node_env *env, enum node_tokenizer kind, struct str *places)
{
    struct search s = { .env = env, .kind = &kinds[kind] };
    bool there = search_next(&s);
    if (!there)
        str_add(places, str_c(&s.places), s.places.n);
    search_release(&s);
    return there;
}

/* A tokenizer of another kind, where it may be: no error. */
static bool is_another(const struct search *s, berth_status st)
{
    return s->any && (st == BERTH_EFORMAT || st == BERTH_EUNSUPPORTED || st == BERTH_EINVAL);
}

/* ---- CLIP ---- */

static berth_status clip_from_folders(const struct node_env *env, const struct weights *w,
                                      struct asset_bpe *out, berth_err *err)
{
    struct search s = { .env = env, .kind = &kinds[NODE_CLIP_TOKENIZER] };
    *out = (struct asset_bpe) { .it = env->assets ? env->assets->clip : NULL };
    if (out->it)
        return BERTH_OK;
    str_adds(&s.places, w ? "the model file" : "");
    berth_status st = BERTH_ENOTFOUND;
    while (st && search_next(&s)) {
        st = bpe_open(s.dir.p, &out->own, err);
        if (st && !is_another(&s, st))
            break;
        if (st)
            str_addf(&s.places, "%s%s (none of CLIP's)", s.places.n ? ", " : "", str_c(&s.dir));
        st = st ? BERTH_ENOTFOUND : BERTH_OK;
    }
    if (!st) {
        out->it = out->own;
        if (env->assets) {
            env->assets->clip = out->own;
            out->own = NULL;
        }
    } else if (st == BERTH_ENOTFOUND && (st = search_failed(&s, err)) == BERTH_ENOTFOUND) {
        st = err_set(err, BERTH_ENOTFOUND,
                     "no CLIP tokenizer (vocab.json, merges.txt): give its folder with "
                     "--tokenizers or --comfyui-dir; `berth synth --tokenizer DIR` writes a "
                     "stand-in to try things out. Looked in: %s",
                     s.places.n ? str_c(&s.places) : "nothing, no folder was given");
    }
    search_release(&s);
    return st;
}

berth_status asset_clip(const struct node_env *env, const struct weights *w, struct asset_bpe *out,
                        berth_err *err)
{
    *out = (struct asset_bpe) { 0 };
    berth_status s = w ? bpe_from_weights(w, &out->own, err) : BERTH_ENOTFOUND;
    out->it = out->own;
    return s == BERTH_ENOTFOUND ? clip_from_folders(env, w, out, err) : s;
}

void asset_bpe_release(struct asset_bpe *a)
{
    bpe_close(a->own);
    *a = (struct asset_bpe) { 0 };
}

/* ---- T5 ---- */

/* What opening a T5 tokenizer goes through: the first source that has one is it. */
struct t5_search {
    const struct node_env *env;
    const struct weights *w;
    struct search folders;
    struct str from;       /* of what was found */
    struct unigram *found; /* opened; NULL: `known` */
    const struct unigram *known;
};

/* Is it the one that is open already? Then nothing is opened. */
static bool is_known(struct t5_search *t)
{
    const struct node_assets *a = t->env->assets;
    if (a && a->t5_from && !t->from.bad && strcmp(a->t5_from, str_c(&t->from)) == 0)
        t->known = a->t5;
    return t->known != NULL;
}

static void set_from(struct t5_search *t, const char *what, const char *path)
{
    str_clear(&t->from);
    str_addf(&t->from, "%s%s", what, path);
}

/* umT5 brings its own, under another vocabulary than T5's. */
static berth_status from_tensor(struct t5_search *t, berth_err *err)
{
    static const char name[] = "spiece_model";
    const struct weights_entry *e = weights_find(t->w, name, sizeof name - 1);
    if (!e)
        return BERTH_ENOTFOUND;
    set_from(t, "spiece_model of ", weights_path(t->w));
    if (is_known(t))
        return BERTH_OK;
    return unigram_from_proto(weights_data(t->w, e), (size_t)e->size, str_c(&t->from), &t->found,
                              err);
}

static berth_status from_folders(struct t5_search *t, berth_err *err)
{
    while (search_next(&t->folders)) {
        set_from(t, "", str_c(&t->folders.dir));
        if (is_known(t))
            return BERTH_OK;
        berth_status s = unigram_open(str_c(&t->from), &t->found, err);
        if (!s || !is_another(&t->folders, s))
            return s;
        str_addf(&t->folders.places, "%s%s (none of T5's)", t->folders.places.n ? ", " : "",
                 str_c(&t->from));
    }
    return BERTH_ENOTFOUND;
}

/* In the model's own folder: as people download them side by side. Of another kind: not ours. */
static berth_status from_beside(struct t5_search *t, berth_err *err)
{
    const char *path = weights_path(t->w), *slash = strrchr(path, '/');
    set_from(t, "", "");
    str_add(&t->from, slash ? path : ".", slash ? (size_t)(slash - path) : 1);
    if (t->from.bad)
        return err_set(err, BERTH_ENOMEM, "a folder's name");
    if (has_unigram(&t->from)) {
        if (is_known(t))
            return BERTH_OK;
        berth_status s = unigram_open(str_c(&t->from), &t->found, err);
        if (s != BERTH_EFORMAT && s != BERTH_EUNSUPPORTED && s != BERTH_EINVAL)
            return s;
    }
    str_addf(&t->folders.places, "%s%s", t->folders.places.n ? ", " : "", str_c(&t->from));
    return BERTH_ENOTFOUND;
}

static berth_status from_metadata(struct t5_search *t, berth_err *err)
{
    set_from(t, "metadata of ", weights_path(t->w));
    return is_known(t) ? BERTH_OK : unigram_from_gguf(t->w, &t->found, err);
}

/* The env keeps what was opened last: a workflow uses one. */
static void keep(struct t5_search *t, struct asset_unigram *out)
{
    struct node_assets *a = t->env->assets;
    char *from = a && t->found ? strdup(str_c(&t->from)) : NULL;
    *out = (struct asset_unigram) { .it = t->found ? t->found : t->known, .own = t->found };
    if (!from)
        return;
    drop_t5(a);
    a->t5 = t->found;
    a->t5_from = from;
    out->own = NULL;
}

berth_status asset_t5(const struct node_env *env, const struct weights *w,
                      struct asset_unigram *out, berth_err *err)
{
    berth_status (*const from[])(struct t5_search *, berth_err *) = { from_tensor, from_folders,
                                                                      from_beside, from_metadata };
    struct t5_search t = { .env = env,
                           .w = w,
                           .folders = { .env = env, .kind = &kinds[NODE_T5_TOKENIZER] } };
    berth_status s = BERTH_ENOTFOUND;
    *out = (struct asset_unigram) { 0 };
    str_adds(&t.folders.places, "the model file");
    for (size_t i = 0; i < ARRAY_LEN(from) && s == BERTH_ENOTFOUND; i++)
        s = from[i](&t, err);
    if (!s)
        keep(&t, out);
    else if (s == BERTH_ENOTFOUND && (s = search_failed(&t.folders, err)) == BERTH_ENOTFOUND)
        err_set(err, BERTH_ENOTFOUND,
                "no T5 tokenizer (tokenizer.json or spiece.model): give its folder with "
                "--tokenizers or --comfyui-dir, or put the file beside the model; `berth synth "
                "--tokenizer DIR` writes a stand-in. Looked in: %s",
                str_c(&t.folders.places));
    search_release(&t.folders);
    str_release(&t.from);
    return s;
}

void asset_unigram_release(struct asset_unigram *a)
{
    unigram_close(a->own);
    *a = (struct asset_unigram) { 0 };
}
