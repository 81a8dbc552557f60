/*
 * verbs.c - RDMA devices and their ports: state, GIDs, MTU.
 *
 * GIDs: on Ethernet (RoCE) the kernel makes an entry for each address of the interface and each version;
 * rdma_cm takes the one of the address that a connection uses, so there must be one for an IP address
 * (::ffff:a.b.c.d for IPv4).
 */
#include "client/cli/doctor/doctor.h"
#include "client/cli/doctor/tree.h"

#include <stdio.h>
#include <string.h>

#define CLASS "/sys/class/infiniband"

/* What of the interface's MTU is left for an RDMA message: GRH, UDP, BTH, extended headers, ICRC (linux:
 * iboe_get_mtu). */
enum { ROCE_HEADERS = 40 + 8 + 12 + 16 + 28 + 4, ADVISED_MTU = 9000, GIDS_MAX = 1024 };

static int rdma_mtu(long interface_mtu)
{
    for (int mtu = 4096; mtu >= 256; mtu /= 2)
        if (interface_mtu - ROCE_HEADERS >= mtu)
            return mtu;
    return 0;
}

static void check_state(struct rg_doctor *doctor, struct rg_doctor_device *device, const char *port)
{
    char state[64], physical[64], layer[64], rate[64], fix[RG_DOCTOR_TEXT] = "";
    rg_tree_line(doctor, state, sizeof state, CLASS "/%s/ports/%s/state", device->name, port);
    rg_tree_line(doctor, physical, sizeof physical, CLASS "/%s/ports/%s/phys_state", device->name, port);
    rg_tree_line(doctor, layer, sizeof layer, CLASS "/%s/ports/%s/link_layer", device->name, port);
    rg_tree_line(doctor, rate, sizeof rate, CLASS "/%s/ports/%s/rate", device->name, port);
    bool active = strstr(state, "ACTIVE") != NULL;
    device->active |= active;
    if (!active && strcmp(layer, "InfiniBand") == 0 && strstr(state, "INIT"))
        snprintf(fix, sizeof fix,
                 "the fabric needs a subnet manager: systemctl start opensm, on one of its machines");
    else if (!active && device->interface[0])
        snprintf(fix, sizeof fix, "ip link set dev %s up; then look at cable and switch port",
                 device->interface);
    else if (!active)
        snprintf(fix, sizeof fix, "look at cable and switch port");
    rg_doctor_say(doctor, active ? RG_CHECK_OK : RG_CHECK_WARNING, "port", fix,
                  "%s port %s: %s, %s, %s, %s%s%s", device->name, port, *state ? state : "state unknown",
                  *physical ? physical : "link unknown", *layer ? layer : "link layer unknown",
                  *rate ? rate : "rate unknown", device->interface[0] ? ", interface " : "",
                  device->interface);
}

/* "0000:0000:0000:0000:0000:ffff:0a4d:0001" */
static bool gid_of_ipv4(const char *gid, char *address, size_t size)
{
    unsigned high, low;
    if (strncmp(gid, "0000:0000:0000:0000:0000:ffff:", 30) != 0 ||
        sscanf(gid + 30, "%4x:%4x", &high, &low) != 2)
        return false;
    snprintf(address, size, "%u.%u.%u.%u", high >> 8, high & 255, low >> 8, low & 255);
    return true;
}

struct gids {
    unsigned all, ip, v2, ip_v2;
    char address[32]; /* of the first for an IPv4 address, version 2 if there is one */
    int index;
};

