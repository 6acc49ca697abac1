/* body: reads members of JSON bodies of Berth's own routes, and says what is wrong with them. Other
 * bodies are read where they are answered, as ComfyUI reads them. Any thread. */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

/* Is it an object all of whose members are in `known` (ends with NULL)? A misspelt one must not be
 * ignored. BERTH_EINVAL names the member and the known ones. */
berth_status body_check(const json_t *body, const char *const *known, berth_err *err);
bool body_is_one_of(const char *word, const char *const *known);

/* *out is borrowed from the body; "" when it is not there or null. At most ALLOC_TEXT_MAX bytes. */
berth_status body_text(const json_t *body, const char *name, const char **out, berth_err *err);
/* False when it is not there or null. */
berth_status body_bool(const json_t *body, const char *name, bool *out, berth_err *err);

/* The allocation string of "allocation", or of "virtual_vram_gb" with "donor_device" (else "cpu"),
 * computed on "compute"; 0 GB: "", the automatic plan. *given: there is one of them. Appends. */
#define BODY_ALLOCATION "allocation", "virtual_vram_gb", "donor_device", "compute"
berth_status body_allocation(const json_t *body, struct str *out, bool *given, berth_err *err);
