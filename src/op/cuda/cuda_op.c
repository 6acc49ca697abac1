/* cuda_op.c: a card's modules and kernels, and how they are launched. */
#include "op/cuda/blas.h"
#include "op/cuda/dnn.h"

enum { KERNEL_NAME = 56 };

struct kernel {
    char key[KERNEL_NAME]; /* its module as a character, then its name with its type */
    CUfunction fn;
};

static const unsigned char *const module_image[CUDA_MODULES] = {
#define MODULE(x) cuda_module_##x,
#include "op/cuda/modules.def"
#undef MODULE
};

static const char *const module_name[CUDA_MODULES] = {
#define MODULE(x) #x,
#include "op/cuda/modules.def"
#undef MODULE
};

/* Called with the phys, before its context goes. A context that is lost refuses; there is nothing
 * left to give back then. */
static void card_close(void *op)
{
    struct cuda_card *c = op;
    if (!c)
        return;
    berth_err err;
    bool usable = cuda_current(c->phys, &err) == BERTH_OK;
    for (int i = CUDA_SLOTS - 1; i >= 0; i--)
        if (c->keep[i].p && c->keep[i].close)
            c->keep[i].close(c->keep[i].p);
    for (int i = 0; usable && i < CUDA_MODULES; i++)
        if (c->module[i])
            c->phys->api->cuModuleUnload(c->module[i]);
    const char *key;
    size_t it = 0, len;
    uint64_t at;
    while (map_next(&c->kernels, &it, &key, &len, &at))
        free((struct kernel *)(uintptr_t)at);
    map_release(&c->kernels);
    free(c);
}

berth_status cuda_card(const struct op_env *env, struct cuda_card **out, berth_err *err)
{
    *out = NULL;
    if (!env->stream)
        return err_set(err, BERTH_EINVAL, "kernels of a card need a stream of it");
    struct cuda_phys *p = cuda_of(env->stream->phys);
    if (cuda_current(p, err))
        return err->code;
    if (!p->op) {
        struct cuda_card *c = calloc(1, sizeof *c);
        if (!c)
            return err_set(err, BERTH_ENOMEM, "%s: %zu bytes for its kernels", p->base.name,
                           sizeof *c);
        c->phys = p;
        p->op = c;
        p->op_close = card_close;
    }
    *out = p->op;
    return BERTH_OK;
}

const char *cuda_type_name(enum dtype t)
{
    static const char *const name[DT_COUNT] = {
        [DT_F32] = "f32", [DT_F16] = "f16", [DT_BF16] = "bf16"
    };
    if (t >= DT_COUNT || !name[t])
        BUG("no kernels compute in %s", dtype_name(t));
    return name[t];
}

static berth_status module_get(struct cuda_card *c, enum cuda_module m, CUmodule *out,
                               berth_err *err)
{
    if (!c->module[m]) {
        CUmodule loaded = NULL;
        if (CUDA_TRY(c->phys, cuModuleLoadData(&loaded, module_image[m]), err))
            return err_add(err, "kernels of %s.cu for %s (sm_%d)", module_name[m], c->phys->card,
                           c->phys->sm);
        c->module[m] = loaded;
    }
    *out = c->module[m];
    return BERTH_OK;
}

berth_status cuda_ready(const struct op_env *env, berth_err *err)
{
    struct cuda_card *c = NULL;
    struct dnn *dnn = NULL;
    CUmodule m = NULL;
    if (cuda_card(env, &c, err))
        return err->code;
    if (c->ready)
        return BERTH_OK;
    for (int i = 0; i < CUDA_MODULES; i++)
        if (module_get(c, (enum cuda_module)i, &m, err))
            return err->code;
    /* A library that is missing is for the ops to say that need it. */
    if ((blas_open(env, err) && err->code != BERTH_EUNSUPPORTED) ||
        (dnn_of(c, &dnn, err) && err->code != BERTH_EUNSUPPORTED))
        return err->code;
    c->ready = true;
    return BERTH_OK;
}

berth_status cuda_scratch_is_there(const struct op_env *env, const char *op, size_t need,
                                   berth_err *err)
{
    size_t there = env->scratch ? env->scratch_bytes : 0;
    return need <= there
               ? BERTH_OK
               : err_set(err, BERTH_ENODEVMEM, "%s: needs %zu bytes of scratch, there are %zu", op,
                         need, there);
}

bool cuda_short(struct cuda_phys *p, size_t *left, size_t *total)
{
    *left = *total = 0;
    return p->api->cuMemGetInfo(left, total) == CUDA_SUCCESS && *left < CUDA_LITTLE;
}

/* A kernel, looked up in its module the first time. Errors name the card already. */
static berth_status kernel_get(struct cuda_card *c, const struct cuda_launch *l,
                               struct kernel **out, berth_err *err)
{
    char key[KERNEL_NAME] = { (char)('a' + l->module) }, *name = key + 1;
    size_t room = sizeof key - 1;
    uint64_t at;
    int n = l->type == DT_NONE ? snprintf(name, room, "%s", l->kernel)
                               : snprintf(name, room, "%s_%s", l->kernel, cuda_type_name(l->type));
    if (n <= 0 || (size_t)n >= room)
        BUG("kernel name '%s' has not 1 to %zu characters", l->kernel, room - 1);
    if (map_get(&c->kernels, key, strlen(key), &at)) {
        *out = (struct kernel *)(uintptr_t)at;
        return BERTH_OK;
    }
    CUmodule m = NULL;
    CUfunction fn = NULL;
    if (module_get(c, l->module, &m, err))
        return err->code;
    if (CUDA_TRY(c->phys, cuModuleGetFunction(&fn, m, name), err))
        return err_add(err, "kernel %s of %s.cu", name, module_name[l->module]);
    struct kernel *k = calloc(1, sizeof *k);
    if (k) {
        memcpy(k->key, key, sizeof key);
        k->fn = fn;
    }
    if (!k || map_add(&c->kernels, k->key, strlen(k->key), (uintptr_t)k) != MAP_ADDED) {
        free(k);
        return err_set(err, BERTH_ENOMEM, "%s: its kernel %s", c->phys->base.name, name);
    }
    *out = k;
    return BERTH_OK;
}

berth_status cuda_launch(const struct op_env *env, const struct cuda_launch *l, berth_err *err)
{
    struct cuda_card *c = NULL;
    struct kernel *k = NULL;
    if (cuda_card(env, &c, err) || kernel_get(c, l, &k, err))
        return err->code;
    const unsigned g[3] = { op_or_one(l->grid[0]), op_or_one(l->grid[1]), op_or_one(l->grid[2]) };
    const unsigned b[3] = { op_or_one(l->block[0]), op_or_one(l->block[1]),
                            op_or_one(l->block[2]) };
    if (CUDA_TRY(c->phys,
                 cuLaunchKernel(k->fn, g[0], g[1], g[2], b[0], b[1], b[2], 0,
                                cuda_stream(env->stream), (void *[]) { l->args }, NULL),
                 err))
        return err_add(err, "%s in %u x %u x %u blocks of %u x %u x %u threads", k->key + 1, g[0],
                       g[1], g[2], b[0], b[1], b[2]);
    return BERTH_OK;
}

berth_status cuda_launch_blocks(const struct op_env *env, enum cuda_module module,
                                const char *kernel, enum dtype type, unsigned blocks,
                                unsigned threads, void *args, berth_err *err)
{
    const struct cuda_launch l = { module, kernel, type, { blocks }, { threads }, args };
    return cuda_launch(env, &l, err);
}
