/* compute: models made ready, and what nodes say about them. */
#include "node/compute.h"

#include <inttypes.h>
#include <string.h>

const struct node_numbers node_numbers_own = { .act_unet = DT_NONE,
                                               .act_vae = DT_NONE,
                                               .weights_text = "F16" };

berth_status in_model_copy(struct node_call *c, const char *input, struct model_ref *out,
                           berth_err *err)
{
    const struct model_ref *in;
    return in_model(c, input, &in, err) ? err->code : model_ref_copy(in, out, err);
}

/* ---- loading ---- */

const char *ready_name(const struct model_ref *ref)
{
    return ref->parts ? res_info(ref->part[0]).name : "a model without weights";
}

static berth_status has_parts(const struct model_ref *ref, const char *what, berth_err *err)
{
    return ref->parts
               ? BERTH_OK
               : err_set(err, BERTH_EUNSUPPORTED, "this %s has no weights to compute with", what);
}

berth_status ready_load(struct node_call *c, const struct model_ref *ref, size_t i, berth_err *err)
{
    struct res_model *m = ref->part[i];
    berth_status s = res_set_patches(m, ref->patch, ref->patches, err);
    if (!s)
        s = call_load(c, m, false, err);
    return s ? err_add(err, "loading '%.80s'", res_info(m).name) : BERTH_OK;
}

void ready_tell_peak(struct node_call *c, struct res_model *m, const char *what, size_t batch,
                     uint64_t peak)
{
    const struct device *d = res_compute(m);
    const char *name = res_info(m).name;
    if (peak > d->budget / 2)
        log_warn(c->env->log, "node.predict",
                 "node=%s model=%s what=%s batch=%zu peak=%" PRIu64 " device=%s budget=%" PRIu64
                 " why=\"more than half of the device: a smaller picture or batch takes less\"",
                 c->id, name, what, batch, peak, d->name, d->budget);
    else
        log_info(c->env->log, "node.predict",
                 "node=%s model=%s what=%s batch=%zu peak=%" PRIu64 " device=%s", c->id, name, what,
                 batch, peak, d->name);
}

/* Its entry in the history; NULL: nobody asks, it did nothing, or there is no memory. */
static json_t *network_entry(const struct node_call *c, struct res_model *m, const char *what,
                             const struct net_report *r)
{
    const struct stream_stats *s = &r->stream;
    if (!c->host || !c->host->network || !r->passes)
        return NULL;
    /* Numbers of bytes are far below 2^63. */
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "node", c->id, "network", what, "model",
        res_info(m).name, "device", r->device, "passes", (json_int_t)r->passes, "weights",
        (json_int_t)r->weights, "activations", (json_int_t)r->largest, "peak",
        (json_int_t)(r->weights + r->largest + s->ring_bytes), "rungs", (json_int_t)r->rungs);
    if (o && s->bytes) /* of those that were streamed */
        json_object_set_new(o, "stream",
                            json_pack("{s:I, s:I, s:f, s:f, s:f}", "bytes", (json_int_t)s->bytes,
                                      "ring", (json_int_t)s->ring_bytes, "gb_per_s", stream_gbps(s),
                                      "exposed", stream_exposed(s), "seconds",
                                      (double)s->pass_ns / 1e9));
    return o;
}

void ready_done(struct node_call *c, struct res_model *m, const char *what,
                const struct net_report *r)
{
    json_t *o = network_entry(c, m, what, r);
    if (o)
        c->host->network(c->host->user, o);
}

/* ---- diffusion models ---- */

berth_status ready_info(const struct model_ref *ref, struct diffusion_info *out, berth_err *err)
{
    if (has_parts(ref, "MODEL", err))
        return err->code;
    struct res_model *m = ref->part[0];
    if (diffusion_detect(res_weights(m), res_info(m).part, out, err))
        return err_add(err, "'%.80s'", ready_name(ref));
    if (ref->said.playground)
        out->latent = latent_playground;
    return BERTH_OK;
}

