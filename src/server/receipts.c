/* receipts: what the last frees did, whoever asked for them, for GET /berth/receipts. */
#include "server/worker_impl.h"

#include <inttypes.h>

void receipts_add(struct worker *w, const struct res_receipt *x)
{
    struct receipt_text now = { .time = clock_wall_ns(w->clock) / 1000000 };
    if (!x->serial) /* nothing was freed, or only looked at */
        return;
    res_receipt_json(x, &now.text);
    if (now.text.bad) { /* it was told to who asked, or not even that */
        worker_add(w, COUNT_DROPPED, 1);
        str_release(&now.text);
        return;
    }
    pthread_mutex_lock(&w->lock);
    struct receipt_text *at = &w->receipt[w->receipts++ % RECEIPTS_MAX], old = *at;
    *at = now;
    pthread_mutex_unlock(&w->lock);
    str_release(&old.text);
    w->receipt_last = x->serial;
}

void receipts_release(struct worker *w)
{
    for (size_t i = 0; i < RECEIPTS_MAX; i++)
        str_release(&w->receipt[i].text);
}

void worker_receipts_json(struct server *s, struct str *out)
{
    struct worker *w = s->worker;
    str_adds(out, "{\"receipts\":[");
    pthread_mutex_lock(&w->lock);
    size_t n = w->receipts < RECEIPTS_MAX ? w->receipts : RECEIPTS_MAX;
    for (size_t i = 0; i < n; i++) {
        const struct receipt_text *x = &w->receipt[(w->receipts - 1 - i) % RECEIPTS_MAX];
        str_addf(out, "%s{\"time\":%" PRIu64 ",", i ? "," : "", x->time);
        str_add(out, x->text.p + 1, x->text.n - 1); /* behind its brace */
    }
    pthread_mutex_unlock(&w->lock);
    str_adds(out, "]}");
}
