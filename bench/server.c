/* bench/server: the program's server through its sockets, as clients see it.
 *
 * Start, idle memory, prompts per second with everything durable, a free that waits, and what idle
 * WebSockets cost. One reference in the same run: how many times a second this disk writes 4 KiB
 * and says so (fdatasync), which is what one prompt after another without group commit could reach
 * at best. The server is the one built beside this program. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROMPTS 5000
#define POSTERS 4
#define SOCKETS 2000
#define STARTS 7
#define FREES 50

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "bench/server: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- the server ---- */

struct server {
    pid_t pid;
    unsigned port;
};

static unsigned free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) || getsockname(fd, (struct sockaddr *)&a, &n))
        die("a port");
    close(fd);
    return ntohs(a.sin_port);
}

static struct server start(const char *binary, const char *base)
{
    struct server s = { .port = free_port() };
    char port[8];
    snprintf(port, sizeof port, "%u", s.port);
    s.pid = fork();
    if (s.pid < 0)
        die("fork");
    if (!s.pid) {
        char log[4096]; /* it is written, as people have it */
        snprintf(log, sizeof log, "%s/log", base);
        int null = open("/dev/null", O_RDWR), to = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(null, STDOUT_FILENO);
        dup2(to < 0 ? null : to, STDERR_FILENO);
        execl(binary, binary, "serve", "--base-directory", base, "--port", port, "--cpu",
              (char *)NULL);
        _exit(127);
    }
    return s;
}

static void stop(struct server *s)
{
    int status;
    kill(s->pid, SIGTERM);
    waitpid(s->pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fprintf(stderr, "bench/server: the server ended with status %x\n", (unsigned)status);
}

static int try_connect(unsigned port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        die("socket");
    if (!connect(fd, (struct sockaddr *)&a, sizeof a))
        return fd;
    close(fd);
    return -1;
}

static int dial(unsigned port)
{
    int fd = try_connect(port);
    if (fd < 0)
        die("connect");
    return fd;
}

static void send_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0)
            die("send");
        p += k;
        n -= (size_t)k;
    }
}

/* One answer with a Content-Length on a kept connection; returns its status. */
static int answer(int fd)
{
    char buf[65536];
    size_t n = 0;
    for (;;) {
        ssize_t k = recv(fd, buf + n, sizeof buf - 1 - n, 0);
        if (k <= 0)
            return -1;
        n += (size_t)k;
        buf[n] = '\0';
        char *end = strstr(buf, "\r\n\r\n"), *len = strcasestr(buf, "content-length:");
        if (!end)
            continue;
        size_t want = len && len < end ? strtoul(len + 15, NULL, 10) : 0;
        if (n >= (size_t)(end + 4 - buf) + want)
            return (int)strtol(buf + 9, NULL, 10);
        if ((size_t)(end + 4 - buf) + want >= sizeof buf)
            return -1;
    }
}

static int request(int fd, const char *method, const char *path, const char *body)
{
    char text[4096];
    int n = snprintf(text, sizeof text,
                     "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n%s", method,
                     path, strlen(body), body);
    send_all(fd, text, (size_t)n);
    return answer(fd);
}

static int open_socket(unsigned port, const char *id)
{
    char text[512], got[4096];
    int fd = dial(port);
    int n = snprintf(text, sizeof text,
                     "GET /ws?clientId=%s HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                     id);
    send_all(fd, text, (size_t)n);
    ssize_t k = recv(fd, got, sizeof got, 0); /* 101 and perhaps the first status */
    if (k < 12 || memcmp(got, "HTTP/1.1 101", 12) != 0)
        die("no WebSocket");
    return fd;
}

static double rss_mib(pid_t pid)
{
    char path[64], line[256];
    double kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6))
            kib = strtod(line + 6, NULL);
    if (f)
        fclose(f);
    return kib / 1024;
}

/* exec to the first 200, ms */
static double first_answer(const char *binary, const char *base, struct server *out)
{
    double t = bench_now_ms();
    *out = start(binary, base);
    for (;;) {
        int fd = try_connect(out->port);
        if (fd >= 0) {
            int status = request(fd, "GET", "/prompt", "");
            close(fd);
            if (status == 200)
                return bench_now_ms() - t;
        }
        if (bench_now_ms() - t > 10000)
            die("the server does not answer");
        usleep(200);
    }
}

/* ---- prompts ---- */

struct load {
    unsigned port;
    atomic_int next, refused;
    int ws;
    double done_ms;
};

static void *post(void *user)
{
    struct load *l = user;
    int fd = dial(l->port);
    char body[1024];
    for (int i; (i = atomic_fetch_add(&l->next, 1)) < PROMPTS;) {
        snprintf(body, sizeof body,
                 "{\"client_id\":\"bench\",\"prompt\":{"
                 "\"1\":{\"class_type\":\"EmptyImage\",\"inputs\":{\"width\":16,\"height\":16,"
                 "\"batch_size\":1,\"color\":%d}},"
                 "\"2\":{\"class_type\":\"ImageInvert\",\"inputs\":{\"image\":[\"1\",0]}},"
                 "\"3\":{\"class_type\":\"SaveImage\",\"inputs\":{\"images\":[\"2\",0],"
                 "\"filename_prefix\":\"bench/p\"}}}}",
                 i);
        if (request(fd, "POST", "/prompt", body) != 200)
            atomic_fetch_add(&l->refused, 1);
    }
    close(fd);
    return NULL;
}

