# The library from this tree. A source distribution carries it in library/ (backend.py).
set(library ${CMAKE_CURRENT_SOURCE_DIR}/library)
if(NOT EXISTS ${library}/CMakeLists.txt)
  set(library ${CMAKE_CURRENT_SOURCE_DIR}/../..)
endif()
set(COMM_TESTS OFF CACHE BOOL "")
set(COMM_EXAMPLES OFF CACHE BOOL "")
add_subdirectory(${library} ${CMAKE_CURRENT_BINARY_DIR}/library EXCLUDE_FROM_ALL)
target_link_libraries(_core PRIVATE commstream)

# A wheel holds no links: the library has one name, that by which programs ask for it.
get_target_property(soversion commstream SOVERSION)
set_target_properties(commstream PROPERTIES VERSION ${soversion})
set(parts commstream commstream_cuda)
foreach(family openmpi mpich abi) # those of COMM_MPI_FAMILIES, and the one that needs no MPI to be built
  if(TARGET commstream_mpi_${family})
    list(APPEND parts commstream_mpi_${family})
  endif()
endforeach()
set(tools comm-run comm-info comm-perf)
add_dependencies(_core ${parts} ${tools})
set_target_properties(${tools} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")

install(TARGETS ${parts} LIBRARY DESTINATION commstream/lib NAMELINK_SKIP)
install(TARGETS ${tools} RUNTIME DESTINATION commstream/bin)
install(DIRECTORY ${library}/include/commstream DESTINATION commstream/include FILES_MATCHING PATTERN "*.h")
