/* lora: opening an adapter file. */
#include "lora/lora.h"
