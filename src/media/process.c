/* process.c: a helper as seen from outside: started, talked to, stopped. */
#include "media/media_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 120
#define LOOK_MS 100 /* how long an interrupt waits to be seen */

extern char **environ; /* a dynamic linker may need what is in it */

berth_status request_name(char *to, size_t most, const char *from, berth_err *err)
{
    size_t n = from ? strlen(from) : 0;
    if (n >= most)
        return err_set(err, BERTH_EINVAL, "'%.40s...' is more than %zu letters", from, most - 1);
    if (n)
        memcpy(to, from, n);
    to[n] = '\0';
    return BERTH_OK;
}

static int spawn(const char *helper, int sock, int in, int out, pid_t *pid)
{
    char *argv[] = { (char *)(uintptr_t)helper, (char *)(uintptr_t)MEDIA_HELPER, NULL };
    posix_spawn_file_actions_t acts;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int why = posix_spawn_file_actions_init(&acts);
    if (why)
        return why;
    if ((why = posix_spawnattr_init(&attr))) {
        posix_spawn_file_actions_destroy(&acts);
        return why;
    }
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0); /* a Ctrl+C is for the parent, which then stops it */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    /* All four are above 3, so none is overwritten before it is used. */
    why = posix_spawn_file_actions_adddup2(&acts, in, 0);
    if (!why)
        why = posix_spawn_file_actions_adddup2(&acts, sock, 1);
    if (!why && out >= 0)
        why = posix_spawn_file_actions_adddup2(&acts, out, 3);
    if (!why)
        why = posix_spawn(pid, helper, &acts, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&acts);
    posix_spawnattr_destroy(&attr);
    return why;
}

/* A descriptor above those that a helper has. */
static int above(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 8);
}

static int start(const struct media_host *host, int in, int out, struct media_process *p)
{
    int pair[2], null = -1, why = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return errno;
    if (in < 0)
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int a = above(in < 0 ? null : in), b = out >= 0 ? above(out) : -1, s = above(pair[1]);
    if (a < 0 || s < 0 || (out >= 0 && b < 0))
        why = errno;
    if (!why)
        why = spawn(host->helper, s, a, b, &p->pid);
    int drop[] = { null, a, b, s, pair[1] };
    for (size_t i = 0; i < ARRAY_LEN(drop); i++)
        if (drop[i] >= 0)
            close(drop[i]);
    if (why)
        close(pair[0]);
    else
        p->fd = pair[0];
    return why;
}

berth_status process_start(const struct media_host *host, const struct media_request *q, int in,
                           int out, const char *about, struct media_process *p, berth_err *err)
{
    *p = (struct media_process) { .fd = -1, .host = host };
    const char *name = strrchr(about, '/');
    snprintf(p->about, sizeof p->about, "%s", name ? name + 1 : about);
    if (!media_built())
        return err_set(err, BERTH_EUNSUPPORTED, MEDIA_ABSENT);
    if (!host->helper)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%s': files of video and sound are read by a process of their own, and no "
                       "program was named for it (media_helper)",
                       p->about);
    int why = start(host, in, out, p);
    if (why)
        return err_sys(err, why == ENOMEM ? BERTH_ENOMEM : BERTH_EIO, why,
                       "starting '%s' to read or write '%s'", host->helper, p->about);
    struct media_request whole = *q;
    whole.size = sizeof whole;
    struct media_msg hello = { .n = sizeof whole };
    berth_status s = process_send(p, &hello, &whole, err);
    if (s)
        process_end(p);
    return s;
}

/* ---- bytes, with an eye on interrupts and on the clock ---- */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static berth_status ready(struct media_process *p, short events, berth_err *err)
{
    unsigned patience = p->host->patience_s ? p->host->patience_s : PATIENCE_S;
    int64_t until = now_ms() + (int64_t)patience * 1000;
    for (;;) {
        struct pollfd f = { .fd = p->fd, .events = events };
        if (p->host->cancel && atomic_load_explicit(p->host->cancel, memory_order_relaxed))
            return err_set(err, BERTH_ECANCELED, "interrupted");
        int k = poll(&f, 1, LOOK_MS);
        if (k > 0)
            return BERTH_OK;
        if (k < 0 && errno != EINTR)
            return err_sys(err, BERTH_EIO, errno, "waiting for '%s'", p->about);
        if (now_ms() > until)
            return err_set(err, BERTH_ELIMIT, "'%s': nothing happened for %u seconds", p->about,
                           patience);
    }
}

static berth_status put(struct media_process *p, const void *data, size_t n, berth_err *err)
{
    for (const char *at = data; n;) {
        ssize_t k = send(p->fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (ready(p, POLLOUT, err))
                return err->code;
            continue;
        }
        if (k < 0)
            return err_sys(err, BERTH_EIO, errno, "talking to what writes '%s'", p->about);
        at += k;
        n -= (size_t)k;
    }
    return BERTH_OK;
}

