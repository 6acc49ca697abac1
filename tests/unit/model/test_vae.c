/* VAEs: tiles against a plain cover, automatic tiles, pictures, halves, other names, files that are
 * wrong. */
#include "support/data_bytes.h"
#include "support/nets.h"
#include "support/oom.h"

#include "base/log.h"
#include "model/vae.h"
#include "model/vae_kl/presets.h"
#include "model/vae_kl/vae_kl.h"

static const struct vae_config small = {
    .ch = 32, .z_channels = 4, .levels = 2, .mult = { 1, 2 }, .res_blocks = 1, .quant_convs = true
};

struct vae_rig {
    struct net_rig g;
    struct net *net;
    struct vae_net v;
    struct vae_job j;
};

static const char *file_of(const struct vae_config *c, const char *name)
{
    struct keys k = { 0 };
    keys_vae(&k, c);
    const char *path = keys_file(&k, name, DT_F32, "safetensors", NULL);
    keys_release(&k);
    return path;
}

static void rig_open(struct vae_rig *r, const char *devices, const char *path)
{
    berth_err err = { 0 };
    net_rig_open(&r->g, devices, path, NULL, NULL);
    struct net_args a = net_rig_args(&r->g);
    assert_ok(vae_open(&a, NULL, &r->v, &r->net, &err), err);
    r->j = (struct vae_job) { .net = r->net, .vae = &r->v };
}

static void rig_close(struct vae_rig *r)
{
    net_close(r->net);
    net_rig_close(&r->g);
}

static float *room(size_t n)
{
    float *p = calloc(n, sizeof *p);
    assert_non_null(p);
    return p;
}

static berth_status decode_hw(struct vae_job *j, const float *z, size_t n, size_t h, size_t w,
                              float *out, berth_err *err)
{
    return vae_decode(j, z, &(struct shape) { 4, { n, j->vae->latent.channels, h, w } }, out, err);
}

static berth_status encode_hw(struct vae_job *j, const float *x, size_t n, size_t h, size_t w,
                              float *out, berth_err *err)
{
    return vae_encode(j, x, &(struct shape) { 4, { n, 3, h, w } }, out, err);
}

/* ---- tiles ---- */

/* The rule of vae.md 7 for one pass, with a mask in memory, added to out. */
static void plain_pass(struct vae_rig *r, bool decode, const float *in, int h, int w, int ty,
                       int tx, int overlap, float *out)
{
    const int ratio = (int)r->v.latent.ratio, z = (int)r->v.latent.channels;
    const int ci = decode ? z : 3, co = decode ? 3 : z;
#define UP(n) (decode ? (n)*ratio : (n) / ratio)
    int oh = UP(h), ow = UP(w);
    float *sum = room((size_t)(co * oh * ow)), *weight = room((size_t)(co * oh * ow));
    berth_err err = { 0 };
    for (int y = 0; y < (h > ty ? h - overlap : 1); y += ty - overlap)
        for (int x = 0; x < (w > tx ? w - overlap : 1); x += tx - overlap) {
            int th = ty < h - y ? ty : h - y, tw = tx < w - x ? tx : w - x;
            int mh = UP(th), mw = UP(tw), f = UP(overlap);
            float *piece = room((size_t)(ci * th * tw)), *got = room((size_t)(co * mh * mw)),
                  *mask = room((size_t)(mh * mw));
            for (int i = 0; i < ci * th * tw; i++)
                piece[i] = in[(i / (th * tw) * h + y + i / tw % th) * w + x + i % tw];
            struct vae_job whole = { .net = r->net, .vae = &r->v };
            assert_ok((decode ? decode_hw : encode_hw)(&whole, piece, 1, (size_t)th, (size_t)tw,
                                                       got, &err),
                      err);
            for (int i = 0; i < mh * mw; i++)
                mask[i] = 1;
            if (th < h || tw < w) {
                for (int t = 0; t < f && f < mh; t++)
                    for (int i = 0; i < mw; i++) {
                        mask[t * mw + i] *= (float)((t + 1) / (double)f);
                        mask[(mh - 1 - t) * mw + i] *= (float)((t + 1) / (double)f);
                    }
                for (int t = 0; t < f && f < mw; t++)
                    for (int i = 0; i < mh; i++) {
                        mask[i * mw + t] *= (float)((t + 1) / (double)f);
                        mask[i * mw + mw - 1 - t] *= (float)((t + 1) / (double)f);
                    }
            }
            for (int c = 0; c < co; c++)
                for (int i = 0; i < mh * mw; i++) {
                    int at = (c * oh + UP(y) + i / mw) * ow + UP(x) + i % mw;
                    sum[at] += got[c * mh * mw + i] * mask[i];
                    weight[at] += mask[i];
                }
            free(piece), free(got), free(mask);
        }
    for (int i = 0; i < co * oh * ow; i++)
        out[i] += sum[i] / weight[i];
    free(sum), free(weight);
#undef UP
}

