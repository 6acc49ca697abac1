/* fake_symbol: the controls of a library that stands in for another one (fake_cuda.h,
 * fake_cublaslt.h). */
#ifndef SUPPORT_FAKE_SYMBOL_H
#define SUPPORT_FAKE_SYMBOL_H

#include "support/test.h"

#include <dlfcn.h>

/* *to: a pointer to a function of the type that `name` has there. The library stays open. */
static inline void fake_symbol(const char *library, const char *name, void *to)
{
    void *lib = dlopen(library, RTLD_NOW);
    if (!lib)
        fail_msg("%s", dlerror());
    void *f = dlsym(lib, name);
    assert_non_null(f);
    memcpy(to, &f, sizeof f);
}

#endif
