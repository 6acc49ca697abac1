/* cuda: NVIDIA cards through the driver API, opened with dlopen: one binary runs with or without.
 *
 * Words      api       the functions of libcuda that are called, found by name (cuda_api.def); no
 *                      CUDA runtime is linked
 *            granule   CUDA_GRANULE bytes of a card's memory, what it is mapped in
 *            piece     one or more granules taken from the driver at once; segments are made of
 *                      pieces, so that idle ones go back while their neighbours stay (cuda_mem.c)
 *            context   the primary one, retained while the phys is open, current on the executor's
 *                      thread: cuBLASLt and cuDNN work in the same
 *            lost      an error poisoned the context; nothing works in it any more
 * Errors     "cuda:0: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)" with the number in
 *            native. Out of memory is BERTH_ENODEVMEM with wanted and free bytes. An error that
 *            poisons the context (illegal address, device lost, ...) is BERTH_EDEVICE, and every
 *            later call of that phys says so without asking the driver. The card comes back when
 *            Berth is restarted, as NVIDIA promises nothing less; Berth goes on with the others.
 *            Where two cards have part in a call, only the one that says so itself is lost.
 * Peer       Access between cards is enabled where the driver offers it and a copied pattern
 *            arrives: some machines say yes and deliver rubbish. Other cards meet in host memory.
 * Threads    As driver.h: the executor, except for `info`. `lost` may be asked from any.
 * Files      cuda_api.c the library, cuda.c phys, errors, streams, events, copies, cuda_mem.c
 *            memory, pinned host memory too, cuda_graph.c recorded kernels, cuda_peer.c access
 *            between cards; cuda_impl.h what they share */
#pragma once

#include "device/device.h"

#include <cuda.h>
#include <stdatomic.h>

#define CUDA_GRANULE ((size_t)2 << 20)

struct cuda_api {
    void *handle; /* dlopen */
    int driver;   /* version, 13000 */
#define CUDA_FN(name, symbol) __typeof__(&name) name;
#include "device/cuda/cuda_api.def"
#undef CUDA_FN
};

struct cuda_phys {
    struct phys base;
    const struct cuda_api *api; /* of the library; constant */
    CUdevice dev;
    CUcontext ctx;
    const char *card;                    /* base.model: "NVIDIA H200" */
    int sm;                              /* 90 */
    int multiprocessors, threads_per_mp; /* what PyTorch's random numbers depend on, too */
    atomic_int lost;                     /* CUresult: the context is gone; 0: it is fine */
    /* op/ keeps its handles, modules and caches here: made at first use, closed with the phys,
     * before the context goes. The context is current then; calls may fail if it is lost. */
    void *op;
    void (*op_close)(void *op);
};

/* pre: p, s is of the driver cuda. */
static inline struct cuda_phys *cuda_of(struct phys *p)
{
    return (struct cuda_phys *)p;
}
CUstream cuda_stream(const struct dev_stream *s);

/* BERTH_OK for CUDA_SUCCESS, else as Errors says: `what` is the call, cut at its parenthesis. */
berth_status cuda_check(struct cuda_phys *p, CUresult r, const char *what, berth_err *err);
#define CUDA_TRY(p, call, err) cuda_check((p), (p)->api->call, #call, (err))

/* Makes the card's context current on this thread, unless it is lost. Cheap. */
berth_status cuda_current(struct cuda_phys *p, berth_err *err);
