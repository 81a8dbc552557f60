/*
 * cache.c - kernels kept on disk: entries by themselves, and programs that use them through the environment.
 * Each case runs in a process of its own, on a folder of its own.
 */
#include "softgpu/compiler/jit/cache.h"
#include "softgpu/compiler/compiler.h"
#include "tests/softgpu/compiler/jit/rounds.h"
#include "tests/temporary.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *folder;

static struct rg_digest key_of(const char *text)
{
    return rg_digest_of(&(struct rg_digest_part){text, strlen(text)}, 1);
}

static bool holds(struct sg_cache *cache, const char *key, const char *data)
{
    struct rg_digest digest = key_of(key);
    size_t size = 0;
    char *read = sg_cache_read(cache, &digest, &size);
    bool same = read != NULL && size == strlen(data) && memcmp(read, data, size) == 0;
    free(read);
    return same;
}

static void keep(struct sg_cache *cache, const char *key, const char *data)
{
    struct rg_digest digest = key_of(key);
    sg_cache_write(cache, &digest, data, strlen(data));
}

/* A child process, -1: any, has ended well. */
static void await_child(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Number and bytes of the files in the folder; *name is one of them. */
static unsigned files(uint64_t *bytes, char *name, size_t name_size)
{
    DIR *list = opendir(folder);
    unsigned count = 0;
    uint64_t total = 0;
    CHECK(list != NULL);
    for (struct dirent *item; (item = readdir(list)) != NULL;) {
        struct stat status;
        if (item->d_name[0] == '.')
            continue;
        CHECK(fstatat(dirfd(list), item->d_name, &status, 0) == 0);
        total += (uint64_t)status.st_size;
        count++;
        if (name != NULL)
            snprintf(name, name_size, "%s/%s", folder, item->d_name);
    }
    closedir(list);
    if (bytes != NULL)
        *bytes = total;
    return count;
}

static void test_entries(void)
{
    struct sg_cache *cache = sg_cache_open(folder, 1 << 20);
    struct stat status;
    CHECK(cache != NULL);
    CHECK(stat(folder, &status) == 0 && (status.st_mode & 0777) == 0700);
    CHECK(!holds(cache, "a", "code of a"));
    keep(cache, "a", "code of a");
    keep(cache, "b", "code of b");
    CHECK(holds(cache, "a", "code of a") && holds(cache, "b", "code of b") &&
          !holds(cache, "c", "code of c"));
    keep(cache, "a", "other code");
    CHECK(holds(cache, "a", "other code"));
    CHECK(files(NULL, NULL, 0) == 2);
    struct rg_digest b = key_of("b");
    sg_cache_drop(cache, &b);
    CHECK(!holds(cache, "b", "code of b") && files(NULL, NULL, 0) == 1);
    sg_cache_close(cache);
    cache = sg_cache_open(folder, 1 << 20);
    CHECK(holds(cache, "a", "other code"));
    sg_cache_close(cache);
}

/* Whatever byte is wrong, wherever the entry ends: it is dropped, and can be written again. */
static void test_damage(void)
{
    struct sg_cache *cache = sg_cache_open(folder, 1 << 20);
    char name[512];
    uint64_t size;
    keep(cache, "a", "code of a");
    CHECK(files(&size, name, sizeof(name)) == 1 && size > 80);
    for (uint64_t place = 0; place < size; place++) {
        char byte;
        int fd = open(name, O_RDWR);
        CHECK(fd >= 0 && pread(fd, &byte, 1, (off_t)place) == 1);
        byte ^= 0x10;
        CHECK(pwrite(fd, &byte, 1, (off_t)place) == 1);
        close(fd);
        CHECK(!holds(cache, "a", "code of a"));
        CHECK(files(NULL, NULL, 0) == 0);
        keep(cache, "a", "code of a");
    }
    for (uint64_t length = 0; length <= size + 1; length++) {
        CHECK(truncate(name, (off_t)length) == 0);
        CHECK(holds(cache, "a", "code of a") == (length == size));
        keep(cache, "a", "code of a");
    }
    CHECK(sg_cache_statistics(cache).dropped == size + size + 1);
    /* an entry under another's name */
    keep(cache, "b", "code of b");
    char copy[300];
    struct rg_digest digest = key_of("c");
    snprintf(copy, sizeof(copy), "%s/", folder);
    for (size_t i = 0; i < sizeof(digest); i++)
        sprintf(copy + strlen(copy), "%02x", digest.bytes[i]);
    CHECK(rename(name, copy) == 0);
    CHECK(!holds(cache, "c", "code of a") && access(copy, F_OK) != 0);
    sg_cache_close(cache);
}

/* Entries and folders that others own or can change, links and things that are no files are not read. */
static void test_foreign(void)
{
    struct sg_cache *cache = sg_cache_open(folder, 1 << 20);
    char name[512], elsewhere[300];
    keep(cache, "a", "code of a");
    CHECK(files(NULL, name, sizeof(name)) == 1);
    CHECK(chmod(name, 0666) == 0);
    CHECK(!holds(cache, "a", "code of a") && files(NULL, NULL, 0) == 0);
    keep(cache, "a", "code of a");
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", folder);
    CHECK(rename(name, elsewhere) == 0 && symlink("elsewhere", name) == 0);
    CHECK(!holds(cache, "a", "code of a") && access(elsewhere, F_OK) == 0);
    CHECK(mkfifo(name, 0600) == 0);
    CHECK(!holds(cache, "a", "code of a"));
    CHECK(mkdir(name, 0700) == 0);
    CHECK(!holds(cache, "a", "code of a"));
    keep(cache, "a", "code of a"); /* a folder is in its place */
    CHECK(rmdir(name) == 0);
    if (geteuid() == 0) {
        keep(cache, "a", "code of a");
        CHECK(chown(name, 1, 1) == 0);
        CHECK(!holds(cache, "a", "code of a"));
        keep(cache, "a", "code of a");
        CHECK(chown(folder, 1, 1) == 0);
        CHECK(!holds(cache, "a", "code of a") && sg_cache_open(folder, 1 << 20) == NULL);
        CHECK(chown(folder, 0, 0) == 0);
        CHECK(holds(cache, "a", "code of a"));
    }
    CHECK(chmod(folder, 0777) == 0);
    CHECK(!holds(cache, "a", "code of a") && sg_cache_open(folder, 1 << 20) == NULL);
    CHECK(chmod(folder, 0700) == 0);
    sg_cache_close(cache);
}

/* A folder that can be read only, and impossible ones. As another user than root, whom nothing stops. */
static void test_read_only(void)
{
    struct sg_cache *cache = sg_cache_open(folder, 1 << 20);
    CHECK(sg_cache_open("/proc/nowhere/at/all", 1 << 20) == NULL);
    CHECK(sg_cache_open("/dev/null", 1 << 20) == NULL);
    CHECK(sg_cache_open("", 1 << 20) == NULL);
    sg_cache_close(cache);
    if (geteuid() == 0)
        CHECK(chown(folder, 12345, 12345) == 0 && setgid(12345) == 0 && setuid(12345) == 0);
    cache = sg_cache_open(folder, 1 << 20);
    keep(cache, "a", "code of a");
    CHECK(chmod(folder, 0500) == 0);
    CHECK(holds(cache, "a", "code of a"));
    keep(cache, "b", "code of b");
    CHECK(!holds(cache, "b", "code of b") && files(NULL, NULL, 0) == 1);
    CHECK(chmod(folder, 0700) == 0);
    sg_cache_close(cache);
}

static void test_limit(void)
{
    enum { SIZE = 4000, LIMIT = 20 * (SIZE + 80) };
    static char data[SIZE + 1];
    struct sg_cache *cache = sg_cache_open(folder, LIMIT);
    uint64_t bytes;
    char key[16];
    memset(data, 'x', SIZE);
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof(key), "%d", i);
        keep(cache, key, data);
        CHECK(holds(cache, key, data));
        usleep(5000);
        CHECK(i < 1 || holds(cache, "0", data)); /* used all the time, so it stays */
        files(&bytes, NULL, 0);
        CHECK(bytes <= LIMIT);
    }
    CHECK(bytes > LIMIT / 2);
    CHECK(holds(cache, "199", data) && holds(cache, "190", data) && !holds(cache, "1", data) &&
          !holds(cache, "150", data));
    CHECK(sg_cache_statistics(cache).evicted > 150);
    /* what a process left half written goes, too, and what is not ours stays */
    char left[128], other[128];
    snprintf(left, sizeof(left), "%s/new.0123456789abcdef", folder);
    snprintf(other, sizeof(other), "%s/README", folder);
    const struct timespec long_ago[2] = {{1000, 0}, {1000, 0}};
    for (int i = 0; i < 2; i++) {
        int fd = open(i == 0 ? left : other, O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0 && futimens(fd, long_ago) == 0);
        close(fd);
    }
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof(key), "more %d", i);
        keep(cache, key, data);
    }
    CHECK(access(left, F_OK) != 0 && access(other, F_OK) == 0);
    sg_cache_close(cache);
}

