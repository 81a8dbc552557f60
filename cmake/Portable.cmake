# Toolchain of the portable client (preset portable): the compiler and the libraries that scripts/setup-portable made, which
# depend on glibc 2.28 and nothing else. Every library that pkg-config finds is one of these; the machine's own are not looked at.
set(RG_PORTABLE_ROOT ${CMAKE_CURRENT_LIST_DIR}/../.deps/portable)
get_filename_component(RG_PORTABLE_ROOT ${RG_PORTABLE_ROOT} REALPATH)
if(NOT EXISTS ${RG_PORTABLE_ROOT}/root/stamp)
    message(FATAL_ERROR "the portable client's compiler and libraries are not there: run scripts/setup-portable")
endif()
set(CMAKE_C_COMPILER ${RG_PORTABLE_ROOT}/bin/cc)
set(CMAKE_ASM_COMPILER ${RG_PORTABLE_ROOT}/bin/cc)
set(CMAKE_AR ${RG_PORTABLE_ROOT}/bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${RG_PORTABLE_ROOT}/bin/ranlib CACHE FILEPATH "")
set(CMAKE_PREFIX_PATH ${RG_PORTABLE_ROOT}/root)
set(ENV{PKG_CONFIG_LIBDIR} ${RG_PORTABLE_ROOT}/root/lib/pkgconfig)
unset(ENV{PKG_CONFIG_PATH})
