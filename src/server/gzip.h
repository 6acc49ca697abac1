/* gzip: answers packed for clients that ask for it. zlib stops here.
 * Threads     Any; no state. */
#ifndef SERVER_GZIP_H
#define SERVER_GZIP_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

/* Whether an Accept-Encoding header lets us send gzip (RFC 9110 12.5.3: "gzip", "x-gzip" or "*" with
 * a q above 0, a name beats "*"). NULL or "": no header, no packing. A q that is no number is 0. */
bool gzip_accepted(const char *accept_encoding);

/* Appends p packed as one gzip member, without name and time: the same bytes give the same bytes. */
berth_status gzip_pack(const char *p, size_t n, struct str *out, berth_err *err);

#endif