/* Processes that write, read and remove the same entries at the same time only ever see whole ones. */
static void test_processes(void)
{
    enum { PROCESSES = 4, ROUNDS = 400, SIZE = 50000 };
    static char data[SIZE + 1];
    memset(data, 'x', SIZE);
    for (int process = 0; process < PROCESSES; process++) {
        if (fork() != 0)
            continue;
        struct sg_cache *cache = sg_cache_open(folder, 6 * SIZE); /* not enough for all ten keys */
        unsigned seen = 0;
        CHECK(cache != NULL);
        for (int i = 0; i < ROUNDS; i++) {
            char key[2] = {(char)('0' + (i * 7 + process) % 10), 0};
            data[0] = key[0];
            struct rg_digest digest = key_of(key);
            size_t size;
            char *read = sg_cache_read(cache, &digest, &size);
            CHECK(read == NULL || (size == SIZE && memcmp(read, data, SIZE) == 0));
            seen += read != NULL;
            free(read);
            keep(cache, key, data);
        }
        CHECK(seen > 0 && sg_cache_statistics(cache).dropped == 0);
        sg_cache_close(cache);
        exit(0);
    }
    for (int process = 0; process < PROCESSES; process++) {
        await_child(-1);
    }
}

/* --- programs --- */

#define PTX                                                                                                  \
    ".version 8.7\n.target sm_90\n.address_size 64\n.visible .global .align 4 .u32 counter = 5;\n"           \
    ".func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r1; ld.param.u32 %r1, [x]; "                    \
    "shl.b32 %r1, %r1, 1; st.param.b32 [r], %r1; ret; }\n"                                                   \
    ".visible .global .align 8 .u64 table[1] = {twice};\n"                                                   \
    ".visible .entry k(.param .u64 out) { .reg .b32 %r1; .reg .b64 %rd<4>; .param .b32 a; .param .b32 b;\n"  \
    "ld.param.u64 %rd1, [out]; ld.global.u32 %r1, [counter]; add.u32 %r1, %r1, %s;\n"                        \
    "st.global.u32 [counter], %r1; mov.u64 %rd2, table; ld.global.u64 %rd3, [%rd2];\n"                       \
    "st.param.b32 [a], %r1; proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"                      \
    "call (b), %rd3, (a), proto; ld.param.u32 %r1, [b]; st.global.u32 [%rd1], %r1; ret; }\n"

