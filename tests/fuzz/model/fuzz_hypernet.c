/* Any bytes as a hypernetwork: refused, or layers that lead from a width back to it. */
#include "format/format_impl.h"
#include "model/hypernet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void need(bool ok)
{
    if (!ok)
        abort();
}

static void check_net(const struct hyper_net *net, uint64_t dim)
{
    volatile float seen = 0;
    uint64_t width = dim;
    need(net->steps > 0 && net->steps <= HYPER_STEPS_MAX);
    for (size_t i = 0; i < net->steps; i++) {
        const struct hyper_step *s = &net->step[i];
        if (s->kind == HYPER_ACTIVATION)
            continue;
        need(s->in == width);
        for (uint64_t k = 0; k < (s->kind == HYPER_NORM ? s->in : s->in * s->out); k++)
            seen += s->w[k];
        for (uint64_t k = 0; k < s->out; k++)
            seen += s->b[k];
        width = s->out;
    }
    need(width == dim);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct weights_file file = { .name = "fuzz.pt", .data = data, .size = n };
    struct weights *w = NULL;
    struct hypernet *h = NULL;
    berth_err err = { 0 };
    if (weights_open_memory(&file, 1, NULL, &w, &err))
        return 0; /* that door has fuzzers of its own */
    if (hypernet_read(w, &h, &err))
        need(!h && err.msg[0]);
    for (size_t i = 0; h && i < h->n; i++)
        for (int k = 0; k < 2; k++)
            check_net(&h->at[i].of[k], h->at[i].dim);
    hypernet_free(h);
    weights_close(w);
    return 0;
}
