/* encoder_run.c: chunks through an encoder's network, so many at a time. */
#include "model/encoder.h"

#include "base/sz.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* As many slots as are up to the first end token, and every vector, counted. */
static size_t end_of_text(const struct token *t, size_t len, uint64_t width, int32_t end)
{
    size_t n = 0;
    bool ended = false;
    for (size_t i = 0; i < len; i++) {
        n += t[i].vector ? t[i].width == width : !ended;
        ended = ended || (!t[i].vector && t[i].id == end);
    }
    return n ? n - 1 : 0;
}

/* Which slots of a chunk are text: neither pads in front, nor anything from the first pad behind
 * text on. Vectors are text. Returns how many are not. */
static size_t mark_text(const struct slots *s, size_t chunk, int32_t pad, uint8_t *shown)
{
    bool began = false, ended = false;
    size_t hidden = 0;
    for (size_t i = 0; i < s->len; i++) {
        size_t at = chunk * s->len + i;
        bool vector = s->vector[at], is_pad = !vector && s->id[at] == pad;
        began = began || !is_pad;
        ended = ended || (began && is_pad);
        shown[at] = vector || (began && !ended);
        hidden += !shown[at];
    }
    return hidden;
}

/* Cuts the only chunk behind its text; returns by how much. */
static size_t drop_pads(struct encoder_pass *p, const uint8_t *shown)
{
    const size_t all = p->in.len;
    if (p->in.n != 1)
        BUG("%s: pads of %zu chunks", p->is->name, p->in.n);
    while (p->in.len > 1 && !shown[p->in.len - 1])
        p->in.len--;
    return all - p->in.len;
}

/* What a pass needs beside its slots. shown: [slots], where it hides pads. */
static berth_status pass_prepare(struct encoder_pass *p, int32_t pad, uint8_t *shown,
                                 berth_err *err)
{
    size_t hidden = 0;
    for (size_t i = 0; shown && i < p->in.n; i++)
        hidden += mark_text(&p->in, i, pad, shown);
    if (hidden && p->is->drops_pads)
        hidden -= drop_pads(p, shown);
    p->shown = hidden ? shown : NULL;
    if ((p->is->lookup && !(p->lookup = p->is->lookup(p->in.len))) ||
        (p->is->prepare && !(p->own = p->is->prepare(p))))
        return err_set(err, BERTH_ENOMEM, "positions of %zu tokens", p->in.len);
    return BERTH_OK;
}

static void pass_release(struct encoder_pass *p)
{
    slots_release(&p->in);
    free(p->lookup);
    free(p->own);
    *p = (struct encoder_pass) { 0 };
}

static void forward(struct net_run *r, void *user)
{
    const struct encoder_pass *p = user;
    p->is->forward(r, p);
}

/* A dry run of all of it, over one token. */
static berth_status predict(const struct text_encoder *e, berth_err *err)
{
    static const struct encoder_want all = { .project = true };
    float nowhere = 0; /* dry: nothing is written */
    uint64_t peak;
    struct encoder_size size = e->is->size(e->config);
    struct encoder_pass p = { .is = e->is,
                              .config = e->config,
                              .want = &all,
                              .hidden = -1,
                              .z = &nowhere,
                              .pooled = size.pooled ? &nowhere : NULL };
    berth_status s = slots_init_one(&p.in, size.width, err);
    if (!s)
        s = pass_prepare(&p, -1, NULL, err);
    if (!s)
        s = net_predict(e->net, forward, &p, &peak, err);
    pass_release(&p);
    return s;
}

/* ---- pictures ---- */

struct look { /* a pass over a picture */
    const struct text_encoder *e;
    void *host;
    float *to;
};

static void look_forward(struct net_run *r, void *user)
{
    const struct look *l = user;
    l->e->is->sight->forward(r, l->e->config, l->host, l->to);
}

static bool has_vision(const struct text_encoder *e)
{
    return e->is->sight && e->is->sight->there(e->config);
}

/* A dry run of its eyes, over the smallest picture. */
static berth_status predict_look(const struct text_encoder *e, berth_err *err)
{
    static const float pixel[3];
    const struct text_picture p = { .rgb = pixel, .width = 1, .height = 1 };
    struct picture_rows rows;
    float nowhere = 0; /* dry: nothing is written */
    struct look l = { .e = e, .to = &nowhere };
    uint64_t peak;
    berth_status s = e->is->sight->prepare(e->config, &p, &l.host, &rows, err);
    if (!s)
        s = net_predict(e->net, look_forward, &l, &peak, err);
    free(l.host);
    return s;
}

