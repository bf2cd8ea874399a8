# Finds an installed warpmem beside this file, wherever the tree stands now.
#
#   find_package(warpmem 0.1 REQUIRED)                       target_link_libraries(app PRIVATE warpmem::warpmem)
#   find_package(warpmem 0.1 REQUIRED COMPONENTS static)     the same target, and the archive behind it
#
# warpmem::shared and warpmem::static are there under their own names too, as far as they are installed.

get_filename_component(_warpmem_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(_warpmem_folders)
if(CMAKE_LIBRARY_ARCHITECTURE)
  list(APPEND _warpmem_folders "${_warpmem_prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
endif()
list(APPEND _warpmem_folders "${_warpmem_prefix}/lib64" "${_warpmem_prefix}/lib")

# No cache entries: a tree that was moved or replaced is seen as it is.
set(_warpmem_shared)
set(_warpmem_static)
foreach(_warpmem_folder IN LISTS _warpmem_folders)
  if(NOT _warpmem_shared AND EXISTS "${_warpmem_folder}/libwarpmem.so")
    set(_warpmem_shared "${_warpmem_folder}/libwarpmem.so")
  endif()
  if(NOT _warpmem_static AND EXISTS "${_warpmem_folder}/libwarpmem.a")
    set(_warpmem_static "${_warpmem_folder}/libwarpmem.a")
  endif()
endforeach()

include(CMakeFindDependencyMacro)
if(_warpmem_static)
  find_dependency(Threads)
endif()

if(_warpmem_shared AND NOT TARGET warpmem::shared)
  add_library(warpmem::shared SHARED IMPORTED)
  set_target_properties(warpmem::shared PROPERTIES
    IMPORTED_LOCATION "${_warpmem_shared}"
    INTERFACE_INCLUDE_DIRECTORIES "${_warpmem_prefix}/include")
endif()

if(_warpmem_static AND NOT TARGET warpmem::static)
  add_library(warpmem::static STATIC IMPORTED)
  set_target_properties(warpmem::static PROPERTIES
    IMPORTED_LOCATION "${_warpmem_static}"
    INTERFACE_INCLUDE_DIRECTORIES "${_warpmem_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};gcc_s;rt;util;m")
endif()

set(_warpmem_wanted "any")
foreach(_warpmem_component IN LISTS warpmem_FIND_COMPONENTS)
  if(_warpmem_component MATCHES "^(shared|static)$" AND TARGET "warpmem::${_warpmem_component}")
    set("warpmem_${_warpmem_component}_FOUND" TRUE)
    if(_warpmem_wanted STREQUAL "any")
      set(_warpmem_wanted "${_warpmem_component}")
    endif()
  elseif(warpmem_FIND_REQUIRED_${_warpmem_component})
    set(warpmem_FOUND FALSE)
    set(warpmem_NOT_FOUND_MESSAGE "warpmem in ${_warpmem_prefix} has no component ${_warpmem_component}")
  endif()
endforeach()
if(_warpmem_wanted STREQUAL "any")
  if(TARGET warpmem::shared)
    set(_warpmem_wanted "shared")
  else()
    set(_warpmem_wanted "static")
  endif()
endif()
if(NOT TARGET "warpmem::${_warpmem_wanted}")
  set(warpmem_FOUND FALSE)
  set(warpmem_NOT_FOUND_MESSAGE "no libwarpmem.so or libwarpmem.a in ${_warpmem_folders}")
elseif(NOT TARGET warpmem::warpmem)
  add_library(warpmem::warpmem INTERFACE IMPORTED)
  set_target_properties(warpmem::warpmem PROPERTIES INTERFACE_LINK_LIBRARIES "warpmem::${_warpmem_wanted}")
endif()

unset(_warpmem_prefix)
unset(_warpmem_folders)
unset(_warpmem_folder)
unset(_warpmem_shared)
unset(_warpmem_static)
unset(_warpmem_component)
unset(_warpmem_wanted)
