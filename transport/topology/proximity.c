/* proximity.c - see proximity.h. */
#include "transport/topology/proximity.h"

#include "common/base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH = 32, PREFERRED = 1, NODES = 1024 }; /* MPOL_PREFERRED of linux/mempolicy.h */

/* The way from a host bridge to a function, as sysfs nests it. */
struct way {
    char text[PATH_MAX];
    const char *steps[DEPTH]; /* [0] the host bridge, the last the function itself */
    unsigned n;
};

static bool find_way(const char *root, const char *pci, struct way *out)
{
    char link[PATH_MAX];
    out->n = 0;
    if (!*pci || strchr(pci, '/') ||
        snprintf(link, sizeof link, "%s/sys/bus/pci/devices/%s", root, pci) >= (int)sizeof link ||
        !realpath(link, out->text))
        return false;
    char *bridge = strstr(out->text, "/devices/pci");
    char *rest = NULL;
    for (char *step = bridge ? strtok_r(bridge + strlen("/devices/"), "/", &rest) : NULL;
         step && out->n < DEPTH; step = strtok_r(NULL, "/", &rest))
        out->steps[out->n++] = step;
    return out->n >= 2;
}

int rg_proximity_node(const char *root, const char *pci)
{
    char path[PATH_MAX];
    int node = -1;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%.63s/numa_node", root, pci);
    FILE *file = *pci ? fopen(path, "re") : NULL;
    if (!file)
        return -1;
    if (fscanf(file, "%d", &node) != 1)
        node = -1;
    fclose(file);
    return node;
}

enum rg_proximity rg_proximity_pci(const char *root, const char *one, const char *other)
{
    enum { ONE_SWITCH = 4 }; /* a port of the switch and the function itself, on either side */
    struct way a, b;
    if (!find_way(root, one, &a) || !find_way(root, other, &b))
        return RG_PROXIMITY_UNKNOWN;
    unsigned common = 0;
    while (common < a.n && common < b.n && strcmp(a.steps[common], b.steps[common]) == 0)
        common++;
    if (common >= 2)
        return a.n + b.n - 2 * common <= ONE_SWITCH ? RG_PROXIMITY_SWITCH : RG_PROXIMITY_BRIDGES;
    if (common == 1)
        return RG_PROXIMITY_COMPLEX;
    const int a_node = rg_proximity_node(root, one), b_node = rg_proximity_node(root, other);
    return a_node >= 0 && b_node >= 0 && a_node != b_node ? RG_PROXIMITY_FAR : RG_PROXIMITY_NODE;
}

const char *rg_proximity_words(enum rg_proximity near)
{
    static const char *const words[] = {"behind the same switch",     "below the same root port",
                                        "below the same host bridge", "on the same NUMA node",
                                        "on another NUMA node",       "at no known distance"};
    return words[near <= RG_PROXIMITY_UNKNOWN ? near : RG_PROXIMITY_UNKNOWN];
}

void rg_proximity_pci_of_rdma(const char *root, const char *device, char *out, size_t size)
{
    char link[PATH_MAX], path[PATH_MAX];
    unsigned parts[4];
    *out = 0;
    snprintf(link, sizeof link, "%s/sys/class/infiniband/%.63s/device", root, device);
    const char *name = realpath(link, path) ? strrchr(path, '/') + 1 : "";
    if (sscanf(name, "%x:%x:%x.%x", &parts[0], &parts[1], &parts[2], &parts[3]) == 4)
        snprintf(out, size, "%s", name);
}

void rg_proximity_prefer_node(int node)
{
    const char *wish = secure_getenv("REMOTE_GPU_NUMA");
    if (wish && strcmp(wish, "off") == 0)
        return;
    if (wish && *wish && strcmp(wish, "auto") != 0) {
        char *end;
        const long number = strtol(wish, &end, 10);
        if (*end || number < 0 || number >= NODES)
            rg_warn("REMOTE_GPU_NUMA=%s is neither auto, off, nor the number of a node; taking auto", wish);
        else
            node = (int)number;
    }
    if (node < 0 || node >= NODES)
        return;
    unsigned long mask[NODES / (8 * sizeof(unsigned long))] = {0};
    const size_t bits = 8 * sizeof *mask;
    mask[(size_t)node / bits] = 1ul << (size_t)node % bits;
    if (syscall(SYS_set_mempolicy, PREFERRED, mask, (unsigned long)NODES) != 0)
        rg_info("memory cannot be kept on NUMA node %d: %s", node, strerror(errno));
    else
        rg_debug("memory comes from NUMA node %d if there is some", node);
}
