/* model_merge: nodes that mix weights of two models, or scale some (weight_mix.h). The model that
 * comes out is the first one with one adapter more. */
#include "node/compute.h"
#include "node/weight_mix.h"

#include <string.h>

/* Output 0: input `first` with the adapter. */
static berth_status give_mixed(struct node_call *c, const char *first, const struct mix_args *a,
                               berth_err *err)
{
    struct res_adapter *adapter = NULL;
    struct model_ref m;
    if (in_model_copy(c, first, &m, err))
        return err->code;
    berth_status s = m.parts ? weight_mix_new(a, &adapter, err)
                             : err_set(err, BERTH_EUNSUPPORTED, "'%s' has no weights", first);
    if (!s)
        s = model_ref_patch(&m, adapter, 1, err);
    res_adapter_unref(adapter);
    if (!s)
        return out_value(c, 0, value_model(&m), err);
    model_ref_release(&m);
    return s;
}

/* ---- one ratio for all ---- */

struct merge_node {
    enum mix_kind kind;
    const char *first, *second;
    const char *input; /* the ratio; NULL: none */
};

static berth_status run_merge(struct node_call *c, berth_err *err)
{
    const struct merge_node *how = c->cls->own;
    struct mix_args a = { .kind = how->kind, .otherwise = 1, .name = c->cls->name };
    if (in_model(c, how->second, &a.other, err) ||
        (how->input && in_finite(c, how->input, &a.otherwise, err)))
        return err->code;
    return give_mixed(c, how->first, &a, err);
}

#define MERGE(type, what, ...)                                                                     \
    .category = "model/merging", .module = MOD("model_merging"),                                   \
    INS(SOCKET(what "1", type), SOCKET(what "2", type) __VA_ARGS__), OUT_OF(type),                 \
    .run = run_merge
#define RATIO_IN , FLOAT_IN("ratio", 1.0, 0.0, 1.0, 0.01)
#define MULTIPLIER_IN , FLOAT_IN("multiplier", 1.0, -10.0, 10.0, 0.01)

static const struct merge_node model_simple = { MIX_RATIO, "model1", "model2", "ratio" };
static const struct merge_node model_subtract = { MIX_SUBTRACT, "model1", "model2", "multiplier" };
static const struct merge_node model_add = { MIX_ADD, "model1", "model2", NULL };
static const struct merge_node clip_simple = { MIX_RATIO, "clip1", "clip2", "ratio" };
static const struct merge_node clip_subtract = { MIX_SUBTRACT, "clip1", "clip2", "multiplier" };
static const struct merge_node clip_add = { MIX_ADD, "clip1", "clip2", NULL };

NODE_CLASS(ModelMergeSimple, MERGE("MODEL", "model", RATIO_IN), .own = &model_simple);
NODE_CLASS(ModelMergeSubtract, MERGE("MODEL", "model", MULTIPLIER_IN), .own = &model_subtract);
NODE_CLASS(ModelMergeAdd, MERGE("MODEL", "model", ), .own = &model_add);
NODE_CLASS(CLIPMergeSimple, MERGE("CLIP", "clip", RATIO_IN), .own = &clip_simple);
NODE_CLASS(CLIPMergeSubtract, MERGE("CLIP", "clip", MULTIPLIER_IN), .own = &clip_subtract);
NODE_CLASS(CLIPMergeAdd, MERGE("CLIP", "clip", ), .own = &clip_add);

/* ---- a ratio for each of a model's blocks: the inputs' names begin those of tensors ---- */

static berth_status run_blocks(struct node_call *c, berth_err *err)
{
    struct mix_rule rule[NODE_INPUTS_MAX];
    struct mix_args a = {
        .kind = MIX_RATIO, .rule = rule, .front = "diffusion_model.", .name = c->cls->name
    };
    if (in_model(c, "model2", &a.other, err))
        return err->code;
    for (size_t i = 0; i < c->cls->ins; i++) {
        const struct node_input *in = &c->cls->in[i];
        if (in->kind != IN_FLOAT)
            continue;
        rule[a.rules].text = in->name;
        if (in_finite(c, in->name, &rule[a.rules++].ratio, err))
            return err->code;
    }
    a.otherwise = rule[0].ratio; /* as in the reference: the first one's */
    return give_mixed(c, "model1", &a, err);
}

#define TWO SOCKET("model1", "MODEL"), SOCKET("model2", "MODEL")
#define R(n) FLOAT_IN(n, 1.0, 0.0, 1.0, 0.01)
NODE_CLASS(ModelMergeBlocks, .category = "model/merging", .module = MOD("model_merging"),
           INS(TWO, R("input"), R("middle"), R("out")), OUT_OF("MODEL"), .run = run_blocks);