static void tiles_are_blended_by_the_rule(void **state)
{
    static const struct {
        bool decode;
        size_t h, w, tile_x, tile_y, overlap;
    } list[] = {
        { true, 13, 21, 8, 8, 2 }, /* short last tiles both ways */
        { true, 20, 7, 12, 8, 3 }, /* one side fits */
        { true, 6, 6, 8, 8, 2 },   /* all of it fits in two of the passes */
        { false, 26, 44, 16, 16, 4 }, { false, 34, 18, 24, 16, 6 },
    };
    struct vae_rig r;
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "small"));
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        bool d = list[i].decode;
        size_t h = list[i].h, w = list[i].w, z = (size_t)r.v.latent.channels,
               ratio = r.v.latent.ratio;
        size_t n = d ? 3 * h * w * ratio * ratio : z * h * w / ratio / ratio;
        float *in = noise_floats(i, (d ? z : 3) * h * w), *want = room(n), *got = room(n);
        int tx = (int)list[i].tile_x, ty = (int)list[i].tile_y, o = (int)list[i].overlap;
        berth_err err = { 0 };
        if (d)
            plain_pass(&r, d, in, (int)h, (int)w, 2 * ty, tx / 2, o, want);
        else
            plain_pass(&r, d, in, (int)h, (int)w, ty, tx, o, want);
        plain_pass(&r, d, in, (int)h, (int)w, ty / 2, 2 * tx, o, want);
        if (d)
            plain_pass(&r, d, in, (int)h, (int)w, ty, tx, o, want);
        else
            plain_pass(&r, d, in, (int)h, (int)w, 2 * ty, tx / 2, o, want);
        for (size_t k = 0; k < n; k++)
            want[k] /= 3;
        r.j.tile_x = list[i].tile_x;
        r.j.tile_y = list[i].tile_y;
        r.j.overlap = list[i].overlap;
        assert_ok((d ? decode_hw : encode_hw)(&r.j, in, 1, h, w, got, &err), err);
        assert_near(d ? "tiled decode" : "tiled encode", got, want, n, 1e-6);
        assert_false(r.j.tiled);
        /* and it is not the whole's */
        struct vae_job whole = { .net = r.net, .vae = &r.v };
        assert_ok((d ? decode_hw : encode_hw)(&whole, in, 1, h, w, got, &err), err);
        assert_true(i == 2 || rel_error(got, want, n) > 1e-4);
        free(in), free(want), free(got);
    }
    rig_close(&r);
}

static void tiles_that_cannot_be_are_refused(void **state)
{
    struct vae_rig r;
    float in[4 * 16 * 16] = { 0 }, *out = room(3 * 32 * 32);
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "small"));
    r.j.tile_x = 8, r.j.tile_y = 8, r.j.overlap = 4;
    assert_fails(decode_hw(&r.j, in, 1, 16, 16, out, &err), err, BERTH_EINVAL, "overlapping by 4");
    r.j.tile_x = 1, r.j.tile_y = 1, r.j.overlap = 0;
    assert_fails(decode_hw(&r.j, in, 1, 16, 16, out, &err), err, BERTH_EINVAL, "1 x 1");
    r.j.tile_x = 0;
    assert_fails(decode_hw(&r.j, in, 1, 0, 16, out, &err), err, BERTH_EINVAL, "16 x 0");
    assert_fails(encode_hw(&r.j, in, 1, 8, 9, out, &err), err, BERTH_EINVAL, "9 x 8");
    assert_fails(vae_encode_image(&r.j, in, &(struct shape) { 4, { 1, 8, 8, 2 } }, out, &err), err,
                 BERTH_EINVAL, "2 channels");
    assert_fails(vae_encode_image(&r.j, in, &(struct shape) { 4, { 1, 1, 8, 3 } }, out, &err), err,
                 BERTH_EINVAL, "8 x 0");
    free(out);
    rig_close(&r);
}

