#include "app/client_curl.h"

#include <dlfcn.h>

static void *open_any(void)
{
    static const char *const name[] = { "libcurl.so.4", "libcurl-gnutls.so.4" };
    void *lib = NULL;
    for (size_t i = 0; i < ARRAY_LEN(name) && !lib; i++)
        lib = dlopen(name[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* it has exit handlers */
    return lib;
}

berth_status client_curl_open(struct client_curl *out, berth_err *err)
{
    void *lib = open_any(), *f;
    if (!lib)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "talking to a server needs libcurl (Debian's libcurl4): %s", dlerror());
#define X(name)                                                                                    \
    if (!(f = dlsym(lib, "curl_" #name)))                                                          \
        return err_set(err, BERTH_EUNSUPPORTED, "libcurl has no curl_%s", #name);                  \
    memcpy(&out->name, &f, sizeof f);
    CLIENT_CURL_FUNCTIONS(X)
#undef X
    return BERTH_OK;
}
