/* The machine: what its controls say, how every call begins and ends, cards, contexts. */
#include "support/fake_cuda/impl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define STACK 8

#define PLAIN .cards = 1, .total = (size_t)256 << 20, .host_total = (size_t)1 << 30
struct fake_cuda fake_machine = { PLAIN };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct CUctx_st fake_context[FAKE_CARDS];
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth; /* stack[depth] is current */

struct fake_cuda *fake_cuda(void);
void fake_cuda_lose(int card, int with);
void fake_cuda_reset(void);

struct fake_cuda *fake_cuda(void)
{
    return &fake_machine;
}

void fake_cuda_lose(int card, int with)
{
    fake_context[card].lost = with;
}

void fake_cuda_reset(void) /* what a test left behind goes, too */
{
    fake_queue_reset();
    fake_kernels_reset();
    fake_memory_reset();
    fake_machine = (struct fake_cuda) { PLAIN };
    memset(fake_context, 0, sizeof fake_context);
    depth = 0;
    stack[0] = NULL;
}

/* ---- every call ---- */

static bool meant(const char *name) /* "cuMemAlloc_v2" is cuMemAlloc */
{
    size_t n = fake_machine.fail_name ? strlen(fake_machine.fail_name) : 0;
    return !fake_machine.fail_name ||
           (!strncmp(fake_machine.fail_name, name, n) && (!name[n] || !strcmp(name + n, "_v2")));
}

CUresult fake_enter(const char *name)
{
    pthread_mutex_lock(&lock);
    fake_machine.calls++;
    if (!fake_machine.fail_at || !meant(name) || --fake_machine.fail_at)
        return CUDA_SUCCESS;
    fake_machine.failed = name;
    for (int i = 0; i < FAKE_CARDS && fake_machine.fail_with == CUDA_ERROR_ILLEGAL_ADDRESS; i++)
        if (fake_context[i].refs)
            fake_context[i].lost = fake_machine.fail_with;
    return (CUresult)fake_machine.fail_with;
}

CUresult fake_leave(CUresult r)
{
    pthread_mutex_unlock(&lock);
    return r;
}

CUcontext fake_top(void)
{
    return stack[depth];
}

CUresult fake_current(CUcontext *out)
{
    *out = stack[depth];
    if (!*out)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!(*out)->refs)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (CUresult)(*out)->lost;
}

/* ---- the library ---- */

CUresult cuInit(unsigned flags)
{
    (void)flags;
    ENTER();
    return fake_leave((CUresult)fake_machine.init);
}

CUresult cuDriverGetVersion(int *v)
{
    ENTER();
    *v = 13000;
    return fake_leave(CUDA_SUCCESS);
}

static const struct {
    CUresult r;
    const char *name, *text;
} errors[] = {
    { CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
    { CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
    { CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
      "an illegal memory access was encountered" },
    { CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted" },
};

CUresult cuGetErrorName(CUresult e, const char **out)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].r == e)
            *out = errors[i].name;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult e, const char **out)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].r == e)
            *out = errors[i].text;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- cards and contexts ---- */

CUresult cuDeviceGetCount(int *n)
{
    ENTER();
    *n = fake_machine.cards;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    ENTER();
    CHECK(ordinal >= 0 && ordinal < fake_machine.cards, CUDA_ERROR_INVALID_DEVICE);
    *out = ordinal;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int n, CUdevice d)
{
    ENTER();
    snprintf(name, (size_t)n, "Fake %d", d);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute which, CUdevice d)
{
    (void)d;
    ENTER();
    int sm = fake_machine.sm ? fake_machine.sm : 90;
    *out = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR              ? sm / 10
           : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR            ? sm % 10
           : which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                ? 132
           : which == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR      ? 2048
           : which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN   ? 232448
           : which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ? !fake_machine.no_vmm
                                                                              : 0;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b)
{
    ENTER();
    *can = fake_machine.peer && a != b;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d)
{
    ENTER();
    if (!fake_context[d].refs++)
        fake_context[d] = (struct CUctx_st) { .card = d, .refs = 1, .lost = fake_context[d].lost };
    fake_machine.contexts++;
    *out = &fake_context[d];
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice d)
{
    ENTER();
    CHECK(fake_context[d].refs, CUDA_ERROR_INVALID_CONTEXT);
    if (--fake_context[d].refs == 0) {
        fake_context[d].lost = 0;
        fake_free_pinned(d);
    }
    fake_machine.contexts--;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext c)
{
    ENTER();
    stack[depth] = c;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent(CUcontext c)
{
    ENTER();
    CHECK(depth + 1 < STACK, CUDA_ERROR_INVALID_VALUE);
    stack[++depth] = c;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
    ENTER();
    CHECK(depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    *out = stack[depth--];
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuCtxEnablePeerAccess(CUcontext to, unsigned flags)
{
    (void)flags;
    ENTER_CONTEXT();
    CHECK(!to->lost, (CUresult)to->lost);
    CHECK(!c->peer[to->card], CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    c->peer[to->card] = true;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuCtxDisablePeerAccess(CUcontext to)
{
    ENTER_CONTEXT();
    CHECK(c->peer[to->card], CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    c->peer[to->card] = false;
    return fake_leave(CUDA_SUCCESS);
}
