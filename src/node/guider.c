/* guider: GUIDER, a model with what it shall paint and how strongly. */
#include "node/compute.h"

#include <string.h>

static void free_guider(void *obj)
{
    struct guider *g = obj;
    model_ref_release(&g->model);
    model_ref_release(&g->model_negative);
    conditioning_free(g->positive);
    conditioning_free(g->middle);
    conditioning_free(g->negative);
    conditioning_free(g->empty);
    free(g);
}

static size_t guider_bytes(const void *obj)
{
    const struct guider *g = obj;
    const struct conditioning *const x[] = { g->positive, g->middle, g->negative, g->empty };
    size_t n = sizeof *g;
    for (size_t i = 0; i < ARRAY_LEN(x); i++)
        n += x[i] ? type_conditioning.bytes(x[i]) : 0;
    return n;
}

const struct value_type type_guider = { .name = "GUIDER",
                                        .free = free_guider,
                                        .bytes = guider_bytes };

static berth_status copy_input(struct node_call *c, const char *name, struct conditioning **out,
                               berth_err *err)
{
    const struct conditioning *x;
    if (!name)
        return BERTH_OK;
    return in_conditioning(c, name, &x, err) ? err->code : conditioning_copy(x, out, err);
}

/* Its prompts, and a second model: names of inputs; NULL: it has no such input. */
struct prompts {
    const char *positive, *middle, *negative, *empty, *model_negative;
};

/* Output 0: a guider over these inputs. */
static berth_status give(struct node_call *c, struct guider how, struct prompts in, berth_err *err)
{
    const struct model_ref *model;
    struct guider *g = malloc(sizeof *g);
    if (!g)
        return err_set(err, BERTH_ENOMEM, "a guider");
    *g = how;
    berth_status s;
    if ((s = in_model(c, "model", &model, err)) || (s = model_ref_copy(model, &g->model, err)) ||
        (s = copy_input(c, in.positive, &g->positive, err)) ||
        (s = copy_input(c, in.middle, &g->middle, err)) ||
        (s = copy_input(c, in.negative, &g->negative, err)) ||
        (s = copy_input(c, in.empty, &g->empty, err)) ||
        (in.model_negative && (s = in_model_copy(c, in.model_negative, &g->model_negative, err)))) {
        free_guider(g);
        return s;
    }
    return out_value(c, 0, value_object(&type_guider, g), err);
}

static berth_status run_basic(struct node_call *c, berth_err *err)
{
    return give(c, (struct guider) { .cfg = 1 }, (struct prompts) { .positive = "conditioning" },
                err);
}

CUSTOM_SAMPLING(BasicGuider, "/guiders",
                INS(SOCKET("model", "MODEL"), SOCKET("conditioning", "CONDITIONING")),
                OUT_OF("GUIDER"), .run = run_basic);

static berth_status run_cfg(struct node_call *c, berth_err *err)
{
    struct guider g = { 0 };
    const struct prompts in = { .positive = "positive", .negative = "negative" };
    return in_f64(c, "cfg", &g.cfg, err) ? err->code : give(c, g, in, err);
}

CUSTOM_SAMPLING(CFGGuider, "/guiders",
                INS(SOCKET("model", "MODEL"), PAIR_IN,
                    FLOAT_IN("cfg", 8.0, 0.0, 100.0, 0.1, .round = "0.01")),
                OUT_OF("GUIDER"), .run = run_cfg);

/* cfg: between the two prompts; cfg_middle: between the second one and the negative. */
static berth_status run_dual(struct node_call *c, berth_err *err)
{
    struct guider g = { 0 };
    const char *style;
    if (in_f64(c, "cfg_conds", &g.cfg, err) ||
        in_f64(c, "cfg_cond2_negative", &g.cfg_middle, err) || in_text(c, "style", &style, err))
        return err->code;
    g.nested = strcmp(style, "nested") == 0;
    return give(c, g,
                (struct prompts) { .positive = "cond1", .middle = "cond2", .negative = "negative" },
                err);
}

CUSTOM_SAMPLING(DualCFGGuider, "/guiders",
                INS(SOCKET("model", "MODEL"), SOCKET("cond1", "CONDITIONING"),
                    SOCKET("cond2", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
                    FLOAT_IN("cfg_conds", 8.0, 0.0, 100.0, 0.1, .round = "0.01"),
                    FLOAT_IN("cfg_cond2_negative", 8.0, 0.0, 100.0, 0.1, .round = "0.01"),
                    COMBO_IN("style", CHOICES("regular", "nested"))),
                OUT_OF("GUIDER"), .run = run_dual);

/* Of the negative only what the positive does not want too, measured against an empty prompt. */
static berth_status run_perp_neg(struct node_call *c, berth_err *err)
{
    struct guider g = { .perp.is = &guide_perp_neg_guider };
    if (in_f64(c, "cfg", &g.cfg, err) || in_f64(c, "neg_scale", &g.perp.p[0], err))
        return err->code;
    const struct prompts in = { .positive = "positive",
                                .negative = "negative",
                                .empty = "empty_conditioning" };
    return give(c, g, in, err);
}

NODE_CLASS(PerpNegGuider, .display = "Perp-Neg Guider", .category = "experimental",
           .module = MOD("perpneg"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"), PAIR_IN, SOCKET("empty_conditioning", "CONDITIONING"),
               FLOAT_IN("cfg", 8.0, 0.0, 100.0, 0.1, .round = "0.01"),
               FLOAT_IN("neg_scale", 1.0, 0.0, 100.0, 0.01, .more = ADVANCED)),
           OUT_OF("GUIDER"), .run = run_perp_neg);

/* The negative is another model's to answer. Without one it is a plain guider. */
static berth_status run_two_models(struct node_call *c, berth_err *err)
{
    struct guider g = { 0 };
    struct prompts in = { .positive = "positive", .negative = "negative" };
    if (in_given(c, "model_negative"))
        in.model_negative = "model_negative";
    if (!in_given(c, "negative"))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "without a negative conditioning, a pass without any text, cannot be "
                       "computed yet");
    return in_f64(c, "cfg", &g.cfg, err) ? err->code : give(c, g, in, err);
}

NODE_CLASS(DualModelGuider, .display = "Dual Model CFG Guider",
           .category = "model/sampling/guiders", .module = MOD("custom_sampler"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"), SOCKET("positive", "CONDITIONING"),
               FLOAT_IN("cfg", 4.0, 0.0, 100.0, 0.1, .round = "0.01"),
               OPTIONAL("model_negative", "MODEL"), OPTIONAL("negative", "CONDITIONING")),
           OUT_OF("GUIDER"), .run = run_two_models);
