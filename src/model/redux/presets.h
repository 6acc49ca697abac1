/* The tensors of Redux models of any size. */
#pragma once

#include "model/preset.h"

extern const struct preset redux_presets[]; /* of its descriptor */
