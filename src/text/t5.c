/* t5.c: the T5 encoder (text-encoders.md 7). */
#include "text/encoder.h"

static berth_status not_yet(berth_err *err)
{
    return err_set(err, BERTH_EUNSUPPORTED, "T5: not there yet");
}

berth_status t5_detect(const struct weights *w, const char *root, struct t5_net *out,
                       berth_err *err)
{
    (void)w, (void)root, (void)out;
    return not_yet(err);
}

net_names_fn *t5_names(const struct t5_net *t)
{
    (void)t;
    return NULL;
}

berth_status t5_check(struct net *net, const struct t5_net *t, berth_err *err)
{
    (void)net, (void)t;
    return not_yet(err);
}

berth_status t5_encode(struct net *net, const struct t5_net *t, const struct chunks *in, int layer,
                       float *z, size_t *dropped, berth_err *err)
{
    (void)net, (void)t, (void)in, (void)layer, (void)z, (void)dropped;
    return not_yet(err);
}
