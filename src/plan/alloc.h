/* alloc: allocation strings, the text that says how many bytes of a model go where.
 *
 *     cuda:0,2.5gb;cuda:1,3.0g;cpu,*          expert entries: device,amount
 *     cuda:0,25%;cpu,75%#cuda:1               weights in percent; cuda:1 computes
 *     #cuda:0;4.0;cuda:1,cpu                  virtual VRAM: 4 GiB of the model go to the donors
 *
 *   full     = expert [ "#" [ suffix ] ] | "#" suffix
 *   suffix   = compute [ ";" gigabytes [ ";" donor { "," donor } ] ]
 *   expert   = entry { ";" entry }            empty entries are skipped
 *   entry    = device "," value
 *   value    = bytes | bytes "*" | "*" | percent | fraction
 *   bytes    = number [space] unit            unit = g|gb|gib|m|mb|mib|k|kb|kib|b, binary, any case
 *   percent  = number "%"                     fraction = number, 0..1 of the device's memory
 *   number   = digits [ "." [digits] ]
 *
 * The mode follows from the values alone: any byte unit, or nothing but "*": BYTES; any "%": RATIO;
 * else FRACTION; no expert entries: VIRTUAL. Mixing is an error. Numbers are exact: bytes as 64-bit
 * integers, percents and fractions as decimal fractions over a power of ten (see struct alloc_num).
 * Spaces around every part are skipped, letters may be upper case. A compute field that is empty or
 * "none" names nobody.
 *
 * Errors read `expert_mode_allocations: <what> (entry N: "<text>")`, N counting from 1 over the
 * non-empty entries; behind "#" it counts the fields there, and <what> says which one is meant:
 * `expert_mode_allocations: gigabytes: bad number, write ... (entry 2: "4gb")`. A compute device
 * that is not of the text but a caller's is refused without all that: `compute device: unknown
 * device cuda:5, ...`.
 * Parsing knows no devices. alloc_resolve() holds the names against the devices there are and turns
 * every mode into one normal form, see there.
 * Threads any. Files alloc.c parsing, plan.c the normal form. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "device/driver.h"

#define ALLOC_TEXT_MAX 4096
#define ALLOC_ENTRIES_MAX 64
#define ALLOC_GIB_MAX 128 /* virtual VRAM */

enum alloc_mode { ALLOC_BYTES, ALLOC_RATIO, ALLOC_FRACTION, ALLOC_VIRTUAL, ALLOC_COMPUTE_ONLY };

/* value = digits / 10^scale, exact; at most 18 digits behind the point and 2^64-1 without it, more
 * are an error; zeros at the end do not count. */
struct alloc_num {
    uint64_t digits;
    unsigned scale;
};

struct alloc_entry {
    char device[DEV_NAME_MAX]; /* trimmed, lower case */
    uint64_t bytes;            /* BYTES: the amount; 0 with a bare "*" */
    struct alloc_num num;      /* RATIO: percent; FRACTION: 0..1 */
    bool rest;                 /* "*" */
    unsigned number;           /* 1.., as people count, and what they wrote, for messages */
    uint32_t at, len;          /* the entry's text in alloc.text */
};

struct alloc { /* a value; nothing to release */
    enum alloc_mode mode;
    struct alloc_entry entry[ALLOC_ENTRIES_MAX];
    size_t n;
    char compute[DEV_NAME_MAX]; /* "" when the text has no suffix */
    uint64_t virtual_bytes;     /* VIRTUAL: gigabytes * 2^30, exact, a part of a byte rounds down */
    char donor[ALLOC_ENTRIES_MAX][DEV_NAME_MAX];
    size_t donors;
    char text[ALLOC_TEXT_MAX]; /* what was parsed, NUL-terminated */
};

/* No allocation. BERTH_EINVAL with the message above; BERTH_ELIMIT: too long or too many
 * entries. */
berth_status alloc_parse(const char *text, size_t n, struct alloc *out, berth_err *err);

/* One spelling for every text that means the same amounts in the same order:
 * "cuda:0,31457280b;cpu,*" for "CUDA:0, 30mb ; cpu,*". Without the compute device, which may come
 * from elsewhere. */
void alloc_canonical(const struct alloc *a, struct str *out);

