/* pyformat: str.format() of Python over the members of an input that grows. */
#pragma once

#include "node/texts.h"

/* t with its fields filled from the members of `group`, appended. An error is what Python raises;
 * BERTH_ELIMIT for fields wider than 4096 and texts beyond TEXT_MAX. */
berth_status py_format(struct node_call *c, struct text t, const char *group, struct str *out,
                       berth_err *err);
