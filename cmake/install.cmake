# What `cmake --install` puts where: headers, both libraries, the tools, commstream.pc and a CMake package.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/commstream DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS commstream commstream_static EXPORT commstreamTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# In a folder of their version, since a module serves the library that it was built with.
set(modules commstream_cuda commstream_mpi_abi)
foreach(family ${COMM_MPI_FAMILIES})
  list(APPEND modules commstream_mpi_${family})
endforeach()
install(TARGETS ${modules} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/commstream-${COMM_ABI_VERSION})
# A folder that was given as an absolute path is where it is, whatever the prefix.
set(comm_rpath ${CMAKE_INSTALL_FULL_LIBDIR})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" AND NOT IS_ABSOLUTE "${CMAKE_INSTALL_BINDIR}")
  file(RELATIVE_PATH comm_rpath /root/${CMAKE_INSTALL_BINDIR} /root/${CMAKE_INSTALL_LIBDIR})
  set(comm_rpath "$ORIGIN/${comm_rpath}")
endif()
foreach(tool comm-run comm-perf comm-info)
  if(TARGET ${tool})
    set_target_properties(${tool} PROPERTIES INSTALL_RPATH "${comm_rpath}")
    install(TARGETS ${tool} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# ${pcfiledir} keeps commstream.pc true wherever the tree is moved.
set(COMM_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH up /root/${CMAKE_INSTALL_LIBDIR}/pkgconfig /root)
  string(REGEX REPLACE "/$" "" up "${up}")
  set(COMM_PC_PREFIX "\${pcfiledir}/${up}")
endif()
foreach(folder INCLUDE LIB)
  set(COMM_PC_${folder}DIR ${CMAKE_INSTALL_${folder}DIR})
  if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_${folder}DIR}")
    set(COMM_PC_${folder}DIR "\${prefix}/${CMAKE_INSTALL_${folder}DIR}")
  endif()
endforeach()
set(COMM_PC_PRIVATE "-pthread -ldl")
foreach(link ${comm_uring_link} ${comm_crypto_link})
  if(NOT IS_ABSOLUTE "${link}")
    set(link -l${link})
  endif()
  string(APPEND COMM_PC_PRIVATE " ${link}")
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/commstream.pc.in ${CMAKE_BINARY_DIR}/commstream.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/commstream.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(COMM_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/commstream)
install(EXPORT commstreamTargets NAMESPACE commstream:: DESTINATION ${COMM_PACKAGE_DIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/commstreamConfig.cmake.in ${CMAKE_BINARY_DIR}/commstreamConfig.cmake
  INSTALL_DESTINATION ${COMM_PACKAGE_DIR})
# Before 0.1 is out, and between 0.x releases, a minor version may change the face.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/commstreamConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/commstreamConfig.cmake ${CMAKE_BINARY_DIR}/commstreamConfigVersion.cmake DESTINATION ${COMM_PACKAGE_DIR})
