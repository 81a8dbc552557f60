/* maps.c - memory that may be written to, that may only be read, that may not even be that, and gaps. */
#include "common/base/maps.h"

#include <criterion/criterion.h>
#include <sys/mman.h>

#define PAGE 4096u

Test(maps, tells_what_may_be_done_with_memory)
{
    char *memory = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(memory, MAP_FAILED);
    cr_assert_eq(mprotect(memory + 2 * PAGE, PAGE, PROT_READ), 0);
    cr_assert_eq(mprotect(memory + 3 * PAGE, PAGE, PROT_NONE), 0);
    cr_assert(rg_maps_allow(memory, 2 * PAGE, true));
    cr_assert(rg_maps_allow(memory + 5, 1, true));
    cr_assert(rg_maps_allow(memory + 2 * PAGE - 1, 1, true));
    cr_assert_not(rg_maps_allow(memory + 2 * PAGE - 1, 2, true));
    cr_assert(rg_maps_allow(memory, 3 * PAGE, false));
    cr_assert_not(rg_maps_allow(memory, 3 * PAGE + 1, false));
    cr_assert(rg_maps_allow(memory + 4 * PAGE, PAGE, true));
    cr_assert_eq(munmap(memory + PAGE, PAGE), 0);
    cr_assert_not(rg_maps_allow(memory, 3 * PAGE, false));
    cr_assert(rg_maps_allow(memory, PAGE, true));
    char local = 0;
    cr_assert(rg_maps_allow(&local, sizeof local, true));
}

Test(maps, tells_what_others_may_have_as_well)
{
    const int access = PROT_READ | PROT_WRITE;
    char *memory = mmap(NULL, 4 * PAGE, access, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(memory, MAP_FAILED);
    cr_assert(rg_maps_shared(memory, 4 * PAGE));
    cr_assert(rg_maps_shared(memory + 1, PAGE));
    cr_assert_eq(mprotect(memory + PAGE, PAGE, PROT_READ), 0);
    cr_assert_not(rg_maps_shared(memory, 2 * PAGE));
    cr_assert(rg_maps_shared(memory, PAGE));
    const int instead = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    cr_assert_eq(mmap(memory + 3 * PAGE, PAGE, access, instead, -1, 0), memory + 3 * PAGE);
    cr_assert_not(rg_maps_shared(memory + 2 * PAGE, 2 * PAGE));
    cr_assert(rg_maps_shared(memory + 2 * PAGE, PAGE));
    cr_assert_eq(munmap(memory + PAGE, PAGE), 0);
    cr_assert_not(rg_maps_shared(memory, 3 * PAGE));
}
