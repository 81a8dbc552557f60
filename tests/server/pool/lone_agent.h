/* lone_agent.h - an agent for tests that answer in etcd's place: nobody listens at its etcd, and it knows all of an empty pool. */
#ifndef TESTS_SERVER_POOL_LONE_AGENT_H
#define TESTS_SERVER_POOL_LONE_AGENT_H

#include "server/pool/agent.h"

#include <criterion/criterion.h>
#include <stdio.h>

/** Of a zeroed agent. */
static inline void lone_agent_start(struct rg_agent *agent)
{
    const char *endpoint = "http://127.0.0.1:1";
    const struct rg_etcd_settings settings = {.endpoints = &endpoint, .n_endpoints = 1};
    char why[RG_ETCD_WHY] = "";
    agent->etcd = rg_etcd_create(&settings, why, sizeof why);
    cr_assert_not_null(agent->etcd, "%s", why);
    snprintf(agent->settings.pool, sizeof agent->settings.pool, "lab");
    snprintf(agent->id, sizeof agent->id, "1111222233334444");
    rg_pool_mirror_whole(&agent->mirror, 1);
}

#endif
