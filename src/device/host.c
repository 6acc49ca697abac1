/* host: what happens to host memory, told to the devices of the set that check the order of its
 * users. */
#include "device/device_impl.h"

void dev_host_touch(const struct phys *p, const void *ptr, size_t n, unsigned how)
{
    const struct dev_hub *hub = p->hub;
    for (size_t i = 0; hub && n && i < hub->watchers; i++)
        if (hub->watcher[i].driver->host_access)
            hub->watcher[i].driver->host_access(hub->watcher[i].library, ptr, n, how);
}

void dev_host_note(const struct phys *p, const void *ptr, size_t n, enum dev_host_mark mark)
{
    const struct dev_hub *hub = p->hub;
    for (size_t i = 0; hub && n && i < hub->watchers; i++)
        if (hub->watcher[i].driver->host_mark)
            hub->watcher[i].driver->host_mark(hub->watcher[i].library, ptr, n, mark);
}

void dev_host_access(struct device *d, const void *ptr, size_t n, unsigned how)
{
    dev_host_touch(d->phys, ptr, n, how);
}

void dev_host_gone(struct device *d, const void *ptr, size_t n)
{
    dev_host_note(d->phys, ptr, n, DEV_HOST_GONE);
}