struct steps {
    size_t calls, done, total, stop;
};

static berth_status on_step(void *user, size_t done, size_t total, berth_err *err)
{
    struct steps *s = user;
    assert_true(done > s->done && done <= total);
    s->calls++;
    s->done = done;
    s->total = total;
    return s->calls == s->stop ? err_set(err, BERTH_ECANCELED, "enough") : BERTH_OK;
}

static void steps_are_told_and_can_end_it(void **state)
{
    struct vae_rig r;
    struct steps s = { 0 };
    float *in = noise_floats(9, 2 * 4 * 12 * 12), *out = room(2 * 3 * 24 * 24);
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "small"));
    r.j.step = on_step;
    r.j.user = &s;
    assert_ok(decode_hw(&r.j, in, 2, 12, 12, out, &err), err);
    assert_true(s.calls == 2 && s.done == 2 && s.total == 2);
    assert_int_equal(net_report(r.j.net).backward, 0); /* in the order that streams fetch */
    s = (struct steps) { 0 };
    r.j.tile_x = r.j.tile_y = 8, r.j.overlap = 2;
    assert_ok(decode_hw(&r.j, in, 2, 12, 12, out, &err), err);
    assert_true(s.done == s.total && s.calls == s.total && s.total > 2);
    s = (struct steps) { .stop = 3 };
    assert_fails(decode_hw(&r.j, in, 2, 12, 12, out, &err), err, BERTH_ECANCELED, "enough");
    assert_int_equal(s.calls, 3);
    free(in), free(out);
    rig_close(&r);
}

/* ---- no room ---- */

static void count_tiled(void *user, enum log_level level, uint64_t ns, const char *event,
                        const char *text)
{
    (void)level, (void)ns, (void)text;
    if (!strcmp(event, "vae.tiled"))
        ++*(size_t *)user;
}

/* Enough for the weights and so much more. */
static void open_with(struct vae_rig *r, const char *path, uint64_t more)
{
    struct weights *w;
    char devices[64];
    berth_err err = { 0 };
    assert_ok(weights_open(path, NULL, &w, &err), err);
    snprintf(devices, sizeof devices, "cpu=%llu",
             (unsigned long long)(data_bytes(w) * 5 / 4 + more));
    weights_close(w);
    rig_open(r, devices, path);
}

static void tiles_come_by_themselves_when_there_is_no_room(void **state)
{
    const size_t h = 80, w = 72, n = 3 * 160 * 144;
    const char *path = file_of(&small, "small");
    struct vae_rig r;
    float *in = noise_floats(4, 4 * h * w), *whole = room(n), *asked = room(n), *got = room(n);
    uint64_t peak, tile_peak;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", path);
    assert_ok(decode_hw(&r.j, in, 1, h, w, whole, &err), err);
    assert_ok(vae_predict(&r.j, true, &(struct shape) { 4, { 1, r.v.latent.channels, h, w } },
                          &peak, &err),
              err);
    assert_ok(vae_predict(&r.j, true, &(struct shape) { 4, { 1, r.v.latent.channels, 32, 32 } },
                          &tile_peak, &err),
              err);
    struct vae_job tiles = { .net = r.net, .vae = &r.v, .tile_x = 32, .tile_y = 32, .overlap = 8 };
    assert_ok(decode_hw(&tiles, in, 1, h, w, asked, &err), err);
    rig_close(&r);

    /* tiles of 64 do not fit either */
    size_t told = 0;
    struct steps steps = { 0 };
    struct log log = { .level = LOG_DEBUG, .write = count_tiled, .user = &told };
    open_with(&r, path, tile_peak * 3 / 2);
    r.j.log = &log;
    r.j.step = on_step;
    r.j.user = &steps;
    assert_ok(decode_hw(&r.j, in, 1, h, w, got, &err), err);
    assert_true(r.j.tiled && told == 2 && r.j.rungs == 2);
    assert_true(r.j.tiles > 3 && r.j.tiles == steps.total);
    assert_memory_equal(got, asked, n * sizeof *got);
    assert_true(rel_error(got, whole, n) > 1e-6);
    rig_close(&r);

    /* not even the smallest */
    open_with(&r, path, 4096);
    assert_fails(decode_hw(&r.j, in, 1, h, w, got, &err), err, BERTH_ENODEVMEM, "VAE decode of");
    rig_close(&r);
    free(in), free(whole), free(asked), free(got);
}

