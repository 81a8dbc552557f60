/* rails.c - see rails.h. */
#include "transport/topology/rails.h"

#include "common/base/log.h"
#include "common/base/parse.h"
#include "transport/topology/ports.h"
#include "transport/topology/proximity.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESSES = 32 };

/* --- what is wanted --- */

enum rg_status rg_rails_check(const char *text, char *why, size_t why_size)
{
    char *end;
    const long number = strtol(text, &end, 10);
    if (!*text || *end || number >= 1)
        return RG_OK;
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     "'%s' is neither auto, always, off, a number from 1, nor names of adapters", text);
}

static const char *wish(void)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    const char *text = secure_getenv("REMOTE_GPU_RAILS");
    char why[160];
    if (!text || rg_rails_check(text, why, sizeof why) == RG_OK)
        return text ? text : "";
    if (!atomic_flag_test_and_set(&told))
        rg_warn("REMOTE_GPU_RAILS: %s; taking auto", why);
    return "";
}

/* The number, if it is one; -1: names. */
static long number_wanted(void)
{
    const char *text = wish();
    char *end;
    if (!*text || strcmp(text, "auto") == 0 || strcmp(text, "always") == 0)
        return RG_RAILS_MAX;
    if (strcmp(text, "off") == 0)
        return 1;
    const long number = strtol(text, &end, 10);
    if (*end)
        return -1;
    return number > RG_RAILS_MAX ? RG_RAILS_MAX : number;
}

unsigned rg_rails_wanted(void)
{
    const long number = number_wanted();
    return number < 0 ? RG_RAILS_MAX : (unsigned)number;
}

bool rg_rails_named(void)
{
    return number_wanted() < 0;
}

bool rg_rails_always(void)
{
    return *wish() && strcmp(wish(), "auto") != 0;
}

/* The place of an address among the names that are wanted; UINT_MAX: it is not. */
static unsigned place_of(const struct rg_rdma_address *way)
{
    unsigned place = 0;
    for (const char *at = wish(); *at; place++) {
        const size_t size = strcspn(at, ",");
        const char *const names[] = {way->device, way->interface, way->address};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strlen(names[i]) == size && strncmp(names[i], at, size) == 0)
                return place;
        at += size + (at[size] == ',');
    }
    return UINT_MAX;
}

/* --- what there is --- */

static unsigned speed_of(const char *device, unsigned port)
{
    char path[256];
    char text[32] = "";
    snprintf(path, sizeof path, "/sys/class/infiniband/%.63s/ports/%u/rate", device, port);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const bool read = fgets(text, sizeof text, file) != NULL; /* "2.5 Gb/sec (1X SDR)" */
    fclose(file);
    const double gigabits = read ? rg_parse_double(text, NULL) : 0;
    return gigabits > 0 && gigabits < 1e6 ? (unsigned)(gigabits * 1000) : 0;
}

static unsigned speed_of_link(const char *interface)
{
    char path[256];
    long mbps = 0;
    snprintf(path, sizeof path, "/sys/class/net/%.31s/speed", interface);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const bool read = fscanf(file, "%ld", &mbps) == 1; /* -1: not known */
    fclose(file);
    return read && mbps > 0 && mbps < 100000000 ? (unsigned)mbps : 0;
}

static void complete(struct rg_rail *rail, const char *const *gpus, unsigned n_gpus)
{
    rg_proximity_pci_of_rdma("", rail->way.device, rail->pci, sizeof rail->pci);
    rg_port_name("", rail->way.device, rail->way.port, rail->way.interface, rail->port, sizeof rail->port);
    rail->mbps =
        rail->way.port ? speed_of(rail->way.device, rail->way.port) : speed_of_link(rail->way.interface);
    rail->near = RG_PROXIMITY_UNKNOWN;
    for (unsigned i = 0; i < n_gpus; i++) {
        const unsigned near = rg_proximity_pci("", rail->pci, gpus[i]);
        if (near < rail->near)
            rail->near = near;
    }
}

static bool is_better(const struct rg_rail *one, const struct rg_rail *other, bool named)
{
    if (named)
        return place_of(&one->way) < place_of(&other->way);
    if (one->near != other->near)
        return one->near < other->near;
    return one->mbps > other->mbps;
}

/* Two addresses of one physical port are one rail; where the user names devices, those of one device are. */
static bool is_same_rail(const struct rg_rail *one, const struct rg_rail *other, bool named)
{
    return strcmp(one->port, other->port) == 0 && (!named || strcmp(one->way.device, other->way.device) == 0);
}

