/* lora_impl: what the files of lora/ share; its tests and fuzz target include it too. */
#pragma once

#include "base/map.h"
#include "lora/lora.h"

/* Families of names for the same two factors, in the order they are looked for (lora.md 4). */
#define LORA_FAMILIES 7

/* What a file calls its tensors (lora_forms.c). */
enum lora_form { LORA_PLAIN, LORA_CONTROL, LORA_PROCESSOR };
enum lora_form lora_form(const struct weights *w);
/* The name as <base name><suffix>; NULL: out of memory. */
const char *lora_form_name(enum lora_form form, const char *name, struct arena *mem);

/* Tensors that a change is made of. */
enum lora_part {
    PAIR_UP, /* a pair, */
    PAIR_DOWN,
    PAIR_MID,  /* perhaps with a kernel between them */
    HADA_W1_A, /* LoHa: two products, */
    HADA_W1_B,
    HADA_W2_A,
    HADA_W2_B,
    HADA_T1, /* each perhaps with a kernel between its factors */
    HADA_T2,
    LOKR_W1, /* LoKr: two matrices, each whole */
    LOKR_W2,
    LOKR_W1_A, /* or a product, */
    LOKR_W1_B,
    LOKR_W2_A,
    LOKR_W2_B,
    LOKR_T2,  /* this one perhaps with a kernel */
    GLORA_A1, /* GLoRA: what the weight's inputs become, */
    GLORA_A2,
    GLORA_B1, /* and what is added */
    GLORA_B2,
    OFT_BLOCKS,  /* of four dimensions: BOFT */
    OFT_RESCALE, /* belongs to it; has a part in the merge of BOFT alone */
    LORA_PARTS
};

struct lora_base { /* one base name of the file; entries are NULL where the file has none */
    const char *name;
    size_t len;
    const struct weights_entry *up[LORA_FAMILIES], *down[LORA_FAMILIES];
    const struct weights_entry *mid, *alpha, *dora, *peft_dora, *diff, *diff_b, *w_norm, *b_norm,
        *set, *reshape;
    const struct weights_entry *part[LORA_PARTS]; /* those of pairs: of the first family there is */
    const char *refused;                          /* a kind we do not merge; NULL: none */
    const struct weights_entry *refused_by;
    uint32_t tensors; /* of the file, under this name */
    bool used;
    bool widens; /* may be for a weight with more columns than the model's has */
};

struct lora_bases {
    struct arena mem;
    struct vec at;   /* struct lora_base */
    struct map find; /* name -> index */
    size_t strays;   /* tensors without a suffix we know */
};

/* Sorts the file's tensors by base name. lora_bases_release(), also after an error. */
berth_status lora_bases_init(struct lora_bases *b, const struct weights *w, berth_err *err);
void lora_bases_release(struct lora_bases *b);
const char *lora_part_suffix(enum lora_part part); /* ".hada_w1_a" */

enum lora_kind { LORA_PAIR, LORA_LOHA, LORA_LOKR, LORA_GLORA, LORA_OFT, LORA_DIFF, LORA_SET };

struct lora_target {
    const char *key;
    size_t key_len;
    uint64_t row, rows; /* rows 0: all */
    uint64_t from, of;  /* of the change, see struct lora_name */
    bool swap, transpose, widens;
    enum lora_kind kind;
    const struct weights_entry *part[LORA_PARTS]; /* of kinds up to LORA_OFT */
    const struct weights_entry *alpha, *dora;     /* of these; may be NULL */
    bool peft;                                    /* dora is PEFT's */
    const struct weights_entry *dense;            /* of the other kinds */
    size_t next;                                  /* of the same key, number + 1; 0: none */
};

struct lora {
    struct res_adapter base;
    struct weights *weights; /* owned */
    const struct log *log;
    struct arena mem;  /* texts */
    struct vec target; /* struct lora_target */
    struct map first;  /* key -> number of its first target */
    struct lora_info info;
    char *name;
};

/* lora_open() of a file that is open already. w: taken, closed on error too. */
berth_status lora_open_weights(struct weights *w, const struct lora_names *names,
                               const struct log *log, struct res_adapter **out, berth_err *err);

struct lora_job { /* a term that is being made */
    const struct lora *l;
    const struct lora_target *t;
    const struct shape *weight;    /* the whole tensor */
    uint64_t row, rows, cols;      /* what the target means of it */
    uint64_t want_rows, want_cols; /* what a change has to be for that */
    float strength;
    double scale; /* of the term, without the strength; set by those below */
    struct arena *tmp;
    berth_err *err;
};

/* lora_factors.c */

/* Names end with what tells them apart and begin with what says where they are: a long one loses
 * its middle. */
#define LORA_NAME_TEXT 128
const char *lora_name_text(const struct weights_entry *e, char buf[LORA_NAME_TEXT]);
berth_status lora_misfit(const struct lora_job *j, const struct weights_entry *e);
/* The entry as a matrix. False: it has no elements, or too many. */
WARN_UNUSED bool lora_matrix(const struct weights_entry *e, uint64_t *rows, uint64_t *cols);
berth_status lora_load(const struct lora_job *j, const struct weights_entry *e, float **out);
/* The target's alpha / rank; 1 where the file has no alpha. */
berth_status lora_scale(const struct lora_job *j, uint64_t rank, double *out);
/* The halves of p's rows trade places where the target says so. */
berth_status lora_swap_halves(const struct lora_job *j, float *p, uint64_t rows, uint64_t cols);
/* *p [rows, cols] -> [cols, rows], in new memory. */
berth_status lora_transpose(const struct lora_job *j, float **p, uint64_t rows, uint64_t cols);

struct lora_factors {
    const struct weights_entry *up, *down, *mid; /* mid may be NULL */
    bool turned;                                 /* up is [rank, rows] in the file */
};
struct lora_sizes { /* up [rows, up_rank], down [rank, cols * kernel] */
    uint64_t rows, up_rank, rank, cols, kernel;
};
/* False: no elements, or too many. */
WARN_UNUSED bool lora_sizes(const struct lora_factors *f, struct lora_sizes *out);
/* Both in F32, mid folded into down. n: from lora_sizes(), and up_rank == rank. */
berth_status lora_load_factors(const struct lora_job *j, const struct lora_factors *f,
                               const struct lora_sizes *n, float **up, float **down);

/* up[rows, rank] . down[rank, cols], as the target wants it. */
berth_status lora_product(const struct lora_job *j, const struct lora_factors *f, uint32_t *rank,
                          const float **up, const float **down);

/* The term's own fields, and j->scale. lora_oft.c: with one of the two times that the strength
 * counts; with dora the only one. lora_dora.c: out->dora; the target has one. */
berth_status lora_lokr(struct lora_job *j, struct res_term *out);
berth_status lora_glora(struct lora_job *j, struct res_term *out);
berth_status lora_oft(struct lora_job *j, struct res_term *out);
berth_status lora_dora(const struct lora_job *j, struct res_term *out);

/* lora_terms.c: res_adapter_ops.terms */
berth_status lora_terms(const struct res_adapter *a, const char *key, size_t n,
                        const struct shape *shape, float strength, struct arena *tmp,
                        struct vec *out, berth_err *err);
