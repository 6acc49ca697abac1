/* The tensors of a USO projector of any size. */
#pragma once

#include "model/preset.h"

extern const struct preset uso_presets[]; /* of its descriptor */
