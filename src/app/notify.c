#include "app/app.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

berth_status notify_send(const char *socket_name, const char *state, berth_err *err)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    size_t n = socket_name ? strlen(socket_name) : 0;
    if (!n)
        return BERTH_OK;
    if ((socket_name[0] != '/' && socket_name[0] != '@') || n >= sizeof to.sun_path)
        return err_set(err, BERTH_EINVAL, "NOTIFY_SOCKET '%.80s' is no path of a socket",
                       socket_name);
    memcpy(to.sun_path, socket_name, n);
    if (to.sun_path[0] == '@') /* a name without a file: Linux writes it with a NUL in front */
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, BERTH_EIO, errno, "a socket for '%.80s'", socket_name);
    const socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, len);
    int native = errno;
    close(fd);
    if (sent < 0)
        return err_sys(err, BERTH_EIO, native, "telling '%.80s'", socket_name);
    return BERTH_OK;
}