/*
 * Runs the kernel once on variables at addresses that differ from call to call: 2 * (5 + added). *memory is
 * where the counter was.
 */
static uint32_t run_program(const char *added, uint32_t capability, uint32_t *counter)
{
    static unsigned char memory[16][256];
    static unsigned next;
    char text[sizeof(PTX) + 16];
    struct sg_text log = {0};
    struct sg_program *program;
    uint32_t out = 0;
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(strstr(PTX, "%s") - PTX), PTX, added,
             strstr(PTX, "%s") + 2);
    if (sg_program_create(text, strlen(text), capability, &log, &program) != SG_COMPILE_OK) {
        fprintf(stderr, "%s", log.data);
        exit(1);
    }
    for (size_t i = 0; sg_program_variable(program, i) != NULL; i++)
        sg_program_place(program, i, memory[next++ % 16]);
    CHECK(sg_program_initialise(program, true, &log) == SG_COMPILE_OK);
    void *code;
    CHECK(sg_program_code(program, 0, &log, &code) == SG_COMPILE_OK);
    const struct sg_kernel *kernel = sg_program_kernel(program, 0);
    CHECK(kernel->form == SG_CODE_BLOCK);
    struct sg_block block = {.ntid = {1, 1, 1}, .nctaid = {1, 1, 1}};
    uint32_t *target = &out;
    _Alignas(16) unsigned char params[16];
    memcpy(params, &target, sizeof(target));
    ((sg_block_code)code)(&block, params);
    memcpy(counter, memory[(next - 2) % 16], sizeof(*counter));
    sg_program_destroy(program);
    return out;
}

