/*
 * devices.c - see devices.h.
 *
 * A port's interfaces are named by its GID table (RoCE: gid_attrs/ndevs) and by the device's own folder
 * (InfiniBand: the IPoIB interfaces below device/net).
 */
#include "transport/topology/devices.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLASS "/sys/class/infiniband"

enum { INTERFACES = 16 };

struct interfaces {
    char names[INTERFACES][32];
    unsigned n;
};

static bool read_line(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool good = fgets(out, (int)size, file) != NULL;
    fclose(file);
    if (good)
        out[strcspn(out, "\n")] = '\0';
    return good;
}

static void add(struct interfaces *list, const char *name)
{
    size_t length = strnlen(name, sizeof list->names[0]);
    if (length == 0 || length == sizeof list->names[0] || list->n == INTERFACES)
        return;
    for (unsigned i = 0; i < list->n; i++)
        if (strcmp(list->names[i], name) == 0)
            return;
    memcpy(list->names[list->n++], name, length + 1);
}

/* Calls for each entry of a folder that is not hidden. */
#define FOR_EACH_ENTRY(dir, entry)                                                                           \
    for (struct dirent * entry; (dir) && (entry = readdir(dir)) != NULL;)                                    \
        if (entry->d_name[0] != '.')

static void add_port(struct interfaces *list, const char *device, const char *port)
{
    char path[600], text[64];
    snprintf(path, sizeof path, CLASS "/%.63s/ports/%.15s/state", device, port);
    if (!read_line(path, text, sizeof text) || !strstr(text, "ACTIVE"))
        return;
    snprintf(path, sizeof path, CLASS "/%.63s/ports/%.15s/gid_attrs/ndevs", device, port);
    DIR *dir = opendir(path);
    FOR_EACH_ENTRY(dir, entry)
    {
        char file[900];
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (read_line(file, text, sizeof text))
            add(list, text);
    }
    if (dir)
        closedir(dir);
    snprintf(path, sizeof path, CLASS "/%.63s/device/net", device);
    dir = opendir(path);
    FOR_EACH_ENTRY(dir, entry)
    add(list, entry->d_name);
    if (dir)
        closedir(dir);
}

/* An address of an interface that is up, as a number; false: there is none that leads anywhere. */
static bool describe(const struct ifaddrs *at, struct rg_rdma_address *to)
{
    const void *number;
    unsigned prefix = 0;
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP))
        return false;
    if (at->ifa_addr->sa_family == AF_INET) {
        number = &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr;
        if (at->ifa_netmask)
            prefix = (unsigned)__builtin_popcount(
                ((const struct sockaddr_in *)(const void *)at->ifa_netmask)->sin_addr.s_addr);
    } else if (at->ifa_addr->sa_family == AF_INET6) {
        const struct in6_addr *address =
            &((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr;
        if (IN6_IS_ADDR_LINKLOCAL(address))
            return false;
        number = address;
        for (int i = 0; at->ifa_netmask && i < 16; i++)
            prefix += (unsigned)__builtin_popcount(
                ((const struct sockaddr_in6 *)(const void *)at->ifa_netmask)->sin6_addr.s6_addr[i]);
    } else {
        return false;
    }
    to->prefix = prefix;
    snprintf(to->interface, sizeof to->interface, "%.31s", at->ifa_name);
    return inet_ntop(at->ifa_addr->sa_family, number, to->address, sizeof to->address) != NULL;
}

static unsigned add_addresses(const struct interfaces *list, const char *device, unsigned port,
                              const struct ifaddrs *all, struct rg_rdma_address *out, unsigned max)
{
    unsigned n = 0;
    for (const struct ifaddrs *at = all; at && n < max; at = at->ifa_next) {
        bool listed = false;
        for (unsigned i = 0; i < list->n; i++)
            listed |= strcmp(list->names[i], at->ifa_name) == 0;
        if (!listed || !describe(at, &out[n]))
            continue;
        out[n].port = port;
        snprintf(out[n++].device, sizeof out->device, "%.63s", device);
    }
    return n;
}

unsigned rg_link_addresses(struct rg_rdma_address *out, unsigned max)
{
    unsigned n = 0;
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return 0;
    for (const struct ifaddrs *at = all; at && n < max; at = at->ifa_next) {
        if ((at->ifa_flags & IFF_LOOPBACK) || !(at->ifa_flags & IFF_RUNNING) || !describe(at, &out[n]))
            continue;
        out[n].port = 0;
        snprintf(out[n++].device, sizeof out->device, "%.31s", at->ifa_name);
    }
    freeifaddrs(all);
    return n;
}

unsigned rg_rdma_addresses(struct rg_rdma_address *out, unsigned max)
{
    unsigned n = 0;
    struct ifaddrs *all = NULL;
    DIR *devices = opendir(CLASS);
    if (!devices)
        return 0;
    if (getifaddrs(&all) != 0)
        all = NULL;
    FOR_EACH_ENTRY(devices, device)
    {
        char path[600];
        snprintf(path, sizeof path, CLASS "/%.63s/ports", device->d_name);
        DIR *ports = opendir(path);
        FOR_EACH_ENTRY(ports, port)
        {
            struct interfaces list = {.n = 0};
            add_port(&list, device->d_name, port->d_name);
            n += add_addresses(&list, device->d_name, (unsigned)strtoul(port->d_name, NULL, 10), all, out + n,
                               max - n);
        }
        if (ports)
            closedir(ports);
    }
    closedir(devices);
    if (all)
        freeifaddrs(all);
    return n;
}

bool rg_rdma_library(const char *root, const char *name, char *path, size_t path_size, char *version,
                     size_t version_size)
{
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu",
                                          "/usr/lib/aarch64-linux-gnu",
                                          "/usr/lib64",
                                          "/usr/lib",
                                          "/lib64",
                                          "/lib"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char link[PATH_MAX], target[PATH_MAX];
        if (snprintf(link, sizeof link, "%s%s/%s", root, folders[i], name) >= (int)sizeof link)
            return false;
        ssize_t size = readlink(link, target, sizeof target - 1);
        if (size < 0 && access(link, F_OK) != 0)
            continue;
        target[size < 0 ? 0 : size] = 0;
        const char *number = strstr(target, ".so.");
        snprintf(path, path_size, "%s", link + strlen(root));
        snprintf(version, version_size, "%s", number ? number + 4 : "?");
        return true;
    }
    return false;
}

void rg_rdma_describe(char *out, size_t size)
{
    struct rg_rdma_address addresses[8];
    unsigned n = rg_rdma_addresses(addresses, sizeof addresses / sizeof *addresses);
    size_t used =
        (size_t)snprintf(out, size, "%s", n ? "" : "no RDMA device with an active port and an address");
    for (unsigned i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s (%s)", i ? ", " : "", addresses[i].device,
                                 addresses[i].address);
    static const char *const libraries[] = {"libibverbs.so.1", "librdmacm.so.1"};
    for (size_t i = 0; i < 2 && used < size; i++) {
        char path[PATH_MAX], version[64];
        bool there = rg_rdma_library("", libraries[i], path, sizeof path, version, sizeof version);
        used += (size_t)snprintf(out + used, size - used, "; %.*s %s", (int)strcspn(libraries[i], "."),
                                 libraries[i], there ? version : "missing");
    }
}