berth_status text_encoder_look(const struct text_encoder *e, const struct text_picture *p,
                               struct arena *mem, struct picture_rows *rows, const float **vectors,
                               berth_err *err)
{
    struct look l = { .e = e };
    size_t width = (size_t)e->is->size(e->config).width, n;
    if (!has_vision(e))
        return err_set(err, BERTH_EUNSUPPORTED, "%s sees no pictures", e->is->name);
    berth_status s = e->is->sight->prepare(e->config, p, &l.host, rows, err);
    float *spare = NULL;
    if (!s && (!sz_mul(rows->n, width, &n) ||
               !(l.to = arena_array(mem, n * (1 + rows->deep), sizeof *l.to)) ||
               !(spare = malloc(n * sizeof *spare))))
        s = err_set(err, BERTH_ENOMEM, "a picture of %zu rows", rows->n);
    if (!s)
        s = net_forward(e->net, look_forward, &l, err);
    if (!s) {
        e->is->sight->arrange(e->config, l.host, l.to, spare);
        rows->deeper = l.to + n;
        *vectors = l.to;
    }
    free(spare);
    free(l.host);
    return s;
}

/* n rows in the place of token `at` of chunk 0. */
static berth_status put_rows(struct chunks *c, size_t at, const float *rows, size_t n,
                             uint32_t width, struct arena *mem, berth_err *err)
{
    size_t len = c->len[0], all;
    struct token *t = sz_add(len - 1, n, &all) ? arena_array(mem, all, sizeof *t) : NULL;
    if (!t)
        return err_set(err, BERTH_ENOMEM, "a picture of %zu rows", n);
    memcpy(t, c->chunk[0], at * sizeof *t);
    for (size_t i = 0; i < n; i++)
        t[at + i] = (struct token) {
            .id = -1, .weight = 1.0, .vector = rows + i * width, .width = width, .embedding = ""
        };
    memcpy(t + at + n, c->chunk[0] + at + 1, (len - at - 1) * sizeof *t);
    c->chunk[0] = t;
    c->len[0] = all;
    return BERTH_OK;
}

berth_status text_encoder_see(const struct text_encoder *e, const struct text_picture *picture,
                              size_t pictures, struct chunks *c, struct encoder_job *job,
                              struct arena *mem, berth_err *err)
{
    struct picture_rows *rows = pictures ? arena_array(mem, pictures, sizeof *rows) : NULL;
    const uint32_t width = (uint32_t)e->is->size(e->config).width;
    const float *vectors;
    if (pictures && !rows)
        return err_set(err, BERTH_ENOMEM, "%zu pictures", pictures);
    job->picture = rows;
    for (size_t at = 0; at < c->len[0] && job->pictures < pictures; at++) {
        struct picture_rows *r = &rows[job->pictures];
        if (c->chunk[0][at].vector || c->chunk[0][at].id != e->is->sight->token)
            continue;
        if (text_encoder_look(e, &picture[job->pictures], mem, r, &vectors, err) ||
            put_rows(c, at, vectors, r->n, width, mem, err))
            return err->code;
        r->at = at;
        at += r->n - 1;
        job->pictures++;
    }
    return BERTH_OK;
}

/* In the order that its layers run: pictures come first. */
static berth_status predict_all(const struct text_encoder *e, berth_err *err)
{
    return has_vision(e) && predict_look(e, err) ? err->code : predict(e, err);
}

/* ---- chunks ---- */

berth_status text_encoder_check(const struct text_encoder *e, berth_err *err)
{
    const char *first;
    berth_status s = predict_all(e, err);
    if (!s)
        net_unused(e->net, &first);
    return s;
}

