/* listeners.c - see listeners.h. */
#include "server/daemon/settings/listeners.h"

#include "common/base/log.h"
#include "server/daemon/settings/activation.h"
#include "transport/connect/connect.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether `address` is one to listen on. */
static bool check_address(struct rg_listeners *listeners, const struct rg_daemon_settings *settings,
                          const char *address)
{
    char why[256] = "";
    bool local = false;
    if (rg_daemon_address_is_local(address, &local, why, sizeof why) != RG_OK) {
        rg_error("cannot listen on '%s': %s", address, why);
        return false;
    }
    if (!local)
        listeners->open = true;
    if (!local && settings->allow_unauthenticated)
        rg_warn("%s will be open to everybody who can reach it, encrypted or not (--allow-unauthenticated)",
                address);
    return true;
}

bool rg_listeners_check(struct rg_listeners *listeners, const struct rg_daemon_settings *settings)
{
    const struct rg_text_list *wanted = &settings->listen;
    if (wanted->n + listeners->n > RG_LISTENERS_MAX) {
        rg_error("more than %d addresses to listen on", RG_LISTENERS_MAX);
        return false;
    }
    for (size_t i = 0; i < wanted->n; i++)
        if (!check_address(listeners, settings, wanted->items[i]))
            return false;
    return true;
}

/* A socket in the file system is made for its user; one that everybody may use must let them write. */
static void open_to_everybody(const char *address)
{
    const char *path = strncmp(address, "unix:", 5) == 0 && address[5] != '@' ? address + 5 : NULL;
    if (path && chmod(path, 0666) != 0)
        rg_warn("%s cannot be opened to other users: %s", path, strerror(errno));
}

static enum rg_listener_reach reach_of(const char *address)
{
    bool local = false;
    if (strncmp(address, "unix:", 5) == 0)
        return RG_REACH_UNIX;
    return rg_daemon_address_is_local(address, &local, NULL, 0) == RG_OK && local ? RG_REACH_LOOPBACK
                                                                                  : RG_REACH_NETWORK;
}

static void add(struct rg_listeners *listeners, struct rg_listener *listener, bool inherited)
{
    const char *address = rg_listener_address(listener);
    listeners->reach[listeners->n] = reach_of(address);
    listeners->inherited[listeners->n] = inherited;
    listeners->items[listeners->n++] = listener;
    rg_info("listening on %s%s", address, inherited ? ", handed over" : "");
}

/* Sockets that a service manager has opened. */
bool rg_listeners_adopt(struct rg_listeners *listeners, const struct rg_daemon_settings *settings)
{
    const struct rg_transport_options options = {.filters = ""};
    unsigned n;
    int first;
    if (!rg_activation_take(&first, &n))
        return false;
    for (int fd = first; fd < first + (int)n; fd++) {
        char why[256] = "";
        struct rg_listener *listener;
        if (rg_transport_adopt_listener(fd, &options, why, sizeof why, &listener) != RG_OK) {
            rg_error("descriptor %d, which the service manager has handed over, cannot be listened on: %s; "
                     "correct the socket unit (ListenStream=)",
                     fd, why);
            return false;
        }
        add(listeners, listener, true);
        if (!check_address(listeners, settings, rg_listener_address(listener)))
            return false;
    }
    return true;
}

static bool listen_on(struct rg_listeners *listeners, const struct rg_daemon_settings *settings,
                      const char *address, bool required)
{
    char why[256] = "";
    /* Filters would keep part of the conversation to themselves, and the worker takes the socket over. */
    const struct rg_transport_options options = {.filters = ""};
    struct rg_listener *listener;
    if (rg_transport_listen(address, &options, why, sizeof why, &listener) != RG_OK) {
        if (required)
            rg_error("cannot listen on %s: %s; --listen ADDRESS chooses another address or port", address,
                     why);
        else
            rg_debug("not listening on %s: %s", address, why);
        return !required;
    }
    if (settings->allow_unauthenticated)
        open_to_everybody(rg_listener_address(listener));
    add(listeners, listener, false);
    return true;
}

bool rg_listeners_open(struct rg_listeners *listeners, const struct rg_daemon_settings *settings)
{
    const struct rg_text_list *wanted = &settings->listen;
    for (size_t i = 0; i < wanted->n; i++)
        if (!listen_on(listeners, settings, wanted->items[i], true))
            return false;
    if (listeners->n == 0)
        return listen_on(listeners, settings, "127.0.0.1", true) &&
               listen_on(listeners, settings, "[::1]", false);
    return true;
}

static void write_addresses(const struct rg_listeners *listeners, FILE *out)
{
    for (uint32_t i = 0; i < listeners->n; i++)
        fprintf(out, "%s\n", rg_listener_address(listeners->items[i]));
}

/*
 * Whoever waits for the file sees all of it or nothing. The folder may be one in which everybody writes: until then it has a name that
 * nobody foresees, and is no file that was there.
 */
static bool write_ready_file(const struct rg_listeners *listeners, const char *path)
{
    char temporary[PATH_MAX];
    unsigned number;
    FILE *out = NULL;
    if (getrandom(&number, sizeof number, 0) == (ssize_t)sizeof number &&
        snprintf(temporary, sizeof temporary, "%s.%08x", path, number) < (int)sizeof temporary)
        out = fopen(temporary, "wxe");
    if (out) {
        write_addresses(listeners, out);
        if (fclose(out) == 0 && rename(temporary, path) == 0)
            return true;
        unlink(temporary);
    }
    rg_error("cannot write %s: %s", path, strerror(errno));
    return false;
}

bool rg_listeners_announce(const struct rg_listeners *listeners, const struct rg_daemon_settings *settings)
{
    if (settings->ready_fd >= 0) {
        FILE *out = fdopen((int)settings->ready_fd, "w");
        if (!out) {
            rg_error("--ready-fd %d: %s", (int)settings->ready_fd, strerror(errno));
            return false;
        }
        write_addresses(listeners, out);
        fclose(out); /* a reader that has gone does not matter */
    }
    return !settings->ready_file || write_ready_file(listeners, settings->ready_file);
}

/*
 * The frontend has them as well: they are to take nobody any more, whoever has them. What was handed over belongs to the
 * service manager: who comes by it waits for the next server, as the frontend closes its own when the server is to end.
 */
void rg_listeners_close(struct rg_listeners *listeners)
{
    for (uint32_t i = 0; i < listeners->n; i++) {
        if (!listeners->inherited[i])
            (void)shutdown(rg_listener_fd(listeners->items[i]), SHUT_RDWR);
        rg_listener_destroy(listeners->items[i]);
    }
    listeners->n = 0;
}
