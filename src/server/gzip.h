/* gzip: packs answers for clients that accept it. zlib stops here.
 * Threads    Any; no state. */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* Does this Accept-Encoding header allow gzip (RFC 9110 12.5.3: "gzip", "x-gzip" or "*" with q > 0;
 * a name beats "*")? NULL or "": no. A q that is not a number counts as 0. */
bool gzip_accepted(const char *accept_encoding);

/* Appends p as one gzip member without name and time, so that the result is reproducible. */
berth_status gzip_pack(const char *p, size_t n, struct str *out, berth_err *err);
