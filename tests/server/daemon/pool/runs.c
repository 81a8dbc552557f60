/* runs.c - which runs of a server have died: of those whose process lives, and of a copy of their files, none. */
#include "server/daemon/pool/runs.h"
#include "tests/temporary.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX 4u

static char *state;

static void init(void)
{
    state = temporary_path("state");
}

static void fini(void)
{
    free(state);
}

TestSuite(runs, .init = init, .fini = fini);

static void path_of(uint64_t id, char out[96])
{
    snprintf(out, 96, "%s/pool/%016" PRIx64, state, id);
}

static bool has_file(uint64_t id)
{
    char path[96];
    path_of(id, path);
    return access(path, F_OK) == 0;
}

/* A run that has ended. */
static void make_dead(uint64_t id, time_t began)
{
    struct rg_pool_runs run;
    uint64_t dead[4 * MAX];
    char path[96];
    (void)rg_runs_begin(&run, state, id, dead, 4 * MAX);
    cr_assert_geq(run.file, 0);
    rg_runs_end(&run);
    path_of(id, path);
    cr_assert_eq(utimensat(AT_FDCWD, path, (const struct timespec[]){{began, 0}, {began, 0}}, 0), 0);
}

Test(runs, one_that_lives_is_left_alone)
{
    struct rg_pool_runs first, second, third;
    uint64_t dead[MAX];
    cr_assert_eq(rg_runs_begin(&first, state, 1, dead, MAX), 0);
    cr_assert_eq(rg_runs_begin(&second, state, 2, dead, MAX), 0);
    rg_runs_end(&first);
    cr_assert_eq(rg_runs_begin(&third, state, 3, dead, MAX), 1);
    cr_assert_eq(dead[0], 1);
    rg_runs_forget(&third, dead, 1);
    cr_assert(!has_file(1) && has_file(2) && has_file(3));
    rg_runs_end(&second);
    rg_runs_end(&third);
}

Test(runs, one_that_was_killed)
{
    struct rg_pool_runs run;
    uint64_t dead[MAX];
    int ends[2];
    char byte;
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)rg_runs_begin(&run, state, 7, dead, MAX);
        (void)!write(ends[1], "x", 1);
        pause();
        _exit(0);
    }
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    cr_assert_eq(rg_runs_begin(&run, state, 8, dead, MAX), 0);
    rg_runs_end(&run);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    cr_assert_eq(rg_runs_begin(&run, state, 9, dead, MAX), 2);
    cr_assert(dead[0] + dead[1] == 15 && dead[0] * dead[1] == 56);
    rg_runs_end(&run);
}

Test(runs, the_latest_are_found_and_others_forgotten)
{
    struct rg_pool_runs run;
    uint64_t dead[MAX];
    const time_t began[] = {50, 20, 70, 10, 60, 30, 40};
    for (uint64_t i = 0; i < 7; i++)
        make_dead(i + 1, began[i]);
    cr_assert_eq(rg_runs_begin(&run, state, 100, dead, MAX), MAX);
    cr_expect(dead[0] == 3 && dead[1] == 5 && dead[2] == 1 && dead[3] == 7, "70, 60, 50, 40");
    cr_expect(!has_file(2) && !has_file(4) && !has_file(6) && has_file(3) && has_file(100));
    rg_runs_end(&run);
}

Test(runs, a_copy_of_the_folder_speaks_for_nobody)
{
    struct rg_pool_runs run;
    uint64_t dead[MAX];
    char command[256];
    make_dead(1, 10);
    snprintf(command, sizeof command, "cp -a %s %s-copy", state, state);
    cr_assert_eq(system(command), 0);
    free(state);
    state = temporary_path("state-copy");
    cr_assert(has_file(1));
    cr_assert_eq(rg_runs_begin(&run, state, 2, dead, MAX), 0);
    cr_assert(!has_file(1) && has_file(2));
    rg_runs_end(&run);
}

Test(runs, what_is_no_run_is_left_alone)
{
    struct rg_pool_runs run;
    uint64_t dead[MAX];
    char path[96];
    make_dead(1, 10);
    snprintf(path, sizeof path, "%s/pool/notes", state);
    const int file = open(path, O_WRONLY | O_CREAT, 0600);
    cr_assert(file >= 0 && close(file) == 0);
    path_of(2, path);
    cr_assert_eq(symlink("/etc/passwd", path), 0);
    path_of(3, path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(rg_runs_begin(&run, state, 4, dead, MAX), 1);
    cr_assert_eq(dead[0], 1);
    cr_assert(has_file(3));
    rg_runs_end(&run);
}

Test(runs, without_a_folder_nothing_is_known)
{
    struct rg_pool_runs run;
    uint64_t dead[MAX];
    cr_assert_eq(rg_runs_begin(&run, NULL, 1, dead, MAX), 0);
    rg_runs_forget(&run, dead, 0);
    rg_runs_end(&run);
    cr_assert_eq(rg_runs_begin(&run, "/proc/nothing", 1, dead, MAX), 0);
    rg_runs_end(&run);
}
