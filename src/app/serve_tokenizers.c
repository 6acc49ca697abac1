/* serve_tokenizers: what prompts will miss, said when a server starts and not only when the first
 * of them fails. */
#include "app/serve_folders.h"
#include "model/encoder.h"
#include "node/compute.h"
#include "text/tokenizer.h"

#define FILES_MAX 64 /* text encoders whose headers are read at the start */

struct checking {
    struct app *a;
    struct node_env env;
    const char *give; /* the options that would help */
    const struct tokenizer *told[8];
    size_t tolds;
};

static void check_usual(const struct checking *c)
{
    struct str places = { 0 };
    if (!node_tokenizer_there(&c->env, &tokenizer_clip, &places))
        log_warn(&c->a->log, "serve.tokenizer",
                 "why=\"no CLIP tokenizer, so prompts for models that bring none fail: give %s; "
                 "berth synth --tokenizer DIR writes a stand-in\" looked=\"%s\"",
                 c->give, str_c(&places));
    str_clear(&places);
    if (!node_tokenizer_there(&c->env, &tokenizer_t5, &places))
        log_warn(&c->a->log, "serve.tokenizer",
                 "why=\"no T5 tokenizer, so Flux's prompts fail unless one is beside the model or "
                 "in it: give %s\" looked=\"%s\"",
                 c->give, str_c(&places));
    str_release(&places);
}

static bool was_told(const struct checking *c, const struct tokenizer *kind)
{
    for (size_t i = 0; i < c->tolds; i++)
        if (c->told[i] == kind)
            return true;
    return c->tolds == ARRAY_LEN(c->told);
}

/* The one of an encoder whose file is here. It may lie beside the model or in it: only where no
 * folder has it that is looked at, since opening one takes a while. */
static void check_kind(struct checking *c, const struct tokenizer *kind, const struct weights *w,
                       const char *file)
{
    struct str places = { 0 };
    struct asset *found = NULL;
    berth_err err = { 0 };
    if (kind == &tokenizer_clip || kind == &tokenizer_t5 || was_told(c, kind))
        return;
    if (!node_tokenizer_there(&c->env, kind, &places) &&
        asset_tokenizer(&c->env, kind, w, &found, &err) == BERTH_ENOTFOUND) {
        log_warn(&c->a->log, "serve.tokenizer",
                 "why=\"no %s tokenizer (%s), so prompts for '%s' fail: give %s\" looked=\"%s\"",
                 kind->name, kind->files, file, c->give, str_c(&places));
        c->told[c->tolds++] = kind;
    }
    asset_unref(found);
    str_release(&places);
}

static void check_file(struct checking *c, const char *key, const char *file)
{
    struct str path = { 0 };
    struct weights *w = NULL;
    struct text_found found[TEXT_ENCODERS_MAX];
    berth_err unread = { 0 };
    if (!folders_resolve(c->env.folders, key, file, &path, &unread) &&
        !weights_open(path.p, NULL, &w, &unread)) /* else its loader says what is wrong */
        for (size_t i = 0, n = text_find(w, NULL, found); i < n; i++)
            check_kind(c, found[i].is->tokenizer, w, file);
    weights_close(w);
    str_release(&path);
}

static void check_files(struct checking *c, const char *key)
{
    struct names names = { 0 };
    berth_err unread = { 0 };
    if (!folders_list(c->env.folders, key, &names, &unread))
        for (size_t i = 0; i < names.n && i < FILES_MAX; i++)
            check_file(c, key, names.at[i]);
    names_release(&names);
}

void serve_check_tokenizers(struct app *a, const struct folder_options *o,
                            const struct app_folders *f)
{
    struct checking c = { .a = a,
                          .env = { .folders = f->folders,
                                   .tokenizers = (const char *const *)f->tokenizers.at,
                                   .tokenizers_n = f->tokenizers.n },
                          .give = o->comfyui ? "--tokenizers" : "--tokenizers or --comfyui-dir" };
    struct str places = { 0 };
    if (!o->demo)
        check_usual(&c);
    else if (!node_tokenizer_there(&c.env, &tokenizer_clip, &places))
        log_info(&a->log, "serve.tokenizer",
                 "why=\"the demo model has its own; for others give %s\"", c.give);
    check_files(&c, "text_encoders");
    check_files(&c, "clip_gguf");
    str_release(&places);
}
