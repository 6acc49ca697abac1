/* clips: text encoders, CLIPs and T5s, over files of synthetic weights.
 *
 *     struct clip_rig g;
 *     clip_rig_open(&g, path, NULL, 4);        finds, loads and opens every encoder of the file
 *     ... encode_texts(&(struct text_args) { .enc = g.enc, .encoders = g.n, ... }, ...)
 *     clip_rig_close(&g);                      nothing leaked */
#ifndef SUPPORT_CLIPS_H
#define SUPPORT_CLIPS_H

#include "model/clip/clip.h"
#include "model/t5/t5.h"
#include "support/nets.h"

struct clip_rig {
    struct net_rig g;
    struct text_found found[TEXT_ENCODERS_MAX];
    struct text_encoder enc[TEXT_ENCODERS_MAX];
    size_t n;
    struct arena mem; /* configs */
};

static inline struct clip_net *clip_of(const struct text_encoder *e)
{
    return e->config;
}

static inline struct t5_net *t5_of(const struct text_encoder *e)
{
    return e->config;
}

/* heads of CLIPs: 0 takes what the config says. */
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
        assert_ok(text_encoder_init(e, w, &c->found[i], &c->mem, &err), err);
        if (heads && e->is != &encoder_t5 && e->is != &encoder_umt5)
            clip_of(e)->heads = heads;
        assert_ok(text_encoder_open(e, c->found[i].root, net_rig_args(&c->g), &err), err);
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
    arena_release(&c->mem);
}

/* text_l (may be NULL): CLIP-L's own prompt. */
static inline berth_status encode_texts(const struct text_args *a, const char *text,
                                        const char *text_l, struct arena *mem,
                                        struct text_cond *out, berth_err *err)
{
    const struct text_prompt prompt[] = { { .text = text },
                                          { .text = text_l, .encoder = &encoder_clip_l } };
    return text_encode(a, prompt, text_l ? 2 : 1, mem, out, err);
}

#endif
