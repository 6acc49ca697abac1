/* net.c */
#include "net/net.h"
