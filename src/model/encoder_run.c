/* encoder_run.c: chunks through an encoder's network, so many at a time. */
#include "model/encoder.h"

#include <inttypes.h>
#include <stdlib.h>

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

static berth_status make_lookup(struct encoder_pass *p, berth_err *err)
{
    if (p->is->lookup && !(p->lookup = p->is->lookup(p->in.len)))
        return err_set(err, BERTH_ENOMEM, "positions of %zu tokens", p->in.len);
    return BERTH_OK;
}

static void pass_release(struct encoder_pass *p)
{
    slots_release(&p->in);
    free(p->lookup);
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
        s = make_lookup(&p, err);
    if (!s)
        s = net_predict(e->net, forward, &p, &peak, err);
    pass_release(&p);
    return s;
}

berth_status text_encoder_check(const struct text_encoder *e, berth_err *err)
{
    const char *first;
    berth_status s = predict(e, err);
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
        s = predict(&e, err);
    net_close(e.net);
    arena_release(&mem);
    return s;
}

berth_status text_encoder_run(const struct text_encoder *e, const struct chunks *in,
                              const struct encoder_want *want, float *z, float *pooled,
                              size_t *dropped, berth_err *err)
{
    struct encoder_size size = e->is->size(e->config);
    if (pooled && !size.pooled)
        BUG("%s has no pooled output", e->is->name);
    if (in->n && in->len[0] > size.tokens)
        return err_set(err, BERTH_ELIMIT, "a prompt of %zu tokens, more than %" PRIu64, in->len[0],
                       size.tokens);
    if (slots_check(in, size.vocab, err))
        return err->code;
    size_t len = in->len[0], left_out = 0;
    int64_t hidden = (int64_t)size.layers + want->layer;
    berth_status s = BERTH_OK;
    for (size_t from = 0, n; !s && from < in->n; from += n) {
        struct encoder_pass p = { .is = e->is,
                                  .config = e->config,
                                  .want = want,
                                  .hidden = want->layer < 0 && hidden >= 0 ? hidden : -1,
                                  .z = z ? z + from * len * size.width : NULL,
                                  .pooled = from == 0 ? pooled : NULL };
        n = in->n - from < size.chunks ? in->n - from : size.chunks;
        if (!p.z && !p.pooled)
            break;
        s = slots_init(&p.in, in, from, n, size.width, size.zero_nans, &left_out, err);
        if (!s)
            s = make_lookup(&p, err);
        p.text_end = end_of_text(in->chunk[0], len, size.width, in->rules.end);
        if (!s)
            s = net_forward(e->net, forward, &p, err);
        pass_release(&p);
    }
    if (dropped)
        *dropped = left_out;
    return s;
}
