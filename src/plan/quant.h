/* quant: are the weights of a file stored in a way that can be computed? Loaders ask it of a file's
 * header before anything is loaded.
 *
 * Known    plain floats, GGUF's blocks, and the layouts of format/layout.h.
 * Refused  BERTH_EUNSUPPORTED names the layer and its layout or type. BERTH_EFORMAT: a marker
 *          cannot be read, parts do not fit, or a scale is 0 or not finite.
 * Threads  Any. */
#pragma once

#include "format/weights.h"

/* All weights behind `root` (NULL: of the whole file). */
berth_status quant_check(const struct weights *w, const char *root, berth_err *err);
