/* meter: sends berth.memory, what devices hold and what is streamed, to WebSocket clients whose
 * feature flags say "berth": true.
 *
 * Source     Numbers that any thread may read (ledgers, the streams' shared counter), read on the
 *            loop: so it continues while a node computes for minutes.
 * When       At once for a new reader; then every METER_MS if a number changed, and always while a
 *            prompt runs. All readers get the same text; a slow one only the newest.
 * Threads    Loop. */
#pragma once

#include "base/str.h"

#include <stdbool.h>

#define METER_MS 250

struct server;

struct meter { /* owner: loop; zeroed is fine */
    bool ticking;
    uint64_t at;        /* clock_mono_ns of the last tick */
    uint64_t bytes;     /* streamed until then */
    double gb_per_s;    /* in the interval before it */
    uint64_t sent_hash; /* hash of what was sent last */
    bool ran;           /* a prompt was running then */
};

void meter_text(struct server *s, struct str *out); /* a message; begins the ticks if need be */
void meter_tick(struct server *s);                  /* loop_tick() has come round */
