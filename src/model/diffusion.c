/* The doors of diffusion models: what a file is, and batches made of conditionings of different
 * lengths. */
#include "model/control.h"

#include "model/encoder.h"

#include "base/arena.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

struct diffusion { /* owner: executor */
    struct diffusion_info info;
    const struct family *family;
    struct family_config cfg; /* the net reads names with it */
    struct net *net;
    const struct log *log;
    bool exact_guidance;
    /* What had no room in one pass, with this many tokens or fewer: latents * values. 0: none
     * yet. Forgotten with the object: a later run may find other models gone. */
    size_t too_much, too_much_tokens;
    struct net_args args; /* of the net, for those that steer it */
    struct family_control control[FAMILY_CONTROLS];
    size_t controls;
    struct gligen *gligen; /* NULL: none */
    struct res_model *gligen_of;
    struct control *net_of[DIFFUSION_STEERS]; /* control nets of prompts */
    size_t nets;
    struct control_out *given[DIFFUSION_STEERS]; /* by those that steer a pass */
    const float *tokens;                         /* diffusion_add_tokens(); borrowed */
    size_t tokens_n;
};

/* Of models that have an embedding of it, where the conditioning says nothing. */
static const float default_guidance = 3.5f;

static const struct family *const all[] = {
#define FAMILY(x) &family_##x,
#include "model/families.def"
#undef FAMILY
};

static void config_release(const struct family *f, struct family_config *cfg)
{
    if (cfg->own && f->release)
        f->release(cfg->own);
    free(cfg->own);
    cfg->own = NULL;
}

/* Is the family's network there, behind the part's prefix? */
static bool find_root(const struct family *f, const struct weights *w, const char *part,
                      char root[ARCH_ROOT_MAX])
{
    for (const char *const *lead = place_leads(f->arch.role); *lead; lead++)
        if (place_join(part, *lead, root) && f->at(w, root))
            return true;
    return false;
}

/* On success config_release() it. */
static berth_status look(const struct weights *w, const char *part, const struct family **family,
                         struct family_config *cfg, struct diffusion_info *info, berth_err *err)
{
    part = part ? part : "";
    size_t i = 0;
    while (i < ARRAY_LEN(all) && !find_root(all[i], w, part, cfg->root))
        i++;
    if (i == ARRAY_LEN(all))
        return err_set(err, BERTH_ENOTFOUND, "no diffusion model");
    const struct family *f = *family = all[i];
    if (!(cfg->own = calloc(1, f->bytes)))
        return err_set(err, BERTH_ENOMEM, "a diffusion model");
    if (!f->config(w, cfg, err) && !f->describe(w, part, cfg, info, err)) {
        info->places = f->places;
        if (!info->text)
            BUG("'%s' does not say whose conditionings it takes", info->family);
        return BERTH_OK;
    }
    config_release(f, cfg);
    return err->code;
}

static struct family_batch usual_batch(const struct family *f, const struct family_config *cfg)
{
    struct family_batch b = { .shape = f->usual,
                              .tokens = f->usual_tokens,
                              .extra = f->usual_extra,
                              .extras = f->usual_extras,
                              .ref = f->usual_ref,
                              .refs = f->usual_refs,
                              .guidance = &default_guidance };
    if (f->usual_more)
        f->usual_more(cfg, &b);
    return b;
}

berth_status family_trace(const struct arch *arch, const struct weights *w, const char *root,
                          struct block_trace *out, berth_err *err)
{
    size_t i = 0;
    while (i < ARRAY_LEN(all) && &all[i]->arch != arch)
        i++;
    if (i == ARRAY_LEN(all))
        BUG("'%s' is not in families.def", arch->base.name);
    const struct family *f = all[i];
    struct family_config cfg = { .own = calloc(1, f->bytes) };
    struct net *net = NULL;
    uint64_t peak;
    place_join(root, "", cfg.root);
    berth_status s =
        cfg.own ? f->config(w, &cfg, err) : err_set(err, BERTH_ENOMEM, "a diffusion model");
    if (!s)
        s = net_trace_open(&(struct net_trace_args) { .w = w,
                                                      .root = cfg.root,
                                                      .names = f->names ? f->names(&cfg) : NULL,
                                                      .names_user = cfg.own,
                                                      .out = out },
                           &net, err);
    if (!s) {
        const struct family_batch b = usual_batch(f, &cfg);
        s = f->forward(net, &cfg, &b, &peak, err);
    }
    net_close(net);
    config_release(f, &cfg);
    return s;
}

berth_status diffusion_look(const struct weights *w, const char *part, struct diffusion_info *out,
                            berth_err *err)
{
    const struct family *family;
    struct family_config cfg;
    if (look(w, part, &family, &cfg, out, err))
        return err->code;
    config_release(family, &cfg);
    return BERTH_OK;
}

/* For whoever is about to compute: the file, and what it is instead. */
static berth_status explain(const struct weights *w, const char *part, berth_err *err)
{
    if (err->code != BERTH_ENOTFOUND)
        return err_add(err, "'%.120s'", weights_path(w));
    const struct arch *arch = arch_detect(w, part);
    return err_set(err, BERTH_EUNSUPPORTED, "'%.120s' has no diffusion model that can run here%s%s",
                   weights_path(w), arch ? ": it is " : "", arch ? arch->base.about : "");
}

