/* web: the dashboard. The files of web/ are compiled in; /berth (and / without a frontend) hands
 * out the page, /berth/web/NAME the rest. With ComfyUI's frontend, web/templates/ fills in files of
 * /templates/ that the frontend does not have.
 *
 * Caching    no-cache with an ETag of the content: browsers ask each time, so nobody sees half of
 *            an old page after an update.
 * Packing    Once, when the first client that accepts gzip asks; regardless of
 *            --enable-compress-response-body, as it costs nothing afterwards.
 * Safety     The Content-Security-Policy admits only this server's own files: text of a workflow or
 *            the name of a model can never run.
 * Threads    Loop. */
#pragma once

struct http_req;
struct server;

struct web_file {     /* constant; made by CMakeLists.txt */
    const char *name; /* "main.js", "icons/x.svg" */
    const char *begin, *end;
};
extern const struct web_file web_files[]; /* the last one has no name */

/* Replies with that file, or 404. */
void web_reply(struct http_req *r, const char *name);
void web_close(struct server *s); /* packed files go */
