/* environment.c - what a confined program gets of the server's environment, and what is kept from it. */
#include "server/sandbox/identities.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value that the program gets; NULL: the variable is not there, "twice": more than once. */
static const char *value_of(char *const *environment, const char *name)
{
    const size_t size = strlen(name);
    const char *found = NULL;
    for (; *environment; environment++)
        if (strncmp(*environment, name, size) == 0 && (*environment)[size] == '=')
            found = found ? "twice" : *environment + size + 1;
    return found;
}

static void expect(char *const *environment, const char *name, const char *value)
{
    const char *found = value_of(environment, name);
    if (found == value || (found && value && strcmp(found, value) == 0))
        return;
    fprintf(stderr, "%s is %s instead of %s\n", name, found ? found : "not there",
            value ? value : "not there");
    exit(1);
}

int main(void)
{
    static const struct {
        const char *name, *value, *given;
    } cases[] = {
        {"CUDA_CACHE_MAXSIZE", "100", "100"},
        {"SOFTGPU_CORES", "2", "2"},
        {"NCCL_DEBUG", "WARN", "WARN"}, /* the library is the worker's */
        {"CLOUD_TOKEN", "secret", NULL},
        {"REMOTE_GPU_CREDENTIALS", "/keys", NULL},
        {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G", NULL}, /* limits are the server's own */
        {"CUDA_MPS_PIPE_DIRECTORY", "/run/mps", "/elsewhere"},
    };
    char own_folder[] = "CUDA_MPS_PIPE_DIRECTORY=/elsewhere";
    char *const own[] = {NULL, own_folder};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (setenv(cases[i].name, cases[i].value, 1) != 0)
            return 1;
    char **environment = rg_sandbox_environment(own, 2);
    if (!environment)
        return 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(environment, cases[i].name, cases[i].given);
    free(environment);
    return 0;
}
