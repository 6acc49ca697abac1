/* clip.c: the CLIP text transformer (text-encoders.md 6). */
#include "model/clip/clip.h"
#include "base/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH_MAX 65536
#define VOCAB_MAX (1u << 24)
#define POSITIONS_MAX 65536
#define EPS 1e-5f

/* ---- config ---- */

/* A number in the metadata, written as one or as text. 0: none there. */
static uint64_t meta_number(const struct weights *w, const char *key)
{
    const struct weights_meta *m = weights_meta_find(w, key);
    uint64_t v = 0;
    if (!m)
        return 0;
    if (m->kind == META_UINT)
        return m->u;
    if (m->kind == META_INT)
        return m->i > 0 ? (uint64_t)m->i : 0;
    return m->kind == META_STRING && str_parse_u64(m->str, m->str_len, &v) ? v : 0;
}

static uint64_t count_heads(const struct weights *w, uint64_t width)
{
    static const char *const key[] = { "berth.heads", "clip.attention.head_count",
                                       "clip.text.attention.head_count" };
    uint64_t n = 0;
    for (size_t i = 0; !n && i < sizeof key / sizeof *key; i++)
        n = meta_number(w, key[i]);
    return n ? n : width / 64 ? width / 64 : 1;
}

berth_status clip_configure(const struct weights *w, const char *root, void *config, berth_err *err)
{
    enum clip_style style = clip_style(w, root);
    if (style == CLIP_NONE)
        return err_set(err, BERTH_ENOTFOUND, "no CLIP text encoder at '%.100s'", root);
    const struct weights_entry *token =
        clip_entry(w, root, style, "text_model.embeddings.token_embedding.weight");
    const struct weights_entry *position =
        clip_entry(w, root, style, "text_model.embeddings.position_embedding.weight");
    const struct weights_entry *fc1 =
        clip_entry(w, root, style, "text_model.encoder.layers.0.mlp.fc1.weight");
    struct clip_net c = { .width = arch_dim(token, 1),
                          .vocab = arch_dim(token, 0),
                          .positions = arch_dim(position, 0),
                          .mlp = arch_dim(fc1, 0),
                          .layers = arch_layers(w, root, clip_list(style)) };
    if (c.width == 0 || c.width > WIDTH_MAX || c.vocab == 0 || c.vocab > VOCAB_MAX ||
        c.positions == 0 || c.positions > POSITIONS_MAX || c.mlp == 0 ||
        arch_dim(position, 1) != c.width)
        return err_set(err, BERTH_EFORMAT,
                       "CLIP at '%.60s': width %" PRIu64 ", %" PRIu64 " tokens, %" PRIu64
                       " positions of %" PRIu64 ", mlp %" PRIu64,
                       root, c.width, c.vocab, c.positions, arch_dim(position, 1), c.mlp);
    uint64_t heads = count_heads(w, c.width);
    if (heads > c.width || c.width % heads)
        return err_set(err, BERTH_EFORMAT, "CLIP at '%.60s': %" PRIu64 " heads, width %" PRIu64,
                       root, heads, c.width);
    c.heads = (uint32_t)heads;
    const struct weights_entry *proj = clip_entry(w, root, style, "text_projection.weight");
    if (proj &&
        (proj->shape.ndim != 2 || arch_dim(proj, 0) != c.width || arch_dim(proj, 1) != c.width))
        return err_set(err, BERTH_EFORMAT,
                       "CLIP at '%.60s': text_projection is not a square of its width %" PRIu64,
                       root, c.width);
    c.projection = proj;
    c.style = style;
    c.bare_projection = proj && !arch_find(w, root, "text_projection.weight");
    *(struct clip_net *)config = c;
    return BERTH_OK;
}

/* ---- network ---- */

static struct act attention(struct net_run *r, const struct clip_net *c, struct act h)
{
    struct act q = net_linear(r, h, "self_attn.q_proj");
    struct act k = net_linear(r, h, "self_attn.k_proj");
    struct act v = net_linear(r, h, "self_attn.v_proj");
    struct net_attn how = { .heads = c->heads,
                            .scale = 1.0f / sqrtf((float)(c->width / c->heads)),
                            .causal = true };
    struct act y = net_attention(r, q, k, v, how);
    net_drop(r, &q);
    net_drop(r, &k);
    net_drop(r, &v);
    return y;
}

/* x += out_proj(attention(norm(x))); x += fc2(act(fc1(norm(x)))) */
static struct act layer(struct net_run *r, const struct clip_net *c, uint32_t i, struct act x)
{
    size_t mark = net_enter(r, "text_model.encoder.layers.%u.", i);
    struct act h = net_layer_norm(r, x, "layer_norm1", EPS);
    struct act y = attention(r, c, h);
    net_drop(r, &h);
    x = net_linear_add(r, y, "self_attn.out_proj", x);
    net_drop(r, &y);
    h = net_layer_norm(r, x, "layer_norm2", EPS);
    y = net_linear(r, h, "mlp.fc1");
    net_drop(r, &h);
    net_unary(r, &y, c->quick_gelu ? OP_QUICK_GELU : OP_GELU);
    x = net_linear_add(r, y, "mlp.fc2", x);
    net_drop(r, &y);
    net_leave(r, mark);
    return x;
}

static struct act final_norm(struct net_run *r, struct act x)
{
    return net_layer_norm(r, x, "text_model.final_layer_norm", EPS);
}

static void give_z(struct net_run *r, const struct encoder_pass *p, struct act x, bool norm)
{
    struct act z = norm ? final_norm(r, x) : x;
    net_finite(r, z, "text encoder");
    net_output(r, z, p->z);
    if (norm)
        net_drop(r, &z);
}

/* One row of the first chunk: norm and projection see rows apart. */
static void give_pooled(struct net_run *r, const struct encoder_pass *p, struct act x)
{
    const struct clip_net *c = p->config;
    struct act chunk = net_slice(r, x, 0, 0, 1);
    struct act row = net_slice(r, chunk, 1, p->text_end, p->text_end + 1);
    struct act y = final_norm(r, row);
    if (p->want->project && c->projection) {
        struct act projected = net_linear_no_bias(r, y, "text_projection");
        net_drop(r, &y);
        y = projected;
    }
    net_finite(r, y, "text encoder, pooled");
    net_output(r, y, p->pooled);
    net_drop(r, &y);
    net_drop(r, &row);
    net_drop(r, &chunk);
}

void clip_forward(struct net_run *r, const struct encoder_pass *p)
{
    const struct clip_net *c = p->config;
    struct shape one = { .ndim = 3, .dim = { 1, p->in.len, c->width } };
    struct act x = slots_embed(r, &p->in, "text_model.embeddings.token_embedding");
    struct act where =
        net_embedding(r, p->lookup, p->in.len, "text_model.embeddings.position_embedding");
    net_add(r, &x, net_reshape(r, where, &one));
    net_drop(r, &where);
    for (uint32_t i = 0; i < c->layers && !net_bad(r); i++) {
        if (!p->pooled && p->hidden >= 0 && i > p->hidden)
            break; /* nobody asks for what follows */
        x = layer(r, c, i, x);
        if (p->z && p->hidden == i)
            give_z(r, p, x, p->want->norm_hidden);
    }
    if (p->z && p->hidden < 0)
        give_z(r, p, x, true);
    if (p->pooled)
        give_pooled(r, p, x);
    net_drop(r, &x);
}

int32_t *clip_positions(size_t len)
{
    int32_t *position = calloc(len, sizeof *position);
    for (size_t i = 0; position && i < len; i++)
        position[i] = (int32_t)i;
    return position;
}
