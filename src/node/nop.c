/* nop.c: wanBlockSwap: a node of others that ComfyUI has taken over to do nothing. Here plans place
 * blocks. */
#include "node/node_impl.h"

static berth_status pass_run(struct node_call *c, berth_err *err)
{
    const struct model_ref *m;
    return in_model(c, "model", &m, err) ? err->code
                                         : out_value(c, 0, value_ref(in_value(c, "model")), err);
}

NODE_CLASS(wanBlockSwap, .category = "", .module = MOD("nop"), .flags = NODE_V3 | NODE_DEPRECATED,
           .description = "Does nothing: placing blocks needs no node.",
           INS(SOCKET("model", "MODEL")), OUT_OF("MODEL"), .run = pass_run);
