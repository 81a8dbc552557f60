/*
 * modules.c - kernel modules that verbs need, and their order.
 *
 * /proc/modules lists the newest first. vmw_pvrdma finds what it registers with at its start, so it has to be
 * loaded after mlx4_ib, ib_umad, rdma_cm and rdma_ucm; where it was not (Ubuntu loads it early, at each
 * boot), its device may be there and not work. It was seen to work all the same (Debian 12), so an active
 * port makes it a warning.
 */
#include "client/cli/doctor/doctor.h"
#include "client/cli/doctor/tree.h"

#include <stdio.h>
#include <string.h>

static char modules[65536];

/* Position in the order of loading, the latest first; -1: not in the list. */
static int position(const char *name)
{
    int line = 0;
    size_t length = strlen(name);
    for (const char *at = modules; *at; line++) {
        if (strncmp(at, name, length) == 0 && at[length] == ' ')
            return line;
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    return -1;
}

/* Built into the kernel counts as loaded. */
static bool loaded(const struct rg_doctor *doctor, const char *name)
{
    return position(name) >= 0 || rg_tree_exists(doctor, "/sys/module/%s", name);
}

static void check_needed(struct rg_doctor *doctor)
{
    static const char *const needed[] = {"ib_uverbs", "rdma_cm", "rdma_ucm"};
    char missing[128] = "", fix[512];
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!loaded(doctor, needed[i]))
            snprintf(missing + strlen(missing), sizeof missing - strlen(missing), " %s", needed[i]);
    snprintf(fix, sizeof fix, "modprobe -a%s; printf '%%s\\n'%s > /etc/modules-load.d/rdma.conf", missing,
             missing);
    if (*missing)
        rg_doctor_say(doctor, RG_CHECK_PROBLEM, "modules", fix, "not loaded:%s", missing);
    else
        rg_doctor_say(doctor, RG_CHECK_OK, "modules", NULL, "ib_uverbs, rdma_cm and rdma_ucm are loaded");
}

static bool is_ubuntu(const struct rg_doctor *doctor)
{
    char release[4096];
    rg_tree_read(doctor, release, sizeof release, "/etc/os-release");
    return strncmp(release, "ID=ubuntu", 9) == 0 || strstr(release, "\nID=ubuntu") != NULL;
}

static void check_order(struct rg_doctor *doctor)
{
    static const char *const before[] = {"mlx4_ib", "ib_umad", "rdma_cm", "rdma_ucm"};
    char missing[128] = "", late[128] = "", fix[RG_DOCTOR_TEXT];
    int pvrdma = position("vmw_pvrdma");
    bool active = false;
    if (pvrdma < 0)
        return;
    for (unsigned i = 0; i < doctor->n_devices; i++)
        active |= doctor->devices[i].active && strcmp(doctor->devices[i].driver, "vmw_pvrdma") == 0;
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        int at = position(before[i]);
        char *list = at < 0 ? missing : late;
        if ((at < 0 && !loaded(doctor, before[i])) || (at >= 0 && at < pvrdma))
            snprintf(list + strlen(list), sizeof missing - strlen(list), " %s", before[i]);
    }
    snprintf(fix, sizeof fix,
             "modprobe -r vmw_pvrdma; modprobe -a mlx4_ib ib_umad rdma_cm rdma_ucm; modprobe vmw_pvrdma; at "
             "each boot%s: echo 'softdep vmw_pvrdma pre: mlx4_ib ib_umad rdma_cm rdma_ucm' > "
             "/etc/modprobe.d/vmw_pvrdma.conf%s",
             is_ubuntu(doctor) ? " (Ubuntu loads it too early)" : "",
             is_ubuntu(doctor) ? " && update-initramfs -u" : "");
    if (*late)
        rg_doctor_say(doctor, active ? RG_CHECK_WARNING : RG_CHECK_PROBLEM, "module order", fix,
                      "vmw_pvrdma was loaded before%s; if RDMA does not work, this is why", late);
    else if (*missing)
        rg_doctor_say(doctor, RG_CHECK_WARNING, "module order", fix, "vmw_pvrdma was loaded without%s",
                      missing);
    else
        rg_doctor_say(doctor, RG_CHECK_OK, "module order", NULL,
                      "vmw_pvrdma was loaded after mlx4_ib, ib_umad, rdma_cm and rdma_ucm");
}

void rg_doctor_modules(struct rg_doctor *doctor)
{
    if (doctor->n_devices == 0)
        return;
    rg_tree_read(doctor, modules, sizeof modules, "/proc/modules");
    check_needed(doctor);
    check_order(doctor);
}
