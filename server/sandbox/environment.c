/*
 * environment.c - what a confined program gets of the server's environment: what is listed, nothing else.
 *
 * A server's environment may hold what is nobody's business (tokens of a cloud, sockets of a service manager). What
 * remains configures the driver, libraries and remote-gpu itself. Where its user may not go (HOME), or what is replaced by
 * the identity's own (caches), is left out.
 */
#include "common/cuda/mps.h"
#include "server/sandbox/identities.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const prefixes[] = {
    "CUDA_", "NVIDIA_", "NCCL_", "SOFTGPU_", "REMOTE_GPU_", "LC_",  "MALLOC_",
    "IBV_",  "RDMAV_",  "MLX4_", "MLX5_",    "EFA_",        "RXE_", "OMP_",
};
static const char *const names[] = {
    "PATH",           "LANG",
    "LANGUAGE",       "TZ",
    "LOCPATH",        "LD_LIBRARY_PATH",
    "LD_PRELOAD",     "LD_BIND_NOW",
    "GLIBC_TUNABLES", "ASAN_OPTIONS",
    "UBSAN_OPTIONS",  "TSAN_OPTIONS",
    "LSAN_OPTIONS",   "LLVM_PROFILE_FILE",
};
/*
 * Of those above, what is not for them. By a limit of MPS's own a driver shows what is left of it as the device's free memory, by which
 * what contexts and modules take is measured (server/shares/worker/meter.h); the session's limit is kept there.
 */
static const char *const withheld[] = {"REMOTE_GPU_CREDENTIALS", "REMOTE_GPU_SERVER", RG_MPS_MEMORY};

static bool is_name(const char *assignment, const char *name)
{
    const size_t size = strlen(name);
    return strncmp(assignment, name, size) == 0 && assignment[size] == '=';
}

static bool is_allowed(const char *assignment)
{
    for (size_t i = 0; i < sizeof withheld / sizeof withheld[0]; i++)
        if (is_name(assignment, withheld[i]))
            return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is_name(assignment, names[i]))
            return true;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(assignment, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* Whether one of `own` sets the same variable. */
static bool is_replaced(const char *assignment, char *const *own, size_t n)
{
    const size_t size = strcspn(assignment, "=") + 1;
    for (size_t i = 0; i < n; i++)
        if (own[i] && own[i][0] && strncmp(own[i], assignment, size) == 0)
            return true;
    return false;
}

char **rg_sandbox_environment(char *const *own, size_t n)
{
    size_t total = 0, used = 0;
    while (environ[total])
        total++;
    char **out = calloc(total + n + 1, sizeof *out);
    for (size_t i = 0; out && i < total; i++)
        if (is_allowed(environ[i]) && !is_replaced(environ[i], own, n))
            out[used++] = environ[i];
    for (size_t i = 0; out && i < n; i++)
        if (own[i] && own[i][0])
            out[used++] = own[i];
    return out;
}
