# Compiles kernels for devices and writes them as a C file:
#   cmake -D NVCC=nvcc -D SOURCE=kernels.cu -D ROOT=folder of the project -D TO=image.c [-D WANTED=ON] -P kernels.cmake
# Without NVCC, and where it fails (a toolkit too old for a device that is named, a host compiler that it refuses), the file has no bytes:
# the module is complete without kernels. If they are WANTED, a failure is an error.
set(bytes "")
set(count 0)
if(NVCC)
  # the driver makes code for devices that are not named from the code for the oldest one
  execute_process(COMMAND ${NVCC} -fatbin -fmad=false -I${ROOT}/include -I${ROOT}/src -gencode arch=compute_75,code=compute_75
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -o ${TO}.fatbin ${SOURCE}
    RESULT_VARIABLE failed ERROR_VARIABLE why)
  if(failed)
    if(WANTED STREQUAL "ON")
      message(FATAL_ERROR "commstream: nvcc does not compile ${SOURCE}\n${why}")
    endif()
    message(WARNING "commstream: nvcc does not compile ${SOURCE}; the module cuda has no kernels\n${why}")
  else()
    file(READ "${TO}.fatbin" hex HEX)
    string(LENGTH "${hex}" digits)
    math(EXPR count "${digits} / 2")
    string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  endif()
endif()
file(WRITE "${TO}" "#include \"cuda/kernels.h\"\n_Alignas(16) const unsigned char cuda_kernels[] = {\n${bytes}0};\n"
  "const unsigned cuda_kernels_bytes = ${count};\n")
