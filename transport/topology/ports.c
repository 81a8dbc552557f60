/*
 * ports.c - see ports.h.
 *
 * In this order: what the interface's driver says of its physical port (phys_port_id); the PCI function, of a
 * virtual one the physical one (physfn), with the number of the port; the name of the interface. A VLAN's,
 * macvlan's or similar interface stands for the one that it is on (lower_*); one on several (a bond) for
 * itself.
 */
#include "transport/topology/ports.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 64, STACKED = 8 };

/* The interface below, if there is exactly one. */
static bool go_down(const char *root, char name[NAME])
{
    static const char lower[] = "lower_";
    char path[PATH_MAX], found[NAME] = "";
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/sys/class/net/%s", root, name);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        if (strncmp(entry->d_name, lower, strlen(lower)) == 0 && n++ == 0)
            snprintf(found, sizeof found, "%.63s", entry->d_name + strlen(lower));
    if (dir)
        closedir(dir);
    if (n != 1)
        return false;
    memcpy(name, found, NAME);
    return true;
}

static bool read_word(const char *path, char out[NAME])
{
    FILE *file = fopen(path, "re");
    const bool good = file && fscanf(file, "%63s", out) == 1;
    if (file)
        fclose(file);
    return good;
}

static bool is_function(const char *name)
{
    unsigned parts[4];
    char rest;
    return sscanf(name, "%x:%x:%x.%x%c", &parts[0], &parts[1], &parts[2], &parts[3], &rest) == 4;
}

/* The physical PCI function that `link` leads to or below; "" if none. */
static void find_function(const char *link, char out[NAME])
{
    char path[PATH_MAX], way[PATH_MAX];
    *out = '\0';
    if (!realpath(link, path))
        return;
    char *slash;
    while ((slash = strrchr(path, '/')) != NULL && !is_function(slash + 1))
        *slash = '\0'; /* a sub-function lies below the function that has it */
    if (!slash)
        return;
    snprintf(out, NAME, "%.63s", slash + 1);
    if (snprintf(way, sizeof way, "%s/physfn", path) < (int)sizeof way && realpath(way, path) &&
        is_function(strrchr(path, '/') + 1))
        snprintf(out, NAME, "%.63s", strrchr(path, '/') + 1);
}

void rg_port_name(const char *root, const char *device, unsigned port, const char *interface, char *out,
                  size_t size)
{
    char base[NAME], path[PATH_MAX], text[NAME];
    snprintf(base, sizeof base, "%.63s", interface);
    for (int i = 0; i < STACKED && go_down(root, base); i++)
        ;
    snprintf(path, sizeof path, "%s/sys/class/net/%s/phys_port_id", root, base);
    if (*base && read_word(path, text)) {
        snprintf(out, size, "port %s", text);
        return;
    }
    snprintf(path, sizeof path, "%s/sys/class/infiniband/%.63s/device", root, device);
    find_function(path, text);
    if (!*text) { /* a software device */
        snprintf(path, sizeof path, "%s/sys/class/net/%s/device", root, base);
        find_function(path, text);
    }
    if (*text)
        snprintf(out, size, "%s port %u", text, port);
    else
        snprintf(out, size, "%s", *base ? base : device);
}