static void count_gid(struct rg_doctor *doctor, const char *device, const char *port, int index,
                      struct gids *out)
{
    char gid[64], type[32], address[32];
    if (!rg_tree_line(doctor, gid, sizeof gid, CLASS "/%s/ports/%s/gids/%d", device, port, index) ||
        strspn(gid, "0:") == strlen(gid) ||
        !rg_tree_line(doctor, type, sizeof type, CLASS "/%s/ports/%s/gid_attrs/types/%d", device, port,
                      index))
        return;
    bool v2 = strstr(type, "v2") != NULL, link_local = strncmp(gid, "fe80:", 5) == 0;
    bool ipv4 = gid_of_ipv4(gid, address, sizeof address);
    out->all++;
    out->v2 += v2;
    if (link_local)
        return;
    out->ip++;
    if (out->ip == 1 || (v2 && !out->ip_v2)) {
        out->index = index;
        snprintf(out->address, sizeof out->address, "%s", ipv4 ? address : "IPv6");
    }
    out->ip_v2 += v2;
}

static void check_gids(struct rg_doctor *doctor, const struct rg_doctor_device *device, const char *port)
{
    struct gids gids = {0};
    char fix[256];
    for (int i = 0;
         i < GIDS_MAX && rg_tree_exists(doctor, CLASS "/%s/ports/%s/gids/%d", device->name, port, i); i++)
        count_gid(doctor, device->name, port, i, &gids);
    snprintf(fix, sizeof fix, "ip address add ADDRESS/PREFIX dev %s",
             device->interface[0] ? device->interface : "INTERFACE");
    if (gids.ip == 0)
        rg_doctor_say(doctor, RG_CHECK_PROBLEM, "gid", fix,
                      "%s port %s: none of %u GIDs belongs to an IP address, so no connection can be made",
                      device->name, port, gids.all);
    else if (gids.v2 == 0)
        rg_doctor_say(doctor, RG_CHECK_WARNING, "gid",
                      "use machines in the same network segment, or a device (on ESXi: virtual hardware 20 "
                      "or later) with RoCE v2",
                      "%s port %s: RoCE v1 only (GID %d, %s): it does not cross routers", device->name, port,
                      gids.index, gids.address);
    else if (gids.ip_v2 == 0)
        rg_doctor_say(doctor, RG_CHECK_PROBLEM, "gid", fix,
                      "%s port %s: no RoCE v2 GID belongs to an IP address", device->name, port);
    else
        rg_doctor_say(doctor, RG_CHECK_OK, "gid", NULL, "%s port %s: RoCE v2, GID %d for %s", device->name,
                      port, gids.index, gids.address);
}

static void check_mtu(struct rg_doctor *doctor, const struct rg_doctor_device *device)
{
    char fix[256];
    long mtu = rg_tree_number(doctor, 0, "/sys/class/net/%s/mtu", device->interface);
    if (mtu <= 0)
        return;
    snprintf(fix, sizeof fix, "ip link set dev %s mtu %d, on every machine and switch of the way",
             device->interface, ADVISED_MTU);
    rg_doctor_say(doctor, mtu < ADVISED_MTU ? RG_CHECK_WARNING : RG_CHECK_OK, "mtu",
                  mtu < ADVISED_MTU ? fix : NULL,
                  "%s: %ld, which leaves %d for RDMA messages (9000 and 4096 are best)", device->interface,
                  mtu, rdma_mtu(mtu));
}

static void check_port(struct rg_doctor *doctor, struct rg_doctor_device *device, const char *port)
{
    char layer[64];
    rg_tree_line(doctor, layer, sizeof layer, CLASS "/%s/ports/%s/link_layer", device->name, port);
    if (!device->interface[0])
        rg_tree_line(doctor, device->interface, sizeof device->interface,
                     CLASS "/%s/ports/%s/gid_attrs/ndevs/0", device->name, port);
    check_state(doctor, device, port);
    if (strcmp(layer, "Ethernet") == 0) {
        check_gids(doctor, device, port);
        check_mtu(doctor, device);
    } else if (!device->interface[0]) {
        rg_doctor_say(doctor, RG_CHECK_PROBLEM, "ipoib",
                      "modprobe ib_ipoib; ip address add ADDRESS/PREFIX dev ib0",
                      "%s port %s: no network interface over InfiniBand, which finding each other needs",
                      device->name, port);
    }
}

