#include "graph/graph.h"

void py_repr(const json_t *v, struct str *out)
{
    js_write(v, 0, out);
}

void py_str(const json_t *v, struct str *out)
{
    js_write(v, 0, out);
}
