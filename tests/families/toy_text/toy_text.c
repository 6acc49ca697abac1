#include "toy_text/toy_text.h"

#include "base/file.h"
#include "base/str.h"
#include "model/lora_names_impl.h"
#include "model/preset.h"

#include <stdlib.h>
#include <string.h>

/* ---- tokenizer ---- */

struct toy_tokenizer {
    int32_t add;
};

static berth_status toy_tokenizer_open(const char *path, void **out, berth_err *err)
{
    struct str file = { 0 };
    char *text = NULL;
    size_t n;
    uint64_t add = 0;
    str_addf(&file, "%s/toy.txt", path);
    struct toy_tokenizer *t = calloc(1, sizeof *t);
    berth_status s = t ? file_read_all(str_c(&file), 64, &text, &n, err)
                       : err_set(err, BERTH_ENOMEM, "a toy tokenizer");
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

static void toy_tokenizer_close(void *tok)
{
    free(tok);
}

static struct token_ids toy_ids(const void *tok)
{
    (void)tok;
    return (struct token_ids) { .start = -1, .end = TOY_END, .pad = 0 };
}

static berth_status toy_tokens(const void *tok, const char *text, size_t n, struct vec *out,
                               berth_err *err)
{
    const struct toy_tokenizer *t = tok;
    for (size_t i = 0; i < n; i++) {
        int32_t *id = vec_add(out);
        if (!id)
            return err_set(err, BERTH_ENOMEM, "tokens");
        *id = (unsigned char)text[i] + t->add;
    }
    return BERTH_OK;
}

const struct tokenizer tokenizer_toy = {
    .name = "toy",
    .files = "toy.txt",
    .folders = (const char *const[]) { "/toy", NULL },
    .own = 1,
    .any_of = (const char *const[][2]) { { "toy.txt" }, { NULL } },
    .open = toy_tokenizer_open,
    .close = toy_tokenizer_close,
    .ids = toy_ids,
    .encode = toy_tokens,
};

/* ---- encoder ---- */

struct toy_net {
    uint64_t width, vocab;
};

static bool toy_detect(const struct weights *w, const char *root)
{
    return arch_find(w, root, TOY_TABLE ".weight");
}

static berth_status toy_configure(const struct weights *w, const char *root, void *config,
                                  berth_err *err)
{
    const struct weights_entry *e = arch_find(w, root, TOY_TABLE ".weight");
    if (!e || e->shape.ndim != 2)
        return err_set(err, BERTH_ENOTFOUND, "no toy encoder at '%.100s'", root);
    *(struct toy_net *)config =
        (struct toy_net) { .width = e->shape.dim[1], .vocab = e->shape.dim[0] };
    return BERTH_OK;
}

static struct encoder_size toy_size(const void *config)
{
    const struct toy_net *t = config;
    return (struct encoder_size) { .width = t->width,
                                   .vocab = t->vocab,
                                   .tokens = 4096,
                                   .layers = 1,
                                   .chunks = 4,
                                   .pooled = true };
}

static void toy_forward(struct net_run *r, const struct encoder_pass *p)
{
    struct act x = slots_embed(r, &p->in, TOY_TABLE), z = net_linear_no_bias(r, x, TOY_MIX);
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

/* Adapters say "text_encoders.toy.transformer.<path>" and "lora_te_<path>". */
static void toy_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    char path[LORA_NAME_MAX];
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct lora_name m = { .key = weights_at(w, i)->name };
        if (!lora_path(weights_at(w, i), net->alias.root, path))
            continue;
        lora_text(t, path, &m);
        lora_numbered(t, net->te, false, path, &m);
    }
}

static void build(struct keys *k, const void *config)
{
    (void)config; /* there is one size */
    keys_toy_text(k);
}

static const struct preset presets[] = {
    { .name = "toy-text", .about = "the toy's text encoder", .build = build }, { .name = NULL }
};

const struct encoder_class encoder_toy = {
    .arch = { ENCODER_ARCH("toy-text", "the toy's text encoder"), .detect = toy_detect,
              .lora = toy_lora, .presets = presets },
    .name = "Toy",
    .key = "toy",
    .family = "toy text",
    .what = "a toy text encoder",
    .te = LORA_TE,
    .te_beside = LORA_TE,
    .tokenizer = &tokenizer_toy,
    .config_bytes = sizeof(struct toy_net),
    .configure = toy_configure,
    .size = toy_size,
    .forward = toy_forward,
};

/* ---- set ---- */

static berth_status toy_join(const struct text_result *r, size_t n, struct arena *mem,
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

const struct text_set text_set_toy = {
    .name = "Toy",
    .types = { "ovis" },
    .use = { { &encoder_toy, .cond = true, .pooled = true, .min_length = 5 } },
    .join = toy_join,
};
