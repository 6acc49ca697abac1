/* move.c */
#include "op/cuda/cuda_op.h"

berth_status cuda_embedding(const struct op_env *env, const struct op_embedding *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "embedding: not there yet");
}

berth_status cuda_resize2d(const struct op_env *env, const struct op_resize2d *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "resize2d: not there yet");
}

berth_status cuda_concat(const struct op_env *env, const struct op_concat *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "concat: not there yet");
}

berth_status cuda_pad2d(const struct op_env *env, const struct op_pad2d *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "pad2d: not there yet");
}

berth_status cuda_copy(const struct op_env *env, const struct op_copy *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "copy: not there yet");
}

size_t cuda_embedding_scratch(const struct op_env *env, const struct op_embedding *a)
{
    (void)env, (void)a;
    return 0;
}