/* Numbers those of the addresses that are wanted, the best rail first. */
static unsigned arrange(const struct rg_rdma_address *ways, unsigned found, const char *const *gpus,
                        unsigned n_gpus, struct rg_rail *out, unsigned max)
{
    struct rg_rail all[ADDRESSES];
    bool taken[ADDRESSES] = {false};
    const bool named = number_wanted() < 0;
    const unsigned wanted = rg_rails_wanted();
    unsigned n_all = 0, n = 0;
    for (unsigned i = 0; i < found; i++) {
        if (named && place_of(&ways[i]) == UINT_MAX)
            continue;
        all[n_all] = (struct rg_rail){.way = ways[i]};
        complete(&all[n_all++], gpus, n_gpus);
    }
    for (unsigned number = 0; number < wanted; number++) {
        const struct rg_rail *best = NULL;
        for (unsigned i = 0; i < n_all; i++)
            if (!taken[i] && (!best || is_better(&all[i], best, named)))
                best = &all[i];
        if (!best)
            break;
        for (unsigned i = 0; i < n_all; i++) /* all of this rail; the one that was named first */
            for (unsigned again = 0; again < 2; again++)
                if (!taken[i] && is_same_rail(&all[i], best, named) && n < max &&
                    (again || &all[i] == best)) {
                    taken[i] = true;
                    out[n] = all[i];
                    out[n++].number = number;
                }
    }
    return n;
}

unsigned rg_rails_here(const char *const *gpus, unsigned n_gpus, struct rg_rail *out, unsigned max)
{
    struct rg_rdma_address ways[ADDRESSES];
    const unsigned found = rg_rdma_addresses(ways, ADDRESSES);
    const unsigned n = arrange(ways, found, gpus, n_gpus, out, max);
    if (rg_rails_named() && found && !n)
        rg_warn("REMOTE_GPU_RAILS=%s names no RDMA device, interface or address of this machine", wish());
    return n;
}

unsigned rg_rails_links(struct rg_rail *out, unsigned max)
{
    struct rg_rdma_address ways[ADDRESSES];
    return arrange(ways, rg_link_addresses(ways, ADDRESSES), NULL, 0, out, max);
}

bool rg_rails_same_network(const char *one, const char *other, unsigned prefix)
{
    unsigned char a[16], b[16];
    const int family = strchr(one, ':') ? AF_INET6 : AF_INET;
    if (inet_pton(family, one, a) != 1 || inet_pton(family, other, b) != 1)
        return false;
    for (unsigned bit = 0; bit < prefix && bit < (family == AF_INET ? 32u : 128u); bit++)
        if ((a[bit / 8] ^ b[bit / 8]) >> (7 - bit % 8) & 1)
            return false;
    return prefix > 0;
}

const struct rg_rail *rg_rails_to(const char *host, const struct rg_rail *rails, unsigned n, bool *direct)
{
    *direct = false;
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST}, *list;
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    char text[INET6_ADDRSTRLEN] = "";
    if (getaddrinfo(host, "7600", &hints, &list) != 0)
        return NULL;
    const int fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    /* Nothing is sent: the kernel chooses the address that it would be sent from. */
    const bool good = fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) == 0 &&
                      getsockname(fd, (struct sockaddr *)&own, &size) == 0;
    if (good && own.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)&own)->sin_addr, text, sizeof text);
    else if (good && own.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)(void *)&own)->sin6_addr, text, sizeof text);
    if (fd >= 0)
        close(fd);
    freeaddrinfo(list);
    for (unsigned i = 0; i < n && *text; i++)
        if (strcmp(rails[i].way.address, text) == 0) {
            *direct = rg_rails_same_network(host, text, rails[i].way.prefix);
            return &rails[i];
        }
    return NULL;
}

void rg_rails_describe(const struct rg_rail *rails, unsigned n, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "%s", "");
    for (unsigned i = 0; i < n && used < size; i++) {
        char speed[32] = "";
        if (rails[i].mbps)
            snprintf(speed, sizeof speed, ", %g Gb/s", rails[i].mbps / 1000.0);
        const bool known = rails[i].near != RG_PROXIMITY_UNKNOWN;
        used += (size_t)snprintf(out + used, size - used, "%s%s (%s, %s%s%s%s)", i ? "; " : "",
                                 rails[i].way.device, rails[i].way.interface, rails[i].way.address, speed,
                                 known ? ", GPU " : "", known ? rg_proximity_words(rails[i].near) : "");
    }
}
