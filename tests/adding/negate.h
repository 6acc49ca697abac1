/* negate: an op as docs/adding.md tells it, with a header of its own. */
#ifndef ADDING_NEGATE_H
#define ADDING_NEGATE_H

#include "tensor/tensor.h"

/* y = -x, which y may be */
struct op_negate {
    struct view x, y;
};

#endif
