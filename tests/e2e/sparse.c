/* sparse PRESET DTYPE PATH: a safetensors file of that preset without its bytes, see
 * support/sparse.h. sparse --blocks N PATH: the same of N layers that no family knows. */
#include "support/sparse.h"

static berth_status many(const char *path, size_t n, berth_err *err)
{
    struct keys k = { 0 };
    char name[64];
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "stack.%zu.weight", i);
        keys_tensor(&k, name, 1024, 64 + i % 64, 0, 0);
    }
    berth_status s =
        k.bad ? err_set(err, BERTH_ENOMEM, "%zu layers", n) : sparse_keys(path, &k, DT_F16, err);
    keys_release(&k);
    return s;
}

int main(int argc, char **argv)
{
    berth_err err;
    uint64_t n;
    berth_status s = BERTH_EINVAL;
    if (argc == 4 && !strcmp(argv[1], "--blocks") && str_parse_u64(argv[2], strlen(argv[2]), &n) &&
        n && n <= 1000000)
        s = many(argv[3], (size_t)n, &err);
    else if (argc == 4 && dtype_by_name(argv[2], strlen(argv[2])) != DT_NONE)
        s = sparse_preset(argv[3], argv[1], dtype_by_name(argv[2], strlen(argv[2])), &err);
    else
        err_set(&err, BERTH_EINVAL, "usage: sparse PRESET DTYPE PATH | sparse --blocks N PATH");
    if (s)
        fprintf(stderr, "sparse: %s\n", err.msg);
    return s ? 1 : 0;
}
