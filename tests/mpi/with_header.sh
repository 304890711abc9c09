# with_header.sh KIND HEADER CC ENDED RANKS ARGUMENTS SOURCES...: compiles the sources with a header of MPICH 5, which COMM_TEST_MPI_ABI names,
# and runs the program by run.sh. KIND is the MPI that it is linked with and started by: abi (MPICH 5) or intel, which has the same two ABIs.
# HEADER is mpi.h (libmpi.so.12, the ABI of MPICH 3 and 4) or mpi_abi.h (libmpi_abi.so.1, the standard ABI). SOURCES may be objects and flags.
kind=$1 header=$2 cc=$3 ended=$4 ranks=$5 arguments=$6
shift 6

case $kind in
abi) mpi=$COMM_TEST_MPI_ABI ;;
intel) mpi=$COMM_TEST_MPI_INTEL ;;
esac
if [ -z "$COMM_TEST_MPI_ABI" ] || [ -z "$mpi" ]; then
    exec sh "${0%/*}/run.sh" "$kind" "$ended" "$ranks" true # which says what is missing
fi
case $header in
mpi.h) library=libmpi.so.12 ;;
mpi_abi.h) library=libmpi_abi.so.1 ;;
esac

place=$(mktemp -d) && trap 'rm -rf "$place"' EXIT
mkdir "$place/include" && cp "$COMM_TEST_MPI_ABI/include/"mpi*.h "$place/include" && cp "$COMM_TEST_MPI_ABI/include/$header" "$place/include/mpi.h.new" &&
    mv "$place/include/mpi.h.new" "$place/include/mpi.h" &&
    $cc "-I$place/include" "$@" "$mpi/lib/$library" "-Wl,-rpath,$mpi/lib" -o "$place/program" &&
    sh "${0%/*}/run.sh" "$kind" "$ended" "$ranks" "$place/program" $arguments