berth_status ready_diffusion(struct node_call *c, const struct model_ref *ref,
                             struct diffusion **out, berth_err *err)
{
    *out = NULL;
    if (has_parts(ref, "MODEL", err) || ready_load(c, ref, 0, err))
        return err->code;
    struct diffusion_args args = { .res = c->env->res,
                                   .m = ref->part[0],
                                   .part = res_info(ref->part[0]).part,
                                   .pool = c->env->pool,
                                   .cancel = cancel_of(c),
                                   .log = c->env->log,
                                   .act = ref->said.act != DT_NONE ? ref->said.act
                                                                   : c->env->numbers.act_unet,
                                   .exact_guidance = c->env->numbers.exact_guidance,
                                   .fp8 = c->env->numbers.fp8 || ref->said.fp8,
                                   .int8 = true };
    berth_status s = diffusion_open(&args, out, err);
    if (!s && ref->tokens)
        s = diffusion_add_tokens(*out, ref->tokens->data, dim(ref->tokens, 1), dim(ref->tokens, 2),
                                 err);
    if (s) {
        diffusion_close(*out);
        *out = NULL;
    }
    return s ? err_add(err, "'%.80s'", ready_name(ref)) : BERTH_OK;
}

static enum ms_table own_table(const struct diffusion_info *i)
{
    if (i->predicts == PREDICT_FLOW)
        return i->multiplier > 0 ? MS_FLOW : MS_FLUX;
    return i->sigma_max > 0 ? MS_CONTINUOUS_EDM : MS_DISCRETE;
}

static struct ms_config own_sampling(const struct diffusion_info *i)
{
    static const enum ms_type type[] = { [PREDICT_EPS] = MS_EPS,
                                         [PREDICT_V] = MS_V,
                                         [PREDICT_EDM] = MS_EDM,
                                         [PREDICT_X0] = MS_X0,
                                         [PREDICT_FLOW] = MS_CONST };
    return (struct ms_config) { .type = type[i->predicts],
                                .table = own_table(i),
                                .zsnr = i->zsnr,
                                .sigma_min = i->sigma_min,
                                .sigma_max = i->sigma_max,
                                .sigma_data = i->sigma_data,
                                .shift = i->shift,
                                .multiplier = i->multiplier };
}

berth_status ready_msampling(const struct model_ref *ref, struct msampling *out, berth_err *err)
{
    struct diffusion_info info;
    *out = (struct msampling) { 0 };
    if (ready_info(ref, &info, err))
        return err->code;
    const struct ms_config cfg = ref->said.sampled ? ref->said.sampling : own_sampling(&info);
    return ms_init(out, &cfg, err);
}

/* ---- VAEs ---- */

static struct net_args net_of(struct node_call *c, struct res_model *m)
{
    return (struct net_args) {
        .res = c->env->res, .m = m, .pool = c->env->pool, .cancel = cancel_of(c), .log = c->env->log
    };
}

berth_status ready_net(struct node_call *c, const struct model_ref *ref, const char *what,
                       struct net_args *out, berth_err *err)
{
    if (has_parts(ref, what, err) || ready_load(c, ref, 0, err))
        return err->code;
    *out = net_of(c, ref->part[0]);
    return BERTH_OK;
}

berth_status ready_vae(struct node_call *c, const struct model_ref *ref, struct ready_vae *out,
                       berth_err *err)
{
    *out = (struct ready_vae) { .c = c };
    if (ref->said.no_network)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "this VAE (taesd or pixel_space) cannot be computed yet");
    if (has_parts(ref, "VAE", err) || ready_load(c, ref, 0, err))
        return err->code;
    struct net_args args = net_of(c, ref->part[0]);
    args.act = c->env->numbers.act_vae == DT_NONE ? DT_BF16 : c->env->numbers.act_vae;
    out->m = ref->part[0];
    berth_status s = vae_open(&args, res_info(ref->part[0]).part, &out->vae, &out->net, err);
    return s ? err_add(err, "'%.80s'", ready_name(ref)) : BERTH_OK;
}

void ready_vae_release(struct ready_vae *v)
{
    if (v->net) {
        struct net_report r = net_report(v->net);
        r.rungs += v->rungs;
        json_t *o = network_entry(v->c, v->m, "vae", &r);
        if (o && v->what)
            json_object_set_new(o, "what", json_string(v->what));
        if (o && v->tiles)
            json_object_set_new(o, "tiles", json_integer((json_int_t)v->tiles));
        if (o)
            v->c->host->network(v->c->host->user, o);
    }
    net_close(v->net);
    *v = (struct ready_vae) { 0 };
}

