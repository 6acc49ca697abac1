/* lora: adapter files, seen by residency as struct res_adapter (residency/patch.h). */
#ifndef LORA_LORA_H
#define LORA_LORA_H

#include "format/weights.h"
#include "residency/patch.h"

#endif
