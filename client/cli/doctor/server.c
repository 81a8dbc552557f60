/*
 * server.c - the way to a server and what is at its end: whether it answers, versions, sandbox, clock, round trip,
 * bandwidth, path MTU, RDMA.
 */
#include "client/cli/base/perf_link.h"
#include "client/cli/doctor/doctor.h"
#include "client/query/query.h"
#include "transport/address.h"
#include "transport/state.h"
#include "transport/topology/choice.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>

#define ROUND_TRIP_ADVISED_US 50.0 /* what remote GPUs are said to need for work of many small calls */
#define ROUND_TRIP_SLOW_US    1000.0
#define CLOCK_APART_S         1.0

enum { RENEW_ADVISED_S = 7 * 86400 };
enum { MTU_ADVISED = 9000, MTU_LOOPBACK = 60000 };

static int64_t time_of_day(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void check_clock(struct rg_doctor *doctor, const struct rg_inventory *inventory, int64_t before,
                        int64_t after)
{
    if (inventory->machine.clock_ns == 0)
        return; /* an older server does not tell */
    /* in floating point: what the server tells may be any number */
    double apart =
        ((double)inventory->machine.clock_ns - ((double)before + (double)(after - before) / 2)) / 1e9;
    double uncertain = (double)(after - before) / 2e9;
    bool good = apart < CLOCK_APART_S + uncertain && apart > -CLOCK_APART_S - uncertain;
    rg_doctor_say(doctor, good ? RG_CHECK_OK : RG_CHECK_WARNING, "clock",
                  good ? NULL : "timedatectl set-ntp true, on both machines",
                  "the server's clock is %.3f s %s this one (give or take %.3f s)",
                  apart < 0 ? -apart : apart, apart < 0 ? "behind" : "ahead of", uncertain);
}

static void check_versions(struct rg_doctor *doctor, const struct rg_inventory *inventory)
{
    struct utsname name;
    char mine[64], rdma[RG_CONTROL_REASON];
    snprintf(mine, sizeof mine, "remote-gpu %s", RG_VERSION);
    bool same = strcmp(mine, inventory->software) == 0;
    rg_doctor_say(doctor, same ? RG_CHECK_OK : RG_CHECK_WARNING, "version",
                  same ? NULL : "install the same release on both machines", "here %s, there %s", mine,
                  inventory->software);
    rg_doctor_say(doctor, RG_CHECK_OK, "driver", NULL, "%s%s%s, CUDA %u.%u, %u GPU%s; %u of %u sessions run",
                  inventory->driver.kind, inventory->driver.release[0] ? " " : "", inventory->driver.release,
                  inventory->driver.version / 1000, inventory->driver.version % 1000 / 10,
                  inventory->n_devices, inventory->n_devices == 1 ? "" : "s", inventory->sessions_running,
                  inventory->limits.sessions);
    rg_rdma_describe(rdma, sizeof rdma);
    rg_doctor_say(doctor, RG_CHECK_OK, "system", NULL, "here kernel %s, %.400s; there kernel %s, %.400s",
                  uname(&name) == 0 ? name.release : "unknown", rdma,
                  inventory->machine.kernel[0] ? inventory->machine.kernel : "unknown",
                  inventory->machine.rdma[0] ? inventory->machine.rdma : "not told");
}

/* What a client that takes over its worker can do there. */
static void check_sandbox(struct rg_doctor *doctor, const struct rg_sandbox_info *sandbox)
{
    if (!sandbox->mode[0])
        return; /* an older server does not tell */
    const bool none = strcmp(sandbox->holds, "none") == 0, log = strcmp(sandbox->mode, "log") == 0;
    const char *fix = NULL;
    if (strcmp(sandbox->mode, "off") == 0)
        fix = "start the server without --sandbox=off";
    else if (none)
        fix = "the server's log says why its driver works only without; remote-gpud --sandbox=log says what "
              "is missing";
    else if (log)
        fix = "start the server without --sandbox=log, which only shows what would be refused";
    const bool less = !none && strcmp(sandbox->missing, "none") != 0;
    rg_doctor_say(doctor, fix ? RG_CHECK_WARNING : RG_CHECK_OK, "sandbox", fix, "%s: %.400s%s%.400s%s",
                  sandbox->mode,
                  none ? "a client that takes over its worker has all rights of the server" : sandbox->holds,
                  less ? "; not there: " : "", less ? sandbox->missing : "",
                  less ? " (the server's log says why)" : "");
}

/* Whether kernels can take over their worker in the first place. */
static void check_reach(struct rg_doctor *doctor, const struct rg_inventory *inventory)
{
    uint32_t n = 0, by_tables = 0;
    for (uint32_t i = 0; i < inventory->n_devices; i++) {
        n += inventory->devices[i].host_reach != 0;
        by_tables += (inventory->devices[i].host_reach & RG_CONTROL_REACH_PAGE_TABLES) != 0;
    }
    if (n)
        rg_doctor_say(
            doctor, RG_CHECK_WARNING, "kernels",
            by_tables < n
                ? "load the server's module nvidia-uvm with uvm_disable_hmm=1, or rely on the sandbox"
                : "rely on the sandbox: what these GPUs do by ATS cannot be switched off",
            "those of %u of the server's %u GPUs reach all memory of their worker (%s)", n,
            inventory->n_devices, by_tables ? "ATS" : "HMM");
}

/* What to do where a server does not answer. */
static void say_how_to_reach(const char *server, char *out, size_t size)
{
    struct rg_address address;
    if (rg_address_parse(server, &address, NULL, 0) != RG_OK)
        snprintf(out, size, "write its address as HOST, HOST:PORT, [IPV6]:PORT, unix:/PATH or unix:@NAME");
    else if (strcmp(address.scheme, "unix") == 0)
        snprintf(out, size, "systemctl status remote-gpud; ss -lx (does it listen on this socket?)");
    else
        snprintf(out, size,
                 "on the server: systemctl status remote-gpud; ss -ltn (does it listen on an address that "
                 "this machine reaches?); open its port in the firewall: ufw allow %u/tcp, or firewall-cmd "
                 "--add-port=%u/tcp",
                 address.port, address.port);
}

/* Whether the server answers at all. */
static bool check_answer(struct rg_doctor *doctor, const char *server, uint64_t timeout_ns)
{
    char why[RG_DOCTOR_TEXT] = "";
    struct rg_control *answer = calloc(1, sizeof *answer);
    if (!answer) {
        doctor->out_of_memory = true;
        return false;
    }
    int64_t before = time_of_day();
    enum rg_status status = rg_query(server, RG_PURPOSE_STATUS, timeout_ns, answer, why, sizeof why);
    int64_t after = time_of_day();
    if (status == RG_OK) {
        rg_doctor_say(doctor, RG_CHECK_OK, "server", NULL, "%s answers (%s)", server, answer->inventory.host);
        check_versions(doctor, &answer->inventory);
        check_sandbox(doctor, &answer->inventory.sandbox);
        check_reach(doctor, &answer->inventory);
        check_clock(doctor, &answer->inventory, before, after);
        rg_control_fini(answer);
    } else {
        char fix[RG_DOCTOR_TEXT];
        say_how_to_reach(server, fix, sizeof fix);
        /* a refusal says itself what to do */
        rg_doctor_say(doctor, RG_CHECK_PROBLEM, "server", status == RG_ERR_REFUSED ? NULL : fix, "%s", why);
    }
    free(answer);
    return status == RG_OK;
}

/* What to do about a round trip that is too long; NULL: it is not. */
static const char *say_how_to_be_faster(double us, bool rdma)
{
    if (us <= ROUND_TRIP_ADVISED_US)
        return NULL;
    if (us > ROUND_TRIP_SLOW_US)
        return "put client and server into the same network; remote-gpu compare shows what it means for a "
               "program";
    return rdma ? "a shorter way (same switch), or remote-gpu run --wait spin, which never sleeps"
                : "RDMA, a shorter way (same switch), or interrupts without delay: ethtool -C INTERFACE "
                  "adaptive-rx off rx-usecs 0";
}

static void check_round_trip(struct rg_doctor *doctor, const char *name, struct rg_perf_link *link)
{
    struct rg_latency latency;
    struct rg_bandwidth bandwidth;
    enum rg_status status = rg_perf_link_latency(link, RG_PERF_LINK_MIN, 0.3, &latency);
    if (status == RG_OK)
        status = rg_perf_link_bandwidth(link, 1u << 20, 0.2, &bandwidth);
    if (status != RG_OK) {
        rg_doctor_say(doctor, RG_CHECK_PROBLEM, "round trip",
                      "remote-gpu netperf shows at which size it fails", "%s: the measurement failed: %s",
                      name, rg_status_string(status));
        return;
    }
    const char *fix = say_how_to_be_faster(latency.p50_us, link->kind != RG_PERF_LINK_TCP);
    rg_doctor_say(doctor, fix ? RG_CHECK_WARNING : RG_CHECK_OK, "round trip", fix,
                  "%s: %.1f us (1 in 100 takes %.1f us); at most %.0f us is recommended", name,
                  latency.p50_us, latency.p99_us, ROUND_TRIP_ADVISED_US);
    rg_doctor_say(doctor, RG_CHECK_OK, "bandwidth", NULL, "%s: %.0f MB/s to the server, %.0f MB/s from it",
                  name, bandwidth.to_server / 1e6, bandwidth.from_server / 1e6);
}

/* What the kernel knows about the way after some traffic. */
static void check_path_mtu(struct rg_doctor *doctor, struct rg_perf_link *link)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    int fd = rg_conn_fd(link->conn);
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_pmtu == 0)
        return; /* a unix socket */
    bool good = info.tcpi_pmtu >= MTU_ADVISED;
    rg_doctor_say(doctor, good ? RG_CHECK_OK : RG_CHECK_WARNING, "path mtu",
                  good ? NULL : "ip link set dev INTERFACE mtu 9000, on every machine and switch of the way",
                  "%u%s", info.tcpi_pmtu,
                  info.tcpi_pmtu > MTU_LOOPBACK ? ", within this machine" : " (9000 is recommended)");
}