/* ---- pictures ---- */

static void pictures_are_cut_in_the_middle(void **state)
{
    const size_t h = 15, w = 22, c = 4, ch = 12, cw = 20, n = 2;
    const struct vae_config three = {
        .ch = 32, .z_channels = 16, .levels = 3, .mult = { 1, 1, 2 }, .res_blocks = 1
    };
    struct vae_rig r;
    float *image = noise_floats(5, n * h * w * c), *x = room(n * 3 * ch * cw);
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&three, "three"));
    assert_true(r.v.latent.ratio == 4 && r.v.latent.channels == 16 && !vae_kl_in(&r.v)->quant &&
                !vae_kl_in(&r.v)->post_quant);
    const struct shape cut = vae_pictures(&r.v, &(struct shape) { 4, { n, h, w, c } });
    assert_true(shape_eq(&cut, &(struct shape) { 4, { n, 3, ch, cw } }));
    const size_t lh = 3, lw = 5;
    float *want = room(n * 16 * lh * lw), *got = room(n * 16 * lh * lw);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++)
            for (size_t y = 0; y < ch; y++)
                for (size_t p = 0; p < cw; p++) /* 15 % 4 / 2 = 1, 22 % 4 / 2 = 1 */
                    x[((i * 3 + k) * ch + y) * cw + p] =
                        image[((i * h + y + 1) * w + p + 1) * c + k] * 2 - 1;
    assert_ok(encode_hw(&r.j, x, n, ch, cw, want, &err), err);
    assert_ok(vae_encode_image(&r.j, image, &(struct shape) { 4, { n, h, w, c } }, got, &err), err);
    assert_memory_equal(want, got, n * 16 * lh * lw * sizeof *got);
    free(image), free(x), free(want), free(got);
    rig_close(&r);
}

/* Only the last norm is left of the decoder; values so small that its epsilon counts. */
static float last_norm(const struct key *key, uint64_t i)
{
    bool ends = strstr(key->name, "conv_in") || strstr(key->name, "conv_out");
    if (!str_ends(key->name, key->name_len, ".weight"))
        return 0;
    return key->shape.ndim == 1 ? 1 : ends ? keys_tap(key, i) : 0;
}

static void the_epsilon_of_norms(void **state)
{
    static const struct vae_config one = {
        .ch = 32, .z_channels = 4, .levels = 1, .mult = { 1 }, .res_blocks = 1
    };
    enum { HW = 30 };
    struct keys k = { 0 };
    struct vae_rig r;
    float *z = noise_floats(3, 4 * HW), out[3 * HW], want[3 * HW];
    double n[HW];
    berth_err err = { 0 };
    (void)state;
    for (size_t i = 0; i < 4 * HW; i++)
        z[i] *= 1e-3f;
    keys_vae(&k, &one);
    rig_open(&r, "cpu=64m", keys_file_made(&k, "last", last_norm));
    keys_release(&k);
    assert_ok(decode_hw(&r.j, z, 1, 5, 6, out, &err), err);
    for (size_t c = 0; c < 3; c++) {
        plain_norm(z + c * HW, HW, 1e-6, n);
        for (size_t i = 0; i < HW; i++)
            want[c * HW + i] = (float)(n[i] / (1 + exp(-n[i])));
    }
    assert_near("the last norm", out, want, 3 * HW, 1e-5);
    free(z);
    rig_close(&r);
}

