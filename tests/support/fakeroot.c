#include "support/fakeroot.h"

#include "support/tmp.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char name[32], root[512];

const char *fakeroot_new(void)
{
    static int number;
    snprintf(name, sizeof name, "fakeroot%d", number++);
    snprintf(root, sizeof root, "%s", tmp_path(name));
    mkdir(root, 0755);
    return root;
}

const char *fakeroot(void)
{
    return root;
}

void fakeroot_put(const char *path, const void *p, size_t n)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", name, path);
    for (char *c = strchr(full, '/'); c; c = strchr(c + 1, '/')) {
        *c = '\0';
        mkdir(tmp_path(full),
              0755); /* most are there already; a missing one shows in tmp_write() */
        *c = '/';
    }
    remove(tmp_path(full)); /* ext4 brings a file to the disk that is cut and written again */
    tmp_write(full, p, n);
}

void fakeroot_puts(const char *path, const char *text)
{
    fakeroot_put(path, text, strlen(text));
}