static void find_device(struct rg_doctor *doctor, const char *name)
{
    static struct rg_tree_names ports, interfaces;
    struct rg_doctor_device *device = &doctor->devices[doctor->n_devices++];
    char firmware[64], type[64];
    snprintf(device->name, sizeof device->name, "%s", name);
    rg_tree_link(doctor, device->driver, sizeof device->driver, CLASS "/%s/device/driver", name);
    rg_tree_link(doctor, device->pci, sizeof device->pci, CLASS "/%s/device", name);
    if (rg_tree_list(doctor, &interfaces, CLASS "/%s/device/net", name) && interfaces.n)
        snprintf(device->interface, sizeof device->interface, "%.31s", interfaces.names[0]);
    rg_tree_line(doctor, firmware, sizeof firmware, CLASS "/%s/fw_ver", name);
    rg_tree_line(doctor, type, sizeof type, CLASS "/%s/hca_type", name);
    rg_doctor_say(doctor, RG_CHECK_OK, "device", NULL, "%s: driver %s%s%s%s%s%s%s", name,
                  device->driver[0] ? device->driver : "of software", *type ? ", type " : "", type,
                  *firmware ? ", firmware " : "", firmware, device->pci[0] ? ", at " : "", device->pci);
    rg_tree_list(doctor, &ports, CLASS "/%s/ports", name);
    for (unsigned i = 0; i < ports.n; i++)
        check_port(doctor, device, ports.names[i]);
}

/* Hardware that could do RDMA and of which no driver has made a device. */
static void find_hardware(struct rg_doctor *doctor)
{
    static const struct {
        long vendor, device, class;
        const char *what, *module;
    } known[] = {{0x15ad, 0x0820, 0, "a VMware paravirtual RDMA adapter", "vmw_pvrdma"},
                 {0x15b3, 0, 0x0200, "a Mellanox adapter", "mlx5_ib"},
                 {0x15b3, 0, 0x0207, "a Mellanox adapter", "mlx5_ib"},
                 {0x14e4, 0, 0x0280, "a Broadcom adapter", "bnxt_re"}};
    static struct rg_tree_names list;
    bool found = false;
    rg_tree_list(doctor, &list, "/sys/bus/pci/devices");
    for (unsigned i = 0; i < list.n; i++) {
        long vendor = rg_tree_number(doctor, 0, "/sys/bus/pci/devices/%s/vendor", list.names[i]);
        long device = rg_tree_number(doctor, 0, "/sys/bus/pci/devices/%s/device", list.names[i]);
        long class = rg_tree_number(doctor, 0, "/sys/bus/pci/devices/%s/class", list.names[i]) >> 8;
        for (size_t j = 0; j < sizeof known / sizeof *known; j++) {
            if (vendor != known[j].vendor || (known[j].device && device != known[j].device) ||
                (known[j].class && class != known[j].class))
                continue;
            char fix[128];
            snprintf(fix, sizeof fix, "modprobe %s ib_uverbs rdma_ucm -a", known[j].module);
            rg_doctor_say(doctor, RG_CHECK_WARNING, "device", fix,
                          "%s (%s) is there, but no RDMA device: its driver is not loaded; TCP is used",
                          known[j].what, list.names[i]);
            found = true;
        }
    }
    if (!found)
        rg_doctor_say(doctor, RG_CHECK_OK, "device", NULL, "this machine has no RDMA device: TCP is used");
}

void rg_doctor_verbs(struct rg_doctor *doctor)
{
    static struct rg_tree_names list;
    rg_tree_list(doctor, &list, CLASS);
    for (unsigned i = 0; i < list.n && doctor->n_devices < RG_DOCTOR_DEVICES; i++)
        find_device(doctor, list.names[i]);
    bool active = false;
    for (unsigned i = 0; i < doctor->n_devices; i++)
        active |= doctor->devices[i].active;
    if (doctor->n_devices == 0)
        find_hardware(doctor);
    else if (!active)
        rg_doctor_say(doctor, RG_CHECK_PROBLEM, "port", "bring one up, see above",
                      "no port of any RDMA device is active: RDMA cannot be used");
}
