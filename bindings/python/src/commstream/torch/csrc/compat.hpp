/*
 * What differs between the versions of torch, from 2.6 on. Methods that older ones lack are declared without `override`
 * elsewhere, and types that come with a macro of torch's are guarded by it.
 */
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/version.h>

#define COMMSTREAM_TORCH (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)

static_assert(COMMSTREAM_TORCH >= 206, "commstream.torch needs torch 2.6 or newer");

namespace commstream
{

#if COMMSTREAM_TORCH >= 207
using ErrorType = c10d::ErrorType;
#else
enum class ErrorType { SUCCESS, TIMEOUT, COMM_ERROR, REMOTE_ERROR };
#endif

/* Since when a backend is asked to split itself. */
constexpr bool torch_splits = COMMSTREAM_TORCH >= 209;

} // namespace commstream