berth_status diffusion_detect(const struct weights *w, const char *part, struct diffusion_info *out,
                              berth_err *err)
{
    return diffusion_look(w, part, out, err) ? explain(w, part, err) : BERTH_OK;
}

/* A dry run of everything there is: what is missing is reported before anything is computed, and
 * what no layer asks for is logged. */
static berth_status ask_for_all(struct diffusion *d, berth_err *err)
{
    const struct family_batch b = usual_batch(d->family, &d->cfg);
    const char *first;
    uint64_t peak;
    if (d->family->forward(d->net, &d->cfg, &b, &peak, err))
        return err->code;
    net_unused(d->net, &first);
    return BERTH_OK;
}

berth_status diffusion_open(const struct diffusion_args *a, struct diffusion **out, berth_err *err)
{
    *out = NULL;
    struct diffusion *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, BERTH_ENOMEM, "a diffusion model");
    if (look(res_weights(a->m), a->part, &d->family, &d->cfg, &d->info, err)) {
        explain(res_weights(a->m), a->part, err);
        goto fail;
    }
    d->log = a->log;
    d->exact_guidance = a->exact_guidance;
    const struct diffusion_info *i = &d->info;
    enum dtype act = a->act != DT_NONE ? a->act : i->act;
    struct net_args args = { .res = a->res,
                             .m = a->m,
                             .root = d->cfg.root,
                             .names = d->family->names ? d->family->names(&d->cfg) : NULL,
                             .names_user = d->cfg.own,
                             .pool = a->pool,
                             .cancel = a->cancel,
                             .log = a->log,
                             .act = act,
                             .act_else = act != i->act ? i->act : i->act_else,
                             .fp8 = a->fp8,
                             .int8 = a->int8,
                             .times = a->times };
    d->args = args;
    if (net_open(&args, &d->net, err) || ask_for_all(d, err))
        goto fail;
    *out = d;
    return BERTH_OK;
fail:
    diffusion_close(d);
    return err->code;
}

void diffusion_close(struct diffusion *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->controls; i++) {
        net_close(d->control[i].net);
        free(d->control[i].own);
    }
    for (size_t i = 0; i < DIFFUSION_STEERS; i++) {
        control_close(d->net_of[i]);
        control_out_free(d->given[i]);
    }
    net_close(d->net);
    gligen_close(d->gligen);
    if (d->family)
        config_release(d->family, &d->cfg);
    free(d);
}

const struct diffusion_info *diffusion_info(const struct diffusion *d)
{
    return &d->info;
}

struct net_report diffusion_report(struct diffusion *d)
{
    return net_report(d->net);
}

/* ---- networks that steer it ---- */

/* Where such a network stands in a file; NULL: nowhere. */
static const struct control_class *find_control(const struct weights *w, const char *part,
                                                char root[ARCH_ROOT_MAX])
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i]->control && place_join(part ? part : "", "", root) &&
            all[i]->control->at(w, root))
            return all[i]->control;
    return NULL;
}

static berth_status no_control(const struct weights *w, berth_err *err)
{
    return err_set(err, BERTH_EUNSUPPORTED,
                   "'%.120s' holds no network that can steer a diffusion model here",
                   weights_path(w));
}

berth_status diffusion_control_channels(const struct weights *w, const char *part,
                                        uint64_t *channels, berth_err *err)
{
    char root[ARCH_ROOT_MAX];
    const struct control_class *c = find_control(w, part, root);
    *channels = c ? c->channels(w, root) : 0;
    return c ? BERTH_OK : no_control(w, err);
}

berth_status diffusion_add_control(struct diffusion *d, const struct diffusion_control *a,
                                   berth_err *err)
{
    const struct weights *w = res_weights(a->m);
    char root[ARCH_ROOT_MAX];
    const struct control_class *c = find_control(w, a->part, root);
    if (!c || c != d->family->control)
        return c ? err_set(err, BERTH_EUNSUPPORTED, "'%.120s' is not for %s models",
                           weights_path(w), d->info.family)
                 : no_control(w, err);
    if (d->controls == FAMILY_CONTROLS)
        return err_set(err, BERTH_ELIMIT, "more than %d networks that steer one", FAMILY_CONTROLS);
    struct family_control *to = &d->control[d->controls];
    *to = (struct family_control) {
        .own = calloc(1, c->bytes), .hint = a->hint, .h = a->h, .w = a->w, .strength = a->strength
    };
    struct net_args args = d->args;
    args.m = a->m;
    args.root = root;
    args.names = c->names;
    args.names_user = to->own;
    berth_status s = to->own ? c->config(w, root, &d->cfg, to->own, err)
                             : err_set(err, BERTH_ENOMEM, "a control network");
    if (!s)
        s = net_open(&args, &to->net, err);
    if (s) {
        free(to->own);
        return err_add(err, "'%.120s'", weights_path(w));
    }
    d->controls++;
    return BERTH_OK;
}

