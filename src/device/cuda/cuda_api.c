/* cuda_api: libcuda, opened by name, and the cards it shows. */
#include "device/cuda/cuda_impl.h"

#include <dlfcn.h>

#define LIBRARY "libcuda.so.1"

static const struct {
    size_t at;
    const char *symbol;
} functions[] = {
#define CUDA_FN(name, symbol) { offsetof(struct cuda_api, name), symbol },
#include "device/cuda/cuda_api.def"
#undef CUDA_FN
};

const char *cuda_error_text(const struct cuda_api *api, CUresult r, char buf[CUDA_ERROR_TEXT_MAX])
{
    const char *name = NULL, *text = NULL;
    if (api->cuGetErrorName(r, &name) || !name)
        name = "an unknown error";
    if (api->cuGetErrorString(r, &text) || !text)
        text = "no text";
    snprintf(buf, CUDA_ERROR_TEXT_MAX, "%s (%s)", name, text);
    return buf;
}

/* The loader's own words, but for the usual case, which deserves plainer ones. */
static void cannot_open(struct cuda_library *l, const char *path)
{
    const char *said = dlerror();
    if (!said)
        said = path;
    if (strstr(said, "No such file"))
        snprintf(l->why, sizeof l->why,
                 "%s: cannot open shared object file: no NVIDIA driver on this machine", path);
    else
        snprintf(l->why, sizeof l->why, "%s", said);
}

/* libcuda has threads and exit handlers of its own: once loaded it stays (NODELETE). */
static bool load(struct cuda_library *l, const char *path)
{
    struct cuda_api *api = &l->api;
    api->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!api->handle) {
        cannot_open(l, path);
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
        void *f = dlsym(api->handle, functions[i].symbol);
        if (!f) {
            snprintf(l->why, sizeof l->why, "%s has no %s: the NVIDIA driver is too old", path,
                     functions[i].symbol);
            return false;
        }
        memcpy((char *)api + functions[i].at, &f, sizeof f);
    }
    return true;
}

static bool refused(struct cuda_library *l, CUresult r, const char *what)
{
    char text[CUDA_ERROR_TEXT_MAX];
    if (r)
        snprintf(l->why, sizeof l->why, "%s: %s", what, cuda_error_text(&l->api, r, text));
    return r != CUDA_SUCCESS;
}

static void find_cards(struct cuda_library *l)
{
    const struct cuda_api *api = &l->api;
    int n = 0;
    if (refused(l, api->cuInit(0), "cuInit") ||
        refused(l, api->cuDriverGetVersion(&l->api.driver), "cuDriverGetVersion") ||
        refused(l, api->cuDeviceGetCount(&n), "cuDeviceGetCount"))
        return;
    for (int i = 0; i < n && l->count < CUDA_CARDS_MAX; i++)
        l->ordinal[l->count++] = (unsigned short)i;
    if (!l->count)
        snprintf(l->why, sizeof l->why, "the NVIDIA driver shows no card");
}

berth_status cuda_library_open(const struct dev_env *env, void **out, berth_err *err)
{
    *out = NULL;
    struct cuda_library *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, BERTH_ENOMEM, "the driver library of cuda");
    if (load(l, env->cuda_library ? env->cuda_library : LIBRARY))
        find_cards(l);
    *out = l;
    return BERTH_OK;
}

void cuda_library_close(void *library)
{
    struct cuda_library *l = library;
    if (!l)
        return;
    if (l->api.handle)
        dlclose(l->api.handle);
    free(l);
}

unsigned cuda_library_count(void *library)
{
    return ((struct cuda_library *)library)->count;
}

const char *cuda_library_why_none(void *library)
{
    return ((struct cuda_library *)library)->why;
}