/* ---- files ---- */

struct change {
    bool diffusers, old, matrices, nested;
    const char *only;   /* this half, and its quant convolution */
    const char *drop;   /* this tensor goes */
    const char *extra;  /* is called so instead */
    struct shape shape; /* ... and has this shape */
};

static void swap_word(char *name, size_t cap, const char *from, const char *to)
{
    char *at = strstr(name, from), rest[192];
    if (!at)
        return;
    snprintf(rest, sizeof rest, "%s", at + strlen(from));
    snprintf(at, cap - (size_t)(at - name), "%s%s", to, rest);
}

/* By the list of vae.md 6, for the two levels of `small`. */
static bool change(const void *user, const struct key *key, char *name, size_t cap,
                   struct shape *shape)
{
    static const char *const to[][2] = {
        { "encoder.down.0.block.0", "encoder.down_blocks.0.resnets.0" },
        { "encoder.down.1.block.0", "encoder.down_blocks.1.resnets.0" },
        { "encoder.down.0.downsample", "encoder.down_blocks.0.downsamplers.0" },
        { "decoder.up.0.block.0", "decoder.up_blocks.1.resnets.0" },
        { "decoder.up.0.block.1", "decoder.up_blocks.1.resnets.1" },
        { "decoder.up.1.block.0", "decoder.up_blocks.0.resnets.0" },
        { "decoder.up.1.block.1", "decoder.up_blocks.0.resnets.1" },
        { "decoder.up.1.upsample", "decoder.up_blocks.0.upsamplers.0" },
        { "mid.block_1", "mid_block.resnets.0" },
        { "mid.block_2", "mid_block.resnets.1" },
        { "mid.attn_1.norm", "mid_block.attentions.0.group_norm" },
        { "mid.attn_1.q", "mid_block.attentions.0.to_q" },
        { "mid.attn_1.k", "mid_block.attentions.0.to_k" },
        { "mid.attn_1.v", "mid_block.attentions.0.to_v" },
        { "mid.attn_1.proj_out", "mid_block.attentions.0.to_out.0" },
        { "norm_out", "conv_norm_out" },
        { "nin_shortcut", "conv_shortcut" },
    };
    static const char *const then[][2] = {
        { ".to_q.", ".query." },
        { ".to_k.", ".key." },
        { ".to_v.", ".value." },
        { ".to_out.0.", ".proj_attn." },
    };
    const struct change *c = user;
    bool attention = strstr(key->name, "attn_1") && shape->ndim == 4;
    if (c->only && !strstr(key->name, c->only) &&
        strcmp(c->only[0] == 'e' ? "quant_conv" : "post_quant_conv",
               strstr(key->name, "quant_conv") ? key->name : "") != 0)
        return false;
    if (c->drop && !strcmp(key->name, c->drop)) {
        if (!c->extra)
            return false;
        snprintf(name, cap, "%s", c->extra);
        if (c->shape.ndim)
            *shape = c->shape;
    }
    for (size_t i = 0; i < ARRAY_LEN(to) && c->diffusers; i++)
        swap_word(name, cap, to[i][0], to[i][1]);
    for (size_t i = 0; i < ARRAY_LEN(then) && c->old; i++)
        swap_word(name, cap, then[i][0], then[i][1]);
    if (c->matrices && attention)
        *shape = (struct shape) { .ndim = 2, .dim = { shape->dim[0], shape->dim[1] } };
    if (c->nested && !strncmp(name, "quant_conv", 10))
        swap_word(name, cap, "quant_conv", "encoder.quant_conv");
    if (c->nested && !strncmp(name, "post_quant_conv", 15))
        swap_word(name, cap, "post_quant_conv", "decoder.post_quant_conv");
    return true;
}

static const char *changed_file(const struct change *c)
{
    struct keys k = { 0 };
    keys_vae(&k, &small);
    const char *path = keys_file_changed(&k, "changed", change, c);
    keys_release(&k);
    return path;
}