/* Who is at both ends, and what others on the way can read. */
static void check_encryption(struct rg_doctor *doctor, const char *server, const struct rg_perf_link *link)
{
    struct rg_conn_security security;
    struct rg_address address;
    rg_conn_security(link->conn, &security);
    if (security.encrypted) {
        const struct rg_credentials *own = &link->credentials;
        char until[32] = "";
        struct tm date;
        const time_t end = (time_t)own->not_after;
        strftime(until, sizeof until, "%Y-%m-%d", gmtime_r(&end, &date));
        const bool ends_soon = !own->joined && own->not_after < time_of_day() / 1000000000 + RENEW_ADVISED_S;
        rg_doctor_say(
            doctor, ends_soon ? RG_CHECK_WARNING : RG_CHECK_OK, "encryption",
            ends_soon ? "renew the certificate: remote-gpu does so only where it was made by remote-gpu join"
                      : NULL,
            "TLS 1.3, %s; the server is %s; this user is %s until %s%s", security.cipher, security.peer,
            own->name, until, own->joined ? ", and renews that" : "");
    } else if (rg_address_parse(server, &address, NULL, 0) == RG_OK && *address.host) {
        const bool near = rg_credentials_is_loopback(&address);
        rg_doctor_say(
            doctor, near ? RG_CHECK_OK : RG_CHECK_WARNING, "encryption",
            near ? NULL : "remote-gpud token --user NAME on the server, remote-gpu join TOKEN here",
            near ? "none, within this machine"
                 : "none, and nobody knows who the server is: others can read and change what is sent");
    }
}

