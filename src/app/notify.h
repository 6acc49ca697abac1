/* notify: tells a service manager how far we are, in systemd's protocol: a datagram of
 * NAME=VALUE lines to the socket that $NOTIFY_SOCKET names. Without the variable, nothing
 * happens. */
#pragma once

#include "base/err.h"

#define NOTIFY_READY "READY=1"
#define NOTIFY_STOPPING "STOPPING=1"

/* socket: the variable's text; NULL or "": nobody listens, which is fine. A manager that cannot be
 * reached is an error to log; the server goes on. Thread: any. Does not block. */
berth_status notify_send(const char *socket, const char *state, berth_err *err);
