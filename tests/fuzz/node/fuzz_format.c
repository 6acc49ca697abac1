/* Format strings from strangers, over values of every kind that a link can bring. */
#include "node/pyformat.h"
#include "support/node_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct node_rig r;
    static bool open;
    if (!open) {
        rig_open(&r);
        open = true;
    }
    rig_node(&r, "StringFormat");
    rig_set(&r, "f_string", value_string((const char *)data, n));
    rig_int(&r, "values.a", -1234567);
    rig_float(&r, "values.b", 3.25e10);
    rig_text(&r, "values.c", "caf\xc3\xa9");
    rig_bool(&r, "values.d", true);
    rig_set(&r, "values.e", value_json(json_pack("{s:[i,s]}", "k", 1, "x")));
    rig_set(&r, "values.f", value_null());
    r.err = (berth_err) { 0 };
    if (rig_run(&r) && !r.err.msg[0])
        abort();
    rig_clear(&r);
    return 0;
}
