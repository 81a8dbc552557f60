/* kubelet.c - see kubelet.h. */
#include "places/kubernetes/plugin/kubelet.h"

#include "common/base/cleanup.h"
#include "generated/places/kubernetes/proto/deviceplugin.pb-c.h"
#include "generated/places/kubernetes/proto/podresources.pb-c.h"
#include "places/kubernetes/grpc/client.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SOCKET  "kubelet.sock"
#define TIMEOUT 10000000000u /* nanoseconds for an answer */

static void path_in(const struct rg_kube_kubelet *kubelet, const char *name, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/%s", kubelet->folder, name);
}

static enum rg_status ask(const char *socket, const char *method, const ProtobufCMessage *message,
                          struct rg_grpc_reply *reply, char *why, size_t why_size)
{
    RG_CLEANUP_FREE uint8_t *packed = malloc(protobuf_c_message_get_packed_size(message) + 1);
    if (!packed)
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "out of memory");
    const size_t size = protobuf_c_message_pack(message, packed);
    return rg_grpc_call(socket, method, packed, size, TIMEOUT, reply, why, why_size);
}

enum rg_status rg_kube_kubelet_register(struct rg_kube_kubelet *kubelet, char *why, size_t why_size)
{
    char version[] = "v1beta1", endpoint[] = RG_KUBE_PLUGIN_SOCKET, path[PATH_MAX];
    Rg__Plugin__Options options = RG__PLUGIN__OPTIONS__INIT;
    Rg__Plugin__Registration message = RG__PLUGIN__REGISTRATION__INIT;
    struct rg_grpc_reply reply;
    struct stat about;
    options.has_preference = true;
    message.version = version;
    message.endpoint = endpoint;
    message.resource = (char *)(uintptr_t)kubelet->resource;
    message.options = &options;
    path_in(kubelet, SOCKET, path);
    kubelet->inode = stat(path, &about) == 0 ? about.st_ino : 0;
    const enum rg_status status =
        ask(path, "/v1beta1.Registration/Register", &message.base, &reply, why, why_size);
    free(reply.message);
    return status;
}

bool rg_kube_kubelet_knows_us(const struct rg_kube_kubelet *kubelet)
{
    char ours[PATH_MAX], theirs[PATH_MAX];
    struct stat about;
    path_in(kubelet, RG_KUBE_PLUGIN_SOCKET, ours);
    path_in(kubelet, SOCKET, theirs);
    return stat(ours, &about) == 0 && stat(theirs, &about) == 0 && about.st_ino == kubelet->inode;
}

static void collect(const Rg__Pods__Container *container, const char *resource, json_t *found)
{
    for (size_t i = 0; i < container->n_devices; i++)
        for (size_t j = 0;
             strcmp(container->devices[i]->resource, resource) == 0 && j < container->devices[i]->n_ids; j++)
            json_object_set_new(found, container->devices[i]->ids[j], json_true());
}

json_t *rg_kube_kubelet_devices(const struct rg_kube_kubelet *kubelet, char *why, size_t why_size)
{
    const Rg__Pods__ListRequest nothing = RG__PODS__LIST_REQUEST__INIT;
    struct rg_grpc_reply reply;
    if (ask(kubelet->pods, "/v1.PodResourcesLister/List", &nothing.base, &reply, why, why_size) != RG_OK)
        return NULL;
    Rg__Pods__ListAnswer *answer = rg__pods__list_answer__unpack(NULL, reply.size, reply.message);
    json_t *found = answer ? json_object() : NULL;
    free(reply.message);
    for (size_t i = 0; found && i < answer->n_pods; i++)
        for (size_t j = 0; j < answer->pods[i]->n_containers; j++)
            collect(answer->pods[i]->containers[j], kubelet->resource, found);
    if (answer)
        rg__pods__list_answer__free_unpacked(answer, NULL);
    if (!found)
        rg_explain(why, why_size, "the kubelet's list of containers' devices cannot be understood");
    return found;
}
