/* tokenizer_tekken.c: Mistral's tekken (Mistral 3, Ministral 3), as a tokenizer. */
#include "base/file.h"
#include "text/carried.h"
#include "text/lmbpe.h"

#include <stdlib.h>

static const struct lmbpe_kind kind = {
    .name = "Mistral",
    .split = &split_llama3,
    .must = (const char *const[]) { "<s>", "</s>", "<pad>", NULL },
    .start = "<s>",
    .pad = "<pad>",
    .gguf = (const char *const[]) { "tekken", NULL },
};

static berth_status open_file(const char *path, struct lmbpe **out, berth_err *err)
{
    char *text = NULL;
    size_t n = 0;
    *out = NULL;
    if (file_read_all(path, BPE_FILE_MAX, &text, &n, err))
        return err->code;
    berth_status s = lmbpe_from_tekken(text, n, path, &kind, out, err);
    free(text);
    return s;
}

/* A tekken.json, or the folder that has it. */
static berth_status open_path(const char *path, void **out, berth_err *err)
{
    struct lmbpe *t;
    berth_status s = open_file(path, &t, err);
    if (s == BERTH_EINVAL) {
        struct str file = { 0 };
        str_addf(&file, "%s/tekken.json", path);
        s = file.bad ? err_set(err, BERTH_ENOMEM, "a folder's name") : open_file(file.p, &t, err);
        str_release(&file);
    }
    *out = t;
    return s;
}

static berth_status carried(const struct weights *w, void **out, berth_err *err)
{
    struct carried own;
    struct lmbpe *t;
    *out = NULL;
    if (carried_find(w, "tekken_model", &own, err))
        return err->code;
    berth_status s = lmbpe_from_tekken(own.bytes, own.n, own.what, &kind, &t, err);
    *out = t;
    return s;
}

LMBPE_SPARE(kind)

const struct tokenizer tokenizer_tekken = {
    .name = "Mistral",
    .files = "tekken.json",
    .folders = (const char *const[]) { "/tekken", "/mistral", "", NULL },
    .own = 2,
    .beside = true,
    .any_of = (const char *const[][2]) { { "tekken.json" }, { NULL } },
    .open = open_path,
    .carried = carried,
    .spare = spare,
    .keep_carried = true,
    LMBPE_CALLS,
};
