/*
 * Devices as torch's device guards show them, without a header of CUDA's. So what serves CUDA tensors is tested with a device that the
 * tests make.
 */
#pragma once

#include <optional>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

struct CUstream_st;

namespace commstream
{

/* Whether tensors of such a device are taken: of CUDA's, and of the tests' own where COMMSTREAM_TORCH_TEST_DEVICE is set. */
bool is_served(c10::DeviceType type);

/* Where this torch has CUDA, the C library finds memory of devices in communicators that are made from now on. */
void load_driver();

/* Streams of a device. What is current is that of the calling thread. */
c10::Stream current_stream(const c10::Device &device);
c10::Stream pool_stream(const c10::Device &device);
/* The current stream, as the C library takes it. The device is current. */
CUstream_st *native_stream(const c10::Device &device);

/* The memory of t is not given to others before what the stream has so far is done. */
void record_use(const at::Tensor &t, const c10::Stream &stream);

/* A place on a stream. */
class Mark
{
  public:
    explicit Mark(const c10::Stream &stream) : event_(stream.device_type()) { event_.record(stream); }
    /* The stream waits until that place is reached. */
    void block(const c10::Stream &stream) const { event_.block(stream); }

  private:
    c10::Event event_;
};

} // namespace commstream
