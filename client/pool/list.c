/*
 * list.c - what a pool has, put together of the pages that a server answers; see pool.h. A server that would have its client ask for ever, or
 * go to sockets of the client's own machine, is not followed.
 */
#include "client/pool/internal.h"
#include "common/base/limits.h"
#include "common/base/log.h"

#include <string.h>
#include <unistd.h>

/* Names of users and projects that one would read, of as many servers as there can be. */
#define USAGE_MAX ((size_t)RG_POOL_MEMBERS_MAX * RG_POOL_ACCOUNTS_MAX)

/* A page of servers, from one on. */
static json_t *ask_servers(const char *server, json_int_t from, const char *machine, uint64_t timeout_ns,
                           struct rg_pool_failure *failure)
{
    return rg_pool_ask(server, json_pack("{s:s, s:I, s:s*}", "ask", "list", "from", from, "machine", machine),
                       timeout_ns, failure);
}

/* What was measured of the servers of a page. */
static void add_links(json_t *whole, const json_t *page)
{
    json_t *links = json_object_get(page, "links"), *all = json_object_get(whole, "links");
    if (links && all)
        (void)json_object_update(all, links);
    else if (links)
        (void)json_object_set(whole, "links", links);
}

/* Servers behind those of the first page. False: `failure`. */
static bool add_servers(json_t *whole, const char *server, const char *machine, uint64_t timeout_ns,
                        struct rg_pool_failure *failure)
{
    json_int_t from = 0, next = json_integer_value(json_object_get(whole, "next"));
    while (next > from && next < RG_POOL_MEMBERS_MAX) {
        from = next;
        json_t *page = ask_servers(server, from, machine, timeout_ns, failure);
        if (!page)
            return false;
        next = json_integer_value(json_object_get(page, "next"));
        (void)json_array_extend(json_object_get(whole, "servers"), json_object_get(page, "servers"));
        add_links(whole, page);
        json_decref(page);
    }
    return true;
}

/* What is told of servers stays, but no address that this client would not go to. */
static void check_addresses(const json_t *whole, const char *server)
{
    json_t *one;
    size_t i;
    json_array_foreach(json_object_get(whole, "servers"), i, one)
    {
        const char *address = json_string_value(json_object_get(one, "address"));
        if (!address || rg_pool_may_lead(server, address))
            continue;
        rg_debug("the pool of %s has a server with an address of this machine's own, or with none: %s",
                 server, address);
        (void)json_object_del(one, "address");
    }
}

/* The same of leases, whose pages go by their ids. */
static bool add_leases(json_t *whole, const char *server, uint64_t timeout_ns,
                       struct rg_pool_failure *failure)
{
    json_t *after = json_incref(json_object_get(whole, "more_leases")),
           *leases = json_object_get(whole, "leases");
    while (json_is_string(after) && json_array_size(leases) < RG_POOL_LEASES_MAX) {
        json_t *page = rg_pool_ask(server, json_pack("{s:s, s:O}", "ask", "leases", "after", after),
                                   timeout_ns, failure);
        json_t *next = json_incref(json_object_get(page, "more_leases"));
        /* they come in the order of their ids */
        if (json_is_string(next) && strcmp(json_string_value(next), json_string_value(after)) <= 0) {
            json_decref(next);
            next = NULL;
        }
        json_decref(after);
        after = next;
        if (!page)
            return false;
        (void)json_array_extend(leases, json_object_get(page, "leases"));
        json_decref(page);
    }
    json_decref(after);
    return true;
}

/* The last name that is known of users or projects, which come in their order; "": there is none. */
static const char *last_of(const json_t *whole, const char *kind)
{
    const char *name, *last = "";
    json_t *used;
    json_object_foreach(json_object_get(whole, kind), name, used) if (strcmp(name, last) > 0) last = name;
    return last;
}

/* Users and projects behind those of the first page. False: `failure`. */
static bool add_usage(json_t *whole, const char *server, const char *project, uint64_t timeout_ns,
                      struct rg_pool_failure *failure)
{
    json_t *users = json_object_get(whole, "users"), *projects = json_object_get(whole, "projects");
    for (bool more = json_is_true(json_object_get(whole, "more")); more;) {
        const size_t before = json_object_size(users) + json_object_size(projects);
        json_t *page =
            rg_pool_ask(server,
                        json_pack("{s:s, s:s, s:s, s:s}", "ask", "usage", "project", project, "users_after",
                                  last_of(whole, "users"), "projects_after", last_of(whole, "projects")),
                        timeout_ns, failure);
        if (!page)
            return false;
        (void)json_object_update(users, json_object_get(page, "users"));
        (void)json_object_update(projects, json_object_get(page, "projects"));
        more = json_is_true(json_object_get(page, "more")) &&
               json_object_size(users) + json_object_size(projects) > before && before < USAGE_MAX;
        json_decref(page);
    }
    return true;
}

json_t *rg_pool_usage(const char *server, const char *project, uint64_t timeout_ns,
                      struct rg_pool_failure *failure)
{
    json_t *whole =
        rg_pool_ask(server, json_pack("{s:s, s:s}", "ask", "usage", "project", project), timeout_ns, failure);
    if (whole && !add_usage(whole, server, project, timeout_ns, failure)) {
        json_decref(whole);
        whole = NULL;
    }
    json_object_del(whole, "more");
    return whole;
}

const char *rg_pool_machine(char *out, size_t size)
{
    *out = '\0';
    (void)gethostname(out, size);
    out[size - 1] = '\0';
    return out;
}

/* So many servers fit into one question. */
#define TOLD_AT_ONCE 64

static bool tell(const char *server, const char *machine, json_t *figures, uint64_t timeout_ns,
                 struct rg_pool_failure *failure)
{
    json_t *answer = rg_pool_ask(
        server, json_pack("{s:s, s:s, s:o}", "ask", "measured", "machine", machine, "servers", figures),
        timeout_ns, failure);
    json_decref(answer);
    return answer;
}

bool rg_pool_tell_links(const char *server, const char *machine, const json_t *figures, uint64_t timeout_ns,
                        struct rg_pool_failure *failure)
{
    const char *address;
    json_t *one, *part = json_object();
    bool good = true;
    json_object_foreach((json_t *)(uintptr_t)figures, address, one)
    {
        good = good && json_object_set(part, address, one) == 0;
        if (!good || json_object_size(part) < TOLD_AT_ONCE)
            continue;
        good = tell(server, machine, part, timeout_ns, failure);
        part = json_object();
    }
    if (good && json_object_size(part))
        return tell(server, machine, part, timeout_ns, failure);
    json_decref(part);
    return good;
}

json_t *rg_pool_list(const char *server, const char *machine, uint64_t timeout_ns,
                     struct rg_pool_failure *failure)
{
    json_t *whole = ask_servers(server, 0, machine, timeout_ns, failure);
    if (whole && (!add_servers(whole, server, machine, timeout_ns, failure) ||
                  !add_leases(whole, server, timeout_ns, failure))) {
        json_decref(whole);
        whole = NULL;
    }
    check_addresses(whole, server);
    json_object_del(whole, "next");
    json_object_del(whole, "more_leases");
    json_object_del(whole, "state");
    return whole;
}
