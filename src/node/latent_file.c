/* latent_file.c: latents to files and back: safetensors with the ending .latent. */
#include "format/weights.h"
#include "node/node_impl.h"
#include "tensor/convert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An empty tensor says that values are as models see them; without it they were scaled by SD 1's
 * factor. */
#define VERSION_TENSOR "latent_format_version_0"
#define OLD_FACTOR (1.0 / 0.18215)

static bool add_tensor(json_t *header, const char *name, const struct shape *s, size_t bytes)
{
    json_t *dims = json_array();
    for (int i = 0; i < s->ndim; i++)
        if (json_array_append_new(dims, js_u64(s->dim[i]))) {
            json_decref(dims);
            return false;
        }
    return !json_object_set_new(header, name,
                                json_pack("{s:s, s:o, s:[i,I]}", "dtype", "F32", "shape", dims,
                                          "data_offsets", 0, (json_int_t)bytes));
}

/* The whole file: u64 length of the header, JSON padded with blanks to 8 bytes, data. */
static berth_status encode(const struct htensor *t, const struct saved *to, struct str *out,
                           berth_err *err)
{
    struct str text = { 0 };
    json_t *header = json_object(), *meta = json_object();
    size_t bytes = htensor_count(t) * sizeof(float);
    bool ok = header && meta;
    for (size_t i = 0; ok && i < to->texts; i++)
        ok = !json_object_set_new(meta, to->text[i].key, json_string(to->text[i].value));
    ok = ok && (!json_object_size(meta) || !json_object_set(header, "__metadata__", meta)) &&
         add_tensor(header, VERSION_TENSOR, &(struct shape) { .ndim = 1 }, 0) &&
         add_tensor(header, "latent_tensor", &t->shape, bytes);
    if (ok)
        js_write(header, 0, &text);
    json_decref(meta);
    json_decref(header);
    str_pad(&text, ' ', (text.n + 7) / 8 * 8);
    char len[8];
    for (int i = 0; i < 8; i++)
        len[i] = (char)((uint64_t)text.n >> (8 * i));
    str_add(out, len, sizeof len);
    str_add(out, str_c(&text), text.n);
    str_add(out, (const char *)t->data, bytes);
    ok = ok && !text.bad && !out->bad;
    str_release(&text);
    return ok ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a latent of %zu bytes", bytes);
}

static berth_status save_run(struct node_call *c, berth_err *err)
{
    const struct latent *l;
    const char *prefix;
    struct saved to;
    struct str bytes = { 0 };
    if (in_latent(c, "samples", &l, err) || in_text(c, "filename_prefix", &prefix, err) ||
        save_begin(c, "output", prefix, 0, 0, &to, err))
        return err->code;
    berth_status s = encode(l->samples, &to, &bytes, err);
    if (!s)
        s = save_add(c, &to, 0, ".latent", "latents", &bytes, err);
    str_release(&bytes);
    save_end(&to);
    return s ? s : out_input(c, 0, "samples", err);
}

NODE_CLASS(SaveLatent, .category = "_for_testing", .module = "nodes",
           .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(SOCKET("samples", "LATENT"), TEXT_IN("filename_prefix", "latents/ComfyUI")),
           OUTS({ .type = "LATENT", .name = "samples" }), .run = save_run);

static berth_status read_tensor(const struct weights *w, struct htensor **out, berth_err *err)
{
    const struct weights_entry *e = weights_find(w, "latent_tensor", strlen("latent_tensor"));
    char text[SHAPE_TEXT_MAX];
    if (!e)
        return err_set(err, BERTH_EFORMAT, "no tensor 'latent_tensor'");
    uint64_t n;
    if (e->shape.ndim < 4 || e->shape.ndim > 5 || !shape_count(&e->shape, &n) || !n)
        return err_set(err, BERTH_EFORMAT, "a latent of shape %s", shape_text(&e->shape, text));
    if (htensor_new(&e->shape, out, err))
        return err->code;
    uint8_t *raw = malloc(e->size); /* a file that changes under us is noticed before it is used */
    berth_status s = raw ? weights_read(w, e, 0, raw, e->size, err)
                         : err_set(err, BERTH_ENOMEM, "%" PRIu64 " bytes", e->size);
    if (!s)
        s = convert(e->dtype, raw, DT_F32, (*out)->data, (size_t)n, err);
    free(raw);
    return htensor_made(s, out);
}

static berth_status load_run(struct node_call *c, berth_err *err)
{
    const char *name;
    struct str path = { 0 };
    struct weights *w = NULL;
    struct latent l = { 0 };
    if (in_text(c, "latent", &name, err))
        return err->code;
    berth_status s = input_path(c->env, name, &path, err);
    if (!s && (weights_open(str_c(&path), NULL, &w, err) || read_tensor(w, &l.samples, err)))
        s = err->code;
    if (!s && !weights_find(w, VERSION_TENSOR, strlen(VERSION_TENSOR)))
        for (size_t i = 0, n = htensor_count(l.samples); i < n; i++)
            l.samples->data[i] *= (float)OLD_FACTOR;
    weights_close(w);
    str_release(&path);
    return s ? err_add(err, "loading '%s'", name) : give_latent(c, &l, err);
}

static bool is_latent(const char *name)
{
    return str_ends(name, strlen(name), ".latent");
}

static berth_status list_latents(const struct node_env *env, struct names *out, berth_err *err)
{
    return input_list(env, is_latent, out, err);
}

NODE_CLASS(LoadLatent, .category = "_for_testing", .module = "nodes",
           INS({ .name = "latent", .kind = IN_COMBO, .options_fn = list_latents }), OUT(out_latent),
           .run = load_run, INPUT_FILE("latent"));
