/* pickle: the values a pickle builds, read by a machine that executes nothing.
 *
 * A pickle is a program for a small stack machine whose instructions may import and call any Python
 * function. This one knows a short list of names (pickle_names.c), those that torch.save() writes
 * for tensors and plain containers; each is a value here, never code. Any other name is refused as
 * soon as it is met, and by its name.
 *
 * Words   value: a struct pk; memo: values that a pickle refers to again by number; storage: the
 *         bytes one or more tensors look into, by a key.
 * Memory  Values live in one arena and are never freed one by one. Everything is bounded: values,
 *         memo, stack, and of what is walked afterwards nesting, places and names; a value that is
 *         referred to a thousand times is there once.
 * Trust   The file may change while it is read: texts are copied, numbers fetched once.
 * Files   pickle.c the format: where the pickle and the storages lie, which tensors there are;
 *         pickle_vm.c the machine; pickle_names.c the names it knows, tensors; zip.c archives. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "base/rd.h"
#include "base/vec.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

#define PK_VALUES_MAX (4u << 20) /* also of the stack and of the memo */
#define PK_TEXT_MAX (1u << 20)   /* bytes of one text */
#define PK_STEPS_MAX (64u << 20) /* instructions */
#define PK_MEMORY_MAX (256u << 20)

enum pk_kind {
    PK_NONE,
    PK_BOOL,
    PK_INT,
    PK_FLOAT,
    PK_TEXT,  /* str, and Python 2's, which is how keys of old files come */
    PK_BYTES, /* bytes, and integers of more than 64 bits */
    PK_TUPLE,
    PK_LIST, /* sets, too */
    PK_DICT, /* keys and values in turn */
    PK_NAME, /* one that is known, not called */
    PK_STORAGE,
    PK_TENSOR,
    PK_INERT, /* a scalar of NumPy, a device: nothing that a tensor is made of */
};

struct pk_storage {
    const char *key; /* NUL-terminated */
    size_t len;
    enum dtype dtype; /* DT_NONE: bytes, the tensor has the type */
    uint64_t count;   /* elements */
    uint64_t bytes;
    uint64_t off; /* in the file; once found */
    bool found;
};

struct pk_tensor {
    const struct pk_storage *storage;
    enum dtype dtype;
    uint64_t offset; /* elements */
    struct shape shape;
    uint64_t stride[SHAPE_MAX_DIMS]; /* elements */
};

struct pk {
    enum pk_kind kind;
    bool holder; /* PK_DICT: a module's parameters, which its state brings */
    union {
        int64_t i; /* PK_BOOL, PK_INT */
        double f;
        struct { /* PK_TEXT, PK_BYTES */
            const char *s;
            size_t len;
        };
        struct { /* PK_TUPLE, PK_LIST, PK_DICT */
            struct pk **at;
            size_t n, cap;
        };
        const struct pk_name *name;
        struct pk_storage *storage;
        const struct pk_tensor *tensor;
    };
};

struct pk_vm {
    struct arena mem;
    struct vec stack; /* struct pk * */
    struct vec mark;  /* size_t: heights of the stack */
    struct vec memo;  /* struct pk *, NULL where nothing is */
    struct vec store; /* struct pk_storage *, in order of appearance */
    struct map by_key;
    size_t values, tensors, steps;
};

void pk_init(struct pk_vm *m, uint64_t seed); /* seed: of the map of storages */
void pk_release(struct pk_vm *m);
/* Runs one pickle from the cursor on, which then stands behind it. Values stay until pk_release(),
 * storages add up over several pickles. */
berth_status pk_run(struct pk_vm *m, struct rd *r, struct pk **out, berth_err *err);

struct pk *pk_new(struct pk_vm *m, enum pk_kind kind, berth_err *err); /* NULL and err */
bool pk_is_text(const struct pk *v, const char *s);
struct pk *pk_get(const struct pk *dict, const char *key); /* NULL: no such text among its keys */
/* Appends to a list, tuple or dict (key, then value). */
berth_status pk_push(struct pk_vm *m, struct pk *to, struct pk *v, berth_err *err);
const char *pk_kind_text(const struct pk *v); /* "a list" */

/* pickle_names.c */

/* EUNSUPPORTED, naming it, when it is none of those that are known. */
berth_status pk_find_name(struct pk_vm *m, const char *module, size_t mlen, const char *name,
                          size_t nlen, struct pk **out, berth_err *err);
/* What Python gets from calling f with the tuple of arguments. */
berth_status pk_call(struct pk_vm *m, const struct pk *f, const struct pk *args, struct pk **out,
                     berth_err *err);
/* What a persistent id stands for: ('storage', type, key, device, elements), or ('module', class,
 * file, source). */
berth_status pk_persistent(struct pk_vm *m, const struct pk *id, struct pk **out, berth_err *err);