static void other_names_are_the_same_network(void **state)
{
    static const struct change list[] = {
        { 0 },
        { .nested = true },
        { .diffusers = true },
        { .diffusers = true, .matrices = true },
        { .diffusers = true, .old = true, .matrices = true },
        { .matrices = true },
    };
    const size_t h = 5, w = 7;
    float *z = noise_floats(6, 4 * h * w), *x = noise_floats(7, 3 * 4 * h * w), picture[3 * 4 * 35],
          latent[4 * 35], first_picture[3 * 4 * 35], first_latent[4 * 35];
    berth_err err = { 0 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct vae_rig r;
        rig_open(&r, "cpu=256m", changed_file(&list[i]));
        const struct vae_kl *v = vae_kl_in(&r.v);
        assert_true(v->diffusers == list[i].diffusers && v->nested_quant == list[i].nested);
        assert_true(v->quant && v->post_quant && v->levels == 2 && v->dec_blocks == 2);
        assert_ok(decode_hw(&r.j, z, 1, h, w, i ? picture : first_picture, &err), err);
        assert_ok(encode_hw(&r.j, x, 1, 2 * h, 2 * w, i ? latent : first_latent, &err), err);
        if (i) {
            assert_memory_equal(picture, first_picture, sizeof picture);
            assert_memory_equal(latent, first_latent, sizeof latent);
        }
        rig_close(&r);
    }
    free(z), free(x);
}

static void halves_can_stand_alone(void **state)
{
    float z[4 * 16] = { 0 }, x[3 * 64] = { 0 };
    berth_err err = { 0 };
    (void)state;
    for (int half = 0; half < 2; half++) {
        struct vae_rig r;
        struct change c = { .only = half ? "encoder." : "decoder." };
        rig_open(&r, "cpu=256m", changed_file(&c));
        assert_int_equal(r.v.encoder, half);
        assert_int_equal(r.v.decoder, !half);
        assert_int_equal(r.v.latent.channels, 4);
        if (half) {
            assert_ok(encode_hw(&r.j, x, 1, 8, 8, z, &err), err);
            assert_fails(decode_hw(&r.j, z, 1, 4, 4, x, &err), err, BERTH_EUNSUPPORTED,
                         "no decoder");
        } else {
            assert_ok(decode_hw(&r.j, z, 1, 4, 4, x, &err), err);
            assert_fails(encode_hw(&r.j, x, 1, 8, 8, z, &err), err, BERTH_EUNSUPPORTED,
                         "no encoder");
        }
        rig_close(&r);
    }
}

