/* clips: text encoders, CLIPs and T5s, over files of synthetic weights.
 *
 *     struct clip_rig g;
 *     clip_rig_open(&g, path, NULL, 4);        finds, loads and opens every encoder of the file
 *     ... text_encode(&(struct text_args) { .enc = g.enc, .encoders = g.n, ... }, ...)
 *     clip_rig_close(&g);                      nothing leaked */
#ifndef SUPPORT_CLIPS_H
#define SUPPORT_CLIPS_H

#include "support/nets.h"
#include "text/encoder.h"

struct clip_rig {
    struct net_rig g;
    struct text_found found[TEXT_ENCODERS_MAX];
    struct text_encoder enc[TEXT_ENCODERS_MAX];
    size_t n;
};

/* heads of CLIPs: 0 takes what clip_detect() says. */
static inline void clip_rig_open_on(struct clip_rig *c, const char *devices, const char *path,
                                    const char *alloc, uint32_t heads)
{
    berth_err err = { 0 };
    *c = (struct clip_rig) { .n = 0 };
    net_rig_open(&c->g, devices, path, NULL, alloc);
    const struct weights *w = res_weights(c->g.m);
    c->n = text_find(w, NULL, c->found);
    assert_true(c->n > 0);
    for (size_t i = 0; i < c->n; i++) {
        struct text_encoder *e = &c->enc[i];
        struct net_args a = net_rig_args(&c->g);
        e->kind = c->found[i].kind;
        a.root = c->found[i].root;
        if (e->kind == TEXT_T5) {
            assert_ok(t5_detect(w, a.root, &e->t5, &err), err);
            a.names = t5_names(&e->t5);
            a.names_user = &e->t5;
        } else {
            assert_ok(clip_detect(w, a.root, &e->clip, &err), err);
            if (heads)
                e->clip.heads = heads;
            a.names = clip_names(w, a.root);
            a.names_user = &e->clip;
        }
        assert_ok(net_open(&a, &e->net, &err), err);
    }
}

static inline void clip_rig_open(struct clip_rig *c, const char *path, const char *alloc,
                                 uint32_t heads)
{
    clip_rig_open_on(c, "cpu=512m", path, alloc, heads);
}

/* For all encoders of the file. Borrowed. */
static inline void clip_rig_tokenizer(struct clip_rig *c, const void *tok)
{
    for (size_t i = 0; i < c->n; i++)
        c->enc[i].tok = tok;
}

static inline void clip_rig_close(struct clip_rig *c)
{
    for (size_t i = 0; i < c->n; i++)
        net_close(c->enc[i].net);
    net_rig_close(&c->g);
}

#endif
