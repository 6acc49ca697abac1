/* fake_cublaslt: a cuBLASLt for tests: computes on the host, at once, what its descriptors say,
 * columns first as the real one does. Built as a shared library under the real one's name: whoever
 * opens it by path first makes it the one that the program finds by name. */
#ifndef SUPPORT_FAKE_CUBLASLT_H
#define SUPPORT_FAKE_CUBLASLT_H

#include <stdbool.h>

enum fake_refuses { FAKE_REFUSES_NOTHING, FAKE_REFUSES_EPILOGUES, FAKE_REFUSES_ALL };

struct fake_cublaslt { /* zero is the plain case */
    enum fake_refuses refuses;
    int fail_with;                /* what products answer */
    int ask_with;                 /* what asking for proposals answers */
    int open_with;                /* what cublasLtCreate answers */
    void (*before)(void *stream); /* a product: where kernels are queued, they run now */
    /* ---- what happened ---- */
    long asked;     /* for proposals */
    long products;  /* that were computed */
    long live;      /* handles, descriptors and preferences */
    bool split_out; /* proposals were asked for that add up in the result's type */
};

typedef struct fake_cublaslt *fake_cublaslt_fn(void); /* "fake_cublaslt": the one struct */

#endif