/* The kernel gives `expected`, and hits and misses grow by these. */
static void expect_run(const char *added, uint32_t capability, uint32_t expected, uint64_t hits,
                       uint64_t misses)
{
    const struct sg_cache_statistics before = sg_cache_statistics(sg_cache_default());
    uint32_t counter;
    CHECK(run_program(added, capability, &counter) == expected);
    CHECK(counter == expected / 2); /* the variable of this program, not of the one that was compiled */
    const struct sg_cache_statistics after = sg_cache_statistics(sg_cache_default());
    CHECK(after.hits - before.hits == hits && after.misses - before.misses == misses);
}

static void test_programs(void)
{
    setenv("SOFTGPU_CACHE", folder, 1);
    CHECK(sg_cache_default() != NULL);
    expect_run("1", 120, 12, 0, 1);
    CHECK(files(NULL, NULL, 0) == 1);
    expect_run("1", 120, 12, 1, 0);
    expect_run("2", 120, 14, 0, 1);
    expect_run("2", 120, 14, 1, 0);
    expect_run("1", 120, 12, 1, 0);
    expect_run("1", 100, 12, 0, 1);
    CHECK(files(NULL, NULL, 0) == 3);
    setenv("SOFTGPU_DUMP_IR", folder, 1);
    expect_run("1", 120, 12, 0, 0);
    CHECK(files(NULL, NULL, 0) == 5);
}

/* What was compiled by one process is loaded by others that run at the same time. */
static void test_other_process(void)
{
    setenv("SOFTGPU_CACHE", folder, 1);
    for (int process = 0; process < 3; process++) {
        pid_t child = fork();
        if (child == 0) {
            expect_run("3", 120, 16, process > 0, process == 0);
            exit(0);
        }
        await_child(child);
    }
}

/* An entry that is whole but no code that can be loaded: compiled again. */
static void test_unusable_code(void)
{
    setenv("SOFTGPU_CACHE", folder, 1);
    expect_run("1", 120, 12, 0, 1);
    char name[512];
    struct rg_digest key;
    CHECK(files(NULL, name, sizeof(name)) == 1);
    for (size_t i = 0; i < sizeof(key); i++)
        CHECK(sscanf(name + strlen(folder) + 1 + 2 * i, "%2hhx", &key.bytes[i]) == 1);
    sg_cache_write(sg_cache_default(), &key, "no object", 9);
    expect_run("1", 120, 12, 1, 0); /* found, but of no use */
    expect_run("1", 120, 12, 1, 0);
    CHECK(sg_cache_statistics(sg_cache_default()).dropped == 1);
}

/* A program with one large kernel, whose code has been asked for. */
static struct sg_program *large_program(void **code)
{
    static const char header[] = ".version 8.7\n.target sm_90\n.address_size 64\n";
    struct sg_text log = {0};
    struct sg_program *program;
    char *rounds = rounds_text(200, false), *text = NULL;
    int size = asprintf(&text, "%s%s", header, rounds);
    CHECK(size > 0 && sg_program_create(text, (size_t)size, 120, &log, &program) == SG_COMPILE_OK);
    CHECK(sg_program_code(program, 0, &log, code) == SG_COMPILE_OK);
    free(rounds);
    free(text);
    return program;
}

