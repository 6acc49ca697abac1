/* packs: what browsers ask for of the node packs of an installed ComfyUI and its Python packages:
 * scripts, templates, documentation. No Python runs, so their nodes are missing, but pages that
 * list or manage packs work.
 *
 * Packs      Folders in custom_nodes/. Scripts are in the folder that __init__.py assigns to
 *            WEB_DIRECTORY, served under the pack's name, and in pyproject.toml's tool.comfy.web,
 *            served under project.name.
 *            Example workflows are the .json files in example_workflows/ and its older names.
 * Packages   comfyui_workflow_templates*: templates; comfyui_embedded_docs: documentation.
 * When       Packs are looked up once, when the server starts, as ComfyUI does; files on request.
 * Safety     Nothing outside a pack's folder is served, whatever its texts and links say.
 * Threads    Constant after packs_open(). */
#pragma once

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

/* Its packs, in order of their names; false: there are no more. One may be there twice. */
bool packs_at(const struct packs *p, size_t i, const char **name, const char **root);
/* Members of /system_stats about the packages. */
struct jsonout;
void packs_versions_json(const struct server *s, struct jsonout *j);

/* pack_text.c: what texts of packs say. Anything may be in them. */
#define PACK_TEXT_MAX (1u << 20) /* bytes that are looked at */
/* The strings of the last assignment to WEB_DIRECTORY, joined with '/': its value, where it is a
 * string or os.path.join(os.path.dirname(__file__), ...). False: none, or none that can be known
 * so. */
bool pack_web_directory(const char *python, size_t n, struct str *out);
/* project.name and tool.comfy.web. False: one of them is not there. */
bool pack_project(const char *toml, size_t n, struct str *name, struct str *web);
