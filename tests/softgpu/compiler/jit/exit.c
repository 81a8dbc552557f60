/*
 * exit.c - where LLVM is part of a library, the library's own exit handlers run, and the destructors of LLVM's objects don't. The argument
 * is the library.
 */
#include "tests/softgpu/compiler/jit/llvm_inside.h"

#include "tests/check.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <unistd.h>

#define HANGS_AFTER_S  60
#define NO_HANDLER_RAN 3

static bool destroyed;

static void own(void)
{
    _exit(destroyed ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* Would run before the handler, which was registered before it. */
static void destroy(void *object)
{
    (void)object;
    destroyed = true;
}

int main(int argc, char **argv)
{
    register_both_function *register_both;
    alarm(HANGS_AFTER_S);
    CHECK(argc == 2);
    void *library = dlopen(argv[1], RTLD_NOW);
    CHECK(library != NULL);
    *(void **)&register_both = dlsym(library, "register_both");
    CHECK(register_both != NULL && register_both(own, destroy) == 0);
    return NO_HANDLER_RAN;
}
