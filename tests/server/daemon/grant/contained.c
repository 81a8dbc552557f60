/* contained.c - which clients of a unix socket are in a container, and that its root is not this machine's. */
#include "server/daemon/grant/contained.h"

#include "common/base/cleanup.h"
#include "server/daemon/grant/who.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

enum whose { OURS, OWN_NAMESPACE, BESIDE, ENDED };

/* A process that connects, and stays until the other end is closed. */
static _Noreturn void be_client(const struct sockaddr_un *address, socklen_t size, bool stays)
{
    char byte;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool there = connect(fd, (const struct sockaddr *)address, size) == 0;
    if (there && stays)
        (void)!read(fd, &byte, 1);
    _exit(!there);
}

/* Goes on as the first process of a PID namespace, and exits as that does; with 2 where this user may have none. */
static void enter_namespace(void)
{
    int status = 0;
    if (unshare(geteuid() == 0 ? CLONE_NEWPID : CLONE_NEWUSER | CLONE_NEWPID) != 0)
        _exit(2);
    const pid_t child = fork(); /* the first that is in it */
    if (child == 0)
        return;
    if (child < 0 || waitpid(child, &status, 0) != child)
        _exit(1);
    _exit(WEXITSTATUS(status));
}

enum { SAYS_NO = 10, SAYS_YES };

/* What a process in a PID namespace of its own finds, which has the /proc of the one around it. */
static bool is_contained_for_another(int connection)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        enter_namespace();
        _exit(rg_is_contained(connection) ? SAYS_YES : SAYS_NO);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && (WEXITSTATUS(status) == SAYS_YES || WEXITSTATUS(status) == SAYS_NO));
    return WEXITSTATUS(status) == SAYS_YES;
}

/* Of a connection by such a process. */
static bool is_contained(enum whose whose)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address;
    RG_CLEANUP_FD const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(bind(listener, (const struct sockaddr *)&address, sizeof address.sun_family) == 0 &&
              listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    const pid_t child = fork();
    int status;
    if (child == 0 && (whose == OWN_NAMESPACE || whose == BESIDE))
        enter_namespace();
    if (child == 0)
        be_client(&address, size, whose != ENDED);
    if (whose == ENDED)
        cr_assert(waitpid(child, &status, 0) == child && status == 0);
    const struct timeval patience = {.tv_usec = 200000};
    cr_assert_eq(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    int connection = -1;
    while (connection < 0 && (whose == ENDED || waitpid(child, &status, WNOHANG) == 0))
        connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0)
        cr_skip("no PID namespaces here");
    const bool contained =
        whose == BESIDE ? is_contained_for_another(connection) : rg_is_contained(connection);
    close(connection);
    if (whose != ENDED)
        cr_assert_eq(waitpid(child, &status, 0), child);
    return contained;
}

Test(contained, a_process_of_this_machine)
{
    cr_expect_not(is_contained(OURS));
}

Test(contained, a_process_of_a_container)
{
    cr_expect(is_contained(OWN_NAMESPACE));
}

Test(contained, a_process_of_a_container_beside_that_of_the_server)
{
    cr_expect(is_contained(BESIDE), "it is as deep in namespaces as the server, but not in the same one");
}

Test(contained, a_process_that_has_ended)
{
    cr_expect(is_contained(ENDED), "its number may be another's by now");
}

Test(contained, no_process_at_all)
{
    cr_expect(rg_is_contained(STDIN_FILENO));
    cr_expect(rg_is_contained(-1));
}

Test(who, root_of_a_container_owns_nothing)
{
    struct rg_who who;
    rg_who_user(0, &who);
    cr_expect(rg_who_owns(&who, 1000));
    who.contained = true;
    cr_expect_not(rg_who_owns(&who, 1000));
    rg_who_user(1000, &who);
    cr_expect(rg_who_owns(&who, 1000));
    cr_expect_not(rg_who_owns(&who, 1001));
    who.contained = true;
    cr_expect_not(rg_who_owns(&who, 1000));
    who = (struct rg_who){.proof = RG_PROOF_CERTIFICATE, .name = "uid 0 (root)"};
    cr_expect_not(rg_who_owns(&who, 1000));
}
