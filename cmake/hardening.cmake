# What a security-minded distribution builds with, for the library, its modules, the tools and the tests alike. Each flag is used where the
# compiler and linker know it; tests/abi/hardened.py looks at what was built. A sanitizer's build takes the linker's flags alone: it has
# checks of its own, and fortified functions hide copies from it.
#
#   COMM_HARDENING=OFF   none of them, for measuring what they cost
option(COMM_HARDENING "Stack protector, fortified libc calls, full RELRO and the like" ON)
set(comm_hardening_compile "") # what was found: the test asks for exactly these
set(comm_hardening_link "")
if(NOT COMM_HARDENING)
  function(comm_harden_hot target)
  endfunction()
  return()
endif()
include(CheckCCompilerFlag)
include(CheckLinkerFlag)
include(CheckCSourceCompiles)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

if(NOT COMM_SANITIZE)
  # cf-protection is x86's; arm's counterpart is branch-protection. Shadow stacks (return) cost nothing. The marks of indirect branch
  # targets (branch, full) cost each call half a nanosecond, and no kernel of Linux looks at them in a process.
  foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection=return -mbranch-protection=standard)
    string(MAKE_C_IDENTIFIER comm_has${flag} known)
    set(CMAKE_REQUIRED_FLAGS -Werror) # clang takes what it does not know with a warning
    check_c_compiler_flag(${flag} ${known})
    unset(CMAKE_REQUIRED_FLAGS)
    if(${known})
      list(APPEND comm_hardening_compile ${flag})
    endif()
  endforeach()
  # Level 3 needs gcc 12 or clang 9, and glibc 2.34; elsewhere the headers warn and take 2. Without optimisation there is none.
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_c_source_compiles("#include <string.h>
    int main(int count, char **words) { char to[8]; return (int)strlen(strcpy(to, words[count - 1])); }" comm_has_fortify_3)
  unset(CMAKE_REQUIRED_FLAGS)
  if(comm_has_fortify_3)
    set(comm_fortify -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  else()
    set(comm_fortify -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  endif()
  target_compile_options(commstream_flags INTERFACE ${comm_hardening_compile} $<$<NOT:$<CONFIG:Debug>>:${comm_fortify}>)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    list(APPEND comm_hardening_compile ${comm_fortify})
  endif()
endif()

# Between issue and completion of a small operation -strong guards each function that gives away the address of a struct, which costs such a
# call 3 of its 35 ns. In these files only what holds an array is guarded. To be called when the objects' target is there.
function(comm_harden_hot target)
  if("-fstack-protector-strong" IN_LIST comm_hardening_compile)
    foreach(file api/collective fastpath/fastpath fastpath/finish fastpath/template fastpath/issue comm/issue fastpath/wait fastpath/wait_many channel/shmchan channel/shmchan_view data/reduce_scalar)
      set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/core/${file}.c TARGET_DIRECTORY ${target}
        APPEND PROPERTY COMPILE_OPTIONS "-fstack-protector;--param=ssp-buffer-size=1")
    endforeach()
  endif()
endfunction()

foreach(flag relro now noexecstack nodelete)
  check_linker_flag(C -Wl,-z,${flag} comm_has_z_${flag})
  if(comm_has_z_${flag})
    list(APPEND comm_hardening_link ${flag})
  endif()
endforeach()
# nodelete: threads, fork and exit handlers of a library point into it, so dlclose must leave it where it is.
foreach(flag ${comm_hardening_link})
  if(flag STREQUAL "nodelete")
    target_link_options(commstream_flags INTERFACE
      $<$<IN_LIST:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY$<SEMICOLON>MODULE_LIBRARY>:-Wl,-z,${flag}>)
  else()
    target_link_options(commstream_flags INTERFACE -Wl,-z,${flag})
  endif()
endforeach()
