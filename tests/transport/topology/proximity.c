/* proximity.c - how near devices are to each other, in a tree of sysfs made for that. */
#include "transport/topology/proximity.h"
#include "tests/temporary.h"
#include "transport/topology/ports.h"
#include "transport/topology/rails.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *root;

/* A PCI function at a place below /sys/devices, on a NUMA node. */
static void add(const char *place, int node)
{
    char command[1024];
    const char *name = strrchr(place, '/') + 1;
    snprintf(command, sizeof command,
             "mkdir -p %s/sys/devices/%s %s/sys/bus/pci/devices && echo %d >%s/sys/devices/%s/numa_node && "
             "ln -sfn ../../../devices/%s %s/sys/bus/pci/devices/%s",
             root, place, root, node, root, place, place, root, name);
    cr_assert_eq(system(command), 0);
}

static void make_tree(void)
{
    root = temporary_folder();
    add("pci0000:10/0000:10:00.0/0000:11:00.0/0000:12:00.0/0000:13:00.0", 0); /* behind a switch: a GPU … */
    add("pci0000:10/0000:10:00.0/0000:11:00.0/0000:12:01.0/0000:14:00.0", 0); /* … and an adapter */
    add("pci0000:10/0000:10:00.0/0000:11:00.0/0000:12:02.0/0000:15:00.0/0000:16:00.0/0000:17:00.0", 0);
    add("pci0000:10/0000:10:01.0/0000:18:00.0", 0); /* another root port */
    add("pci0000:20/0000:20:00.0/0000:21:00.0", 0); /* another host bridge */
    add("pci0000:80/0000:80:00.0/0000:81:00.0", 1); /* another socket */
    char command[512];
    snprintf(
        command, sizeof command,
        "mkdir -p %s/sys/class/infiniband/mlx5_0 %s/sys/class/infiniband/rxe0 && "
        "ln -s ../../../devices/pci0000:10/0000:10:01.0/0000:18:00.0 %s/sys/class/infiniband/mlx5_0/device",
        root, root, root);
    cr_assert_eq(system(command), 0);
}

TestSuite(near, .init = make_tree);

Test(near, distances)
{
    static const char gpu[] = "0000:13:00.0";
    cr_expect_eq(rg_proximity_pci(root, gpu, gpu), RG_PROXIMITY_SWITCH);
    cr_expect_eq(rg_proximity_pci(root, gpu, "0000:14:00.0"), RG_PROXIMITY_SWITCH);
    cr_expect_eq(rg_proximity_pci(root, "0000:14:00.0", gpu), RG_PROXIMITY_SWITCH);
    cr_expect_eq(rg_proximity_pci(root, gpu, "0000:17:00.0"), RG_PROXIMITY_BRIDGES);
    cr_expect_eq(rg_proximity_pci(root, gpu, "0000:18:00.0"), RG_PROXIMITY_COMPLEX);
    cr_expect_eq(rg_proximity_pci(root, gpu, "0000:21:00.0"), RG_PROXIMITY_NODE);
    cr_expect_eq(rg_proximity_pci(root, gpu, "0000:81:00.0"), RG_PROXIMITY_FAR);
    cr_expect_eq(rg_proximity_pci(root, gpu, "0000:99:00.0"), RG_PROXIMITY_UNKNOWN);
    cr_expect_eq(rg_proximity_pci(root, "", gpu), RG_PROXIMITY_UNKNOWN);
    cr_expect_eq(rg_proximity_pci(root, "../../x", gpu), RG_PROXIMITY_UNKNOWN);
}

Test(near, nodes)
{
    cr_expect_eq(rg_proximity_node(root, "0000:13:00.0"), 0);
    cr_expect_eq(rg_proximity_node(root, "0000:81:00.0"), 1);
    cr_expect_eq(rg_proximity_node(root, "0000:99:00.0"), -1);
    cr_expect_eq(rg_proximity_node(root, ""), -1);
}

Test(near, rdma_devices)
{
    char pci[24];
    rg_proximity_pci_of_rdma(root, "mlx5_0", pci, sizeof pci);
    cr_expect_str_eq(pci, "0000:18:00.0");
    rg_proximity_pci_of_rdma(root, "rxe0", pci, sizeof pci); /* no PCI function */
    cr_expect_str_eq(pci, "");
    rg_proximity_pci_of_rdma(root, "none", pci, sizeof pci);
    cr_expect_str_eq(pci, "");
}

