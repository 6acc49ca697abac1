/* sparse: weight files with a real header and a hole where the tensors would be. Whatever reads
 * headers alone (inspect, plan) cannot tell 24 GB of weights from 24 GB of nothing. */
#ifndef SUPPORT_SPARSE_H
#define SUPPORT_SPARSE_H

#include "format/format_impl.h"
#include "model/preset.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Writes the header of these tensors to fd, an empty file, and makes it as long as it says. */
static inline berth_status sparse_fill(int fd, const struct weights_spec *spec, size_t count,
                                       berth_err *err)
{
    const struct weights_write_args a = { .format = "safetensors", .spec = spec, .count = count };
    struct write_plan p = { .size = calloc(count, sizeof *p.size),
                            .off = calloc(count, sizeof *p.off) };
    berth_status s = p.size && p.off ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%zu tensors", count);
    for (size_t i = 0; !s && i < count; i++) {
        uint64_t n;
        if (!shape_count(&spec[i].shape, &n) || !dtype_bytes(spec[i].dtype, n, &p.size[i]))
            s = err_set(err, BERTH_ELIMIT, "'%s' is too large", spec[i].name);
    }
    if (!s)
        s = weights_writer_find(a.format)->plan(&a, &p, err);
    if (!s &&
        (write(fd, p.header.p, p.header.n) != (ssize_t)p.header.n || ftruncate(fd, (off_t)p.total)))
        s = err_sys(err, BERTH_EIO, errno, "%llu sparse bytes", (unsigned long long)p.total);
    str_release(&p.header);
    free(p.size);
    free(p.off);
    return s;
}

static inline berth_status sparse_keys(const char *path, const struct keys *k, enum dtype t,
                                       berth_err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_sys(err, BERTH_EIO, errno, "'%s'", path);
    struct weights_spec *spec = calloc(k->n ? k->n : 1, sizeof *spec);
    for (size_t i = 0; spec && i < k->n; i++)
        spec[i] =
            (struct weights_spec) { .name = k->at[i].name, .dtype = t, .shape = k->at[i].shape };
    berth_status s =
        spec ? sparse_fill(fd, spec, k->n, err) : err_set(err, BERTH_ENOMEM, "%zu tensors", k->n);
    free(spec);
    close(fd);
    return s;
}

static inline berth_status sparse_preset(const char *path, const char *name, enum dtype t,
                                         berth_err *err)
{
    struct keys k = { 0 };
    const struct preset *p = preset_find(name);
    if (!p)
        return err_set(err, BERTH_ENOTFOUND, "no preset '%s'", name);
    if (preset_keys(p, &k, err))
        return err->code;
    berth_status s = sparse_keys(path, &k, t, err);
    keys_release(&k);
    return s;
}

#endif
