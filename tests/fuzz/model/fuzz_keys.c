/* Any text as a --keys file; what is accepted must be ready to be laid out and filled. */
#include "model/synth.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_key(const struct key *k)
{
    uint64_t count;
    float value[4];
    if (!k->name_len || strlen(k->name) != k->name_len || !shape_count(&k->shape, &count) ||
        count != k->count)
        abort();
    synth_fill(k->name, k->name_len, &k->shape, 0, count < 4 ? (size_t)count : 4, value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct keys k = { 0 };
    berth_err err = { 0 };
    if (keys_parse((const char *)data, n, &k, &err)) {
        if (!err.msg[0] || k.n)
            abort();
        return 0;
    }
    uint64_t params = 0;
    for (size_t i = 0; i < k.n; i++) {
        check_key(&k.at[i]);
        params += k.at[i].count;
    }
    const struct weights_writer *f;
    for (size_t i = 0; (f = weights_writer_at(i)); i++) {
        struct synth s;
        if (synth_init(&s, &k, f->mixed ? DT_Q8_0 : DT_BF16, f, NULL, NULL, &err) == BERTH_OK)
            synth_release(&s);
    }
    if (!k.n || params != k.params)
        abort();
    keys_release(&k);
    return 0;
}
