/*
 * rights.c - whether this user may use the devices: nodes in /dev/infiniband, memory that may be locked.
 *
 * Who "this user" is, is read like the rest (/proc/self/status), so that a recorded tree has its own.
 */
#include "client/cli/doctor/doctor.h"
#include "client/cli/doctor/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAP_IPC_LOCK_BIT = 14, GROUPS = 64 };

/* A session locks 3.5 MiB, with its bounce buffers; pinned memory of the application comes on top. */
#define MEMLOCK_NEEDED  (7ull << 19)
#define MEMLOCK_ADVISED (256ull << 20)

struct user {
    unsigned uid, gids[GROUPS], n_gids;
    unsigned long long capabilities;
};

static void read_user(const struct rg_doctor *doctor, struct user *out)
{
    char text[8192];
    *out = (struct user){0};
    rg_tree_read(doctor, text, sizeof text, "/proc/self/status");
    const char *at = strstr(text, "\nUid:");
    if (at)
        sscanf(at, " Uid: %*u %u", &out->uid);
    if ((at = strstr(text, "\nGid:")) && sscanf(at, " Gid: %*u %u", &out->gids[0]) == 1)
        out->n_gids = 1;
    if ((at = strstr(text, "\nCapEff:")))
        out->capabilities = strtoull(at + strlen("\nCapEff:"), NULL, 16);
    if ((at = strstr(text, "\nGroups:"))) {
        at += strlen("\nGroups:");
        for (char *end; out->n_gids < GROUPS; at = end) {
            at += strspn(at, " \t");
            unsigned gid = (unsigned)strtoul(at, &end, 10);
            if (end == at)
                break;
            out->gids[out->n_gids++] = gid;
        }
    }
}

static bool may_use(const struct user *user, const struct stat *node)
{
    unsigned wanted = 6; /* read and write */
    if (user->uid == 0)
        return true;
    if (node->st_uid == user->uid)
        return (node->st_mode >> 6 & wanted) == wanted;
    for (unsigned i = 0; i < user->n_gids; i++)
        if (node->st_gid == user->gids[i])
            return (node->st_mode >> 3 & wanted) == wanted;
    return (node->st_mode & wanted) == wanted;
}

static bool in_container(const struct rg_doctor *doctor)
{
    return rg_tree_exists(doctor, "/.dockerenv") || rg_tree_exists(doctor, "/run/.containerenv") ||
           rg_tree_exists(doctor, "/var/run/secrets/kubernetes.io");
}

static void check_node(struct rg_doctor *doctor, const struct user *user, const char *name, bool container)
{
    struct stat node;
    char fix[RG_DOCTOR_TEXT];
    if (!rg_tree_stat(doctor, &node, "/dev/infiniband/%s", name)) {
        snprintf(fix, sizeof fix,
                 container ? "docker run --device=/dev/infiniband/%s …; in a pod: ask for the RDMA device "
                             "plugin's resource"
                           : "modprobe %s",
                 container                      ? name
                 : strcmp(name, "rdma_cm") == 0 ? "rdma_ucm"
                                                : "ib_uverbs");
        rg_doctor_say(doctor, RG_CHECK_PROBLEM, "device node", fix, "/dev/infiniband/%s is not there%s", name,
                      container ? " in this container" : "");
    } else if (!may_use(user, &node)) {
        snprintf(fix, sizeof fix, "chmod 666 /dev/infiniband/%s (as the udev rules of rdma-core do)", name);
        rg_doctor_say(doctor, RG_CHECK_PROBLEM, "device node", fix,
                      "/dev/infiniband/%s: user %u may not read and write it (mode %03o)", name, user->uid,
                      (unsigned)node.st_mode & 0777);
    } else {
        rg_doctor_say(doctor, RG_CHECK_OK, "device node", NULL, "/dev/infiniband/%s can be used by user %u",
                      name, user->uid);
    }
}

static void check_memlock(struct rg_doctor *doctor, const struct user *user, bool container)
{
    char text[8192], soft[32] = "";
    const char *advice = container ? "docker run --cap-add=IPC_LOCK --ulimit memlock=-1 …; in a pod: "
                                     "securityContext.capabilities.add: [IPC_LOCK]"
                                   : "ulimit -l unlimited; for good: '* - memlock unlimited' in "
                                     "/etc/security/limits.d/rdma.conf, LimitMEMLOCK=infinity in a unit";
    rg_tree_read(doctor, text, sizeof text, "/proc/self/limits");
    const char *line = strstr(text, "Max locked memory");
    if (line)
        sscanf(line + strlen("Max locked memory"), " %31s", soft);
    bool unlimited = strcmp(soft, "unlimited") == 0;
    unsigned long long bytes = strtoull(soft, NULL, 10);
    if (user->capabilities >> CAP_IPC_LOCK_BIT & 1)
        rg_doctor_say(doctor, RG_CHECK_OK, "memlock", NULL,
                      "this user has IPC_LOCK: memory can be locked without limit");
    else if (!*soft || unlimited)
        rg_doctor_say(doctor, RG_CHECK_OK, "memlock", NULL, "%s",
                      *soft ? "unlimited" : "the limit is not known");
    else
        rg_doctor_say(doctor,
                      bytes < MEMLOCK_NEEDED    ? RG_CHECK_PROBLEM
                      : bytes < MEMLOCK_ADVISED ? RG_CHECK_WARNING
                                                : RG_CHECK_OK,
                      "memlock", bytes < MEMLOCK_ADVISED ? advice : NULL,
                      "%llu KiB may be locked; a session needs 3.5 MiB, and what the application pins",
                      bytes >> 10);
}

void rg_doctor_rights(struct rg_doctor *doctor)
{
    static struct rg_tree_names nodes;
    struct user user;
    if (doctor->n_devices == 0)
        return;
    read_user(doctor, &user);
    bool container = in_container(doctor), any = false;
    rg_tree_list(doctor, &nodes, "/dev/infiniband");
    for (unsigned i = 0; i < nodes.n; i++)
        if (strncmp(nodes.names[i], "uverbs", 6) == 0) {
            check_node(doctor, &user, nodes.names[i], container);
            any = true;
        }
    if (!any)
        check_node(doctor, &user, "uverbs0", container);
    check_node(doctor, &user, "rdma_cm", container);
    check_memlock(doctor, &user, container);
}
