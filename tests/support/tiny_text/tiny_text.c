#include "support/tiny_text/tiny_text.h"

#include "base/file.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_TEST_TOKENIZERS "support/tiny_text/tokenizers.def"
#define TEXT_TEST_ENCODERS "support/tiny_text/encoders.def"
#define TEXT_TEST_SETS "support/tiny_text/text_sets.def"
#include "text/tables.c"

/* ---- tokenizer ---- */

struct tiny_tokenizer {
    int32_t add;
};

static berth_status tiny_tokenizer_open(const char *path, void **out, berth_err *err)
{
    struct str file = { 0 };
    char *text = NULL;
    size_t n;
    uint64_t add = 0;
    str_addf(&file, "%s/tiny.txt", path);
    struct tiny_tokenizer *t = calloc(1, sizeof *t);
    berth_status s = t ? file_read_all(str_c(&file), 64, &text, &n, err)
                       : err_set(err, BERTH_ENOMEM, "a tiny tokenizer");
    if (!s && (!str_parse_u64(text, strcspn(text, "\n"), &add) || add > 40))
        s = err_set(err, BERTH_EFORMAT, "'%s' is no number up to 40", str_c(&file));
    if (!s)
        t->add = (int32_t)add;
    str_release(&file);
    free(text);
    if (s)
        free(t);
    *out = s ? NULL : t;
    return s;
}

static void tiny_tokenizer_close(void *tok)
{
    free(tok);
}

static struct token_ids tiny_ids(const void *tok)
{
    (void)tok;
    return (struct token_ids) { .start = -1, .end = TINY_END, .pad = 0 };
}

static berth_status tiny_tokens(const void *tok, const char *text, size_t n, struct vec *out,
                                berth_err *err)
{
    const struct tiny_tokenizer *t = tok;
    for (size_t i = 0; i < n; i++) {
        int32_t *id = vec_add(out);
        if (!id)
            return err_set(err, BERTH_ENOMEM, "tokens");
        *id = (unsigned char)text[i] + t->add;
    }
    return BERTH_OK;
}

const struct tokenizer tokenizer_tiny = {
    .name = "tiny",
    .files = "tiny.txt",
    .folders = (const char *const[]) { "/tiny", NULL },
    .own = 1,
    .any_of = (const char *const[][2]) { { "tiny.txt" }, { NULL } },
    .open = tiny_tokenizer_open,
    .close = tiny_tokenizer_close,
    .ids = tiny_ids,
    .encode = tiny_tokens,
};

/* ---- encoder ---- */

struct tiny_net {
    uint64_t width, vocab;
};

static bool tiny_detect(const struct weights *w, const char *root, const char *place)
{
    (void)place;
    return encoder_tensor(w, root, TINY_TABLE ".weight");
}

static berth_status tiny_configure(const struct weights *w, const char *root, void *config,
                                   berth_err *err)
{
    const struct weights_entry *e = encoder_tensor(w, root, TINY_TABLE ".weight");
    if (!e || e->shape.ndim != 2)
        return err_set(err, BERTH_ENOTFOUND, "no tiny encoder at '%.100s'", root);
    *(struct tiny_net *)config =
        (struct tiny_net) { .width = e->shape.dim[1], .vocab = e->shape.dim[0] };
    return BERTH_OK;
}

static struct encoder_size tiny_size(const void *config)
{
    const struct tiny_net *t = config;
    return (struct encoder_size) { .width = t->width,
                                   .vocab = t->vocab,
                                   .tokens = 4096,
                                   .layers = 1,
                                   .chunks = 4,
                                   .pooled = true };
}

static void tiny_forward(struct net_run *r, const struct encoder_pass *p)
{
    struct act x = slots_embed(r, &p->in, TINY_TABLE), z = net_linear_no_bias(r, x, TINY_MIX);
    net_drop(r, &x);
    if (p->z)
        net_output(r, z, p->z);
    if (p->pooled) {
        struct act chunk = net_slice(r, z, 0, 0, 1);
        struct act end = net_slice(r, chunk, 1, p->text_end, p->text_end + 1);
        net_output(r, end, p->pooled);
        net_drop(r, &end);
        net_drop(r, &chunk);
    }
    net_drop(r, &z);
}

const struct encoder_class encoder_tiny = {
    .name = "Tiny",
    .key = "tiny",
    .tokenizer = &tokenizer_tiny,
    .config_bytes = sizeof(struct tiny_net),
    .detect = tiny_detect,
    .configure = tiny_configure,
    .size = tiny_size,
    .forward = tiny_forward,
};

/* ---- set ---- */

static berth_status tiny_join(const struct text_result *r, size_t n, struct arena *mem,
                              struct text_cond *out, berth_err *err)
{
    if (text_join_columns(r, n, mem, out, err))
        return err->code;
    for (size_t i = 0, k = out->tokens - 1; i < k; i++, k--)
        for (size_t x = 0; x < out->width; x++) {
            float *a = &out->cond[i * out->width + x], *b = &out->cond[k * out->width + x],
                  was = *a;
            *a = *b;
            *b = was;
        }
    return BERTH_OK;
}

const struct text_set text_set_tiny = {
    .name = "Tiny",
    .types = { "ovis" },
    .use = { { &encoder_tiny, .cond = true, .pooled = true, .min_length = 5 } },
    .join = tiny_join,
};
