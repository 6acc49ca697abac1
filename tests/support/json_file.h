/* json_file: a JSON file that a test brings along. */
#ifndef SUPPORT_JSON_FILE_H
#define SUPPORT_JSON_FILE_H

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>

/* As js_parse(); errors name the file. */
static inline berth_status js_parse_file(const char *path, const struct js_limits *lim,
                                         json_t **out, berth_err *err)
{
    char *text;
    size_t n;
    *out = NULL;
    berth_status s =
        file_read_all(path, lim ? lim->max_bytes : js_limits_default.max_bytes, &text, &n, err);
    if (s)
        return s;
    s = js_parse(text, n, lim, out, err);
    free(text);
    return s ? err_add(err, "'%s'", path) : BERTH_OK;
}

#endif
