/* quant: are the weights of a file stored in a way that can be computed? Loaders ask it of a file's
 * header before anything is loaded, networks of the layers they use.
 *
 * Told     by metadata (_quantization_metadata), by markers beside weights (<layer>.comfy_quant, a
 *          few bytes of JSON that are read), by types and shapes of weights and scales.
 * Known    plain floats, GGUF's blocks, and layouts in which a value is the stored number times the
 *          one number beside it (scaled fp8). Tables that are looked up have no such number.
 * Refused  BERTH_EUNSUPPORTED names the layer and its layout; what cannot be read as a marker is
 *          BERTH_EFORMAT.
 * Threads  Any. */
#pragma once

#include "format/weights.h"

/* All weights behind `root` (NULL: of the whole file). */
berth_status quant_check(const struct weights *w, const char *root, berth_err *err);

/* Its pieces, for callers that know which layers are used. */
berth_status quant_check_metadata(const struct weights *w, const char *root, berth_err *err);
/* marker: the tensor <layer>.comfy_quant */
berth_status quant_check_marker(const struct weights *w, const struct weights_entry *marker,
                                berth_err *err);
