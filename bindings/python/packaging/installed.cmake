# The library that `cmake --install` put under COMM_INSTALLED. Its tools find it beside them in the package as they do there.
file(GLOB found ${COMM_INSTALLED}/lib*/libcommstream.so.?* ${COMM_INSTALLED}/lib/*/libcommstream.so.?*)
list(LENGTH found count)
if(count EQUAL 0)
  message(FATAL_ERROR "COMM_INSTALLED=${COMM_INSTALLED}: there is no lib/libcommstream.so.*; expected the prefix of an installed library")
endif()
list(SORT found) # the name by which programs ask for it comes before that with the whole version
list(GET found 0 link)
file(REAL_PATH ${link} file)
get_filename_component(folder ${link} DIRECTORY)
get_filename_component(name ${link} NAME)
file(GLOB modules ${folder}/commstream-*/libcommstream_*.so)

target_include_directories(_core PRIVATE ${COMM_INSTALLED}/include)
target_link_libraries(_core PRIVATE ${link})
install(FILES ${file} DESTINATION commstream/lib RENAME ${name})
install(FILES ${modules} DESTINATION commstream/lib)
install(PROGRAMS ${COMM_INSTALLED}/bin/comm-run ${COMM_INSTALLED}/bin/comm-info ${COMM_INSTALLED}/bin/comm-perf DESTINATION commstream/bin)
install(DIRECTORY ${COMM_INSTALLED}/include/commstream DESTINATION commstream/include FILES_MATCHING PATTERN "*.h")
