/* base64: as JSON files carry bytes (RFC 4648, with padding). For text/ alone. */
#pragma once

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>

/* In place: three bytes for each four characters; *out of them. False: this is no base64. */
WARN_UNUSED bool base64_decode(char *s, size_t n, size_t *out);
