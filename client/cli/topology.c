/* topology.c - see topology.h. What comes from servers is cleaned before it is printed. */
#include "client/cli/topology.h"

#include "client/cli/pool/pool.h"
#include "common/base/limits.h"
#include "common/base/printable.h"

#include <stdio.h>
#include <time.h>

/* Where a GPU is; -1: in no such group, or not known. */
struct place {
    unsigned index;
    int numa, nvlink, pcie;
};

static const char *way(const struct place *one, const struct place *other)
{
    if (one->nvlink >= 0 && one->nvlink == other->nvlink)
        return "NVLink";
    if (one->pcie >= 0 && one->pcie == other->pcie)
        return "PCIe";
    if (one->numa < 0 || other->numa < 0)
        return "?";
    return one->numa == other->numa ? "node" : "far";
}

static void print_matrix(const struct place *places, unsigned n)
{
    printf("  %-8s", "");
    for (unsigned i = 0; i < n; i++)
        printf("GPU %-4u", places[i].index);
    printf("NUMA node\n");
    for (unsigned i = 0; i < n; i++) {
        printf("  GPU %-4u", places[i].index);
        for (unsigned j = 0; j < n; j++)
            printf("%-8s", i == j ? "-" : way(&places[i], &places[j]));
        if (places[i].numa >= 0)
            printf("%d\n", places[i].numa);
        else
            printf("?\n");
    }
}

static void print_legend(void)
{
    printf("NVLink: linked by it; PCIe: below one switch; node: on one NUMA node; far: on different ones; ?: "
           "not known.\n");
}

static int group_of(const json_t *gpu, const char *name)
{
    const json_t *value = json_object_get(gpu, name);
    return json_is_integer(value) ? (int)json_integer_value(value) : -1;
}

static void print_member(const json_t *pool, const json_t *member)
{
    struct place places[RG_DEVICES_MAX];
    char address[RG_CONTROL_TEXT], host[RG_CONTROL_TEXT];
    const char *there = json_string_value(json_object_get(member, "address")),
               *name = json_string_value(json_object_get(member, "host"));
    const json_t *gpu;
    size_t i;
    unsigned n = 0;
    snprintf(address, sizeof address, "%s", there ? there : "");
    snprintf(host, sizeof host, "%s", name ? name : "");
    rg_printable_clean(address);
    rg_printable_clean(host);
    printf("%s: %s", address, host);
    rg_pool_print_link(pool, member);
    printf("\n");
    json_array_foreach(json_object_get(member, "gpus"), i, gpu) if (n < RG_DEVICES_MAX) places[n++] =
        (struct place){.index = (unsigned)group_of(gpu, "index"),
                       .numa = group_of(gpu, "numa"),
                       .nvlink = group_of(gpu, "nvlink"),
                       .pcie = group_of(gpu, "pcie")};
    print_matrix(places, n);
}

static void print_pool(const json_t *pool)
{
    const json_t *member;
    const time_t measured = (time_t)json_integer_value(json_object_get(pool, "measured"));
    struct tm date;
    char text[32] = "";
    size_t i;
    json_array_foreach(json_object_get(pool, "servers"), i, member) print_member(pool, member);
    if (measured && strftime(text, sizeof text, "%Y-%m-%d %H:%M", localtime_r(&measured, &date)))
        printf("The ways from here were measured last on %s.\n", text);
    else
        printf("The ways from here were not measured: remote-gpu netperf --pool does it.\n");
}

void rg_cli_print_topology(const struct rg_answer_of *answer)
{
    const struct rg_inventory *inventory = &answer->message.inventory;
    struct place places[RG_DEVICES_MAX];
    if (answer->pool) {
        print_pool(answer->pool);
        print_legend();
        return;
    }
    for (uint32_t i = 0; i < inventory->n_devices && i < RG_DEVICES_MAX; i++)
        places[i] = (struct place){.index = answer->first + inventory->devices[i].ordinal,
                                   .numa = (int)inventory->devices[i].numa_node - 1,
                                   .nvlink = (int)inventory->devices[i].nvlink_group - 1,
                                   .pcie = (int)inventory->devices[i].pcie_group - 1};
    printf("%s: %s\n", answer->server, inventory->host);
    print_matrix(places, inventory->n_devices < RG_DEVICES_MAX ? inventory->n_devices : RG_DEVICES_MAX);
    print_legend();
}
