/* journal: what memory looked like when, in the formats ComfyUI-MultiGPU writes.
 *
 * A snapshot is the used bytes of every device at a moment, filed under an identifier with a tag.
 * Each identifier has a ring of lines; a timeline keeps the latest snapshots of all of them in
 * order.
 *
 *   line     2026-11-15T06:00:00.123Z free_memory_pre                     cpu|1.50 cuda:0|0.25
 *            UTC time, <identifier>_<tag> left-aligned to 35, then cpu|U and the other devices in
 *            text order, U = used GiB with two decimals
 *   summary  for each identifier in text order "=== memory summary: <identifier> ===", its lines
 *   inspect  tag=<tag>|cpu=<used>/<total>|<dev>=<used>/<total>...  GiB, two decimals, set order,
 *            devices with total 0 left out
 *   JSON     one object per line and record: timestamp, level, name, message, event_category,
 *            component, workflow_id, prompt_id, static fields
 *
 * Identifiers and their tags are whoever's that takes the snapshot: general, executor_reset and
 * cpu_monitor
 * (free.c, the steps in residency.h), full_cleanup (request.c), <role>:<first 8 of the key>
 * (load.c).
 *
 * A load also writes its placement to the JSON log (load.c), at FOCUS as well: with "Virtual
 * VRAM", "Final Allocation String" and "Total memory" in it, by which upstream's
 * extract_allocation.py finds such events; there they are at INFO, which its own default level
 * leaves out.
 *
 * used = total - free, as the device's driver says it: what other programs take shows too.
 * Snapshot lines reach the JSON log at level FOCUS, with "[MultiGPU Model Management] " in front.
 *
 * Threads  journal_snapshot() from the executor; reading and journal_record() from any thread. The
 *          rings are under one lock, a leaf. JSON records are written with one write each; an I/O
 *          error is counted and otherwise ignored.
 * Files    journal.c rings and lines, journal_json.c the JSON log. */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "device/devset.h"

#define JOURNAL_RING_DEFAULT 256      /* lines kept per identifier */
#define JOURNAL_TIMELINE_DEFAULT 4096 /* snapshots kept in all */
#define JOURNAL_SERIES_MAX 256        /* identifiers; the one that was quiet longest is dropped */
#define JOURNAL_NAME_MAX 96           /* bytes of an identifier or tag; longer ones end in "..." */

/* Python's numbers, and FOCUS between INFO and WARNING. */
enum journal_level {
    JOURNAL_DEBUG = 10,
    JOURNAL_INFO = 20,
    JOURNAL_FOCUS = 25,
    JOURNAL_WARNING = 30,
    JOURNAL_ERROR = 40,
    JOURNAL_CRITICAL = 50,
};
/* A name in any case or an integer, at least 1; JOURNAL_FOCUS for anything else, NULL included. */
int journal_level_parse(const char *text);

struct journal_config { /* zero: defaults; borrowed for journal_new(), except what json_id uses */
    size_t ring, timeline; /* lines */
    bool log_lines;        /* snapshots also go to the log, "[MultiGPU Model Management] <line>" */
    const char *json_path; /* NULL: no JSON log. Opened with the first record, parent folders are
                              made. One that cannot be opened is a warning in the log and a failure
                              in the count */
    int json_level;        /* 0: JOURNAL_FOCUS */
    bool json_append;      /* else the file is emptied first */
    const char *json_static; /* a JSON object merged last into every record; invalid: none */
    /* workflow and prompt id of the moment, asked per record on its thread (app reads the
     * environment); may return NULL. */
    const char *(*json_id)(void *user, bool workflow);
    void *json_user;
};

struct journal;

berth_status journal_new(const struct journal_config *cfg, const struct devset *devices,
                         const struct log *log, const struct clock *clock, struct journal **out,
                         berth_err *err);
void journal_free(struct journal *j); /* NULL is fine */

/* Never fails outwardly: what a device will not say is 0, what memory will not hold is counted in
 * journal_dropped(). */
void journal_snapshot(struct journal *j, const char *identifier, const char *tag);
uint64_t journal_last(struct journal *j);                /* any thread; newest seq, 0: none yet */
uint64_t journal_dropped(const struct journal *j);       /* any thread */
uint64_t journal_json_failures(const struct journal *j); /* any thread; records not written */

/* One record for the JSON log (and nothing else). fields: "key", "value" pairs, NULL-terminated;
 * may be NULL. Any thread. */
void journal_record(struct journal *j, int level, const char *message, const char *const *fields);

#define JOURNAL_DEVICES_MAX SPEC_MAX
struct journal_entry {
    uint64_t seq; /* 1.., never reused */
    uint64_t wall_ns;
    char identifier[JOURNAL_NAME_MAX], tag[JOURNAL_NAME_MAX];
    size_t devices;
    uint64_t used[JOURNAL_DEVICES_MAX], total[JOURNAL_DEVICES_MAX]; /* by set index */
};
/* The timeline: entries with seq > after, oldest first, at most cap; identifier NULL: all. Returns
 * how many were filled; *lost (may be NULL) how many newer than `after`, of whatever identifier,
 * the ring no longer has. Any thread. */
size_t journal_query(struct journal *j, uint64_t after, const char *identifier,
                     struct journal_entry *out, size_t cap, uint64_t *lost);

void journal_line(const struct journal *j, const struct journal_entry *e, struct str *out);
/* The lines of each identifier behind a headline, with their line ends. */
void journal_summary(struct journal *j, struct str *out);
/* [{"seq","time","identifier","tag","devices":[{"device","used","total"}]},...], at most cap;
 * numbers have no gaps, so a first one beyond after + 1 says how many were lost. */
void journal_timeline_json(struct journal *j, uint64_t after, size_t cap, struct str *out);
