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
foreach(tool comm-run comm-perf comm-info)
  if(TARGET ${tool})
    set_target_properties(${tool} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${tool} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# ${pcfiledir} keeps commstream.pc true wherever the tree is moved.
file(RELATIVE_PATH COMM_PC_UP /root/${CMAKE_INSTALL_LIBDIR}/pkgconfig /root)
set(COMM_PC_URING "")
if(COMM_FOUND_URING)
  set(COMM_PC_URING -luring)
endif()
set(COMM_PC_CRYPTO "")
if(COMM_FOUND_OPENSSL)
  set(COMM_PC_CRYPTO -lcrypto)
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/commstream.pc.in ${CMAKE_BINARY_DIR}/commstream.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/commstream.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(COMM_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/commstream)
install(EXPORT commstreamTargets NAMESPACE commstream:: DESTINATION ${COMM_PACKAGE_DIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/commstreamConfig.cmake.in ${CMAKE_BINARY_DIR}/commstreamConfig.cmake
  INSTALL_DESTINATION ${COMM_PACKAGE_DIR})
# Before 0.1 is out, and between 0.x releases, a minor version may change the face.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/commstreamConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/commstreamConfig.cmake ${CMAKE_BINARY_DIR}/commstreamConfigVersion.cmake DESTINATION ${COMM_PACKAGE_DIR})
