/* controller.c - the rounds, what the pool looks like, and the beginning and end. See controller.h. */
#include "places/kubernetes/controller/state.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* --- the pool ------------------------------------------------------------------------------------------------------------ */

/* The member that was asked may have heard of it later than we. */
static void forget_what_is_not_shown(struct rg_kube_controller *controller)
{
    json_t *shown = json_object();
    const json_t *server, *gpu, *share;
    size_t i, j, k;
    json_array_foreach(json_object_get(controller->picture, "servers"), i, server)
        json_array_foreach(json_object_get(server, "gpus"), j, gpu)
            json_array_foreach(json_object_get(gpu, "granted"), k, share)
    {
        const char *id = rg_json_get_text(share, "lease");
        if (json_object_get(controller->given_back, id))
            json_object_set_new(shown, id, json_true());
    }
    json_decref(controller->given_back);
    controller->given_back = shown;
}

static void look_at_pool(struct rg_kube_controller *controller)
{
    struct rg_pool_failure failure;
    if (rg_now_ns() < controller->look_ns)
        return;
    json_t *picture = rg_kube_pool_look(&controller->pool, &failure);
    controller->look_ns = rg_now_ns() + controller->settings->interval_ns;
    atomic_store(&controller->figures->pool, picture != NULL);
    if (!picture) { /* what was published stays: a pool that cannot be asked grants nothing, and says why */
        if (!controller->has_told_why)
            rg_warn("the pool cannot be asked: %s; trying again", failure.why);
        controller->has_told_why = true;
        return;
    }
    if (controller->has_told_why)
        rg_info("the pool answers again");
    controller->has_told_why = false;
    json_decref(controller->picture);
    controller->picture = picture;
    forget_what_is_not_shown(controller);
}

/* --- the loop -------------------------------------------------------------------------------------------------------------- */

static void wake(void *context)
{
    const struct rg_kube_controller *controller = context;
    const uint64_t one = 1;
    if (write(controller->wake, &one, sizeof one) < 0) {
        /* it is full: the loop wakes up anyway */
    }
}

static void count(const struct rg_kube_controller *controller)
{
    unsigned had = 0;
    for (size_t i = 0; i < controller->leases.n; i++)
        had += controller->leases.items[i]->has;
    atomic_store(&controller->figures->leases, had);
    atomic_store(&controller->figures->waiting, (unsigned)controller->leases.n - had);
    atomic_store(&controller->figures->passed_ns, rg_now_ns());
}

void rg_kube_controller_run(struct rg_kube_controller *controller)
{
    while (!atomic_load(&controller->stopping)) {
        struct pollfd polled = {.fd = controller->wake, .events = POLLIN};
        uint64_t times;
        controller->again = false;
        look_at_pool(controller);
        rg_kube_claims_round(controller);
        rg_kube_slices_publish(controller);
        count(controller);
        if (poll(&polled, 1, controller->again ? 0 : 500) > 0 &&
            read(controller->wake, &times, sizeof times) < 0 && errno != EAGAIN)
            rg_error("cannot wait: %s", strerror(errno));
    }
}

void rg_kube_controller_stop(struct rg_kube_controller *controller)
{
    atomic_store(&controller->stopping, true);
    wake(controller);
}

struct rg_kube_controller *rg_kube_controller_create(const struct rg_kube_controller_settings *settings,
                                                     struct rg_kube_figures *figures)
{
    struct rg_kube_controller *controller = calloc(1, sizeof *controller);
    if (!controller)
        return NULL;
    controller->settings = settings;
    controller->figures = figures;
    rg_kube_pool_init(&controller->pool, &settings->servers, settings->timeout_ns);
    controller->leases =
        (struct rg_kube_leases){.pool = &controller->pool, .seconds = settings->lease_ns / 1000000000u};
    controller->given_back = json_object();
    controller->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    controller->kube = rg_kube_open(&settings->cluster);
    if (controller->wake >= 0 && controller->kube) {
        controller->claims =
            rg_kube_store_start(&settings->cluster, RG_KUBE_API "/resourceclaims", wake, controller);
        controller->slices = rg_kube_store_start(
            &settings->cluster, RG_KUBE_SLICES "?fieldSelector=spec.driver%3D" RG_KUBE_DRIVER, wake,
            controller);
    }
    if (controller->claims && controller->slices)
        return controller;
    rg_kube_controller_destroy(controller);
    return NULL;
}

void rg_kube_controller_destroy(struct rg_kube_controller *controller)
{
    if (!controller)
        return;
    rg_kube_store_stop(controller->claims);
    rg_kube_store_stop(controller->slices);
    rg_kube_close(controller->kube);
    rg_kube_leases_fini(&controller->leases);
    rg_kube_pool_fini(&controller->pool);
    json_decref(controller->picture);
    json_decref(controller->given_back);
    if (controller->wake >= 0)
        close(controller->wake);
    free(controller);
}
