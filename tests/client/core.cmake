# client_core: the client as a part of a program, of the library's objects, with a server that says what a test has it say (scripted_server.h);
# also for tests/fuzz.
if(NOT TARGET client_core)
    get_target_property(libraries client LINK_LIBRARIES)
    add_library(client_core STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:client> ${CMAKE_CURRENT_LIST_DIR}/scripted_server.c)
    target_link_libraries(client_core PUBLIC ${libraries} rg_options)
endif()