/* ---- text encoders ---- */

/* The encoders of a part, by what the file says, and their tokenizers; no network is opened: what
 * is missing is said before gigabytes are loaded. */
static berth_status find_encoders(struct ready_text *t, size_t at, berth_err *err)
{
    struct text_found found[TEXT_ENCODERS_MAX];
    const struct weights *w = res_weights(t->ref->part[at]);
    const char *part = res_info(t->ref->part[at]).part;
    size_t n = text_find(w, part, found);
    if (!n)
        return err_set(err, BERTH_EUNSUPPORTED, "a text encoder that cannot be computed yet");
    for (size_t i = 0; i < n; i++) {
        if (t->n == TEXT_ENCODERS_MAX)
            return err_set(err, BERTH_ELIMIT, "more than %d text encoders", TEXT_ENCODERS_MAX);
        struct text_encoder *e = &t->enc[t->n];
        if (text_encoder_init(e, w, &found[i], &t->mem, err) ||
            asset_tokenizer(t->c->env, e->is->tokenizer, w, &t->tokenizer[t->n], err))
            return err->code;
        e->tok = t->tokenizer[t->n]->tok;
        t->part[t->n] = at;
        t->found[t->n++] = found[i];
    }
    return BERTH_OK;
}

static void end_encoder(void *user, struct text_encoder *e)
{
    struct ready_text *t = user;
    if (!e->net)
        return;
    struct net_report r = net_report(e->net);
    ready_done(t->c, t->ref->part[t->part[e - t->enc]], "text", &r);
    net_close(e->net);
    e->net = NULL;
}

static berth_status begin_encoder(void *user, struct text_encoder *e, berth_err *err)
{
    struct ready_text *t = user;
    size_t i = (size_t)(e - t->enc), part = t->part[i];
    struct res_model *m = t->ref->part[part];
    if (ready_load(t->c, t->ref, part, err))
        return err->code;
    if (!text_encoder_open(e, t->found[i].root, net_of(t->c, m), err))
        return BERTH_OK;
    end_encoder(t, e);
    return err_add(err, "'%.80s'", res_info(m).name);
}

/* Encoders that came with a diffusion model are for that. */
static berth_status find_set(struct ready_text *t, berth_err *err)
{
    const char *type = t->ref->clip_type;
    struct diffusion_info model = { .text = NULL };
    berth_err none = { 0 };
    if (!type && diffusion_look(res_weights(t->ref->part[0]), NULL, &model, &none) == BERTH_ENOMEM)
        return err_set(err, BERTH_ENOMEM, "%s", none.msg);
    if (model.text && text_set_made_of(model.text, t->found, t->n)) {
        t->set = model.text;
        return BERTH_OK;
    }
    return text_set_find(t->found, t->n, type, &t->set, err);
}

berth_status ready_text(struct node_call *c, const struct model_ref *ref, struct ready_text *out,
                        berth_err *err)
{
    *out = (struct ready_text) { .c = c, .ref = ref, .skip = ref->said.clip_skip };
    berth_status s = has_parts(ref, "CLIP", err);
    for (size_t i = 0; !s && i < ref->parts; i++)
        if ((s = find_encoders(out, i, err)))
            err_add(err, "'%.80s'", res_info(ref->part[i]).name);
    if (!s)
        s = find_set(out, err);
    if (s)
        ready_text_release(out);
    return s;
}

/* Each encoder is loaded and opened when it is its turn, and let go before the next: making room
 * for one may push blocks of another aside, or all of it, which is then loaded again. Were all
 * open at once, none could make room for another, and more memory, in which the first one stays,
 * could fail where less, in which it does not, succeeds. */
struct text_args ready_text_args(struct ready_text *t)
{
    return (struct text_args) { .set = t->set,
                                .enc = t->enc,
                                .encoders = t->n,
                                .skip = t->skip,
                                .padding = { t->ref->said.padded, t->ref->said.min_padding,
                                             t->ref->said.min_length },
                                .begin = begin_encoder,
                                .end = end_encoder,
                                .user = t };
}

void ready_text_release(struct ready_text *t)
{
    for (size_t i = 0; i < TEXT_ENCODERS_MAX; i++)
        asset_unref(t->tokenizer[i]);
    arena_release(&t->mem);
    *t = (struct ready_text) { 0 };
}
