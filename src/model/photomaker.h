/* photomaker: whoever is in a picture, put into a prompt of SDXL (PhotoMaker).
 *
 * A file has CLIP's encoder of pictures with two projections, side by side as wide as a token of
 * the prompt, and a small network ("fuse_module") that makes a new token of an old one and of what
 * was seen. It may stand behind "id_encoder.", beside adapters.
 *
 * Threads  Executor; photomaker_part() any. */
#pragma once

#include "model/vision.h"

struct photomaker {
    struct vision_net v; /* its embeds are not projected */
    uint64_t width;      /* of a token */
};

/* What stands in front of its names: "" or "id_encoder."; NULL: it is none. */
const char *photomaker_part(const struct weights *w);
/* a: all but root and names. *p stays where it is until net_close(). BERTH_EUNSUPPORTED: says
 * why. */
berth_status photomaker_open(const struct net_args *a, const char *part, struct photomaker *p,
                             struct net **out, berth_err *err);
/* The first picture of the job, whose results are not looked at, in a token [width]: in its
 * place. */
berth_status photomaker_fuse(struct net *net, const struct photomaker *p,
                             const struct vision_job *j, float *token, berth_err *err);
