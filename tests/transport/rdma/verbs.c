/*
 * verbs.c - opening the libraries of RDMA by name (transport/rdma/verbs.c): those of this machine, and by LD_LIBRARY_PATH an old
 * set, one that lacks a function, and one that cannot be loaded.
 */
#include "tests/transport/support.h"

#include "transport/address.h"
#include "transport/operations.h"
#include "transport/rdma/verbs.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

static unsigned char page[4096];

static void test_machine(void)
{
    char why[512] = "";
    CHECK_OK(rg_rdma_verbs_open(why, sizeof why));
    CHECK(!why[0] && strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success") == 0);
}

static void test_old(void)
{
    CHECK_OK(rg_rdma_verbs_open(NULL, 0));
    CHECK_OK(rg_rdma_verbs_open(NULL, 0));
    CHECK(strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "the test's own") == 0);
    /* newer functions are done without */
    CHECK((void *)ibv_reg_mr_iova2(NULL, page, sizeof page, (uintptr_t)page, 3) == page);
    errno = 0;
    CHECK(!ibv_reg_mr_iova2(NULL, page, sizeof page, 0, 3) && errno == EOPNOTSUPP);
    errno = 0;
    CHECK(!ibv_reg_dmabuf_mr(NULL, 0, sizeof page, 0, -1, 3) && errno == EOPNOTSUPP);
}

/* Connecting and listening fail with the same reason, and call nothing of what is not there. */
static void test_refused(const char *reason)
{
    char why[512] = "";
    CHECK_STATUS(rg_rdma_verbs_open(why, sizeof why), RG_ERR_UNSUPPORTED);
    fprintf(stderr, "%s\n", why);
    CHECK(strstr(why, reason) && strlen(why) < sizeof why - 1);

    struct rg_address address;
    CHECK_OK(rg_address_parse("rdma://127.0.0.1:1", &address, why, sizeof why));
    struct rg_transport_options options = {0};
    struct rg_conn *conn = NULL;
    struct rg_listener *listener = NULL;
    why[0] = '\0';
    CHECK_STATUS(rg_transport_rdma_ops.connect(&address, &options, why, sizeof why, &conn),
                 RG_ERR_UNSUPPORTED);
    CHECK(!conn && strstr(why, reason));
    why[0] = '\0';
    CHECK_STATUS(rg_transport_rdma_ops.listen(&address, &options, why, sizeof why, &listener),
                 RG_ERR_UNSUPPORTED);
    CHECK(!listener && strstr(why, reason));
}

int main(int argc, char **argv)
{
    test_begin();
    CHECK(argc == 2);
    if (strcmp(argv[1], "machine") == 0)
        test_machine();
    else if (strcmp(argv[1], "old") == 0)
        test_old();
    else if (strcmp(argv[1], "foreign") == 0)
        test_refused("ibv_alloc_pd");
    else
        test_refused("cannot be loaded");
    return 0;
}