/* Which of the server's addresses bulk data of a session goes by, over TCP; the first is that of the session. */
static void check_tcp_rails(struct rg_doctor *doctor, const struct rg_perf_link *link)
{
    struct rg_rail links[RG_CONTROL_ADDRESSES];
    struct rg_rail_way ways[RG_CONTROL_ADDRESSES + 1];
    enum rg_rail_verdict verdicts[RG_CONTROL_ADDRESSES + 1];
    unsigned rails[RG_CONTROL_ADDRESSES + 1], n = 1;
    struct rg_address peer;
    if (!link->n_tcp_addresses || rg_address_parse(rg_conn_peer(link->conn), &peer, NULL, 0) != RG_OK)
        return; /* there is one network, or the server tells of no other */
    const unsigned n_links = rg_rails_links(links, RG_CONTROL_ADDRESSES);
    ways[0] = rg_rail_look(peer.host, UINT32_MAX, links, n_links);
    for (uint32_t i = 0; i < link->n_tcp_addresses; i++)
        if (strcmp(link->tcp_addresses[i], peer.host) == 0)
            ways[0].there = link->tcp_rails[i];
        else if (rg_rail_is_candidate(link->tcp_addresses[i]))
            ways[n++] = rg_rail_look(link->tcp_addresses[i], link->tcp_rails[i], links, n_links);
    const unsigned n_rails = rg_rail_choose(ways, n, 0, rg_rails_wanted(), rg_rails_named(), rails, verdicts);
    char text[RG_DOCTOR_TEXT] = "";
    for (unsigned i = 0; i < n_rails; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? ", " : "", ways[rails[i]].host);
    rg_doctor_say(doctor, RG_CHECK_OK, "tcp rails", NULL, "bulk data over TCP can go by %s", text);
    for (unsigned i = 1; i < n; i++)
        if (verdicts[i] != RG_RAIL_USED)
            rg_doctor_say(doctor, RG_CHECK_OK, "tcp rails", NULL, "not by %s: %s", ways[i].host,
                          rg_rail_words(verdicts[i]));
}