berth_status text_trace(const struct arch *arch, const struct weights *w, const char *root,
                        struct block_trace *out, berth_err *err)
{
    struct text_found found;
    struct text_encoder e = { 0 };
    struct arena mem = { 0 };
    (void)arch; /* of several with the same names any */
    if (!text_find_at(w, root, &found))
        return err_set(err, BERTH_ENOTFOUND, "no text encoder at '%.100s'", root);
    berth_status s = text_encoder_init(&e, w, &found, &mem, err);
    if (!s)
        s = net_trace_open(&(struct net_trace_args) { .w = w,
                                                      .root = found.root,
                                                      .names = found.is->names,
                                                      .names_user = e.config,
                                                      .out = out },
                           &e.net, err);
    if (!s)
        s = predict_all(&e, err);
    net_close(e.net);
    arena_release(&mem);
    return s;
}

uint32_t encoder_taps(const struct encoder_want *want, const struct encoder_size *size)
{
    return want->taps == TEXT_TAPS_ALL ? size->layers + 1 : want->taps ? want->taps : 1;
}

/* n chunks from `from` on. */
static berth_status run_pass(const struct text_encoder *e, struct encoder_job *job,
                             const struct encoder_size *size, size_t from, size_t n, uint8_t *shown,
                             berth_err *err)
{
    const struct encoder_want *want = &job->want;
    size_t len = job->in->len[0];
    int64_t hidden = (int64_t)size->layers + want->layer;
    struct encoder_pass p = { .is = e->is,
                              .config = e->config,
                              .want = want,
                              .picture = job->picture,
                              .pictures = from == 0 ? job->pictures : 0,
                              .hidden = want->layer < 0 && hidden >= 0 ? hidden : -1,
                              .z = job->z ? job->z + from * len * size->width : NULL,
                              .pooled = from == 0 ? job->pooled : NULL };
    if (!p.z && !p.pooled)
        return BERTH_OK;
    berth_status s =
        slots_init(&p.in, job->in, from, n, size->width, size->zero_nans, &job->dropped, err);
    p.in.scale = size->scale;
    if (!s)
        s = pass_prepare(&p, job->in->rules.pad, shown, err);
    if (p.z && p.in.len < len)
        memset(p.z + p.in.len * size->width, 0, (len - p.in.len) * size->width * sizeof *p.z);
    p.text_end = end_of_text(job->in->chunk[0], len, size->width, job->in->rules.end);
    if (!s)
        s = net_forward(e->net, forward, &p, err);
    pass_release(&p);
    return s;
}

berth_status text_encoder_do(const struct text_encoder *e, struct encoder_job *job, berth_err *err)
{
    struct encoder_size size = e->is->size(e->config);
    const struct chunks *in = job->in;
    if (job->pooled && !size.pooled)
        BUG("%s has no pooled output", e->is->name);
    if (in->n > 1 && encoder_taps(&job->want, &size) > 1)
        BUG("taps of %zu chunks", in->n);
    uint32_t taps = job->want.taps,
             last = taps && taps != TEXT_TAPS_ALL ? job->want.tap[taps - 1] : 0;
    if (last > size.layers)
        return err_set(err, BERTH_EINVAL, "layer %u is wanted of one with %u layers", last,
                       size.layers);
    if (in->n && in->len[0] > size.tokens)
        return err_set(err, BERTH_ELIMIT, "a prompt of %zu tokens, more than %" PRIu64, in->len[0],
                       size.tokens);
    if (slots_check(in, size.vocab, err))
        return err->code;
    uint8_t *shown = NULL, *made = NULL;
    if ((e->is->hides_pads || job->hides_pads) && !(shown = job->shown) &&
        !(shown = made = calloc(in->n, in->len[0]))) /* sizes: slots_check() saw them */
        return err_set(err, BERTH_ENOMEM, "%zu tokens", in->len[0]);
    berth_status s = BERTH_OK;
    const size_t most = job->hides_pads ? 1 : size.chunks;
    job->dropped = 0;
    for (size_t from = 0, n; !s && from < in->n; from += n) {
        n = in->n - from < most ? in->n - from : most;
        s = run_pass(e, job, &size, from, n, shown ? shown + from * in->len[0] : NULL, err);
    }
    free(made);
    return s;
}

berth_status text_encoder_run(const struct text_encoder *e, const struct chunks *in,
                              const struct encoder_want *want, float *z, float *pooled,
                              size_t *dropped, berth_err *err)
{
    struct encoder_job job = { .in = in, .want = *want, .z = z, .pooled = pooled };
    berth_status s = text_encoder_do(e, &job, err);
    if (dropped)
        *dropped = job.dropped;
    return s;
}
