/* cuda_impl: what the files of device/cuda share. */
#pragma once

#include "base/vec.h"
#include "device/cuda/cuda.h"
#include "device/device_impl.h"

#include <pthread.h>

#define CUDA_CARDS_MAX (DEV_INDEX_MAX + 1)

struct cuda_library { /* owner: executor thread */
    struct cuda_api api;
    unsigned shown;                         /* by the driver */
    unsigned count;                         /* cards to see, cuda:0 .. */
    unsigned short ordinal[CUDA_CARDS_MAX]; /* the driver's number of each */
    struct cuda_dev *open;                  /* by next */
    char why[320];                          /* there are none; "" if there are some */
    bool broken;                            /* because something does not work */
};

/* Memory that was asked for at once. Its granules are numbered from its start. */
struct cuda_segment {
    uint64_t addr;     /* a multiple of the granule */
    size_t n;          /* bytes, whole granules */
    CUdeviceptr plain; /* of cuMemAlloc on cards without virtual memory management; 0: pieces */
    size_t granules;
    /* Of pieces, at the first granule of each, in granules; all others are 0. */
    uint32_t *length;
};

struct cuda_pinned { /* host memory */
    void *ptr;
    size_t ours; /* bytes that we mapped and registered; 0: the driver's */
};

struct cuda_stream {
    struct dev_stream base;
    CUstream stream;
};

struct cuda_event {
    struct dev_event base;
    CUevent event;
};

struct cuda_dev { /* owner: executor thread */
    struct cuda_phys pub;
    struct cuda_library *library;
    const struct log *log; /* may be NULL */
    struct cuda_dev *next;
    bool has_context;
    bool vmm;               /* virtual memory management */
    struct vec segments;    /* struct cuda_segment, by address */
    struct vec pinned;      /* struct cuda_pinned */
    struct vec peers;       /* struct cuda_dev *: may read and write our memory, and we theirs */
    struct dev_stream *own; /* for tries: cuda_peer.c */
    CUevent probe;          /* recorded on it once: asked whether the card is lost */
    pthread_mutex_t lock;   /* of `cause` */
    char cause[200];        /* how it was lost */
};

static inline struct cuda_dev *cuda_dev(struct phys *p)
{
    return (struct cuda_dev *)p;
}

/* A call in d's context. */
#define CUDA_CALL(p, call, err)                                                                    \
    (cuda_current((p), (err)) ? (err)->code : CUDA_TRY((p), call, (err)))

/* "CUDA_ERROR_X (its text)". */
#define CUDA_ERROR_TEXT_MAX 160
const char *cuda_error_text(const struct cuda_api *api, CUresult r, char buf[CUDA_ERROR_TEXT_MAX]);
/* What was lost, if it was. Any thread. */
berth_status cuda_lost(struct cuda_dev *d, berth_err *err);
/* As cuda_check() for a call on d that other cards had part in: which of them an error that poisons
 * has made unusable, each is asked alone. The error names the one that is lost, d before others. */
berth_status cuda_check_among(struct cuda_dev *d, struct cuda_dev *const *others, size_t n,
                              CUresult r, const char *what, berth_err *err);
/* For calls that give something up: a failure is logged, once the device is lost not even that. */
void cuda_log_failure(struct cuda_dev *d, CUresult r, const char *what);
#define CUDA_LOG_FAILURE(d, call) cuda_log_failure((d), (d)->pub.api->call, #call)

/* cuda_api.c */
berth_status cuda_library_open(const struct dev_env *env, void **out, berth_err *err);
void cuda_library_close(void *library);
unsigned cuda_library_count(void *library);
const char *cuda_library_why_none(void *library, bool *broken);

/* cuda_mem.c: slots of driver.h, and what close needs */
berth_status cuda_mem_open(struct cuda_dev *d, berth_err *err);
void cuda_mem_close(struct cuda_dev *d);
berth_status cuda_alloc(struct phys *p, size_t n, uint64_t *addr, berth_err *err);
void cuda_free(struct phys *p, uint64_t addr, size_t n);
berth_status cuda_info(struct phys *p, uint64_t *total, uint64_t *free_bytes, berth_err *err);
void cuda_discardable(struct phys *p, uint64_t *addr, size_t *n);
bool cuda_discard(struct phys *p, uint64_t addr, size_t n);
berth_status cuda_restore(struct phys *p, uint64_t addr, size_t n, berth_err *err);
/* Everything mapped on d becomes accessible to d and its peers. */
berth_status cuda_share(struct cuda_dev *d, berth_err *err);
berth_status cuda_host_alloc(struct phys *p, size_t n, void **out, berth_err *err);
void cuda_host_free(struct phys *p, void *ptr, size_t n);

/* cuda.c: slots that cuda_peer.c uses, too */
berth_status cuda_stream_sync(struct dev_stream *s, berth_err *err);
berth_status cuda_copy_h2d(struct dev_stream *s, uint64_t dst, const void *src, size_t n,
                           berth_err *err);
berth_status cuda_copy_d2h(struct dev_stream *s, void *dst, uint64_t src, size_t n, berth_err *err);
berth_status cuda_copy_peer(struct dev_stream *s, struct phys *dst_phys, uint64_t dst,
                            struct phys *src_phys, uint64_t src, size_t n, berth_err *err);

/* cuda_graph.c: slots */
berth_status cuda_record_begin(struct dev_stream *s, berth_err *err);
berth_status cuda_record_end(struct dev_stream *s, struct dev_graph **out, berth_err *err);
berth_status cuda_graph_launch(struct dev_graph *g, struct dev_stream *s, berth_err *err);
void cuda_graph_free(struct dev_graph *g);

/* cuda_peer.c */
/* Enables access between d and every card opened before it, where it works; cards without it are
 * staged between. Fails if that was the end of one of them. */
berth_status cuda_peer_open(struct cuda_dev *d, berth_err *err);
void cuda_peer_close(struct cuda_dev *d);
bool cuda_can_peer(const struct phys *to, const struct phys *from);
