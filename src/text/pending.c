/* Doors that are not there yet; this file goes when they are. */
#include "text/encoder.h"

#define PENDING return err_set(err, BERTH_EUNSUPPORTED, "not there yet")
#define U(x) (void)(x)

berth_status bpe_open(const char *path, struct bpe **out, berth_err *err)
{
    U(path), *out = NULL;
    PENDING;
}
void bpe_close(struct bpe *t)
{
    U(t);
}
size_t bpe_vocab(const struct bpe *t)
{
    U(t);
    return 0;
}
int32_t bpe_start(const struct bpe *t)
{
    U(t);
    return -1;
}
int32_t bpe_end(const struct bpe *t)
{
    U(t);
    return -1;
}
berth_status bpe_encode(const struct bpe *t, const char *text, size_t n, struct vec *out,
                        berth_err *err)
{
    U(t), U(text), U(n), U(out);
    PENDING;
}
berth_status text_parts(const char *prompt, size_t n, struct arena *mem, struct vec *out,
                        berth_err *err)
{
    U(prompt), U(n), U(mem), U(out);
    PENDING;
}
berth_status text_chunks(const char *prompt, size_t n, text_encode_fn *encode, const void *tok,
                         const struct chunk_rules *rules, const char *key,
                         const struct text_embeddings *emb, struct arena *mem, struct chunks *out,
                         berth_err *err)
{
    U(prompt), U(n), U(encode), U(tok), U(rules), U(key), U(emb), U(mem), U(out);
    PENDING;
}
berth_status text_embedding_read(const char *path, const char *key, uint32_t width,
                                 struct arena *mem, const float **vectors, uint32_t *count,
                                 uint32_t *out_width, berth_err *err)
{
    U(path), U(key), U(width), U(mem), U(vectors), U(count), U(out_width);
    PENDING;
}
berth_status clip_detect(const struct weights *w, const char *root, struct clip_net *out,
                         berth_err *err)
{
    U(w), U(root), U(out);
    PENDING;
}
net_names_fn *clip_names(const struct weights *w, const char *root)
{
    U(w), U(root);
    return NULL;
}
berth_status clip_encode(struct net *net, const struct clip_net *c, const struct chunks *in,
                         const struct clip_out_args *a, float *z, float *pooled, berth_err *err)
{
    U(net), U(c), U(in), U(a), U(z), U(pooled);
    PENDING;
}
berth_status text_encode(const struct text_args *a, const char *text, const char *text_l,
                         struct arena *mem, struct text_cond *out, berth_err *err)
{
    U(a), U(text), U(text_l), U(mem), U(out);
    PENDING;
}
size_t text_find(const struct weights *w, const char *part,
                 struct text_found out[TEXT_ENCODERS_MAX])
{
    U(w), U(part), U(out);
    return 0;
}