Test(near, words)
{
    cr_expect_str_eq(rg_proximity_words(RG_PROXIMITY_SWITCH), "behind the same switch");
    cr_expect_str_eq(rg_proximity_words((enum rg_proximity)77), rg_proximity_words(RG_PROXIMITY_UNKNOWN));
}

/* --- physical ports --- */

static void run(const char *format)
{
    char command[1024];
    snprintf(command, sizeof command, "cd %s/sys && %s", root, format);
    cr_assert_eq(system(command), 0);
}

static void expect_port(const char *device, unsigned port, const char *interface, const char *expected)
{
    char name[64];
    rg_port_name(root, device, port, interface, name, sizeof name);
    cr_expect_str_eq(name, expected, "%s of %s: %s, not %s", interface, device, name, expected);
}

Test(near, ports)
{
    run("mkdir -p class/net/ens1 class/net/ens1v0 class/net/vlan7/lower_ens1 class/net/vlan8/lower_vlan7 "
        "class/net/veth0 "
        "class/net/bond0/lower_ens1 class/net/bond0/lower_ens2 class/infiniband/mlx5_1 "
        "class/infiniband/mlx5_2");
    run("mkdir -p 'devices/pci0000:10/0000:10:01.0/0000:18:00.2' "
        "'devices/pci0000:10/0000:10:01.0/0000:18:00.0/mlx5_core.sf.2'");
    run("ln -s ../0000:18:00.0 'devices/pci0000:10/0000:10:01.0/0000:18:00.2/physfn'");
    run("ln -s ../../../devices/pci0000:10/0000:10:01.0/0000:18:00.2 class/infiniband/mlx5_1/device");
    run("ln -s ../../../devices/pci0000:10/0000:10:01.0/0000:18:00.0/mlx5_core.sf.2 "
        "class/infiniband/mlx5_2/device");
    run("ln -s ../../../devices/pci0000:10/0000:10:01.0/0000:18:00.0 class/net/ens1/device");
    expect_port("mlx5_0", 1, "ens1", "0000:18:00.0 port 1");
    expect_port("mlx5_0", 2, "ens2", "0000:18:00.0 port 2");   /* another port of it */
    expect_port("mlx5_0", 1, "vlan7", "0000:18:00.0 port 1");  /* a VLAN */
    expect_port("mlx5_1", 1, "ens1v0", "0000:18:00.0 port 1"); /* a virtual function */
    expect_port("mlx5_2", 1, "ens1sf", "0000:18:00.0 port 1"); /* a sub-function */
    expect_port("rxe0", 1, "ens1", "0000:18:00.0 port 1");     /* in software, on the same */
    expect_port("rxe0", 1, "vlan8", "0000:18:00.0 port 1");    /* on a VLAN of a VLAN */
    expect_port("rxe0", 1, "bond0", "bond0");
    expect_port("rxe0", 1, "veth0", "veth0");
    expect_port("rxe0", 1, "", "rxe0");
    run("echo 0c42a10000a1b2c3 >class/net/ens1/phys_port_id");
    expect_port("mlx5_0", 1, "ens1", "port 0c42a10000a1b2c3");
    expect_port("rxe0", 1, "vlan8", "port 0c42a10000a1b2c3");
}

Test(near, networks)
{
    cr_expect(rg_rails_same_network("10.1.0.1", "10.1.0.200", 24));
    cr_expect(!rg_rails_same_network("10.1.0.1", "10.1.1.1", 24));
    cr_expect(rg_rails_same_network("10.1.0.1", "10.1.1.1", 16));
    cr_expect(!rg_rails_same_network("10.1.0.0", "10.1.0.2", 31));
    cr_expect(rg_rails_same_network("fd00::1", "fd00::2", 64));
    cr_expect(!rg_rails_same_network("fd00::1", "10.1.0.1", 64)); /* of two families */
    cr_expect(!rg_rails_same_network("10.1.0.1", "fd00::1", 24));
    cr_expect(!rg_rails_same_network("", "10.1.0.1", 24)); /* not known */
    cr_expect(!rg_rails_same_network("10.1.0.1", "10.1.0.1", 0));
}