/* The string a DisTorch2 loader composes: device;gigabytes;donors and an expert text. gib is the
 * text of the number ("4.0"); NULL, "" or zero: none. use_other_vram style donors
 * are the caller's to spell out with alloc_legacy_donors(). Empty result: plain loading. */
berth_status alloc_compose(const char *device, const char *gib, const char *donors,
                           const char *expert, struct str *out, berth_err *err);

/* ---- the devices a plan may use ---- */

struct plan_device {
    char name[DEV_NAME_MAX];
    uint64_t total;  /* memory of the device: what fractions are of and amounts may not exceed */
    uint64_t budget; /* what a plan may put there, <= total */
    bool host;       /* RAM: takes what nobody else takes; at most one */
    double speed;    /* bytes/s of copies to the compute device; 0: not measured */
};

struct plan_devices {
    struct plan_device at[ALLOC_ENTRIES_MAX];
    size_t n;
};
/* Index, or devices->n. Names are compared after trimming and lower-casing. */
size_t plan_device_find(const struct plan_devices *d, const char *name, size_t n);

/* Legacy `use_other_vram`: "cpu", or every other device by number ascending and cpu last. */
berth_status alloc_legacy_donors(const struct plan_devices *d, const char *compute,
                                 bool use_other_vram, struct str *out, berth_err *err);

/* ---- normal form ----
 * What every mode comes down to: for each device in the order written a quota in bytes, and one
 * device that takes what fits nowhere else.
 *
 *   BYTES     min(asked, what is left), in order; the rest is added to the "*" device, or to the
 *             host when nobody has a "*" (logged). A number with "*" is a minimum, set aside before
 *             later entries. `cuda:0,2gb;cuda:0,*` is the same as `cuda:0,2gb*`
 *   RATIO     weight / sum of weights of the model's bytes (a note says when that is not 100 %),
 *             rounded down, what rounding leaves goes to the orphans device, which is compute; with
 *             "*": percents are of the model, "*" has 100 % - sum and takes the orphans
 *   FRACTION  fraction of the device's total, in order, never more than is left. Bytes beyond all
 *             of them go to the host with a warning that gives the number, and it takes the
 *             orphans; fractions that hold the model leave the orphans to compute
 *   VIRTUAL   compute: max(0, model - V); donors in order min(still wanted, their total), wanted
 *             being V or the whole model; the last one takes the orphans. More than the donors
 *             hold, or more left on compute than it has, is an error with both numbers. A donor
 *             that is the compute device is left out with a warning
 *   COMPUTE_ONLY  everything on the compute device
 * Without a host, compute is meant where it says host.
 *
 * Invariant: the quotas add up to the model's bytes. */
struct quota {
    size_t device; /* index in plan_devices */
    uint64_t bytes;
};
#define QUOTA_NOTES_MAX 12
struct quotas { /* a value */
    struct quota at[ALLOC_ENTRIES_MAX];
    size_t n;
    size_t orphans;         /* index in plan_devices */
    size_t compute;         /* index in plan_devices; may have no quota */
    enum alloc_mode mode;   /* what it came from, for the tables; BYTES when made by plan_auto() */
    bool automatic;         /* nobody said where blocks shall be */
    uint64_t virtual_bytes; /* VIRTUAL: what was asked for */
    /* What people should hear: implicit cpu, overflow, ignored entries. */
    char note[QUOTA_NOTES_MAX][160];
    bool warn[QUOTA_NOTES_MAX]; /* the note is a warning */
    size_t notes;
    size_t more; /* notes there was no room for: the last one gives the number */
};

/* a          as parsed
 * compute    used when the text names none; NULL: the first device that is not the host, else it
 * model      bytes of all blocks, > 0
 * BERTH_EINVAL: an unknown device (lists the valid ones), one named twice, more than the device's
 * memory (both numbers), a device that reports no memory, ... */
berth_status alloc_resolve(const struct alloc *a, const struct plan_devices *devices,
                           const char *compute, uint64_t model, struct quotas *out, berth_err *err);

/* One more note; the last of QUOTA_NOTES_MAX says how many more there would be. */
void quotas_note(struct quotas *q, bool warn, const char *fmt, ...) PRINTF_LIKE(3, 4);
