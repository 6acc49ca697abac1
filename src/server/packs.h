/* packs: node packs of an installed ComfyUI, and its Python packages, as far as browsers ask for
 * them: scripts, templates, documentation. No Python runs: their nodes are not here, but a page that
 * lists or manages them works.
 *
 * Packs      Folders in custom_nodes/. Scripts lie where __init__.py assigns WEB_DIRECTORY, under
 *            the folder's name, and where pyproject.toml says tool.comfy.web, under project.name.
 *            Example workflows are the .json files of example_workflows/ and of the older names.
 * Packages   comfyui_workflow_templates_*: templates; comfyui_embedded_docs: pages about nodes.
 * Looked for once, when the server starts, as ComfyUI does; files are looked for when they are asked
 * for. Nothing outside of a pack's folder is found, whatever its texts and links say.
 * Threads    Constant after packs_open(). */
#ifndef SERVER_PACKS_H
#define SERVER_PACKS_H

#include "base/str.h"

#include <stdbool.h>

struct http_req;
struct server;
struct packs;

bool packs_open(struct server *s); /* false: no memory */
void packs_close(struct server *s);
/* A file of a pack or package that the path (without its first '/') names: extensions/PACK/...,
 * docs/..., templates/... True: it is theirs, and it replied, 404 maybe. */
bool packs_reply(struct http_req *r, const char *rel, size_t n);

/* pack_text.c: what texts of packs say. Anything may be in them. */
#define PACK_TEXT_MAX (1u << 20) /* bytes that are looked at */
/* The strings of the last assignment to WEB_DIRECTORY, joined with '/': its value, where it is a
 * string or os.path.join(os.path.dirname(__file__), ...). False: none, or none that can be known
 * so. */
bool pack_web_directory(const char *python, size_t n, struct str *out);
/* project.name and tool.comfy.web. False: one of them is not there. */
bool pack_project(const char *toml, size_t n, struct str *name, struct str *web);

#endif