berth_status diffusion_add_tokens(struct diffusion *d, const float *x, size_t rows, size_t width,
                                  berth_err *err)
{
    if (!d->info.token_dim)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "%s takes no tokens of a style in front of its text", d->info.family);
    if (width != d->info.token_dim)
        return err_set(err, BERTH_EINVAL,
                       "a style of width %zu in front of the text of %s, which is %llu wide inside",
                       width, d->info.family, (unsigned long long)d->info.token_dim);
    d->tokens = x;
    d->tokens_n = rows;
    return BERTH_OK;
}

/* ---- boxes with texts ---- */

berth_status diffusion_add_gligen(struct diffusion *d, struct res_model *m, const char *part,
                                  berth_err *err)
{
    struct net_args args = d->args;
    if (d->gligen_of == m)
        return BERTH_OK;
    if (d->gligen)
        return err_set(err, BERTH_EUNSUPPORTED, "boxes of two GLIGENs in one run");
    if (!d->family->boxes || (part && *part))
        return err_set(err, BERTH_EUNSUPPORTED, "GLIGEN's boxes are for SD1 models, this is %s",
                       d->info.family);
    args.m = m;
    if (gligen_open(&args, d->net, &d->gligen, err))
        return err->code;
    d->gligen_of = m;
    return BERTH_OK;
}

const struct res_model *diffusion_gligen(const struct diffusion *d)
{
    return d->gligen_of;
}

static berth_status check_boxes(const struct diffusion *d, const struct diffusion_cond *c,
                                berth_err *err)
{
    if (c->boxes && !d->gligen)
        return err_set(err, BERTH_EINVAL, "boxes without a GLIGEN");
    if (c->boxes > GLIGEN_BOXES)
        return err_set(err, BERTH_ELIMIT, "%zu boxes; a GLIGEN takes %d", c->boxes, GLIGEN_BOXES);
    return BERTH_OK;
}

/* Latents of any other size, as areas have, would need another hint. */
static berth_status check_hints(const struct diffusion *d, const struct diffusion_in *in,
                                berth_err *err)
{
    const uint64_t h = shape_last(&in->shape, 2), w = shape_last(&in->shape, 1);
    for (size_t i = 0; i < d->controls; i++)
        if (d->control[i].h != h + h % 2 || d->control[i].w != w + w % 2)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "a control network together with areas of prompts");
    return BERTH_OK;
}

berth_status diffusion_control_fits(const struct weights *model, const char *model_part,
                                    const struct weights *w, const char *part, berth_err *err)
{
    const struct family *family;
    struct family_config cfg;
    struct diffusion_info info;
    if (look(model, model_part, &family, &cfg, &info, err))
        return explain(model, model_part, err);
    berth_status s = control_check(w, part, family, &cfg, info.family, err);
    config_release(family, &cfg);
    return s;
}

bool diffusion_control_find(const struct diffusion *d, const struct res_model *m, size_t *net)
{
    for (*net = 0; *net < d->nets; ++*net)
        if (control_model(d->net_of[*net]) == m)
            return true;
    return false;
}

struct net_report diffusion_control_report(struct diffusion *d, size_t net)
{
    return control_report(d->net_of[net]);
}

berth_status diffusion_control_open(struct diffusion *d, struct res_model *m, const char *part,
                                    size_t *net, berth_err *err)
{
    if (d->nets == DIFFUSION_STEERS)
        return err_set(err, BERTH_ELIMIT, "more than %d control nets at once", DIFFUSION_STEERS);
    const struct control_args a = { .like = &d->args,
                                    .family = d->family,
                                    .cfg = &d->cfg,
                                    .family_name = d->info.family,
                                    .m = m,
                                    .part = part };
    if (control_open(&a, &d->net_of[d->nets], err))
        return err->code;
    *net = d->nets++;
    return BERTH_OK;
}

/* ---- batches ---- */

