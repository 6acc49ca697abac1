/* web: the dashboard. The files of web/ are part of the program; routes /berth (its page, also / when
 * no frontend is configured) and /berth/web/NAME hand them out. With ComfyUI's frontend configured,
 * web/templates/ is what its "Templates" offer: each file of /templates/ that the frontend's tree does
 * not have.
 *
 * Caching    Browsers ask each time whether a file is still the one they have (no-cache, an ETag of
 *            its content): after an update nobody sees half of the old page.
 * Packing    Once, when a file is asked for first by somebody who takes gzip; whatever --enable-
 *            compress-response-body says, as it costs nothing afterwards.
 * Safety     A Content-Security-Policy that lets in nothing but this server's own files: what a
 *            workflow or a model's name says can never run.
 * Threads    Loop. */
#ifndef SERVER_WEB_H
#define SERVER_WEB_H

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

#endif
