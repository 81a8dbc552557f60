/* internal.h - what the files of this folder share; see kube.h. */
#ifndef RG_PLACES_KUBERNETES_API_INTERNAL_H
#define RG_PLACES_KUBERNETES_API_INTERNAL_H

#include "places/kubernetes/api/kube.h"

#include <curl/curl.h>

struct rg_kube {
    const struct rg_kube_cluster *cluster;
    CURL *curl;
    struct curl_slist *headers; /* of the request under way */
    char error[CURL_ERROR_SIZE];
};

/** Readies the handle for a request of `path`: address, proofs of both sides, nothing of the request before. */
RG_MUST_CHECK enum rg_status rg_kube_prepare(struct rg_kube *kube, const char *path, const char *content_type,
                                             char *why, size_t why_size);
/** What an HTTP status is. */
enum rg_status rg_kube_status_of(long code);

#endif
