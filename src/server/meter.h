/* meter: berth.memory, what devices hold and what is streamed, for WebSocket clients whose feature
 * flags say "berth": true.
 *
 * Who        The loop makes it, out of numbers that any thread may read (ledgers of devices, the
 *            counter that streams share), so it goes on while a node computes for minutes.
 * When       At once for a new reader; then, as long as there is one, every METER_MS when a number
 *            changed, and always while a prompt runs. One text for all readers; one that is behind
 *            gets the newest.
 * Threads    Loop. */
#ifndef SERVER_METER_H
#define SERVER_METER_H

#include "base/str.h"

#include <stdbool.h>

#define METER_MS 250

struct server;

struct meter { /* owner: loop; zeroed is fine */
    bool ticking;
    uint64_t at;     /* clock_mono_ns of the last tick */
    uint64_t bytes;  /* streamed until then */
    double gb_per_s; /* in the interval before it */
    uint64_t told;   /* hash of what was sent last */
    bool ran;        /* a prompt was running then */
};

void meter_text(struct server *s, struct str *out); /* a message; begins the ticks if need be */
void meter_tick(struct server *s);                  /* loop_tick() has come round */

#endif
