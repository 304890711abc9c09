# The three forms of the library, all from the objects of the rooms.

# By its name, so that an installed package finds it wherever it is there. What was found where no linker looks is linked by its path: by its
# name it would be missing, or another one than the headers belong to.
function(comm_link_of variable found name library)
  set(link "")
  if(${found})
    get_filename_component(folder "${library}" DIRECTORY)
    set(link ${library})
    if(folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
      set(link ${name})
    endif()
  endif()
  set(${variable} "${link}" PARENT_SCOPE)
endfunction()
comm_link_of(comm_uring_link COMM_FOUND_URING uring "${COMM_URING_LIBRARY}")
comm_link_of(comm_crypto_link COMM_FOUND_OPENSSL crypto "${OPENSSL_CRYPTO_LIBRARY}")

# The shared library: comm_* alone leaves it, under a version that is ours.
add_library(commstream SHARED $<TARGET_OBJECTS:commstream_objects>)
target_link_libraries(commstream PRIVATE commstream_flags Threads::Threads ${CMAKE_DL_LIBS} ${comm_uring_link} ${comm_crypto_link})
add_library(commstream::commstream ALIAS commstream)
target_include_directories(commstream INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_options(commstream PRIVATE
  -Wl,-Bsymbolic-functions -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/commstream.map)
set_target_properties(commstream PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${COMM_ABI_VERSION} EXPORT_NAME commstream
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/commstream.map)

# The static library: one relocatable object in which every hidden symbol has become local, so that a program that links it sees
# comm_* and nothing else of ours.
set(commstream_one_object ${CMAKE_BINARY_DIR}/commstream.o)
add_custom_command(
  OUTPUT ${commstream_one_object}
  COMMAND ${CMAKE_LINKER} -r -o ${commstream_one_object} $<TARGET_OBJECTS:commstream_objects>
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${commstream_one_object}
  DEPENDS commstream_objects $<TARGET_OBJECTS:commstream_objects>
  COMMENT "Making one object of the library, hidden symbols local"
  COMMAND_EXPAND_LISTS VERBATIM)
set_source_files_properties(${commstream_one_object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_library(commstream_static STATIC ${commstream_one_object})
target_link_libraries(commstream_static INTERFACE Threads::Threads ${CMAKE_DL_LIBS} ${comm_uring_link} ${comm_crypto_link})
add_library(commstream::commstream_static ALIAS commstream_static)
target_include_directories(commstream_static INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(commstream_static PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME commstream)

# The same objects with nothing hidden, for tests of the rooms inside.
add_library(commstream_inside STATIC $<TARGET_OBJECTS:commstream_objects>)
target_link_libraries(commstream_inside PUBLIC commstream_flags Threads::Threads ${CMAKE_DL_LIBS} ${comm_uring_link} ${comm_crypto_link})
target_include_directories(commstream_inside PUBLIC
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src/core ${PROJECT_SOURCE_DIR}/src)
