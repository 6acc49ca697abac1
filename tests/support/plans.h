/* plans: the devices and models that tests of allocation strings and plans speak about. */
#ifndef SUPPORT_PLANS_H
#define SUPPORT_PLANS_H

#include "plan/plan.h"
#include "support/block_specs.h"
#include "support/test.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum { CUDA0, CUDA1, CPU };

/* cuda:0 24 GiB, cuda:1 24 GiB, cpu 64 GiB */
static const struct plan_devices machine = {
    .at = { { .name = "cuda:0", .total = 24 * GIB, .budget = 24 * GIB },
            { .name = "cuda:1", .total = 24 * GIB, .budget = 24 * GIB },
            { .name = "cpu", .total = 64 * GIB, .budget = 64 * GIB, .host = true } },
    .n = 3,
};

/* The models of the worked examples. norm_out and norm are tiny. */
#define TOY_BLOCKS 11
#define TOY_BYTES (4016 * MIB + 32 * KIB)
static const struct block_spec toy[TOY_BLOCKS] = {
    { "patch_in", 6 * MIB, false },  { "blk.0", 500 * MIB, false }, { "blk.1", 500 * MIB, false },
    { "blk.2", 500 * MIB, false },   { "blk.3", 500 * MIB, false }, { "blk.4", 500 * MIB, false },
    { "blk.5", 500 * MIB, false },   { "blk.6", 500 * MIB, false }, { "blk.7", 500 * MIB, false },
    { "norm_out", 32 * KIB, false }, { "head", 10 * MIB, false },
};
#define CLIP_BLOCKS 8
static const struct block_spec clip[CLIP_BLOCKS] = {
    { "embed_tokens", 300 * MIB, true },  { "layers.0.mlp", 200 * MIB, false },
    { "layers.1.mlp", 200 * MIB, false }, { "layers.2.mlp", 200 * MIB, false },
    { "layers.3.mlp", 200 * MIB, false }, { "layers.4.mlp", 200 * MIB, false },
    { "layers.5.mlp", 200 * MIB, false }, { "norm", 16 * KIB, false },
};

/* Both steps; err says what went wrong in either. */
static inline berth_status resolve(const char *text, const struct plan_devices *d,
                                   const char *compute, uint64_t model, struct quotas *q,
                                   berth_err *err)
{
    struct alloc a;
    memset(q, 0, sizeof *q);
    if (alloc_parse(text, strlen(text), &a, err))
        return err->code;
    return alloc_resolve(&a, d, compute, model, q, err);
}

static inline uint64_t quota_on(const struct quotas *q, size_t device)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < q->n; i++)
        if (q->at[i].device == device)
            bytes += q->at[i].bytes;
    return bytes;
}

#endif
