/* store: jobs a second through add, take and finish, durable, one worker, as a server does it.
 *
 * In the same run a plain loop of write and fdatasync in the same folder: what one job per sync
 * would give at best. The bar is ours: six times the server's, so that the store is not what holds
 * it up. */
#include "store/store.h"
#include "bench.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { JOBS = 5000, SYNCS = 300, BAR = 3000 };

static const char usage[] =
    "usage: store [--json]\n"
    "Jobs a second through add, take and finish, durable, next to a plain loop of fdatasync.\n"
    "Writes some 100 MiB to $TMPDIR; takes a few seconds.\n";

struct told {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    size_t n, failed;
};

static void done(void *user, berth_status st, const berth_err *err)
{
    struct told *t = user;
    (void)err;
    pthread_mutex_lock(&t->lock);
    t->n++;
    t->failed += st != BERTH_OK;
    pthread_cond_signal(&t->cond);
    pthread_mutex_unlock(&t->lock);
}

static char *copy(const char *p)
{
    char *c = strdup(p);
    if (!c)
        abort();
    return c;
}

/* A small image workflow, as a script sends it: about 700 bytes. */
static struct store_job make_job(size_t i)
{
    char id[40], number[24], prompt[800];
    snprintf(id, sizeof id, "%08zx-e89b-42d3-a456-426614174000", i * 2654435761u % 4294967291u);
    snprintf(number, sizeof number, "%zu", i);
    snprintf(prompt, sizeof prompt,
             "{\"1\":{\"class_type\":\"EmptyImage\",\"inputs\":{\"width\":64,\"height\":64,"
             "\"batch_size\":1,\"color\":%zu}},\"2\":{\"class_type\":\"ImageInvert\",\"inputs\":"
             "{\"image\":[\"1\",0]}},\"3\":{\"class_type\":\"PreviewImage\",\"inputs\":"
             "{\"images\":[\"2\",0]},\"_meta\":{\"title\":\"%400d\"}}}",
             i, 0);
    return (struct store_job) { .id = copy(id),
                                .number = copy(number),
                                .order = (double)i,
                                .prompt = copy(prompt),
                                .extra_data = copy("{\"client_id\":\"bench\",\"create_time\":1}"),
                                .outputs = copy("[\"3\"]"),
                                .client_id = copy("bench") };
}

struct adder {
    struct store *s;
    struct told *told;
    berth_status st;
};

/* At most 64 are under way, as with 64 clients that wait for their answers. */
static void *add_all(void *arg)
{
    struct adder *a = arg;
    berth_err err;
    for (size_t i = 0; i < JOBS && !a->st; i++) {
        struct store_job j = make_job(i);
        a->st = store_add(a->s, &j, done, a->told, &err);
        pthread_mutex_lock(&a->told->lock);
        while (!a->st && i + 1 >= a->told->n + 64)
            pthread_cond_wait(&a->told->cond, &a->told->lock);
        pthread_mutex_unlock(&a->told->lock);
    }
    return NULL;
}

static berth_status run_all(struct store *s, berth_err *err)
{
    static const struct store_result r = {
        "{\"3\":{\"images\":[{\"filename\":\"a.png\",\"subfolder\":\"\",\"type\":\"temp\"}]}}",
        "{\"status_str\":\"success\",\"completed\":true,\"messages\":[]}",
        "{\"3\":{\"node_id\":\"3\",\"display_node\":\"3\",\"parent_node\":null}}"
    };
    uint64_t wakes = 0;
    for (size_t i = 0; i < JOBS;) {
        struct store_job j;
        bool got;
        if (store_take(s, &wakes, UINT64_MAX, &j, &got, err))
            return err->code;
        berth_status st = got ? store_finish(s, j.seq, j.attempt, &r, err) : BERTH_OK;
        store_job_release(&j);
        if (st)
            return st;
        i += got;
    }
    return BERTH_OK;
}

/* Jobs a second. */
static berth_status measure(const char *path, double *per_s, berth_err *err)
{
    struct store_config cfg = { .path = path };
    struct told told = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
    struct adder a = { .told = &told };
    pthread_t adder;
    if (store_open(&cfg, &a.s, err))
        return err->code;
    double t = bench_now_ms();
    if (pthread_create(&adder, NULL, add_all, &a)) {
        store_close(a.s);
        return err_set(err, BERTH_ENOMEM, "a thread");
    }
    berth_status st = run_all(a.s, err);
    pthread_join(adder, NULL);
    *per_s = JOBS / (bench_now_ms() - t) * 1000;
    if (!st && (a.st || told.failed || store_history_count(a.s) != JOBS))
        st = err_set(err, BERTH_EIO, "%zu of %d jobs were lost", told.failed, JOBS);
    store_close(a.s);
    return st;
}

static berth_status measure_syncs(const char *path, double *per_s, berth_err *err)
{
    static const char page[4096] = { 'x' };
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, BERTH_EIO, "'%s'", path);
    bool ok = true;
    double t = bench_now_ms();
    for (int i = 0; i < SYNCS; i++)
        ok = ok && write(fd, page, sizeof page) == (ssize_t)sizeof page && !fdatasync(fd);
    *per_s = SYNCS / (bench_now_ms() - t) * 1000;
    close(fd);
    return ok ? BERTH_OK : err_set(err, BERTH_EIO, "writing '%s'", path);
}

static void remove_all(const char *path)
{
    static const char *const ends[] = { "", "-wal", "-shm", ".lock" };
    char name[600];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

int main(int argc, char **argv)
{
    bool json;
    int code = bench_args(argc, argv, usage, &json);
    if (code >= 0)
        return code;
    const char *dir = getenv("TMPDIR");
    char path[512];
    double syncs = 0, jobs = 0;
    berth_err err;
    snprintf(path, sizeof path, "%s/berth-store-%ld.db", dir && *dir ? dir : "/tmp",
             (long)getpid());
    berth_status st = measure_syncs(path, &syncs, &err);
    remove_all(path);
    if (!st)
        st = measure(path, &jobs, &err);
    remove_all(path);
    if (st) {
        fprintf(stderr, "store: %s\n", err.msg);
        return 1;
    }
    if (json)
        printf("{\"jobs_per_s\": %.0f, \"bar\": %d, \"fdatasync_per_s\": %.0f}\n", jobs, BAR,
               syncs);
    else
        printf("%-28s %8.0f /s  > %d: %s\n%-28s %8.0f /s  reference\n", "add, take, finish", jobs,
               BAR, jobs > BAR ? "met" : "MISSED", "write and fdatasync", syncs);
    return 0;
}