/* p0e, p1e ... : so many names with a number between two texts. */
#define N1(p, e) R(p "0" e)
#define N2(p, e) N1(p, e), R(p "1" e)
#define N3(p, e) N2(p, e), R(p "2" e)
#define N4(p, e) N3(p, e), R(p "3" e)
#define N5(p, e) N4(p, e), R(p "4" e)
#define N6(p, e) N5(p, e), R(p "5" e)
#define N7(p, e) N6(p, e), R(p "6" e)
#define N8(p, e) N7(p, e), R(p "7" e)
#define N9(p, e) N8(p, e), R(p "8" e)
#define N10(p, e) N9(p, e), R(p "9" e)
#define N20(p, e) N10(p, e), N10(p "1", e)
#define N30(p, e) N20(p, e), N10(p "2", e)
#define N40(p, e) N30(p, e), N10(p "3", e)
#define N50(p, e) N40(p, e), N10(p "4", e)
#define N12(p, e) N10(p, e), N2(p "1", e)
#define N19(p, e) N10(p, e), N9(p "1", e)
#define N24(p, e) N20(p, e), N4(p "2", e)
#define N28(p, e) N20(p, e), N8(p "2", e)
#define N32(p, e) N30(p, e), N2(p "3", e)
#define N36(p, e) N30(p, e), N6(p "3", e)
#define N38(p, e) N30(p, e), N8(p "3", e)
#define N48(p, e) N40(p, e), N8(p "4", e)
#define N60(p, e) N50(p, e), N10(p "5", e)

#define BLOCK_MERGE(c, ...)                                                                        \
    NODE_CLASS(c, .category = "model/merging/model specific",                                      \
               .module = MOD("model_merging_model_specific"), INS(TWO, __VA_ARGS__),               \
               OUT_OF("MODEL"), .run = run_blocks)
BLOCK_MERGE(ModelMergeSD1, R("time_embed."), R("label_emb."), N12("input_blocks.", "."),
            N3("middle_block.", "."), N12("output_blocks.", "."), R("out."));
BLOCK_MERGE(ModelMergeSD2, R("time_embed."), R("label_emb."), N12("input_blocks.", "."),
            N3("middle_block.", "."), N12("output_blocks.", "."), R("out."));
BLOCK_MERGE(ModelMergeSDXL, R("time_embed."), R("label_emb."), N9("input_blocks.", ""),
            N3("middle_block.", ""), N9("output_blocks.", ""), R("out."));
BLOCK_MERGE(ModelMergeSD3_2B, R("pos_embed."), R("x_embedder."), R("context_embedder."),
            R("y_embedder."), R("t_embedder."), N24("joint_blocks.", "."), R("final_layer."));
BLOCK_MERGE(ModelMergeAuraflow, R("init_x_linear."), R("positional_encoding"),
            R("cond_seq_linear."), R("register_tokens"), R("t_embedder."),
            N4("double_layers.", "."), N32("single_layers.", "."), R("modF."), R("final_linear."));
BLOCK_MERGE(ModelMergeFlux1, R("img_in."), R("time_in."), R("guidance_in"), R("vector_in."),
            R("txt_in."), N19("double_blocks.", "."), N38("single_blocks.", "."),
            R("final_layer."));
BLOCK_MERGE(ModelMergeSD35_Large, R("pos_embed."), R("x_embedder."), R("context_embedder."),
            R("y_embedder."), R("t_embedder."), N38("joint_blocks.", "."), R("final_layer."));
BLOCK_MERGE(ModelMergeMochiPreview, R("pos_frequencies."), R("t_embedder."), R("t5_y_embedder."),
            R("t5_yproj."), N48("blocks.", "."), R("final_layer."));
BLOCK_MERGE(ModelMergeLTXV, R("patchify_proj."), R("adaln_single."), R("caption_projection."),
            N28("transformer_blocks.", "."), R("scale_shift_table"), R("proj_out."));
BLOCK_MERGE(ModelMergeCosmos7B, R("pos_embedder."), R("extra_pos_embedder."), R("x_embedder."),
            R("t_embedder."), R("affline_norm."), N28("blocks.block", "."), R("final_layer."));
BLOCK_MERGE(ModelMergeCosmos14B, R("pos_embedder."), R("extra_pos_embedder."), R("x_embedder."),
            R("t_embedder."), R("affline_norm."), N36("blocks.block", "."), R("final_layer."));
BLOCK_MERGE(ModelMergeWAN2_1, R("patch_embedding."), R("time_embedding."), R("time_projection."),
            R("text_embedding."), R("img_emb."), N40("blocks.", "."), R("head."));
BLOCK_MERGE(ModelMergeCosmosPredict2_2B, R("pos_embedder."), R("x_embedder."), R("t_embedder."),
            R("t_embedding_norm."), N28("blocks.", "."), R("final_layer."));
