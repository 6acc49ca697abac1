/* data_bytes: the sizes of all tensors of a file together. */
#ifndef SUPPORT_DATA_BYTES_H
#define SUPPORT_DATA_BYTES_H

#include "format/weights.h"

static inline uint64_t data_bytes(const struct weights *w)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < weights_count(w); i++)
        sum += weights_at(w, i)->size;
    return sum;
}

#endif