/* Counts "executing" messages with a null node: each is a finished prompt in the history. */
static void *listen_done(void *user)
{
    static const char mark[] = "\"node\":null";
    struct load *l = user;
    char buf[65536];
    size_t matched = 0;
    int seen = 0;
    while (seen < PROMPTS) {
        ssize_t n = recv(l->ws, buf, sizeof buf, 0);
        if (n <= 0)
            die("the WebSocket closed");
        for (ssize_t i = 0; i < n; i++) {
            matched = buf[i] == mark[matched] ? matched + 1 : buf[i] == mark[0];
            if (matched == sizeof mark - 1) {
                seen++;
                matched = 0;
            }
        }
    }
    l->done_ms = bench_now_ms();
    return NULL;
}

static double prompts_per_second(const struct server *s, int *refused)
{
    struct load l = { .port = s->port, .ws = open_socket(s->port, "bench") };
    pthread_t poster[POSTERS], listener;
    double t = bench_now_ms();
    if (pthread_create(&listener, NULL, listen_done, &l))
        die("thread");
    for (int i = 0; i < POSTERS; i++)
        if (pthread_create(&poster[i], NULL, post, &l))
            die("thread");
    for (int i = 0; i < POSTERS; i++)
        pthread_join(poster[i], NULL);
    *refused = atomic_load(&l.refused);
    if (*refused)
        die("prompts were refused");
    pthread_join(listener, NULL);
    close(l.ws);
    return PROMPTS / ((l.done_ms - t) / 1000);
}

static double syncs_per_second(const char *dir)
{
    char path[256], block[4096] = "x";
    snprintf(path, sizeof path, "%s/sync", dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600), n = 0;
    if (fd < 0)
        die(path);
    double t = bench_now_ms();
    for (; bench_now_ms() - t < 1000; n++)
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block || fdatasync(fd))
            die("fdatasync");
    double rate = n / ((bench_now_ms() - t) / 1000);
    close(fd);
    return rate;
}

static double free_ms(const struct server *s)
{
    double t[FREES];
    int fd = dial(s->port);
    for (int i = 0; i < FREES; i++) {
        double begin = bench_now_ms();
        if (request(fd, "POST", "/free",
                    "{\"unload_models\":true,\"free_memory\":true,\"wait\":true}") != 200)
            die("/free");
        t[i] = bench_now_ms() - begin;
    }
    close(fd);
    return bench_median(t, FREES);
}

static double sockets_mib(const struct server *s)
{
    static int fd[SOCKETS];
    double before = rss_mib(s->pid);
    char id[32];
    for (int i = 0; i < SOCKETS; i++) {
        snprintf(id, sizeof id, "idle%d", i);
        fd[i] = open_socket(s->port, id);
    }
    usleep(300000);
    double more = rss_mib(s->pid) - before;
    int work = dial(s->port);
    if (request(work, "GET", "/prompt", "") != 200)
        die("a client among idle ones");
    close(work);
    for (int i = 0; i < SOCKETS; i++)
        close(fd[i]);
    return more;
}

/* ---- all of it ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static void beside(char *out, size_t n, const char *argv0)
{
    const char *slash = strrchr(argv0, '/');
    snprintf(out, n, "%.*s/../berth", slash ? (int)(slash - argv0) : 1, slash ? argv0 : ".");
}

int main(int argc, char **argv)
{
    bool json;
    int rc = bench_args(argc, argv, "usage: server [--json]\n", &json);
    if (rc >= 0)
        return rc;
    char binary[4096], base[] = "/tmp/berth-bench-XXXXXX";
    beside(binary, sizeof binary, argv[0]);
    struct rlimit lim;
    if (!getrlimit(RLIMIT_NOFILE, &lim)) {
        lim.rlim_cur = lim.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &lim);
    }
    if (access(binary, X_OK) || !mkdtemp(base))
        die(binary);
    struct server s;
    double starts[STARTS];
    for (int i = 0; i < STARTS; i++) {
        starts[i] = first_answer(binary, base, &s);
        if (i + 1 < STARTS)
            stop(&s);
    }
    usleep(500000);
    double idle = rss_mib(s.pid), frees = free_ms(&s), sockets = sockets_mib(&s);
    double disk = syncs_per_second(base);
    int refused;
    double rate = prompts_per_second(&s, &refused), after = rss_mib(s.pid);
    stop(&s);
    nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    double ms = bench_median(starts, STARTS);
    if (json) {
        printf("{\"first_200_ms\":%.2f,\"idle_rss_mib\":%.1f,\"free_wait_ms\":%.3f,"
               "\"idle_sockets\":%d,\"idle_sockets_mib\":%.1f,\"prompts\":%d,"
               "\"prompts_per_s\":%.0f,\"fdatasync_per_s\":%.0f,\"rss_after_mib\":%.1f}\n",
               ms, idle, frees, SOCKETS, sockets, PROMPTS, rate, disk, after);
        return 0;
    }
    printf("exec to the first 200            %8.1f ms   (bar: under 100; median of %d)\n", ms,
           STARTS);
    printf("idle RSS                         %8.1f MiB  (bar: under 38 MiB)\n", idle);
    printf("/free with wait, idle            %8.3f ms   (bar: under 20; median of %d)\n", frees,
           FREES);
    printf("%d idle WebSockets             %8.1f MiB  (bar: under 38 MiB)\n", SOCKETS, sockets);
    printf("%d durable prompts, %d clients  %8.0f /s    (bar: at least 500)\n", PROMPTS, POSTERS,
           rate);
    printf("  4 KiB fdatasync, one by one    %8.0f /s    ratio %.2f\n", disk, rate / disk);
    printf("  RSS afterwards                 %8.1f MiB\n", after);
    return 0;
}
