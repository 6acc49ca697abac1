/* plug: the fake card with our kernels, and the stand-in for cuBLASLt beside it. */
#ifndef SUPPORT_CUDA_SIMT_PLUG_H
#define SUPPORT_CUDA_SIMT_PLUG_H

#include "op/cuda/dnn.h"
#include "support/cuda_simt/simt.h"
#include "support/fake_cublaslt.h"
#include "support/fake_symbol.h"

struct plugged {
    struct fake_cuda *card;
    struct fake_cublaslt *blas;
};

static struct simt_module *const plug_modules[CUDA_MODULES] = {
#define MODULE(x) &simt_##x,
#include "op/cuda/modules.def"
#undef MODULE
};

/* Names our kernels to a card that was reset; before: fake_cublaslt's. */
static inline struct plugged plug_kernels(enum fake_refuses refuses, void (*before)(void *stream))
{
    static const unsigned char *const images[CUDA_MODULES] = {
#define MODULE(x) cuda_module_##x,
#include "op/cuda/modules.def"
#undef MODULE
    };
    static struct fake_module *named[CUDA_MODULES];
    fake_cuda_modules_fn *name;
    fake_cuda_fn *machine;
    fake_cublaslt_fn *library;
    fake_symbol(BERTH_FAKE_CUDA, "fake_cuda_modules", &name);
    fake_symbol(BERTH_FAKE_CUDA, "fake_cuda", &machine);
    fake_symbol(BERTH_FAKE_CUBLASLT, "fake_cublaslt", &library);
    for (size_t i = 0; i < CUDA_MODULES; i++) {
        plug_modules[i]->base.image = images[i];
        named[i] = &plug_modules[i]->base;
    }
    name(named, CUDA_MODULES, simt_run);
    struct plugged p = { machine(), library() };
    *p.blas = (struct fake_cublaslt) { .refuses = refuses, .before = before };
    return p;
}

/* The card has no cuDNN, whatever this machine has. */
static inline void plug_no_dnn(const struct op_env *on)
{
    static struct dnn none = { .missing = "no part of this test" };
    struct cuda_card *c;
    berth_err err = { 0 };
    assert_ok(cuda_card(on, &c, &err), err);
    none.phys = c->phys;
    c->keep[CUDA_SLOT_DNN].p = &none; /* nobody closes it */
}

#endif
