/* nodes_inputs: the inputs of a node class for people and programs, by the names that --set and
 * prompts have for them: those that a choice brings stand behind it, as "mode.width". */
#pragma once

#include "app/app.h"
#include "node/node.h"

/* when: what must be chosen for it to be there, "mode=scale"; "": always. Borrowed. */
typedef void node_inputs_fn(void *user, const struct node_input *in, const char *name,
                            const char *when);
void nodes_inputs(const struct node_class *c, node_inputs_fn *visit, void *user);
const char *nodes_input_type(const struct node_input *in); /* "INT", "IMAGE" */

void nodes_inputs_print(const struct node_class *c);                   /* lines, indented */
void nodes_inputs_json(const struct node_class *c, struct jsonout *j); /* a member "inputs" */
