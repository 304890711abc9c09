/*
 * How torch's types and reduction operators map to those of the C library.
 */
#pragma once

#include <functional>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <commstream/commstream.h>

namespace commstream
{

/* Elements as the library moves them: n of type. What it has no type for moves as bytes. */
struct Elements {
    comm_type type;
    size_t n;
};
Elements elements_of(const at::Tensor &t);

/* A reduction as the library does it, and what is done to an input before. */
struct Reduction {
    comm_type type;
    comm_op op;
    std::function<void(at::Tensor &)> before; /* scales the input; empty: nothing */
};
Reduction reduction_of(const c10d::ReduceOp &op, at::ScalarType type);

/* Throws unless t is a strided tensor on the CPU or on a device that is served. `name` is that of the call. */
void check_tensor(const at::Tensor &t, const char *name);
/* Throws unless it is on the CPU. */
void check_host_tensor(const at::Tensor &t, const char *name);

} // namespace commstream