BLOCK_MERGE(ModelMergeCosmosPredict2_14B, R("pos_embedder."), R("x_embedder."), R("t_embedder."),
            R("t_embedding_norm."), N36("blocks.", "."), R("final_layer."));
BLOCK_MERGE(ModelMergeQwenImage, R("pos_embeds."), R("img_in."), R("txt_norm."), R("txt_in."),
            R("time_text_embed."), N60("transformer_blocks.", "."), R("proj_out."));
BLOCK_MERGE(ModelMergeKrea2, R("first."), R("tmlp."), R("txtmlp."), R("tproj."),
            N2("txtfusion.layerwise_blocks.", "."), R("txtfusion.projector."),
            N2("txtfusion.refiner_blocks.", "."), N28("blocks.", "."), R("last."));

/* ---- attention made stronger or weaker ---- */

struct multiply_node {
    const char *input;      /* model or clip */
    const char *ends[2][4]; /* of names: weights and biases of q, k, v, out */
};

static berth_status run_multiply(struct node_call *c, berth_err *err)
{
    static const char *const number[] = { "q", "k", "v", "out" };
    const struct multiply_node *how = c->cls->own;
    struct mix_rule rule[8];
    struct mix_args a = {
        .kind = MIX_SCALE, .rule = rule, .endings = true, .otherwise = 1, .name = c->cls->name
    };
    for (size_t i = 0; i < ARRAY_LEN(number); i++) {
        double by;
        if (in_finite(c, number[i], &by, err))
            return err->code;
        for (size_t k = 0; k < 2; k++)
            rule[a.rules++] = (struct mix_rule) { how->ends[k][i], by };
    }
    return give_mixed(c, how->input, &a, err);
}

/* What attention gives, apart for layers over time, which no family has yet. */
static berth_status run_multiply_out(struct node_call *c, berth_err *err)
{
    static const struct {
        const char *input, *ends[2];
    } layer[] = {
        { "self_structural", { "attn1.to_out.0.weight", "attn1.to_out.0.bias" } },
        { "cross_structural", { "attn2.to_out.0.weight", "attn2.to_out.0.bias" } },
        { "self_temporal",
          { "time_stack.0.attn1.to_out.0.weight", "time_stack.0.attn1.to_out.0.bias" } },
        { "cross_temporal",
          { "time_stack.0.attn2.to_out.0.weight", "time_stack.0.attn2.to_out.0.bias" } },
    };
    struct mix_rule rule[2 * ARRAY_LEN(layer)];
    struct mix_args a = {
        .kind = MIX_SCALE, .rule = rule, .endings = true, .otherwise = 1, .name = c->cls->name
    };
    for (size_t i = 0; i < ARRAY_LEN(layer); i++) {
        double by;
        if (in_finite(c, layer[i].input, &by, err))
            return err->code;
        for (size_t k = 0; k < 2; k++)
            rule[a.rules++] = (struct mix_rule) { layer[i].ends[k], by };
    }
    return give_mixed(c, "model", &a, err);
}

#define MULTIPLIED(n) FLOAT_IN(n, 1.0, 0.0, 10.0, 0.01, .more = ADVANCED)
#define MULTIPLY(class, what, type, q, k, v, o)                                                    \
    NODE_CLASS(class, .category = "experimental/attention_experiments",                            \
               .module = MOD("attention_multiply"), .flags = NODE_V3 | NODE_EXPERIMENTAL,          \
               INS(SOCKET(what, type), MULTIPLIED("q"), MULTIPLIED("k"), MULTIPLIED("v"),          \
                   MULTIPLIED("out")),                                                             \
               OUT_OF(type), .run = run_multiply,                                                  \
               .own = &(const struct multiply_node) {                                              \
                   what,                                                                           \
                   { { q ".weight", k ".weight", v ".weight", o ".weight" },                       \
                     { q ".bias", k ".bias", v ".bias", o ".bias" } } })

MULTIPLY(UNetSelfAttentionMultiply, "model", "MODEL", "attn1.to_q", "attn1.to_k", "attn1.to_v",
         "attn1.to_out.0");
MULTIPLY(UNetCrossAttentionMultiply, "model", "MODEL", "attn2.to_q", "attn2.to_k", "attn2.to_v",
         "attn2.to_out.0");
MULTIPLY(CLIPAttentionMultiply, "clip", "CLIP", "self_attn.q_proj", "self_attn.k_proj",
         "self_attn.v_proj", "self_attn.out_proj");

NODE_CLASS(UNetTemporalAttentionMultiply, .category = "experimental/attention_experiments",
           .module = MOD("attention_multiply"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"), MULTIPLIED("self_structural"), MULTIPLIED("self_temporal"),
               MULTIPLIED("cross_structural"), MULTIPLIED("cross_temporal")),
           OUT_OF("MODEL"), .run = run_multiply_out);
