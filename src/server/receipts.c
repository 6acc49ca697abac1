/* receipts: what the last frees did, whoever asked for them, for GET /berth/receipts. */
#include "server/worker_impl.h"

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
    struct jsonout j = { .out = out };
    jo_open(&j, NULL, '{');
    jo_open(&j, "receipts", '[');
    pthread_mutex_lock(&w->lock);
    size_t n = w->receipts < RECEIPTS_MAX ? w->receipts : RECEIPTS_MAX;
    for (size_t i = 0; i < n; i++) {
        const struct receipt_text *x = &w->receipt[(w->receipts - 1 - i) % RECEIPTS_MAX];
        jo_open(&j, NULL, '{');
        jo_u64(&j, "time", x->time);
        jo_raw(&j, NULL, x->text.p + 1, x->text.n - 1); /* without its brace, which is open */
        j.depth--;
    }
    pthread_mutex_unlock(&w->lock);
    jo_close(&j, ']');
    jo_close(&j, '}');
}