static bool check_tcp(struct rg_doctor *doctor, const char *server, uint64_t timeout_ns)
{
    char why[RG_DOCTOR_TEXT] = "";
    struct rg_perf_link link;
    if (rg_perf_link_open(&link, server, RG_PERF_LINK_TCP, 0, timeout_ns, why, sizeof why) != RG_OK) {
        rg_doctor_say(doctor, RG_CHECK_WARNING, "round trip", NULL, "not measured: %s", why);
        return false;
    }
    check_encryption(doctor, server, &link);
    check_round_trip(doctor, rg_conn_transport(link.conn), &link);
    check_path_mtu(doctor, &link);
    check_tcp_rails(doctor, &link);
    rg_perf_link_close(&link);
    return true;
}

/* Whether bulk data goes by several adapters, where both machines have more than one. */
static void check_rails(struct rg_doctor *doctor, const char *server, uint64_t timeout_ns)
{
    struct rg_rail rails[RG_CONTROL_ADDRESSES];
    const unsigned n = rg_rails_here(NULL, 0, rails, RG_CONTROL_ADDRESSES);
    char why[RG_DOCTOR_TEXT] = "", here[RG_DOCTOR_TEXT];
    struct rg_perf_link link;
    rg_rails_describe(rails, n, here, sizeof here);
    if (!n || rails[n - 1].number == 0) {
        rg_doctor_say(doctor, RG_CHECK_OK, "rails", NULL, "one adapter carries everything here: %s",
                      n ? here : "none");
        return;
    }
    if (rg_perf_link_open(&link, server, RG_PERF_LINK_RAILS, 0, timeout_ns, why, sizeof why) != RG_OK)
        return; /* said already */
    if (link.n_rails > 1)
        rg_doctor_say(doctor, RG_CHECK_OK, "rails", NULL, "bulk data goes by %u adapters; here %s",
                      link.n_rails, here);
    else
        rg_doctor_say(doctor, RG_CHECK_WARNING, "rails",
                      "give each adapter a network of its own, the same on both machines; REMOTE_GPU_RAILS "
                      "says which are used",
                      "one adapter carries everything, though this machine has more: %s", here);
    rg_perf_link_close(&link);
}

/* A connection was made: over devices that write into each other's memory, or not. */
static void check_writes(struct rg_doctor *doctor, const char *name, const struct rg_conn *conn)
{
    const bool good = rg_conn_caps(conn) & RG_CAP_ZERO_COPY_SEND;
    rg_doctor_say(
        doctor, good ? RG_CHECK_OK : RG_CHECK_WARNING, "rdma",
        good ? NULL : "ib_write_bw tries them without remote-gpu; update the adapters' drivers and firmware",
        "%s: a connection can be made%s", name,
        good ? "" : ", but without one-sided writes: the CPUs copy all data");
}

static void check_rdma(struct rg_doctor *doctor, const char *server, uint64_t timeout_ns)
{
    unsigned n = 1;
    for (unsigned i = 0; i < n; i++) {
        char why[RG_DOCTOR_TEXT] = "";
        struct rg_perf_link link;
        enum rg_status status =
            rg_perf_link_open(&link, server, RG_PERF_LINK_RDMA, i, timeout_ns, why, sizeof why);
        if (status == RG_OK) {
            char name[300];
            n = link.n_addresses;
            snprintf(name, sizeof name, "rdma to %s", link.address);
            check_writes(doctor, name, link.conn);
            check_round_trip(doctor, name, &link);
            rg_perf_link_close(&link);
        } else if (strstr(why, "the server has no RDMA device")) {
            rg_doctor_say(doctor, RG_CHECK_WARNING, "rdma",
                          "run remote-gpu doctor on the server; if it has none, all is well",
                          "%s: TCP is used", why);
        } else {
            rg_doctor_say(
                doctor, RG_CHECK_PROBLEM, "rdma",
                "the RDMA interfaces of both machines must reach each other: ping the server's address of "
                "it; rping -s there and rping -c -a ADDRESS here try it without remote-gpu",
                "no connection (address %u of the server): %s", i, why);
        }
    }
}

void rg_doctor_server(struct rg_doctor *doctor, const char *server, uint64_t timeout_ns)
{
    struct rg_rail any;
    if (!check_answer(doctor, server, timeout_ns) || !check_tcp(doctor, server, timeout_ns))
        return;
    if (rg_rails_here(NULL, 0, &any, 1) > 0) {
        check_rdma(doctor, server, timeout_ns);
        check_rails(doctor, server, timeout_ns);
    } else {
        rg_doctor_say(doctor, RG_CHECK_OK, "rdma", NULL,
                      "this machine has no RDMA device that can be used: TCP is used");
    }
}