berth_status process_data(struct media_process *p, void *to, size_t n, berth_err *err)
{
    for (char *at = to; n;) {
        ssize_t k = recv(p->fd, at, n, MSG_DONTWAIT);
        if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (ready(p, POLLIN, err))
                return err->code;
            continue;
        }
        if (k < 0)
            return err_sys(err, BERTH_EIO, errno, "talking to what reads '%s'", p->about);
        if (!k)
            return err_set(err, BERTH_EIO, "'%s': its helper ended", p->about);
        at += k;
        n -= (size_t)k;
    }
    return BERTH_OK;
}

berth_status process_send(struct media_process *p, const struct media_msg *m, const void *data,
                          berth_err *err)
{
    berth_status s = put(p, m, sizeof *m, err);
    if (!s && m->n)
        s = put(p, data, (size_t)m->n, err);
    return s ? process_why(p, err) : BERTH_OK;
}

berth_status process_texts(struct media_process *p, const struct media_text *text, size_t n,
                           berth_err *err)
{
    struct str s = { 0 };
    berth_status st = BERTH_OK;
    for (size_t i = 0; !st && i < n; i++) {
        size_t key = strlen(text[i].key);
        str_clear(&s);
        str_add(&s, text[i].key, key);
        str_adds(&s, text[i].value);
        struct media_msg m = { .say = SAY_TEXT, .a = (uint32_t)key, .n = s.n };
        st = s.bad ? err_set(err, BERTH_ENOMEM, "tags of '%s'", p->about)
                   : process_send(p, &m, s.p, err);
    }
    str_release(&s);
    return st;
}

/* ---- how it went ---- */

static berth_status failed(struct media_process *p, const struct media_msg *m, berth_err *err)
{
    char text[MEDIA_FAIL_MAX + 1];
    berth_status s = m->a > BERTH_OK && m->a <= BERTH_EBUSY ? (berth_status)m->a : BERTH_EFORMAT;
    if (m->n > MEDIA_FAIL_MAX || process_data(p, text, (size_t)m->n, err))
        return process_nonsense(p, err);
    text[m->n] = '\0';
    return err_set(err, s, "'%s': %s", p->about, text);
}

berth_status process_nonsense(struct media_process *p, berth_err *err)
{
    return err_set(err, BERTH_EFORMAT, "'%s': its helper said what it should not", p->about);
}

berth_status process_next(struct media_process *p, struct media_msg *m, berth_err *err)
{
    if (process_data(p, m, sizeof *m, err))
        return process_why(p, err);
    return m->say == SAY_FAIL ? failed(p, m, err) : BERTH_OK;
}

/* Its exit, if it comes within a second. */
static bool ended(struct media_process *p, int *how)
{
    for (int i = 0; i < 100; i++) {
        pid_t k = waitpid(p->pid, how, WNOHANG);
        if (k == p->pid) {
            p->pid = 0;
            return true;
        }
        if (k < 0 && errno != EINTR)
            return false;
        nanosleep(&(struct timespec) { .tv_nsec = 10000000 }, NULL);
    }
    return false;
}

berth_status process_why(struct media_process *p, berth_err *err)
{
    struct media_msg m;
    berth_err later;
    int how = 0;
    if (err->code != BERTH_EIO)
        return err->code;
    /* What it said before it ended is still there. */
    while (!process_data(p, &m, sizeof m, &later)) {
        char skip[4096];
        if (m.say == SAY_FAIL)
            return failed(p, &m, err);
        for (uint64_t n = m.n; n;) {
            size_t k = n < sizeof skip ? (size_t)n : sizeof skip;
            if (process_data(p, skip, k, &later))
                break;
            n -= k;
        }
    }
    if (p->pid && ended(p, &how)) {
        if (WIFSIGNALED(how) && (WTERMSIG(how) == SIGXCPU || WTERMSIG(how) == SIGKILL))
            return err_set(err, BERTH_ELIMIT, "'%s': its helper was stopped (%s)", p->about,
                           strsignal(WTERMSIG(how)));
        if (WIFSIGNALED(how))
            return err_set(err, BERTH_EFORMAT, "'%s': its helper crashed (%s)", p->about,
                           strsignal(WTERMSIG(how)));
        return err_set(err, BERTH_EFORMAT, "'%s': its helper ended with code %d", p->about,
                       WEXITSTATUS(how));
    }
    return err->code;
}

void process_end(struct media_process *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    if (p->pid <= 0)
        return;
    kill(p->pid, SIGKILL);
    while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    p->pid = 0;
}
