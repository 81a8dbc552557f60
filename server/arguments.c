/* arguments.c - see arguments.h. */
#include "server/arguments.h"

#include "common/base/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool number(const char *text, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0 && *out <= max;
}

static bool devices(const char *text, struct rg_hello *hello)
{
    while (*text) {
        char *end;
        if (*text < '0' || *text > '9' || hello->n_devices == sizeof hello->devices / sizeof *hello->devices)
            return false;
        hello->devices[hello->n_devices++] = (uint32_t)strtoul(text, &end, 10);
        if (*end && *end != ',')
            return false;
        text = *end ? end + 1 : end;
    }
    return hello->n_devices != 0;
}

bool rg_worker_arguments_parse(int argc, char **argv, struct rg_worker_arguments *out)
{
    *out = (struct rg_worker_arguments){.fd = -1,
                                        .hand_fd = -1,
                                        .tls_fd = -1,
                                        .share_fd = -1,
                                        .warm_fd = -1,
                                        .hello = {.hello_fd = -1, .driver_kind = "other"}};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        uint64_t n = 0;
        bool good = true;
        if (strcmp(name, "--fd") == 0)
            good = number(value, 65535, &n), out->fd = (int)n;
        else if (strcmp(name, "--hello-fd") == 0)
            good = number(value, 65535, &n), out->hello.hello_fd = (int)n;
        else if (strcmp(name, "--hand-fd") == 0)
            good = number(value, 65535, &n), out->hand_fd = (int)n;
        else if (strcmp(name, "--tls-fd") == 0)
            good = number(value, 65535, &n), out->tls_fd = (int)n;
        else if (strcmp(name, "--share-fd") == 0)
            good = number(value, 65535 - RG_DEVICES_MAX, &n), out->share_fd = (int)n;
        else if (strcmp(name, "--warm-fd") == 0)
            good = number(value, 65535, &n), out->warm_fd = (int)n;
        else if (strcmp(name, "--warm") == 0)
            good = rg_warm_parse(value, &out->shape, &out->contexts);
        else if (strcmp(name, "--rdma") == 0)
            good = number(value, 1, &n), out->hello.no_rdma = n == 0;
        else if (strcmp(name, "--session") == 0)
            good = number(value, UINT64_MAX, &out->hello.session);
        else if (strcmp(name, "--max-sessions") == 0)
            good = number(value, UINT32_MAX, &n), out->hello.max_sessions = (uint32_t)n;
        else if (strcmp(name, "--reconnect-grace") == 0 && strcmp(value, "auto") == 0)
            out->hello.reconnect_automatic = true, out->hello.reconnect_s = RG_RECONNECT_S;
        else if (strcmp(name, "--reconnect-grace") == 0)
            good = number(value, UINT32_MAX, &n), out->hello.reconnect_s = (uint32_t)n;
        else if (strcmp(name, "--rails") == 0)
            out->hello.rails = value;
        else if (strcmp(name, "--stack-limit") == 0)
            good = number(value, UINT64_MAX, &out->stack_limit);
        else if (strcmp(name, "--driver") == 0)
            out->hello.driver = value;
        else if (strcmp(name, "--sandbox") == 0)
            out->sandbox = value;
        else if (strcmp(name, "--driver-kind") == 0)
            out->hello.driver_kind = value;
        else if (strcmp(name, "--devices") == 0)
            good = devices(value, &out->hello);
        else
            good = false;
        if (!good)
            return false;
    }
    const bool client = out->fd >= 0 && out->hello.hello_fd >= 0,
               warm = out->warm_fd >= 0 && out->share_fd >= 0;
    return argc % 2 == 1 && client != warm && out->hello.driver && out->hello.n_devices;
}
