/* encoder.c */
#include "text/encoder.h"
