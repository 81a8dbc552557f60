# softgpu_nccl_core: NCCL of the software device over streams that do what a test says (streams.h); also for tests/fuzz.
if(NOT TARGET softgpu_nccl_core)
    file(GLOB nccl_core CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/softgpu/nccl/*.c)
    list(REMOVE_ITEM nccl_core ${CMAKE_SOURCE_DIR}/softgpu/nccl/driver.c)
    add_library(softgpu_nccl_core STATIC EXCLUDE_FROM_ALL ${nccl_core} ${CMAKE_CURRENT_LIST_DIR}/streams.c)
    target_link_libraries(softgpu_nccl_core PUBLIC rg_options common m)
    add_dependencies(softgpu_nccl_core rg_generate)
endif()