/* The first process ends before there is better code; the next has quick code at once, and goes on with what is kept. */
static void test_large(void)
{
    void *first, *code;
    setenv("SOFTGPU_CACHE", folder, 1);
    pid_t child = fork();
    if (child == 0) {
        large_program(&first);
        _exit(0);
    }
    await_child(child);
    const unsigned kept = files(NULL, NULL, 0);
    CHECK(kept >= 1 && kept <= 3);
    struct sg_program *program = large_program(&first);
    CHECK(sg_cache_statistics(sg_cache_default()).hits >= 1);
    sg_program_wait_better(program);
    struct sg_text log = {0};
    CHECK(sg_program_code(program, 0, &log, &code) == SG_COMPILE_OK && (kept == 1 || code != first));
    sg_program_destroy(program);
    CHECK(files(NULL, NULL, 0) == 1); /* the better code alone */
    const struct sg_cache_statistics before = sg_cache_statistics(sg_cache_default());
    program = large_program(&code);
    sg_program_wait_better(program);
    const struct sg_cache_statistics after = sg_cache_statistics(sg_cache_default());
    CHECK(after.hits == before.hits + 1 && after.misses == before.misses && after.written == before.written);
    sg_program_destroy(program);
}

/* A process that exits while better code is being made neither crashes nor waits for it. */
static void test_exit(void)
{
    setenv("SOFTGPU_CACHE", "off", 1);
    for (int i = 0; i < 8; i++) {
        pid_t child = fork();
        if (child == 0) {
            void *code;
            large_program(&code);
            usleep((useconds_t)i * 30000);
            exit(0);
        }
        await_child(child);
    }
}

static void test_environment(void)
{
    static const struct {
        const char *cache, *xdg, *home, *expected;
    } cases[] = {
        {"off", "x", "h", NULL},
        {"own", "x", "h", "own"},
        {"", "x", "h", "x/remote-gpu/soft"},
        {NULL, "x", "h", "x/remote-gpu/soft"},
        {NULL, NULL, "h", "h/.cache/remote-gpu/soft"},
        {NULL, NULL, NULL, NULL},
        {NULL, NULL, "no home", NULL},
        {NULL, NULL, "/proc", NULL},
    };
    CHECK(mkdir(folder, 0700) == 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (fork() == 0) {
            const char *names[] = {"SOFTGPU_CACHE", "XDG_CACHE_HOME", "HOME"};
            const char *values[] = {cases[i].cache, cases[i].xdg, cases[i].home};
            char path[256];
            snprintf(path, sizeof(path), "%s/%zu", folder, i);
            CHECK(mkdir(path, 0700) == 0);
            snprintf(path, sizeof(path), "%s/%zu/h", folder, i);
            CHECK(mkdir(path, 0700) == 0);
            for (int n = 0; n < 3; n++) {
                bool whole = values[n] == NULL || *values[n] == 0 || *values[n] == '/' ||
                             strcmp(values[n], "off") == 0;
                snprintf(path, sizeof(path), "%s/%zu/%s", folder, i, values[n] != NULL ? values[n] : "");
                if (values[n] == NULL)
                    unsetenv(names[n]);
                else
                    setenv(names[n], whole ? values[n] : path, 1);
            }
            CHECK((sg_cache_default() != NULL) == (cases[i].expected != NULL));
            snprintf(path, sizeof(path), "%s/%zu/%s", folder, i, cases[i].expected);
            CHECK(cases[i].expected == NULL || access(path, W_OK) == 0);
            uint32_t counter;
            CHECK(run_program("1", 120, &counter) == 12);
            exit(0);
        }
        await_child(-1);
    }
}

static void run(const char *name, void (*test)(void))
{
    int status;
    folder = temporary_path(name);
    pid_t child = fork();
    if (child == 0) {
        test();
        exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    free(folder);
    printf("%s: %s\n", name, status == 0 ? "ok" : "FAILED");
    fflush(stdout);
    if (status != 0)
        exit(1);
}

int main(void)
{
    CHECK(chmod(temporary_folder(), 0711) == 0); /* one case is another user's */
    run("entries", test_entries);
    run("damage", test_damage);
    run("foreign", test_foreign);
    run("read-only", test_read_only);
    run("limit", test_limit);
    run("processes", test_processes);
    run("programs", test_programs);
    run("other process", test_other_process);
    run("unusable code", test_unusable_code);
    run("large kernels", test_large);
    run("exit", test_exit);
    run("environment", test_environment);
    return 0;
}