static void wrong_files_are_told(void **state)
{
    static const struct {
        struct change c;
        const char *says;
    } list[] = {
        { { .drop = "decoder.conv_out.bias", .extra = "bn.running_mean" }, "has 3 values" },
        { { .drop = "decoder.conv_out.bias", .extra = "taesd_decoder.1.weight" }, "TAESD" },
        { { .drop = "decoder.conv_out.weight" }, "without 'decoder.conv_out.weight'" },
        { { .drop = "decoder.conv_out.weight",
            .extra = "decoder.conv_out.weight",
            .shape = { 4, { 9, 32, 3, 1 } } },
          "9 channels" },
        { { .drop = "decoder.conv_in.weight",
            .extra = "decoder.conv_in.weight",
            .shape = { 5, { 64, 4, 1, 3, 3 } } },
          "no layer of a VAE for pictures" },
        { { .drop = "post_quant_conv.weight",
            .extra = "post_quant_conv.weight",
            .shape = { 4, { 8, 2, 1, 1 } } },
          "halves differ" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct weights *w;
        struct vae_net v;
        berth_err err = { 0 };
        assert_ok(weights_open(changed_file(&list[i].c), NULL, &w, &err), err);
        assert_fails(vae_detect(w, "", &v, &err), err, BERTH_EUNSUPPORTED, list[i].says);
        assert_fails(vae_detect(w, "vae.", &v, &err), err, BERTH_EUNSUPPORTED, "no VAE behind");
        weights_close(w);
    }
}

/* A file that lacks any one of its tensors is refused when that half runs, at the latest. */
static void no_tensor_may_be_missing(void **state)
{
    struct keys k = { 0 };
    float z[4 * 16] = { 0 }, x[3 * 64] = { 0 };
    (void)state;
    keys_vae(&k, &small);
    for (int theirs = 0; theirs < 2; theirs++)
        for (size_t i = 0; i < k.n; i++) {
            struct change c = { .drop = k.at[i].name, .diffusers = theirs };
            struct net_rig g;
            struct net *net;
            struct vae_net v;
            berth_err err = { 0 };
            net_rig_open(&g, "cpu=256m", changed_file(&c), NULL, NULL);
            struct net_args a = net_rig_args(&g);
            berth_status s = vae_open(&a, NULL, &v, &net, &err);
            struct vae_job j = { .net = net, .vae = &v };
            if (!s)
                s = decode_hw(&j, z, 1, 4, 4, x, &err);
            if (!s)
                s = encode_hw(&j, x, 1, 8, 8, z, &err);
            if (!s)
                fail_msg("without '%s' it runs", c.drop);
            net_close(net);
            net_rig_close(&g);
        }
    keys_release(&k);
}

/* ---- latents of Flux.2 ---- */

enum { PACKED_H = 3, PACKED_W = 5, PACKED_Z = 4 };
#define PACKED_N (4 * PACKED_Z * PACKED_H * PACKED_W)

/* Value i of a packed latent [4z, h, w] is this one of the network's [z, 2h, 2w]. */
static size_t unpacked(size_t i)
{
    const size_t x = i % PACKED_W, y = i / PACKED_W % PACKED_H, c = i / (PACKED_W * PACKED_H);
    return (c / 4 * 2 * PACKED_H + 2 * y + c / 2 % 2) * 2 * PACKED_W + 2 * x + c % 2;
}

/* The same weights with and without the batch norm: what it does is done by hand. */
static void packed_latents(void **state)
{
    struct vae_config c = small;
    struct keys k = { 0 };
    struct vae_rig with, without;
    char path[512];
    float *z = noise_floats(6, PACKED_N), *x = noise_floats(7, 3 * 16 * PACKED_H * PACKED_W);
    float *a = room(3 * 16 * PACKED_N), *b = room(3 * 16 * PACKED_N), *hand = room(PACKED_N);
    float mean[4 * PACKED_Z], var[4 * PACKED_Z];
    const struct shape s = { 1, { 4 * PACKED_Z } };
    berth_err err = { 0 };
    (void)state;
    snprintf(path, sizeof path, "%s", file_of(&c, "plain"));
    c.packed = true;
    keys_vae(&k, &c);
    synth_fill("bn.running_mean", 15, &s, 0, 4 * PACKED_Z, mean);
    synth_fill("bn.running_var", 14, &s, 0, 4 * PACKED_Z, var);
    for (int theirs = 0; theirs < 2; theirs++) { /* the norm is called so in both */
        const struct change names = { .diffusers = theirs, .nested = theirs };
        rig_open(&with, "cuda:0@cpu=64m,cpu=64m", keys_file_changed(&k, "packed", change, &names));
        rig_open(&without, "cpu=256m", path);
        assert_int_equal(with.v.latent.channels, 4 * PACKED_Z);
        assert_int_equal(with.v.latent.ratio, 2 * without.v.latent.ratio);
        for (size_t i = 0; i < PACKED_N; i++) {
            const size_t ch = i / (PACKED_H * PACKED_W);
            hand[unpacked(i)] = z[i] * sqrtf(var[ch] + 1e-4f) + mean[ch];
        }
        const size_t pixels = 3 * 16 * PACKED_H * PACKED_W;
        assert_ok(decode_hw(&with.j, z, 1, PACKED_H, PACKED_W, a, &err), err);
        assert_ok(decode_hw(&without.j, hand, 1, 2 * PACKED_H, 2 * PACKED_W, b, &err), err);
        assert_near("packed, decoded", a, b, pixels, 1e-5);
        assert_ok(encode_hw(&with.j, x, 1, 4 * PACKED_H, 4 * PACKED_W, a, &err), err);
        assert_ok(encode_hw(&without.j, x, 1, 4 * PACKED_H, 4 * PACKED_W, b, &err), err);
        for (size_t i = 0; i < PACKED_N; i++) {
            const size_t ch = i / (PACKED_H * PACKED_W);
            hand[i] = (b[unpacked(i)] - mean[ch]) / sqrtf(var[ch] + 1e-4f);
        }
        assert_near("packed, encoded", a, hand, PACKED_N, 1e-5);
        rig_close(&with);
        rig_close(&without);
    }
    keys_release(&k);
    free(z), free(x), free(a), free(b), free(hand);
}

/* A decoder of another width than the encoder's, and a batch norm that lacks a half. */
static void packed_files(void **state)
{
    struct vae_config c = small;
    struct keys k = { 0 };
    struct vae_rig r;
    struct net_rig g;
    struct vae_net v;
    struct net *net;
    float z[PACKED_N] = { 0 }, x[3 * 16 * PACKED_H * PACKED_W];
    const struct change half = { .drop = "bn.running_var" };
    berth_err err = { 0 };
    (void)state;
    c.packed = true;
    c.decoder_ch = 2 * c.ch;
    rig_open(&r, "cpu=256m", file_of(&c, "wide"));
    assert_ok(decode_hw(&r.j, z, 1, PACKED_H, PACKED_W, x, &err), err);
    assert_ok(encode_hw(&r.j, x, 1, 4 * PACKED_H, 4 * PACKED_W, z, &err), err);
    rig_close(&r);
    keys_vae(&k, &c);
    net_rig_open(&g, "cpu=256m", keys_file_changed(&k, "half", change, &half), NULL, NULL);
    struct net_args a = net_rig_args(&g);
    assert_ok(vae_open(&a, NULL, &v, &net, &err), err);
    struct vae_job j = { .net = net, .vae = &v };
    assert_fails(decode_hw(&j, z, 1, PACKED_H, PACKED_W, x, &err), err, BERTH_ENOTFOUND,
                 "bn.running_var");
    net_close(net);
    net_rig_close(&g);
    keys_release(&k);
}

/* Places that no tile reaches are told, not divided by 0. */
static void tiles_with_gaps_are_told(void **state)
{
    struct vae_rig r;
    float *x = noise_floats(3, 3 * 24 * 24), *z = room(4 * 12 * 12);
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "small"));
    r.j.tile_x = r.j.tile_y = 14; /* halves of 7 pixels make 3 latent ones of 2 */
    r.j.overlap = 0;
    assert_fails(encode_hw(&r.j, x, 1, 24, 24, z, &err), err, BERTH_EINVAL, "multiples of 2");
    free(x);
    free(z);
    rig_close(&r);
}

