/* load_and_init.c - loads the driver library of the path that it is given, calls cuInit, and prints what that returned. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*init)(unsigned) = library ? (int (*)(unsigned))dlsym(library, "cuInit") : NULL;
    if (!init) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    printf("%d\n", init(0));
    return 0;
}
