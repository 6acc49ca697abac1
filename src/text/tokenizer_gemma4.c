/* tokenizer_gemma4.c: Gemma 4, as a tokenizer: its files bring a tokenizer.json of pairs of
 * characters. */
#include "text/carried.h"
#include "text/lmbpe.h"

static const struct lmbpe_kind kind = {
    .name = "Gemma 4",
    .must = (const char *const[]) { "<bos>", "<eos>", "<pad>", NULL },
    .start = "<bos>",
    .pad = "<pad>",
};

static berth_status open_path(const char *path, void **out, berth_err *err)
{
    struct lmbpe *t;
    berth_status s = lmbpe_open(path, &kind, &t, err);
    *out = t;
    return s;
}

static berth_status carried(const struct weights *w, void **out, berth_err *err)
{
    struct carried own;
    struct lmbpe *t;
    *out = NULL;
    if (carried_find(w, "tokenizer_json", &own, err))
        return err->code;
    berth_status s = lmbpe_from_json(own.bytes, own.n, own.what, &kind, &t, err);
    *out = t;
    return s;
}

const struct tokenizer tokenizer_gemma4 = {
    .name = "Gemma 4",
    .files = "tokenizer.json",
    .folders = (const char *const[]) { "/gemma4", "/tokenizer", "", NULL },
    .own = 1,
    .beside = true,
    .any_of = (const char *const[][2]) { { "tokenizer.json" }, { NULL } },
    .open = open_path,
    .carried = carried,
    .keep_carried = true,
    .close = lmbpe_close,
    .ids = lmbpe_ids,
    .encode = lmbpe_encode,
    .bytes = lmbpe_bytes,
    .each_byte = true,
    .find = lmbpe_find,
};