static size_t gcd(size_t a, size_t b)
{
    while (b) {
        size_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* A prompt is repeated this often at most; else it is computed apart. */
#define REPEAT_MAX 4

/* Can a prompt of `tokens` join a batch whose shortest has `min` and whose length is *len so
 * far? */
static bool joins(const struct family *f, size_t tokens, size_t *min, size_t *len)
{
    if (tokens == *len && *min == *len)
        return true;
    if (!f->repeats)
        return false;
    size_t lcm = *len / gcd(*len, tokens) * tokens, least = tokens < *min ? tokens : *min;
    if (lcm / least > REPEAT_MAX)
        return false;
    *len = lcm;
    *min = least;
    return true;
}

/* Of a prompt, with the zeros in front of it. */
static size_t tokens_of(const struct diffusion *d, const struct diffusion_cond *c)
{
    return c->tokens < d->info.least_tokens ? d->info.least_tokens : c->tokens;
}

struct batch { /* latents that are computed together, by index */
    size_t *item, n;
    size_t tokens; /* all of them repeated to this length */
    bool guided;   /* all of them have the guidance's term, or none */
};

static bool is_guided(const struct diffusion *d, const struct diffusion_cond *c)
{
    return d->info.guidance && c->guided >= 0;
}

static size_t latents(const struct diffusion_in *in)
{
    return (size_t)in->shape.dim[0];
}

/* Values of one item: of all its latents, and of what is beside them. */
static size_t values(const struct diffusion_in *in)
{
    uint64_t n = shape_inner(&in->shape, 1);
    for (size_t i = 0; i < in->mores; i++)
        n += shape_inner(&in->more[i], 1);
    return (size_t)n;
}

/* Of one item, without its channels. */
static size_t positions(const struct diffusion_in *in)
{
    return (size_t)shape_inner(&in->shape, 2);
}

static size_t values_beside(const struct diffusion *d, const struct diffusion_in *in)
{
    return (size_t)((d->info.in_channels - d->info.latent.channels) * shape_inner(&in->shape, 2));
}

#define SIDES_MAX 128
/* How large they are, for people: "128 x 64", width first. */
static const char *sides(const struct diffusion_in *in, char text[SIDES_MAX])
{
    size_t n = 0;
    text[0] = '\0';
    for (int i = in->shape.ndim; i-- > 2 && n < SIDES_MAX;)
        n += (size_t)snprintf(text + n, SIDES_MAX - n, "%s%llu", n ? " x " : "",
                              (unsigned long long)in->shape.dim[i]);
    return text;
}

/* Do two prompts look at pictures of the same sizes, in the same way? */
static bool same_refs(const struct diffusion_cond *a, const struct diffusion_cond *b)
{
    if (a->refs != b->refs || (a->refs && a->ref_method != b->ref_method))
        return false;
    for (size_t i = 0; i < a->refs; i++) {
        struct shape s = a->ref[i].shape;
        s.dim[0] = b->ref[i].shape.dim[0];
        if (!shape_eq(&s, &b->ref[i].shape))
            return false;
    }
    return true;
}

/* Do they bring along things of the same kinds and sizes? */
static bool same_extras(const struct diffusion_cond *a, const struct diffusion_cond *b)
{
    if (a->extras != b->extras)
        return false;
    for (size_t i = 0; i < a->extras; i++) {
        struct shape s = a->extra[i].shape;
        s.dim[0] = b->extra[i].shape.dim[0];
        if (a->extra[i].kind != b->extra[i].kind || a->extra[i].strength != b->extra[i].strength ||
            !shape_eq(&s, &b->extra[i].shape))
            return false;
    }
    return true;
}

/* Do they hide the same tokens? */
static bool same_hidden(const struct diffusion *d, const struct diffusion_cond *a,
                        const struct diffusion_cond *b)
{
    if (d->info.shows_pads)
        return true;
    if (!a->hidden || !b->hidden)
        return !a->hidden && !b->hidden;
    return a->tokens == b->tokens && !memcmp(a->hidden, b->hidden, a->tokens * sizeof *a->hidden);
}

/* Do their attentions add the same? */
static bool same_bias(const struct diffusion_cond *a, const struct diffusion_cond *b)
{
    const size_t side = a->tokens + 1;
    if (a->bias == b->bias)
        return true;
    return a->bias && b->bias && a->tokens == b->tokens &&
           !memcmp(a->bias, b->bias, side * side * sizeof *a->bias);
}

/* Are they about a video of the same kind, with the same places at its end? */
static bool same_video(const struct diffusion_cond *a, const struct diffusion_cond *b)
{
    if (a->frame_rate != b->frame_rate || a->guides != b->guides)
        return false;
    for (size_t i = 0; i < a->guides; i++) {
        const struct diffusion_guide *x = &a->guide[i], *y = &b->guide[i];
        if (x->frames != y->frames || x->rows != y->rows || x->columns != y->columns ||
            x->at != y->at || x->first != y->first || x->spread != y->spread ||
            x->strength != y->strength || x->weights != y->weights || !x->weight != !y->weight ||
            (x->weight && memcmp(x->weight, y->weight, x->weights * sizeof *x->weight) != 0))
            return false;
    }
    return true;
}

/* Are control nets told texts of one length? */
static bool same_control(const struct diffusion_cond *a, const struct diffusion_cond *b)
{
    return a->control_tokens == b->control_tokens;
}

/* The first latent that is not taken yet, and all that can join it. n 0: none is left. Where what a
 * pass saw is kept for others it matters who comes first: that is the last one, as in ComfyUI. */
static void next_batch(const struct diffusion *d, const struct diffusion_in *in, bool *taken,
                       struct batch *b)
{
    const struct diffusion_cond *first = NULL;
    const bool last_first = patch_keeps_refs(&in->patches);
    size_t min = 0;
    b->n = b->tokens = 0;
    for (size_t k = 0; k < latents(in); k++) {
        const size_t i = last_first ? latents(in) - 1 - k : k;
        size_t tokens = tokens_of(d, in->cond[i]);
        bool guided = is_guided(d, in->cond[i]);
        if (taken[i] ||
            (b->n && (guided != b->guided || !same_refs(first, in->cond[i]) ||
                      !same_extras(first, in->cond[i]) || !same_video(first, in->cond[i]) ||
                      !same_hidden(d, first, in->cond[i]) || !same_bias(first, in->cond[i]) ||
                      !same_control(first, in->cond[i]) || first->box != in->cond[i]->box ||
                      first->beside != in->cond[i]->beside)))
            continue;
        b->guided = guided;
        if (!b->n) {
            first = in->cond[i];
            min = b->tokens = tokens;
        } else if (!joins(d->family, tokens, &min, &b->tokens)) {
            continue;
        }
        taken[i] = true;
        b->item[b->n++] = i;
    }
}

struct gathered { /* a batch in contiguous memory */
    const float *x, *context;
    float *t, *y, *guidance, *out;    /* y, guidance: NULL without */
    float *copied_x, *copied_context; /* NULL: the caller's own are read */
    float *mask;                      /* [n, positions]; NULL: none */
    struct diffusion_ref *ref;        /* [n, refs]; NULL without */
    struct diffusion_extra *extra;    /* [n, extras]; NULL without */
    bool *negative;                   /* for patches; NULL: there are none */
    float *boxes;                     /* [n, gligen_features_n()]; NULL without */
    size_t chunk;
    float *latents, *told; /* for control nets; NULL: as x, as context */
    size_t *item;          /* of the whole latent; NULL: nobody asks */
};

/* A single latent lies together as it is: megabytes a step that need not be copied. */
static bool lies_together(const struct diffusion *d, const struct diffusion_in *in,
                          const struct batch *b)
{
    return b->n == 1 && d->info.in_channels == d->info.latent.channels &&
           in->cond[b->item[0]]->tokens == b->tokens;
}

/* The same for what control nets get otherwise than the network. */
static berth_status steered_room(const struct diffusion *d, const struct diffusion_in *in,
                                 const struct batch *b, struct arena *mem, struct gathered *g,
                                 berth_err *err)
{
    const size_t told = in->cond[b->item[0]]->control_tokens * (size_t)d->info.context_dim;
    const bool beside = values_beside(d, in) > 0;
    g->item = arena_array(mem, b->n, sizeof *g->item);
    g->latents = beside ? arena_array(mem, b->n, values(in) * sizeof(float)) : NULL;
    g->told = told ? arena_array(mem, b->n, told * sizeof(float)) : NULL;
    return g->item && !g->latents == !beside && !g->told == !told
               ? BERTH_OK
               : err_set(err, BERTH_ENOMEM, "what control nets look at");
}

/* Room for all of the batch, in mem. */
static berth_status gather_room(const struct diffusion *d, const struct diffusion_in *in,
                                const struct batch *b, struct arena *mem, struct gathered *g,
                                berth_err *err)
{
    const struct diffusion_info *i = &d->info;
    size_t each = values(in), whole = each + values_beside(d, in), n = b->n, tokens = b->tokens;
    size_t adm = (size_t)i->adm_channels;
    *g = (struct gathered) { .x = NULL };
    if (lies_together(d, in, b)) {
        size_t at = b->item[0] * each;
        g->x = in->x + at;
        g->out = in->out + at;
        g->context = in->cond[b->item[0]]->context;
    } else {
        g->x = g->copied_x = arena_array(mem, n, whole * sizeof(float));
        g->out = arena_array(mem, n, each * sizeof(float));
        g->context = g->copied_context =
            arena_array(mem, n * tokens, (size_t)i->context_dim * sizeof(float));
    }
    g->t = arena_array(mem, n, sizeof(float));
    g->y = adm ? arena_array(mem, n, adm * sizeof(float)) : NULL;
    const bool guided = b->guided || in->steers; /* control nets want it of any model */
    g->guidance = guided ? arena_array(mem, n, sizeof(float)) : NULL;
    size_t refs = in->cond[b->item[0]]->refs;
    g->ref = refs ? arena_array(mem, n, refs * sizeof *g->ref) : NULL;
    size_t extras = in->cond[b->item[0]]->extras;
    g->extra = extras ? arena_array(mem, n, extras * sizeof *g->extra) : NULL;
    g->negative = in->patches.n ? arena_array(mem, n, sizeof *g->negative) : NULL;
    g->mask = in->mask ? arena_array(mem, n, positions(in) * sizeof(float)) : NULL;
    const bool boxes = in->cond[b->item[0]]->boxes;
    g->boxes =
        boxes ? arena_array(mem, n, (size_t)gligen_features_n(d->gligen) * sizeof(float)) : NULL;
    if (in->steers && steered_room(d, in, b, mem, g, err))
        return err->code;
    if ((refs && !g->ref) || (extras && !g->extra) || (in->mask && !g->mask) ||
        (boxes && !g->boxes) || (in->patches.n && !g->negative) || !g->x || !g->out ||
        !g->context || !g->t || (adm && !g->y) || (guided && !g->guidance))
        return err_set(err, BERTH_ENOMEM, "%zu latents of %s", n,
                       sides(in, (char[SIDES_MAX]) { 0 }));
    return BERTH_OK;
}

/* The k-th of the batch to its place: latent, what is beside it, and its prompt as often as it
 * takes. */
static void copy_item(const struct diffusion *d, const struct diffusion_in *in,
                      const struct batch *b, size_t k, const struct gathered *g)
{
    const struct diffusion_info *info = &d->info;
    const struct diffusion_cond *cond = in->cond[b->item[k]];
    size_t each = values(in), beside = values_beside(d, in), i = b->item[k];
    size_t width = (size_t)info->context_dim;
    float *x = g->copied_x + k * (each + beside), *row = g->copied_context + k * b->tokens * width;
    memcpy(x, in->x + i * each, each * sizeof(float));
    if (beside && in->concat)
        memcpy(x + each, in->concat + i * beside, beside * sizeof(float));
    else if (beside)
        d->family->no_concat(info, (size_t)shape_inner(&in->shape, 2), x + each);
    for (size_t at = tokens_of(d, cond) - cond->tokens; at < b->tokens; at += cond->tokens)
        memcpy(row + at * width, cond->context, cond->tokens * width * sizeof(float));
}

/* An item's own of a picture to look at. */
static struct diffusion_ref ref_of(const struct diffusion_ref *of, size_t item)
{
    struct diffusion_ref r = *of;
    r.x += item % (size_t)r.shape.dim[0] * (size_t)shape_inner(&r.shape, 1);
    r.shape.dim[0] = 1;
    return r;
}

static struct diffusion_extra extra_of(const struct diffusion_extra *of, size_t item)
{
    struct diffusion_extra e = *of;
    e.x += item % (size_t)e.shape.dim[0] * (size_t)shape_inner(&e.shape, 1);
    e.shape.dim[0] = 1;
    return e;
}

/* What control nets get of the k-th. */
static void gather_steered(const struct diffusion *d, const struct diffusion_in *in,
                           const struct batch *b, size_t k, const struct gathered *g)
{
    const struct diffusion_cond *cond = in->cond[b->item[k]];
    const size_t i = b->item[k], each = values(in);
    const size_t told = cond->control_tokens * (size_t)d->info.context_dim;
    g->item[k] = in->item ? in->item[i] : i;
    if (g->latents)
        memcpy(g->latents + k * each, in->x + i * each, each * sizeof(float));
    if (g->told)
        memcpy(g->told + k * told, cond->control_context, told * sizeof(float));
}

static berth_status gather(const struct diffusion *d, const struct diffusion_in *in,
                           const struct batch *b, struct gathered *g, berth_err *err)
{
    const struct diffusion_info *info = &d->info;
    for (size_t k = 0; k < b->n; k++) {
        size_t i = b->item[k];
        const struct diffusion_cond *cond = in->cond[i];
        if (g->copied_x)
            copy_item(d, in, b, k, g);
        g->t[k] = in->t[i];
        if (g->item)
            gather_steered(d, in, b, k, g);
        for (size_t r = 0; r < cond->refs; r++)
            g->ref[k * cond->refs + r] = ref_of(&cond->ref[r], in->item ? in->item[i] : i);
        for (size_t r = 0; r < cond->extras; r++)
            g->extra[k * cond->extras + r] = extra_of(&cond->extra[r], in->item ? in->item[i] : i);
        if (g->boxes)
            gligen_features(d->gligen, cond->box, cond->boxes, shape_last(&in->shape, 2),
                            shape_last(&in->shape, 1),
                            g->boxes + k * (size_t)gligen_features_n(d->gligen));
        if (g->mask)
            memcpy(g->mask + k * positions(in), in->mask + i * positions(in),
                   positions(in) * sizeof(float));
        if (g->negative)
            g->negative[k] = cond->negative;
        g->chunk += g->chunk == k && cond == in->cond[b->item[0]];
        if (g->guidance)
            g->guidance[k] = cond->guided > 0           ? cond->guidance
                             : info->usual_guidance > 0 ? (float)info->usual_guidance
                                                        : default_guidance;
        if (g->y &&
            d->family->vector(info, cond, &in->shape, g->y + k * (size_t)info->adm_channels, err))
            return err->code;
    }
    return BERTH_OK;
}

/* n of them, with the channels beside them and what all of them have in common with `like`; sizes
 * alone. */
static struct family_batch batch_of(const struct diffusion *d, const struct diffusion_in *in,
                                    const struct diffusion_cond *like, size_t n, size_t tokens)
{
    struct family_batch b = { .shape = in->shape,
                              .mores = in->mores,
                              .tokens = tokens,
                              .hidden = d->info.shows_pads ? NULL : like->hidden,
                              .bias = like->bias,
                              .ref = like->ref,
                              .refs = like->refs,
                              .ref_method = like->ref_method,
                              .extra = like->extra,
                              .extras = like->extras,
                              .mask = in->mask,
                              .frame_rate = like->frame_rate,
                              .guide = like->guide,
                              .guides = like->guides,
                              .beside = like->beside,
                              .tokens_before = d->tokens,
                              .tokens_before_n = d->tokens_n,
                              .gligen = like->boxes ? d->gligen : NULL,
                              .patches = in->patches,
                              .sigma = in->sigma };
    b.shape.dim[0] = n;
    b.shape.dim[1] = d->info.in_channels;
    for (size_t i = 0; i < in->mores; i++) {
        b.more[i] = in->more[i];
        b.more[i].dim[0] = n;
    }
    return b;
}

/* The turns of control nets before a pass from latent `first` on, told: of their tokens. */
static berth_status take_turns(struct diffusion *d, const struct diffusion_in *in, size_t told,
                               const struct gathered *g, size_t first,
                               const struct family_batch *pass, berth_err *err)
{
    struct family_batch b = *pass;
    b.patches = (struct net_patches) { .n = 0 };
    b.steers = b.controls = b.refs = b.guides = 0;
    b.beside = NULL;
    b.tokens_before_n = 0;
    b.hidden = NULL;
    b.guidance = g->guidance + first;
    b.shape.dim[1] = d->info.latent.channels;
    if (g->latents)
        b.x = g->latents + first * values(in);
    if (g->told) {
        b.tokens = told;
        b.context = g->told + first * told * (size_t)d->info.context_dim;
    }
    for (size_t i = 0; i < in->steers; i++) {
        if (!d->given[i] && !(d->given[i] = calloc(1, sizeof *d->given[i])))
            return err_set(err, BERTH_ENOMEM, "what a control net gives");
        if (control_run(d->net_of[in->steer[i].net], &in->steer[i], &b, g->item + first,
                        d->given[i], err))
            return err->code;
    }
    return BERTH_OK;
}

/* The whole batch, in ever smaller pieces where there is no room. */
static berth_status run(struct diffusion *d, const struct diffusion_in *in, const struct batch *b,
                        const struct gathered *g, berth_err *err)
{
    const struct diffusion_info *info = &d->info;
    size_t each = values(in), whole = each + values_beside(d, in), piece = b->n;
    const bool pairs = patch_wants_pairs(&in->patches);
    for (size_t first = 0; first < b->n;) {
        size_t n = piece < b->n - first ? piece : b->n - first;
        while (!pairs && n > 1 && d->too_much && n * each >= d->too_much &&
               b->tokens >= d->too_much_tokens)
            n = piece = (n + 1) / 2;
        struct family_batch part = batch_of(d, in, in->cond[b->item[0]], n, b->tokens);
        part.ref = g->ref ? g->ref + first * part.refs : NULL;
        part.extra = g->extra ? g->extra + first * part.extras : NULL;
        if (g->boxes)
            part.boxes = g->boxes + first * (size_t)gligen_features_n(d->gligen);
        part.exact_guidance = d->exact_guidance;
        part.control = d->control;
        part.controls = d->controls;
        part.x = g->x + first * whole;
        part.t = g->t + first;
        part.mask = g->mask ? g->mask + first * positions(in) : NULL;
        part.context = g->context + first * b->tokens * (size_t)info->context_dim;
        part.y = g->y ? g->y + first * (size_t)info->adm_channels : NULL;
        part.guidance = b->guided ? g->guidance + first : NULL;
        part.negative = g->negative ? g->negative + first : NULL;
        part.first = first;
        part.chunk = g->chunk < n ? g->chunk : n;
        part.out = g->out + first * each;
        const size_t told = in->cond[b->item[0]]->control_tokens;
        berth_status s = in->steers ? take_turns(d, in, told, g, first, &part, err) : BERTH_OK;
        part.steer = (const struct control_out *const *)d->given;
        part.steers = in->steers;
        if (!s)
            s = d->family->forward(d->net, &d->cfg, &part, NULL, err);
        if (s == BERTH_ENODEVMEM && n > 1 && !pairs) {
            log_warn(d->log, "diffusion.split", "latents=%zu width=%llu height=%llu why=\"%s\"", n,
                     (unsigned long long)shape_last(&in->shape, 1),
                     (unsigned long long)shape_last(&in->shape, 2), err->msg);
            d->too_much = n * each;
            d->too_much_tokens = b->tokens;
            continue;
        }
        if (s) /* the numbers in it are of this piece */
            return n < b->n ? err_add(err, "%zu at a time", n) : s;
        first += n;
    }
    return BERTH_OK;
}

berth_status diffusion_text_fits(const struct diffusion_info *info, size_t tokens, size_t width,
                                 berth_err *err)
{
    const char *type = info->text->types[0];
    if (tokens && width == info->context_dim)
        return BERTH_OK;
    return err_set(err, BERTH_EINVAL,
                   "%s wants a text of width %llu, this conditioning has %zu tokens of width %zu: "
                   "is it of another model's text encoder?%s%s%s",
                   info->family, (unsigned long long)info->context_dim, tokens, width,
                   type ? " The loader of its own has the type '" : "", type ? type : "",
                   type ? "'" : "");
}

static berth_status check_refs(const struct diffusion *d, const struct diffusion_cond *c,
                               berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    if (c->refs && !d->info.refs)
        return err_set(err, BERTH_EINVAL, "%s takes no pictures to look at", d->info.family);
    const struct diffusion_beside *b = c->beside;
    for (size_t i = 0; b && i < b->texts; i++)
        if (diffusion_text_fits(&d->info, (size_t)b->text[i].n, (size_t)b->text[i].width, err))
            return err->code;
    for (size_t i = 0; b && i < b->seens; i++)
        if (b->seen[i].width != d->info.seen_dim || !b->seen[i].n ||
            b->seen[i].n != b->seen[i].rows * b->seen[i].cols)
            return err_set(err, BERTH_EINVAL,
                           "%s looks at pictures as patches of %llu values, this encoder gave %llu "
                           "of %llu: is it another model's?",
                           d->info.family, (unsigned long long)d->info.seen_dim,
                           (unsigned long long)b->seen[i].n, (unsigned long long)b->seen[i].width);
    for (size_t i = 0; i < c->refs; i++)
        if (!latent_is(&d->info.latent, &c->ref[i].shape))
            return err_set(err, BERTH_EINVAL, "%s cannot look at a latent %s", d->info.family,
                           shape_text(&c->ref[i].shape, text));
    return BERTH_OK;
}

static berth_status check_extras(const struct diffusion *d, const struct diffusion_cond *c,
                                 berth_err *err)
{
    for (size_t i = 0; i < c->extras; i++) {
        uint64_t n;
        if (!(d->info.extras >> c->extra[i].kind & 1) || !shape_count(&c->extra[i].shape, &n) || !n)
            return err_set(err, BERTH_EINVAL, "%s takes nothing of kind %d", d->info.family,
                           (int)c->extra[i].kind);
    }
    return BERTH_OK;
}

static berth_status check_video(const struct diffusion *d, const struct diffusion_in *in,
                                berth_err *err)
{
    if (in->mask && !d->info.own_times)
        return err_set(err, BERTH_EINVAL, "%s has one noise level for all of a latent",
                       d->info.family);
    for (size_t i = 0; i < latents(in); i++)
        if (in->cond[i]->guides && !d->info.guides)
            return err_set(err, BERTH_EINVAL, "%s takes no guides", d->info.family);
    return BERTH_OK;
}

static berth_status check(const struct diffusion *d, const struct diffusion_in *in, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    if (!latent_is(&d->info.latent, &in->shape))
        return err_set(err, BERTH_EINVAL, "%s has no latents %s", d->info.family,
                       shape_text(&in->shape, text));
    for (size_t i = 0; i < in->mores; i++)
        if (i == LATENT_MORE || !d->info.more[i] || !latent_is(d->info.more[i], &in->more[i]) ||
            in->more[i].dim[0] != in->shape.dim[0])
            return err_set(err, BERTH_EINVAL, "%s does not sample latents %s with its own",
                           d->info.family, shape_text(&in->more[i], text));
    if (check_video(d, in, err))
        return err->code;
    for (size_t i = 0; i < latents(in); i++)
        if (check_refs(d, in->cond[i], err) || check_extras(d, in->cond[i], err) ||
            check_boxes(d, in->cond[i], err))
            return err->code;
    for (size_t i = 0; i < latents(in); i++)
        if (diffusion_text_fits(&d->info, in->cond[i]->tokens, in->cond[i]->width, err))
            return err->code;
    return BERTH_OK;
}

/* One batch from gathering to its results in their places. */
static berth_status one_batch(struct diffusion *d, const struct diffusion_in *in,
                              const struct batch *b, berth_err *err)
{
    struct arena mem = { 0 };
    struct gathered g;
    size_t each = values(in);
    berth_status s = gather_room(d, in, b, &mem, &g, err);
    if (!s)
        s = gather(d, in, b, &g, err);
    if (!s)
        s = run(d, in, b, &g, err);
    for (size_t k = 0; k < b->n && !s && g.copied_x; k++)
        memcpy(in->out + b->item[k] * each, g.out + k * each, each * sizeof(float));
    arena_release(&mem);
    return s;
}

static berth_status each_batch(struct diffusion *d, const struct diffusion_in *in, uint64_t *peak,
                               berth_err *err)
{
    struct arena mem = { 0 };
    size_t n = latents(in);
    bool *taken = arena_array(&mem, n, sizeof *taken);
    struct batch b = { .item = arena_array(&mem, n, sizeof *b.item) };
    berth_status s = taken && b.item ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%zu latents", n);
    while (!s) {
        next_batch(d, in, taken, &b);
        if (!b.n)
            break;
        if (!peak) {
            s = one_batch(d, in, &b, err);
            continue;
        }
        struct family_batch part = batch_of(d, in, in->cond[b.item[0]], b.n, b.tokens);
        part.guidance = b.guided ? &default_guidance : NULL;
        uint64_t one = 0;
        s = d->family->forward(d->net, &d->cfg, &part, &one, err);
        *peak = one > *peak ? one : *peak;
    }
    arena_release(&mem);
    return s;
}

berth_status diffusion_forward(struct diffusion *d, const struct diffusion_in *in, berth_err *err)
{
    if (in->steers > DIFFUSION_STEERS)
        return err_set(err, BERTH_ELIMIT, "%zu control nets for one prompt; at most %d are taken",
                       in->steers, DIFFUSION_STEERS);
    if (check(d, in, err) || check_hints(d, in, err))
        return err->code;
    berth_status s = each_batch(d, in, NULL, err);
    return s && s != BERTH_ECANCELED ? err_add(err, "%s, %zu latents of %s", d->info.family,
                                               latents(in), sides(in, (char[SIDES_MAX]) { 0 }))
                                     : s;
}

berth_status diffusion_predict(struct diffusion *d, const struct diffusion_in *in, uint64_t *peak,
                               berth_err *err)
{
    *peak = 0;
    return check(d, in, err) ? err->code : each_batch(d, in, peak, err);
}
