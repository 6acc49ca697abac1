/* Pickles: PyTorch's .ckpt, .pt, .pth and .bin. Recognised so that the refusal can say why.
 *
 * A pickle is a program for a small machine that may call any Python function: loading one runs it.
 * We have no such machine and want none. */
#include "format/format_impl.h"

/* A ZIP archive as torch.save() writes it: the first member is <root>/data.pkl. */
static bool is_torch_zip(const uint8_t *head, size_t n)
{
    enum { NAME_AT = 30 }; /* a local file header up to its name */
    if (n < NAME_AT || memcmp(head, "PK\3\4", 4) != 0)
        return false;
    size_t len = (size_t)head[26] | (size_t)head[27] << 8;
    return len <= n - NAME_AT && str_ends((const char *)head + NAME_AT, len, "/data.pkl");
}

/* A bare pickle of protocol 2 to 5, which is also how torch files before 2020 begin. */
static bool is_pickle(const uint8_t *head, size_t n)
{
    return n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
}

static bool probe(const uint8_t *head, size_t n)
{
    return is_torch_zip(head, n) || is_pickle(head, n);
}

static berth_status pickle_open(struct opening *o, uint32_t shard, berth_err *err)
{
    const struct shard *f = open_shard_at(o, shard);
    const char *what = is_torch_zip(f->data, f->size) ? "a PyTorch ZIP with a pickle inside"
                       : is_pickle(f->data, f->size)  ? "a Python pickle"
                                                      : "named like a PyTorch pickle";
    return err_set(
        err, BERTH_EUNSUPPORTED,
        "%s. Loading a pickle can run any program, so it is never done here. Take the .safetensors "
        "version, or convert on a machine you trust: python -c \"import torch,safetensors.torch as "
        "s;"
        "d=torch.load('IN','cpu',weights_only=True);s.save_file({k:v.contiguous().clone() for k,v "
        "in "
        "d.get('state_dict',d).items()},'OUT.safetensors')\"",
        what);
}

const struct format format_pickle = {
    .name = "pickle",
    .ext = ".ckpt .pt .pth .bin .pkl",
    .probe = probe,
    .open = pickle_open,
};
