/* lora: opens adapter files; residency sees each as a struct res_adapter (merge/adapter.h).
 *
 *     lora_open(path, &names, log, &adapter, err)   index the file, match it against the model
 *     adapter->ops->terms(...)                      per tensor: factors, checked, as F32
 *     res_adapter_unref(adapter)
 *
 * Words    base name  what stands before the suffix in a file: "lora_unet_conv_in" of
 *                     "lora_unet_conv_in.lora_up.weight"
 *          names      which base names mean which tensor of a model; built from the model's own
 *                     tensors (model/lora_names.h), handed in as data
 *          factors    up, down and, for convolutions taken apart twice, mid; LoHa has two pairs,
 *                     LoKr two matrices, each of which may be a pair
 * Kinds    pairs of up and down under all names in use (LoRA, LoCon), with alpha and mid; LoHa,
 *          with alpha, t1 and t2; LoKr, whole or in factors, with alpha and t2; GLoRA, old and new;
 *          OFT; BOFT; all of these as DoRA, with dora_scale or as PEFT saves it; diff, diff_b,
 *          w_norm, b_norm (differences of weights and biases), set_weight. If two of them change
 *          the same rows, the later in this list wins, and of two base names the later in `names`.
 *          Those that ComfyUI knows are all here; OFT as oft_diag is refused by name.
 * Wider    Control LoRAs of Flux, and files with reshape_weight, are for a first layer with more
 *          columns than the model's. lora_widens() says which; the model has to be opened so
 *          (res_open_wider()) before their terms fit.
 * Unknown  Tensors under no known base name are ignored, with one warning that counts them. A file
 *          without any suffix of an adapter is refused. A diff whose shape is not the weight's is
 *          ignored with a warning, as in ComfyUI; factors that do not fit are an error.
 * Trust    Files come from strangers. lora_open() checks the index; terms() checks the factors
 *          against the tensor's shape before it loads them.
 * Threads  lora_open() any; the adapter as merge/adapter.h says.
 * Files    lora.c opening, targets; lora_bases.c suffixes; lora_forms.c files with other names;
 *          lora_factors.c tensors -> products; lora_lokr.c Kronecker products; lora_glora.c
 *          changes of inputs; lora_oft.c rotations; lora_dora.c sizes; lora_terms.c products ->
 *          terms; lora_impl.h. */
#pragma once

#include "base/log.h"
#include "format/weights.h"
#include "merge/adapter.h"

/* Opens the file and finds out what it changes; reads no factors.
 *   names  borrowed for the call       log  borrowed for the adapter's life; NULL: silent
 *   out    owned, one reference (res_adapter_unref()); NULL on error
 * BERTH_EUNSUPPORTED: a kind we do not merge, naming it and the tensor; else as weights_open(). */
berth_status lora_open(const char *path, const struct lora_names *names, const struct log *log,
                       struct res_adapter **out, berth_err *err);

/* What was found, for people. */
struct lora_info {
    size_t targets; /* places in the model it changes, rows of a tensor counted each */
    size_t tensors; /* of the file */
    size_t unknown; /* of these, belong to nothing */
};
struct lora_info lora_info(const struct res_adapter *a); /* a: from lora_open() */
/* The columns that it wants of the tensor with this key, which has `cols`; 0: it fits as it is. */
uint64_t lora_widens(const struct res_adapter *a, const char *key, size_t n, uint64_t cols);
