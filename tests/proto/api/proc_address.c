/* Version-exact look-up: the names whose ABI changed under the same name, and the edges of the versions. */
#include "proto/api/proc_address.h"

#include "generated/proto/api_table.h"

#include <criterion/criterion.h>

static const char *found(const char *name, int version, unsigned flags)
{
    int index;
    enum rg_proc_result result = rg_proc_find(name, version, flags, &index);
    return result == RG_PROC_FOUND          ? rg_api_names[index]
           : result == RG_PROC_UNKNOWN_NAME ? "unknown"
                                            : "too old";
}

#define EXPECT(name, version, flags, symbol) cr_assert_str_eq(found(name, version, flags), symbol)

Test(proc_address, newest_not_later_than_the_version)
{
    EXPECT("cuMemAlloc", 2000, 0, "cuMemAlloc");
    EXPECT("cuMemAlloc", 3010, 0, "cuMemAlloc");
    EXPECT("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
    EXPECT("cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
    EXPECT("cuCtxCreate", 11040, 0, "cuCtxCreate_v3");
    EXPECT("cuCtxCreate", 12040, 0, "cuCtxCreate_v3");
    EXPECT("cuCtxCreate", 12050, 0, "cuCtxCreate_v4");
    EXPECT("cuCtxGetDevice", 12090, 0, "cuCtxGetDevice");
    EXPECT("cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2");
    EXPECT("cuEventElapsedTime", 2000, 0, "cuEventElapsedTime");
    EXPECT("cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2");
}

Test(proc_address, per_thread_forms_where_they_exist)
{
    EXPECT("cuMemcpy", 7000, 2, "cuMemcpy_ptds");
    EXPECT("cuMemcpy", 7000, 1, "cuMemcpy");
    EXPECT("cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds");
    EXPECT("cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz");
    EXPECT("cuLaunchKernel", 13000, 0, "cuLaunchKernel");
    EXPECT("cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz");
    EXPECT("cuMemAlloc", 13000, 2, "cuMemAlloc_v2");     /* has none */
    EXPECT("cuLaunchKernel", 6000, 2, "cuLaunchKernel"); /* not yet */
}

Test(proc_address, what_is_not_there)
{
    EXPECT("", 0, 0, "unknown");
    EXPECT("cuNoSuchFunction", 13000, 0, "unknown");
    EXPECT("cuMemAlloc_v2", 13000, 0, "unknown");
    EXPECT("zzz", 13000, 0, "unknown");
    EXPECT("cuLibraryLoadData", 11080, 0, "too old");
}

static const char *in_driver(int newest, const char *name, int version, unsigned flags)
{
    int index;
    enum rg_proc_result result = rg_proc_find_in(newest, name, version, flags, &index);
    return result == RG_PROC_FOUND          ? rg_api_names[index]
           : result == RG_PROC_UNKNOWN_NAME ? "unknown"
                                            : "too old";
}

/* An older driver has the older form, whatever is asked for, and has never heard of what came later. */
Test(proc_address, of_older_drivers)
{
    cr_expect_str_eq(in_driver(12020, "cuCtxCreate", 13000, 0), "cuCtxCreate_v3");
    cr_expect_str_eq(in_driver(12020, "cuEventElapsedTime", 13000, 0), "cuEventElapsedTime");
    cr_expect_str_eq(in_driver(12020, "cuFuncGetParamInfo", 13000, 0), "unknown");
    cr_expect_str_eq(in_driver(12020, "cuFuncGetParamInfo", 12000, 0), "unknown");
    cr_expect_str_eq(in_driver(12040, "cuFuncGetParamInfo", 12000, 0), "too old");
    cr_expect_str_eq(in_driver(12040, "cuFuncGetParamInfo", 13000, 0), "cuFuncGetParamInfo");
    cr_expect_str_eq(in_driver(12000, "cuMemPrefetchAsync", 13000, 2), "cuMemPrefetchAsync_ptsz");
    cr_expect(rg_proc_same_since(12000, "cuMemAlloc", 13000, 0));
    cr_expect(rg_proc_same_since(12000, "cuNoSuchFunction", 13000, 0));
    cr_expect(rg_proc_same_since(12000, "cuCtxCreate", 12000, 0));
    cr_expect_not(rg_proc_same_since(12000, "cuCtxCreate", 12050, 0));
    cr_expect_not(rg_proc_same_since(12000, "cuFuncGetParamInfo", 12000, 0));
}
