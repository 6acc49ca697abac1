/* Modules and kernels: those that a test has named, run on the host. */
#include "support/fake_cuda/impl.h"

#include <stdlib.h>
#include <string.h>

enum {
    GRID_X = 0x7fffffff, /* the most blocks, and of y and z */
    GRID_YZ = 65535,
    SHARED_PLAIN = 48 << 10, /* bytes of a block without asking */
    SHARED_MOST = 232448,
};

struct CUfunc_st {
    struct fake_module *module;
    struct fake_kernel *kernel;
    unsigned shared; /* the most it may have */
};

struct CUmod_st { /* loaded */
    CUmodule next;
    struct fake_module *module;
    struct CUfunc_st function[];
};

static struct fake_module *const *named;
static size_t named_count;
static fake_run_fn *run;
static CUmodule modules;

void fake_cuda_modules(struct fake_module *const *m, size_t n, fake_run_fn *with);
void fake_cuda_modules(struct fake_module *const *m, size_t n, fake_run_fn *with)
{
    named = m;
    named_count = n;
    run = with;
}

void fake_kernels_reset(void)
{
    while (modules) {
        CUmodule m;
        POP(modules, m);
        free(m);
    }
    fake_cuda_modules(NULL, 0, NULL);
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    ENTER_CONTEXT();
    struct fake_module *of = NULL;
    for (size_t i = 0; i < named_count; i++)
        if (named[i]->image == image)
            of = named[i];
    CHECK(of, CUDA_ERROR_NOT_SUPPORTED);
    CUmodule m = calloc(1, sizeof *m + of->kernels * sizeof m->function[0]);
    CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    m->module = of;
    for (size_t i = 0; i < of->kernels; i++)
        m->function[i] = (struct CUfunc_st) { of, &of->kernel[i], SHARED_PLAIN };
    m->next = modules;
    modules = m;
    fake_machine.modules++;
    *out = m;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuModuleUnload(CUmodule m)
{
    ENTER_CONTEXT();
    CUmodule *at = &modules;
    while (*at && *at != m)
        at = &(*at)->next;
    CHECK(*at, CUDA_ERROR_INVALID_HANDLE);
    *at = m->next;
    free(m);
    fake_machine.modules--;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name)
{
    ENTER_CONTEXT();
    for (size_t i = 0; i < m->module->kernels; i++)
        if (strcmp(m->module->kernel[i].name, name) == 0) {
            *out = &m->function[i];
            return fake_leave(CUDA_SUCCESS);
        }
    return fake_leave(CUDA_ERROR_NOT_FOUND);
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value)
{
    ENTER_CONTEXT();
    CHECK(what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 &&
              value <= SHARED_MOST,
          CUDA_ERROR_INVALID_VALUE);
    f->shared = (unsigned)value;
    return fake_leave(CUDA_SUCCESS);
}

/* ---- launches ---- */

/* A launch as it waits in a stream: arguments are those of the call, whatever becomes of the
 * caller's. */
struct fake_work {
    struct fake_launch launch;
    struct fake_kernel *kernel;
    unsigned refs; /* queues and graphs it is in */
    void *args[];
};

void fake_work_ref(struct fake_work *w)
{
    w->refs++;
}

void fake_work_unref(struct fake_work *w)
{
    if (w && --w->refs == 0)
        free(w);
}

static size_t aligned(size_t n)
{
    return (n + 15) / 16 * 16;
}

static struct fake_work *work_new(CUfunction f, void **args)
{
    const size_t *bytes = f->kernel->bytes;
    size_t count = 0, all = 0;
    for (; bytes[count]; count++)
        all += aligned(bytes[count]);
    size_t head = aligned(sizeof(struct fake_work) + count * sizeof(void *));
    struct fake_work *w = calloc(1, head + all);
    if (!w)
        return NULL;
    char *at = (char *)w + head;
    for (size_t i = 0; i < count; at += aligned(bytes[i++])) {
        memcpy(at, args[i], bytes[i]);
        w->args[i] = at;
    }
    w->kernel = f->kernel;
    w->refs = 1;
    w->launch = (struct fake_launch) { .module = f->module, .kernel = f->kernel, .args = w->args };
    return w;
}

void fake_work_run(struct fake_work *w)
{
    w->kernel->launches++;
    run(&w->launch);
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream s, void **args,
                        void **extra)
{
    ENTER_CONTEXT();
    CHECK(!extra && gx && gy && gz && gx <= GRID_X && gy <= GRID_YZ && gz <= GRID_YZ,
          CUDA_ERROR_INVALID_VALUE);
    CHECK(bx && by && bz && bx <= 1024 && by <= 1024 && bz <= 64, CUDA_ERROR_INVALID_VALUE);
    CHECK(bx * by * bz <= f->kernel->threads, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    CHECK(shared <= f->shared, CUDA_ERROR_INVALID_VALUE);
    struct fake_work *w = work_new(f, args);
    CHECK(w, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(w->launch.grid, (unsigned[]) { gx, gy, gz }, sizeof w->launch.grid);
    memcpy(w->launch.block, (unsigned[]) { bx, by, bz }, sizeof w->launch.block);
    r = fake_push_work(s, c, w);
    if (r)
        free(w);
    return fake_leave(r);
}
