/*
 * network.c - what RoCE needs of the network: no loss (PFC), or a reaction to congestion (ECN). What the
 * switches do is not to be seen from here; the device's own counters of what went wrong are.
 */
#include "client/cli/doctor/doctor.h"
#include "client/cli/doctor/tree.h"

#include <stdio.h>
#include <string.h>

#define PORT "/sys/class/infiniband/%s/ports/1"

/* Counters that grow when packets were lost. */
static long lost_packets(const struct rg_doctor *doctor, const char *device)
{
    static const char *const names[] = {"out_of_sequence", "packet_seq_err", "local_ack_timeout_err",
                                        "roce_slow_restart_trans"};
    long sum = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        sum += rg_tree_number(doctor, 0, PORT "/hw_counters/%s", device, names[i]);
    return sum;
}

/* Of eight priorities, how many react to congestion; -1: the driver does not tell. */
static int ecn_priorities(const struct rg_doctor *doctor, const char *interface)
{
    int on = 0;
    if (!rg_tree_exists(doctor, "/sys/class/net/%s/ecn/roce_rp/enable", interface))
        return -1;
    for (int i = 0; i < 8; i++)
        on += rg_tree_number(doctor, 0, "/sys/class/net/%s/ecn/roce_rp/enable/%d", interface, i) == 1 &&
              rg_tree_number(doctor, 0, "/sys/class/net/%s/ecn/roce_np/enable/%d", interface, i) == 1;
    return on;
}

static void check_device(struct rg_doctor *doctor, const struct rg_doctor_device *device)
{
    char layer[64], fix[RG_DOCTOR_TEXT], ecn[64] = "whether ECN is on is not told";
    rg_tree_line(doctor, layer, sizeof layer, PORT "/link_layer", device->name);
    /* Devices of software and of hypervisors have no say in it. */
    if (strcmp(layer, "Ethernet") != 0 || !device->driver[0] || strcmp(device->driver, "vmw_pvrdma") == 0)
        return;
    long lost = lost_packets(doctor, device->name);
    int priorities = ecn_priorities(doctor, device->interface);
    if (priorities >= 0)
        snprintf(ecn, sizeof ecn, "ECN is on for %d of 8 priorities", priorities);
    snprintf(fix, sizeof fix,
             "make the way lossless for RoCE, here and on the switches: mlnx_qos -i %s --pfc "
             "0,0,0,1,0,0,0,0; for i in roce_rp roce_np; do echo 1 > /sys/class/net/%s/ecn/$i/enable/3; "
             "done; echo 106 > /sys/kernel/config/rdma_cm/%s/ports/1/default_roce_tos",
             device->interface, device->interface, device->name);
    if (lost > 0)
        rg_doctor_say(doctor, RG_CHECK_WARNING, "congestion", fix,
                      "%s: %ld times packets were lost or repeated since its start; %s", device->name, lost,
                      ecn);
    else if (priorities == 0)
        rg_doctor_say(doctor, RG_CHECK_WARNING, "congestion", fix, "%s: no packets lost so far; %s",
                      device->name, ecn);
    else
        rg_doctor_say(doctor, RG_CHECK_OK, "congestion", NULL, "%s: no packets lost; %s", device->name, ecn);
}

void rg_doctor_network(struct rg_doctor *doctor)
{
    for (unsigned i = 0; i < doctor->n_devices; i++)
        if (doctor->devices[i].active)
            check_device(doctor, &doctor->devices[i]);
}
