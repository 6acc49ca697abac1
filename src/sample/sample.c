/* sample.c */
#include "sample/sample.h"
