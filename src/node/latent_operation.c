/* latent_operation.c: operations on latents as values of their own (sample/latent_operation.h has
 * what they do). */
#include "sample/latent_operation.h"
#include "node/compute.h"

#include <inttypes.h>
#include <stdlib.h>

#define OPERATION_NODE(c, ...)                                                                     \
    NODE_CLASS(c, .category = "model/latent/advanced/operations", .module = MOD("latent"),         \
               .flags = NODE_V3 | NODE_EXPERIMENTAL, __VA_ARGS__)

static const struct value_type type_latent_operation = { .name = "LATENT_OPERATION", .free = free };

static berth_status give_operation(struct node_call *c, struct latent_operation op, berth_err *err)
{
    struct latent_operation *p = malloc(sizeof *p);
    if (!p)
        return err_set(err, BERTH_ENOMEM, "an operation on latents");
    *p = op;
    return out_value(c, 0, value_object(&type_latent_operation, p), err);
}

static berth_status tonemap_run(struct node_call *c, berth_err *err)
{
    struct latent_operation op = { .kind = LATENT_TONEMAP };
    return in_f64(c, "multiplier", &op.multiplier, err) ? err->code : give_operation(c, op, err);
}
OPERATION_NODE(LatentOperationTonemapReinhard, INS(FLOAT_IN("multiplier", 1.0, 0.0, 100.0, 0.01)),
               OUT_OF("LATENT_OPERATION"), .run = tonemap_run);

static berth_status sharpen_run(struct node_call *c, berth_err *err)
{
    struct latent_operation op = { .kind = LATENT_SHARPEN };
    uint64_t radius;
    if (in_u64(c, "sharpen_radius", &radius, err) || in_f64(c, "sigma", &op.sigma, err) ||
        in_f64(c, "alpha", &op.alpha, err))
        return err->code;
    if (radius > UINT32_MAX)
        return err_set(err, BERTH_EINVAL, "sharpen_radius is %" PRIu64, radius);
    op.radius = (unsigned)radius;
    return give_operation(c, op, err);
}
OPERATION_NODE(LatentOperationSharpen,
               INS(INT_IN("sharpen_radius", 9, 1, 31, 1, .more = ADVANCED),
                   FLOAT_IN("sigma", 1.0, 0.1, 10.0, 0.1, .more = ADVANCED),
                   FLOAT_IN("alpha", 0.1, 0.0, 5.0, 0.01, .more = ADVANCED)),
               OUT_OF("LATENT_OPERATION"), .run = sharpen_run);

static berth_status in_operation(struct node_call *c, const struct latent_operation **out,
                                 berth_err *err)
{
    const struct value *v = in_value(c, "operation");
    if (!v || v->kind != V_OBJECT || v->object.type != &type_latent_operation)
        return err_set(err, BERTH_EINVAL, "input 'operation' is no LATENT_OPERATION");
    *out = v->object.obj;
    return BERTH_OK;
}

static berth_status apply_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    const struct latent_operation *op;
    struct htensor *o;
    if (in_latent(c, "samples", &in, err) || in_operation(c, &op, err) ||
        htensor_new(&in->samples->shape, &o, err))
        return err->code;
    berth_status s = latent_operation_run(op, &o->shape, in->samples->data, o->data, err);
    if (s) {
        htensor_unref(o);
        return s;
    }
    return give_samples(c, in, o, err);
}
OPERATION_NODE(LatentApplyOperation,
               INS(SOCKET("samples", "LATENT"), SOCKET("operation", "LATENT_OPERATION")),
               OUT(out_latent), .run = apply_run);

static berth_status apply_cfg_run(struct node_call *c, berth_err *err)
{
    const struct latent_operation *op;
    struct model_change change = { .guide.is = &guide_latent_operation };
    struct model_ref m;
    if (in_operation(c, &op, err) || in_model_copy(c, "model", &m, err))
        return err->code;
    latent_operation_put(op, change.guide.p);
    if (!model_ref_change(&m, change, err))
        return out_value(c, 0, value_model(&m), err);
    model_ref_release(&m);
    return err->code;
}
OPERATION_NODE(LatentApplyOperationCFG,
               INS(SOCKET("model", "MODEL"), SOCKET("operation", "LATENT_OPERATION")),
               OUT_OF("MODEL"), .run = apply_cfg_run);
