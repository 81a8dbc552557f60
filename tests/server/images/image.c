/*
 * image.c - what the worker keeps of images that clients send (server/images/image_cache.c): those that it
 * has used, as far as the disk keeps up with the clients.
 */
#include "server/images/image.h"
#include "common/cache/digest.h"
#include "common/cuda/image.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"
#include "tests/temporary.h"

#include <dirent.h>
#include <string.h>

static unsigned count_files(void)
{
    unsigned n = 0;
    DIR *list = opendir(temporary_folder());
    for (struct dirent *item; list && (item = readdir(list)) != NULL;)
        n += item->d_name[0] != '.';
    if (list)
        closedir(list);
    return n;
}

/* Sends an image, all of it text, and loads it; *asked: whether the worker wanted its bytes. */
static void load(struct client *c, const char *text, bool *asked)
{
    static uint64_t id = 100;
    const size_t size = strlen(text);
    const struct rg_digest digest = rg_digest_of_bytes(&(struct rg_digest_part){text, size}, 1);
    id++;
    put(c, RG_OP_rgImageNamed, 0, 0, "888b", id, (uint64_t)size, id, digest.bytes, sizeof digest.bytes);
    send_batch(c);
    expect_notice(c, RG_NOTICE_RENDEZVOUS, id);
    *asked = c->got.notice.arg[1] != 0;
    if (*asked)
        send_answer(c, RG_ANSWER_DATA, id, 0, text, size);
    CALL(c, RG_OP_rgModuleLoad, 0, CUDA_SUCCESS, "8488888", id, 0, (uint64_t)0, (uint64_t)0,
         handle(RG_KIND_MODULE, (uint32_t)id), (uint64_t)0, (uint64_t)0);
}

#define PTX(name) ".version 8.0\n.target sm_80\n.address_size 64\n// " name "\n"

/* An image that has been looked at before it has a name: the name is believed no more than any other. */
static void name_falsely(struct client *c)
{
    const struct {
        uint32_t magic;
        uint16_t version, header_size;
        uint64_t size;
    } container = {RG_CUDA_CONTAINER_MAGIC, 1, 16, 0};
    const uint64_t id = 90, size = sizeof container, zero = 0;
    static const unsigned char digest[RG_DIGEST_BYTES] = {1, 2, 3};
    put(c, RG_OP_rgImageData, 0, 0, "8888", id, size, zero, size);
    send_bulk(c, &container, sizeof container);
    CALL(c, RG_OP_rgImageParts, 0, CUDA_SUCCESS, "8488", id, 1, (uint64_t)1, zero);
    put(c, RG_OP_rgImageDigest, 0, 0, "8b", id, digest, sizeof digest);
    CALL(c, RG_OP_rgModuleLoad, 0, CUDA_ERROR_INVALID_IMAGE, "8488888", id, 0, zero, zero,
         handle(RG_KIND_MODULE, (uint32_t)id), zero, zero);
}

int main(void)
{
    bool asked;
    setenv("REMOTE_GPU_IMAGE_CACHE", temporary_folder(), 1);
    stub_driver_use(stub_succeed);
    struct client *c = client_create();
    struct rg_image_cache *images = rg_image_cache_of(c->worker);
    enter_context(c);
    load(c, PTX("one"), &asked);
    CHECK(asked);
    rg_image_cache_settle(c->worker);
    CHECK(count_files() == 1);
    load(c, PTX("one"), &asked);
    CHECK(!asked);

    /* The disk is so slow that much waits to be written: what comes now is used and not kept. */
    pthread_mutex_lock(&images->lock);
    images->writing_bytes += RG_IMAGES_WRITING;
    pthread_mutex_unlock(&images->lock);
    for (int i = 0; i < 2; i++) {
        load(c, PTX("two"), &asked);
        CHECK(asked);
    }
    pthread_mutex_lock(&images->lock);
    images->writing_bytes -= RG_IMAGES_WRITING;
    pthread_mutex_unlock(&images->lock);
    load(c, PTX("two"), &asked);
    CHECK(asked);
    rg_image_cache_settle(c->worker);
    CHECK(count_files() == 2 && images->writing_bytes == 0);
    name_falsely(c);
    rg_image_cache_settle(c->worker);
    CHECK(count_files() == 2);
    CHECK(client_destroy(c) == 0);
    return 0;
}