static void no_memory_is_survived(void **state)
{
    struct net_rig g;
    struct vae_net v;
    float *z = noise_floats(8, 4 * 12 * 12), *out = room(3 * 24 * 24);
    (void)state;
    net_rig_open(&g, "cpu=256m", file_of(&small, "small"), NULL, NULL);
    struct net_args a = net_rig_args(&g);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct net *net = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = vae_open(&a, NULL, &v, &net, &err);
        if (!s) {
            struct vae_job j = { .net = net, .vae = &v, .tile_x = 8, .tile_y = 8, .overlap = 2 };
            s = vae_decode_image(&j, z, &(struct shape) { 4, { 1, 4, 12, 12 } }, out, &err);
        }
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        net_close(net);
    }
    free(z), free(out);
    net_rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_blended_by_the_rule),
        cmocka_unit_test(tiles_that_cannot_be_are_refused),
        cmocka_unit_test(steps_are_told_and_can_end_it),
        cmocka_unit_test(tiles_come_by_themselves_when_there_is_no_room),
        cmocka_unit_test(pictures_are_cut_in_the_middle),
        cmocka_unit_test(the_epsilon_of_norms),
        cmocka_unit_test(other_names_are_the_same_network),
        cmocka_unit_test(halves_can_stand_alone),
        cmocka_unit_test(wrong_files_are_told),
        cmocka_unit_test(no_tensor_may_be_missing),
        cmocka_unit_test(packed_latents),
        cmocka_unit_test(packed_files),
        cmocka_unit_test(tiles_with_gaps_are_told),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
