# Small programs as tests: every source of a folder becomes a program, run by ctest on the simulated driver.
#
# A source may say on which topologies it is to run, one a line near its top, each a test of its own:
#     // topology: mixed
#     /* topology: h200x2,gpus=4 */
#     // topology: -            (no driver at all)
# Without such a line it runs on h200x2. Adding a file adds a test.
#
# A source that cannot be run under valgrind or with sanitizers, since it faults or times on purpose, says so, with the reason
# behind it; one that valgrind alone is to spare, since others go the same ways there, is slow:
#     // valgrind: no (the CPU touches device memory)
#     // valgrind: slow (a process for each call that fails; driver_failures.c has all of them fail in one)
#
# What a simulated driver cannot show is built, and not run:
#     // needs: hardware

function(warpmem_add_programs folder language)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.${language}")
  if(NOT sources)
    return()
  endif()
  foreach(source IN LISTS sources)
    get_filename_component(stem "${source}" NAME_WE)
    string(REPLACE "/" "-" target "${folder}-${stem}")
    add_executable(${target} "${source}")
    target_link_libraries(${target} PRIVATE warpmem::shared Threads::Threads ${CMAKE_DL_LIBS} m)
    target_include_directories(${target} PRIVATE
      "${CMAKE_CURRENT_SOURCE_DIR}/tests/c" "${CMAKE_CURRENT_SOURCE_DIR}/sim/include")
    target_compile_options(${target} PRIVATE -Wall -Wextra -Werror)
    # Tests speak through assertions of their own, but a stray assert() must not vanish in a release build.
    target_compile_options(${target} PRIVATE -UNDEBUG)
    set_target_properties(${target} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/${folder}"
      OUTPUT_NAME "${stem}"
      C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
      CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
    file(STRINGS "${source}" hardware LIMIT_COUNT 1 REGEX "^[ \t]*(//|/?\\*)[ \t]*needs: hardware")
    if(hardware)
      continue()
    endif()
    warpmem_topologies("${source}" topologies)
    file(STRINGS "${source}" watched LIMIT_COUNT 1 REGEX "^[ \t]*(//|/?\\*)[ \t]*valgrind: (no|slow)")
    set(label "")
    if(watched MATCHES "valgrind: no")
      set(label "unwatched")
    elseif(watched OR folder MATCHES "^(examples|tests/gpu)")
      # The tests go the ways of the examples too, and of what runs on real GPUs as well.
      set(label "slow-valgrind")
    endif()
    foreach(topology IN LISTS topologies)
      warpmem_add_run(${target} "${folder}/${stem}" "${topology}")
      # One machine is enough to find a wild read, and valgrind takes its time.
      set(label "unwatched")
    endforeach()
  endforeach()
endfunction()

function(warpmem_topologies source out)
  file(STRINGS "${source}" lines LIMIT_COUNT 40 REGEX "topology:")
  set(topologies)
  foreach(line IN LISTS lines)
    # Only a comment line that says nothing else.
    if(line MATCHES "^[ \t]*(//|/?\\*)[ \t]*topology:[ \t]*([^ \t*]+)[ \t]*(\\*/)?[ \t]*$")
      list(APPEND topologies "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  if(NOT topologies)
    set(topologies "h200x2")
  endif()
  set(${out} "${topologies}" PARENT_SCOPE)
endfunction()

function(warpmem_add_run target name topology)
  if(topology STREQUAL "-")
    set(environment "WARPMEM_LIBCUDA=/nonexistent/libcuda.so.1")
    set(name "${name}@no-driver")
  else()
    set(environment "WARPMEM_LIBCUDA=${_warpmem_output}/libwarpsim.so" "WARPSIM_TOPOLOGY=${topology}")
    if(NOT topology STREQUAL "h200x2")
      set(name "${name}@${topology}")
    endif()
  endif()
  add_test(NAME "${name}" COMMAND ${WARPMEM_TEST_LAUNCHER} $<TARGET_FILE:${target}>)
  set_tests_properties("${name}" PROPERTIES ENVIRONMENT "${environment}" TIMEOUT 300)
  if(label)
    set_tests_properties("${name}" PROPERTIES LABELS "${label}")
  endif()
endfunction()
