/* Signals belong to the process, and so does what they leave behind: the one state of app/ that is
 * not on a stack. */
#include "app/app.h"

#include <signal.h>

static atomic_bool stop;
static atomic_int caught, count;
static void (*_Atomic notify)(void *user);
static void *_Atomic notify_user;

static void on_signal(int sig)
{
    atomic_store(&caught, sig);
    atomic_fetch_add(&count, 1);
    atomic_store(&stop, true);
    void (*fn)(void *) = atomic_load(&notify);
    if (fn)
        fn(atomic_load(&notify_user));
}

void signals_notify(void (*fn)(void *user), void *user)
{
    atomic_store(&notify, NULL);
    atomic_store(&notify_user, user);
    atomic_store(&notify, fn);
}

const atomic_bool *signals_watch(void)
{
    static const int watched[] = { SIGINT, SIGTERM, SIGHUP };
    for (size_t i = 0; i < ARRAY_LEN(watched); i++) {
        struct sigaction old, now = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
        sigemptyset(&now.sa_mask);
        /* Ignored since before we started (nohup, a background job): stays ignored. */
        if (!sigaction(watched[i], NULL, &old) && old.sa_handler != SIG_IGN)
            sigaction(watched[i], &now, NULL);
    }
    return &stop;
}

int signals_caught(void)
{
    return atomic_load(&caught);
}

int signals_count(void)
{
    return atomic_load(&count);
}
