/* names: annotations, escapes, MIME types. */
#include "paths/paths.h"

#include <strings.h>

bool path_unescape(const char *s, size_t n, bool plus, struct str *out)
{
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '%') {
            if (n - i < 3 || str_hex(s[i + 1]) < 0 || str_hex(s[i + 2]) < 0)
                return false;
            c = (char)(str_hex(s[i + 1]) << 4 | str_hex(s[i + 2]));
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c == '\0')
            return false;
        str_addc(out, c);
    }
    return !out->bad;
}

void path_escape(const char *s, size_t n, struct str *out)
{
    static const char digit[] = "0123456789ABCDEF";
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                     c == '-' || c == '.' || c == '_' || c == '~';
        if (plain) {
            str_addc(out, (char)c);
            continue;
        }
        str_addc(out, '%');
        str_addc(out, digit[c >> 4]);
        str_addc(out, digit[c & 15]);
    }
}

struct annotated path_annotated(const char *s, size_t n)
{
    static const char *const kind[] = { "output", "input", "temp" };
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        size_t len = strlen(kind[i]) + 2;
        if (n < len || s[n - 1] != ']' || s[n - len] != '[' ||
            memcmp(s + n - len + 1, kind[i], len - 2) != 0)
            continue;
        size_t name = n - len;
        if (name && s[name - 1] == ' ')
            name--;
        return (struct annotated) { s, name, kind[i] };
    }
    return (struct annotated) { s, n, NULL };
}

/* By extension, sorted for people. The kinds that workflows, frontends and uploads have. */
static const struct {
    const char *ext, *mime;
} types[] = {
    { "3gp", "video/3gpp" },
    { "7z", "application/x-7z-compressed" },
    { "aac", "audio/aac" },
    { "apng", "image/apng" },
    { "avi", "video/x-msvideo" },
    { "avif", "image/avif" },
    { "bin", "application/octet-stream" },
    { "bmp", "image/bmp" },
    { "css", "text/css" },
    { "csv", "text/csv" },
    { "exr", "image/x-exr" },
    { "fbx", "model/fbx" },
    { "flac", "audio/flac" },
    { "gif", "image/gif" },
    { "glb", "model/gltf-binary" },
    { "gltf", "model/gltf+json" },
    { "gz", "application/gzip" },
    { "hdr", "image/vnd.radiance" },
    { "heic", "image/heic" },
    { "heif", "image/heif" },
    { "htm", "text/html" },
    { "html", "text/html" },
    { "ico", "image/vnd.microsoft.icon" },
    { "jfif", "image/jpeg" },
    { "jpe", "image/jpeg" },
    { "jpeg", "image/jpeg" },
    { "jpg", "image/jpeg" },
    { "js", "text/javascript" },
    { "json", "application/json" },
    { "m4a", "audio/mp4" },
    { "m4v", "video/mp4" },
    { "map", "application/json" },
    { "md", "text/markdown" },
    { "mjs", "text/javascript" },
    { "mkv", "video/x-matroska" },
    { "mov", "video/quicktime" },
    { "mp3", "audio/mpeg" },
    { "mp4", "video/mp4" },
    { "mpeg", "video/mpeg" },
    { "mpg", "video/mpeg" },
    { "oga", "audio/ogg" },
    { "ogg", "audio/ogg" },
    { "ogv", "video/ogg" },
    { "obj", "model/obj" },
    { "opus", "audio/ogg" },
    { "otf", "font/otf" },
    { "pdf", "application/pdf" },
    { "ply", "model/ply" },
    { "png", "image/png" },
    { "stl", "model/stl" },
    { "svg", "image/svg+xml" },
    { "tif", "image/tiff" },
    { "tiff", "image/tiff" },
    { "ttf", "font/ttf" },
    { "txt", "text/plain" },
    { "wasm", "application/wasm" },
    { "wav", "audio/x-wav" },
    { "weba", "audio/webm" },
    { "webm", "video/webm" },
    { "webmanifest", "application/manifest+json" },
    { "webp", "image/webp" },
    { "woff", "font/woff" },
    { "woff2", "font/woff2" },
    { "xhtml", "application/xhtml+xml" },
    { "xml", "text/xml" },
    { "zip", "application/zip" },
};

const char *path_mime(const char *name)
{
    const char *dot = strrchr(name, '.'), *slash = strrchr(name, '/');
    const char *from = slash ? slash + 1 : name;
    if (dot && dot > from) /* ".png" is a hidden file without a type */
        for (size_t i = 0; i < ARRAY_LEN(types); i++)
            if (strcasecmp(dot + 1, types[i].ext) == 0)
                return types[i].mime;
    return "application/octet-stream";
}
