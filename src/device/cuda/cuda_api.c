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

/* The loader's own words, except for the usual case, which deserves plainer ones. dlopen() tells
 * the two apart in its text alone. */
static void cannot_open(struct cuda_library *l, const char *path)
{
    const char *said = dlerror();
    if (!said)
        said = path;
    l->broken = !strstr(said, "No such file");
    if (!l->broken)
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
            l->broken = true;
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
    l->broken |= r != CUDA_SUCCESS;
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
    l->shown = n > CUDA_CARDS_MAX ? CUDA_CARDS_MAX : n > 0 ? (unsigned)n : 0;
    if (!l->shown)
        snprintf(l->why, sizeof l->why, "the NVIDIA driver shows no card");
}

static bool is_chosen(const struct cuda_library *l, unsigned card)
{
    for (unsigned i = 0; i < l->count; i++)
        if (l->ordinal[i] == card)
            return true;
    return false;
}

static void choose(struct cuda_library *l, unsigned card) /* twice is once */
{
    if (!is_chosen(l, card))
        l->ordinal[l->count++] = (unsigned short)card;
}

static berth_status no_card(const struct cuda_library *l, unsigned long card, berth_err *err)
{
    if (l->why[0])
        return err_set(err, BERTH_EUNSUPPORTED, "no card %lu: %s", card, l->why);
    return err_set(err, BERTH_EUNSUPPORTED, "no card %lu: the NVIDIA driver shows %u", card,
                   l->shown);
}

/* "1", "2,0", "2,*": driver.h. */
static berth_status choose_cards(struct cuda_library *l, const char *text, berth_err *err)
{
    const char *at = text ? text : "*";
    while (*at) {
        char *end;
        if (strcmp(at, "*") == 0) {
            for (unsigned i = 0; i < l->shown; i++)
                choose(l, i);
            return BERTH_OK;
        }
        unsigned long card = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || (*end && (*end != ',' || !end[1])))
            return err_set(err, BERTH_EINVAL, "cards '%.40s': numbers with commas between", text);
        if (card >= l->shown)
            return no_card(l, card, err);
        choose(l, (unsigned)card);
        at = *end ? end + 1 : end;
    }
    return l->count ? BERTH_OK : err_set(err, BERTH_EINVAL, "cards: an empty list");
}

berth_status cuda_library_open(const struct dev_env *env, void **out, berth_err *err)
{
    *out = NULL;
    struct cuda_library *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, BERTH_ENOMEM, "the driver library of cuda");
    const char *path = env->cuda_library;
    if (load(l, path && *path ? path : LIBRARY))
        find_cards(l);
    if (choose_cards(l, env->cuda_cards, err)) {
        cuda_library_close(l);
        return err->code;
    }
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

const char *cuda_library_why_none(void *library, bool *broken)
{
    const struct cuda_library *l = library;
    *broken = l->broken;
    return l->why;
}
