/*
 * driver_libraries.c - opens the driver's libraries by fixed paths, with device-files.so preloaded: they are the ones that are
 * loaded (served), or there are none (absent). All else is found as ever, by the search path of who asks too.
 *
 * usage: driver_libraries served|absent OWN_LIBRARY, which is a file of remote-gpu's with such a name
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static unsigned wrong;

static void expect(bool condition, const char *what, const char *path)
{
    if (!condition) {
        printf("%s: WRONG: %s\n", path, what);
        wrong++;
    }
}

static void by_path(const char *path, const char *name, const char *function, bool served)
{
    void *library = dlopen(path, RTLD_NOW), *by_name = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (served) {
        expect(library && library == by_name, "not the one that is loaded", path);
        expect(library && dlsym(library, function), function, path);
    } else {
        expect(!library, "there is one", path);
    }
}

static void refused(const char *path)
{
    expect(!dlopen(path, RTLD_NOW), "found", path);
    const char *why = dlerror();
    expect(why && strstr(why, path), why ? why : "no reason", path);
}

int main(int argc, char **argv)
{
    const bool served = argc == 3 && strcmp(argv[1], "served") == 0;
    by_path("/no/such/folder/libcuda.so.1", "libcuda.so.1", "cuInit", served);
    by_path("no/such/folder/libcuda.so", "libcuda.so.1", "cuInit", served);
    by_path("/no/such/folder/libnvidia-ml.so.1", "libnvidia-ml.so.1", "nvmlInit_v2", served);
    refused("/no/such/folder/libcudart.so.13");
    refused("/no/such/folder/libcuda.so.1/");
    expect(dlopen(NULL, RTLD_NOW) != NULL, "not found", "the program itself");
    expect(dlopen("driver_libraries_near.so", RTLD_NOW) != NULL, "not found beside the program", "near");
    void *own = argc == 3 ? dlopen(argv[2], RTLD_NOW) : NULL,
         *loaded = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD);
    expect(own != NULL && (!served || own != loaded), "not itself", argv[2]);
    printf("%s: %s\n", argv[1], wrong ? "WRONG" : "ok");
    return wrong ? 1 : 0;
}
