/* banned: functions that have a safer spelling here. Using one is a compile error. Their headers
 * must come before that, so whoever includes base/err.h has these four and need not name them. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atof localtime gmtime
