/* lora_names_impl: adding names, for the files of lora_names. */
#pragma once

#include "model/lora_names.h"

#include "base/str.h"
#include "model/arch.h"

#define LORA_NAME_MAX 256 /* bytes of a name on the stack; longer ones have no such names */

/* Adds the name "<lead><q>". With `flat`, dots of q become underscores. m: what it means, all of a
 * tensor or some rows of it, with the tensor's name in the file as `key` and no base. pre: t->alias
 * is set. */
void lora_add(struct lora_table *t, const char *lead, const char *q, bool flat,
              const struct lora_name *m);

/* A tensor's name inside its network without ".weight", in `path`. False: outside, or too long. */
bool lora_path(const struct weights_entry *e, const char *prefix, char path[LORA_NAME_MAX]);
/* The tensor "<prefix><fmt...>", or NULL. */
const struct weights_entry *lora_find(const struct weights *w, const char *prefix, const char *fmt,
                                      ...) PRINTF_LIKE(3, 4);

/* The names that every diffusion model has: its own, dotted and flat. Before a family's. */
void lora_diffusion(struct lora_table *t, const struct weights *w, const struct arch_net *net);
/* Of text encoders: "text_encoders.<key>", as all have it; and the path behind every number of `te`
 * (LORA_TE*), with dots too where `dotted`. */
void lora_text(struct lora_table *t, const char *path, const struct lora_name *m);
void lora_numbered(struct lora_table *t, unsigned te, bool dotted, const char *path,
                   const struct lora_name *m);
