/* assets: what nodes open once: tokenizers, which people bring (--tokenizers). */
#include "node/compute.h"

#include <unistd.h>

struct node_assets { /* owner: the executor's thread */
    struct bpe *clip;
};

struct node_assets *node_assets_new(void)
{
    return calloc(1, sizeof(struct node_assets));
}

void node_assets_free(struct node_assets *a)
{
    if (a)
        bpe_close(a->clip);
    free(a);
}

static bool has_file(const struct str *dir, const char *name)
{
    struct str path = { 0 };
    str_addf(&path, "%s/%s", str_c(dir), name);
    bool there = !path.bad && access(path.p, R_OK) == 0;
    str_release(&path);
    return there;
}

/* What text/tokenizer.h reads: the pair, or the one file. */
static bool has_tokenizer(const struct str *dir)
{
    return (has_file(dir, "vocab.json") && has_file(dir, "merges.txt")) ||
           has_file(dir, "tokenizer.json");
}

/* The first folder with a CLIP tokenizer, into *out; else the places looked in, into *places. */
static bool find_clip(const struct node_env *env, struct str *out, struct str *places)
{
    static const char *const below[] = { "/clip", "/sd1_tokenizer", "" };
    for (size_t i = 0; i < env->tokenizers_n; i++)
        for (size_t k = 0; k < ARRAY_LEN(below); k++) {
            str_clear(out);
            str_addf(out, "%s%s", env->tokenizers[i], below[k]);
            if (!out->bad && has_tokenizer(out))
                return true;
            str_addf(places, "%s%s", places->n ? ", " : "", str_c(out));
        }
    return false;
}

bool node_tokenizer_there(const struct node_env *env, struct str *places)
{
    struct str dir = { 0 }, looked = { 0 };
    bool there = find_clip(env, &dir, &looked);
    if (!there)
        str_add(places, str_c(&looked), looked.n);
    str_release(&dir);
    str_release(&looked);
    return there;
}

berth_status assets_clip(const struct node_env *env, const struct bpe **out, struct bpe **own,
                         berth_err *err)
{
    struct str dir = { 0 }, places = { 0 };
    berth_status s = BERTH_OK;
    *own = NULL;
    *out = env->assets ? env->assets->clip : NULL;
    if (*out)
        return BERTH_OK;
    if (find_clip(env, &dir, &places)) {
        s = bpe_open(dir.p, own, err);
        if (!s)
            *out = *own;
        if (!s && env->assets) {
            env->assets->clip = *own;
            *own = NULL;
        }
    } else {
        s = err_set(err, BERTH_ENOTFOUND,
                    "no CLIP tokenizer (vocab.json, merges.txt): give its folder with --tokenizers "
                    "or --comfyui-dir; `berth synth --tokenizer DIR` writes a stand-in to try "
                    "things out. Looked in: %s",
                    places.n ? str_c(&places) : "nothing, no folder was given");
    }
    str_release(&dir);
    str_release(&places);
    return s;
}
